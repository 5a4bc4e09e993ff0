//! lock: the call waits for a kernel lock that another thread holds.

use super::{CauseEntry, CauseId, lock_names};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::{Cause, CauseBasis, EventKind, ReportedBy};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "lock",
    span: Some(Cause::Lock),
    headline: "the call waits for a lock that another thread holds",
    mechanism: "write() takes the inode's i_rwsem exclusively for its whole length (i_mutex before 4.7), so two \
        writers of one file take turns, and whatever stops the first (reclaim, throttling, a read) stops all. A \
        rename or unlink holds the directories' i_rwsem; fork, mmap and faults share mmap_lock; truncate holds \
        invalidate_lock (5.15).",
    kernels: "All; the tracepoints lock:contention_begin and _end since 5.19.",
    in_spans: "Measured: between contention_begin and contention_end, or a sleep in rwsem_down_read_slowpath, \
        rwsem_down_write_slowpath, __mutex_lock.",
    in_counters: "Context switches and idle CPU rise together without I/O; `perf lock report` names the lock.",
    against: "The call waits for a page or a buffer (folio_lock, bit waits) under I/O: then it is the device, not a \
        lock.",
    fix: "One file per writer, or one thread that writes for all; move what holds the lock long (truncate of a large \
        file, a directory of a million entries, slow reclaim inside write()) elsewhere. Fix what the holder waits \
        for: it is usually another finding of the same recording.",
    prove: "The kernel stack shows which lock; with one writer per file the segment disappears.",
    sources: &[
        "kernel/locking/rwsem.c: rwsem_down_write_slowpath",
        "fs/ext4/file.c: ext4_buffered_write_iter",
        "fs/ext4/inode.c: ext4_da_map_blocks, ext4_map_blocks (i_data_sem)",
        "include/trace/events/lock.h",
    ],
    find,
};

/// Phrases of lockdep's reports about lock orders that can deadlock (kernel/locking/lockdep.c).
const INVERSIONS: &[&str] = &[
    "possible circular locking dependency",
    "possible recursive locking",
    "possible irq lock inversion",
    "inconsistent lock state",
    "-safe -> ",
];

/// A finding from a lockdep report, which proves that a deadlock is possible, not that it occurred.
fn from_lockdep(facts: &Facts<'_>) -> Option<Finding> {
    let line = facts.recording.events.iter().find_map(|event| match &event.kind {
        EventKind::Report(line) if INVERSIONS.iter().any(|words| line.contains(words)) => Some(line),
        _ => None,
    })?;
    let headline = "two locks are taken in opposite orders: tasks that meet there wait for each other forever";
    let mut finding = Finding::inferred(CauseId::Lock, 0.5, headline)
        .with([Evidence::statement(line.chars().take(160).collect::<String>())])
        .but([Evidence::statement("lockdep reports an order that can deadlock; nothing here shows that it occurred")]);
    let tasks = facts.recording.header.sampled_tasks.iter();
    if let Some(task) = tasks.into_iter().find(|task| task.reported_by == ReportedBy::Warning && task.holds.len() >= 2)
    {
        let held: Vec<&str> = task.holds.iter().take(3).map(String::as_str).collect();
        finding.evidence.push(Evidence::statement(format!("locks of the report: {}", held.join(", "))));
    }
    finding.cause_basis = CauseBasis::Stack;
    let finding = finding.fix(Fix::advice("a kernel with the lock order fixed: search for the names of both locks"));
    Some(finding.settle("`echo w > /proc/sysrq-trigger` while tasks hang: do their stacks wait for the two locks?"))
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    from_spans(facts).or_else(|| from_lockdep(facts))
}

fn from_spans(facts: &Facts<'_>) -> Option<Finding> {
    let sum = facts.significant(Cause::Lock)?;
    let finding = Finding::from_spans(facts, sum, ENTRY.headline);
    let behind = Fix::advice("look what the holder of the lock was waiting for: it is usually another finding");
    Some(match lock_names::most(facts, sum) {
        Some((lock, ns)) => finding.with([lock_names::evidence(sum, lock, ns)]).fix(lock_names::fix(lock)).fix(behind),
        None => finding.fix(Fix::advice("give each writer a separate file")).fix(behind),
    })
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Cause, OpKind};

    #[test]
    fn the_innermost_known_place_names_the_lock_and_its_fix() {
        let builder = RecordingBuilder::new().slow(OpKind::Write, &[(Cause::Compute, 0.1), (Cause::Lock, 95.0)]);
        let frames = ["rwsem_down_write_slowpath", "down_write", "ext4_da_get_block_prep", "ext4_buffered_write_iter"];
        let finding = builder.stack(&frames).found(&ENTRY).expect("95 ms");
        assert!(
            evidence_text(&finding).contains("95 ms (100 %) waiting for i_data_sem"),
            "{}",
            evidence_text(&finding)
        );
        assert!(finding.fixes[0].text.starts_with("preallocate"), "{:?}", finding.fixes);
    }

    #[test]
    fn a_lock_inversion_is_named_and_no_more_than_possible() {
        let report = "WARNING: possible circular locking dependency detected";
        let finding = RecordingBuilder::new().report(report).found(&ENTRY).expect("lockdep");
        assert!(!finding.against.is_empty() && finding.weight <= 0.5);
        assert!(RecordingBuilder::new().report("WARNING: suspicious RCU usage").found(&ENTRY).is_none());
    }

    #[test]
    fn an_unknown_lock_is_not_guessed() {
        let builder = RecordingBuilder::new()
            .slow(OpKind::Write, &[(Cause::Lock, 20.0)])
            .stack(&["__mutex_lock", "some_driver_write"]);
        let finding = builder.found(&ENTRY).expect("20 ms");
        assert!(!evidence_text(&finding).contains("usually held by"), "{}", evidence_text(&finding));
    }
}

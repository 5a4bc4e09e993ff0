//! lock: the call waits for a kernel lock that another thread holds.

use super::{CauseEntry, lock_names};
use crate::facts::Facts;
use crate::{Finding, Fix};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "lock",
    span: Some(Cause::Lock),
    headline: "the call waits for a lock that another thread holds",
    mechanism: "write() takes the inode's i_rwsem exclusively for its whole length (i_mutex before 4.7), so two \
        writers of one file take turns, and whatever stops the first (reclaim, throttling, a read) stops all. A \
        rename or unlink holds the directories' i_rwsem; fork, mmap and faults share mmap_lock; truncate holds \
        invalidate_lock (5.15).",
    kernels: "All; the tracepoints lock:contention_begin and _end since 5.19.",
    in_spans: "Exact: between contention_begin and contention_end, or a sleep in rwsem_down_read_slowpath, \
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

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let sum = facts.significant(Cause::Lock)?;
    let finding = Finding::from_spans(facts, sum, ENTRY.headline);
    let behind = Fix::advice("look what the holder of the lock was waiting for: it is usually another finding");
    Some(match lock_names::most(facts, sum) {
        Some((lock, ns)) => finding.with([lock_names::evidence(sum, lock, ns)]).fix(lock_names::fix(lock)).fix(behind),
        None => finding.fix(Fix::advice("give each writer a file of its own")).fix(behind),
    })
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{Made, said};
    use flatwater_recording::{Cause, OpKind};

    #[test]
    fn the_innermost_known_place_names_the_lock_and_its_fix() {
        let made = Made::new().slow(OpKind::Write, &[(Cause::Compute, 0.1), (Cause::Lock, 95.0)]);
        let frames = ["rwsem_down_write_slowpath", "down_write", "ext4_da_get_block_prep", "ext4_buffered_write_iter"];
        let finding = made.stack(&frames).found(&ENTRY).expect("95 ms");
        assert!(said(&finding).contains("95 ms of it (100 %) waits for i_data_sem"), "{}", said(&finding));
        assert!(finding.fixes[0].text.starts_with("preallocate"), "{:?}", finding.fixes);
    }

    #[test]
    fn a_lock_that_no_table_knows_is_not_guessed() {
        let made =
            Made::new().slow(OpKind::Write, &[(Cause::Lock, 20.0)]).stack(&["__mutex_lock", "some_driver_write"]);
        let finding = made.found(&ENTRY).expect("20 ms");
        assert!(!said(&finding).contains("usually held by"), "{}", said(&finding));
    }
}

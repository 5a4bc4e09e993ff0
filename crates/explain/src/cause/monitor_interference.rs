//! monitor-interference: reading a kernel file takes a lock that the writer needs.

use super::{CauseEntry, CauseId, slab_leak};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::Cause;

/// Functions of readers of slabinfo, smaps and similar files, in stacks of neighbours or of a lock's holder.
const READERS: &[&str] = &[
    "s_show",
    "slab_show",
    "get_slabinfo",
    "show_smap",
    "show_smaps_rollup",
    "show_map_vma",
    "pagetypeinfo_show",
    "show_numa_map",
];
/// From this many buffer_heads on a node (37 to a slab), a walk of the slabs takes milliseconds.
const OBJECTS_MIN: i64 = 1_000_000;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "monitor-interference",
    span: None,
    headline: "a monitor that reads kernel files (slabinfo, smaps) holds locks that the writer waits for",
    mechanism: "Reading some files of /proc walks data under a lock. /proc/slabinfo with SLAB held the node's \
        list_lock, interrupts off, over all slabs of a cache (mm/slab.c: s_show, until 4.9); with hundreds of \
        thousands of buffer_head slabs that is tens of milliseconds, in which every cache_alloc_refill of that cache \
        waits. smaps and numa_maps hold the process's mmap_lock while they walk page tables; pagetypeinfo held the \
        zone lock over the free lists (bounded since 5.4). An agent that reads them once a second stalls its target \
        once a second.",
    kernels: "slabinfo: SLAB before 4.10. smaps, numa_maps: all (since 5.15 smaps releases the lock in between).",
    in_spans: "slab-refill (waiting for list_lock) or lock (mmap_lock), at the agent's interval.",
    in_counters: "Stalls at whole seconds or minutes; a process that reads these files (strace -f -e openat on the \
        agent).",
    against: "The stalls continue without the agent.",
    fix: "Stop the agent, lengthen its interval, or let it read cheaper files (smaps_rollup, memory.stat). An \
        upgrade to 4.10 or SLUB for slabinfo.",
    prove: "Read the file by hand in a loop: the stalls follow the loop. `time cat /proc/slabinfo` bounds each.",
    sources: &["mm/slab.c: s_show (2.6.32)", "fs/proc/task_mmu.c: show_smap", "mm/vmstat.c: pagetypeinfo_show"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let refill = facts.significant(Cause::SlabRefill);
    let blamed = refill.or_else(|| facts.significant(Cause::Lock))?;
    let reader = facts
        .recording
        .stacks
        .iter()
        .find_map(|stack| stack.frames.iter().find(|frame| READERS.contains(&frame.as_str())));
    let interval_ms =
        facts.recording.header.setup.number("monitor.slabinfo_interval").filter(|ms| *ms > 0 && refill.is_some());
    // Since 4.10, /proc/slabinfo reads counts and walks no slabs.
    let walks = facts.kernel_from([4, 10, 0]) != Some(true);
    let objects = slab_leak::cache_objects(facts, "buffer_head")
        .filter(|count| *count >= OBJECTS_MIN && refill.is_some() && walks);
    let headline = if interval_ms.is_some() {
        ENTRY.headline
    } else {
        "a reader of kernel files (slabinfo, smaps) may hold the lock that the calls waited for"
    };
    let mut finding = Finding::inferred(CauseId::MonitorInterference, 0.5, headline);
    if let Some(frame) = reader {
        finding.weight = 0.8;
        finding
            .evidence
            .push(Evidence::statement(format!("{frame}, a function of such readers, is in a stack of this recording")));
    }
    if let Some(ms) = interval_ms {
        finding.weight = 0.85;
        finding.evidence.push(Evidence::new(format!("something reads /proc/slabinfo every {ms} ms"), ms as f64, "ms"));
    }
    if let Some(count) = objects {
        let text = format!("{count} buffer heads: a walk over their slabs would take milliseconds");
        finding.evidence.push(Evidence::new(text, count as f64, "objects"));
    }
    if finding.evidence.is_empty() {
        return None;
    }
    let text = format!("{} calls waited in {}", blamed.calls, blamed.cause.name());
    finding.evidence.push(Evidence::new(text, blamed.calls as f64, ""));
    let finding = finding.fix(Fix::knob("do not read slabinfo", knob!("monitor.slabinfo_interval"), "0"));
    let finding =
        finding.fix(Fix::advice("stop the agent or lengthen its interval; kernels before 4.10 with SLAB: upgrade"));
    Some(finding.settle("stop the agent for ten minutes, or time `cat /proc/slabinfo`: its duration bounds each stall"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Cause, Entity, OpKind, Table};

    #[test]
    fn waiting_for_slabs_while_a_reader_walks_them() {
        let build = || RecordingBuilder::new().slow(OpKind::Write, &[(Cause::SlabRefill, 40.0)]);
        assert!(build().knob("monitor.slabinfo_interval", "1000").found(&ENTRY).is_some());
        let many = || build().gauges(Table::Slabs, &Entity::named("buffer_head"), &[("num_objs", &[15_000_000])]);
        let finding = many().kernel("2.6.32").found(&ENTRY).expect("a walk holds the list lock");
        assert!(finding.headline.contains("may hold") && evidence_text(&finding).contains("would take"), "{finding:?}");
        assert!(many().found(&ENTRY).is_none(), "6.18 walks no slabs");
        assert!(build().found(&ENTRY).is_none(), "nothing points to a reader");
    }

    #[test]
    fn a_reader_in_the_stacks_of_a_lock() {
        let builder = RecordingBuilder::new().slow(OpKind::PageFault, &[(Cause::Lock, 40.0)]);
        assert!(builder.stack(&["show_smap", "seq_read_iter"]).found(&ENTRY).is_some());
        assert!(
            RecordingBuilder::new()
                .slow(OpKind::Write, &[(Cause::Lock, 40.0)])
                .stack(&["rwsem_down_write_slowpath"])
                .found(&ENTRY)
                .is_none()
        );
    }
}

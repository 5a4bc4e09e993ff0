//! slab-refill: a small kernel object (a buffer head) had to be fetched from the node's slab lists.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Call, Cause};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "slab-refill",
    span: Some(Cause::SlabRefill),
    headline: "the time went into refilling a slab cache's per-CPU array (buffer heads), not into the page allocator",
    mechanism: "kmem_cache_alloc takes objects from a per-CPU array. When that is empty, cache_alloc_refill \
        (mm/slab.c, until 6.7) takes the node's list lock and moves batchcount objects; only if the lists have none \
        does it call cache_grow for new pages. Time before cache_grow is therefore time under, or waiting for, the \
        list lock. A reader of /proc/slabinfo held the same lock with interrupts off while it counted every slab of \
        the node (s_show in 2.6; counters replaced the walk in 4.10): with hundreds of thousands of buffer_head slabs \
        that takes tens of milliseconds. SLUB (mm/slub.c: ___slab_alloc) has partial lists under a lock of the same \
        kind.",
    kernels: "SLAB: all until 6.7. The long walk by slabinfo readers: SLAB before 4.10; SLUB counts its partial \
        lists under the lock as well.",
    in_spans: "Sampled stacks or a function trace: cache_alloc_refill, ___slab_alloc, get_partial_node.",
    in_counters: "buffer_head has a huge number of slabs (num_slabs in slabinfo) and something reads slabinfo \
        periodically (slabtop, a monitoring agent).",
    against: "The time is inside cache_grow, allocate_slab or __alloc_pages: then it is the page allocator, see \
        page-allocation and direct-reclaim.",
    fix: "Stop the slabinfo reader (monitoring agent, slabtop) or make it less frequent. Fewer buffer heads: larger \
        file-system blocks, xfs, or a page cache bounded by a cgroup. vm.zone_reclaim_mode keeps the lists short, at \
        a price: see node-reclaim. Kernels before 4.10: upgrade. Preallocate and map the file, so that write() \
        creates no buffer heads.",
    prove: "Read /proc/slabinfo once by hand while timing it (`time cat /proc/slabinfo`): its duration is the \
        stall's upper bound. Stop the agent: the stalls end.",
    sources: &[
        "mm/slab.c: cache_alloc_refill, cache_grow, s_show (2.6.32)",
        "mm/slub.c: ___slab_alloc, get_partial_node",
    ],
    find,
};

/// The page allocator is cleared if it took at most this share of the refill's time.
const PAGE_ALLOCATION_SHARE_MAX: f64 = 0.05;

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let sum = facts.significant(Cause::SlabRefill)?;
    let mut finding = Finding::from_spans(facts, sum, ENTRY.headline);
    let worst = sum.worst_call.and_then(|index| facts.recording.calls.get(index));
    finding.evidence.extend(worst.and_then(|call| inside(facts, call)));
    finding.evidence.extend(worst.and_then(|call| not_page_allocation(facts, call, sum.worst_ns)));
    finding.fixes.extend([
        Fix::advice("stop or slow down the readers of /proc/slabinfo (slabtop, monitoring agents)"),
        Fix::advice("preallocate and map the file ahead of the writer, so that write() creates no buffer heads"),
    ]);
    if facts.recording.header.machine.kernel.is_none() || facts.kernel_from([4, 10, 0]) == Some(false) {
        finding.settle = "time `cat /proc/slabinfo` on that machine, and see who reads it: its duration bounds what a \
            reader can cause"
            .to_owned();
    }
    Some(finding)
}

/// Functions in which a slab cache asks the page allocator for pages, in any kernel version.
const GROWERS: &[&str] =
    &["cache_grow", "cache_grow_begin", "allocate_slab", "new_slab", "__alloc_pages", "__alloc_pages_nodemask"];

/// The first of these functions found in the call's stacks, and the time of all segments whose stack contains one
/// of them.
fn below<'a>(facts: &Facts<'a>, call: &Call, functions: &[&str]) -> Option<(&'a str, u64)> {
    let mut found: Option<(&str, u64)> = None;
    for segment in &call.segments {
        let Some(stack) = segment.stack.and_then(|id| facts.recording.stack(id)) else { continue };
        if let Some(frame) = stack.frames.iter().find(|frame| functions.contains(&frame.as_str())) {
            let (name, ns) = found.unwrap_or((frame.as_str(), 0));
            found = Some((name, ns.saturating_add(segment.ns)));
        }
    }
    found
}

/// The innermost function of the longest refill, and its share of the call.
fn inside(facts: &Facts<'_>, call: &Call) -> Option<Evidence> {
    let refill = call.segments.iter().filter(|segment| segment.cause == Cause::SlabRefill && segment.stack.is_some());
    let longest = refill.max_by_key(|segment| segment.ns)?;
    let frame = facts.recording.stack(longest.stack?)?.frames.first()?;
    let (function, ns) = below(facts, call, &[frame])?;
    let share = 100.0 * ns as f64 / call.duration_ns.max(1) as f64;
    let text =
        format!("{share:.1} % of the worst call ({} of {}) is inside {function}", Nanos(ns), Nanos(call.duration_ns));
    Some(Evidence::new(text, share, "%"))
}

/// If the page allocator took little of the refill, the time was spent on the list lock.
fn not_page_allocation(facts: &Facts<'_>, call: &Call, refill_ns: u64) -> Option<Evidence> {
    let part_ns = call.by_cause().get(&Cause::PageAllocation).copied();
    let (function, ns) = below(facts, call, GROWERS).or_else(|| Some(("the page allocator", part_ns?)))?;
    let text = format!("not page allocation, since {function} took {}", Nanos(ns));
    (ns as f64 <= PAGE_ALLOCATION_SHARE_MAX * refill_ns as f64).then(|| Evidence::new(text, ns as f64, "ns"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Cause, OpKind};

    #[test]
    fn the_page_allocator_is_cleared_with_its_figure() {
        let builder = RecordingBuilder::new()
            .slow(OpKind::Write, &[(Cause::Compute, 0.05), (Cause::PageAllocation, 0.009), (Cause::SlabRefill, 40.48)]);
        let finding = builder.stack(&["cache_alloc_refill", "kmem_cache_alloc"]).found(&ENTRY).expect("40 ms");
        let text = evidence_text(&finding);
        assert!(text.contains("99.9 % of the worst call") && text.contains("inside cache_alloc_refill"), "{text}");
        assert!(text.contains("not page allocation, since the page allocator took 9 us"), "{text}");
    }

    #[test]
    fn a_slow_page_allocator_is_not_cleared() {
        let builder =
            RecordingBuilder::new().slow(OpKind::Write, &[(Cause::PageAllocation, 30.0), (Cause::SlabRefill, 12.0)]);
        assert!(!evidence_text(&builder.found(&ENTRY).expect("12 ms")).contains("not page allocation"));
    }
}

//! slab-refill: a small kernel object (a buffer head) had to be fetched from the node's slab lists.

use super::CauseEntry;
use crate::explain::facts::Facts;
use crate::explain::{Finding, Fix, finding};
use crate::recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "slab-refill",
    span: Some(Cause::SlabRefill),
    headline: "the time went into refilling a slab cache's per-CPU array (buffer heads), not into the page allocator",
    mechanism: "kmem_cache_alloc takes objects from a per-CPU array. When that is empty, cache_alloc_refill \
        (mm/slab.c, until 6.8) takes the node's list lock and moves batchcount objects; only if the lists have \
        none does it call cache_grow for new pages. Time before cache_grow is therefore time under, or waiting \
        for, the list lock. Whoever walks /proc/slabinfo held that same lock with interrupts off while it counted \
        every slab of the node (s_show in 2.6; counters replaced the walk in 4.10): with hundreds of thousands of \
        buffer_head slabs that takes tens of milliseconds. SLUB (mm/slub.c: ___slab_alloc) has partial lists under \
        a lock of the same kind.",
    kernels: "SLAB: all until 6.7. The long walk by slabinfo readers: SLAB before 4.10; SLUB counts its partial \
        lists under the lock as well.",
    in_spans: "Sampled stacks or a function trace: cache_alloc_refill, ___slab_alloc, get_partial_node.",
    in_counters: "buffer_head has a huge number of slabs (num_slabs in slabinfo) and somebody reads slabinfo at a \
        rate (slabtop, a monitoring agent).",
    against: "The time lies inside cache_grow, allocate_slab or __alloc_pages: then it is the page allocator, see \
        page-allocation and direct-reclaim.",
    fix: "Stop the slabinfo reader (monitoring agent, slabtop) or make it rare. Fewer buffer heads: larger \
        file-system blocks, xfs, or a page cache bounded by a cgroup. vm.zone_reclaim_mode keeps the lists short \
        at its own price. Kernels before 4.10: upgrade. Preallocate and map the file, so that write() creates no \
        buffer heads.",
    prove: "Read /proc/slabinfo once by hand while timing it (`time cat /proc/slabinfo`): its duration is the \
        stall's upper bound. Stop the agent: the stalls end.",
    sources: &[
        "mm/slab.c: cache_alloc_refill, cache_grow, s_show (2.6.32)",
        "mm/slub.c: ___slab_alloc, get_partial_node",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::advice("stop or slow down whoever reads /proc/slabinfo (slabtop, monitoring agents)"),
        Fix::advice("preallocate and map the file ahead of the writer, so that write() creates no buffer heads"),
    ];
    finding::from_spans(facts, Cause::SlabRefill, ENTRY.headline, fixes)
}

//! node-reclaim: the caller reclaims its own NUMA node although another has free pages.

use super::CauseEntry;
use crate::explain::facts::Facts;
use crate::explain::{Finding, Fix, finding};
use crate::recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "node-reclaim",
    span: Some(Cause::NodeReclaim),
    headline: "the caller reclaims its own NUMA node instead of taking a free page of another (zone_reclaim_mode)",
    mechanism: "With vm.zone_reclaim_mode set, get_page_from_freelist (mm/page_alloc.c) calls node_reclaim \
        (zone_reclaim before 4.8) as soon as the local node is below its low watermark: the caller scans the \
        node's page cache from priority 4 and shrinks slab, and only if that yields nothing goes on to the next \
        node. With the bits 2 and 4 it also writes dirty pages and unmaps or swaps. The scans are counted as \
        pgscan_direct, although no allocation has stalled.",
    kernels: "All NUMA kernels with CONFIG_NUMA; on by default until 3.15 where a distance exceeds the reclaim \
        distance, off by default since 3.16.",
    in_spans: "Exact: between mm_vmscan_node_reclaim_begin and _end (since 5.3).",
    in_counters: "pgscan_direct (pgscand/s) rises while allocstall and pgscan_kswapd do not; zone_reclaim_failed \
        rises (counter of the unsuccessful tries); other nodes keep free memory; numa_miss stays low.",
    against: "vm.zone_reclaim_mode is 0, or there is one node. kswapd scans as much as callers do.",
    fix: "vm.zone_reclaim_mode = 0. Where locality matters more than the tail, bind the program to the node and \
        keep its cache small.",
    prove: "Set vm.zone_reclaim_mode to 0 while it runs: pgscan_direct falls at once, numa_miss rises, the slow \
        calls end.",
    sources: &[
        "mm/page_alloc.c: get_page_from_freelist",
        "mm/vmscan.c: node_reclaim, __node_reclaim (zone_reclaim, __zone_reclaim before 4.8)",
        "Documentation/admin-guide/sysctl/vm.rst: zone_reclaim_mode",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes =
        [Fix::knob("take pages from other nodes instead of reclaiming the local one", "vm.zone_reclaim_mode", "0")];
    finding::from_spans(facts, Cause::NodeReclaim, ENTRY.headline, fixes)
}

//! direct-reclaim: the caller frees pages itself, because the zone is at its min watermark.

use super::CauseEntry;
use crate::explain::facts::Facts;
use crate::explain::{Finding, Fix, finding};
use crate::recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "direct-reclaim",
    span: Some(Cause::DirectReclaim),
    headline: "the caller reclaims memory itself: its zones were down at the min watermark",
    mechanism: "A page allocation that finds every allowed zone below the low watermark wakes kswapd and retries \
        against min (mm/page_alloc.c: __alloc_pages_slowpath). If that fails too, __alloc_pages_direct_reclaim \
        runs try_to_free_pages (mm/vmscan.c) in the caller: it scans LRU lists from priority 12 downwards in \
        clusters of 32 pages until enough are free. A buffered write() allocates page-cache pages and, on file \
        systems that use them, buffer heads, so it pays in full: scanning, unmapping, waiting for locks and \
        writeback, every shrinker that runs along.",
    kernels: "All since 2.6; the names of the counters have changed (pgscan_direct_normal and its like until 4.7, \
        pgscan_direct since 4.8).",
    in_spans: "Exact: between mm_vmscan_direct_reclaim_begin and _end (since 2.6.36).",
    in_counters: "/proc/vmstat: pgscan_direct and allocstall rise together, pgsteal_direct behind them, while free \
        pages lie between the min and low watermarks. Memory pressure (PSI some) rises.",
    against: "allocstall stands still although pgscan_direct rises: then node (zone) reclaim does the scanning. \
        pgscan_direct stands still: reclaim was by memory cgroup or by kswapd alone.",
    fix: "Let kswapd start earlier: raise vm.watermark_scale_factor (since 4.6) or vm.min_free_kbytes, so that it \
        keeps up with the burst. Bound the neighbour that fills the page cache (a memory cgroup of its own). Take \
        allocation out of the call: `--set precursor=window`.",
    prove: "Run again with the raised watermark: allocstall and the share of direct-reclaim must fall together: \
        `flatwater verify`.",
    sources: &[
        "mm/page_alloc.c: __alloc_pages_slowpath, __alloc_pages_direct_reclaim",
        "mm/vmscan.c: try_to_free_pages, do_try_to_free_pages",
        "Documentation/admin-guide/sysctl/vm.rst: min_free_kbytes, watermark_scale_factor",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::knob("start kswapd earlier: watermarks 2 % of memory apart", "vm.watermark_scale_factor", "200"),
        Fix::advice(
            "append through the precursor, so that no memory is allocated inside the call (`--set precursor=window`)",
        ),
    ];
    finding::from_spans(facts, Cause::DirectReclaim, ENTRY.headline, fixes)
}

//! page-allocation: the page allocator itself took the time, without reclaim or compaction.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "page-allocation",
    span: Some(Cause::PageAllocation),
    headline: "the page allocator's slow path took the time, outside reclaim and compaction",
    mechanism: "What remains of an allocation without reclaim and compaction: the zone lock (rmqueue_bulk under a \
        contended zone->lock), zeroing of a huge page (clear_huge_page, about 100 us for 2 MiB), walking zonelists of \
        many nodes, draining other CPUs' lists (drain_all_pages sends work to every CPU and waits), retries of \
        __alloc_pages_slowpath.",
    kernels: "All.",
    in_spans: "Sampled stacks, or measured where fentry may load: __alloc_pages (__alloc_frozen_pages since 6.14), \
        rmqueue_bulk, drain_all_pages.",
    in_counters: "pgalloc rises steeply; allocstall does not.",
    against: "A reclaim or compaction bracket around it.",
    fix: "Fewer allocations inside the call (preallocated, mapped, locked memory); larger per-CPU lists \
        (vm.percpu_pagelist_high_fraction, 5.14); no cross-node zonelists for the writer.",
    prove: "perf record -g on the writer, or `--format folded`: the frames show which of these it is.",
    sources: &["mm/page_alloc.c: __alloc_pages_slowpath, rmqueue_bulk, drain_all_pages"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [Fix::knob("allocate ahead of the writer", knob!("precursor"), "window")];
    finding::from_spans(facts, Cause::PageAllocation, ENTRY.headline, fixes)
}

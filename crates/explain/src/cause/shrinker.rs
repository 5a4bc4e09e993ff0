//! shrinker: reclaim spends the caller's time on dentries, inodes and other slab caches.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "shrinker",
    span: Some(Cause::Shrinker),
    headline: "reclaim inside the call is busy shrinking slab caches (dentries, inodes, file-system objects)",
    mechanism: "After each pass over the LRU lists reclaim calls shrink_slab (mm/vmscan.c; mm/shrinker.c since 6.7), \
        which gives each registered shrinker a scan target among its objects: dentries, inodes, ext4 extent status, \
        xfs buffers and inodes. Some take locks or, as xfs inode reclaim did until 5.9, wait for I/O. With 2.6.32's \
        zone_reclaim the divisor was the order of the allocation instead of the number of LRU pages, so each shrinker \
        was given its maximum (mm/vmscan.c: __zone_reclaim, 2.6.32).",
    kernels: "All since 2.6.",
    in_spans: "Measured: between mm_shrink_slab_start and mm_shrink_slab_end (since 3.0).",
    in_counters: "slabs_scanned rises by hundreds of thousands a second; SReclaimable falls; pginodesteal rises.",
    against: "slabs_scanned does not rise.",
    fix: "Fewer reclaimable objects in the writer's cgroup (put a crawler over millions of files into a separate \
        cgroup); a lower vm.vfs_cache_pressure, which shrinks them less; for xfs a kernel after 5.9.",
    prove: "perf or `--format folded` shows which shrinker; drop its objects once (echo 2 > /proc/sys/vm/drop_caches): \
        the segments disappear.",
    sources: &["mm/shrinker.c: shrink_slab, do_shrink_slab", "fs/super.c: super_cache_scan"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::knob("shrink dentries and inodes less eagerly than page cache", knob!("vm.vfs_cache_pressure"), "50"),
        Fix::advice(
            "run what walks millions of files in a separate memory cgroup, so that its inodes are reclaimed there",
        ),
    ];
    finding::from_spans(facts, Cause::Shrinker, ENTRY.headline, fixes)
}

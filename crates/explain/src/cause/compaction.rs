//! compaction: the caller moves pages to build one large free block.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "compaction",
    span: Some(Cause::Compaction),
    headline: "the caller compacts memory to get a block of contiguous pages",
    mechanism: "An allocation of order 1 or more that finds no block large enough runs \
        __alloc_pages_direct_compact (mm/page_alloc.c): try_to_compact_pages isolates movable pages at one end of \
        the zone and migrates them to free pages at the other, in the caller. Huge-page faults (order 9) are the \
        common reason; large folios of the page cache, slabs of order 3 and network buffers the others.",
    kernels: "2.6.35 and later.",
    in_spans: "Measured: between mm_compaction_begin and mm_compaction_end.",
    in_counters: "compact_stall rises (the callers), compact_fail beside it; compact_isolated and \
        pgmigrate_success rise; buddyinfo has few blocks of order 3 and more.",
    against: "compact_stall does not rise: then only kcompactd works (compact_daemon_wake), and no caller pays.",
    fix: "thp.defrag = defer or madvise, thp.enabled = madvise; vm.compaction_proactiveness (5.9) higher for \
        background work; a higher vm.min_free_kbytes keeps blocks whole.",
    prove: "Set thp.defrag to defer: compact_stall stops rising and the share falls to zero.",
    sources: &["mm/page_alloc.c: __alloc_pages_direct_compact", "mm/compaction.c: try_to_compact_pages, compact_zone"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::knob("let huge-page faults defer compaction to kcompactd", knob!("thp.defrag"), "defer"),
        Fix::knob("compact in the background", knob!("vm.compaction_proactiveness"), "40"),
    ];
    finding::from_spans(facts, Cause::Compaction, ENTRY.headline, fixes)
}

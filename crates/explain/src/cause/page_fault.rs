//! page-fault: time in page faults, outside reclaim, reads and locks.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "page-fault",
    span: Some(Cause::PageFault),
    headline: "page faults take the time: memory that was never touched, or was reclaimed",
    mechanism: "A first touch goes through handle_mm_fault (mm/memory.c): an anonymous page is allocated and \
        zeroed, a file page is looked up and mapped, a write to a clean shared page calls the file system \
        (page_mkwrite: may start a transaction, allocate a block, wait for stable pages). A fault inside write() \
        (the user's buffer is not present) happens with the page locked, so it is retried. Major faults read from \
        the device and count as synchronous-read or swap-in.",
    kernels: "All.",
    in_spans: "Sampled, or measured by sleeps below handle_mm_fault and exc_page_fault.",
    in_counters: "pgfault or pgmajfault rise with the stalls.",
    against: "pgmajfault does not rise and minor faults are few: see run-queue and steal.",
    fix: "Touch and lock memory before it is needed (MAP_POPULATE, MADV_POPULATE_WRITE since 5.14, mlockall). Cold \
        maps: read ahead (MADV_WILLNEED), or read() instead of mapping.",
    prove: "With MADV_POPULATE_WRITE and mlock the faults in the measured part go to zero.",
    sources: &["mm/memory.c: handle_mm_fault, do_fault", "man 2 madvise: MADV_POPULATE_WRITE"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes =
        [Fix::advice("populate and lock the memory before it is needed (MADV_POPULATE_READ or _WRITE, then mlock)")];
    finding::from_spans(facts, Cause::PageFault, ENTRY.headline, fixes)
}

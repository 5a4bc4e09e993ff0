//! dirty-throttle: the writer sleeps because too much is dirty and the device does not write fast enough.

use super::CauseEntry;
use crate::explain::facts::Facts;
use crate::explain::{Finding, Fix, finding};
use crate::recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "dirty-throttle",
    span: Some(Cause::DirtyThrottle),
    headline: "the writer is made to sleep: dirty page cache is at its limit and the device writes slower than \
        everybody dirties",
    mechanism: "Every few pages a writer dirties, balance_dirty_pages_ratelimited (mm/page-writeback.c) compares \
        dirty + writeback pages with the limits. Above (background + dirty)/2 it sleeps in balance_dirty_pages so \
        that all writers together dirty no faster than the device writes; a pause lasts up to 200 ms (MAX_PAUSE) \
        and repeats. Since 3.2 the pause follows measured bandwidth; before, the writer wrote back pages itself \
        (writeback_inodes) and waited in the request queue, which was neither smooth nor fair. The limits count \
        all writers of the device, so a 220-byte append pays for a neighbour's gigabytes.",
    kernels: "All since 2.6; smooth and per task since 3.2.",
    in_spans: "Exact: a sleep with balance_dirty_pages in its stack.",
    in_counters: "nr_dirty + nr_writeback lies between nr_dirty_background_threshold and nr_dirty_threshold, and \
        stays; pgpgout (bo) is flat at the device's speed; writers count as blocked (D), while neither memory \
        pressure nor scans rise: it sleeps in io_schedule_timeout, which is not a PSI memory stall.",
    against: "Dirty pages far below the background limit, or a device that idles.",
    fix: "Keep the bulk writer out of the page cache (O_DIRECT) or bound it where it is (bdi.max_bytes with \
        bdi.strict_limit, io.max, a cgroup with v2 writeback). vm.dirty_background_bytes low and vm.dirty_bytes at \
        one to two seconds of the device's speed give many short pauses instead of few long ones. A ring (`--set \
        precursor=ring`) takes the pause out of the writer for as long as it has room.",
    prove: "`flatwater verify bulk --set vm.dirty_bytes=...`; or watch writeback:balance_dirty_pages: its pause \
        field sums to the lost time.",
    sources: &[
        "mm/page-writeback.c: balance_dirty_pages, wb_position_ratio",
        "include/trace/events/writeback.h: balance_dirty_pages",
        "Documentation/admin-guide/sysctl/vm.rst: dirty_bytes",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::knob("write back early", "vm.dirty_background_bytes", "16MiB"),
        Fix::advice("bound the neighbour: its own device, O_DIRECT, io.max, or bdi max_bytes with strict_limit"),
        Fix::knob("put the pause behind a ring", "precursor", "ring"),
    ];
    finding::from_spans(facts, Cause::DirtyThrottle, ENTRY.headline, fixes)
}

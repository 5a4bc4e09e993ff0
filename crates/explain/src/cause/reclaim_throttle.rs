//! reclaim-throttle: a reclaiming caller is put to sleep because reclaim makes no progress.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "reclaim-throttle",
    span: Some(Cause::ReclaimThrottle),
    headline: "reclaim put the caller to sleep: pages under writeback, too many isolated, or no progress",
    mechanism: "mm/vmscan.c: reclaim_throttle (since 5.16) makes a reclaimer sleep on its node for up to HZ/10 when \
        the pages it meets are under writeback (VMSCAN_THROTTLE_WRITEBACK), one jiffy when reclaim frees nothing \
        (NOPROGRESS, CONGESTED), HZ/50 when too many pages are isolated (ISOLATED). Before 5.16 congestion_wait or \
        wait_iff_congested slept a fixed time there, whether or not the device made progress. It is part of reclaim, \
        but a separate cause because the fix differs: the reclaimer waits for the disk, not for the scan.",
    kernels: "5.16 and later; before that congestion_wait(BLK_RW_ASYNC, HZ/10) and similar functions.",
    in_spans: "Measured: a sleep with reclaim_throttle (congestion_wait, wait_iff_congested) in its stack.",
    in_counters: "nr_throttled_written rises; nr_writeback and nr_dirty are a large part of the inactive file \
        list; nr_vmscan_write or nr_vmscan_immediate_reclaim rise.",
    against: "Few dirty or writeback pages: then the scan itself is the cost, see direct-reclaim.",
    fix: "Fewer dirty pages when reclaim runs: set vm.dirty_background_bytes and vm.dirty_bytes below what the device \
        writes in a second; in a cgroup, use v2 with writeback accounting instead of v1. A neighbour that streams \
        should use O_DIRECT or sync_file_range.",
    prove: "Lower the dirty limits: nr_throttled_written stops rising.",
    sources: &[
        "mm/vmscan.c: reclaim_throttle, consider_reclaim_throttle",
        "include/trace/events/vmscan.h: mm_vmscan_throttled",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::knob(
            "start writeback early, so that reclaim meets clean pages",
            knob!("vm.dirty_background_bytes"),
            "16MiB",
        ),
        Fix::knob("bound what may be dirty", knob!("vm.dirty_bytes"), "64MiB"),
    ];
    finding::from_spans(facts, Cause::ReclaimThrottle, ENTRY.headline, fixes)
}

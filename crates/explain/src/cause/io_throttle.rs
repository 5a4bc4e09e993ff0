//! io-throttle: a limit on the I/O of a cgroup held the request back before the device saw it.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::units::Nanos;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "io-throttle",
    span: None,
    headline: "a limit on the cgroup's I/O held the requests back before the device saw them",
    mechanism: "blk-throttle (block/blk-throttle.c) holds a bio whose cgroup is over its bytes or requests a second \
        in a queue of its own, and a timer dispatches it when the budget allows (blk_throtl_dispatch_work_fn). The \
        request is inserted into the device's queue only then, so that iostat shows a fast device with a short queue. \
        On version 1 (blkio.throttle.*) the flusher's writes count for the root: only direct I/O, reads and what \
        fsync submits are held. On version 2 (io.max) writeback counts for whoever dirtied the page.",
    kernels: "2.6.37 (version 1), 4.5 (version 2); CONFIG_BLK_DEV_THROTTLING.",
    in_spans: "page-writeback, journal-commit, synchronous-read or device-wait, of which the awaited request was inserted \
        late by the throttle's work function.",
    in_counters: "None in /proc/diskstats. The rates in the cgroup's io.stat are at its limit.",
    against: "The requests were inserted at once and waited in the device's queue (device-queue-starved).",
    fix: "Raise or remove the limit for what must be fast: io.max, or blkio.throttle.write_bps_device, \
        write_iops_device and their read counterparts.",
    prove: "Remove the limit while it is slow: the latencies fall at once.",
    sources: &["block/blk-throttle.c: blk_throtl_dispatch_work_fn", "Documentation/admin-guide/cgroup-v2.rst: io.max"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let time = facts.charges.device_time();
    let mut finding = Finding::from_requests(facts, ENTRY.name, time.limit_ns, ENTRY.headline)?;
    let after_ns = time.queued_ns.saturating_add(time.device_ns).saturating_add(time.flush_ns);
    let text = format!("once dispatched, the same requests took {} in the queue and at the device", Nanos(after_ns));
    finding.evidence.push(Evidence::new(text, after_ns as f64, "ns"));
    // Whoever else used the device was not what these requests waited for.
    finding.aggressors.clear();
    Some(finding.fix(Fix::advice(
        "raise or remove the limit on this cgroup's I/O: io.max, or blkio.throttle.{read,write}_{bps,iops}_device on \
         version 1",
    )))
}

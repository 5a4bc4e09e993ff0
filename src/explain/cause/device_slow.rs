//! device-slow: the request was at the device, and the device took its time.

use super::CauseEntry;
use crate::explain::facts::Facts;
use crate::explain::{Finding, Fix, finding};
use crate::recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "device-slow",
    span: Some(Cause::DeviceSlow),
    headline: "the device itself is slow: requests take long once they have been issued",
    mechanism: "Between issue and completion (block_rq_issue to block_rq_complete) the kernel can only wait. \
        Causes outside it: a disk's seeks, an SSD that erases blocks, a full write cache, a flush (REQ_PREFLUSH \
        drains the cache), a network behind the device, a cloud volume's limit on IOPS or bytes, throttling below \
        the guest.",
    kernels: "All.",
    in_spans: "Exact where the block events are bracketed: the time of the awaited request between issue and \
        completion.",
    in_counters: "/proc/diskstats: time per request (await: read_ns/reads, write_ns/writes) far above what the \
        kind of device needs, while it is busy (io_ns, %util near 100) and the queue is not long enough to explain \
        it by itself.",
    against: "Short queue and short await; or a long await with hundreds of requests in flight: then the load is \
        more than the device's rate, and the queue is the delay.",
    fix: "A faster device or a higher limit from its provider; spread over devices; fewer flushes (group commits); \
        keep the call from waiting for it: buffered writes with a ring (`--set precursor=ring`).",
    prove: "fio with one job and a queue depth of 1 on the idle device: if its latency is as bad, it is the device.",
    sources: &["block/blk-mq.c: blk_mq_start_request, blk_mq_end_request", "Documentation/admin-guide/iostats.rst"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [Fix::advice(
        "test the idle device with fio at queue depth 1; ask its provider for its limits; spread the load",
    )];
    finding::from_spans(facts, Cause::DeviceSlow, ENTRY.headline, fixes)
}

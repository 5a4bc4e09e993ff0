//! request-queue: the caller waits for a free request of the device's queue.

use super::CauseEntry;
use crate::facts::Facts;
use crate::settings;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;
use flatwater_recording::symbol::base_name;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "request-queue",
    span: Some(Cause::RequestQueue),
    headline: "the caller waits for a free request of the block device's queue",
    mechanism: "A device accepts as many requests as it has tags: blk_mq_get_tag (block/blk-mq-tag.c) sleeps until \
        one is free. Before blk-mq it was get_request_wait (block/blk-core.c, 2.6): 128 requests for each direction; \
        the task that filled the queue became its batcher and got 32 more while others slept exclusively. rq_qos_wait \
        does the same for a policy: writeback throttling (wbt, 4.10) and io.latency hold writers back on purpose to \
        protect reads; blk-throttle (io.max) queues the bio instead.",
    kernels: "All; blk-mq for all devices since 5.0.",
    in_spans: "Measured: a sleep with blk_mq_get_tag, rq_qos_wait, wbt_wait, blk_throtl or (old) get_request_wait in \
        its stack.",
    in_counters: "The device's in_flight equals queue/nr_requests (or its depth) while its utilisation is 100 %; \
        avgqu-sz (aqu-sz) near that number.",
    against: "in_flight far below the depth.",
    fix: "Fewer requests at once from the neighbour (lower dirty limits, io.max for it), a deeper queue \
        (queue.nr_requests), mq-deadline or bfq if reads or sync writes starve; queue.wbt_lat_usec = 0 if wbt \
        holds back a writer that matters.",
    prove: "Raise queue.nr_requests: if the wait moves into device-slow, the device was the bottleneck before too.",
    sources: &[
        "block/blk-mq-tag.c: blk_mq_get_tag",
        "block/blk-rq-qos.c: rq_qos_wait",
        "block/blk-core.c: get_request_wait (2.6)",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let stack = facts.sum(Cause::RequestQueue).top_stack().and_then(|id| facts.recording.stack(id));
    let held_by =
        |names: &[&str]| stack.is_some_and(|stack| stack.frames.iter().any(|frame| names.contains(&base_name(frame))));
    let throttled = settings::largest(facts.recording, "queue.wbt_lat_usec").is_some_and(|usec| usec > 0);
    let by_wbt = held_by(&["wbt_wait", "rq_qos_wait"]);
    let mut fixes = Vec::new();
    if by_wbt || throttled {
        fixes.push(Fix::knob("no writeback throttling in favour of reads", knob!("queue.wbt_lat_usec"), "0"));
    }
    if held_by(&["blk_throtl_bio", "__blk_throtl_bio"]) {
        fixes.push(Fix::advice("raise the cgroup's limit on the device (io.max, blkio.throttle.*), which holds it"));
    }
    if !by_wbt {
        fixes.push(Fix::knob("a deeper queue", knob!("queue.nr_requests"), "256"));
    }
    finding::from_spans(facts, Cause::RequestQueue, ENTRY.headline, fixes)
}

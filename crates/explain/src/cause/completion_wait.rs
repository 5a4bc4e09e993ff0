//! completion-wait: an asynchronous operation was done, and its program had not collected the result.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "completion-wait",
    span: Some(Cause::CompletionWait),
    headline: "asynchronous operations were done, and the program did something else than collect their results",
    mechanism: "An operation of io_uring or libaio ends for its program when the program collects the completion. With \
        IORING_SETUP_DEFER_TASKRUN, and with libaio, nothing is completed while the thread is in another call (its own \
        fsync(), a lock) or computes. A latency that is measured from submission to \
        collection grows.",
    kernels: "libaio: all. io_uring: 5.1 and later; IORING_SETUP_DEFER_TASKRUN since 6.1.",
    in_spans: "From the end of the work (the last request was completed, the worker was seen last, or io_submit() of a \
        buffered file returned) to the completion, without the time in which the thread slept for completions. Measured \
        where the thread slept in another call; otherwise inferred by elimination.",
    in_counters: "None: no counter of the kernel shows it.",
    against: "The thread slept in io_uring_enter() or io_getevents() until the completion.",
    fix: "Collect completions in a thread that does nothing else, submit fsync as an operation of the ring \
        (IORING_OP_FSYNC) instead of calling it, bound the work between two collections.",
    prove: "Time the loop between two calls that collect completions: its longest round bounds this time.",
    sources: &["io_uring/io_uring.c: io_req_task_work_add, io_run_local_work", "fs/aio.c: aio_complete, read_events"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::advice("collect completions in a thread that makes no blocking calls"),
        Fix::advice("submit fsync to the ring (IORING_OP_FSYNC) instead of calling it in the thread that collects"),
    ];
    finding::from_spans(facts, Cause::CompletionWait, ENTRY.headline, fixes)
}

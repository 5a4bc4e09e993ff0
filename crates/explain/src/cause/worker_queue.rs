//! worker-queue: an io_uring operation was queued for a worker that performed another operation.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "worker-queue",
    span: Some(Cause::WorkerQueue),
    headline: "io_uring operations were queued for a worker thread that performed another operation",
    mechanism: "io_uring passes an operation that would block to a worker thread (io-wq). Buffered writes to one file are \
        hashed: workers perform them one after the other, so one write that waits (for the journal, for writeback, for \
        memory) holds up all later ones. Other operations queue only if all workers are busy.",
    kernels: "5.1 and later; hashed per inode since 5.5.",
    in_spans: "From io_uring_queue_async_work to the first context switch of the worker in this operation, while a worker \
        slept in another operation: of the same file, or the same worker.",
    in_counters: "None: no counter of the kernel shows it.",
    against: "The worker did not sleep in another operation.",
    fix: "Remove what the worker waited for (its stack is shown). O_DIRECT writes are not hashed; several files have \
        several queues; IORING_REGISTER_IOWQ_MAX_WORKERS raises the number of workers.",
    prove: "Submit the same writes with O_DIRECT: the operations leave the workers.",
    sources: &[
        "io_uring/io_uring.c: io_prep_async_work, io_queue_iowq",
        "io_uring/io-wq.c: io_wq_hash_work, io_get_next_work, io_worker_handle_work",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::advice("remove what the worker waited for: its stack names it, and it is usually another finding"),
        Fix::advice("write with O_DIRECT, or to several files: buffered writes to one file are performed one by one"),
    ];
    finding::from_spans(facts, Cause::WorkerQueue, ENTRY.headline, fixes)
}

//! Details of slow io_uring and libaio operations that a `Call` has no fields for.

use crate::Task;
use crate::call::named_enum;
use crate::store::flat::{named_cells, table};

table! {
    /// One slow operation that was submitted to io_uring or libaio. It belongs to the row of `calls` with the same
    /// `tid`, `start_ns` and `op`. That row lasts from submission to completion, and its segments are those of the
    /// thread or worker that performed the operation.
    AsyncCall = "async_calls" {
        /// The thread that submitted the operation.
        tid: u32,
        start_ns: u64,
        /// Distinguishes operations that one thread submitted at the same instant.
        request: u64,
        interface: AsyncInterface,
        /// The kernel's name of the operation: `IORING_OP_WRITE`, `IOCB_CMD_PWRITE`.
        opcode: String,
        /// io_uring: the operation was passed to a worker thread because it would have blocked; null if this was not
        /// observed.
        punted: Option<bool>,
        /// io_uring: the work is hashed, so workers perform it one after the other (writes to one file).
        hashed: Option<bool>,
        /// When the operation was passed to the workers.
        punted_ns: Option<u64>,
        /// The first context switch of the worker in this operation; the worker may have begun earlier.
        worker_seen_ns: Option<u64>,
        /// The io-wq worker that performed the operation.
        worker: Option<Task>,
        /// Error number of the result; null if the operation succeeded.
        errno: Option<u32>,
    }
}

named_enum! {
    #[derive(Default)]
    AsyncInterface {
        #[default]
        IoUring => "io_uring",
        LinuxAio => "libaio",
    }
}

named_cells!(AsyncInterface);

//! What is known of a slow io_uring or libaio operation beyond the call itself.

use crate::Task;
use crate::call::named_enum;
use crate::store::flat::{named_cells, table};

table! {
    /// One slow operation that was submitted to io_uring or libaio: the row of `calls` with its `tid`, `start_ns` and `op`, which
    /// lasts from submission to completion and whose segments are those of the thread or worker that performed it.
    AsyncCall = "async_calls" {
        /// The thread that submitted it.
        tid: u32,
        start_ns: u64,
        /// Distinguishes operations of one thread that were submitted at the same instant.
        request: u64,
        interface: AsyncInterface,
        /// As the kernel names it: `IORING_OP_WRITE`, `IOCB_CMD_PWRITE`.
        opcode: String,
        /// io_uring: handed to a worker thread because it could not be done at once; null where that was not seen.
        punted: Option<bool>,
        /// io_uring: workers perform hashed work one after the other (writes to one file).
        hashed: Option<bool>,
        /// When it was handed to the workers.
        punted_ns: Option<u64>,
        /// When a worker was first seen at it: the end of its first sleep for it is later, its start may be earlier.
        worker_seen_ns: Option<u64>,
        /// The io-wq worker that performed it.
        worker: Option<Task>,
        /// Error number that it ended with; null where it succeeded.
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

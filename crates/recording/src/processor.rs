//! Who had a CPU while a slow call waited for it: its own thread, or a thread of the kernel's that worked for it.

use crate::Task;
use crate::store::flat::table;

table! {
    /// A process that ran on a CPU while a thread was runnable and waited for that CPU: the thread of a slow call, or one of the
    /// kernel's that the call waited for (`waiter`). What the rows of one wait do not account for, nobody is known to have run.
    CpuOwner = "cpu_owners" {
        /// The call: its thread.
        call_tid: u32,
        /// The call: its start.
        call_start_ns: u64,
        /// When the wait for a CPU began: the thread was woken, or was made to give up its CPU.
        start_ns: u64,
        /// How long the wait took.
        duration_ns: u64,
        /// The CPU on which the thread ran after it.
        cpu: u32,
        /// Who ran there meanwhile.
        owner: Option<Task>,
        /// How long, within the wait. Each CPU remembers its last switches only: of a longer wait this is in proportion to them.
        ran_ns: u64,
        /// How many times it was switched in.
        runs: u32,
        /// The thread that waited for the CPU; null: the call's own.
        waiter: Option<Task>,
        /// The request that this thread of the kernel had to serve or to complete meanwhile, as in `requests`; the wait is cut to
        /// the request's time at the device.
        request: Option<u64>,
    }
}

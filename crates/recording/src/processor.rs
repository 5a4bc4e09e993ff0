//! The processes that ran on a CPU while a slow call, or a kernel thread that worked for the call, waited for this
//! CPU.

use crate::Task;
use crate::store::flat::table;

table! {
    /// A process that ran on a CPU while a runnable thread waited for that CPU. The waiting thread is that of a slow
    /// call, or a kernel thread that the call waited for (`waiter`). For the time of a wait that its rows do not
    /// cover, the running process is unknown.
    CpuOwner = "cpu_owners" {
        /// Thread of the call.
        call_tid: u32,
        /// Start of the call.
        call_start_ns: u64,
        /// When the wait for a CPU began: the thread was woken or preempted.
        start_ns: u64,
        /// Length of the wait.
        duration_ns: u64,
        /// The CPU on which the thread ran after the wait.
        cpu: u32,
        /// The process that ran there during the wait.
        owner: Option<Task>,
        /// Time that it ran within the wait. Each CPU remembers only its last switches; for a longer wait this is
        /// extrapolated from them.
        ran_ns: u64,
        /// Number of times that it was switched in.
        runs: u32,
        /// The thread that waited for the CPU; null: the call's own.
        waiter: Option<Task>,
        /// The request that this kernel thread had to serve or complete, as in `requests`; the wait is cut to the
        /// request's time at the device.
        request: Option<u64>,
    }
}

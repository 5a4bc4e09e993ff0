//! Who had a CPU while a thread of a slow call waited for it.

use crate::Task;
use crate::store::flat::table;

table! {
    /// A process that ran on a CPU while a thread within a slow call was runnable and waited for that CPU. What the rows of one
    /// wait do not account for, nobody is known to have run.
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
        /// How long, within the wait.
        ran_ns: u64,
        /// How many times it was switched in.
        runs: u32,
    }
}

//! Data of a tracer other than the calls: why slow calls waited, and who used the devices and the memory.

use crate::{CpuOwner, Dirtier, MemoryUser, QueueAhead, QueueOwner, Request, Wait};

/// Why slow calls waited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waited {
    /// Sleeps and their wakers.
    pub waits: Vec<Wait>,
    /// Requests to devices.
    pub requests: Vec<Request>,
    /// The requests that were queued ahead of `requests`.
    pub ahead: Vec<QueueAhead>,
    /// Tasks that ran while the calls waited for a CPU.
    pub cpus: Vec<CpuOwner>,
}

/// Users of devices and memory in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Users {
    /// Who had requests in the queues.
    pub owners: Vec<QueueOwner>,
    /// Who dirtied pages.
    pub dirtiers: Vec<Dirtier>,
    /// Who used memory.
    pub memory: Vec<MemoryUser>,
}

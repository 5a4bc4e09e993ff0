//! What a tracer tells besides the calls, in the two pieces that it comes in: why slow calls waited, and who used the devices
//! and the memory meanwhile.

use crate::{CpuOwner, Dirtier, MemoryUser, QueueAhead, QueueOwner, Request, Wait};

/// Why slow calls waited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waited {
    pub waits: Vec<Wait>,
    pub requests: Vec<Request>,
    /// What was ahead of these requests.
    pub ahead: Vec<QueueAhead>,
    /// Who had the CPU while the calls waited for one.
    pub cpus: Vec<CpuOwner>,
}

/// Who used what all share, in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Users {
    pub owners: Vec<QueueOwner>,
    pub dirtiers: Vec<Dirtier>,
    pub memory: Vec<MemoryUser>,
}

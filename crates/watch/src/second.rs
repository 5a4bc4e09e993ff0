//! One second of observation: counters, slow calls with owners, events and gaps.

use std::sync::Arc;

use flatwater_recording::{
    Call, CpuOwner, Dirtier, Event, Gap, LatencyBucket, MemoryUser, QueueAhead, QueueOwner, Request, Series, Stack,
    StackId, Users, Wait, Waited,
};

use crate::account::Account;
use crate::aggressor::Share;
use crate::owner::Owner;

/// A slow call with its owner and aggressors.
#[derive(Clone, Debug)]
pub struct OwnedCall {
    pub call: Call,
    pub owner: Owner,
    pub account: Account,
    /// The device that the call's requests went to; `None` if none was observed.
    pub device: Option<Arc<str>>,
    /// Time charged to aggressors. The sum is at most the call's duration; nothing is charged for the rest.
    pub aggressors: Vec<Share>,
}

impl OwnedCall {
    /// A call without known device and aggressors.
    #[must_use]
    pub fn new(call: Call, owner: Owner) -> OwnedCall {
        let account = Account::of(&owner.cgroup, None);
        OwnedCall { call, owner, account, device: None, aggressors: Vec::new() }
    }
}

/// Everything since the last call of `Sight::take`, about one second.
#[derive(Clone, Debug, Default)]
pub struct Second {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Whether every system call is timed at `start_ns`; `events` has the changes after it.
    pub every_call_at_start: bool,
    pub series: Vec<Series>,
    pub calls: Vec<OwnedCall>,
    /// Calls under way, with their time so far. They are listed in each second, and once more in `calls` when they
    /// return.
    pub under_way: Vec<OwnedCall>,
    /// While there are calls under way: requests that a device has not completed within a second, listed in each
    /// second.
    pub standing: Vec<Request>,
    /// Whether calls under way can be observed. If not, `under_way` is empty and means nothing.
    pub hangs_seen: bool,
    /// The stacks that calls and waits refer to.
    pub stacks: Vec<Arc<Stack>>,
    pub latency: Vec<LatencyBucket>,
    pub waited: Waited,
    pub users: Users,
    pub events: Vec<Event>,
    pub gaps: Vec<Gap>,
}

impl Second {
    /// Approximate size in memory: texts and rows, without the allocator's overhead.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let series = self.series.iter().map(|series| (series.columns.len() + 3) * series.len() * VALUE_BYTES + 256);
        let calls = self.calls.iter().chain(&self.under_way).map(|owned| {
            let call = &owned.call;
            size_of::<OwnedCall>()
                + size_of_val(&call.segments[..])
                + call.thread.len()
                + call.file.as_ref().map_or(0, String::len)
                + size_of_val(&owned.aggressors[..])
        });
        let who = self.waited.waits.len() * (size_of::<Wait>() + 4 * NAME_BYTES)
            + (self.waited.requests.len() + self.standing.len()) * (size_of::<Request>() + 3 * NAME_BYTES)
            + self.waited.ahead.len() * (size_of::<QueueAhead>() + 2 * NAME_BYTES)
            + self.waited.cpus.len() * (size_of::<CpuOwner>() + 2 * NAME_BYTES)
            + self.users.owners.len() * (size_of::<QueueOwner>() + 3 * NAME_BYTES)
            + self.users.dirtiers.len() * (size_of::<Dirtier>() + 2 * NAME_BYTES)
            + self.users.memory.len() * (size_of::<MemoryUser>() + 2 * NAME_BYTES);
        // Seconds share stacks; in the worst case this second alone keeps them.
        let stacks = self.stacks.iter().map(|stack| stack.frames.len() * NAME_BYTES);
        let gaps = self.gaps.len() * 256;
        let latency = self.latency.len() * 256;
        size_of::<Second>()
            + series.sum::<usize>()
            + calls.sum::<usize>()
            + stacks.sum::<usize>()
            + gaps
            + latency
            + who
            + self.events.len() * 128
    }

    /// The stacks that calls and waits refer to; an id can occur several times.
    pub fn stack_ids(&self) -> impl Iterator<Item = StackId> + '_ {
        let calls = self.calls.iter().chain(&self.under_way);
        let of_calls = calls.flat_map(|owned| owned.call.segments.iter().filter_map(|segment| segment.stack));
        let of_waits = self.waited.waits.iter().flat_map(|wait| wait.stack.into_iter().chain(wait.waker_stack));
        of_calls.chain(of_waits)
    }

    /// The sum of the durations of calls.
    #[must_use]
    pub fn stall_ns(&self) -> u64 {
        self.calls.iter().map(|owned| owned.call.duration_ns).fold(0, u64::saturating_add)
    }
}

/// Size of a nullable integer in a column.
const VALUE_BYTES: usize = 16;
/// Approximate size of the name of a task, cgroup or file, with the allocator's overhead.
const NAME_BYTES: usize = 48;

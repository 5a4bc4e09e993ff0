//! What one look at the machine brought: rows, slow calls with their owners, events and gaps.

use std::sync::Arc;

use flatwater_recording::{
    Call, CpuOwner, Dirtier, Event, Gap, LatencyBucket, MemoryUser, QueueAhead, QueueOwner, Request, Series, Stack,
    StackId, Users, Wait, Waited,
};

use crate::account::Account;
use crate::aggressor::Share;
use crate::owner::Owner;

/// A slow call, whose it is, and who made it wait.
#[derive(Clone, Debug)]
pub struct OwnedCall {
    pub call: Call,
    pub owner: Owner,
    pub account: Account,
    /// The device that its requests went to; absent where none was seen.
    pub device: Option<Arc<str>>,
    /// Their sum is the call's length at most; the rest is nobody's that was seen.
    pub aggressors: Vec<Share>,
}

impl OwnedCall {
    /// A call of which no more is known.
    #[must_use]
    pub fn new(call: Call, owner: Owner) -> OwnedCall {
        let account = Account::of(&owner.cgroup, None);
        OwnedCall { call, owner, account, device: None, aggressors: Vec::new() }
    }
}

/// Everything since the last look, about a second of it.
#[derive(Clone, Debug, Default)]
pub struct Second {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Every system call was timed from `start_ns` to `end_ns`; otherwise only slow ones were found.
    pub every_call: bool,
    pub series: Vec<Series>,
    pub calls: Vec<OwnedCall>,
    /// Calls that had not ended, with their time so far: each second's anew, and once more among `calls` when they end.
    pub under_way: Vec<OwnedCall>,
    /// While there are such calls: requests that devices have not completed for a second or longer, each second's anew.
    pub standing: Vec<Request>,
    /// Whether such calls are seen at all: where not, `under_way` is empty and says nothing.
    pub hangs_seen: bool,
    /// Those that the calls and the waits refer to.
    pub stacks: Vec<Arc<Stack>>,
    pub latency: Vec<LatencyBucket>,
    pub waited: Waited,
    pub users: Users,
    pub events: Vec<Event>,
    pub gaps: Vec<Gap>,
}

impl Second {
    /// About what it takes in memory: texts and rows, without what the allocator adds.
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
        // Each second shares its stacks with others, and holds on to them alone in the worst case.
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

    /// The stacks that the calls and the waits refer to, some more than once.
    pub fn stack_ids(&self) -> impl Iterator<Item = StackId> + '_ {
        let calls = self.calls.iter().chain(&self.under_way);
        let of_calls = calls.flat_map(|owned| owned.call.segments.iter().filter_map(|segment| segment.stack));
        let of_waits = self.waited.waits.iter().flat_map(|wait| wait.stack.into_iter().chain(wait.waker_stack));
        of_calls.chain(of_waits)
    }

    /// The time that calls lost in it.
    #[must_use]
    pub fn stall_ns(&self) -> u64 {
        self.calls.iter().map(|owned| owned.call.duration_ns).fold(0, u64::saturating_add)
    }
}

/// A nullable integer in a column.
const VALUE_BYTES: usize = 16;
/// A name of a task, a cgroup or a file, about, with what the allocator adds.
const NAME_BYTES: usize = 48;

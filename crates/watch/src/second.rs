//! One second of observation: counters, slow calls with owners, events and gaps.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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

/// The thread and the start of a call, by which waits refer to it.
type CallKey = (u32, u64);

impl OwnedCall {
    /// A call without known device and aggressors.
    #[must_use]
    pub fn new(call: Call, owner: Owner) -> OwnedCall {
        let account = Account::of(&owner.cgroup, None);
        OwnedCall { call, owner, account, device: None, aggressors: Vec::new() }
    }

    fn key(&self) -> CallKey {
        (self.call.tid, self.call.start_ns)
    }

    fn bytes(&self) -> usize {
        let call = &self.call;
        size_of::<OwnedCall>()
            + size_of_val(&call.segments[..])
            + call.thread.len()
            + call.file.as_ref().map_or(0, String::len)
            + size_of_val(&self.aggressors[..])
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
        let calls = self.calls.iter().chain(&self.under_way).map(OwnedCall::bytes);
        let who = self.waited.waits.len() * WAIT_BYTES
            + (self.waited.requests.len() + self.standing.len()) * (size_of::<Request>() + 3 * NAME_BYTES)
            + self.waited.ahead.len() * (size_of::<QueueAhead>() + 2 * NAME_BYTES)
            + self.waited.cpus.len() * CPU_BYTES
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

    /// Approximate size of the calls of each account, with their waits.
    #[must_use]
    pub fn bytes_by_account(&self) -> BTreeMap<Account, usize> {
        let mut sums: BTreeMap<Account, usize> = BTreeMap::new();
        let mut whose: HashMap<CallKey, &Account> = HashMap::new();
        for owned in self.calls.iter().chain(&self.under_way) {
            *sums.entry(owned.account.clone()).or_default() += owned.bytes();
            whose.insert(owned.key(), &owned.account);
        }
        let waits = self.waited.waits.iter().map(|wait| ((wait.call_tid, wait.call_start_ns), WAIT_BYTES));
        let cpus = self.waited.cpus.iter().map(|row| ((row.call_tid, row.call_start_ns), CPU_BYTES));
        for (call, bytes) in waits.chain(cpus) {
            if let Some(sum) = whose.get(&call).and_then(|account| sums.get_mut(account)) {
                *sum += bytes;
            }
        }
        sums
    }

    /// Drops the calls of this account with their waits and stacks. Returns the number of calls that had ended.
    pub fn shed(&mut self, account: &Account) -> usize {
        let before = self.calls.len();
        let theirs = self.calls.iter().chain(&self.under_way).filter(|owned| owned.account == *account);
        let keys: HashSet<CallKey> = theirs.map(OwnedCall::key).collect();
        for calls in [&mut self.calls, &mut self.under_way] {
            calls.retain(|owned| owned.account != *account);
            calls.shrink_to_fit();
        }
        self.waited.waits.retain(|wait| !keys.contains(&(wait.call_tid, wait.call_start_ns)));
        self.waited.cpus.retain(|row| !keys.contains(&(row.call_tid, row.call_start_ns)));
        self.waited.waits.shrink_to_fit();
        let ids: BTreeSet<StackId> = self.stack_ids().collect();
        self.stacks.retain(|stack| ids.contains(&stack.id));
        before - self.calls.len()
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
/// Size of a wait, and of a wait for a CPU, with their names.
const WAIT_BYTES: usize = size_of::<Wait>() + 4 * NAME_BYTES;
const CPU_BYTES: usize = size_of::<CpuOwner>() + 2 * NAME_BYTES;

//! Index over the tables of wait chains and device requests, by call, by request and by time.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use super::charge::Stake;
use super::evicted::Evicted;
use super::journal::{Content, Journals};
use super::spans::Spans;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{
    Call, CpuOwner, Dirtier, MemoryUser, QueueAhead, QueueOwner, Recording, Request, Segment, Stack, Task, Wait,
};

/// Longest wait chain that is followed; longer ones are damaged or circular.
const DEPTH_MAX: u32 = 32;

/// Parts of the names of kernel functions that read pages of files: ext4_mpage_readpages, mpage_readahead,
/// page_cache_ra_order, filemap_read_folio.
const READS: &[&str] = &["readpage", "read_pages", "readahead", "page_cache_ra", "read_folio"];

/// An interval is divided among at most this many processes, those with the largest weights.
const SHARES_MAX: usize = 32;

/// Returns the shares with the largest weights, in a deterministic order.
pub fn most(mut shares: Vec<Stake<'_>>) -> Vec<Stake<'_>> {
    shares.sort_short_by(|(one, of_one, _), (other, of_other, _)| (of_other, *one).cmp(&(of_one, *other)));
    shares.truncate(SHARES_MAX);
    shares
}

/// An interval in whole seconds, as the rows of intervals have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seconds {
    first: u64,
    last: u64,
}

impl Seconds {
    const NS: u64 = 1_000_000_000;

    fn of(from_ns: u64, to_ns: u64) -> Seconds {
        Seconds { first: from_ns / Seconds::NS, last: to_ns / Seconds::NS }
    }

    fn start_ns(self) -> u64 {
        self.first.saturating_mul(Seconds::NS)
    }

    fn end_ns(self) -> u64 {
        self.last.saturating_add(1).saturating_mul(Seconds::NS)
    }
}

/// At most this many rows are examined per explanation. A recording of a day needs a tenth of this; a recording
/// whose rows all overlap would otherwise take hours.
const STEPS_MAX: u64 = 100_000_000;

/// A call, by thread id and start.
type CallKey = (u32, u64);

/// The facts of a call that all its charges share.
#[derive(Clone, Copy, Debug)]
struct OfCall<'a> {
    call: (u32, CallKey, u64),
    cgroup: Option<&'a str>,
    device: Option<&'a str>,
}

/// The recording's rows about waits, indexed by the keys of the queries below.
#[derive(Debug)]
pub struct Links<'a> {
    recording: &'a Recording,
    steps: Cell<u64>,
    latest: Cell<Option<OfCall<'a>>>,
    by_call: HashMap<CallKey, Vec<&'a Wait>>,
    /// By call, depth, and sleeping thread (0 for the call's own sleeps).
    links: Spans<'a, (CallKey, u32, u32), Wait>,
    requests: HashMap<u64, &'a Request>,
    ahead: HashMap<u64, Vec<&'a QueueAhead>>,
    /// By call, and by the kernel thread that waited; `None` if the call's own thread did.
    cpus: Spans<'a, (CallKey, Option<u32>), CpuOwner>,
    served: HashMap<u64, Vec<&'a CpuOwner>>,
    evicted: Evicted<'a>,
    journals: Journals<'a>,
    /// Caches by device and seconds: a million calls wait in a few thousand seconds.
    contents: RefCell<HashMap<(&'a str, Seconds), Option<Content<'a>>>>,
    holders: RefCell<HashMap<(&'a str, Seconds), Rc<[Stake<'a>]>>>,
    /// The processes of the target, with their titles.
    watched: HashMap<u32, Option<&'a str>>,
    neighbours: HashSet<&'a str>,
    dirtiers: Spans<'a, (), Dirtier>,
    memory_users: Spans<'a, (), MemoryUser>,
    queue_owners: Spans<'a, (), QueueOwner>,
}

impl<'a> Links<'a> {
    #[must_use]
    pub fn of(recording: &'a Recording) -> Links<'a> {
        let mut by_call: HashMap<(u32, u64), Vec<&Wait>> = HashMap::new();
        for wait in recording.waits.iter().filter(|wait| wait.depth <= DEPTH_MAX) {
            by_call.entry((wait.call_tid, wait.call_start_ns)).or_default().push(wait);
        }
        let mut ahead: HashMap<u64, Vec<&QueueAhead>> = HashMap::new();
        for row in &recording.queue_ahead {
            ahead.entry(row.request).or_default().push(row);
        }
        let mut served: HashMap<u64, Vec<&CpuOwner>> = HashMap::new();
        for row in &recording.cpu_owners {
            if let Some(request) = row.request {
                served.entry(request).or_default().push(row);
            }
        }
        let watched: HashMap<u32, Option<&str>> =
            recording.header.target.processes.iter().map(|one| (one.pid, one.title.as_deref())).collect();
        let journals = Journals::of(recording, |task| watched.contains_key(&task.pid) || is_in_target(recording, task));
        let slept = |wait: &Wait| if wait.depth == 0 { 0 } else { wait.sleeper.tid };
        let link_of = |wait: &Wait| {
            (((wait.call_tid, wait.call_start_ns), wait.depth, slept(wait)), wait.start_ns, wait.duration_ns)
        };
        let cpu_of = |row: &CpuOwner| {
            let waiter = row.waiter.as_ref().map(|waiter| waiter.tid);
            (((row.call_tid, row.call_start_ns), waiter), row.start_ns, row.duration_ns)
        };
        Links {
            recording,
            steps: Cell::new(0),
            latest: Cell::new(None),
            links: Spans::of(recording.waits.iter().filter(|wait| wait.depth <= DEPTH_MAX), link_of),
            cpus: Spans::of(recording.cpu_owners.iter().filter(|row| row.request.is_none()), cpu_of),
            journals,
            served,
            contents: RefCell::default(),
            holders: RefCell::default(),
            evicted: Evicted::of(recording),
            by_call,
            requests: recording.requests.iter().map(|request| (request.id, request)).collect(),
            ahead,
            watched,
            neighbours: recording.neighbours(),
            dirtiers: Spans::of(&recording.dirtiers, |row| ((), row.start_ns, row.width_ns)),
            memory_users: Spans::of(&recording.memory_users, |row| ((), row.start_ns, row.width_ns)),
            queue_owners: Spans::of(&recording.queue_owners, |row| ((), row.start_ns, row.width_ns)),
        }
    }

    /// Counts examined rows; returns false once the bound is reached.
    pub(super) fn spend(&self, steps: usize) -> bool {
        self.steps.set(self.steps.get().saturating_add(steps as u64));
        !self.is_spent()
    }

    /// Whether the bound was reached, so that some rows were not examined.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.steps.get() > STEPS_MAX
    }

    fn overlapping<'b, K: Copy + Ord, R>(
        &'b self,
        spans: &'b Spans<'a, K, R>,
        key: K,
        (from_ns, to_ns): (u64, u64),
    ) -> impl Iterator<Item = &'a R> + 'b {
        let near = spans.near(key, from_ns, to_ns).take_while(|_| self.spend(1));
        near.filter(|near| near.reaches).map(|near| near.row)
    }

    /// Rows of processes that dirtied pages in an interval.
    pub(super) fn dirtiers(&self, within: (u64, u64)) -> impl Iterator<Item = &'a Dirtier> {
        self.overlapping(&self.dirtiers, (), within)
    }

    /// Rows of processes that took memory in an interval.
    pub(super) fn memory_users(&self, within: (u64, u64)) -> impl Iterator<Item = &'a MemoryUser> {
        self.overlapping(&self.memory_users, (), within)
    }

    /// Rows of processes that had requests at devices in an interval.
    pub(super) fn queue_owners(&self, within: (u64, u64)) -> impl Iterator<Item = &'a QueueOwner> {
        self.overlapping(&self.queue_owners, (), within)
    }

    /// The sleeps of the call's own thread that overlap an interval, by start.
    pub(super) fn sleeps_within(&self, call: &Call, within: (u64, u64)) -> impl Iterator<Item = &'a Wait> {
        self.overlapping(&self.links, ((call.tid, call.start_ns), 0, 0), within)
    }

    /// The sleeps of the call's own thread.
    pub fn sleeps(&self, call: &Call) -> impl Iterator<Item = &'a Wait> {
        self.of_call(call).iter().copied().filter(|wait| wait.depth == 0)
    }

    /// All sleeps in the chains of a call.
    #[must_use]
    pub fn of_call(&self, call: &Call) -> &[&'a Wait] {
        self.by_call.get(&(call.tid, call.start_ns)).map_or(&[], Vec::as_slice)
    }

    /// The sleeps, in the chains of the same call, of the thread that ended this sleep.
    pub fn behind(&self, call: &Call, wait: &Wait) -> impl Iterator<Item = &'a Wait> {
        Links::key_behind(call, wait).into_iter().flat_map(|key| self.links.all(key))
    }

    /// The sleeps of `behind` that overlap an interval, by start.
    pub(super) fn behind_within(&self, call: &Call, wait: &Wait, within: (u64, u64)) -> impl Iterator<Item = &'a Wait> {
        Links::key_behind(call, wait).into_iter().flat_map(move |key| self.overlapping(&self.links, key, within))
    }

    fn key_behind(call: &Call, wait: &Wait) -> Option<(CallKey, u32, u32)> {
        let ended_by = ender(wait)?.tid;
        Some(((call.tid, call.start_ns), wait.depth.checked_add(1)?, ended_by))
    }

    #[must_use]
    pub fn request(&self, wait: &Wait) -> Option<&'a Request> {
        self.requests.get(&wait.request?).copied()
    }

    /// The requests that were ahead of this one.
    pub fn ahead(&self, request: &Request) -> impl Iterator<Item = &'a QueueAhead> {
        let rows = self.ahead.get(&request.id).map_or(&[][..], Vec::as_slice);
        rows.iter().copied().take_while(|_| self.spend(1))
    }

    /// Who ran in an interval while the call's thread waited for a CPU.
    pub(super) fn cpu_owners(&self, call: &Call, within: (u64, u64)) -> impl Iterator<Item = &'a CpuOwner> {
        self.overlapping(&self.cpus, ((call.tid, call.start_ns), None), within)
    }

    /// Who ran in an interval while this kernel thread, which the call waited for, waited for a CPU.
    pub(super) fn cpu_waits_of(&self, call: &Call, tid: u32, within: (u64, u64)) -> impl Iterator<Item = &'a CpuOwner> {
        self.overlapping(&self.cpus, ((call.tid, call.start_ns), Some(tid)), within)
    }

    /// Who ran while threads that were to serve this request waited for a CPU.
    pub(super) fn cpu_waits_for(&self, request: &Request) -> impl Iterator<Item = &'a CpuOwner> {
        let rows = self.served.get(&request.id).map_or(&[][..], Vec::as_slice);
        rows.iter().copied().take_while(|_| self.spend(1))
    }

    /// Stake of the bytes read that a full cgroup had evicted before, 0 to 1.
    #[must_use]
    pub fn evicted_share(&self) -> f64 {
        self.evicted.share
    }

    /// The processes that took memory of that cgroup, weighted by pages.
    #[must_use]
    pub fn takers(&self) -> Vec<Stake<'a>> {
        self.evicted.takers.iter().map(|(task, pages)| (*task, *pages, None)).collect()
    }

    /// The cgroup and the device of a call, cached for all its charges.
    fn facts_of(&self, call: &Call) -> OfCall<'a> {
        let key = (call.pid, (call.tid, call.start_ns), call.duration_ns);
        if let Some(latest) = self.latest.get().filter(|latest| latest.call == key) {
            return latest;
        }
        let first = self.of_call(call).iter().find_map(|wait| self.request(wait));
        let device = first.map(|request| request.device.as_str());
        let found = OfCall { call: key, cgroup: self.find_cgroup(call), device };
        self.latest.set(Some(found));
        found
    }

    fn find_cgroup(&self, call: &Call) -> Option<&'a str> {
        let linked = self.sleeps(call).find_map(|wait| wait.sleeper.cgroup.as_deref());
        let counted = || {
            let mut users = self.memory_users((call.start_ns, call.end_ns().max(call.start_ns.saturating_add(1))));
            users.find(|row| row.owner.pid == call.pid).and_then(|row| row.owner.cgroup.as_deref())
        };
        linked.or_else(counted)
    }

    /// The device of the call's first known request.
    fn device(&self, call: &Call) -> Option<&'a str> {
        self.facts_of(call).device
    }

    /// The processes with requests in the queue or at the device in these seconds, weighted by the sum of their
    /// requests' times.
    #[must_use]
    pub fn queue_holders(&self, call: &Call, from_ns: u64, to_ns: u64) -> Rc<[Stake<'a>]> {
        let Some(device) = self.device(call) else { return Rc::default() };
        let seconds = Seconds::of(from_ns, to_ns);
        let mut known = self.holders.borrow_mut();
        let found = known.entry((device, seconds)).or_insert_with(|| self.holders_of(device, seconds));
        Rc::clone(found)
    }

    fn holders_of(&self, device: &str, seconds: Seconds) -> Rc<[Stake<'a>]> {
        let rows = self.queue_owners((seconds.start_ns(), seconds.end_ns()));
        let mut sums: HashMap<(&str, Option<&str>), Stake<'a>> = HashMap::new();
        for row in rows.filter(|row| row.device == device) {
            let Some(owner) = &row.owner else { continue };
            let who = (owner.name.as_str(), owner.cgroup.as_deref());
            let sum = sums.entry(who).or_insert((owner, 0, row.file.as_deref()));
            sum.1 = sum.1.saturating_add(row.queue_ns).saturating_add(row.device_ns);
        }
        most(sums.into_values().filter(|(_, held_ns, _)| *held_ns > 0).collect()).into()
    }

    /// Whether a sleep in this interval was ended by the btrfs worker that frees reserved space by writing back
    /// dirty pages (btrfs_async_reclaim_data_space, btrfs_async_reclaim_metadata_space, fs/btrfs/space-info.c).
    #[must_use]
    pub fn waits_for_reserved_space(&self, call: &Call, from_ns: u64, to_ns: u64) -> bool {
        let frees =
            |wait: &Wait| wait.waker_doing.as_ref().is_some_and(|doing| doing.starts_with("btrfs_async_reclaim_"));
        self.sleeps_within(call, (from_ns, to_ns)).any(frees)
    }

    /// What the journal that this call waited for wrote, by process; `None` if whose changes it wrote hardly
    /// matters.
    #[must_use]
    pub fn journal(&self, call: &Call) -> Option<Content<'a>> {
        let (device, seconds) = (self.device(call)?, Seconds::of(call.start_ns, call.end_ns()));
        let mut known = self.contents.borrow_mut();
        let found = known
            .entry((device, seconds))
            .or_insert_with(|| self.journals.content(self, device, (seconds.start_ns(), seconds.end_ns())));
        let mut content = found.clone()?;
        if self.watched.is_empty() {
            // All processes are watched. The caller's own are those with its name and cgroup.
            let caller = self.sleeps(call).next().map(|wait| &wait.sleeper);
            let is_own = |task: &Task| caller.is_some_and(|own| own.name == task.name && own.cgroup == task.cgroup);
            let own = content.others.iter().filter(|(task, ..)| is_own(task));
            content.own = own.fold(content.own, |sum, (_, count, _)| sum.saturating_add(*count));
            content.others.retain(|(task, ..)| !is_own(task));
        }
        Some(content)
    }

    #[must_use]
    pub fn stack(&self, wait: &Wait) -> Option<&'a Stack> {
        self.recording.stack(wait.stack?)
    }

    /// Whether the segment was spent reading pages of a file into the page cache.
    #[must_use]
    pub fn reads_pages(&self, segment: &Segment) -> bool {
        let stack = segment.stack.and_then(|stack| self.recording.stack(stack));
        stack.is_some_and(|stack| stack.frames.iter().any(|frame| READS.iter().any(|part| frame.contains(part))))
    }

    /// Whether the task belongs to the target: the call's own process, another process of the target, or its
    /// cgroup.
    #[must_use]
    pub fn is_own(&self, call: &Call, task: &Task) -> bool {
        // Neighbours of a scenario that are processes of their own.
        if task.pid != call.pid && self.neighbours.contains(task.name.as_str()) {
            return false;
        }
        let in_group = is_in_target(self.recording, task);
        let in_callers = task.is_only_a_cgroup() && task.cgroup.as_deref() == self.own_cgroup(call);
        task.pid == call.pid || self.watched.contains_key(&task.pid) || in_group || in_callers
    }

    /// The title of a process of the target: the text that it writes over its command line.
    #[must_use]
    pub fn title(&self, pid: u32) -> Option<&'a str> {
        self.watched.get(&pid).copied().flatten()
    }

    /// The cgroup of the calling thread, if a sleep or a row of memory users names it.
    #[must_use]
    pub fn own_cgroup(&self, call: &Call) -> Option<&'a str> {
        self.facts_of(call).cgroup
    }

    #[must_use]
    pub fn recording(&self) -> &'a Recording {
        self.recording
    }
}

fn is_in_target(recording: &Recording, task: &Task) -> bool {
    match (&recording.header.target.cgroup, &task.cgroup) {
        (Some(watched), Some(cgroup)) => is_below(cgroup, watched),
        _ => false,
    }
}

/// Controllers that have a mounted hierarchy of their own in version 1.
const CONTROLLERS: &[&str] = &["memory", "cpu", "cpuacct", "cpu,cpuacct", "blkio", "pids", "systemd", "unified"];

/// Whether `cgroup` is `watched` or below it: `/jobs/backup` is below `/sys/fs/cgroup/memory/jobs`. False for the
/// root, which contains every process.
fn is_below(cgroup: &str, watched: &str) -> bool {
    let own = match watched.strip_prefix("/sys/fs/cgroup/") {
        Some(mounted) => match mounted.split_once('/') {
            Some((first, rest)) if CONTROLLERS.contains(&first) => rest,
            None if CONTROLLERS.contains(&mounted) => "",
            _ => mounted,
        },
        None => watched.trim_start_matches('/'),
    };
    let own = own.trim_end_matches('/');
    !own.is_empty() && Path::new(cgroup.trim_start_matches('/')).starts_with(own)
}

/// The thread that a sleep waited for: the one that ended it, or the lock's holder if only that is known.
#[must_use]
pub fn ender(wait: &Wait) -> Option<&Task> {
    wait.waker.as_ref().or(wait.lock_holder.as_ref())
}

/// Names of kernel threads that work for others.
const KERNEL_THREADS: &[&str] = &[
    "kworker/",
    "jbd2/",
    "kswapd",
    "kcompactd",
    "khugepaged",
    "ksoftirqd",
    "xfsaild",
    "btrfs-transacti",
    "btrfs-cleaner",
    "loop",
    "dmcrypt_write",
    "irq/",
    "swapper",
    "rcu_",
    "migration/",
];

/// Whether this is a kernel thread, which works for other processes.
#[must_use]
pub fn is_kernel(task: &Task) -> bool {
    (task.pid == 0 && !task.is_only_a_cgroup()) || KERNEL_THREADS.iter().any(|name| task.name.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn a_cgroup_contains_those_below_it_except_the_root() {
        for (cgroup, watched, below) in [
            ("/jobs/backup", "/sys/fs/cgroup/memory/jobs", true),
            ("/jobs/backup", "/sys/fs/cgroup/jobs/backup", true),
            ("/jobs/backup", "/jobs", true),
            ("/jobs2/backup", "/jobs", false),
            ("/jobs", "/sys/fs/cgroup/memory", false),
            ("/jobs", "/", false),
        ] {
            assert_eq!(is_below(cgroup, watched), below, "{cgroup} {watched}");
        }
    }
}

//! The tables of wait chains and device requests, found by call and by request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use super::charge::Share;
use super::evicted::Evicted;
use super::journal::{Content, Journals};
use flatwater_recording::{
    Call, CpuOwner, Dirtier, MemoryUser, QueueAhead, QueueOwner, Recording, Request, Segment, Stack, Task, Wait,
};

/// A chain is followed through so many threads at most; longer ones are damaged or go round in a circle.
const DEPTH_MAX: u32 = 32;

/// Parts of the names of functions that read pages of files: ext4_mpage_readpages, mpage_readahead, page_cache_ra_order,
/// filemap_read_folio.
const READS: &[&str] = &["readpage", "read_pages", "readahead", "page_cache_ra", "read_folio"];

/// Processes of one name and cgroup that an interval is divided among at most: the worst.
const SHARES_MAX: usize = 32;

/// The most of them, in an order of their own.
pub fn most(mut shares: Vec<Share<'_>>) -> Vec<Share<'_>> {
    shares.sort_by(|(one, of_one, _), (other, of_other, _)| (of_other, *one).cmp(&(of_one, *other)));
    shares.truncate(SHARES_MAX);
    shares
}

/// Whole seconds, as rows of intervals are.
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

/// What the recording holds of waits, by what it is asked for.
#[derive(Debug)]
pub struct Links<'a> {
    recording: &'a Recording,
    by_call: HashMap<(u32, u64), Vec<&'a Wait>>,
    requests: HashMap<u64, &'a Request>,
    ahead: HashMap<u64, Vec<&'a QueueAhead>>,
    cpus: HashMap<(u32, u64), Vec<&'a CpuOwner>>,
    served: HashMap<u64, Vec<&'a CpuOwner>>,
    evicted: Evicted<'a>,
    journals: Journals<'a>,
    /// What was asked before: a million calls wait in a few thousand seconds.
    contents: RefCell<HashMap<(&'a str, Seconds), Option<Content<'a>>>>,
    holders: RefCell<HashMap<(&'a str, Seconds), Rc<[Share<'a>]>>>,
    /// The processes of the target, with what each calls itself.
    watched: HashMap<u32, Option<&'a str>>,
    pub dirtiers: Intervals<'a, Dirtier>,
    pub memory_users: Intervals<'a, MemoryUser>,
    pub queue_owners: Intervals<'a, QueueOwner>,
}

/// Rows of an interval table in order of time.
#[derive(Debug)]
pub struct Intervals<'a, R> {
    rows: Vec<(u64, u64, &'a R)>,
    width_ns_max: u64,
}

impl<'a, R> Intervals<'a, R> {
    fn of(rows: &'a [R], span: impl Fn(&R) -> (u64, u64)) -> Intervals<'a, R> {
        let spans = rows.iter().map(|row| (span(row), row));
        let mut rows: Vec<_> = spans.map(|((start_ns, width_ns), row)| (start_ns, width_ns, row)).collect();
        rows.sort_by_key(|(start_ns, ..)| *start_ns);
        let width_ns_max = rows.iter().map(|(_, width_ns, _)| *width_ns).max().unwrap_or(0);
        Intervals { rows, width_ns_max }
    }

    /// Those that reach into this interval.
    #[must_use]
    pub fn meanwhile(&self, from_ns: u64, to_ns: u64) -> Vec<&'a R> {
        let earliest_ns = from_ns.saturating_sub(self.width_ns_max);
        let first = self.rows.partition_point(|(start_ns, ..)| *start_ns < earliest_ns);
        let rows = self.rows.get(first..).unwrap_or_default().iter().take_while(|(start_ns, ..)| *start_ns < to_ns);
        let reaches = rows.filter(|(start_ns, width_ns, _)| start_ns.saturating_add(*width_ns) > from_ns);
        reaches.map(|(.., row)| *row).collect()
    }
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
        let mut cpus: HashMap<(u32, u64), Vec<&CpuOwner>> = HashMap::new();
        let mut served: HashMap<u64, Vec<&CpuOwner>> = HashMap::new();
        for row in &recording.cpu_owners {
            match row.request {
                Some(request) => served.entry(request).or_default().push(row),
                None => cpus.entry((row.call_tid, row.call_start_ns)).or_default().push(row),
            }
        }
        let watched: HashMap<u32, Option<&str>> =
            recording.header.target.processes.iter().map(|one| (one.pid, one.title.as_deref())).collect();
        let journals = Journals::of(recording, |task| watched.contains_key(&task.pid) || is_in_target(recording, task));
        Links {
            recording,
            cpus,
            journals,
            served,
            contents: RefCell::default(),
            holders: RefCell::default(),
            evicted: Evicted::of(recording),
            by_call,
            requests: recording.requests.iter().map(|request| (request.id, request)).collect(),
            ahead,
            watched,
            dirtiers: Intervals::of(&recording.dirtiers, |row| (row.start_ns, row.width_ns)),
            memory_users: Intervals::of(&recording.memory_users, |row| (row.start_ns, row.width_ns)),
            queue_owners: Intervals::of(&recording.queue_owners, |row| (row.start_ns, row.width_ns)),
        }
    }

    /// The sleeps of a call itself.
    pub fn sleeps(&self, call: &Call) -> impl Iterator<Item = &'a Wait> {
        self.of_call(call).iter().copied().filter(|wait| wait.depth == 0)
    }

    /// All links of a call.
    #[must_use]
    pub fn of_call(&self, call: &Call) -> &[&'a Wait] {
        self.by_call.get(&(call.tid, call.start_ns)).map_or(&[], Vec::as_slice)
    }

    /// The sleeps, in the chains of the same call, of the thread that ended this one.
    pub fn behind<'b>(&'b self, call: &Call, wait: &'b Wait) -> impl Iterator<Item = &'a Wait> + 'b {
        let ender = ender(wait).map(|task| task.tid);
        let links = self.by_call.get(&(call.tid, call.start_ns)).map_or(&[][..], Vec::as_slice);
        links.iter().copied().filter(move |link| link.depth == wait.depth + 1 && Some(link.sleeper.tid) == ender)
    }

    #[must_use]
    pub fn request(&self, wait: &Wait) -> Option<&'a Request> {
        self.requests.get(&wait.request?).copied()
    }

    #[must_use]
    pub fn ahead(&self, request: &Request) -> &[&'a QueueAhead] {
        self.ahead.get(&request.id).map_or(&[], Vec::as_slice)
    }

    /// Who ran while the call's thread waited for a CPU.
    pub fn cpu_owners(&self, call: &Call) -> impl Iterator<Item = &'a CpuOwner> {
        self.all_cpus(call).filter(|row| row.waiter.is_none())
    }

    /// Who ran while this thread of the kernel, for which the call waited, waited for a CPU.
    pub fn cpu_waits_of(&self, call: &Call, tid: u32) -> impl Iterator<Item = &'a CpuOwner> {
        self.all_cpus(call).filter(move |row| row.waiter.as_ref().is_some_and(|waiter| waiter.tid == tid))
    }

    fn all_cpus(&self, call: &Call) -> impl Iterator<Item = &'a CpuOwner> {
        self.cpus.get(&(call.tid, call.start_ns)).map_or(&[][..], Vec::as_slice).iter().copied()
    }

    /// Who ran while the threads that had this request to serve waited for a CPU.
    pub fn cpu_waits_for(&self, request: &Request) -> impl Iterator<Item = &'a CpuOwner> {
        self.served.get(&request.id).map_or(&[][..], Vec::as_slice).iter().copied()
    }

    /// Of what was read, how much had been evicted from a full cgroup before, 0 to 1.
    #[must_use]
    pub fn evicted_share(&self) -> f64 {
        self.evicted.share
    }

    /// Who took memory of that cgroup, by pages.
    #[must_use]
    pub fn takers(&self) -> Vec<Share<'a>> {
        self.evicted.takers.iter().map(|(task, pages)| (*task, *pages, None)).collect()
    }

    /// The device of the call's first request that is known.
    fn device(&self, call: &Call) -> Option<&'a str> {
        self.of_call(call).iter().find_map(|wait| self.request(wait)).map(|request| request.device.as_str())
    }

    /// Who had requests in the device's queue or at the device in those seconds, by how long, added up over their requests.
    #[must_use]
    pub fn queue_holders(&self, call: &Call, from_ns: u64, to_ns: u64) -> Rc<[Share<'a>]> {
        let Some(device) = self.device(call) else { return Rc::default() };
        let seconds = Seconds::of(from_ns, to_ns);
        let mut known = self.holders.borrow_mut();
        let found = known.entry((device, seconds)).or_insert_with(|| self.holders_of(device, seconds));
        Rc::clone(found)
    }

    fn holders_of(&self, device: &str, seconds: Seconds) -> Rc<[Share<'a>]> {
        let rows = self.queue_owners.meanwhile(seconds.start_ns(), seconds.end_ns());
        let mut sums: HashMap<(&str, Option<&str>), Share<'a>> = HashMap::new();
        for row in rows.into_iter().filter(|row| row.device == device) {
            let Some(owner) = &row.owner else { continue };
            let who = (owner.name.as_str(), owner.cgroup.as_deref());
            let sum = sums.entry(who).or_insert((owner, 0, row.file.as_deref()));
            sum.1 = sum.1.saturating_add(row.queue_ns).saturating_add(row.device_ns);
        }
        most(sums.into_values().filter(|(_, held_ns, _)| *held_ns > 0).collect()).into()
    }

    /// Whether the sleeps meanwhile were ended by the worker of btrfs that frees reserved space, by having dirty pages written
    /// (btrfs_async_reclaim_data_space, btrfs_async_reclaim_metadata_space, fs/btrfs/space-info.c).
    #[must_use]
    pub fn waits_for_reserved_space(&self, call: &Call, from_ns: u64, to_ns: u64) -> bool {
        let meanwhile =
            |wait: &&Wait| wait.start_ns < to_ns && wait.start_ns.saturating_add(wait.duration_ns) > from_ns;
        let frees =
            |wait: &Wait| wait.waker_doing.as_ref().is_some_and(|doing| doing.starts_with("btrfs_async_reclaim_"));
        self.sleeps(call).filter(meanwhile).any(frees)
    }

    /// What the journal wrote that this call waited for, by whose changes it was; `None` where they hardly matter.
    #[must_use]
    pub fn journal(&self, call: &Call) -> Option<Content<'a>> {
        let (device, seconds) = (self.device(call)?, Seconds::of(call.start_ns, call.end_ns()));
        let mut known = self.contents.borrow_mut();
        let found = known
            .entry((device, seconds))
            .or_insert_with(|| self.journals.content(device, seconds.start_ns(), seconds.end_ns()));
        let mut content = found.clone()?;
        if self.watched.is_empty() {
            // All processes are watched: the caller's own are those of its name.
            let caller = self.sleeps(call).next().map(|wait| &wait.sleeper);
            let is_own = |task: &Task| caller.is_some_and(|own| own.name == task.name && own.cgroup == task.cgroup);
            content.own +=
                content.others.iter().filter(|(task, ..)| is_own(task)).map(|(_, count, _)| count).sum::<u64>();
            content.others.retain(|(task, ..)| !is_own(task));
        }
        Some(content)
    }

    #[must_use]
    pub fn stack(&self, wait: &Wait) -> Option<&'a Stack> {
        self.recording.stack(wait.stack?)
    }

    /// Whether this time passed on the way to reading pages of a file into the cache.
    #[must_use]
    pub fn reads_pages(&self, segment: &Segment) -> bool {
        let stack = segment.stack.and_then(|stack| self.recording.stack(stack));
        stack.is_some_and(|stack| stack.frames.iter().any(|frame| READS.iter().any(|part| frame.contains(part))))
    }

    /// Whether the task belongs to what was watched: the call's own process, or another process of the target.
    #[must_use]
    pub fn is_own(&self, call: &Call, task: &Task) -> bool {
        let in_group = is_in_target(self.recording, task);
        let in_callers = task.is_only_a_cgroup() && task.cgroup.as_deref() == self.own_cgroup(call);
        task.pid == call.pid || self.watched.contains_key(&task.pid) || in_group || in_callers
    }

    /// What a process of the target calls itself, where others have their command line.
    #[must_use]
    pub fn title(&self, pid: u32) -> Option<&'a str> {
        self.watched.get(&pid).copied().flatten()
    }

    /// The cgroup of the thread that made the call, where a link or an interval names it.
    #[must_use]
    pub fn own_cgroup(&self, call: &Call) -> Option<&'a str> {
        let linked = self.sleeps(call).find_map(|wait| wait.sleeper.cgroup.as_deref());
        let counted = || {
            let users = self.memory_users.meanwhile(call.start_ns, call.end_ns().max(call.start_ns.saturating_add(1)));
            users.into_iter().find(|row| row.owner.pid == call.pid).and_then(|row| row.owner.cgroup.as_deref())
        };
        linked.or_else(counted)
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

/// Controllers whose hierarchies have a mount of their own on version 1.
const CONTROLLERS: &[&str] = &["memory", "cpu", "cpuacct", "cpu,cpuacct", "blkio", "pids", "systemd", "unified"];

/// `/jobs/backup` lies below `/sys/fs/cgroup/memory/jobs`. The root holds everybody, and says nothing.
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

/// The thread that a sleep waited for: the lock's holder where only it is known, else whoever ended the sleep.
#[must_use]
pub fn ender(wait: &Wait) -> Option<&Task> {
    wait.waker.as_ref().or(wait.lock_holder.as_ref())
}

/// Names of the kernel's own threads that work for others.
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

/// Whether this is a thread of the kernel: it works for others, and is nobody's program.
#[must_use]
pub fn is_kernel(task: &Task) -> bool {
    (task.pid == 0 && !task.is_only_a_cgroup()) || KERNEL_THREADS.iter().any(|name| task.name.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn a_group_holds_those_below_it_and_the_root_holds_nobody_in_particular() {
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

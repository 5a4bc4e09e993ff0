//! Charges each interval of a stall to a party: follows wait chains to their end, and divides device time among the
//! requests that were ahead.

use std::collections::HashSet;

use super::links::{Links, ender, is_kernel};
use crate::sums::in_proportion;
use flatwater_recording::{
    Call, Cause, CpuOwner, Dirtier, MemoryScope, MemoryUser, Request, RequestOp, Segment, Task, Wait, WakerKind,
};

/// How a party made calls wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Means {
    /// Its requests were ahead in the device's queue.
    Queue,
    /// Its requests came later, but the device worked on them at the same time.
    Beside,
    /// Its data was in the device's cache, which a flush had to write out.
    Cache,
    /// The awaited request wrote or read its data: a journal's commit writes the data of all processes.
    Data,
    /// It held the lock.
    Lock,
    /// It ran, or waited for a CPU, before it ended the wait.
    Running,
    /// It dirtied the pages that made the kernel pause the writer.
    DirtyPages,
    /// It took the memory that had to be reclaimed, or for which pages were evicted that had to be read again.
    Memory,
    /// It dropped the page cache, which had to be read again.
    DroppedCache,
    /// A journal's commit wrote its changes to the file system.
    Journal,
    /// It occupied the CPU that the call's thread, or a kernel thread working for the call, waited for.
    Cpu,
}

impl Means {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Means::Queue => "queue",
            Means::Beside => "beside",
            Means::Cache => "cache",
            Means::Data => "data",
            Means::Lock => "lock",
            Means::Running => "running",
            Means::DirtyPages => "dirty-pages",
            Means::Memory => "memory",
            Means::DroppedCache => "dropped-cache",
            Means::Journal => "journal",
            Means::Cpu => "cpu",
        }
    }
}

/// The party responsible for an interval.
#[derive(Clone, Copy, Debug)]
pub enum Party<'a> {
    /// A process outside the target.
    Other(&'a Task),
    /// The target: another thread or process of the target, or the target's requests ahead.
    Own(&'a Task),
    /// The device, working on the awaited request itself.
    Device,
    /// The device, flushing its cache or discarding.
    Flush,
    /// A limit on the I/O of a cgroup.
    Limit(&'a Task),
    /// A kernel thread that worked for no known process.
    Kernel(&'a Task),
    /// Unknown.
    Unknown,
}

/// The share of a party in a stall.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    pub party: Party<'a>,
    pub means: Means,
    pub ns: u64,
    /// Bytes of the party that were ahead, or that it dirtied, in this time.
    pub bytes: u64,
    pub file: Option<&'a str>,
}

impl<'a> Share<'a> {
    fn of(party: Party<'a>, means: Means, ns: u64) -> Share<'a> {
        Share { party, means, ns, bytes: 0, file: None }
    }

    fn unknown(means: Means, ns: u64) -> Share<'a> {
        Share::of(Party::Unknown, means, ns)
    }

    /// The amount by which the time was divided is not bytes.
    fn without_bytes(self) -> Share<'a> {
        Share { bytes: 0, ..self }
    }
}

/// An interval in ns.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from_ns: u64,
    to_ns: u64,
}

impl Interval {
    fn ns(self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    fn bounds(self) -> (u64, u64) {
        (self.from_ns, self.to_ns)
    }

    fn within(self, from_ns: u64, to_ns: u64) -> Interval {
        Interval { from_ns: self.from_ns.max(from_ns), to_ns: self.to_ns.min(to_ns) }
    }
}

/// The shares of a segment's parties; together they are the whole segment.
#[must_use]
pub fn segment<'a>(links: &Links<'a>, call: &Call, place: usize) -> Vec<Share<'a>> {
    let Some(segment) = call.segments.get(place) else { return Vec::new() };
    let from_ns = call.start_ns.saturating_add(segment.offset_ns);
    let whole = Interval { from_ns, to_ns: from_ns.saturating_add(segment.ns) };
    let mut shares = of_cause(links, call, segment, whole);
    shares.retain(|share| share.ns > 0);
    for share in &shares {
        links.spend(weight(&share.party, share.file));
    }
    shares
}

fn of_cause<'a>(links: &Links<'a>, call: &Call, segment: &Segment, whole: Interval) -> Vec<Share<'a>> {
    match segment.cause {
        // A timer ends the pause; the processes that dirtied pages are responsible for it.
        Cause::DirtyThrottle => dirtiers(links, call, whole),
        // Reclaim may wait for various things, but it runs because memory was taken.
        Cause::MemcgReclaim | Cause::DirectReclaim | Cause::ReclaimThrottle | Cause::MemcgOverHigh => {
            memory(links, call, whole, segment.cause != Cause::DirectReclaim)
        }
        Cause::RunQueue => processor(links, call, whole),
        Cause::JournalCommit | Cause::JournalFull | Cause::JournalBuffer => journal(links, call, whole),
        // The call had no request yet. Without the processes that took memory, the read would not have been needed.
        Cause::RequestQueue if links.reads_pages(segment) && links.evicted_share() > 0.0 => {
            let again = links.evicted_share();
            let part = |ns: u64, share: f64| (ns as f64 * share) as u64;
            let taken = split(links, call, part(whole.ns(), again), Means::Memory, &links.takers());
            let rest = sleeps(links, call, whole).into_iter();
            let rest = rest.map(|share| Share { ns: part(share.ns, 1.0 - again), ..share });
            taken.into_iter().map(Share::without_bytes).chain(rest).collect()
        }
        Cause::RequestQueue => full_queue(links, call, whole),
        Cause::BlockAllocation if links.waits_for_reserved_space(call, whole.from_ns, whole.to_ns) => {
            dirtiers(links, call, whole)
        }
        _ => sleeps(links, call, whole),
    }
}

/// The cost of a share for its callers, who copy the names of the party and the file; counted against the bound on
/// rows.
fn weight(party: &Party<'_>, file: Option<&str>) -> usize {
    let names = match party {
        Party::Other(task) | Party::Own(task) | Party::Limit(task) | Party::Kernel(task) => {
            task.name.len().saturating_add(task.cgroup.as_ref().map_or(0, String::len))
        }
        Party::Device | Party::Flush | Party::Unknown => 0,
    };
    (names.saturating_add(file.map_or(0, str::len)) / 64).saturating_add(1)
}

/// All requests of the queue are in use, and the wait ends when any of them completes. Blame each holder in
/// proportion to requests held x time.
fn full_queue<'a>(links: &Links<'a>, call: &Call, whole: Interval) -> Vec<Share<'a>> {
    let holders = links.queue_holders(call, whole.from_ns, whole.to_ns);
    let held = |share: Share<'a>| match share.party {
        Party::Unknown if share.ns > 0 && share.means != Means::Cpu && !holders.is_empty() => {
            let among = split(links, call, share.ns, Means::Queue, &holders);
            among.into_iter().map(Share::without_bytes).collect()
        }
        _ => vec![share],
    };
    sleeps(links, call, whole).into_iter().flat_map(held).collect()
}

/// Follows each sleep in the interval to its end.
fn sleeps<'a>(links: &Links<'a>, call: &Call, whole: Interval) -> Vec<Share<'a>> {
    let mut shares = Vec::new();
    let mut covered_ns = 0_u64;
    let mut at_ns = whole.from_ns;
    for sleep in links.sleeps_within(call, whole.bounds()) {
        // A thread has one sleep at a time: overlapping rows are damaged.
        let asleep = whole.within(sleep.start_ns.max(at_ns), sleep.start_ns.saturating_add(sleep.duration_ns));
        if asleep.ns() > 0 {
            at_ns = asleep.to_ns;
            covered_ns = asleep.ns().saturating_add(covered_ns);
            follow(links, call, sleep, asleep, &mut shares);
        }
        if at_ns >= whole.to_ns {
            break;
        }
    }
    shares.push(Share::unknown(Means::Running, whole.ns().saturating_sub(covered_ns)));
    shares
}

/// A commit that writes much more than usual is charged to the processes whose changes it writes, for the time of
/// the journal's own thread and of the device working for it. Time behind other requests, or held back by a limit,
/// keeps its party.
fn journal<'a>(links: &Links<'a>, call: &Call, whole: Interval) -> Vec<Share<'a>> {
    let shares = sleeps(links, call, whole);
    let Some(content) = links.journal(call) else { return shares };
    let of_others: u64 = content.others.iter().fold(0, |sum, (_, count, _)| sum.saturating_add(*count));
    let part = content.beyond_usual * of_others as f64 / of_others.saturating_add(content.own).max(1) as f64;
    let divided = |share: Share<'a>| {
        let of_the_journal = match share.party {
            Party::Device | Party::Kernel(_) => true,
            // Writes of the journal that are charged to the caller's cgroup.
            Party::Own(task) => task.is_only_a_cgroup(),
            _ => false,
        };
        let theirs_ns = if of_the_journal { (share.ns as f64 * part) as u64 } else { 0 };
        let mut divided = Vec::new();
        if theirs_ns > 0 {
            let among = split(links, call, theirs_ns, Means::Journal, &content.others);
            divided.extend(among.into_iter().map(Share::without_bytes));
        }
        divided.push(Share { ns: share.ns.saturating_sub(theirs_ns), ..share });
        divided
    };
    shares.into_iter().flat_map(divided).collect()
}

/// Adds the shares of a sleep: of the request that it waited for, or of the thread that ended it and of that thread's own
/// sleeps.
fn follow<'a>(links: &Links<'a>, call: &Call, wait: &'a Wait, within: Interval, shares: &mut Vec<Share<'a>>) {
    if let Some(request) = links.request(wait) {
        return device(links, call, request, within, shares);
    }
    let Some(task) = ender(wait).filter(|_| matches!(wait.waker_kind, WakerKind::Task | WakerKind::Unknown)) else {
        return shares.push(Share::unknown(Means::Running, within.ns()));
    };
    let mut slept_ns = 0_u64;
    let mut at_ns = within.from_ns;
    for link in links.behind_within(call, wait, within.bounds()) {
        let asleep = within.within(link.start_ns.max(at_ns), link.start_ns.saturating_add(link.duration_ns));
        if asleep.ns() > 0 {
            at_ns = asleep.to_ns;
            slept_ns = asleep.ns().saturating_add(slept_ns);
            follow(links, call, link, asleep, shares);
        }
        if at_ns >= within.to_ns {
            break;
        }
    }
    // For the rest of the wait, the waking thread ran or waited for a CPU.
    let mut ran_ns = within.ns().saturating_sub(slept_ns);
    let (mut wait_at, mut unknown_ns) = (None, 0_u64);
    for row in links.cpu_waits_of(call, task.tid, within.bounds()) {
        // The rows of one wait are adjacent.
        if wait_at.replace((row.start_ns, row.duration_ns)) != Some((row.start_ns, row.duration_ns)) {
            let wait = within.within(row.start_ns, row.start_ns.saturating_add(row.duration_ns)).ns().min(ran_ns);
            ran_ns = ran_ns.saturating_sub(wait);
            unknown_ns = unknown_ns.saturating_add(wait);
        }
        let ns = row_ns(row, within).min(unknown_ns);
        if let Some(owner) = row.owner.as_ref().filter(|_| ns > 0) {
            unknown_ns = unknown_ns.saturating_sub(ns);
            shares.push(Share::of(party(links, call, owner), Means::Cpu, ns));
        }
    }
    shares.push(Share::unknown(Means::Cpu, unknown_ns));
    let means = if wait.lock.is_some() || wait.lock_holder.is_some() { Means::Lock } else { Means::Running };
    shares.push(Share { file: wait.waker_file.as_deref(), ..Share::of(party(links, call, task), means, ran_ns) });
}

/// The time for which a process had the CPU within an interval. In a part of the wait, each process has the same
/// share as in the whole.
fn row_ns(row: &CpuOwner, within: Interval) -> u64 {
    let part = within.within(row.start_ns, row.start_ns.saturating_add(row.duration_ns));
    in_proportion(part.ns(), row.ran_ns, row.duration_ns.max(1))
}

fn party<'a>(links: &Links<'a>, call: &Call, task: &'a Task) -> Party<'a> {
    if links.is_own(call, task) {
        Party::Own(task)
    } else if is_kernel(task) {
        Party::Kernel(task)
    } else {
        Party::Other(task)
    }
}

/// Divides the interval into time throttled, time behind other requests, and the rest: the device's time for the
/// request itself.
fn device<'a>(links: &Links<'a>, call: &Call, request: &'a Request, within: Interval, shares: &mut Vec<Share<'a>>) {
    // Before the insertion, the queue was full or the submitter waited for something else. `full_queue` divides this
    // time among the holders of the queue's requests.
    let since_ns = request.awaited_ns.unwrap_or(request.insert_ns).min(request.insert_ns);
    let before_ns = within.within(0, since_ns).ns();
    let file = request.file.as_deref();
    shares.push(match request.throttled {
        // The sleep until the insertion is due to the limit.
        Some(true) => {
            let bytes = request.bytes;
            Share { bytes, file, ..Share::of(Party::Limit(&request.submitter), Means::Queue, before_ns) }
        }
        _ => Share::unknown(Means::Queue, before_ns),
    });
    let served = within.within(since_ns, request.complete_ns);
    let late_ns = request.server_waited_ns.unwrap_or(0);
    let known_ns: u64 = links.ahead(request).fold(late_ns, |sum, row| sum.saturating_add(row.device_ns));
    // `device_ns` refers to the request's whole wait; this interval has the same share.
    let wait_ns = request.complete_ns.saturating_sub(since_ns).max(known_ns).max(1);
    // Without the processes that took the memory, this read would not have been made nor queued.
    let own_read =
        request.op == RequestOp::Read && request.owner.as_ref().is_none_or(|owner| links.is_own(call, owner));
    let again_ns = if own_read { (served.ns() as f64 * links.evicted_share()) as u64 } else { 0 };
    if again_ns > 0 {
        let taken = split(links, call, again_ns, Means::Memory, &links.takers());
        shares.extend(taken.into_iter().map(Share::without_bytes));
    }
    let served_ns = served.ns().saturating_sub(again_ns);
    let share = |ns: u64| in_proportion(served_ns, ns, wait_ns);
    let mut charged_ns = 0;
    for row in links.ahead(request) {
        let ns = share(row.device_ns);
        charged_ns = ns.saturating_add(charged_ns);
        let owner = row.owner.as_ref().map(|owner| party(links, call, owner));
        let (whose, means) = match (row.op, owner) {
            (RequestOp::Flush, Some(Party::Other(owner))) if row.in_cache == Some(true) => {
                (Party::Other(owner), Means::Cache)
            }
            (RequestOp::Flush | RequestOp::Discard, _) if row.in_cache == Some(true) || owner.is_none() => {
                (Party::Flush, Means::Queue)
            }
            (_, owner) if row.beside == Some(true) => (owner.unwrap_or(Party::Unknown), Means::Beside),
            (_, owner) => (owner.unwrap_or(Party::Unknown), Means::Queue),
        };
        shares.push(Share { party: whose, means, ns, bytes: row.bytes, file: row.file.as_deref() });
    }
    // The thread that serves the device waited for a CPU.
    let mut unknown_ns = share(late_ns);
    charged_ns = charged_ns.saturating_add(unknown_ns);
    for row in links.cpu_waits_for(request) {
        let ns = share(row.ran_ns).min(unknown_ns);
        if let Some(owner) = &row.owner {
            unknown_ns = unknown_ns.saturating_sub(ns);
            shares.push(Share::of(party(links, call, owner), Means::Cpu, ns));
        }
    }
    shares.push(Share::unknown(Means::Cpu, unknown_ns));
    let own_ns = served_ns.saturating_sub(charged_ns);
    let whose = match (&request.owner, request.op) {
        (_, RequestOp::Flush | RequestOp::Discard) => Party::Flush,
        // The device works on another process's data, which the call waits for: an ordered commit, or the flusher.
        (Some(owner), _) if !links.is_own(call, owner) && !is_kernel(owner) => Party::Other(owner),
        _ => Party::Device,
    };
    shares.push(Share { bytes: request.bytes, file, ..Share::of(whose, Means::Data, own_ns) });
    // From completion until the sleeper was woken.
    shares.push(Share::unknown(Means::Running, within.within(request.complete_ns, u64::MAX).ns()));
}

/// A process's part of a divided amount: the process, its part, and the file.
pub type Stake<'a> = (&'a Task, u64, Option<&'a str>);

/// Splits an interval among stakes in proportion to their amounts; charges it to unknown if the amounts sum to 0.
fn split<'a>(links: &Links<'a>, call: &Call, ns: u64, means: Means, stakes: &[Stake<'a>]) -> Vec<Share<'a>> {
    let all: u64 = stakes.iter().fold(0, |sum, (_, amount, _)| sum.saturating_add(*amount));
    if all == 0 || !links.spend(stakes.len()) {
        return vec![Share::unknown(means, ns)];
    }
    let share = |(task, amount, file): &Stake<'a>| {
        let ns = in_proportion(ns, *amount, all);
        Share { bytes: *amount, file: *file, ..Share::of(party(links, call, task), means, ns) }
    };
    stakes.iter().map(share).collect()
}

fn dirtiers<'a>(links: &Links<'a>, call: &Call, within: Interval) -> Vec<Share<'a>> {
    split(links, call, within.ns(), Means::DirtyPages, &dirtied(links, within))
}

/// Charges a wait for a CPU to the threads that ran on it; to unknown for the time in which the CPU idled or its
/// threads were not recorded.
fn processor<'a>(links: &Links<'a>, call: &Call, whole: Interval) -> Vec<Share<'a>> {
    let mut shares = Vec::new();
    let mut known_ns = 0;
    for row in links.cpu_owners(call, whole.bounds()) {
        // A wait may extend beyond the segment.
        let ns = row_ns(row, whole).min(whole.ns().saturating_sub(known_ns));
        let Some(owner) = row.owner.as_ref().filter(|_| ns > 0) else { continue };
        known_ns = ns.saturating_add(known_ns);
        shares.push(Share::of(party(links, call, owner), Means::Cpu, ns));
    }
    shares.push(Share::unknown(Means::Cpu, whole.ns().saturating_sub(known_ns)));
    shares
}

/// Bytes that each process dirtied, by the kernel's count of the process, or by its files. Processes that live
/// shorter than an interval appear in neither; for them, the bytes that devices wrote are used.
fn dirtied<'a>(links: &Links<'a>, within: Interval) -> Vec<Stake<'a>> {
    let rows: Vec<&Dirtier> = links.dirtiers(within.bounds()).collect();
    let whole: HashSet<u32> = rows.iter().filter(|row| row.inode.is_none()).map(|row| row.owner.pid).collect();
    let counted = rows.iter().filter(|row| row.inode.is_none() || !whole.contains(&row.owner.pid));
    let mut stakes: Vec<Stake<'_>> =
        counted.filter_map(|row| Some((&row.owner, row.bytes?, row.file.as_deref()))).collect();
    let known: HashSet<u32> = stakes.iter().map(|(task, ..)| task.pid).collect();
    stakes.extend(moved(links, within, RequestOp::Write).into_iter().filter(|(task, ..)| !known.contains(&task.pid)));
    stakes
}

/// Bytes that devices read or wrote for each process.
fn moved<'a>(links: &Links<'a>, within: Interval, op: RequestOp) -> Vec<Stake<'a>> {
    let of_op = links.queue_owners(within.bounds()).filter(|row| row.op == op);
    of_op
        .filter_map(|row| Some((row.owner.as_ref().filter(|task| !is_kernel(task))?, row.bytes, row.file.as_deref())))
        .collect()
}

/// Charges reclaim to the processes that took memory: pages allocated, files read and written. Reclaim by a
/// cgroup's own limit is charged only to its members.
fn memory<'a>(links: &Links<'a>, call: &Call, within: Interval, in_cgroup: bool) -> Vec<Share<'a>> {
    let page_bytes = links.recording().header.machine.page_size_bytes();
    let users: Vec<&MemoryUser> = links.memory_users(within.bounds()).collect();
    let own = links.own_cgroup(call).filter(|_| in_cgroup);
    let inside = |task: &Task| !in_cgroup || task.pid == call.pid || own.is_none() || task.cgroup.as_deref() == own;
    // A process over the limit reclaims what it asks for itself, so its reclaimed pages are an exact count.
    let reclaimed = users.iter().filter(|row| row.whole_machine == Some(!in_cgroup) && inside(&row.owner));
    let exact: Vec<Stake<'_>> =
        reclaimed.map(|row| (&row.owner, row.reclaimed_pages.unwrap_or(0).saturating_mul(page_bytes), None)).collect();
    if exact.iter().any(|(_, bytes, _)| *bytes > 0) {
        return split(links, call, within.ns(), Means::Memory, &exact);
    }
    let mut stakes: Vec<Stake<'_>> = users
        .iter()
        .filter(|row| row.scope == MemoryScope::Process && row.reclaims.is_none())
        .map(|row| {
            let allocated = row.allocated_pages.unwrap_or(0).saturating_mul(page_bytes);
            (&row.owner, allocated.saturating_add(row.read_bytes.unwrap_or(0)), None)
        })
        .collect();
    let known: HashSet<u32> = stakes.iter().map(|(task, ..)| task.pid).collect();
    stakes.extend(moved(links, within, RequestOp::Read).into_iter().filter(|(task, ..)| !known.contains(&task.pid)));
    stakes.extend(dirtied(links, within));
    stakes.retain(|(task, ..)| inside(task));
    split(links, call, within.ns(), Means::Memory, &stakes)
}

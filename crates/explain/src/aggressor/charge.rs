//! Charges each interval of a stall to a party: follows wait chains to their end, and divides device time among the
//! requests that were ahead.

use std::collections::HashSet;

use super::links::{Links, ender, is_kernel};
use crate::sums::in_proportion;
use flatwater_recording::{
    Call, Cause, CpuOwner, Dirtier, MemoryScope, MemoryUser, Request, RequestOp, Task, Wait, WakerKind,
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

/// A part of a stall and the party responsible for it.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    pub party: Party<'a>,
    pub means: Means,
    pub ns: u64,
    /// Bytes of the party that were ahead, or that it dirtied, in this time.
    pub bytes: u64,
    pub file: Option<&'a str>,
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

/// Charges every nanosecond of a segment to a party.
pub fn segment<'a>(links: &Links<'a>, call: &Call, place: usize, mut charge: impl FnMut(Charge<'a>)) {
    let Some(segment) = call.segments.get(place) else { return };
    let from_ns = call.start_ns.saturating_add(segment.offset_ns);
    let whole = Interval { from_ns, to_ns: from_ns.saturating_add(segment.ns) };
    let mut put = |party, means, ns, bytes, file: Option<&'a str>| {
        if ns > 0 {
            links.spend(weight(&party, file));
            charge(Charge { party, means, ns, bytes, file });
        }
    };
    match segment.cause {
        // A timer ends the pause; the processes that dirtied pages are responsible for it.
        Cause::DirtyThrottle => return dirtiers(links, call, whole, &mut put),
        // Reclaim may wait for various things, but it runs because memory was taken.
        Cause::MemcgReclaim | Cause::DirectReclaim | Cause::ReclaimThrottle | Cause::MemcgOverHigh => {
            return memory(links, call, whole, segment.cause != Cause::DirectReclaim, &mut put);
        }
        Cause::RunQueue => return processor(links, call, whole, &mut put),
        Cause::JournalCommit | Cause::JournalFull | Cause::JournalBuffer => {
            return journal(links, call, whole, &mut put);
        }
        // The call had no request yet. Without the processes that took memory, the read would not have been needed.
        Cause::RequestQueue if links.reads_pages(segment) && links.evicted_share() > 0.0 => {
            let again = links.evicted_share();
            let part = |ns: u64, share: f64| (ns as f64 * share) as u64;
            split(
                links,
                call,
                part(whole.ns(), again),
                Means::Memory,
                &links.takers(),
                &mut |party, means, ns, _, file| {
                    put(party, means, ns, 0, file);
                },
            );
            let rest = &mut |party, means, ns, bytes, file| put(party, means, part(ns, 1.0 - again), bytes, file);
            return sleeps(links, call, whole, rest);
        }
        Cause::RequestQueue => return full_queue(links, call, whole, &mut put),
        Cause::BlockAllocation if links.waits_for_reserved_space(call, whole.from_ns, whole.to_ns) => {
            return dirtiers(links, call, whole, &mut put);
        }
        _ => {}
    }
    sleeps(links, call, whole, &mut put);
}

/// The cost of a charge for its callers, who copy the names of its party and file; counted against the bound on
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
fn full_queue<'a>(links: &Links<'a>, call: &Call, whole: Interval, put: Put<'_, 'a>) {
    let holders = links.queue_holders(call, whole.from_ns, whole.to_ns);
    sleeps(links, call, whole, &mut |party, means, ns, bytes, file| match party {
        Party::Unknown if means != Means::Cpu && !holders.is_empty() => {
            split(links, call, ns, Means::Queue, &holders, &mut |party, means, ns, _, file| {
                put(party, means, ns, 0, file)
            });
        }
        _ => put(party, means, ns, bytes, file),
    });
}

/// Follows each sleep in the interval to its end.
fn sleeps<'a>(links: &Links<'a>, call: &Call, whole: Interval, put: Put<'_, 'a>) {
    let mut covered_ns = 0_u64;
    let mut at_ns = whole.from_ns;
    for sleep in links.sleeps_within(call, whole.bounds()) {
        // A thread has one sleep at a time: overlapping rows are damaged.
        let asleep = whole.within(sleep.start_ns.max(at_ns), sleep.start_ns.saturating_add(sleep.duration_ns));
        if asleep.ns() > 0 {
            at_ns = asleep.to_ns;
            covered_ns = asleep.ns().saturating_add(covered_ns);
            follow(links, call, sleep, asleep, put);
        }
        if at_ns >= whole.to_ns {
            break;
        }
    }
    put(Party::Unknown, Means::Running, whole.ns().saturating_sub(covered_ns), 0, None);
}

/// A commit that writes much more than usual is charged to the processes whose changes it writes, for the time of
/// the journal's own thread and of the device working for it. Time behind other requests, or held back by a limit,
/// keeps its party.
fn journal<'a>(links: &Links<'a>, call: &Call, whole: Interval, put: Put<'_, 'a>) {
    let Some(content) = links.journal(call) else { return sleeps(links, call, whole, put) };
    let of_others: u64 = content.others.iter().fold(0, |sum, (_, count, _)| sum.saturating_add(*count));
    let share = content.beyond_usual * of_others as f64 / of_others.saturating_add(content.own).max(1) as f64;
    sleeps(links, call, whole, &mut |party, means, ns, bytes, file| {
        let of_the_journal = match party {
            Party::Device | Party::Kernel(_) => true,
            // Writes of the journal that are charged to the caller's cgroup.
            Party::Own(task) => task.is_only_a_cgroup(),
            _ => false,
        };
        let theirs_ns = if of_the_journal { (ns as f64 * share) as u64 } else { 0 };
        split(links, call, theirs_ns, Means::Journal, &content.others, &mut |party, means, ns, _, file| {
            put(party, means, ns, 0, file);
        });
        put(party, means, ns.saturating_sub(theirs_ns), bytes, file);
    });
}

type Put<'p, 'a> = &'p mut dyn FnMut(Party<'a>, Means, u64, u64, Option<&'a str>);

fn follow<'a>(links: &Links<'a>, call: &Call, wait: &'a Wait, within: Interval, put: Put<'_, 'a>) {
    if let Some(request) = links.request(wait) {
        return device(links, call, request, within, put);
    }
    let Some(task) = ender(wait).filter(|_| matches!(wait.waker_kind, WakerKind::Task | WakerKind::Unknown)) else {
        return put(Party::Unknown, Means::Running, within.ns(), 0, None);
    };
    let mut slept_ns = 0_u64;
    let mut at_ns = within.from_ns;
    for link in links.behind_within(call, wait, within.bounds()) {
        let asleep = within.within(link.start_ns.max(at_ns), link.start_ns.saturating_add(link.duration_ns));
        if asleep.ns() > 0 {
            at_ns = asleep.to_ns;
            slept_ns = asleep.ns().saturating_add(slept_ns);
            follow(links, call, link, asleep, put);
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
            put(party(links, call, owner), Means::Cpu, ns, 0, None);
        }
    }
    put(Party::Unknown, Means::Cpu, unknown_ns, 0, None);
    let means = if wait.lock.is_some() || wait.lock_holder.is_some() { Means::Lock } else { Means::Running };
    put(party(links, call, task), means, ran_ns, 0, wait.waker_file.as_deref());
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
fn device<'a>(links: &Links<'a>, call: &Call, request: &'a Request, within: Interval, put: Put<'_, 'a>) {
    // Before the insertion, the queue was full or the submitter waited for something else. `full_queue` divides this
    // time among the holders of the queue's requests.
    let since_ns = request.awaited_ns.unwrap_or(request.insert_ns).min(request.insert_ns);
    let before_ns = within.within(0, since_ns).ns();
    match request.throttled {
        // The sleep until the insertion is due to the limit.
        Some(true) => {
            put(Party::Limit(&request.submitter), Means::Queue, before_ns, request.bytes, request.file.as_deref())
        }
        _ => put(Party::Unknown, Means::Queue, before_ns, 0, None),
    }
    let served = within.within(since_ns, request.complete_ns);
    let late_ns = request.server_waited_ns.unwrap_or(0);
    let known_ns: u64 = links.ahead(request).fold(late_ns, |sum, row| sum.saturating_add(row.device_ns));
    // `device_ns` refers to the request's whole wait; this interval has the same share.
    let wait_ns = request.complete_ns.saturating_sub(since_ns).max(known_ns).max(1);
    // Without the processes that took the memory, this read would not have been made nor queued.
    let own_read =
        request.op == RequestOp::Read && request.owner.as_ref().is_none_or(|owner| links.is_own(call, owner));
    let again_ns = if own_read { (served.ns() as f64 * links.evicted_share()) as u64 } else { 0 };
    let taken = &mut |party, means, ns, _, file| put(party, means, ns, 0, file);
    split(links, call, again_ns, Means::Memory, &links.takers(), taken);
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
        put(whose, means, ns, row.bytes, row.file.as_deref());
    }
    // The thread that serves the device waited for a CPU.
    let mut unknown_ns = share(late_ns);
    charged_ns = charged_ns.saturating_add(unknown_ns);
    for row in links.cpu_waits_for(request) {
        let ns = share(row.ran_ns).min(unknown_ns);
        if let Some(owner) = &row.owner {
            unknown_ns = unknown_ns.saturating_sub(ns);
            put(party(links, call, owner), Means::Cpu, ns, 0, None);
        }
    }
    put(Party::Unknown, Means::Cpu, unknown_ns, 0, None);
    let own_ns = served_ns.saturating_sub(charged_ns);
    let file = request.file.as_deref();
    let whose = match (&request.owner, request.op) {
        (_, RequestOp::Flush | RequestOp::Discard) => Party::Flush,
        // The device works on another process's data, which the call waits for: an ordered commit, or the flusher.
        (Some(owner), _) if !links.is_own(call, owner) && !is_kernel(owner) => Party::Other(owner),
        _ => Party::Device,
    };
    put(whose, Means::Data, own_ns, request.bytes, file);
    // From completion until the sleeper was woken.
    put(Party::Unknown, Means::Running, within.within(request.complete_ns, u64::MAX).ns(), 0, None);
}

/// A process, its weight (the amount of what is divided), and the file.
pub type Share<'a> = (&'a Task, u64, Option<&'a str>);

/// Splits an interval among shares in proportion to their weights; charges it to unknown if the weights sum to 0.
fn split<'a>(links: &Links<'a>, call: &Call, ns: u64, means: Means, shares: &[Share<'a>], put: Put<'_, 'a>) {
    let all: u64 = shares.iter().fold(0, |sum, (_, weight, _)| sum.saturating_add(*weight));
    if all == 0 || !links.spend(shares.len()) {
        return put(Party::Unknown, means, ns, 0, None);
    }
    for (task, weight, file) in shares {
        let part = in_proportion(ns, *weight, all);
        put(party(links, call, task), means, part, *weight, *file);
    }
}

fn dirtiers<'a>(links: &Links<'a>, call: &Call, within: Interval, put: Put<'_, 'a>) {
    split(links, call, within.ns(), Means::DirtyPages, &dirtied(links, within), put);
}

/// Charges a wait for a CPU to the threads that ran on it; to unknown for the time in which the CPU idled or its
/// threads were not recorded.
fn processor<'a>(links: &Links<'a>, call: &Call, whole: Interval, put: Put<'_, 'a>) {
    let mut known_ns = 0;
    for row in links.cpu_owners(call, whole.bounds()) {
        // A wait may extend beyond the segment.
        let ns = row_ns(row, whole).min(whole.ns().saturating_sub(known_ns));
        let Some(owner) = row.owner.as_ref().filter(|_| ns > 0) else { continue };
        known_ns = ns.saturating_add(known_ns);
        put(party(links, call, owner), Means::Cpu, ns, 0, None);
    }
    put(Party::Unknown, Means::Cpu, whole.ns().saturating_sub(known_ns), 0, None);
}

/// Bytes that each process dirtied, by the kernel's count of the process, or by its files. Processes that live
/// shorter than an interval appear in neither; for them, the bytes that devices wrote are used.
fn dirtied<'a>(links: &Links<'a>, within: Interval) -> Vec<Share<'a>> {
    let rows: Vec<&Dirtier> = links.dirtiers(within.bounds()).collect();
    let whole: HashSet<u32> = rows.iter().filter(|row| row.inode.is_none()).map(|row| row.owner.pid).collect();
    let counted = rows.iter().filter(|row| row.inode.is_none() || !whole.contains(&row.owner.pid));
    let mut shares: Vec<Share<'_>> =
        counted.filter_map(|row| Some((&row.owner, row.bytes?, row.file.as_deref()))).collect();
    let known: HashSet<u32> = shares.iter().map(|(task, ..)| task.pid).collect();
    shares.extend(moved(links, within, RequestOp::Write).into_iter().filter(|(task, ..)| !known.contains(&task.pid)));
    shares
}

/// Bytes that devices read or wrote for each process.
fn moved<'a>(links: &Links<'a>, within: Interval, op: RequestOp) -> Vec<Share<'a>> {
    let of_op = links.queue_owners(within.bounds()).filter(|row| row.op == op);
    of_op
        .filter_map(|row| Some((row.owner.as_ref().filter(|task| !is_kernel(task))?, row.bytes, row.file.as_deref())))
        .collect()
}

/// Charges reclaim to the processes that took memory: pages allocated, files read and written. Reclaim by a
/// cgroup's own limit is charged only to its members.
fn memory<'a>(links: &Links<'a>, call: &Call, within: Interval, in_cgroup: bool, put: Put<'_, 'a>) {
    let page_bytes = links.recording().header.machine.page_size_bytes();
    let users: Vec<&MemoryUser> = links.memory_users(within.bounds()).collect();
    let own = links.own_cgroup(call).filter(|_| in_cgroup);
    let inside = |task: &Task| !in_cgroup || task.pid == call.pid || own.is_none() || task.cgroup.as_deref() == own;
    // A process over the limit reclaims what it asks for itself, so its reclaimed pages are an exact count.
    let reclaimed = users.iter().filter(|row| row.whole_machine == Some(!in_cgroup) && inside(&row.owner));
    let exact: Vec<Share<'_>> =
        reclaimed.map(|row| (&row.owner, row.reclaimed_pages.unwrap_or(0).saturating_mul(page_bytes), None)).collect();
    if exact.iter().any(|(_, bytes, _)| *bytes > 0) {
        return split(links, call, within.ns(), Means::Memory, &exact, put);
    }
    let mut shares: Vec<Share<'_>> = users
        .iter()
        .filter(|row| row.scope == MemoryScope::Process && row.reclaims.is_none())
        .map(|row| {
            let allocated = row.allocated_pages.unwrap_or(0).saturating_mul(page_bytes);
            (&row.owner, allocated.saturating_add(row.read_bytes.unwrap_or(0)), None)
        })
        .collect();
    let known: HashSet<u32> = shares.iter().map(|(task, ..)| task.pid).collect();
    shares.extend(moved(links, within, RequestOp::Read).into_iter().filter(|(task, ..)| !known.contains(&task.pid)));
    shares.extend(dirtied(links, within));
    shares.retain(|(task, ..)| inside(task));
    split(links, call, within.ns(), Means::Memory, &shares, put);
}

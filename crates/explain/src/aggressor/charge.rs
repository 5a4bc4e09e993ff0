//! To whom each interval of a stall is charged: wait chains followed to their end, device time by who was ahead.

use std::collections::HashSet;

use super::links::{Links, ender, is_kernel};
use flatwater_recording::{
    Call, Cause, CpuOwner, Dirtier, MemoryScope, MemoryUser, Request, RequestOp, Task, Wait, WakerKind,
};

/// By which means somebody made others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Means {
    /// Its requests were ahead in the device's queue.
    Queue,
    /// Its requests came later, and the device worked on them at the same time.
    Beside,
    /// Its data was in the device's cache, which a flush had to write out.
    Cache,
    /// What was waited for was the writing or reading of its data: a journal's commit writes everybody's.
    Data,
    /// It held the lock.
    Lock,
    /// It ran, or waited for a CPU, before it ended the wait.
    Running,
    /// It filled the share of dirty pages for which the writer was made to pause.
    DirtyPages,
    /// It took the memory that had to be reclaimed, or from which the pages were evicted that had to be read again.
    Memory,
    /// It had the kernel drop the page cache, which had to be read again.
    DroppedCache,
    /// A journal's commit wrote what it had changed in the file system.
    Journal,
    /// It had the CPU that was waited for: by the call's thread, or by a thread of the kernel's that worked for it.
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

/// Who answers for an interval.
#[derive(Clone, Copy, Debug)]
pub enum Party<'a> {
    /// A process that was not watched.
    Other(&'a Task),
    /// The target itself: another of its threads or processes, or its own requests that were ahead.
    Own(&'a Task),
    /// The device, at work on the very request that was waited for.
    Device,
    /// The device, on a flush of its cache or a discard.
    Flush,
    /// A limit on the I/O of a cgroup.
    Limit(&'a Task),
    /// A thread of the kernel, for nobody that is known.
    Kernel(&'a Task),
    /// Nobody is known.
    Unknown,
}

/// An interval of a stall, and who answers for it.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    pub party: Party<'a>,
    pub means: Means,
    pub ns: u64,
    /// Bytes of its that were ahead, or that it made dirty, meanwhile.
    pub bytes: u64,
    pub file: Option<&'a str>,
}

/// From and to, ns.
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

/// Charges every nanosecond of a segment of a call to somebody.
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
        // The pause is a timer's: who made the pages dirty is the answer.
        Cause::DirtyThrottle => return dirtiers(links, call, whole, &mut put),
        // Whatever reclaim waits for in the end, it runs because memory is taken.
        Cause::MemcgReclaim | Cause::DirectReclaim | Cause::ReclaimThrottle | Cause::MemcgOverHigh => {
            return memory(links, call, whole, segment.cause != Cause::DirectReclaim, &mut put);
        }
        Cause::RunQueue => return processor(links, call, whole, &mut put),
        Cause::JournalCommit | Cause::JournalFull | Cause::JournalBuffer => {
            return journal(links, call, whole, &mut put);
        }
        // Its request was not made yet: without whoever took the memory it would not have been needed.
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

/// What a charge costs those who add it up: they copy the names of its party and of its file.
fn weight(party: &Party<'_>, file: Option<&str>) -> usize {
    let names = match party {
        Party::Other(task) | Party::Own(task) | Party::Limit(task) | Party::Kernel(task) => {
            task.name.len() + task.cgroup.as_ref().map_or(0, String::len)
        }
        Party::Device | Party::Flush | Party::Unknown => 0,
    };
    1 + (names + file.map_or(0, str::len)) / 64
}

/// All requests of the queue are taken, and the wait ends when any of them completes. Each holder is blamed in proportion to
/// requests held x time.
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

/// Follows each sleep within the interval to its end.
fn sleeps<'a>(links: &Links<'a>, call: &Call, whole: Interval, put: Put<'_, 'a>) {
    let mut covered_ns = 0_u64;
    let mut at_ns = whole.from_ns;
    for sleep in links.sleeps_within(call, whole.bounds()) {
        // A thread sleeps once at a time: what overlaps is damaged.
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

/// A commit that writes much more than usual is charged to those whose changes it writes: what its own thread does, and what the
/// device works on for it. What was ahead in the queue, or held back, keeps its owner.
fn journal<'a>(links: &Links<'a>, call: &Call, whole: Interval, put: Put<'_, 'a>) {
    let Some(content) = links.journal(call) else { return sleeps(links, call, whole, put) };
    let of_others: u64 = content.others.iter().fold(0, |sum, (_, count, _)| sum.saturating_add(*count));
    let share = content.beyond_usual * of_others as f64 / of_others.saturating_add(content.own).max(1) as f64;
    sleeps(links, call, whole, &mut |party, means, ns, bytes, file| {
        let of_the_journal = match party {
            Party::Device | Party::Kernel(_) => true,
            // The log was written by the caller, or on behalf of its cgroup.
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
    // The rest of the wait the thread ran, or waited for a CPU.
    let mut ran_ns = within.ns().saturating_sub(slept_ns);
    let (mut wait_at, mut unknown_ns) = (None, 0_u64);
    for row in links.cpu_waits_of(call, task.tid, within.bounds()) {
        // The rows of one wait stand together.
        if wait_at.replace((row.start_ns, row.duration_ns)) != Some((row.start_ns, row.duration_ns)) {
            let wait = within.within(row.start_ns, row.start_ns.saturating_add(row.duration_ns)).ns().min(ran_ns);
            ran_ns -= wait;
            unknown_ns = unknown_ns.saturating_add(wait);
        }
        let ns = row_ns(row, within).min(unknown_ns);
        if let Some(owner) = row.owner.as_ref().filter(|_| ns > 0) {
            unknown_ns -= ns;
            put(party(links, call, owner), Means::Cpu, ns, 0, None);
        }
    }
    put(Party::Unknown, Means::Cpu, unknown_ns, 0, None);
    let means = if wait.lock.is_some() || wait.lock_holder.is_some() { Means::Lock } else { Means::Running };
    put(party(links, call, task), means, ran_ns, 0, wait.waker_file.as_deref());
}

/// For how long a process had the CPU within an interval; of a part of the wait every process has the same share.
fn row_ns(row: &CpuOwner, within: Interval) -> u64 {
    let part = within.within(row.start_ns, row.start_ns.saturating_add(row.duration_ns));
    (u128::from(part.ns()) * u128::from(row.ran_ns) / u128::from(row.duration_ns.max(1))) as u64
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

/// Time throttled, time behind others, and what is left: the device's time for the request itself.
fn device<'a>(links: &Links<'a>, call: &Call, request: &'a Request, within: Interval, put: Put<'_, 'a>) {
    // Before it was inserted the queue was full, or whoever was to submit it waited for others: what was ahead says for whom.
    let since_ns = request.awaited_ns.unwrap_or(request.insert_ns).min(request.insert_ns);
    let before_ns = within.within(0, since_ns).ns();
    match request.throttled {
        // The sleep until it was inserted is the limit's.
        Some(true) => {
            put(Party::Limit(&request.submitter), Means::Queue, before_ns, request.bytes, request.file.as_deref())
        }
        _ => put(Party::Unknown, Means::Queue, before_ns, 0, None),
    }
    let served = within.within(since_ns, request.complete_ns);
    let late_ns = request.server_waited_ns.unwrap_or(0);
    let known_ns: u64 = links.ahead(request).fold(late_ns, |sum, row| sum.saturating_add(row.device_ns));
    // `device_ns` is of the request's whole wait; of the interval at hand it has the same share.
    let wait_ns = request.complete_ns.saturating_sub(since_ns).max(known_ns).max(1);
    // Without whoever took the memory that held it, this read would not have been made, nor have waited in a queue.
    let own_read =
        request.op == RequestOp::Read && request.owner.as_ref().is_none_or(|owner| links.is_own(call, owner));
    let again_ns = if own_read { (served.ns() as f64 * links.evicted_share()) as u64 } else { 0 };
    let taken = &mut |party, means, ns, _, file| put(party, means, ns, 0, file);
    split(links, call, again_ns, Means::Memory, &links.takers(), taken);
    let served_ns = served.ns().saturating_sub(again_ns);
    let share = |ns: u64| (u128::from(served_ns) * u128::from(ns) / u128::from(wait_ns)) as u64;
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
    // The device's own thread was not at work on it: it waited for a CPU.
    let mut unknown_ns = share(late_ns);
    charged_ns = charged_ns.saturating_add(unknown_ns);
    for row in links.cpu_waits_for(request) {
        let ns = share(row.ran_ns).min(unknown_ns);
        if let Some(owner) = &row.owner {
            unknown_ns -= ns;
            put(party(links, call, owner), Means::Cpu, ns, 0, None);
        }
    }
    put(Party::Unknown, Means::Cpu, unknown_ns, 0, None);
    let own_ns = served_ns.saturating_sub(charged_ns);
    let file = request.file.as_deref();
    let whose = match (&request.owner, request.op) {
        (_, RequestOp::Flush | RequestOp::Discard) => Party::Flush,
        // The device is at work on somebody else's data, which the wait was for: an ordered commit, the flusher.
        (Some(owner), _) if !links.is_own(call, owner) && !is_kernel(owner) => Party::Other(owner),
        _ => Party::Device,
    };
    put(whose, Means::Data, own_ns, request.bytes, file);
    // After completion, until the sleeper was woken.
    put(Party::Unknown, Means::Running, within.within(request.complete_ns, u64::MAX).ns(), 0, None);
}

/// A process, how much it did of what is asked for, and to which file.
pub type Share<'a> = (&'a Task, u64, Option<&'a str>);

/// Splits an interval among shares in proportion to their weights; to nobody where there are none.
fn split<'a>(links: &Links<'a>, call: &Call, ns: u64, means: Means, shares: &[Share<'a>], put: Put<'_, 'a>) {
    let all: u64 = shares.iter().fold(0, |sum, (_, weight, _)| sum.saturating_add(*weight));
    if all == 0 || !links.spend(shares.len()) {
        return put(Party::Unknown, means, ns, 0, None);
    }
    for (task, weight, file) in shares {
        let part = (u128::from(ns) * u128::from(*weight) / u128::from(all)) as u64;
        put(party(links, call, task), means, part, *weight, *file);
    }
}

fn dirtiers<'a>(links: &Links<'a>, call: &Call, within: Interval, put: Put<'_, 'a>) {
    split(links, call, within.ns(), Means::DirtyPages, &dirtied(links, within), put);
}

/// Who ran on the CPU meanwhile. While it idled, or ran what is not remembered, nobody is known.
fn processor<'a>(links: &Links<'a>, call: &Call, whole: Interval, put: Put<'_, 'a>) {
    let mut known_ns = 0;
    for row in links.cpu_owners(call, whole.bounds()) {
        // A wait may reach beyond the segment.
        let ns = row_ns(row, whole).min(whole.ns().saturating_sub(known_ns));
        let Some(owner) = row.owner.as_ref().filter(|_| ns > 0) else { continue };
        known_ns = ns.saturating_add(known_ns);
        put(party(links, call, owner), Means::Cpu, ns, 0, None);
    }
    put(Party::Unknown, Means::Cpu, whole.ns().saturating_sub(known_ns), 0, None);
}

/// Bytes that each process made dirty: by the kernel's count of the process, or by its files. Processes that live for less
/// than an interval are in no count: of them the devices wrote so much.
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

/// Bytes of each process that devices read or wrote.
fn moved<'a>(links: &Links<'a>, within: Interval, op: RequestOp) -> Vec<Share<'a>> {
    let of_op = links.queue_owners(within.bounds()).filter(|row| row.op == op);
    of_op
        .filter_map(|row| Some((row.owner.as_ref().filter(|task| !is_kernel(task))?, row.bytes, row.file.as_deref())))
        .collect()
}

/// Who took memory meanwhile: pages allocated, files read and written. Of a cgroup's own limit only its members answer.
fn memory<'a>(links: &Links<'a>, call: &Call, within: Interval, in_cgroup: bool, put: Put<'_, 'a>) {
    let page_bytes = links.recording().header.machine.page_size_bytes();
    let users: Vec<&MemoryUser> = links.memory_users(within.bounds()).collect();
    let own = links.own_cgroup(call).filter(|_| in_cgroup);
    let inside = |task: &Task| !in_cgroup || task.pid == call.pid || own.is_none() || task.cgroup.as_deref() == own;
    // Whoever asks for memory over a limit reclaims as much itself: that says who took it, exactly.
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

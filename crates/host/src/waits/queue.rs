//! Describes what a device's queue held while a request waited in it, and sums by owner what devices did in an
//! interval.

use std::collections::HashMap;

use super::below;
use super::identity::{Identities, operation};
use super::layout::{PF_KTHREAD, RequestRecord, record};
use super::ledger::Ledger;
use super::runners::{Runners, Waited};
use super::sharing::{Interval, joined, shared_device_ns, stuck};
use crate::tracer::layout::text;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{CpuOwner, OwnerBasis, QueueAhead, QueueOwner, Request, RequestOp, ServiceTime, Task};

/// Rows of one interval. Beyond this, requests are counted without their file; beyond twice this, without their owner.
const ROWS_MAX: usize = 1_024;
/// include/linux/blk_types.h: REQ_SYNC is bit 11 since 4.10 (8 bits of operation, then the flags).
const REQ_SYNC: u32 = 1 << 11;
/// Name at most this many owners of a device's cache, those with the most bytes; one more row without an owner has the
/// bytes of all others.
const CACHED_ROWS_MAX: usize = 8;
/// The work function that submits requests held back by blkio throttling (block/blk-throttle.c).
const THROTTLE_WORK: &str = "blk_throtl_dispatch_work_fn";

/// An awaited request, the requests ahead and beside, and the processes that had the CPU that the device's
/// threads waited for.
#[derive(Debug)]
pub struct Awaited {
    pub request: Request,
    pub ahead: Vec<QueueAhead>,
    pub cpus: Vec<CpuOwner>,
}

/// The data from which an awaited request is described.
pub struct Known<'a> {
    pub ledger: &'a Ledger,
    pub runners: &'a Runners,
    pub names: &'a mut Identities,
    pub symbol: &'a dyn Fn(u64) -> Option<String>,
}

/// Describes the request with this sequence number, if it is still known. `since_ns` is the time from which it was
/// waited for.
pub fn awaited(known: &mut Known<'_>, (sequence, since_ns): (u64, u64)) -> Option<Awaited> {
    let (ledger, runners) = (known.ledger, known.runners);
    let Known { names, symbol, .. } = known;
    let record = *ledger.request(sequence)?;
    let of_device = |other: &&RequestRecord| other.device == record.device && other.sequence != sequence;
    let throttled = is_throttled(&record, symbol);
    // While a limit held the request back, the queue did not matter.
    let from_ns = if throttled { record.insert_ns } else { since_ns.min(record.insert_ns) };
    let others: Vec<&RequestRecord> = ledger.requests_since(from_ns).filter(of_device).collect();
    let overtaken =
        others.iter().filter(|other| other.insert_ns > record.insert_ns && other.done_ns < record.done_ns).count();
    let (owner, owner_basis) = names.owner_of(&record);
    let mut request = request_of(&record, names, owner, owner_basis, overtaken, throttled);
    request.awaited_ns = Some(from_ns).filter(|&at| at < record.insert_ns);
    let lower = ledger.made_of(&record);
    let waits = served_late(runners, &record, &lower);
    let late = joined(waits.iter().map(|wait| wait.part).collect());
    request.server_waited_ns = (!waits.is_empty()).then(|| late.iter().map(|part| part.1 - part.0).sum());
    // `before`: requests issued before this one that were still in the device when the wait began. `later`: requests
    // issued after it that shared the device with it. A flush's own time is charged to the processes that filled the
    // device's cache.
    let before = |other: &&RequestRecord| other.issue_ns <= record.issue_ns && other.done_ns > from_ns;
    let shares = !is_flush(&record) && !stuck(&record, others.iter().copied());
    let later = |other: &&RequestRecord| shares && other.issue_ns > record.issue_ns && other.issue_ns < record.done_ns;
    let (ahead, beside): (Vec<_>, Vec<_>) =
        others.into_iter().filter(|other| before(other) || later(other)).partition(|other| before(other));
    let all: Vec<&RequestRecord> = ahead.iter().chain(&beside).copied().collect();
    let device_ns = shared_device_ns(&record, from_ns, &all, &late);
    let (ahead_ns, beside_ns) = device_ns.split_at(ahead.len());
    let mut rows = Vec::new();
    let (flushes, transfers): (Vec<_>, Vec<_>) =
        ahead.into_iter().zip(ahead_ns.iter().copied()).partition(|(other, _)| is_flush(other));
    let own_ns = || {
        let late_ns: u64 = request.server_waited_ns.unwrap_or(0);
        record.done_ns.saturating_sub(record.issue_ns).saturating_sub(late_ns)
    };
    let own_flush = is_flush(&record).then(|| (&record, own_ns()));
    for (flush, ns) in flushes.into_iter().chain(own_flush) {
        rows.extend(cached(ledger, sequence, flush, ns, names));
    }
    rows.extend(by_owner(sequence, &transfers, false, names));
    let beside: Vec<_> = beside.into_iter().zip(beside_ns.iter().copied()).collect();
    rows.extend(by_owner(sequence, &beside, true, names));
    let charged_ns =
        rows.iter().fold(request.server_waited_ns.unwrap_or(0), |sum, row| sum.saturating_add(row.device_ns));
    rows.extend(below::describe(known, &mut request, (&record, from_ns), &lower, charged_ns));
    let Known { names, .. } = known;
    let cpus = waits.iter().flat_map(|wait| wait.rows(sequence, names)).collect();
    Some(Awaited { request, ahead: rows, cpus })
}

/// The record of a request that its device has not completed, without its queue.
pub fn standing(record: &RequestRecord, names: &mut Identities) -> Request {
    let (owner, basis) = names.owner_of(record);
    request_of(record, names, owner, basis, 0, false)
}

/// A kernel thread that had to serve this request waited for a CPU.
struct ServedLate<'a> {
    waited: &'a Waited,
    tid: u32,
    /// The part of the wait that lies within the request's time at the device.
    part: Interval,
}

impl ServedLate<'_> {
    fn rows(&self, sequence: u64, names: &mut Identities) -> Vec<CpuOwner> {
        let waiter = names.by_thread(self.tid, "a kernel thread");
        let rows = self.waited.rows(self.part, names);
        rows.into_iter().map(|row| CpuOwner { request: Some(sequence), waiter: Some(waiter.clone()), ..row }).collect()
    }
}

/// Waits for a CPU of the threads that passed this request to the lower disk, or completed it. The lower requests show
/// whose turn it was: before the first of them, the worker that made them; after the last, the thread that handed on
/// the completion, then the thread that completed the request.
fn served_late<'a>(runners: &'a Runners, record: &RequestRecord, below: &[RequestRecord]) -> Vec<ServedLate<'a>> {
    let begun_ns = below.first().map_or(record.issue_ns, |first| first.insert_ns);
    let ended_ns = below.iter().map(|lower| lower.done_ns).max().unwrap_or(record.issue_ns);
    let worker = below.first().filter(|first| first.task_flags & PF_KTHREAD != 0).map_or(0, |first| first.tid);
    let handed_ns = record.handed_ns.clamp(ended_ns, record.done_ns.max(ended_ns));
    let handed_by = if record.handed_ns > ended_ns { record.handed_by } else { 0 };
    let turns = [
        (worker, record.issue_ns, begun_ns),
        (handed_by, ended_ns, handed_ns),
        (record.done_tid, handed_ns, record.done_ns),
    ];
    let mut found = Vec::new();
    for (tid, from_ns, to_ns) in turns.into_iter().filter(|turn| turn.0 != 0) {
        for waited in runners.of_thread(tid, from_ns, to_ns) {
            let part = (waited.start_ns.max(from_ns), waited.end_ns.min(to_ns));
            found.push(ServedLate { waited, tid, part });
        }
    }
    found
}

/// Whether a cgroup's limit held the request back before it was inserted.
pub fn is_throttled(record: &RequestRecord, symbol: &dyn Fn(u64) -> Option<String>) -> bool {
    symbol(record.function).is_some_and(|name| name == THROTTLE_WORK)
}

fn is_flush(record: &RequestRecord) -> bool {
    operation(record.flags) == RequestOp::Flush
}

/// The writes that a flush had to write out: those that the device had completed since the previous flush, and still
/// held in its cache. The flush's time is divided among their owners by bytes. Empty if nothing was written; then the
/// time is the device's own.
fn cached(ledger: &Ledger, sequence: u64, flush: &RequestRecord, ns: u64, names: &mut Identities) -> Vec<QueueAhead> {
    let (since_ns, writes) = ledger.written_before(flush);
    let mut rows: HashMap<(Option<Task>, OwnerBasis, u32), QueueAhead> = HashMap::new();
    for write in writes.iter().filter(|write| write.done_ns > since_ns) {
        let (owner, basis) = names.owner_of(write);
        let new = || QueueAhead {
            request: sequence,
            owner: owner.clone(),
            owner_basis: basis,
            op: RequestOp::Flush,
            file_system: file_system_of(write),
            in_cache: Some(true),
            ..QueueAhead::default()
        };
        let row = rows.entry((owner.clone(), basis, write.inode_device)).or_insert_with(new);
        row.requests += 1;
        row.bytes += u64::from(write.bytes);
    }
    let all = rows.values().map(|row| row.bytes).sum::<u64>().max(1);
    let mut rows: Vec<QueueAhead> = rows.into_values().collect();
    for row in &mut rows {
        row.device_ns = (u128::from(ns) * u128::from(row.bytes) / u128::from(all)) as u64;
    }
    rows.sort_short_by(|a, b| (b.bytes, &a.owner).cmp(&(a.bytes, &b.owner)));
    let others = rows.split_off(rows.len().min(CACHED_ROWS_MAX));
    let sum = |of: fn(&QueueAhead) -> u64| others.iter().map(of).sum();
    rows.extend((!others.is_empty()).then(|| QueueAhead {
        request: sequence,
        op: RequestOp::Flush,
        in_cache: Some(true),
        requests: sum(|row| row.requests),
        bytes: sum(|row| row.bytes),
        device_ns: sum(|row| row.device_ns),
        ..QueueAhead::default()
    }));
    rows
}

fn request_of(
    record: &RequestRecord,
    names: &mut Identities,
    owner: Option<Task>,
    owner_basis: OwnerBasis,
    overtaken: usize,
    throttled: bool,
) -> Request {
    let under_way = record.kind == record::UNDER_WAY;
    Request {
        id: record.sequence,
        device: names.device(record.device),
        op: operation(record.flags),
        sync: Some(record.flags & REQ_SYNC != 0),
        sector: record.sector,
        bytes: u64::from(record.bytes),
        insert_ns: record.insert_ns,
        issue_ns: Some(record.issue_ns).filter(|&at| at > 0 && !(under_way && at == record.done_ns)),
        complete_ns: record.done_ns,
        throttled: Some(throttled),
        submitter: names.named(record.tid, record.tgid, &text(&record.comm)),
        owner,
        owner_basis,
        inode: Some(record.inode).filter(|&inode| inode != 0),
        file: file_of(record.inode_device, record.inode, names),
        file_system: file_system_of(record),
        ahead: record.ahead,
        ahead_bytes: u64::from(record.ahead_kib) << 10,
        overtaken_by: u32::try_from(overtaken).unwrap_or(u32::MAX),
        awaited_ns: None,
        server_waited_ns: None,
        below_device: None,
        below_ns: None,
        still_under_way: Some(under_way),
    }
}

fn file_of(device: u32, inode: u64, names: &Identities) -> Option<String> {
    names.dirtied(device, inode).and_then(|dirtied| dirtied.file.clone())
}

/// The device number of the file system, in the form of /proc/self/mountinfo (`259:1`).
fn file_system_of(record: &RequestRecord) -> Option<String> {
    let number = record.inode_device;
    (number != 0).then(|| format!("{}:{}", number >> 20, number & 0xf_ffff))
}

pub fn by_owner(
    sequence: u64,
    ahead: &[(&RequestRecord, u64)],
    beside: bool,
    names: &mut Identities,
) -> Vec<QueueAhead> {
    let mut rows: HashMap<(Option<Task>, OwnerBasis, RequestOp, (u32, u64)), QueueAhead> = HashMap::new();
    for &(other, ns) in ahead {
        let (owner, basis) = names.owner_of(other);
        let op = operation(other.flags);
        let file = (other.inode_device, other.inode);
        let row = rows.entry((owner.clone(), basis, op, file)).or_insert_with(|| QueueAhead {
            request: sequence,
            owner,
            owner_basis: basis,
            op,
            inode: Some(other.inode).filter(|&inode| inode != 0),
            file: file_of(other.inode_device, other.inode, names),
            file_system: file_system_of(other),
            beside: Some(beside),
            ..QueueAhead::default()
        });
        row.requests += 1;
        row.bytes += u64::from(other.bytes);
        row.device_ns += ns;
    }
    let mut rows: Vec<QueueAhead> = rows.into_values().collect();
    rows.sort_short_by(|a, b| (b.device_ns, b.bytes, &a.owner).cmp(&(a.device_ns, a.bytes, &b.owner)));
    rows
}

type OwnerKey = (u32, Option<Task>, OwnerBasis, RequestOp, u64);

/// Sums by owner of what devices did since the last `take`.
#[derive(Debug, Default)]
pub struct QueueOwners {
    rows: HashMap<OwnerKey, QueueOwner>,
    /// By device, operation, and power of two of the size; over the whole recording.
    by_size: HashMap<(u32, RequestOp, u32), ServiceTime>,
}

/// Service times are summed for at most this many devices, operations and sizes together.
const BY_SIZE_MAX: usize = 4_096;

impl QueueOwners {
    pub fn add(&mut self, record: &RequestRecord, names: &mut Identities) {
        let (mut owner, mut basis) = names.owner_of(record);
        let op = operation(record.flags);
        let mut inode = record.inode;
        // With thousands of files or processes in an interval, requests are summed without file or owner.
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&(record.device, owner.clone(), basis, op, inode)) {
            inode = 0;
        }
        if self.rows.len() >= 2 * ROWS_MAX && !self.rows.contains_key(&(record.device, owner.clone(), basis, op, 0)) {
            (owner, basis) = (None, OwnerBasis::Unknown);
        }
        let key = (record.device, owner.clone(), basis, op, inode);
        let row = self.rows.entry(key).or_insert_with(|| QueueOwner {
            device: names.device(record.device),
            owner,
            owner_basis: basis,
            op,
            inode: Some(inode).filter(|&inode| inode != 0),
            file: file_of(record.inode_device, inode, names),
            ..QueueOwner::default()
        });
        row.requests += 1;
        row.bytes += u64::from(record.bytes);
        row.queue_ns += record.issue_ns.saturating_sub(record.insert_ns);
        row.device_ns += record.done_ns.saturating_sub(record.issue_ns.max(record.insert_ns));
        self.add_by_size(record, names);
    }

    fn add_by_size(&mut self, record: &RequestRecord, names: &mut Identities) {
        let (op, class) = (operation(record.flags), record.bytes.checked_ilog2().unwrap_or(0));
        let key = (record.device, op, class);
        if self.by_size.len() >= BY_SIZE_MAX && !self.by_size.contains_key(&key) {
            return;
        }
        let row = self.by_size.entry(key).or_insert_with(|| ServiceTime {
            device: names.device(record.device),
            op,
            from_bytes: if record.bytes == 0 { 0 } else { 1 << class },
            ..ServiceTime::default()
        });
        row.requests += 1;
        row.bytes += u64::from(record.bytes);
        row.queue_ns += record.issue_ns.saturating_sub(record.insert_ns);
        row.device_ns += record.done_ns.saturating_sub(record.issue_ns.max(record.insert_ns));
    }

    /// Service times since the last call, by device, operation and size.
    pub fn take_service_times(&mut self) -> Vec<ServiceTime> {
        let mut rows: Vec<ServiceTime> = std::mem::take(&mut self.by_size).into_values().collect();
        rows.sort_short_by(|a, b| (&a.device, a.op, a.from_bytes).cmp(&(&b.device, b.op, b.from_bytes)));
        rows
    }

    /// The rows of an interval that ends now, busiest first.
    pub fn take(&mut self, start_ns: u64, end_ns: u64) -> Vec<QueueOwner> {
        let mut rows: Vec<QueueOwner> = std::mem::take(&mut self.rows).into_values().collect();
        for row in &mut rows {
            row.start_ns = start_ns;
            row.width_ns = end_ns.saturating_sub(start_ns);
        }
        rows.sort_short_by(|a, b| (b.device_ns, &a.device, &a.owner).cmp(&(a.device_ns, &b.device, &b.owner)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::{Awaited, CACHED_ROWS_MAX, Known, QueueOwners, ROWS_MAX};
    use crate::waits::identity::Identities;
    use crate::waits::layout::{PF_KTHREAD, RequestRecord};
    use crate::waits::ledger::Ledger;
    use crate::waits::runners::Runners;

    fn awaited(ledger: &Ledger, asked: (u64, u64), symbol: &dyn Fn(u64) -> Option<String>) -> Option<Awaited> {
        let (names, runners) = (&mut Identities::default(), &Runners::default());
        super::awaited(&mut Known { ledger, runners, names, symbol }, asked)
    }

    fn request(sequence: u64, insert: u64, issue: u64, done: u64) -> RequestRecord {
        RequestRecord {
            sequence,
            insert_ns: insert,
            issue_ns: issue,
            done_ns: done,
            bytes: 4096,
            flags: 1,
            tid: 900_000 + sequence as u32,
            tgid: u32::MAX - sequence as u32,
            ..RequestRecord::default()
        }
    }

    #[test]
    fn requests_served_before_are_ahead_and_later_ones_overtook() {
        let mut ledger = Ledger::default();
        for record in [
            request(1, 0, 10, 90),     // done before the victim was inserted
            request(2, 0, 20, 300),    // ahead
            request(3, 150, 160, 250), // inserted later, served before
            request(4, 100, 350, 500), // the victim
            request(5, 120, 600, 900), // behind it
        ] {
            ledger.add_request(record);
        }
        let found = awaited(&ledger, (4, 100), &|_| None).expect("it is known");
        assert_eq!(found.ahead.iter().map(|row| row.requests).sum::<u64>(), 2);
        assert_eq!(found.request.overtaken_by, 1);
        assert!(found.ahead.iter().map(|row| row.device_ns).sum::<u64>() <= 400);
        assert!(awaited(&ledger, (77, 100), &|_| None).is_none());
    }

    #[test]
    fn requests_served_before_the_insertion_count_while_it_is_awaited() {
        let mut ledger = Ledger::default();
        ledger.add_request(request(1, 0, 10, 300));
        ledger.add_request(request(2, 350, 350, 400));
        let late = awaited(&ledger, (2, 100), &|_| None).expect("it is known");
        assert_eq!((late.request.awaited_ns, late.ahead.len(), late.ahead[0].device_ns), (Some(100), 1, 200));
        let at_once = awaited(&ledger, (2, 350), &|_| None).expect("it is known");
        assert_eq!((at_once.request.awaited_ns, at_once.ahead.len()), (None, 0));
        // If a limit held the request back, the requests at the device do not matter.
        let held = awaited(&ledger, (2, 100), &|_| Some(super::THROTTLE_WORK.to_owned()));
        assert_eq!(held.map(|held| (held.request.awaited_ns, held.ahead.len())), Some((None, 0)));
    }

    #[test]
    fn requests_beside_are_separate_from_those_ahead() {
        let mut ledger = Ledger::default();
        for at in 0..8 {
            ledger.add_request(request(10 + at, 100 * at + 1, 100 * at + 1, 100 * at + 101));
        }
        ledger.add_request(request(30, 0, 0, 801));
        let found = awaited(&ledger, (30, 0), &|_| None).expect("it is known");
        assert!(found.ahead.iter().all(|row| row.beside == Some(true)), "{:?}", found.ahead);
        let theirs: u64 = found.ahead.iter().map(|row| row.device_ns).sum();
        assert!((390..=400).contains(&theirs), "reads of the same size, one after the other: {theirs}");
        // A device that then completes nothing for as long again is stuck; later requests are not to blame.
        ledger.add_request(request(40, 0, 0, 1_700));
        assert!(
            awaited(&ledger, (40, 0), &|_| None)
                .is_some_and(|found| found.ahead.iter().all(|row| row.beside != Some(true)))
        );
    }

    #[test]
    fn a_loop_devices_worker_that_waits_for_a_cpu_is_not_the_device() {
        const DATA: u64 = 0xffff_8880_0000_1000;
        const HOG: u32 = u32::MAX - 77;
        let mut ledger = Ledger::default();
        let upper = RequestRecord { data: DATA, device: 7 << 20, ..request(2, 0, 0, 10_000) };
        let worker = RequestRecord {
            iocb: DATA + 40,
            tid: 4_190_001,
            task_flags: PF_KTHREAD,
            ..request(1, 8_000, 8_000, 9_000)
        };
        let elsewhere = RequestRecord { iocb: DATA + 700, ..worker };
        for record in [elsewhere, worker, upper] {
            ledger.add_request(record);
        }
        let mut runners = Runners::default();
        runners.add(&crate::waits::runners::made(4_190_001, 1_000, &[HOG; 50]));
        let (names, symbol) = (&mut Identities::default(), &|_: u64| None);
        let mut known = Known { ledger: &ledger, runners: &runners, names, symbol };
        let found = super::awaited(&mut known, (2, 0)).expect("it is known");
        assert_eq!(found.request.server_waited_ns, Some(500));
        let rows: Vec<_> = found.cpus.iter().map(|row| (row.request, row.ran_ns, row.duration_ns)).collect();
        assert_eq!(rows, [(Some(2), 500, 500)]);
        assert_eq!(found.cpus[0].owner.as_ref().map(|owner| owner.pid), Some(HOG));
    }

    #[test]
    fn a_flush_is_charged_to_those_who_filled_the_devices_cache() {
        let mut ledger = Ledger::default();
        let flush = |record: RequestRecord| RequestRecord { flags: 2, bytes: 0, task_flags: PF_KTHREAD, ..record };
        let large = RequestRecord { bytes: 3 * 4096, ..request(3, 60, 60, 120) };
        for record in [
            request(1, 0, 5, 20), // flushed by the previous flush
            flush(request(2, 30, 30, 50)),
            large,
            request(4, 60, 70, 130),
            flush(request(5, 150, 150, 550)),
            request(6, 160, 160, 170), // after the flush
        ] {
            ledger.add_request(record);
        }
        let found = awaited(&ledger, (5, 150), &|_| None).expect("it is known");
        let rows: Vec<_> = found.ahead.iter().map(|row| (row.bytes, row.device_ns, row.in_cache)).collect();
        assert_eq!(rows, [(12_288, 300, Some(true)), (4_096, 100, Some(true))]);
        assert_eq!(found.ahead[0].owner.as_ref().map(|owner| owner.pid), Some(u32::MAX - 3));
    }

    /// H7: the time of further owners was dropped.
    #[test]
    fn a_flush_behind_many_owners_keeps_its_time() {
        let mut ledger = Ledger::default();
        let owners = CACHED_ROWS_MAX as u64 + 3;
        for sequence in 1..=owners {
            ledger.add_request(request(sequence, 10, 20, 30 + sequence));
        }
        let flush = RequestRecord { flags: 2, bytes: 0, task_flags: PF_KTHREAD, ..request(100, 150, 150, 150 + 1_100) };
        ledger.add_request(flush);
        let found = awaited(&ledger, (100, 150), &|_| None).expect("it is known");
        assert_eq!(found.ahead.len(), CACHED_ROWS_MAX + 1);
        assert_eq!(found.ahead.iter().map(|row| row.device_ns).sum::<u64>(), 1_100);
        let others = found.ahead.last().expect("a row");
        assert_eq!((others.owner.as_ref(), others.requests, others.bytes), (None, 3, 3 * 4_096));
    }

    #[test]
    fn the_rows_of_an_interval_are_bounded() {
        let (mut owners, mut names) = (QueueOwners::default(), Identities::default());
        for inode in 0..(4 * ROWS_MAX as u64) {
            let record = RequestRecord { inode: inode + 1, task_flags: PF_KTHREAD, ..request(1, 0, 10, 20) };
            owners.add(&record, &mut names);
        }
        let rows = owners.take(0, 1_000);
        assert!(rows.len() <= ROWS_MAX + 1, "{}", rows.len());
        assert_eq!(rows.iter().map(|row| row.requests).sum::<u64>(), 4 * ROWS_MAX as u64);
        assert!(rows.iter().all(|row| row.width_ns == 1_000));
        assert!(owners.take(1_000, 2_000).is_empty());
        let times = owners.take_service_times();
        let (requests, sizes) = (times.iter().map(|row| row.requests).sum::<u64>(), times.len());
        assert_eq!((requests, sizes, times[0].from_bytes), (4 * ROWS_MAX as u64, 1, 4_096));
        assert!(owners.take_service_times().is_empty());
    }
}

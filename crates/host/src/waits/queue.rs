//! What a device's queue held while a request waited in it, and what the device did in an interval, by owner.

use std::collections::HashMap;

use super::identity::{Identities, operation};
use super::layout::RequestRecord;
use super::ledger::Ledger;
use crate::tracer::layout::text;
use flatwater_recording::{OwnerBasis, QueueAhead, QueueOwner, Request, RequestOp, Task};

/// Rows of one interval; what comes beyond is counted without its file, and beyond twice as many without its owner.
const ROWS_MAX: usize = 1_024;
/// include/linux/blk_types.h: REQ_SYNC is bit 11 since 4.10 (8 bits of operation, then the flags).
const REQ_SYNC: u32 = 1 << 11;
/// Owners of a device's cache that are told apart: those with the most bytes.
const CACHED_ROWS_MAX: usize = 8;
/// The work function that submits what a blkio throttle held back (block/blk-throttle.c).
const THROTTLE_WORK: &str = "blk_throtl_dispatch_work_fn";

/// One awaited request, with what was ahead of it.
#[derive(Debug)]
pub struct Awaited {
    pub request: Request,
    pub ahead: Vec<QueueAhead>,
}

/// Describes the request of this sequence number, if it is still known. `since_ns`: when it began to be waited for.
pub fn awaited(
    ledger: &Ledger,
    names: &mut Identities,
    (sequence, since_ns): (u64, u64),
    symbol: &dyn Fn(u64) -> Option<String>,
) -> Option<Awaited> {
    let record = *ledger.request(sequence)?;
    let of_device = |other: &&RequestRecord| other.device == record.device && other.sequence != sequence;
    let throttled = is_throttled(&record, symbol);
    // What a limit held back was no matter of the queue.
    let from_ns = if throttled { record.insert_ns } else { since_ns.min(record.insert_ns) };
    let others: Vec<RequestRecord> = ledger.requests_since(from_ns).filter(of_device).copied().collect();
    // Served before it, from the instant on at which it was waited for.
    let before = |other: &&RequestRecord| other.issue_ns <= record.issue_ns && other.done_ns > from_ns;
    let ahead: Vec<&RequestRecord> = others.iter().filter(before).collect();
    let overtaken =
        others.iter().filter(|other| other.insert_ns > record.insert_ns && other.done_ns < record.done_ns).count();
    let (owner, owner_basis) = names.owner_of(&record);
    let mut request = request_of(&record, names, owner, owner_basis, overtaken, throttled);
    request.awaited_ns = Some(from_ns).filter(|&at| at < record.insert_ns);
    let device_ns = shared_device_ns(&record, from_ns, &ahead);
    let mut rows = Vec::new();
    let (flushes, transfers): (Vec<_>, Vec<_>) = ahead.iter().zip(device_ns).partition(|(other, _)| is_flush(other));
    let own_flush = is_flush(&record).then(|| (&record, record.done_ns.saturating_sub(record.issue_ns)));
    for (flush, ns) in flushes.into_iter().map(|(flush, ns)| (*flush, ns)).chain(own_flush) {
        rows.extend(cached(ledger, sequence, flush, ns, names));
    }
    rows.extend(by_owner(sequence, &transfers, names));
    Some(Awaited { request, ahead: rows })
}

/// Whether a limit of its cgroup held the request back before it was inserted.
pub fn is_throttled(record: &RequestRecord, symbol: &dyn Fn(u64) -> Option<String>) -> bool {
    symbol(record.function).is_some_and(|name| name == THROTTLE_WORK)
}

fn is_flush(record: &RequestRecord) -> bool {
    operation(record.flags) == RequestOp::Flush
}

/// What a flush had to write out: the writes that the device had reported as done since the flush before it, which its cache
/// still held. The flush's time is divided among their owners, by bytes. Nothing where nobody wrote: then the flush is the
/// device's own affair.
fn cached(ledger: &Ledger, sequence: u64, flush: &RequestRecord, ns: u64, names: &mut Identities) -> Vec<QueueAhead> {
    let (since_ns, writes) = ledger.written_before(flush);
    let mut rows: HashMap<(Option<Task>, OwnerBasis), QueueAhead> = HashMap::new();
    for write in writes.iter().filter(|write| write.done_ns > since_ns) {
        let (owner, basis) = names.owner_of(write);
        let new = || QueueAhead {
            request: sequence,
            owner: owner.clone(),
            owner_basis: basis,
            op: RequestOp::Flush,
            in_cache: Some(true),
            ..QueueAhead::default()
        };
        let row = rows.entry((owner.clone(), basis)).or_insert_with(new);
        row.requests += 1;
        row.bytes += u64::from(write.bytes);
    }
    let all = rows.values().map(|row| row.bytes).sum::<u64>().max(1);
    let mut rows: Vec<QueueAhead> = rows.into_values().collect();
    for row in &mut rows {
        row.device_ns = (u128::from(ns) * u128::from(row.bytes) / u128::from(all)) as u64;
    }
    rows.sort_by(|a, b| (b.bytes, &a.owner).cmp(&(a.bytes, &b.owner)));
    rows.truncate(CACHED_ROWS_MAX);
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
    Request {
        id: record.sequence,
        device: names.device(record.device),
        op: operation(record.flags),
        sync: Some(record.flags & REQ_SYNC != 0),
        sector: record.sector,
        bytes: u64::from(record.bytes),
        insert_ns: record.insert_ns,
        issue_ns: Some(record.issue_ns).filter(|&at| at > 0),
        complete_ns: record.done_ns,
        throttled: Some(throttled),
        submitter: names.named(record.tid, record.tgid, &text(&record.comm)),
        owner,
        owner_basis,
        inode: Some(record.inode).filter(|&inode| inode != 0),
        file: file_of(record.inode_device, record.inode, names),
        ahead: record.ahead,
        ahead_bytes: u64::from(record.ahead_kib) << 10,
        overtaken_by: u32::try_from(overtaken).unwrap_or(u32::MAX),
        awaited_ns: None,
    }
}

fn file_of(device: u32, inode: u64, names: &Identities) -> Option<String> {
    names.dirtied(device, inode).and_then(|dirtied| dirtied.file.clone())
}

fn by_owner(sequence: u64, ahead: &[(&&RequestRecord, u64)], names: &mut Identities) -> Vec<QueueAhead> {
    let mut rows: HashMap<(Option<Task>, OwnerBasis, RequestOp, u64), QueueAhead> = HashMap::new();
    for &(other, ns) in ahead {
        let (owner, basis) = names.owner_of(other);
        let op = operation(other.flags);
        let row = rows.entry((owner.clone(), basis, op, other.inode)).or_insert_with(|| QueueAhead {
            request: sequence,
            owner,
            owner_basis: basis,
            op,
            inode: Some(other.inode).filter(|&inode| inode != 0),
            file: file_of(other.inode_device, other.inode, names),
            ..QueueAhead::default()
        });
        row.requests += 1;
        row.bytes += u64::from(other.bytes);
        row.device_ns += ns;
    }
    let mut rows: Vec<QueueAhead> = rows.into_values().collect();
    rows.sort_by(|a, b| (b.device_ns, b.bytes, &a.owner).cmp(&(a.device_ns, a.bytes, &b.owner)));
    rows
}

/// For how much of the time that `record` was waited for, from `from_ns` on, the device worked on each of these: an instant with n of them in the
/// device counts one n-th for each, so that the sum is at most the wait.
fn shared_device_ns(record: &RequestRecord, from_ns: u64, ahead: &[&RequestRecord]) -> Vec<u64> {
    let clip = |at: u64| at.clamp(from_ns.min(record.done_ns), record.done_ns);
    let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(ahead.len() * 2);
    for (place, other) in ahead.iter().enumerate() {
        let (from, to) = (clip(other.issue_ns), clip(other.done_ns));
        if to > from {
            changes.push((from, true, place));
            changes.push((to, false, place));
        }
    }
    changes.sort_unstable();
    // The integral of dt/n(t): what each gets is its rise while it was in the device.
    let (mut sum, mut last, mut inside) = (0.0_f64, 0, 0_u32);
    let mut at_begin = vec![0.0_f64; ahead.len()];
    let mut shares = vec![0_u64; ahead.len()];
    for (at, begins, place) in changes {
        if inside > 0 {
            sum += (at - last) as f64 / f64::from(inside);
        }
        last = at;
        if begins {
            inside += 1;
            at_begin[place] = sum;
        } else {
            inside -= 1;
            shares[place] = (sum - at_begin[place]) as u64;
        }
    }
    shares
}

type OwnerKey = (u32, Option<Task>, OwnerBasis, RequestOp, u64);

/// What devices did since the last time it was asked.
#[derive(Debug, Default)]
pub struct QueueOwners {
    rows: HashMap<OwnerKey, QueueOwner>,
}

impl QueueOwners {
    pub fn add(&mut self, record: &RequestRecord, names: &mut Identities) {
        let (mut owner, mut basis) = names.owner_of(record);
        let op = operation(record.flags);
        let mut inode = record.inode;
        // Thousands of files or of processes in a second are told together.
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
    }

    /// The rows of an interval that ends now, the busiest first.
    pub fn take(&mut self, start_ns: u64, end_ns: u64) -> Vec<QueueOwner> {
        let mut rows: Vec<QueueOwner> = std::mem::take(&mut self.rows).into_values().collect();
        for row in &mut rows {
            row.start_ns = start_ns;
            row.width_ns = end_ns.saturating_sub(start_ns);
        }
        rows.sort_by(|a, b| (b.device_ns, &a.device, &a.owner).cmp(&(a.device_ns, &b.device, &b.owner)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::{QueueOwners, ROWS_MAX, awaited, shared_device_ns};
    use crate::waits::identity::Identities;
    use crate::waits::layout::{PF_KTHREAD, RequestRecord};
    use crate::waits::ledger::Ledger;

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
    fn time_of_requests_side_by_side_is_divided_among_them() {
        let victim = request(9, 100, 400, 500);
        let (one, two) = (request(1, 0, 50, 300), request(2, 0, 200, 400));
        // 100 to 200 one alone, 200 to 300 both, 300 to 400 two alone.
        assert_eq!(shared_device_ns(&victim, 100, &[&one, &two]), [150, 150]);
        // Waited for from 60 on: the first had the device alone for 40 more.
        assert_eq!(shared_device_ns(&victim, 60, &[&one, &two]), [190, 150]);
        assert_eq!(shared_device_ns(&victim, 100, &[]), [0; 0]);
    }

    #[test]
    fn what_was_served_before_is_ahead_and_what_came_later_overtook() {
        let (mut ledger, mut names) = (Ledger::default(), Identities::default());
        for record in [
            request(1, 0, 10, 90),     // done before the victim came
            request(2, 0, 20, 300),    // ahead
            request(3, 150, 160, 250), // inserted later, served before
            request(4, 100, 350, 500), // the victim
            request(5, 120, 600, 900), // behind it
        ] {
            ledger.add_request(record);
        }
        let found = awaited(&ledger, &mut names, (4, 100), &|_| None).expect("it is known");
        assert_eq!(found.ahead.iter().map(|row| row.requests).sum::<u64>(), 2);
        assert_eq!(found.request.overtaken_by, 1);
        assert!(found.ahead.iter().map(|row| row.device_ns).sum::<u64>() <= 400);
        assert!(awaited(&ledger, &mut names, (77, 100), &|_| None).is_none());
    }

    #[test]
    fn what_was_waited_for_before_it_was_inserted_counts_whoever_had_the_device() {
        let (mut ledger, mut names) = (Ledger::default(), Identities::default());
        ledger.add_request(request(1, 0, 10, 300));
        ledger.add_request(request(2, 350, 350, 400));
        let late = awaited(&ledger, &mut names, (2, 100), &|_| None).expect("it is known");
        assert_eq!((late.request.awaited_ns, late.ahead.len(), late.ahead[0].device_ns), (Some(100), 1, 200));
        let at_once = awaited(&ledger, &mut names, (2, 350), &|_| None).expect("it is known");
        assert_eq!((at_once.request.awaited_ns, at_once.ahead.len()), (None, 0));
        // A limit held it back: who had the device meanwhile is no matter.
        let held = awaited(&ledger, &mut names, (2, 100), &|_| Some(super::THROTTLE_WORK.to_owned()));
        assert_eq!(held.map(|held| (held.request.awaited_ns, held.ahead.len())), Some((None, 0)));
    }

    #[test]
    fn a_flush_is_charged_to_whoever_filled_the_devices_cache() {
        let (mut ledger, mut names) = (Ledger::default(), Identities::default());
        let flush = |record: RequestRecord| RequestRecord { flags: 2, bytes: 0, task_flags: PF_KTHREAD, ..record };
        let large = RequestRecord { bytes: 3 * 4096, ..request(3, 60, 60, 120) };
        for record in [
            request(1, 0, 5, 20), // flushed by the one before
            flush(request(2, 30, 30, 50)),
            large,
            request(4, 60, 70, 130),
            flush(request(5, 150, 150, 550)),
            request(6, 160, 160, 170), // too late for it
        ] {
            ledger.add_request(record);
        }
        let found = awaited(&ledger, &mut names, (5, 150), &|_| None).expect("it is known");
        let rows: Vec<_> = found.ahead.iter().map(|row| (row.bytes, row.device_ns, row.in_cache)).collect();
        assert_eq!(rows, [(12_288, 300, Some(true)), (4_096, 100, Some(true))]);
        assert_eq!(found.ahead[0].owner.as_ref().map(|owner| owner.pid), Some(u32::MAX - 3));
    }

    #[test]
    fn an_interval_with_very_many_files_takes_bounded_rows() {
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
    }
}

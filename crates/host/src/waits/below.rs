//! Describes what the disk below a loop device did with an awaited request, and the other requests that it served at
//! that time.

use super::layout::RequestRecord;
use super::queue::{Known, by_owner};
use super::sharing::{joined, shared_device_ns, stuck};
use flatwater_recording::{QueueAhead, Request};

/// Fills in the lower disk of `request`. Divides the part of the wait that the upper device's own requests do not
/// account for (they account for `charged_ns`) among the requests that shared the lower disk. `lower`: the lower
/// requests made from this one, in order of time.
pub fn describe(
    known: &mut Known<'_>,
    request: &mut Request,
    (record, from_ns): (&RequestRecord, u64),
    lower: &[RequestRecord],
    charged_ns: u64,
) -> Vec<QueueAhead> {
    let Some(first) = lower.first() else { return Vec::new() };
    request.below_device = Some(known.names.device(first.device));
    let parts = joined(lower.iter().map(|request| (request.insert_ns, request.done_ns)).collect());
    request.below_ns = Some(parts.iter().map(|part| part.1 - part.0).sum());
    let wait_ns = record.done_ns.saturating_sub(from_ns).max(1);
    let left_ns = wait_ns.saturating_sub(charged_ns);
    let of_upper = made_beside(known, record);
    let mut shares: Vec<(RequestRecord, u64)> = Vec::new();
    // Of several lower requests side by side, the longest determined the wait.
    let Some(longest) = lower.iter().max_by_key(|request| request.done_ns.saturating_sub(request.insert_ns)) else {
        return Vec::new();
    };
    let on_disk = |other: &&RequestRecord| {
        other.device == longest.device && !lower.iter().any(|request| request.sequence == other.sequence)
    };
    let others: Vec<RequestRecord> = known.ledger.requests_since(longest.insert_ns).filter(on_disk).copied().collect();
    // A disk that completes nothing for most of the time is slow for everyone; other waiters are not to blame.
    if stuck(longest, others.iter()) {
        return Vec::new();
    }
    // Requests that other requests of the same upper device made have been charged at the upper device.
    let foreign = |other: &&RequestRecord| {
        other.issue_ns < longest.done_ns && other.done_ns > longest.insert_ns && !of_upper.made(other)
    };
    let foreign: Vec<&RequestRecord> = others.iter().filter(foreign).collect();
    for (other, ns) in foreign.iter().zip(shared_device_ns(longest, longest.insert_ns, &foreign, &[])) {
        let ns = (u128::from(ns) * u128::from(left_ns) / u128::from(wait_ns)) as u64;
        shares.push((**other, ns));
    }
    let (ahead, beside): (Vec<_>, Vec<_>) =
        shares.iter().map(|(other, ns)| (other, *ns)).partition(|(other, _)| other.issue_ns <= longest.issue_ns);
    let mut rows = by_owner(record.sequence, &ahead, false, known.names);
    rows.extend(by_owner(record.sequence, &beside, true, known.names));
    rows
}

/// Addresses of the driver's data of an upper device's requests, by which the lower requests that they made are
/// recognized.
struct Uppers(Vec<u64>);

impl Uppers {
    fn made(&self, lower: &RequestRecord) -> bool {
        let place = self.0.partition_point(|data| *data <= lower.iocb);
        place
            .checked_sub(1)
            .and_then(|place| self.0.get(place))
            .is_some_and(|data| lower.iocb - data < super::ledger::DRIVER_DATA_BYTES)
    }
}

fn made_beside(known: &Known<'_>, record: &RequestRecord) -> Uppers {
    let same = |other: &&RequestRecord| other.device == record.device && other.data != 0;
    let mut data: Vec<u64> =
        known.ledger.requests_since(record.issue_ns).filter(same).map(|other| other.data).collect();
    data.sort_unstable();
    data.dedup();
    Uppers(data)
}

#[cfg(test)]
mod tests {
    use crate::waits::identity::Identities;
    use crate::waits::layout::{PF_KTHREAD, RequestRecord};
    use crate::waits::ledger::Ledger;
    use crate::waits::queue::{Awaited, Known, awaited};
    use crate::waits::runners::Runners;

    const LOOP: u32 = 7 << 20;
    const DISK: u32 = 4_000 << 20;
    const DATA: u64 = 0xffff_8880_0000_1000;

    fn request(sequence: u64, device: u32, issue: u64, done: u64) -> RequestRecord {
        let (tid, tgid) = (900_000 + sequence as u32, u32::MAX - sequence as u32);
        let at = RequestRecord { insert_ns: issue, issue_ns: issue, done_ns: done, ..RequestRecord::default() };
        RequestRecord { sequence, device, bytes: 4096, flags: 1, tid, tgid, ..at }
    }

    /// Awaits a request of the loop device from 0 to 10,000 ns, from which the driver made a lower one from 500 to
    /// 9,500 ns; `others` run beside them.
    fn described(others: &[RequestRecord]) -> Awaited {
        let mut ledger = Ledger::default();
        let lower = RequestRecord { iocb: DATA + 40, task_flags: PF_KTHREAD, ..request(90, DISK, 500, 9_500) };
        let upper = RequestRecord { data: DATA, ..request(91, LOOP, 0, 10_000) };
        let mut all = others.to_vec();
        all.extend([lower, upper]);
        all.sort_by_key(|request| request.sequence);
        all.into_iter().for_each(|request| ledger.add_request(request));
        let (names, runners) = (&mut Identities::default(), &Runners::default());
        awaited(&mut Known { ledger: &ledger, runners, names, symbol: &|_| None }, (91, 0)).expect("it is known")
    }

    #[test]
    fn requests_that_keep_the_lower_disk_busy_are_charged() {
        let busy: Vec<RequestRecord> =
            (0..9).map(|at| request(at + 1, DISK, 500 + at * 1_000, 1_500 + at * 1_000)).collect();
        let found = described(&busy);
        assert_eq!((found.request.below_device.as_deref(), found.request.below_ns), (Some("4000:0"), Some(9_000)));
        let theirs: u64 = found.ahead.iter().map(|row| row.device_ns).sum();
        assert!((4_300..=4_500).contains(&theirs), "half of the nine microseconds: {theirs}");
        let owners = found.ahead.iter().filter_map(|row| row.owner.as_ref()).count();
        assert_eq!(owners, 9, "{:?}", found.ahead);
    }

    #[test]
    fn nothing_is_charged_if_the_lower_disk_is_stuck() {
        let found = described(&[request(1, DISK, 400, 9_400), request(2, DISK, 450, 9_450)]);
        assert_eq!((found.ahead.len(), found.request.below_ns), (0, Some(9_000)));
    }

    #[test]
    fn requests_of_the_same_loop_device_are_charged_once() {
        let other = |at: u64| {
            let (upper, iocb) = (DATA + 4_096 * (at + 1), DATA + 4_096 * (at + 1) + 40);
            let (issue, done) = (500 + at * 1_000, 1_500 + at * 1_000);
            let below = RequestRecord { iocb, task_flags: PF_KTHREAD, ..request(10 + at, DISK, issue, done) };
            [below, RequestRecord { data: upper, ..request(30 + at, LOOP, issue, done) }]
        };
        let siblings: Vec<RequestRecord> = (0..9).flat_map(other).collect();
        let found = described(&siblings);
        let of_loop: u64 = found.ahead.iter().map(|row| row.device_ns).sum();
        assert!(of_loop <= 5_000, "{of_loop}: {:?}", found.ahead);
        assert_eq!(found.ahead.iter().map(|row| row.requests).sum::<u64>(), 9, "the nine above, none of those below");
    }

    #[test]
    fn a_request_of_a_disk_has_no_lower_device() {
        let mut ledger = Ledger::default();
        ledger.add_request(request(1, DISK, 0, 100));
        let (names, runners) = (&mut Identities::default(), &Runners::default());
        let found = awaited(&mut Known { ledger: &ledger, runners, names, symbol: &|_| None }, (1, 0));
        assert_eq!(found.map(|found| (found.request.below_device, found.request.below_ns)), Some((None, None)));
    }
}

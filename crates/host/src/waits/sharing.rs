//! Divides a device's time among the requests in flight, to find the requests that a waiting request waited for.

use super::layout::RequestRecord;

/// The fixed cost of a request, expressed in bytes: on an SSD some 64 KiB, on a disk 1 MiB.
const FIXED_BYTES: f64 = 131_072.0;
/// A device that completes nothing for more than this share of a request's time is stuck; later requests are not to
/// blame.
const STUCK_SHARE_MIN: f64 = 0.5;

/// Start and end of a part of a wait, ns.
pub type Interval = (u64, u64);

/// For how long the device worked on each of `others` while `record` was waited for, from `from_ns` on. Each instant is
/// divided among all requests in the device, `record` included, in proportion to their cost, so the sum is at most the
/// wait. `without`: parts of the wait in which the device could not work, in order of time.
pub fn shared_device_ns(
    record: &RequestRecord,
    from_ns: u64,
    others: &[&RequestRecord],
    without: &[Interval],
) -> Vec<u64> {
    let clip = |at: u64| at.clamp(from_ns.min(record.done_ns), record.done_ns);
    let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(others.len() * 2 + 2);
    // The request itself comes last.
    for (place, request) in others.iter().copied().chain([record]).enumerate() {
        let (from, to) = (clip(request.issue_ns), clip(request.done_ns));
        if to > from {
            changes.push((from, true, place));
            changes.push((to, false, place));
        }
    }
    changes.sort_unstable();
    let cost = |place: usize| FIXED_BYTES + f64::from(others.get(place).copied().unwrap_or(record).bytes);
    // The integral of dt/cost(t): each request gets its cost times the increase while it was in the device.
    let (mut sum, mut last, mut inside) = (0.0_f64, 0, 0.0_f64);
    let mut at_begin = vec![0.0_f64; others.len() + 1];
    let mut shares = vec![0_u64; others.len()];
    for (at, begins, place) in changes {
        if inside > 0.5 {
            sum += worked_ns(last, at, without) as f64 / inside;
        }
        last = at;
        if begins {
            inside += cost(place);
            at_begin[place] = sum;
        } else {
            inside -= cost(place);
            if let Some(share) = shares.get_mut(place) {
                *share = ((sum - at_begin[place]) * cost(place)).round() as u64;
            }
        }
    }
    shares
}

fn worked_ns(from_ns: u64, to_ns: u64, without: &[Interval]) -> u64 {
    let lost: u64 = without.iter().map(|part| part.1.min(to_ns).saturating_sub(part.0.max(from_ns))).sum();
    to_ns.saturating_sub(from_ns).saturating_sub(lost)
}

/// Whether the device completed nothing for most of this request's time in it.
pub fn stuck<'a>(record: &RequestRecord, others: impl Iterator<Item = &'a RequestRecord>) -> bool {
    let within = |at: &u64| *at > record.issue_ns && *at < record.done_ns;
    let mut ends: Vec<u64> = others.map(|other| other.done_ns).filter(within).collect();
    ends.sort_unstable();
    ends.push(record.done_ns);
    let mut last = record.issue_ns;
    let longest = ends.iter().map(|&at| at - std::mem::replace(&mut last, at)).max().unwrap_or(0);
    longest as f64 > STUCK_SHARE_MIN * record.done_ns.saturating_sub(record.issue_ns) as f64
}

/// Sorts intervals, and merges those that overlap or touch.
pub fn joined(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut joined: Vec<Interval> = Vec::with_capacity(intervals.len());
    for (from, to) in intervals.into_iter().filter(|(from, to)| to > from) {
        match joined.last_mut().filter(|last| last.1 >= from) {
            Some(last) => last.1 = last.1.max(to),
            None => joined.push((from, to)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::{joined, shared_device_ns, stuck};
    use crate::waits::layout::RequestRecord;

    fn request(issue_ns: u64, done_ns: u64, bytes: u32) -> RequestRecord {
        RequestRecord { insert_ns: issue_ns, issue_ns, done_ns, bytes, ..RequestRecord::default() }
    }

    #[test]
    fn time_of_requests_side_by_side_is_divided_among_them() {
        let victim = RequestRecord { insert_ns: 100, ..request(400, 500, 4096) };
        let (one, two) = (request(50, 300, 4096), request(200, 400, 4096));
        // 100 to 200: `one` alone; 200 to 300: both; 300 to 400: `two` alone.
        assert_eq!(shared_device_ns(&victim, 100, &[&one, &two], &[]), [150, 150]);
        // Waited for from 60 on: `one` had the device alone for another 40.
        assert_eq!(shared_device_ns(&victim, 60, &[&one, &two], &[]), [190, 150]);
        assert_eq!(shared_device_ns(&victim, 100, &[], &[]), [0; 0]);
    }

    #[test]
    fn a_neighbour_is_charged_for_its_share_of_the_device() {
        let victim = request(0, 900, 8_192);
        // Reads of the same size beside it, one after the other: half of the time is charged to them.
        let beside: Vec<RequestRecord> = (0..9).map(|at| request(at * 100, at * 100 + 100, 8_192)).collect();
        let beside: Vec<&RequestRecord> = beside.iter().collect();
        assert_eq!(shared_device_ns(&victim, 0, &beside, &[]).iter().sum::<u64>(), 450);
        // A large one costs more.
        let large = request(0, 900, 1 << 20);
        let its = shared_device_ns(&victim, 0, &[&large], &[])[0];
        assert!((780..820).contains(&its), "{its}");
        // While the device's own thread had no CPU, no request is charged.
        assert_eq!(shared_device_ns(&victim, 0, &beside, &[(0, 700)]).iter().sum::<u64>(), 100);
    }

    #[test]
    fn a_device_that_completes_nothing_is_stuck() {
        let victim = request(0, 1_000, 4_096);
        let done = |ends: &[u64]| -> Vec<RequestRecord> { ends.iter().map(|&end| request(1, end, 4_096)).collect() };
        assert!(stuck(&victim, done(&[100, 900]).iter()));
        assert!(!stuck(&victim, done(&[100, 300, 500, 700, 900]).iter()));
        assert!(stuck(&victim, done(&[]).iter()), "alone");
    }

    #[test]
    fn intervals_that_touch_are_one() {
        assert_eq!(joined(vec![(5, 9), (1, 3), (3, 4), (8, 12), (20, 20)]), [(1, 4), (5, 12)]);
    }
}

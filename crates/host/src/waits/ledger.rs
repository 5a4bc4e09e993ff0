//! Keeps recent sleeps and requests, because a slow call is known only after its end and is then joined with what
//! happened while it waited.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::identity::operation;
use super::layout::{RequestRecord, SleepRecord};
use flatwater_recording::RequestOp;

/// Limits of the ledger; the oldest entries are dropped. A sleep takes a little over half a KiB, a request 128 bytes.
const SLEEPS_MAX: usize = 16_384;
const REQUESTS_MAX: usize = 65_536;
/// Older sleeps cannot explain a call that ends now.
const KEPT_NS: u64 = 60_000_000_000;

/// Upper bound for the size of `struct loop_cmd`, the driver's data behind a loop device's request; the next request
/// lies further away.
pub const DRIVER_DATA_BYTES: u64 = 256;

/// Limits of sleeps and requests for a daemon with a memory budget: some 5 MiB and 2 MiB.
const SMALL: (usize, usize) = (6_144, 16_384);

/// Sleeps by thread, and requests.
#[derive(Debug)]
pub struct Ledger {
    sleeps_max: usize,
    requests_max: usize,
    /// Each thread's sleeps, in the order of their ends.
    sleeps: HashMap<u32, VecDeque<Rc<SleepRecord>>>,
    order: VecDeque<(u32, u64)>,
    /// In the order of completion. This is the order of sequence numbers, except where one CPU overtook another.
    requests: VecDeque<RequestRecord>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::holding(SLEEPS_MAX, REQUESTS_MAX)
    }
}

impl Ledger {
    pub fn small() -> Ledger {
        Ledger::holding(SMALL.0, SMALL.1)
    }

    fn holding(sleeps_max: usize, requests_max: usize) -> Ledger {
        let (sleeps, order, requests) = (HashMap::new(), VecDeque::new(), VecDeque::new());
        Ledger { sleeps_max, requests_max, sleeps, order, requests }
    }

    pub fn add_sleep(&mut self, sleep: SleepRecord) -> Rc<SleepRecord> {
        let (tid, end_ns) = (sleep.sleeper.tid, sleep.end_ns);
        let old = |&(_, at): &(u32, u64)| at.saturating_add(KEPT_NS) < end_ns;
        while self.order.len() >= self.sleeps_max || self.order.front().is_some_and(old) {
            self.drop_oldest();
        }
        let sleep = Rc::new(sleep);
        self.sleeps.entry(tid).or_default().push_back(Rc::clone(&sleep));
        self.order.push_back((tid, end_ns));
        sleep
    }

    fn drop_oldest(&mut self) {
        let Some((tid, _)) = self.order.pop_front() else { return };
        if let Some(of_thread) = self.sleeps.get_mut(&tid) {
            of_thread.pop_front();
            if of_thread.is_empty() {
                self.sleeps.remove(&tid);
            }
        }
    }

    pub fn add_request(&mut self, request: RequestRecord) {
        if self.requests.len() >= self.requests_max {
            self.requests.pop_front();
        }
        self.requests.push_back(request);
    }

    /// Sleeps of a thread that overlap an interval, in order of time.
    pub fn sleeps(&self, tid: u32, from_ns: u64, to_ns: u64) -> Vec<Rc<SleepRecord>> {
        let Some(of_thread) = self.sleeps.get(&tid) else { return Vec::new() };
        let first = of_thread.partition_point(|sleep| sleep.end_ns <= from_ns);
        of_thread.iter().skip(first).take_while(|sleep| sleep.start_ns < to_ns).map(Rc::clone).collect()
    }

    /// Sleeps of workers for one io_uring operation, in order of time.
    pub fn sleeps_for(&self, operation: u64, from_ns: u64, to_ns: u64) -> Vec<Rc<SleepRecord>> {
        let all = self.sleeps.values().flatten();
        let within = |sleep: &&Rc<SleepRecord>| {
            sleep.asynchronous == operation && sleep.end_ns > from_ns && sleep.start_ns < to_ns
        };
        let mut found: Vec<Rc<SleepRecord>> = all.filter(within).map(Rc::clone).collect();
        found.sort_by_key(|sleep| sleep.start_ns);
        found
    }

    /// Sleeps of a process's io_uring workers, for any operation, in order of time.
    pub fn sleeps_of_workers(&self, tgid: u32, from_ns: u64, to_ns: u64) -> Vec<Rc<SleepRecord>> {
        let all = self.sleeps.values().flatten();
        let within = |sleep: &&Rc<SleepRecord>| {
            let of_worker = sleep.asynchronous != 0 && sleep.sleeper.tgid == tgid;
            of_worker && sleep.end_ns > from_ns && sleep.start_ns < to_ns
        };
        let mut found: Vec<Rc<SleepRecord>> = all.filter(within).map(Rc::clone).collect();
        found.sort_by_key(|sleep| (sleep.start_ns, sleep.sleeper.tid));
        found
    }

    /// A number above those of all known requests.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.requests.iter().map(|request| request.sequence).max().unwrap_or(0).saturating_add(1)
    }

    #[must_use]
    pub fn request(&self, sequence: u64) -> Option<&RequestRecord> {
        let near = self.requests.partition_point(|request| request.sequence < sequence);
        let window = near.saturating_sub(64)..(near + 64).min(self.requests.len());
        self.requests.range(window).find(|request| request.sequence == sequence)
    }

    /// Requests completed after `since_ns`, newest first.
    pub fn requests_since(&self, since_ns: u64) -> impl Iterator<Item = &RequestRecord> {
        /// Records of different CPUs are nearly in order.
        const SLACK_NS: u64 = 10_000_000;
        self.requests.iter().rev().take_while(move |request| request.done_ns.saturating_add(SLACK_NS) > since_ns)
    }

    /// The requests to lower disks that a loop device made from this one, in order of time. They are recognized by the
    /// address of their iocb, which lies in the driver's data behind the upper request.
    pub fn made_of(&self, upper: &RequestRecord) -> Vec<RequestRecord> {
        let own = |iocb: u64| iocb >= upper.data && iocb - upper.data < DRIVER_DATA_BYTES;
        let below = |lower: &&RequestRecord| {
            upper.data != 0
                && lower.device != upper.device
                && own(lower.iocb)
                && lower.insert_ns >= upper.issue_ns
                && lower.done_ns <= upper.done_ns
        };
        let mut found: Vec<RequestRecord> = self.requests_since(upper.issue_ns).filter(below).copied().collect();
        found.sort_by_key(|request| request.insert_ns);
        found
    }

    /// The issue time of the previous flush of the same device (0 if unknown), and the writes that the device completed
    /// between the two flushes, newest first. Looks at no more than `FLUSHED_MAX` requests.
    pub fn written_before(&self, flush: &RequestRecord) -> (u64, Vec<RequestRecord>) {
        const FLUSHED_MAX: usize = 4_096;
        let mut writes = Vec::new();
        let of_device = |other: &&RequestRecord| other.device == flush.device && other.done_ns <= flush.issue_ns;
        for other in self.requests.iter().rev().filter(of_device).take(FLUSHED_MAX) {
            match operation(other.flags) {
                RequestOp::Flush => return (other.issue_ns, writes),
                RequestOp::Write => writes.push(*other),
                _ => {}
            }
        }
        (0, writes)
    }

    /// Requests of direct I/O of one io_uring or libaio operation, in order of time.
    pub fn requests_for(&self, iocb: u64, from_ns: u64, to_ns: u64) -> Vec<RequestRecord> {
        let within =
            |request: &&RequestRecord| request.iocb == iocb && request.insert_ns >= from_ns && request.done_ns <= to_ns;
        let mut found: Vec<RequestRecord> = self.requests_since(from_ns).filter(within).copied().collect();
        found.sort_by_key(|request| request.insert_ns);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, REQUESTS_MAX, SLEEPS_MAX};
    use crate::waits::layout::{RequestRecord, SleepRecord, WaitTask};

    fn sleep(tid: u32, start_ns: u64, end_ns: u64) -> SleepRecord {
        SleepRecord { start_ns, end_ns, sleeper: WaitTask { tid, ..WaitTask::default() }, ..SleepRecord::default() }
    }

    #[test]
    fn sleeps_that_overlap_an_interval_are_found() {
        let mut ledger = Ledger::default();
        for (start, end) in [(0, 10), (10, 20), (25, 40), (50, 60)] {
            ledger.add_sleep(sleep(1, start, end));
        }
        ledger.add_sleep(sleep(2, 15, 30));
        let found: Vec<u64> = ledger.sleeps(1, 10, 50).iter().map(|sleep| sleep.start_ns).collect();
        assert_eq!(found, [10, 25]);
        assert!(ledger.sleeps(3, 0, 100).is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut ledger = Ledger::default();
        for at in 0..(SLEEPS_MAX as u64 * 2) {
            ledger.add_sleep(sleep((at % 5_000) as u32, at, at + 1));
        }
        assert!(ledger.order.len() <= SLEEPS_MAX);
        assert_eq!(ledger.sleeps.values().map(|sleeps| sleeps.len()).sum::<usize>(), ledger.order.len());
        for sequence in 0..(REQUESTS_MAX as u64 + 10) {
            ledger.add_request(RequestRecord { sequence, ..RequestRecord::default() });
        }
        assert_eq!(ledger.requests.len(), REQUESTS_MAX);
        assert!(ledger.request(REQUESTS_MAX as u64 + 5).is_some() && ledger.request(3).is_none());
    }

    #[test]
    fn old_sleeps_are_forgotten() {
        let mut ledger = Ledger::default();
        ledger.add_sleep(sleep(1, 0, 10));
        ledger.add_sleep(sleep(2, 100_000_000_000, 100_000_000_010));
        assert!(ledger.sleeps(1, 0, 100).is_empty());
    }
}

//! CFQ in outline (block/cfq-iosched.c, 2.6.18 to 4.20): who may use the disk now.
//!
//! Models: a queue for each process that reads or writes for an fsync (2.6.30), one for all other writes; queues in turn,
//! each for a slice of time (100 ms, writes 40 ms) or until it is empty, from its oldest request if that has waited for
//! long (cfq_check_fifo); from 2.6.33 on slices that are cut so that all of them fit into 300 ms, down to twice the idling;
//! on a disk with an arm an empty reader's slice is waited out for a while, because its next request is likely to lie near the last one
//! (`idle_window` has whose is not); `may_dispatch` has how many requests of one queue a device is given. From 2.6.33 on those that are not
//! waited for share one slice, in which only the last of them is, unless all that it had were writes (noidle_tree_requires_idle), and a
//! device without an arm is never kept idle, so that it has requests of several queues (cfq_should_idle). After a write for an fsync nobody
//! is waited for (REQ_NOIDLE) but in 2.6.33 to 2.6.36, where who has a slice of his own is (SYNC_WORKLOAD). From 2.6.17 to 2.6.27 a device
//! that is once seen with more than 4 requests has nobody who seeks waited for (hw_tag), which here is any that takes as many. From 2.6.22
//! on a reader's request ends the slice of the writes (cfq_should_preempt).
//! Leaves out:
//! priorities, queues that work together; of bfq weights, the estimate of the disk's rate and what it prefers for being interactive.
//! Chosen by `queue.scheduler`; from 2.6.18 to 4.20 what is used unless another is named.

use super::constant::constants;
use std::collections::BTreeSet;

use super::clock::TaskId;
use super::idle_window::{IdleWindows, Queued};
use super::kernel::SyncWrites;
use super::may_dispatch::{Asked, MayDispatch};
use super::seeky::Seeks;

constants! {
    const SLICE_SYNC_NS: u64 = kernel(100_000_000, "block/cfq-iosched.c", "cfq_slice_sync (HZ/10)", "2.6.32");
    const SLICE_ASYNC_NS: u64 = kernel(40_000_000, "block/cfq-iosched.c", "cfq_slice_async (HZ/25)", "2.6.32");
    /// Which waits for so long goes first in the next slice.
    const FIFO_ASYNC_NS: u64 = kernel(250_000_000, "block/cfq-iosched.c", "cfq_fifo_expire[0] (HZ/4)", "2.6.32");
    const FIFO_SYNC_NS: u64 = kernel(125_000_000, "block/cfq-iosched.c", "cfq_fifo_expire[1] (HZ/8)", "2.6.32");
    /// From 2.6.33 on: how long it should take until every queue had its slice.
    const TARGET_LATENCY_NS: u64 = kernel(300_000_000, "block/cfq-iosched.c", "cfq_target_latency (HZ * 3/10)", "2.6.33");
    const HIST_DIVISOR: u64 = kernel(4, "block/cfq-iosched.c", "cfq_hist_divisor", "2.6.33");
    /// A device that takes no more at once is not taken for one that queues.
    pub const UNQUEUED: usize = kernel(4, "block/cfq-iosched.c", "cfq_activate_request (hw_tag)", "2.6.18");
    /// bfq in outline: a queue's budget is what it gets done in this time; an asynchronous queue is charged thrice.
    const BFQ_TIMEOUT_NS: u64 = kernel(125_000_000, "block/bfq-iosched.c", "bfq_timeout (HZ / 8)", "4.18");
    const BFQ_ASYNC_CHARGE: u64 = kernel(3, "block/bfq-iosched.c", "bfq_async_charge_factor", "4.18");
}

/// How long a queue has the disk to itself.
#[derive(Clone, Copy, Debug)]
struct Slices {
    reads_ns: u64,
    writes_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Reader(TaskId),
    /// The read that stands next upwards, whoever's it is.
    Nearest,
    Writes,
    /// The disk stays idle for the reader whose slice it is, until then.
    Idle(u64),
    /// Nothing is queued.
    Nobody,
}

/// Who has a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Reader(TaskId),
    /// All that nobody is waited for by itself: who seeks, or thinks for long (the service tree SYNC_NOIDLE_WORKLOAD).
    Seekers,
    Writes,
}

#[derive(Debug)]
pub struct Cfq {
    slices: Slices,
    /// Whom the disk is kept idle for (up to 2.6.27 on a device that queues, and in 2.6.33 and later, nobody who seeks).
    pub windows: IdleWindows,
    /// Whom it is not kept idle for, they share a slice (2.6.33); before each has turns of its own that are over once its requests are
    /// at the device.
    shares: bool,
    /// How many requests of one queue the device has at once.
    pub may: Option<MayDispatch>,
    pub sync_writes: SyncWrites,
    /// The last request of the active queue was a write; of the slice that is shared, all of them were (noidle_tree_requires_idle).
    wrote: bool,
    all_wrote: bool,
    /// A reader's request ends the slice of the writes.
    pub preempts: bool,
    /// The running mean of busy queues, by which slices are cut (low_latency, 2.6.33).
    busy: Option<u64>,
    active: Option<Queue>,
    slice_end_ns: u64,
    /// Since the active reader's queue was found empty.
    idle_until_ns: Option<u64>,
    /// The slice whose first request was looked for by age.
    looked: Option<u64>,
}

impl Default for Cfq {
    fn default() -> Cfq {
        Cfq::with(Slices { reads_ns: SLICE_SYNC_NS.get(), writes_ns: SLICE_ASYNC_NS.get() })
    }
}

impl Cfq {
    fn with(slices: Slices) -> Cfq {
        Cfq {
            slices,
            windows: IdleWindows::default(),
            shares: false,
            may: None,
            sync_writes: SyncWrites::NotWaitedFor,
            wrote: false,
            all_wrote: true,
            preempts: false,
            busy: None,
            active: None,
            slice_end_ns: 0,
            idle_until_ns: None,
            looked: None,
        }
    }

    /// CFQ of 2.6.33 and later.
    #[must_use]
    pub fn with_target_latency() -> Cfq {
        Cfq { busy: Some(0), shares: true, ..Cfq::default().knowing(Seeks::default()) }
    }

    /// CFQ of 2.6.17 to 2.6.27 on a device that takes more than 4 requests.
    #[must_use]
    pub fn of_queueing_device() -> Cfq {
        Cfq::default().knowing(Seeks::by_mean())
    }

    fn knowing(mut self, seeks: Seeks) -> Cfq {
        self.windows.seeks = Some(seeks);
        self
    }

    /// cfq_scaled_cfqq_slice with cfq_group_get_avg_queues.
    fn scaled(&mut self, slice_ns: u64, queues: u64) -> u64 {
        let Some(mean) = self.busy else { return slice_ns };
        let divisor = HIST_DIVISOR.get();
        let mean = ((divisor - 1) * mean.max(queues) + mean.min(queues) + divisor / 2) / divisor;
        self.busy = Some(mean);
        let expected_ns = SLICE_SYNC_NS.get() * mean;
        if expected_ns <= TARGET_LATENCY_NS.get() {
            return slice_ns;
        }
        let least_ns = slice_ns.min(2 * self.windows.idle_ns() * slice_ns / SLICE_SYNC_NS.get());
        least_ns.max(slice_ns * TARGET_LATENCY_NS.get() / expected_ns)
    }

    /// bfq in outline: the same turns, by budgets of as much as the disk does in an eighth of a second.
    #[must_use]
    pub fn bfq() -> Cfq {
        let whole = BFQ_TIMEOUT_NS.get();
        let slices = Slices { reads_ns: whole, writes_ns: whole / BFQ_ASYNC_CHARGE.get() };
        Cfq { shares: true, ..Cfq::with(slices).knowing(Seeks::default()) }
    }

    /// cfq_check_fifo: once a slice (cfq_mark_queue_fifo_expire).
    pub fn looks_for_overdue(&mut self, of_reader: bool) -> Option<u64> {
        let is_new = self.looked.replace(self.slice_end_ns) != Some(self.slice_end_ns);
        let expire = if of_reader { FIFO_SYNC_NS } else { FIFO_ASYNC_NS };
        is_new.then_some(expire.get())
    }

    /// A request that somebody waits for is queued.
    pub fn note(&mut self, request: Queued, has_arm: bool, now_ns: u64) {
        self.windows.note(request, has_arm, now_ns);
    }

    /// The device was given one.
    pub fn took(&mut self, write: bool) {
        self.wrote = write;
        self.all_wrote &= write;
    }

    /// The same of one that nobody waits for.
    pub fn took_write(&mut self) {
        self.may.iter_mut().for_each(MayDispatch::took_write);
    }

    /// The device has answered one; of those that somebody waits for by whom and since when.
    pub fn ended(&mut self, waited: Option<(TaskId, u64)>, now_ns: u64) {
        self.may.iter_mut().for_each(|may| may.ended(waited.map(|(_, since_ns)| since_ns), now_ns));
        waited.into_iter().for_each(|(owner, _)| self.windows.ended(owner, now_ns));
    }

    /// cfq_forced_dispatch: what is queued all goes to the device.
    pub fn drained(&mut self) {
        (self.active, self.idle_until_ns) = (None, None);
    }

    /// Whether it shares its slice with all others that are not waited for.
    fn seeks(&self, reader: TaskId) -> bool {
        self.shares && self.windows.is_clear(reader)
    }

    /// cfq_cfqq_idle_window is clear: its slice is over with the dispatch (__cfq_dispatch_requests, 2.6.18).
    fn is_let_go(&self, queue: Queue) -> bool {
        matches!(queue, Queue::Reader(reader) if !self.shares && self.windows.is_clear(reader))
    }

    /// cfq_completed_request, cfq_should_idle: whether its next request is waited for.
    fn waits_for(&self, queue: Queue) -> bool {
        match queue {
            Queue::Reader(_) => !self.wrote || self.sync_writes == SyncWrites::WaitedFor,
            Queue::Seekers => !self.all_wrote,
            Queue::Writes => false,
        }
    }

    fn has_queued(&self, queue: Queue, readers: &BTreeSet<TaskId>, writes: bool) -> bool {
        match queue {
            Queue::Reader(reader) => readers.contains(&reader),
            Queue::Seekers => readers.iter().any(|&reader| self.seeks(reader)),
            Queue::Writes => writes,
        }
    }

    fn asked(&self, in_service: usize, readers: &BTreeSet<TaskId>, writes: bool) -> Asked {
        Asked {
            writes: self.active == Some(Queue::Writes),
            has_rivals: readers.len() + usize::from(writes) > 1,
            in_service: in_service as u64,
            slice_end_ns: self.slice_end_ns,
            idle_ns: self.windows.idle_ns(),
            step_ns: SLICE_SYNC_NS.get(),
        }
    }

    /// The active queue's slice is over: its time, or the writes had their part of it or have to let a reader pass.
    fn ends(&self, readers: &BTreeSet<TaskId>, now_ns: u64) -> bool {
        let passes = self.preempts || self.may.is_some_and(|may| may.is_spent());
        now_ns >= self.slice_end_ns || (passes && self.active == Some(Queue::Writes) && !readers.is_empty())
    }

    /// cfq_may_dispatch: who will be waited for begins once the device has answered all writes.
    fn begins_alone(&self, queue: Option<Queue>, readers: &BTreeSet<TaskId>) -> bool {
        match queue {
            Some(Queue::Reader(reader)) => !self.windows.is_clear(reader),
            Some(Queue::Seekers) => readers.iter().filter(|&&reader| self.seeks(reader)).count() == 1,
            Some(Queue::Writes) | None => false,
        }
    }

    /// Whether nothing more is given to the device, which has `served` requests, until it has answered some: a slice is over, or waited
    /// out, once all of it is done, and of one queue there are no more than `may` allows.
    #[must_use]
    pub fn waits(&self, served: (usize, u64), readers: &BTreeSet<TaskId>, writes: bool, has_arm: bool) -> bool {
        let (in_service, now_ns) = served;
        let is_full = || {
            let asked = self.asked(in_service, readers, writes);
            self.may.is_some_and(|may| !may.allows(asked, now_ns))
        };
        let goes_on = self.active.is_some_and(|active| self.has_queued(active, readers, writes));
        match self.active {
            _ if in_service == 0 => false,
            Some(Queue::Writes)
                if self.may.is_some_and(|may| may.drains_writes())
                    && self.ends(readers, now_ns)
                    && !readers.is_empty() =>
            {
                (has_arm || !self.shares) && self.begins_alone(self.next(readers, writes), readers)
            }
            Some(Queue::Seekers) if goes_on => false,
            Some(active) if self.is_let_go(active) => false,
            // cfq_should_idle: a device without an arm goes on with the next queue.
            _ if self.shares && !has_arm => is_full(),
            _ => !goes_on || is_full(),
        }
    }

    /// Whose request is to be served, from who has any queued; `has_arm` says whether waiting for a reader pays.
    pub fn turn(&mut self, readers: &BTreeSet<TaskId>, writes: bool, has_arm: bool, now_ns: u64) -> Turn {
        let ends = self.ends(readers, now_ns);
        let goes_on = |active: &Queue| !ends && !self.is_let_go(*active);
        if let Some(active) = self.active.filter(goes_on) {
            if self.has_queued(active, readers, writes) {
                self.idle_until_ns = None;
                return self.as_turn(active, readers);
            }
            let until = *self.idle_until_ns.get_or_insert(self.windows.until(now_ns));
            let until = until.min(self.slice_end_ns);
            if self.waits_for(active) && has_arm && now_ns < until {
                return Turn::Idle(until);
            }
        }
        self.idle_until_ns = None;
        let next = self.next(readers, writes);
        self.all_wrote = true;
        self.may.iter_mut().for_each(MayDispatch::begin_slice);
        self.active = next;
        let Some(queue) = next else { return Turn::Nobody };
        let queues = readers.len() as u64 + u64::from(writes);
        let slice_ns = match queue {
            Queue::Reader(_) => self.scaled(self.slices.reads_ns, queues),
            Queue::Writes => self.scaled(self.slices.writes_ns, queues),
            Queue::Seekers => {
                self.scaled(self.slices.reads_ns, queues);
                let seekers = readers.iter().filter(|&&reader| self.seeks(reader)).count() as u64;
                (TARGET_LATENCY_NS.get() * seekers / queues).max(2 * self.windows.idle_ns())
            }
        };
        self.slice_end_ns = now_ns + slice_ns;
        self.as_turn(queue, readers)
    }

    /// One reader after the other, then those that seek, and past them the writes' turn.
    fn next(&self, readers: &BTreeSet<TaskId>, writes: bool) -> Option<Queue> {
        let in_order = |from: TaskId| readers.range(from..).copied().find(|&reader| !self.seeks(reader));
        let seekers = self.has_queued(Queue::Seekers, readers, writes).then_some(Queue::Seekers);
        let writes = writes.then_some(Queue::Writes);
        let after = match self.active {
            Some(Queue::Reader(last)) => in_order(last + 1).map(Queue::Reader).or(seekers).or(writes),
            Some(Queue::Seekers) => writes,
            Some(Queue::Writes) | None => None,
        };
        after.or_else(|| in_order(0).map(Queue::Reader)).or(seekers).or(writes)
    }

    fn as_turn(&mut self, queue: Queue, readers: &BTreeSet<TaskId>) -> Turn {
        match queue {
            Queue::Reader(reader) => Turn::Reader(reader),
            Queue::Writes => Turn::Writes,
            Queue::Seekers => {
                let seekers: Vec<TaskId> = readers.iter().copied().filter(|&reader| self.seeks(reader)).collect();
                let next = self.windows.seeks.as_mut().and_then(|seeks| seeks.next(seekers.into_iter()));
                next.map_or(Turn::Nobody, Turn::Reader)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Cfq, Queue, Turn};
    use crate::idle_window::Queued;
    use crate::kernel::{CfqDepth, SyncWrites};
    use crate::may_dispatch::MayDispatch;

    const MS: u64 = 1_000_000;

    fn read(owner: u32, position: u64) -> Queued {
        Queued { owner, write: false, position, pages: 4 }
    }

    #[test]
    fn a_readers_request_ends_the_slice_of_the_writes_from_2_6_22_on() {
        for (preempts, next) in [(false, Turn::Writes), (true, Turn::Reader(3))] {
            let mut cfq = Cfq { preempts, ..Cfq::default() };
            assert_eq!(cfq.turn(&BTreeSet::new(), true, false, 0), Turn::Writes);
            assert_eq!(cfq.turn(&BTreeSet::from([3]), true, false, MS), next);
        }
    }

    #[test]
    fn a_slice_of_writes_is_over_after_sixteen_of_them_if_somebody_else_waits() {
        let mut cfq = Cfq { may: Some(MayDispatch::new(Some(CfqDepth::Any), 1)), ..Cfq::default() };
        let (none, reader) = (BTreeSet::new(), BTreeSet::from([3]));
        assert_eq!(cfq.turn(&none, true, false, 0), Turn::Writes);
        (0..16).for_each(|_| cfq.took_write());
        assert_eq!(cfq.turn(&none, true, false, MS), Turn::Writes, "nobody does");
        assert_eq!(cfq.turn(&reader, true, false, MS), Turn::Reader(3));
        assert_eq!(cfq.turn(&none, true, false, 2 * MS), Turn::Writes);
        (0..15).for_each(|_| cfq.took_write());
        assert_eq!(cfq.turn(&reader, true, false, 3 * MS), Turn::Writes, "the sixteenth");
    }

    #[test]
    fn who_will_be_waited_for_begins_once_all_writes_are_answered() {
        let none = BTreeSet::new();
        let waits = |readers: &[u32], seekers: &[u32], has_arm: bool| {
            let may = Some(MayDispatch::new(Some(CfqDepth::SinceLateSync), 1));
            let mut cfq = Cfq { preempts: true, may, ..Cfq::with_target_latency() };
            for (&reader, at) in seekers.iter().flat_map(|reader| (0..8).map(move |at| (reader, at))) {
                cfq.note(read(reader, at * 5000), true, 0);
            }
            assert_eq!(cfq.turn(&none, true, has_arm, 0), Turn::Writes);
            cfq.waits((3, MS), &readers.iter().copied().collect(), true, has_arm)
        };
        assert!(waits(&[3], &[], true), "its next request will be waited for");
        assert!(waits(&[3], &[3], true), "the last of those that seek, too");
        assert!(!waits(&[3, 7], &[3, 7], true), "others are not");
        assert!(!waits(&[3], &[], false), "nor is anybody without an arm");
        assert!(!waits(&[], &[], true));
    }

    #[test]
    fn readers_and_writes_take_turns_by_slices() {
        let mut cfq = Cfq::default();
        let readers = BTreeSet::from([3, 7]);
        let turns: Vec<Turn> = (0..26).map(|step| cfq.turn(&readers, true, false, step * 10 * MS)).collect();
        let count = |wanted: Turn| turns.iter().filter(|turn| **turn == wanted).count();
        assert_eq!((count(Turn::Reader(3)), count(Turn::Reader(7)), count(Turn::Writes)), (12, 10, 4));
        assert_eq!((turns[0], turns[10], turns[20], turns[24]), {
            (Turn::Reader(3), Turn::Reader(7), Turn::Writes, Turn::Reader(3))
        });
    }

    #[test]
    fn from_2_6_33_on_slices_are_cut_so_that_all_fit_into_300_ms_but_not_below_twice_the_idling() {
        let mut cfq = Cfq::with_target_latency();
        // (3 * 3 + 0 + 2) / 4 = 2 queues on the mean, then (3 * 3 + 2 + 2) / 4 = 3: 300 ms are enough for them.
        assert_eq!([3, 3, 3].map(|queues| cfq.scaled(100 * MS, queues)), [100 * MS; 3]);
        cfq.busy = Some(6);
        assert_eq!(cfq.scaled(100 * MS, 6), 50 * MS, "100 * 300 / 600");
        cfq.busy = Some(32);
        assert_eq!(
            (cfq.scaled(100 * MS, 32), cfq.scaled(40 * MS, 32)),
            (16 * MS, 32 * MS / 5),
            "16, and 16 * 40 / 100"
        );
        assert_eq!(Cfq::default().scaled(100 * MS, 32), 100 * MS, "2.6.32");
    }

    #[test]
    fn an_arm_waits_for_the_reader_whose_slice_it_is_and_not_for_long() {
        let (one, none) = (BTreeSet::from([3]), BTreeSet::new());
        let mut cfq = Cfq::default();
        assert_eq!(cfq.turn(&one, true, true, 0), Turn::Reader(3));
        assert_eq!(cfq.turn(&none, true, true, MS), Turn::Idle(9 * MS));
        assert_eq!(cfq.turn(&one, true, true, 5 * MS), Turn::Reader(3), "it came back in time");
        assert_eq!(cfq.turn(&none, true, true, 6 * MS), Turn::Idle(14 * MS));
        assert_eq!(cfq.turn(&none, true, true, 14 * MS), Turn::Writes);
        assert_eq!(cfq.turn(&none, false, true, 60 * MS), Turn::Nobody);
        let mut flash = Cfq::default();
        assert_eq!(flash.turn(&one, true, false, 0), Turn::Reader(3));
        assert_eq!(flash.turn(&none, true, false, MS), Turn::Writes, "without an arm nobody waits");
    }

    #[test]
    fn readers_that_seek_share_a_slice_from_2_6_33_on_and_the_device_has_requests_of_all_of_them() {
        let readers = BTreeSet::from([1, 2, 3]);
        let far = |cfq: &mut Cfq, reader: u32| (0..8).for_each(|at| cfq.note(read(reader, at * 5000), true, 0));
        let mut cfq = Cfq::with_target_latency();
        cfq.may = Some(MayDispatch::new(Some(CfqDepth::SinceLateSync), 1));
        [1, 3].into_iter().for_each(|reader| far(&mut cfq, reader));
        let mut at = |now_ms: u64, readers: &BTreeSet<_>| cfq.turn(readers, false, true, now_ms * MS);
        assert_eq!([at(0, &readers), at(99, &readers)], [Turn::Reader(2); 2], "the one that reads in order alone");
        // 300 ms * 2 of 3 queues.
        assert_eq!([100, 101, 102].map(|now| at(now, &readers)), [Turn::Reader(1), Turn::Reader(3), Turn::Reader(1)]);
        assert_eq!([at(299, &readers), at(301, &readers)], [Turn::Reader(3), Turn::Reader(2)]);
        cfq.active = Some(Queue::Seekers);
        let waits = |cfq: &Cfq, readers: &[u32]| cfq.waits((9, 0), &readers.iter().copied().collect(), false, true);
        assert!(
            !waits(&cfq, &[1]) && waits(&cfq, &[2]),
            "whoever seeks adds to the nine; for the last of them is waited"
        );
        let mut old = Cfq::default();
        [1, 3].into_iter().for_each(|reader| far(&mut old, reader));
        assert_eq!(old.turn(&readers, false, true, 0), Turn::Reader(1));
        assert!(old.waits((1, 0), &BTreeSet::from([2, 3]), false, true), "2.6.32: one after the other");
        cfq.active = Some(Queue::Reader(2));
        assert!(!cfq.waits((3, 0), &readers, false, false) && cfq.waits((4, 0), &readers, false, false), "no arm");
    }

    #[test]
    fn up_to_2_6_27_a_device_that_queues_is_not_kept_for_who_seeks() {
        let readers = BTreeSet::from([1, 2, 3]);
        let mut cfq = Cfq::of_queueing_device();
        // The first request is at 300 000 pages; the mean distance is over 16384 pages from then on.
        [1, 3].into_iter().for_each(|reader| cfq.note(read(reader, 300_000), true, 0));
        [1, 2, 3].into_iter().for_each(|reader| cfq.note(read(reader, 4), true, 0));
        assert_eq!(cfq.turn(&readers, true, true, 0), Turn::Reader(1));
        let left = BTreeSet::from([2, 3]);
        assert!(!cfq.waits((1, 0), &left, true, true), "the device gets more before it has answered the first");
        assert_eq!(cfq.turn(&left, true, true, 0), Turn::Reader(2));
        let left = BTreeSet::from([3]);
        assert!(cfq.waits((2, 0), &left, true, true), "the second reads in order");
        assert_eq!(cfq.turn(&left, true, true, 0), Turn::Idle(8 * MS));
        assert_eq!(cfq.turn(&left, true, true, 8 * MS), Turn::Reader(3));
        assert_eq!(cfq.turn(&BTreeSet::new(), true, true, 8 * MS), Turn::Writes);
    }

    /// What comes after a request of one process was served, while another's is queued.
    fn after(cfq: &mut Cfq, write: bool) -> Turn {
        cfq.note(Queued { write, ..read(3, 4) }, true, 0);
        assert_eq!(cfq.turn(&BTreeSet::from([3]), false, true, 0), Turn::Reader(3));
        cfq.took(write);
        cfq.turn(&BTreeSet::from([7]), false, true, MS)
    }

    #[test]
    fn who_writes_for_an_fsync_is_waited_for_in_2_6_33_to_2_6_36() {
        let of = |sync_writes| {
            let mut cfq = Cfq { sync_writes, ..Cfq::with_target_latency() };
            cfq.windows.clears_for_sync_writes = sync_writes == SyncWrites::AmongSeekers;
            [false, true].map(|write| after(&mut cfq, write))
        };
        assert_eq!(of(SyncWrites::WaitedFor), [Turn::Idle(9 * MS); 2]);
        assert_eq!(of(SyncWrites::NotWaitedFor), [Turn::Idle(9 * MS), Turn::Reader(7)]);
        assert_eq!(of(SyncWrites::AmongSeekers), [Turn::Idle(9 * MS), Turn::Reader(7)]);
    }

    #[test]
    fn who_thinks_for_long_is_not_waited_for() {
        for (pause_ms, thinks) in [(10, true), (5, false)] {
            let of = |mut cfq: Cfq| {
                for (reader, step) in [3, 7].into_iter().flat_map(|reader| (0..4).map(move |step| (reader, step))) {
                    cfq.note(read(reader, 4), true, step * pause_ms * MS);
                    cfq.windows.ended(reader, step * pause_ms * MS);
                }
                assert_eq!(cfq.turn(&BTreeSet::from([3]), false, true, 40 * MS), Turn::Reader(3));
                cfq.took(false);
                let next = BTreeSet::from([7]);
                (cfq.waits((1, 0), &next, false, true), cfq.turn(&next, false, true, 41 * MS))
            };
            let expected = if thinks { (false, Turn::Reader(7)) } else { (true, Turn::Idle(49 * MS)) };
            assert_eq!(of(Cfq::default()), expected, "2.6.32, {pause_ms} ms");
            assert_eq!(of(Cfq::with_target_latency()), expected, "2.6.33, where both share a slice, {pause_ms} ms");
        }
    }

    #[test]
    fn a_barrier_ends_the_wait() {
        let mut cfq = Cfq::default();
        assert!(matches!(after(&mut cfq, false), Turn::Idle(_)));
        cfq.drained();
        assert_eq!(cfq.turn(&BTreeSet::from([7]), false, true, MS), Turn::Reader(7));
    }
}

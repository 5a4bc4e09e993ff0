//! How many requests of one of its queues CFQ lets the device have at once (block/cfq-iosched.c: cfq_may_dispatch).
//!
//! Models: from 2.6.22 on the quantum where other queues are busy (from 2.6.34 on twice as many once a slice has begun and while it is not about to end);
//! of the only busy queue what the version allows; from 2.6.32 on of the writes that nobody waits for one more for each length of a
//! reader's slice since a request that somebody waited for was done, from 2.6.33 on since one was late. Leaves out: priorities, and
//! the tunable that turns the last off (low_latency).

use super::constant::constants;
use super::kernel::CfqDepth;

constants! {
    const QUANTUM: u64 = kernel(4, "block/cfq-iosched.c", "cfq_quantum", "2.6.32");
    const LATER_QUANTUM: u64 = kernel(8, "block/cfq-iosched.c", "cfq_quantum", "2.6.35");
    /// Of 2.6.22 to 2.6.32, for the only queue.
    const SOLE_QUANTA: u64 = kernel(4, "block/cfq-iosched.c", "cfq_dispatch_requests (4 * max_dispatch)", "2.6.22");
    /// A request that somebody waits for and that takes no less is late.
    const LATE_NS: u64 = kernel(125_000_000, "block/cfq-iosched.c", "cfq_fifo_expire[1] (HZ / 8)", "2.6.35");
    /// So long before the start the last one was late (cfq_init_queue).
    const NEVER_LATE_NS: u64 = kernel(1_000_000_000, "block/cfq-iosched.c", "cfq_init_queue (last_delayed_sync)", "2.6.35");
    /// Requests of writes in a slice while others are busy: 2 * (2 + 2 * (8 - 1 - 4)) at the usual priority.
    const WRITES_A_SLICE: u64 = kernel(16, "block/cfq-iosched.c", "cfq_prio_to_maxrq, cfq_slice_async_rq (2)", "2.6.32");
}

/// The queue that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub writes: bool,
    /// Others have requests queued, too.
    pub has_rivals: bool,
    /// Requests that the device has.
    pub in_service: u64,
    pub slice_end_ns: u64,
    pub idle_ns: u64,
    /// What a writer's depth grows by one in.
    pub step_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct MayDispatch {
    /// None: bfq's, in outline the quantum for everybody.
    depth: Option<CfqDepth>,
    /// md's drives have a queue each, with all of this for itself.
    queues: u64,
    /// Since when there was none, or none that was late, shifted by what a queue begins with.
    last_sync_ns: Option<u64>,
    /// Nothing of the active queue was answered in its slice yet (cfq_cfqq_slice_new).
    slice_is_new: bool,
    writes_of_slice: u64,
}

impl MayDispatch {
    #[must_use]
    pub fn new(depth: Option<CfqDepth>, queues: u64) -> MayDispatch {
        MayDispatch { depth, queues, last_sync_ns: None, slice_is_new: true, writes_of_slice: 0 }
    }

    /// A queue becomes the active one.
    pub fn begin_slice(&mut self) {
        (self.slice_is_new, self.writes_of_slice) = (true, 0);
    }

    /// The device was given one that nobody waits for.
    pub fn took_write(&mut self) {
        self.writes_of_slice += 1;
    }

    /// cfq_completed_request; `waited_since_ns` of one that somebody waits for.
    pub fn ended(&mut self, waited_since_ns: Option<u64>, now_ns: u64) {
        self.slice_is_new = false;
        let Some(since_ns) = waited_since_ns else { return };
        if self.depth == Some(CfqDepth::SinceSync) || now_ns - since_ns >= LATE_NS.get() {
            self.last_sync_ns = Some(now_ns);
        }
    }

    /// Who will be waited for begins once no writes are left at the device (cfq_may_dispatch: "Drain async requests").
    #[must_use]
    pub fn drains_writes(&self) -> bool {
        matches!(self.depth, Some(CfqDepth::SinceSync | CfqDepth::SinceLateSync | CfqDepth::Twice))
    }

    /// cfq_dispatch_requests: writes had their part of the slice.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.depth.is_some() && self.writes_of_slice >= WRITES_A_SLICE.get() * self.queues
    }

    /// cfq_slice_used_soon.
    fn ends_soon(&self, asked: Asked, now_ns: u64) -> bool {
        self.slice_is_new || now_ns + asked.idle_ns * (asked.in_service / self.queues) > asked.slice_end_ns
    }

    fn most(&self, asked: Asked, now_ns: u64) -> Option<u64> {
        let Some(depth) = self.depth else { return Some(QUANTUM.get()) };
        match (depth, asked.has_rivals) {
            (CfqDepth::Any, _) => None,
            (CfqDepth::Twice, true) if self.ends_soon(asked, now_ns) => Some(LATER_QUANTUM.get() / 2),
            (CfqDepth::Twice, true) => Some(LATER_QUANTUM.get()),
            (_, true) => Some(QUANTUM.get()),
            (CfqDepth::FourfoldAlone | CfqDepth::SinceSync, false) => Some(SOLE_QUANTA.get() * QUANTUM.get()),
            (CfqDepth::SinceLateSync | CfqDepth::Twice, false) => None,
        }
    }

    /// What a queue of writes may have by how long ago somebody had to wait.
    fn most_writes(&self, asked: Asked, now_ns: u64) -> Option<u64> {
        let since_ns = match (self.depth?, self.last_sync_ns) {
            (CfqDepth::Any | CfqDepth::FourfoldAlone, _) => return None,
            (_, Some(last_ns)) => now_ns - last_ns,
            (CfqDepth::SinceSync, None) => now_ns,
            (CfqDepth::SinceLateSync | CfqDepth::Twice, None) => now_ns + NEVER_LATE_NS.get(),
        };
        let steps = since_ns / asked.step_ns;
        Some(if asked.in_service == 0 { steps.max(1) } else { steps })
    }

    #[must_use]
    pub fn allows(&self, asked: Asked, now_ns: u64) -> bool {
        let most = self.most(asked, now_ns).unwrap_or(u64::MAX);
        let of_writes = self.most_writes(asked, now_ns).filter(|_| asked.writes).unwrap_or(u64::MAX);
        asked.in_service < most.min(of_writes).saturating_mul(self.queues)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, MayDispatch};
    use crate::kernel::CfqDepth;

    const MS: u64 = 1_000_000;

    /// The most requests that the device gets of a queue, at an instant.
    fn most(may: &MayDispatch, writes: bool, has_rivals: bool, now_ms: u64) -> u64 {
        let asked = |in_service| Asked {
            writes,
            has_rivals,
            in_service,
            slice_end_ns: 100 * MS,
            idle_ns: 8 * MS,
            step_ns: 100 * MS,
        };
        (0..100).find(|&in_service| !may.allows(asked(in_service), now_ms * MS)).unwrap_or(100)
    }

    #[test]
    fn beside_others_a_queue_has_its_quantum_and_alone_what_the_version_allows() {
        let of = |depth, queues| {
            let may = MayDispatch::new(Some(depth), queues);
            [true, false].map(|has_rivals| most(&may, false, has_rivals, 0))
        };
        assert_eq!(of(CfqDepth::Any, 1), [100, 100], "2.6.18");
        assert_eq!(of(CfqDepth::FourfoldAlone, 1), [4, 16], "2.6.29");
        assert_eq!(of(CfqDepth::SinceSync, 2), [8, 32], "2.6.32, two drives of md's");
        assert_eq!(of(CfqDepth::SinceLateSync, 1), [4, 100], "2.6.33");
    }

    #[test]
    fn from_2_6_34_on_a_slice_that_has_begun_gets_eight_while_eight_waits_fit_into_it() {
        let mut may = MayDispatch::new(Some(CfqDepth::Twice), 1);
        assert_eq!(most(&may, false, true, 0), 4, "none was answered yet");
        may.ended(None, 0);
        // 40 + 8 * 8 > 100, and so is 70 + 8 * 4.
        assert_eq!([30, 40, 70].map(|now| most(&may, false, true, now)), [8, 8, 4]);
        may.begin_slice();
        assert_eq!(most(&may, false, true, 30), 4);
    }

    #[test]
    fn writes_get_one_more_for_each_tenth_of_a_second_since_somebody_was_served() {
        let mut may = MayDispatch::new(Some(CfqDepth::SinceSync), 1);
        assert_eq!([0, 199, 450].map(|now| most(&may, true, true, now)), [1, 1, 4], "since the start");
        may.ended(Some(999 * MS), 1000 * MS);
        assert_eq!([1000, 1199, 1200, 1399].map(|now| most(&may, true, true, now)), [1, 1, 2, 3]);
        assert_eq!(most(&may, true, false, 3000), 16, "alone, later");
        assert_eq!(most(&may, false, true, 1000), 4, "reads");
    }

    #[test]
    fn from_2_6_33_on_only_those_that_were_late_count() {
        let mut may = MayDispatch::new(Some(CfqDepth::SinceLateSync), 1);
        assert_eq!(most(&may, true, false, 0), 10, "as if the last had been a second ago");
        may.ended(Some(900 * MS), 1000 * MS);
        assert_eq!(most(&may, true, false, 1000), 20, "100 ms are in time");
        may.ended(Some(875 * MS), 1000 * MS);
        assert_eq!([1000, 1250, 1850].map(|now| most(&may, true, false, now)), [1, 2, 8]);
    }

    #[test]
    fn bfq_has_the_quantum_of_everybody() {
        let mut may = MayDispatch::new(None, 1);
        (0..20).for_each(|_| may.took_write());
        assert_eq!([true, false].map(|has_rivals| most(&may, true, has_rivals, 0)), [4, 4]);
        assert!(!may.is_spent());
    }

    #[test]
    fn sixteen_writes_are_a_slice() {
        let mut may = MayDispatch::new(Some(CfqDepth::Any), 1);
        (0..15).for_each(|_| may.took_write());
        assert!(!may.is_spent());
        may.took_write();
        assert!(may.is_spent());
        may.begin_slice();
        assert!(!may.is_spent());
    }
}

//! Flushes of the device's cache, which no elevator sorts.
//!
//! Models: a flush goes past all that is queued (block/blk-flush.c, 2.6.37 and later). Up to 2.6.36 it is a barrier (block/blk-barrier.c):
//! all that is queued when it comes goes to the device before it, in one sweep upwards (elv_drain_elevator, elv_dispatch_sort), ends CFQ's
//! slice, and is done before it begins; nothing goes with it, and of a device without a cache nothing is flushed (QUEUE_ORDERED_DRAIN).
//! Leaves out: that the commit record's write is part of the barrier.

use std::cmp::Reverse;

use super::{Block, Request};
use crate::requests::Deadline;

impl Block {
    pub(super) fn push_flush(&mut self, flush: Request) {
        if self.rule.drains {
            self.drain();
        }
        self.past.push_back(flush);
    }

    fn drain(&mut self) {
        let (head, in_order) = (self.head, self.device.model.in_order);
        let sides = std::mem::take(&mut self.sides);
        let mut all: Vec<Request> = sides.into_iter().flat_map(|side| side.sorted.into_values()).collect();
        if in_order {
            all.sort_unstable_by_key(|request| request.order);
        } else {
            all.sort_unstable_by_key(|request| (Reverse(request.position >= head), request.position, request.order));
        }
        self.past.extend(all);
        // The next request of a batch is not there any more.
        self.deadline = Deadline::default();
        self.turns.iter_mut().for_each(|turns| turns.drained());
    }

    /// What goes to the device before anything that is sorted: nothing at all (`Some(None)`) while a barrier keeps it for itself.
    pub(super) fn next_past(&mut self) -> Option<Option<Request>> {
        if self.has_barrier {
            return Some(None);
        }
        let is_barrier = self.past.front()?.is_flush() && self.rule.drains;
        if is_barrier && self.device.accepted() > 0 {
            return Some(None);
        }
        self.has_barrier = is_barrier;
        Some(self.past.pop_front())
    }

    /// Whether a device has nothing to do for it.
    pub(super) fn flushes_nothing(&self, request: &Request) -> bool {
        request.is_flush() && !self.caches_writes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::block;
    use crate::kernel::QueueRule;
    use crate::requests::{Done, Request};

    fn write(position: u64, pages: u32) -> Request {
        Request::new(true, position, pages, Done::Wake(0))
    }

    #[test]
    fn a_batch_that_was_under_way_is_begun_anew_after_what_a_barrier_drained() {
        let mut disk = block();
        disk.set_rules(true, QueueRule { drains: true, ..QueueRule::default() }, 1);
        [100, 200].into_iter().for_each(|position| disk.push(write(position, 1)));
        assert_eq!(disk.next(1).map(|request| request.position), Some(100), "and 200 is next of the batch");
        disk.push(write(0, 0));
        assert_eq!([1, 1].map(|now_ns| disk.next(now_ns).map(|request| request.position)), [Some(200), Some(0)]);
        disk.push(write(300, 1));
        assert!(disk.next(1).is_none(), "the barrier is not done");
        disk.has_barrier = false;
        assert_eq!(disk.next(1).map(|request| request.position), Some(300));
    }

    #[test]
    fn up_to_2_6_36_what_is_queued_goes_before_a_flush_and_nothing_with_it() {
        for drains in [true, false] {
            let mut disk = block();
            disk.device.model.depth = 8;
            disk.set_rules(true, QueueRule { drains, ..QueueRule::default() }, 1);
            disk.head = 600;
            [900, 100, 700].into_iter().for_each(|position| disk.push(write(position, 1)));
            disk.push(write(0, 0));
            disk.push(write(650, 1));
            let mut begun = Vec::new();
            let mut now_ns = 0;
            for _ in 0..8 {
                let before = disk.device.accepted();
                while let Some(request) = disk.next(now_ns) {
                    begun.push((request.position, disk.device.accepted() - before));
                    disk.device.accept(request, 0, now_ns);
                }
                now_ns = disk.device.next_ns().unwrap_or(now_ns).max(now_ns + 1);
                while let Some(done) = disk.device.answer(now_ns) {
                    disk.has_barrier &= !done.is_flush();
                }
            }
            let places: Vec<u64> = begun.iter().map(|(position, _)| *position).collect();
            let alone = begun.iter().filter(|(_, beside)| *beside == 0).count();
            if drains {
                assert_eq!(
                    (places, alone),
                    (vec![700, 900, 100, 0, 650], 3),
                    "a sweep from 600 on, the flush, and what came later"
                );
            } else {
                assert_eq!((places[0], alone), (0, 1), "past all of them: {places:?}");
            }
        }
    }
}

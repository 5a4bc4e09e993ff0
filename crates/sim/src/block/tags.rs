//! The number of requests of a queue, which tasks may take one, and which are woken when one is free.
//!
//! Models: `struct request_list` of 2.6 (`requests`); on 6.x the tags of blk-mq, one set for reads and writes: the
//! scheduler's (`blk_mq_init_sched`) or, without a scheduler, the device's (`blk_mq_get_tag`); sleepers are woken eight
//! at a time when eight tags are free (`sbitmap_queue_wake_up`, `sbq_calc_wake_batch`). A queue of blk-mq is never
//! congested. Leaves out: a set for each hardware queue, and the quarter of the tags that mq-deadline reserves for
//! reads (6.9).

use super::Block;
use crate::block::requests::{Batcher, Pool, Request, congestion_thresholds};
use crate::constant::constants;
use crate::machine::knobs::NR_REQUESTS;
use crate::sched::clock::Clock;

constants! {
    const SCHED_DEPTH_MAX: u32 = kernel(128, "block/blk-mq-sched.c", "blk_mq_init_sched (BLKDEV_DEFAULT_RQ)", "6.1");
    const NVME_TAGS: u32 = kernel(1023, "drivers/nvme/host/pci.c", "io_queue_depth, one of which stays empty", "6.1");
    const WAKE_BATCH: u32 = kernel(8, "include/linux/sbitmap.h", "SBQ_WAKE_BATCH", "6.1");
    const WAIT_QUEUES: u32 = kernel(8, "include/linux/sbitmap.h", "SBQ_WAIT_QUEUES", "6.1");
}

/// sbq_calc_wake_batch: number of freed tags after which sleepers are woken, and number of sleepers woken.
fn wake_batch(depth: u32) -> u32 {
    (depth / WAIT_QUEUES.get()).clamp(1, WAKE_BATCH.get())
}

impl Pool {
    fn try_take_tag(&mut self, limit: u32) -> bool {
        let free = self.count < limit;
        self.count += u32::from(free);
        free
    }

    /// sbitmap_queue_wake_up: tags that become free while no task sleeps do not count.
    fn put_tag(&mut self, depth: u32, clock: &Clock) {
        self.count -= 1;
        if self.waiting.is_empty() {
            return;
        }
        self.freed += 1;
        let batch = wake_batch(depth);
        if self.freed >= batch {
            self.freed = 0;
            (0..batch).for_each(|_| self.waiting.wake_one(clock));
        }
    }
}

impl Block {
    /// Sets queue/nr_requests, or the kernel's default.
    pub fn set_requests(&mut self, given: Option<u64>) {
        let own = given.map_or_else(|| self.requests_unasked(), |given| given.min(u64::from(u32::MAX)) as u32);
        self.nr_requests = own.max(4);
    }

    /// The value in /sys.
    pub fn requests(&self) -> u32 {
        self.nr_requests
    }

    fn requests_unasked(&self) -> u32 {
        let model = &self.device.model;
        let depth = model.depth as u32;
        match (self.multi_queue, model.in_order) {
            (false, _) => NR_REQUESTS.get() as u32,
            (true, false) => 2 * depth.min(SCHED_DEPTH_MAX.get()),
            (true, true) if model.has_arm() => depth,
            (true, true) => NVME_TAGS.get(),
        }
    }

    /// Takes one request of the kind, if the caller may have it now.
    pub(crate) fn try_take(&mut self, sync: bool, batcher: &mut Batcher, now_ns: u64) -> bool {
        let limit = self.nr_requests;
        if !self.multi_queue {
            return self.pool(sync).try_take(limit, batcher, now_ns);
        }
        self.pool(sync).try_take_tag(limit)
    }

    /// Whether fewer tags are free than a wake batch.
    pub(crate) fn is_scarce(&self) -> bool {
        let all = self.nr_requests;
        self.multi_queue && self.pools[0].count + wake_batch(all) >= all
    }

    /// Frees a request and wakes tasks that may take it. Returns whether that ended a congestion of asynchronous
    /// requests.
    pub(crate) fn put(&mut self, request: &Request, clock: &Clock) -> bool {
        let (limit, multi_queue) = (self.nr_requests, self.multi_queue);
        let pool = self.pool(request.sync);
        if multi_queue {
            pool.put_tag(limit, clock);
            return false;
        }
        pool.count -= 1;
        // __freed_request.
        let relieved = pool.count < congestion_thresholds(limit).1 && std::mem::take(&mut pool.congested);
        if pool.count < limit {
            pool.full = false;
            pool.waiting.wake_one(clock);
        }
        !request.sync && relieved
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::block;
    use super::wake_batch;
    use crate::block::requests::Batcher;

    #[test]
    fn a_queue_has_twice_the_devices_commands_and_without_a_scheduler_as_many() {
        let mut disk = block();
        disk.set_requests(None);
        assert_eq!(disk.requests(), 128, "a queue of 4.20 and before");
        disk.multi_queue = true;
        for (depth, name, requests) in [(32, "mq-deadline", 64), (200, "mq-deadline", 256), (32, "none", 32)] {
            disk.device.model.depth = depth;
            disk.set_scheduler(name);
            disk.set_requests(None);
            assert_eq!(disk.requests(), requests, "{depth} {name}");
        }
        disk.set_requests(Some(1023));
        assert_eq!(disk.requests(), 1023);
    }

    #[test]
    fn reads_and_writes_share_tags() {
        let mut disk = block();
        disk.device.model.depth = 32;
        disk.multi_queue = true;
        disk.set_scheduler("mq-deadline");
        disk.set_requests(None);
        let mut taken =
            |write: bool| (0..200).take_while(|_| disk.try_take(!write, &mut Batcher::default(), 0)).count();
        assert_eq!((taken(true), taken(false)), (64, 0));
        assert!(!disk.congested());
    }

    #[test]
    fn sleepers_are_woken_by_the_eighth_tag_of_a_queue_of_64_or_more() {
        assert_eq!([4, 16, 32, 64, 1023].map(wake_batch), [1, 2, 4, 8, 8]);
    }
}

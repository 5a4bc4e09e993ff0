//! Requests of a queue: the free ones, and the queued ones by position and by age.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use crate::block::device::DeviceId;
use crate::block::wbt::Purpose;
use crate::constant::constants;
use crate::sched::clock::{TaskId, WaitQueue};

/// The action at a request's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Clears writeback of these pages of a window: (inode, window, bits).
    Pages { inode: u32, first_page: u64, pages: u32 },
    /// The pages of a file up to this one have been read ahead.
    Ahead { inode: u32, end: u64 },
    /// Wakes the task that waits for the request.
    Wake(TaskId),
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub device: DeviceId,
    pub write: bool,
    /// Position on the disk, pages.
    pub position: u64,
    pub pages: u32,
    pub done: Done,
    pub queued_ns: u64,
    /// The task that submitted it.
    pub owner: TaskId,
    /// Synchronous (rw_is_sync): a read, and from 2.6.30 on a write for an fsync.
    pub sync: bool,
    /// Its number in the order of arrival.
    pub order: u64,
    /// When the device took it.
    pub begun_ns: u64,
    /// It counts as a throttled write (WBT_TRACKED).
    pub throttled: Option<Purpose>,
    /// The key of merged pages of other files in `Joined`.
    pub joined: Option<NonZeroU32>,
}

impl Request {
    /// A new request to the first device.
    #[must_use]
    pub fn new(write: bool, position: u64, pages: u32, done: Done) -> Request {
        Request {
            device: DeviceId::FIRST,
            write,
            position,
            pages,
            done,
            queued_ns: 0,
            owner: 0,
            sync: false,
            order: 0,
            begun_ns: 0,
            throttled: None,
            joined: None,
        }
    }

    /// Whether a write continues where this one ends, so that both can be one request of at most `most` pages.
    /// Synchronous requests merge only pages of one file (cfq_allow_merge, bfq_allow_bio_merge).
    fn can_back_merge(&self, next: &Request, most: u32) -> bool {
        let (Done::Pages { inode, .. }, Done::Pages { inode: other, .. }) = (self.done, next.done) else {
            return false;
        };
        (self.device, self.write) == (next.device, next.write)
            && self.position + u64::from(self.pages) == next.position
            && self.pages + next.pages <= most
            && (inode == other || (self.write && !self.sync && !next.sync))
    }

    /// The same request, to another device.
    #[must_use]
    pub fn on(self, device: DeviceId) -> Request {
        Request { device, ..self }
    }
}

/// Pages of further files that a request writes, by the request's `joined` number.
#[derive(Debug, Default)]
pub struct Joined {
    last: u32,
    by_number: HashMap<NonZeroU32, Vec<Done>>,
}

impl Joined {
    /// elv_merge, blk_attempt_plug_merge: pages that continue a request join it.
    pub fn merge(&mut self, queued: &mut Request, next: &Request, most: u32) -> bool {
        if !queued.can_back_merge(next, most) {
            return false;
        }
        queued.pages += next.pages;
        let mut parts = queued.joined.and_then(|number| self.by_number.get_mut(&number));
        let last = parts.as_mut().and_then(|parts| parts.last_mut()).unwrap_or(&mut queued.done);
        if let (Done::Pages { inode, first_page, pages }, Done::Pages { inode: same, first_page: page, pages: more }) =
            (last, next.done)
            && *inode == same
            && *first_page + u64::from(*pages) == page
        {
            *pages += more;
            return true;
        }
        let last = &mut self.last;
        let number = *queued.joined.get_or_insert_with(|| {
            *last = last.wrapping_add(1).max(1);
            NonZeroU32::new(*last).unwrap_or(NonZeroU32::MIN)
        });
        self.by_number.entry(number).or_default().push(next.done);
        true
    }

    /// The parts of a completed request by file: the original request, and the merged ones.
    pub fn parts(&mut self, request: Request) -> impl Iterator<Item = Request> + use<> {
        let others = request.joined.and_then(|number| self.by_number.remove(&number)).unwrap_or_default();
        let part = move |done: Done| {
            let pages = if let Done::Pages { pages, .. } = done { pages } else { request.pages };
            Request { done, pages, joined: None, ..request }
        };
        std::iter::once(request.done).chain(others).map(part)
    }
}

/// Key of a queued request: its position, and its number in the order of arrival.
pub type Key = (u64, u64);

/// Free requests of one kind (struct request_list): synchronous or asynchronous.
#[derive(Debug, Default)]
pub struct Pool {
    /// Allocated: queued and in service.
    pub count: u32,
    pub full: bool,
    /// Changes at the on and at the off threshold.
    pub congested: bool,
    pub waiting: WaitQueue,
    /// blk-mq: tags freed since sleepers were last woken.
    pub freed: u32,
}

/// A task's permission to exceed a full queue for a short time (`struct io_context`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Batcher {
    left: u32,
    since_ns: u64,
}

impl Batcher {
    /// block/ll_rw_blk.c: ioc_batching, 2.6.18: a task that has not begun to use its batch keeps it.
    fn batches(&self, now_ns: u64) -> bool {
        self.left == BATCH_REQUESTS.get() || (self.left > 0 && now_ns < self.since_ns + BATCH_NS.get())
    }

    /// ioc_set_batching: a batch in progress continues.
    pub fn begin(&mut self, now_ns: u64) {
        if !self.batches(now_ns) {
            *self = Batcher { left: BATCH_REQUESTS.get(), since_ns: now_ns };
        }
    }
}

constants! {
    /// Requests that a batcher may take beyond a full queue.
    const BATCH_REQUESTS: u32 = kernel(32, "block/ll_rw_blk.c", "BLK_BATCH_REQ", "2.6.18");
    const BATCH_NS: u64 = kernel(20_000_000, "block/ll_rw_blk.c", "BLK_BATCH_TIME (HZ/50)", "2.6.18");
}

/// blk_queue_congestion_threshold: congested from the first number of requests on, until fewer than the second are
/// taken.
#[must_use]
pub fn congestion_thresholds(nr: u32) -> (u32, u32) {
    ((nr - nr / 8 + 1).min(nr), (nr - nr / 8 - nr / 16 - 1).max(1))
}

impl Pool {
    /// get_request: one request, if the caller may have it now.
    pub fn try_take(&mut self, limit: u32, batcher: &mut Batcher, now_ns: u64) -> bool {
        let fills = self.count + 1 >= limit;
        if fills {
            if !self.full {
                // The task that fills the queue becomes its batcher.
                self.full = true;
                batcher.begin(now_ns);
            } else if !batcher.batches(now_ns) {
                return false;
            }
        }
        self.congested |= self.count + 1 >= congestion_thresholds(limit).0;
        if self.count >= limit + limit / 2 {
            return false;
        }
        self.count += 1;
        // Below the limit requests do not count toward the batch.
        if fills && batcher.batches(now_ns) {
            batcher.left -= 1;
        }
        true
    }
}

/// Queued requests of a direction.
#[derive(Debug, Default)]
pub struct Side {
    pub sorted: BTreeMap<Key, Request>,
    /// The same requests, by arrival.
    pub fifo: BTreeMap<u64, u64>,
}

impl Side {
    pub fn push(&mut self, order: u64, request: Request) {
        self.fifo.insert(order, request.position);
        let key = (request.position, order);
        self.sorted.insert(key, request);
    }

    pub fn take(&mut self, key: Key) -> Option<Request> {
        self.fifo.remove(&key.1);
        self.sorted.remove(&key)
    }

    /// The oldest request.
    pub fn first(&self) -> Option<Key> {
        self.fifo.iter().next().map(|(&order, &position)| (position, order))
    }

    /// The next request by position.
    pub fn after(&self, key: Key) -> Option<Key> {
        self.sorted.range((key.0, key.1 + 1)..).next().map(|(&key, _)| key)
    }

    /// deadline_check_fifo.
    pub fn expired(&self, now_ns: u64, expire_ns: u64) -> bool {
        let oldest = self.first().and_then(|key| self.sorted.get(&key));
        oldest.is_some_and(|request| now_ns > request.queued_ns + expire_ns)
    }
}

/// block/deadline-iosched.c: struct deadline_data.
#[derive(Debug, Default)]
pub struct Deadline {
    /// The direction of the last request, and the request after it by position (`next_rq`).
    pub next: Option<(bool, Key)>,
    pub batching: u32,
    pub starved: u32,
}

#[cfg(test)]
mod tests {
    use super::{Batcher, Done, Joined, Pool, Request};

    fn write(inode: u32, first_page: u64, position: u64, pages: u32) -> Request {
        Request::new(true, position, pages, Done::Pages { inode, first_page, pages })
    }

    #[test]
    fn pages_of_several_files_are_one_request_that_completes_for_each_file() {
        let mut joined = Joined::default();
        let mut held = write(1, 0, 100, 2);
        assert!(joined.merge(&mut held, &write(1, 2, 102, 3), 10), "the same file continues");
        assert!(joined.merge(&mut held, &write(2, 0, 105, 2), 10) && joined.merge(&mut held, &write(2, 2, 107, 1), 10));
        assert!(!joined.merge(&mut held, &write(3, 0, 108, 3), 10), "11 pages");
        assert!(!joined.merge(&mut held, &write(3, 0, 109, 1), 10), "a page between");
        assert!(!joined.merge(&mut held, &Request { sync: true, ..write(3, 0, 108, 1) }, 10), "it is synchronous");
        let parts: Vec<(Done, u32)> = joined.parts(held).map(|part| (part.done, part.pages)).collect();
        let wanted = [(1, 5), (2, 3)].map(|(inode, pages)| (Done::Pages { inode, first_page: 0, pages }, pages));
        assert_eq!((held.pages, parts), (8, wanted.to_vec()));
        assert_eq!(joined.parts(held).count(), 1, "returned once");
    }

    #[test]
    fn a_batch_counts_from_the_limit_on_and_one_that_is_not_begun_does_not_end() {
        let mut pool = Pool::default();
        let (mut own, mut other) = (Batcher::default(), Batcher::default());
        let taken = |pool: &mut Pool, of: &mut Batcher| (0..200).take_while(|_| pool.try_take(128, of, 0)).count();
        // The last of 128 fills the queue: then a batch of 32 is allowed, and the next request finds the queue full.
        assert_eq!(taken(&mut pool, &mut own), 127 + 32);
        assert_eq!((taken(&mut pool, &mut other), own.left), (0, 0));
        // A task that has slept may batch, even if it begins late, and then for a fiftieth of a second.
        other.begin(0);
        pool.count -= 20;
        assert!(pool.try_take(128, &mut other, 5_000_000_000));
        assert_eq!((other.left, other.batches(5_000_000_000), other.batches(19_000_000)), (31, false, true));
    }
}

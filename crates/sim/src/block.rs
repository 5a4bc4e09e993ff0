//! The request queue and the device under it.
//!
//! Models: nr_requests per direction with the congestion marks, the full flag, batching and exclusive waits of
//! 2.6.18 (`get_request`, `get_request_wait`, `ioc_batching`); an elevator in outline (ascending batches of 16,
//! reads first, writes after two read batches or 5 s) or `cfq`; one device with seek, rotation and bandwidth, or a flash
//! device with a fixed latency. Adjoining pages of one
//! file merge at the back of a queued request. Leaves out: front merges, NCQ,
//! the device's own cache, partitions.

use super::constant::constants;
use std::collections::BTreeMap;

use super::Machine;
use super::cfq::{Cfq, Turn};
use super::clock::{TaskId, WaitQueue};
use super::site::Site;
use super::task::{Culprit, Task};

/// What to do when a request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Clears writeback of these pages of a window: (inode, window, bits).
    Pages { inode: u32, first_page: u64, pages: u32 },
    /// Counts down a waiting task's reads or journal blocks.
    Wake(TaskId),
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub write: bool,
    /// On the disk, in pages.
    pub position: u64,
    pub pages: u32,
    pub done: Done,
    pub queued_ns: u64,
}

/// Rates and times of the device.
#[derive(Clone, Copy, Debug)]
pub struct DiskModel {
    pub read_bytes_per_s: u64,
    pub write_bytes_per_s: u64,
    pub seek_ns: u64,
    pub rotation_ns: u64,
    /// Per request, where there is no arm.
    pub access_ns: u64,
    pub pages: u64,
    /// No elevator: writes are served in the order in which they came (6.x: nvme's `none`).
    pub in_order: bool,
}

#[derive(Debug, Default)]
struct Side {
    sorted: BTreeMap<(u64, u64), Request>,
    /// Requests allocated: queued and in service.
    count: u32,
    full: bool,
    waiting: WaitQueue,
}

#[derive(Debug)]
pub struct Block {
    disk: DiskModel,
    nr_requests: u32,
    /// Pages of the largest request (max_sectors_kb).
    request_pages: u32,
    reads: Side,
    writes: Side,
    order: u64,
    head: u64,
    batch_left: u32,
    batch_write: bool,
    starved: u32,
    /// In place of the deadline elevator.
    cfq: Option<Cfq>,
    /// Until when CFQ keeps the device idle.
    idle_until_ns: Option<u64>,
    idle_device: Option<TaskId>,
    /// Submitters that park until their request is done (true), and those whose request is done already (false).
    awaited: BTreeMap<TaskId, bool>,
    congestion: WaitQueue,
    /// Whether callers may batch past the limit; off in the analytic variant.
    batching: bool,
    pub busy_ns: u64,
    pub done: [u64; 2],
    pub bytes: [u64; 2],
    pub wait_ns: [u64; 2],
}

/// A caller's leave to go past a full queue for a short while (`struct io_context`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Batcher {
    left: u32,
    since_ns: u64,
}

constants! {
    /// Requests that a batcher may take past a full queue.
    const BATCH_REQUESTS: u32 = kernel(32, "block/ll_rw_blk.c", "BLK_BATCH_REQ", "2.6.18");
    const BATCH_NS: u64 = kernel(20_000_000, "block/ll_rw_blk.c", "BLK_BATCH_TIME (HZ/50)", "2.6.18");
    const FIFO_BATCH: u32 = kernel(16, "block/deadline-iosched.c", "fifo_batch", "2.6.18");
    const WRITES_STARVED: u32 = kernel(2, "block/deadline-iosched.c", "writes_starved", "2.6.18");
    const READ_EXPIRE_NS: u64 = kernel(500_000_000, "block/deadline-iosched.c", "read_expire (HZ/2)", "2.6.18");
    const WRITE_EXPIRE_NS: u64 = kernel(5_000_000_000, "block/deadline-iosched.c", "write_expire (5*HZ)", "2.6.18");
    /// Pages of the largest request where the scenario does not say.
    pub const REQUEST_PAGES: u32 = kernel(128, "include/linux/blkdev.h", "BLK_DEF_MAX_SECTORS (512 KiB)", "2.6.20");
}

impl Block {
    #[must_use]
    pub fn new(disk: DiskModel, nr_requests: u32, batching: bool) -> Block {
        Block {
            disk,
            nr_requests: nr_requests.max(4),
            request_pages: 128,
            reads: Side::default(),
            writes: Side::default(),
            order: 0,
            head: 0,
            batch_left: 0,
            batch_write: false,
            starved: 0,
            cfq: None,
            idle_until_ns: None,
            idle_device: None,
            awaited: BTreeMap::new(),
            congestion: WaitQueue::default(),
            batching,
            busy_ns: 0,
            done: [0; 2],
            bytes: [0; 2],
            wait_ns: [0; 2],
        }
    }

    fn side(&mut self, write: bool) -> &mut Side {
        if write { &mut self.writes } else { &mut self.reads }
    }

    pub fn set_limits(&mut self, nr_requests: u32, request_pages: u32) {
        self.nr_requests = nr_requests.max(4);
        self.request_pages = request_pages;
    }

    pub fn set_scheduler(&mut self, name: &str) {
        self.cfq = (name == "cfq").then(|| self.cfq.take().unwrap_or_default());
        self.disk.in_order = matches!(name, "none" | "noop");
    }

    pub fn pages(&self) -> u64 {
        self.disk.pages
    }

    pub fn in_flight(&self) -> u64 {
        u64::from(self.reads.count + self.writes.count)
    }

    /// queue_congestion_on_threshold: 7/8 of the requests are taken.
    pub fn congested(&self) -> bool {
        self.writes.count > self.nr_requests - self.nr_requests / 8
    }

    pub fn congestion_queue(&mut self) -> &mut WaitQueue {
        &mut self.congestion
    }

    /// get_request: one request of the direction, if the caller may have it now.
    fn try_take(&mut self, write: bool, batcher: &mut Batcher, now_ns: u64) -> bool {
        let (limit, batching) = (self.nr_requests, self.batching);
        let side = self.side(write);
        let may_batch = batching
            && (batcher.left == BATCH_REQUESTS.get()
                || (batcher.left > 0 && now_ns < batcher.since_ns + BATCH_NS.get()));
        if side.count + 1 >= limit {
            if !side.full {
                // The one who fills the queue becomes its batcher.
                side.full = true;
                *batcher = Batcher { left: BATCH_REQUESTS.get(), since_ns: now_ns };
            } else if !may_batch {
                return false;
            }
        }
        if side.count >= limit + limit / 2 || (!batching && side.count >= limit) {
            return false;
        }
        side.count += 1;
        if may_batch {
            batcher.left -= 1;
        }
        true
    }

    fn push(&mut self, request: Request) {
        self.order += 1;
        let order = self.order;
        self.side(request.write).sorted.insert((request.position, order), request);
    }

    /// The elevator: goes on upwards within a batch, then decides anew between reads and writes.
    fn next(&mut self, now_ns: u64) -> Option<Request> {
        if self.cfq.is_some() {
            return self.next_in_turn(now_ns);
        }
        let (reads, writes) = (!self.reads.sorted.is_empty(), !self.writes.sorted.is_empty());
        let stay = self.batch_left > 0 && if self.batch_write { writes } else { reads };
        if stay {
            self.batch_left -= 1;
        } else {
            let expired =
                self.writes.sorted.values().next().is_some_and(|r| now_ns > r.queued_ns + WRITE_EXPIRE_NS.get());
            let write = writes && (!reads || self.starved >= WRITES_STARVED.get() || expired);
            self.starved = if write { 0 } else { self.starved + u32::from(writes) };
            self.batch_write = write;
            self.batch_left = FIFO_BATCH.get() - 1;
        }
        let (head, write, in_order) = (self.head, self.batch_write, self.disk.in_order);
        let side = self.side(write);
        if in_order {
            let key = side.sorted.keys().min_by_key(|(_, order)| *order).copied()?;
            return side.sorted.remove(&key);
        }
        let key = side.sorted.range((head, 0)..).next().or_else(|| side.sorted.iter().next()).map(|(key, _)| *key)?;
        side.sorted.remove(&key)
    }

    /// The same by CFQ: upwards among the requests of whose turn it is.
    fn next_in_turn(&mut self, now_ns: u64) -> Option<Request> {
        let owner = |request: &Request| match request.done {
            Done::Wake(task) => Some(task),
            Done::Pages { .. } => None,
        };
        let readers = self.reads.sorted.values().filter_map(owner).collect();
        let (writes, has_arm) = (!self.writes.sorted.is_empty(), self.disk.seek_ns > 0);
        let reader = match self.cfq.as_mut()?.turn(&readers, writes, has_arm, now_ns) {
            Turn::Reader(task) => Some(task),
            Turn::Writes => None,
            Turn::Idle(until_ns) => {
                self.idle_until_ns = Some(until_ns);
                return None;
            }
            Turn::Nobody => return None,
        };
        let head = self.head;
        let side = self.side(reader.is_none());
        let own = |(_, request): &(&(u64, u64), &Request)| reader.is_none() || owner(request) == reader;
        let found = side.sorted.range((head, 0)..).find(own).or_else(|| side.sorted.iter().find(own));
        let key = found.map(|(key, _)| *key)?;
        side.sorted.remove(&key)
    }

    fn service_ns(&mut self, request: &Request, random: f64) -> u64 {
        let rate = if request.write { self.disk.write_bytes_per_s } else { self.disk.read_bytes_per_s };
        let transfer = u64::from(request.pages) * 4096 * 1_000_000_000 / rate.max(1);
        let away = request.position.abs_diff(self.head);
        self.head = request.position + u64::from(request.pages);
        if self.disk.seek_ns == 0 {
            return transfer.max(self.disk.access_ns);
        }
        if away == 0 {
            return transfer;
        }
        // Seek time grows with the root of the distance; the mean over random pairs is the given mean.
        let far = (away as f64 / self.disk.pages.max(1) as f64).min(1.0).sqrt();
        let seek = self.disk.seek_ns as f64 * (0.2 + 1.5 * far);
        transfer + seek as u64 + (self.disk.rotation_ns as f64 * random) as u64
    }
}

impl Block {
    /// elv_merge: pages that go on where a queued request ends join it, and need no request of their own.
    fn try_merge(&mut self, request: &Request) -> bool {
        let Done::Pages { inode, first_page, pages } = request.done else { return false };
        let most = self.request_pages;
        let side = self.side(request.write);
        let Some((_, queued)) = side.sorted.range_mut(..=(request.position, u64::MAX)).next_back() else {
            return false;
        };
        let Done::Pages { inode: same, first_page: start, pages: held } = &mut queued.done else { return false };
        let goes_on = queued.position + u64::from(queued.pages) == request.position;
        if !goes_on || *same != inode || *start + u64::from(*held) != first_page || *held + pages > most {
            return false;
        }
        *held += pages;
        queued.pages += pages;
        true
    }
}

/// Submits a request, waiting for a free one as long as it takes.
pub async fn submit(m: &Machine, task: &mut Task, request: Request, site: Site) {
    task.work(Site::Work, m.costs.submit_io_ns);
    if m.block.borrow_mut().try_merge(&request) {
        return;
    }
    loop {
        let now = m.clock.now();
        let mut batcher = task.batcher;
        let took = m.block.borrow_mut().try_take(request.write, &mut batcher, now);
        task.batcher = batcher;
        if took {
            break;
        }
        task.run(m).await;
        m.block.borrow_mut().side(request.write).waiting.join(m.clock.current());
        task.park(m, None, site, Culprit::Device).await;
        // block/ll_rw_blk.c: get_request_wait: who has slept may take a batch.
        task.batcher = Batcher { left: BATCH_REQUESTS.get(), since_ns: m.clock.now() };
    }
    let mut block = m.block.borrow_mut();
    block.push(Request { queued_ns: m.clock.now(), ..request });
    if let Some(device) = block.idle_device.take() {
        m.clock.wake(device);
    }
}

/// Waits for a request that wakes its submitter. It may be done while that still works, or waits for a CPU.
pub async fn wait_for(m: &Machine, task: &mut Task, site: Site) {
    task.run(m).await;
    let me = m.clock.current();
    if m.block.borrow_mut().awaited.insert(me, true) != Some(false) {
        task.park(m, None, site, Culprit::Device).await;
    }
    m.block.borrow_mut().awaited.remove(&me);
}

/// A request is done that wakes its submitter.
pub fn done_for(m: &Machine, task: TaskId) {
    let parks = m.block.borrow_mut().awaited.insert(task, false) == Some(true);
    if parks {
        m.clock.wake(task);
    }
}

/// The device: serves one request after the other.
pub async fn device(m: std::rc::Rc<Machine>) {
    loop {
        let next = {
            let random = m.random();
            let mut block = m.block.borrow_mut();
            let next = block.next(m.clock.now());
            next.map(|request| (request, block.service_ns(&request, random)))
        };
        let Some((request, service_ns)) = next else {
            let until = {
                let mut block = m.block.borrow_mut();
                block.idle_device = Some(m.clock.current());
                block.idle_until_ns.take()
            };
            m.clock.park(until).await;
            continue;
        };
        let at = m.clock.now() + service_ns;
        m.clock.sleep_until(at).await;
        complete(&m, &request, service_ns);
    }
}

fn complete(m: &Machine, request: &Request, service_ns: u64) {
    {
        let mut block = m.block.borrow_mut();
        let kind = usize::from(request.write);
        block.busy_ns += service_ns;
        block.done[kind] += 1;
        block.bytes[kind] += u64::from(request.pages) * 4096;
        block.wait_ns[kind] += m.clock.now() - request.queued_ns;
        let limit = block.nr_requests;
        let side = block.side(request.write);
        side.count -= 1;
        // __freed_request.
        if side.count < limit {
            side.full = false;
            side.waiting.wake_one(&m.clock);
        }
        // queue_congestion_off_threshold: 13/16.
        if request.write && block.writes.count < limit - limit * 3 / 16 - 1 {
            block.congestion.wake_all(&m.clock);
        }
    }
    m.io_done(request);
}

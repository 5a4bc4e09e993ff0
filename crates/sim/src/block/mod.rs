//! The request queue and the device under it; `requests` has what queues there.
//!
//! Models: nr_requests per direction with the congestion marks, the full flag, batching and exclusive waits of 2.6.18
//! (`get_request`, `get_request_wait`, `ioc_batching`), and blk-mq's tags (`tags`); the elevators noop (in order) and
//! deadline (`deadline_dispatch_requests`); one device (`disk`), which gets as many requests as it accepts. Adjoining
//! pages merge at the back of a queued request, or of the last request of a flusher's plug (4.3 and later). Leaves out:
//! front merges, other plugs, partitions.

pub mod device;
pub mod disk;
pub mod drive;
pub mod requests;
pub mod wbt;

use crate::constant::constants;
use crate::kernel::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};

use crate::Machine;
use crate::block::device::DeviceId;
use crate::block::disk::{Device, DiskModel};
use crate::block::requests::{Deadline, Joined, Pool, Side};
pub use crate::block::requests::{Done, Request};
use crate::block::wbt::Wbt;
use crate::run::invariant::Broken;
use crate::sched::clock::TaskId;
use crate::sched::site::Site;
use crate::sched::task::{Culprit, Task};

pub mod deadline;
pub mod tags;

#[derive(Debug)]
pub struct Block {
    device: Device,
    nr_requests: u32,
    /// Pages of the largest request (max_sectors_kb).
    request_pages: u32,
    /// Reads and writes.
    sides: [Side; 2],
    /// Synchronous and asynchronous requests (the kernel up to 2.6.29 has a pool of reads and one of writes).
    pools: [Pool; 2],
    /// Writes that are not done, by arrival.
    unwritten: BTreeSet<u64>,
    pub(crate) joined: Joined,
    order: u64,
    deadline: Deadline,
    scheduler: String,
    /// blk-mq: requests are tags.
    pub multi_queue: bool,
    idle_device: Option<TaskId>,
    /// The device waits for a request in service.
    device_waits: bool,
    /// Submitters that wait for their request (true), and those whose request is done already (false).
    awaited: BTreeMap<TaskId, bool>,
    /// Limits of bytes read and written, and of reads and writes, a second.
    caps: [Option<u64>; 4],
    /// Writeback throttling, if turned on.
    pub(crate) wbt: Option<Wbt>,
    pub done: [u64; 2],
    pub bytes: [u64; 2],
    pub wait_ns: [u64; 2],
}

constants! {
    /// Pages of the largest request where the scenario does not say.
    pub const REQUEST_PAGES: u32 = kernel(128, "include/linux/blkdev.h", "BLK_DEF_MAX_SECTORS (512 KiB)", "2.6.20");
    pub const REQUEST_PAGES_4_3: u32 = kernel(320, "include/linux/blkdev.h", "BLK_DEF_MAX_SECTORS (1280 KiB)", "4.18");
    pub const REQUEST_PAGES_6_17: u32 = kernel(1024, "include/linux/blkdev.h", "BLK_DEF_MAX_SECTORS_CAP (4 MiB)", "6.18");
}

impl Block {
    #[must_use]
    pub fn new(disk: DiskModel, nr_requests: u32) -> Block {
        Block {
            device: Device::new(disk),
            nr_requests: nr_requests.max(4),
            request_pages: 128,
            sides: Default::default(),
            pools: Default::default(),
            unwritten: BTreeSet::new(),
            joined: Joined::default(),
            order: 0,
            deadline: Deadline::default(),
            scheduler: String::new(),
            multi_queue: false,
            idle_device: None,
            device_waits: false,
            awaited: BTreeMap::new(),
            caps: [None; 4],
            wbt: None,
            done: [0; 2],
            bytes: [0; 2],
            wait_ns: [0; 2],
        }
    }

    /// Checks that no thread sleeps on a queue with room, and that the device does not sleep while requests are queued.
    pub fn check(&self) -> Result<(), Broken> {
        for (pool, name) in self.pools.iter().zip(["synchronous", "other"]) {
            if !pool.waiting.is_empty() && pool.count == 0 {
                let sleepers = pool.waiting.len();
                return Err(Broken::Queue(format!("{sleepers} wait for a request, and of the {name} none is taken")));
            }
        }
        let queued: usize = self.sides.iter().map(|side| side.sorted.len()).sum();
        if self.idle_device.is_some() && !self.device_waits && queued > 0 {
            return Err(Broken::Queue(format!("the device sleeps while {queued} requests are queued")));
        }
        let arrived: usize = self.sides.iter().map(|side| side.fifo.len()).sum();
        let allocated: u32 = self.pools.iter().map(|pool| pool.count).sum();
        if queued != arrived || queued > allocated as usize {
            return Err(Broken::Queue(format!("{queued} sorted, {arrived} by arrival, {allocated} allocated")));
        }
        Ok(())
    }

    fn pool(&mut self, sync: bool) -> &mut Pool {
        &mut self.pools[usize::from(!sync && !self.multi_queue)]
    }

    pub fn set_request_pages(&mut self, pages: u32) {
        self.request_pages = pages;
    }

    /// blk-throttle: limits of bytes and requests a second for each direction; `None` leaves a limit unchanged.
    pub fn cap(&mut self, [read_bps, write_bps, read_iops, write_iops]: [Option<u64>; 4]) {
        for (slot, rate) in self.caps.iter_mut().zip([read_bps, write_bps, read_iops, write_iops]) {
            *slot = rate.or(*slot);
        }
    }

    /// queue/wbt_lat_usec; the depth is the device's, or the requests of a queue without one (blk_queue_depth). Returns
    /// the tasks to wake.
    pub fn set_wbt(&mut self, given_us: Option<u64>) -> Vec<TaskId> {
        let model = self.device.model;
        // blk-throttle delays bios before they become requests. In the model the device delays them, which would change
        // the latency that writeback throttling measures.
        let throttles = self.multi_queue;
        let unasked_us = if throttles && self.caps == [None; 4] { Wbt::unasked_us(&model) } else { 0 };
        let target_us = given_us.unwrap_or(unasked_us);
        // SCSI drives set the queue depth (scsi_change_queue_depth), nvme and virtio_blk do not.
        let depth = if model.has_arm() && !model.in_order { model.depth as u32 } else { self.nr_requests };
        Wbt::retarget(&mut self.wbt, target_us, depth, &model)
    }

    /// throtl_charge_bio: least time of a request under the limits.
    fn capped_ns(&self, request: &Request) -> u64 {
        let [read_bps, write_bps, read_iops, write_iops] = self.caps;
        let (bps, iops) = if request.write { (write_bps, write_iops) } else { (read_bps, read_iops) };
        let by_bytes = bps.map_or(0, |bps| u64::from(request.pages) * PAGE_BYTES * 1_000_000_000 / bps);
        by_bytes.max(iops.map_or(0, |iops| 1_000_000_000 / iops))
    }

    pub fn set_scheduler(&mut self, name: &str) {
        name.clone_into(&mut self.scheduler);
        self.device.model.in_order = matches!(name, "none" | "noop");
        self.deadline = Deadline::default();
    }

    /// Mark of the requests that have arrived so far.
    pub fn mark(&self) -> u64 {
        self.order
    }

    /// Whether all writes up to a mark are done.
    pub fn has_written(&self, mark: u64) -> bool {
        self.unwritten.first().is_none_or(|oldest| *oldest > mark)
    }

    pub fn pages(&self) -> u64 {
        self.device.model.pages
    }

    pub fn in_flight(&self) -> u64 {
        u64::from(self.pools.iter().map(|pool| pool.count).sum::<u32>())
    }

    /// bdi_write_congested.
    pub fn congested(&self) -> bool {
        self.pools[1].congested
    }

    fn push(&mut self, request: Request) {
        self.order += 1;
        let order = self.order;
        let request = Request { order, ..request };
        if request.write {
            self.unwritten.insert(order);
        }
        self.sides[usize::from(request.write)].push(order, request);
    }

    /// The next request by the elevator's rule.
    fn next(&mut self, now_ns: u64) -> Option<Request> {
        if self.device.model.in_order {
            return self.next_in_order();
        }
        self.deadline_dispatch(now_ns)
    }

    /// noop and none: in the order of arrival.
    fn next_in_order(&mut self) -> Option<Request> {
        let oldest = [0, 1].into_iter().filter_map(|side: usize| Some((self.sides[side].first()?, side)));
        let (key, side) = oldest.min_by_key(|((_, order), _)| *order)?;
        self.sides[side].take(key)
    }

    /// Gives the device as many requests as it accepts.
    fn fill(&mut self, now_ns: u64) {
        while !self.device.is_full()
            && let Some(request) = self.next(now_ns)
        {
            let capped_ns = self.capped_ns(&request);
            if let Some(wbt) = &mut self.wbt {
                wbt.issue(&request, now_ns);
            }
            self.device.accept(Request { begun_ns: now_ns, ..request }, capped_ns, now_ns);
        }
    }

    pub fn busy_ns(&self) -> u64 {
        self.device.busy_ns
    }
}

impl Block {
    /// elv_merge.
    fn try_merge(&mut self, request: &Request) -> bool {
        let before =
            self.sides[usize::from(request.write)].sorted.range_mut(..=(request.position, u64::MAX)).next_back();
        before.is_some_and(|(_, queued)| self.joined.merge(queued, request, self.request_pages))
    }

    /// blk_attempt_plug_merge.
    fn try_plug_merge(&mut self, held: Option<&mut Request>, request: &Request) -> bool {
        held.is_some_and(|held| self.joined.merge(held, request, self.request_pages))
    }
}

/// Submits a request, after waiting for a free one if necessary.
pub async fn submit(m: &Machine, task: &mut Task, request: Request, site: Site) {
    let sync = !request.write || task.syncs;
    let request = Request { sync, ..request };
    let queue = &m.device(request.device).block;
    task.work(Site::Work, m.costs.submit_io_ns);
    if queue.borrow_mut().try_plug_merge(task.plug.as_mut(), &request) || queue.borrow_mut().try_merge(&request) {
        return;
    }
    let request = wbt::wait(m, task, request, site).await;
    // If tags are scarce, their order matters: perform the pending work first, so that the submitter arrives on time.
    if queue.borrow().is_scarce() && task.pending_ns() > 0 {
        task.run(m).await;
    }
    loop {
        let now = m.clock.now();
        let mut batcher = task.batcher;
        let took = queue.borrow_mut().try_take(sync, &mut batcher, now);
        task.batcher = batcher;
        if took {
            break;
        }
        // The task's pending work may last until all requests are free again, and then no completion would wake the
        // task: try again (get_request_wait: prepare_to_wait_exclusive, then get_request).
        if task.pending_ns() > 0 {
            task.run(m).await;
            continue;
        }
        queue.borrow_mut().pool(sync).waiting.join(m.clock.current());
        task.park(m, None, site, Culprit::Device).await;
        // block/ll_rw_blk.c: get_request_wait: a task that has slept may take a batch.
        task.batcher.begin(m.clock.now());
    }
    let request = Request { queued_ns: m.clock.now(), owner: m.clock.current(), ..request };
    let ready = if task.plugs { task.plug.replace(request) } else { Some(request) };
    ready.into_iter().for_each(|request| insert(m, request));
}

/// blk_mq_flush_plug_list.
pub fn unplug(m: &Machine, task: &mut Task) {
    task.plug.take().into_iter().for_each(|request| insert(m, request));
}

fn insert(m: &Machine, request: Request) {
    let mut block = m.device(request.device).block.borrow_mut();
    block.push(request);
    if let Some(device) = block.idle_device.take() {
        m.clock.wake(device);
    }
}

/// Waits for a request whose completion wakes its submitter. The request may be done before the submitter has a CPU.
pub async fn wait_for(m: &Machine, device: DeviceId, task: &mut Task, site: Site) {
    task.run(m).await;
    let (me, queue) = (m.clock.current(), &m.device(device).block);
    if queue.borrow_mut().awaited.insert(me, true) != Some(false) {
        task.park(m, None, site, Culprit::Device).await;
    }
    queue.borrow_mut().awaited.remove(&me);
}

/// The completion of such a request.
pub fn done_for(m: &Machine, device: DeviceId, task: TaskId) {
    let parks = m.device(device).block.borrow_mut().awaited.insert(task, false) == Some(true);
    if parks {
        m.clock.wake(task);
    }
}

/// The task of a device: takes requests and completes them.
pub async fn device(m: std::rc::Rc<Machine>, device: DeviceId) {
    let queue = &m.device(device).block;
    loop {
        let now = m.clock.now();
        let answered = queue.borrow_mut().device.answer(now);
        if let Some(request) = answered {
            complete(&m, &request);
            continue;
        }
        queue.borrow_mut().fill(now);
        let until = {
            let mut block = queue.borrow_mut();
            block.device_waits = block.device.accepted() > 0;
            block.idle_device = Some(m.clock.current()).filter(|_| !block.device.is_full());
            block.device.next_ns()
        };
        m.clock.park(until).await;
        queue.borrow_mut().idle_device = None;
    }
}

/// The device has served a request.
fn complete(m: &Machine, request: &Request) {
    {
        let mut block = m.device(request.device).block.borrow_mut();
        let kind = usize::from(request.write);
        block.done[kind] += 1;
        block.bytes[kind] += u64::from(request.pages) * PAGE_BYTES;
        block.wait_ns[kind] += m.clock.now() - request.queued_ns;
        if request.write {
            block.unwritten.remove(&request.order);
        }
        let woken = block.wbt.as_mut().map(|wbt| wbt.done(request, m.clock.now())).unwrap_or_default();
        woken.into_iter().for_each(|sleeper| m.clock.wake(sleeper));
        if block.put(request, &m.clock) {
            // mm/backing-dev.c: congestion_wait: sleepers wait for any of the queues.
            m.wb.borrow_mut().congestion.wake_all(&m.clock);
        }
    }
    let parts = m.device(request.device).block.borrow_mut().joined.parts(*request);
    parts.for_each(|part| m.io_done(&part));
}

#[cfg(test)]
mod tests {
    use super::{Block, Done, Request};
    use crate::block::disk::DiskModel;
    use crate::block::requests::{Batcher, congestion_thresholds};

    pub(crate) fn block() -> Block {
        let disk = DiskModel {
            read_bytes_per_s: 1,
            write_bytes_per_s: 1,
            seek_ns: 1,
            rotation_ns: 1,
            access_ns: 1,
            pages: 1 << 20,
            in_order: false,
            depth: 1,
        };
        Block::new(disk, 128)
    }

    fn request(write: bool, position: u64, queued_ns: u64) -> Request {
        Request { queued_ns, sync: !write, ..Request::new(write, position, 1, Done::Wake(0)) }
    }

    fn positions(block: &mut Block, now_ns: u64, count: usize) -> Vec<(bool, u64)> {
        let next = (0..count).filter_map(|_| block.next(now_ns));
        next.map(|request| (request.write, request.position)).collect()
    }

    #[test]
    fn a_batch_ascends_and_the_next_begins_with_the_oldest_request_if_none_is_further_up() {
        let mut block = block();
        [500, 100, 900].into_iter().for_each(|position| block.push(request(true, position, 0)));
        // From the oldest upwards; at the end of the list from the oldest again.
        assert_eq!(positions(&mut block, 1, 3), [(true, 500), (true, 900), (true, 100)]);
    }

    #[test]
    fn a_request_that_has_expired_ends_the_way_upwards_at_the_next_batch() {
        let mut block = block();
        block.push(request(true, 10, 0));
        block.push(request(true, 5, 1));
        (0..20).for_each(|more| block.push(request(true, 1000 + more, 4_000_000_000)));
        assert_eq!(positions(&mut block, 1, 1), [(true, 10)]);
        let got = positions(&mut block, 5_000_000_002, 16);
        // 15 more of the first batch of 16, then the one from below that came 5 s ago.
        assert_eq!((got[0], got[14], got[15]), ((true, 1000), (true, 1014), (true, 5)));
    }

    #[test]
    fn two_batches_of_reads_and_the_writes_have_their_turn() {
        let mut block = block();
        (0..64).for_each(|number| block.push(request(false, number, 0)));
        (0..32).for_each(|number| block.push(request(true, 5000 + number, 0)));
        let got = positions(&mut block, 1, 64);
        let writes: Vec<usize> = (0..64).filter(|&place| got[place].0).collect();
        assert_eq!(writes, (32..48).collect::<Vec<_>>(), "starved++ >= 2: after 2 x 16 reads");
    }

    #[test]
    fn a_queue_of_128_is_congested_from_113_on_and_until_fewer_than_103() {
        let mut block = block();
        assert_eq!(congestion_thresholds(128), (113, 103));
        for taken in 1..=113 {
            assert!(block.try_take(false, &mut Batcher::default(), 0));
            assert_eq!(block.congested(), taken >= 113, "{taken}");
        }
    }
}

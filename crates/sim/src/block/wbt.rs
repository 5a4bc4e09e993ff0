//! Writeback throttling by latency (block/blk-wbt.c and struct rq_depth of block/blk-rq-qos.c, 4.10 and later).
//!
//! Models: a limit of buffered writes in flight, lower while reads are in flight (`get_limit`); the limits follow the
//! least latency of the reads of a window of 100 ms (`wb_timer_fn`, `latency_exceeded`); a device with a write cache
//! wakes sleepers only once all is written (`wbt_rqw_done`). A window is judged at the next request or answer after its
//! end. On by default from 5.0 on (`wbt_enable_default`) as with CONFIG_BLK_WBT_MQ, which Debian's 6.1 and 6.12 set
//! (upstream's Kconfig leaves CONFIG_BLK_WBT off). Leaves out: discards.

use std::collections::{BTreeSet, VecDeque};

use crate::Machine;
use crate::block::Request;
use crate::block::disk::DiskModel;
use crate::constant::constants;
use crate::sched::clock::TaskId;
use crate::sched::site::Site;
use crate::sched::task::{Culprit, Task};

constants! {
    const DEF_DEPTH: u32 = kernel(16, "block/blk-wbt.c", "RWB_DEF_DEPTH", "4.10");
    const WINDOW_NS: u64 = kernel(100_000_000, "block/blk-wbt.c", "RWB_WINDOW_NSEC", "4.10");
    const MIN_WRITE_SAMPLES: u64 = kernel(3, "block/blk-wbt.c", "RWB_MIN_WRITE_SAMPLES", "4.10");
    const UNKNOWN_BUMP: u32 = kernel(5, "block/blk-wbt.c", "RWB_UNKNOWN_BUMP", "4.10");
    /// Writes are urgent for this long after a writer slept in balance_dirty_pages.
    const RECENT_WAIT_NS: u64 = kernel(1_000_000_000, "block/blk-wbt.c", "wb_recent_wait (HZ)", "4.10");
/// Target latency for a device without an explicit one.
    const ARM_US: u64 = kernel(75_000, "block/blk-wbt.c", "wbt_default_latency_nsec (rotational)", "5.0");
    const FLASH_US: u64 = kernel(2_000, "block/blk-wbt.c", "wbt_default_latency_nsec", "5.0");
    /// Background writes stay at the background limit for this long after a read.
    const CLOSE_IO_NS: u64 = kernel(100_000_000, "block/blk-wbt.c", "close_io (HZ / 10)", "4.10");
}

/// Purpose of a write, from wbc_to_write_flags and current_is_kswapd().
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    #[default]
    Plain,
    /// for_background, for_kupdate (REQ_BACKGROUND).
    Background,
    /// A task waits for the write: WB_SYNC_ALL, the log (REQ_SYNC).
    Sync,
    Kswapd,
}

impl Purpose {
    /// kswapd has a separate queue (WBT_RWQ_KSWAPD).
    fn queue(self) -> usize {
        usize::from(self == Purpose::Kswapd)
    }
}

/// struct rq_depth.
#[derive(Clone, Copy, Debug)]
struct Depth {
    queue: u32,
    max: u32,
    step: i32,
    scaled_max: bool,
}

impl Depth {
    fn new(queue: u32) -> Depth {
        let mut depth = Depth { queue, max: 0, step: 0, scaled_max: false };
        depth.calculate();
        depth
    }

    /// rq_depth_calc_max_depth: true if further scaling has no effect.
    fn calculate(&mut self) -> bool {
        if self.queue == 1 {
            self.max = if self.step > 0 { 1 } else { 2 };
            return self.step <= 0;
        }
        let base = DEF_DEPTH.get().min(self.queue);
        let most = 3 * self.queue / 4;
        let wanted = if self.step > 0 {
            1 + ((base - 1) >> self.step.min(31))
        } else {
            (u64::from(base - 1) << (-self.step).min(31)).saturating_add(1).min(u64::from(u32::MAX)) as u32
        };
        let capped = self.step < 0 && wanted > most;
        self.max = if capped { most } else { wanted };
        capped
    }

    /// rq_depth_scale_up.
    fn scale_up(&mut self) -> bool {
        if self.scaled_max {
            return false;
        }
        self.step -= 1;
        self.scaled_max = self.calculate();
        true
    }

    /// rq_depth_scale_down.
    fn scale_down(&mut self, hard: bool) -> bool {
        if self.max == 1 {
            return false;
        }
        self.step = if self.step < 0 && hard { 0 } else { self.step + 1 };
        self.scaled_max = false;
        self.calculate();
        true
    }

    /// calc_wb_limits: requests of plain and of background writes.
    fn limits(self) -> (u32, u32) {
        if self.max <= 2 { (self.max, 1) } else { (self.max.div_ceil(2), self.max.div_ceil(4)) }
    }
}

/// struct blk_rq_stat, of reads or writes in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Stat {
    samples: u64,
    min_ns: u64,
}

impl Stat {
    fn add(&mut self, ns: u64) {
        self.min_ns = if self.samples == 0 { ns } else { self.min_ns.min(ns) };
        self.samples += 1;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latency {
    Ok,
    Unknown,
    UnknownWrites,
    Exceeded,
}

/// struct rq_wb.
#[derive(Debug)]
pub struct Wbt {
    depth: Depth,
    normal: u32,
    background: u32,
    target_ns: u64,
    /// QUEUE_FLAG_WC.
    write_cache: bool,
    window_ns: u64,
    /// End of the present window; `None` while no request is in flight.
    ends_ns: Option<u64>,
    unknown: u32,
    stats: [Stat; 2],
    /// The oldest read in service, by its number, and since when.
    oldest_read: Option<(u64, u64)>,
    last_read_ns: Option<u64>,
    slept_ns: Option<u64>,
    inflight: [u32; 2],
    waiting: [VecDeque<(TaskId, Purpose)>; 2],
    granted: BTreeSet<TaskId>,
}

impl Wbt {
    /// wbt_init, wbt_default_latency_nsec.
    pub fn unasked_us(disk: &DiskModel) -> u64 {
        if disk.has_arm() { ARM_US.get() } else { FLASH_US.get() }
    }

    /// `target_us` as written to queue/wbt_lat_usec; 0 is off.
    #[must_use]
    pub fn new(target_us: u64, queue_depth: u32, disk: &DiskModel) -> Wbt {
        let depth = Depth::new(queue_depth.max(1));
        let (normal, background) = depth.limits();
        Wbt {
            depth,
            normal,
            background,
            target_ns: target_us * 1000,
            write_cache: !disk.has_arm(),
            window_ns: WINDOW_NS.get(),
            ends_ns: None,
            unknown: 0,
            stats: [Stat::default(); 2],
            oldest_read: None,
            last_read_ns: None,
            slept_ns: None,
            inflight: [0; 2],
            waiting: Default::default(),
            granted: BTreeSet::new(),
        }
    }

    /// Turns throttling on or off, or changes its target. Returns the tasks to wake.
    pub fn retarget(slot: &mut Option<Wbt>, target_us: u64, queue_depth: u32, disk: &DiskModel) -> Vec<TaskId> {
        match slot {
            Some(wbt) if wbt.target_us() != target_us => return wbt.set_target(target_us),
            None if target_us > 0 => *slot = Some(Wbt::new(target_us, queue_depth, disk)),
            _ => {}
        }
        Vec::new()
    }

    /// wbt_set_min_lat: back to the center step. Returns the tasks to wake.
    pub fn set_target(&mut self, target_us: u64) -> Vec<TaskId> {
        self.target_ns = target_us * 1000;
        self.depth = Depth::new(self.depth.queue);
        self.refresh_limits();
        self.grant_all(0)
    }

    #[must_use]
    pub fn target_us(&self) -> u64 {
        self.target_ns / 1000
    }

    fn is_on(&self) -> bool {
        self.target_ns > 0
    }

    fn refresh_limits(&mut self) {
        (self.normal, self.background) = self.depth.limits();
    }

    fn recent_wait(&self, now_ns: u64) -> bool {
        self.slept_ns.is_some_and(|at| now_ns < at + RECENT_WAIT_NS.get())
    }

    /// balance_dirty_pages: wb->dirty_sleep.
    pub fn slept(&mut self, now_ns: u64) {
        self.slept_ns = Some(now_ns);
    }

    /// get_limit.
    fn limit(&self, purpose: Purpose, now_ns: u64) -> u32 {
        let close_io = self.last_read_ns.is_some_and(|at| now_ns < at + CLOSE_IO_NS.get());
        if !self.is_on() {
            u32::MAX
        } else if matches!(purpose, Purpose::Sync | Purpose::Kswapd) || self.recent_wait(now_ns) {
            self.depth.max
        } else if purpose == Purpose::Background || close_io {
            self.background
        } else {
            self.normal
        }
    }

    /// rq_wait_inc_below.
    fn take(&mut self, purpose: Purpose, now_ns: u64) -> bool {
        let limit = self.limit(purpose, now_ns);
        let inflight = &mut self.inflight[purpose.queue()];
        let took = *inflight < limit;
        *inflight += u32::from(took);
        took
    }

    /// rq_qos_wake_function: sleepers in order, until one finds no room.
    fn grant(&mut self, queue: usize, now_ns: u64) -> Vec<TaskId> {
        let mut woken = Vec::new();
        while let Some(&(task, purpose)) = self.waiting[queue].front() {
            if !self.take(purpose, now_ns) {
                break;
            }
            self.waiting[queue].pop_front();
            self.granted.insert(task);
            woken.push(task);
        }
        woken
    }

    /// rwb_wake_all.
    fn grant_all(&mut self, now_ns: u64) -> Vec<TaskId> {
        let mut woken = self.grant(0, now_ns);
        woken.extend(self.grant(1, now_ns));
        woken
    }

    /// wbt_rqw_done.
    fn put(&mut self, queue: usize, now_ns: u64) -> Vec<TaskId> {
        self.inflight[queue] -= 1;
        let inflight = self.inflight[queue];
        let drains = self.write_cache && !self.recent_wait(now_ns);
        let limit = if drains { 0 } else { self.normal };
        if inflight > 0 && (inflight >= limit || limit - inflight < self.background / 2) {
            return Vec::new();
        }
        self.grant(queue, now_ns)
    }

    /// latency_exceeded.
    fn judge(&self, now_ns: u64) -> Latency {
        let pending_ns = self.oldest_read.map_or(0, |(_, since_ns)| now_ns.saturating_sub(since_ns));
        let [reads, writes] = self.stats;
        if pending_ns > self.window_ns || (pending_ns > self.target_ns && reads.samples == 0) {
            return Latency::Exceeded;
        }
        if reads.samples == 0 || writes.samples < MIN_WRITE_SAMPLES.get() {
            let writes_go_on = writes.samples > 0 || self.recent_wait(now_ns) || self.is_busy();
            return if writes_go_on { Latency::UnknownWrites } else { Latency::Unknown };
        }
        if reads.min_ns > self.target_ns { Latency::Exceeded } else { Latency::Ok }
    }

    fn is_busy(&self) -> bool {
        self.inflight.iter().any(|&count| count > 0)
    }

    /// scale_up, scale_down.
    fn scale(&mut self, up: bool, hard: bool) {
        if if up { self.depth.scale_up() } else { self.depth.scale_down(hard) } {
            self.refresh_limits();
            self.unknown = 0;
        }
    }

    /// wb_timer_fn, for a window that ended then.
    fn end_window(&mut self, then_ns: u64) {
        match self.judge(then_ns) {
            Latency::Exceeded => self.scale(false, true),
            Latency::Ok | Latency::UnknownWrites => self.scale(true, false),
            Latency::Unknown => {
                self.unknown += 1;
                if self.unknown >= UNKNOWN_BUMP.get() && self.depth.step != 0 {
                    self.scale(self.depth.step > 0, false);
                }
            }
        }
        self.stats = [Stat::default(); 2];
        self.ends_ns = None;
        if self.depth.step != 0 || self.is_busy() {
            self.arm(then_ns);
        }
    }

    /// rwb_arm_timer: shorter windows while the depth is scaled down.
    fn arm(&mut self, now_ns: u64) {
        let step = u64::try_from(self.depth.step).unwrap_or(0);
        let root = ((step + 1) << 8).isqrt();
        self.window_ns = if step > 0 { (WINDOW_NS.get() << 4) / root } else { WINDOW_NS.get() };
        self.ends_ns = Some(now_ns + self.window_ns);
    }

    /// Ends the windows that are over. Returns the tasks that a deeper queue wakes.
    fn roll(&mut self, now_ns: u64) -> Vec<TaskId> {
        let mut deepened = false;
        while let Some(then_ns) = self.ends_ns.filter(|ends_ns| *ends_ns <= now_ns) {
            let before = self.depth.step;
            self.end_window(then_ns);
            deepened |= self.depth.step < before;
        }
        if deepened { self.grant_all(now_ns) } else { Vec::new() }
    }

    /// wbt_issue: the device takes a request.
    pub fn issue(&mut self, request: &Request, now_ns: u64) {
        if !request.write && self.oldest_read.is_none() {
            self.oldest_read = Some((request.order, now_ns));
        }
    }

    /// blk_stat_add and wbt_done: the device has answered. Returns the tasks to wake.
    pub fn done(&mut self, request: &Request, now_ns: u64) -> Vec<TaskId> {
        let mut woken = self.roll(now_ns);
        if self.ends_ns.is_some() {
            self.stats[usize::from(request.write)].add(now_ns.saturating_sub(request.begun_ns));
        }
        if let Some(purpose) = request.throttled {
            woken.extend(self.put(purpose.queue(), now_ns));
            return woken;
        }
        if self.oldest_read.is_some_and(|(order, _)| order == request.order) {
            self.oldest_read = None;
        }
        if !request.write {
            self.last_read_ns = Some(now_ns);
        }
        woken
    }
}

/// wbt_wait: delays a buffered write until there is room for it; reads pass and are noted.
pub async fn wait(m: &Machine, task: &mut Task, request: Request, site: Site) -> Request {
    let queue = &m.device(request.device).block;
    if queue.borrow().wbt.is_none() {
        return request;
    }
    let now = task.instant(m);
    let purpose = if request.sync { Purpose::Sync } else { task.writes };
    let (woken, took) = {
        let mut block = queue.borrow_mut();
        let Some(wbt) = block.wbt.as_mut().filter(|wbt| wbt.is_on()) else { return request };
        let woken = wbt.roll(now);
        if !request.write {
            wbt.last_read_ns = Some(now);
        }
        (woken, !request.write || (wbt.waiting[purpose.queue()].is_empty() && wbt.take(purpose, now)))
    };
    woken.into_iter().for_each(|sleeper| m.clock.wake(sleeper));
    if !request.write {
        return request;
    }
    if !took {
        task.run(m).await;
        let me = m.clock.current();
        let took = queue.borrow_mut().wbt.as_mut().is_none_or(|wbt| {
            // A completion during the task's work may have made room without waking the task.
            let took = wbt.waiting[purpose.queue()].is_empty() && wbt.take(purpose, m.clock.now());
            if !took {
                wbt.waiting[purpose.queue()].push_back((me, purpose));
            }
            took
        });
        let granted = || queue.borrow_mut().wbt.as_mut().is_none_or(|wbt| wbt.granted.remove(&me));
        while !took && !granted() {
            task.park(m, None, site, Culprit::Device).await;
        }
    }
    let mut block = queue.borrow_mut();
    if let Some(wbt) = block.wbt.as_mut().filter(|wbt| wbt.ends_ns.is_none()) {
        wbt.arm(m.clock.now());
    }
    Request { throttled: Some(purpose), ..request }
}

#[cfg(test)]
mod tests;

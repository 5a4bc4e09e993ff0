//! Dirty pages: who writes them, and who is made to wait for it.
//!
//! Models: the flusher (pdflush, later one a device) with background and periodic writing, writing a file's dirty
//! windows as requests of up to 128 pages, and the three generations of `balance_dirty_pages`: a per-CPU rate limit
//! with a chunk written by the caller (2.6.17), the same with doubling pauses and a free run (2.6.32), and pauses
//! computed from bandwidth and position without any I/O by the caller (3.2 and later).
//! Leaves out: several devices with limits of their own, per-cgroup writeback, the unstable pages of NFS.

use super::Machine;
use super::block::{self, Done, Request};
use super::chunk::{NONE, WINDOW_PAGES};
use super::clock::{TaskId, WaitQueue};
use super::inode::InodeId;
use super::kernel::Throttle;
use super::site::Site;
use super::task::{Culprit, Task};

/// Pages of one request: max_sectors_kb 512.
const REQUEST_PAGES: u64 = 128;
/// MAX_WRITEBACK_PAGES, fs/fs-writeback.c 2.6.32.
const FLUSH_PAGES: u64 = 1024;

#[derive(Debug, Default)]
pub struct Writeback {
    /// Pages dirtied on each CPU since it last looked (`ratelimits`, 2.6).
    per_cpu: Vec<u32>,
    pub dirty_exceeded: bool,
    /// Where the round of dirty inodes goes on.
    next_inode: InodeId,
    pub flusher: Option<TaskId>,
    flusher_parked: bool,
    pub waiting: WaitQueue,
    /// Measured write bandwidth, pages a second (3.2 and later), and what it is measured from.
    bandwidth: f64,
    dirty_rate: f64,
    stamp_ns: u64,
    stamp_done: u64,
    stamp_dirtied: u64,
    pub dirtied: u64,
    balanced: f64,
}

/// Global limits in pages.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub background: u64,
    pub throttle: u64,
}

impl Writeback {
    pub fn new(cpus: usize) -> Writeback {
        Writeback { per_cpu: vec![0; cpus], bandwidth: 25_600.0, balanced: 25_600.0, ..Writeback::default() }
    }
}

/// get_dirty_limits: shares of what could hold dirty pages, or the byte knobs.
pub fn limits(m: &Machine) -> Limits {
    let knobs = m.knobs.borrow();
    let mm = m.mm.borrow();
    let available: u64 = match m.profile.throttle {
        // mm/page-writeback.c, 2.6.17: of all memory, capped at half of what is not mapped.
        Throttle::PerCpuRateLimit => mm.zones.iter().map(|zone| zone.managed).sum(),
        _ => mm.zones.iter().map(|zone| zone.free + zone.file).sum(),
    };
    let mut ratio = knobs.dirty_ratio;
    if m.profile.throttle == Throttle::PerCpuRateLimit {
        let (mapped, total) =
            mm.zones.iter().fold((0, 1), |sum, zone| (sum.0 + zone.mapped + zone.pinned, sum.1 + zone.managed));
        let unmapped = 100 - (100 * mapped / total).min(100);
        ratio = ratio.min(unmapped / 2).max(5);
    }
    let throttle = knobs.dirty_bytes.map_or(available * ratio / 100, |bytes| bytes / 4096);
    let background = knobs.background_bytes.map_or(available * knobs.background_ratio / 100, |bytes| bytes / 4096);
    Limits { background: background.min(throttle / 2), throttle }
}

/// Writes up to `max_pages` dirty pages of one file; returns how many were submitted.
pub async fn write_file(m: &Machine, task: &mut Task, inode: InodeId, max_pages: u64, site: Site) -> u64 {
    let mut written = 0;
    let mut run: Option<(u64, u64)> = None;
    // pdflush sets wbc->nonblocking (mm/page-writeback.c: background_writeout, up to 2.6.35): it backs off from a
    // congested queue where a throttled writer would sleep for a request.
    let backs_off = task.memalloc && m.profile.throttle != Throttle::IoLess;
    while written < max_pages && !(backs_off && m.block.borrow().congested()) {
        let Some((first, bits)) = next_dirty(m, inode) else { break };
        let mut bits = u64::from(bits);
        let mut page = first;
        while bits != 0 {
            let skip = u64::from(bits.trailing_zeros());
            let count = u64::from((!(bits >> skip)).trailing_zeros());
            page += skip;
            written += count;
            match run {
                Some((start, pages)) if start + pages == page && pages + count <= REQUEST_PAGES => {
                    run = Some((start, pages + count));
                }
                _ => {
                    flush_run(m, task, inode, run, site).await;
                    run = Some((page, count));
                }
            }
            bits = if skip + count >= 64 { 0 } else { bits >> (skip + count) };
            page += count;
        }
    }
    flush_run(m, task, inode, run, site).await;
    written
}

/// Takes the next window with dirty pages and marks them as under writeback.
fn next_dirty(m: &Machine, inode: InodeId) -> Option<(u64, u32)> {
    let mut mm = m.mm.borrow_mut();
    // Once round at most: a window that is dirty only under its present writeback goes to the back of the queue.
    let turns = mm.inodes.get(inode).dirty.as_deref().map_or(0, |dirty| dirty.windows.len());
    for _ in 0..turns {
        let window = mm.inodes.get_mut(inode).dirty.as_deref_mut()?.windows.pop_front()?;
        let mut id = mm.inodes.get(inode).windows.get(window);
        let mut bits = 0;
        while id != NONE {
            let chunk = mm.chunks.get_mut(id);
            let ready = chunk.dirty & !chunk.writeback;
            chunk.dirty &= !ready;
            chunk.writeback |= ready;
            bits |= ready;
            let again = chunk.dirty != 0;
            id = chunk.sibling;
            if again {
                // Dirtied again while its last writing is under way: it has to come round once more.
                mm.inodes.get_mut(inode).dirty.get_or_insert_default().windows.push_back(window);
                break;
            }
        }
        let count = u64::from(bits.count_ones());
        mm.dirty -= count;
        mm.writeback += count;
        if let Some(list) = mm.inodes.get_mut(inode).dirty.as_deref_mut() {
            list.pages -= count;
        }
        if count > 0 {
            return Some((u64::from(window) * WINDOW_PAGES, bits));
        }
    }
    None
}

async fn flush_run(m: &Machine, task: &mut Task, inode: InodeId, run: Option<(u64, u64)>, site: Site) {
    let Some((first_page, pages)) = run else { return };
    let position = m.position(inode, first_page);
    let done = Done::Pages { inode, first_page, pages: pages as u32 };
    task.work(Site::Work, pages * m.costs.writepage_ns);
    let request = Request { write: true, position, pages: pages as u32, done, queued_ns: 0 };
    m.mm.borrow_mut().events.pgpgout_kib += pages * 4;
    block::submit(m, task, request, site).await;
}

/// writeback_inodes: up to `max_pages` from the dirty files in turn, those dirtied before `older_ns` only.
pub async fn write_some(m: &Machine, task: &mut Task, max_pages: u64, older_ns: u64, site: Site) -> u64 {
    let mut written = 0;
    while written < max_pages {
        let Some(inode) = m.next_dirty_inode(older_ns) else { break };
        m.wb.borrow_mut().next_inode = inode + 1;
        let got = write_file(m, task, inode, (max_pages - written).min(FLUSH_PAGES), site).await;
        written += got;
        if got == 0 {
            break;
        }
    }
    task.run(m).await;
    written
}

impl Machine {
    fn next_dirty_inode(&self, older_ns: u64) -> Option<InodeId> {
        let mm = self.mm.borrow();
        let from = self.wb.borrow().next_inode;
        let fits = |id: &InodeId| {
            let dirty = mm.inodes.get(*id).dirty.as_deref();
            dirty.is_some_and(|dirty| dirty.pages > 0 && dirty.since_ns <= older_ns && !dirty.windows.is_empty())
        };
        let turn = self.dirty_inodes.borrow();
        let after = turn.range(from..).copied().find(&fits);
        after.or_else(|| turn.range(..from).copied().find(&fits))
    }

    pub fn wake_flusher(&self) {
        let mut wb = self.wb.borrow_mut();
        if std::mem::take(&mut wb.flusher_parked)
            && let Some(flusher) = wb.flusher
        {
            self.clock.wake(flusher);
        }
    }

    /// Sleeps until the device's queue drains or the time is up (`congestion_wait`).
    pub async fn congestion_wait(&self, task: &mut Task, ns: u64) {
        task.run(self).await;
        let me = self.clock.current();
        self.block.borrow_mut().congestion_queue().join(me);
        let deadline = self.clock.now() + ns;
        task.park(self, Some(deadline), Site::CongestionWait, Culprit::Device).await;
        self.block.borrow_mut().congestion_queue().leave(me);
    }
}

/// The flusher: every interval what has been dirty for long, and whenever it is woken, down to the background limit.
pub async fn flusher(m: std::rc::Rc<Machine>) {
    let mut task = Task::new(0, 0);
    task.memalloc = true;
    m.wb.borrow_mut().flusher = Some(m.clock.current());
    let mut periodic_ns = 0;
    loop {
        task.begin();
        let now = m.clock.now();
        let (interval, expire) = {
            let knobs = m.knobs.borrow();
            (knobs.writeback_interval_ns, knobs.dirty_expire_ns)
        };
        if now >= periodic_ns && interval > 0 {
            periodic_ns = now + interval;
            while write_some(&m, &mut task, FLUSH_PAGES, now.saturating_sub(expire), Site::GetRequestWait).await > 0 {}
        }
        loop {
            let over = m.mm.borrow().dirty > limits(&m).background;
            if !over {
                break;
            }
            if write_some(&m, &mut task, FLUSH_PAGES, u64::MAX, Site::GetRequestWait).await == 0 {
                if !m.block.borrow().congested() {
                    break;
                }
                m.congestion_wait(&mut task, m.costs.jiffy_ns * m.profile.hz / 10).await;
            }
        }
        m.wb.borrow_mut().flusher_parked = true;
        let deadline = (interval > 0).then_some(periodic_ns.max(m.clock.now() + 1));
        m.clock.park(deadline).await;
        m.wb.borrow_mut().flusher_parked = false;
    }
}

/// After each page dirtied: is it time to look at the limits?
#[inline]
pub fn due(m: &Machine, task: &mut Task) -> bool {
    let mut wb = m.wb.borrow_mut();
    wb.dirtied += 1;
    task.dirtied += 1;
    if m.profile.throttle == Throttle::IoLess {
        return task.dirtied > task.poll_pages;
    }
    // mm/page-writeback.c: balance_dirty_pages_ratelimited_nr: one counter a CPU, 8 once the limit was passed.
    let limit = if wb.dirty_exceeded { 8 } else { m.knobs.borrow().ratelimit_pages };
    let counter = &mut wb.per_cpu[usize::from(task.cpu)];
    *counter += 1;
    let due = u64::from(*counter) >= limit;
    if due {
        *counter = 0;
    }
    due
}

pub async fn balance(m: &Machine, task: &mut Task) {
    match m.profile.throttle {
        Throttle::PerCpuRateLimit => balance_by_chunk(m, task, false).await,
        Throttle::DoublingPauses => balance_by_chunk(m, task, true).await,
        Throttle::IoLess => balance_by_pause(m, task).await,
        Throttle::None => {}
    }
}

/// mm/page-writeback.c: balance_dirty_pages, 2.6.17 (and with `free_run` and doubling pauses 2.6.32): the caller
/// writes until a chunk of 1.5 x the rate limit is on its way.
async fn balance_by_chunk(m: &Machine, task: &mut Task, free_run: bool) {
    let chunk = m.knobs.borrow().ratelimit_pages * 3 / 2;
    let mut written = 0;
    let mut pause_ns = m.costs.jiffy_ns;
    loop {
        let limits = limits(m);
        let (dirty, writeback) = {
            let mm = m.mm.borrow();
            (mm.dirty, mm.writeback)
        };
        let free =
            if free_run { limits.throttle.min((limits.background + limits.throttle) / 2) } else { limits.throttle };
        if dirty + writeback <= free {
            m.wb.borrow_mut().dirty_exceeded = false;
            if dirty > limits.background {
                m.wake_flusher();
            }
            break;
        }
        m.wb.borrow_mut().dirty_exceeded = dirty + writeback > limits.throttle;
        if dirty > 0 {
            written += write_some(m, task, chunk - written, u64::MAX, Site::GetRequestWait).await;
            if written >= chunk {
                break;
            }
        }
        task.run(m).await;
        if free_run {
            task.sleep(m, pause_ns, Site::BalanceDirty).await;
            pause_ns = (pause_ns * 2).min(m.costs.jiffy_ns * m.profile.hz / 10);
        } else {
            let me = m.clock.current();
            m.block.borrow_mut().congestion_queue().join(me);
            let deadline = m.clock.now() + m.costs.jiffy_ns * m.profile.hz / 10;
            task.park(m, Some(deadline), Site::BalanceDirty, Culprit::Device).await;
            m.block.borrow_mut().congestion_queue().leave(me);
        }
    }
}

/// mm/page-writeback.c: balance_dirty_pages, 3.2 to 6.12: a pause that makes the task as fast as its share.
async fn balance_by_pause(m: &Machine, task: &mut Task) {
    let limits = limits(m);
    let setpoint_free = (limits.background + limits.throttle) / 2;
    let dirty = {
        let mm = m.mm.borrow();
        mm.dirty + mm.writeback
    };
    let dirtied = u64::from(std::mem::take(&mut task.dirtied));
    if dirty > limits.background {
        m.wake_flusher();
    }
    if dirty <= setpoint_free {
        // dirty_poll_interval: 2^(floor(log2(thresh - dirty)) / 2).
        let room = limits.throttle.saturating_sub(dirty).max(1);
        task.poll_pages = 1 << (room.ilog2() / 2);
        task.dirtied_at_ns = m.clock.now();
        return;
    }
    let rate = m.task_rate(limits, setpoint_free, dirty);
    let think_ns = m.clock.now().saturating_sub(task.dirtied_at_ns);
    let period_ns = (dirtied as f64 / rate * 1e9) as u64;
    // max_pause 200 ms; under a tick it is let go on and pays next time.
    let pause_ns = period_ns.saturating_sub(think_ns).min(200_000_000);
    let hard = dirty > limits.throttle;
    if pause_ns > 1_000_000 || hard {
        task.sleep(m, if hard { pause_ns.max(10_000_000) } else { pause_ns }, Site::BalanceDirty).await;
    }
    // The next look is due after about 10 ms worth of pages.
    task.poll_pages = ((rate / 100.0) as u32).clamp(1, 4096);
    task.dirtied_at_ns = m.clock.now();
}

impl Machine {
    /// wb_position_ratio and wb_update_dirty_ratelimit in outline: pages a second for one task.
    fn task_rate(&self, limits: Limits, free: u64, dirty: u64) -> f64 {
        let done = self.block.borrow().bytes[1] / 4096;
        let mut wb = self.wb.borrow_mut();
        let now = self.clock.now();
        let setpoint = (free + limits.throttle) as f64 / 2.0;
        let limit = limits.throttle as f64;
        let x = (setpoint - dirty as f64) / (limit - setpoint).max(1.0);
        let position = (1.0 + x * x * x).clamp(0.0, 2.0);
        let elapsed = now.saturating_sub(wb.stamp_ns);
        // BANDWIDTH_INTERVAL: at most every 200 ms.
        if elapsed >= 200_000_000 {
            let seconds = elapsed as f64 / 1e9;
            let bandwidth = (done - wb.stamp_done) as f64 / seconds;
            wb.dirty_rate = ((wb.dirtied - wb.stamp_dirtied) as f64 / seconds).max(1.0);
            wb.bandwidth = (wb.bandwidth * 7.0 + bandwidth) / 8.0;
            let task_rate = wb.balanced * position;
            let balanced = task_rate * wb.bandwidth / wb.dirty_rate;
            wb.balanced = ((wb.balanced * 7.0 + balanced.clamp(wb.balanced / 8.0, wb.balanced * 8.0)) / 8.0).max(1.0);
            (wb.stamp_ns, wb.stamp_done, wb.stamp_dirtied) = (now, done, wb.dirtied);
        }
        (wb.balanced * position).max(1.0)
    }
}

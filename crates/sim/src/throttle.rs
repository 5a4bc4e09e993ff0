//! Who is made to wait because too much is dirty.
//!
//! Models: the three generations of `balance_dirty_pages`: a per-CPU rate limit with a chunk written by the caller
//! (2.6.17), the same with doubling pauses and a free run (2.6.32), and pauses computed from bandwidth and position
//! without any I/O by the caller (3.2 and later). Leaves out: limits by device, cpusets, the light-dirtier discounts.

use super::Machine;
use super::constant::constants;
use super::inode::InodeId;
use super::kernel::Throttle;
use super::site::Site;
use super::task::{Culprit, Task};
use super::writeback::{Limits, Writeback, domain, limits, write_file, write_some};

constants! {
    const MAX_PAUSE_NS: u64 = kernel(200_000_000, "mm/page-writeback.c", "MAX_PAUSE (max(HZ/5, 1))", "3.2");
    /// Pages that a task may dirty between two checks while the limit is exceeded.
    const EXCEEDED_POLL_PAGES: u32 =
        kernel(8, "mm/page-writeback.c", "balance_dirty_pages_ratelimited (32 >> (PAGE_SHIFT - 10))", "3.2");
    /// The same on 2.6, counted by CPU.
    const EXCEEDED_RATELIMIT: u64 = kernel(8, "mm/page-writeback.c", "balance_dirty_pages_ratelimited_nr", "2.6.18");
    const BANDWIDTH_INTERVAL_NS: u64 = kernel(200_000_000, "mm/page-writeback.c", "BANDWIDTH_INTERVAL", "3.2");
}

/// After each page dirtied: is it time to look at the limits?
#[inline]
pub fn due(m: &Machine, task: &mut Task) -> bool {
    let mut wb = m.wb.borrow_mut();
    wb.dirtied += 1;
    task.dirtied += 1;
    if m.profile.throttle == Throttle::IoLess {
        return wb.is_due(task);
    }
    if !m.ablations.writes_for_others() {
        let due = u64::from(task.dirtied) >= m.knobs.borrow().ratelimit_pages;
        task.dirtied = if due { 0 } else { task.dirtied };
        return due;
    }
    // mm/page-writeback.c: balance_dirty_pages_ratelimited_nr: one counter a CPU, 8 once the limit was passed.
    let limit = if wb.dirty_exceeded { EXCEEDED_RATELIMIT.get() } else { m.knobs.borrow().ratelimit_pages };
    let counter = &mut wb.per_cpu[usize::from(task.cpu)];
    *counter += 1;
    let due = u64::from(*counter) >= limit;
    if due {
        *counter = 0;
    }
    due
}

pub async fn balance(m: &Machine, task: &mut Task, inode: InodeId) {
    match m.profile.throttle {
        Throttle::PerCpuRateLimit if !m.ablations.writes_for_others() => {
            let chunk = m.knobs.borrow().ratelimit_pages;
            write_file(m, task, inode, chunk, Site::GetRequestWait).await;
            task.run(m).await;
        }
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
    let mut pause_ns = m.profile.jiffy_ns();
    loop {
        task.work(Site::Work, m.costs.balance_ns);
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
            written += write_some(m, task, chunk - written, Site::GetRequestWait).await;
            if written >= chunk {
                break;
            }
        }
        task.run(m).await;
        if free_run {
            task.sleep(m, pause_ns, Site::BalanceDirty).await;
            pause_ns = (pause_ns * 2).min(m.profile.jiffy_ns() * m.profile.hz.get() / 10);
        } else {
            let me = m.clock.current();
            m.block.borrow_mut().congestion_queue().join(me);
            let deadline = m.clock.now() + m.profile.jiffy_ns() * m.profile.hz.get() / 10;
            task.park(m, Some(deadline), Site::BalanceDirty, Culprit::Device).await;
            m.block.borrow_mut().congestion_queue().leave(me);
        }
    }
}

impl Writeback {
    /// mm/page-writeback.c: balance_dirty_pages_ratelimited_flags, 3.2 to 6.12: by task, and by CPU, so that many tasks
    /// that each may dirty a little do not exceed the limit together.
    fn is_due(&mut self, task: &Task) -> bool {
        let limit = if self.dirty_exceeded { task.poll_pages.min(EXCEEDED_POLL_PAGES.get()) } else { task.poll_pages };
        let Some(counter) = self.per_cpu.get_mut(usize::from(task.cpu)) else { return true };
        *counter += 1;
        if *counter >= self.ratelimit_pages {
            *counter = 0;
            return true;
        }
        task.dirtied > limit
    }
}

fn over_limit(m: &Machine, task: &Task) -> bool {
    let (limits, dirty) = domain(m, task.in_cgroup);
    dirty >= limits.throttle.max(1)
}

/// mm/page-writeback.c: balance_dirty_pages, 3.2 to 6.12: a pause that makes the task as fast as its share.
async fn balance_by_pause(m: &Machine, task: &mut Task) {
    let (limits, dirty) = domain(m, task.in_cgroup);
    let setpoint_free = (limits.background + limits.throttle) / 2;
    let dirtied = u64::from(std::mem::take(&mut task.dirtied));
    if dirty > limits.background {
        m.wake_flusher();
    }
    {
        let mut wb = m.wb.borrow_mut();
        wb.dirty_exceeded = dirty > limits.throttle;
        // writeback_set_ratelimit.
        let cpus = wb.per_cpu.len().max(1) as u64;
        wb.ratelimit_pages = (limits.throttle / (cpus * 32)).clamp(16, 1 << 20) as u32;
    }
    if dirty <= setpoint_free {
        // dirty_poll_interval: 2^(floor(log2(thresh - dirty)) / 2).
        let room = limits.throttle.saturating_sub(dirty).max(1);
        task.poll_pages = 1 << (room.ilog2() / 2);
        task.dirtied_at_ns = m.clock.now();
        return;
    }
    // pos_ratio is 0 at the limit: nobody goes on before there is room.
    while over_limit(m, task) {
        task.sleep(m, MAX_PAUSE_NS.get(), Site::BalanceDirty).await;
        m.wake_flusher();
    }
    let (_, dirty) = domain(m, task.in_cgroup);
    let rate = m.task_rate(limits, setpoint_free, dirty);
    let think_ns = m.clock.now().saturating_sub(task.dirtied_at_ns);
    let period_ns = (dirtied as f64 / rate * 1e9) as u64;
    // Under a tick it is let go on and pays next time.
    let pause_ns = period_ns.saturating_sub(think_ns).min(MAX_PAUSE_NS.get());
    if pause_ns > 1_000_000 {
        task.sleep(m, pause_ns, Site::BalanceDirty).await;
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
        if elapsed >= BANDWIDTH_INTERVAL_NS.get() {
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

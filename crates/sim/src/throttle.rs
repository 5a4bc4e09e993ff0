//! Who is made to wait because too much is dirty.
//!
//! Models: `balance_dirty_pages` of 2.6.17 and 2.6.18 (a per-CPU rate limit, a chunk written by the caller), of 2.6.24 to
//! 2.6.31 (nobody is held below the middle of both limits, and the limit is lower for heavy dirtiers), of 2.6.32 (the same
//! with doubling pauses) and of 3.1 (which end once the limit is kept, or after 200 ms near it); `io_less` has that of 3.2 and
//! later.
//! Leaves out: limits by device, cpusets.

use super::Machine;
use super::constant::constants;
use super::io_less;
use super::kernel::Throttle;
use super::site::Site;
use super::task::{Culprit, Mechanism, Task};
use super::writeback::{Limits, limits, write_some};

constants! {
    /// Pages dirtied on a CPU between two checks while the limit is exceeded.
    const EXCEEDED_RATELIMIT: u64 = kernel(8, "mm/page-writeback.c", "balance_dirty_pages_ratelimited_nr", "2.6.18");
    /// How long a caller is held at most while the limit is exceeded by no more than a sixteenth.
    const MAX_PAUSE_NS: u64 = kernel(200_000_000, "mm/page-writeback.c", "MAX_PAUSE (HZ/5)", "3.1");
    const MAX_PAUSE_AREA: u64 = kernel(16, "include/linux/writeback.h", "DIRTY_MAXPAUSE_AREA", "3.1");
    /// The most that a task which dirties all of the pages is held below the limit: an eighth of it.
    const TASK_LIMIT_SHIFT: u64 = kernel(3, "mm/page-writeback.c", "task_dirty_limit (*pdirty >> 3)", "2.6.32");
}

/// After each page dirtied: is it time to check the limits?
#[inline]
pub fn due(m: &Machine, task: &mut Task) -> bool {
    let mut wb = m.wb.borrow_mut();
    wb.dirtied += 1;
    task.nr_dirtied += 1;
    if m.profile.throttle == Throttle::IoLess {
        drop(wb);
        return io_less::is_due(m, task);
    }
    if m.profile.throttle.has_task_limits() {
        wb.dirties.count(&mut task.dirties);
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

pub async fn balance(m: &Machine, task: &mut Task) {
    note_excess(m);
    let from = task.instant(m);
    match m.profile.throttle {
        Throttle::PerCpuRateLimit => balance_by_chunk(m, task).await,
        Throttle::TaskLimits | Throttle::OverLimitOnly | Throttle::DoublingPauses => balance_by_task(m, task).await,
        Throttle::GoodAreas => balance_until_good(m, task).await,
        Throttle::IoLess => io_less::balance(m, task).await,
        Throttle::None => {}
    }
    task.bracket(m, Mechanism::DirtyThrottle, from);
}

/// For the swarm: how far the pages are above the machine's limit.
fn note_excess(m: &Machine) {
    let limit = limits(m).throttle;
    let (dirty, writeback) = dirty_and_writeback(m);
    let over = (dirty + writeback).saturating_sub(limit);
    let mut wb = m.wb.borrow_mut();
    if over > wb.over_limit.0 {
        wb.over_limit = (over, limit);
    }
}

/// mm/page-writeback.c: sync_writeback_pages, 2.6: pages that a caller has written before it may continue.
fn write_chunk(m: &Machine) -> u64 {
    let ratelimit = m.knobs.borrow().ratelimit_pages;
    ratelimit + ratelimit / 2
}

fn dirty_and_writeback(m: &Machine) -> (u64, u64) {
    let mm = m.mm.borrow();
    (mm.dirty, mm.writeback)
}

/// mm/page-writeback.c: balance_dirty_pages, 2.6.18: the caller writes until a chunk is on its way or the limit is kept.
async fn balance_by_chunk(m: &Machine, task: &mut Task) {
    let chunk = write_chunk(m);
    let mut written = 0;
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        let within = |dirty: u64, writeback: u64| dirty + writeback <= limits(m).throttle;
        let (dirty, writeback) = dirty_and_writeback(m);
        if within(dirty, writeback) {
            break;
        }
        m.wb.borrow_mut().dirty_exceeded = true;
        if dirty > 0 {
            written += write_some(m, task, chunk, Site::GetRequestWait).await;
            let (dirty, writeback) = dirty_and_writeback(m);
            if within(dirty, writeback) || written >= chunk {
                break;
            }
        }
        wait_for_requests(m, task).await;
    }
    let (dirty, writeback) = dirty_and_writeback(m);
    if dirty + writeback <= limits(m).throttle {
        m.wb.borrow_mut().dirty_exceeded = false;
    }
    m.wake_flusher_over_background();
}

/// mm/backing-dev.c: congestion_wait(WRITE, HZ/10): until the queue drains, or a tenth of a second.
async fn wait_for_requests(m: &Machine, task: &mut Task) {
    task.run(m).await;
    let me = m.clock.current();
    m.block.borrow_mut().congestion_queue().join(me);
    let deadline = m.clock.now() + m.profile.jiffy_ns() * m.profile.hz.get() / 10;
    task.park(m, Some(deadline), Site::BalanceDirty, Culprit::Device).await;
    m.block.borrow_mut().congestion_queue().leave(me);
}

/// mm/page-writeback.c: balance_dirty_pages, 2.6.26, 2.6.31 and 2.6.32: nobody is throttled below the middle of both limits. A caller
/// writes while anything is dirty, from 2.6.31 on only while what is dirty alone exceeds its limit. In 2.6.32 it pauses from a
/// jiffy to HZ/10, twice as long each time, whatever the queue does.
async fn balance_by_task(m: &Machine, task: &mut Task) {
    let chunk = write_chunk(m);
    let mut written = 0;
    let mut pause = 1;
    let (mut dirty, mut writeback, mut own);
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        let all = limits(m);
        own = m.wb.borrow_mut().dirties.task_limit(&mut task.dirties, all.throttle);
        (dirty, writeback) = dirty_and_writeback(m);
        if !all.throttles(dirty + writeback, own) {
            break;
        }
        m.wb.borrow_mut().dirty_exceeded = true;
        let writes = if m.profile.throttle == Throttle::TaskLimits { dirty > 0 } else { dirty > own };
        if writes {
            written += write_some(m, task, chunk, Site::GetRequestWait).await;
            own = m.wb.borrow_mut().dirties.task_limit(&mut task.dirties, limits(m).throttle);
        }
        (dirty, writeback) = dirty_and_writeback(m);
        if dirty + writeback <= own || written >= chunk {
            break;
        }
        if m.profile.throttle == Throttle::DoublingPauses {
            task.run(m).await;
            task.sleep(m, pause * m.profile.jiffy_ns(), Site::BalanceDirty).await;
            pause = (pause * 2).min(m.profile.hz.get() / 10);
        } else {
            wait_for_requests(m, task).await;
        }
    }
    if dirty + writeback < own {
        m.wb.borrow_mut().dirty_exceeded = false;
    }
    m.wake_flusher_over_background();
}

/// What balance_dirty_pages of 3.1 makes of what is dirty or under writeback, and of a task's own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    holds: bool,
    /// No task is above its limit: the CPUs may dirty more again before they look (clear_dirty_exceeded).
    clears: bool,
    /// It is let go after the next pause (pass-good area), or if it has been held for long (max-pause area).
    good: bool,
    bearable: bool,
}

impl Verdict {
    fn of(limits: Limits, sum: u64, own: u64) -> Verdict {
        let all = limits.throttle;
        Verdict {
            holds: sum > (limits.background + all) / 2 && (sum > own || sum > all),
            clears: sum <= all - (all >> TASK_LIMIT_SHIFT.get()),
            good: sum < all,
            bearable: sum < all + all / MAX_PAUSE_AREA.get(),
        }
    }
}

/// mm/page-writeback.c: balance_dirty_pages, 3.1: doubling pauses that end as soon as the limit is kept, although the task's own is
/// not, or after 200 ms near it.
async fn balance_until_good(m: &Machine, task: &mut Task) {
    let (chunk, from) = (write_chunk(m), m.clock.now());
    let (mut written, mut pause) = (0, 1);
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        let all = limits(m);
        let own = m.wb.borrow_mut().dirties.task_limit(&mut task.dirties, all.throttle);
        let (dirty, writeback) = dirty_and_writeback(m);
        let verdict = Verdict::of(all, dirty + writeback, own);
        m.wb.borrow_mut().dirty_exceeded &= !verdict.clears;
        if !verdict.holds {
            break;
        }
        m.wb.borrow_mut().dirty_exceeded = true;
        if dirty > own {
            written += write_some(m, task, chunk, Site::GetRequestWait).await;
            if written >= chunk {
                break;
            }
        }
        task.run(m).await;
        task.sleep(m, pause * m.profile.jiffy_ns(), Site::BalanceDirty).await;
        pause = (pause * 2).min(m.profile.hz.get() / 10);
        if verdict.good || (verdict.bearable && m.clock.now() - from > MAX_PAUSE_NS.get()) {
            break;
        }
    }
    m.wake_flusher_over_background();
}

/// Who dirties how much of late (lib/proportions.c, 2.6.24 to 3.1): counts that are halved with each period of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dirties {
    events: u64,
    shift: u32,
}

/// One task's part of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskDirties {
    events: u64,
    period: u64,
}

impl Dirties {
    /// prop_norm_single: for each period missed the local count is halved.
    fn norm(&self, task: &mut TaskDirties) {
        let half = self.shift.saturating_sub(1);
        let now = self.events >> half;
        let missed = now - task.period.min(now);
        task.events = if missed < 64 { task.events >> missed } else { 0 };
        task.period = now;
    }

    /// __prop_inc_single.
    #[inline]
    pub fn count(&mut self, task: &mut TaskDirties) {
        self.norm(task);
        task.events += 1;
        self.events += 1;
    }

    /// task_dirty_limit: up to an eighth lower, by the task's share of what was dirtied (prop_fraction_single).
    fn task_limit(&mut self, task: &mut TaskDirties, limit: u64) -> u64 {
        // calc_period_shift. Counts of another period's length say nothing.
        let shift = 2 + limit.saturating_sub(1).max(1).ilog2();
        if shift != self.shift {
            *self = Dirties { events: 0, shift };
            *task = TaskDirties::default();
        }
        self.norm(task);
        let half = 1_u64 << (shift - 1);
        let denominator = half + (self.events & (half - 1));
        let less = u128::from(limit >> TASK_LIMIT_SHIFT.get()) * u128::from(task.events) / u128::from(denominator);
        // A task's count may be of a longer period than the present one, and larger than all of it.
        limit.saturating_sub(less as u64).max(limit / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::{Dirties, TaskDirties, Verdict};
    use crate::writeback::Limits;

    #[test]
    fn who_is_above_his_own_limit_is_let_go_after_a_pause_once_the_limit_of_all_is_kept() {
        // 1024 and 2048 pages: free up to 1536, his own limit an eighth below (1792).
        let at = |sum: u64| Verdict::of(Limits { background: 1024, throttle: 2048 }, sum, 1792);
        let verdict = |holds, clears, good, bearable| Verdict { holds, clears, good, bearable };
        assert_eq!(at(1792), verdict(false, true, true, true));
        assert_eq!(at(1793), verdict(true, false, true, true));
        assert_eq!(at(2048), verdict(true, false, false, true));
        assert_eq!((at(2175).bearable, at(2176).bearable), (true, false), "a sixteenth above");
    }

    #[test]
    fn a_count_of_a_longer_period_lowers_the_limit_to_half_at_most() {
        let (mut all, mut task) = (Dirties { events: 0, shift: 20 }, TaskDirties::default());
        (0..100_000).for_each(|_| all.count(&mut task));
        // The limit fell, and another task was the first to see it.
        all.task_limit(&mut TaskDirties::default(), 1024);
        assert_eq!(all.task_limit(&mut task, 1024), 512);
    }

    #[test]
    fn who_dirties_everything_is_held_an_eighth_below_the_limit_and_one_of_two_a_sixteenth() {
        // calc_period_shift: 2 + ilog2(1023) = 11; half a period is 1024 pages.
        let mut all = Dirties { events: 0, shift: 11 };
        let (mut one, mut other) = (TaskDirties::default(), TaskDirties::default());
        (0..8 * 1024).for_each(|_| all.count(&mut one));
        // The count tends to the whole period: 1024 events a half period, halved each time.
        let limit = all.task_limit(&mut one, 1024);
        assert!((1024 - 128..=1024 - 126).contains(&limit), "{limit}");
        for _ in 0..8 * 1024 {
            all.count(&mut one);
            all.count(&mut other);
        }
        for task in [&mut one, &mut other] {
            let limit = all.task_limit(task, 1024);
            assert!((1024 - 65..=1024 - 62).contains(&limit), "{limit}");
        }
    }
}

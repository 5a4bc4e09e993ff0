//! Who is made to wait because too much is dirty.
//!
//! Models: `balance_dirty_pages` of 2.6.17 and 2.6.18 (a per-CPU rate limit, a chunk written by the caller), of 2.6.24 to
//! 2.6.31 (nobody is held below the middle of both limits, and the limit is lower for heavy dirtiers), of 2.6.32 (the same
//! with doubling pauses) and of 3.1 (which end once the limit is kept, or after 200 ms near it); `io_less` has that of 3.2 and
//! later.
//! From 2.6.24 on each device has its part of the limit (`share`). Leaves out: cpusets.

use super::Machine;
use super::constant::constants;
use super::device::DeviceId;
use super::io_less;
use super::kernel::{Shares, Throttle};
use super::proportions::{ByEvents, Local};
use super::share::{clipped, dirty_of, share};
use super::site::Site;
use super::task::{Culprit, Mechanism, Task};
use super::writeback::{Limits, limits, write_some};

constants! {
    /// Pages dirtied on a CPU between two checks while the limit is exceeded.
    const EXCEEDED_RATELIMIT: u64 = kernel(8, "mm/page-writeback.c", "balance_dirty_pages_ratelimited_nr", "2.6.18");
    /// How long a caller is held at most while the limit is exceeded by no more than a sixteenth.
    const MAX_PAUSE_NS: u64 = kernel(200_000_000, "mm/page-writeback.c", "MAX_PAUSE (HZ/5)", "3.1");
    const MAX_PAUSE_AREA: u64 = kernel(16, "include/linux/writeback.h", "DIRTY_MAXPAUSE_AREA", "3.1");
    /// A device within its share is let go up to an eighth above the machine's limit.
    const PASS_GOOD_AREA: u64 = kernel(8, "include/linux/writeback.h", "DIRTY_PASSGOOD_AREA", "3.1");
    /// The most that a task which dirties all of the pages is held below the limit: an eighth of it.
    const TASK_LIMIT_SHIFT: u64 = kernel(3, "mm/page-writeback.c", "task_dirty_limit (*pdirty >> 3)", "2.6.32");
}

/// After each page dirtied: is it time to check the limits?
#[inline]
pub fn due(m: &Machine, device: DeviceId, task: &mut Task) -> bool {
    let exceeded = {
        let mut bdi = m.device(device).bdi.borrow_mut();
        bdi.dirtied += 1;
        bdi.dirty_exceeded
    };
    task.nr_dirtied += 1;
    if m.profile.throttle == Throttle::IoLess {
        return io_less::is_due(m, exceeded, task);
    }
    let mut wb = m.wb.borrow_mut();
    if m.profile.throttle.has_task_limits() {
        wb.dirties.count(&mut task.dirties);
    }
    // mm/page-writeback.c: balance_dirty_pages_ratelimited_nr: one counter a CPU, 8 once the limit was passed.
    let limit = if exceeded { EXCEEDED_RATELIMIT.get() } else { m.knobs.borrow().ratelimit_pages };
    let counter = &mut wb.per_cpu[usize::from(task.cpu)];
    *counter += 1;
    let due = u64::from(*counter) >= limit;
    if due {
        *counter = 0;
    }
    due
}

pub async fn balance(m: &Machine, device: DeviceId, task: &mut Task) {
    note_excess(m);
    task.enter(m, Mechanism::DirtyThrottle);
    match m.profile.throttle {
        Throttle::PerCpuRateLimit => balance_by_chunk(m, device, task).await,
        Throttle::TaskLimits | Throttle::OverLimitOnly | Throttle::DoublingPauses => {
            balance_by_task(m, device, task).await;
        }
        Throttle::GoodAreas => balance_until_good(m, device, task).await,
        Throttle::IoLess => io_less::balance(m, device, task).await,
        Throttle::None => {}
    }
    task.leave(m);
}

/// For the swarm: how far the pages are above the machine's limit.
fn note_excess(m: &Machine) {
    let limit = limits(m).throttle;
    let (all, _) = dirty_of(m, DeviceId::FIRST);
    let over = all.saturating_sub(limit);
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

/// mm/page-writeback.c: balance_dirty_pages, 2.6.18: the caller writes until a chunk is on its way or the limit is kept. The limit
/// is that of all devices, and what it writes is its own device's: it may wait for another device without a page to write.
async fn balance_by_chunk(m: &Machine, device: DeviceId, task: &mut Task) {
    let chunk = write_chunk(m);
    let mut written = 0;
    let within = || dirty_of(m, device).0 <= limits(m).throttle;
    // One flag for all devices (dirty_exceeded).
    let note = |exceeded| m.devices.iter().for_each(|device| device.bdi.borrow_mut().dirty_exceeded = exceeded);
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        if within() {
            break;
        }
        note(true);
        let any_dirty = m.mm.borrow().dirty() > 0;
        if any_dirty {
            written += write_some(m, device, task, chunk, Site::GetRequestWait).await;
            if within() || written >= chunk {
                break;
            }
        }
        wait_for_requests(m, task).await;
    }
    if within() {
        note(false);
    }
    m.wake_flusher_over_background(device);
}

/// mm/backing-dev.c: congestion_wait(WRITE, HZ/10): until the queue drains, or a tenth of a second.
async fn wait_for_requests(m: &Machine, task: &mut Task) {
    task.run(m).await;
    let me = m.clock.current();
    m.wb.borrow_mut().congestion.join(me);
    let deadline = m.clock.now() + m.profile.jiffy_ns() * m.profile.hz.get() / 10;
    task.park(m, Some(deadline), Site::BalanceDirty, Culprit::Device).await;
    m.wb.borrow_mut().congestion.leave(me);
}

/// mm/page-writeback.c: balance_dirty_pages, 2.6.26, 2.6.31 and 2.6.32: nobody is throttled below the middle of both limits. A caller
/// writes while anything of its device is dirty, from 2.6.31 on only while that alone exceeds its limit. In 2.6.32 it pauses from a
/// jiffy to HZ/10, twice as long each time, whatever the queue does.
async fn balance_by_task(m: &Machine, device: DeviceId, task: &mut Task) {
    let chunk = write_chunk(m);
    let mut written = 0;
    let mut pause = 1;
    let (mut limit, mut of_device, mut own);
    let task_limit = |task: &mut Task, limit: u64| {
        let share = clipped(m, device, limit);
        task_limit(&mut m.wb.borrow_mut().dirties, &mut task.dirties, share, limit)
    };
    // 2.6.36 and later: nobody is above the limit of all, whatever his device has.
    let hard = m.profile.shares != Shares::Clipped;
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        let all = limits(m);
        (limit, own) = (all.throttle, task_limit(task, all.throttle));
        let (sum, now) = dirty_of(m, device);
        of_device = now;
        if !is_over(limit, sum, (of_device.sum(), own), hard) || sum < all.middle() {
            break;
        }
        m.device(device).bdi.borrow_mut().dirty_exceeded = true;
        let writes =
            if m.profile.throttle == Throttle::TaskLimits { of_device.dirty > 0 } else { of_device.dirty > own };
        if writes {
            written += write_some(m, device, task, chunk, Site::GetRequestWait).await;
            limit = limits(m).throttle;
            own = task_limit(task, limit);
        }
        let (sum, now) = dirty_of(m, device);
        of_device = now;
        if !is_over(limit, sum, (of_device.sum(), own), hard) || written >= chunk {
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
    if of_device.sum() < own {
        m.device(device).bdi.borrow_mut().dirty_exceeded = false;
    }
    m.wake_flusher_over_background(device);
}

/// Whether a device has more than a task may have of it, or from 2.6.36 on (`hard`) all of them more than their limit.
fn is_over(limit: u64, sum: u64, (of_device, own): (u64, u64), hard: bool) -> bool {
    of_device > own || (hard && sum > limit)
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
    /// Of all that is dirty or under writeback, and of the device's, which may have a share of the limit; `own` is the task's.
    fn of(limits: Limits, sum: u64, (of_device, share): (u64, u64), own: u64) -> Verdict {
        let all = limits.throttle;
        Verdict {
            holds: sum > limits.middle() && (of_device > own || sum > all),
            clears: of_device <= share - (share >> TASK_LIMIT_SHIFT.get()) && sum <= all,
            good: sum < all + all / PASS_GOOD_AREA.get() && of_device < share,
            bearable: sum < all + all / MAX_PAUSE_AREA.get(),
        }
    }
}

/// mm/page-writeback.c: balance_dirty_pages, 3.1: doubling pauses that end as soon as the device's limit is kept, although the task's
/// own is not, or after 200 ms near it.
async fn balance_until_good(m: &Machine, device: DeviceId, task: &mut Task) {
    let (chunk, from) = (write_chunk(m), m.clock.now());
    let (mut written, mut pause) = (0, 1);
    let bdi = &m.device(device).bdi;
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        let all = limits(m);
        let share = share(m, device, all.throttle);
        let own = task_limit(&mut m.wb.borrow_mut().dirties, &mut task.dirties, share, all.throttle);
        let (sum, of_device) = dirty_of(m, device);
        let verdict = Verdict::of(all, sum, (of_device.sum(), share), own);
        bdi.borrow_mut().dirty_exceeded &= !verdict.clears;
        if !verdict.holds {
            break;
        }
        bdi.borrow_mut().dirty_exceeded = true;
        if of_device.dirty > own {
            written += write_some(m, device, task, chunk, Site::GetRequestWait).await;
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
    m.wake_flusher_over_background(device);
}

/// task_dirty_limit, 2.6.24 to 3.1: up to an eighth of a device's share lower, by the task's part of what was dirtied of late
/// (prop_fraction_single). Periods are of the machine's limit.
fn task_limit(all: &mut ByEvents, task: &mut Local, share: u64, limit: u64) -> u64 {
    if all.set_shift(ByEvents::shift_for(limit)) {
        *task = Local::default();
    }
    let (numerator, denominator) = all.fraction(task);
    let less = u128::from(share >> TASK_LIMIT_SHIFT.get()) * u128::from(numerator) / u128::from(denominator);
    // A task's count may be of a longer period than the present one, and larger than all of it.
    share.saturating_sub(less as u64).max(share / 2)
}

#[cfg(test)]
mod tests {
    use super::{ByEvents, Local, Verdict, is_over, task_limit};
    use crate::writeback::Limits;

    #[test]
    fn writers_of_2_6_32_are_free_up_to_the_middle_of_both_limits_or_to_their_own() {
        // (background + limit) / 2 is 150: whoever's own limit lies lower is nevertheless free up to there.
        let limits = Limits::new(100, 200);
        for (dirty, own, throttled) in [(149, 100, false), (150, 100, true), (175, 175, false), (176, 175, true)] {
            let over = is_over(200, dirty, (dirty, own), false);
            assert_eq!(over && dirty >= limits.middle(), throttled, "{dirty} pages");
        }
    }

    #[test]
    fn a_device_within_its_share_is_free_whatever_others_have_until_2_6_36_holds_everybody_at_the_limit() {
        // 10 pages of a share of 40, while others have 195 of a limit of 200.
        assert_eq!([false, true].map(|hard| is_over(200, 205, (10, 40), hard)), [false, true]);
        assert_eq!([false, true].map(|hard| is_over(200, 200, (10, 40), hard)), [false, false]);
        assert_eq!([false, true].map(|hard| is_over(200, 160, (41, 40), hard)), [true, true]);
    }

    #[test]
    fn who_is_above_his_own_limit_is_let_go_after_a_pause_once_the_limit_of_all_is_kept() {
        // 1024 and 2048 pages: free up to 1536, his own limit an eighth below (1792).
        let at = |sum: u64| Verdict::of(Limits { background: 1024, throttle: 2048 }, sum, (sum, 2048), 1792);
        let verdict = |holds, clears, good, bearable| Verdict { holds, clears, good, bearable };
        assert_eq!(at(1792), verdict(false, true, true, true));
        assert_eq!(at(1793), verdict(true, false, true, true));
        assert_eq!(at(2048), verdict(true, false, false, true));
        assert_eq!((at(2175).bearable, at(2176).bearable), (true, false), "a sixteenth above");
    }

    #[test]
    fn of_two_devices_in_3_1_the_one_within_its_share_is_let_go_up_to_an_eighth_above_the_limit() {
        let limits = Limits { background: 1024, throttle: 2048 };
        // Its share is 256 pages, the task's part of it 224.
        let at = |sum: u64, of_device: u64| Verdict::of(limits, sum, (of_device, 256), 224);
        assert!(!at(1536, 300).holds, "below the middle nobody is held");
        assert!(at(1600, 225).holds && !at(1600, 224).holds && at(2049, 10).holds, "all are above the machine's limit");
        assert!(at(2303, 255).good && !at(2303, 256).good && !at(2304, 10).good, "2048 + 2048 / 8");
        assert!(at(2048, 224).clears && !at(2049, 224).clears && !at(1600, 225).clears);
    }

    #[test]
    fn a_count_of_a_longer_period_lowers_the_limit_to_half_at_most() {
        let (mut all, mut task) = (ByEvents::default(), Local::default());
        all.set_shift(20);
        (0..100_000).for_each(|_| all.count(&mut task));
        // The limit fell, and another task was the first to see it.
        task_limit(&mut all, &mut Local::default(), 1024, 1024);
        assert_eq!(task_limit(&mut all, &mut task, 1024, 1024), 512);
    }

    #[test]
    fn who_dirties_everything_is_held_an_eighth_below_the_limit_and_one_of_two_a_sixteenth() {
        // calc_period_shift: 2 + ilog2(1023) = 11; half a period is 1024 pages.
        let mut all = ByEvents::default();
        all.set_shift(11);
        let (mut one, mut other) = (Local::default(), Local::default());
        (0..8 * 1024).for_each(|_| all.count(&mut one));
        // The count tends to the whole period: 1024 events a half period, halved each time.
        let limit = task_limit(&mut all, &mut one, 1024, 1024);
        assert!((1024 - 128..=1024 - 126).contains(&limit), "{limit}");
        for _ in 0..8 * 1024 {
            all.count(&mut one);
            all.count(&mut other);
        }
        for task in [&mut one, &mut other] {
            let limit = task_limit(&mut all, task, 1024, 1024);
            assert!((1024 - 65..=1024 - 62).contains(&limit), "{limit}");
        }
    }
}

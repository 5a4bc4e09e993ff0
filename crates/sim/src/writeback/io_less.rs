//! balance_dirty_pages of 3.2 and later: pauses computed from bandwidth and position, no I/O by the caller.
//!
//! Models, in the kernel's own integers and jiffies (mm/page-writeback.c, read in 4.18 and 6.12): dirty_poll_interval,
//! pos_ratio_polynom, wb_position_ratio with the wb's own line, wb_update_dirty_ratelimit, wb_update_write_bandwidth,
//! update_dirty_limit, wb_max_pause, wb_min_pause, and the loop of balance_dirty_pages with the debt of pauses that are
//! too short; each device has its share of the limit (`share`). Leaves out: dirty_throttle_leaks.

mod estimate;

pub use self::estimate::estimator;
use crate::Machine;
use crate::block::device::{Device, DeviceId};
use crate::constant::constants;
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::writeback::{Limits, domains, limits};

constants! {
    const MAX_PAUSE_PER_S: u64 = kernel(5, "mm/page-writeback.c", "MAX_PAUSE (max(HZ/5, 1))", "3.2");
    const BANDWIDTH_INTERVAL_PER_S: u64 = kernel(5, "mm/page-writeback.c", "BANDWIDTH_INTERVAL (max(HZ/5, 1))", "3.2");
    /// Pages that a task may dirty between two checks while the limit is exceeded.
    const EXCEEDED_POLL_PAGES: u64 =
        kernel(8, "mm/page-writeback.c", "balance_dirty_pages_ratelimited (32 >> (PAGE_SHIFT - 10))", "3.2");
    /// Pages that a new task may dirty before its first check, and the least number that a pause is planned for.
    pub const DIRTY_POLL_THRESH: u64 = kernel(32, "mm/page-writeback.c", "DIRTY_POLL_THRESH (128 >> (PAGE_SHIFT - 10))", "3.2");
    const RATELIMIT_CALC_SHIFT: u64 = kernel(10, "mm/page-writeback.c", "RATELIMIT_CALC_SHIFT", "3.2");
    /// Initial estimate of a device's bandwidth, pages a second: 100 MiB/s.
    const INIT_BW: u64 = kernel(25_600, "mm/backing-dev.c", "INIT_BW", "3.2");
    /// Pages of one CPU's share in the error of a wb's counters.
    const WB_STAT_BATCH: u64 = kernel(8, "include/linux/backing-dev.h", "WB_STAT_BATCH (8 * (1 + ilog2(cpus)))", "4.2");
}

/// Estimates of a device's bandwidth (`struct bdi_writeback`), in pages a second and jiffies.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    write_bandwidth: u64,
    pub avg_write_bandwidth: u64,
    dirty_ratelimit: u64,
    balanced_dirty_ratelimit: u64,
    stamp_jiffies: u64,
    dirtied_stamp: u64,
    written_stamp: u64,
    /// `dom->dirty_limit` of the machine and of the cgroup: follows the limit up at once and down slowly.
    dirty_limit: [u64; 2],
}

impl Default for Bandwidth {
    fn default() -> Bandwidth {
        Bandwidth {
            write_bandwidth: INIT_BW.get(),
            avg_write_bandwidth: INIT_BW.get(),
            dirty_ratelimit: INIT_BW.get(),
            balanced_dirty_ratelimit: INIT_BW.get(),
            stamp_jiffies: 0,
            dirtied_stamp: 0,
            written_stamp: 0,
            dirty_limit: [0; 2],
        }
    }
}

/// Limits of one domain (machine or cgroup) and its pages that are dirty or under writeback: `struct
/// dirty_throttle_control`.
#[derive(Clone, Copy, Debug)]
pub struct Domain {
    pub limits: Limits,
    pub dirty: u64,
    /// The device's parts of the limits (`wb_thresh`, `wb_bg_thresh`), and its pages that are dirty or under writeback.
    pub share: Limits,
    pub wb_dirty: u64,
    pub of_cgroup: bool,
    /// The device's limits bind before the machine's do (BDI_CAP_STRICTLIMIT).
    pub strict: bool,
}

impl Domain {
    /// The only device has the whole limit.
    pub fn of_all(limits: Limits, dirty: u64, of_cgroup: bool) -> Domain {
        Domain { limits, dirty, share: limits, wb_dirty: dirty, of_cgroup, strict: false }
    }

    /// The limits that apply, and the pages compared with them.
    fn binding(&self) -> (Limits, u64) {
        if self.strict { (self.share, self.wb_dirty) } else { (self.limits, self.dirty) }
    }

    /// domain_dirty_freerun: below the middle of the limits that bind.
    fn is_free(&self) -> bool {
        let (own, dirty) = self.binding();
        dirty <= own.middle()
    }

    /// wb_dirty_exceeded.
    fn is_exceeded(&self) -> bool {
        self.wb_dirty > self.share.throttle && (self.strict || self.dirty > self.limits.throttle)
    }

    /// dirty_poll_interval: 2^(floor(log2(thresh - dirty)) / 2).
    fn poll_interval(&self) -> u64 {
        let (own, dirty) = self.binding();
        let room = own.throttle.saturating_sub(dirty);
        if room > 0 { 1 << (room.ilog2() / 2) } else { 1 }
    }
}

/// pos_ratio_polynom: 1 + ((setpoint - dirty) / (limit - setpoint))^3 in [0, 2], in 1024ths.
fn pos_ratio_polynom(setpoint: u64, dirty: u64, limit: u64) -> i64 {
    let shift = RATELIMIT_CALC_SHIFT.get();
    let x = ((setpoint as i64 - dirty as i64) << shift) / ((limit as i64 - setpoint as i64) | 1);
    let cubed = (((x * x) >> shift) * x) >> shift;
    (cubed + (1 << shift)).clamp(0, 2 << shift)
}

/// wb_position_ratio of a device with BDI_CAP_STRICTLIMIT: by the device's limits alone.
fn strict_ratio(own: Limits, dirty: u64, pos_ratio: u64) -> u64 {
    if dirty < 8 {
        return (pos_ratio * 2).min(2 << RATELIMIT_CALC_SHIFT.get());
    }
    let setpoint = own.middle();
    if dirty >= own.throttle || setpoint == 0 || setpoint == own.throttle {
        return 0;
    }
    pos_ratio.min(pos_ratio_polynom(setpoint, dirty, own.throttle) as u64)
}

impl Bandwidth {
    /// `dom->dirty_limit` of the machine.
    pub fn dirty_limit(&self) -> u64 {
        self.dirty_limit[0]
    }

    /// hard_dirty_limit.
    fn hard_limit(&self, domain: &Domain) -> u64 {
        domain.limits.throttle.max(self.dirty_limit[usize::from(domain.of_cgroup)])
    }

    /// wb_position_ratio.
    fn position_ratio(&self, domain: &Domain) -> u64 {
        let (limit, dirty, thresh) = (self.hard_limit(domain), domain.dirty, domain.limits.throttle);
        if dirty >= limit {
            return 0;
        }
        let setpoint = (domain.limits.middle() + limit) / 2;
        let mut pos_ratio = pos_ratio_polynom(setpoint, dirty, limit) as u64;
        let wb_dirty = domain.wb_dirty;
        if domain.strict {
            return strict_ratio(domain.share, wb_dirty, pos_ratio);
        }
        // The wb's own line, flat if 8 s of bandwidth are more than the range above the set point.
        let wb_thresh = domain.share.throttle.min(thresh).max((limit - dirty) / 8).min(thresh.max(1));
        let x = (wb_thresh << 16) / (thresh | 1);
        let wb_setpoint = (setpoint * x) >> 16;
        let span = ((thresh + 8 * self.avg_write_bandwidth).saturating_sub(wb_thresh) * x) >> 16;
        let x_intercept = wb_setpoint + span;
        if wb_dirty < x_intercept.saturating_sub(span / 4) {
            pos_ratio = pos_ratio * (x_intercept - wb_dirty) / ((x_intercept - wb_setpoint) | 1);
        } else {
            pos_ratio /= 4;
        }
        // The reserve keeps the pool from running empty.
        let x_intercept = wb_thresh / 2;
        if wb_dirty < x_intercept {
            pos_ratio = if wb_dirty > x_intercept / 8 { pos_ratio * x_intercept / wb_dirty } else { pos_ratio * 8 };
        }
        pos_ratio
    }

    /// wb_max_pause: a small pool of dirty pages must not run empty in a long pause.
    fn max_pause(&self, wb_dirty: u64, hz: u64) -> u64 {
        let t = wb_dirty / (1 + self.avg_write_bandwidth / (1 + hz / 8).next_power_of_two()) + 1;
        t.min((hz / MAX_PAUSE_PER_S.get()).max(1))
    }

    /// wb_min_pause: the least pause worth taking, and pages to dirty until the next check.
    fn min_pause(&self, max_pause: u64, task_ratelimit: u64, hz: u64) -> (u64, u64) {
        let (hi, lo) = (self.avg_write_bandwidth.max(1).ilog2(), self.dirty_ratelimit.max(1).ilog2());
        let rounded = hz.next_power_of_two();
        let mut t = (hz / 100).max(1) + u64::from(hi.saturating_sub(lo)) * (10 * hz) / 1024;
        t = t.min(1 + max_pause / 2);
        let mut pages = self.dirty_ratelimit * t / rounded;
        let least = DIRTY_POLL_THRESH.get();
        if pages < least {
            t = max_pause;
            pages = self.dirty_ratelimit * t / rounded;
            if pages > least {
                (pages, t) = (least, hz * least / self.dirty_ratelimit.max(1));
            }
        }
        if hz * pages / (task_ratelimit + 1) > max_pause {
            t = max_pause;
            pages = task_ratelimit * t / rounded;
        }
        (if pages >= least { 1 + t / 2 } else { t }, pages)
    }

    /// wb_update_write_bandwidth: a running mean over about 3 s, smoothed once more.
    fn update_write_bandwidth(&mut self, elapsed: u64, written: u64, hz: u64) {
        let period = (3 * hz).next_power_of_two();
        let (mut avg, old) = (self.avg_write_bandwidth, self.write_bandwidth);
        let mut bw = written.saturating_sub(self.written_stamp) * hz;
        if elapsed > period {
            bw /= elapsed;
            avg = bw;
        } else {
            bw = (bw + old * (period - elapsed)) >> period.ilog2();
            if avg > old && old >= bw {
                avg -= (avg - old) >> 3;
            }
            if avg < old && old <= bw {
                avg += (old - avg) >> 3;
            }
        }
        (self.write_bandwidth, self.avg_write_bandwidth) = (bw, avg.max(1));
    }

    /// update_dirty_limit.
    fn update_dirty_limit(&mut self, domain: &Domain) {
        let thresh = domain.limits.throttle;
        let limit = &mut self.dirty_limit[usize::from(domain.of_cgroup)];
        if *limit < thresh {
            *limit = thresh;
            return;
        }
        *limit -= limit.saturating_sub(thresh.max(domain.dirty)) >> 5;
    }

    /// wb_update_dirty_ratelimit: the rate at which each of the present writers would keep the device just busy.
    fn update_dirty_ratelimit(&mut self, domain: &Domain, pos_ratio: u64, dirtied: u64, elapsed: u64, hz: u64) {
        let (dirty, setpoint) = match domain.wb_dirty {
            few if domain.strict && few < 8 => (few, few + 1),
            own if domain.strict => (own, domain.share.middle()),
            _ => (domain.dirty, (domain.limits.middle() + self.hard_limit(domain)) / 2),
        };
        let write_bw = self.avg_write_bandwidth;
        let mut rate = self.dirty_ratelimit;
        let dirty_rate = dirtied.saturating_sub(self.dirtied_stamp) * hz / elapsed.max(1);
        let task_ratelimit = ((rate * pos_ratio) >> RATELIMIT_CALC_SHIFT.get()) + 1;
        let balanced = (task_ratelimit * write_bw / (dirty_rate | 1)).min(write_bw);
        let mut step = if dirty < setpoint {
            self.balanced_dirty_ratelimit.min(balanced).min(task_ratelimit).saturating_sub(rate)
        } else {
            rate.saturating_sub(self.balanced_dirty_ratelimit.max(balanced).max(task_ratelimit))
        };
        let shift = rate / (2 * step + 1);
        step = if shift < 64 { (step >> shift).div_ceil(8) } else { 0 };
        rate = if rate < balanced { rate + step } else { rate.saturating_sub(step) };
        (self.dirty_ratelimit, self.balanced_dirty_ratelimit) = (rate.max(1), balanced);
    }
}

impl Machine {
    /// wb_stat_error.
    fn stat_error(&self) -> u64 {
        let cpus = self.cpus.borrow().len().max(1) as u64;
        cpus * WB_STAT_BATCH.get() * u64::from(1 + cpus.ilog2())
    }
}

/// balance_dirty_pages_ratelimited: by task, and by CPU, so that many tasks that each may dirty a little do not exceed
/// the limit together.
pub fn is_due(m: &Machine, exceeded: bool, task: &Task) -> bool {
    let mut wb = m.wb.borrow_mut();
    let limit = if exceeded { task.nr_dirtied_pause.min(EXCEEDED_POLL_PAGES.get()) } else { task.nr_dirtied_pause };
    let most = wb.ratelimit_pages;
    let Some(of_cpu) = wb.per_cpu.get_mut(usize::from(task.cpu)) else { return true };
    *of_cpu += 1;
    if task.nr_dirtied >= limit || *of_cpu >= most {
        *of_cpu = 0;
        return true;
    }
    false
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Continue,
    /// Sleep for `jiffies`, count from `from`, and check again after `pages`.
    Pause {
        jiffies: u64,
        from: u64,
        pages: u64,
    },
}

impl Task {
    /// The end of one round of balance_dirty_pages: a pause, or a debt that the next pause pays.
    fn decide(&mut self, now: u64, period: u64, bounds: (u64, u64), pages: u64, hz: u64) -> Verdict {
        let (min_pause, max_pause) = bounds;
        let think = self.paused_when.map_or(0, |then| now as i64 - then as i64);
        let pause = period as i64 - think;
        if pause < min_pause as i64 {
            if pause < -(hz as i64) {
                (self.paused_when, self.nr_dirtied) = (Some(now), 0);
            } else if period > 0 {
                self.paused_when = Some(self.paused_when.unwrap_or(0) + period);
                self.nr_dirtied = 0;
            } else if self.nr_dirtied_pause <= self.nr_dirtied {
                self.nr_dirtied_pause += self.nr_dirtied;
            }
            return Verdict::Continue;
        }
        let (mut jiffies, mut from) = (pause as u64, now);
        if jiffies > max_pause {
            from += (jiffies - max_pause).min(max_pause);
            jiffies = max_pause;
        }
        Verdict::Pause { jiffies, from, pages }
    }
}

/// balance_dirty_pages: a pause that makes the task as fast as its share.
pub async fn balance(m: &Machine, device: DeviceId, task: &mut Task) {
    let hz = m.profile.hz.get();
    let Device { bdi, block, .. } = m.device(device);
    let mut exceeded = false;
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        let now = m.jiffies();
        let (machine, cgroup) = domains(m, device, task.in_cgroup);
        let all: Vec<Domain> = std::iter::once(machine).chain(cgroup).collect();
        if all.iter().all(Domain::is_free) {
            (task.paused_when, task.nr_dirtied) = (Some(now), 0);
            task.nr_dirtied_pause = all.iter().map(Domain::poll_interval).min().unwrap_or(1);
            break;
        }
        m.wake_flusher(device);
        exceeded = all.iter().any(Domain::is_exceeded);
        let own = bdi.borrow().bandwidth;
        let ratio = |domain: &Domain| own.position_ratio(domain);
        let chosen = cgroup.filter(|cgroup| ratio(cgroup) < ratio(&machine)).unwrap_or(machine);
        bdi.borrow_mut().dirty_exceeded |= exceeded;
        m.update_bandwidth(device, &all);
        let own = bdi.borrow().bandwidth;
        let task_ratelimit = (own.dirty_ratelimit * own.position_ratio(&chosen)) >> RATELIMIT_CALC_SHIFT.get();
        let max_pause = own.max_pause(chosen.wb_dirty, hz);
        let (min_pause, pages) = own.min_pause(max_pause, task_ratelimit, hz);
        let verdict = match (hz * task.nr_dirtied).checked_div(task_ratelimit) {
            None => Verdict::Pause { jiffies: max_pause, from: now, pages },
            Some(period) => task.decide(now, period, (min_pause, max_pause), pages, hz),
        };
        if let (Verdict::Pause { .. }, Some(wbt)) = (verdict, &mut block.borrow_mut().wbt) {
            wbt.slept(m.clock.now());
        }
        let Verdict::Pause { jiffies, from, pages } = verdict else { break };
        task.sleep(m, jiffies * m.profile.jiffy_ns(), Site::BalanceDirty).await;
        (task.paused_when, task.nr_dirtied, task.nr_dirtied_pause) = (Some(from + jiffies), 0, pages);
        if task_ratelimit > 0 || chosen.wb_dirty <= m.stat_error() {
            break;
        }
    }
    if !exceeded {
        bdi.borrow_mut().dirty_exceeded = false;
    }
    m.wake_flusher_over_background(device);
}

impl Machine {
    /// writeback_set_ratelimit, at boot and when a limit is set: pages dirtied on a CPU between two checks, by any
    /// task.
    pub fn set_ratelimit(&self) {
        let throttle = limits(self).throttle;
        let mut wb = self.wb.borrow_mut();
        let cpus = wb.per_cpu.len().max(1) as u64;
        wb.ratelimit_pages = (throttle / (cpus * 32)).clamp(16, 1 << 20) as u32;
        self.devices.iter().for_each(|device| device.bdi.borrow_mut().bandwidth.dirty_limit[0] = throttle);
    }
}

#[cfg(test)]
mod tests {
    use super::{Bandwidth, Domain, Verdict, pos_ratio_polynom};
    use crate::sched::task::Task;
    use crate::writeback::Limits;

    fn domain(dirty: u64) -> Domain {
        Domain::of_all(Limits { background: 1000, throttle: 2000 }, dirty, false)
    }

    /// Worked through by hand with the shifts of the C code: x = (1500 - dirty) * 1024 / 501.
    #[test]
    fn the_polynomial_is_1_at_the_set_point_near_2_at_the_free_run_and_near_0_at_the_limit() {
        for (dirty, wanted) in [(1500, 1024), (1000, 2039), (2000, 8), (1750, 1024 - 128)] {
            let got = pos_ratio_polynom(1500, dirty, 2000);
            assert!((got - wanted).abs() <= 2, "{dirty}: {got}, not {wanted}");
        }
        assert_eq!((pos_ratio_polynom(1500, 1500, 2000), pos_ratio_polynom(1500, 2000, 2000)), (1024, 8));
    }

    #[test]
    fn the_poll_interval_shrinks_to_one_page_at_the_limit() {
        // ilog2(thresh - dirty) >> 1: 2000 - 976 = 1024 -> 10 / 2 = 5 -> 32.
        for (dirty, wanted) in [(976, 32), (1999, 1), (2000, 1), (1744, 16)] {
            assert_eq!(domain(dirty).poll_interval(), wanted, "{dirty}");
        }
    }

    #[test]
    fn at_the_hard_limit_no_writer_continues_and_the_limit_falls_by_a_thirty_second() {
        let mut own = Bandwidth { dirty_limit: [0; 2], ..Bandwidth::default() };
        assert_eq!(own.position_ratio(&domain(2000)), 0);
        own.update_dirty_limit(&domain(0));
        assert_eq!(own.dirty_limit[0], 2000, "up at once");
        let lower = Domain::of_all(Limits { background: 500, throttle: 1000 }, 1500, false);
        own.update_dirty_limit(&lower);
        assert_eq!(own.dirty_limit[0], 2000 - (500 >> 5), "down to the dirty pages, slowly");
    }

    /// A cgroup without free memory has a limit of 0 while the hard limit still falls. 8 s of bandwidth are then more
    /// than the pages by which its share exceeds the limit ("thresh - wb_thresh + 8 * write_bw", unsigned long).
    #[test]
    fn a_limit_of_nothing_has_a_ratio_too() {
        let own = Bandwidth { dirty_limit: [400; 2], ..Bandwidth::default() };
        let none = Domain::of_all(Limits { background: 0, throttle: 0 }, 10, true);
        assert!(own.position_ratio(&none) > 0);
    }

    #[test]
    fn pauses_are_bounded_by_what_is_dirty_and_planned_for_10_ms() {
        let own = Bandwidth::default();
        // 20000 / (1 + 25600 / 128) + 1 with HZ 1000.
        assert_eq!((own.max_pause(20_000, 1000), own.max_pause(1 << 20, 1000), own.max_pause(0, 1000)), (100, 200, 1));
        // t = 10 jiffies, 25600 * 10 / 1024 pages, the least pause is 1 + t / 2.
        assert_eq!(own.min_pause(200, 25_600, 1000), (6, 250));
        // A rate of 100 pages a second: t = 200, 100 * 200 / 1024 pages, under 32, so that the least pause is t.
        let slow = Bandwidth { dirty_ratelimit: 100, ..own };
        assert_eq!(slow.min_pause(200, 100, 1000), (200, 19));
    }

    #[test]
    fn bandwidth_is_a_mean_over_4096_jiffies_of_hz_1000() {
        let mut own = Bandwidth::default();
        own.update_write_bandwidth(200, 10_240, 1000);
        // (10240 * 1000 + 25600 * (4096 - 200)) >> 12
        assert_eq!((own.write_bandwidth, own.avg_write_bandwidth), (26_850, 25_600));
        own.update_write_bandwidth(5000, 10_240 + 50_000, 1000);
        assert_eq!(own.avg_write_bandwidth, 60_240 * 1000 / 5000, "a longer time is taken as it is");
    }

    #[test]
    fn two_writers_at_the_set_point_are_brought_towards_half_the_bandwidth() {
        let mut own = Bandwidth { dirty_limit: [2000, 0], ..Bandwidth::default() };
        // In 200 jiffies of HZ 1000 two tasks at 25600 each dirtied 10240: balanced is 25601 * 25600 / 51201.
        let at = domain(1500);
        own.update_dirty_ratelimit(&at, 1024, 10_240, 200, 1000);
        assert_eq!(own.balanced_dirty_ratelimit, 25_601 * 25_600 / 51_201);
        // Its last balanced rate was 25600: no step yet; then max(12800, 12800, 25601) is above the rate as well.
        assert_eq!(own.dirty_ratelimit, 25_600);
        // Above the set point of 1750, with a position ratio of a half: step = (25600 - 12801) >> 1, an eighth,
        // rounded.
        own.dirtied_stamp = 0;
        own.update_dirty_ratelimit(&domain(1800), 512, 10_240, 200, 1000);
        let step: u64 = 25_600 - 12_801;
        assert_eq!(own.dirty_ratelimit, 25_600 - (step >> (25_600 / (2 * step + 1))).div_ceil(8));
    }

    #[test]
    fn a_strict_device_is_compared_with_the_middle_of_the_devices_limits_only() {
        // The machine's 1500 are below its set point of 1750. Rate 12800, balanced 12801 * 25600 / 12801 = 25600: below
        // 200 pages the step is min(25600, 25600, 12801) - 12800 = 1, and 1 >> (12800 / 3) is 0; above 200 pages the
        // step is 0.
        let slow = Bandwidth { dirty_limit: [2000, 0], dirty_ratelimit: 12_800, ..Bandwidth::default() };
        let strict = |wb_dirty| Domain {
            strict: true,
            share: Limits { background: 100, throttle: 300 },
            wb_dirty,
            ..domain(1500)
        };
        let rate = |wb_dirty, pos_ratio| {
            let mut own = slow;
            own.update_dirty_ratelimit(&strict(wb_dirty), pos_ratio, 2_560, 200, 1000);
            own.dirty_ratelimit
        };
        assert_eq!(rate(150, 1024), 12_800);
        // With a position ratio of 2: min(25600, 25600, 25601) - 12800 = 12800, >> (12800 / 25601 = 0), a rounded
        // eighth.
        assert_eq!((rate(150, 2048), rate(250, 2048)), (12_800 + 1_600, 12_800));
        assert_eq!((rate(7, 2048), rate(200, 2048)), (12_800 + 1_600, 12_800), "hardly anything, and at the set point");
    }

    #[test]
    fn a_pause_under_the_least_is_not_taken_but_owed() {
        let mut task = Task::new(0, 0);
        (task.paused_when, task.nr_dirtied) = (Some(100), 50);
        assert_eq!(task.decide(101, 4, (6, 200), 250, 1000), Verdict::Continue);
        assert_eq!((task.paused_when, task.nr_dirtied), (Some(104), 0), "the pauses' clock is ahead");
        // 4 more jiffies on top of the 3 that it is ahead make 7.
        let owed = Verdict::Pause { jiffies: 7, from: 101, pages: 250 };
        assert_eq!(task.decide(101, 4, (6, 200), 250, 1000), owed);
        task.paused_when = Some(0);
        task.nr_dirtied = 10;
        assert_eq!(task.decide(2000, 4, (6, 200), 250, 1000), Verdict::Continue);
        assert_eq!(task.paused_when, Some(2000), "after a second without dirtying nothing is owed");
        let cut = Verdict::Pause { jiffies: 200, from: 2100, pages: 250 };
        assert_eq!(
            task.decide(2000, 300, (6, 200), 250, 1000),
            cut,
            "the excess over the maximum pause shortens the next"
        );
    }

    /// wb_position_ratio, 6.1, by hand: the limits are 1000 and 2000, so that the set point is 1750; the machine's
    /// ratio at that point is 1024.
    #[test]
    fn of_two_devices_the_one_above_its_own_set_point_is_slowed_and_the_other_is_not() {
        let own = Bandwidth { dirty_limit: [2000, 0], avg_write_bandwidth: 10, ..Bandwidth::default() };
        let at = |share: u64, wb_dirty: u64| {
            let share = Limits { background: share / 2, throttle: share };
            own.position_ratio(&Domain { share, wb_dirty, ..domain(1750) })
        };
        // A share of 400 of 2000: x = (400 << 16) / 2001 = 13100; set point (1750 x) >> 16 = 349; span (1680 x) >> 16 =
        // 335; it meets 0 at 684.
        assert_eq!(at(400, 349), 1024 * (684 - 349) / (335 | 1), "1 at its set point");
        assert_eq!(at(400, 500), 1024 * (684 - 500) / 335);
        assert_eq!(at(400, 650), 1024 / 4, "flat in the last quarter of the span");
        // Less than half the share: the reserve.
        assert_eq!(at(400, 100), 1024 * (684 - 100) / 335 * 200 / 100);
        assert_eq!(at(400, 20), 1024 * (684 - 20) / 335 * 8);
        // A share of 0 is raised by an eighth of the pages below the limit: (2000 - 1750) / 8 = 31.
        assert_eq!(at(0, 10), at(31, 10));
    }

    #[test]
    fn a_device_is_exceeded_only_with_the_machine_unless_its_limit_is_strict() {
        let share = Limits { background: 100, throttle: 300 };
        let at = |dirty, wb_dirty, strict| Domain { share, wb_dirty, strict, ..domain(dirty) };
        assert!(!at(1900, 400, false).is_exceeded() && at(2001, 400, false).is_exceeded());
        assert!(!at(2001, 300, false).is_exceeded(), "another device is to blame");
        assert!(at(400, 301, true).is_exceeded() && !at(1400, 200, false).is_exceeded());
        assert!(at(1500, 2, false).is_free() && !at(1501, 2, false).is_free(), "by the machine's pages");
    }

    #[test]
    fn a_device_with_a_strict_limit_is_paced_around_the_middle_of_the_devices_limits() {
        let own = Limits { background: 100, throttle: 300 };
        // wb_setpoint = 200: there the ratio is 1 (1024), at the limit 0, below the set point at most the machine's
        // ratio.
        assert_eq!(super::strict_ratio(own, 200, 2048), 1024);
        assert_eq!(super::strict_ratio(own, 300, 2048), 0);
        assert_eq!(super::strict_ratio(own, 200, 512), 512, "the lower of both");
        // x = (200 - 250) * 1024 / (300 - 200 | 1) = -506; cubed -123: 901.
        assert_eq!(super::strict_ratio(own, 250, 2048), 1024 - 124);
        assert_eq!(super::strict_ratio(own, 7, 512), 1024, "hardly anything dirty: twice as fast");
        let domain = |dirty| Domain { strict: true, share: own, ..domain(dirty) };
        assert!(domain(200).is_free() && !domain(201).is_free() && domain(301).is_exceeded());
    }
}

//! balance_dirty_pages of 3.2, the first without I/O by the caller (mm/page-writeback.c).
//!
//! A pause is what the dirtied pages take at the task's rate, whatever it did between two of them (think time counts from 3.3 on),
//! and no longer than bdi_max_pause: 20 ms, and 20 more for each doubling of the writers. What comes out too short or too long
//! changes after how many pages the next one is due.

use super::{Bandwidth, MAX_PAUSE_PER_S, RATELIMIT_CALC_SHIFT};
use crate::Machine;
use crate::constant::constants;
use crate::device::DeviceId;
use crate::site::Site;
use crate::task::Task;
use crate::writeback::domains;

constants! {
    const LEAST_MAX_PAUSE: u64 = kernel(4, "mm/page-writeback.c", "bdi_max_pause (clamp_val(t, 4, MAX_PAUSE))", "3.2");
    const PAUSES_PER_S: u64 = kernel(50, "mm/page-writeback.c", "bdi_max_pause (HZ / 50)", "3.2");
}

impl Bandwidth {
    /// bdi_max_pause.
    fn longest(&self, bdi_dirty: u64, hz: u64) -> u64 {
        let (hi, lo) = (self.avg_write_bandwidth.max(1).ilog2(), self.dirty_ratelimit.max(1).ilog2());
        let t = hz / PAUSES_PER_S.get() + u64::from(hi.saturating_sub(lo)) * (20 * hz) / 1024;
        let t = t.min(bdi_dirty * hz / (8 * self.avg_write_bandwidth + 1));
        let most = (hz / MAX_PAUSE_PER_S.get()).max(1);
        t.max(LEAST_MAX_PAUSE.get()).min(most.max(LEAST_MAX_PAUSE.get()))
    }

    /// After how many pages the next pause is due (`nr_dirtied_pause`), where this one was after so many.
    fn next_due(&self, (pause, max_pause): (u64, u64), dirtied: u64, due: u64, hz: u64) -> u64 {
        let wanted = self.dirty_ratelimit * (max_pause / 2) / hz;
        if pause <= max_pause / 4 && dirtied >= due {
            wanted.clamp(dirtied + dirtied / 8, dirtied * 4)
        } else if pause >= max_pause {
            1 | wanted.clamp(dirtied / 4, dirtied - dirtied / 8)
        } else {
            due
        }
    }
}

pub async fn balance(m: &Machine, device: DeviceId, task: &mut Task) {
    let (hz, start, dirtied) = (m.profile.hz.get(), m.jiffies(), task.nr_dirtied);
    let bdi = &m.device(device).bdi;
    let mut exceeded = false;
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        // Dirty limits of cgroups are of 4.2 and later.
        let (machine, _) = domains(m, device, false);
        if machine.is_free() {
            task.nr_dirtied_pause = machine.poll_interval();
            break;
        }
        m.wake_flusher(device);
        exceeded = machine.wb_dirty > machine.share.throttle || machine.dirty > machine.limits.throttle;
        bdi.borrow_mut().dirty_exceeded |= exceeded;
        m.update_bandwidth(device, start, &[machine]);
        let own = bdi.borrow().bandwidth;
        let max_pause = own.longest(machine.wb_dirty, hz);
        let task_ratelimit = (own.dirty_ratelimit * own.position_ratio(&machine)) >> RATELIMIT_CALC_SHIFT.get();
        let pause = (hz * dirtied).checked_div(task_ratelimit).map_or(max_pause, |pause| pause.min(max_pause));
        if pause > 0 {
            task.sleep(m, pause * m.profile.jiffy_ns(), Site::BalanceDirty).await;
        }
        if pause == 0 || task_ratelimit > 0 || machine.wb_dirty <= m.stat_error() {
            task.nr_dirtied_pause = own.next_due((pause.max(1), max_pause), dirtied, task.nr_dirtied_pause, hz);
            break;
        }
    }
    if !exceeded {
        bdi.borrow_mut().dirty_exceeded = false;
    }
    task.nr_dirtied = 0;
    m.wake_flusher_over_background(device);
}

#[cfg(test)]
mod tests {
    use super::Bandwidth;

    #[test]
    fn the_longest_pause_is_20_ms_and_20_more_for_each_doubling_of_the_writers() {
        let own = Bandwidth::default();
        assert_eq!(own.longest(1 << 20, 1000), 20);
        // ilog2(25600) - ilog2(6400) = 2: 2 * 20000 / 1024 = 39.
        let four = Bandwidth { dirty_ratelimit: 6_400, ..own };
        assert_eq!(four.longest(1 << 20, 1000), 20 + 39);
        // An eighth of what is dirty: 10000 * 1000 / (8 * 25600 + 1) = 48.
        assert_eq!((four.longest(10_000, 1000), own.longest(0, 1000)), (48, 4));
        let many = Bandwidth { dirty_ratelimit: 1, ..own };
        assert_eq!(many.longest(1 << 20, 1000), 200, "14 * 20000 / 1024 + 20, and no more than MAX_PAUSE");
    }

    #[test]
    fn what_pauses_for_too_short_dirties_more_until_the_next_and_what_pauses_for_too_long_less() {
        let own = Bandwidth::default();
        // 25600 * (20 / 2) / 1000 = 256 pages for half of the longest pause.
        assert_eq!(own.next_due((5, 20), 32, 32, 1000), 128, "4 * 32");
        assert_eq!(own.next_due((5, 20), 400, 32, 1000), 450, "400 + 400 / 8");
        assert_eq!(own.next_due((5, 20), 8, 32, 1000), 32, "it came before it was due");
        assert_eq!(own.next_due((10, 20), 32, 32, 1000), 32, "long enough");
        assert_eq!(own.next_due((20, 20), 400, 400, 1000), 257, "1 | 256");
        assert_eq!(own.next_due((20, 20), 200, 200, 1000), 175, "200 - 200 / 8");
    }
}

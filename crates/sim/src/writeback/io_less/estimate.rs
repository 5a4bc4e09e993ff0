//! Updates of the estimated write bandwidth of a device, and of the writers' rate.
//!
//! Models: __wb_update_bandwidth (mm/page-writeback.c) as of 5.15 and later: by writers, after each file
//! (do_writepages), and a fifth of a second after writeback has ended (wb_inode_writeback_end; here for the device, in
//! the kernel for a file).

use crate::kernel::PAGE_BYTES;
use std::rc::Rc;

use super::{BANDWIDTH_INTERVAL_PER_S, Bandwidth, Domain};
use crate::Machine;
use crate::block::device::DeviceId;
use crate::kernel::Throttle;

/// Pages written to a device and pages dirtied for it, since boot.
#[derive(Clone, Copy, Debug)]
struct Counts {
    jiffies: u64,
    dirtied: u64,
    written: u64,
}

impl Bandwidth {
    fn elapsed(&self, now: Counts) -> u64 {
        now.jiffies.saturating_sub(self.stamp_jiffies)
    }

    fn stamp(&mut self, now: Counts) {
        (self.dirtied_stamp, self.written_stamp, self.stamp_jiffies) = (now.dirtied, now.written, now.jiffies);
    }

    /// __wb_update_bandwidth: of the writers (`domains`) with the rate limit.
    fn update(&mut self, now: Counts, domains: &[Domain], hz: u64) {
        let elapsed = self.elapsed(now).max(1);
        for domain in domains {
            let pos_ratio = self.position_ratio(domain);
            self.update_dirty_limit(domain);
            self.update_dirty_ratelimit(domain, pos_ratio, now.dirtied, elapsed, hz);
        }
        self.update_write_bandwidth(elapsed, now.written, hz);
        self.stamp(now);
    }
}

impl Machine {
    pub fn jiffies(&self) -> u64 {
        self.clock.now() / self.profile.jiffy_ns()
    }

    fn interval(&self) -> u64 {
        (self.profile.hz.get() / BANDWIDTH_INTERVAL_PER_S.get()).max(1)
    }

    pub fn is_estimated_by_file(&self) -> bool {
        self.profile.throttle == Throttle::IoLess
    }

    fn counts(&self, device: DeviceId) -> Counts {
        let written = self.device(device).block.borrow().bytes[1] / PAGE_BYTES;
        Counts { jiffies: self.jiffies(), dirtied: self.device(device).bdi.borrow().dirtied, written }
    }

    /// wb_update_bandwidth, five times a second at most, by writers.
    pub fn update_bandwidth(&self, device: DeviceId, domains: &[Domain]) {
        let (now, hz) = (self.counts(device), self.profile.hz.get());
        let own = &mut self.device(device).bdi.borrow_mut().bandwidth;
        // Writers check before they take the lock whether the interval is over (time_is_after_eq_jiffies).
        if own.elapsed(now) <= self.interval() {
            return;
        }
        own.update(now, domains, hz);
    }

    /// wb_bandwidth_estimate_start, 5.15 and later: after a second without writeback the interval begins here.
    pub fn begin_estimate(&self, device: DeviceId) {
        if self.is_estimated_by_file() && self.mm.borrow().by_device[device.index()].writeback == 0 {
            let now = self.counts(device);
            let own = &mut self.device(device).bdi.borrow_mut().bandwidth;
            if own.elapsed(now) > self.profile.hz.get() {
                own.stamp(now);
            }
        }
    }

    /// The end of do_writepages, 5.15 and later.
    pub fn end_estimate(&self, device: DeviceId) {
        if self.is_estimated_by_file() {
            let now = self.counts(device);
            let own = &mut self.device(device).bdi.borrow_mut().bandwidth;
            if own.elapsed(now) > self.interval() {
                own.update(now, &[], self.profile.hz.get());
            }
        }
    }

    /// wb_inode_writeback_end: queue_delayed_work, which has no effect if the work is queued already.
    pub fn wake_estimator(&self, device: DeviceId) {
        let is_done = self.mm.borrow().by_device[device.index()].writeback == 0;
        if is_done && let Some(estimator) = self.device(device).bdi.borrow_mut().estimator.take() {
            self.clock.wake(estimator);
        }
    }
}

/// wb_update_bandwidth_workfn, 5.15 and later.
pub async fn estimator(m: Rc<Machine>, device: DeviceId) {
    loop {
        m.device(device).bdi.borrow_mut().estimator = Some(m.clock.current());
        m.clock.park(None).await;
        m.clock.sleep_until(m.clock.now() + m.interval() * m.profile.jiffy_ns()).await;
        let now = m.counts(device);
        m.device(device).bdi.borrow_mut().bandwidth.update(now, &[], m.profile.hz.get());
    }
}

#[cfg(test)]
mod tests {
    use super::{Bandwidth, Counts};

    #[test]
    fn an_estimate_counts_from_the_one_before() {
        let mut own = Bandwidth { stamp_jiffies: 1_000, written_stamp: 100, ..Bandwidth::default() };
        own.update(Counts { jiffies: 1_200, dirtied: 70, written: 10_340 }, &[], 1000);
        // (10240 * 1000 + 25600 * (4096 - 200)) >> 12 = 26850.
        assert_eq!(
            (own.write_bandwidth, own.written_stamp, own.dirtied_stamp, own.stamp_jiffies),
            (26_850, 10_340, 70, 1_200)
        );
        // wb_update_bandwidth_workfn may come in the same jiffy: elapsed is one.
        own.update(Counts { jiffies: 1_200, dirtied: 70, written: 10_340 }, &[], 1000);
        assert_eq!(own.write_bandwidth, (26_850 * (4096 - 1)) >> 12);
    }
}

//! Each device's part of the dirty limits.
//!
//! Models: __wb_calc_thresh and wb_dirty_limits (6.1, also used for 2.6.32), min_ratio and max_ratio. An only device
//! has the whole limits, as after many writes. Leaves out: the random parts after the first pages since boot, which
//! depend on the CPU that counted them (percpu_counter_read_positive), and the least part of an idle device (6.14).

use crate::Machine;
use crate::block::device::DeviceId;
use crate::kernel::PAGE_BYTES;
use crate::kernel::Throttle;
use crate::machine::knobs::DeviceKnobs;
use crate::mm::memory::OfDevice;
use crate::writeback::Limits;

/// Pages dirty or under writeback of all devices, and those of one device.
pub fn dirty_of(m: &Machine, device: DeviceId) -> (u64, OfDevice) {
    let mm = m.mm.borrow();
    (mm.dirty() + mm.writeback(), mm.by_device[device.index()])
}

impl DeviceKnobs {
    /// The device's maximum part of a limit: by its percentage, or by its bytes, which the kernel converts to a
    /// percentage.
    fn most_of(&self, limit: u64) -> u64 {
        (limit * self.bdi_max_percent / 100).min(self.bdi_max_bytes.map_or(u64::MAX, |bytes| bytes / PAGE_BYTES))
    }

    /// __wb_calc_thresh: a fraction of the unreserved part of the limit, plus the part reserved for this device.
    fn part_of(&self, limit: u64, (numerator, denominator): (u64, u64), kept_percent: u64) -> u64 {
        let shared = u128::from(limit * 100_u64.saturating_sub(kept_percent) / 100);
        let earned = shared * u128::from(numerator) / u128::from(denominator.max(1));
        earned as u64 + limit * self.bdi_min_percent / 100
    }
}

/// A device's part of a limit, by its recently written pages. Up to 2.6.23 there are no parts.
pub fn share(m: &Machine, device: DeviceId, limit: u64) -> u64 {
    if m.profile.throttle == Throttle::PerCpuRateLimit {
        return limit;
    }
    let own = m.device(device);
    if m.devices.len() == 1 {
        return own.knobs.borrow().most_of(limit);
    }
    let local = &mut own.bdi.borrow_mut().completions;
    let fraction = m.wb.borrow_mut().completions.fraction(local, m.clock.now());
    let kept = m.devices.iter().map(|device| device.knobs.borrow().bdi_min_percent).sum();
    let part = own.knobs.borrow().part_of(limit, fraction, kept);
    let most = own.knobs.borrow().most_of(limit);
    part.min(most)
}

/// The device's parts of both limits.
pub fn shares(m: &Machine, device: DeviceId, all: Limits) -> Limits {
    Limits { background: share(m, device, all.background), throttle: share(m, device, all.throttle) }
}

impl Machine {
    /// __bdi_writeout_inc, 2.6.24, __wb_writeout_add, 6.1: a device has written pages.
    pub fn note_completed(&self, device: DeviceId, pages: u64) {
        self.wake_estimator(device);
        if self.devices.len() == 1 {
            return;
        }
        let own = self.device(device);
        let most = own.knobs.borrow().bdi_max_percent;
        let local = &mut own.bdi.borrow_mut().completions;
        self.wb.borrow_mut().completions.count(local, pages, most, self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::find;
    use crate::machine::knobs::DeviceKnobs;

    fn knobs(min: u64, max: u64) -> DeviceKnobs {
        let own = DeviceKnobs::defaults(&find("linux-6.1").expect("a profile"));
        DeviceKnobs { bdi_min_percent: min, bdi_max_percent: max, ..own }
    }

    #[test]
    fn a_device_has_the_part_of_the_limit_that_it_wrote_of_late() {
        // A stick that wrote 20 of the last 1000 pages, of a limit of 50 000: 50 000 * 20 / 1000.
        assert_eq!(knobs(0, 100).part_of(50_000, (20, 1000), 0), 1000);
        assert_eq!(knobs(0, 100).part_of(50_000, (980, 1000), 0), 49_000);
        assert_eq!(knobs(0, 100).part_of(50_000, (0, 1000), 0), 0, "one that has written nothing yet has no part");
    }

    #[test]
    fn what_is_kept_for_a_device_is_taken_from_all_and_its_most_is_a_bound() {
        // 10 % are kept for it: 50 000 * 90 / 100 * 20 / 1000 + 5000. The others share nine tenths.
        assert_eq!(knobs(10, 100).part_of(50_000, (20, 1000), 10), 900 + 5000);
        assert_eq!(knobs(0, 100).part_of(50_000, (980, 1000), 10), 44_100);
        assert_eq!(knobs(0, 1).most_of(50_000), 500);
        let in_bytes = DeviceKnobs { bdi_max_bytes: Some(1 << 20), ..knobs(0, 100) };
        assert_eq!(in_bytes.most_of(50_000), 256);
    }
}

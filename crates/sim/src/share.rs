//! Each device's part of the dirty limits.
//!
//! Models: __wb_calc_thresh and wb_dirty_limits (6.1; 2.6.32 is taken for the same), min_ratio and max_ratio. A machine
//! with one device gives it all of the limits, as after many writes: a
//! kernel that has written a few pages since boot gives it any part, by which CPU has counted them (percpu_counter_read_positive).

use super::Machine;
use super::constant::constants;
use super::device::DeviceId;
use super::kernel::Throttle;
use super::knobs::DeviceKnobs;
use super::memory::OfDevice;
use super::writeback::Limits;

constants! {
    /// What a device that was idle for long may have at least: so large a part of what is left of the limit.
    const BUMPED: u64 = kernel(8, "mm/page-writeback.c", "__wb_calc_thresh", "6.14");
}

/// What is dirty or under writeback of all devices, and both of one.
pub fn dirty_of(m: &Machine, device: DeviceId) -> (u64, OfDevice) {
    let mm = m.mm.borrow();
    (mm.dirty() + mm.writeback(), mm.by_device[device.index()])
}

impl DeviceKnobs {
    /// The most of a limit that the device may have: by its percentage, or by its bytes, which the kernel makes a percentage of.
    fn most_of(&self, limit: u64) -> u64 {
        (limit * self.bdi_max_percent / 100).min(self.bdi_max_bytes.map_or(u64::MAX, |bytes| bytes / 4096))
    }

    /// __wb_calc_thresh: a fraction of what is kept for no device, and what is kept for this one.
    fn part_of(&self, limit: u64, (numerator, denominator): (u64, u64), kept_percent: u64) -> u64 {
        let shared = u128::from(limit * 100_u64.saturating_sub(kept_percent) / 100);
        let earned = shared * u128::from(numerator) / u128::from(denominator.max(1));
        earned as u64 + limit * self.bdi_min_percent / 100
    }

    /// __wb_calc_thresh, 6.14: a part, but no less than the floor, and no more than the device may have.
    fn bounded(&self, part: u64, floor: u64, limit: u64) -> u64 {
        part.max(floor).min(self.most_of(limit))
    }
}

/// A device's part of a limit, by what it wrote of late. Up to 2.6.23 there are no parts.
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
    let has_floor = m.profile.shares_have_floor;
    let room = if has_floor { limit.saturating_sub(dirty_of(m, device).0) / BUMPED.get() } else { 0 };
    own.knobs.borrow().bounded(part, room, limit)
}

/// Its parts of both limits.
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
    use super::BUMPED;
    use crate::kernel::find;
    use crate::knobs::DeviceKnobs;

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
        assert_eq!(knobs(0, 1).bounded(1_000, 0, 50_000), 500);
        let in_bytes = DeviceKnobs { bdi_max_bytes: Some(1 << 20), ..knobs(0, 100) };
        assert_eq!(in_bytes.bounded(50_000, 0, 50_000), 256);
    }

    /// An eighth of what is left of a limit of 50 000 pages of which 10 000 are dirty.
    #[test]
    fn from_6_14_on_a_device_that_was_idle_has_an_eighth_of_the_room() {
        let room = (50_000 - 10_000) / BUMPED.get();
        assert_eq!([0, 4_999, 6_000].map(|part| knobs(0, 100).bounded(part, room, 50_000)), [5_000, 5_000, 6_000]);
        assert_eq!(knobs(0, 1).bounded(0, room, 50_000), 500, "but no more than it may have");
    }
}

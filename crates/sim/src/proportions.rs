//! Floating proportions: whose part of what happened of late was how large.
//!
//! Models: lib/proportions.c (2.6.24 to 3.5), where a period is so many events of all, and lib/flex_proportions.c (3.6 and
//! later), where it is a time. With each period that ends, what was counted before counts half.

use super::constant::constants;

constants! {
    /// How long a period of completions is.
    const PERIOD_NS: u64 = kernel(3_000_000_000, "mm/page-writeback.c", "VM_COMPLETIONS_PERIOD_LEN (3*HZ)", "3.6");
}

/// One's own count (`struct prop_local_percpu`, `struct fprop_local_percpu`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Local {
    events: u64,
    period: u64,
}

impl Local {
    fn age(&mut self, period: u64) {
        let missed = period - self.period.min(period);
        self.events = if missed < 64 { self.events >> missed } else { 0 };
        self.period = period;
    }
}

/// The counts of all by periods of events.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByEvents {
    events: u64,
    shift: u32,
}

impl ByEvents {
    /// calc_period_shift, 2.6.24: periods of two to four times the limit.
    #[must_use]
    pub fn shift_for(limit: u64) -> u32 {
        2 + limit.saturating_sub(1).max(1).ilog2()
    }

    /// Begins anew with periods of another length: counts of the old ones say nothing. Whether it had to.
    pub fn set_shift(&mut self, shift: u32) -> bool {
        let differs = shift != self.shift;
        if differs {
            *self = ByEvents { events: 0, shift };
        }
        differs
    }

    /// prop_norm_single, prop_norm_percpu: for each half period missed the local count is halved.
    fn norm(&self, local: &mut Local) {
        local.age(self.events >> self.shift.saturating_sub(1));
    }

    /// __prop_inc_single, __prop_inc_percpu.
    #[inline]
    pub fn count(&mut self, local: &mut Local) {
        self.norm(local);
        local.events += 1;
        self.events += 1;
    }

    /// prop_fraction_single, prop_fraction_percpu: numerator and denominator.
    #[must_use]
    pub fn fraction(&self, local: &mut Local) -> (u64, u64) {
        self.norm(local);
        let half = 1_u64 << self.shift.saturating_sub(1);
        (local.events, half + (self.events & (half - 1)))
    }
}

/// The counts of all by periods of time (`struct wb_domain`).
#[derive(Clone, Copy, Debug)]
pub struct ByTime {
    /// Counted in the present period and, halved by period, before.
    events: u64,
    period: u64,
    /// When the period ends; none while nothing is left to be halved (`period_time`).
    ends_ns: Option<u64>,
}

impl ByTime {
    /// fprop_global_init: events begin with 1.
    const NEW: ByTime = ByTime { events: 1, period: 0, ends_ns: None };

    /// writeout_period, fprop_new_period: with less than two events periods stand still, and so do the counts of devices.
    fn turn(&mut self, now_ns: u64) {
        while let Some(ends_ns) = self.ends_ns.filter(|ends_ns| *ends_ns <= now_ns) {
            if self.events <= 1 {
                self.ends_ns = None;
                break;
            }
            self.events >>= 1;
            self.period += 1;
            self.ends_ns = Some(ends_ns + PERIOD_NS.get());
        }
    }

    /// __wb_writeout_add, fprop_add_percpu.
    fn count(&mut self, local: &mut Local, now_ns: u64) {
        local.events += 1;
        self.events += 1;
        self.ends_ns.get_or_insert(now_ns + PERIOD_NS.get());
    }

    /// fprop_fraction_percpu, fprop_reflect_period_percpu.
    fn fraction(&mut self, local: &mut Local, now_ns: u64) -> (u64, u64) {
        self.turn(now_ns);
        local.age(self.period);
        (local.events, self.events.max(local.events).max(1))
    }
}

/// Pages that were written, of all devices (`vm_completions`).
#[derive(Clone, Copy, Debug)]
pub enum Completions {
    ByEvents(ByEvents),
    ByTime(ByTime),
}

impl Default for Completions {
    fn default() -> Completions {
        Completions::ByEvents(ByEvents::default())
    }
}

impl Completions {
    #[must_use]
    pub fn by_time() -> Completions {
        Completions::ByTime(ByTime::NEW)
    }

    /// Pages of a device that are written; not counted where it has more than its most already (__prop_inc_percpu_max, 2.6.26;
    /// __fprop_add_percpu_max, 6.1).
    pub fn count(&mut self, local: &mut Local, pages: u64, most_percent: u64, now_ns: u64) {
        for _ in 0..pages {
            let (numerator, denominator) = self.fraction(local, now_ns);
            if most_percent < 100 && numerator * 100 > denominator * most_percent {
                return;
            }
            match self {
                Completions::ByEvents(all) => all.count(local),
                Completions::ByTime(all) => all.count(local, now_ns),
            }
        }
    }

    /// The device's part: numerator and denominator (bdi_writeout_fraction, 2.6.24; fprop_fraction_percpu, 6.1).
    pub fn fraction(&mut self, local: &mut Local, now_ns: u64) -> (u64, u64) {
        match self {
            Completions::ByEvents(all) => all.fraction(local),
            Completions::ByTime(all) => all.fraction(local, now_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ByEvents, Completions, Local};

    #[test]
    fn of_two_devices_each_has_its_part_of_the_last_period_and_old_counts_fade() {
        // Half a period is 8 events: three of four are the fast one's.
        let mut all = ByEvents::default();
        assert!(all.set_shift(4) && !all.set_shift(4));
        let mut completions = Completions::ByEvents(all);
        let (mut fast, mut slow) = (Local::default(), Local::default());
        for _ in 0..64 {
            completions.count(&mut fast, 3, 100, 0);
            completions.count(&mut slow, 1, 100, 0);
        }
        // 256 events: at the end of a half period, of which 6 and 2 are theirs, with halves of the ones before.
        let (fast_now, slow_now) = (completions.fraction(&mut fast, 0), completions.fraction(&mut slow, 0));
        assert_eq!((fast_now.1, slow_now.1), (8, 8));
        assert!((5..=6).contains(&fast_now.0) && (1..=2).contains(&slow_now.0), "{fast_now:?} {slow_now:?}");
        // Only the slow one writes: after three half periods an eighth of the fast one's is left, of 5 or 6 none.
        completions.count(&mut slow, 24, 100, 0);
        assert_eq!(completions.fraction(&mut fast, 0).0, 0);
        assert!(completions.fraction(&mut slow, 0).0 >= 7);
    }

    #[test]
    fn a_part_by_time_is_exact_from_the_first_page_on_and_halves_every_three_seconds() {
        let second = 1_000_000_000;
        let mut completions = Completions::by_time();
        let (mut one, mut other) = (Local::default(), Local::default());
        assert_eq!(completions.fraction(&mut one, 0), (0, 1), "nothing was written yet: no part");
        completions.count(&mut one, 40, 100, second);
        // All begin with 1: 1 + 40.
        assert_eq!(completions.fraction(&mut one, second), (40, 41));
        completions.count(&mut other, 10, 100, second);
        assert_eq!(completions.fraction(&mut other, second), (10, 51));
        // The first period began with the first page: at 7 s the second one ends. 51 >> 2 and 10 >> 2.
        assert_eq!(completions.fraction(&mut other, 7 * second - 1), (5, 25));
        assert_eq!(completions.fraction(&mut other, 7 * second), (2, 12));
        completions.count(&mut other, 30, 100, 7 * second);
        assert_eq!(completions.fraction(&mut one, 7 * second), (10, 42));
    }

    /// 2000 pages, and the 1 of the beginning, are 1 of 1 after ten periods, for ever; of 2047 none is left when all have become 1.
    #[test]
    fn a_device_that_was_idle_for_long_has_all_or_nothing() {
        for (pages, left) in [(2_000, (1, 1)), (2_047, (0, 1))] {
            let mut completions = Completions::by_time();
            let mut only = Local::default();
            completions.count(&mut only, pages, 100, 0);
            assert_eq!(completions.fraction(&mut only, 0), (pages, pages + 1));
            for periods in [11, 12, 1_000_000] {
                assert_eq!(completions.fraction(&mut only, periods * super::PERIOD_NS.get()), left, "{pages}");
            }
        }
    }

    #[test]
    fn a_device_at_its_most_counts_no_more() {
        let mut completions = Completions::by_time();
        let (mut capped, mut other) = (Local::default(), Local::default());
        completions.count(&mut other, 90, 100, 0);
        completions.count(&mut capped, 50, 10, 0);
        // 10 of 101 are not more than 10 %; 11 of 102 are.
        assert_eq!(completions.fraction(&mut capped, 0), (11, 102));
    }
}

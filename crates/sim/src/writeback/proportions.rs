//! Floating proportions: the part of recent events that each source has.
//!
//! Models: lib/flex_proportions.c (3.6 and later): at the end of each period of time earlier counts are halved.

use crate::constant::constants;

constants! {
/// Length of a period.
    const PERIOD_NS: u64 = kernel(3_000_000_000, "mm/page-writeback.c", "VM_COMPLETIONS_PERIOD_LEN (3*HZ)", "3.6");
}

/// Count of one device (`struct fprop_local_percpu`).
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

/// Pages written to all devices (`vm_completions` of `struct wb_domain`).
#[derive(Clone, Copy, Debug)]
pub struct Completions {
    /// Events of the present period, plus earlier ones, halved for each period.
    events: u64,
    period: u64,
    /// End of the period; `None` while no events are left to halve (`period_time`).
    ends_ns: Option<u64>,
}

impl Completions {
    /// writeout_period, fprop_new_period: with fewer than two events periods and counts do not change.
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

    /// __wb_writeout_add: counts written pages of a device, unless its part exceeds its maximum
    /// (__fprop_add_percpu_max).
    pub fn count(&mut self, local: &mut Local, pages: u64, most_percent: u64, now_ns: u64) {
        for _ in 0..pages {
            let (numerator, denominator) = self.fraction(local, now_ns);
            if most_percent < 100 && numerator * 100 > denominator * most_percent {
                return;
            }
            local.events += 1;
            self.events += 1;
            self.ends_ns.get_or_insert(now_ns + PERIOD_NS.get());
        }
    }

    /// The device's part: numerator and denominator (fprop_fraction_percpu, fprop_reflect_period_percpu).
    pub fn fraction(&mut self, local: &mut Local, now_ns: u64) -> (u64, u64) {
        self.turn(now_ns);
        local.age(self.period);
        (local.events, self.events.max(local.events).max(1))
    }
}

impl Default for Completions {
    /// fprop_global_init: events begin with 1.
    fn default() -> Completions {
        Completions { events: 1, period: 0, ends_ns: None }
    }
}

#[cfg(test)]
mod tests {
    use super::{Completions, Local};

    #[test]
    fn a_part_by_time_is_exact_from_the_first_page_on_and_halves_every_three_seconds() {
        let second = 1_000_000_000;
        let mut completions = Completions::default();
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

    /// 2000 pages, and the 1 of the beginning, are 1 of 1 after ten periods and remain so; of 2047 pages none remains
    /// when every count has become 1.
    #[test]
    fn a_device_that_was_idle_for_long_has_all_or_nothing() {
        for (pages, left) in [(2_000, (1, 1)), (2_047, (0, 1))] {
            let mut completions = Completions::default();
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
        let mut completions = Completions::default();
        let (mut capped, mut other) = (Local::default(), Local::default());
        completions.count(&mut other, 90, 100, 0);
        completions.count(&mut capped, 50, 10, 0);
        // 10 of 101 are not more than 10 %; 11 of 102 are.
        assert_eq!(completions.fraction(&mut capped, 0), (11, 102));
    }
}

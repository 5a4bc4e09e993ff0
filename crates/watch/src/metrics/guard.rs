//! Metrics of the guard.

use crate::guard::Tally;
use crate::registry::{Count, Encodable, Family, Level, Sum};

use super::{SECONDS, about};

/// The families of the guard.
#[derive(Debug)]
pub(super) struct GuardMetrics {
    advices: Family<Count>,
    refusals: Family<Count>,
    releases: Family<Count>,
    episodes: Family<Count>,
    limited: Family<Sum>,
    gained: Family<Sum>,
    limiting: Family<Level>,
    cpu: Family<Sum>,
    before: Tally,
}

impl GuardMetrics {
    pub fn new() -> GuardMetrics {
        let limited = "Time in which the guard limited a cgroup, by setting";
        let gained = "Stall time that proven limits saved: the measured gain per second times the time in force";
        GuardMetrics {
            advices: Family::single(about(
                "guard_advices",
                None,
                "Limits, or reasons against one, that the guard named",
            )),
            refusals: Family::new(about("guard_refusals", None, "Limits that were not set, by reason")),
            releases: Family::new(about("guard_releases", None, "Limits that ended, by reason")),
            episodes: Family::new(about("guard_episodes", None, "Trials of limits that ended, by result")),
            limited: Family::new(about("guard_limited", SECONDS, limited)),
            gained: Family::single(about("guard_gained", SECONDS, gained)),
            limiting: Family::single(about("guard_limiting", None, "1 while a limit of the guard is in force")),
            cpu: Family::single(about("guard_cpu", SECONDS, "CPU time of the guard itself")),
            before: Tally::default(),
        }
    }

    pub fn families(&self) -> [&dyn Encodable; 8] {
        [
            &self.advices,
            &self.refusals,
            &self.releases,
            &self.episodes,
            &self.limited,
            &self.gained,
            &self.limiting,
            &self.cpu,
        ]
    }

    pub fn set(&mut self, now: &Tally) {
        let before = std::mem::replace(&mut self.before, now.clone());
        self.advices.only().add(now.advices - before.advices);
        for (why, count) in &now.refusals {
            let known = before.refusals.get(why).copied().unwrap_or(0);
            self.refusals.of(vec![("reason", why.name().to_owned())]).add(count - known);
        }
        for (why, count) in &now.releases {
            let known = before.releases.get(why).copied().unwrap_or(0);
            self.releases.of(vec![("reason", why.name().to_owned())]).add(count - known);
        }
        let results = [
            ("proven", now.episodes_proven - before.episodes_proven),
            ("not-proven", now.episodes_not_proven - before.episodes_not_proven),
        ];
        for (result, count) in results.into_iter().filter(|(_, count)| *count > 0) {
            self.episodes.of(vec![("result", result.to_owned())]).add(count);
        }
        for (knob, seconds) in &now.limited_s {
            let known = before.limited_s.get(knob).copied().unwrap_or(0.0);
            self.limited.of(vec![("setting", knob.name().to_owned())]).add(seconds - known);
        }
        self.gained.only().add((now.gained_s - before.gained_s).max(0.0));
        self.cpu.only().add((now.cpu_s - before.cpu_s).max(0.0));
        self.limiting.only().set(if now.is_limiting { 1.0 } else { 0.0 });
    }
}

#[cfg(test)]
mod tests {
    use flatwater_guard::{Refusal, Release};
    use flatwater_recording::CgroupFile;

    use super::GuardMetrics;
    use crate::guard::Tally;
    use crate::registry;

    #[test]
    fn counters_rise_by_the_difference() {
        let mut metrics = GuardMetrics::new();
        let mut tally = Tally { advices: 2, ..Tally::default() };
        tally.refusals.insert(Refusal::CgroupV1, 2);
        tally.limited_s.insert(CgroupFile::IoMax, 3.0);
        metrics.set(&tally);
        tally.refusals.insert(Refusal::CgroupV1, 3);
        tally.releases.insert(Release::NotProven, 1);
        tally.limited_s.insert(CgroupFile::IoMax, 4.5);
        tally.is_limiting = true;
        metrics.set(&tally);
        let text = registry::plain(&metrics.families());
        for line in [
            "flatwater_guard_advices_total 2",
            "flatwater_guard_refusals_total{reason=\"cgroup-v1\"} 3",
            "flatwater_guard_releases_total{reason=\"not-proven\"} 1",
            "flatwater_guard_limited_seconds_total{setting=\"io.max\"} 4.5",
            "flatwater_guard_limiting 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

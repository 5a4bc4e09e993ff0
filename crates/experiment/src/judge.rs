//! What two recordings are judged by, and how it is computed from one of them, window by window.

use serde::Serialize;

use super::bootstrap::{Mean, Quantile, Windowed};
use flatwater_recording::{Cause, LatencyBucket, OpKind, Recording};

/// One figure of a recording. Lower is better for all but `Rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    P50,
    P99,
    P999,
    Worst,
    Lost,
    Rate,
    /// Time lost to one cause per second: what a fix of that cause must mend, however noisy the machine is in
    /// other respects.
    Cause(Cause),
}

/// By its name.
impl Serialize for Judge {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Judge {
    /// All but those of a single cause.
    pub const ALL: &[Judge] = &[Judge::P50, Judge::P99, Judge::P999, Judge::Worst, Judge::Lost, Judge::Rate];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Judge::P50 => "p50",
            Judge::P99 => "p99",
            Judge::P999 => "p99.9",
            Judge::Worst => "worst",
            Judge::Lost => "lost",
            Judge::Rate => "rate",
            Judge::Cause(cause) => cause.name(),
        }
    }

    /// In words, for one operation.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Judge::P50 => "half of the calls are faster",
            Judge::P99 => "one call in 100 is slower",
            Judge::P999 => "one call in 1000 is slower",
            Judge::Worst => "the largest delay",
            Judge::Lost => "time lost in slow calls, per second",
            Judge::Rate => "calls per second",
            Judge::Cause(_) => "time lost to this cause in slow calls, per second",
        }
    }

    #[must_use]
    pub fn find(name: &str) -> Option<Judge> {
        let cause = || Cause::from_name(name).map(Judge::Cause);
        Judge::ALL.iter().copied().find(|judge| judge.name() == name).or_else(cause)
    }

    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Judge::Rate => "1/s",
            Judge::Lost | Judge::Cause(_) => "ns/s",
            Judge::P50 | Judge::P99 | Judge::P999 | Judge::Worst => "ns",
        }
    }

    #[must_use]
    pub fn lower_is_better(self) -> bool {
        self != Judge::Rate
    }

    fn quantile(self) -> Option<f64> {
        match self {
            Judge::P50 => Some(0.5),
            Judge::P99 => Some(0.99),
            Judge::P999 => Some(0.999),
            Judge::Worst | Judge::Lost | Judge::Rate | Judge::Cause(_) => None,
        }
    }
}

/// Added to rates and times lost before their logarithm: below 0.1 ms a second nobody is losing anything, and a
/// ratio to nothing would be infinite.
const FLOOR: f64 = 100_000.0;

/// Latencies of one operation of the foreground, window by window, without the time to settle.
#[derive(Clone, Debug)]
pub struct Latencies {
    windows: Vec<Vec<(u64, u64)>>,
    worst_ns: Vec<u64>,
    window_ns: u64,
    threshold_ns: u64,
}

/// The foreground operation that a recording is about: writes if there are any, else what was called most.
#[must_use]
pub fn main_operation(recording: &Recording) -> Option<OpKind> {
    let mut counts: std::collections::BTreeMap<OpKind, u64> = std::collections::BTreeMap::new();
    for bucket in recording.latency.iter().filter(|bucket| bucket.thread.is_empty()) {
        *counts.entry(bucket.op).or_default() += bucket.from_start.count();
    }
    let preferred = [OpKind::Write, OpKind::Read].into_iter().find(|op| counts.get(op).is_some_and(|n| *n > 0));
    preferred.or_else(|| counts.into_iter().max_by_key(|&(_, count)| count).map(|(op, _)| op))
}

/// Operations of the foreground that were counted at all.
#[must_use]
pub fn operations(recording: &Recording) -> Vec<OpKind> {
    let own = recording.latency.iter().filter(|bucket| bucket.thread.is_empty());
    own.map(|bucket| bucket.op).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

impl Latencies {
    /// From-due latencies where the loop is open: what the one who waits has waited.
    #[must_use]
    pub fn of(recording: &Recording, op: OpKind, settle_ns: u64) -> Latencies {
        let begin_ns = recording.header.clock.start_ns.saturating_add(settle_ns);
        let end_ns = recording.header.clock.start_ns.saturating_add(recording.header.duration_ns);
        let mut buckets: Vec<&LatencyBucket> =
            recording.latency.iter().filter(|bucket| bucket.thread.is_empty() && bucket.op == op).collect();
        buckets.sort_by_key(|bucket| bucket.start_ns);
        let window_ns = buckets.first().map_or(1_000_000_000, |bucket| bucket.width_ns.max(1));
        let count = usize::try_from(end_ns.saturating_sub(begin_ns) / window_ns).unwrap_or(0).min(1 << 20);
        let mut windows = vec![Vec::new(); count];
        let mut worst_ns = vec![0; count];
        for bucket in buckets.iter().filter(|bucket| bucket.start_ns >= begin_ns) {
            let number = usize::try_from((bucket.start_ns - begin_ns) / window_ns).unwrap_or(usize::MAX);
            let (Some(window), Some(worst)) = (windows.get_mut(number), worst_ns.get_mut(number)) else { continue };
            let histogram = bucket.from_due.as_ref().unwrap_or(&bucket.from_start);
            window.extend(histogram.steps().map(|(_, highest_ns, count)| (highest_ns, count)));
            *worst = (*worst).max(bucket.worst_from_due_ns.unwrap_or(bucket.worst_from_start_ns));
        }
        Latencies { windows, worst_ns, window_ns, threshold_ns: recording.header.threshold_ns }
    }

    fn per_window(&self, of: impl Fn(&Vec<(u64, u64)>) -> f64) -> Vec<f64> {
        let seconds = self.window_ns as f64 / 1e9;
        self.windows.iter().map(|window| of(window) / seconds).collect()
    }

    /// Time spent in slow calls in each window, ns per second.
    fn lost(&self) -> Vec<f64> {
        self.per_window(|window| {
            let slow = window.iter().filter(|(ns, _)| *ns >= self.threshold_ns);
            slow.map(|(ns, count)| *ns as f64 * *count as f64).sum()
        })
    }

    fn rate(&self) -> Vec<f64> {
        self.per_window(|window| window.iter().map(|(_, count)| *count as f64).sum())
    }

    /// The figure as the bootstrap wants it; its value is a logarithm.
    #[must_use]
    pub fn windowed(&self, judge: Judge) -> Box<dyn Windowed> {
        let mean = |values: Vec<f64>, floor: bool| {
            let shown_as: fn(f64) -> f64 = if floor { |mean| (mean + FLOOR).ln() } else { |mean| mean.max(1e-9).ln() };
            Box::new(Mean { values, shown_as })
        };
        match (judge.quantile(), judge) {
            (Some(quantile), _) => Box::new(Quantile::new(quantile, &self.windows)),
            (None, Judge::Rate) => mean(self.rate(), false),
            (None, Judge::Lost) => mean(self.lost(), true),
            // The mean of the windows' largest delays: one largest delay has no spread that could be told.
            (None, _) => {
                let seen = self.windows.iter().zip(&self.worst_ns).filter(|(window, _)| !window.is_empty());
                mean(seen.map(|(_, worst)| *worst as f64).collect(), false)
            }
        }
    }

    /// The figure of a whole run, in its unit; `None` if nothing was called.
    #[must_use]
    pub fn whole(&self, judge: Judge) -> Option<f64> {
        if self.windows.iter().all(Vec::is_empty) {
            return None;
        }
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        Some(match judge {
            Judge::Worst => self.worst_ns.iter().copied().max()? as f64,
            Judge::Rate => mean(self.rate()),
            Judge::Lost => mean(self.lost()),
            quantile => self.windowed(quantile).value(&vec![1; self.windows.len()])?.exp(),
        })
    }
}

/// ns lost to a cause per second, in windows of a second: slow calls of the foreground that were kept one by one. What the
/// neighbours lose is no measure of a fix: they are there to make the stall, and a fix may well let them make more of it.
#[must_use]
pub fn lost_to(recording: &Recording, cause: Cause, settle_ns: u64) -> Mean {
    const WINDOW_NS: u64 = 1_000_000_000;
    let begin_ns = recording.header.clock.start_ns.saturating_add(settle_ns);
    let windows = usize::try_from(recording.header.duration_ns.saturating_sub(settle_ns) / WINDOW_NS).unwrap_or(0);
    let mut lost = vec![0.0; windows.min(1 << 20)];
    for call in recording.foreground_calls() {
        let place = call.start_ns.checked_sub(begin_ns).and_then(|ns| usize::try_from(ns / WINDOW_NS).ok());
        if let Some(window) = place.and_then(|place| lost.get_mut(place)) {
            *window += call.by_cause().get(&cause).copied().unwrap_or_default() as f64;
        }
    }
    Mean { values: lost, shown_as: |mean| (mean + FLOOR).ln() }
}

/// The figure of a whole run after settling; `None` if nothing was seen that it could be computed from.
#[must_use]
pub fn whole(recording: &Recording, judge: Judge, settle_ns: u64) -> Option<f64> {
    if let Judge::Cause(cause) = judge {
        let lost = lost_to(recording, cause, settle_ns).values;
        return (!lost.is_empty()).then(|| lost.iter().sum::<f64>() / lost.len() as f64);
    }
    Latencies::of(recording, main_operation(recording)?, settle_ns).whole(judge)
}

/// As a logarithm, for runs to be compared by ratio.
#[must_use]
pub fn logarithm(judge: Judge, whole: f64) -> f64 {
    if matches!(judge, Judge::Lost | Judge::Cause(_)) { (whole + FLOOR).ln() } else { whole.max(1e-9).ln() }
}

#[cfg(test)]
mod tests {
    use super::{Judge, Latencies, main_operation, whole};
    use flatwater_explain::testing::Made;
    use flatwater_recording::{Cause, OpKind};

    #[test]
    fn a_run_is_judged_by_what_the_foreground_waited_after_settling() {
        let made = Made::new().bucket("", OpKind::Write, &[50_000_000, 2_000_000, 1_000]);
        let recording = made.bucket("stream", OpKind::Write, &[900_000_000]).bucket("", OpKind::Stat, &[5; 9]).done();
        assert_eq!(main_operation(&recording), Some(OpKind::Write));
        let latencies = Latencies::of(&recording, OpKind::Write, 0);
        assert_eq!(latencies.whole(Judge::Worst), Some(50_000_000.0));
        assert!(latencies.whole(Judge::Lost).is_some_and(|lost| (5_100_000.0..5_300_000.0).contains(&lost)));
        assert_eq!(Latencies::of(&recording, OpKind::Read, 0).whole(Judge::P50), None);
        assert_eq!(Latencies::of(&recording, OpKind::Write, u64::MAX).whole(Judge::P50), None);
    }

    #[test]
    fn what_a_neighbour_loses_is_not_judged() {
        let one = [(Cause::MemcgReclaim, 20.0)];
        let made = || {
            let made = Made::new().slow_by("journal", OpKind::Write, &one);
            made.slow_by("stream", OpKind::Write, &[(Cause::MemcgReclaim, 900.0)])
        };
        let all = whole(&made().done(), Judge::Cause(Cause::MemcgReclaim), 0);
        let own = whole(&made().neighbour("stream").done(), Judge::Cause(Cause::MemcgReclaim), 0);
        let ratio = all.zip(own).map(|(all, own)| all / own);
        assert!(ratio.is_some_and(|ratio| (45.9..46.1).contains(&ratio)), "{ratio:?}");
    }

    #[test]
    fn judges_are_found_by_name() {
        for &judge in Judge::ALL {
            assert_eq!(Judge::find(judge.name()), Some(judge));
        }
        assert_eq!(Judge::find("memcg-reclaim"), Some(Judge::Cause(Cause::MemcgReclaim)));
        assert_eq!(Judge::find("p98"), None);
    }
}

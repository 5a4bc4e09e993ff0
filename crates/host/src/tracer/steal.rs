//! Time that the hypervisor took from this machine's CPUs, as far as /proc/stat tells.
//!
//! The kernel counts it in ticks of 10 ms over all CPUs: it can say that a stretch on the CPU which nothing else
//! explains may have been stolen, and never that it surely was. Hence `inferred`, and never more than was counted.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::clock::monotonic_ns;
use flatwater_recording::{Cause, CauseBasis, DurationBasis, Segment};

/// /proc/stat counts in USER_HZ, which is 100 on every architecture that we know.
const TICK_NS: u64 = 10_000_000;
/// Time between readings; one costs some ten microseconds.
const EVERY_NS: u64 = 200_000_000;
/// Readings kept: calls are asked about soon after they end.
const KEPT: usize = 512;

/// Readings of the steal counter.
#[derive(Debug, Default)]
pub struct StealLedger {
    file: Option<File>,
    /// (when, stolen since boot in ns), in order of time.
    readings: VecDeque<(u64, u64)>,
}

impl StealLedger {
    #[must_use]
    pub fn open() -> StealLedger {
        let mut ledger = StealLedger { file: File::open("/proc/stat").ok(), readings: VecDeque::new() };
        ledger.read();
        ledger
    }

    /// Reads again if the last reading is old enough.
    pub fn tick(&mut self) {
        let due = self.readings.back().is_none_or(|&(at, _)| monotonic_ns().saturating_sub(at) >= EVERY_NS);
        if due {
            self.read();
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; 256];
        let Some(file) = &self.file else { return };
        let Ok(got) = file.read_at(&mut bytes, 0) else { return };
        let Some(stolen) = stolen_ticks(bytes.get(..got).unwrap_or_default()) else { return };
        if self.readings.len() >= KEPT {
            self.readings.pop_front();
        }
        self.readings.push_back((monotonic_ns(), stolen.saturating_mul(TICK_NS)));
    }

    /// What was stolen at most between the last reading before `start_ns` and the first one after `end_ns`.
    fn stolen_ns(&mut self, start_ns: u64, end_ns: u64) -> u64 {
        if self.readings.back().is_none_or(|&(at, _)| at < end_ns) {
            self.read();
        }
        let before = self.readings.iter().rev().find(|&&(at, _)| at <= start_ns);
        let after = self.readings.iter().find(|&&(at, _)| at >= end_ns);
        match (before, after) {
            (Some((_, before)), Some((_, after))) => after.saturating_sub(*before),
            _ => 0,
        }
    }

    /// Gives stretches on the CPU that are unexplained to the hypervisor, as far as it took that much.
    pub fn name_stolen(&mut self, start_ns: u64, segments: &mut [Segment]) {
        let unexplained = |segment: &Segment| {
            segment.cause == Cause::Unexplained && segment.duration_basis == DurationBasis::Inferred
        };
        if !segments.iter().any(unexplained) {
            return;
        }
        let end_ns = start_ns + segments.last().map_or(0, |segment| segment.offset_ns + segment.ns);
        let mut left_ns = self.stolen_ns(start_ns, end_ns);
        for segment in segments.iter_mut().filter(|segment| unexplained(segment)) {
            if segment.ns <= left_ns {
                left_ns -= segment.ns;
                segment.cause = Cause::Steal;
                segment.cause_basis = CauseBasis::Counters;
            }
        }
    }
}

/// The eighth number of the line `cpu  user nice system idle iowait irq softirq steal ...`.
fn stolen_ticks(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    line.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{StealLedger, stolen_ticks};
    use flatwater_recording::{Cause, CauseBasis, DurationBasis, Segment};

    fn segment(offset_ns: u64, ns: u64, cause: Cause, duration: DurationBasis) -> Segment {
        Segment::new(offset_ns, ns, cause, duration, CauseBasis::Elimination)
    }

    fn ledger(readings: &[(u64, u64)]) -> StealLedger {
        StealLedger { file: None, readings: readings.iter().copied().collect() }
    }

    #[test]
    fn the_eighth_number_is_steal() {
        assert_eq!(stolen_ticks(b"cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 ..."), Some(88));
        assert_eq!(stolen_ticks(b"cpu  1 2 3"), None);
        assert_eq!(stolen_ticks(b"\xff"), None);
    }

    #[test]
    fn only_what_was_stolen_in_that_time_is_given_to_the_hypervisor() {
        let whole = || {
            vec![
                segment(0, 5, Cause::MemcgReclaim, DurationBasis::Measured),
                segment(5, 9_000_000, Cause::Unexplained, DurationBasis::Inferred),
            ]
        };
        let mut segments = whole();
        ledger(&[(100, 0), (20_000_000, 10_000_000)]).name_stolen(1_000, &mut segments);
        assert_eq!((segments[1].cause, segments[1].cause_basis), (Cause::Steal, CauseBasis::Counters));
        assert_eq!(segments[0].cause, Cause::MemcgReclaim);
        let mut quiet = whole();
        ledger(&[(100, 5), (20_000_000, 5)]).name_stolen(1_000, &mut quiet);
        assert_eq!(quiet[1].cause, Cause::Unexplained);
        let mut earlier = whole();
        ledger(&[(100, 0), (500, 10_000_000), (20_000_000, 10_000_000)]).name_stolen(1_000, &mut earlier);
        assert_eq!(earlier[1].cause, Cause::Unexplained);
    }
}

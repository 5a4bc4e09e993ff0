//! Attributes time to the hypervisor (steal), from /proc/stat.
//!
//! The kernel counts steal in ticks of 10 ms. The sum over all CPUs shows that an otherwise unexplained interval on the
//! CPU may have been stolen, but not that it was. So the cause is `inferred`, and no more time is attributed than was
//! counted.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::clock::monotonic_ns;
use flatwater_recording::{Cause, CauseBasis, DurationBasis, Segment};

/// /proc/stat counts in USER_HZ, 100 on all supported architectures.
const TICK_NS: u64 = 10_000_000;
/// Time between readings; a reading costs some ten microseconds.
const EVERY_NS: u64 = 200_000_000;
/// Keep this many readings; calls are attributed soon after they end.
const KEPT: usize = 512;

/// The readings of the steal counter.
#[derive(Debug, Default)]
pub struct StealLedger {
    file: Option<File>,
    /// In order of time.
    readings: VecDeque<Reading>,
}

/// One reading of the counter.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at_ns: u64,
    /// Time stolen since boot, ns.
    total_ns: u64,
    /// The part of the time stolen since the previous reading that no call has been given yet, ns.
    left_ns: u64,
}

impl StealLedger {
    #[must_use]
    pub fn open() -> StealLedger {
        let mut ledger = StealLedger { file: File::open("/proc/stat").ok(), readings: VecDeque::new() };
        ledger.read();
        ledger
    }

    /// Reads the counter if the last reading is old enough.
    pub fn tick(&mut self) {
        let due = self.readings.back().is_none_or(|last| monotonic_ns().saturating_sub(last.at_ns) >= EVERY_NS);
        if due {
            self.read();
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; 256];
        let Some(file) = &self.file else { return };
        let Ok(got) = file.read_at(&mut bytes, 0) else { return };
        let Some(stolen) = stolen_ticks(bytes.get(..got).unwrap_or_default()) else { return };
        self.push(monotonic_ns(), stolen.saturating_mul(TICK_NS));
    }

    fn push(&mut self, at_ns: u64, total_ns: u64) {
        if self.readings.len() >= KEPT {
            self.readings.pop_front();
        }
        let left_ns = self.readings.back().map_or(0, |last| total_ns.saturating_sub(last.total_ns));
        self.readings.push_back(Reading { at_ns, total_ns, left_ns });
    }

    /// The readings that end the intervals in which a call from `start_ns` to `end_ns` ran: from the first one after
    /// `start_ns` to the first one at or after `end_ns`. Empty if the readings do not surround the call.
    fn around(&mut self, start_ns: u64, end_ns: u64) -> Range<usize> {
        if self.readings.back().is_none_or(|last| last.at_ns < end_ns) {
            self.read();
        }
        let before = self.readings.iter().rposition(|reading| reading.at_ns <= start_ns);
        let after = self.readings.iter().position(|reading| reading.at_ns >= end_ns);
        before.zip(after).map_or(0..0, |(before, after)| before + 1..(after + 1).max(before + 1))
    }

    /// Gives unexplained intervals on the CPU the cause `steal`, if all CPUs together lost that much time around the
    /// call and no other call has been given it.
    pub fn name_stolen(&mut self, start_ns: u64, segments: &mut [Segment]) {
        let unexplained = |segment: &Segment| {
            segment.cause == Cause::Unexplained && segment.duration_basis == DurationBasis::Inferred
        };
        if !segments.iter().any(unexplained) {
            return;
        }
        let end_ns = start_ns + segments.last().map_or(0, |segment| segment.offset_ns + segment.ns);
        let around = self.around(start_ns, end_ns);
        for segment in segments.iter_mut().filter(|segment| unexplained(segment)) {
            if self.take(around.clone(), segment.ns) {
                segment.cause = Cause::Steal;
                segment.cause_basis = CauseBasis::Counters;
            }
        }
    }

    /// Takes `ns` from the stolen time of these intervals, if that much is left.
    fn take(&mut self, around: Range<usize>, ns: u64) -> bool {
        let left = |reading: &Reading| reading.left_ns;
        if self.readings.range(around.clone()).map(left).fold(0, u64::saturating_add) < ns {
            return false;
        }
        let mut wanted_ns = ns;
        for reading in self.readings.range_mut(around) {
            let taken_ns = reading.left_ns.min(wanted_ns);
            reading.left_ns -= taken_ns;
            wanted_ns -= taken_ns;
        }
        true
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
        let mut ledger = StealLedger::default();
        readings.iter().for_each(|&(at_ns, total_ns)| ledger.push(at_ns, total_ns));
        ledger
    }

    #[test]
    fn the_eighth_number_is_steal() {
        assert_eq!(stolen_ticks(b"cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 ..."), Some(88));
        assert_eq!(stolen_ticks(b"cpu  1 2 3"), None);
        assert_eq!(stolen_ticks(b"\xff"), None);
    }

    #[test]
    fn only_time_stolen_during_the_call_is_attributed() {
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

    /// One CPU was stolen for 10 ms while ten threads lost 9 ms each: only one of them lost it to the hypervisor.
    #[test]
    fn stolen_time_is_attributed_once() {
        let mut ledger = ledger(&[(100, 0), (20_000_000, 10_000_000), (40_000_000, 10_000_000)]);
        let mut given = 0;
        for thread in 0..10 {
            let mut segments = vec![segment(0, 9_000_000, Cause::Unexplained, DurationBasis::Inferred)];
            ledger.name_stolen(1_000 + thread, &mut segments);
            given += u32::from(segments[0].cause == Cause::Steal);
        }
        assert_eq!(given, 1);
        let mut rest = vec![segment(0, 1_000_000, Cause::Unexplained, DurationBasis::Inferred)];
        ledger.name_stolen(1_000, &mut rest);
        assert_eq!(rest[0].cause, Cause::Steal, "a tenth is left");
    }
}

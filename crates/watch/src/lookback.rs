//! The look-back: the last minute in memory, so that a recording includes what led to its trigger.
//!
//! It is limited by age and by bytes. A recording that lacks a part that was dropped before its age has a gap.

use std::collections::VecDeque;
use std::sync::Arc;

use flatwater_recording::Gap;
use flatwater_recording::units::{Bytes, Nanos};

use crate::second::Second;

#[derive(Debug)]
pub struct LookBack {
    span_ns: u64,
    bytes_max: usize,
    seconds: VecDeque<(usize, Arc<Second>)>,
    bytes: usize,
    /// The end of the newest second that was dropped for its size before its age.
    pushed_out_ns: Option<u64>,
}

const BYTES_MIN: usize = 1 << 20;

impl LookBack {
    #[must_use]
    pub fn new(span_ns: u64, bytes_max: u64) -> LookBack {
        LookBack {
            span_ns,
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            seconds: VecDeque::new(),
            bytes: 0,
            pushed_out_ns: None,
        }
    }

    /// Adds a second, and drops seconds that are too old or beyond the limit of bytes.
    pub fn push(&mut self, second: Arc<Second>) {
        let now_ns = second.end_ns;
        let bytes = second.bytes();
        self.bytes += bytes;
        self.seconds.push_back((bytes, second));
        while let Some((bytes, oldest)) = self.seconds.front() {
            let old = oldest.end_ns.saturating_add(self.span_ns) < now_ns;
            // The newest second stays, however large: a trigger refers to it.
            let much = self.bytes > self.bytes_max && self.seconds.len() > 1;
            if !old && !much {
                break;
            }
            if !old {
                self.pushed_out_ns = Some(oldest.end_ns);
            }
            self.bytes -= bytes;
            self.seconds.pop_front();
        }
    }

    /// Sets new limits, in force from the next second on.
    pub fn set_limits(&mut self, span_ns: u64, bytes_max: u64) {
        self.span_ns = span_ns;
        self.bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    }

    /// Halves the limit of bytes from the next second on, down to `BYTES_MIN`.
    pub fn halve(&mut self) {
        self.bytes_max = (self.bytes_max / 2).max(BYTES_MIN);
    }

    pub fn seconds(&self) -> impl Iterator<Item = &Second> {
        self.seconds.iter().map(|(_, second)| &**second)
    }

    /// The start of the oldest second; `None` if there is none.
    #[must_use]
    pub fn start_ns(&self) -> Option<u64> {
        self.seconds.front().map(|(_, second)| second.start_ns)
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The gap of a recording that begins now, if it cannot reach back the whole span.
    #[must_use]
    pub fn missing(&self) -> Option<Gap> {
        let from_ns = self.start_ns()?;
        let pushed_out_ns = self.pushed_out_ns.filter(|end_ns| *end_ns <= from_ns)?;
        let newest_ns = self.seconds.back().map_or(from_ns, |(_, second)| second.end_ns);
        let wanted_ns = newest_ns.saturating_sub(self.span_ns);
        (pushed_out_ns > wanted_ns).then(|| {
            let why = format!(
                "the look-back is limited to {}, which held {}",
                Bytes(self.bytes_max as u64),
                Nanos(newest_ns.saturating_sub(from_ns))
            );
            Gap::new("the time before that", why, "raise budget.look_back, or threshold")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::LookBack;
    use crate::second::{OwnedCall, Second};
    use crate::sight::tests::call;

    const S: u64 = 1_000_000_000;

    fn second(at_s: u64, calls: usize) -> Arc<Second> {
        let calls = (0..calls).map(|_| OwnedCall::new(call(at_s * S, 5_000_000), Default::default()));
        Arc::new(Second { start_ns: at_s * S, end_ns: (at_s + 1) * S, calls: calls.collect(), ..Second::default() })
    }

    #[test]
    fn seconds_older_than_the_span_are_dropped() {
        let mut held = LookBack::new(10 * S, 1 << 20);
        (0..100).for_each(|at| held.push(second(at, 1)));
        assert_eq!(held.start_ns(), Some(89 * S));
        assert_eq!(held.seconds().count(), 11);
        assert!(held.missing().is_none());
    }

    #[test]
    fn a_flood_of_calls_stays_within_the_limit_and_is_a_gap() {
        let mut held = LookBack::new(60 * S, 1 << 20);
        (0..60).for_each(|at| held.push(second(at, 1_000)));
        assert!(held.bytes() <= 1 << 20, "{}", held.bytes());
        let gap = held.missing().expect("a gap");
        assert!(gap.why.contains("1 MiB"), "{gap:?}");
        // A whole span after the flood nothing is missing.
        (60..200).for_each(|at| held.push(second(at, 0)));
        assert!(held.missing().is_none());
    }

    #[test]
    fn a_single_second_above_the_limit_is_kept() {
        let mut held = LookBack::new(60 * S, 1 << 20);
        held.push(second(1, 50_000));
        assert_eq!(held.seconds().count(), 1);
    }
}

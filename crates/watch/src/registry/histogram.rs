//! A histogram of times in seconds, with classic buckets for text and native buckets for protobuf.
//!
//! Native buckets (prometheus.io/docs/specs/native_histograms) are exponential: at schema `s` a bucket ends at
//! `2^(index / 2^s)`. Above `NATIVE_MAX` buckets, each two are merged into one, at the next lower schema.

use std::collections::BTreeMap;
use std::time::SystemTime;

/// Upper bounds of the classic buckets: from 1 ms to 131 s, each twice the previous.
const FIRST_BOUND: f64 = 0.001;
const BOUNDS: usize = 18;
/// A bucket ends at 1.09 times its start: 2^(1/8).
const SCHEMA: i32 = 3;
const SCHEMA_MIN: i32 = -4;
const NATIVE_MAX: usize = 160;
/// Values up to this one are in the zero bucket: 2^-128, as the specification recommends.
pub const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

#[derive(Clone, Debug)]
pub struct Histogram {
    pub sum: f64,
    pub count: u64,
    pub created: SystemTime,
    pub schema: i32,
    pub zero_count: u64,
    /// The last bucket counts values above all bounds.
    classic: [u64; BOUNDS + 1],
    native: BTreeMap<i32, u64>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            sum: 0.0,
            count: 0,
            created: SystemTime::now(),
            schema: SCHEMA,
            zero_count: 0,
            classic: [0; BOUNDS + 1],
            native: BTreeMap::new(),
        }
    }
}

fn bound(place: usize) -> f64 {
    if place < BOUNDS { FIRST_BOUND * f64::from(1_u32 << place) } else { f64::INFINITY }
}

/// Runs of native buckets: the number of buckets skipped before each run, and its length. `deltas` has the count of
/// each bucket minus the previous one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    pub spans: Vec<(i32, u32)>,
    pub deltas: Vec<i64>,
}

impl Histogram {
    /// Counts a time of at least 0 s.
    pub fn observe(&mut self, seconds: f64) {
        self.sum += seconds;
        self.count += 1;
        let place = (0..BOUNDS).find(|place| seconds <= bound(*place)).unwrap_or(BOUNDS);
        self.classic[place] += 1;
        if seconds <= ZERO_THRESHOLD {
            self.zero_count += 1;
            return;
        }
        *self.native.entry(index(seconds, self.schema)).or_default() += 1;
        if self.native.len() > NATIVE_MAX && self.schema > SCHEMA_MIN {
            self.schema -= 1;
            let finer = std::mem::take(&mut self.native);
            for (index, count) in finer {
                // Buckets 2n - 1 and 2n become bucket n.
                *self.native.entry((index + 1).div_euclid(2)).or_default() += count;
            }
        }
    }

    /// Each upper bound with the number of values up to it; the last bound is infinite.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.classic.iter().enumerate().scan(0, |sum, (place, count)| {
            *sum += count;
            Some((bound(place), *sum))
        })
    }

    /// The native buckets as protobuf encodes them. One or two empty buckets are cheaper than a new span.
    #[must_use]
    pub fn spans(&self) -> Spans {
        let mut out = Spans::default();
        let (mut last, mut next) = (0, 0);
        let mut push = |out: &mut Spans, count: i64| {
            if let Some((_, length)) = out.spans.last_mut() {
                *length += 1;
            }
            out.deltas.push(count - last);
            last = count;
        };
        for (index, count) in &self.native {
            let skipped = index - next;
            if out.spans.is_empty() || skipped > 2 {
                out.spans.push((skipped, 0));
            } else {
                (0..skipped).for_each(|_| push(&mut out, 0));
            }
            push(&mut out, i64::try_from(*count).unwrap_or(i64::MAX));
            next = index + 1;
        }
        out
    }
}

/// The bucket of a positive value: the least `index` with `value <= 2^(index / 2^schema)`.
fn index(value: f64, schema: i32) -> i32 {
    let per_power = f64::from(schema).exp2();
    let near = (value.log2() * per_power).ceil() as i32;
    // The logarithm is rounded, so a value at a bound may be off by one.
    let end = |index: i32| (f64::from(index) / per_power).exp2();
    if value > end(near) {
        near + 1
    } else if value <= end(near - 1) {
        near - 1
    } else {
        near
    }
}

#[cfg(test)]
mod tests {
    use super::{Histogram, NATIVE_MAX, Spans, index};

    #[test]
    fn a_value_at_a_bound_is_in_the_bucket_that_ends_there() {
        for power in -30..30 {
            let bound = f64::from(power).exp2();
            assert_eq!(index(bound, 3), 8 * power);
            assert_eq!(index(bound * (1.0 + f64::EPSILON), 3), 8 * power + 1);
            assert_eq!(index(bound, 0), power);
        }
        assert_eq!((index(3.0, -1), index(4.0, -1), index(5.0, -1)), (1, 1, 2));
    }

    #[test]
    fn empty_buckets_are_skipped_or_written_as_the_specification_says() {
        let mut histogram = Histogram::default();
        for value in [1.0, 1.0, 1.25, 16.0, 0.0] {
            histogram.observe(value);
        }
        // Buckets 0, 3 and 32.
        assert_eq!(histogram.spans(), Spans { spans: vec![(0, 4), (28, 1)], deltas: vec![2, -2, 0, 1, 0] });
        assert_eq!(histogram.zero_count, 1);
    }

    #[test]
    fn the_number_of_buckets_is_bounded_and_no_value_is_lost() {
        let mut histogram = Histogram::default();
        let mut value = 1e-9;
        while value < 1e6 {
            histogram.observe(value);
            value *= 1.01;
        }
        assert!(histogram.native.len() <= NATIVE_MAX && histogram.schema < 3, "{histogram:?}");
        assert_eq!(histogram.native.values().sum::<u64>(), histogram.count);
        assert_eq!(histogram.cumulative().last(), Some((f64::INFINITY, histogram.count)));
    }
}

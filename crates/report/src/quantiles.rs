//! Percentiles over several packed histograms, without unpacking them (270 KB each).

use std::collections::BTreeMap;

use flatwater_recording::PackedHistogram;

/// Latencies of several buckets, added up: highest ns of each class -> count.
#[derive(Clone, Debug, Default)]
pub struct Together {
    classes: BTreeMap<u64, u64>,
    count: u64,
}

impl Together {
    pub fn of<'a>(all: impl IntoIterator<Item = &'a PackedHistogram>) -> Together {
        let mut together = Together::default();
        for one in all {
            for (_, highest_ns, count) in one.steps() {
                let class = together.classes.entry(highest_ns).or_default();
                *class = class.saturating_add(count);
                together.count = together.count.saturating_add(count);
            }
        }
        together
    }

    /// The latency (ns) that this share of the calls did not exceed; `None` without calls.
    pub fn at(&self, quantile: f64) -> Option<u64> {
        let wanted = ((quantile * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0_u64;
        for (&highest_ns, &count) in &self.classes {
            seen = seen.saturating_add(count);
            if seen >= wanted {
                return Some(highest_ns);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Together;
    use flatwater_recording::{PackedHistogram, histogram};

    #[test]
    fn quantiles_over_parts_equal_those_of_one_histogram() {
        let (mut first, mut second, mut both) = (histogram(), histogram(), histogram());
        for n in 0..5_000_u64 {
            let ns = 1_000 + n * n % 977_777;
            both.saturating_record(ns);
            (if n % 3 == 0 { &mut first } else { &mut second }).saturating_record(ns);
        }
        let together = Together::of(&[PackedHistogram::pack(&first), PackedHistogram::pack(&second)]);
        for quantile in [0.0, 0.5, 0.99, 0.999, 1.0] {
            assert_eq!(together.at(quantile), Some(both.value_at_quantile(quantile)), "{quantile}");
        }
        assert_eq!(Together::default().at(0.5), None);
    }
}

//! Histograms of a recording as parameters of `observed`.

use std::collections::BTreeMap;

use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::{Bytes, Nanos};

/// More classes are joined, so that a line stays readable.
const WORDS_MAX: usize = 12;
const COUNT_MAX: u64 = 1 << 40;

/// Counts by the lowest value of their class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes(BTreeMap<u64, u64>);

impl Classes {
    pub fn add(&mut self, classes: &[(u64, u64)]) {
        for (lowest, count) in classes {
            let sum = self.0.entry(*lowest).or_default();
            *sum = sum.saturating_add(*count).min(COUNT_MAX);
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(value, count)| (*value, *count))
    }

    pub fn remove(&mut self, value: u64) -> u64 {
        self.0.remove(&value).unwrap_or(0)
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().fold(0_u64, |sum, count| sum.saturating_add(*count))
    }

    /// The mean of the lowest values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.iter().map(|(value, count)| value as f64 * count as f64).sum();
        sum / (self.count().max(1) as f64)
    }

    /// The classes with each value replaced by `value(value)`, at most `max`; the counts stay.
    #[must_use]
    pub fn map(&self, max: u64, value: impl Fn(u64) -> u64) -> Classes {
        let mut mapped = Classes::default();
        mapped.add(&self.iter().map(|(lowest, count)| (value(lowest).min(max), count)).collect::<Vec<_>>());
        mapped
    }

    /// The classes with the most counts or the largest sum of values; the counts of the others go to the next lower
    /// one that stays.
    #[must_use]
    fn few(&self) -> Vec<(u64, u64)> {
        let total = self.count().max(1) as f64;
        let sum = (self.mean() * total).max(1.0);
        let weight = |value: u64, count: u64| (count as f64 / total).max(value as f64 * count as f64 / sum);
        let mut by_weight: Vec<(u64, u64)> = self.iter().collect();
        by_weight.sort_short_by(|a, b| weight(b.0, b.1).total_cmp(&weight(a.0, a.1)));
        let mut kept: BTreeMap<u64, u64> = by_weight.iter().take(WORDS_MAX).copied().collect();
        for (value, count) in by_weight.iter().skip(WORDS_MAX) {
            let near = kept.range(..value).next_back().or_else(|| kept.iter().next()).map(|(near, _)| *near);
            if let Some(sum) = near.and_then(|near| kept.get_mut(&near)) {
                *sum = sum.saturating_add(*count);
            }
        }
        kept.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    #[must_use]
    pub fn counts_text(&self) -> String {
        joined(self.few().into_iter().map(|(value, count)| format!("{value}:{count}")))
    }

    #[must_use]
    pub fn sizes_text(&self) -> String {
        joined(self.few().into_iter().map(|(value, count)| format!("{}:{count}", exact_bytes(value))))
    }

    #[must_use]
    pub fn times_text(&self) -> String {
        joined(self.few().into_iter().map(|(value, count)| format!("{}:{count}", rounded(value))))
    }
}

fn joined(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

/// A size that is read back as the same number.
#[must_use]
pub fn exact_bytes(bytes: u64) -> String {
    let text = Bytes(bytes).to_string().replace(' ', "");
    if text.parse() == Ok(Bytes(bytes)) { text } else { format!("{bytes}B") }
}

/// A duration without a space, to a thousandth.
#[must_use]
pub fn rounded(ns: u64) -> String {
    let text = Nanos(ns).to_string().replace(' ', "");
    if text.parse::<Nanos>().is_ok() { text } else { format!("{ns}ns") }
}

//! Ranges of disk pages that neither touch nor overlap.

use std::collections::BTreeMap;

/// By the first page of each range, the first page behind the range.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a range and merges ranges that touch.
    pub fn insert(&mut self, from: u64, to: u64) {
        let (mut from, mut to) = (from, to);
        while let Some((&start, &end)) = self.ends.range(..=to).next_back().filter(|(_, end)| **end >= from) {
            self.ends.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.ends.insert(from, to);
    }

    /// The parts of ranges between two pages.
    #[must_use]
    pub fn within(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let before = self.ends.range(..from).next_back().filter(|(_, end)| **end > from);
        let all = before.into_iter().chain(self.ends.range(from..to));
        all.map(|(&start, &end)| (start.max(from), end.min(to))).collect()
    }

    /// Removes the pages [from, to).
    pub fn remove(&mut self, from: u64, to: u64) {
        for (start, end) in self.within(from, to) {
            let (&first, &last) = self.ends.range(..=start).next_back().unwrap_or((&start, &end));
            self.ends.remove(&first);
            if first < start {
                self.ends.insert(first, start);
            }
            if end < last {
                self.ends.insert(end, last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut ranges = Ranges::default();
        ranges.insert(10, 20);
        ranges.insert(30, 40);
        assert_eq!(ranges.within(0, 100), [(10, 20), (30, 40)]);
        ranges.insert(20, 30);
        ranges.insert(15, 45);
        ranges.insert(50, 60);
        assert_eq!(ranges.within(20, 55), [(20, 45), (50, 55)]);
        ranges.remove(20, 55);
        assert_eq!(ranges.within(0, 100), [(10, 20), (55, 60)]);
        ranges.remove(16, 18);
        assert_eq!(ranges.within(0, 50), [(10, 16), (18, 20)]);
    }
}

//! Ranges of pages of a disk that touch neither each other nor overlap.

use std::collections::BTreeMap;

/// The first page of each range, and the first behind it.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ends: BTreeMap<u64, u64>,
    pages: u64,
}

impl Ranges {
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether all of these pages are here.
    #[must_use]
    pub fn hold(&self, from: u64, to: u64) -> bool {
        self.ends.range(..=from).next_back().is_some_and(|(_, end)| *end >= to)
    }

    /// Adds a range; those that touch it become part of it.
    pub fn insert(&mut self, from: u64, to: u64) {
        let (mut from, mut to) = (from, to);
        while let Some((&start, &end)) = self.ends.range(..=to).next_back().filter(|(_, end)| **end >= from) {
            self.ends.remove(&start);
            self.pages -= end - start;
            (from, to) = (from.min(start), to.max(end));
        }
        self.pages += to - from;
        self.ends.insert(from, to);
    }

    /// The range that begins next upwards from a page, or the lowest.
    #[must_use]
    pub fn upwards(&self, from: u64) -> Option<(u64, u64)> {
        let next = self.ends.range(from..).next().or_else(|| self.ends.iter().next());
        next.map(|(&start, &end)| (start, end))
    }

    /// The parts of ranges between two pages.
    #[must_use]
    pub fn within(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let before = self.ends.range(..from).next_back().filter(|(_, end)| **end > from);
        let all = before.into_iter().chain(self.ends.range(from..to));
        all.map(|(&start, &end)| (start.max(from), end.min(to))).collect()
    }

    /// Removes what is between two pages.
    pub fn remove(&mut self, from: u64, to: u64) {
        for (start, end) in self.within(from, to) {
            let (&first, &last) = self.ends.range(..=start).next_back().unwrap_or((&start, &end));
            self.ends.remove(&first);
            self.pages -= end - start;
            if first < start {
                self.ends.insert(first, start);
            }
            if end < last {
                self.ends.insert(end, last);
            }
        }
    }

    /// Removes up to so many pages from the beginning of the range that begins here; returns the first page behind them.
    pub fn take(&mut self, start: u64, most: u64) -> u64 {
        let Some(end) = self.ends.remove(&start) else { return start };
        let stop = end.min(start + most);
        if stop < end {
            self.ends.insert(stop, end);
        }
        self.pages -= stop - start;
        stop
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
        assert!(ranges.hold(10, 20) && ranges.hold(12, 15) && !ranges.hold(15, 25) && !ranges.hold(20, 30));
        ranges.insert(20, 30);
        assert!(ranges.hold(10, 40) && !ranges.hold(9, 11) && !ranges.hold(39, 41));
        ranges.insert(15, 45);
        assert_eq!((ranges.pages(), ranges.upwards(11)), (35, Some((10, 45))));
        assert_eq!((ranges.take(10, 5), ranges.pages(), ranges.upwards(0)), (15, 30, Some((15, 45))));
        ranges.insert(50, 60);
        assert_eq!(ranges.within(20, 55), [(20, 45), (50, 55)]);
        ranges.remove(20, 55);
        assert_eq!((ranges.within(0, 100), ranges.pages()), (vec![(15, 20), (55, 60)], 10));
        ranges.remove(16, 18);
        assert_eq!(ranges.within(0, 50), [(15, 16), (18, 20)]);
    }
}

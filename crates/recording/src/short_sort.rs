//! Sorting of short lists.

use std::cmp::Ordering;

/// Stable sorts of lists that stay short. All share one compiled sort, whereas each call of `slice::sort_by` compiles
/// another of about 5 KB.
pub trait ShortSort<T> {
    /// Sorts as `slice::sort_by` does.
    fn sort_short_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Sorts as `slice::sort_by_key` does.
    fn sort_short_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_short_by(|one, other| key(one).cmp(&key(other)));
    }
}

impl<T> ShortSort<T> for [T] {
    fn sort_short_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut from = order(self.len(), &mut |one, other| compare(&self[one], &self[other]));
        // The element for `place` is at `from[place]`: follow each cycle of such moves once.
        for begin in 0..from.len() {
            let mut place = begin;
            while from[place] != begin {
                let next = from[place];
                self.swap(place, next);
                from[place] = place;
                place = next;
            }
            from[place] = place;
        }
    }
}

/// The indices below `len` in the order of what they stand for.
#[inline(never)]
fn order(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by(|&one, &other| compare(one, other));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert_eq, proptest};

    use super::ShortSort;

    proptest! {
        #[test]
        fn a_short_sort_gives_the_order_of_a_stable_sort(keys in prop::collection::vec(0u8..8, 0..60)) {
            let numbered: Vec<(u8, usize)> = keys.iter().copied().zip(0..).collect();
            let (mut short, mut by_key, mut stable) = (numbered.clone(), numbered.clone(), numbered);
            stable.sort_by_key(|(key, _)| *key);
            short.sort_short_by(|one, other| one.0.cmp(&other.0));
            by_key.sort_short_by_key(|(key, _)| *key);
            prop_assert_eq!(&short, &stable);
            prop_assert_eq!(&by_key, &stable);
        }
    }
}

//! A histogram as a workload's parameter: words `VALUE:COUNT` (`4KiB:90 8KiB:10`, `500us:3`), from which values are
//! drawn in proportion to their counts.

use super::dice::Dice;
use flatwater_recording::units::{Bytes, Nanos};

/// The unit of a histogram's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Bytes,
    Time,
}

/// A longer histogram is refused: a scenario's line must stay readable.
pub const WORDS_MAX: usize = 64;
const COUNT_MAX: u64 = 1 << 40;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Value, and the sum of the counts up to it.
    values: Vec<(u64, u64)>,
}

impl Histogram {
    /// `None` if a word is malformed or a value exceeds `max`. An empty text has no values.
    #[must_use]
    pub fn parse(text: &str, unit: Unit, max: u64) -> Option<Histogram> {
        let (mut values, mut sum) = (Vec::new(), 0_u64);
        for word in text.split_whitespace() {
            let (value, count) = word.rsplit_once(':')?;
            let value = match unit {
                Unit::Count => value.parse().ok()?,
                Unit::Bytes => value.parse::<Bytes>().ok()?.0,
                Unit::Time => value.parse::<Nanos>().ok()?.0,
            };
            let count: u64 = count.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count))?;
            if value > max || values.len() >= WORDS_MAX {
                return None;
            }
            sum += count;
            values.push((value, sum));
        }
        Some(Histogram { values })
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    #[must_use]
    pub fn has(&self, value: u64) -> bool {
        self.values.iter().any(|(known, _)| *known == value)
    }

    #[must_use]
    pub fn max(&self) -> u64 {
        self.values.iter().map(|(value, _)| *value).max().unwrap_or(0)
    }

    /// A value in proportion to its count; 0 if the histogram is empty.
    pub fn draw(&self, dice: &mut Dice) -> u64 {
        let Some((_, sum)) = self.values.last() else { return 0 };
        let at = dice.below(*sum);
        let place = self.values.partition_point(|(_, up_to)| *up_to <= at);
        self.values.get(place).map_or(0, |(value, _)| *value)
    }

    /// A value between the drawn one and twice that: for classes that are a power of two wide.
    pub fn draw_spread(&self, dice: &mut Dice) -> u64 {
        let value = self.draw(dice);
        value.saturating_add(dice.below(value))
    }
}

#[cfg(test)]
mod tests {
    use super::{Dice, Histogram, Unit};

    #[test]
    fn values_are_drawn_in_proportion_and_bad_words_are_refused() {
        let sizes = Histogram::parse("4KiB:3 1MiB:1", Unit::Bytes, 1 << 20).expect("valid");
        let mut dice = Dice::new(1, 0, "sizes");
        let drawn: Vec<u64> = (0..4_000).map(|_| sizes.draw(&mut dice)).collect();
        let small = drawn.iter().filter(|size| **size == 4_096).count();
        assert!((2_800..3_200).contains(&small), "{small}");
        assert!(drawn.iter().all(|size| [4_096, 1 << 20].contains(size)));
        for bad in ["4KiB", "4KiB:0", ":1", "2MiB:1", "4KiB:99999999999999999999", "-1:1"] {
            assert_eq!(Histogram::parse(bad, Unit::Bytes, 1 << 20), None, "{bad}");
        }
        assert_eq!(Histogram::parse(&"1:1 ".repeat(65), Unit::Count, 9), None, "too many words");
        let spread = Histogram::parse("1us:1", Unit::Time, u64::MAX).expect("valid");
        assert!((0..100).map(|_| spread.draw_spread(&mut dice)).all(|ns| (1_000..2_000).contains(&ns)));
        assert_eq!(Histogram::default().draw(&mut dice), 0);
    }
}

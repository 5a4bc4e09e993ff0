//! The ratio of a latency beside a neighbour to the same latency alone, with its interval.
//!
//! The figure is the 95th percentile of the pooled calls. In a minute each side has some 500 calls: the 99th rests on
//! five of them and varies by a factor of ten between runs, a mean depends on one, and a median misses what stops one
//! call in ten. With fewer calls it is a lower quantile. The 99th and the longest call are kept as well: where they
//! grew, isolation is not proven.
//!
//! A round is one phase beside the neighbour with the pauses before and after it. Calls within a round resemble each
//! other, so the bootstrap resamples rounds, each with its own pauses: what changes slowly is in both and cancels. The
//! bootstrap gives a standard error of the logarithm; a handful of rounds estimates its own spread badly, so the
//! interval uses Student's t with one degree of freedom less than there are rounds.

use rand_core::Rng;
use rand_pcg::Pcg64;
use serde::Serialize;

use flatwater_experiment::bootstrap::quantile_t;
use flatwater_experiment::verdict::Ratio;

/// Resamples for one standard error.
const RESAMPLES: usize = 300;
/// Level of the interval.
const LEVEL: f64 = 0.95;
/// Fewer rounds give no interval.
const ROUNDS_MIN: usize = 3;
/// The quantile from this many calls on each side: above it lie at least three calls.
const QUANTILES: [(usize, f64); 3] = [(60, UPPER), (30, 0.9), (8, 0.5)];
/// The quantile that is compared if there are enough calls.
pub const UPPER: f64 = 0.95;
const TAIL: f64 = 0.99;

/// The latencies of one kind of call in one round, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub alone: Vec<u64>,
    pub beside: Vec<u64>,
}

/// A latency alone and beside a neighbour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The quantile that is compared: 0.95, 0.9 or 0.5.
    pub quantile: f64,
    pub alone_ns: u64,
    pub beside_ns: u64,
    /// The 99th percentiles alone and beside it.
    pub tail_ns: [u64; 2],
    /// The longest calls alone and beside it.
    pub longest_ns: [u64; 2],
    /// `beside_ns / alone_ns`, with its 95 % interval; absent below three rounds.
    pub ratio: Option<Ratio>,
    pub rounds: usize,
    pub alone_calls: usize,
    pub beside_calls: usize,
}

impl Comparison {
    /// The longest time that the calls can have become slower, within the interval.
    #[must_use]
    pub fn growth_max_ns(&self) -> f64 {
        let high = self.ratio.map_or(f64::INFINITY, |ratio| ratio.high);
        (high - 1.0) * self.alone_ns as f64
    }

    #[must_use]
    pub fn growth_ns(&self) -> u64 {
        self.beside_ns.saturating_sub(self.alone_ns)
    }

    /// Whether the calls became slower at all: the interval excludes 1.
    #[must_use]
    pub fn is_slower(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio.low > 1.0)
    }
}

/// Compares the rounds; `None` if there are too few calls on one side. The same seed gives the same interval.
#[must_use]
pub fn compare(rounds: &[Round], seed: u64) -> Option<Comparison> {
    let rounds: Vec<&Round> =
        rounds.iter().filter(|round| !round.alone.is_empty() && !round.beside.is_empty()).collect();
    let alone_calls = rounds.iter().map(|round| round.alone.len()).sum::<usize>();
    let beside_calls = rounds.iter().map(|round| round.beside.len()).sum::<usize>();
    let fewest = alone_calls.min(beside_calls);
    let quantile = QUANTILES.iter().find(|(calls, _)| fewest >= *calls)?.1;
    let every: Vec<usize> = (0..rounds.len()).collect();
    let (alone_ns, beside_ns) = pooled(&rounds, &every, quantile);
    let tail = pooled(&rounds, &every, TAIL);
    let longest = pooled(&rounds, &every, 1.0);
    let value = (beside_ns as f64 / alone_ns as f64).ln();
    let ratio = (rounds.len() >= ROUNDS_MIN).then(|| {
        let reach = reach(&rounds, quantile, seed);
        Ratio { value: value.exp(), low: (value - reach).exp(), high: (value + reach).exp() }
    });
    Some(Comparison {
        quantile,
        alone_ns,
        beside_ns,
        tail_ns: [tail.0, tail.1],
        longest_ns: [longest.0, longest.1],
        ratio,
        rounds: rounds.len(),
        alone_calls,
        beside_calls,
    })
}

/// Half the width of the interval of the logarithm of the ratio.
fn reach(rounds: &[&Round], quantile: f64, seed: u64) -> f64 {
    let count = rounds.len();
    let mut generator = Pcg64::new(u128::from(seed), 0x7072_6f62);
    let drawn: Vec<f64> = std::iter::repeat_with(|| {
        let picked: Vec<usize> =
            (0..count).map(|_| ((u128::from(generator.next_u64()) * count as u128) >> 64) as usize).collect();
        let (alone, beside) = pooled(rounds, &picked, quantile);
        (beside as f64 / alone as f64).ln()
    })
    .take(RESAMPLES)
    .collect();
    let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
    let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (drawn.len() - 1) as f64;
    // Resampled rounds spread less than new ones would, by (n - 1)/n.
    let freedom = (count - 1) as f64;
    quantile_t(freedom, 0.5 + LEVEL / 2.0) * (variance * count as f64 / freedom).sqrt()
}

/// The quantile of both sides over these rounds; at least 1 ns.
fn pooled(rounds: &[&Round], picked: &[usize], quantile: f64) -> (u64, u64) {
    let side = |of: fn(&Round) -> &Vec<u64>| {
        let mut calls: Vec<u64> =
            picked.iter().filter_map(|index| rounds.get(*index)).flat_map(|round| of(round)).copied().collect();
        quantile_of(&mut calls, quantile).unwrap_or(0).max(1)
    };
    (side(|round| &round.alone), side(|round| &round.beside))
}

/// The smallest value that at least this share of the values does not exceed. Reorders the values.
#[must_use]
pub fn quantile_of(values: &mut [u64], share: f64) -> Option<u64> {
    let rank = ((values.len() as f64 * share).ceil() as usize).max(1) - 1;
    (rank < values.len()).then(|| *values.select_nth_unstable(rank).1)
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64;

    use super::{Round, compare, quantile_of};

    /// A number from the normal distribution, approximately.
    fn normal(random: &mut Pcg64) -> f64 {
        (0..12).map(|_| (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64).sum::<f64>() - 6.0
    }

    /// Rounds of log-normal latencies whose level drifts by `drift` over all rounds and differs by round.
    fn rounds(random: &mut Pcg64, count: usize, ratio: f64, drift: f64) -> Vec<Round> {
        let calls = |random: &mut Pcg64, median_ns: f64| {
            (0..120).map(|_| (median_ns * (0.6 * normal(random)).exp()) as u64).collect()
        };
        (0..count)
            .map(|round| {
                let level = 1e6 * drift.powf(round as f64 / count as f64);
                let both = (0.3 * normal(random)).exp();
                let own = (0.15 * normal(random)).exp();
                Round { alone: calls(random, level * both), beside: calls(random, level * both * own * ratio) }
            })
            .collect()
    }

    #[test]
    fn nineteen_of_twenty_intervals_contain_the_true_ratio() {
        let mut random = Pcg64::seed_from_u64(7);
        for (count, ratio, drift) in [(4, 1.0, 1.0), (6, 3.0, 4.0), (8, 20.0, 0.5)] {
            let inside = (0..60).filter(|seed| {
                let found = compare(&rounds(&mut random, count, ratio, drift), *seed).expect("enough calls");
                let interval = found.ratio.expect("enough rounds");
                interval.low <= ratio && ratio <= interval.high
            });
            let inside = inside.count();
            assert!(inside >= 54, "{count} rounds, ratio {ratio}: {inside} of 60");
        }
    }

    #[test]
    fn a_machine_that_becomes_four_times_slower_gives_no_ratio() {
        let mut random = Pcg64::seed_from_u64(3);
        let found = compare(&rounds(&mut random, 8, 1.0, 4.0), 1).expect("enough calls");
        let ratio = found.ratio.expect("enough rounds");
        assert!(ratio.high < 2.0 && ratio.low > 0.5, "{ratio:?}");
    }

    #[test]
    fn the_quantile_follows_the_number_of_calls() {
        let rounds = |calls: usize| vec![Round { alone: vec![10; calls], beside: vec![30; calls] }; 4];
        let quantile = |calls| compare(&rounds(calls), 1).map(|found| found.quantile);
        assert_eq!([quantile(100), quantile(10), quantile(2), quantile(1)], [Some(0.95), Some(0.9), Some(0.5), None]);
        let one = compare(&rounds(200)[..1], 1).expect("enough calls");
        assert!(one.ratio.is_none() && one.growth_max_ns().is_infinite(), "one round has no interval");
        assert_eq!(compare(&[], 1), None);
        assert_eq!(compare(&[Round { alone: vec![1; 900], beside: vec![] }], 1), None);
    }

    #[test]
    fn calls_are_slower_if_the_interval_excludes_one() {
        let slower = |beside| {
            let rounds = vec![Round { alone: vec![10; 100], beside: vec![beside; 100] }; 4];
            compare(&rounds, 1).map(|found| found.is_slower())
        };
        assert_eq!([slower(30), slower(10), slower(5)], [Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let made = rounds(&mut Pcg64::seed_from_u64(9), 5, 2.0, 1.0);
        assert_eq!(compare(&made, 4), compare(&made, 4));
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(quantile_of(&mut [], 0.5), None);
        assert_eq!(quantile_of(&mut [7], 0.99), Some(7));
        let mut values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(quantile_of(&mut values, 0.99), Some(99));
        assert_eq!(quantile_of(&mut values, 0.5), Some(50));
    }
}

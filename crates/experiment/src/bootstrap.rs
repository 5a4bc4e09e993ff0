//! Intervals for what was measured in time: latencies of neighbouring moments resemble each other, so the unit
//! that is resampled is a block of consecutive windows, long enough that blocks do not (circular block bootstrap,
//! Politis and Romano).
//!
//! The bootstrap gives a standard error; the interval uses Student's t with as many degrees of freedom as there
//! are blocks, since a handful of blocks knows its own spread badly. `tests/bootstrap_false_alarms.rs` measures
//! how often two halves of the same thing are told apart.

use rand_core::Rng;
use rand_pcg::Pcg64;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Resamples drawn for one standard error: their own noise is 1/sqrt(2 * 400), 3.5 %.
const RESAMPLES: usize = 400;

/// Fewer windows than this tell nothing about their spread.
const WINDOWS_MIN: usize = 6;

/// Blocks are never so long that fewer than this fit.
const BLOCKS_MIN: f64 = 3.0;

/// More blocks than this only seem independent.
const BLOCKS_MAX: f64 = 4.0;

/// Length of a block, in correlation lengths.
const REACH: f64 = 3.0;

/// Something computed from windows in the order of time.
pub trait Windowed {
    fn windows(&self) -> usize;

    /// The figure if window i counted `weights[i]` times; `None` if those windows hold nothing to compute it from.
    fn value(&self, weights: &[u32]) -> Option<f64>;

    /// One figure per window: its autocorrelation decides how long blocks are.
    fn trace(&self) -> Vec<f64>;
}

/// A figure and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub standard_error: f64,
    /// Degrees of freedom behind the standard error.
    pub freedom: f64,
}

/// B - A with its interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Difference {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Difference {
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Sum of the autocorrelations of a stationary series around 0, at least 1: how many windows say as much as one
/// independent one. Cut where a pair of neighbouring lags stops being positive (Geyer's initial sequence).
#[must_use]
pub fn correlation_windows(trace: &[f64]) -> f64 {
    let n = trace.len();
    let mean = trace.iter().sum::<f64>() / n.max(1) as f64;
    let variance: f64 = trace.iter().map(|x| (x - mean).powi(2)).sum();
    if n < 4 || variance <= 0.0 {
        return 1.0;
    }
    let at = |lag: usize| {
        let products = trace.iter().zip(trace.iter().skip(lag)).map(|(a, b)| (a - mean) * (b - mean));
        // A short series underestimates every lag by about 1/n, because it is measured from its own mean.
        products.sum::<f64>() / variance + 1.0 / n as f64
    };
    let mut sum = -1.0;
    for pair in 0..n / 4 {
        let both = at(2 * pair) + at(2 * pair + 1);
        if both <= 0.0 {
            break;
        }
        sum += 2.0 * both;
    }
    sum.max(1.0)
}

/// The figure over all windows and its standard error; `None` if there are too few independent ones, or if the
/// figure cannot be computed at all.
#[must_use]
pub fn estimate(windowed: &dyn Windowed, seed: u64) -> Option<Estimate> {
    let n = windowed.windows();
    let value = windowed.value(&vec![1; n])?;
    let correlated = correlation_windows(&windowed.trace());
    // Thrice the correlation's reach, so that what is lost at a block's ends is the smaller part; and never more
    // than four blocks, since a short series hides its own correlation (calibrated by the test named above).
    let reach = REACH * correlated;
    let length = reach.max(n as f64 / BLOCKS_MAX).min(n as f64 / BLOCKS_MIN).max(1.0);
    let blocks = n as f64 / length;
    if n < WINDOWS_MIN {
        return None;
    }
    let mut drawn = Vec::with_capacity(RESAMPLES);
    let mut generator = Pcg64::new(u128::from(seed), 0x626f_6f74);
    for _ in 0..RESAMPLES {
        drawn.extend(windowed.value(&resample(&mut generator, n, length.round() as usize)));
    }
    // A figure that half the resamples cannot even compute rests on a few windows.
    if drawn.len() * 2 < RESAMPLES {
        return None;
    }
    let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
    let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (drawn.len() - 1) as f64;
    // Blocks resampled from themselves spread less than new ones would, by the usual (k - 1)/k, and miss what
    // correlates across their ends; the more so where they had to be shorter than that reach.
    let missed = (reach / length).max(1.0);
    let ends = 1.0 + correlated / length;
    let freedom = (blocks - 1.0).max(1.0) / missed;
    let standard_error = (variance * blocks / (blocks - 1.0) * missed * ends).sqrt();
    Some(Estimate { value, standard_error, freedom: freedom.max(1.0) })
}

/// How often each window stands in one resample of whole blocks, wrapped around the end.
fn resample(generator: &mut Pcg64, n: usize, length: usize) -> Vec<u32> {
    let mut weights = vec![0; n];
    let mut left = n;
    while left > 0 {
        let start = ((u128::from(generator.next_u64()) * n as u128) >> 64) as usize;
        for step in 0..length.min(left) {
            weights[(start + step) % n] += 1;
        }
        left = left.saturating_sub(length);
    }
    weights
}

/// The two-sided interval of B - A at this level (0.95), Welch's degrees of freedom.
#[must_use]
pub fn difference(a: &Estimate, b: &Estimate, level: f64) -> Difference {
    let (va, vb) = (a.standard_error.powi(2), b.standard_error.powi(2));
    let value = b.value - a.value;
    let spread = va + vb;
    if spread <= 0.0 {
        return Difference { value, low: value, high: value };
    }
    let freedom = spread.powi(2) / (va.powi(2) / a.freedom + vb.powi(2) / b.freedom);
    let reach = quantile_t(freedom, 0.5 + level / 2.0) * spread.sqrt();
    Difference { value, low: value - reach, high: value + reach }
}

/// Student's t: the value below which this share lies.
#[must_use]
pub fn quantile_t(freedom: f64, share: f64) -> f64 {
    // Between 0 and 1 degree the distribution is wilder than Cauchy's, and statrs refuses 0.
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(f64::INFINITY, |t| t.inverse_cdf(share))
}

/// The mean of a figure per window: rates, shares, time lost.
#[derive(Clone, Debug)]
pub struct Mean {
    pub values: Vec<f64>,
    /// Applied to the mean: what is compared is a ratio where this is a logarithm.
    pub shown_as: fn(f64) -> f64,
}

impl Windowed for Mean {
    fn windows(&self) -> usize {
        self.values.len()
    }

    fn value(&self, weights: &[u32]) -> Option<f64> {
        let count: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let sum: f64 = self.values.iter().zip(weights).map(|(value, &weight)| value * f64::from(weight)).sum();
        (count > 0).then(|| (self.shown_as)(sum / count as f64))
    }

    fn trace(&self) -> Vec<f64> {
        self.values.clone()
    }
}

/// A quantile of all operations, from each window's histogram, on a logarithmic scale.
#[derive(Clone, Debug)]
pub struct Quantile {
    quantile: f64,
    /// (value, window, count), highest value first: a high quantile is found after few steps.
    falling: Vec<(u64, u32, u64)>,
    totals: Vec<u64>,
    traces: Vec<f64>,
}

impl Quantile {
    /// `windows`: for each, (value, count) of its operations in any order.
    #[must_use]
    pub fn new(quantile: f64, windows: &[Vec<(u64, u64)>]) -> Quantile {
        let mut falling = Vec::new();
        for (number, window) in windows.iter().enumerate() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            falling.extend(window.iter().map(|&(value, count)| (value, number, count)));
        }
        falling.sort_unstable_by_key(|&(value, ..)| std::cmp::Reverse(value));
        let totals = windows.iter().map(|window| window.iter().map(|(_, count)| count).sum()).collect();
        let mut quantile = Quantile { quantile, falling, totals, traces: Vec::new() };
        // The share of a window's operations beyond the quantile of all: what the quantile's noise is made of.
        let all = vec![1; windows.len()];
        let at = quantile.value_ns(&all).unwrap_or_default();
        quantile.traces = windows
            .iter()
            .zip(&quantile.totals)
            .map(|(window, &total)| {
                let beyond: u64 = window.iter().filter(|(value, _)| *value >= at).map(|(_, count)| count).sum();
                if total == 0 { 0.0 } else { beyond as f64 / total as f64 }
            })
            .collect();
        quantile
    }

    fn value_ns(&self, weights: &[u32]) -> Option<u64> {
        let weight = |window: u32| weights.get(window as usize).copied().map_or(0, u64::from);
        let total: u64 = self.totals.iter().zip(weights).map(|(total, &weight)| total * u64::from(weight)).sum();
        if total == 0 {
            return None;
        }
        let beyond = ((1.0 - self.quantile) * total as f64).floor() as u64;
        let mut passed = 0;
        for &(value, window, count) in &self.falling {
            passed += count * weight(window);
            if passed > beyond {
                return Some(value);
            }
        }
        None
    }
}

impl Windowed for Quantile {
    fn windows(&self) -> usize {
        self.totals.len()
    }

    fn value(&self, weights: &[u32]) -> Option<f64> {
        self.value_ns(weights).map(|ns| (ns.max(1) as f64).ln())
    }

    fn trace(&self) -> Vec<f64> {
        self.traces.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{Mean, Quantile, Windowed, correlation_windows, difference, estimate, quantile_t};

    fn mean(values: Vec<f64>) -> Mean {
        Mean { values, shown_as: |x| x }
    }

    #[test]
    fn a_repeating_series_counts_for_fewer_windows_than_it_has() {
        let noise: Vec<f64> = (0..400_u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64).collect();
        let sticky: Vec<f64> = (0..400).map(|i| noise[i / 10]).collect();
        assert!(correlation_windows(&noise) < 2.5, "{}", correlation_windows(&noise));
        assert!(correlation_windows(&sticky) > 5.0, "{}", correlation_windows(&sticky));
        let (a, b) = (estimate(&mean(noise), 1).expect("known"), estimate(&mean(sticky), 1).expect("known"));
        assert!(b.standard_error > 1.5 * a.standard_error && b.freedom <= a.freedom, "{a:?} {b:?}");
    }

    #[test]
    fn a_shift_larger_than_the_noise_is_seen_and_a_smaller_one_is_not() {
        let series = |shift: f64| {
            let noise = (0..120_u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as f64 / f64::from(1 << 20));
            mean(noise.map(|x| x + shift).collect())
        };
        let known = |shift| estimate(&series(shift), 1).expect("known");
        assert!(difference(&known(0.0), &known(0.4), 0.95).excludes_zero());
        assert!(!difference(&known(0.0), &known(0.01), 0.95).excludes_zero());
    }

    #[test]
    fn a_quantile_of_weighted_windows_is_that_of_their_operations() {
        let windows = vec![vec![(10, 990), (1_000, 10)], vec![(10, 1_000)], vec![]];
        let quantile = Quantile::new(0.995, &windows);
        assert_eq!(quantile.value_ns(&[1, 1, 1]), Some(10));
        assert_eq!(quantile.value_ns(&[1, 0, 5]), Some(1_000));
        assert_eq!(quantile.value(&[0, 0, 3]), None, "nothing happened: no latency, not 0");
    }

    #[test]
    fn too_few_windows_prove_nothing() {
        assert!(estimate(&mean(vec![1.0, 2.0]), 1).is_none());
        assert!(quantile_t(1.0, 0.975) > 12.0 && quantile_t(1000.0, 0.975) < 1.97);
    }
}

//! Intervals for what was measured in time: latencies of neighbouring moments resemble each other, so the unit
//! that is resampled is a block of consecutive windows, as long as the autocorrelation asks for (`block`; circular block
//! bootstrap, Politis and Romano 1992).
//!
//! The bootstrap gives a standard error; the interval uses Student's t with as many degrees of freedom as there
//! are blocks less one, since a handful of blocks knows its own spread badly. `tests/bootstrap_coverage.rs` measures
//! how often the intervals hold the truth, `tests/bootstrap_false_alarms.rs` how often two halves of the same thing are
//! told apart.

use rand_core::Rng;
use rand_pcg::Pcg64;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::block;
use crate::windowed::{Resample, Windowed};

/// Resamples drawn for one standard error: their own noise is 1/sqrt(2 * 400), 3.5 %.
const RESAMPLES: usize = 400;

/// Fewer windows than this tell nothing about their spread.
const WINDOWS_MIN: usize = 6;

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

/// The figure over all windows and its standard error; `None` if there are too few windows, or if the figure cannot be
/// computed at all.
#[must_use]
pub fn estimate(windowed: &dyn Windowed, seed: u64) -> Option<Estimate> {
    let n = windowed.windows();
    let value = windowed.value(&vec![1; n])?;
    if n < WINDOWS_MIN {
        return None;
    }
    let block = block::choose(&windowed.trace());
    let blocks = n as f64 / block.length;
    let mut drawn = Vec::with_capacity(RESAMPLES);
    let mut generator = Pcg64::new(u128::from(seed), 0x626f_6f74);
    for _ in 0..RESAMPLES {
        drawn.extend(windowed.value_of(&resample(&mut generator, n, block.length.round() as usize)));
    }
    // A figure that half the resamples cannot even compute rests on a few windows.
    if drawn.len() * 2 < RESAMPLES {
        return None;
    }
    let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
    let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (drawn.len() - 1) as f64;
    // Blocks resampled from themselves spread less than new ones would, by the usual (k - 1)/k, and miss what
    // correlates across their ends; the more so where they had to be shorter than the correlation asks for.
    let missed = block.wanted / block.length;
    let ends = 1.0 + block.correlated / block.length;
    let standard_error = (variance * blocks / (blocks - 1.0) * missed * ends).sqrt();
    // What is concluded about the ends is not known from blocks.
    let freedom = ((blocks - 1.0) / (missed * ends)).max(1.0);
    Some(Estimate { value, standard_error, freedom })
}

fn resample(generator: &mut Pcg64, n: usize, length: usize) -> Resample {
    let starts = std::iter::repeat_with(|| ((u128::from(generator.next_u64()) * n as u128) >> 64) as usize);
    Resample::new(n, length, starts)
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

#[cfg(test)]
mod tests {
    use super::{difference, estimate, quantile_t};
    use crate::windowed::Mean;

    fn mean(values: Vec<f64>) -> Mean {
        Mean::new(&values, |x| x)
    }

    #[test]
    fn a_repeating_series_counts_for_fewer_windows_than_it_has() {
        let noise: Vec<f64> = (0..400_u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64).collect();
        let sticky: Vec<f64> = (0..400).map(|i| noise[i / 10]).collect();
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
    fn too_few_windows_prove_nothing() {
        assert!(estimate(&mean(vec![1.0, 2.0]), 1).is_none());
        assert!(quantile_t(1.0, 0.975) > 12.0 && quantile_t(1000.0, 0.975) < 1.97);
    }
}

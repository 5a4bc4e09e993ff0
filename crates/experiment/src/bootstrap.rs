//! Confidence intervals for figures measured over time.
//!
//! Latencies at neighbouring moments resemble each other, so the bootstrap resamples blocks of consecutive windows
//! (circular block bootstrap, Politis and Romano 1992), as long as the autocorrelation calls for (`block`).
//!
//! The bootstrap gives a standard error. The interval uses Student's t with one degree of freedom less than there are
//! blocks, since a handful of blocks estimates its own spread badly. `tests/bootstrap/coverage.rs` measures how often
//! the intervals contain the truth, `tests/bootstrap/false_alarms.rs` how often two halves of the same series are found
//! to differ.

use rand_core::Rng;
use rand_pcg::Pcg64;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::block;
use crate::windowed::{Resample, Windowed};

/// Resamples drawn for one standard error, which leave it a relative error of 1/sqrt(2 * 400), 3.5 %.
const RESAMPLES: usize = 400;

/// Fewer windows than this do not give a spread.
const WINDOWS_MIN: usize = 6;

/// A figure with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub standard_error: f64,
    /// Degrees of freedom of the standard error.
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

/// The figure over all windows and its standard error; `None` if there are too few windows or the figure cannot be
/// computed.
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
    // If half of the resamples have no value, the figure depends on a few windows.
    if drawn.len() * 2 < RESAMPLES {
        return None;
    }
    let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
    let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (drawn.len() - 1) as f64;
    // Resampled blocks spread less than new ones would, by (k - 1)/k for k blocks. They also lose the correlation
    // across their ends, the more so if they had to be shorter than the autocorrelation calls for.
    let missed = block.wanted / block.length;
    let ends = 1.0 + block.correlated / block.length;
    let standard_error = (variance * blocks / (blocks - 1.0) * missed * ends).sqrt();
    // The two corrections for the ends do not come from the blocks, so they cost degrees of freedom.
    let freedom = ((blocks - 1.0) / (missed * ends)).max(1.0);
    Some(Estimate { value, standard_error, freedom })
}

fn resample(generator: &mut Pcg64, n: usize, length: usize) -> Resample {
    let starts = std::iter::repeat_with(|| ((u128::from(generator.next_u64()) * n as u128) >> 64) as usize);
    Resample::new(n, length, starts)
}

/// The two-sided interval of B - A at this level (such as 0.95), with Welch's degrees of freedom.
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

/// The quantile of Student's t at this share (0 to 1).
#[must_use]
pub fn quantile_t(freedom: f64, share: f64) -> f64 {
    // statrs refuses 0 degrees of freedom, and below 1 the tails are heavier than Cauchy's.
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
    fn a_correlated_series_has_a_larger_standard_error() {
        let noise: Vec<f64> = (0..400_u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64).collect();
        let sticky: Vec<f64> = (0..400).map(|i| noise[i / 10]).collect();
        let (a, b) = (estimate(&mean(noise), 1).expect("known"), estimate(&mean(sticky), 1).expect("known"));
        assert!(b.standard_error > 1.5 * a.standard_error && b.freedom <= a.freedom, "{a:?} {b:?}");
    }

    #[test]
    fn only_a_shift_larger_than_the_noise_is_found() {
        let series = |shift: f64| {
            let noise = (0..120_u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as f64 / f64::from(1 << 20));
            mean(noise.map(|x| x + shift).collect())
        };
        let known = |shift| estimate(&series(shift), 1).expect("known");
        assert!(difference(&known(0.0), &known(0.4), 0.95).excludes_zero());
        assert!(!difference(&known(0.0), &known(0.01), 0.95).excludes_zero());
    }

    #[test]
    fn too_few_windows_give_no_estimate() {
        assert!(estimate(&mean(vec![1.0, 2.0]), 1).is_none());
        assert!(quantile_t(1.0, 0.975) > 12.0 && quantile_t(1000.0, 0.975) < 1.97);
    }
}

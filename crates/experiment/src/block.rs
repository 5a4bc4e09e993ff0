//! Chooses the block length of the bootstrap from the autocorrelation of a series.
//!
//! Politis and White (Econometric Reviews 23, 2004), as corrected by Patton, Politis and White (28, 2009), give the
//! length that estimates a variance best: (3/2 (G/g)^2 n)^(1/3) for circular blocks, where g is the sum of the
//! autocorrelations and G the sum weighted by distance, both through a flat-top window. An interval needs longer blocks
//! than a variance, of the order n^(1/2) instead of n^(1/3) (Sun, Phillips and Jin, Econometrica 76, 2008), hence the
//! factor n^(1/6). `tests/bootstrap/coverage.rs` measures the coverage of the intervals.

use crate::work;

/// Least length of a block, in windows, if four such blocks fit. A short series cannot show an autocorrelation that is
/// weak at each lag but lasts for many lags, and the period of dirty_expire_centisecs (30 s) is this many windows of a
/// second.
const LENGTH_FLOOR: f64 = 30.0;

/// At least this many blocks fit into a series.
pub(crate) const BLOCKS_MIN: f64 = 4.0;

/// The autocorrelation ends before this many lags in a row that cannot be distinguished from 0 (K_n in Politis and
/// White).
const QUIET_LAGS: usize = 5;

/// A block length and the autocorrelation that it follows from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    /// Windows in a block.
    pub length: f64,
    /// The length that the autocorrelation calls for; more than `length` if fewer than four such blocks fit.
    pub wanted: f64,
    /// Sum of the autocorrelations over all lags, at least 1: this many windows carry the information of one
    /// independent window.
    pub correlated: f64,
}

/// The block for a series in the order of time. It touches n values for each of at most sqrt(n) + 10 lags.
#[must_use]
pub(crate) fn choose(series: &[f64]) -> Block {
    let n = series.len() as f64;
    let longest = (n / BLOCKS_MIN).max(1.0);
    let floor = longest.min(LENGTH_FLOOR);
    let Some(rho) = autocorrelations(series) else {
        return Block { length: floor, wanted: floor, correlated: 1.0 };
    };
    let (sum, weighted) = flat_top_sums(&rho);
    let sum = sum.max(0.05);
    let of_variance = (1.5 * (weighted / sum).powi(2) * n).cbrt();
    let wanted = (of_variance * n.powf(1.0 / 6.0)).max(1.0);
    let length = wanted.clamp(floor, longest).round().max(1.0);
    Block { length, wanted: wanted.max(length), correlated: sum.max(1.0) }
}

/// Autocorrelations from lag 0 to twice the last lag that counts; `None` if the series does not vary.
fn autocorrelations(series: &[f64]) -> Option<Vec<f64>> {
    let n = series.len();
    let mean = series.iter().sum::<f64>() / n.max(1) as f64;
    let deviations: Vec<f64> = series.iter().map(|value| value - mean).collect();
    let variance: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
    // The series is constant, apart from the rounding of the mean.
    if n < 4 || variance <= 1e-18 * n as f64 * mean * mean {
        return None;
    }
    let at = |lag: usize| {
        work::add(n - lag);
        let products = deviations.iter().zip(deviations.iter().skip(lag)).map(|(a, b)| a * b);
        // A short series underestimates every lag by about 1/n, because the deviations are from its own mean.
        products.sum::<f64>() / variance + 1.0 / n as f64
    };
    let indistinct = 2.0 * ((n as f64).log10() / n as f64).sqrt();
    let last = ((n as f64).sqrt().ceil() as usize + QUIET_LAGS).min(n / 2);
    let mut rho = Vec::with_capacity(last + 1);
    let mut quiet = 0;
    for lag in 0..=(last + QUIET_LAGS).min(n - 1) {
        rho.push(at(lag));
        quiet = if rho[lag].abs() < indistinct { quiet + 1 } else { 0 };
        if quiet == QUIET_LAGS {
            break;
        }
    }
    // Twice the last lag that counts.
    let reach = (2 * (rho.len() - 1).saturating_sub(quiet).max(1)).min(last.max(2));
    for lag in rho.len()..=reach.min(n - 1) {
        rho.push(at(lag));
    }
    rho.truncate(reach + 1);
    Some(rho)
}

/// Sum of the autocorrelations at all lags, positive and negative, and the same sum with each lag weighted by its
/// distance.
fn flat_top_sums(rho: &[f64]) -> (f64, f64) {
    let reach = rho.len().saturating_sub(1).max(1) as f64;
    let (mut sum, mut weighted) = (rho.first().copied().unwrap_or(1.0), 0.0);
    for (lag, value) in rho.iter().enumerate().skip(1) {
        let share = lag as f64 / reach;
        // 1 up to half of the reach, then falling to 0 (Politis and Romano's trapezoid).
        let window = (2.0 * (1.0 - share)).clamp(0.0, 1.0);
        sum += 2.0 * window * value;
        weighted += 2.0 * window * lag as f64 * value;
    }
    (sum, weighted)
}

#[cfg(test)]
mod tests {
    use super::choose;
    use rand_core::Rng;
    use rand_pcg::Pcg64;

    /// Independent random values, each repeated for `held` windows.
    fn steps(n: usize, held: usize) -> Vec<f64> {
        let mut dice = Pcg64::new(7, 7);
        let values: Vec<f64> = (0..n.div_ceil(held)).map(|_| (dice.next_u64() >> 40) as f64).collect();
        (0..n).map(|i| values[i / held]).collect()
    }

    #[test]
    fn longer_correlation_gives_longer_blocks() {
        let noise = choose(&steps(2000, 1));
        assert!(noise.length < 60.0 && noise.correlated < 1.5, "{noise:?}");
        let held = choose(&steps(2000, 20));
        assert!(held.length > 80.0 && (10.0..40.0).contains(&held.correlated), "{held:?}");
        assert!(2000.0 / noise.length > 30.0 && 2000.0 / held.length >= 4.0);
    }

    #[test]
    fn a_series_that_is_too_short_for_its_correlation_wants_longer_blocks() {
        let drift = choose(&(0..40).map(f64::from).collect::<Vec<f64>>());
        assert_eq!(drift.length, 10.0);
        assert!(drift.wanted > 15.0, "{drift:?}");
    }

    #[test]
    fn a_constant_series_has_no_correlation() {
        let same = choose(&[0.1; 30]);
        assert_eq!((same.length, same.wanted, same.correlated), (7.5, 7.5, 1.0));
        assert_eq!(choose(&[]).correlated, 1.0);
    }
}

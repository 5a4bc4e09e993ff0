//! How long a block of the bootstrap must be for the autocorrelation that a series shows.
//!
//! Politis and White (Econometric Reviews 23, 2004), as corrected by Patton, Politis and White (28, 2009), give the length
//! that estimates a variance best: (3/2 (G/g)^2 n)^(1/3) for circular blocks, where g is the sum of the autocorrelations and G
//! the sum weighted by distance, both through a flat-top window. An interval wants longer blocks than a variance, of
//! the order n^(1/2) where the variance wants n^(1/3) (Sun, Phillips and Jin, Econometrica 76, 2008), hence the factor
//! n^(1/6). `tests/bootstrap_coverage.rs` measures what comes of it.

use crate::work;

/// Blocks are at least this long where four such fit: an autocorrelation that is weak at each lag and holds for many of
/// them is below what a short series can show, and what the kernel does at the rhythm of dirty_expire_centisecs (30 s)
/// takes as many windows of a second.
const LENGTH_FLOOR: f64 = 30.0;

/// Blocks are never so long that fewer than this fit.
pub(crate) const BLOCKS_MIN: f64 = 4.0;

/// Lags in a row that must be indistinguishable from 0 before the autocorrelation counts as over (Politis and White: K_n).
const QUIET_LAGS: usize = 5;

/// What the autocorrelation of a series asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    /// Windows in a block.
    pub length: f64,
    /// The length that the autocorrelation asks for, where the series is too short to have four blocks of it; else `length`.
    pub wanted: f64,
    /// Sum of the autocorrelations over all lags, at least 1: how many windows tell as much as one independent one.
    pub correlated: f64,
}

/// The block for a series in the order of time. Work: n times at most sqrt(n) + 10 lags.
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

/// From lag 0 to twice the lag after which nothing is left of the correlation; `None` of a series that does not vary.
fn autocorrelations(series: &[f64]) -> Option<Vec<f64>> {
    let n = series.len();
    let mean = series.iter().sum::<f64>() / n.max(1) as f64;
    let deviations: Vec<f64> = series.iter().map(|value| value - mean).collect();
    let variance: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
    // Constant but for the rounding of its own mean.
    if n < 4 || variance <= 1e-18 * n as f64 * mean * mean {
        return None;
    }
    let at = |lag: usize| {
        work::add(n - lag);
        let products = deviations.iter().zip(deviations.iter().skip(lag)).map(|(a, b)| a * b);
        // A short series underestimates every lag by about 1/n, because it is measured from its own mean.
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
    // The last lag that counts, and as far again.
    let reach = (2 * (rho.len() - 1).saturating_sub(quiet).max(1)).min(last.max(2));
    for lag in rho.len()..=reach.min(n - 1) {
        rho.push(at(lag));
    }
    rho.truncate(reach + 1);
    Some(rho)
}

/// Sum of the correlations at all lags, positive and negative, and the same with each lag weighted by its distance.
fn flat_top_sums(rho: &[f64]) -> (f64, f64) {
    let reach = rho.len().saturating_sub(1).max(1) as f64;
    let (mut sum, mut weighted) = (rho.first().copied().unwrap_or(1.0), 0.0);
    for (lag, value) in rho.iter().enumerate().skip(1) {
        let share = lag as f64 / reach;
        // 1 up to half of the way, then down to 0 (Politis and Romano's trapezoid).
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

    /// Values that do not remember each other, each held for `held` windows.
    fn steps(n: usize, held: usize) -> Vec<f64> {
        let mut dice = Pcg64::new(7, 7);
        let values: Vec<f64> = (0..n.div_ceil(held)).map(|_| (dice.next_u64() >> 40) as f64).collect();
        (0..n).map(|i| values[i / held]).collect()
    }

    #[test]
    fn the_length_follows_the_correlation_and_the_number_of_blocks_the_length_of_the_series() {
        let noise = choose(&steps(2000, 1));
        assert!(noise.length < 60.0 && noise.correlated < 1.5, "{noise:?}");
        let held = choose(&steps(2000, 20));
        assert!(held.length > 80.0 && (10.0..40.0).contains(&held.correlated), "{held:?}");
        assert!(2000.0 / noise.length > 30.0 && 2000.0 / held.length >= 4.0);
    }

    #[test]
    fn a_series_shorter_than_its_memory_says_so() {
        let drift = choose(&(0..40).map(f64::from).collect::<Vec<f64>>());
        assert_eq!(drift.length, 10.0);
        assert!(drift.wanted > 15.0, "{drift:?}");
    }

    #[test]
    fn what_never_varies_has_no_correlation() {
        let same = choose(&[0.1; 30]);
        assert_eq!((same.length, same.wanted, same.correlated), (7.5, 7.5, 1.0));
        assert_eq!(choose(&[]).correlated, 1.0);
    }
}

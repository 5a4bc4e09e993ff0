//! How often the comparison finds a difference between two samples of the same distribution. The promise is at most 5 %
//! at the 95 % level, for independent and for strongly autocorrelated latencies.

use std::sync::Arc;

use flatwater_experiment::bootstrap::{difference, estimate};
use flatwater_experiment::windowed::{Durations, Mean, Quantile};
use rand_core::Rng;
use rand_pcg::Pcg64;

const LEVEL: f64 = 0.95;

/// Normal deviates (polar method).
struct Normal(Pcg64);

impl Normal {
    fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn draw(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.share() - 1.0, 2.0 * self.share() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }

    /// A series in which neighbouring windows have the correlation `memory`.
    fn remembering(&mut self, n: usize, memory: f64) -> Vec<f64> {
        let mut state = self.draw();
        let mut next = || {
            state = memory * state + (1.0 - memory * memory).sqrt() * self.draw();
            state
        };
        (0..n).map(|_| next()).collect()
    }
}

/// The share of `trials` in which A against A differs.
fn false_alarms(trials: u64, mut once: impl FnMut(&mut Normal) -> Option<bool>) -> f64 {
    let mut normal = Normal(Pcg64::new(20_261_121, 7));
    let alarms = (0..trials).filter(|_| once(&mut normal) == Some(true)).count();
    alarms as f64 / trials as f64
}

#[test]
fn means_of_autocorrelated_windows() {
    for (windows, memory) in [(30, 0.0), (30, 0.5), (60, 0.7), (120, 0.8), (300, 0.9)] {
        let rate = false_alarms(2000, |normal| {
            // Time lost per window is not negative and has a long tail.
            let mut sample = |seed| {
                let values: Vec<f64> = normal.remembering(windows, memory).into_iter().map(f64::exp).collect();
                estimate(&Mean::new(&values, |mean| mean.ln()), seed)
            };
            let (a, b) = (sample(1)?, sample(2)?);
            Some(difference(&a, &b, LEVEL).excludes_zero())
        });
        println!("mean of {windows} windows, memory {memory}: {:.2} % false alarms", 100.0 * rate);
        assert!(rate <= 0.05, "{windows} windows with memory {memory}: {rate}");
    }
}

#[test]
fn quantiles_of_operations_whose_tail_comes_in_spells() {
    for (windows, memory) in [(30, 0.0), (60, 0.6), (120, 0.8)] {
        let rate = false_alarms(600, |normal| {
            let mut sample = |seed| {
                // Each window has 500 operations; its number of slow ones depends on the correlated series.
                let spells = normal.remembering(windows, memory);
                let operations: Vec<Vec<(u64, u64)>> = spells
                    .into_iter()
                    .map(|spell| {
                        let slow = (3.0 * spell.exp()).round().clamp(0.0, 500.0) as u64;
                        let slow_ns = |normal: &mut Normal| (14.0 + normal.draw()).exp() as u64;
                        let mut window: Vec<(u64, u64)> = (0..slow).map(|_| (slow_ns(normal), 1)).collect();
                        window.push((2_000, 500 - slow));
                        window
                    })
                    .collect();
                estimate(&Quantile::new(0.999, Arc::new(Durations::of_windows(&operations))), seed)
            };
            let (a, b) = (sample(1)?, sample(2)?);
            Some(difference(&a, &b, LEVEL).excludes_zero())
        });
        println!("p99.9 of {windows} windows, memory {memory}: {:.2} % false alarms", 100.0 * rate);
        assert!(rate <= 0.05, "{windows} windows with memory {memory}: {rate}");
    }
}

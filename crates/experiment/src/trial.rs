//! An interleaved trial: runs with and without a fix, in the order A B B A, judged after each such four.
//!
//! A run is one observation. Within a run latencies resemble each other, and a run as a whole has its own luck
//! (where its files lie, what else the machine did), so runs are the blocks. A B B A makes a steady drift of the
//! machine fall on both sides alike. Looking several times gives several chances of a false alarm: each look uses
//! its share of the level (Bonferroni), fixed before the first run.

use serde::Serialize;

use super::bootstrap::{Difference, Estimate, difference};
use super::compare::SettingRow;
use super::judge::Judge;
use super::verdict::{Ratio, Verdict};

/// False alarms allowed for a whole trial.
pub const ALARMS: f64 = 0.05;

/// Which of the two a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Arm {
    A,
    B,
}

/// The order of the runs: A B B A, A B B A ...
#[must_use]
pub fn arm_of(run: usize) -> Arm {
    if matches!(run % 4, 0 | 3) { Arm::A } else { Arm::B }
}

#[derive(Clone, Debug)]
pub struct Trial {
    /// Looks planned; at least 1.
    looks: usize,
    lower_is_better: bool,
    a: Vec<f64>,
    b: Vec<f64>,
}

impl Trial {
    #[must_use]
    pub fn new(looks: usize, lower_is_better: bool) -> Trial {
        Trial { looks: looks.max(1), lower_is_better, a: Vec::new(), b: Vec::new() }
    }

    /// A run's figure, as a logarithm.
    pub fn add(&mut self, arm: Arm, logarithm: f64) {
        match arm {
            Arm::A => self.a.push(logarithm),
            Arm::B => self.b.push(logarithm),
        }
    }

    /// Level of the interval at each look.
    #[must_use]
    pub fn level(&self) -> f64 {
        1.0 - ALARMS / self.looks as f64
    }

    /// What can be said now; `None` before each side has two runs.
    #[must_use]
    pub fn look(&self) -> Option<(Difference, Verdict)> {
        let found = difference(&mean(&self.a)?, &mean(&self.b)?, self.level());
        Some((found, Verdict::of(&found, self.lower_is_better)))
    }
}

fn mean(runs: &[f64]) -> Option<Estimate> {
    let n = runs.len() as f64;
    if runs.len() < 2 {
        return None;
    }
    let value = runs.iter().sum::<f64>() / n;
    let variance = runs.iter().map(|run| (run - value).powi(2)).sum::<f64>() / (n - 1.0);
    // Two runs of a quiet machine may agree to the last digit of a histogram: they are not known better than that.
    let variance = variance.max(0.001_f64.powi(2));
    Some(Estimate { value, standard_error: (variance / n).sqrt(), freedom: n - 1.0 })
}

/// What `verify` found; `docs/json.md` publishes its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    pub flatwater: u32,
    pub kind: &'static str,
    pub scenario: String,
    /// Settings of B that differ from A's: key, A's value, B's value.
    pub fix: Vec<SettingRow>,
    pub judge: Judge,
    pub operation: Option<String>,
    pub verdict: Verdict,
    /// Of the interval, at this look.
    pub level: f64,
    /// B / A; absent before each side has two runs.
    pub ratio: Option<Ratio>,
    pub runs: Vec<Run>,
    pub causes: Vec<LostBoth>,
    /// Why it ended: `proven`, `runs` (all that were planned), `time`, `interrupted`.
    pub ended: &'static str,
    pub elapsed_ns: u64,
    pub notes: Vec<String>,
}

/// One run's figure, in the judge's unit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Run {
    pub arm: Arm,
    pub value: f64,
}

/// Time lost to a cause, ns per second, mean over each side's runs.
#[derive(Clone, Debug, Serialize)]
pub struct LostBoth {
    pub cause: &'static str,
    pub a_ns_per_s: f64,
    pub b_ns_per_s: f64,
}

#[cfg(test)]
mod tests {
    use super::{Arm, Trial, arm_of};
    use crate::verdict::Verdict;

    #[test]
    fn a_large_effect_is_proven_and_none_is_not() {
        let mut trial = Trial::new(4, true);
        assert!(trial.look().is_none());
        for (run, noise) in [0.0, 0.1, -0.1, 0.05, 0.02, -0.07, 0.03, 0.0].into_iter().enumerate() {
            trial.add(arm_of(run), if arm_of(run) == Arm::A { 4.0 + noise } else { noise });
        }
        assert_eq!(trial.look().expect("eight runs").1, Verdict::Better);
        let mut same = Trial::new(4, true);
        for (run, noise) in [0.0, 0.1, -0.1, 0.05, 0.02, -0.07, 0.03, 0.0].into_iter().enumerate() {
            same.add(arm_of(run), noise);
        }
        assert_eq!(same.look().expect("eight runs").1, Verdict::NotProven);
    }

    #[test]
    fn a_steady_drift_falls_on_both_sides() {
        let mut trial = Trial::new(1, true);
        (0..8).for_each(|run| trial.add(arm_of(run), run as f64));
        let (difference, _) = trial.look().expect("eight runs");
        assert!(difference.value.abs() < 1e-9);
    }
}

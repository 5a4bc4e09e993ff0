//! Statistics of an interleaved trial: runs without (A) and with (B) a fix in the order A B B A, judged after every
//! four runs.
//!
//! Each run is one observation: latencies within a run resemble each other, and a run as a whole has its own luck
//! (where its files lie, what else the machine does). With A B B A a steady drift of the machine affects both sides
//! alike. Every look is another chance of a false alarm, so each look uses an equal share of the level (Bonferroni),
//! fixed before the first run.

use serde::Serialize;

use super::bootstrap::{Difference, Estimate, difference};
use super::compare::SettingRow;
use super::figure::Figure;
use super::verdict::{Ratio, Verdict};

/// Probability of a false alarm that a whole trial allows.
pub const ALARMS: f64 = 0.05;

/// Side of a run: A is without the fix, B with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Arm {
    A,
    B,
}

/// The side of each run: A B B A, A B B A ...
#[must_use]
pub fn arm_of(run: usize) -> Arm {
    if matches!(run % 4, 0 | 3) { Arm::A } else { Arm::B }
}

#[derive(Clone, Debug)]
pub struct Trial {
    /// Planned looks, at least 1.
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

    /// Adds the figure of a run, as a logarithm.
    pub fn add(&mut self, arm: Arm, logarithm: f64) {
        match arm {
            Arm::A => self.a.push(logarithm),
            Arm::B => self.b.push(logarithm),
        }
    }

    /// Confidence level of the interval at each look.
    #[must_use]
    pub fn level(&self) -> f64 {
        1.0 - ALARMS / self.looks as f64
    }

    /// The difference B - A so far and its verdict; `None` before each side has two runs.
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
    // Two runs of a quiet machine may fall into the same class of a histogram, which does not make them more precise
    // than 0.1 %.
    let variance = variance.max(0.001_f64.powi(2));
    Some(Estimate { value, standard_error: (variance / n).sqrt(), freedom: n - 1.0 })
}

/// The result of `verify`. `docs/json.md` documents its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    pub flatwater: u32,
    pub kind: &'static str,
    pub scenario: String,
    /// Settings that differ: key, A's value, B's value.
    pub fix: Vec<SettingRow>,
    pub judge: Figure,
    pub operation: Option<String>,
    pub verdict: Verdict,
    /// Confidence level of the interval at this look.
    pub level: f64,
    /// B / A; absent before each side has two runs.
    pub ratio: Option<Ratio>,
    pub runs: Vec<Run>,
    pub causes: Vec<LostBoth>,
    /// Why the trial ended: `proven`, `runs` (all planned runs done), `time` or `interrupted`.
    pub ended: &'static str,
    pub elapsed_ns: u64,
    pub notes: Vec<String>,
}

/// The figure of one run, in the judge's unit.
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
    fn only_a_real_effect_is_proven() {
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
    fn a_steady_drift_cancels_out() {
        let mut trial = Trial::new(1, true);
        (0..8).for_each(|run| trial.add(arm_of(run), run as f64));
        let (difference, _) = trial.look().expect("eight runs");
        assert!(difference.value.abs() < 1e-9);
    }
}

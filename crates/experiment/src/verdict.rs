//! The verdict on a ratio and its interval: better, worse or not proven.

use serde::Serialize;

use super::bootstrap::Difference;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Better,
    Worse,
    NotProven,
}

/// A ratio closer to 1 than this does not matter, however certain it is. The histograms themselves are rounded to 0.1
/// %.
const RATIO_THAT_MATTERS: f64 = 1.02;

impl Verdict {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NotProven => "not-proven",
        }
    }

    /// The verdict on a difference of logarithms, B - A.
    #[must_use]
    pub fn of(difference: &Difference, lower_is_better: bool) -> Verdict {
        let matters = difference.value.abs() > RATIO_THAT_MATTERS.ln();
        if !difference.excludes_zero() || !matters {
            return Verdict::NotProven;
        }
        if (difference.value < 0.0) == lower_is_better { Verdict::Better } else { Verdict::Worse }
    }
}

/// B / A with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Ratio {
    /// Converts a difference of logarithms.
    #[must_use]
    pub fn of(difference: &Difference) -> Ratio {
        Ratio { value: difference.value.exp(), low: difference.low.exp(), high: difference.high.exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict;
    use crate::bootstrap::Difference;

    #[test]
    fn direction_certainty_and_size_decide_the_verdict() {
        let verdict = |value: f64, reach: f64, lower| {
            Verdict::of(&Difference { value, low: value - reach, high: value + reach }, lower)
        };
        assert_eq!(verdict(-1.0, 0.5, true), Verdict::Better);
        assert_eq!(verdict(-1.0, 0.5, false), Verdict::Worse);
        assert_eq!(verdict(-1.0, 1.5, true), Verdict::NotProven);
        assert_eq!(verdict(-0.01, 0.001, true), Verdict::NotProven, "certain but too small");
    }
}

//! Statistics that several tables use.

/// Jain's fairness index: (sum x)^2 / (n sum x^2). 1 if all shares are equal, 1/n if one takes all. `None` without
/// shares, or if all are 0.
#[must_use]
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// Slope of the least-squares line through values at 0, 1, 2 ..., in percent of the line's value at 0, per step.
/// `None` for fewer than three values, which do not show a trend.
#[must_use]
pub fn trend_percent(values: &[f64]) -> Option<f64> {
    if values.len() < 3 {
        return None;
    }
    let n = values.len() as f64;
    let mean_x = (n - 1.0) / 2.0;
    let mean_y = values.iter().sum::<f64>() / n;
    let spread: f64 = (0..values.len()).map(|x| (x as f64 - mean_x).powi(2)).sum();
    let slope = values.iter().enumerate().map(|(x, y)| (x as f64 - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    let at_0 = mean_y - slope * mean_x;
    (at_0 > 0.0).then(|| 100.0 * slope / at_0)
}

#[cfg(test)]
mod tests {
    use super::{jain, trend_percent};

    #[test]
    fn jain_is_one_for_equal_shares_and_one_nth_for_a_monopoly() {
        assert_eq!(jain(&[3.0; 8]), Some(1.0));
        assert_eq!(jain(&[0.0, 0.0, 0.0, 9.0]), Some(0.25));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }

    #[test]
    fn a_trend_is_relative_to_its_start() {
        let falling = trend_percent(&[100.0, 90.0, 80.0, 70.0]).expect("four values");
        assert!((falling + 10.0).abs() < 1e-9, "{falling}");
        assert_eq!(trend_percent(&[100.0, 50.0]), None);
    }
}

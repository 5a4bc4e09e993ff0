//! Reduces the points of lines without losing peaks: keeps the lowest and the highest value of each line in every
//! interval, in their order.

use super::payload::Figure;

/// Intervals: as many as a wide screen can show, zoomed in once or twice.
const STRETCHES: usize = 1_500;

/// Lines over one time axis, ns since the recording's start.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    pub t_ns: Vec<u64>,
    pub lines: Vec<Vec<Option<f64>>>,
}

#[derive(Clone, Debug, Default)]
pub struct Thin {
    pub t: Vec<Figure>,
    pub lines: Vec<Vec<Option<Figure>>>,
}

/// Keeps at most two points per interval. Lines with no more points than that stay unchanged.
pub fn thin(raw: &Raw) -> Thin {
    let points = raw.t_ns.len();
    if points <= 2 * STRETCHES {
        let figures = |line: &Vec<Option<f64>>| line.iter().map(|value| value.map(Figure)).collect();
        return Thin {
            t: raw.t_ns.iter().map(|ns| Figure::seconds(*ns)).collect(),
            lines: raw.lines.iter().map(figures).collect(),
        };
    }
    // Intervals with equal numbers of points, not of equal time: samples are evenly spaced, and no interval is empty.
    let edges: Vec<usize> = (0..=STRETCHES).map(|stretch| stretch * points / STRETCHES).collect();
    let stretches = || edges.iter().zip(edges.iter().skip(1)).map(|(from, to)| *from..*to);
    let mut t = Vec::with_capacity(2 * STRETCHES);
    for stretch in stretches() {
        let middle = stretch.start + stretch.len() / 2;
        let at = |place: usize| raw.t_ns.get(place).copied().unwrap_or_default();
        t.extend([Figure::seconds(at(stretch.start)), Figure::seconds(at(middle))]);
    }
    let lines = raw.lines.iter().map(|line| {
        let extremes = stretches().flat_map(|stretch| extremes(line.get(stretch).unwrap_or_default()));
        extremes.map(|value| value.map(Figure)).collect()
    });
    Thin { t, lines: lines.collect() }
}

/// The lowest and the highest value, in the order of time; two missing values if all are missing.
fn extremes(values: &[Option<f64>]) -> [Option<f64>; 2] {
    let mut lowest: Option<(usize, f64)> = None;
    let mut highest: Option<(usize, f64)> = None;
    for (place, value) in values.iter().enumerate() {
        let Some(value) = *value else { continue };
        if lowest.is_none_or(|(_, known)| value < known) {
            lowest = Some((place, value));
        }
        if highest.is_none_or(|(_, known)| value > known) {
            highest = Some((place, value));
        }
    }
    match (lowest, highest) {
        (Some((low_at, low)), Some((high_at, high))) if low_at <= high_at => [Some(low), Some(high)],
        (Some((_, low)), Some((_, high))) => [Some(high), Some(low)],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::{Raw, STRETCHES, extremes, thin};

    #[test]
    fn a_single_peak_in_an_hour_survives() {
        let t_ns: Vec<u64> = (0..36_000).map(|n| n * 100_000_000).collect();
        let mut line: Vec<Option<f64>> = vec![Some(1.0); 36_000];
        line[17_003] = Some(900.0);
        line[20_011] = Some(-5.0);
        let thinned = thin(&Raw { t_ns, lines: vec![line] });
        assert_eq!(thinned.t.len(), 2 * STRETCHES);
        let values: Vec<f64> = thinned.lines[0].iter().flatten().map(|figure| figure.0).collect();
        assert_eq!(values.iter().copied().fold(f64::MIN, f64::max), 900.0);
        assert_eq!(values.iter().copied().fold(f64::MAX, f64::min), -5.0);
        assert!(thinned.t.windows(2).all(|pair| pair[0].0 < pair[1].0), "time rises");
    }

    #[test]
    fn a_hole_stays_a_hole() {
        assert_eq!(extremes(&[None, None]), [None, None]);
        assert_eq!(extremes(&[None, Some(3.0), Some(1.0)]), [Some(3.0), Some(1.0)]);
    }

    #[test]
    fn few_points_are_not_touched() {
        let raw = Raw { t_ns: vec![0, 1_000_000_000], lines: vec![vec![Some(2.0), None]] };
        let thinned = thin(&raw);
        assert_eq!(thinned.t.len(), 2);
        assert!(thinned.lines[0][1].is_none());
    }
}

//! What the bootstrap resamples: figures computed from windows in the order of time.
//!
//! More than `CELLS_MAX` windows are merged with their neighbours into as many cells, so that an interval costs the same
//! after a day as after an hour. Nothing is lost by it: the figure is that of all windows, and 2048 cells still give 80
//! blocks, more than an interval profits from.

use std::collections::BTreeMap;

use crate::work;

/// Most cells that a series is resampled by.
pub const CELLS_MAX: usize = 2048;

/// Something computed from windows in the order of time.
pub trait Windowed {
    fn windows(&self) -> usize;

    /// The figure if window i counted `weights[i]` times; `None` if those windows hold nothing to compute it from.
    fn value(&self, weights: &[u32]) -> Option<f64>;

    /// One figure per window: its autocorrelation decides how long blocks are.
    fn trace(&self) -> Vec<f64>;
}

/// The cell of window `window` of `windows`: cells differ by at most one window.
#[must_use]
pub fn cell_of(window: u64, windows: u64) -> usize {
    let cells = windows.min(CELLS_MAX as u64);
    let cell = u128::from(window) * u128::from(cells) / u128::from(windows.max(1));
    usize::try_from(cell).unwrap_or(CELLS_MAX)
}

/// A sum over the windows of a cell, and how many those were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    pub sum: f64,
    pub windows: u64,
}

/// The mean of a figure per window: rates, shares, stall time.
#[derive(Clone, Debug)]
pub struct Mean {
    /// Those that have windows.
    cells: Vec<Cell>,
    /// Applied to the mean: what is compared is a ratio where this is a logarithm.
    shown_as: fn(f64) -> f64,
}

impl Mean {
    /// Of one value per window.
    #[must_use]
    pub fn new(values: &[f64], shown_as: fn(f64) -> f64) -> Mean {
        let windows = values.len() as u64;
        let mut cells = vec![Cell::default(); values.len().min(CELLS_MAX)];
        for (window, value) in (0..).zip(values) {
            if let Some(cell) = cells.get_mut(cell_of(window, windows)) {
                cell.sum += value;
                cell.windows += 1;
            }
        }
        Mean::of_cells(cells, shown_as)
    }

    /// Of cells in the order of time; those without a window say nothing.
    #[must_use]
    pub fn of_cells(mut cells: Vec<Cell>, shown_as: fn(f64) -> f64) -> Mean {
        cells.retain(|cell| cell.windows > 0);
        Mean { cells, shown_as }
    }

    /// The mean itself, in its unit; `None` without a window.
    #[must_use]
    pub fn plain(&self) -> Option<f64> {
        let windows: u64 = self.cells.iter().map(|cell| cell.windows).sum();
        (windows > 0).then(|| self.cells.iter().map(|cell| cell.sum).sum::<f64>() / windows as f64)
    }
}

impl Windowed for Mean {
    fn windows(&self) -> usize {
        self.cells.len()
    }

    fn value(&self, weights: &[u32]) -> Option<f64> {
        work::add(self.cells.len());
        let (mut sum, mut windows) = (0.0, 0.0);
        for (cell, &weight) in self.cells.iter().zip(weights) {
            sum += cell.sum * f64::from(weight);
            windows += cell.windows as f64 * f64::from(weight);
        }
        (windows > 0.0).then(|| (self.shown_as)(sum / windows))
    }

    fn trace(&self) -> Vec<f64> {
        self.cells.iter().map(|cell| cell.sum / cell.windows as f64).collect()
    }
}

/// Durations in ns and how many operations took each.
pub type Durations = BTreeMap<u64, u64>;

/// Counts `count` operations more of this duration; a file of unknown origin may hold any number.
pub fn count_into(durations: &mut Durations, ns: u64, count: u64) {
    let counted = durations.entry(ns).or_default();
    *counted = counted.saturating_add(count);
}

fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// A quantile of all operations, from each window's histogram, on a logarithmic scale.
#[derive(Clone, Debug)]
pub struct Quantile {
    quantile: f64,
    /// (value, cell, count), highest value first.
    falling: Vec<(u64, u32, u64)>,
    totals: Vec<u64>,
    /// Where in `falling` the quantile of all operations stands, and what each cell has before it: that of a resample is
    /// found a few steps from there.
    at: usize,
    before: Vec<u64>,
}

impl Quantile {
    /// `windows`: for each, (value, count) of its operations in any order.
    #[must_use]
    pub fn new(quantile: f64, windows: &[Vec<(u64, u64)>]) -> Quantile {
        let mut cells = vec![Durations::new(); windows.len().min(CELLS_MAX)];
        for (window, steps) in (0..).zip(windows) {
            if let Some(cell) = cells.get_mut(cell_of(window, windows.len() as u64)) {
                steps.iter().for_each(|(value, count)| count_into(cell, *value, *count));
            }
        }
        Quantile::of_cells(quantile, &cells)
    }

    #[must_use]
    pub fn of_cells(quantile: f64, cells: &[Durations]) -> Quantile {
        let mut falling = Vec::with_capacity(cells.iter().map(Durations::len).sum());
        for (number, cell) in (0_u32..).zip(cells) {
            falling.extend(cell.iter().map(|(&value, &count)| (value, number, count)));
        }
        work::add(falling.len());
        falling.sort_unstable_by_key(|&(value, ..)| std::cmp::Reverse(value));
        let totals: Vec<u64> = cells.iter().map(|cell| total(cell.values().copied())).collect();
        let beyond = beyond(quantile, total(totals.iter().copied()));
        let (mut at, mut passed, mut before) = (0, 0_u64, vec![0_u64; totals.len()]);
        for &(_, cell, count) in &falling {
            if passed.saturating_add(count) > beyond {
                break;
            }
            (at, passed) = (at + 1, passed.saturating_add(count));
            before[cell as usize] = before[cell as usize].saturating_add(count);
        }
        Quantile { quantile, falling, totals, at, before }
    }

    fn value_ns(&self, weights: &[u32]) -> Option<u64> {
        work::add(2 * self.totals.len());
        let weight = |cell: u32| weights.get(cell as usize).copied().map_or(0, u64::from);
        let weighted =
            |counts: &[u64]| total(counts.iter().zip(weights).map(|(n, &weight)| n.saturating_mul(u64::from(weight))));
        let total = weighted(&self.totals);
        if total == 0 {
            return None;
        }
        let beyond = beyond(self.quantile, total);
        // The operations in `falling[..at]` of this resample, then on or back to where one more passes `beyond`.
        let (mut at, mut passed) = (self.at, weighted(&self.before));
        while passed > beyond && at > 0 {
            at -= 1;
            let (_, cell, count) = self.falling[at];
            passed = passed.saturating_sub(count.saturating_mul(weight(cell)));
            work::add(1);
        }
        for &(value, cell, count) in &self.falling[at..] {
            passed = passed.saturating_add(count.saturating_mul(weight(cell)));
            work::add(1);
            if passed > beyond {
                return Some(value);
            }
        }
        None
    }
}

/// How many of `total` operations may be above the quantile.
fn beyond(quantile: f64, total: u64) -> u64 {
    ((1.0 - quantile) * total as f64).floor() as u64
}

impl Windowed for Quantile {
    fn windows(&self) -> usize {
        self.totals.len()
    }

    fn value(&self, weights: &[u32]) -> Option<f64> {
        self.value_ns(weights).map(|ns| (ns.max(1) as f64).ln())
    }

    /// The share of a cell's operations beyond the quantile of all: what the quantile's noise is made of.
    fn trace(&self) -> Vec<f64> {
        let quantile = self.falling.get(self.at).map_or(0, |&(value, ..)| value);
        let mut beyond = vec![0_u64; self.totals.len()];
        for &(_, cell, count) in self.falling.iter().take_while(|&&(value, ..)| value >= quantile) {
            beyond[cell as usize] = beyond[cell as usize].saturating_add(count);
        }
        let share = |(&beyond, &total): (&u64, &u64)| if total == 0 { 0.0 } else { beyond as f64 / total as f64 };
        beyond.iter().zip(&self.totals).map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{CELLS_MAX, Mean, Quantile, Windowed, cell_of};

    #[test]
    fn a_quantile_of_weighted_windows_is_that_of_their_operations() {
        let windows = vec![vec![(10, 990), (1_000, 10)], vec![(10, 1_000)], vec![]];
        let quantile = Quantile::new(0.995, &windows);
        assert_eq!(quantile.value_ns(&[1, 1, 1]), Some(10));
        assert_eq!(quantile.value_ns(&[1, 0, 5]), Some(1_000));
        assert_eq!(quantile.value(&[0, 0, 3]), None, "nothing happened: no latency, not 0");
    }

    /// Every weighting gives what a plain count over the weighted operations gives.
    #[test]
    fn steps_from_the_quantile_of_all_lead_to_that_of_any_resample() {
        let dice = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        let windows: Vec<Vec<(u64, u64)>> = (0..12)
            .map(|w| (0..9).map(|s| (1 + dice(9 * w + s) % 50, 1 + dice(1000 + 9 * w + s) % 20)).collect())
            .collect();
        for quantile in [0.5, 0.9, 0.999] {
            let quick = Quantile::new(quantile, &windows);
            for round in 0..50 {
                let weights: Vec<u32> = (0..12).map(|w| (dice(round * 31 + w) % 4) as u32).collect();
                let mut all: Vec<u64> = Vec::new();
                for (window, weight) in windows.iter().zip(&weights) {
                    let of =
                        window.iter().flat_map(|&(value, count)| vec![value; (count * u64::from(*weight)) as usize]);
                    all.extend(of);
                }
                all.sort_unstable_by(|a, b| b.cmp(a));
                let place = ((1.0 - quantile) * all.len() as f64).floor() as usize;
                assert_eq!(quick.value_ns(&weights), all.get(place).copied(), "{quantile} {weights:?}");
            }
        }
    }

    #[test]
    fn many_windows_become_cells_of_like_size_with_the_same_mean() {
        let values: Vec<f64> = (0..100_800).map(|i| f64::from(i % 7)).collect();
        let mean = Mean::new(&values, |x| x);
        assert_eq!(mean.windows(), CELLS_MAX);
        let plain = values.iter().sum::<f64>() / values.len() as f64;
        assert!((mean.plain().expect("windows") - plain).abs() < 1e-9);
        assert!((mean.value(&vec![1; CELLS_MAX]).expect("windows") - plain).abs() < 1e-9);
        assert!(mean.cells.iter().all(|cell| (49..=50).contains(&cell.windows)));
        assert_eq!((cell_of(u64::MAX - 1, u64::MAX), cell_of(5, 10), cell_of(0, 0)), (CELLS_MAX - 1, 5, 0));
    }
}

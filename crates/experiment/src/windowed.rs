//! Figures computed from windows in the order of time, which the bootstrap resamples.
//!
//! More than `CELLS_MAX` windows are merged with their neighbours into that many cells, so that an interval costs the
//! same after a day as after an hour. The figure still covers all windows, and 2048 cells still give 80 blocks, more
//! than an interval needs.

use std::ops::Range;
use std::sync::Arc;

use crate::work;

/// Largest number of cells that a series is resampled by.
pub const CELLS_MAX: usize = 2048;

/// A figure computed from windows in the order of time.
pub trait Windowed: Sync {
    fn windows(&self) -> usize;

    /// The figure if window i counted `weights[i]` times; `None` if the windows with a weight contain nothing to
    /// compute it from.
    fn value(&self, weights: &[u32]) -> Option<f64>;

    /// The figure of a resample. Sums override it, because they need no weights.
    fn value_of(&self, drawn: &Resample) -> Option<f64> {
        self.value(&drawn.weights())
    }

    /// One value per window. Its autocorrelation decides how long the blocks are.
    fn trace(&self) -> Vec<f64>;
}

/// A resample: blocks of consecutive windows, wrapped around the end, with as many windows in total as the series.
#[derive(Debug)]
pub struct Resample {
    windows: usize,
    /// (first window, number of windows)
    blocks: Vec<(usize, usize)>,
}

impl Resample {
    /// Blocks of `length` windows, the last one shorter. `starts` gives their first windows, each below `windows`.
    pub fn new(windows: usize, length: usize, starts: impl Iterator<Item = usize>) -> Resample {
        let lengths = (0..windows).step_by(length.max(1)).map(|from| length.max(1).min(windows - from));
        Resample { windows, blocks: lengths.zip(starts).map(|(length, start)| (start, length)).collect() }
    }

    /// How many times the resample contains each window.
    fn weights(&self) -> Vec<u32> {
        work::add(self.windows);
        let mut weights = vec![0; self.windows];
        for &(start, length) in &self.blocks {
            let (to_end, from_begin) = wrapped(start, length, self.windows);
            for run in [to_end, from_begin] {
                weights[run].iter_mut().for_each(|weight| *weight += 1);
            }
        }
        weights
    }
}

/// The two parts of a block: up to the end of the series, and the part that wraps around to its start.
fn wrapped(start: usize, length: usize, windows: usize) -> (Range<usize>, Range<usize>) {
    let end = start + length;
    (start..end.min(windows), 0..end.saturating_sub(windows))
}

/// The cell of window `window` of `windows`. The sizes of cells differ by at most one window.
#[must_use]
pub fn cell_of(window: u64, windows: u64) -> usize {
    let cells = windows.min(CELLS_MAX as u64);
    let cell = u128::from(window) * u128::from(cells) / u128::from(windows.max(1));
    usize::try_from(cell).unwrap_or(CELLS_MAX)
}

/// A sum over the windows of a cell, and the number of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    pub sum: f64,
    pub windows: u64,
}

/// The mean per window of a rate, share or stall time.
#[derive(Clone, Debug)]
pub struct Mean {
    /// The cells with at least one window.
    cells: Vec<Cell>,
    /// Sum of the cells before each cell, and last the sum of all: the sum of a block is a difference of two.
    before: Vec<Cell>,
    /// Applied to the mean, such as a logarithm, with which differences are ratios.
    shown_as: fn(f64) -> f64,
}

impl Mean {
    /// The mean of one value per window.
    #[must_use]
    pub fn new(values: &[f64], shown_as: fn(f64) -> f64) -> Mean {
        let cells = values.len().min(CELLS_MAX);
        // The first window that `cell_of` maps to the cell.
        let first = |cell: usize| (cell * values.len()).div_ceil(cells);
        let of = |cell| &values[first(cell)..first(cell + 1)];
        let cells = (0..cells).map(of).map(|of| Cell { sum: of.iter().sum(), windows: of.len() as u64 });
        Mean::of_cells(cells.collect(), shown_as)
    }

    /// The mean of cells in the order of time. Cells without a window do not count.
    #[must_use]
    pub fn of_cells(mut cells: Vec<Cell>, shown_as: fn(f64) -> f64) -> Mean {
        cells.retain(|cell| cell.windows > 0);
        let mut all = Cell::default();
        let mut before = vec![all];
        for cell in &cells {
            (all.sum, all.windows) = (all.sum + cell.sum, all.windows.saturating_add(cell.windows));
            before.push(all);
        }
        Mean { cells, before, shown_as }
    }

    /// The mean in its unit, without `shown_as`; `None` without a window.
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

    fn value_of(&self, drawn: &Resample) -> Option<f64> {
        work::add(drawn.blocks.len());
        let (mut sum, mut windows) = (0.0, 0);
        for &(start, length) in &drawn.blocks {
            let (to_end, from_begin) = wrapped(start, length, self.cells.len());
            for run in [to_end, from_begin] {
                sum += self.before[run.end].sum - self.before[run.start].sum;
                windows += self.before[run.end].windows - self.before[run.start].windows;
            }
        }
        (windows > 0).then(|| (self.shown_as)(sum / windows as f64))
    }

    fn trace(&self) -> Vec<f64> {
        self.cells.iter().map(|cell| cell.sum / cell.windows as f64).collect()
    }
}

fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Durations of each cell, for any number of quantiles.
#[derive(Debug)]
pub struct Durations {
    /// (ns, cell, count), highest duration first.
    falling: Vec<(u64, u32, u64)>,
    totals: Vec<u64>,
}

impl Durations {
    /// `cells`: the (ns, count) of the operations of each cell.
    #[must_use]
    pub fn of_cells(cells: &[Vec<(u64, u64)>]) -> Durations {
        let mut falling = Vec::with_capacity(cells.iter().map(Vec::len).sum());
        for (number, cell) in (0_u32..).zip(cells) {
            falling.extend(cell.iter().map(|&(ns, count)| (ns, number, count)));
        }
        work::add(falling.len());
        falling.sort_unstable_by_key(|&(ns, ..)| std::cmp::Reverse(ns));
        let totals = cells.iter().map(|cell| total(cell.iter().map(|(_, count)| *count))).collect();
        Durations { falling, totals }
    }

    /// `windows`: the (ns, count) of the operations of each window, in any order. Many windows are merged into cells.
    #[must_use]
    pub fn of_windows(windows: &[Vec<(u64, u64)>]) -> Durations {
        let mut cells = vec![Vec::new(); windows.len().min(CELLS_MAX)];
        for (window, steps) in (0..).zip(windows) {
            if let Some(cell) = cells.get_mut(cell_of(window, windows.len() as u64)) {
                cell.extend_from_slice(steps);
            }
        }
        Durations::of_cells(&cells)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.falling.is_empty()
    }
}

/// The logarithm of a quantile of all operations, computed from the histograms of the windows.
#[derive(Clone, Debug)]
pub struct Quantile {
    quantile: f64,
    of: Arc<Durations>,
    /// Index in `falling` of the quantile of all operations, and for each cell how many operations it has before that
    /// index. The quantile of a resample is a few steps away.
    at: usize,
    before: Vec<u64>,
}

impl Quantile {
    #[must_use]
    pub fn new(quantile: f64, of: Arc<Durations>) -> Quantile {
        let beyond = beyond(quantile, total(of.totals.iter().copied()));
        let (mut at, mut passed, mut before) = (0, 0_u64, vec![0_u64; of.totals.len()]);
        for &(_, cell, count) in &of.falling {
            if passed.saturating_add(count) > beyond {
                break;
            }
            (at, passed) = (at + 1, passed.saturating_add(count));
            before[cell as usize] = before[cell as usize].saturating_add(count);
        }
        work::add(at);
        Quantile { quantile, of, at, before }
    }

    fn value_ns(&self, weights: &[u32]) -> Option<u64> {
        work::add(2 * self.of.totals.len());
        let weight = |cell: u32| weights.get(cell as usize).copied().map_or(0, u64::from);
        let weighted =
            |counts: &[u64]| total(counts.iter().zip(weights).map(|(n, &weight)| n.saturating_mul(u64::from(weight))));
        let total = weighted(&self.of.totals);
        if total == 0 {
            return None;
        }
        let beyond = beyond(self.quantile, total);
        // `passed` is the count of this resample in `falling[..at]`. Step back or on to the first entry with which it
        // exceeds `beyond`.
        let (mut at, mut passed) = (self.at, weighted(&self.before));
        while passed > beyond && at > 0 {
            at -= 1;
            let (_, cell, count) = self.of.falling[at];
            passed = passed.saturating_sub(count.saturating_mul(weight(cell)));
            work::add(1);
        }
        for &(value, cell, count) in &self.of.falling[at..] {
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
        self.of.totals.len()
    }

    fn value(&self, weights: &[u32]) -> Option<f64> {
        self.value_ns(weights).map(|ns| (ns.max(1) as f64).ln())
    }

    /// Share of each cell's operations at or above the quantile of all operations: its variation is what makes the
    /// quantile vary.
    fn trace(&self) -> Vec<f64> {
        let quantile = self.of.falling.get(self.at).map_or(0, |&(value, ..)| value);
        let mut beyond = vec![0_u64; self.of.totals.len()];
        for &(_, cell, count) in self.of.falling.iter().take_while(|&&(value, ..)| value >= quantile) {
            beyond[cell as usize] = beyond[cell as usize].saturating_add(count);
        }
        let share = |(&beyond, &total): (&u64, &u64)| if total == 0 { 0.0 } else { beyond as f64 / total as f64 };
        beyond.iter().zip(&self.of.totals).map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{CELLS_MAX, Durations, Mean, Quantile, Resample, Windowed, cell_of};

    fn quantile_of(quantile: f64, windows: &[Vec<(u64, u64)>]) -> Quantile {
        Quantile::new(quantile, Arc::new(Durations::of_windows(windows)))
    }

    #[test]
    fn a_weighted_quantile_counts_operations_by_the_weight_of_their_window() {
        let windows = vec![vec![(10, 990), (1_000, 10)], vec![(10, 1_000)], vec![]];
        let quantile = quantile_of(0.995, &windows);
        assert_eq!(quantile.value_ns(&[1, 1, 1]), Some(10));
        assert_eq!(quantile.value_ns(&[1, 0, 5]), Some(1_000));
        assert_eq!(quantile.value(&[0, 0, 3]), None, "nothing happened: no latency, not 0");
    }

    /// For every weighting the quantile is the one of a plain sort of the weighted operations.
    #[test]
    fn the_quantile_of_a_resample_equals_that_of_a_plain_sort() {
        let dice = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        let windows: Vec<Vec<(u64, u64)>> = (0..12)
            .map(|w| (0..9).map(|s| (1 + dice(9 * w + s) % 50, 1 + dice(1000 + 9 * w + s) % 20)).collect())
            .collect();
        for quantile in [0.5, 0.9, 0.999] {
            let quick = quantile_of(quantile, &windows);
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
    fn the_mean_by_blocks_equals_the_mean_by_windows() {
        let dice = |i: usize| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        for (windows, length) in [(7, 3), (7, 7), (7, 9), (100, 30), (3000, 1), (5000, 77)] {
            let values: Vec<f64> = (0..windows).map(|i| (dice(i) % 1000) as f64).collect();
            let mean = Mean::new(&values, |x| x);
            let cells = mean.windows();
            let drawn = Resample::new(cells, length, (1..).map(|i| dice(i * 31) % cells));
            let weights = drawn.weights();
            assert_eq!(weights.iter().sum::<u32>() as usize, cells, "{windows} {length}");
            let (by_block, by_window) = (mean.value_of(&drawn).expect("known"), mean.value(&weights).expect("known"));
            assert!((by_block - by_window).abs() < 1e-9 * by_window, "{windows} {length}: {by_block} {by_window}");
        }
    }

    #[test]
    fn many_windows_are_merged_into_cells_of_equal_size_with_the_same_mean() {
        let values: Vec<f64> = (0..100_800).map(|i| f64::from(i % 7)).collect();
        let mean = Mean::new(&values, |x| x);
        assert_eq!(mean.windows(), CELLS_MAX);
        let plain = values.iter().sum::<f64>() / values.len() as f64;
        assert!((mean.plain().expect("windows") - plain).abs() < 1e-9);
        assert!((mean.value(&vec![1; CELLS_MAX]).expect("windows") - plain).abs() < 1e-9);
        assert!(mean.cells.iter().all(|cell| (49..=50).contains(&cell.windows)));
        let mut cells = [0; CELLS_MAX];
        (0..100_800).for_each(|window| cells[cell_of(window, 100_800)] += 1);
        assert!(mean.cells.iter().map(|cell| cell.windows).eq(cells));
        assert_eq!((cell_of(u64::MAX - 1, u64::MAX), cell_of(5, 10), cell_of(0, 0)), (CELLS_MAX - 1, 5, 0));
    }
}

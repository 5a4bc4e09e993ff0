//! One reading of one sysstat report, as rows of the recording.

use super::columns::{Kind, Report, meaning};
use crate::builder::{Builder, Cell, Track};
use crate::number::rounded;
use crate::when::DAY_NS;
use flatwater_recording::{Column, Entity};

/// The time that a reading's means are over.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// Nothing was read before: the counters begin at `from`.
    pub first: bool,
    pub from: i64,
    pub to: i64,
}

/// (column, cell) of each value that means something to us.
#[must_use]
pub fn cells(report: Report, values: &[(&str, f64)], passed_ns: i64) -> Vec<(Column, Cell)> {
    let seconds = passed_ns as f64 / 1e9;
    let mut cells = Vec::new();
    for &(name, value) in values {
        let Some((column, kind)) = meaning(report, name) else { continue };
        let cell = match kind {
            Kind::Level(factor) => Cell::Gauge(rounded(value * factor)),
            Kind::Rate(factor) => Cell::Rise(value * factor * seconds),
            Kind::Share(unit_ns) => Cell::Rise(value / 100.0 * passed_ns as f64 / unit_ns),
            Kind::PerRequest(requests) => {
                let Some((_, rate)) = values.iter().find(|(name, _)| *name == requests) else { continue };
                Cell::Rise(value * 1e6 * rate * seconds)
            }
        };
        cells.push((column, cell));
    }
    cells
}

pub fn push(
    b: &mut Builder,
    track: Track,
    interval: &Interval,
    report: Report,
    entity: &Entity,
    values: &[(&str, f64)],
) {
    let passed = interval.to.saturating_sub(interval.from);
    let known = (1..DAY_NS).contains(&passed);
    let rows = cells(report, values, if known { passed } else { 0 });
    let Some((Column { table, .. }, _)) = rows.first() else { return };
    if interval.first && known {
        let zero: Vec<(Column, Cell)> = (rows.iter())
            .filter(|(_, cell)| matches!(cell, Cell::Rise(_)))
            .map(|(column, _)| (*column, Cell::Rise(0.0)))
            .collect();
        b.row((track, interval.from), *table, entity, &zero);
    }
    b.row((track, interval.to), *table, entity, &rows);
}

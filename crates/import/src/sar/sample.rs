//! Converts one reading of a sysstat report to rows of the recording.

use super::columns::{Kind, Report, meaning};
use crate::builder::{Builder, Cell, Track};
use crate::number::rounded;
use crate::when::DAY_NS;
use flatwater_recording::Entity;
use flatwater_recording::schema::{Column, meminfo};

/// The interval over which a reading is a mean.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// The entity's first reading: the counters begin at `from`.
    pub first: bool,
    pub from: i64,
    pub to: i64,
}

/// The columns and cells of all values with a meaning.
#[must_use]
pub fn cells(report: Report, values: &[(&str, f64)], passed_ns: i64) -> Vec<(Column, Cell)> {
    let seconds = passed_ns as f64 / 1e9;
    let mut cells = Vec::new();
    for &(name, value) in values {
        let Some((column, kind)) = meaning(report, name) else { continue };
        // A percentage of the same name follows its column.
        if cells.iter().any(|(known, _): &(Column, Cell)| *known == column) {
            continue;
        }
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
    cells.extend(total(report, values).map(|bytes| (meminfo::MEM_TOTAL_BYTES, Cell::Gauge(rounded(bytes)))));
    cells
}

/// The size of memory in bytes, which `sar -r` does not print, from used memory and its percentage. Both have the same
/// normal name; the percentage is second. Until 11.7 used and free sum to the exact size.
fn total(report: Report, values: &[(&str, f64)]) -> Option<f64> {
    let mut used = values.iter().filter(|(name, _)| *name == "memused").map(|(_, value)| *value);
    let (kib, percent) = (used.next()?, used.next().filter(|percent| *percent >= 1.0)?);
    let free = values.iter().find(|(name, _)| *name == "memfree").map(|(_, value)| *value)?;
    let by_share = kib * 100.0 / percent;
    let exact = ((free + kib) / by_share - 1.0).abs() < 0.01;
    (report == Report::Memory).then_some(if exact { free + kib } else { by_share } * 1024.0)
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

//! Reports of means: tools such as `zpool iostat` first print the mean since boot, mount or import of the pool, then
//! one report for each interval. The rows are collected and written as increases of counters.

use std::collections::BTreeMap;

use super::builder::{Builder, Cell};
use super::when::SECOND_NS;
use flatwater_recording::schema::Column;
use flatwater_recording::{Entity, Table};

/// Maximum rows: more than a paste has.
const ROWS_MAX: usize = 1_000_000;

/// A device in one report, with values per second of the report's interval.
#[derive(Debug)]
pub struct Mean {
    pub name: String,
    pub cells: Vec<(Column, f64)>,
}

/// All rows of one tool so far.
#[derive(Debug, Default)]
pub struct Means {
    rows: Vec<Mean>,
}

/// The gap to report if there is only one report.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    pub what: &'static str,
    pub why: &'static str,
    pub remedy: &'static str,
}

impl Means {
    /// Adds a row and returns true, or returns false if `ROWS_MAX` rows are stored.
    pub fn push(&mut self, row: Mean) -> bool {
        let room = self.rows.len() < ROWS_MAX;
        if room {
            self.rows.push(row);
        }
        room
    }

    /// Adds cells to the last row if it has this name: some tools print reads and writes of a device on separate lines.
    pub fn extend_last(&mut self, name: &str, cells: impl IntoIterator<Item = (Column, f64)>) {
        if let Some(row) = self.rows.last_mut().filter(|row| row.name == name) {
            row.cells.extend(cells);
        }
    }

    /// Writes the rows. If a device has several, the first is the mean since the beginning and is skipped.
    pub fn write(self, b: &mut Builder, format: &'static str, tool: &str, alone: Alone) {
        let step = interval_s(b.context().command.as_deref(), tool).unwrap_or(1) * SECOND_NS;
        let (track, at) = b.origin(format);
        let mut by_name: BTreeMap<&str, Vec<&Mean>> = BTreeMap::new();
        for row in &self.rows {
            by_name.entry(&row.name).or_default().push(row);
        }
        if by_name.values().all(|all| all.len() == 1) && !self.rows.is_empty() {
            b.gap(alone.what, alone.why, alone.remedy);
        }
        for (name, all) in by_name {
            let rates = if all.len() > 1 { all.get(1..).unwrap_or_default() } else { &all[..] };
            let entity = Entity::named(name);
            let Some(first) = rates.first() else { continue };
            let zeros: Vec<(Column, Cell)> = first.cells.iter().map(|(column, _)| (*column, Cell::Rise(0.0))).collect();
            b.row((track, at), Table::Disks, &entity, &zeros);
            let seconds = step as f64 / SECOND_NS as f64;
            for (rate, place) in rates.iter().zip(1_i64..) {
                let cells: Vec<(Column, Cell)> =
                    rate.cells.iter().map(|(column, each)| (*column, Cell::Rise(each * seconds))).collect();
                b.row((track, at.saturating_add(place.saturating_mul(step))), Table::Disks, &entity, &cells);
            }
        }
    }
}

/// The interval of a command such as `$ zpool iostat -l 5 10`: the first number after the tool's name.
fn interval_s(command: Option<&str>, tool: &str) -> Option<i64> {
    let words = command?.split_whitespace().skip_while(|word| !word.ends_with(tool)).skip(1);
    words.filter_map(|word| word.parse::<i64>().ok()).find(|seconds| (1..=86_400).contains(seconds))
}

//! Determines beginning and end of the interval of rows that are means.

use std::collections::HashMap;

use crate::builder::{Builder, Cell, Track};
use crate::sar::columns::Report;
use crate::sar::{Interval, push};
use crate::when::{SECOND_NS, When};
use flatwater_recording::{ColumnKey, Entity, Table};

/// The intervals of a monitor's output.
pub struct Intervals {
    track: Track,
    /// End of the current interval.
    at: i64,
    step: i64,
    /// Tables and entities that already have a row, so that their counters have begun.
    begun: HashMap<(&'static str, String), i64>,
}

impl Intervals {
    /// Begins at the last time in the file, else at the start of the log. `step_ns` is the default length of an
    /// interval.
    pub fn new(b: &mut Builder, format: &'static str, step_ns: i64) -> Intervals {
        if let Some((track, last)) = b.resumed(format).filter(|_| b.moment.is_none()) {
            return Intervals { track, at: last, step: step_ns, begun: HashMap::new() };
        }
        let moment = b.moment;
        let (track, at) = match moment {
            Some(moment) => (b.shared_track(format, moment.zero), moment.ns.saturating_sub(step_ns)),
            None => b.origin(format),
        };
        Intervals { track, at, step: step_ns, begun: HashMap::new() }
    }

    /// Begins the next interval, which ends at `when` if that is later, otherwise one step later.
    pub fn next(&mut self, when: Option<When>, step_ns: Option<i64>) {
        self.step = step_ns.filter(|step| *step > 0).unwrap_or(self.step);
        self.at = match when {
            Some(when) if when.ns > self.at => when.ns,
            _ => self.at.saturating_add(self.step),
        };
    }

    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.step as f64 / SECOND_NS as f64
    }

    /// Adds values with sysstat's names for a report.
    pub fn report(&mut self, b: &mut Builder, report: Report, entity: &Entity, values: &[(&str, f64)]) {
        let first = self.begun.insert((kind(report), entity.name.clone()), self.at).is_none();
        let interval = Interval { first, from: self.at.saturating_sub(self.step), to: self.at };
        push(b, self.track, &interval, report, entity, values);
    }

    /// Adds levels, or increases within this interval, with columns of the schema.
    pub fn row<N: ColumnKey + Copy>(&mut self, b: &mut Builder, table: Table, entity: &Entity, cells: &[(N, Cell)]) {
        let first = self.begun.insert((table.name(), entity.name.clone()), self.at).is_none();
        if first {
            let rises = cells.iter().filter(|(_, cell)| matches!(cell, Cell::Rise(_)));
            let zeros: Vec<(N, Cell)> = rises.map(|(name, _)| (*name, Cell::Rise(0.0))).collect();
            b.row((self.track, self.at.saturating_sub(self.step)), table, entity, &zeros);
        }
        b.row((self.track, self.at), table, entity, cells);
    }

    /// Lets the table continue here after a break.
    pub fn leave(self, b: &mut Builder, format: &'static str) {
        b.leave(format, self.track, self.at);
    }
}

fn kind(report: Report) -> &'static str {
    match report {
        Report::Paging => "paging",
        Report::Swapping => "swapping",
        Report::Memory => "memory report",
        Report::Swap => "swap",
        Report::Disk => "disk",
        Report::Queue => "queue",
        Report::Cpu => "cpu report",
        Report::Tasks => "tasks",
        Report::Kernel => "kernel",
        Report::Pressure(name) => name,
    }
}

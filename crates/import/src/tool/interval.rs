//! Determines beginning and end of the interval of rows that are means.

use std::collections::HashMap;

use crate::builder::{Builder, Cell, Track};
use crate::sar::columns::Report;
use crate::sar::{Interval, push};
use crate::when::{DAY_NS, SECOND_NS, When, Zero};
use flatwater_recording::schema::ColumnKey;
use flatwater_recording::{Entity, Table};

/// Longest interval between two rows of one run of a monitor.
const INTERVAL_NS_MAX: i64 = 600 * SECOND_NS;

/// The intervals of a monitor's output.
pub struct Intervals {
    format: &'static str,
    track: Track,
    /// Zero of the track.
    zero: Zero,
    /// End of the current interval.
    at: i64,
    step: i64,
    /// Zero of the rows' own clock, and what to add to that clock to get a time on the track.
    clock: Option<(Zero, i64)>,
    /// Whether the track has a time from the log: a clock, or rows of a table above.
    placed: bool,
    /// Tables and entities that already have a row, so that their counters have begun.
    begun: HashMap<(&'static str, String), i64>,
}

impl Intervals {
    /// Begins at the last time in the file, else at the start of the log. `step_ns` is the default length of an
    /// interval.
    pub fn new(b: &mut Builder, format: &'static str, step_ns: i64) -> Intervals {
        let moment = b.context().moment;
        Intervals::at(b, format, step_ns, moment)
    }

    /// As `new`, for a log whose first line states the time.
    pub fn at(b: &mut Builder, format: &'static str, step_ns: i64, moment: Option<When>) -> Intervals {
        let begin = |track, zero, at, placed| Intervals {
            format,
            track,
            zero,
            at,
            step: step_ns,
            clock: None,
            placed,
            begun: HashMap::new(),
        };
        // A stamp above several screens is the time of the first.
        let follows = |(track, last): &(Track, i64)| {
            moment.is_none_or(|moment| b.zero_of(*track) == moment.zero && *last >= moment.ns)
        };
        if let Some((track, last)) = b.resumed(format).filter(follows) {
            let clock = b.clock_of(format);
            return Intervals { clock, ..begin(track, b.zero_of(track), last, true) };
        }
        match moment {
            Some(moment) => {
                let track = b.shared_track(format, moment.zero);
                begin(track, moment.zero, moment.ns.saturating_sub(step_ns), true)
            }
            None => {
                let (track, at) = b.origin(format);
                begin(track, Zero::Start, at, false)
            }
        }
    }

    /// Begins the next interval, which ends at `when` if that is later, otherwise one step later.
    pub fn next(&mut self, b: &mut Builder, when: Option<When>, step_ns: Option<i64>) {
        self.step = step_ns.filter(|step| *step > 0).unwrap_or(self.step);
        let follows = std::mem::replace(&mut self.placed, true);
        let end = when.and_then(|when| self.on_track(b, when, follows)).filter(|end| *end > self.at);
        // Rates and shares cover the time since the row above. After a longer time the monitor was started again.
        let elapsed = end.map(|end| end.saturating_sub(self.at)).filter(|ns| follows && *ns <= INTERVAL_NS_MAX);
        self.step = step_ns.and(Some(self.step)).or(elapsed).unwrap_or(self.step);
        self.at = end.unwrap_or(self.at.saturating_add(self.step));
    }

    /// Converts a time of the rows to a time on the track. Without an earlier time, the rows' clock is the track's. A
    /// clock with another zero than the track's counts from the end of the first interval that uses it, and other
    /// clocks are ignored.
    fn on_track(&mut self, b: &mut Builder, when: When, placed: bool) -> Option<i64> {
        if !placed {
            self.track = b.shared_track(self.format, when.zero);
            self.zero = when.zero;
        }
        if when.zero == self.zero {
            return Some(when.ns);
        }
        let end = self.at.saturating_add(self.step);
        let (zero, shift) = *self.clock.get_or_insert((when.zero, end.saturating_sub(when.ns)));
        let at = when.ns.saturating_add(shift);
        // After midnight a clock without a date begins again.
        if zero == Zero::Day && at < self.at.saturating_sub(DAY_NS / 2) {
            self.clock = Some((zero, shift.saturating_add(DAY_NS)));
            return Some(at.saturating_add(DAY_NS));
        }
        (zero == when.zero).then_some(at)
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
    pub fn leave(self, b: &mut Builder) {
        b.leave(self.format, self.track, self.at);
        b.set_clock(self.format, self.clock);
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

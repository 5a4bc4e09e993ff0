//! The state of the screen: rows grouped, filtered step by step, or frozen.

use std::collections::BTreeMap;

use flatwater_recording::printable;
use flatwater_recording::short_sort::ShortSort;
use flatwater_watch::now::{Now, Row};

use crate::source::Look;

/// The property by which rows are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    #[default]
    Cgroup,
    Program,
    Device,
    Cause,
}

impl Group {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Group::Cgroup => "cgroup",
            Group::Program => "program",
            Group::Device => "device",
            Group::Cause => "cause",
        }
    }

    fn of(self, row: &Row) -> &str {
        match self {
            Group::Cgroup => &row.cgroup,
            Group::Program => &row.program,
            Group::Device => &row.device,
            Group::Cause => &row.cause,
        }
    }
}

/// Rows with the same value of the grouping property.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The common value; empty if it is not known.
    pub key: String,
    pub calls: u64,
    pub stall_ns: u64,
    pub worst_ns: u64,
    /// Calls under way.
    pub hanging: u64,
    /// The program of the row with the most stall time; likewise the next two.
    pub program: String,
    pub operation: String,
    pub cause: String,
    /// The aggressor charged with most of that row's time; empty if none was observed.
    pub by: String,
    pub by_ns: u64,
}

/// An aggressor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggressor {
    pub program: String,
    pub cgroup: String,
    pub ns: u64,
    /// Programs that wait for the aggressor.
    pub victims: Vec<String>,
}

#[derive(Debug)]
pub struct View {
    pub source: String,
    pub now: Now,
    /// Why the table was not updated; empty without an error.
    pub trouble: String,
    pub group: Group,
    /// Values that rows must have, in the order in which the user chose them.
    pub narrowed: Vec<(Group, String)>,
    pub selected: usize,
    pub frozen: bool,
    pub help: bool,
    /// The effect of the last key, if it is not visible otherwise.
    pub message: String,
    /// Number of tables received.
    pub looks: u64,
}

impl View {
    #[must_use]
    pub fn new(source: String) -> View {
        View {
            source,
            now: Now::default(),
            trouble: "waiting for the first table".to_owned(),
            group: Group::default(),
            narrowed: Vec::new(),
            selected: 0,
            frozen: false,
            help: false,
            message: String::new(),
            looks: 0,
        }
    }

    /// Shows a new table, unless the screen is frozen. Names are made printable here as well: whatever answers on the
    /// socket must not control the terminal.
    pub fn take(&mut self, look: Look) {
        if self.frozen {
            return;
        }
        match look {
            Ok(now) => {
                self.now = cleaned(now);
                self.trouble.clear();
                self.looks += 1;
            }
            Err(why) => self.trouble = printable::line(&why.to_string()).into_owned(),
        }
        self.selected = self.selected.min(self.lines().len().saturating_sub(1));
    }

    pub fn group_by(&mut self, group: Group) {
        (self.group, self.selected) = (group, 0);
    }

    pub fn freeze(&mut self) {
        self.frozen = !self.frozen;
    }

    pub fn say(&mut self, text: String) {
        self.message = printable::line(&text).into_owned();
    }

    pub fn select(&mut self, by: isize) {
        let last = self.lines().len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    /// Shows only the rows of the selected line.
    pub fn narrow(&mut self) {
        let Some(line) = self.lines().into_iter().nth(self.selected) else { return };
        self.narrowed.retain(|(group, _)| *group != self.group);
        self.narrowed.push((self.group, line.key));
        self.selected = 0;
    }

    pub fn widen(&mut self) {
        self.narrowed.pop();
        self.selected = 0;
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        let fits = |row: &&Row| self.narrowed.iter().all(|(group, value)| group.of(row) == value);
        self.now.rows.iter().filter(fits)
    }

    /// The victims, those with the most stall time first.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let mut lines: BTreeMap<&str, (Line, u64)> = BTreeMap::new();
        for row in self.rows() {
            let key = self.group.of(row);
            let (line, most_ns) = lines.entry(key).or_default();
            line.key = key.to_owned();
            line.calls += row.calls;
            line.stall_ns = line.stall_ns.saturating_add(row.stall_ns);
            line.worst_ns = line.worst_ns.max(row.worst_ns);
            line.hanging += row.hanging;
            if row.stall_ns >= *most_ns {
                *most_ns = row.stall_ns;
                (line.program, line.operation) = (row.program.clone(), row.operation.clone());
                (line.cause, line.by) = (row.cause.clone(), row.by_program.clone());
                line.by_ns = row.by_ns;
            }
        }
        let mut lines: Vec<Line> = lines.into_values().map(|(line, _)| line).collect();
        lines.sort_short_by_key(|line| std::cmp::Reverse(line.stall_ns));
        lines
    }

    /// The aggressors, those with the most time first.
    #[must_use]
    pub fn aggressors(&self) -> Vec<Aggressor> {
        let mut sums: BTreeMap<(&str, &str), Aggressor> = BTreeMap::new();
        for row in self.rows().filter(|row| !row.by_program.is_empty()) {
            let sum = sums.entry((&row.by_program, &row.by_cgroup)).or_default();
            (sum.program, sum.cgroup) = (row.by_program.clone(), row.by_cgroup.clone());
            sum.ns = sum.ns.saturating_add(row.by_ns);
            if !sum.victims.contains(&row.program) {
                sum.victims.push(row.program.clone());
            }
        }
        let mut all: Vec<Aggressor> = sums.into_values().collect();
        all.sort_short_by_key(|aggressor| std::cmp::Reverse(aggressor.ns));
        all
    }

    /// Calls and stall time of all rows shown.
    #[must_use]
    pub fn total(&self) -> (u64, u64) {
        self.rows().fold((0, 0), |(calls, ns), row| (calls + row.calls, ns.saturating_add(row.stall_ns)))
    }
}

fn cleaned(mut now: Now) -> Now {
    for row in &mut now.rows {
        let Row { cgroup, program, operation, device, cause, by_cgroup, by_program, .. } = row;
        for name in [cgroup, program, operation, device, cause, by_cgroup, by_program] {
            if name.contains(printable::is_hostile) {
                *name = printable::line(name).into_owned();
            }
        }
    }
    now.shed = printable::line(&now.shed).into_owned();
    now
}

#[cfg(test)]
pub(crate) mod tests {
    use flatwater_watch::now::{Now, Row};

    use super::{Group, View};
    use crate::source::SourceError;

    const MS: u64 = 1_000_000;

    pub(crate) fn row(cgroup: &str, program: &str, device: &str, by: &str, ms: u64) -> Row {
        Row {
            cgroup: cgroup.to_owned(),
            program: program.to_owned(),
            operation: "fsync".to_owned(),
            device: device.to_owned(),
            cause: "journal-commit".to_owned(),
            by_program: by.to_owned(),
            by_cgroup: if by.is_empty() { String::new() } else { "/jobs/backup".to_owned() },
            calls: 1,
            stall_ns: ms * MS,
            by_ns: if by.is_empty() { 0 } else { ms * MS / 2 },
            worst_ns: ms * MS,
            hanging: 0,
        }
    }

    pub(crate) fn view() -> View {
        let rows = vec![
            row("postgresql.service", "postgres", "vda", "dd", 300),
            row("postgresql.service", "postgres", "vda", "dd", 40),
            row("postgresql.service", "vacuum", "vdb", "cp", 90),
            row("/web", "nginx", "", "", 7),
        ];
        let mut view = View::new("a test".to_owned());
        view.take(Ok(Now { version: 1, calls_seen: true, threshold_ns: 5 * MS, rows, ..Now::default() }));
        view
    }

    #[test]
    fn rows_are_grouped_and_the_most_stall_time_comes_first() {
        let view = view();
        let lines = view.lines();
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].key.as_str(), lines[0].calls, lines[0].stall_ns), ("postgresql.service", 3, 430 * MS));
        assert_eq!((lines[0].worst_ns, lines[0].by.as_str()), (300 * MS, "dd"));
        assert_eq!(lines[1].by, "", "no aggressor was observed");
    }

    #[test]
    fn filters_are_added_and_removed_step_by_step() {
        let mut view = view();
        view.narrow();
        view.group_by(Group::Device);
        assert_eq!(view.lines().iter().map(|line| line.key.clone()).collect::<Vec<_>>(), ["vda", "vdb"]);
        view.select(1);
        view.narrow();
        assert_eq!(view.total(), (1, 90 * MS));
        view.widen();
        view.widen();
        assert_eq!(view.total().0, 4);
        view.widen();
    }

    #[test]
    fn aggressors_are_listed_with_their_victims() {
        let all = view().aggressors();
        assert_eq!((all[0].program.as_str(), all[0].ns), ("dd", 170 * MS));
        assert_eq!(all[1].victims, ["vacuum"]);
    }

    #[test]
    fn a_frozen_table_stays_and_an_error_does_not_empty_it() {
        let mut view = view();
        view.freeze();
        view.take(Ok(Now::default()));
        assert_eq!(view.total().0, 4);
        view.freeze();
        view.take(Err(SourceError::Refused { status: 500, answer: "the daemon \u{1b}[2J is gone".to_owned() }));
        assert_eq!(view.total().0, 4, "the last table");
        assert!(view.trouble.contains("is gone") && !view.trouble.contains('\u{1b}'));
    }
}

//! The result as text, JSON and a page.

use std::fmt::Write;

use flatwater_recording::ControllerName;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_report::html::{PlainPage, PlainTable, plain_page};
use serde::Serialize;

use super::mechanism::{Found, Mechanism};
use super::place::Place;
use super::plan::{Load, Operation, RATE_MAX, Relation};
use super::statistic::Comparison;
use super::verdict::Verdict;
use super::work::Total;

/// What the probe is about to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanText {
    /// The victim's directory.
    pub place: Option<Place>,
    pub cgroup: Option<String>,
    pub victim_bytes: u64,
    pub seconds_max: u64,
    pub seed: u64,
    /// Whether the machine's limits of dirty pages are lowered.
    pub applied: bool,
    pub neighbours: Vec<SeatText>,
    pub notes: Vec<String>,
}

/// Where a neighbour runs, and its limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeatText {
    #[serde(rename = "where")]
    pub relation: Relation,
    pub path: String,
    pub dirty_bytes_max: u64,
    pub cache_bytes_max: u64,
    /// The most under writeback; absent: the kernel starts the writeback, because the limit of dirty pages is reached.
    pub in_flight_bytes: Option<u64>,
    /// Absent: its cgroup has no memory limit.
    pub memory_limit_bytes: Option<u64>,
    /// The controllers whose limits cannot separate it from the victim.
    pub shared_controllers: Vec<ControllerName>,
}

/// The verdict on one pair of a call and a neighbour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairResult {
    pub operation: Operation,
    #[serde(rename = "neighbour")]
    pub load: Load,
    #[serde(rename = "where")]
    pub relation: Relation,
    /// The neighbour's directory.
    pub place: String,
    pub verdict: Verdict,
    /// Why it is not proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Absent if there were too few calls.
    #[serde(flatten)]
    pub found: Option<Comparison>,
    /// Absent if the calls did not become slower, or are isolated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Found>,
    /// What the neighbour did.
    pub work: Total,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    flatwater: u32,
    kind: &'static str,
    pub verdict: Verdict,
    pub plan: PlanText,
    pub pairs: Vec<PairResult>,
    pub notes: Vec<String>,
}

impl Report {
    #[must_use]
    pub fn new(plan: PlanText, pairs: Vec<PairResult>, verdict: Verdict, notes: Vec<String>) -> Report {
        Report { flatwater: 1, kind: "probe", verdict, plan, pairs, notes }
    }

    /// # Errors
    /// Never for numbers and strings.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// The matrix, then a line for each pair that is not isolated.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for seat in &self.plan.neighbours {
            let table = self.matrix(seat);
            let _ = writeln!(text, "beside a neighbour: {}", table.title);
            lay_out(&mut text, &[table.head].into_iter().chain(table.rows).collect::<Vec<_>>());
            text.push('\n');
        }
        let details = self.details();
        if !details.rows.is_empty() {
            lay_out(&mut text, &[details.head].into_iter().chain(details.rows).collect::<Vec<_>>());
            text.push('\n');
        }
        for reason in self.reasons() {
            let _ = writeln!(text, "not proven: {reason}");
        }
        for note in self.plan.notes.iter().chain(&self.notes) {
            let _ = writeln!(text, "note: {note}");
        }
        let _ = writeln!(text, "verdict: {}", self.verdict.text());
        text
    }

    #[must_use]
    pub fn page(&self) -> String {
        let mut notes = vec![format!("Verdict: {}.", self.verdict.text())];
        notes.extend(self.plan.lines());
        notes.extend(self.reasons().into_iter().map(|reason| format!("Not proven: {reason}")));
        notes.extend(self.plan.notes.iter().chain(&self.notes).cloned());
        let mut tables: Vec<PlainTable> = self.plan.neighbours.iter().map(|seat| self.matrix(seat)).collect();
        tables.push(self.details());
        let title = format!("What a neighbour can do to {}", self.plan.directory());
        plain_page(&PlainPage { brand: "probe", title, subject: self.plan.subject(), notes, tables })
    }

    /// Verdicts by load and operation for one seat.
    fn matrix(&self, seat: &SeatText) -> PlainTable {
        let head =
            [String::new()].into_iter().chain(Operation::ALL.iter().map(|operation| operation.text().to_owned()));
        let mut rows = Vec::new();
        for load in Load::ALL.iter().filter(|load| self.pairs.iter().any(|pair| pair.load == **load)) {
            let of = |operation: &Operation| {
                self.pairs.iter().find(|pair| {
                    (pair.relation, pair.load, pair.operation) == (seat.relation, *load, *operation)
                        && pair.place == seat.path
                })
            };
            let label = Operation::ALL.iter().find_map(of).map_or(load.text().to_owned(), PairResult::label);
            let cells = Operation::ALL.iter().map(|operation| of(operation).map_or("-".to_owned(), PairResult::cell));
            rows.push([label].into_iter().chain(cells).collect());
        }
        PlainTable { title: format!("{} ({})", seat.relation.text(), seat.path), head: head.collect(), rows }
    }

    /// The pairs whose calls became slower, worst first.
    fn details(&self) -> PlainTable {
        let mut harmed: Vec<&PairResult> = self.pairs.iter().filter(|pair| pair.mechanism.is_some()).collect();
        let value =
            |pair: &PairResult| pair.found.as_ref().and_then(|found| found.ratio).map_or(0.0, |ratio| ratio.value);
        harmed.sort_short_by(|one, other| value(other).total_cmp(&value(one)));
        let head = ["call", "beside", "where", "verdict", "latency", "alone", "beside it", "mechanism"]
            .map(str::to_owned)
            .to_vec();
        let rows = harmed.iter().map(|pair| pair.row()).collect();
        PlainTable { title: "Calls that became slower".to_owned(), head, rows }
    }

    /// Each reason for "not proven" once, with the number of pairs.
    fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for pair in &self.pairs {
            let Some(why) = &pair.why else { continue };
            let name = format!("{} beside {}", pair.operation.text(), pair.load.text());
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, names)) if names.contains(&name) => {}
                Some((_, names)) => names.push(name),
                None => reasons.push((why, vec![name])),
            }
        }
        reasons.into_iter().map(|(why, names)| format!("{}: {why}", names.join(", "))).collect()
    }
}

impl PairResult {
    /// `dirty stream, 40 MiB/s`.
    fn label(&self) -> String {
        let rate = match self.load {
            _ if self.work.phases == 0 => "did not run".to_owned(),
            Load::Dirty | Load::Cache => format!("{}/s", Bytes(self.work.bytes_per_s)),
            Load::Fsync | Load::SmallFiles => format!("{:.0}/s", self.work.operations_per_s),
        };
        format!("{}, {rate}", self.load.text())
    }

    /// `severe 31x (16-62)`.
    fn cell(&self) -> String {
        match self.found.as_ref().and_then(|found| found.ratio) {
            Some(ratio) => {
                let interval = format!("{}-{}", rounded(ratio.low), rounded(ratio.high));
                format!("{} {}x ({interval})", self.verdict.text(), rounded(ratio.value))
            }
            None => self.verdict.text().to_owned(),
        }
    }

    fn row(&self) -> Vec<String> {
        let found = self.found.as_ref();
        let time = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| Nanos(ns).to_string());
        let quantile = found.map_or("-".to_owned(), |found| format!("p{:.0}", found.quantile * 100.0));
        let ratio = found.and_then(|found| found.ratio).map_or(String::new(), |ratio| {
            format!(" {} ({} to {})", times(ratio.value), times(ratio.low), times(ratio.high))
        });
        vec![
            self.operation.text().to_owned(),
            self.load.text().to_owned(),
            self.relation.text().to_owned(),
            self.verdict.text().to_owned(),
            quantile + &ratio,
            time(found.map(|found| found.alone_ns)),
            time(found.map(|found| found.beside_ns)),
            self.mechanism.as_ref().map_or(String::new(), Found::text),
        ]
    }
}

impl Found {
    fn text(&self) -> String {
        match (self.name, self.share) {
            (Mechanism::CannotTell, _) | (_, None) => self.name.text().to_owned(),
            (name, Some(share)) => format!("{} ({:.0} % of the added time)", name.text(), share * 100.0),
        }
    }
}

fn times(ratio: f64) -> String {
    rounded(ratio) + "x"
}

fn rounded(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}

impl PlanText {
    fn directory(&self) -> String {
        self.place.as_ref().map(|place| place.path.display().to_string()).unwrap_or_default()
    }

    fn subject(&self) -> String {
        let Some(place) = &self.place else { return String::new() };
        let device = place.device.as_ref().map_or("no device".to_owned(), |device| format!("device {device}"));
        let cgroup = self.cgroup.as_ref().map_or(String::new(), |cgroup| format!(", in cgroup {cgroup}"));
        format!("{} on {device}{cgroup}", place.file_system)
    }

    /// The plan and its limits.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("probe {}: {}; at most {} s", self.directory(), self.subject(), self.seconds_max),
            format!(
                "own files: {}; each neighbour moves at most {}/s and ends with the probe",
                Bytes(self.victim_bytes),
                Bytes(RATE_MAX)
            ),
        ];
        for seat in &self.neighbours {
            lines.push(format!(
                "neighbour: {} ({}), writes at most {} at a time, reads a file of at most {}",
                seat.relation.text(),
                seat.path,
                Bytes(seat.dirty_bytes_max),
                Bytes(seat.cache_bytes_max)
            ));
        }
        if self.applied {
            lines.push("the machine's limits of dirty pages are lowered until the end (--apply)".to_owned());
        }
        lines
    }
}

/// Aligns the columns of a table.
fn lay_out(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| wide(column).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::from(" ");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, " {cell:<width$} ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use flatwater_experiment::verdict::Ratio;

    use super::{PairResult, PlanText, Report, SeatText};
    use crate::mechanism::{Found, Mechanism};
    use crate::plan::{Load, Operation, Relation};
    use crate::statistic::Comparison;
    use crate::verdict::Verdict;
    use crate::work::{Total, Work};

    fn pair(verdict: Verdict, value: f64, mechanism: Option<Mechanism>) -> PairResult {
        PairResult {
            operation: Operation::Fsync,
            load: Load::Dirty,
            relation: Relation::SameFileSystem,
            place: "/data".to_owned(),
            verdict,
            why: (verdict == Verdict::NotProven).then(|| "too noisy".to_owned()),
            found: Some(Comparison {
                quantile: 0.95,
                tail_ns: [3_000_000, 9_000_000],
                longest_ns: [4_000_000, 11_000_000],
                alone_ns: 2_000_000,
                beside_ns: (2e6 * value) as u64,
                ratio: Some(Ratio { value, low: value / 2.0, high: value * 2.0 }),
                rounds: 5,
                alone_calls: 400,
                beside_calls: 300,
            }),
            mechanism: mechanism.map(|name| Found { name, share: Some(0.8), neighbour_share: Some(0.7) }),
            work: Total::of(&[Work { ns: 1_000_000_000, bytes: 40 << 20, ..Work::default() }]),
        }
    }

    fn report(pairs: Vec<PairResult>) -> Report {
        let seat = SeatText {
            relation: Relation::SameFileSystem,
            path: "/data".to_owned(),
            dirty_bytes_max: 1 << 28,
            cache_bytes_max: 1 << 26,
            in_flight_bytes: Some(1 << 25),
            memory_limit_bytes: None,
            shared_controllers: Vec::new(),
        };
        let plan = PlanText {
            place: None,
            cgroup: None,
            victim_bytes: 10 << 20,
            seconds_max: 55,
            seed: 1,
            applied: false,
            neighbours: vec![seat],
            notes: vec!["not measured: X".to_owned()],
        };
        let verdict = crate::verdict::overall(pairs.iter().map(|pair| pair.verdict));
        Report::new(plan, pairs, verdict, Vec::new())
    }

    #[test]
    fn text_names_verdict_ratio_interval_and_mechanism() {
        let text = report(vec![pair(Verdict::Severe, 31.0, Some(Mechanism::SharedJournal))]).text();
        for part in [
            "dirty stream, 40 MiB/s",
            "severe 31x (16-62)",
            "p95 31x (16x to 62x)",
            "shared journal (80 % of the added time)",
            "note: not measured",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(text.ends_with("verdict: severe\n"), "{text}");
    }

    #[test]
    fn a_reason_is_printed_once() {
        let pairs = vec![pair(Verdict::NotProven, 1.5, None), pair(Verdict::NotProven, 1.4, None)];
        assert_eq!(report(pairs).text().matches("too noisy").count(), 1);
    }

    #[test]
    fn json_and_page_contain_the_pairs() {
        let report = report(vec![pair(Verdict::Degraded, 3.0, Some(Mechanism::CannotTell))]);
        let json: serde_json::Value = serde_json::from_str(&report.json().expect("numbers")).expect("JSON");
        assert_eq!(json["kind"], "probe");
        assert_eq!(json["pairs"][0]["neighbour"], "dirty-stream");
        assert_eq!(json["pairs"][0]["mechanism"]["name"], "cannot-tell");
        assert_eq!(json["pairs"][0]["ratio"]["value"], 3.0);
        assert!(report.page().contains("cannot tell"));
    }
}

//! Two recordings side by side: latency by operation, time lost by cause, counters, settings; each difference with
//! its interval and a verdict.
//!
//! The verdict of the whole is that of one figure, chosen beforehand, at the 95 % level. The rows of a table share
//! those 5 % (Bonferroni), so that a table of fifty rows has no more false alarms than the verdict.

use std::collections::BTreeSet;

use serde::Serialize;

use super::bootstrap::{Mean, Windowed, difference, estimate};
use super::judge::{Judge, Latencies, lost_to, main_operation, operations};
use super::verdict::{Ratio, Verdict};
use flatwater_recording::{Cause, ColumnKind, OpKind, Recording, Table};

/// How sure the verdict is.
pub const LEVEL: f64 = 0.95;

/// Counters that differ most; a table of all of them would tell nobody anything.
const COUNTERS_SHOWN: usize = 12;

/// `docs/json.md` publishes its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub flatwater: u32,
    pub kind: &'static str,
    /// That of `judged`.
    pub verdict: Verdict,
    pub level: f64,
    /// The figure that the verdict rests on; absent if one side has nothing to compute it from.
    pub judged: Option<Row>,
    pub operations: Vec<Row>,
    pub causes: Vec<Row>,
    pub counters: Vec<Row>,
    pub settings: Vec<SettingRow>,
    /// What stands in the way of comparing at all.
    pub notes: Vec<String>,
}

/// One figure on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `write p99.9`, `memcg-reclaim`, `pgscan_direct`.
    pub name: String,
    pub unit: &'static str,
    pub a: f64,
    pub b: f64,
    /// B / A; absent where too little was seen to tell an interval.
    pub ratio: Option<Ratio>,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingRow {
    pub key: String,
    pub a: Option<String>,
    pub b: Option<String>,
}

/// A and B at the verdict's level; lower is better unless said otherwise.
struct Pair<'a> {
    name: String,
    unit: &'static str,
    lower_is_better: bool,
    a: &'a dyn Windowed,
    b: &'a dyn Windowed,
    /// The figures in their unit.
    shown: (f64, f64),
}

impl Pair<'_> {
    fn row(self, level: f64) -> Row {
        let both = estimate(self.a, 1).zip(estimate(self.b, 2));
        let found = both.map(|(a, b)| difference(&a, &b, level));
        Row {
            name: self.name,
            unit: self.unit,
            a: self.shown.0,
            b: self.shown.1,
            ratio: found.as_ref().map(Ratio::of),
            verdict: found.map_or(Verdict::NotProven, |found| Verdict::of(&found, self.lower_is_better)),
        }
    }
}

/// Compares B with A: "better" means that B is.
#[must_use]
pub fn compare(a: &Recording, b: &Recording, judge: Judge) -> Comparison {
    let op = main_operation(a).or_else(|| main_operation(b));
    let judged = match judge {
        Judge::Cause(cause) => Some(cause_row(a, b, cause, LEVEL)),
        judge => op.and_then(|op| operation_row(a, b, op, judge, LEVEL)),
    };
    // The kernel keeps max_bytes as a ratio and tells it from free memory: it differs at every reading.
    let differing = a.header.setup.difference(&b.header.setup).into_iter().filter(|(key, ..)| *key != "bdi.max_bytes");
    let text = |value: Option<&str>| value.map(str::to_owned);
    Comparison {
        flatwater: 1,
        kind: "comparison",
        verdict: judged.as_ref().map_or(Verdict::NotProven, |row| row.verdict),
        level: LEVEL,
        operations: operation_rows(a, b),
        causes: cause_rows(a, b),
        counters: counter_rows(a, b),
        settings: differing.map(|(key, a, b)| SettingRow { key: key.to_owned(), a: text(a), b: text(b) }).collect(),
        notes: notes(a, b, judged.as_ref()),
        judged,
    }
}

fn notes(a: &Recording, b: &Recording, judged: Option<&Row>) -> Vec<String> {
    let mut notes = Vec::new();
    if a.header.source != b.header.source {
        let (a, b) = (a.header.source.name(), b.header.source.name());
        notes.push(format!("A is from {a}, B from {b}: their latencies are not of one kind"));
    }
    if a.header.time_distorted || b.header.time_distorted {
        notes.push("time was distorted by emulation: compare counters, not latencies".to_owned());
    }
    if judged.is_none_or(|row| row.ratio.is_none()) {
        notes.push("too little was seen for an interval: record at least six seconds of each".to_owned());
    }
    if a.header.scenario != b.header.scenario {
        notes.push("these are recordings of different scenarios".to_owned());
    }
    notes
}

fn operation_row(a: &Recording, b: &Recording, op: OpKind, judge: Judge, level: f64) -> Option<Row> {
    let (left, right) = (Latencies::of(a, op, 0), Latencies::of(b, op, 0));
    let shown = (left.whole(judge)?, right.whole(judge)?);
    let (a, b) = (left.windowed(judge), right.windowed(judge));
    let name = format!("{} {}", op.name(), judge.name());
    let pair = Pair { name, unit: judge.unit(), lower_is_better: judge.lower_is_better(), a: &*a, b: &*b, shown };
    Some(pair.row(level))
}

fn operation_rows(a: &Recording, b: &Recording) -> Vec<Row> {
    let in_b: BTreeSet<OpKind> = operations(b).into_iter().collect();
    let both: Vec<OpKind> = operations(a).into_iter().filter(|op| in_b.contains(op)).collect();
    let level = 1.0 - (1.0 - LEVEL) / (both.len() * Judge::ALL.len()).max(1) as f64;
    let pairs = both.iter().flat_map(|&op| Judge::ALL.iter().map(move |&judge| (op, judge)));
    pairs.filter_map(|(op, judge)| operation_row(a, b, op, judge, level)).collect()
}

fn average(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Below this (ns a second, or events a second) a rate is nothing, and a ratio to nothing says nothing.
fn rate_row(name: String, unit: &'static str, floor: fn(f64) -> f64, a: Vec<f64>, b: Vec<f64>, level: f64) -> Row {
    let shown = (average(&a), average(&b));
    let (a, b) = (Mean { values: a, shown_as: floor }, Mean { values: b, shown_as: floor });
    Pair { name, unit, lower_is_better: true, a: &a, b: &b, shown }.row(level)
}

fn cause_row(a: &Recording, b: &Recording, cause: Cause, level: f64) -> Row {
    let (a, b) = (lost_to(a, cause, 0), lost_to(b, cause, 0));
    let shown = (average(&a.values), average(&b.values));
    Pair { name: cause.name().to_owned(), unit: "ns/s", lower_is_better: true, a: &a, b: &b, shown }.row(level)
}

fn cause_rows(a: &Recording, b: &Recording) -> Vec<Row> {
    let of = |recording: &Recording| -> BTreeSet<Cause> {
        recording.foreground_calls().flat_map(|call| call.segments.iter().map(|segment| segment.cause)).collect()
    };
    let causes: BTreeSet<Cause> = of(a).union(&of(b)).copied().collect();
    let level = 1.0 - (1.0 - LEVEL) / causes.len().max(1) as f64;
    let row = |cause: Cause| cause_row(a, b, cause, level);
    let mut rows: Vec<Row> = causes.into_iter().map(row).collect();
    rows.sort_by(|x, y| (y.a.max(y.b)).total_cmp(&x.a.max(x.b)));
    rows
}

fn counter_rates(recording: &Recording, column: &str) -> Vec<f64> {
    let Some((_, rows)) = recording.table(Table::Vmstat).and_then(|series| series.by_entity().next()) else {
        return Vec::new();
    };
    rows.rates_per_s(column).map(|(_, _, rate)| rate).collect()
}

fn counter_rows(a: &Recording, b: &Recording) -> Vec<Row> {
    let counters = |recording: &Recording| -> BTreeSet<String> {
        let columns = recording.table(Table::Vmstat).map(|series| series.columns.as_slice()).unwrap_or_default();
        columns.iter().filter(|one| one.kind == ColumnKind::Counter).map(|one| one.name.clone()).collect()
    };
    let both: Vec<String> = counters(a).intersection(&counters(b)).cloned().collect();
    let rates = both.into_iter().map(|name| {
        let (a, b) = (counter_rates(a, &name), counter_rates(b, &name));
        (name, a, b)
    });
    // Neither side had any, or hardly any: nothing to compare, and nothing to spend the level on.
    let active: Vec<_> = rates.filter(|(_, a, b)| average(a).max(average(b)) >= 1.0).collect();
    let level = 1.0 - (1.0 - LEVEL) / active.len().max(1) as f64;
    let row = |(name, a, b): (String, Vec<f64>, Vec<f64>)| rate_row(name, "1/s", |mean| (mean + 1.0).ln(), a, b, level);
    let mut rows: Vec<Row> = active.into_iter().map(row).filter(|row| row.verdict != Verdict::NotProven).collect();
    let distance = |row: &Row| row.ratio.map_or(0.0, |ratio| ratio.value.ln().abs());
    rows.sort_by(|x, y| distance(y).total_cmp(&distance(x)));
    rows.truncate(COUNTERS_SHOWN);
    rows
}

#[cfg(test)]
mod tests {
    use super::compare;
    use crate::judge::Judge;
    use crate::verdict::Verdict;
    use flatwater_explain::testing::Made;
    use flatwater_recording::OpKind;

    /// A minute of writes in windows of a second, each with its own few slow ones.
    fn minute(slow_ns: u64, setting: &str) -> flatwater_recording::Recording {
        let mut made = Made::new();
        for second in 0..60_u64 {
            let mut calls = vec![2_000 + second % 7; 200];
            calls.extend((0..1 + second % 3).map(|call| slow_ns + 100_000 * (second * 37 % 11 + call)));
            made = made.bucket("", OpKind::Write, &calls);
        }
        made.edit(|recording| {
            recording.header.duration_ns = 60_000_000_000;
            recording.header.clock.start_ns = recording.latency[0].start_ns;
            for (second, bucket) in recording.latency.iter_mut().enumerate() {
                bucket.start_ns = recording.header.clock.start_ns + second as u64 * 1_000_000_000;
                bucket.width_ns = 1_000_000_000;
            }
            recording.header.setup.observe("vm.swappiness", setting);
        })
        .done()
    }

    #[test]
    fn a_clear_difference_is_better_one_way_and_worse_the_other() {
        let (slow, fast) = (minute(40_000_000, "60"), minute(3_000_000, "10"));
        let there = compare(&slow, &fast, Judge::P999);
        assert_eq!(there.verdict, Verdict::Better, "{:?}", there.judged);
        assert_eq!(compare(&fast, &slow, Judge::P999).verdict, Verdict::Worse);
        assert_eq!(compare(&slow, &slow, Judge::P999).verdict, Verdict::NotProven);
        assert_eq!(there.settings.len(), 1);
        assert!(there.operations.iter().any(|row| row.name == "write p50" && row.verdict == Verdict::NotProven));
    }

    #[test]
    fn an_empty_recording_is_compared_without_a_verdict() {
        let nothing = Made::new().done();
        let comparison = compare(&nothing, &minute(3_000_000, "60"), Judge::Lost);
        assert_eq!(comparison.verdict, Verdict::NotProven);
        assert!(!comparison.notes.is_empty());
    }
}

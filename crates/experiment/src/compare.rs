//! Compares two recordings: latency by operation, stall time by cause, counters and settings, each difference with an
//! interval and a verdict.
//!
//! The verdict of the comparison is that of one figure, chosen beforehand, at the 95 % level. The rows of a table share
//! the 5 % (Bonferroni), so that a table of fifty rows has no more false alarms than the verdict.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::bootstrap::{difference, estimate};
use super::figure::Figure;
use super::judge::{Judge, Latencies, Stalls, main_operation, operations, stalls};
use super::verdict::{Ratio, Verdict};
use super::windowed::{Mean, Windowed};
use crate::work;
use flatwater_recording::schema::{Column, vmstat};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Cause, ColumnKind, OpKind, Recording, Rows, Setup, Table};

/// Confidence level of the verdict.
pub const LEVEL: f64 = 0.95;

/// Counters in the table: the ones that differ most.
const COUNTERS_SHOWN: usize = 12;

/// The result of `compare`. `docs/json.md` documents its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub flatwater: u32,
    pub kind: &'static str,
    /// The verdict of `judged`.
    pub verdict: Verdict,
    pub level: f64,
    /// The figure that decides the verdict; absent if it cannot be computed on one side.
    pub judged: Option<Row>,
    pub operations: Vec<Row>,
    pub causes: Vec<Row>,
    pub counters: Vec<Row>,
    pub settings: Vec<SettingRow>,
    /// Reasons why the comparison may not be valid.
    pub notes: Vec<String>,
}

/// One figure on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Such as `write p99.9`, `memcg-reclaim` or `pgscan_direct`.
    pub name: String,
    pub unit: &'static str,
    pub a: f64,
    pub b: f64,
    /// B / A; absent if there is too little data for an interval.
    pub ratio: Option<Ratio>,
    /// Better or worse, for figures of which one direction is better.
    pub verdict: Verdict,
    /// Whether the difference is proven, also where no direction is better.
    pub differs: bool,
}

/// Which direction of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Lower,
    Higher,
    /// Rises with the work that is done: pgfree, nr_dirtied.
    Neither,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingRow {
    pub key: String,
    pub a: Option<String>,
    pub b: Option<String>,
}

/// One figure of A and B to compare.
struct Pair<'a> {
    name: String,
    unit: &'static str,
    direction: Direction,
    a: &'a dyn Windowed,
    b: &'a dyn Windowed,
    /// The figures of A and B in `unit`.
    shown: (f64, f64),
}

impl Pair<'_> {
    fn row(self, level: f64) -> Row {
        let [a, b] = work::on_both(|| estimate(self.a, 1), || estimate(self.b, 2));
        let both = a.zip(b);
        let found = both.map(|(a, b)| difference(&a, &b, level));
        let verdict = |lower| found.as_ref().map_or(Verdict::NotProven, |found| Verdict::of(found, lower));
        let differs = verdict(true) != Verdict::NotProven;
        Row {
            name: self.name,
            unit: self.unit,
            a: self.shown.0,
            b: self.shown.1,
            ratio: found.as_ref().map(Ratio::of),
            verdict: match self.direction {
                Direction::Lower => verdict(true),
                Direction::Higher => verdict(false),
                Direction::Neither => Verdict::NotProven,
            },
            differs,
        }
    }
}

/// Compares B with A: "better" means that B is better.
#[must_use]
pub fn compare(a: &Recording, b: &Recording, figure: impl Into<Figure>) -> Comparison {
    let Figure { operation, judge } = figure.into();
    let op = operation.or_else(|| main_operation(&[a, b]));
    let lost = [stalls(a, 0), stalls(b, 0)];
    // Computed once: adding up a day's histograms takes seconds.
    let main = op.map(|op| (op, both_latencies(a, b, op)));
    let judged = match judge {
        Judge::Cause(cause) => Some(cause_row(&lost, cause, LEVEL)),
        judge => main.as_ref().and_then(|(op, latencies)| operation_row(*op, latencies, judge, LEVEL)),
    };
    Comparison {
        flatwater: 1,
        kind: "comparison",
        verdict: judged.as_ref().map_or(Verdict::NotProven, |row| row.verdict),
        level: LEVEL,
        operations: operation_rows(a, b, main),
        causes: cause_rows(&lost),
        counters: counter_rows(a, b),
        settings: setting_rows(&a.header.setup, &b.header.setup),
        notes: notes(a, b, judged.as_ref()),
        judged,
    }
}

/// Settings that differ; none if one side has no settings at all, because then nothing is known about the others.
fn setting_rows(a: &Setup, b: &Setup) -> Vec<SettingRow> {
    if a.is_empty() || b.is_empty() {
        return Vec::new();
    }
    // The kernel stores max_bytes as a ratio and computes the bytes from the memory that is free at each reading, so
    // they always differ.
    let differing = a.difference(b).into_iter().filter(|(key, ..)| *key != "bdi.max_bytes");
    let text = |value: Option<&str>| value.map(str::to_owned);
    differing.map(|(key, a, b)| SettingRow { key: key.to_owned(), a: text(a), b: text(b) }).collect()
}

fn notes(a: &Recording, b: &Recording, judged: Option<&Row>) -> Vec<String> {
    let mut notes = Vec::new();
    if a.header.source != b.header.source {
        let (a, b) = (a.header.source.name(), b.header.source.name());
        notes.push(format!("A is from {a}, B from {b}: their latencies cannot be compared directly"));
    }
    if a.header.time_distorted || b.header.time_distorted {
        notes.push("time was distorted by emulation: compare counters, not latencies".to_owned());
    }
    if judged.is_none_or(|row| row.ratio.is_none()) {
        notes.push("too little data for an interval: record at least six seconds of each".to_owned());
    }
    for (name, of, other) in [("A", a, b), ("B", b, a)] {
        if of.header.setup.is_empty() && !other.header.setup.is_empty() {
            notes.push(format!("the settings of {name} were not recorded, so that changed settings are not known"));
        }
    }
    if a.header.scenario != b.header.scenario {
        notes.push("these are recordings of different scenarios".to_owned());
    }
    notes
}

fn both_latencies(a: &Recording, b: &Recording, op: OpKind) -> [Latencies; 2] {
    work::on_both(|| Latencies::of(a, op, 0), || Latencies::of(b, op, 0))
}

fn operation_row(op: OpKind, [left, right]: &[Latencies; 2], judge: Judge, level: f64) -> Option<Row> {
    let shown = (left.whole(judge)?, right.whole(judge)?);
    let (a, b) = (left.windowed(judge), right.windowed(judge));
    let name = format!("{} {}", op.name(), judge.name());
    let direction = if judge.lower_is_better() { Direction::Lower } else { Direction::Higher };
    let pair = Pair { name, unit: judge.unit(), direction, a: &*a, b: &*b, shown };
    Some(pair.row(level))
}

fn operation_rows(a: &Recording, b: &Recording, mut main: Option<(OpKind, [Latencies; 2])>) -> Vec<Row> {
    let in_b: BTreeSet<OpKind> = operations(b).into_iter().collect();
    let both: Vec<OpKind> = operations(a).into_iter().filter(|op| in_b.contains(op)).collect();
    let level = 1.0 - (1.0 - LEVEL) / (both.len() * Judge::ALL.len()).max(1) as f64;
    let mut rows = Vec::new();
    for op in both {
        let taken = main.take_if(|(of, _)| *of == op).map(|(_, latencies)| latencies);
        let latencies = taken.unwrap_or_else(|| both_latencies(a, b, op));
        rows.extend(Judge::ALL.iter().filter_map(|&judge| operation_row(op, &latencies, judge, level)));
    }
    rows
}

/// A row for two means.
fn mean_row(name: &str, unit: &'static str, direction: Direction, [a, b]: &[Mean; 2], level: f64) -> Row {
    let shown = (a.plain().unwrap_or(0.0), b.plain().unwrap_or(0.0));
    Pair { name: name.to_owned(), unit, direction, a, b, shown }.row(level)
}

/// Counters of /proc/vmstat that count waits, failures or repeated work: fewer are better for any workload. The others
/// rise with the work that is done.
const FEWER_IS_BETTER: &[Column] = &[
    vmstat::ALLOCSTALL,
    vmstat::BALLOON_INFLATE,
    vmstat::COMPACT_FAIL,
    vmstat::COMPACT_STALL,
    vmstat::KSWAPD_HIGH_WMARK_HIT_QUICKLY,
    vmstat::KSWAPD_LOW_WMARK_HIT_QUICKLY,
    vmstat::NUMA_FOREIGN,
    vmstat::NUMA_MISS,
    vmstat::OOM_KILL,
    vmstat::PAGEOUTRUN,
    vmstat::PGMAJFAULT,
    vmstat::PGSCAN_DIRECT,
    vmstat::PGSCAN_DIRECT_THROTTLE,
    vmstat::PGSTEAL_DIRECT,
    vmstat::PSWPIN,
    vmstat::PSWPOUT,
    vmstat::THP_FAULT_FALLBACK,
    vmstat::THP_SPLIT_PAGE_FAILED,
    vmstat::WORKINGSET_REFAULT_ANON,
    vmstat::WORKINGSET_REFAULT_FILE,
    vmstat::ZONE_RECLAIM_FAILED,
];

/// Older kernels count by zone: `allocstall_normal`, `pgscan_direct_dma32`.
const ZONES: [&str; 6] = ["_dma", "_dma32", "_normal", "_high", "_movable", "_device"];

fn direction_of(counter: &str) -> Direction {
    let whole = ZONES.iter().find_map(|zone| counter.strip_suffix(zone)).unwrap_or(counter);
    if FEWER_IS_BETTER.iter().any(|column| column.name == counter || column.name == whole) {
        Direction::Lower
    } else {
        Direction::Neither
    }
}

fn cause_row(lost: &[Stalls; 2], cause: Cause, level: f64) -> Row {
    mean_row(cause.name(), "ns/s", Direction::Lower, &lost.each_ref().map(|lost| lost.of(cause)), level)
}

fn cause_rows(lost: &[Stalls; 2]) -> Vec<Row> {
    let causes: BTreeSet<Cause> = lost.iter().flat_map(Stalls::causes).collect();
    let level = 1.0 - (1.0 - LEVEL) / causes.len().max(1) as f64;
    let mut rows: Vec<Row> = causes.into_iter().map(|cause| cause_row(lost, cause, level)).collect();
    rows.sort_short_by(|x, y| (y.a.max(y.b)).total_cmp(&x.a.max(x.b)));
    rows
}

/// Rises per second between the samples of each counter of /proc/vmstat.
fn counter_rates(recording: &Recording) -> BTreeMap<&str, Mean> {
    let Some((series, rows)) =
        recording.table(Table::Vmstat).and_then(|series| Some((series, series.by_entity().next()?.1)))
    else {
        return BTreeMap::new();
    };
    let counters = series.columns.iter().filter(|column| column.kind == ColumnKind::Counter);
    counters.map(|column| (column.name.as_str(), rates(rows, &column.name))).collect()
}

fn rates(rows: Rows<'_>, column: &str) -> Mean {
    let rates: Vec<f64> = rows.rates_per_s(column).map(|(_, _, rate)| rate).collect();
    work::add(rates.len());
    // One event per second is added, because a ratio to 0 means nothing.
    Mean::new(&rates, |mean| (mean + 1.0).ln())
}

fn counter_rows(a: &Recording, b: &Recording) -> Vec<Row> {
    let [a, mut b] = work::on_both(|| counter_rates(a), || counter_rates(b));
    let both = a.into_iter().filter_map(|(name, a)| Some((name, [a, b.remove(name)?])));
    // Counters that barely move on either side are left out, so that the others keep a larger share of the level.
    let is_active = |both: &[Mean; 2]| both.iter().any(|mean| mean.plain().is_some_and(|mean| mean >= 1.0));
    let active: Vec<_> = both.filter(|(_, both)| is_active(both)).collect();
    let level = 1.0 - (1.0 - LEVEL) / active.len().max(1) as f64;
    let rows = active.into_iter().map(|(name, both)| mean_row(name, "1/s", direction_of(name), &both, level));
    let mut rows: Vec<Row> = rows.filter(|row| row.differs).collect();
    let distance = |row: &Row| row.ratio.map_or(0.0, |ratio| ratio.value.ln().abs());
    rows.sort_short_by(|x, y| distance(y).total_cmp(&distance(x)));
    rows.truncate(COUNTERS_SHOWN);
    rows
}

#[cfg(test)]
mod tests {
    use super::compare;
    use crate::figure::Figure;
    use crate::judge::Judge;
    use crate::verdict::Verdict;
    use crate::work;
    use flatwater_explain::testing::RecordingBuilder;
    use flatwater_recording::{Cause, ColumnKind, Entity, Header, OpKind, Recording, Series, Setup, Table};

    /// A minute of writes in windows of a second, each with 1 to 3 slow calls.
    fn minute(slow_ns: u64, setting: &str) -> flatwater_recording::Recording {
        let mut builder = RecordingBuilder::new();
        for second in 0..60_u64 {
            let mut calls = vec![2_000 + second % 7; 200];
            calls.extend((0..1 + second % 3).map(|call| slow_ns + 100_000 * (second * 37 % 11 + call)));
            builder = builder.bucket("", OpKind::Write, &calls);
        }
        builder
            .edit(|recording| {
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
    fn swapping_the_sides_turns_better_into_worse() {
        let (slow, fast) = (minute(40_000_000, "60"), minute(3_000_000, "10"));
        let there = compare(&slow, &fast, Judge::P999);
        assert_eq!(there.verdict, Verdict::Better, "{:?}", there.judged);
        assert_eq!(compare(&fast, &slow, Judge::P999).verdict, Verdict::Worse);
        assert_eq!(compare(&slow, &slow, Judge::P999).verdict, Verdict::NotProven);
        assert_eq!(there.settings.len(), 1);
        assert!(there.operations.iter().any(|row| row.name == "write p50" && row.verdict == Verdict::NotProven));
    }

    /// `record` stored no settings: against a run 34 lines "- -> 20" were printed.
    #[test]
    fn settings_that_were_not_recorded_are_a_note_and_no_rows() {
        let (with, without) = (minute(3_000_000, "10"), minute(3_000_000, "10"));
        let without = Recording { header: Header { setup: Setup::default(), ..without.header.clone() }, ..without };
        let found = compare(&without, &with, Judge::P999);
        assert!(found.settings.is_empty(), "{:?}", found.settings);
        assert!(found.notes.iter().any(|note| note.contains("settings of A were not recorded")), "{:?}", found.notes);
        let both = compare(&without, &without, Judge::P999);
        assert!(both.notes.iter().all(|note| !note.contains("settings")), "{:?}", both.notes);
    }

    /// With a higher throughput pgfree rises: that was called "worse".
    #[test]
    fn counters_that_rise_with_the_work_are_neither_better_nor_worse() {
        let counted = |per_s: i64| {
            let mut recording = hours(1);
            let start_ns = recording.header.clock.start_ns;
            let mut vmstat = Series::new(Table::Vmstat);
            for second in 0..600 {
                let wobble = (second % 7) * per_s / 10;
                let counter = |name| (name, ColumnKind::Counter, Some(second * per_s + wobble));
                let values = [counter("pgfree"), counter("allocstall_normal"), counter("pgmajfault")];
                vmstat.push(start_ns + second as u64 * 1_000_000_000, &Entity::default(), &values);
            }
            recording.series = vec![vmstat];
            recording
        };
        let found = compare(&counted(1000), &counted(9000), Judge::P999);
        let verdict = |name| found.counters.iter().find(|row| row.name == name).map(|row| (row.differs, row.verdict));
        assert_eq!(verdict("pgfree"), Some((true, Verdict::NotProven)), "{:?}", found.counters);
        assert_eq!(verdict("allocstall_normal"), Some((true, Verdict::Worse)));
        assert_eq!(verdict("pgmajfault"), Some((true, Verdict::Worse)));
    }

    #[test]
    fn the_figure_of_one_operation_is_judged() {
        let recording = minute(3_000_000, "60");
        let judged = |text| compare(&recording, &recording, Figure::parse(text).expect(text)).judged;
        assert_eq!(judged("write.p99").map(|row| row.name).as_deref(), Some("write p99"));
        assert!(judged("fdatasync.p99").is_none(), "there was none");
    }

    #[test]
    fn an_empty_recording_gives_no_verdict() {
        let nothing = RecordingBuilder::new().done();
        let comparison = compare(&nothing, &minute(3_000_000, "60"), Judge::Lost);
        assert_eq!(comparison.verdict, Verdict::NotProven);
        assert!(!comparison.notes.is_empty());
    }

    /// A recording of this many hours: about 200 calls per second, slow ones in spells, and two counters per second.
    fn hours(hours: u64) -> Recording {
        let mut recording = minute(40_000_000, "60");
        let buckets = recording.latency.clone();
        let start_ns = recording.header.clock.start_ns;
        let seconds = 3600 * hours;
        recording.header.duration_ns = seconds * 1_000_000_000;
        recording.latency.clear();
        let mut vmstat = Series::new(Table::Vmstat);
        for second in 0..seconds {
            let at_ns = start_ns + second * 1_000_000_000;
            // The level wanders over hours, so that the autocorrelations reach over many lags.
            let pick = (second / 1800 + second % 7) as usize % buckets.len();
            let mut bucket = buckets[pick].clone();
            bucket.start_ns = at_ns;
            recording.latency.push(bucket);
            let counter = |name, value: u64| (name, ColumnKind::Counter, Some(value as i64));
            let values = [counter("pgscan_direct", second * second), counter("pgfault", 1000 * second)];
            vmstat.push(at_ns, &Entity::default(), &values);
        }
        recording.series = vec![vmstat];
        recording
    }

    /// Number of values touched by a comparison of a recording with itself.
    fn work_of(recording: &Recording) -> u64 {
        work::take();
        let found = compare(recording, recording, Judge::P999);
        assert!(found.judged.is_some_and(|row| row.ratio.is_some()));
        work::take()
    }

    #[test]
    fn the_work_of_a_comparison_is_linear_in_the_length_of_the_recordings() {
        let (one, seven, long) = (work_of(&hours(1)), work_of(&hours(7)), work_of(&hours(28)));
        println!("values touched: {one} for 1 h, {seven} for 7 h, {long} for 28 h");
        assert!(seven < 7 * one && long < 4 * seven && long < 28 * one, "{one}, {seven}, {long}");
        assert!(one > 100_000, "something was counted: {one}");
    }

    #[test]
    fn a_hostile_duration_in_the_header_costs_no_more_work() {
        let honest = hours(1);
        let mut hostile = honest.clone();
        hostile.header.duration_ns = u64::MAX;
        hostile.latency.iter_mut().for_each(|bucket| bucket.width_ns = 1);
        let (honest, hostile) = (work_of(&honest), work_of(&hostile));
        assert!(hostile < 2 * honest, "{honest}, {hostile}");
    }

    #[test]
    fn time_after_the_exit_of_a_call_is_compared_by_cause() {
        let slow =
            || RecordingBuilder::new().bucket("", OpKind::Write, &[2_000]).slow(OpKind::Write, &[(Cause::Lock, 3.0)]);
        let over_high = slow().edit(|recording| recording.calls[0].after_exit_ns = 80_000_000).done();
        let found = compare(&over_high, &slow().done(), Judge::Cause(Cause::MemcgOverHigh));
        let row = found.causes.iter().find(|row| row.name == "memcg-over-high").expect("the row");
        assert!(row.a > 0.0 && row.b == 0.0, "{row:?}");
        assert_eq!(found.judged.map(|row| row.a), Some(row.a));
    }
}

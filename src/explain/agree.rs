//! Agreement: how far two recordings of one scenario tell the same story, counter by counter.
//!
//! Both are laid over one grid of moments, as shares of the stretch that both cover. Counters are compared by their
//! rise since the start, levels as they are. The error is the sum of the differences over the sum of the
//! reference's values ("weighted"): a mean of each moment's percentage would divide by the zeros that every counter
//! begins with.

use serde::Serialize;

use super::explain;
use crate::recording::{ColumnKind, Entity, Recording, Table};

/// Moments of the grid. The samples are 10 a second and emulated seconds are uneven: more would compare noise.
const MOMENTS: usize = 20;
/// A counter that rose less than this, or a level that changed less than this share, stood still.
const RISE_MIN: f64 = 50.0;
const CHANGE_SHARE_MIN: f64 = 0.05;
/// The aim for what moves: mean and worst, percent.
pub const MEAN_PERCENT_AIM: f64 = 15.0;
pub const WORST_PERCENT_AIM: f64 = 40.0;

#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    /// Version of this shape.
    pub flatwater: u32,
    pub kind: &'static str,
    pub reference: Side,
    pub other: Side,
    pub metrics: Vec<Metric>,
    pub orderings: Vec<Ordering>,
    /// Empty where time is distorted on either side; `notes` says so.
    pub latencies: Vec<Latency>,
    /// Mean of the metrics' mean errors, over those that move in the reference; absent where none does.
    pub mean_percent: Option<f64>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Side {
    pub source: &'static str,
    pub kernel: Option<String>,
    pub duration_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Metric {
    pub name: String,
    pub unit: &'static str,
    /// At the grid's moments; a counter's rise since the first of them.
    pub reference: Vec<f64>,
    pub other: Vec<f64>,
    /// It moved in the reference, or in the other.
    pub moves: bool,
    /// Both rise, both fall, or both stand still.
    pub same_sign: bool,
    /// Sum of differences over the reference's sum; absent where the reference is all zero.
    pub mean_percent: Option<f64>,
    /// Largest difference over the reference's largest value.
    pub worst_percent: Option<f64>,
}

/// Which of two metrics is larger at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Ordering {
    pub larger_in_reference: String,
    pub smaller_in_reference: String,
    pub same: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    pub operation: String,
    pub figure: &'static str,
    pub reference_ns: u64,
    pub other_ns: u64,
    pub percent: Option<f64>,
}

/// How one metric is read: a sum over columns of a table, and over entities unless one is named.
struct Reading {
    name: String,
    unit: &'static str,
    table: Table,
    entity: Option<Entity>,
    columns: &'static [&'static str],
    kind: ColumnKind,
    scale: f64,
}

/// 6.x counts allocstall by zone, 2.6 in one line.
const ALLOCSTALL: &[&str] =
    &["allocstall", "allocstall_dma", "allocstall_dma32", "allocstall_normal", "allocstall_movable"];
const COUNTERS: [(&str, &[&str]); 7] = [
    ("pgscan_kswapd", &["pgscan_kswapd"]),
    ("pgscan_direct", &["pgscan_direct"]),
    ("pgsteal_kswapd", &["pgsteal_kswapd"]),
    ("pgsteal_direct", &["pgsteal_direct"]),
    ("kswapd_wakes", &["pageoutrun"]),
    ("allocstall", ALLOCSTALL),
    ("zone_reclaim_failed", &["zone_reclaim_failed"]),
];
const LEVELS: [&str; 4] = ["nr_dirty", "nr_writeback", "nr_file_pages", "nr_slab_reclaimable"];
const CACHES: [&str; 4] = ["ext4_inode_cache", "xfs_inode", "dentry", "buffer_head"];

fn readings(reference: &Recording) -> Vec<Reading> {
    let vmstat = |name: &str, columns, kind| Reading {
        name: name.to_owned(),
        unit: "pages",
        table: Table::Vmstat,
        entity: None,
        columns,
        kind,
        scale: 1.0,
    };
    let mut all = Vec::new();
    for entity in reference.table(Table::Nodes).map(|table| table.entities.clone()).unwrap_or_default() {
        let name = format!("free.node{}", entity.node.unwrap_or(0));
        // The page of every machine we run on; only the printed unit hangs on it, not the error.
        let free = vmstat(&name, &["MemFree_bytes"], ColumnKind::Gauge);
        all.push(Reading { table: Table::Nodes, entity: Some(entity), scale: 1.0 / 4096.0, ..free });
    }
    for name in ["numa_miss", "numa_foreign"] {
        let columns: &'static [&'static str] = if name == "numa_miss" { &["numa_miss"] } else { &["numa_foreign"] };
        all.push(Reading { table: Table::Nodes, ..vmstat(name, columns, ColumnKind::Counter) });
    }
    for (name, columns) in COUNTERS {
        let unit = if name.starts_with("pg") { "pages" } else { "times" };
        all.push(Reading { unit, ..vmstat(name, columns, ColumnKind::Counter) });
    }
    for (place, name) in LEVELS.iter().enumerate() {
        all.push(vmstat(name, &LEVELS[place..=place], ColumnKind::Gauge));
    }
    for cache in CACHES {
        let name = format!("slab.{cache}");
        let objects = vmstat(&name, &["active_objs"], ColumnKind::Gauge);
        all.push(Reading { unit: "objects", table: Table::Slabs, entity: Some(Entity::named(cache)), ..objects });
    }
    all
}

/// (ns since the start of the measured part, value), in order; a moment with a reading missing is left out.
fn track(recording: &Recording, reading: &Reading) -> Vec<(u64, f64)> {
    let Some(series) = recording.table(reading.table) else { return Vec::new() };
    let start_ns = recording.header.clock.start_ns.max(series.at_ns.first().copied().unwrap_or(0));
    let columns: Vec<_> = reading.columns.iter().filter_map(|name| series.column(name)).collect();
    let mut found: Vec<(u64, Option<f64>)> = Vec::new();
    for (row, (at_ns, owner)) in series.at_ns.iter().zip(&series.entity).enumerate() {
        let ours =
            reading.entity.as_ref().is_none_or(|entity| series.entities.get(usize::from(*owner)) == Some(entity));
        if !ours || columns.is_empty() || *at_ns < start_ns {
            continue;
        }
        let values = columns.iter().map(|column| column.values.get(row).copied().flatten().map(|v| v as f64));
        let sum = values.sum::<Option<f64>>().map(|sum| sum * reading.scale);
        match found.last_mut() {
            Some((before_ns, total)) if *before_ns == *at_ns - start_ns => {
                *total = total.zip(sum).map(|(total, sum)| total + sum);
            }
            _ => found.push((*at_ns - start_ns, sum)),
        }
    }
    found.into_iter().filter_map(|(at_ns, value)| value.map(|value| (at_ns, value))).collect()
}

/// The last value at or before each moment of the grid (the first one before any).
fn on_grid(track: &[(u64, f64)], length_ns: u64, kind: ColumnKind) -> Option<Vec<f64>> {
    let first = track.first()?.1;
    let base = if kind == ColumnKind::Counter { first } else { 0.0 };
    let at = |moment: usize| {
        let at_ns = (u128::from(length_ns) * moment as u128 / (MOMENTS - 1) as u128) as u64;
        let before = track.partition_point(|(sample_ns, _)| *sample_ns <= at_ns);
        before.checked_sub(1).and_then(|place| track.get(place)).map_or(first, |(_, value)| *value) - base
    };
    Some((0..MOMENTS).map(at).collect())
}

/// -1, 0 or 1: where it went from the first moment to the last.
fn direction(values: &[f64], kind: ColumnKind) -> i8 {
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return 0 };
    let top = values.iter().fold(0.0_f64, |top, value| top.max(value.abs()));
    let least = if kind == ColumnKind::Counter { RISE_MIN } else { (top * CHANGE_SHARE_MIN).max(RISE_MIN) };
    let change = last - first;
    if change.abs() < least { 0 } else { change.signum() as i8 }
}

fn errors(reference: &[f64], other: &[f64]) -> (Option<f64>, Option<f64>) {
    let sum: f64 = reference.iter().map(|value| value.abs()).sum();
    let top = reference.iter().fold(0.0_f64, |top, value| top.max(value.abs()));
    let differences = || reference.iter().zip(other).map(|(a, b)| (a - b).abs());
    let worst = differences().fold(0.0_f64, f64::max);
    let percent = |part: f64, whole: f64| (whole > 0.0).then(|| 100.0 * part / whole);
    (percent(differences().sum(), sum), percent(worst, top))
}

fn orderings(metrics: &[Metric]) -> Vec<Ordering> {
    let last = |name: &str| {
        let metric = metrics.iter().find(|metric| metric.name == name)?;
        Some((*metric.reference.last()?, *metric.other.last()?))
    };
    let pairs =
        [("free.node0", "free.node1"), ("pgscan_kswapd", "pgscan_direct"), ("pgsteal_kswapd", "pgsteal_direct")];
    let judge = |(one, two): (&str, &str)| {
        let ((one_a, one_b), (two_a, two_b)) = (last(one)?, last(two)?);
        // Which of two nearly equal ones is larger says nothing.
        if (one_a - two_a).abs() < RISE_MIN.max(0.1 * one_a.max(two_a)) {
            return None;
        }
        let (larger, smaller) = if one_a > two_a { (one, two) } else { (two, one) };
        let same = (one_a > two_a) == (one_b > two_b) && one_b != two_b;
        Some(Ordering { larger_in_reference: larger.to_owned(), smaller_in_reference: smaller.to_owned(), same })
    };
    pairs.into_iter().filter_map(judge).collect()
}

fn latencies(reference: &Recording, other: &Recording) -> Vec<Latency> {
    let theirs = explain(other).operations;
    let mut found = Vec::new();
    for ours in explain(reference).operations.iter().filter(|operation| operation.thread.is_empty()) {
        let Some(same) = theirs.iter().find(|op| op.name == ours.name && op.thread.is_empty()) else { continue };
        let (a, b) = (ours.from_start, same.from_start);
        for (figure, a, b) in [("p50", a.p50_ns, b.p50_ns), ("p99", a.p99_ns, b.p99_ns), ("max", a.max_ns, b.max_ns)] {
            let percent = (a > 0).then(|| 100.0 * (a as f64 - b as f64).abs() / a as f64);
            let operation = ours.name.clone();
            found.push(Latency { operation, figure, reference_ns: a, other_ns: b, percent });
        }
    }
    found
}

fn side(recording: &Recording) -> Side {
    let header = &recording.header;
    Side { source: header.source.name(), kernel: header.machine.kernel.clone(), duration_ns: header.duration_ns }
}

/// Compares `other` with `reference`. What either of them did not sample is named in the notes.
#[must_use]
pub fn agree(reference: &Recording, other: &Recording) -> Agreement {
    let length_ns = reference.header.duration_ns.min(other.header.duration_ns);
    let mut notes = Vec::new();
    let mut metrics = Vec::new();
    let mut absent = Vec::new();
    for reading in readings(reference) {
        let grid = |recording| on_grid(&track(recording, &reading), length_ns, reading.kind);
        let (a, b) = match (grid(reference), grid(other)) {
            (Some(a), Some(b)) => (a, b),
            (None, None) => continue,
            _ => {
                absent.push(reading.name);
                continue;
            }
        };
        let (from, to) = (direction(&a, reading.kind), direction(&b, reading.kind));
        let (mean_percent, worst_percent) = errors(&a, &b);
        let (moves, same_sign) = (from != 0 || to != 0, from == to);
        let (name, unit) = (reading.name, reading.unit);
        metrics.push(Metric { name, unit, reference: a, other: b, moves, same_sign, mean_percent, worst_percent });
    }
    if !absent.is_empty() {
        notes.push(format!("only one side has these, so they are not compared: {}", absent.join(", ")));
    }
    let distorted = reference.header.time_distorted || other.header.time_distorted;
    if distorted {
        notes.push("time is distorted on one side (software emulation): latencies are not compared".to_owned());
    }
    let latencies = if distorted { Vec::new() } else { latencies(reference, other) };
    let moving: Vec<f64> = metrics.iter().filter(|m| m.moves).filter_map(|m| m.mean_percent).collect();
    let mean_percent = (!moving.is_empty()).then(|| moving.iter().sum::<f64>() / moving.len() as f64);
    let (orderings, kind) = (orderings(&metrics), "agreement");
    let (reference, other) = (side(reference), side(other));
    Agreement { flatwater: 1, kind, reference, other, metrics, orderings, latencies, mean_percent, notes }
}

#[cfg(test)]
mod tests {
    use super::agree;
    use crate::recording::{ColumnKind, Entity, Recording, Series, Table};

    fn recording(start_ns: u64, miss_per_s: i64, free_per_s: i64) -> Recording {
        let mut made = Recording::default();
        made.header.clock.start_ns = start_ns;
        made.header.duration_ns = 20_000_000_000;
        let mut nodes = Series::new(Table::Nodes);
        for second in 0..=20_i64 {
            let at_ns = start_ns + second as u64 * 1_000_000_000;
            for node in 0..2 {
                let free = if node == 0 { (50_000 + free_per_s * second) * 4096 } else { 1000 * 4096 };
                let values = [
                    ("numa_miss", ColumnKind::Counter, Some(700 + i64::from(node == 0) * miss_per_s * second)),
                    ("MemFree_bytes", ColumnKind::Gauge, Some(free)),
                ];
                nodes.push(at_ns, &Entity::on_node(node, ""), &values);
            }
        }
        made.series.push(nodes);
        made
    }

    #[test]
    fn a_recording_agrees_with_itself_whenever_it_began() {
        let found = agree(&recording(5, 1000, -2000), &recording(7_000_000_000, 1000, -2000));
        assert_eq!(found.mean_percent, Some(0.0));
        assert!(found.metrics.iter().all(|metric| metric.same_sign));
        assert!(found.orderings.iter().all(|ordering| ordering.same));
        assert_eq!(found.orderings.len(), 1);
    }

    #[test]
    fn errors_and_signs_are_told() {
        let found = agree(&recording(0, 1000, -2000), &recording(0, 1100, 2000));
        let metric = |name: &str| found.metrics.iter().find(|metric| metric.name == name).expect("sampled");
        let miss = metric("numa_miss");
        assert!((miss.mean_percent.expect("moves") - 10.0).abs() < 1e-6, "counters by their rise, not their base");
        assert!((miss.worst_percent.expect("moves") - 10.0).abs() < 1e-6);
        assert!(miss.same_sign && !metric("free.node0").same_sign);
    }

    #[test]
    fn what_one_side_lacks_is_named_and_latencies_of_distorted_time_are_left_out() {
        let mut other = recording(0, 1000, 0);
        other.header.time_distorted = true;
        other.series.clear();
        let found = agree(&recording(0, 1000, 0), &other);
        assert!(found.metrics.is_empty() && found.latencies.is_empty() && found.mean_percent.is_none());
        assert!(found.notes.iter().any(|note| note.contains("numa_miss")));
        assert!(found.notes.iter().any(|note| note.contains("distorted")));
    }
}

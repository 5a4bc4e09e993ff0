//! Compares two recordings of one scenario, metric by metric.
//!
//! Each metric is read at the moments of a grid, twice: by time, at equal shares of the interval that both recordings
//! cover, and by work, at equal shares of the bytes that calls moved on both sides. Two machines of unequal speed can
//! only be compared by work. Counters are compared by their rise since the start, levels by their value. The mean error
//! is the sum of the differences over the sum of the reference's values: a mean of each moment's percentage would
//! divide by the zeros that every counter starts with.

mod curves;
mod work;

use serde::Serialize;

use self::curves::{Kind, Reading, at_moments, memory_bytes, readings, track};
use flatwater_explain::explain;
use flatwater_recording::Recording;
use flatwater_recording::schema::{nodes, vmstat};

/// Moments of the grid. There are 10 samples a second, and the seconds of an emulated guest are uneven: more moments
/// would compare noise.
const MOMENTS: usize = 20;
/// A metric is constant if it changed by fewer events than `EVENTS_MIN` or by a smaller share of memory than
/// `MEMORY_SHARE_MIN`, and a level also if it changed by less than `CHANGE_SHARE_MIN` of the largest value.
const EVENTS_MIN: f64 = 50.0;
const MEMORY_SHARE_MIN: f64 = 0.005;
const CHANGE_SHARE_MIN: f64 = 0.05;
/// Shown, but not counted: every numa_foreign of one node is a numa_miss of another.
const MIRRORED: &str = nodes::NUMA_FOREIGN.name;
/// Metrics that are the sum of two others. Which of the two a page is counted under can be chance (kswapd or a caller
/// scans it, a file is written in this second or the next), while the sum is steady.
const TOTALS: [(&str, [&str; 2]); 3] = [
    ("pgscan", [vmstat::PGSCAN_KSWAPD.name, vmstat::PGSCAN_DIRECT.name]),
    ("pgsteal", [vmstat::PGSTEAL_KSWAPD.name, vmstat::PGSTEAL_DIRECT.name]),
    ("dirty_and_writeback", [vmstat::NR_DIRTY.name, vmstat::NR_WRITEBACK.name]),
];
/// The aim for the mean and the worst error of metrics that move, in percent.
pub const MEAN_PERCENT_AIM: f64 = 15.0;
pub const WORST_PERCENT_AIM: f64 = 40.0;

#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    /// Version of the JSON form.
    pub flatwater: u32,
    pub kind: &'static str,
    pub reference: Side,
    pub other: Side,
    /// By time first; by work first if time is distorted on either side. The first one is the one to judge by.
    pub alignments: Vec<Alignment>,
    /// Empty if time is distorted on either side; `notes` then says so.
    pub latencies: Vec<Latency>,
    pub notes: Vec<String>,
}

/// Compares each of the other recordings with the first.
#[must_use]
pub fn with_first(recordings: &[Recording]) -> Vec<Agreement> {
    let Some((first, others)) = recordings.split_first() else { return Vec::new() };
    others.iter().map(|other| agree(first, other)).collect()
}

/// All metrics, read over one grid of moments.
#[derive(Clone, Debug, Serialize)]
pub struct Alignment {
    /// `time` or `work`.
    pub by: &'static str,
    /// Length of the grid: ns for `time`, bytes for `work`.
    pub length: f64,
    pub metrics: Vec<Metric>,
    pub orderings: Vec<Ordering>,
    /// Mean of the mean errors of the counted metrics; absent if none is counted.
    pub mean_percent: Option<f64>,
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
    /// Values at the grid's moments; for a counter its rise since the first moment.
    pub reference: Vec<f64>,
    pub other: Vec<f64>,
    /// The metric moved in the reference or in the other recording.
    pub moves: bool,
    pub moves_in_reference: bool,
    /// Both rise, both fall, or both stand still.
    pub same_sign: bool,
    /// Sum of the differences over the sum of the reference's values; absent if the reference is 0 throughout.
    pub mean_percent: Option<f64>,
    /// Largest difference over the reference's largest value.
    pub worst_percent: Option<f64>,
    /// Mean error of a repetition of the reference against the reference, the largest of several: errors below it are
    /// not significant.
    pub spread_percent: Option<f64>,
    /// Part of the mean: the metric moves, is steady, and does not repeat what other metrics say.
    pub counted: bool,
}

impl Metric {
    /// Two runs of the reference differ by more than the aim, so that the metric judges nothing.
    #[must_use]
    pub fn is_unsteady(&self) -> bool {
        self.spread_percent.is_some_and(|spread| spread > MEAN_PERCENT_AIM)
    }
}

/// Which of two metrics is larger at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Ordering {
    pub larger_in_reference: String,
    pub smaller_in_reference: String,
    pub same: bool,
}

impl Ordering {
    fn is_same_pair(&self, other: &Ordering) -> bool {
        self.larger_in_reference == other.larger_in_reference && self.smaller_in_reference == other.smaller_in_reference
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    pub operation: String,
    pub figure: &'static str,
    pub reference_ns: u64,
    pub other_ns: u64,
    pub percent: Option<f64>,
}

/// How far a curve went from the first moment to the last, and from which change on it counts as moving.
struct Course {
    change: f64,
    least: f64,
}

impl Course {
    fn of(values: &[f64], kind: Kind, least: f64) -> Course {
        let change = values.last().unwrap_or(&0.0) - values.first().unwrap_or(&0.0);
        let top = values.iter().fold(0.0_f64, |top, value| top.max(value.abs()));
        Course { change, least: if kind == Kind::Rise { least } else { (top * CHANGE_SHARE_MIN).max(least) } }
    }

    fn moves(&self) -> bool {
        self.change.abs() >= self.least
    }

    /// Both move up, both move down, or both changes are close, so that one may be just below the limit and the other
    /// just above.
    fn goes_with(&self, other: &Course) -> bool {
        let near = (self.change - other.change).abs() < self.least.max(other.least);
        let along = self.moves() == other.moves() && (!self.moves() || self.change.signum() == other.change.signum());
        near || along
    }
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
    let pairs = [
        ("free.node0", "free.node1"),
        (vmstat::PGSCAN_KSWAPD.name, vmstat::PGSCAN_DIRECT.name),
        (vmstat::PGSTEAL_KSWAPD.name, vmstat::PGSTEAL_DIRECT.name),
    ];
    let judge = |(one, two): (&str, &str)| {
        let ((one_a, one_b), (two_a, two_b)) = (last(one)?, last(two)?);
        // The order of two nearly equal values means nothing.
        if (one_a - two_a).abs() < EVENTS_MIN.max(0.1 * one_a.max(two_a)) {
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

/// The moments of one side's grid, and the share of that side's run (in time or work) that they cover.
#[derive(Clone, Copy)]
struct Grid<'a> {
    moments_ns: &'a [u64],
    share: f64,
}

/// If the grid covers less of a run than this, one reading before and one after the run do not give the value at the
/// grid's end.
const WHOLE_SHARE: f64 = 0.9;

/// Both sides' curves. If one side has only a reading before and one after the run (slabs), each curve is the first
/// value and the value at the grid's end, interpolated by the grid's share of the run; absent if that share is below
/// `WHOLE_SHARE`.
fn curves_of(
    reference: &Recording,
    other: &Recording,
    grids: [Grid<'_>; 2],
    reading: &Reading,
) -> (Option<Vec<f64>>, Option<Vec<f64>>) {
    let tracks = [track(reference, reading), track(other, reading)];
    let ends_only = tracks.iter().any(|track| track.len() <= 2);
    let is_known = |side: usize| tracks[side].len() > 2 || grids[side].share >= WHOLE_SHARE;
    if ends_only && !(is_known(0) && is_known(1)) {
        return (None, None);
    }
    let curve = |side: usize| {
        let (Some(first), Some(last)) = (tracks[side].first(), tracks[side].last()) else { return None };
        if !ends_only {
            return at_moments(&tracks[side], grids[side].moments_ns, reading.kind);
        }
        let base = if reading.kind == Kind::Rise { first.1 } else { 0.0 };
        Some(vec![first.1 - base, first.1 - base + (last.1 - first.1) * grids[side].share])
    };
    (curve(0), curve(1))
}

/// The metrics over one pair of grids. The names of metrics that only one side has go to `absent`.
fn metrics(reference: &Recording, other: &Recording, grids: [Grid<'_>; 2], absent: &mut Vec<String>) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let memory = memory_bytes(reference);
    for reading in readings(reference) {
        let (a, b) = match curves_of(reference, other, grids, &reading) {
            (Some(a), Some(b)) => (a, b),
            (None, None) => continue,
            _ => {
                absent.push(reading.name);
                continue;
            }
        };
        let share = reading.weight_bytes.map_or(0.0, |bytes| MEMORY_SHARE_MIN * memory / bytes);
        let least = share.max(EVENTS_MIN).max(reading.least);
        let [ours, theirs] = [&a, &b].map(|curve| Course::of(curve, reading.kind, least));
        let (mean_percent, worst_percent) = errors(&a, &b);
        let (moves, same_sign) = (ours.moves() || theirs.moves(), ours.goes_with(&theirs));
        metrics.push(Metric {
            name: reading.name,
            unit: reading.unit,
            reference: a,
            other: b,
            moves,
            moves_in_reference: ours.moves(),
            same_sign,
            mean_percent,
            worst_percent,
            spread_percent: None,
            counted: false,
        });
    }
    metrics
}

/// Decides which metrics count. A sum counts only if a part is unsteady; otherwise it repeats its parts.
fn count(metrics: &mut [Metric]) {
    let unsteady: Vec<String> =
        metrics.iter().filter(|metric| metric.is_unsteady()).map(|metric| metric.name.clone()).collect();
    for metric in metrics {
        let parts = TOTALS.iter().find(|(name, _)| *name == metric.name).map(|(_, parts)| parts);
        let is_news = parts.is_none_or(|parts| parts.iter().any(|part| unsteady.iter().any(|name| name == part)));
        metric.counted = metric.moves && metric.name != MIRRORED && !metric.is_unsteady() && is_news;
    }
}

fn mean_percent(metrics: &[Metric]) -> Option<f64> {
    let counted = metrics.iter().filter(|metric| metric.counted);
    let moving: Vec<f64> = counted.filter_map(|metric| metric.mean_percent).collect();
    (!moving.is_empty()).then(|| moving.iter().sum::<f64>() / moving.len() as f64)
}

fn alignment(by: &'static str, length: f64, mut metrics: Vec<Metric>) -> Alignment {
    count(&mut metrics);
    Alignment { by, length, orderings: orderings(&metrics), mean_percent: mean_percent(&metrics), metrics }
}

/// As `agree`, and gives each metric the spread of repetitions of the reference (`again`), the largest of them.
#[must_use]
pub fn agree_beside(reference: &Recording, again: &[Recording], other: &Recording) -> Agreement {
    let mut found = agree(reference, other);
    for repeated in again.iter().map(|again| agree(reference, again)) {
        for alignment in &mut found.alignments {
            if let Some(same) = repeated.alignments.iter().find(|one| one.by == alignment.by) {
                hold_beside(alignment, same);
            }
        }
    }
    for alignment in &mut found.alignments {
        count(&mut alignment.metrics);
        alignment.mean_percent = mean_percent(&alignment.metrics);
    }
    found
}

/// Adds the error of a repetition of the reference to each metric's spread, and drops orderings of metrics that the
/// repetition does not confirm.
fn hold_beside(alignment: &mut Alignment, same: &Alignment) {
    for metric in &mut alignment.metrics {
        let twin = same.metrics.iter().find(|twin| twin.name == metric.name);
        let twin = twin.and_then(|twin| {
            // A repetition that did less work than the model may end before this metric starts to move in the
            // reference: it does not confirm the metric.
            let unseen = metric.moves_in_reference && !twin.moves;
            // A metric that is 0 in the reference and not in the repetition has no percentage: it differs entirely.
            twin.mean_percent.filter(|_| !unseen).or((unseen || twin.moves).then_some(100.0))
        });
        metric.spread_percent = metric.spread_percent.into_iter().chain(twin).reduce(f64::max);
    }
    let kept = |one: &Ordering| same.orderings.iter().find(|twin| twin.is_same_pair(one)).is_none_or(|twin| twin.same);
    alignment.orderings.retain(kept);
}

/// Compares `other` with `reference`. The notes name metrics that only one side sampled.
#[must_use]
pub fn agree(reference: &Recording, other: &Recording) -> Agreement {
    let mut notes = Vec::new();
    let mut absent = Vec::new();
    let length_ns = reference.header.duration_ns.min(other.header.duration_ns);
    let share = |moment: usize| (u128::from(length_ns) * moment as u128 / (MOMENTS - 1) as u128) as u64;
    let even: Vec<u64> = (0..MOMENTS).map(share).collect();
    let of_time = |whole: &Recording| {
        let share = length_ns as f64 / whole.header.duration_ns.max(1) as f64;
        Grid { moments_ns: &even, share }
    };
    let times = [of_time(reference), of_time(other)];
    let by_time = alignment("time", length_ns as f64, metrics(reference, other, times, &mut absent));
    let mut alignments = vec![by_time];
    let done = [work::progress(reference), work::progress(other)];
    let [ours, theirs] = done.each_ref().map(|done| done.last().map_or(0.0, |(_, bytes)| *bytes));
    let total = ours.min(theirs);
    let distorted = reference.header.time_distorted || other.header.time_distorted;
    if total > 0.0 {
        let grids = done.each_ref().map(|done| work::moments(done, total));
        let own = [
            Grid { moments_ns: &grids[0], share: total / ours },
            Grid { moments_ns: &grids[1], share: total / theirs },
        ];
        let found = metrics(reference, other, own, &mut Vec::new());
        // If time is distorted, the alignment by work comes first.
        alignments.insert(usize::from(!distorted), alignment("work", total, found));
    } else {
        notes.push(
            "one side did not count the bytes that calls moved, so the sides cannot be aligned by work".to_owned(),
        );
    }
    if !absent.is_empty() {
        notes.push(format!("only one side has these, so they are not compared: {}", absent.join(", ")));
    }
    if distorted {
        notes.push("time is distorted on one side (software emulation): latencies are not compared".to_owned());
    }
    let latencies = if distorted { Vec::new() } else { latencies(reference, other) };
    let (reference, other) = (side(reference), side(other));
    Agreement { flatwater: 1, kind: "agreement", reference, other, alignments, latencies, notes }
}

#[cfg(test)]
mod tests;

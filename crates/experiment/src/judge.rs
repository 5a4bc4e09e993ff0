//! The figures that recordings are judged by, computed from one recording as a whole and window by window.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::figure::{self, Figure};
use crate::windowed::{CELLS_MAX, Cell, Durations, Mean, Quantile, Windowed, cell_of};
use crate::work;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Call, Cause, ClassSums, LatencyBucket, OpKind, Recording};

/// One figure of a recording. Lower is better for all but `Rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    P50,
    P99,
    P999,
    P9999,
    Worst,
    /// Stall time per second: time that the threads of the foreground spent in slow calls, each from its start to its
    /// return to user space. A call that was only made late, because the call before it stalled, adds nothing.
    Lost,
    Rate,
    /// Stall time of one cause per second. A fix of this cause must lower it, whatever other noise the machine has.
    Cause(Cause),
}

/// Serializes as the name.
impl Serialize for Judge {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Judge {
    /// All judges that can be named, except those of a single cause.
    pub const NAMED: &[Judge] =
        &[Judge::P50, Judge::P99, Judge::P999, Judge::P9999, Judge::Worst, Judge::Lost, Judge::Rate];

    /// The judges in the tables of `compare`. Fewer rows leave each a larger share of the level.
    pub const ALL: &[Judge] = &[Judge::P50, Judge::P99, Judge::P999, Judge::Worst, Judge::Lost, Judge::Rate];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Judge::P50 => "p50",
            Judge::P99 => "p99",
            Judge::P999 => "p99.9",
            Judge::P9999 => "p99.99",
            Judge::Worst => "worst",
            Judge::Lost => "lost",
            Judge::Rate => "rate",
            Judge::Cause(cause) => cause.name(),
        }
    }

    /// Explains the figure of one operation in words.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Judge::P50 => "half of the calls are faster",
            Judge::P99 => "one call in 100 is slower",
            Judge::P999 => "one call in 1000 is slower",
            Judge::P9999 => "one call in 10,000 is slower",
            Judge::Worst => "the largest delay",
            Judge::Lost => "stall time: time inside slow calls, per second",
            Judge::Rate => "calls per second",
            Judge::Cause(_) => "stall time of this cause, per second",
        }
    }

    /// The judge of this name; a quantile may be spelled `p99.9` or `p999`, and the largest delay `worst` or `max`.
    #[must_use]
    pub fn find(name: &str) -> Option<Judge> {
        let cause = || Cause::from_name(name).map(Judge::Cause);
        let name = if name == "max" { "worst" } else { name };
        let quantile = figure::quantile(name);
        let same = |judge: &Judge| {
            let near = |(own, given): (f64, f64)| (own - given).abs() < 1e-9;
            judge.name() == name || judge.quantile().zip(quantile).is_some_and(near)
        };
        Judge::NAMED.iter().copied().find(same).or_else(cause)
    }

    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Judge::Rate => "1/s",
            Judge::Lost | Judge::Cause(_) => "ns/s",
            Judge::P50 | Judge::P99 | Judge::P999 | Judge::P9999 | Judge::Worst => "ns",
        }
    }

    #[must_use]
    pub fn lower_is_better(self) -> bool {
        self != Judge::Rate
    }

    #[must_use]
    pub(crate) fn quantile(self) -> Option<f64> {
        match self {
            Judge::P50 => Some(0.5),
            Judge::P99 => Some(0.99),
            Judge::P999 => Some(0.999),
            Judge::P9999 => Some(0.9999),
            Judge::Worst | Judge::Lost | Judge::Rate | Judge::Cause(_) => None,
        }
    }
}

/// Added to stall times before the logarithm, ns per second. Users do not notice 0.1 ms per second, and a ratio to 0
/// would be infinite.
const FLOOR: f64 = 100_000.0;

/// The foreground operation to judge recordings by: the one that lost most time in slow calls, in all of them together;
/// without slow calls writes if there are any, else reads, else the operation with the most calls.
#[must_use]
pub fn main_operation(recordings: &[&Recording]) -> Option<OpKind> {
    let (mut counts, mut lost_ns) = (BTreeMap::<OpKind, u64>::new(), BTreeMap::<OpKind, u64>::new());
    for recording in recordings {
        for bucket in recording.latency.iter().filter(|bucket| bucket.thread.is_empty()) {
            let count = counts.entry(bucket.op).or_default();
            *count = count.saturating_add(bucket.from_start.count());
        }
        for call in recording.foreground_calls() {
            let lost = lost_ns.entry(call.op).or_default();
            *lost = lost.saturating_add(call.duration_ns).saturating_add(call.after_exit_ns);
        }
    }
    // Only operations with a histogram have figures.
    let stalled = lost_ns.into_iter().filter(|(op, ns)| *ns > 0 && counts.get(op).is_some_and(|count| *count > 0));
    if let Some((op, _)) = stalled.max_by_key(|&(_, ns)| ns) {
        return Some(op);
    }
    let preferred = [OpKind::Write, OpKind::Read].into_iter().find(|op| counts.get(op).is_some_and(|n| *n > 0));
    preferred.or_else(|| counts.into_iter().max_by_key(|&(_, count)| count).map(|(op, _)| op))
}

/// Operations of the foreground that were counted.
#[must_use]
pub fn operations(recording: &Recording) -> Vec<OpKind> {
    let own = recording.latency.iter().filter(|bucket| bucket.thread.is_empty());
    own.map(|bucket| bucket.op).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Latencies of one foreground operation over the measured part of a recording, without the time to settle.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// From the instant at which a call was due if the workload has a schedule, because that is the time that a client
    /// waits; else from its start.
    durations: Arc<Durations>,
    calls: Vec<Cell>,
    stall_ns: Vec<Cell>,
    /// The largest delay of each window with calls, summed by cell.
    worst_ns: Vec<Cell>,
    worst_of_all_ns: u64,
    window_ns: u64,
}

/// The measured part of a recording, cut into windows of one length.
struct Windows {
    begin_ns: u64,
    window_ns: u64,
    count: u64,
}

impl Windows {
    fn of(recording: &Recording, settle_ns: u64, window_ns: u64) -> Windows {
        let start_ns = recording.header.clock.start_ns;
        let begin_ns = start_ns.saturating_add(settle_ns);
        let end_ns = start_ns.saturating_add(recording.header.duration_ns);
        Windows { begin_ns, window_ns, count: end_ns.saturating_sub(begin_ns) / window_ns.max(1) }
    }

    /// Number of the window that contains this instant; `None` outside the measured part.
    fn at(&self, ns: u64) -> Option<u64> {
        ns.checked_sub(self.begin_ns).map(|since_ns| since_ns / self.window_ns).filter(|window| *window < self.count)
    }

    fn cell_at(&self, ns: u64) -> Option<usize> {
        self.at(ns).map(|window| cell_of(window, self.count))
    }

    /// Empty cells, each with its number of windows.
    fn cells(&self) -> Vec<Cell> {
        let cells = self.count.min(CELLS_MAX as u64);
        let first = |cell: u64| {
            let first = (u128::from(cell) * u128::from(self.count)).div_ceil(u128::from(cells.max(1)));
            u64::try_from(first).unwrap_or(self.count)
        };
        (0..cells).map(|cell| Cell { sum: 0.0, windows: first(cell + 1) - first(cell) }).collect()
    }
}

impl Latencies {
    #[must_use]
    pub fn of(recording: &Recording, op: OpKind, settle_ns: u64) -> Latencies {
        let own = |bucket: &&LatencyBucket| bucket.thread.is_empty() && bucket.op == op;
        let mut buckets: Vec<&LatencyBucket> = recording.latency.iter().filter(own).collect();
        buckets.sort_short_by_key(|bucket| bucket.start_ns);
        let window_ns = buckets.first().map_or(1_000_000_000, |bucket| bucket.width_ns.max(1));
        let windows = Windows::of(recording, settle_ns, window_ns);
        let empty = windows.cells();
        let mut found = Latencies {
            durations: Arc::new(Durations::of_cells(&[])),
            calls: empty.clone(),
            stall_ns: empty.clone(),
            worst_ns: vec![Cell::default(); empty.len()],
            worst_of_all_ns: 0,
            window_ns,
        };
        let (mut durations, mut sums) = (vec![Vec::new(); empty.len()], ClassSums::default());
        // The window of the previous bucket and its largest delay so far: one window may be flushed as several buckets.
        let (mut open, mut worst_ns) = (None, 0);
        for bucket in buckets {
            let Some(window) = windows.at(bucket.start_ns) else { continue };
            let cell = cell_of(window, windows.count);
            if let Some(before) = open.map(|open| cell_of(open, windows.count)).filter(|before| *before != cell) {
                durations[before] = sums.take();
            }
            found.take(bucket, cell, recording.header.threshold_ns, &mut sums);
            let own_ns = bucket.worst_from_due_ns.unwrap_or(bucket.worst_from_start_ns);
            if open.replace(window) != Some(window) {
                found.worst_ns[cell].windows += 1;
                worst_ns = 0;
            }
            found.worst_ns[cell].sum += own_ns.saturating_sub(worst_ns) as f64;
            worst_ns = own_ns.max(worst_ns);
            found.worst_of_all_ns = found.worst_of_all_ns.max(own_ns);
        }
        if let Some(last) = open {
            durations[cell_of(last, windows.count)] = sums.take();
        }
        found.durations = Arc::new(Durations::of_cells(&durations));
        // The histograms do not contain the time between exit and return to user space.
        for call in recording.foreground_calls().filter(|call| call.op == op && call.after_exit_ns > 0) {
            if let Some(cell) = windows.cell_at(call.start_ns).and_then(|cell| found.stall_ns.get_mut(cell)) {
                cell.sum += call.after_exit_ns as f64;
            }
        }
        found
    }

    fn take(&mut self, bucket: &LatencyBucket, cell: usize, threshold_ns: u64, sums: &mut ClassSums) {
        let (calls, stall_ns) = (&mut self.calls[cell].sum, &mut self.stall_ns[cell].sum);
        let lost_ns = |ns: u64, count: u64| if ns >= threshold_ns { ns as f64 * count as f64 } else { 0.0 };
        for (_, highest_ns, count) in bucket.from_due.as_ref().unwrap_or(&bucket.from_start).steps() {
            work::add(1);
            sums.count(highest_ns, count);
            *calls += count as f64;
            if bucket.from_due.is_none() {
                *stall_ns += lost_ns(highest_ns, count);
            }
        }
        if bucket.from_due.is_some() {
            *stall_ns += bucket.from_start.steps().map(|(_, ns, count)| lost_ns(ns, count)).sum::<f64>();
        }
    }

    fn per_second(&self, cells: &[Cell], shown_as: fn(f64) -> f64) -> Mean {
        let seconds = self.window_ns as f64 / 1e9;
        Mean::of_cells(cells.iter().map(|cell| Cell { sum: cell.sum / seconds, ..*cell }).collect(), shown_as)
    }

    fn mean(&self, judge: Judge) -> Mean {
        match judge {
            Judge::Rate => self.per_second(&self.calls, without_floor),
            Judge::Lost => self.per_second(&self.stall_ns, with_floor),
            // The mean of the windows' largest delays, because a single maximum has no spread that could be measured.
            _ => Mean::of_cells(self.worst_ns.clone(), without_floor),
        }
    }

    /// The figure for the bootstrap. Its value is a logarithm.
    #[must_use]
    pub fn windowed(&self, judge: Judge) -> Box<dyn Windowed> {
        match judge.quantile() {
            Some(quantile) => Box::new(Quantile::new(quantile, Arc::clone(&self.durations))),
            None => Box::new(self.mean(judge)),
        }
    }

    /// The figure of a whole run, in the judge's unit; `None` without calls.
    #[must_use]
    pub fn whole(&self, judge: Judge) -> Option<f64> {
        if self.durations.is_empty() {
            return None;
        }
        match judge {
            Judge::Worst => Some(self.worst_of_all_ns as f64),
            Judge::Rate | Judge::Lost => self.mean(judge).plain(),
            quantile => Some(self.windowed(quantile).value(&vec![1; self.calls.len()])?.exp()),
        }
    }
}

fn without_floor(mean: f64) -> f64 {
    mean.max(1e-9).ln()
}

fn with_floor(mean: f64) -> f64 {
    (mean + FLOOR).ln()
}

/// Time that a call cost its thread, by cause: inside the call, and after its exit on the way to user space, where it
/// can only wait in mem_cgroup_handle_over_high.
#[must_use]
pub fn stall_by_cause(call: &Call) -> BTreeMap<Cause, u64> {
    let mut by_cause = call.by_cause();
    if call.after_exit_ns > 0 {
        let over_high = by_cause.entry(Cause::MemcgOverHigh).or_default();
        *over_high = over_high.saturating_add(call.after_exit_ns);
    }
    by_cause
}

/// Stall time of each cause, from the slow calls of the foreground that were recorded one by one. Neighbours do not
/// count: they are there to cause the stall, and a fix may even let them stall longer.
#[must_use]
pub fn stalls(recording: &Recording, settle_ns: u64) -> Stalls {
    let windows = Windows::of(recording, settle_ns, 1_000_000_000);
    let empty = windows.cells();
    let mut causes: BTreeMap<Cause, Vec<Cell>> = BTreeMap::new();
    for call in recording.foreground_calls() {
        let Some(cell) = windows.cell_at(call.start_ns) else { continue };
        for (cause, ns) in stall_by_cause(call) {
            work::add(1);
            causes.entry(cause).or_insert_with(|| empty.clone())[cell].sum += ns as f64;
        }
    }
    Stalls { empty, causes }
}

/// Stall time (ns) in windows of a second, by cause.
#[derive(Clone, Debug)]
pub struct Stalls {
    empty: Vec<Cell>,
    causes: BTreeMap<Cause, Vec<Cell>>,
}

impl Stalls {
    pub fn causes(&self) -> impl Iterator<Item = Cause> + '_ {
        self.causes.keys().copied()
    }

    /// The mean over all windows, in ns per second; 0 for a cause that does not occur.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Mean {
        Mean::of_cells(self.causes.get(&cause).unwrap_or(&self.empty).clone(), with_floor)
    }
}

/// The figure of a whole run after settling, of this operation or of [`main_operation`]; `None` if the recording has no
/// calls to compute it from.
#[must_use]
pub fn whole(recording: &Recording, figure: impl Into<Figure>, settle_ns: u64) -> Option<f64> {
    let Figure { operation, judge } = figure.into();
    match judge {
        Judge::Cause(cause) => stalls(recording, settle_ns).of(cause).plain(),
        judge => {
            let operation = operation.or_else(|| main_operation(&[recording]))?;
            Latencies::of(recording, operation, settle_ns).whole(judge)
        }
    }
}

/// The logarithm of a figure, so that differences are ratios.
#[must_use]
pub fn logarithm(judge: Judge, whole: f64) -> f64 {
    if matches!(judge, Judge::Lost | Judge::Cause(_)) { with_floor(whole) } else { without_floor(whole) }
}

#[cfg(test)]
mod tests {
    use super::{Judge, Latencies, main_operation, stalls, whole};
    use flatwater_explain::testing::RecordingBuilder;
    use flatwater_recording::{Cause, OpKind, PackedHistogram};

    #[test]
    fn only_the_foreground_after_settling_is_judged() {
        let builder = RecordingBuilder::new().bucket("", OpKind::Write, &[50_000_000, 2_000_000, 1_000]);
        let recording =
            builder.bucket("stream", OpKind::Write, &[900_000_000]).bucket("", OpKind::Stat, &[5; 9]).done();
        assert_eq!(main_operation(&[&recording]), Some(OpKind::Write));
        let latencies = Latencies::of(&recording, OpKind::Write, 0);
        assert_eq!(latencies.whole(Judge::Worst), Some(50_000_000.0));
        assert!(latencies.whole(Judge::Lost).is_some_and(|lost| (5_100_000.0..5_300_000.0).contains(&lost)));
        assert_eq!(Latencies::of(&recording, OpKind::Read, 0).whole(Judge::P50), None);
        assert_eq!(Latencies::of(&recording, OpKind::Write, u64::MAX).whole(Judge::P50), None);
    }

    /// A writer with one call per 200 us has one stall of 40 ms: the 200 calls that were due during the stall are made
    /// late, up to 40 ms. The thread was blocked for 40 ms, not for the 4 s that the delays sum to.
    #[test]
    fn one_stall_counts_once_for_all_calls_that_were_due_during_it() {
        let late: Vec<u64> = (0..200).map(|call| 40_000_000 - 200_000 * call).collect();
        let recording = RecordingBuilder::new()
            .bucket("", OpKind::Write, &[vec![2_000; 199], vec![40_000_000]].concat())
            .edit(|recording| {
                let mut waited = flatwater_recording::histogram();
                late.iter().for_each(|ns| waited.saturating_record(*ns));
                let bucket = &mut recording.latency[0];
                bucket.from_due = Some(PackedHistogram::pack(&waited));
                bucket.worst_from_due_ns = Some(40_000_000);
            })
            .done();
        let latencies = Latencies::of(&recording, OpKind::Write, 0);
        let seconds = recording.header.duration_ns as f64 / 1e9;
        let stall_ns = latencies.whole(Judge::Lost).expect("200 calls") * seconds;
        assert!((39_900_000.0..40_200_000.0).contains(&stall_ns), "{stall_ns}");
        // The latency of a client still counts from the instant at which its call was due.
        assert!(latencies.whole(Judge::P50).is_some_and(|ns| ns > 19_000_000.0));
    }

    #[test]
    fn time_after_the_exit_of_a_call_is_stall_time_of_memcg_over_high() {
        let builder =
            RecordingBuilder::new().bucket("", OpKind::Write, &[2_000; 9]).slow(OpKind::Write, &[(Cause::Lock, 3.0)]);
        let recording = builder.edit(|recording| recording.calls[0].after_exit_ns = 80_000_000).done();
        let seconds = recording.header.duration_ns as f64 / 1e9;
        let of = |judge| whole(&recording, judge, 0).map(|ns_per_s| (ns_per_s * seconds).round());
        assert_eq!(of(Judge::Cause(Cause::MemcgOverHigh)), Some(80_000_000.0));
        assert_eq!(of(Judge::Cause(Cause::Lock)), Some(3_000_000.0));
        assert_eq!(of(Judge::Cause(Cause::Steal)), Some(0.0));
        assert_eq!(of(Judge::Lost), Some(80_000_000.0));
        assert_eq!(stalls(&recording, 0).causes().count(), 2);
    }

    #[test]
    fn stalls_of_a_neighbour_are_not_judged() {
        let one = [(Cause::MemcgReclaim, 20.0)];
        let build = || {
            let builder = RecordingBuilder::new().slow_by("journal", OpKind::Write, &one);
            builder.slow_by("stream", OpKind::Write, &[(Cause::MemcgReclaim, 900.0)])
        };
        let all = whole(&build().done(), Judge::Cause(Cause::MemcgReclaim), 0);
        let own = whole(&build().neighbour("stream").done(), Judge::Cause(Cause::MemcgReclaim), 0);
        let ratio = all.zip(own).map(|(all, own)| all / own);
        assert!(ratio.is_some_and(|ratio| (45.9..46.1).contains(&ratio)), "{ratio:?}");
    }

    /// A database waits for fdatasync(), but its writes were judged.
    #[test]
    fn the_operation_that_stalled_is_judged() {
        let build = || {
            RecordingBuilder::new().bucket("", OpKind::Write, &[2_000; 900]).bucket(
                "",
                OpKind::Fdatasync,
                &[2_000_000; 9],
            )
        };
        assert_eq!(main_operation(&[&build().done()]), Some(OpKind::Write), "no slow call");
        let stalled = build().slow(OpKind::Fdatasync, &[(Cause::JournalCommit, 40.0)]);
        let stalled = stalled.slow(OpKind::Write, &[(Cause::Lock, 3.0)]).done();
        assert_eq!(main_operation(&[&stalled]), Some(OpKind::Fdatasync));
        assert_eq!(main_operation(&[&build().done(), &stalled]), Some(OpKind::Fdatasync), "on either side");
        let uncounted = build().slow(OpKind::Open, &[(Cause::Lock, 99.0)]).done();
        assert_eq!(main_operation(&[&uncounted]), Some(OpKind::Write), "open() has no histogram");
    }

    #[test]
    fn judges_are_found_by_name() {
        for &judge in Judge::NAMED {
            assert_eq!(Judge::find(judge.name()), Some(judge));
        }
        assert_eq!(Judge::find("memcg-reclaim"), Some(Judge::Cause(Cause::MemcgReclaim)));
        assert_eq!(Judge::find("p98"), None);
    }
}

//! Latency over time: percentiles and worst call of each interval, one chart per kind of call.

use super::super::payload::{Chart, Figure, Level, Line, Look, Scale, Unit};
use super::Frame;
use crate::facts;
use crate::numbers::{count, time};
use crate::quantiles::Together;
use flatwater_explain::Explanation;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{LatencyBucket, OpKind, Recording};

/// Intervals of a chart: buckets are merged until at most this many are left.
const STRETCHES: usize = 600;
/// Percentiles that are drawn unless calls are rare.
const QUANTILES: [(&str, f64, Look); 3] =
    [("p50", 0.5, Look::FaintStep), ("p99", 0.99, Look::Step), ("p99.9", 0.999, Look::Step)];
/// Kinds of calls with a chart. The table of operations has all kinds.
const KINDS_MAX: usize = 6;

fn frame() -> Frame {
    Frame {
        id: "latency",
        title: "Latency",
        about: "Percentiles and worst call of each interval. Latencies inside the shaded floor are the machine's own \
                noise, not the kernel's memory management.",
        unit: Unit::Ns,
        scale: Scale::Log,
    }
}

pub fn charts(recording: &Recording, explanation: &Explanation) -> Vec<Chart> {
    let mut kinds: Vec<(u64, OpKind)> = OpKind::ALL
        .iter()
        .map(|kind| {
            let counts = of_kind(recording, *kind).map(|bucket| bucket.from_start.count());
            (counts.fold(0, u64::saturating_add), *kind)
        })
        .filter(|(calls, _)| *calls > 0)
        .collect();
    if kinds.is_empty() {
        return vec![frame().missing(recording, &["latency", "call"])];
    }
    let slow = |kind: &OpKind| recording.calls.iter().filter(|call| call.op == *kind).count();
    kinds.sort_short_by_key(|(calls, kind)| std::cmp::Reverse((slow(kind), *calls)));
    kinds.into_iter().take(KINDS_MAX).map(|(calls, kind)| chart(recording, explanation, kind, calls)).collect()
}

/// The buckets of the foreground, or those of single threads if there are no others.
fn of_kind(recording: &Recording, kind: OpKind) -> impl Iterator<Item = &LatencyBucket> {
    let any_whole = recording.latency.iter().any(|bucket| bucket.op == kind && bucket.thread.is_empty());
    recording.latency.iter().filter(move |bucket| bucket.op == kind && (bucket.thread.is_empty() || !any_whole))
}

fn chart(recording: &Recording, explanation: &Explanation, kind: OpKind, calls: u64) -> Chart {
    let mut buckets: Vec<&LatencyBucket> = of_kind(recording, kind).collect();
    buckets.sort_short_by_key(|bucket| bucket.start_ns);
    let groups = grouped(recording, &buckets);
    let filled = groups.iter().filter(|group| !group.1.is_empty()).count();
    // Rare calls leave most intervals empty. They are drawn as points, because a line suggests calls between them.
    let rare = filled * 3 < groups.len();
    let [strong, dashed] = if rare { [Look::Points; 2] } else { [Look::StrongStep, Look::DashedStep] };
    // One interval at a time: the classes of all 600 would take 20 MB.
    let of_group = |group: &(u64, Vec<&LatencyBucket>)| {
        let all = Together::of(group.1.iter().map(|b| &b.from_start));
        QUANTILES.map(|(_, q, _)| all.at(q).map(|ns| Figure(ns as f64)))
    };
    let quantiles: Vec<_> = if rare { Vec::new() } else { groups.iter().map(of_group).collect() };
    let worst = |ns: fn(&LatencyBucket) -> Option<u64>| -> Vec<Option<Figure>> {
        let of = |group: &(u64, Vec<&LatencyBucket>)| group.1.iter().filter_map(|bucket| ns(bucket)).max();
        groups.iter().map(|group| of(group).map(|ns| Figure(ns as f64))).collect()
    };
    let line = |name: &str, look, y| Line { name: name.to_owned(), look, cause: None, right: false, y };
    let mut lines = Vec::new();
    if !rare {
        let of = |place: usize| quantiles.iter().map(|all| all.get(place).copied().flatten()).collect();
        lines.extend(QUANTILES.iter().enumerate().map(|(place, (name, _, look))| line(name, *look, of(place))));
    }
    let from_due = worst(|bucket| bucket.worst_from_due_ns);
    if !rare && from_due.iter().any(Option::is_some) {
        lines.push(line("worst scheduled latency", dashed, from_due));
    }
    lines.push(line("worst", strong, worst(|bucket| Some(bucket.worst_from_start_ns).filter(|ns| *ns > 0))));
    Chart {
        choice: format!("{}() · {}", kind.name(), count(calls)),
        t: groups.iter().map(|group| Figure::seconds(group.0)).collect(),
        lines,
        levels: levels(recording, explanation),
        ..frame().chart()
    }
}

/// (start since the recording's start, buckets) of each interval. Intervals without calls are empty.
fn grouped<'a>(recording: &Recording, buckets: &[&'a LatencyBucket]) -> Vec<(u64, Vec<&'a LatencyBucket>)> {
    let start_ns = recording.header.clock.start_ns;
    let since = |bucket: &LatencyBucket| bucket.start_ns.saturating_sub(start_ns);
    let end_ns = buckets.iter().map(|bucket| since(bucket).saturating_add(bucket.width_ns)).max().unwrap_or_default();
    let finest_ns = buckets.iter().map(|bucket| bucket.width_ns).filter(|ns| *ns > 0).min().unwrap_or(1_000_000_000);
    let needed = end_ns.div_ceil(finest_ns.saturating_mul(STRETCHES as u64)).max(1);
    let width_ns = finest_ns.saturating_mul(needed).max(1);
    let stretches = usize::try_from(end_ns.div_ceil(width_ns)).unwrap_or(STRETCHES).min(STRETCHES);
    let mut groups: Vec<(u64, Vec<&LatencyBucket>)> =
        (0..stretches as u64).map(|n| (n * width_ns, Vec::new())).collect();
    for &bucket in buckets {
        let place = usize::try_from(since(bucket) / width_ns).unwrap_or(usize::MAX);
        if let Some((_, group)) = groups.get_mut(place) {
            group.push(bucket);
        }
    }
    // A second point at the end of the last interval, so that a step line draws the interval in full.
    let last = groups.last().map(|group| group.1.clone()).unwrap_or_default();
    groups.push((end_ns, last));
    groups
}

fn levels(recording: &Recording, explanation: &Explanation) -> Vec<Level> {
    let mut levels = Vec::new();
    if let Some(floor_ns) = facts::floor_ns(&recording.header).filter(|ns| *ns > 0) {
        let name = format!("noise floor {}", time(floor_ns));
        levels.push(Level { name, value: Figure(floor_ns as f64), shade_below: true });
    }
    let threshold_ns = explanation.slow.threshold_ns;
    if threshold_ns > 0 {
        let name = format!("slow from {}", time(threshold_ns));
        levels.push(Level { name, value: Figure(threshold_ns as f64), shade_below: false });
    }
    levels
}

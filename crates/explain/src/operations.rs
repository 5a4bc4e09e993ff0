//! Latencies of all operations, merged over the recording's buckets, and the time in which every operation was timed.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::sums::add_to;
use super::{Operation, PartlyTimed, Percentiles, SlowOnly};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{EventKind, LatencyBucket, OpKind, Recording, histogram};

struct Merged {
    from_start: Histogram<u64>,
    from_due: Option<Histogram<u64>>,
    worst_from_start_ns: u64,
    worst_from_due_ns: Option<u64>,
}

/// One entry per operation of the foreground, then one per operation of each thread that is reported separately.
#[must_use]
pub fn operations(recording: &Recording) -> Vec<Operation> {
    let mut merged: BTreeMap<(&str, OpKind), Merged> = BTreeMap::new();
    for bucket in &recording.latency {
        merged.entry((bucket.thread.as_str(), bucket.op)).or_insert_with(Merged::new).add(bucket);
    }
    let lines = merged.into_iter().map(|((thread, op), merged)| Operation {
        name: op.name().to_owned(),
        thread: thread.to_owned(),
        count: merged.from_start.len(),
        from_start: percentiles(&merged.from_start, merged.worst_from_start_ns),
        from_due: merged
            .from_due
            .as_ref()
            .map(|due| percentiles(due, merged.worst_from_due_ns.unwrap_or_else(|| due.max()))),
    });
    let mut lines: Vec<Operation> = lines.collect();
    // The foreground, whose thread is empty, sorts first; then the operation with the most calls.
    lines.sort_short_by(|a, b| a.thread.cmp(&b.thread).then(b.count.cmp(&a.count)));
    lines
}

/// For how long every call was timed, and the slow calls of the other time; absent where the recording timed every call, or
/// does not say.
#[must_use]
pub fn partly_timed(recording: &Recording) -> Option<PartlyTimed> {
    let clock = recording.header.clock;
    let end_ns = clock.start_ns.saturating_add(recording.header.duration_ns);
    let mut changes = Vec::new();
    for event in &recording.events {
        if let EventKind::Timing { every_call } = event.kind {
            changes.push((event.at_ns.clamp(clock.start_ns, end_ns), every_call));
        }
    }
    changes.sort_short_by_key(|(at_ns, _)| *at_ns);
    let ends = changes.iter().skip(1).map(|(at_ns, _)| *at_ns).chain([end_ns]);
    let spans: Vec<(u64, u64)> = changes
        .iter()
        .zip(ends)
        .filter(|((_, every), _)| *every)
        .map(|((from_ns, _), to_ns)| (*from_ns, to_ns))
        .collect();
    let every_call_ns =
        spans.iter().fold(0_u64, |sum, (from_ns, to_ns)| sum.saturating_add(to_ns.saturating_sub(*from_ns)));
    if changes.is_empty() || every_call_ns >= recording.header.duration_ns {
        return None;
    }
    let mut slow_only: BTreeMap<OpKind, SlowOnly> = BTreeMap::new();
    for call in &recording.calls {
        // The spans are in order and do not overlap.
        let next = spans.partition_point(|(from_ns, _)| *from_ns <= call.start_ns);
        if spans[..next].last().is_some_and(|(_, to_ns)| call.start_ns < *to_ns) {
            continue;
        }
        let entry = slow_only.entry(call.op).or_insert_with(|| SlowOnly {
            name: call.op.name().to_owned(),
            calls: 0,
            max_ns: 0,
        });
        add_to(&mut entry.calls, 1);
        entry.max_ns = entry.max_ns.max(call.duration_ns);
    }
    let slow_only = slow_only.into_values().collect();
    Some(PartlyTimed { every_call_ns, duration_ns: recording.header.duration_ns, slow_only })
}

impl Merged {
    fn new() -> Merged {
        Merged { from_start: histogram(), from_due: None, worst_from_start_ns: 0, worst_from_due_ns: None }
    }

    fn add(&mut self, bucket: &LatencyBucket) {
        bucket.from_start.add_to(&mut self.from_start);
        self.worst_from_start_ns = self.worst_from_start_ns.max(bucket.worst_from_start_ns);
        if let Some(due) = &bucket.from_due {
            due.add_to(self.from_due.get_or_insert_with(histogram));
        }
        self.worst_from_due_ns = self.worst_from_due_ns.max(bucket.worst_from_due_ns);
    }
}

fn percentiles(histogram: &Histogram<u64>, worst_ns: u64) -> Percentiles {
    // Histogram buckets round up. No percentile may exceed the exact maximum that is printed beside it.
    let worst_ns = if worst_ns == 0 { histogram.max() } else { worst_ns };
    let at = |quantile: f64| if histogram.is_empty() { 0 } else { histogram.value_at_quantile(quantile).min(worst_ns) };
    Percentiles { p50_ns: at(0.5), p99_ns: at(0.99), p999_ns: at(0.999), p9999_ns: at(0.9999), max_ns: worst_ns }
}

#[cfg(test)]
mod tests {
    use super::{operations, partly_timed};
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, Event, EventKind, OpKind};

    #[test]
    fn buckets_are_merged_and_neighbours_stay_apart() {
        let builder =
            RecordingBuilder::new().bucket("", OpKind::Write, &[1_000, 2_000]).bucket("", OpKind::Write, &[9_000]);
        let recording = builder.bucket("stream", OpKind::Write, &[70_000_000]).done();
        let lines = operations(&recording);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].name.as_str(), lines[0].thread.as_str(), lines[0].count), ("write", "", 3));
        assert_eq!((lines[0].from_start.p50_ns / 100, lines[0].from_start.max_ns), (20, 9_000));
        assert_eq!((lines[1].thread.as_str(), lines[1].from_start.max_ns), ("stream", 70_000_000));
        assert!(lines[0].from_due.is_none(), "a closed loop has no due times, and none must be invented");
    }

    #[test]
    fn t8_slow_calls_of_the_time_in_which_not_every_call_was_timed_are_listed_apart() {
        let whole = RecordingBuilder::new()
            .bucket("", OpKind::Write, &[164_000])
            .slow(OpKind::Fsync, &[(Cause::RunQueue, 410.0)]);
        assert!(partly_timed(&whole.done()).is_none(), "a recording without such events timed every call");
        let builder = RecordingBuilder::new()
            .bucket("", OpKind::Write, &[164_000])
            .slow(OpKind::Fsync, &[(Cause::RunQueue, 410.0)]);
        let recording = builder
            .edit(|recording| {
                let start_ns = recording.header.clock.start_ns;
                let first_ns = recording.calls.iter().map(|call| call.end_ns()).max().unwrap_or(0) - start_ns;
                let timing = |at_ns, every_call| Event::new(start_ns + at_ns, EventKind::Timing { every_call });
                recording.events.push(timing(0, false));
                recording.events.push(timing(first_ns, true));
                recording.events.push(timing(first_ns + 2_000_000_000, false));
            })
            .done();
        let partly = partly_timed(&recording).expect("two seconds");
        assert_eq!((partly.every_call_ns, partly.duration_ns), (2_000_000_000, recording.header.duration_ns));
        assert_eq!(partly.slow_only.len(), 1);
        assert_eq!((partly.slow_only[0].name.as_str(), partly.slow_only[0].calls), ("fsync", 1));
        assert!(partly.slow_only[0].max_ns >= 410_000_000, "{:?}", partly.slow_only);
    }

    #[test]
    fn no_percentile_exceeds_the_maximum() {
        let recording = RecordingBuilder::new().bucket("", OpKind::Write, &[40_999_999]).done();
        let line = &operations(&recording)[0];
        assert_eq!((line.from_start.p50_ns, line.from_start.max_ns), (40_999_999, 40_999_999));
    }
}

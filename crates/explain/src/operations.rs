//! Latencies of all operations, merged over the recording's buckets.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::{Operation, Percentiles};
use flatwater_recording::latency::histogram;
use flatwater_recording::{LatencyBucket, OpKind, Recording};

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
    lines.sort_by(|a, b| a.thread.cmp(&b.thread).then(b.count.cmp(&a.count)));
    lines
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
    use super::operations;
    use crate::testing::Made;
    use flatwater_recording::OpKind;

    #[test]
    fn buckets_are_merged_and_neighbours_stay_apart() {
        let made = Made::new().bucket("", OpKind::Write, &[1_000, 2_000]).bucket("", OpKind::Write, &[9_000]);
        let recording = made.bucket("stream", OpKind::Write, &[70_000_000]).done();
        let lines = operations(&recording);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].name.as_str(), lines[0].thread.as_str(), lines[0].count), ("write", "", 3));
        assert_eq!((lines[0].from_start.p50_ns / 100, lines[0].from_start.max_ns), (20, 9_000));
        assert_eq!((lines[1].thread.as_str(), lines[1].from_start.max_ns), ("stream", 70_000_000));
        assert!(lines[0].from_due.is_none(), "a closed loop has no due times, and none must be invented");
    }

    #[test]
    fn no_percentile_exceeds_the_maximum() {
        let recording = Made::new().bucket("", OpKind::Write, &[40_999_999]).done();
        let line = &operations(&recording)[0];
        assert_eq!((line.from_start.p50_ns, line.from_start.max_ns), (40_999_999, 40_999_999));
    }
}

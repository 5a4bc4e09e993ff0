//! Latency histograms of all operations, slow or not, by time bucket.

use hdrhistogram::Histogram;

use super::{OpKind, PackedHistogram};

/// The operations of one kind that ended within one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyBucket {
    /// Begin of the interval, ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Length of the interval, ns.
    pub width_ns: u64,
    /// The kind of the calls.
    pub op: OpKind,
    /// Actor or thread group; `""` for the whole foreground of a run. Each operation is counted in one row only.
    pub thread: String,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Service time in ns, from the call's start. Packed, because there are thousands of buckets: see
    /// `PackedHistogram::pack`, and `unpack` or `merged` for percentiles.
    pub from_start: PackedHistogram,
    /// Time since the call was due, in ns: the wait of an open-loop user. Absent for closed loops.
    pub from_due: Option<PackedHistogram>,
    /// Exact, unlike the histogram, which rounds.
    pub worst_from_start_ns: u64,
    /// The longest duration from the scheduled start, ns.
    pub worst_from_due_ns: Option<u64>,
}

/// Upper bound of recorded latencies: 1 hour. Longer ones count as this long.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;

/// An empty histogram with the bounds of recordings: 1 ns to 1 hour, 3 significant digits.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("constant bounds that hdrhistogram accepts")
}

type Key<'a> = (u64, OpKind, &'a str, u64);

fn key(row: &LatencyBucket) -> Key<'_> {
    (row.start_ns, row.op, &row.thread, row.width_ns)
}

/// Adds the counts of `row` to `kept`, which has the same operation and thread.
fn count_in(kept: &mut LatencyBucket, row: &mut LatencyBucket) {
    kept.bytes = kept.bytes.saturating_add(row.bytes);
    kept.from_start = kept.from_start.plus(&row.from_start);
    kept.from_due = match (kept.from_due.take(), row.from_due.take()) {
        (Some(one), Some(other)) => Some(one.plus(&other)),
        (one, other) => one.or(other),
    };
    kept.worst_from_start_ns = kept.worst_from_start_ns.max(row.worst_from_start_ns);
    kept.worst_from_due_ns = kept.worst_from_due_ns.max(row.worst_from_due_ns);
}

/// Sorts rows by time and joins rows of the same bucket. A bucket is flushed as several rows during a run, to limit
/// the loss on SIGKILL.
pub(super) fn join(rows: &mut Vec<LatencyBucket>) {
    rows.sort_by(|one, other| key(one).cmp(&key(other)));
    rows.dedup_by(|row, kept| {
        let same = key(row) == key(kept);
        if same {
            count_in(kept, row);
        }
        same
    });
}

/// Rows of one bucket arrive within seconds of each other, so a row that began this long before the newest is taken as
/// complete. A later row of the same bucket stays separate; readers sum them.
const WHOLE_AFTER_NS: u64 = 10_000_000_000;

/// Like `join`, for rows that arrive in roughly chronological order: only the last seconds are in memory.
#[derive(Debug, Default)]
pub(super) struct Joining {
    held: Vec<LatencyBucket>,
    /// Length of `held` after the last join; the rows are joined again when there are twice as many.
    joined: usize,
}

impl Joining {
    /// Adds rows; returns the complete rows, in order.
    pub(super) fn add(&mut self, rows: impl IntoIterator<Item = LatencyBucket>) -> Vec<LatencyBucket> {
        self.held.extend(rows);
        if self.held.len() < 2 * self.joined {
            return Vec::new();
        }
        join(&mut self.held);
        let newest_ns = self.held.last().map_or(0, |row| row.start_ns);
        let whole = self.held.partition_point(|row| row.start_ns.saturating_add(WHOLE_AFTER_NS) < newest_ns);
        let rest = self.held.split_off(whole);
        self.joined = rest.len();
        std::mem::replace(&mut self.held, rest)
    }

    pub(super) fn end(mut self) -> Vec<LatencyBucket> {
        join(&mut self.held);
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::{HIGHEST_NS, Joining, LatencyBucket, WHOLE_AFTER_NS, histogram, join};
    use crate::{OpKind, PackedHistogram};

    fn row(start_ns: u64, op: OpKind, latencies_ns: &[u64]) -> LatencyBucket {
        let mut counting = histogram();
        latencies_ns.iter().for_each(|ns| counting.saturating_record(*ns));
        LatencyBucket {
            start_ns,
            width_ns: 10,
            op,
            thread: String::new(),
            bytes: 220 * latencies_ns.len() as u64,
            from_start: PackedHistogram::pack(&counting),
            from_due: (op == OpKind::Write).then(|| PackedHistogram::pack(&counting)),
            worst_from_start_ns: latencies_ns.iter().copied().max().unwrap_or(0),
            worst_from_due_ns: latencies_ns.iter().copied().max(),
        }
    }

    #[test]
    fn rows_of_one_bucket_become_one() {
        let parts: [&[u64]; 3] = [&[1, 5, 7_000, HIGHEST_NS], &[5, 900], &[2]];
        let mut rows = vec![row(10, OpKind::Fsync, &[9]), row(20, OpKind::Write, &[3])];
        rows.extend(parts.map(|part| row(10, OpKind::Write, part)));
        join(&mut rows);
        let whole = row(10, OpKind::Write, &parts.concat());
        assert_eq!(rows, [whole, row(10, OpKind::Fsync, &[9]), row(20, OpKind::Write, &[3])]);
    }

    #[test]
    fn incremental_joining_gives_the_same_rows_in_bounded_memory() {
        let second = |second: u64, half: u64| row(second * 1_000_000_000, OpKind::Write, &[5 + second, 900 + half]);
        let all: Vec<LatencyBucket> = (0..300).flat_map(|at| [second(at, 0), second(at, 1)]).collect();
        let mut joining = Joining::default();
        let (mut came, mut most_held) = (Vec::new(), 0);
        for pair in all.chunks(2) {
            came.extend(joining.add(pair.to_vec()));
            most_held = most_held.max(joining.held.len());
        }
        came.extend(joining.end());
        let mut whole = all;
        join(&mut whole);
        assert_eq!(came, whole);
        assert!(most_held <= 4 * (WHOLE_AFTER_NS / 1_000_000_000 + 2) as usize, "{most_held}");
    }
}

//! Latency of every operation, slow or not: histograms by time bucket.

use hdrhistogram::Histogram;

use super::{OpKind, PackedHistogram};

/// All operations of one kind that ended within one stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyBucket {
    pub start_ns: u64,
    pub width_ns: u64,
    pub op: OpKind,
    /// Actor or thread group, `""` for all together; bulk's fairness is told by writer.
    pub thread: String,
    pub bytes: u64,
    /// Service time, ns, from the call's start. Packed, since there are thousands of buckets:
    /// `PackedHistogram::pack` a counting one, `unpack` or `merged` to ask for percentiles.
    pub from_start: PackedHistogram,
    /// Time since the call was due, ns: what an open-loop user waits. Absent for closed loops.
    pub from_due: Option<PackedHistogram>,
    /// Exact, where the histogram is rounded.
    pub worst_from_start_ns: u64,
    pub worst_from_due_ns: Option<u64>,
}

/// Latencies above this are counted at it; no operation on a working machine takes an hour.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;

/// An empty histogram of the shape that recordings hold: 1 ns to 1 hour, 3 significant digits.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("constant bounds that hdrhistogram accepts")
}

/// Puts rows in the order of time, and joins those of one bucket: while a run lasts, a bucket is told in several rows, so
/// that a kill finds little that was not told.
pub(super) fn join(rows: &mut Vec<LatencyBucket>) {
    fn key(row: &LatencyBucket) -> (u64, OpKind, &str, u64) {
        (row.start_ns, row.op, &row.thread, row.width_ns)
    }
    rows.sort_by(|one, other| key(one).cmp(&key(other)));
    rows.dedup_by(|row, kept| {
        let same = key(row) == key(kept);
        if same {
            kept.bytes = kept.bytes.saturating_add(row.bytes);
            kept.from_start = kept.from_start.plus(&row.from_start);
            kept.from_due = match (kept.from_due.take(), row.from_due.take()) {
                (Some(one), Some(other)) => Some(one.plus(&other)),
                (one, other) => one.or(other),
            };
            kept.worst_from_start_ns = kept.worst_from_start_ns.max(row.worst_from_start_ns);
            kept.worst_from_due_ns = kept.worst_from_due_ns.max(row.worst_from_due_ns);
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::{HIGHEST_NS, LatencyBucket, histogram, join};
    use crate::recording::{OpKind, PackedHistogram};

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
}

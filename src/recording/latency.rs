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

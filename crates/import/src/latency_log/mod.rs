//! Reads latencies that other tools have measured: fio, HdrHistogram, histograms of BPF tools.

mod bpf_histogram;
mod fio_json;
mod fio_log;
mod fio_text;
mod hgrm;
mod interval_log;
mod prometheus;

pub use bpf_histogram::IMPORTER as BPF_HISTOGRAM;
pub use fio_json::IMPORTER as FIO_JSON;
pub use fio_log::IMPORTER as FIO_LOG;
pub use fio_text::IMPORTER as FIO_TEXT;
pub use hgrm::IMPORTER as HGRM;
pub use interval_log::IMPORTER as INTERVAL_LOG;

pub use prometheus::IMPORTER as PROMETHEUS;

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::builder::{Builder, Track};
use flatwater_recording::{HIGHEST_NS, LatencyBucket, OpKind, PackedHistogram, histogram};

/// Collects the latencies of one bucket.
pub struct Counting {
    histogram: Histogram<u64>,
    worst_ns: u64,
}

impl Default for Counting {
    fn default() -> Counting {
        Counting { histogram: histogram(), worst_ns: 0 }
    }
}

impl Counting {
    pub fn add(&mut self, ns: u64, count: u64) {
        self.histogram.saturating_record_n(ns.clamp(1, HIGHEST_NS), count.min(1 << 40));
        self.worst_ns = self.worst_ns.max(ns);
    }

    /// Adds the bucket unless it is empty.
    pub fn push(self, b: &mut Builder, place: (Track, i64), width_ns: u64, op: OpKind, thread: &str, bytes: u64) {
        if self.histogram.is_empty() {
            return;
        }
        let bucket = LatencyBucket {
            start_ns: 0,
            width_ns,
            op,
            thread: thread.to_owned(),
            bytes,
            from_start: PackedHistogram::pack(&self.histogram),
            from_due: None,
            worst_from_start_ns: self.worst_ns,
            worst_from_due_ns: None,
        };
        b.latency(place, bucket);
    }
}

/// Times of which only number, mean and extremes are known.
#[derive(Clone, Copy, Debug)]
pub struct Extremes {
    pub count: u64,
    pub mean_ns: u64,
    pub max_ns: u64,
    pub min_ns: u64,
}

impl Extremes {
    /// Counts the maximum and the minimum once each, and the mean of the remaining time for all others, so that the sum
    /// is that of the log.
    #[must_use]
    pub fn counting(&self) -> Counting {
        let mut counting = Counting::default();
        counting.add(self.max_ns, 1);
        if self.count > 1 {
            counting.add(self.min_ns, 1);
        }
        if self.count > 2 {
            let total_ns = self.mean_ns.saturating_mul(self.count);
            let rest_ns = total_ns.saturating_sub(self.max_ns).saturating_sub(self.min_ns);
            counting.add(rest_ns / (self.count - 2), self.count - 2);
        }
        counting
    }
}

/// Collects latencies by second. Only the current second is in memory: a histogram takes a quarter of a megabyte.
pub struct PerSecond {
    track: Track,
    second: i64,
    open: BTreeMap<(String, OpKind), (Counting, u64)>,
}

/// Maximum pairs of name and operation in one second; more are dropped, and a gap reports it.
const OPEN_MAX: usize = 256;

impl PerSecond {
    pub fn new(track: Track) -> PerSecond {
        PerSecond { track, second: i64::MIN, open: BTreeMap::new() }
    }

    pub fn add(&mut self, b: &mut Builder, second: i64, name: &str, op: OpKind, ns: u64, bytes: u64) {
        if second != self.second {
            self.flush(b);
            self.second = second;
        }
        let key = (name.to_owned(), op);
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&key) {
            b.overflow("latencies of further names in one second");
            return;
        }
        let (counting, sum) = self.open.entry(key).or_default();
        counting.add(ns, 1);
        *sum = sum.saturating_add(bytes);
    }

    pub fn flush(&mut self, b: &mut Builder) {
        let at = (self.track, self.second.saturating_mul(1_000_000_000));
        for ((name, op), (counting, bytes)) in std::mem::take(&mut self.open) {
            counting.push(b, at, 1_000_000_000, op, &name, bytes);
        }
    }
}

//! Bulk: delays of writers, and fairness of throughput and delay.

use std::collections::BTreeMap;

use super::levels::memory_moments;
use super::statistics::jain;
use crate::{Mark, Observation, Observe, Op};
use flatwater_recording::Series;
use flatwater_recording::outcome::{BulkDelay, BulkOutcome, BulkWriter, WorkloadOutcome};

/// Maximum number of delays to keep one by one; later ones are only counted in their writer's row.
const DELAYS_KEPT: usize = 10_000;

#[derive(Debug)]
pub struct BulkObserver {
    threshold_ns: u64,
    writers: BTreeMap<usize, Writer>,
    delays: Vec<BulkDelay>,
}

#[derive(Debug, Default)]
struct Writer {
    row: BulkWriter,
    begin_ns: Option<u64>,
    end_ns: u64,
}

impl BulkObserver {
    #[must_use]
    pub fn new(threshold_ns: u64) -> BulkObserver {
        BulkObserver { threshold_ns, writers: BTreeMap::new(), delays: Vec::new() }
    }
}

impl Observe for BulkObserver {
    fn observe(&mut self, seen: &Observation<'_>) {
        let is_write = matches!(seen.op, Op::Append { .. } | Op::Write { .. });
        let is_done = matches!(seen.op, Op::Mark { mark: Mark::WriterDone, .. });
        if !seen.measured || !(is_write || is_done) {
            return;
        }
        let writer = self.writers.entry(seen.actor).or_default();
        writer.row.pid = seen.tid;
        writer.begin_ns.get_or_insert(seen.start_ns);
        writer.end_ns = writer.end_ns.max(seen.end_ns());
        if !is_write {
            return;
        }
        writer.row.bytes += seen.bytes;
        writer.row.delay_ns_max = writer.row.delay_ns_max.max(seen.duration_ns);
        if seen.duration_ns >= self.threshold_ns {
            writer.row.delays += 1;
            writer.row.delay_ns_total += seen.duration_ns;
            if self.delays.len() < DELAYS_KEPT {
                self.delays.push(BulkDelay { pid: seen.tid, at_ns: seen.start_ns, delay_ns: seen.duration_ns });
            }
        }
    }

    fn outcome(mut self: Box<Self>, sampled: &[Series]) -> Option<WorkloadOutcome> {
        if self.writers.is_empty() {
            return None;
        }
        self.delays.sort_by_key(|delay| delay.at_ns);
        let rate = |writer: &Writer| {
            let elapsed_ns = writer.end_ns.saturating_sub(writer.begin_ns.unwrap_or_default());
            if elapsed_ns == 0 { 0.0 } else { writer.row.bytes as f64 / elapsed_ns as f64 }
        };
        let rates: Vec<f64> = self.writers.values().map(rate).collect();
        // Fairness of delay uses each writer's longest call: two writers can have the same throughput although one of
        // them once waited for 15 s.
        let delays: Vec<f64> = self.writers.values().map(|writer| writer.row.delay_ns_max as f64).collect();
        let writers = self.writers.into_values().map(|writer| BulkWriter {
            elapsed_ns: writer.end_ns.saturating_sub(writer.begin_ns.unwrap_or_default()),
            ..writer.row
        });
        let writers: Vec<BulkWriter> = writers.collect();
        Some(WorkloadOutcome::Bulk(BulkOutcome {
            threshold_ns: self.threshold_ns,
            delay_ns_max: writers.iter().map(|writer| writer.delay_ns_max).max().unwrap_or_default(),
            writers,
            delays: self.delays,
            fairness_throughput: jain(&rates),
            fairness_delay: jain(&delays),
            memory: memory_moments(sampled),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::BulkObserver;
    use crate::{FileId, Observation, Observe, Op};
    use flatwater_recording::outcome::WorkloadOutcome;

    fn write(actor: usize, start_ns: u64, duration_ns: u64) -> Observation<'static> {
        Observation {
            actor,
            thread: "bulk",
            tid: 100 + actor as u32,
            op: Op::Append { file: FileId(actor as u64), bytes: 1 << 20 },
            start_ns,
            due_ns: None,
            duration_ns,
            bytes: 1 << 20,
            measured: true,
        }
    }

    #[test]
    fn equal_throughput_with_one_long_wait_is_unfair_in_delay_only() {
        let mut observer = BulkObserver::new(1000);
        for call in 0..4 {
            observer.observe(&write(0, call * 1000, 1000));
        }
        // The same bytes in the same time, but the whole wait in one call.
        for (start, duration) in [(0, 1), (1, 1), (2, 1), (3, 3997)] {
            observer.observe(&write(1, start, duration));
        }
        let Some(WorkloadOutcome::Bulk(outcome)) = Box::new(observer).outcome(&[]) else { panic!("a bulk table") };
        assert_eq!(outcome.fairness_throughput, Some(1.0));
        assert!(outcome.fairness_delay.is_some_and(|jain| jain < 0.75), "{:?}", outcome.fairness_delay);
        assert_eq!((outcome.delay_ns_max, outcome.delays.len()), (3997, 5));
        assert_eq!(outcome.writers[1].delays, 1);
        assert_eq!(outcome.writers[1].pid, 101);
        assert!(outcome.delays.is_sorted_by_key(|delay| delay.at_ns));
    }

    #[test]
    fn without_observations_the_table_is_empty() {
        assert!(Box::new(BulkObserver::new(1)).outcome(&[]).is_none());
    }
}

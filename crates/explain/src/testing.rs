//! A builder of small recordings, for the tests of this crate.

mod extreme;

pub use extreme::extreme;

use super::cause::CauseEntry;
use super::facts::Facts;
use super::{Explanation, Finding, explain};
use flatwater_recording::{
    Call, Cause, ColumnKind, Entity, Event, EventKind, LatencyBucket, NodeShape, OpKind, PackedHistogram, Recording,
    Segment, Series, Stack, StackId, Table, histogram,
};

pub const START_NS: u64 = 1_000_000_000;

/// A recording being built: 10 s on a host with kernel 6.18, threshold 1 ms, no calls and no series.
#[derive(Clone, Debug)]
pub struct RecordingBuilder(Recording);

impl Default for RecordingBuilder {
    fn default() -> RecordingBuilder {
        RecordingBuilder::new()
    }
}

impl RecordingBuilder {
    pub fn new() -> RecordingBuilder {
        let mut recording = Recording::default();
        recording.header.duration_ns = 10_000_000_000;
        recording.header.threshold_ns = 1_000_000;
        recording.header.machine.kernel = Some("6.18.0".to_owned());
        recording.header.machine.page_bytes = Some(4096);
        RecordingBuilder(recording)
    }

    pub fn done(self) -> Recording {
        self.0
    }

    pub fn edit(mut self, edit: impl FnOnce(&mut Recording)) -> RecordingBuilder {
        edit(&mut self.0);
        self
    }

    pub fn kernel(self, release: &str) -> RecordingBuilder {
        self.edit(|recording| recording.header.machine.kernel = Some(release.to_owned()))
    }

    /// Adds a slow call of the foreground's thread, with segments of (cause, ms), all bracketed.
    pub fn slow(self, op: OpKind, segments: &[(Cause, f64)]) -> RecordingBuilder {
        self.slow_by("main", op, segments)
    }

    pub fn slow_by(mut self, thread: &str, op: OpKind, segments: &[(Cause, f64)]) -> RecordingBuilder {
        let mut offset_ns = 0;
        let mut tiles = Vec::new();
        for &(cause, ms) in segments {
            let ns = (ms * 1e6) as u64;
            tiles.push(Segment::bracketed(offset_ns, ns, cause));
            offset_ns += ns;
        }
        let start_ns = START_NS + self.0.calls.len() as u64 * 100_000_000;
        let call = Call::new(op, start_ns, offset_ns, tiles);
        self.0.calls.push(call.by(7, 7, thread).on(None, Some(220), None));
        self
    }

    /// Gives this stack, innermost frame first, to the last segment of the last call.
    pub fn stack(mut self, frames: &[&str]) -> RecordingBuilder {
        let id = StackId(self.0.stacks.len() as u32);
        self.0.stacks.push(Stack { id, frames: frames.iter().map(|&frame| frame.to_owned()).collect() });
        if let Some(segment) = self.0.calls.last_mut().and_then(|call| call.segments.last_mut()) {
            segment.stack = Some(id);
        }
        self
    }

    pub fn neighbour(self, thread: &str) -> RecordingBuilder {
        self.edit(|recording| recording.header.target.neighbours.push(thread.to_owned()))
    }

    pub fn knob(self, key: &str, value: &str) -> RecordingBuilder {
        self.edit(|recording| recording.header.setup.observe(key, value))
    }

    pub fn node(self, node: u32, memory_bytes: u64, distances: &[u32]) -> RecordingBuilder {
        let shape =
            NodeShape { node, cpus: vec![node], memory_bytes: Some(memory_bytes), distances: distances.to_vec() };
        self.edit(|recording| recording.header.machine.nodes.push(shape))
    }

    pub fn report(self, text: &str) -> RecordingBuilder {
        let event = Event::new(START_NS, EventKind::report(text));
        self.edit(|recording| recording.events.push(event))
    }

    /// Adds readings of counters, one row a second.
    pub fn counters(self, table: Table, entity: &Entity, columns: &[(&str, &[i64])]) -> RecordingBuilder {
        self.sampled(table, entity, ColumnKind::Counter, columns)
    }

    /// Adds 20 s of pages scanned by kswapd and by callers, and of pages freed, per second.
    pub fn scans(self, kswapd_per_s: i64, direct_per_s: i64, steal_per_s: i64) -> RecordingBuilder {
        let columns = [
            ("pgscan_kswapd", rising(kswapd_per_s, 20)),
            ("pgscan_direct", rising(direct_per_s, 20)),
            ("pgsteal", rising(steal_per_s, 20)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        self.counters(Table::Vmstat, &Entity::default(), &columns)
    }

    /// Adds readings of gauges, one row a second.
    pub fn gauges(self, table: Table, entity: &Entity, columns: &[(&str, &[i64])]) -> RecordingBuilder {
        self.sampled(table, entity, ColumnKind::Gauge, columns)
    }

    fn sampled(
        mut self,
        table: Table,
        entity: &Entity,
        kind: ColumnKind,
        columns: &[(&str, &[i64])],
    ) -> RecordingBuilder {
        if self.0.table(table).is_none() {
            self.0.series.push(Series::new(table));
        }
        let series = self.0.series.iter_mut().find(|series| series.table == table).expect("pushed above");
        // A finding may only be tested with columns that a writer can record.
        for (name, _) in columns {
            let known = flatwater_recording::schema::find(table, name).filter(|column| column.covers(name));
            assert_eq!(known.map(|column| column.kind), Some(kind), "{name} of {}", table.name());
        }
        let rows = columns.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
        for row in 0..rows {
            let values: Vec<_> = columns.iter().map(|&(name, values)| (name, kind, values.get(row).copied())).collect();
            series.push(START_NS + row as u64 * 1_000_000_000, entity, &values);
        }
        self
    }

    pub fn bucket(mut self, thread: &str, op: OpKind, latencies_ns: &[u64]) -> RecordingBuilder {
        let mut from_start = histogram();
        for &ns in latencies_ns {
            from_start.saturating_record(ns);
        }
        self.0.latency.push(LatencyBucket {
            start_ns: START_NS,
            width_ns: 1_000_000_000,
            op,
            thread: thread.to_owned(),
            bytes: 0,
            from_start: PackedHistogram::pack(&from_start),
            from_due: None,
            worst_from_start_ns: latencies_ns.iter().copied().max().unwrap_or(0),
            worst_from_due_ns: None,
        });
        self
    }

    pub fn explained(self) -> Explanation {
        explain(&self.0)
    }

    /// Runs this finder alone.
    pub fn found(self, entry: &CauseEntry) -> Option<Finding> {
        (entry.find)(&Facts::of(&self.0))
    }
}

/// Cumulative readings, one a second, that start at 0 and rise by `per_s`.
pub fn rising(per_s: i64, rows: usize) -> Vec<i64> {
    (0..rows as i64).map(|row| row * per_s).collect()
}

/// Headline, evidence and counter-evidence as one text, for tests that look for a figure.
pub fn evidence_text(finding: &Finding) -> String {
    let evidence = finding.evidence.iter().chain(&finding.against).map(|evidence| evidence.text.as_str());
    std::iter::once(finding.headline.as_str()).chain(evidence).collect::<Vec<_>>().join("\n")
}

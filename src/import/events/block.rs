//! Block requests: issued to completed, by device and direction.

use std::collections::{BTreeMap, HashMap};

use hdrhistogram::Histogram;

use super::line::Event;
use crate::import::builder::{Builder, Cell, Track};
use crate::recording::latency::{HIGHEST_NS, histogram};
use crate::recording::{Entity, LatencyBucket, OpKind, PackedHistogram, Table};

const PENDING_MAX: usize = 100_000;
const BUCKETS_MAX: usize = 20_000;

struct Bucket {
    latencies: Histogram<u64>,
    worst_ns: u64,
    bytes: u64,
}

#[derive(Default)]
pub struct Requests {
    pending: HashMap<(String, u64), i64>,
    /// By second, device and direction.
    done: BTreeMap<(i64, String, OpKind), Bucket>,
}

/// `8,0 W 4096 () 12345 + 8 [java]`; a completion has no bytes: `8,0 W () 12345 + 8 [0]`.
fn parse(fields: &str) -> Option<(&str, OpKind, u64, u64)> {
    let mut words = fields.split_whitespace();
    let (device, flags) = (words.next()?, words.next()?);
    device.split_once(',')?;
    let op = match () {
        () if flags.contains('R') => OpKind::Read,
        () if flags.contains('W') => OpKind::Write,
        () if flags.contains('F') => OpKind::Fsync,
        () => OpKind::Other,
    };
    let (before, after) = fields.split_once(" + ")?;
    let sector = before.split_whitespace().last()?.parse().ok()?;
    let sectors: u64 = after.split_whitespace().next()?.parse().ok()?;
    Some((device, op, sector, sectors))
}

impl Requests {
    pub fn event(&mut self, event: &Event<'_>) {
        let issued = event.name == "block_rq_issue";
        if !issued && event.name != "block_rq_complete" {
            return;
        }
        let Some((device, op, sector, sectors)) = parse(event.fields) else { return };
        let key = (device.to_owned(), sector);
        if issued {
            if self.pending.len() < PENDING_MAX {
                self.pending.insert(key, event.at_ns);
            }
            return;
        }
        let Some(began) = self.pending.remove(&key) else { return };
        let Ok(ns) = u64::try_from(event.at_ns.saturating_sub(began)) else { return };
        let place = (event.at_ns.div_euclid(1_000_000_000), key.0, op);
        if self.done.len() >= BUCKETS_MAX && !self.done.contains_key(&place) {
            return;
        }
        let empty = || Bucket { latencies: histogram(), worst_ns: 0, bytes: 0 };
        let bucket = self.done.entry(place).or_insert_with(empty);
        bucket.latencies.saturating_record(ns.clamp(1, HIGHEST_NS));
        bucket.worst_ns = bucket.worst_ns.max(ns);
        bucket.bytes = bucket.bytes.saturating_add(sectors.saturating_mul(512));
    }

    pub fn finish(self, track: Track, b: &mut Builder) {
        for ((second, device, op), bucket) in self.done {
            let at = (track, second.saturating_mul(1_000_000_000));
            let columns = match op {
                OpKind::Read => ["reads", "read_bytes", "read_ns"],
                OpKind::Write => ["writes", "write_bytes", "write_ns"],
                OpKind::Fsync => ["flushes", "flush_bytes", "flush_ns"],
                _ => ["discards", "discard_bytes", "discard_ns"],
            };
            let count = bucket.latencies.len();
            let sum_ns = bucket.latencies.mean() * count as f64;
            let rises = [count as f64, bucket.bytes as f64, sum_ns].map(Cell::Rise);
            let entity = Entity::named(&device);
            b.row(at, Table::Disks, &entity, &columns.map(|column| (column, Cell::Rise(0.0))));
            let cells: Vec<(&str, Cell)> = columns.into_iter().zip(rises).collect();
            b.row((track, at.1.saturating_add(1_000_000_000)), Table::Disks, &entity, &cells);
            let bucket = LatencyBucket {
                start_ns: 0,
                width_ns: 1_000_000_000,
                // A request is not a call of a program: it must not be counted among write()s.
                op: OpKind::Other,
                thread: format!("{device} {}", op.name()),
                bytes: bucket.bytes,
                from_start: PackedHistogram::pack(&bucket.latencies),
                from_due: None,
                worst_from_start_ns: bucket.worst_ns,
                worst_from_due_ns: None,
            };
            b.latency(at, bucket);
        }
    }
}

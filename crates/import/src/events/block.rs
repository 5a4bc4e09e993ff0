//! Pairs issue and completion of block requests, by device and sector.

use std::collections::{BTreeMap, HashMap};

use super::line::Event;
use crate::builder::{Builder, Cell, Track};
use crate::latency_log::PerSecond;
use flatwater_recording::schema::{Column, disks};
use flatwater_recording::{Entity, OpKind, Table};

const PENDING_MAX: usize = 100_000;
/// Maximum pairs of device and operation in one second.
const DEVICES_MAX: usize = 1024;

pub struct Requests {
    track: Track,
    pending: HashMap<(String, u64), i64>,
    seconds: PerSecond,
    /// Requests, bytes and ns of the current second, by device and operation.
    sums: BTreeMap<(String, OpKind), [f64; 3]>,
    second: i64,
}

/// Parses `8,0 W 4096 () 12345 + 8 [java]`; a completion has no bytes: `8,0 W () 12345 + 8 [0]`.
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
    #[must_use]
    pub fn new(track: Track) -> Requests {
        let seconds = PerSecond::new(track);
        Requests { track, pending: HashMap::new(), seconds, sums: BTreeMap::new(), second: i64::MIN }
    }

    pub fn event(&mut self, event: &Event<'_>, b: &mut Builder) {
        let issued = event.name == "block_rq_issue";
        if !issued && event.name != "block_rq_complete" {
            return;
        }
        let Some((device, op, sector, sectors)) = parse(event.fields) else { return };
        let key = (device.to_owned(), sector);
        if issued {
            if self.pending.len() < PENDING_MAX || self.pending.contains_key(&key) {
                self.pending.insert(key, event.at_ns);
            } else {
                b.overflow("open block requests");
            }
            return;
        }
        let Some(began) = self.pending.remove(&key) else { return };
        let Ok(ns) = u64::try_from(event.at_ns.saturating_sub(began)) else { return };
        let second = event.at_ns.div_euclid(1_000_000_000);
        if second != self.second {
            self.flush(b);
            self.second = second;
        }
        let bytes = sectors.saturating_mul(512);
        // A request is not a call of a program, so it must not be counted with write().
        self.seconds.add(b, second, &format!("{device} {}", op.name()), OpKind::Other, ns, bytes);
        let device = (key.0, op);
        if self.sums.len() >= DEVICES_MAX && !self.sums.contains_key(&device) {
            b.overflow("block requests of further devices in one second");
        } else {
            let sums = self.sums.entry(device).or_default();
            for (sum, new) in sums.iter_mut().zip([1.0, bytes as f64, ns as f64]) {
                *sum += new;
            }
        }
    }

    /// Writes the sums of the current second.
    pub fn flush(&mut self, b: &mut Builder) {
        self.seconds.flush(b);
        let at = self.second.saturating_mul(1_000_000_000);
        for ((device, op), sums) in std::mem::take(&mut self.sums) {
            let columns = match op {
                OpKind::Read => [disks::READS, disks::READ_BYTES, disks::READ_NS],
                OpKind::Write => [disks::WRITES, disks::WRITE_BYTES, disks::WRITE_NS],
                OpKind::Fsync => [disks::FLUSHES, disks::FLUSH_BYTES, disks::FLUSH_NS],
                _ => [disks::DISCARDS, disks::DISCARD_BYTES, disks::DISCARD_NS],
            };
            let entity = Entity::named(&device);
            b.row((self.track, at), Table::Disks, &entity, &columns.map(|column| (column, Cell::Rise(0.0))));
            let cells: Vec<(Column, Cell)> = columns.into_iter().zip(sums.map(Cell::Rise)).collect();
            b.row((self.track, at.saturating_add(1_000_000_000)), Table::Disks, &entity, &cells);
        }
    }
}

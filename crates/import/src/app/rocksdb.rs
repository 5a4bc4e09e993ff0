//! Reads RocksDB's LOG: latency histograms of syncs, writes and reads in the statistics dump, and the time for which
//! writers were stalled.
//!
//! `rocksdb.wal.file.sync.micros P50 : 1.2 P95 : 3.4 P99 : 5.6 P100 : 789.0 COUNT : 12 SUM : 345`
//! (monitoring/statistics.cc).

use crate::anchors::Anchor;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::latency_log::Counting;
use crate::number::{nanos, number};
use crate::single_call::single_call;
use crate::text::Cursor;
use crate::when::{When, Zero, clock};
use crate::{FormatKind, Importer};
use flatwater_recording::{Basis, Cause, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "rocksdb-log",
    sentence: "RocksDB's LOG: histograms of the statistics dump, Interval stall and Cumulative stall.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Line(&["rocksdb.", "Interval stall: "])],
    detect: |cursor| {
        if histogram(cursor.next_text()).is_some() || stall(cursor.next_text()).is_some() { 90 } else { 0 }
    },
    read,
};

/// A histogram: name, steps as (share of all, us), and number of values.
struct Histogram<'a> {
    name: &'a str,
    steps: Vec<(f64, f64)>,
    count: u64,
}

fn histogram(text: &str) -> Option<Histogram<'_>> {
    let at = text.find("rocksdb.")?;
    let words: Vec<&str> = text.get(at..)?.split_whitespace().collect();
    let name = words.first()?.trim_end_matches(':');
    let value = |key: &str| {
        let at = words.iter().position(|word| word.trim_end_matches(':') == key)?;
        words.iter().skip(at + 1).find(|word| **word != ":" && **word != "=>").and_then(|word| number(word))
    };
    let steps: Vec<(f64, f64)> = [("P50", 0.5), ("P95", 0.95), ("P99", 0.99), ("P100", 1.0)]
        .iter()
        .filter_map(|(key, share)| Some((*share, value(key)?)))
        .collect();
    (steps.len() >= 3).then_some(())?;
    Some(Histogram { name, steps, count: value("COUNT").map_or(0, |count| count.clamp(0.0, 1e15) as u64) })
}

/// The stall time in ns: `Interval stall: 00:00:1.234 H:M:S, 12.3 percent`.
fn stall(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("Interval stall: ")?;
    let time = rest.split_whitespace().next()?;
    let mut fields = time.split(':').map(number);
    let (hours, minutes, seconds) = (fields.next()??, fields.next()??, fields.next()??);
    Some(nanos(hours * 3600.0 + minutes * 60.0 + seconds, 1e9))
}

fn op_of(name: &str) -> Option<OpKind> {
    Some(match name {
        "rocksdb.wal.file.sync.micros" | "rocksdb.table.sync.micros" | "rocksdb.manifest.file.sync.micros" => {
            OpKind::Fsync
        }
        "rocksdb.db.write.micros" | "rocksdb.db.write.stall" => OpKind::Write,
        "rocksdb.sst.read.micros" | "rocksdb.db.get.micros" | "rocksdb.read.block.get.micros" => OpKind::Read,
        _ => return None,
    })
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    while let Some(line) = cursor.peek() {
        let when = super::time::of_line(line.text).or(b.context().moment).unwrap_or(When::new(Zero::Start, 0));
        if let Some(found) = histogram(line.text) {
            let (track, at) = (b.shared_track("rocksdb-log", when.zero), when.ns);
            if let Some(op) = op_of(found.name).filter(|_| found.count > 0) {
                let mut counting = Counting::default();
                let mut reported = 0;
                for (share, us) in &found.steps {
                    let upto = (found.count as f64 * share).ceil() as u64;
                    // Values between two percentiles count as the upper one.
                    counting.add(nanos(us.max(0.0), 1e3), upto.saturating_sub(reported));
                    reported = reported.max(upto);
                }
                counting.push(b, (track, at), 0, op, found.name, 0);
                b.note("RocksDB prints only percentiles: latencies between two of them count as the upper one");
            }
        } else if let Some(ns) = stall(line.text) {
            let track = b.shared_track("rocksdb-log", when.zero);
            if ns > 0 {
                let call =
                    single_call(0, "rocksdb writers stalled", OpKind::Write, ns, Cause::Unexplained, Basis::Inferred);
                b.call((track, when.ns.saturating_sub(i64::try_from(ns).unwrap_or(0))), call);
            }
        } else if is_dump(line.text) {
            b.pass_over();
        } else if !line.is_blank() {
            break;
        }
        cursor.take();
    }
    Ok(())
}

/// Whether this is another line of the statistics dump.
fn is_dump(text: &str) -> bool {
    let text = text.trim();
    [
        "rocksdb.",
        "** ",
        "Cumulative ",
        "Interval ",
        "Uptime(secs)",
        "AddFile",
        "Flush(GB)",
        "Level ",
        "---",
        "STATISTICS:",
        "Block cache",
    ]
    .iter()
    .any(|start| text.starts_with(start))
        && clock(text).is_none()
}

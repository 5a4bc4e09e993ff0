//! Reads logs of servers that time their own writes and syncs, line by line.
//!
//! `rules` is the table of words that identify a line, with the position of the duration in the line. A line becomes a
//! slow call with a known length, by the server's clock, and an unknown cause. Logs that need several lines, or contain
//! more than a duration, have separate files.

mod duration;
mod innodb;
mod jvm;
mod redis;
mod redis_info;
mod rocksdb;
mod rules;
mod time;

pub use innodb::IMPORTER as INNODB_STATUS;
pub use jvm::IMPORTER as JVM_GC;
pub use redis::IMPORTER as REDIS_LATENCY;
pub use redis_info::IMPORTER as REDIS_INFO;
pub use rocksdb::IMPORTER as ROCKSDB;

use crate::anchors::Anchor;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::single_call::single_call;
use crate::text::{Cursor, Line};
use crate::when::{SECOND_NS, When, Zero};
use crate::{FormatKind, Importer, is_of_another};
use flatwater_recording::{Basis, Cause, EventKind};
use rules::Statement;

pub const IMPORTER: Importer = Importer {
    name: "application-log",
    sentence: "Lines of servers about their own syncs and writes: etcd, ZooKeeper, Kafka, Redis, MySQL, MongoDB, \
        Elasticsearch, PostgreSQL, RocksDB, Cassandra, HBase, HDFS, CockroachDB, Ceph and others.",
    kind: FormatKind::ServerLog,
    anchors: &[Anchor::LineOf(rules::words), Anchor::BelowOf(rules::words)],
    detect: |cursor| {
        let text = cursor.next_text();
        let soon = || {
            let mut below = (1..BEFORE_MAX).map_while(|ahead| cursor.ahead(ahead));
            rules::is_logged(text) && below.any(|line| rules::matching(line.text).is_some())
        };
        match () {
            // Above 70: printk also prints a date in brackets, but these words identify servers.
            () if rules::matching(text).is_some() => 72,
            () if soon() => 10,
            () => 0,
        }
    },
    read,
};

/// Maximum lines of a server's log before its first line with a known message.
const BEFORE_MAX: usize = 20;

/// Words of lines with a date that belong to other formats: the kernel, JVMs, RocksDB, PostgreSQL's checkpoints.
const OTHERS: &[&str] = &[
    "kernel: ",
    "[gc",
    "[GC",
    "[Full GC",
    "threads were stopped",
    "GCInspector",
    "rocksdb.",
    "checkpoint",
    "restartpoint",
];

/// Whether this is a line of the server's log without a known message. Asking all importers about each line would be
/// slow, so a line that begins with a date belongs to the server unless it has a word of another format.
fn is_other_line(line: &Line<'_>, cursor: &Cursor<'_>) -> bool {
    let plain = time::of_line(line.text).is_some() && !OTHERS.iter().any(|word| line.text.contains(word));
    plain || rules::is_logged(line.text) && !is_of_another(cursor, &IMPORTER)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut ordinal = 0;
    while let Some(line) = cursor.peek() {
        let Some(found) = rules::matching(line.text) else {
            // Most lines of a server's log are not about stalls.
            if line.is_blank() || is_other_line(&line, cursor) {
                if !line.is_blank() {
                    b.pass_over();
                }
                cursor.take();
                continue;
            }
            break;
        };
        cursor.take();
        let when = time::of_line(line.text).or(b.context().moment).unwrap_or_else(|| {
            let why = "they have no times: one second between them is assumed";
            b.gap("time of the lines of servers' logs", why, "keep the time at the beginning of each line");
            When::new(Zero::Start, ordinal * SECOND_NS)
        });
        ordinal += 1;
        let track = b.shared_track("application-log", when.zero);
        match found.statement {
            Statement::Took { ns, basis } => {
                let mut call = single_call(0, found.rule.thread, found.rule.op, ns, Cause::Unexplained, Basis::Exact);
                for segment in &mut call.segments {
                    segment.duration_basis = basis;
                }
                call.file = found.rule.file.map(str::to_owned);
                b.call((track, when.ns.saturating_sub(i64::try_from(ns).unwrap_or(0))), call);
            }
            Statement::Reported => b.event((track, when.ns), EventKind::report(line.text.trim())),
        }
    }
    Ok(())
}

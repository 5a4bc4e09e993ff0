//! Reads pg_test_fsync 9.0 to 18: how many syncs per second the disk of PostgreSQL's log performs, by method.

use super::builder::Builder;
use super::error::ImportError;
use super::latency_log::Counting;
use super::number::{nanos, number};
use super::text::Cursor;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::OpKind;

pub const IMPORTER: Importer = Importer {
    name: "pg-test-fsync",
    sentence: "pg_test_fsync: the mean time of synced writes, by method.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Table(&[
            "usecs/op",
            "Compare file sync",
            "Compare open_sync",
            "Test if fsync",
            "Non-Sync'ed ",
            "Non-sync'ed ",
        ]),
        Anchor::Line(&[
            " per test",
            "O_DIRECT supported",
            "Direct I/O is not supported",
            "wal_sync_method",
            "is Linux's default",
            "(This is designed",
            "in different write open_sync",
            "(If the times are similar",
            "on a different descriptor",
            " n/a",
        ]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if row(text).is_some() => 93,
        text if is_title(text) => 80,
        _ => 0,
    },
    read,
};

/// Default duration of the test of each method (-s).
const SECONDS: f64 = 5.0;

/// `fdatasync   329.207 ops/sec    3038 usecs/op`: method, operations per second, ns per operation.
fn row(text: &str) -> Option<(&str, f64, u64)> {
    let (before, each) = text.trim().split_once(" ops/sec")?;
    let (method, rate) = before.rsplit_once(char::is_whitespace)?;
    let us = number(each.trim().strip_suffix("usecs/op")?.trim())?;
    Some((method.trim(), number(rate).filter(|rate| *rate >= 0.0)?, nanos(us.max(0.0), 1e3)))
}

/// Whether this is a line between the rows.
fn is_title(text: &str) -> bool {
    let text = text.trim();
    [
        "Compare file sync methods",
        "Compare open_sync with",
        "Test if fsync on non-write file",
        "Non-Sync'ed ",
        "Non-sync'ed ",
    ]
    .iter()
    .any(|title| text.starts_with(title))
        || text.ends_with(" per test") && text.contains("second")
        || text.starts_with("O_DIRECT supported on this platform")
        || text.starts_with("Direct I/O is not supported on this platform")
        || text.starts_with("(in wal_sync_method preference order")
        || text.starts_with("is Linux's default)")
        || text.starts_with("(This is designed to compare the cost of writing")
        || text.starts_with("in different write open_sync sizes")
        || text.starts_with("(If the times are similar, fsync() can sync data written")
        || text.starts_with("on a different descriptor.)")
        || text.ends_with(" n/a")
        || text.ends_with(" n/a*")
}

fn op_of(method: &str) -> OpKind {
    match method {
        "fdatasync" => OpKind::Fdatasync,
        "write" => OpKind::Write,
        // With O_DSYNC and O_SYNC each write is a sync.
        _ => OpKind::Fsync,
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("pg-test-fsync");
    while let Some(line) = cursor.peek() {
        if let Some((method, rate, ns)) = row(line.text) {
            let mut counting = Counting::default();
            counting.add(ns, (rate * SECONDS).round().clamp(1.0, 1e9) as u64);
            counting.push(b, place, 0, op_of(method), method, 0);
        } else if is_title(line.text) {
            b.pass_over();
        } else if !line.is_blank() {
            break;
        }
        cursor.take();
    }
    b.note("pg_test_fsync prints means: the longest syncs are unknown");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::row;
    use crate::import_texts;
    use flatwater_recording::OpKind;

    #[test]
    fn rows_of_all_methods_parse() {
        assert_eq!(
            row("        fdatasync              329.207 ops/sec    3038 usecs/op"),
            Some(("fdatasync", 329.207, 3_038_000))
        );
        assert_eq!(
            row("  1 * 16kB open_sync write   25096,743 ops/sec      40 usecs/op"),
            Some(("1 * 16kB open_sync write", 25096.743, 40_000))
        );
        assert_eq!(row("        fsync_writethrough                      n/a"), None);
    }

    #[test]
    fn a_method_becomes_one_operation() {
        let text = "5 seconds per test\nCompare file sync methods using one 8kB write:\n(in wal_sync_method preference order, except fdatasync\nis Linux's default)\n        open_datasync      100.000 ops/sec   10000 usecs/op\n        fdatasync           90.000 ops/sec   11111 usecs/op\n        fsync_writethrough             n/a\n\nNon-Sync'ed 8kB writes:\n        write           76100.311 ops/sec      13 usecs/op\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let all: Vec<(OpKind, u64)> = recording.latency.iter().map(|row| (row.op, row.worst_from_start_ns)).collect();
        assert!(all.contains(&(OpKind::Fdatasync, 11_111_000)) && all.contains(&(OpKind::Write, 13_000)), "{all:?}");
        let read = recording.header.import.expect("an import");
        assert_eq!(read.understood, read.lines, "{read:?}");
    }
}

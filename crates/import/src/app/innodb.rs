//! Reads SHOW ENGINE INNODB STATUS: threads that wait for a semaphore, pending syncs and writes.
//!
//! The status shows one moment. A pending sync shows that the disk is busy; the status does not contain its duration.

use super::duration;
use crate::anchors::Anchor;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::number::count;
use crate::single_call::single_call;
use crate::text::Cursor;
use crate::{FormatKind, Importer, is_of_another};
use flatwater_recording::{Basis, Cause, EventKind, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "innodb-status",
    sentence: "SHOW ENGINE INNODB STATUS, complete or in parts: semaphore waits, pending syncs, writes and reads.",
    kind: FormatKind::Unjudged,
    anchors: &[
        Anchor::Table(&["INNODB MONITOR OUTPUT"]),
        Anchor::Line(&[
            "Pending flushes (fsync)",
            "Pending normal aio",
            "Pending writes: LRU",
            "pending log ",
            "Log sequence number",
        ]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if text.contains(BANNER) => 95,
        text if pending(text).is_some() => 90,
        text if text.starts_with("Log sequence number") => 84,
        _ => 0,
    },
    read,
};

const BANNER: &str = "INNODB MONITOR OUTPUT";
const END: &str = "END OF INNODB MONITOR OUTPUT";
/// Maximum lines of one status, including the transactions of a server with thousands of them.
const LINES_MAX: usize = 20_000;

/// Words inside lines of the status.
const INNER: &[&str] = &["ibuf aio reads", "OS file reads", "avg bytes/read", "log i/o's"];

/// Beginnings of lines of the status.
const LINES: &[&str] = &[
    "BACKGROUND THREAD",
    "SEMAPHORES",
    "FILE I/O",
    "INSERT BUFFER AND ADAPTIVE HASH INDEX",
    "BUFFER POOL AND MEMORY",
    "ROW OPERATIONS",
    "TRANSACTIONS",
    "OS WAIT ARRAY INFO",
    "I/O thread ",
    "Log sequence number",
    "Log buffer",
    "Log flushed up to",
    "Log written up to",
    "Log minimum file id",
    "Pages flushed up to",
    "Added dirty pages up to",
    "Last checkpoint at",
    "Max checkpoint age",
    "Checkpoint age",
    "Modified age",
    "Modified db pages",
    "Buffer pool size",
    "Free buffers",
    "Database pages",
    "Total large memory",
    "Dictionary memory",
    "Per second averages",
    "--Thread ",
];

/// Kind and number of pending operations on a line: syncs (`Pending flushes (fsync) log: 1; buffer pool: 2`), writes of
/// the log (`1 pending log flushes, 0 pending chkp writes`), page writes
/// (`Pending writes: LRU 0, flush list 6, single page 0`; `Pending normal aio reads: [0, 3] , aio writes: [32, 49] ,`).
fn pending(text: &str) -> Option<(&'static str, i64)> {
    let text = text.trim();
    let sum = |text: &str| text.split(|c: char| !c.is_ascii_digit()).filter_map(count).sum::<i64>();
    if let Some(rest) = text.strip_prefix("Pending flushes (fsync)") {
        return Some(("syncs", sum(rest)));
    }
    if let Some(rest) = text.strip_prefix("Pending normal aio reads:") {
        let writes = rest.split_once("aio writes:").map_or(rest, |(_, writes)| writes);
        return Some(("page writes", sum(writes)));
    }
    if text.starts_with("Pending writes: LRU") {
        return Some(("page writes", sum(text)));
    }
    let (number, rest) = text.split_once(' ')?;
    let of_log = rest.starts_with("pending log writes") || rest.starts_with("pending log flushes");
    of_log.then(|| Some(("writes of the log", count(number)?)))?
}

/// Number of lines of the complete status at the cursor; 0 if its end is missing.
fn lines_of_whole(cursor: &Cursor<'_>) -> usize {
    if !cursor.next_text().contains(BANNER) {
        return 0;
    }
    let lines = (1..LINES_MAX).map_while(|ahead| cursor.ahead(ahead));
    let end = lines.zip(2..).find(|(line, _)| line.text.contains(BANNER));
    end.filter(|(line, _)| line.text.contains(END)).map_or(0, |(_, lines)| lines)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("innodb-status");
    let mut rest = lines_of_whole(cursor);
    while let Some(line) = cursor.peek() {
        let text = line.text;
        let whole = rest > 0;
        rest = rest.saturating_sub(1);
        let waited = text.contains("has waited at") && text.contains("seconds the semaphore");
        let known = waited
            || pending(text).is_some()
            || text.contains(BANNER)
            || LINES.iter().any(|known| text.trim_start().starts_with(known))
            || INNER.iter().any(|known| text.contains(known));
        let ornament = text.trim().bytes().all(|c| c == b'-' || c == b'=') || text.trim() == "LOG";
        if !(whole || (known || ornament) && !is_of_another(cursor, &IMPORTER)) {
            break;
        }
        cursor.take();
        if waited {
            let ns = text.split_once(" for ").and_then(|(_, rest)| duration::first(rest, 1e9)).unwrap_or(0);
            b.call(place, single_call(0, "InnoDB thread", OpKind::Other, ns, Cause::Unexplained, Basis::Exact));
        } else if let Some((what, times)) = pending(text).filter(|(_, times)| *times > 0) {
            b.event(place, EventKind::report(format!("InnoDB: {times} {what} are pending")));
        } else if !line.is_blank() {
            b.pass_over();
        }
        if text.contains(END) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::pending;
    use crate::import_texts;

    #[test]
    fn pending_operations_are_events_and_waits_are_calls() {
        assert_eq!(pending("Pending flushes (fsync) log: 1; buffer pool: 27"), Some(("syncs", 28)));
        assert_eq!(pending("Pending normal aio reads: [9, 0] , aio writes: [32, 0, 49] ,"), Some(("page writes", 81)));
        assert_eq!(pending("1 pending log flushes, 0 pending chkp writes"), Some(("writes of the log", 1)));
        assert_eq!(pending("12 pending requests"), None);
        let text = "2018-02-12 09:01:22 0x7f1 INNODB MONITOR OUTPUT\n=====\nSEMAPHORES\n\
            --Thread 140406 has waited at buf0flu.cc line 1209 for 241 seconds the semaphore:\nX-lock on RW-latch\n\
            Pending flushes (fsync) log: 1; buffer pool: 0\nanything of a transaction\nEND OF INNODB MONITOR OUTPUT\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        assert_eq!(recording.calls.first().map(|call| call.duration_ns), Some(241_000_000_000));
        assert_eq!(recording.events.len(), 1);
        let summary = recording.header.import.expect("a summary");
        assert_eq!(summary.lines, summary.understood, "{:?}", summary.not_understood);
    }
}

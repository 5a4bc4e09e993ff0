//! Reads the lines of PostgreSQL's log_checkpoints.
//!
//! A checkpoint spreads its writes on purpose; only its sync phase makes sessions wait. `flush` is the time of write
//! and sync, `critical` the total time minus `flush`.

use super::builder::Builder;
use super::error::ImportError;
use super::number::{leading, nanos, number};
use super::single_call::single_call;
use super::text::{Cursor, Line, Token};
use super::when::{SECOND_NS, When, Zero, iso};
use super::{FormatKind, Importer, best};
use crate::anchors::Anchor;
use flatwater_recording::outcome::CheckpointRow;
use flatwater_recording::{Basis, Cause, EventKind, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "postgresql",
    sentence: "PostgreSQL log lines of log_checkpoints.",
    kind: FormatKind::TimedCalls,
    anchors: &[Anchor::Line(&[
        "checkpoint complete:",
        "restartpoint complete:",
        "checkpoint starting:",
        "restartpoint starting:",
        "checkpoints are occurring",
    ])],
    detect: |cursor| if is_ours(cursor.next_text()) { 95 } else { 0 },
    read,
};

fn is_ours(text: &str) -> bool {
    let phrases = [
        "checkpoint complete:",
        "restartpoint complete:",
        "checkpoint starting:",
        "restartpoint starting:",
        "checkpoints are occurring too frequently",
    ];
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// The time of log_line_prefix (%m, %t) anywhere before the message: syslog adds its own prefix.
fn time(text: &str) -> Option<When> {
    let before = text.split_once("LOG:").map_or(text, |(before, _)| before);
    let words: Vec<&str> = before.split_whitespace().take(12).map(|word| word.trim_matches(['[', ']', ','])).collect();
    words.windows(2).find_map(|pair| match pair {
        [day, time] => iso(&format!("{day} {}", time.trim_end_matches(':'))),
        _ => None,
    })
}

/// Minimum duration of a sync to report. The checkpointer syncs each file once; sessions only notice syncs of this
/// length.
const SYNC_NOTICED_NS: u64 = 100_000_000;

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut ordinal = 0;
    while let Some(line) = cursor.peek() {
        if line.is_blank() {
            cursor.take();
            continue;
        }
        // The log has all other messages of the server between the checkpoints.
        if !is_ours(line.text) {
            let more = (1..200).map_while(|ahead| cursor.ahead(ahead)).any(|line| is_ours(line.text));
            let logged = line.text.contains("LOG:") || line.text.contains("STATEMENT:") || time(line.text).is_some();
            if more && logged && best(cursor).is_none() {
                cursor.take();
                b.pass_over();
                continue;
            }
            break;
        }
        cursor.take();
        let when = time(line.text).or(b.context().moment).unwrap_or_else(|| {
            b.gap(
                "time of the checkpoints",
                "the lines have no times: one second between them is assumed",
                "log_line_prefix = '%m '",
            );
            When::new(Zero::Start, ordinal * SECOND_NS)
        });
        ordinal += 1;
        let track = b.shared_track("postgresql", when.zero);
        if line.text.contains("too frequently") {
            b.event(
                (track, when.ns),
                EventKind::Report("PostgreSQL: checkpoints are occurring too frequently".to_owned()),
            );
        }
        if line.text.contains("complete:") {
            match row(&line) {
                Ok((row, longest_ns)) => {
                    b.checkpoint((track, when.ns), row);
                    // The log states only the longest fsync, so it becomes a call.
                    if longest_ns >= SYNC_NOTICED_NS {
                        // An fsync() of a data file waits for its dirty pages to be written: the cause is inferred.
                        let (cause, basis) = (Cause::PageWriteback, Basis::Inferred);
                        let call = single_call(0, "checkpointer", OpKind::Fsync, longest_ns, cause, basis);
                        let start = when.ns.saturating_sub(i64::try_from(longest_ns).unwrap_or(0));
                        b.call((track, start), call);
                    }
                }
                Err(error) => b.problem(error),
            }
        }
    }
    Ok(())
}

/// Parses
/// `wrote 1234 buffers (7.5%); ... write=269.456 s, sync=0.123 s, total=270.001 s; sync files=9, longest=0.05 s, ...`.
fn row(line: &Line<'_>) -> Result<(CheckpointRow, u64), ImportError> {
    let seconds = |key: &str| -> Result<u64, ImportError> {
        let Some((_, rest)) = line.text.split_once(key) else {
            return Err(ImportError::short(line, format!("'{key}N s'")));
        };
        let text = rest.split([' ', ',', ';']).next().unwrap_or_default();
        let value = number(text).filter(|value| *value >= 0.0);
        let token = Token { text, column: line.column_of(text) };
        value.map(|value| nanos(value, 1e9)).ok_or_else(|| ImportError::at(line, token, "seconds"))
    };
    let (write, sync, total) = (seconds("write=")?, seconds("sync=")?, seconds("total=")?);
    let buffers = line.text.split_once("wrote ").and_then(|(_, rest)| leading(rest)).map_or(0, |(buffers, _)| buffers);
    let flush_ns = write.saturating_add(sync);
    let row = CheckpointRow {
        at_ns: 0,
        critical_ns: total.saturating_sub(flush_ns),
        flush_ns,
        // Assumes the default buffer size of 8 KiB.
        bytes: buffers.saturating_mul(8192),
        waited_for_thread: None,
        waited_for_call: None,
    };
    Ok((row, seconds("longest=").unwrap_or(0)))
}

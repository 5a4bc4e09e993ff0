//! Reads checkpoints of Informix (`onstat -g ckp`). Ckpt Time is the time from the request until every thread had left
//! its critical section; the time of flushing is separate.

use super::builder::Builder;
use super::error::ImportError;
use super::number::{count, nanos, number};
use super::text::{Cursor, Line, Token};
use super::when::{DAY_NS, Zero, clock};
use super::{FormatKind, Importer, is_of_another};
use crate::anchors::Anchor;
use flatwater_recording::outcome::CheckpointRow;

pub const IMPORTER: Importer = Importer {
    name: "informix",
    sentence: "Informix onstat -g ckp.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["IBM Informix", "Auto Checkpoints=", "Critical Sections", "Interval"])],
    detect: |cursor| {
        let text = cursor.next_text();
        let begins = ["IBM Informix", "Auto Checkpoints="].iter().any(|start| text.starts_with(start));
        let begins = begins || text.contains("Critical Sections");
        let follows = || (1..12).filter_map(|ahead| cursor.ahead(ahead)).any(|line| is_header(line.text));
        if is_header(text) || (begins && follows()) { 90 } else { 0 }
    },
    read,
};

fn is_header(text: &str) -> bool {
    text.starts_with("Interval") && text.contains("Trigger") && text.contains("LSN")
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let track = b.shared_track("informix", Zero::Day);
    let mut begun = false;
    let (mut day, mut latest) = (0, i64::MIN);
    while let Some(line) = cursor.peek() {
        begun |= is_header(line.text);
        let is_row = begun && is_row(&line);
        if begun && !is_header(line.text) && !is_row || is_of_another(cursor, &IMPORTER) {
            break;
        }
        cursor.take();
        if !is_row {
            continue;
        }
        match row(&line) {
            Ok((ns, row)) => {
                if day * DAY_NS + ns < latest {
                    day += 1;
                }
                latest = day * DAY_NS + ns;
                b.checkpoint((track, latest), row);
                let why = "the table does not state its page size: 2 KiB, the default on Linux, is assumed";
                b.gap("bytes that the checkpoints flushed", why, "");
            }
            Err(error) => b.problem(error),
        }
    }
    skip_other_tables(cursor, b);
    Ok(())
}

/// Whether the line begins with a number and a clock, as a checkpoint does.
fn is_row(line: &Line<'_>) -> bool {
    let mut tokens = line.tokens();
    tokens.next().is_some_and(|token| count(token.text).is_some())
        && tokens.next().is_some_and(|token| token.text.get(..8).and_then(clock).is_some())
}

/// Skips the tables of log and flush rates after the checkpoints.
fn skip_other_tables(cursor: &mut Cursor<'_>, b: &mut Builder) {
    let known = ["Physical Log", "Dskflu", "/Sec", "Max Plog", "pages/sec", "Based on", "Logical Log"];
    let mut below_header = false;
    while let Some(line) = cursor.peek() {
        let header = known.iter().any(|name| line.text.contains(name));
        let figures = !line.is_blank() && line.tokens().all(|token| number(token.text).is_some());
        if !(header || below_header && figures) || is_of_another(cursor, &IMPORTER) {
            break;
        }
        below_header |= header;
        cursor.take();
        b.pass_over();
    }
}

/// Parses `5  18:46:21 RTO  13:188  54.8  54.2  0.0  30  0.6  0.4  0.6  68232 ...`. The trigger may be missing, or
/// follow the clock without a blank (`18:42:44*User`).
fn row(line: &Line<'_>) -> Result<(i64, CheckpointRow), ImportError> {
    let tokens: Vec<Token<'_>> = line.tokens().collect();
    let Some(time) = tokens.get(1) else { return Err(ImportError::short(line, "a clock time")) };
    let ns = time.text.get(..8).and_then(clock).ok_or_else(|| ImportError::at(line, *time, "a clock time"))?;
    let lsn = tokens.iter().skip(2).position(|token| {
        let pair = token.text.split_once(':');
        pair.is_some_and(|(log, place)| count(log).is_some() && place.chars().all(|c| c.is_ascii_hexdigit()))
    });
    let Some(lsn) = lsn.map(|place| place + 2) else {
        return Err(ImportError::short(line, "a log position such as 13:188"));
    };
    let value = |place: usize, what: &str| -> Result<f64, ImportError> {
        let Some(token) = tokens.get(lsn + place) else { return Err(ImportError::short(line, format!("'{what}'"))) };
        let value = number(token.text).filter(|value| *value >= 0.0);
        value.ok_or_else(|| ImportError::at(line, *token, format!("seconds of '{what}'")))
    };
    let flush = value(2, "Flush Time")?;
    let critical = value(5, "Ckpt Time")?;
    let buffers = value(8, "# Dirty Buffers")?;
    let row = CheckpointRow {
        at_ns: 0,
        critical_ns: nanos(critical, 1e9),
        flush_ns: nanos(flush, 1e9),
        bytes: nanos(buffers, 2048.0),
        waited_for_thread: None,
        waited_for_call: None,
    };
    Ok((ns, row))
}

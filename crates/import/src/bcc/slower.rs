//! Reads ext4slower, xfsslower, btrfsslower, nfsslower, zfsslower, fsslower, fileslower: file operations over a
//! threshold.
//!
//! These tools time the whole operation, not its waits, so the whole time is unexplained.

use crate::anchors::Anchor;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::number::{count, nanos, number};
use crate::single_call::single_call;
use crate::text::{Cursor, Line, Token};
use crate::when::{DAY_NS, SECOND_NS, Zero, clock};
use crate::{FormatKind, Importer};
use flatwater_recording::{Basis, Call, Cause, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "slower",
    sentence: "ext4slower, xfsslower and similar, and fileslower.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Table(&["LAT(ms)", "slower than", "ENDTIME_us"])],
    detect: |cursor| match cursor.next_text() {
        text if is_header(text) => 97,
        text if text.starts_with("Tracing ") && text.contains("slower than") => 90,
        text if text.starts_with("ENDTIME_us,TASK") => 97,
        _ => 0,
    },
    read,
};

fn is_header(text: &str) -> bool {
    let named = text.contains("COMM") || text.contains("PROCESS") && text.contains("TYPE");
    text.trim_start().starts_with("TIME") && named && text.contains("LAT(ms)") && text.contains("FILE")
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut header: Option<String> = None;
    let mut place = None;
    let (mut day, mut latest) = (0, i64::MIN);
    while let Some(line) = cursor.peek() {
        if line.text.starts_with("Tracing ") {
            cursor.take();
            continue;
        }
        if is_header(line.text) || line.text.starts_with("ENDTIME_us") {
            header = Some(line.text.to_owned());
            cursor.take();
            continue;
        }
        let Some(header) = header.as_deref().filter(|_| !line.is_blank()) else { break };
        if !line.text.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        cursor.take();
        let found = match () {
            () if header.contains(',') => comma_row(&line),
            () if header.contains("PROCESS") => sysdig_row(&line),
            () => row(&line, header),
        };
        match found {
            Ok((time, call)) => {
                let ns = i64::try_from(call.duration_ns).unwrap_or(0);
                let (zero, end) = match time {
                    Time::Day(ns) => {
                        if day * DAY_NS + ns < latest.saturating_sub(DAY_NS / 2) {
                            day += 1;
                        }
                        (Zero::Day, day * DAY_NS + ns)
                    }
                    Time::Since(ns) => (Zero::Start, ns),
                };
                latest = latest.max(end);
                let (track, origin) = *place.get_or_insert_with(|| match zero {
                    Zero::Day => (b.shared_track("slower", Zero::Day), 0),
                    _ => b.origin("slower"),
                });
                b.call((track, origin.saturating_add(end).saturating_sub(ns)), call);
            }
            Err(error) => b.problem(error),
        }
    }
    Ok(())
}

enum Time {
    /// Wall clock at the end of the operation.
    Day(i64),
    /// Time since the start of the tool.
    Since(i64),
}

fn op(letter: &str) -> Option<OpKind> {
    Some(match letter {
        "R" => OpKind::Read,
        "W" => OpKind::Write,
        "O" => OpKind::Open,
        "S" | "F" => OpKind::Fsync,
        "G" => OpKind::Stat,
        _ => return None,
    })
}

/// Parses `2014-04-13 20:40:43.973 cksum  read  2 /mnt/file` of sysdig's chisel.
fn sysdig_row(line: &Line<'_>) -> Result<(Time, Call), ImportError> {
    let tokens: Vec<Token<'_>> = line.tokens().collect();
    let kind = |text: &str| match text {
        "read" | "pread" | "readv" | "preadv" => Some(OpKind::Read),
        "write" | "pwrite" | "writev" | "pwritev" => Some(OpKind::Write),
        "open" | "openat" | "creat" => Some(OpKind::Open),
        _ => None,
    };
    // The name of a process may contain blanks.
    let anchor = tokens.iter().position(|token| kind(token.text).is_some()).filter(|anchor| *anchor >= 3);
    let (Some(anchor), Some(time)) = (anchor, tokens.get(1)) else {
        return Err(ImportError::line(line, "date, time, PROCESS, TYPE, LAT(ms), FILE"));
    };
    let Some(latency) = tokens.get(anchor + 1) else { return Err(ImportError::short(line, "a latency in ms")) };
    let ms = number(latency.text)
        .filter(|ms| *ms >= 0.0)
        .ok_or_else(|| ImportError::at(line, *latency, "a latency in ms"))?;
    let when = clock(time.text).ok_or_else(|| ImportError::at(line, *time, "a time of day"))?;
    let name: Vec<&str> = tokens.get(2..anchor).unwrap_or_default().iter().map(|token| token.text).collect();
    let op = tokens.get(anchor).and_then(|token| kind(token.text)).unwrap_or(OpKind::Other);
    let mut call = single_call(0, &name.join(" "), op, nanos(ms, 1e6), Cause::Unexplained, Basis::Exact);
    call.file = tokens.get(anchor + 2).map(|token| token.text.to_owned());
    Ok((Time::Day(when), call))
}

/// Parses `06:35:01 cron  16464  R 1249  0  16.05 common-auth`; fileslower has no OFF_KB.
fn row(line: &Line<'_>, header: &str) -> Result<(Time, Call), ImportError> {
    let tokens: Vec<Token<'_>> = line.tokens().collect();
    // COMM may contain blanks: look for a number followed by the letter of an operation.
    let anchor = tokens
        .windows(2)
        .position(|pair| matches!(pair, [pid, letter] if count(pid.text).is_some() && op(letter.text).is_some()));
    let Some((time, anchor)) = tokens.first().zip(anchor.filter(|anchor| *anchor > 0)) else {
        return Err(ImportError::line(line, "TIME COMM PID T BYTES ... LAT(ms) FILENAME"));
    };
    let offset = header.contains("OFF_KB");
    let after = |place: usize| tokens.get(anchor + place).copied();
    let latency_at = if offset { 4 } else { 3 };
    let Some(latency) = after(latency_at) else { return Err(ImportError::short(line, "a latency in ms")) };
    let ms = number(latency.text)
        .filter(|ms| *ms >= 0.0)
        .ok_or_else(|| ImportError::at(line, latency, "a latency in ms"))?;
    let when = match clock(time.text) {
        Some(ns) => Time::Day(ns),
        None => {
            let seconds = number(time.text).ok_or_else(|| ImportError::at(line, *time, "a time"))?;
            Time::Since((seconds * SECOND_NS as f64) as i64)
        }
    };
    let comm = tokens.get(1..anchor).unwrap_or_default().iter().map(|token| token.text).collect::<Vec<_>>().join(" ");
    let pid = tokens.get(anchor).and_then(|pid| pid.text.parse().ok()).unwrap_or(0);
    let kind = after(1).and_then(|letter| op(letter.text)).unwrap_or(OpKind::Other);
    let mut call = single_call(pid, &comm, kind, nanos(ms, 1e6), Cause::Unexplained, Basis::Exact);
    call.bytes = after(2).and_then(|bytes| bytes.text.parse().ok());
    if offset {
        call.offset_bytes = after(3).and_then(|kib| kib.text.parse::<u64>().ok()).and_then(|kib| kib.checked_mul(1024));
    }
    let name = tokens.get(anchor + latency_at + 1..).unwrap_or_default();
    call.file = Some(name.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")).filter(|name| !name.is_empty());
    Ok((when, call))
}

/// Parses `-j`: ENDTIME_us,TASK,PID,TYPE,BYTES,OFFSET_b,LATENCY_us,FILE.
fn comma_row(line: &Line<'_>) -> Result<(Time, Call), ImportError> {
    let fields: Vec<&str> = line.text.split(',').collect();
    let [end, task, pid, kind, bytes, offset, latency, file, ..] = fields.as_slice() else {
        return Err(ImportError::short(line, "eight fields: ENDTIME_us,TASK,PID,TYPE,BYTES,OFFSET_b,LATENCY_us,FILE"));
    };
    let value = |field: &str| {
        let token = Token { text: field, column: line.column_of(field) };
        count(field.trim()).ok_or_else(|| ImportError::at(line, token, "a number"))
    };
    let kind = op(kind.trim()).unwrap_or(OpKind::Other);
    let ns = nanos(value(latency)? as f64, 1e3);
    let mut call = single_call(value(pid)?.clamp(0, 1 << 31) as u32, task, kind, ns, Cause::Unexplained, Basis::Exact);
    call.bytes = u64::try_from(value(bytes)?).ok();
    call.offset_bytes = u64::try_from(value(offset)?).ok();
    call.file = Some((*file).to_owned());
    Ok((Time::Since(value(end)?.saturating_mul(1000)), call))
}

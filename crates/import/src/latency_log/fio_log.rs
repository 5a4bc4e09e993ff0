//! Reads fio's latency logs (`*_lat.N.log`, `*_clat`, `*_slat`): time in ms, latency, direction, block size, offset,
//! priority.
//!
//! fio 3 prints ns and at least five columns, fio 2 prints us and four columns.

use super::PerSecond;
use crate::anchors::{Anchor, DIGITS};
use crate::builder::Builder;
use crate::error::ImportError;
use crate::number::count;
use crate::text::{Cursor, Line, Token};
use crate::when::{When, Zero, epoch};
use crate::{FormatKind, Importer};
use flatwater_recording::OpKind;

pub const IMPORTER: Importer = Importer {
    name: "fio-log",
    sentence: "fio latency logs (write_lat_log), fio 2 and 3.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Start(DIGITS)],
    detect: |cursor| {
        let rows = (0..3).map_while(|ahead| cursor.ahead(ahead)).filter(|line| !line.is_blank());
        let all = rows.clone().all(|line| parse(&line).is_ok());
        if all && rows.count() > 0 && cursor.next_text().contains(',') { 75 } else { 0 }
    },
    read,
};

struct Entry {
    at_ms: u64,
    value: u64,
    op: OpKind,
    bytes: u64,
    columns: usize,
}

fn parse(line: &Line<'_>) -> Result<Entry, ImportError> {
    let mut numbers: Vec<u64> = Vec::new();
    for field in line.text.split(',').take(8) {
        let text = field.trim();
        // The priority may be printed as 0x0.
        let value = text.strip_prefix("0x").map_or_else(|| count(text), |hex| i64::from_str_radix(hex, 16).ok());
        let value = value.and_then(|value| u64::try_from(value).ok());
        let token = || Token { text, column: line.column_of(field) };
        numbers.push(value.ok_or_else(|| ImportError::at(line, token(), "a number"))?);
    }
    let [at_ms, value, direction, bytes, ..] = numbers.as_slice() else {
        return Err(ImportError::short(line, "time, latency, direction and block size, with commas between"));
    };
    let op = match direction {
        0 => OpKind::Read,
        1 => OpKind::Write,
        2 => OpKind::Other,
        _ => return Err(ImportError::line(line, "direction 0 (read), 1 (write) or 2 (trim) in the third column")),
    };
    Ok(Entry { at_ms: *at_ms, value: *value, op, bytes: *bytes, columns: numbers.len() })
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let file = b.file_name().to_owned();
    let other = ["_bw", "_iops"].iter().any(|kind| file.contains(kind));
    // The first line shows whether times are absolute (log_unix_epoch).
    let first = cursor.peek().and_then(|line| parse(&line).ok());
    let epochal =
        first.is_some_and(|entry| epoch(&entry.at_ms.to_string()).is_some() && entry.at_ms > 1_000_000_000_000);
    let origin =
        if epochal { When::new(Zero::Epoch, 0) } else { b.context().moment.unwrap_or(When::new(Zero::Start, 0)) };
    let mut seconds = PerSecond::new(b.track("fio-log", origin.zero));
    let mut micro = false;
    while let Some(line) = cursor.peek() {
        if line.is_blank() || !line.text.starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        cursor.take();
        match parse(&line) {
            Ok(entry) if !other => {
                micro |= entry.columns < 5;
                let ns = if entry.columns < 5 { entry.value.saturating_mul(1000) } else { entry.value };
                let second = i64::try_from(entry.at_ms / 1000).unwrap_or(0).min(1 << 33);
                let second = second.saturating_add(origin.ns.div_euclid(1_000_000_000));
                seconds.add(b, second, "fio", entry.op, ns, entry.bytes);
            }
            Ok(_) => {}
            Err(error) => b.problem(error),
        }
    }
    seconds.flush(b);
    if other {
        b.gap(file, "a bandwidth or IOPS log of fio, which has no latencies", "import the _lat or _clat log");
        return Ok(());
    }
    if micro {
        b.gap("unit of the fio log", "four columns, as fio 2 writes: microseconds are assumed", "");
    }
    Ok(())
}

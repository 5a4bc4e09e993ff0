//! Reads `pidstat -d`: bytes that each process reads and writes, and its I/O delay.

use std::collections::HashMap;

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::number;
use super::sar::{banner, banner_date, is_banner, timed};
use super::text::{Cursor, Line, Token};
use super::when::{DAY_NS, SECOND_NS, Zero, epoch};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::{Column, workload};
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "pidstat",
    sentence: "pidstat -d, also with -h, -t and -H.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["kB_rd", "Linux "])],
    detect: |cursor| match cursor.peek() {
        Some(line) if header(&line).is_some() => 95,
        Some(line) if is_banner(line.text) => {
            let mut below = (1..4).filter_map(|ahead| cursor.ahead(ahead));
            if below.any(|line| header(&line).is_some()) { 94 } else { 0 }
        }
        _ => 0,
    },
    read,
};

/// The columns after the time: `UID PID kB_rd/s kB_wr/s kB_ccwr/s iodelay Command`.
fn header<'a>(line: &Line<'a>) -> Option<Vec<&'a str>> {
    let words: Vec<&str> = match timed(line).or_else(|| since_1970(line)) {
        Some((_, tokens)) => tokens.iter().map(|token| token.text).collect(),
        // `-h` prints `# Time UID PID ...`.
        None => line.text.strip_prefix('#')?.split_whitespace().skip(1).collect(),
    };
    let known =
        (words.contains(&"PID") || words.contains(&"TGID")) && words.iter().any(|word| word.starts_with("kB_rd"));
    known.then_some(words)
}

/// Splits a line of `-H`, or of `-h` in old versions: ns since 1970, and the words after the time.
fn since_1970<'a>(line: &Line<'a>) -> Option<(i64, Vec<Token<'a>>)> {
    let tokens: Vec<Token<'a>> = line.tokens().collect();
    let (first, rest) = tokens.split_first()?;
    Some((epoch(first.text)?.ns, rest.to_vec()))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let mut columns: Vec<&str> = Vec::new();
    let mut last: HashMap<String, i64> = HashMap::new();
    let (mut began, mut latest) = (None, i64::MIN);
    let mut date = b.context().date;
    let mut day = date.unwrap_or(0);
    while let Some(line) = cursor.peek() {
        if is_banner(line.text) {
            banner(line.text, b);
            date = banner_date(line.text).or(date);
            day = date.unwrap_or(0);
        } else if let Some(found) = header(&line) {
            columns = found;
            if began.is_none() {
                let from_day = timed(&line).map(|(ns, _)| day * DAY_NS + ns);
                began = from_day.or_else(|| since_1970(&line).map(|(ns, _)| ns));
            }
        } else if !(line.is_blank() || line.text.starts_with("Average:")) {
            let hour = timed(&line).map(|(ns, tokens)| (ns, tokens, false));
            let seconds = || since_1970(&line).map(|(ns, tokens)| (ns, tokens, true));
            let Some((ns, tokens, absolute)) = hour.or_else(seconds).filter(|_| !columns.is_empty()) else { break };
            if !absolute && day * DAY_NS + ns < latest.saturating_sub(DAY_NS / 2) {
                day += 1;
            }
            let at = if absolute { ns } else { day * DAY_NS + ns };
            latest = at;
            let zero = if absolute || date.is_some() { Zero::Epoch } else { Zero::Day };
            let track = b.shared_track("pidstat", zero);
            match row(&line, &columns, &tokens) {
                Ok((name, values)) => {
                    let before = last.insert(name.clone(), at).or(began).unwrap_or(at - SECOND_NS);
                    let cells: Vec<(Column, Cell)> = values
                        .iter()
                        .map(|&(column, rate)| {
                            (column, Cell::Rise(rate * at.saturating_sub(before).max(0) as f64 / 1e9))
                        })
                        .collect();
                    let zeros: Vec<(Column, Cell)> =
                        cells.iter().map(|(column, _)| (*column, Cell::Rise(0.0))).collect();
                    b.row((track, before), Table::Workload, &Entity::named(&name), &zeros);
                    b.row((track, at), Table::Workload, &Entity::named(&name), &cells);
                }
                Err(error) => b.problem(error),
            }
        }
        cursor.take();
    }
    Ok(())
}

type Values = Vec<(Column, f64)>;

fn row(line: &Line<'_>, columns: &[&str], tokens: &[Token<'_>]) -> Result<(String, Values), ImportError> {
    let mut values = Values::new();
    let (mut pid, mut command) = ("", String::new());
    for (place, name) in columns.iter().enumerate() {
        let Some(token) = tokens.get(place) else { return Err(ImportError::short(line, format!("'{name}'"))) };
        let column = match *name {
            // With -t a line is a process (no TID) or a thread (no TGID).
            "PID" | "TGID" | "TID" => {
                pid = if token.text == "-" { pid } else { token.text };
                continue;
            }
            "Command" => {
                let rest = tokens.get(place..).unwrap_or_default();
                command = rest.iter().map(|token| token.text).collect::<Vec<_>>().join(" ");
                continue;
            }
            "kB_rd/s" => (workload::READ_BYTES, 1024.0),
            "kB_wr/s" => (workload::WRITE_BYTES, 1024.0),
            "kB_ccwr/s" => (workload::CANCELLED_WRITE_BYTES, 1024.0),
            // Clock ticks of 1/100 s in the whole interval: a rate only if the interval is one second, as usual.
            "iodelay" => (workload::IO_DELAY_NS, 1e7),
            _ => continue,
        };
        let value =
            number(token.text).ok_or_else(|| ImportError::at(line, *token, format!("a number for '{name}'")))?;
        // -1 means that the kernel does not provide the value.
        if value >= 0.0 {
            values.push((column.0, value * column.1));
        }
    }
    Ok((format!("pid {pid} ({command})"), values))
}

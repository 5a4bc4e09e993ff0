//! Reads drsnoop: direct reclaims with thread, latency and pages.

use crate::anchors::Anchor;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::number::{nanos, number};
use crate::single_call::single_call;
use crate::text::{Cursor, Line, Token};
use crate::when::SECOND_NS;
use crate::{FormatKind, Importer};
use flatwater_recording::{Basis, Call, Cause, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "drsnoop",
    sentence: "drsnoop of bcc, also with -T, -U and -v.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Table(&["LAT("])],
    detect: |cursor| if header(cursor.next_text()).is_some() { 97 } else { 0 },
    read,
};

fn header(text: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let known = words.contains(&"COMM") && words.contains(&"PID") && words.iter().any(|word| word.starts_with("PAGES"));
    (known && words.iter().any(|word| word.starts_with("LAT("))).then_some(words)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let Some(first) = cursor.take() else { return Ok(()) };
    let columns = header(first.text).unwrap_or_default();
    let (track, origin) = b.origin("drsnoop");
    let timed = columns.iter().any(|name| name.starts_with("TIME"));
    if !timed {
        b.gap(
            "time of the direct reclaims",
            "the lines have no times: they are placed one after another",
            "run drsnoop -T",
        );
    }
    let mut at = origin;
    while let Some(line) = cursor.peek() {
        if line.is_blank() || line.tokens().count() < 3 || header(line.text).is_some() {
            break;
        }
        cursor.take();
        match row(&line, &columns) {
            Ok((seconds, call)) => {
                let ns = i64::try_from(call.duration_ns).unwrap_or(0);
                // TIME is the end of the reclaim, relative to the first line.
                let start = seconds.map_or(at, |seconds| {
                    origin.saturating_add((seconds * SECOND_NS as f64) as i64).saturating_sub(ns)
                });
                at = start.saturating_add(ns);
                b.call((track, start), call);
            }
            Err(error) => b.problem(error),
        }
    }
    Ok(())
}

fn row(line: &Line<'_>, columns: &[&str]) -> Result<(Option<f64>, Call), ImportError> {
    let tokens: Vec<Token<'_>> = line.tokens().collect();
    // COMM may contain blanks; the columns around it do not.
    let comm = columns.iter().position(|name| *name == "COMM").unwrap_or(0);
    let extra = tokens.len().checked_sub(columns.len());
    let Some(extra) = extra else { return Err(ImportError::short(line, format!("{} columns", columns.len()))) };
    let place = |name: &str| {
        let place = columns.iter().position(|column| column.starts_with(name))?;
        tokens.get(if place > comm { place + extra } else { place }).copied()
    };
    let value = |name: &str| {
        let Some(token) = place(name) else { return Ok(None) };
        number(token.text).map(Some).ok_or_else(|| ImportError::at(line, token, format!("a number for {name}")))
    };
    let thread = tokens.get(comm..=comm + extra).unwrap_or_default();
    let thread = thread.iter().map(|token| token.text).collect::<Vec<_>>().join(" ");
    let pid = value("PID")?.unwrap_or(0.0).clamp(0.0, 4e9) as u32;
    let unit = if columns.contains(&"LAT(us)") { 1e3 } else { 1e6 };
    let Some(latency) = value("LAT(")?.filter(|latency| *latency >= 0.0) else {
        return Err(ImportError::line(line, "a latency of zero or more"));
    };
    let call = single_call(pid, &thread, OpKind::Other, nanos(latency, unit), Cause::DirectReclaim, Basis::Exact);
    Ok((value("TIME")?, call))
}

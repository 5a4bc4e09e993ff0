//! Reads HdrHistogram's percentile table (`.hgrm`), as jHiccup, wrk2 and many load generators print it.

use super::Counting;
use crate::anchors::Anchor;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::number::{count, nanos, number};
use crate::text::{Cursor, Line, Token};
use crate::{FormatKind, Importer};
use flatwater_recording::OpKind;

pub const IMPORTER: Importer = Importer {
    name: "hgrm",
    sentence: "HdrHistogram percentile tables (.hgrm).",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Table(&["Percentile"])],
    detect: |cursor| if header(cursor.next_text()).is_some() { 98 } else { 0 },
    read,
};

/// Parses `Value   Percentile   TotalCount 1/(1-Percentile)`, also with `Value(us)`: ns per unit, if the header states
/// the unit.
fn header(text: &str) -> Option<Option<f64>> {
    let mut words = text.trim().trim_start_matches('"').split([' ', '"', ',', '\t']).filter(|word| !word.is_empty());
    let value = words.next().filter(|word| word.starts_with("Value"))?;
    (words.next() == Some("Percentile") && words.next() == Some("TotalCount")).then_some(())?;
    let unit = value.strip_prefix("Value").unwrap_or_default().trim_matches(['(', ')', '[', ']', '_']);
    Some(match unit {
        "ns" => Some(1.0),
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    })
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let Some(first) = cursor.take() else { return Ok(()) };
    let unit = header(first.text).flatten();
    if unit.is_none() {
        let why = "the table does not state the unit: milliseconds are assumed, as jHiccup and wrk2 print";
        b.gap("unit of the percentile table", why, "name the unit in its header: Value(us)");
    }
    let unit = unit.unwrap_or(1e6);
    let mut counting = Counting::default();
    let mut reported = 0_u64;
    while let Some(line) = cursor.peek() {
        if line.is_blank() {
            cursor.take();
            continue;
        }
        if line.text.starts_with('#') {
            if let Some((_, rest)) = line.text.split_once("Max").and_then(|(_, rest)| rest.split_once('=')) {
                let max = rest.split([',', ']']).next().and_then(|max| number(max.trim())).filter(|max| *max >= 0.0);
                counting.worst_ns = max.map_or(counting.worst_ns, |max| nanos(max, unit));
            }
            cursor.take();
            continue;
        }
        if !line.text.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        cursor.take();
        match row(&line) {
            Ok((value, total)) => {
                if let Some(new) = total.checked_sub(reported).filter(|new| *new > 0) {
                    counting.add(nanos(value, unit), new);
                    reported = total;
                }
            }
            Err(error) => b.problem(error),
        }
    }
    let place = b.snapshot("hgrm");
    counting.push(b, place, 0, OpKind::Other, "hgrm", 0);
    Ok(())
}

/// The value, and the number of values up to it.
fn row(line: &Line<'_>) -> Result<(f64, u64), ImportError> {
    let fields = line.text.split([' ', ',', '\t']).filter(|field| !field.is_empty()).take(4);
    let tokens: Vec<Token<'_>> = fields.map(|text| Token { text, column: line.column_of(text) }).collect();
    let [value, _, total, ..] = tokens.as_slice() else {
        return Err(ImportError::short(line, "a value, a percentile and a count"));
    };
    let found = number(value.text).filter(|value| *value >= 0.0);
    let found = found.ok_or_else(|| ImportError::at(line, *value, "a latency"))?;
    let total = count(total.text).ok_or_else(|| ImportError::at(line, *total, "a count"))?;
    Ok((found, u64::try_from(total).unwrap_or(0)))
}

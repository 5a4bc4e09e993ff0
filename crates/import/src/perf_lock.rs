//! Reads `perf lock report` and `perf lock contention`: number, mean, maximum and minimum of the waits for each lock.

use super::builder::{Builder, Track};
use super::error::ImportError;
use super::number::{count, nanos, number};
use super::text::{Cursor, Line, Token};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::latency::{HIGHEST_NS, histogram};
use flatwater_recording::{LatencyBucket, OpKind, PackedHistogram};

pub const IMPORTER: Importer = Importer {
    name: "perf-lock",
    sentence: "perf lock report and perf lock contention.",
    kind: FormatKind::TimedCalls,
    anchors: &[Anchor::Table(&["contended"])],
    detect: |cursor| if header(cursor.next_text()).is_some() { 96 } else { 0 },
    read,
};

#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// Name, acquired, contended, [avg wait], total wait, max wait, min wait; in ns.
    Report { average: bool },
    /// Contended, total wait, max wait, avg wait, each with a unit; type; caller.
    Contention,
}

fn header(text: &str) -> Option<Layout> {
    let text = text.trim();
    if text.starts_with("Name") && text.contains("acquired") && text.contains("contended") {
        return Some(Layout::Report { average: text.contains("avg wait") });
    }
    (text.starts_with("contended") && text.contains("total wait") && text.contains("max wait"))
        .then_some(Layout::Contention)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let Some(layout) = cursor.take().and_then(|line| header(line.text)) else { return Ok(()) };
    let place = b.snapshot("perf-lock");
    let mut rows = 0;
    while let Some(line) = cursor.peek() {
        if line.is_blank() && rows == 0 {
            cursor.take();
            continue;
        }
        let numeric = line.tokens().filter(|token| number(token.text).is_some()).count();
        if line.is_blank() || numeric < 3 {
            break;
        }
        cursor.take();
        rows += 1;
        let found = match layout {
            Layout::Report { average } => report_row(&line, average),
            Layout::Contention => contention_row(&line),
        };
        match found {
            Ok(Some(waits)) => waits.push(b, place),
            Ok(None) => {}
            Err(error) => b.problem(error),
        }
    }
    b.note("perf lock prints number, mean and extremes of the waits for each lock: the distribution is unknown");
    Ok(())
}

struct Waits {
    name: String,
    count: u64,
    mean_ns: u64,
    max_ns: u64,
    min_ns: u64,
}

impl Waits {
    /// Records the maximum and the minimum once each, and the mean of the remaining time for all other waits, so that
    /// the sum is that of the log.
    fn push(self, b: &mut Builder, place: (Track, i64)) {
        let mut waits = histogram();
        let mut add = |ns: u64, count: u64| waits.saturating_record_n(ns.clamp(1, HIGHEST_NS), count.min(1 << 40));
        add(self.max_ns, 1);
        if self.count > 1 {
            add(self.min_ns, 1);
        }
        if self.count > 2 {
            let total_ns = self.mean_ns.saturating_mul(self.count);
            let rest_ns = total_ns.saturating_sub(self.max_ns).saturating_sub(self.min_ns);
            add(rest_ns / (self.count - 2), self.count - 2);
        }
        let bucket = LatencyBucket {
            start_ns: 0,
            width_ns: 0,
            op: OpKind::Lock,
            thread: self.name,
            bytes: 0,
            from_start: PackedHistogram::pack(&waits),
            from_due: None,
            worst_from_start_ns: self.max_ns,
            worst_from_due_ns: None,
        };
        b.latency(place, bucket);
    }
}

fn unsigned(line: &Line<'_>, token: Token<'_>) -> Result<u64, ImportError> {
    let value = count(token.text).and_then(|value| u64::try_from(value).ok());
    value.ok_or_else(|| ImportError::at(line, token, "a number"))
}

fn report_row(line: &Line<'_>, average: bool) -> Result<Option<Waits>, ImportError> {
    let tokens: Vec<Token<'_>> = line.tokens().collect();
    let columns = 5 + usize::from(average);
    // Names may contain blanks: count the numbers from the right.
    let Some(first) = tokens.len().checked_sub(columns).filter(|first| *first > 0) else {
        return Err(ImportError::short(line, format!("a name and {columns} numbers")));
    };
    let (names, values) = tokens.split_at(first);
    let values = values.iter().map(|token| unsigned(line, *token)).collect::<Result<Vec<u64>, _>>()?;
    let (count, mean, max, min) = match values.as_slice() {
        [_, contended, mean, _, max, min] => (*contended, *mean, *max, *min),
        [_, contended, total, max, min] => (*contended, total / (*contended).max(1), *max, *min),
        _ => return Ok(None),
    };
    let name = names.iter().map(|token| token.text).collect::<Vec<_>>().join(" ");
    Ok((count > 0).then_some(Waits { name, count, mean_ns: mean, max_ns: max, min_ns: min.min(max) }))
}

/// Parses `172      1.51 ms    154.14 us      8.79 us      rwsem:R   do_mmap+0x1`.
fn contention_row(line: &Line<'_>) -> Result<Option<Waits>, ImportError> {
    let tokens: Vec<Token<'_>> = line.tokens().collect();
    let [contended, total, total_unit, max, max_unit, mean, mean_unit, rest @ ..] = tokens.as_slice() else {
        return Err(ImportError::short(line, "contended, total, max and avg wait, type and caller"));
    };
    let wait = |value: &Token<'_>, unit: &Token<'_>| {
        let scale = match unit.text {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            _ => return Err(ImportError::at(line, *unit, "ns, us, ms or s")),
        };
        let value = number(value.text).filter(|v| *v >= 0.0).ok_or_else(|| ImportError::at(line, *value, "a wait"))?;
        Ok(nanos(value, scale))
    };
    wait(total, total_unit)?;
    let (count, max_ns, mean_ns) = (unsigned(line, *contended)?, wait(max, max_unit)?, wait(mean, mean_unit)?);
    let name = rest.iter().map(|token| token.text).collect::<Vec<_>>().join(" ");
    Ok((count > 0).then_some(Waits { name, count, mean_ns, max_ns, min_ns: mean_ns }))
}

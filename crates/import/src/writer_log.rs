//! Reads logs of writers that time themselves: `6582 - Delayed 4806 ms.`, `Max write delay: 14968 ms.`.

use super::builder::Builder;
use super::error::ImportError;
use super::number::number;
use super::single_call::single_call;
use super::text::{Cursor, Line};
use super::when::SECOND_NS;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::outcome::BulkDelay;
use flatwater_recording::{Basis, Cause, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "writer-log",
    sentence: "Logs of writers that time themselves: `PID - Delayed N ms.`, `Max write delay: N ms.`.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Line(&["Writing ", "Max write delay:", " - Delayed"])],
    detect: |cursor| if parse(cursor.next_text()).is_some() { 90 } else { 0 },
    read,
};

#[derive(Debug, PartialEq)]
enum WriterLine {
    Delayed {
        pid: u32,
        ns: u64,
    },
    Max {
        ns: u64,
    },
    /// `Writing 200 MB to stdout without fsync`.
    Writing,
}

fn parse(text: &str) -> Option<WriterLine> {
    let text = text.trim();
    if text.starts_with("Writing ") && text.contains("MB") {
        return Some(WriterLine::Writing);
    }
    if let Some(rest) = text.strip_prefix("Max write delay:") {
        return Some(WriterLine::Max { ns: milliseconds(rest)? });
    }
    let (pid, rest) = text.split_once(" - Delayed")?;
    // Loggers add a prefix before the pid.
    let pid = pid.split_whitespace().last()?.trim_matches(['[', ']', ':']).parse().ok()?;
    Some(WriterLine::Delayed { pid, ns: milliseconds(rest)? })
}

/// Parses ` 4806 ms.` as ns; `None` from one hour on, which is not a delay.
fn milliseconds(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let (value, unit) = (words.next()?, words.next().unwrap_or("ms"));
    let scale = match unit.trim_end_matches('.') {
        "ms" | "m" => 1e6,
        "us" => 1e3,
        "s" => 1e9,
        _ => return None,
    };
    number(value).filter(|value| (0.0..3.6e12).contains(&(value * scale / 1e0))).map(|value| (value * scale) as u64)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (track, origin) = b.origin("writer-log");
    let mut at = origin;
    let mut any_delay = false;
    while let Some(line) = cursor.peek() {
        let Some(parsed) = parse(line.text) else {
            if looks_cut(&line) {
                cursor.take();
                b.problem(ImportError::short(&line, "'Delayed N ms.'"));
                continue;
            }
            break;
        };
        cursor.take();
        match parsed {
            WriterLine::Writing => {}
            WriterLine::Max { ns } => b.delay_max(ns),
            WriterLine::Delayed { pid, ns } => {
                // The writer prints a delay when it ends; the log has no other time.
                at = at.saturating_add(i64::try_from(ns).unwrap_or(0)).saturating_add(SECOND_NS / 1000);
                any_delay = true;
                let start = at.saturating_sub(i64::try_from(ns).unwrap_or(0));
                b.delay((track, at), BulkDelay { pid, at_ns: 0, delay_ns: ns });
                // The cause is unexplained: the writer knows how long it waited, but not why.
                let thread = format!("writer {pid}");
                let call = single_call(pid, &thread, OpKind::Write, ns, Cause::Unexplained, Basis::Exact);
                b.call((track, start), call);
            }
        }
    }
    if any_delay {
        let why = "the lines have no times: they are placed one after another, in the order of the log";
        b.gap("time of the writers' delays", why, "let the writers print the time with each delay");
    }
    Ok(())
}

/// Whether the line was a delay before it was cut off.
fn looks_cut(line: &Line<'_>) -> bool {
    line.text.contains(" - Delayed") || line.text.starts_with("Max write delay")
}

#[cfg(test)]
mod tests {
    use super::{WriterLine, parse};

    #[test]
    fn all_kinds_of_lines_parse() {
        assert_eq!(parse("6582 - Delayed 4806 ms."), Some(WriterLine::Delayed { pid: 6582, ns: 4_806_000_000 }));
        assert_eq!(parse("[6582] - Delayed 4806 ms."), Some(WriterLine::Delayed { pid: 6582, ns: 4_806_000_000 }));
        assert_eq!(parse("Max write delay: 14968 ms."), Some(WriterLine::Max { ns: 14_968_000_000 }));
        assert_eq!(parse("Writing 200 MB to stdout without fsync"), Some(WriterLine::Writing));
        for text in ["x - Delayed 1 ms.", "1 - Delayed", "1 - Delayed -5 ms.", "1 - Delayed 1e40 ms."] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

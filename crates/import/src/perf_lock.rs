//! Reads `perf lock report`, `perf lock contention` and /proc/lock_stat: number, mean, maximum and minimum of the waits for each lock.

use super::builder::Builder;
use super::error::ImportError;
use super::latency_log::Extremes;
use super::number::{count, nanos, number};
use super::text::{Cursor, Line, Token};
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::OpKind;

pub const IMPORTER: Importer = Importer {
    name: "perf-lock",
    sentence: "perf lock report, perf lock contention and /proc/lock_stat.",
    kind: FormatKind::TimedCalls,
    anchors: &[Anchor::Table(&["contended", "waittime-max", "lock_stat version"])],
    detect: |cursor| match cursor.next_text() {
        text if header(text).is_some() || is_lock_stat(text) || text.starts_with("lock_stat version") => 96,
        _ => 0,
    },
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

/// Whether lock_stat prints this line around its rows: version, rules, and the functions that took a lock.
fn is_around(text: &str) -> bool {
    let text = text.trim();
    text.is_empty()
        || text.starts_with("lock_stat version")
        || text.bytes().all(|c| matches!(c, b'-' | b'.'))
        || text.contains(" [<")
}

/// Reads the rows of /proc/lock_stat, and the lines around them.
fn read_lock_stat(cursor: &mut Cursor<'_>, b: &mut Builder) {
    let place = b.snapshot("perf-lock");
    while let Some(line) = cursor.peek() {
        match lock_stat_row(line.text) {
            Some(waits) if waits.of.count > 0 => waits.of.counting().push(b, place, 0, OpKind::Lock, &waits.name, 0),
            Some(_) => {}
            None if line.is_blank() => {}
            None if is_around(line.text) => b.pass_over(),
            None => break,
        }
        cursor.take();
    }
}

/// Whether the line is the header of /proc/lock_stat.
fn is_lock_stat(text: &str) -> bool {
    ["class name", "contentions", "waittime-max", "waittime-total"].iter().all(|name| text.contains(name))
}

/// `&rq->__lock:  9120  9133  0.09  8.11  7412.90  0.81  880121  4410221 ...`: bounces, contentions, least, longest and
/// total wait in us, and five to seven more; kernels before 3.11 print no averages.
fn lock_stat_row(text: &str) -> Option<Waits> {
    let (name, values) = text.trim().rsplit_once(": ")?;
    let values: Vec<f64> = values.split_whitespace().map(number).collect::<Option<_>>()?;
    let [_, count, min, max, total, ..] = values.as_slice() else { return None };
    if !matches!(values.len(), 10 | 12) || values.iter().any(|value| *value < 0.0) {
        return None;
    }
    let ns = |us: f64| nanos(us, 1e3);
    let of = Extremes { count: *count as u64, mean_ns: ns(total / count.max(1.0)), max_ns: ns(*max), min_ns: ns(*min) };
    Some(Waits { name: name.trim().to_owned(), of })
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    while cursor.peek().is_some_and(|line| is_around(line.text)) {
        cursor.take();
    }
    let Some(first) = cursor.take() else { return Ok(()) };
    if is_lock_stat(first.text) {
        read_lock_stat(cursor, b);
        return Ok(());
    }
    let Some(layout) = header(first.text) else { return Ok(()) };
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
            Ok(Some(waits)) => waits.of.counting().push(b, place, 0, OpKind::Lock, &waits.name, 0),
            Ok(None) => {}
            Err(error) => b.problem(error),
        }
    }
    b.note("perf lock prints number, mean and extremes of the waits for each lock: the distribution is unknown");
    Ok(())
}

struct Waits {
    name: String,
    of: Extremes,
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
    Ok((count > 0).then_some(Waits { name, of: Extremes { count, mean_ns: mean, max_ns: max, min_ns: min.min(max) } }))
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
    Ok((count > 0).then_some(Waits { name, of: Extremes { count, mean_ns, max_ns, min_ns: mean_ns } }))
}

#[cfg(test)]
mod tests {
    use super::lock_stat_row;
    use crate::import_texts;

    #[test]
    fn each_lock_of_lock_stat_has_its_waits() {
        let found = lock_stat_row(
            "  &sb->s_type->i_mutex_key#12-W:  482  518  0.71  84120.55  298112.20  575.50  901  2145  0.30  80911.20  \
             310221.10  144.91",
        )
        .expect("a row");
        assert_eq!((found.name.as_str(), found.of.count), ("&sb->s_type->i_mutex_key#12-W", 518));
        assert_eq!((found.of.min_ns, found.of.max_ns, found.of.mean_ns), (710, 84_120_550, 575_506));
        assert!(lock_stat_row("(work_completion)(&x): 1 2 0.1 0.9 1.0 5 6 0.1 0.9 1.0").is_some(), "before 3.11");
        assert!(lock_stat_row("free: 1 2 3").is_none());
    }

    #[test]
    fn a_whole_lock_stat_is_understood() {
        let text = "lock_stat version 0.4\n-----\n   class name    con-bounces    contentions   waittime-min   \
                    waittime-max waittime-total   waittime-avg    acq-bounces   acquisitions   holdtime-min   \
                    holdtime-max holdtime-total   holdtime-avg\n-----\n\n\
                    &rq->__lock:  9120  9133  0.09  8.11  7412.90  0.81  880121  4410221  0.05  41.10  1120311.20  \
                    0.25\n  -----------\n  &rq->__lock   7012  [<ffffffff810f2b11>] raw_spin_rq_lock_nested+0x11/0x20\n\
                    \n.....\n\n&m:  1  2  0.1  9500.0  9600.0  4800.0  3  4  0.1  0.2  0.3  0.1\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let summary = recording.header.import.as_ref().expect("a summary");
        assert_eq!(summary.not_understood_lines(), 0, "{summary:?}");
        let worst = recording.latency.iter().map(|bucket| (bucket.thread.as_str(), bucket.worst_from_start_ns));
        assert_eq!(worst.collect::<Vec<_>>(), [("&rq->__lock", 8_110), ("&m", 9_500_000)]);
    }
}

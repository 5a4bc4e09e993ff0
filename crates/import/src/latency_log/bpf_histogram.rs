//! Reads power-of-two histograms that BPF tools print: biolatency and others of bcc, maps of bpftrace.
//!
//! Each class counts as its upper bound, so that percentiles are never better than the measured ones.

use super::Counting;
use crate::anchors::Anchor;
use crate::builder::{Builder, Track};
use crate::call_trace::op_of;
use crate::error::ImportError;
use crate::number::{count, nanos, number};
use crate::single_call::single_call;
use crate::text::{Cursor, Line, Token};
use crate::{FormatKind, Importer};
use flatwater_recording::symbol::cause_of;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Basis, Cause, OpKind};

pub const IMPORTER: Importer = Importer {
    name: "bpf-histogram",
    sentence: "Latency histograms of biolatency and other bcc tools, and of bpftrace maps.",
    kind: FormatKind::Judged,
    anchors: &[
        Anchor::Table(&["nsecs", "usecs", "msecs", "Tracing ", "DURATION"]),
        Anchor::Start("@"),
        Anchor::Common(&["count", "distribution", " = ", "disk", "flags", "operation", "I/O"]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if bcc_header(text).is_some() => 95,
        text if text.starts_with("Tracing block device I/O") => 80,
        // The line above such a histogram, with at most one blank line between.
        text if traced(text).is_some() && (1..=2).any(|at| is_header(cursor, at)) => 95,
        // Histograms of other values than time: queue lengths, sizes.
        text if is_counts(text) && cursor.ahead(1).is_some_and(|line| line.text.contains(':')) => 70,
        text if is_ftrace(text) => 95,
        text if (disk(text).is_some() || map(text).is_some()) && next_opens(cursor) => 95,
        _ => 0,
    },
    read,
};

/// ns per unit of `     usecs               : count     distribution`.
fn bcc_header(text: &str) -> Option<f64> {
    let (unit, rest) = text.split_once(':')?;
    // perf-tools: `  >=(ms) .. <(ms)   : I/O      |Distribution`.
    if let Some(unit) = unit.trim().strip_prefix(">=(").filter(|_| rest.trim_start().starts_with("I/O")) {
        return unit_ns(unit.split(')').next()?);
    }
    rest.trim_start().starts_with("count").then_some(())?;
    unit_ns(unit.trim())
}

fn is_header(cursor: &Cursor<'_>, at: usize) -> bool {
    cursor.ahead(at).is_some_and(|line| bcc_header(line.text).is_some())
}

/// The function in funclatency's `Tracing 1 functions for "vfs_read"... Hit Ctrl-C to end.`.
fn traced(text: &str) -> Option<&str> {
    let (counted, rest) = text.strip_prefix("Tracing ")?.split_once(" functions for \"")?;
    let (function, _) = rest.split_once('"')?;
    (counted.bytes().all(|c| c.is_ascii_digit()) && !function.is_empty()).then_some(function)
}

/// Mean in ns and count of `avg = 71200 nsecs, total: 229477600 nsecs, count: 3223` below a histogram of bcc.
fn mean_of(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.trim().strip_prefix("avg = ")?.split(", ");
    let mut mean = parts.next()?.split(' ');
    let ns = nanos(number(mean.next()?)?.max(0.0), unit_ns(mean.next()?)?);
    let of = parts.find_map(|part| part.strip_prefix("count: "))?;
    Some((ns, count(of.trim())?.try_into().ok()?))
}

/// Whether the line is `     runqlen       : count     distribution`.
fn is_counts(text: &str) -> bool {
    text.split_once(':').is_some_and(|(name, rest)| {
        name.trim().bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
            && rest.trim_start().starts_with("count ")
            && rest.contains("distribution")
    })
}

/// Whether the line is `#   DURATION     |      COUNT | GRAPH                                  |` of
/// `perf ftrace latency`.
fn is_ftrace(text: &str) -> bool {
    let mut columns = text.trim_start_matches(['#', ' ']).split('|').map(str::trim);
    columns.next() == Some("DURATION") && columns.next() == Some("COUNT") && columns.next() == Some("GRAPH")
}

/// Upper bound in ns and count of `    64 - 128  ms |         85 | ####  |` or `     1 - ...   s |  0 |  |`.
fn ftrace_class(text: &str) -> Option<(f64, u64)> {
    let mut columns = text.split('|');
    let (range, count_text) = (columns.next()?, columns.next()?.trim());
    let (lower, rest) = range.split_once(" - ")?;
    let mut rest = rest.split_whitespace();
    let (upper, unit) = (rest.next()?, unit_ns(rest.next()?)?);
    let end = if upper == "..." { number(lower.trim())? } else { number(upper)? };
    Some((end * unit, count(count_text)?.try_into().ok()?))
}

/// Maximum calls per class; the histogram counts all of them.
const CALLS_MAX: u64 = 200;

/// Adds the slow calls of a kernel function, if the table of causes knows what the function waits for.
fn slow_calls(b: &mut Builder, place: (Track, i64), function: &str, cause: Option<Cause>, (ns, count): (u64, u64)) {
    let Some(cause) = cause.filter(|_| ns >= SLOW_NS) else { return };
    if count > CALLS_MAX {
        b.note(format!("of the calls of {function} in one class only {CALLS_MAX} are kept individually"));
    }
    for _ in 0..count.min(CALLS_MAX) {
        b.call(place, single_call(0, function, OpKind::Other, ns, cause, Basis::Exact));
    }
}

/// Reads `perf ftrace latency -T ext4_mb_regular_allocator`: the duration of one kernel function. If the table of
/// causes knows the function, each slow call has that cause.
fn read_ftrace(cursor: &mut Cursor<'_>, b: &mut Builder) {
    cursor.take();
    let command = b.context().command.clone().unwrap_or_default();
    let mut words = command.split_whitespace().skip_while(|word| !matches!(*word, "-T" | "--trace-funcs"));
    let function = words.nth(1).unwrap_or("a function").to_owned();
    let cause = cause_of(&function);
    let place = b.snapshot_of("bpf-histogram", &function);
    let mut counting = Counting::default();
    while let Some((ns, count)) = cursor.peek().and_then(|line| ftrace_class(line.text)) {
        cursor.take();
        if count == 0 {
            continue;
        }
        let ns = nanos(ns.max(0.0), 1.0);
        counting.add(ns, count);
        slow_calls(b, place, &function, cause, (ns, count));
    }
    b.note("latencies of perf ftrace are rounded up to the upper bound of their class (a power of two)");
    counting.push(b, place, 0, OpKind::Other, &function, 0);
}

/// Minimum duration of a slow call.
const SLOW_NS: u64 = 1_000_000;

fn unit_ns(name: &str) -> Option<f64> {
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "nsecs" | "ns" | "nsec" => 1.0,
        "usecs" | "us" | "usec" => 1e3,
        "msecs" | "ms" | "msec" => 1e6,
        "secs" | "s" => 1e9,
        _ => return None,
    })
}

/// The value of `disk = 'sda'` or `flags = Sync-Write`.
fn disk(text: &str) -> Option<&str> {
    let (key, value) = text.trim().split_once('=')?;
    let known = matches!(key.trim(), "disk" | "flags" | "operation" | "file system" | "mode");
    known.then(|| value.trim().trim_matches(['\'', '"', ' ']))
}

/// Name and ns per unit of `@usecs:`, `@us[vda]:` or `@write_ns:`.
fn map(text: &str) -> Option<(&str, f64)> {
    let name = text.trim().strip_prefix('@')?.strip_suffix(':')?;
    let bare = name.split('[').next().unwrap_or(name);
    let unit = bare.rsplit('_').next().unwrap_or(bare);
    Some((name, unit_ns(unit).unwrap_or(1.0)))
}

fn next_opens(cursor: &Cursor<'_>) -> bool {
    cursor.ahead(1).is_some_and(|line| bcc_header(line.text).is_some() || class(line.text).is_some())
}

/// Upper bound and count, in units, of `64 -> 127 : 12 |**|` or `[512, 1K)   98 |@@|`.
fn class(text: &str) -> Option<(f64, u64)> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix(['[', '(']) {
        let (range, rest) = rest.split_once([')', ']'])?;
        let count = count(rest.split_whitespace().next()?)?;
        let upper = match range.split_once(',') {
            Some((lower, "..." | " ...")) => scaled(lower)?,
            Some((_, upper)) => scaled(upper)? - 1.0,
            // `[0]` and `[1]` are classes with a single value.
            None => scaled(range)?,
        };
        return Some((upper, count.try_into().ok()?));
    }
    let (range, rest) = text.split_once(':')?;
    let (_, upper) = range.split_once("->")?;
    // A second row on the same line would be lost.
    let upper = number(upper.trim()).filter(|_| !rest.contains("->"))?;
    Some((upper, count(rest.split_whitespace().next()?)?.try_into().ok()?))
}

/// Parses `512`, `1K` or `2M`; bpftrace prints powers of 1024.
fn scaled(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' => (text.strip_suffix('K')?, 1024.0),
        b'M' => (text.strip_suffix('M')?, 1024.0 * 1024.0),
        b'G' => (text.strip_suffix('G')?, 1024.0 * 1024.0 * 1024.0),
        _ => (text, 1.0),
    };
    Some(number(digits)? * factor)
}

fn looks_like_class(line: &Line<'_>) -> bool {
    line.text.contains("->") || line.text.trim_start().starts_with('[')
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    if is_ftrace(cursor.next_text()) {
        read_ftrace(cursor, b);
        return Ok(());
    }
    if is_counts(cursor.next_text()) && bcc_header(cursor.next_text()).is_none() {
        cursor.take();
        b.pass_over();
        while cursor.peek().is_some_and(|line| line.text.contains(':') && line.text.contains('|')) {
            cursor.take();
            b.pass_over();
        }
        return Ok(());
    }
    let mut title = "block I/O".to_owned();
    let (mut unit, mut op, mut cause) = (None, OpKind::Other, None);
    while let Some(line) = cursor.peek() {
        if unit.is_some() && !looks_like_class(&line) && bcc_header(line.text).is_none() {
            break;
        }
        if let Some(ns) = bcc_header(line.text) {
            unit = Some(ns);
        } else if let Some(function) = traced(line.text).filter(|_| unit.is_none()) {
            (title, cause) = (function.to_owned(), cause_of(function));
        } else if let Some(name) = disk(line.text) {
            name.clone_into(&mut title);
        } else if let Some((name, ns)) = map(line.text) {
            (title, unit, op) = (name.to_owned(), Some(ns), op_of(name));
        } else if !line.text.starts_with("Tracing") && !line.is_blank() {
            break;
        }
        cursor.take();
        if unit.is_some() && cursor.peek().is_some_and(|line| looks_like_class(&line)) {
            break;
        }
    }
    let Some(unit) = unit else { return Ok(()) };
    let place = b.snapshot_of("bpf-histogram", &title);
    let mut counting = Counting::default();
    while let Some(line) = cursor.peek().filter(looks_like_class) {
        cursor.take();
        match class(line.text) {
            Some((upper, count)) if count > 0 => {
                let ns = nanos(upper.max(0.0), unit);
                counting.add(ns, count);
                slow_calls(b, place, &title, cause, (ns, count));
            }
            Some(_) => {}
            None => {
                let token = line.tokens().next().unwrap_or(Token { text: "", column: 1 });
                b.problem(ImportError::at(&line, token, "'LOW -> HIGH : COUNT' or '[LOW, HIGH) COUNT'"));
            }
        }
    }
    if let Some((mean_ns, count)) = cursor.peek().and_then(|line| mean_of(line.text)) {
        cursor.take();
        b.note(format!("{title}: {count} calls, {} on average", Nanos(mean_ns)));
    }
    b.note("latencies from BPF histograms are rounded up to the upper bound of their class (a power of two)");
    counting.push(b, place, 0, op, &title, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Cause;

    #[test]
    fn all_rows_of_histograms_of_the_width_of_mail_are_read() {
        let text = include_str!("../../../../tests/golden/import/bpf-histogram/functions-by-name.txt");
        let read = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let counts: Vec<(&str, u64)> =
            read.latency.iter().map(|bucket| (bucket.thread.as_str(), bucket.from_start.count())).collect();
        assert_eq!(counts, [("ext4_sync_file", 3223), ("file_fdatawait_range", 3223), ("ext4_fc_commit", 3223)]);
        assert!(read.calls.iter().all(|call| call.segments[0].cause == Cause::JournalCommit));
        let summary = read.header.import.expect("of a log");
        let written = text.lines().filter(|line| !line.trim().is_empty()).count() as u64;
        assert_eq!((summary.lines, summary.understood), (written, written));
    }

    #[test]
    fn two_rows_on_one_line_are_a_problem() {
        let row = "   4194304 -> 8388607    : 310      |*****                                   |";
        let rows = format!("     nsecs               : count     distribution\n{row}\n{row} {row}\n");
        let read = import_texts(&[("f".to_owned(), rows.into())]).expect("read");
        assert_eq!(read.problems.len(), 1, "{:?}", read.problems);
    }

    #[test]
    fn a_kernel_function_in_the_table_of_causes_is_the_cause() {
        let table = |function: &str| {
            let text = format!(
                "$ sudo perf ftrace latency -b -p 50 -T {function} -- sleep 10\n#   DURATION     |      COUNT | GRAPH      |\n     0 - 1    us |        130 |            |\n    64 - 128  ms |         85 | ########## |\n     1 - ...   s |          0 |            |\n"
            );
            import_texts(&[("f".to_owned(), text.into())]).expect("read").recording
        };
        let known = table("ext4_mb_regular_allocator");
        assert_eq!(known.calls.len(), 85);
        assert!(known.calls.iter().all(|call| call.segments[0].cause == Cause::BlockAllocation));
        let other = table("some_function");
        assert_eq!((other.calls.len(), other.latency.len()), (0, 1));
    }
}

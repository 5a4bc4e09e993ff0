//! Reads SystemTap call traces with `thread_indent`: `44 java(3238): -> cache_alloc_refill`, `<- ... (took 9 us)`.
//!
//! The number at the beginning is the time in us since the thread entered its outermost function.

use std::collections::HashMap;

use super::tree::{DEEP_CALLS, Stack};
use super::{Task, push_call};
use crate::anchors::{Anchor, DIGITS};
use crate::builder::{Builder, Track};
use crate::error::ImportError;
use crate::number::{leading, nanos, number};
use crate::text::Cursor;
use crate::{FormatKind, Importer};
use flatwater_recording::short_sort::ShortSort;

pub const IMPORTER: Importer = Importer {
    name: "systemtap",
    sentence: "SystemTap call traces (thread_indent), with or without `(took N us)`.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Start(DIGITS), Anchor::Line(&["atency"])],
    detect: |cursor| match parse(cursor.next_text()) {
        Some(_) => 90,
        None if heading(cursor.next_text()) && cursor.ahead(1).is_some_and(|line| parse(line.text).is_some()) => 90,
        None => 0,
    },
    read,
};

#[derive(Debug, PartialEq)]
struct Step<'a> {
    at_us: u64,
    thread: &'a str,
    tid: u32,
    enters: bool,
    function: &'a str,
    took_ns: Option<u64>,
}

/// Whether the line is a heading that such scripts print above each trace: `Top Latency in this bucket: 40571`.
fn heading(text: &str) -> bool {
    text.trim_end().ends_with(|c: char| c.is_ascii_digit() || c == ':') && text.to_ascii_lowercase().contains("latency")
}

/// Parses `44 java(3238): -> cache_alloc_refill`.
fn parse(text: &str) -> Option<Step<'_>> {
    let text = text.trim_start();
    let (at_us, rest) = leading(text)?;
    let arrow = rest.find("->").into_iter().chain(rest.find("<-")).min()?;
    let (who, call) = rest.split_at_checked(arrow)?;
    let who = who.trim().trim_end_matches(':');
    let (thread, tid) = who.strip_suffix(')')?.rsplit_once('(')?;
    let enters = call.starts_with("->");
    let call = call.get(2..)?.trim_start();
    let end = call.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '@'))).unwrap_or(call.len());
    let (function, rest) = call.split_at_checked(end)?;
    // Probe points are named `function@file:line` by default.
    let function = function.split('@').next().filter(|name| !name.is_empty())?;
    let took_ns = rest.split_once("(took ").and_then(|(_, took)| {
        let mut words = took.split_whitespace();
        let value = number(words.next()?).filter(|value| *value >= 0.0)?;
        let unit_ns = match words.next()?.trim_end_matches(')') {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            _ => return None,
        };
        Some(nanos(value, unit_ns))
    });
    Some(Step { at_us, thread, tid: tid.parse().ok()?, enters, function, took_ns })
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let (track, origin) = match b.resumed("systemtap") {
        Some(place) => place,
        None => b.origin("systemtap"),
    };
    let mut reader = Reader { track, at: origin, threads: HashMap::new() };
    while let Some(line) = cursor.peek() {
        let Some(step) = parse(line.text) else {
            let continues = |lines: &usize| cursor.ahead(*lines).is_some_and(|line| parse(line.text).is_some());
            if let Some(lines) = cursor.lines_of_break().filter(continues) {
                cursor.take_lines(lines);
                b.gap(
                    "a fragment of a call trace",
                    "the log omits it ('...'): its time counts for the function that was open",
                    "",
                );
                continue;
            }
            if heading(line.text) {
                reader.finish_open(b);
                cursor.take();
                continue;
            }
            if !line.text.contains("->") && !line.text.contains("<-") {
                break;
            }
            cursor.take();
            b.problem(ImportError::line(&line, "'TIME THREAD(TID): -> FUNCTION' or '<- FUNCTION (took N us)'"));
            continue;
        };
        cursor.take();
        reader.step(&step, b);
    }
    reader.finish_open(b);
    b.leave("systemtap", reader.track, reader.at);
    Ok(())
}

const THREADS_MAX: usize = 10_000;

struct Reader {
    track: Track,
    /// Start of the next call: each trace counts from its own start.
    at: i64,
    threads: HashMap<Task, Stack>,
}

impl Reader {
    fn step(&mut self, step: &Step<'_>, b: &mut Builder) {
        let task = Task { name: step.thread.to_owned(), tid: step.tid };
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&task) {
            b.overflow("functions of further threads of a SystemTap trace");
            return;
        }
        let stack = self.threads.entry(task.clone()).or_default();
        let at_ns = Some(step.at_us.saturating_mul(1000));
        if step.enters {
            stack.enter(step.function, at_ns);
            return;
        }
        if let Some(root) = stack.leave(Some(step.function), at_ns, step.took_ns) {
            b.overflow_by(DEEP_CALLS, stack.take_dropped());
            push_call(b, (self.track, self.at), &task, &root, stack.damaged);
            self.at = self.at.saturating_add(i64::try_from(root.ns).unwrap_or(i64::MAX));
        }
    }

    fn finish_open(&mut self, b: &mut Builder) {
        let mut open: Vec<(Task, Stack)> = self.threads.drain().filter(|(_, stack)| !stack.is_empty()).collect();
        open.sort_short_by(|(one, _), (other, _)| (one.tid, &one.name).cmp(&(other.tid, &other.name)));
        for (task, mut stack) in open {
            if let Some(root) = stack.cut() {
                push_call(b, (self.track, self.at), &task, &root, true);
                b.gap(format!("the end of a trace of {}", task.name), "a function never returned in the log", "");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn entries_and_returns_parse_and_other_lines_do_not() {
        let step = parse(" 40528 java(3238):   <- cache_grow (took 9 us)").expect("a return");
        assert_eq!((step.at_us, step.thread, step.tid, step.enters), (40_528, "java", 3238, false));
        assert_eq!((step.function, step.took_ns), ("cache_grow", Some(9000)));
        let step = parse("0 kworker/0:1(7):->vfs_write file=0x1").expect("an entry");
        assert_eq!((step.thread, step.function, step.took_ns), ("kworker/0:1", "vfs_write", None));
        for text in ["", "x", "0 java: -> f", "0 java(1) -> ", "-> f", "1 a(b): -> f"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}

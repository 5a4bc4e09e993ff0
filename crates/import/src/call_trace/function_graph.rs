//! Reads ftrace's function_graph tracer: /sys/kernel/tracing/trace with or without process and absolute time, and
//! `trace-cmd report`.
//!
//! Without absolute times the order of a function's own time and its children's is unknown; its own time is placed
//! first.

use std::collections::HashMap;

use super::tree::{DEEP_CALLS, Stack};
use super::{Task, push_call};
use crate::anchors::Anchor;
use crate::builder::{Builder, Track};
use crate::error::ImportError;
use crate::number::{leading, nanos, number};
use crate::text::Cursor;
use crate::when::Zero;
use crate::{FormatKind, Importer};
use flatwater_recording::short_sort::ShortSort;

pub const IMPORTER: Importer = Importer {
    name: "function-graph",
    sentence: "ftrace function_graph traces, also through trace-cmd report.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Table(&["function_graph"]), Anchor::Common(&["|"])],
    detect: |cursor| match cursor.next_text() {
        text if text.starts_with("# tracer: function_graph") => 100,
        text if text.contains('|') && parse(text).is_some() => 80,
        _ => 0,
    },
    read,
};

#[derive(Debug, PartialEq)]
enum What<'a> {
    Enter(&'a str),
    Leaf(&'a str),
    Leave,
}

#[derive(Debug, PartialEq)]
struct Step<'a> {
    cpu: u32,
    task: Option<Task>,
    at_ns: Option<u64>,
    took_ns: Option<u64>,
    what: What<'a>,
}

/// Parses ` 0)   0.500 us    |    rw_verify_area();` and its variants.
fn parse(text: &str) -> Option<Step<'_>> {
    let (left, code) = text.rsplit_once('|')?;
    let code = code.trim();
    let what = if code.starts_with('}') {
        What::Leave
    } else if let Some(name) = code.strip_suffix('{') {
        What::Enter(function(name)?)
    } else {
        What::Leaf(function(code.split(';').next()?)?)
    };
    if let Some((who, event)) = left.split_once(": funcgraph_") {
        return trace_cmd(who, event, what);
    }
    let (mut cpu, mut task, mut at_ns, mut took_ns) = (None, None, None, None);
    for field in left.split('|') {
        for piece in field.split_inclusive(')') {
            if let Some(inner) = piece.trim().strip_suffix(')') {
                cpu = cpu.or(inner.trim().parse::<u32>().ok());
                continue;
            }
            let piece = piece.trim();
            if let Some(duration) = duration(piece) {
                took_ns = Some(duration);
            } else if let Some(seconds) = number(piece).filter(|_| piece.contains('.')) {
                at_ns = Some(nanos(seconds, 1e9));
            } else if let Some((name, tid)) = piece.rsplit_once('-') {
                task = tid.trim().parse().ok().map(|tid| Task { name: name.trim().to_owned(), tid });
            }
        }
    }
    Some(Step { cpu: cpu?, task, at_ns, took_ns, what })
}

/// Parses `bash-1234  [000]  123.456789` and `entry: + 12.3 us `.
fn trace_cmd<'a>(who: &str, event: &str, what: What<'a>) -> Option<Step<'a>> {
    let (task, rest) = who.split_once('[')?;
    let (name, tid) = task.trim().rsplit_once('-')?;
    let (cpu, rest) = rest.split_once(']')?;
    let time = rest.split_whitespace().last()?;
    let task = Some(Task { name: name.trim().to_owned(), tid: tid.trim().parse().ok()? });
    let took_ns = event.split_once(':').and_then(|(_, rest)| duration(rest.trim()));
    Some(Step { cpu: cpu.trim().parse().ok()?, task, at_ns: Some(nanos(number(time)?, 1e9)), took_ns, what })
}

/// Parses `! 123.4 us` or `0.500 us` as ns. The marks (+ ! # * @ $) only classify the duration.
fn duration(text: &str) -> Option<u64> {
    let text = text.trim_start_matches(['+', '!', '#', '*', '@', '$', ' ']);
    let (value, unit) = text.split_once(char::is_whitespace)?;
    (unit.trim() == "us").then_some(())?;
    number(value).filter(|value| *value >= 0.0).map(|value| nanos(value, 1e3))
}

/// The name in `vfs_write() `; `None` for `/* comment */`.
fn function(code: &str) -> Option<&str> {
    let name = code.trim().split('(').next()?.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    (code.contains("()") && !name.is_empty() && name.chars().all(plain)).then_some(name)
}

/// The CPU and the next task of a context switch: ` 0)   bash-1234  =>  foo-99`.
fn switch(text: &str) -> Option<(u32, Task)> {
    let (left, right) = text.split_once("=>")?;
    let (cpu, _) = leading(left.trim_start()).filter(|(_, rest)| rest.starts_with(')'))?;
    let (name, tid) = right.trim().rsplit_once('-')?;
    Some((u32::try_from(cpu).ok()?, Task { name: name.trim().to_owned(), tid: tid.trim().parse().ok()? }))
}

/// Maximum tasks, and CPUs.
const TASKS_MAX: usize = 10_000;

struct Reader {
    track: Track,
    at: i64,
    /// The trace has absolute times, so calls have their real start.
    timed: bool,
    stacks: HashMap<(u32, Option<Task>), Stack>,
    running: HashMap<u32, Task>,
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let timed = (0..40).filter_map(|ahead| cursor.ahead(ahead)).filter_map(|line| parse(line.text));
    let timed = timed.take(1).any(|step| step.at_ns.is_some());
    let (track, at) = if timed { (b.track("function-graph", Zero::Boot), 0) } else { b.origin("function-graph") };
    let mut reader = Reader { track, at, timed, stacks: HashMap::new(), running: HashMap::new() };
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        if let Some(step) = parse(line.text) {
            reader.step(step, b);
        } else if let Some((cpu, task)) = switch(line.text) {
            if reader.running.len() < TASKS_MAX || reader.running.contains_key(&cpu) {
                reader.running.insert(cpu, task);
            } else {
                b.overflow("CPUs of a function graph");
            }
        } else if !(line.is_blank() || text.starts_with('#') || text.starts_with("---") || text.starts_with("CPU:")) {
            if !text.contains('|') && !text.starts_with("cpus=") {
                break;
            }
            if !text.contains("/*") && !text.starts_with("cpus=") {
                b.problem(ImportError::line(&line, "'CPU) DURATION us | function();' or '}'"));
            }
        }
        cursor.take();
    }
    reader.finish_open(b);
    if !timed {
        let why = "the trace has no absolute times: a function's own time is placed before the time of the functions that it called";
        b.gap("order of the segments inside a call", why, "echo funcgraph-abstime > trace_options");
    }
    Ok(())
}

impl Reader {
    fn step(&mut self, step: Step<'_>, b: &mut Builder) {
        let key = match &step.task {
            // A task keeps its stack when it moves to another CPU.
            Some(task) => (0, Some(task.clone())),
            None => (step.cpu, self.running.get(&step.cpu).cloned()),
        };
        if self.stacks.len() >= TASKS_MAX && !self.stacks.contains_key(&key) {
            b.overflow("functions of further tasks of a function graph");
            return;
        }
        let stack = self.stacks.entry(key.clone()).or_default();
        let start = step.at_ns;
        let root = match step.what {
            What::Enter(name) => {
                stack.enter(name, start);
                None
            }
            What::Leaf(name) => {
                stack.enter(name, start);
                // The time on the line of a leaf is its entry.
                let end = start.zip(step.took_ns).map(|(start, took)| start.saturating_add(took));
                stack.leave(None, end, step.took_ns)
            }
            What::Leave => stack.leave(None, start, step.took_ns),
        };
        if let Some(root) = root {
            b.overflow_by(DEEP_CALLS, stack.take_dropped());
            let damaged = stack.damaged;
            self.push(b, &key, &root, damaged);
        }
    }

    fn push(&mut self, b: &mut Builder, key: &(u32, Option<Task>), root: &super::tree::Node, damaged: bool) {
        let task = key.1.clone().unwrap_or(Task { name: format!("cpu {}", key.0), tid: 0 });
        let at = root.start_ns.and_then(|start| i64::try_from(start).ok()).filter(|_| self.timed).unwrap_or(self.at);
        push_call(b, (self.track, at), &task, root, damaged);
        self.at = at.saturating_add(i64::try_from(root.ns).unwrap_or(i64::MAX));
    }

    fn finish_open(&mut self, b: &mut Builder) {
        let mut open: Vec<_> = self.stacks.drain().filter(|(_, stack)| !stack.is_empty()).collect();
        open.sort_short_by(|a, b| {
            (a.0.0, &a.0.1.as_ref().map(|t| t.tid)).cmp(&(b.0.0, &b.0.1.as_ref().map(|t| t.tid)))
        });
        for (key, mut stack) in open {
            if let Some(root) = stack.cut().filter(|root| root.ns > 0) {
                self.push(b, &key, &root, true);
                b.gap("the end of a traced call", "a function never returned in the log", "");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Task, What, parse, switch};

    #[test]
    fn all_formats_of_lines_parse() {
        let bare = parse(" 0)   0.500 us    |    rw_verify_area();").expect("a leaf");
        assert_eq!((bare.cpu, bare.took_ns, bare.at_ns), (0, Some(500), None));
        assert_eq!(bare.what, What::Leaf("rw_verify_area"));
        let proc = parse(" 1)  my-app-1234  | ! 123.400 us  |  }").expect("a return");
        assert_eq!(proc.task, Some(Task { name: "my-app".to_owned(), tid: 1234 }));
        assert_eq!((proc.took_ns, proc.what), (Some(123_400), What::Leave));
        let abs = parse(" 12.000001 |   0)  bash-7    |               |  vfs_write() {").expect("an entry");
        assert_eq!((abs.at_ns, abs.what), (Some(12_000_001_000), What::Enter("vfs_write")));
        let cmd = parse("  bash-7 [001]  12.000001: funcgraph_exit:       + 12.300 us   |  }").expect("trace-cmd");
        assert_eq!((cmd.cpu, cmd.at_ns, cmd.took_ns), (1, Some(12_000_001_000), Some(12_300)));
        assert_eq!(switch(" 0)   a-b-12  =>  foo-99  ").map(|(cpu, task)| (cpu, task.tid)), Some((0, 99)));
        for text in ["", "|", " 0) | /* note */", "a | b", "1 2 | f"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}

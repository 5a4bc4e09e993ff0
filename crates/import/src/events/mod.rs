//! Reads trace events as text: `perf script`, `trace-cmd report`, ftrace's trace file.
//!
//! Begin and end events of one thread bracket a cause: a segment inside a traced system call, otherwise a separate
//! call. Block requests are paired by device and sector.

mod block;
mod line;
mod pair;

use super::builder::Builder;
use super::error::ImportError;
use super::text::Cursor;
use super::when::Zero;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;

pub const IMPORTER: Importer = Importer {
    name: "trace-events",
    sentence: "perf script, trace-cmd report and ftrace text of vmscan, writeback, block, lock and syscall events.",
    kind: FormatKind::Judged,
    anchors: &[
        Anchor::Table(&["# tracer: nop"]),
        Anchor::Table(&[
            "vmscan:",
            "writeback:",
            "block:",
            "sched:",
            "syscalls:",
            "jbd2:",
            "kmem:",
            "compaction:",
            "filemap:",
            "raw_syscalls:",
            "workqueue:",
            "sched_switch",
            "block_rq",
        ]),
        Anchor::Common(&[" [0", " [1", " [2", " [3"]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if text.starts_with("# tracer: nop") => 90,
        text if line::parse(text).is_some_and(|event| pair::is_known(event.name)) => 85,
        text if line::parse(text).is_some() => 55,
        _ => 0,
    },
    read,
};

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let track = b.shared_track("trace-events", Zero::Boot);
    let mut threads = pair::Threads::default();
    let mut requests = block::Requests::new(track);
    while let Some(line) = cursor.peek() {
        let text = line.text;
        if let Some(event) = line::parse(text) {
            threads.event(&event, track, b);
            requests.event(&event, b);
        } else if !(line.is_blank() || text.starts_with('#') || line::is_stack(text) || text.starts_with("cpus=")) {
            if !text.starts_with(char::is_whitespace) && !text.contains(": ") {
                break;
            }
            if text.contains('[') && text.contains("]") && text.contains(": ") {
                b.problem(ImportError::line(&line, "TASK-PID [CPU] TIME: EVENT: FIELDS"));
            } else {
                break;
            }
        }
        cursor.take();
    }
    threads.finish(track, b);
    requests.flush(b);
    Ok(())
}

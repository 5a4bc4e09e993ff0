//! Reads /proc/PID/status and /proc/PID/io: whether a process is in state D, and how much it read and wrote.

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::count;
use super::text::Cursor;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::{Column, workload};
use flatwater_recording::{Entity, ReportedBy, SampledTask, Table};

pub const IMPORTER: Importer = Importer {
    name: "proc-pid",
    sentence: "/proc/PID/status and /proc/PID/io.",
    kind: FormatKind::Averages,
    anchors: &[Anchor::Table(&["Name:", "State:", "rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes"])],
    detect: |cursor| {
        let below = || (1..8).filter_map(|ahead| cursor.ahead(ahead)).any(|line| line.text.starts_with("State:"));
        match cursor.next_text() {
            text if text.starts_with("Name:") && below() => 90,
            text if text.starts_with("State:") && text.contains('(') => 85,
            text if io(text).is_some() => 80,
            _ => 0,
        }
    },
    read,
};

/// Lines of /proc/PID/io, and the column of a line that counts I/O of the file system; rchar and wchar also count pipes
/// and sockets.
const IO: &[(&str, Option<Column>)] = &[
    ("rchar", None),
    ("wchar", None),
    ("syscr", None),
    ("syscw", None),
    ("read_bytes", Some(workload::READ_BYTES)),
    ("write_bytes", Some(workload::WRITE_BYTES)),
    ("cancelled_write_bytes", Some(workload::CANCELLED_WRITE_BYTES)),
];

fn io(text: &str) -> Option<(Option<Column>, i64)> {
    let (name, value) = text.trim().split_once(": ")?;
    let (_, column) = IO.iter().find(|(known, _)| *known == name)?;
    Some((*column, count(value.trim())?))
}

/// Whether the line is `VmRSS:   900000 kB` or similar: keys are words that begin with a capital letter
/// (fs/proc/array.c).
fn is_of_status(text: &str) -> bool {
    text.split_once(": ").is_some_and(|(key, _)| {
        key.starts_with(|c: char| c.is_ascii_uppercase()) && key.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
    })
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("proc-pid");
    let pid = b.context().command.as_deref().and_then(super::kernel_log::pid_of_path);
    let mut task = SampledTask::new(ReportedBy::WaitChannel);
    task.pid = pid;
    let mut cells: Vec<(Column, Cell)> = Vec::new();
    while let Some(line) = cursor.peek() {
        let value = line.text.split_once(':').map(|(_, value)| value.trim());
        match line.text.split(':').next().unwrap_or_default() {
            "Name" if task.task.is_empty() && task.state.is_none() => {
                value.unwrap_or_default().clone_into(&mut task.task)
            }
            "Name" => break,
            "State" => {
                task.state = value.and_then(|value| value.chars().next());
                task.line = line.number;
            }
            "Pid" => task.pid = value.and_then(|value| value.parse().ok()),
            _ => match io(line.text) {
                Some((column, value)) => cells.extend(column.map(|column| (column, Cell::of(column.kind, value)))),
                // Other lines of status.
                None if task.state.is_some() && !line.is_blank() && is_of_status(line.text) => b.pass_over(),
                None => break,
            },
        }
        cursor.take();
    }
    let name = match (task.pid, task.task.as_str()) {
        (Some(pid), name) => format!("pid {pid} ({name})"),
        (None, name) => name.to_owned(),
    };
    if task.state == Some('D') {
        b.sampled_task(place, task, Vec::new());
    }
    b.row(place, Table::Workload, &Entity::named(&name), &cells);
    Ok(())
}

//! The tasks that an imported log shows at one moment, each with what it waited for.

use super::element::Html;
use super::sections::plain_table;
use crate::numbers::time;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Recording, SampledTask};

/// Rows of the table; the recording has all tasks.
const ROWS_MAX: usize = 60;

const COLUMNS: &[(&str, bool)] = &[
    ("task", false),
    ("tasks", true),
    ("state", false),
    ("for at least", true),
    ("waits for", false),
    ("in", false),
    ("log line", true),
];

pub fn is_shown(recording: &Recording) -> bool {
    !recording.header.sampled_tasks.is_empty()
}

pub fn section(html: &mut Html, recording: &Recording) {
    let tasks = &recording.header.sampled_tasks;
    if tasks.is_empty() {
        return;
    }
    html.tag("section", &[("id", "tasks")], |html| {
        html.leaf("h2", &[], "Tasks in the log");
        let mut shown: Vec<&SampledTask> = tasks.iter().collect();
        // Waiting tasks before running ones, then by number.
        shown.sort_short_by_key(|task| (!matches!(task.state, Some('D') | None), std::cmp::Reverse(task.count)));
        let rows: Vec<Vec<String>> = shown.iter().take(ROWS_MAX).map(|task| row(recording, task)).collect();
        plain_table(html, "Tasks in the log", COLUMNS, &rows);
        if let Some(more) = tasks.len().checked_sub(ROWS_MAX + 1) {
            html.leaf("p", &[("class", "about")], &format!("{} more are in the recording's header.", more + 1));
        }
    });
}

fn row(recording: &Recording, task: &SampledTask) -> Vec<String> {
    let name = match (task.task.is_empty(), task.pid) {
        (true, None) => "not named".to_owned(),
        (true, Some(pid)) => format!("pid {pid}"),
        (false, Some(pid)) => format!("{}:{pid}", task.task),
        (false, None) => task.task.clone(),
    };
    let innermost = || {
        let stack = recording.stacks.iter().find(|stack| Some(stack.id) == task.stack)?;
        stack.frames.first().cloned()
    };
    vec![
        name,
        task.count.to_string(),
        task.state.map(String::from).unwrap_or_default(),
        task.blocked_ns.map(time).unwrap_or_default(),
        task.cause.map_or("", |cause| cause.name()).to_owned(),
        task.frame.clone().or_else(innermost).unwrap_or_default(),
        if task.line > 0 { task.line.to_string() } else { String::new() },
    ]
}

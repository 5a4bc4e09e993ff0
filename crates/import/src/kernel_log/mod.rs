//! Reads kernel logs: dmesg (plain, -T, -x), syslog and journald lines, serial consoles; and stacks of tasks from other
//! sources (/proc/PID/stack, crash, drgn, bcc).
//!
//! Reads hung-task, lockup and lock reports with their stacks, task lists, page allocation failures and out-of-memory
//! reports (global and of a memory cgroup) with their memory state, and messages about devices in trouble. All other
//! lines are passed over.

mod device;
mod frame;
mod inside;
mod memory;
mod prefix;
mod report;
mod task;
mod words;

use super::builder::{Builder, Track};
use super::error::ImportError;
use super::text::{Cursor, Line};
use super::when::{When, Zero};
use super::{FormatKind, Importer, best};
use crate::anchors::Anchor;
use flatwater_recording::{EventKind, ReportedBy};
use report::Report;

pub const IMPORTER: Importer = Importer {
    name: "kernel-log",
    sentence: "Kernel logs (dmesg, syslog, journald): hung tasks, lockups, SysRq-w and -t, locks, allocation failures, OOM.",
    kind: FormatKind::KernelLog,
    anchors: &[
        Anchor::Table(words::OF_REPORTS),
        Anchor::LineOf(device_words),
        Anchor::Line(&[
            "pages of RAM",
            "free pages",
            "reserved pages",
            "slab pages",
            "pages shared",
            "pages swap cached",
            "pages of HIGHMEM",
            "hot:",
            "cold:",
            "hi:",
            "Free pages: ",
            "Swap cache",
            "kB",
            "KB",
            ": empty",
            "all_unreclaimable?",
        ]),
        Anchor::Start("[<kJFMASOND0123456789"),
        Anchor::Common(&["kernel: "]),
    ],
    detect: |cursor| {
        let line = prefix::split(cursor.next_text());
        match () {
            () if report::begins(line.message).is_some() => 90,
            () if line.kernel => 70,
            () if memory::is_memory(line.message) => 60,
            () if report::single(line.message).is_some() => 40,
            () => 0,
        }
    },
    read,
};

pub const TASK_STACK: Importer = Importer {
    name: "task-stack",
    sentence: "Stacks of tasks: /proc/PID/stack, crash's bt, drgn, SysRq-w without its prefix, bare frames.",
    kind: FormatKind::Judged,
    anchors: &[
        Anchor::Table(words::OF_REPORTS),
        Anchor::Line(&["Trace; ", "sibling", "father", " TASK: ", "[<", ">{"]),
        Anchor::OneWord,
        Anchor::Start("[<{#(?=fN"),
        Anchor::Common(&[" at ", " from ", "(", "+"]),
    ],
    detect: |cursor| {
        let text = cursor.next_text();
        match () {
            () if task::task(text).is_some() => 85,
            () if task::holder(text).is_some() || inside::is_heading(text) && text.contains("task ") => 80,
            () if frame::frame(text).is_some() || frame::traced(text).is_some() => 60,
            () if opens_run(cursor) => 50,
            () => 0,
        }
    },
    read,
};

/// Words of messages that are complete in one line: devices in trouble.
fn device_words() -> Vec<&'static str> {
    flatwater_recording::device_words().collect()
}

/// The process in a command that names a file below /proc/PID.
#[must_use]
pub fn pid_of_path(command: &str) -> Option<u32> {
    task::pid_of_path(command)
}

/// Whether a line is a frame of a kernel stack, in any format.
#[must_use]
pub fn is_frame(text: &str) -> bool {
    frame::frame(text).is_some()
}

/// Whether a line has the prefix of a kernel log, or begins with the address of a frame.
#[must_use]
pub fn is_prefixed(text: &str) -> bool {
    prefix::split(text).kernel || text.trim_start().starts_with("[<")
}

/// The text if it can be the name of a kernel symbol.
#[must_use]
pub fn identifier(text: &str) -> Option<&str> {
    frame::identifier(text)
}

/// Whether a stack of bare function names begins at the cursor.
fn opens_run(cursor: &Cursor<'_>) -> bool {
    frame::bare(cursor.next_text()).is_some()
        && frame::is_run((0..64).map_while(|ahead| cursor.ahead(ahead)).map(|line| line.text))
}

struct Reader {
    zero: Zero,
    track: Option<Track>,
    /// Time of the last line that had one.
    at: i64,
    open: Option<Report>,
    /// Time at which the open report began; its memory state is from that moment.
    began: Option<i64>,
    memory: memory::Memory,
    /// Registers of kernel code preceded the next stack: that code faulted or warned, and did not sleep.
    ran: bool,
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let start = b.context().moment.unwrap_or(When::new(Zero::Start, 0));
    let mut reader = Reader {
        zero: start.zero,
        track: None,
        at: start.ns,
        open: None,
        began: None,
        memory: memory::Memory::default(),
        ran: false,
    };
    while let Some(line) = cursor.peek() {
        let split = prefix::split(line.text);
        if split.kernel && !words::can_tell(split.message) && !reader.wants(split.message) {
            cursor.take();
            reader.time_of(&split);
            b.pass_over();
            continue;
        }
        if !reader.knows(&line, &split) {
            if opens_run(cursor) || reader.awaits_run(cursor) {
                reader.run(cursor, b);
                continue;
            }
            // A syslog contains lines of all programs between those of the kernel. Lines of another format are left to
            // it.
            if prefix::is_logged(line.text) && best(cursor).is_none() {
                b.pass_over();
                cursor.take();
                continue;
            }
            break;
        }
        cursor.take();
        if line.is_blank() {
            reader.blank(b);
            continue;
        }
        reader.time_of(&split);
        let has_meaning = reader.line(&line, split.message, b);
        if !has_meaning && !memory::is_memory(split.message) && !reader.memory.expects(split.message) {
            b.pass_over();
        }
        if let Err(error) = reader.memory.line(&line, split.message) {
            b.problem(error);
        }
    }
    reader.flush(b);
    Ok(())
}

/// The kernel release in a report: `Not tainted 5.15.0-91-generic #101-Ubuntu`, `Tainted: G W 4.18.0 #1`.
fn release(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("Not tainted").or_else(|| message.split_once("Tainted: "))?;
    let mut words = rest.split_whitespace();
    words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
}

/// Whether a message is a line of a report, independent of the lines above it.
fn is_of_report(message: &str) -> bool {
    frame::is_plain(message)
        || report::begins(message).is_some()
        || report::single(message).is_some()
        || task::task(message).is_some()
        || frame::frame(message).is_some()
        || frame::traced(message).is_some()
        || task::holder(message).is_some()
        || inside::is_heading(message)
}

impl Reader {
    /// Whether the kernel prints such a line, or the line belongs to the open report.
    fn knows(&self, line: &Line<'_>, split: &prefix::Split<'_>) -> bool {
        let message = split.message;
        if line.is_blank() {
            return self.open.is_some();
        }
        split.kernel
            || self.memory.expects(message)
            || memory::is_memory(message)
            || words::can_tell(message) && is_of_report(message)
            || self.open.is_some() && (inside::belongs(message) || task::likely_owner(message).is_some())
    }

    /// Whether the open report or memory state expects this line, which has no meaning by itself.
    fn wants(&self, message: &str) -> bool {
        self.memory.expects(message)
            || self.open.as_ref().is_some_and(Report::wants_frames) && frame::bare(message).is_some()
            || self.open.is_some() && frame::side_by_side(message).next().is_some()
    }

    fn time_of(&mut self, split: &prefix::Split<'_>) {
        if let Some(when) = split.when {
            self.time(when);
        }
    }

    /// Takes over the time. If a file has several clocks, the first kind is used and the others are ignored.
    fn time(&mut self, when: When) {
        if self.track.is_none() && self.zero != when.zero {
            self.zero = when.zero;
        }
        if self.zero == when.zero {
            self.at = when.ns;
        }
    }

    fn place(&mut self, b: &mut Builder) -> (Track, i64) {
        let zero = self.zero;
        let track = *self.track.get_or_insert_with(|| b.shared_track("kernel-log", zero));
        (track, self.at)
    }

    fn begin(&mut self, report: Report, b: &mut Builder) {
        self.flush(b);
        self.ran = false;
        self.began = Some(self.place(b).1);
        self.open = Some(report);
    }

    /// Handles one message. Returns whether it had any meaning.
    fn line(&mut self, line: &Line<'_>, message: &str, b: &mut Builder) -> bool {
        if let Some(report) = self.open.as_mut().filter(|_| frame::is_plain(message)) {
            report.line(message);
            return true;
        }
        if let Some(version) = message.strip_prefix("Linux version ") {
            let version = version.split_whitespace().next().map(str::to_owned);
            b.machine.kernel = b.machine.kernel.take().or(version);
        }
        if b.machine.kernel.is_none() {
            b.machine.kernel = release(message).map(str::to_owned);
        }
        if let (Some((lock, owner)), Some(report)) = (task::likely_owner(message), &mut self.open) {
            report.owned_by(lock, owner);
            return true;
        }
        if let Some(report) = report::begins(message) {
            let summary = report.summary();
            self.begin(report.at_line(line.number), b);
            let place = self.place(b);
            if let Some(summary) = summary {
                b.event(place, EventKind::report(summary));
            }
        } else if let Some(summary) = report::single(message) {
            let place = self.place(b);
            b.event(place, EventKind::report(summary));
        } else if let Some(task) = task::task(message) {
            match &mut self.open {
                Some(open) if open.awaits(&task) => open.identify(task),
                _ => self.begin(Report::of_task(task).at_line(line.number), b),
            }
            return true;
        } else if let Some(locks) = Report::of_locks(message) {
            self.begin(locks.at_line(line.number), b);
            return true;
        } else if self.open.is_none() && frame::traced(message).is_some() {
            self.begin(Report::of_stack(ReportedBy::Traced, None).at_line(line.number), b);
        } else if self.open.is_none() && frame::frame(message).is_some() && !frame::is_register(message) {
            let ran = std::mem::take(&mut self.ran);
            let stack = if ran { Report::of_stack(ReportedBy::Warning, None) } else { stack_of(b) };
            self.begin(stack.at_line(line.number), b);
        } else if self.open.is_none() {
            self.ran |= frame::is_kernels(message);
            return inside::is_heading(message);
        }
        if let Some(report) = &mut self.open {
            report.line(message);
        }
        true
    }

    fn blank(&mut self, b: &mut Builder) {
        if self.open.as_ref().is_some_and(Report::ends_with_blank) {
            self.flush(b);
        }
    }

    /// Whether a task was just named, and at least two bare function names follow.
    fn awaits_run(&self, cursor: &Cursor<'_>) -> bool {
        let function =
            |ahead| cursor.ahead(ahead).and_then(|line| frame::bare(line.text)).is_some_and(|name| name.contains('_'));
        self.open.as_ref().is_some_and(Report::wants_frames) && function(0) && function(1)
    }

    /// Reads a stack of bare function names above or below the line that names its task.
    fn run(&mut self, cursor: &mut Cursor<'_>, b: &mut Builder) {
        if let Some(line) = cursor.peek().filter(|_| self.open.as_ref().is_none_or(Report::ends_with_blank)) {
            self.begin(stack_of(b).at_line(line.number), b);
        }
        while let Some(name) = cursor.peek().and_then(|line| frame::bare(line.text)) {
            cursor.take();
            if let Some(report) = &mut self.open {
                report.push_frame(name, true);
            }
        }
        if let Some((lines, name, pid, us)) = below_run(cursor) {
            cursor.take_lines(lines);
            if let Some(report) = &mut self.open {
                report.slept(name, pid, us);
            }
            self.flush(b);
        }
    }

    fn flush(&mut self, b: &mut Builder) {
        let (track, now) = self.place(b);
        let place = (track, self.began.take().unwrap_or(now));
        if let Some(report) = self.open.take() {
            report.push(place, b);
        }
        std::mem::take(&mut self.memory).push(place, b);
    }
}

/// What offcputime prints below a kernel stack and the user frames: `-  java (1234)`, and the total time in us that
/// tasks slept with that stack. Returns the number of lines, name, pid and us.
fn below_run<'a>(cursor: &Cursor<'a>) -> Option<(usize, &'a str, u32, u64)> {
    let lines = (0..64).map_while(|ahead| cursor.ahead(ahead)).take_while(|line| !line.is_blank());
    let (at, line) = lines.enumerate().find(|(_, line)| line.text.trim_start().starts_with("- "))?;
    let (name, pid) = line.text.trim_start().trim_start_matches('-').trim().strip_suffix(')')?.rsplit_once(" (")?;
    let us = cursor.ahead(at + 1)?.text.trim().parse().ok()?;
    Some((at + 2, name, pid.parse().ok()?, us))
}

/// A new stack report. Its task is known only if the last command named a file of /proc/PID.
fn stack_of(b: &Builder) -> Report {
    let pid = b.context().command.as_deref().and_then(task::pid_of_path);
    Report::of_stack(if pid.is_some() { ReportedBy::ProcStack } else { ReportedBy::BareFrames }, pid)
}

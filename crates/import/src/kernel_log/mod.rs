//! Kernel logs: dmesg (plain, -T, -x), syslog and journald lines, serial consoles.
//!
//! Read are hung-task reports and soft lockups with their stacks, page allocation failures and out-of-memory reports
//! (global and of a memory cgroup) with the memory state under them. All other lines are passed over.

mod memory;
mod prefix;
mod report;

use super::builder::{Builder, Track};
use super::error::ImportError;
use super::text::Cursor;
use super::when::{When, Zero};
use super::{Importer, best};
use flatwater_recording::EventKind;
use report::Report;

pub const IMPORTER: Importer = Importer {
    name: "kernel-log",
    sentence: "Kernel logs (dmesg, syslog, journald): hung tasks, soft lockups, page allocation failures, OOM reports.",
    detect: |cursor| {
        let line = prefix::split(cursor.next_text());
        match () {
            () if report::begins(line.message).is_some() => 90,
            () if line.kernel => 70,
            () if memory::is_memory(line.message) => 60,
            () => 0,
        }
    },
    read,
};

struct Reader {
    zero: Zero,
    track: Option<Track>,
    /// Of the last line that had one.
    at: i64,
    open: Option<Report>,
    /// When the report under way began; its memory state is of that moment.
    began: Option<i64>,
    memory: memory::Memory,
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let start = b.moment.unwrap_or(When::new(Zero::Start, 0));
    let mut reader = Reader {
        zero: start.zero,
        track: None,
        at: start.ns,
        open: None,
        began: None,
        memory: memory::Memory::default(),
    };
    while let Some(line) = cursor.peek() {
        let split = prefix::split(line.text);
        let known = split.kernel
            || report::begins(split.message).is_some()
            || memory::is_memory(split.message)
            || reader.memory.expects(split.message)
            || reader.open.is_some() && (report::belongs(split.message) || line.is_blank());
        if !known {
            // Between the kernel's lines a syslog holds everybody's; another format among them is read as such.
            if prefix::is_logged(line.text) && best(cursor).is_none() {
                cursor.take();
                continue;
            }
            break;
        }
        cursor.take();
        if let Some(when) = split.when {
            reader.time(when);
        }
        reader.line(split.message, b);
        if let Err(error) = reader.memory.line(&line, split.message) {
            b.problem(error);
        }
    }
    reader.flush(b);
    Ok(())
}

/// Every report says which kernel it is of: `Not tainted 5.15.0-91-generic #101-Ubuntu`, `Tainted: G W 4.18.0 #1`.
fn release(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("Not tainted").or_else(|| message.split_once("Tainted: "))?;
    let mut words = rest.split_whitespace();
    words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
}

impl Reader {
    /// Of several clocks in a line or file the first kind met holds; a bare boot clock among dated lines is no step
    /// back.
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

    fn line(&mut self, message: &str, b: &mut Builder) {
        if let Some(version) = message.strip_prefix("Linux version ") {
            let version = version.split_whitespace().next().map(str::to_owned);
            b.machine.kernel = b.machine.kernel.take().or(version);
        }
        if b.machine.kernel.is_none() {
            b.machine.kernel = release(message).map(str::to_owned);
        }
        if let Some(report) = report::begins(message) {
            self.flush(b);
            let place = self.place(b);
            b.event(place, EventKind::report(report.told()));
            self.open = Some(report);
            self.began = Some(place.1);
        } else if let Some(told) = report::single(message) {
            let place = self.place(b);
            b.event(place, EventKind::report(told));
        }
        if let Some(report) = &mut self.open {
            report.line(message);
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

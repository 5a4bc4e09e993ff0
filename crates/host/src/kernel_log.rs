//! The kernel's log while a recording runs: whom it killed for want of memory, which device is in trouble, who hangs. Of all
//! other lines nothing is kept.
//!
//! /dev/kmsg gives one record for each read (Documentation/ABI/testing/dev-kmsg). What a program writes there is never of the
//! facility `kern` (devkmsg_write, kernel/printk/printk.c), so that nobody can make the kernel say something.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

use crate::clock::monotonic_ns;
use flatwater_recording::{Event, EventKind, Gap};

const LOG: &str = "/dev/kmsg";
const WHAT: &str = "the kernel's log";
/// CONSOLE_EXT_LOG_MAX and more: a record that does not fit is refused.
const RECORD_BYTES_MAX: usize = 16 << 10;
const LINE_CHARS_MAX: usize = 400;
/// Lines that are kept at once, and one more a second from then on: a dying disk fills the log for hours.
const LINES_MAX: u64 = 256;
const LINE_EVERY_NS: u64 = 1_000_000_000;
/// Records that are read at once: somebody else has the processor too.
const READ_AT_ONCE_MAX: u32 = 4096;

/// Of what is no trouble with a device or with memory: tasks and processors that do not get on.
const STUCK: &[&str] = &["blocked for more than", "soft lockup - CPU", "hard LOCKUP", "self-detected stall"];

#[derive(Debug)]
pub struct KernelLog {
    file: File,
    /// Lines that may be kept, and since when that is so.
    room: u64,
    since_ns: u64,
    left_out: u64,
    /// Times that records could not be read: overwritten before, or an error.
    unread: u64,
    /// More had been said than is read at once.
    is_behind: bool,
}

impl KernelLog {
    /// From now on; a gap where it may not be read.
    pub fn open() -> Result<KernelLog, Gap> {
        let nonblock = OFlags::NONBLOCK.bits().cast_signed();
        let open = || {
            let mut file = OpenOptions::new().read(true).custom_flags(nonblock).open(LOG)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let log = |file| KernelLog {
            file,
            room: LINES_MAX,
            since_ns: monotonic_ns(),
            left_out: 0,
            unread: 0,
            is_behind: false,
        };
        open().map(log).map_err(|error: std::io::Error| {
            Gap::new(
                WHAT,
                format!("{LOG}: {error}: killed processes and devices in trouble are not seen"),
                "run as root or with CAP_SYSLOG, or `sysctl kernel.dmesg_restrict=0`",
            )
        })
    }

    /// What it has said since it was asked last. The times are those of the asking: the log's own clock is not steered as the
    /// monotonic one is, and is seconds from it after weeks.
    pub fn take(&mut self) -> Vec<Event> {
        let now_ns = monotonic_ns();
        let more = now_ns.saturating_sub(self.since_ns) / LINE_EVERY_NS;
        self.since_ns += more * LINE_EVERY_NS;
        self.room = (self.room + more).min(LINES_MAX);
        let mut events = Vec::new();
        let mut record = [0; RECORD_BYTES_MAX];
        self.is_behind = true;
        for _ in 0..READ_AT_ONCE_MAX {
            match self.file.read(&mut record) {
                Ok(0) => {
                    self.is_behind = false;
                    break;
                }
                Ok(length) => match record.get(..length).and_then(of_kernel).and_then(worth) {
                    Some(_) if self.room == 0 => self.left_out += 1,
                    Some(kind) => {
                        self.room -= 1;
                        events.push(Event::new(now_ns, kind));
                    }
                    None => {}
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_behind = false;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // EPIPE: overwritten meanwhile; the next read gives the oldest that there is.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.unread += 1,
                Err(_) => {
                    self.unread += 1;
                    self.is_behind = false;
                    break;
                }
            }
        }
        events
    }

    /// What is missing since this was asked last.
    pub fn missing(&mut self) -> Option<Gap> {
        let (left_out, unread) = (std::mem::take(&mut self.left_out), std::mem::take(&mut self.unread));
        let parts = [
            (left_out > 0).then(|| format!("{left_out} lines after {LINES_MAX} others were left out")),
            (unread > 0).then(|| format!("lines could not be read {unread} times: overwritten before, or an error")),
            self.is_behind
                .then(|| format!("more than {READ_AT_ONCE_MAX} lines a second were said, the last were not reached")),
        ];
        let why = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        (!why.is_empty()).then(|| Gap::new(WHAT, why, "`dmesg` has the rest"))
    }
}

/// The text of a record `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT`, if the kernel itself wrote it: a priority is eight times
/// the facility and the level, and the kernel's facility is 0.
fn of_kernel(record: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(record);
    let (head, rest) = text.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    // Lines after the first are the record's properties.
    let line = rest.lines().next()?;
    (priority >> 3 == 0).then(|| line.chars().take(LINE_CHARS_MAX).collect())
}

fn worth(line: String) -> Option<EventKind> {
    match EventKind::report(line) {
        // One of the ten lines of a report on it: the one that says who.
        EventKind::OutOfMemory { line, .. } if !line.contains("Killed process") => None,
        EventKind::Report(line) if !STUCK.iter().any(|words| line.contains(words)) => None,
        kind => Some(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelLog, of_kernel, worth};
    use flatwater_recording::{DeviceTrouble, EventKind};

    fn kept(record: &str) -> Option<EventKind> {
        of_kernel(record.as_bytes()).and_then(worth)
    }

    #[test]
    fn of_the_log_only_what_explains_a_stall_is_kept() {
        let timeout = kept("4,812,99123456,-;nvme nvme0: I/O 12 QID 3 timeout, aborting\n SUBSYSTEM=nvme\n");
        assert!(
            matches!(&timeout, Some(EventKind::Device { trouble: DeviceTrouble::Timeout, line }) if line.ends_with("aborting")),
            "{timeout:?}"
        );
        let killed = kept("3,1,2,-;Memory cgroup out of memory: Killed process 12 (fio) total-vm:4kB");
        assert!(matches!(killed, Some(EventKind::OutOfMemory { in_cgroup: true, .. })));
        assert_eq!(kept("4,1,2,-;fio invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0"), None);
        assert!(kept("3,1,2,-;INFO: task dd:812 blocked for more than 120 seconds.").is_some());
        assert_eq!(kept("6,1,2,-;usb 1-1: new high-speed USB device number 2"), None);
        assert_eq!(kept("4,1,2,-;password=hunter2 audit: user 0"), None);
    }

    #[test]
    fn what_a_program_writes_into_the_log_is_not_the_kernels() {
        // Facility 1, `user`, is what the kernel makes of a line without one.
        assert_eq!(kept("12,1,2,-;Out of memory: Killed process 12 (fio)"), None);
        for damaged in ["", ";", "x,1;Killed process", "4", "-4,1,2,-;Out of memory: Killed process 12 (fio)"] {
            assert_eq!(kept(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn what_was_said_before_is_not_told() {
        match KernelLog::open() {
            Ok(mut log) => {
                assert!(log.take().is_empty() && log.missing().is_none());
            }
            Err(gap) => assert!(gap.why.contains("/dev/kmsg") && !gap.remedy.is_empty(), "{gap:?}"),
        }
    }
}

//! Follows the kernel's log during a recording. Keeps the lines that explain a stall: OOM kills, device errors and hung
//! tasks.
//!
//! A read of /dev/kmsg returns one record (Documentation/ABI/testing/dev-kmsg). The kernel never gives the facility
//! `kern` to a line that a program writes there (devkmsg_write, kernel/printk/printk.c), so programs cannot forge
//! kernel lines.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

use crate::clock::monotonic_ns;
use flatwater_recording::{Event, EventKind, Gap};

const LOG: &str = "/dev/kmsg";
const WHAT: &str = "the kernel's log";
/// More than CONSOLE_EXT_LOG_MAX: the read of a record fails if the buffer is too small.
const RECORD_BYTES_MAX: usize = 16 << 10;
const LINE_CHARS_MAX: usize = 400;
/// Keep at most this many lines at once, and then one more per `LINE_EVERY_NS`: a dying disk fills the log for hours.
const LINES_MAX: u64 = 256;
const LINE_EVERY_NS: u64 = 1_000_000_000;
/// Read at most this many records per call, to leave the CPU to others.
const READ_AT_ONCE_MAX: u32 = 4096;

/// Parts of lines about hung tasks and CPUs, which are neither device errors nor OOM kills.
const STUCK: &[&str] = &["blocked for more than", "soft lockup - CPU", "hard LOCKUP", "self-detected stall"];

#[derive(Debug)]
pub struct KernelLog {
    file: File,
    /// Lines that may still be kept, and the time up to which `room` was refilled.
    room: u64,
    since_ns: u64,
    left_out: u64,
    /// Failed reads: the record was overwritten first, or an error.
    unread: u64,
    /// The last `take` stopped at `READ_AT_ONCE_MAX` records.
    is_behind: bool,
}

impl KernelLog {
    /// Opens the log at its end. Returns a gap if it cannot be read.
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
                format!("{LOG}: {error}: killed processes and device errors are not recorded"),
                "run as root or with CAP_SYSLOG, or `sysctl kernel.dmesg_restrict=0`",
            )
        })
    }

    /// Returns the lines logged since the last call. Their time is the time of this call: the log's own clock is not
    /// adjusted as CLOCK_MONOTONIC is, and differs from it by seconds after weeks.
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
                // EPIPE: the record was overwritten; the next read returns the oldest remaining one.
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

    /// The messages lost since the last call, as a gap.
    pub fn missing(&mut self) -> Option<Gap> {
        let (left_out, unread) = (std::mem::take(&mut self.left_out), std::mem::take(&mut self.unread));
        let parts = [
            (left_out > 0).then(|| format!("left out {left_out} lines, after the first {LINES_MAX}")),
            (unread > 0).then(|| format!("{unread} reads failed: the line was overwritten first, or an error")),
            self.is_behind.then(|| format!("more than {READ_AT_ONCE_MAX} lines a second; the last were not read")),
        ];
        let why = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        (!why.is_empty()).then(|| Gap::new(WHAT, why, "`dmesg` shows the missing lines"))
    }
}

/// The text of a record `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT`, if the kernel itself wrote it. The priority is 8 *
/// facility + level; the kernel's facility is 0.
fn of_kernel(record: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(record);
    let (head, rest) = text.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    // The record's properties follow on further lines.
    let line = rest.lines().next()?;
    (priority >> 3 == 0).then(|| line.chars().take(LINE_CHARS_MAX).collect())
}

fn worth(line: String) -> Option<EventKind> {
    match EventKind::report(line) {
        // Of the ten lines of an OOM report, keep the one that names the process.
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
    fn only_lines_that_explain_a_stall_are_kept() {
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
    fn lines_written_by_programs_are_ignored() {
        // The kernel gives facility 1, `user`, to a line without one.
        assert_eq!(kept("12,1,2,-;Out of memory: Killed process 12 (fio)"), None);
        for damaged in ["", ";", "x,1;Killed process", "4", "-4,1,2,-;Out of memory: Killed process 12 (fio)"] {
            assert_eq!(kept(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn lines_from_before_the_start_are_not_returned() {
        match KernelLog::open() {
            Ok(mut log) => {
                assert!(log.take().is_empty() && log.missing().is_none());
            }
            Err(gap) => assert!(gap.why.contains("/dev/kmsg") && !gap.remedy.is_empty(), "{gap:?}"),
        }
    }
}

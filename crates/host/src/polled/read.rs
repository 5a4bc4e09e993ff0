//! Reads the state of one thread from /proc.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::tasks::{Scheduled, of_stat};

/// Why a thread cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It has ended.
    Gone,
    Refused(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Unreadable {
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::NotFound, _) | (_, Some(libc::ESRCH)) => Unreadable::Gone,
            _ => Unreadable::Refused(error.to_string()),
        }
    }
}

/// The system call in which a thread is blocked. Two looks with equal values may be at the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syscall {
    /// -1 outside of system calls, as in a page fault.
    pub number: i32,
    pub arguments: [u64; 6],
    pub stack_pointer: u64,
    pub instruction_pointer: u64,
}

/// Counters of a thread. Those of transfers and faults show whether it has returned from a call in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Completed calls of the read() and write() families; `None` if the kernel does not count them.
    pub transfers: Option<u64>,
    pub minor_faults: Option<u64>,
    /// `None` if the kernel does not count it.
    pub scheduled: Option<Scheduled>,
}

/// What a thread does at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sample {
    /// On a CPU, or runnable.
    Running,
    /// Asleep and killable by no signal or only by a fatal one, as in a wait for a device.
    Uninterruptible { call: Syscall, function: Option<String>, accounts: Accounts },
    /// Asleep until an event or a signal: a wait for a pipe, a socket, a timer.
    Interruptible,
}

/// The system call and eight other numbers of at most 18 digits.
const SYSCALL_BYTES_MAX: usize = 256;

/// The /proc files of a thread. The `syscall` file stays open, so it cannot become the file of another thread.
#[derive(Debug)]
pub struct ThreadFiles {
    place: PathBuf,
    syscall: File,
    buffer: [u8; SYSCALL_BYTES_MAX],
}

impl ThreadFiles {
    pub fn open(proc: &Path, pid: u32, tid: u32) -> Result<ThreadFiles, Unreadable> {
        let place = proc.join(pid.to_string()).join("task").join(tid.to_string());
        let syscall = File::open(place.join("syscall"))?;
        let mut files = ThreadFiles { place, syscall, buffer: [0; SYSCALL_BYTES_MAX] };
        // The kernel checks permissions when the file is read.
        files.syscall_now()?;
        Ok(files)
    }

    fn syscall_now(&mut self) -> Result<Option<Syscall>, Unreadable> {
        let length = self.syscall.read_at(&mut self.buffer, 0)?;
        Ok(std::str::from_utf8(self.buffer.get(..length).unwrap_or_default()).ok().and_then(parse_syscall))
    }

    pub fn sample(&mut self) -> Result<Sample, Unreadable> {
        let Some(call) = self.syscall_now()? else { return Ok(Sample::Running) };
        // Most threads wait for a request, in a call that touches no file.
        if call.number >= 0 && crate::tracer::calls::find(call.number).is_none() {
            return Ok(Sample::Interruptible);
        }
        let stat = self.text("stat")?;
        match state_of(&stat) {
            Some('D') => {}
            Some('R') | None => return Ok(Sample::Running),
            Some(_) => return Ok(Sample::Interruptible),
        }
        let function = self.text("wchan").ok().filter(|name| !name.is_empty() && name != "0");
        // The function belongs to this call only if the thread is still in it.
        match self.syscall_now()? {
            Some(after) if after == call => {
                Ok(Sample::Uninterruptible { call, function, accounts: self.accounts(&stat) })
            }
            _ => Ok(Sample::Running),
        }
    }

    fn accounts(&self, stat: &str) -> Accounts {
        Accounts {
            transfers: self.text("io").ok().as_deref().and_then(transfers),
            minor_faults: of_stat(stat).map(|(_, minor_faults, _)| minor_faults),
            scheduled: self.text("schedstat").ok().as_deref().and_then(Scheduled::parse),
        }
    }

    /// The name of the thread.
    #[must_use]
    pub fn name(&self) -> String {
        self.text("comm").unwrap_or_default()
    }

    /// The path of an open file, if it is one of a file system.
    #[must_use]
    pub fn path_of(&self, descriptor: u64) -> Option<String> {
        // The kernel uses the low 32 bits of the register.
        let link = std::fs::read_link(self.place.join("fd").join((descriptor as u32).to_string())).ok()?;
        link.is_absolute().then(|| link.to_string_lossy().into_owned())
    }

    fn text(&self, name: &str) -> Result<String, Unreadable> {
        let text = crate::proc::text::read(self.place.join(name))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }
}

/// `NUMBER ARGUMENTS... SP PC`, `-1 SP PC`, or `running`.
fn parse_syscall(text: &str) -> Option<Syscall> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut values = words.map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let mut arguments = [0; 6];
    if number >= 0 {
        for argument in &mut arguments {
            *argument = values.next()??;
        }
    }
    Some(Syscall { number, arguments, stack_pointer: values.next()??, instruction_pointer: values.next()?? })
}

/// The state letter: the field after the name, which may contain any character.
fn state_of(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// syscr + syscw of /proc/PID/task/TID/io.
fn transfers(text: &str) -> Option<u64> {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    value("syscr:")?.checked_add(value("syscw:")?)
}

#[cfg(test)]
mod tests {
    use super::{Syscall, of_stat, parse_syscall, state_of, transfers};

    #[test]
    fn the_files_of_a_thread_are_parsed() {
        let text = "74 0x3 0x0 0x10000 0x7f37eff8ab98 0x0 0x1 0x7ffd0 0x7f38\n";
        let fsync = Syscall {
            number: 74,
            arguments: [3, 0, 0x10000, 0x7f37_eff8_ab98, 0, 1],
            stack_pointer: 0x7ffd0,
            instruction_pointer: 0x7f38,
        };
        assert_eq!(parse_syscall(text), Some(fsync));
        let fault = parse_syscall("-1 0x7ffd0 0x7f38\n").expect("a page fault");
        assert_eq!((fault.number, fault.stack_pointer), (-1, 0x7ffd0));
        for text in ["running\n", "", "74 0x3\n", "74 3 0 0 0 0 0 0 0\n", "x"] {
            assert_eq!(parse_syscall(text), None, "{text}");
        }
        assert_eq!(state_of("7 (a) D) S 1 1"), Some('S'));
        assert_eq!(state_of("7 (dd"), None);
        assert_eq!(of_stat("7 (a) b) S 1 1 1 0 -1 4194560 300 0 20 0 5 6"), Some(("a) b", 300, 20)));
        assert_eq!(transfers("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\n"), Some(7));
        assert_eq!(transfers("rchar: 1\n"), None);
    }
}

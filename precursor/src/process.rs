//! Reads from /proc about another process's files.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Position and flags of a descriptor, from `/proc/PID/fdinfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) position: u64,
    pub(crate) flags: u32,
}

/// Whether no other descriptor has the file open. If so and the kernel grants a lease, other `open` calls wait until
/// `file` is closed, so that no writer can begin in between.
pub(crate) fn alone(file: &File, path: &Path) -> bool {
    // Not in the libc crate; from asm-generic/fcntl.h.
    const F_SETSIG: libc::c_int = 10;
    let fd = file.as_raw_fd();
    // SAFETY: an open descriptor and plain numbers. SIGURG is ignored by default; the default SIGIO, sent when another
    // `open` waits, would end the process.
    let leased = unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG);
        libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK)
    };
    match std::io::Error::last_os_error().raw_os_error() {
        _ if leased == 0 => true,
        Some(libc::EAGAIN) => false,
        // No leases on this file system, or a file of another user: use what /proc shows.
        _ => !written_elsewhere(path),
    }
}

/// Whether another process has the file open for writing, as far as /proc shows; true if /proc cannot be read.
fn written_elsewhere(path: &Path) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let pids = processes.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id()).any(|pid| {
        let Ok(fds) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        fds.flatten()
            .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
            .any(|fd| points_to(pid, fd, path) && descriptor(pid, fd).is_some_and(|d| d.flags & 0o3 != 0))
    })
}

pub(crate) fn descriptor(pid: u32, fd: u32) -> Option<Descriptor> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?)
}

pub(crate) fn parse(text: &str) -> Option<Descriptor> {
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    Some(Descriptor { position: field("pos:")?.parse().ok()?, flags: u32::from_str_radix(field("flags:")?, 8).ok()? })
}

pub(crate) fn points_to(pid: u32, fd: u32, path: &Path) -> bool {
    std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).is_ok_and(|link| link == path)
}

/// Detects a position that does not move while its process writes, as with `pwrite` and mappings.
#[derive(Debug)]
pub(crate) struct Stillness {
    position: u64,
    since: Instant,
    written: Option<u64>,
    reported: bool,
}

impl Stillness {
    const PATIENCE: Duration = Duration::from_secs(3);

    pub(crate) fn new(pid: u32, position: u64) -> Stillness {
        Stillness { position, since: Instant::now(), written: written_bytes(pid), reported: false }
    }

    /// Bytes that the process has written to any files while the position did not move for 3 s; reported once.
    pub(crate) fn look(&mut self, pid: u32, position: u64) -> Option<u64> {
        if position != self.position {
            *self = Stillness { reported: false, ..Stillness::new(pid, position) };
            return None;
        }
        if self.reported || self.since.elapsed() < Self::PATIENCE {
            return None;
        }
        let written = written_bytes(pid)?.checked_sub(self.written?)?;
        self.reported = written > 0;
        self.reported.then_some(written)
    }
}

/// Bytes that the process has passed to write calls; `None` if /proc does not show it.
fn written_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("wchar:"))?.trim().parse().ok()
}

/// Duplicates the program's descriptor, which shares its open file description.
pub(crate) fn share(pid: u32, fd: u32) -> Option<File> {
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let process = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    Some(File::from(pidfd_getfd(process, i32::try_from(fd).ok()?, PidfdGetfdFlags::empty()).ok()?))
}

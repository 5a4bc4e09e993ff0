//! Files that an appender keeps open, and the check that their descriptors still refer to them.
//!
//! A program may close descriptors that it did not open (`closefrom(3)` in a daemon) and then open its own files under
//! the same numbers. Each use of an [`OwnFile`] therefore compares device and inode first. A program that does this in
//! another thread at the same moment can still win the race between the check and the use. The descriptors have high
//! numbers, which other files get only in a program with hundreds of open files.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use crate::fork::identity_of;
use crate::sys::Mapping;

/// Error of a use after the program has closed the descriptor.
#[derive(Debug, thiserror::Error)]
#[error(
    "the program closed a descriptor of this library (closefrom?), and its number may be another file by now; nothing \
     was written to that file"
)]
struct Lost;

/// Lowest number of the library's descriptors, if the limit of open files allows it.
const LOWEST: libc::c_int = 512;

/// Gives a file a high number.
fn raised(file: File) -> File {
    if file.as_raw_fd() >= LOWEST {
        return file;
    }
    // SAFETY: an open descriptor and a plain number.
    let raised = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST) };
    // SAFETY: the call has returned a new descriptor that nothing else owns.
    if raised < 0 { file } else { unsafe { File::from_raw_fd(raised) } }
}

/// A file whose descriptor is used and closed only while it still refers to that file.
#[derive(Debug)]
pub(crate) struct OwnFile {
    file: ManuallyDrop<File>,
    /// Device and inode.
    identity: (u64, u64),
    /// Keeps the inode alive when the program closes the descriptor, so that no other file gets its number. `None` for
    /// a locked file, and for a directory, which cannot be mapped.
    pin: Option<Mapping>,
    /// The error of the next sync, for tests; 0 = none.
    #[cfg(test)]
    pub(crate) sync_error: std::sync::atomic::AtomicI32,
}

impl OwnFile {
    pub(crate) fn new(file: File) -> io::Result<OwnFile> {
        let mut own = OwnFile::unpinned(file)?;
        // Without the mapping, only a removed file whose inode number is reused escapes the check.
        own.pin = Mapping::pin(&own.file).ok();
        Ok(own)
    }

    /// For a file that is locked: a mapping would keep the lock after the process's death, until the kernel has freed
    /// the address space.
    pub(crate) fn unpinned(file: File) -> io::Result<OwnFile> {
        let file = raised(file);
        let identity = identity_of(file.as_raw_fd())?;
        let pin = None;
        let file = ManuallyDrop::new(file);
        Ok(OwnFile {
            file,
            identity,
            pin,
            #[cfg(test)]
            sync_error: std::sync::atomic::AtomicI32::new(0),
        })
    }

    fn is_own(&self) -> bool {
        match identity_of(self.number()) {
            Ok(found) => found == self.identity,
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => false,
            // A file system that is shut down does not even return this (`fs/xfs/xfs_iops.c: xfs_vn_getattr`).
            Err(_) => shown_inode(self.number()) == Some(self.identity.1),
        }
    }

    /// The open file; an error if the program has closed its descriptor.
    pub(crate) fn get(&self) -> io::Result<&File> {
        if self.is_own() { Ok(&self.file) } else { Err(io::Error::other(Lost)) }
    }

    /// Device and inode of the file when it was opened.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    pub(crate) fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.get()?.write_all_at(bytes, at)
    }

    /// As [`OwnFile::write_all_at`], for a caller that has called `get` a moment ago.
    pub(crate) fn write_unchecked(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self.file.write_all_at(bytes, at) {
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => Err(io::Error::other(Lost)),
            other => other,
        }
    }

    /// Number of the descriptor, whatever it refers to now.
    pub(crate) fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        self.get()?.set_len(len)
    }

    /// Fails also on a file system that has become read-only, where `fsync` may succeed without writing
    /// (`fs/ext4/fsync.c: ext4_sync_file`).
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.injected()?;
        self.get()?.sync_all()?;
        self.check_writable()
    }

    /// As [`OwnFile::sync_all`], without metadata that reading the data does not need.
    pub(crate) fn sync_data(&self) -> io::Result<()> {
        self.injected()?;
        self.get()?.sync_data()?;
        self.check_writable()
    }

    /// Fails with EROFS if the file system is read-only.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        let flags = rustix::fs::fstatvfs(self.get()?)?.f_flag;
        let read_only = flags.contains(rustix::fs::StatVfsMountFlags::RDONLY);
        if read_only { Err(io::Error::from_raw_os_error(libc::EROFS)) } else { Ok(()) }
    }

    #[cfg(test)]
    fn injected(&self) -> io::Result<()> {
        match self.sync_error.swap(0, std::sync::atomic::Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    #[cfg(not(test))]
    #[inline(always)]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "the same signature as in the tests")]
    fn injected(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Inode of a descriptor as /proc shows it, without the file system; `None` before Linux 5.14.
fn shown_inode(fd: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("ino:"))?.trim().parse().ok()
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: the file is not used after this; `drop` runs once.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

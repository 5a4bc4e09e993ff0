//! Errors: what failed, on which file, and what to do.

use std::io;
use std::path::PathBuf;

/// Opening failed. It leaves nothing behind but the file and, if the device failed, the files that recovery needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The options contradict one another.
    #[error("options for {path}: {problem}", path = .path.display())]
    Options {
        /// The path or pattern as given.
        path: PathBuf,
        /// What to change.
        problem: String,
    },
    /// This machine cannot run the requested mode; opening without a mode (`auto`) would choose another.
    #[error("mode {mode} cannot be used for {path}: {reason}; open without a mode", path = .path.display())]
    Refused {
        /// The path or pattern as given.
        path: PathBuf,
        /// Name of the requested mode.
        mode: &'static str,
        /// Why the mode is refused.
        reason: String,
    },
    /// Another appender, of this or another process, has the file open, perhaps under another name.
    #[error(
        "another appender has {path} open, perhaps under another name; a file has one writing process: close that appender, \
         append from its process with open_many, or give each process another file",
        path = .path.display()
    )]
    Busy {
        /// The path or pattern as given.
        path: PathBuf,
    },
    /// The file exists, and [`crate::Existing::Refuse`] is set.
    #[error("{path} exists; use Existing::Continue or Existing::Replace", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Recovery of a dead writer's data failed.
    #[error("recovery before opening: {0}")]
    Recover(#[from] RecoverError),
    /// A system call failed.
    #[error("{what} {path}: {source}", path = .path.display())]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The file, pattern or directory concerned.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// An append was refused: the record is not part of the data, and the position has not moved, except past an end mark.
#[derive(Debug, thiserror::Error, Clone)]
#[non_exhaustive]
pub enum AppendError {
    /// The record is longer than the mode can take.
    #[error("record of {len} bytes, at most {max} fit; split it, or use a larger ring, window or roll size")]
    TooLong {
        /// Length of the record, bytes.
        len: usize,
        /// Longest record that fits, bytes.
        max: usize,
    },
    /// No room is left, and the policy is [`crate::BackPressure::Fail`].
    #[error("no room: {waiting_bytes} bytes wait for the device; try again, shed load, or open with a larger ring")]
    Full {
        /// Bytes that are accepted and not yet in the file.
        waiting_bytes: u64,
    },
    /// The file system or the quota is full.
    #[error("out of space: {bytes_left} bytes left on the file system; free some, and appends continue")]
    OutOfSpace {
        /// Bytes available to this user on the file system.
        bytes_left: u64,
    },
    /// A helper thread or the device failed, or the appender is closed. Everything that `sync_to` reported as durable
    /// is durable; recovery finds the rest. With many producers it may also find the record of the call that returned
    /// this error.
    #[error("{what}: {message}; close, find the cause, and reopen to recover")]
    Failed {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        message: String,
    },
    /// `commit` of more bytes than reserved, or without a reservation.
    #[error("commit of {len} bytes, but {reserved} are reserved; call reserve before commit, with no append between")]
    NotReserved {
        /// Bytes to commit.
        len: usize,
        /// Bytes reserved; 0 without a reservation.
        reserved: usize,
    },
    /// This process was forked after the appender was opened. It has neither the helper thread nor the memory.
    #[error(
        "this process was forked after the appender was opened; append in the one that opened it, or open another file"
    )]
    Forked,
}

/// A position was not made durable.
#[derive(Debug, thiserror::Error, Clone)]
#[non_exhaustive]
pub enum SyncError {
    /// No record ends at or after this position.
    #[error("position {asked} is beyond the end of the appended data, {end}")]
    Beyond {
        /// The requested position.
        asked: u64,
        /// End of the appended data.
        end: u64,
    },
    /// The device or the file system failed, or the appender is closed. After a failed fsync the kernel may have
    /// dropped the pages, so this appender never again reports a further position as durable. On a full disk `sync_to`
    /// also fails with this error, but succeeds again once there is space.
    #[error("{what}: {message}; nothing after position {durable} is durable")]
    Failed {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        message: String,
        /// Last position known to be durable.
        durable: u64,
    },
    /// As for [`AppendError::Forked`].
    #[error("this process was forked after the appender was opened; sync in the one that opened it")]
    Forked,
}

/// Recovery failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// A living appender has the file open.
    #[error("a living appender has {path} open; there is nothing to recover", path = .path.display())]
    Busy {
        /// The path or pattern as given.
        path: PathBuf,
    },
    /// A file was not written by this library, or by a later version, contradicts the others, or belongs to another
    /// user.
    #[error("{path}: {problem}", path = .path.display())]
    Foreign {
        /// The file that cannot be used.
        path: PathBuf,
        /// Why it cannot be used.
        problem: String,
    },
    /// A system call failed.
    #[error("{what} {path}: {source}", path = .path.display())]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl RecoverError {
    pub(crate) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> RecoverError {
        let path = path.to_owned();
        move |source| match crate::handles::unfit(&source) {
            Some(unfit) => RecoverError::Foreign { path, problem: format!("not used: {unfit}") },
            None if crate::files::in_use(&source) => RecoverError::Busy { path },
            None => RecoverError::Io { what, path, source },
        }
    }
}

impl OpenError {
    pub(crate) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> OpenError {
        let path = path.to_owned();
        move |source| match crate::handles::unfit(&source) {
            Some(unfit) => RecoverError::Foreign { path, problem: format!("not used: {unfit}") }.into(),
            None if crate::files::in_use(&source) => OpenError::Busy { path },
            None => OpenError::Io { what, path, source },
        }
    }
}

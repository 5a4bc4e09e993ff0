//! What can go wrong, to what, and what to do next.

use std::io;
use std::path::PathBuf;

/// Opening did not succeed. Nothing was left behind but the file itself and, where the device failed, what recovery needs.
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
    /// The mode asked for cannot be had on this machine; opening without a mode (`auto`) would find another.
    #[error("mode {mode} cannot be had for {path}: {reason}; ask for auto to fall back", path = .path.display())]
    Refused {
        /// The path or pattern as given.
        path: PathBuf,
        /// Name of the mode.
        mode: &'static str,
        /// Why not.
        reason: String,
    },
    /// Another process or another appender has the file open, under this name or another.
    #[error("another appender has {path} open, under this name or another; close that one first", path = .path.display())]
    Busy {
        /// The path or pattern as given.
        path: PathBuf,
    },
    /// The file exists and the options say it must not.
    #[error("{path} exists; allow Existing::Continue or Existing::Replace", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// What a dead writer left could not be brought to its end.
    #[error("recovery before opening: {0}")]
    Recover(#[from] RecoverError),
    /// A system call failed.
    #[error("{what} {path}: {source}", path = .path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// An append was not accepted: no byte of it is in the file, and the position has not moved.
#[derive(Debug, thiserror::Error, Clone)]
#[non_exhaustive]
pub enum AppendError {
    /// Longer than the mode can take at once.
    #[error("record of {len} bytes; at most {max} fit (a larger ring, window or roll size takes more)")]
    TooLong {
        /// Bytes asked for.
        len: usize,
        /// Most bytes of one record.
        max: usize,
    },
    /// Back-pressure: nothing is free and the policy is `Fail`.
    #[error("no room: {waiting_bytes} bytes wait for the device; try again, shed load, or open with a larger ring")]
    Full {
        /// Bytes accepted and not yet in the file.
        waiting_bytes: u64,
    },
    /// The disk cannot hold more.
    #[error("out of space: {bytes_left} bytes left on the file system; free some; appends then continue")]
    OutOfSpace {
        /// Bytes available to this user on the file system.
        bytes_left: u64,
    },
    /// The helper or the device failed. What `sync_to` has called durable is; the rest is for recovery, which with many producers may
    /// also find the record of the call that returned this.
    #[error("{what}: {message}; close, find the cause, and reopen to recover")]
    Failed {
        /// What was being done.
        what: &'static str,
        /// The system's answer.
        message: String,
    },
    /// `commit` of more than was reserved, or without a reservation.
    #[error("commit of {len} bytes, and {reserved} are reserved; reserve first, and commit before the next append")]
    NotReserved {
        /// Bytes committed.
        len: usize,
        /// Bytes reserved; 0 also without a reservation.
        reserved: usize,
    },
    /// This is a child that was forked after the appender was opened: it has neither the helper nor the memory.
    #[error(
        "this process was forked after the appender was opened; append in the one that opened it, or open another file"
    )]
    Forked,
}

/// A position was not made durable.
#[derive(Debug, thiserror::Error, Clone)]
#[non_exhaustive]
pub enum SyncError {
    /// Nothing that far was appended.
    #[error("position {asked} is beyond the end of the appended data, {end}")]
    Beyond {
        /// Position asked for.
        asked: u64,
        /// End of data.
        end: u64,
    },
    /// The device or the file system failed. After a failed fsync the kernel may have dropped the pages, so this appender
    /// never again calls anything durable.
    #[error("{what}: {message}; nothing after position {durable} is durable")]
    Failed {
        /// What was being done.
        what: &'static str,
        /// The system's answer.
        message: String,
        /// Last position known to be durable.
        durable: u64,
    },
    /// As [`AppendError::Forked`].
    #[error("this process was forked after the appender was opened; sync in the one that opened it")]
    Forked,
}

/// The true end of a file could not be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// A living process holds the file.
    #[error("{path} is held by a living appender; nothing to recover", path = .path.display())]
    Busy {
        /// The path or pattern.
        path: PathBuf,
    },
    /// What is found there was not written by this library, or by a later version of it, or belongs to somebody else.
    #[error("{path}: {problem}", path = .path.display())]
    Foreign {
        /// The file that is not understood.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A system call failed.
    #[error("{what} {path}: {source}", path = .path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's answer.
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

//! Options, events and errors of the follower.

use std::path::PathBuf;

/// Options of the follower.
#[derive(Debug, Clone, Copy)]
pub struct FollowOptions {
    /// Most bytes kept warm and locked. The caller applies the machine's limits ([`crate::budget`]).
    pub memory_bytes_max: u64,
    /// Extend the file beyond its data, so that pages can be prepared there. Readers then see zeros after the data
    /// until the writer has closed the file and it is cut. Never done for a file opened with O_APPEND.
    pub extend: bool,
}

/// What can be prepared, given how the program writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Help {
    /// Blocks and pages.
    Full,
    /// Only blocks, for this reason.
    BlocksOnly(String),
    /// Nothing, for this reason.
    None(String),
}

/// A change that the user should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The follower has found a file and follows it.
    Following {
        /// The file.
        path: PathBuf,
        /// The program's descriptor.
        fd: u32,
        /// The writer's position, bytes.
        position: u64,
        /// What can be prepared.
        help: Help,
    },
    /// The file was cut below the prepared range; preparation starts again.
    Truncated,
    /// The position has not moved for 3 s, while the process wrote this many bytes to any files. If some of them went
    /// to this file, the program uses `pwrite` or a mapping, which do not move the position.
    Still(u64),
    /// The program has closed the file. If the follower had extended it, it has its exact length again.
    Closed,
    /// The program has closed the file, and it stays longer than its data.
    ClosedUncut(Uncut),
    /// The program has ended.
    Ended,
}

/// Why an extended file was not cut to its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uncut {
    /// The file is open for writing in another process.
    Open(PathBuf),
    /// It contains bytes beyond the writer's position, so that position is not the end of the data.
    Elsewhere(PathBuf),
}

/// Following cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The process cannot be inspected.
    #[error("process {pid}: {source}; it must exist, and belong to you unless you are root")]
    Process {
        /// Its process ID.
        pid: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// The path cannot name a data file.
    #[error("{0}")]
    Path(String),
    /// A system call failed.
    #[error("{what} {path}: {source}", path = .path.display())]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Counters of a follower. Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowStats {
    /// The writer's position.
    pub position: u64,
    /// End of the prepared blocks.
    pub allocated: u64,
    /// End of the prepared pages.
    pub warm: u64,
    /// How often the writer had passed the prepared pages.
    pub late: u64,
    /// The writer's rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// A file is followed, and something can be prepared for it.
    pub helping: bool,
}

//! What following another process's file says and takes.

use std::path::PathBuf;

/// How to follow.
#[derive(Debug, Clone, Copy)]
pub struct FollowOptions {
    /// Most bytes kept warm and locked; the machine's limits are for the caller to apply ([`crate::budget`]).
    pub memory_bytes_max: u64,
    /// Make the file longer than its data, so that pages can be made ready where it grows. Readers then see zeros behind the
    /// data until the writer has closed it and the file is cut. Never done to a file opened with O_APPEND.
    pub extend: bool,
}

/// How far the program's way of writing lets itself be helped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Help {
    /// Blocks and pages.
    Full,
    /// Blocks alone, because of this.
    BlocksOnly(String),
    /// Not at all, because of this.
    None(String),
}

/// Something worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A file is followed, from this position, with this help.
    Following {
        /// The file.
        path: PathBuf,
        /// The program's descriptor.
        fd: u32,
        /// Its position, bytes.
        position: u64,
        /// What can be done.
        help: Help,
    },
    /// The file was cut below what was prepared; preparation starts again.
    Truncated,
    /// The position has stood still while the process wrote that many bytes (to whatever files): if some of them go to this file,
    /// it uses `pwrite` or a mapping, which have no position to follow.
    Still(u64),
    /// The program has closed the file. If it had been made longer it now has its exact length.
    Closed,
    /// Likewise, but the file stays longer than its data.
    ClosedUncut(Uncut),
    /// The program has ended.
    Ended,
}

/// Why a file that was made longer was not cut to its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uncut {
    /// Somebody still has it open for writing.
    Open(PathBuf),
    /// It holds bytes beyond its writer's position, so that the position is not the end of its data.
    Elsewhere(PathBuf),
}

/// Following cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The process cannot be looked into.
    #[error("process {pid}: {source}; it must exist, and belong to you unless you are root")]
    Process {
        /// Which.
        pid: u32,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The path makes no sense.
    #[error("{0}")]
    Path(String),
    /// A system call failed.
    #[error("{what} {path}: {source}", path = .path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// Counters of a follower, bytes unless said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowStats {
    /// The writer's position.
    pub position: u64,
    /// End of the blocks prepared.
    pub allocated: u64,
    /// End of the pages prepared.
    pub warm: u64,
    /// Times the writer was found beyond what was prepared.
    pub late: u64,
    /// The writer's rate, bytes a second.
    pub rate_bytes_per_s: u64,
    /// There is a file, and something can be prepared for it.
    pub helping: bool,
}

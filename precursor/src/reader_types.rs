//! What a [`crate::Reader`] returns: records, errors, and what it knows of the writer.

use std::io;
use std::path::{Path, PathBuf};

use crate::stats::Position;

/// Reading failed. The reader stays where it was, except behind a gap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The path cannot name a data file.
    #[error("{path}: {problem}", path = .path.display())]
    Path {
        /// The path or pattern as given.
        path: PathBuf,
        /// What to change.
        problem: String,
    },
    /// The file is not framed by this library.
    #[error("{path} has neither the header nor the frames of this library: an unframed or foreign file; read it as bytes", path = .path.display())]
    NotFramed {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a later version of this library.
    #[error("{path} has format {version}, which this version cannot read; use a later version", path = .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version in its header.
        version: u32,
    },
    /// A header or a published record is not whole.
    #[error("{path} is damaged at byte {offset}; restore it, or seek behind the damage", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damage, bytes.
        offset: u64,
    },
    /// The file is shorter than what was read from it.
    #[error("{path} was cut to {len} bytes, and {offset} had been read; restore it, or open it again", path = .path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Offset of the next record, bytes.
        offset: u64,
        /// Length now, bytes.
        len: u64,
    },
    /// The file was removed or replaced, and everything that it held has been read.
    #[error("{path} was removed or replaced; open it again to read the new file", path = .path.display())]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// Records are missing, because files were archived or removed. The next call continues behind the gap.
    #[error("records from number {from} on are missing, because files were archived or removed; the next record is in {path}", path = .path.display())]
    Missing {
        /// Number of the first missing record.
        from: u64,
        /// The next file that exists.
        path: PathBuf,
    },
    /// A record is longer than [`crate::Reader::record_bytes_max`] allows.
    #[error("{path} has a record of {len} bytes at byte {offset}; allow at least as many", path = .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Offset of the record, bytes.
        offset: u64,
        /// Length of the record, bytes.
        len: usize,
    },
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

impl ReadError {
    pub(crate) fn io<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> ReadError + use<'a> {
        move |source| ReadError::Io { what, path: path.to_owned(), source }
    }
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<'a> {
    /// Number of the record: consecutive over all files. In files of format 1 it is counted from the first file that
    /// existed when the reader began.
    pub number: u64,
    /// Time of the append, ns since 1970; `None` if the writer recorded none.
    pub time_ns: Option<u64>,
    /// End of the record, as `append` returned it.
    pub position: Position,
    /// The payload.
    pub bytes: &'a [u8],
}

/// Where a reader continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seek {
    /// At the first record that exists.
    First,
    /// Behind the last published record.
    End,
    /// At the first record that ends after this position: with a [`Record::position`], behind that record.
    After(u64),
    /// At the record with this number.
    Number(u64),
    /// At the first record whose time is this or later, ns since 1970. If times run backwards (the clock was set back,
    /// or several producers append), at one such record behind an earlier one.
    TimeNs(u64),
}

/// What a seek has read. With an index it does not grow with the length of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SeekCost {
    /// Frames, whole or only their heads.
    pub frames: u64,
    /// Points of the file's index; 0 without an index.
    pub points: u64,
    /// Points that were torn, or whose frame is not in the file. The seek then begins further ahead.
    pub refused: u64,
}

/// What is known of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Writer {
    /// It runs.
    Alive,
    /// It has died, and its data are not recovered yet. The reader reads what recovery will keep.
    Dead,
    /// None is known: the last one has closed, or its shared memory cannot be read by this user.
    Unknown,
}

/// How a reader waits for records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waiting {
    /// It sleeps. The writer wakes it, which costs that append about a microsecond.
    #[default]
    Asleep,
    /// It spins, and costs the writer nothing.
    Spinning,
}

//! Why a recording could not be made or opened. What is merely missing from one is a `Gap` instead.

use std::io;
use std::path::PathBuf;

use super::super::header::FORMAT_VERSION;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("there is no recording at {}: {error}; give the directory that a run named as its output", path.display())]
    NotFound { path: PathBuf, error: io::Error },
    #[error("{} is not a recording: it has neither header.json nor any table", path.display())]
    NotARecording { path: PathBuf },
    #[error(
        "{} was written in format {found}, and this flatwater reads up to {FORMAT_VERSION}; open it with flatwater {written_by} or newer",
        path.display()
    )]
    TooNew { path: PathBuf, found: u32, written_by: String },
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot write the recording's {}: {error}; {}", path.display(), advice(.error))]
    Io { path: PathBuf, error: io::Error },
    #[error("{} already holds a recording; give another output directory or remove this one", path.display())]
    Exists { path: PathBuf },
    #[error("cannot encode the table {table}: {error}; this is a fault of flatwater, please report it")]
    Encode { table: &'static str, error: String },
}

impl WriteError {
    /// Attaches the path to an I/O error.
    pub(super) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> WriteError {
        let path = path.into();
        move |error| WriteError::Io { path, error }
    }
}

/// What to do next about an I/O error.
pub(super) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space, or write it elsewhere with -o",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "choose a writable place with -o",
        io::ErrorKind::NotFound => "create the parent directory, or choose another place with -o",
        _ => "check the file system's state (dmesg), or choose another place with -o",
    }
}

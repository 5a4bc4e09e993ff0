//! Errors of writing and opening recordings. Data that is only missing becomes a `Gap` instead.

use std::io;
use std::path::{Path, PathBuf};

use crate::header::FORMAT_VERSION;

/// Why a recording, or a column that is decoded later, could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum ReadError {
    #[error("no recording at {}: {error}; give the output directory of a run", path.display())]
    NotFound { path: PathBuf, error: io::Error },
    #[error("{} is not a recording: it has neither header.json nor any table", path.display())]
    NotARecording { path: PathBuf },
    #[error(
        "{} cannot be read: {error}; only its owner can read a recording, unless it was made with --group NAME", path.display()
    )]
    Private { path: PathBuf, error: io::Error },
    #[error("cannot read {} of this recording: {error}; a recording consists of regular files in one directory", path.display())]
    Unusable { path: PathBuf, error: io::Error },
    #[error(
        "{} was written in format {found} by flatwater {written_by}, and this is flatwater {}, which reads formats up to \
         {FORMAT_VERSION}; open it with flatwater {written_by} or newer",
        path.display(), env!("CARGO_PKG_VERSION")
    )]
    TooNew { path: PathBuf, found: u32, written_by: String },
    #[error("{} cannot be read: {error}", path.display())]
    Table { path: PathBuf, error: TableError },
}

/// Why the file of one table could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum TableError {
    /// Message of the operating system.
    #[error("{0}")]
    Io(String),
    /// Message of the Parquet or Arrow crate, or the result of a check before they parse the file.
    #[error("{0}")]
    Damaged(String),
    #[error("the contents are contradictory")]
    Contradiction,
    #[error(
        "it decodes to more than the limit of {} MiB; raise the limit with --max-decoded",
        limit_bytes >> 20
    )]
    TooLarge { limit_bytes: u64 },
}

impl TableError {
    pub(super) fn damaged(what: impl Into<String>) -> TableError {
        TableError::Damaged(what.into())
    }
}

impl From<io::Error> for TableError {
    fn from(error: io::Error) -> TableError {
        TableError::Io(error.to_string())
    }
}

impl From<parquet::errors::ParquetError> for TableError {
    fn from(error: parquet::errors::ParquetError) -> TableError {
        TableError::Damaged(error.to_string())
    }
}

impl From<arrow_schema::ArrowError> for TableError {
    fn from(error: arrow_schema::ArrowError) -> TableError {
        TableError::Damaged(error.to_string())
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum WriteError {
    #[error("cannot write the recording's {}: {error}; {}", path.display(), advice(.error))]
    Io { path: PathBuf, error: io::Error },
    #[error("{} already holds a recording; choose another output directory or remove this one", path.display())]
    Exists { path: PathBuf },
    #[error("cannot encode the table {table}: {error}; this is a bug in flatwater, please report it")]
    Encode { table: &'static str, error: TableError },
}

impl WriteError {
    /// Adds the path to an I/O error.
    pub(super) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> WriteError {
        let path = path.into();
        move |error| WriteError::Io { path: named(&path), error }
    }
}

/// The path for messages. A path below a directory handle (`/proc/self/fd/4/header.json`) is shown with the directory's
/// name, which a reader knows.
pub(super) fn named(path: &Path) -> PathBuf {
    let Ok(below) = path.strip_prefix("/proc/self/fd") else { return path.to_owned() };
    let mut parts = below.components();
    let handle = parts.next().map(|handle| Path::new("/proc/self/fd").join(handle));
    match handle.and_then(|handle| std::fs::read_link(handle).ok()) {
        Some(directory) if parts.as_path().as_os_str().is_empty() => directory,
        Some(directory) => directory.join(parts.as_path()),
        None => path.to_owned(),
    }
}

/// Advice for an I/O error.
pub(super) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space, or choose another directory with -o",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "choose a writable directory with -o",
        io::ErrorKind::FileTooLarge => "import fewer files at a time, or record fewer processes",
        io::ErrorKind::NotFound => "create the parent directory, or choose another directory with -o",
        _ => "check the file system's state (dmesg), or choose another directory with -o",
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};

    use super::{WriteError, named};

    /// "cannot write the recording's /proc/self/fd/4/header.json" named a file that no reader can find.
    #[test]
    fn messages_name_the_directory_behind_a_handle() {
        let place = tempfile::tempdir().expect("a directory");
        let place = place.path().canonicalize().expect("its path");
        let handle = std::fs::File::open(&place).expect("opened");
        let through = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
        assert_eq!(named(&through.join("header.json")), place.join("header.json"));
        assert_eq!(named(&through), place);
        assert_eq!(named(Path::new("/proc/self/fd/999999/x")), Path::new("/proc/self/fd/999999/x"));
        let error = WriteError::at(through.join("calls.frames"))(std::io::ErrorKind::StorageFull.into()).to_string();
        assert!(error.contains(&place.join("calls.frames").display().to_string()), "{error}");
    }
}

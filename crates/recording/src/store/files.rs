//! The files of a recording's directory: opens them without trusting them, and replaces them atomically.
//!
//! A recording may come from anyone, and a known name may be a FIFO that blocks, a link to /dev/zero, or a sparse file
//! of a terabyte. `open` refuses all of these immediately. New files are readable only by their owner, because they
//! contain paths of private folders and arguments of programs.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::TableFile;

pub(super) const HEADER: &str = "header.json";
pub(super) const OUTCOMES: &str = "outcomes.json";
pub(super) const MANIFEST: &str = "sealed.json";
/// Space that is released at the end of a recording, so that the last rows fit on a full disk.
pub(super) const RESERVE: &str = "reserve";
/// Written last when a recording is sealed. From then on the Parquet files are the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Manifest {
    pub(super) format_version: u32,
    /// By name of the table.
    pub(super) tables: BTreeMap<String, SealedFile>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SealedFile {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// CRC-32 (IEEE) of the Parquet file.
    pub(super) crc32: u32,
}

pub(super) fn frames_path(dir: &Path, table: TableFile) -> PathBuf {
    dir.join(format!("{}.frames", table.name()))
}

pub(super) fn parquet_path(dir: &Path, table: TableFile) -> PathBuf {
    dir.join(format!("{}.parquet", table.name()))
}

/// Names of the tables in the directory, whatever the files contain; at most 1000 names, more than any recording has.
pub(super) fn tables_in(dir: &Path) -> impl Iterator<Item = String> + use<> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|file| PathBuf::from(file.file_name()));
    let tables = files.filter(|file| file.extension().is_some_and(|end| end == "frames" || end == "parquet"));
    tables.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned())).take(1_000)
}

/// Opens a regular file of at most `bytes_max` bytes; returns it with its size. Never blocks, and does not follow a
/// symbolic link.
pub(super) fn open(path: &Path, bytes_max: u64) -> io::Result<(File, u64)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => refused("a symbolic link"),
        // A socket, or a device without a driver.
        Some(libc::ENXIO) => refused("a socket or device"),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    match kind {
        _ if kind.is_file() => {}
        _ if kind.is_dir() => return Err(refused("a directory")),
        _ if kind.is_fifo() => return Err(refused("a FIFO")),
        _ if kind.is_char_device() || kind.is_block_device() => return Err(refused("a device")),
        _ => return Err(refused("a special file")),
    }
    let bytes = metadata.len();
    if bytes > bytes_max {
        let why = format!("it has {bytes} bytes, over the limit of {bytes_max}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok((file, bytes))
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a regular file"))
}

/// CRC-32 of the remaining bytes of a file.
pub(super) fn checksum(mut file: impl Read) -> io::Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut chunk = vec![0; 128 << 10];
    loop {
        let got = file.read(&mut chunk)?;
        let Some(read) = chunk.get(..got).filter(|read| !read.is_empty()) else { return Ok(hasher.finalize()) };
        hasher.update(read);
    }
}

/// Creates the directory, accessible only to its owner, unless it exists.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Creates a file that only its owner can access; fails if the name exists, even as a symbolic link.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

/// Like `create_new`, but first removes the file that a killed run left under this name.
pub(super) fn create_temporary(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Writes a temporary file in the same directory and renames it: readers see either the old or the new content.
pub(super) fn replace(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let write = || {
        let mut file = create_temporary(&temporary)?;
        file.write_all(bytes)?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Makes renames in the directory durable across a power cut.
pub(super) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

//! The files of a recording's directory and how small ones are replaced.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::table::TableFile;

pub(super) const HEADER: &str = "header.json";
pub(super) const OUTCOMES: &str = "outcomes.json";
pub(super) const MANIFEST: &str = "sealed.json";
/// Space that is given up at the end, so that the last words fit on a full disk.
pub(super) const RESERVE: &str = "reserve";
/// No JSON file of a recording is larger.
const JSON_MAX: u64 = 64 << 20;

/// Written last when a recording is sealed; from then on the Parquet files are the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Manifest {
    pub(super) format_version: u32,
    /// By table name.
    pub(super) tables: BTreeMap<String, SealedTable>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SealedTable {
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

/// Names of tables that lie in the directory and that no reader here knows.
pub(super) fn unknown_tables(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|file| PathBuf::from(file.file_name()));
    let tables = files.filter(|file| file.extension().is_some_and(|end| end == "frames" || end == "parquet"));
    let names = tables.filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned()));
    let mut unknown: Vec<String> = names.filter(|name| TableFile::all().all(|known| known.name() != name)).collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown
}

/// Writes a temporary file beside it and renames it over: readers see the old text or the new, never half.
pub(super) fn replace(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let write = || {
        let mut file = File::create(&temporary)?;
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

pub(super) fn replace_json(path: &Path, value: &impl Serialize, durable: bool) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
    text.push(b'\n');
    replace(path, &text, durable)
}

/// Makes renames in the directory survive a power cut.
pub(super) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

pub(super) fn read_json_text(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(JSON_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// CRC-32 of a whole file.
pub(super) fn checksum(path: &Path) -> io::Result<u32> {
    let mut file = File::open(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut chunk = vec![0; 128 << 10];
    loop {
        let got = file.read(&mut chunk)?;
        let Some(read) = chunk.get(..got).filter(|read| !read.is_empty()) else { return Ok(hasher.finalize()) };
        hasher.update(read);
    }
}

//! Measures operations on names, which a mail store does all day and which the times of reads and writes do not show.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::timed;
use flatwater_recording::Speed;

/// The number of messages in a mailbox of the built-in scenarios.
const NAMES: u64 = 64;

/// Measures one round in a new directory and removes the directory.
pub fn round(directory: &Path) -> io::Result<Speed> {
    DirBuilder::new().mode(0o700).create(directory)?;
    let found = inside(directory);
    let removed = std::fs::remove_dir_all(directory);
    found.and_then(|speed| removed.map(|()| speed))
}

fn inside(directory: &Path) -> io::Result<Speed> {
    let paths: Vec<PathBuf> = (0..NAMES).map(|name| directory.join(format!("message-{name:08}"))).collect();
    let renamed: Vec<PathBuf> = (0..NAMES).map(|name| directory.join(format!("message-{name:08}:2,S"))).collect();
    let (create, close) = opened(&paths, OpenOptions::new().write(true).create_new(true).mode(0o600))?;
    let (open, _) = opened(&paths, OpenOptions::new().read(true))?;
    let stat = timed(|| paths.iter().try_for_each(|path| std::fs::metadata(path).map(|_| ())))?;
    let list = timed(|| std::fs::read_dir(directory)?.try_for_each(|entry| entry.map(|_| ())))?;
    let rename = timed(|| paths.iter().zip(&renamed).try_for_each(|(from, to)| std::fs::rename(from, to)))?;
    let unlink = timed(|| renamed.iter().try_for_each(std::fs::remove_file))?;
    Ok(Speed {
        create_ns: Some(create / NAMES),
        close_ns: Some(close / NAMES),
        open_ns: Some(open / NAMES),
        stat_ns: Some(stat / NAMES),
        list_ns: Some(list),
        rename_ns: Some(rename / NAMES),
        unlink_ns: Some(unlink / NAMES),
        ..Speed::default()
    })
}

/// Opens all files, then closes all; returns the time of each.
fn opened(paths: &[PathBuf], how: &OpenOptions) -> io::Result<(u64, u64)> {
    let mut files: Vec<File> = Vec::with_capacity(paths.len());
    let open = timed(|| paths.iter().try_for_each(|path| how.open(path).map(|file| files.push(file))))?;
    let close = timed(|| {
        files.clear();
        Ok(())
    })?;
    Ok((open, close))
}

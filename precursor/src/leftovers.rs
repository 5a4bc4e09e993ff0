//! Finds, explains and removes the shared memory of dead writers.
//!
//! A killed process leaves its live block, and a ring with the bytes that had not reached the file, until the file is
//! reopened or recovered. If that never happens, or the file's directory is gone, the memory stays in use until the
//! machine restarts.

//! Only files of this process's user are trusted and removed. Files of other users are listed with the reason.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::RecoverError;
use crate::files::{NameError, Names, STEM};
use crate::handles::{Dir, unfit};
use crate::live::LiveMap;
use crate::recover::{Recovered, recover_names};
use crate::sidecar::Sidecar;

/// State of an appender's shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// Its appender is alive.
    Living,
    /// Its writer is dead. Recovering this path writes the remaining bytes to the file and removes the memory.
    Dead(PathBuf),
    /// The file was removed, closed or recovered, so nothing can be recovered from it. The path of that file, if known.
    Stale(Option<PathBuf>),
    /// It belongs to another user, or is not as this library creates it, for this reason. It is neither trusted nor
    /// removed.
    Foreign(String),
}

/// The shared-memory files of one appender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Their state.
    pub owner: Owner,
    /// Their paths.
    pub files: Vec<PathBuf>,
    /// Memory that they use, bytes.
    pub bytes: u64,
}

/// Lists the shared memory in a directory (`/dev/shm` unless [`crate::Options::shm_dir`] says otherwise).
pub fn leftovers(shm_dir: impl AsRef<Path>) -> io::Result<Vec<Leftover>> {
    leftovers_in(&Dir::named(shm_dir.as_ref())?)
}

pub(crate) fn leftovers_in(dir: &Dir) -> io::Result<Vec<Leftover>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in dir.names()? {
        if let Some(stem) = stem_of(&name) {
            found.entry(stem.to_owned()).or_default().push(name);
        }
    }
    found.into_iter().map(|(stem, names)| describe(dir, &stem, &names)).collect()
}

fn describe(dir: &Dir, stem: &str, names: &[String]) -> io::Result<Leftover> {
    let mut bytes = 0;
    let mut foreign = None;
    for name in names {
        // A file that has been removed in the meantime counts as 0 bytes.
        bytes += dir.stat(name)?.map_or(0, |entry| entry.allocated);
        foreign = foreign.or(dir.private(name).err().map(|e| format!("{}: {e}", dir.join(name).display())));
    }
    let owner = match foreign {
        Some(reason) => Owner::Foreign(reason),
        None => owner(dir, stem)?,
    };
    Ok(Leftover { owner, files: names.iter().map(|name| dir.join(name)).collect(), bytes })
}

/// The stem of a name: `precursor-`, 16 hexadecimal digits and, after version 0.1, `-` and 16 more; then `.live` or
/// `.ring` and a number.
fn stem_of(name: &str) -> Option<&str> {
    let (stem, kind) = name.split_once('.')?;
    let digits = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let (hash, id) = stem.strip_prefix(STEM).map(|rest| rest.split_once('-').unwrap_or((rest, "0000000000000000")))?;
    let number = |ring: &str| !ring.is_empty() && ring.len() <= 2 && ring.bytes().all(|b| b.is_ascii_digit());
    let known = kind == "live" || kind.strip_prefix("ring").is_some_and(number);
    (digits(hash) && digits(id) && known).then_some(stem)
}

fn owner(dir: &Dir, stem: &str) -> io::Result<Owner> {
    let live = match LiveMap::find(dir, stem) {
        Ok(Some(live)) => live,
        Ok(None) => return Ok(Owner::Stale(None)),
        Err(e) if unfit(&e).is_some() => return Ok(Owner::Foreign(e.to_string())),
        Err(e) => return Err(e),
    };
    if live.is_held() {
        return Ok(Owner::Living);
    }
    let Some(path) = live.data_path() else { return Ok(Owner::Stale(None)) };
    let dead = Names::exactly(&path).ok().is_some_and(|names| {
        Sidecar::peek(&names).is_some_and(|entry| names.shm_stem(entry.shm_id) == stem && live.belongs_to(&entry))
    });
    Ok(if dead { Owner::Dead(path) } else { Owner::Stale(Some(path)) })
}

impl Leftover {
    /// Recovers the file of a dead writer, or removes memory from which nothing can be recovered. Does nothing for a
    /// living appender or another user's files.
    pub fn clear(&self) -> Result<Option<Recovered>, RecoverError> {
        match &self.owner {
            Owner::Living | Owner::Foreign(_) => Ok(None),
            Owner::Dead(path) => {
                let names = Names::exactly(path);
                let foreign =
                    |error: NameError| RecoverError::Foreign { path: path.clone(), problem: error.to_string() };
                let names = names.map_err(foreign)?;
                recover_names(&names).map(Some)
            }
            Owner::Stale(_) => {
                for file in &self.files {
                    remove(file).map_err(RecoverError::io("remove", file))?;
                }
                Ok(None)
            }
        }
    }
}

/// Removes a file after checking it again.
fn remove(file: &Path) -> io::Result<()> {
    let (Some(dir), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let dir = Dir::exactly(dir)?;
    if dir.private(name)?.is_some() { dir.remove(name) } else { Ok(()) }
}

/// Removes the shared memory of earlier runs on this file, which can no longer be recovered. The caller holds the
/// file's lock.
pub(crate) fn forget_orphans(dir: &Dir, names: &Names) -> io::Result<()> {
    let ours = format!("{}-", names.shm_prefix());
    for name in dir.names()?.iter().filter(|name| name.starts_with(&ours)) {
        // Files that another user put there are not removed.
        let Some(stem) = stem_of(name).filter(|_| matches!(dir.private(name), Ok(Some(_)))) else { continue };
        // Possible only if two paths have the same hash.
        let living = LiveMap::find(dir, stem)?.is_some_and(|live| live.is_held());
        if !living {
            dir.remove(name)?;
        }
    }
    Ok(())
}

/// For a process that opens an appender: the memory that dead writers hold, and how to free it.
pub(crate) fn sentence(dir: &Dir) -> Option<String> {
    let left = |owner: &Owner| matches!(owner, Owner::Dead(_) | Owner::Stale(_));
    let dead: Vec<Leftover> = leftovers_in(dir).ok()?.into_iter().filter(|l| left(&l.owner)).collect();
    let kib = dead.iter().map(|l| l.bytes).sum::<u64>() >> 10;
    let (first, others) = dead.split_first()?;
    let of = match &first.owner {
        Owner::Dead(path) | Owner::Stale(Some(path)) => format!("the one of {}", path.display()),
        Owner::Living | Owner::Stale(None) | Owner::Foreign(_) => "one of an unknown file".to_owned(),
    };
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    Some(format!(
        "dead writers ({of}{more}) left {kib} KiB in {}: recover their files, or run flatwater precursor --leftovers --clear",
        dir.path().display()
    ))
}

//! Shared memory that dead writers left: found, explained, and cleared away.
//!
//! A killed process leaves its live block, and its ring with what had not reached the file, until somebody reopens or recovers that
//! file. Where nobody does, and where the file's folder is gone, it would hold memory until the machine restarts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::RecoverError;
use crate::files::{Names, remove_if_present};
use crate::live::LiveMap;
use crate::recover::{Recovered, recover};
use crate::sidecar::Sidecar;

/// Whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// An appender that lives.
    Living,
    /// A dead writer's; recovering that path brings its bytes to the file and removes it.
    Dead(PathBuf),
    /// Nobody's: the file it belongs to was removed, closed or recovered since. The path is the one it was made for, if it says.
    Nobody(Option<PathBuf>),
}

/// The shared memory of one appender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Whose it is.
    pub owner: Owner,
    /// Its files.
    pub files: Vec<PathBuf>,
    /// Their memory, bytes.
    pub bytes: u64,
}

/// What lies in the folder for shared memory (`/dev/shm` unless [`crate::Options::shm_dir`] says otherwise).
pub fn leftovers(shm_dir: impl AsRef<Path>) -> io::Result<Vec<Leftover>> {
    use std::os::unix::fs::MetadataExt;
    let mut found: BTreeMap<String, (Vec<PathBuf>, u64)> = BTreeMap::new();
    for entry in std::fs::read_dir(shm_dir.as_ref())?.flatten() {
        let Some(stem) = entry.file_name().to_str().and_then(stem_of) else { continue };
        // A file that is gone by now is nobody's concern.
        let Ok(metadata) = entry.metadata() else { continue };
        let of = found.entry(stem).or_default();
        of.0.push(entry.path());
        of.1 += metadata.blocks() * 512;
    }
    let made = found.into_iter().map(|(stem, (mut files, bytes))| {
        files.sort();
        Ok(Leftover { owner: owner(shm_dir.as_ref(), &stem)?, files, bytes })
    });
    made.collect()
}

/// `precursor-` and sixteen hexadecimal digits, of `.live` or `.ring` and a number.
fn stem_of(name: &str) -> Option<String> {
    let (stem, kind) = name.split_once('.')?;
    let hash = stem.strip_prefix("precursor-")?;
    let ours = hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    (ours && (kind == "live" || kind.starts_with("ring"))).then(|| stem.to_owned())
}

fn owner(dir: &Path, stem: &str) -> io::Result<Owner> {
    let Some(live) = LiveMap::at(dir.join(format!("{stem}.live")))? else { return Ok(Owner::Nobody(None)) };
    if live.is_held() {
        return Ok(Owner::Living);
    }
    let Some(path) = live.data_path() else { return Ok(Owner::Nobody(None)) };
    let token = Names::of(&path).ok().filter(|names| names.shm_stem() == stem).and_then(|names| Sidecar::token(&names));
    Ok(if token == Some(live.token()) { Owner::Dead(path) } else { Owner::Nobody(Some(path)) })
}

impl Leftover {
    /// Clears it away: recovers the file of a dead writer, removes what is nobody's, leaves a living appender's alone.
    pub fn clear(&self) -> Result<Option<Recovered>, RecoverError> {
        match &self.owner {
            Owner::Living => Ok(None),
            Owner::Dead(path) => recover(path).map(Some),
            Owner::Nobody(_) => {
                for file in &self.files {
                    remove_if_present(file).map_err(RecoverError::io("remove", file))?;
                }
                Ok(None)
            }
        }
    }
}

/// For whoever opens: what dead writers of other files hold, and what to do about it.
pub(crate) fn sentence(shm_dir: &Path) -> Option<String> {
    let dead: Vec<Leftover> = leftovers(shm_dir).ok()?.into_iter().filter(|l| l.owner != Owner::Living).collect();
    let kib = dead.iter().map(|l| l.bytes).sum::<u64>() >> 10;
    let (first, others) = dead.split_first()?;
    let of = match &first.owner {
        Owner::Dead(path) | Owner::Nobody(Some(path)) => format!("the one of {}", path.display()),
        Owner::Living | Owner::Nobody(None) => "one of an unknown file".to_owned(),
    };
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    Some(format!(
        "dead writers ({of}{more}) left {kib} KiB in {}: recover their files, or run flatwater precursor --leftovers --clear",
        shm_dir.display()
    ))
}

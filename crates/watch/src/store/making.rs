//! Directories of recordings that are being made and removed, below names that are not those of recordings.

use std::io;
use std::path::PathBuf;

use flatwater_safefs::{Dir, Refusal};
use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;

/// Prefixes of directories that are being made and removed.
pub(super) const MAKING: &str = ".making-";
pub(super) const GONE: &str = ".gone-";

/// A recording's directory under a temporary name. `publish` gives it its own name. Dropped before `keep`, it is
/// removed.
#[derive(Debug)]
pub struct Making {
    store: Dir,
    dir: Dir,
    /// The name without the number that keeps two recordings of one second apart.
    stem: String,
    /// The present name in the store; `None` once it is kept.
    name: Option<String>,
}

impl Making {
    /// Makes the directory. `stem` is the name that it gets, without a number.
    pub(super) fn begin(store: &Dir, stem: String) -> Result<Making, Refusal> {
        let mut count = 1;
        loop {
            let name = format!("{MAKING}{}", numbered(&stem, count));
            match store.make_dir(&name) {
                Ok(dir) => return Ok(Making { store: store.clone(), dir, stem, name: Some(name) }),
                Err(Refusal::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => count += 1,
                Err(refusal) => return Err(refusal),
            }
        }
    }

    #[must_use]
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Gives the directory, which has a header by now, the name of a recording. Never replaces another recording.
    pub fn publish(&mut self) -> Result<(), Refusal> {
        let Some(from) = self.name.clone() else { return Ok(()) };
        let mut count = 1;
        loop {
            let to = numbered(&self.stem, count);
            match rename_new(&self.store, &from, &to) {
                Ok(()) => {
                    self.name = Some(to);
                    return self.store.sync();
                }
                Err(Errno::EXIST) => count += 1,
                Err(error) => return Err(failed("rename", self.store.path().join(&from), error)),
            }
        }
    }

    /// Keeps the directory, and returns its name and handle.
    #[must_use]
    pub fn keep(mut self) -> (String, Dir) {
        (self.name.take().unwrap_or_default(), self.dir.clone())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // If this fails, the next start removes a temporary name, and `prune` a recording's.
            let _ = remove(&self.store, &name);
        }
    }
}

/// Removes a directory by way of another name, so that no recording is ever half removed.
pub(super) fn remove(store: &Dir, name: &str) -> Result<(), Refusal> {
    if name.starts_with('.') {
        return store.remove_tree(name);
    }
    let gone = format!("{GONE}{name}");
    if store.exists(&gone) {
        store.remove_tree(&gone)?;
    }
    store.rename(name, &gone)?;
    store.remove_tree(&gone)
}

/// Renames within the store, unless the new name exists.
fn rename_new(store: &Dir, from: &str, to: &str) -> Result<(), Errno> {
    match renameat_with(store, from, store, to, RenameFlags::NOREPLACE) {
        // Some network file systems cannot do this; the store's directory belongs to the daemon alone.
        Err(Errno::INVAL | Errno::NOSYS) if store.exists(to) => Err(Errno::EXIST),
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(store, from, store, to),
        renamed => renamed,
    }
}

fn failed(action: &'static str, path: PathBuf, error: Errno) -> Refusal {
    Refusal::Io { action, path, source: error.into() }
}

pub(super) fn numbered(stem: &str, count: u32) -> String {
    if count == 1 { stem.to_owned() } else { format!("{stem}-{count}") }
}

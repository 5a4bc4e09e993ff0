//! A file that appears whole or not at all.

use std::fs::File;
use std::io::Write;

use crate::{Dir, Refusal};

/// A file under a temporary name. `publish` gives it its own; dropped before that, it goes.
#[derive(Debug)]
pub struct Pending {
    dir: Dir,
    name: String,
    temporary: String,
    file: File,
    published: bool,
}

impl Pending {
    pub(crate) fn new(dir: &Dir, name: &str) -> Result<Pending, Refusal> {
        let temporary = format!("{name}.tmp");
        // What a killed run left. Whoever put it there, a name that is removed is not followed.
        match dir.remove(&temporary) {
            Err(refusal) if !refusal.is_missing() => return Err(refusal),
            _ => {}
        }
        let file = dir.create(&temporary)?;
        Ok(Pending { dir: dir.clone(), name: name.to_owned(), temporary, file, published: false })
    }

    /// To write into.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name, instead of whatever had it; `durable` syncs its content before that.
    pub fn publish(mut self, durable: bool) -> Result<(), Refusal> {
        if durable {
            self.file.sync_all().map_err(Refusal::io("sync", self.dir.path().join(&self.temporary)))?;
        }
        self.dir.rename(&self.temporary, &self.name)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.published {
            let _ = self.dir.remove(&self.temporary);
        }
    }
}

impl Dir {
    /// Begins a file that gets its name when it is whole.
    pub fn pending(&self, name: &str) -> Result<Pending, Refusal> {
        Pending::new(self, name)
    }

    /// Replaces a file as a whole: readers see the old content or the new, never half.
    pub fn replace(&self, name: &str, bytes: &[u8], durable: bool) -> Result<(), Refusal> {
        let pending = self.pending(name)?;
        pending.file().write_all(bytes).map_err(Refusal::io("write", self.path().join(name)))?;
        pending.publish(durable)
    }
}

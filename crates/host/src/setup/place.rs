//! The place of something that a run created in a directory that may belong to any user: the directory's identity, and
//! a plain name with flatwater's prefix. A journal contains nothing else about the file system, so it cannot name other
//! files.

use std::path::PathBuf;

use flatwater_safefs::{Dir, Refusal};
use serde::{Deserialize, Serialize};

use super::undo::Age;

/// Prefix of the names of everything that a run creates.
const PREFIX: &str = "flatwater-";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    directory: PathBuf,
    device: u64,
    inode: u64,
    name: String,
}

/// Why something is left unchanged.
#[derive(Debug, thiserror::Error)]
pub enum NotOurs {
    #[error("'{0}' is not a name that flatwater creates")]
    Name(String),
    #[error("{} is not the directory that the run used", .0.display())]
    Moved(PathBuf),
    #[error("{} belongs to uid {owner}", path.display())]
    Owner { path: PathBuf, owner: u32 },
    #[error(transparent)]
    Refused(#[from] Refusal),
}

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

impl Place {
    pub fn new(directory: &Dir, name: &str) -> Result<Place, Refusal> {
        let (device, inode) = directory.identity()?;
        Ok(Place { directory: directory.path().to_owned(), device, inode, name: name.to_owned() })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path, for messages and for comparison with the kernel's lists of mounts and loop devices.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The directory, if it is still the same; `None` if it no longer exists.
    pub fn open(&self, age: Age) -> Result<Option<Dir>, NotOurs> {
        if !is_ours(&self.name) {
            return Err(NotOurs::Name(self.name.clone()));
        }
        let directory = match Dir::open(&self.directory) {
            Ok(directory) => directory,
            Err(refusal) if refusal.is_missing() => return Ok(None),
            Err(refusal) => return Err(refusal.into()),
        };
        let (device, inode) = directory.identity()?;
        // After a reboot a disk may have another device number.
        let same = inode == self.inode && (device == self.device || age == Age::OlderBoot);
        if same { Ok(Some(directory)) } else { Err(NotOurs::Moved(self.directory.clone())) }
    }

    /// Like `open`, but `None` unless the name exists, and an error if another user owns it.
    pub fn open_with_ours(&self, age: Age) -> Result<Option<Dir>, NotOurs> {
        let Some(directory) = self.open(age)? else { return Ok(None) };
        match directory.stat(&self.name) {
            Ok(stat) if stat.st_uid == rustix::process::geteuid().as_raw() => Ok(Some(directory)),
            Ok(stat) => Err(NotOurs::Owner { path: self.path(), owner: stat.st_uid }),
            Err(refusal) if refusal.is_missing() => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flatwater_safefs::Dir;

    use super::{NotOurs, Place};
    use crate::setup::undo::Age;

    #[test]
    fn only_own_names_in_the_same_directory_are_touched() {
        let root = tempfile::tempdir().expect("a directory");
        let (work, other) = (root.path().join("work"), root.path().join("other"));
        for path in [&work, &other] {
            std::fs::create_dir(path).expect("made");
        }
        let dir = Dir::open(&work).expect("opened");
        let place = Place::new(&dir, "flatwater-x-1-0").expect("a place");
        assert!(place.open_with_ours(Age::SameBoot).expect("nothing there").is_none());
        std::fs::create_dir(place.path()).expect("made");
        assert!(place.open_with_ours(Age::SameBoot).expect("ours").is_some());
        for name in ["passwd", "../flatwater-x", "flatwater-a/b", ""] {
            let foreign = Place::new(&dir, name).expect("a place");
            assert!(matches!(foreign.open(Age::SameBoot), Err(NotOurs::Name(_))), "{name}");
        }
        std::fs::rename(&work, root.path().join("away")).expect("renamed");
        std::fs::rename(&other, &work).expect("renamed");
        std::fs::create_dir(place.path()).expect("made");
        assert!(matches!(place.open_with_ours(Age::OlderBoot), Err(NotOurs::Moved(_))), "another directory now");
    }
}

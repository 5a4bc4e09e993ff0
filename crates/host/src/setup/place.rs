//! Where a run made something in a directory that may belong to anyone: the directory's identity, and a plain name of
//! ours in it. A journal holds nothing else of the file system, so that no journal can name another file.

use std::path::PathBuf;

use flatwater_safefs::{Dir, Refusal};
use serde::{Deserialize, Serialize};

use super::undo::Age;

/// Everything that a run makes is called so.
const PREFIX: &str = "flatwater-";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    directory: PathBuf,
    device: u64,
    inode: u64,
    name: String,
}

/// Why something is left where it is.
#[derive(Debug, thiserror::Error)]
pub enum NotOurs {
    #[error("'{0}' is no name that flatwater gives")]
    Name(String),
    #[error("{} is another directory than the one that the run worked in", .0.display())]
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

    /// For messages, and to compare with what the kernel says of mounts and loop devices.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The directory, if it is still the one; `None` if it is gone.
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
        // After another boot a disk may have another number.
        let same = inode == self.inode && (device == self.device || age == Age::OlderBoot);
        if same { Ok(Some(directory)) } else { Err(NotOurs::Moved(self.directory.clone())) }
    }

    /// As `open`, where something of that name is there and belongs to us.
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
    fn only_what_we_made_in_the_very_directory_is_touched() {
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

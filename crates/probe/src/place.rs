//! The file system and device of a directory, and how another directory relates to it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use flatwater_host::proc::mounts::{self, Mount};
use flatwater_host::setup::knobs::Device;
use flatwater_safefs::Dir;
use serde::Serialize;

use super::plan::Relation;

/// At most this many layers of devices are followed (a loop device on a file on a mapped device ...).
const LAYERS_MAX: usize = 8;
/// File systems whose blocks are on another machine or in another process.
const REMOTE: &[&str] =
    &["nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "lustre", "glusterfs", "afs", "virtiofs"];
/// File systems in memory. They have no device and no journal, and no limit of dirty pages.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs"];
/// File systems without a journal, whatever their options.
const JOURNALLESS: &[&str] = &["ext2", "vfat", "msdos", "exfat"];
/// Searched for a second file system on the same device.
const LOCAL: &[&str] = &["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"];

/// A directory to measure in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    pub path: PathBuf,
    /// `ext4`, `tmpfs` ...
    pub file_system: String,
    /// The disk, such as `sda`; absent if the file system has none.
    pub device: Option<String>,
    pub free_bytes: u64,
    /// Whether the file system has a journal, a log, or trees that it commits.
    #[serde(skip)]
    pub has_journal: bool,
    /// Identifies the file system, by any mount or subvolume.
    #[serde(skip)]
    key: String,
    /// The disk and the disks below it.
    #[serde(skip)]
    disks: BTreeSet<String>,
    /// Device and inode of the directory.
    #[serde(skip)]
    identity: (u64, u64),
}

/// Why a directory cannot be measured in.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("{}: {source}; give an existing directory", path.display())]
    Missing { path: PathBuf, source: std::io::Error },
    #[error("{} is not a directory; give a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error(
        "{} is on {kind}: its disks and its neighbours are on another machine; run the probe on the server",
        path.display()
    )]
    Remote { path: PathBuf, kind: String },
    #[error("{} is on a read-only file system; give a directory that can be written", path.display())]
    ReadOnly { path: PathBuf },
    #[error("cannot create files in {}: {why}; give another directory", path.display())]
    Unusable { path: PathBuf, why: String },
    #[error(
        "{} was replaced by another directory while the probe began; probe a directory that only you can replace",
        path.display()
    )]
    Replaced { path: PathBuf },
    #[error("{} is on {kind}, which stores no files; give a directory of a file system with files", path.display())]
    NoFiles { path: PathBuf, kind: String },
}

impl Place {
    /// Looks at a directory; changes nothing.
    pub fn of(path: &Path) -> Result<Place, PlaceError> {
        let missing = |source| PlaceError::Missing { path: path.to_owned(), source };
        let path = std::fs::canonicalize(path).map_err(missing)?;
        if !path.is_dir() {
            return Err(PlaceError::NotADirectory { path });
        }
        let missing = |source| PlaceError::Missing { path: path.clone(), source };
        let mounts = mounts::read().map_err(missing)?;
        // Both of the same directory, even if the path is replaced.
        let dir = Dir::open(&path).map_err(|refusal| missing(refusal.into()))?;
        let space = rustix::fs::fstatvfs(&dir).map_err(|error| missing(error.into()))?;
        let identity = identity_of(&dir.proc_path()).map_err(missing)?;
        let kind = mounts::above(&mounts, &path).map(|mount| mount.kind.clone()).unwrap_or_default();
        refuse(&path, &kind, space.f_blocks)?;
        let below = backing(&mounts, &path, LAYERS_MAX);
        let free_bytes = match space.f_blocks {
            // A tmpfs without a size limit.
            0 => u64::MAX,
            _ => space.f_bavail.saturating_mul(space.f_frsize),
        };
        Ok(Place {
            file_system: kind,
            device: below.device.as_ref().map(|device| device.name.clone()),
            free_bytes,
            disks: below.device.map(|device| disks(&device.name, LAYERS_MAX)).unwrap_or_default(),
            has_journal: below.has_journal,
            key: below.key,
            path,
            identity,
        })
    }

    /// Refuses a directory of the probe that is not below this one: a user who can rename a directory of the path can
    /// replace it by a link to another file system, after its space was checked.
    pub fn require_above(&self, work: &Dir) -> Result<(), PlaceError> {
        match identity_of(&work.proc_path().join("..")) {
            Ok(above) if above == self.identity => Ok(()),
            _ => Err(PlaceError::Replaced { path: self.path.clone() }),
        }
    }

    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        IN_MEMORY.contains(&self.file_system.as_str())
    }

    /// How `other`, where a neighbour runs, relates to this directory.
    #[must_use]
    pub fn relation(&self, other: &Place) -> Relation {
        if self.key == other.key {
            Relation::SameFileSystem
        } else if self.disks.intersection(&other.disks).next().is_some() {
            Relation::SameDevice
        } else {
            Relation::OtherDevice
        }
    }

    /// Another writable file system that is mounted from the same disk.
    #[must_use]
    pub fn find_beside(&self) -> Option<Place> {
        use rustix::fs::Access;
        let device = self.device.as_ref()?;
        let mounts = mounts::read().ok()?;
        let points = mounts.iter().filter(|mount| LOCAL.contains(&mount.kind.as_str())).map(|mount| &mount.point);
        points
            .filter(|point| !point.starts_with("/boot"))
            .filter(|point| rustix::fs::access(*point, Access::WRITE_OK).is_ok())
            .filter_map(|point| Place::of(point).ok())
            .find(|place| place.key != self.key && place.device.as_ref() == Some(device))
    }
}

fn identity_of(directory: &Path) -> std::io::Result<(u64, u64)> {
    let stat = rustix::fs::stat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Refuses file systems whose isolation cannot be measured here.
fn refuse(path: &Path, kind: &str, blocks: u64) -> Result<(), PlaceError> {
    let (path, kind) = (path.to_owned(), kind.to_owned());
    if REMOTE.contains(&kind.as_str()) {
        return Err(PlaceError::Remote { path, kind });
    }
    // A tmpfs without a size limit has no blocks either.
    if blocks == 0 && !IN_MEMORY.contains(&kind.as_str()) {
        return Err(PlaceError::NoFiles { path, kind });
    }
    Ok(())
}

struct Backing {
    key: String,
    has_journal: bool,
    device: Option<Device>,
}

/// The file system that stores the files of this directory: of an overlay, that of the upper directory.
fn backing(mounts: &[Mount], path: &Path, layers: usize) -> Backing {
    let mount = mounts::above(mounts, path);
    if let Some(upper) = mount.filter(|mount| mount.kind == "overlay").and_then(|mount| mount.option("upperdir"))
        && layers > 0
    {
        let upper = PathBuf::from(upper);
        // In a container the upper directory is often not visible.
        if upper.is_dir() {
            return backing(mounts, &upper, layers - 1);
        }
    }
    // The subvolumes of a btrfs have device numbers of their own.
    let source = mount.filter(|mount| mount.kind == "btrfs").map(|mount| PathBuf::from(&mount.source));
    if let Some(node) = source.filter(|node| node.is_absolute()) {
        let device = rustix::fs::stat(&node).ok().and_then(|stat| Device::numbered(stat.st_rdev, false));
        return Backing { key: format!("btrfs on {}", node.display()), has_journal: true, device };
    }
    let number = rustix::fs::stat(path).map(|stat| stat.st_dev).unwrap_or_default();
    let kind = mount.map_or("", |mount| mount.kind.as_str());
    Backing { key: number.to_string(), has_journal: has_journal(kind, number), device: Device::of(path, false) }
}

/// jbd2 lists the journals of ext3 and ext4, which may be without one, as `sda1-8`.
fn has_journal(kind: &str, number: u64) -> bool {
    if !matches!(kind, "ext3" | "ext4") {
        return !IN_MEMORY.contains(&kind) && !JOURNALLESS.contains(&kind);
    }
    let node = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let Some(name) = std::fs::canonicalize(node).ok().and_then(|node| Some(node.file_name()?.to_owned())) else {
        return true;
    };
    let Ok(journals) = std::fs::read_dir("/proc/fs/jbd2") else { return true };
    let own = format!("{}-", name.to_string_lossy());
    journals.flatten().any(|journal| journal.file_name().to_string_lossy().starts_with(&own))
}

/// The disk with this name and all disks below it.
fn disks(name: &str, layers: usize) -> BTreeSet<String> {
    let folder = Path::new("/sys/block").join(name);
    let mut found = BTreeSet::from([name.to_owned()]);
    if layers == 0 {
        return found;
    }
    for entry in std::fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten() {
        let partition = std::fs::canonicalize(entry.path()).unwrap_or_default();
        let disk = if partition.join("partition").exists() { partition.parent() } else { Some(partition.as_path()) };
        if let Some(name) = disk.and_then(Path::file_name) {
            found.extend(disks(&name.to_string_lossy(), layers - 1));
        }
    }
    if let Ok(file) = std::fs::read_to_string(folder.join("loop/backing_file"))
        && let Some(directory) = Path::new(file.trim_end()).parent()
        && let Ok(mounts) = mounts::read()
        && let Some(device) = backing(&mounts, directory, layers - 1).device
    {
        found.extend(disks(&device.name, layers - 1));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Place, PlaceError, refuse};
    use crate::plan::Relation;

    #[test]
    fn a_directory_shares_its_file_system_with_its_neighbours() {
        let one = tempfile::tempdir().expect("a directory");
        let other = tempfile::tempdir().expect("a directory");
        let (one, other) = (Place::of(one.path()).expect("usable"), Place::of(other.path()).expect("usable"));
        assert_eq!(one.relation(&other), Relation::SameFileSystem);
        if let Ok(memory) = Place::of(Path::new("/dev/shm"))
            && memory.is_in_memory()
            && !one.is_in_memory()
        {
            assert_eq!(one.relation(&memory), Relation::OtherDevice);
        }
    }

    #[test]
    fn a_place_without_files_is_refused_with_the_reason() {
        let of = |path: &str| Place::of(Path::new(path)).expect_err(path);
        assert!(matches!(of("/proc/self/stat"), PlaceError::NotADirectory { .. }));
        assert!(matches!(of("/nowhere/at/all"), PlaceError::Missing { .. }));
        assert!(matches!(of("/proc"), PlaceError::NoFiles { .. }));
        for kind in ["nfs4", "cifs", "9p"] {
            let refused = refuse(Path::new("/mnt"), kind, 1_000).expect_err(kind).to_string();
            assert!(refused.contains(kind) && refused.contains("on the server"), "{refused}");
        }
        assert!(refuse(Path::new("/tmp"), "tmpfs", 0).is_ok() && refuse(Path::new("/"), "ext4", 1).is_ok());
    }
}

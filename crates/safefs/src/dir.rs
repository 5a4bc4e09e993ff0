//! An open directory handle. All accesses to its content go through the handle.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, fchmod, fchown, fstat, mkdirat, openat, statat};

use crate::Refusal;
use crate::regular::kind_of;
use crate::resolve::beneath;

pub(crate) const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// With the set-group-ID bit, so that new files get the group when they are created: a process that has dropped the
/// right to change groups can still share them.
const SHARED_DIR: u32 = 0o2750;
const SHARED_FILE: u32 = 0o640;
pub(crate) const OTHERS_WRITE: u32 = 0o022;
pub(crate) const STICKY: u32 = 0o1000;
/// Set-group-ID and writable by the group: a directory in which several users work.
const TEAM: u32 = 0o2020;

/// An open directory. Cloning is cheap: all clones share the same descriptor.
#[derive(Clone, Debug)]
pub struct Dir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    /// The group that may read files created here.
    share: Option<u32>,
    /// Whether root's files are accepted like our own.
    root_too: bool,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(crate) fn check_owner(stat: &Stat, root_too: bool, path: &Path) -> Result<(), Refusal> {
    let (owner, own, mode) = (stat.st_uid, own_uid(), stat.st_mode & 0o7777);
    if owner != own && !(root_too && owner == 0) {
        return Err(Refusal::Owner { path: path.to_owned(), owner, own });
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(Refusal::Writable { path: path.to_owned(), mode });
    }
    Ok(())
}

const OPEN_DIR: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Dir {
    fn held(fd: OwnedFd, path: &Path) -> Dir {
        Dir { fd: Arc::new(fd), path: path.to_owned(), share: None, root_too: false }
    }

    fn from_open(fd: Result<OwnedFd, rustix::io::Errno>, path: &Path) -> Result<OwnedFd, Refusal> {
        use rustix::io::Errno;
        fd.map_err(|error| match error {
            Errno::LOOP => Refusal::Link { path: path.to_owned() },
            // O_NOFOLLOW | O_DIRECTORY on a symbolic link gives ENOTDIR.
            Errno::NOTDIR if path.is_symlink() => Refusal::Link { path: path.to_owned() },
            error => Refusal::io("open", path)(error),
        })
    }

    /// Opens a directory that the user named, with any owner: files can be created in it, but its content is not
    /// trusted.
    pub fn open(path: &Path) -> Result<Dir, Refusal> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(Refusal::io("open", path))?;
        Ok(Dir::held(fd, path))
    }

    /// Accepts root's files and directories in it like our own, for readers of recordings that root has shared with a
    /// group.
    #[must_use]
    pub fn believing_root(self) -> Dir {
        Dir { root_too: true, ..self }
    }

    /// Opens `name` in `at`: it must be our own directory, not writable by others, and not a symbolic link.
    pub(crate) fn own(at: impl AsFd, name: &Path, path: &Path) -> Result<Dir, Refusal> {
        Dir::judged(at, name, path, false)
    }

    fn judged(at: impl AsFd, name: &Path, path: &Path, root_too: bool) -> Result<Dir, Refusal> {
        let fd = Dir::from_open(openat(at, name, OFlags::RDONLY | OPEN_DIR, Mode::empty()), path)?;
        check_owner(&fstat(&fd).map_err(Refusal::io("look at", path))?, root_too, path)?;
        Ok(Dir { root_too, ..Dir::held(fd, path) })
    }

    /// Opens our own directory, which must not be writable by others or be a symbolic link. Links in the path above
    /// are the user's choice.
    pub fn open_own(path: &Path) -> Result<Dir, Refusal> {
        Dir::own(rustix::fs::CWD, path, path)
    }

    /// Opens an output directory: a new one, or an empty one of our own. Files created in it are readable only by us,
    /// and by `group` if one is given.
    ///
    /// An existing directory is checked before it is changed. It is refused unchanged if others share it (sticky, or a
    /// team's), if it is not empty, or if `group` is not its group already. Only an empty directory of our own that
    /// others can write is changed: write permission of others is removed.
    pub fn claim(path: &Path, group: Option<u32>) -> Result<Dir, Refusal> {
        let (above, name) = split(path)?;
        let is_new = match mkdirat(&above, name.as_os_str(), Mode::from_raw_mode(PRIVATE_DIR)) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(Refusal::io("make", path)(error)),
        };
        let fd = openat(&above, name.as_os_str(), OFlags::RDONLY | OPEN_DIR, Mode::empty());
        let fd = Dir::from_open(fd, path)?;
        let stat = fstat(&fd).map_err(Refusal::io("look at", path))?;
        let (owner, own, mode) = (stat.st_uid, own_uid(), stat.st_mode & 0o7777);
        if owner != own {
            return Err(Refusal::Owner { path: path.to_owned(), owner, own });
        }
        let dir = Dir { share: group, ..Dir::held(fd, path) };
        let is_ours = |group: u32| stat.st_gid == group && mode & OTHERS_WRITE == 0;
        if is_new {
            // Another process of ours could have filled it since then: a new directory must be empty.
            dir.require_empty()?;
            if group.is_some() {
                dir.share_out(dir.as_fd(), SHARED_DIR, PRIVATE_DIR, path)?;
            }
            return Ok(dir);
        }
        dir.require_empty()?;
        if mode & STICKY != 0 || (mode & TEAM == TEAM) {
            return Err(Refusal::Shared { path: path.to_owned(), mode });
        }
        if let Some(group) = group.filter(|group| !is_ours(*group)) {
            return Err(Refusal::Group { path: path.to_owned(), group, has: stat.st_gid });
        }
        if group.is_none() && mode & OTHERS_WRITE != 0 {
            fchmod(&dir, Mode::from_raw_mode(mode & !OTHERS_WRITE)).map_err(Refusal::io("set the mode of", path))?;
            // Check again, because others could write into it until now.
            dir.require_empty()?;
        }
        Ok(dir)
    }

    /// Refuses a directory that is not empty.
    pub fn require_empty(&self) -> Result<(), Refusal> {
        if self.names()?.is_empty() { Ok(()) } else { Err(Refusal::NotEmpty { path: self.path.clone() }) }
    }

    /// Sets group and mode of a new file or directory.
    fn share_out(&self, made: BorrowedFd<'_>, shared: u32, private: u32, path: &Path) -> Result<(), Refusal> {
        let failed = |action| Refusal::io::<rustix::io::Errno>(action, path);
        match self.share {
            Some(group) => {
                // Skip if the directory's set-group-ID bit has set the group already: then no right to change groups
                // is needed.
                if fstat(made).map_err(failed("look at"))?.st_gid != group {
                    fchown(made, None, Some(Gid::from_raw(group))).map_err(failed("give to the group"))?;
                }
                fchmod(made, Mode::from_raw_mode(shared)).map_err(failed("set the mode of"))
            }
            None => fchmod(made, Mode::from_raw_mode(private)).map_err(failed("set the mode of")),
        }
    }

    /// Gives all files in it to the group that it is shared with, if any. For files that were created by path.
    pub fn share_files(&self) -> Result<(), Refusal> {
        if self.share.is_none() {
            return Ok(());
        }
        for name in self.names()? {
            let name = name.to_string_lossy();
            let file = self.existing(&name, OFlags::RDONLY)?;
            self.share_out(file.as_fd(), SHARED_FILE, PRIVATE_FILE, &self.path.join(&*name))?;
        }
        Ok(())
    }

    /// The path that the user gave, for messages only; never open it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path to this directory that is valid within this process, even if the directory is moved or its old path is
    /// replaced. For interfaces that only accept paths.
    #[must_use]
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Device and inode, to check whether a path still leads to this directory.
    pub fn identity(&self) -> Result<(u64, u64), Refusal> {
        let stat = fstat(&self.fd).map_err(Refusal::io("look at", &self.path))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    fn plain<'a>(&self, name: &'a str) -> Result<&'a Path, Refusal> {
        let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
        if plain {
            return Ok(Path::new(name));
        }
        Err(Refusal::Name { path: self.path.clone(), name: name.to_owned() })
    }

    /// Creates a file, accessible only to us (and readable by the group). Fails if the name exists.
    pub fn create(&self, name: &str) -> Result<File, Refusal> {
        let path = self.path.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = beneath(self.as_fd(), self.plain(name)?, flags, Mode::from_raw_mode(PRIVATE_FILE));
        let file = file.map_err(Refusal::io("make", &path))?;
        if self.share.is_some() {
            self.share_out(file.as_fd(), SHARED_FILE, PRIVATE_FILE, &path)?;
        }
        Ok(File::from(file))
    }

    /// Creates a directory, accessible only to us (and the group). Fails if the name exists.
    pub fn make_dir(&self, name: &str) -> Result<Dir, Refusal> {
        let path = self.path.join(name);
        let plain = self.plain(name)?;
        mkdirat(&self.fd, plain, Mode::from_raw_mode(PRIVATE_DIR)).map_err(Refusal::io("make", &path))?;
        let dir = Dir { share: self.share, ..Dir::own(self, plain, &path)? };
        if self.share.is_some() {
            self.share_out(dir.as_fd(), SHARED_DIR, PRIVATE_DIR, &path)?;
        }
        Ok(dir)
    }

    /// Opens our own directory in this one.
    pub fn dir(&self, name: &str) -> Result<Dir, Refusal> {
        let dir = Dir::judged(self, self.plain(name)?, &self.path.join(name), self.root_too)?;
        Ok(Dir { share: self.share, ..dir })
    }

    fn existing(&self, name: &str, flags: OFlags) -> Result<File, Refusal> {
        let path = self.path.join(name);
        let flags = flags | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
        let file = beneath(self.as_fd(), self.plain(name)?, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::LOOP => Refusal::Link { path: path.clone() },
            error => Refusal::io("open", &path)(error),
        })?;
        let stat = fstat(&file).map_err(Refusal::io("look at", &path))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            return Err(Refusal::Kind { path, found: kind_of(kind), wanted: "a regular file" });
        }
        check_owner(&stat, self.root_too, &path)?;
        // A second name means that another user linked the file while protected_hardlinks was off, or that the owner
        // did.
        #[allow(clippy::useless_conversion, reason = "st_nlink is not u64 on every architecture")]
        let links = u64::from(stat.st_nlink);
        if links > 1 {
            return Err(Refusal::Names { path, links });
        }
        Ok(File::from(file))
    }

    /// Opens our own file for reading. It must be a regular file with one name, not writable by others.
    pub fn read(&self, name: &str) -> Result<File, Refusal> {
        self.existing(name, OFlags::RDONLY)
    }

    /// Like `read`, for reading and appending.
    pub fn append(&self, name: &str) -> Result<File, Refusal> {
        self.existing(name, OFlags::RDWR | OFlags::APPEND)
    }

    /// Like `read`, for reading and writing.
    pub fn write(&self, name: &str) -> Result<File, Refusal> {
        self.existing(name, OFlags::RDWR)
    }

    /// Metadata of this name. Symbolic links are not followed.
    pub fn stat(&self, name: &str) -> Result<Stat, Refusal> {
        let stat = statat(&self.fd, self.plain(name)?, AtFlags::SYMLINK_NOFOLLOW);
        stat.map_err(Refusal::io("look at", self.path.join(name)))
    }

    #[must_use]
    pub fn exists(&self, name: &str) -> bool {
        self.stat(name).is_ok()
    }

    /// Renames a file within this directory, replacing the target.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), Refusal> {
        let renamed = rustix::fs::renameat(&self.fd, self.plain(from)?, &self.fd, self.plain(to)?);
        renamed.map_err(Refusal::io("rename", self.path.join(from)))
    }

    /// Removes a file. Symbolic links are not followed.
    pub fn remove(&self, name: &str) -> Result<(), Refusal> {
        let removed = rustix::fs::unlinkat(&self.fd, self.plain(name)?, AtFlags::empty());
        removed.map_err(Refusal::io("remove", self.path.join(name)))
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, name: &str) -> Result<(), Refusal> {
        let removed = rustix::fs::unlinkat(&self.fd, self.plain(name)?, AtFlags::REMOVEDIR);
        removed.map_err(Refusal::io("remove", self.path.join(name)))
    }

    /// Removes a directory and its content. Symbolic links in it are removed, not followed.
    pub fn remove_tree(&self, name: &str) -> Result<(), Refusal> {
        let place = self.proc_path().join(self.plain(name)?);
        std::fs::remove_dir_all(place).map_err(Refusal::io("remove", self.path.join(name)))
    }

    /// The names in this directory, sorted.
    pub fn names(&self) -> Result<Vec<OsString>, Refusal> {
        let failed = || Refusal::io::<rustix::io::Errno>("list", &self.path);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes creations and renames in this directory durable across a power cut.
    pub fn sync(&self) -> Result<(), Refusal> {
        rustix::fs::fsync(&self.fd).map_err(Refusal::io("sync", &self.path))
    }
}

/// Opens the parent directory; returns it with the last component. `.` and `..` have no parent component and are kept
/// as they are.
fn split(path: &Path) -> Result<(OwnedFd, PathBuf), Refusal> {
    let name = path.file_name().filter(|name| !name.as_bytes().is_empty());
    let above = path.parent().filter(|above| name.is_some() && !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(above, flags, Mode::empty()).map_err(Refusal::io("open", above))?;
    Ok((fd, name.map_or_else(|| path.to_owned(), PathBuf::from)))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, metadata, set_permissions, write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::path::Path;

    use super::Dir;
    use crate::Refusal;

    const GROUP: u32 = 65_534;

    /// Mode and group.
    fn looks(path: &Path) -> (u32, u32) {
        let metadata = metadata(path).expect("there");
        (metadata.permissions().mode() & 0o7777, metadata.gid())
    }

    fn made(above: &Path, name: &str, mode: u32, group: u32) -> std::path::PathBuf {
        let path = above.join(name);
        create_dir(&path).expect("made");
        chown(&path, None, Some(group)).expect("given to the group, as root");
        set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
        path
    }

    /// S3: /tmp keeps its mode 1777, and /etc its group.
    #[test]
    fn s3_a_refused_directory_keeps_its_mode_and_group() {
        let place = tempfile::tempdir().expect("a directory");
        for (name, mode, group, is_full) in [
            ("like-tmp", 0o1777, 0, true),
            ("empty-sticky", 0o1777, 0, false),
            ("sticky-of-ours", 0o1755, 0, false),
            ("like-etc", 0o755, 0, true),
            ("writable-and-full", 0o777, 0, true),
            ("of-a-team", 0o2775, 7, false),
        ] {
            let path = made(place.path(), name, mode, group);
            if is_full {
                write(path.join("passwd"), "kept").expect("written");
            }
            for share in [None, Some(GROUP)] {
                let refused = Dir::claim(&path, share).expect_err(name);
                match is_full {
                    true => assert!(matches!(refused, Refusal::NotEmpty { .. }), "{refused}"),
                    false => assert!(matches!(refused, Refusal::Shared { .. }), "{refused}"),
                }
                assert_eq!(looks(&path), (mode, group), "{name}");
            }
        }
        let empty = made(place.path(), "empty", 0o755, 0);
        let refused = Dir::claim(&empty, Some(GROUP)).expect_err("another group");
        assert!(matches!(refused, Refusal::Group { .. }), "{refused}");
        assert_eq!(looks(&empty), (0o755, 0));
        Dir::claim(&empty, None).expect("one of ours");
        assert_eq!(looks(&empty), (0o755, 0), "nothing had to change");
    }

    #[test]
    fn claim_removes_write_permission_of_others_and_shares_new_directories() {
        let place = tempfile::tempdir().expect("a directory");
        let open = made(place.path(), "open", 0o777, 0);
        Dir::claim(&open, None).expect("claimed");
        assert_eq!(looks(&open), (0o755, 0));
        let shared = place.path().join("shared");
        Dir::claim(&shared, Some(GROUP)).expect("made");
        assert_eq!(looks(&shared), (0o2750, GROUP));
        Dir::claim(&shared, Some(GROUP)).expect("shared with this group already");
        assert_eq!(looks(&shared), (0o2750, GROUP));
        let new = place.path().join("new");
        Dir::claim(&new, None).expect("made");
        assert_eq!(looks(&new), (0o700, 0));
    }
}

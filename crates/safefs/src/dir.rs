//! A directory that is held open: everything in it is named below the handle.

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
/// With the set-group-ID bit, so that what is made in it belongs to the group from the start: who has dropped the right to
/// give files away can still share them.
const SHARED_DIR: u32 = 0o2750;
const SHARED_FILE: u32 = 0o640;
pub(crate) const OTHERS_WRITE: u32 = 0o022;
pub(crate) const STICKY: u32 = 0o1000;
/// Set-group-ID, and the group may write: a directory in which several people work.
const TEAM: u32 = 0o2020;

/// A directory held open. Cheap to clone: all clones are the same handle.
#[derive(Clone, Debug)]
pub struct Dir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    /// The group that may read what is made here.
    share: Option<u32>,
    /// What is root's is as good as what is ours.
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
            // O_NOFOLLOW | O_DIRECTORY on a link is ENOTDIR.
            Errno::NOTDIR if path.is_symlink() => Refusal::Link { path: path.to_owned() },
            error => Refusal::io("open", path)(error),
        })
    }

    /// A directory that the user named, whoever it belongs to: a place to make things in, not to believe.
    pub fn open(path: &Path) -> Result<Dir, Refusal> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(Refusal::io("open", path))?;
        Ok(Dir::held(fd, path))
    }

    /// Files and directories of root's in it are taken like our own: for who reads what root recorded for his group.
    #[must_use]
    pub fn believing_root(self) -> Dir {
        Dir { root_too: true, ..self }
    }

    /// `name` in `at`: a directory of ours that nobody else can write, and no link to one.
    pub(crate) fn own(at: impl AsFd, name: &Path, path: &Path) -> Result<Dir, Refusal> {
        Dir::judged(at, name, path, false)
    }

    fn judged(at: impl AsFd, name: &Path, path: &Path, root_too: bool) -> Result<Dir, Refusal> {
        let fd = Dir::from_open(openat(at, name, OFlags::RDONLY | OPEN_DIR, Mode::empty()), path)?;
        check_owner(&fstat(&fd).map_err(Refusal::io("look at", path))?, root_too, path)?;
        Ok(Dir { root_too, ..Dir::held(fd, path) })
    }

    /// A directory of ours that nobody else can write, and no link to one; links above it are the user's choice.
    pub fn open_own(path: &Path) -> Result<Dir, Refusal> {
        Dir::own(rustix::fs::CWD, path, path)
    }

    /// The directory that output goes to: made, or an empty one of ours. What is made in it is readable by us alone, and by
    /// `group` where one is given.
    ///
    /// A directory that was there is looked at first, and refused as it is where others share it (sticky, or a
    /// group's own), where it has names, or where `group` is not its group already. Only an empty one of ours that others
    /// could write is closed to them.
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
            // Made by another process of ours in the meantime it could be anything: what is new is empty.
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
            // What others put into it before that.
            dir.require_empty()?;
        }
        Ok(dir)
    }

    /// Refuses where anything is in it already.
    pub fn require_empty(&self) -> Result<(), Refusal> {
        if self.names()?.is_empty() { Ok(()) } else { Err(Refusal::NotEmpty { path: self.path.clone() }) }
    }

    /// Gives what was just made its group and mode.
    fn share_out(&self, made: BorrowedFd<'_>, shared: u32, private: u32, path: &Path) -> Result<(), Refusal> {
        let failed = |action| Refusal::io::<rustix::io::Errno>(action, path);
        match self.share {
            Some(group) => {
                // Not where the directory has passed its group on already: that takes no right to give files away.
                if fstat(made).map_err(failed("look at"))?.st_gid != group {
                    fchown(made, None, Some(Gid::from_raw(group))).map_err(failed("give to the group"))?;
                }
                fchmod(made, Mode::from_raw_mode(shared)).map_err(failed("set the mode of"))
            }
            None => fchmod(made, Mode::from_raw_mode(private)).map_err(failed("set the mode of")),
        }
    }

    /// Gives every file in it to the group that it is shared with, where there is one: for what was written by path.
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

    /// As the user named it: for messages, never to open.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to this very directory from within this process, wherever it is moved and whatever its old
    /// place holds now; for what can only be given a path.
    #[must_use]
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Device and inode, which tell whether a path still leads here.
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

    /// Makes a file that was not there, for us (and the group) alone.
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

    /// Makes a directory that was not there, for us (and the group) alone.
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

    /// A directory of ours in this one.
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
        // A second name means that its owner was talked into it by protected_hardlinks being off, or made it himself.
        #[allow(clippy::useless_conversion, reason = "st_nlink is not u64 on every architecture")]
        let links = u64::from(stat.st_nlink);
        if links > 1 {
            return Err(Refusal::Names { path, links });
        }
        Ok(File::from(file))
    }

    /// Opens a file of ours to read: regular, of one name, which nobody else can write.
    pub fn read(&self, name: &str) -> Result<File, Refusal> {
        self.existing(name, OFlags::RDONLY)
    }

    /// As `read`, to read and append.
    pub fn append(&self, name: &str) -> Result<File, Refusal> {
        self.existing(name, OFlags::RDWR | OFlags::APPEND)
    }

    /// As `read`, to write.
    pub fn write(&self, name: &str) -> Result<File, Refusal> {
        self.existing(name, OFlags::RDWR)
    }

    /// What there is of this name; a link is itself.
    pub fn stat(&self, name: &str) -> Result<Stat, Refusal> {
        let stat = statat(&self.fd, self.plain(name)?, AtFlags::SYMLINK_NOFOLLOW);
        stat.map_err(Refusal::io("look at", self.path.join(name)))
    }

    #[must_use]
    pub fn exists(&self, name: &str) -> bool {
        self.stat(name).is_ok()
    }

    /// Gives a file of this directory another name in it, instead of whatever had that.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), Refusal> {
        let renamed = rustix::fs::renameat(&self.fd, self.plain(from)?, &self.fd, self.plain(to)?);
        renamed.map_err(Refusal::io("rename", self.path.join(from)))
    }

    /// Removes a file, or a link itself.
    pub fn remove(&self, name: &str) -> Result<(), Refusal> {
        let removed = rustix::fs::unlinkat(&self.fd, self.plain(name)?, AtFlags::empty());
        removed.map_err(Refusal::io("remove", self.path.join(name)))
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, name: &str) -> Result<(), Refusal> {
        let removed = rustix::fs::unlinkat(&self.fd, self.plain(name)?, AtFlags::REMOVEDIR);
        removed.map_err(Refusal::io("remove", self.path.join(name)))
    }

    /// Removes a directory with all that is in it; links in it go themselves.
    pub fn remove_tree(&self, name: &str) -> Result<(), Refusal> {
        let place = self.proc_path().join(self.plain(name)?);
        std::fs::remove_dir_all(place).map_err(Refusal::io("remove", self.path.join(name)))
    }

    /// The names in it.
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

    /// Makes what was made and renamed here survive a power cut.
    pub fn sync(&self) -> Result<(), Refusal> {
        rustix::fs::fsync(&self.fd).map_err(Refusal::io("sync", &self.path))
    }
}

/// The directory above, opened, and the last name; `.` and `..` have none of their own and are opened as they are.
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

    /// S3: red on 9232d20c, where /tmp lost its mode 1777 and /etc got another group before either was refused.
    #[test]
    fn s3_a_directory_that_is_refused_keeps_its_mode_and_group() {
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
    fn an_empty_directory_of_ours_is_closed_to_others_and_a_new_one_is_shared_from_the_start() {
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

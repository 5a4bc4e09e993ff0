//! Directory handles: the only way in which the crate opens, makes, renames and removes files by name.
//!
//! Whoever may write in a folder, or in one above it, can put a link, a pipe or a file of his own where one of ours is expected, at
//! any time. So a folder is opened once, step by step and through no link; everything in it is reached through that handle, never
//! through a last link; and what was opened is judged by its descriptor, which nobody can exchange any more.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

/// Why a file is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("it belongs to user {owner} and this process is user {me}; run as its owner")]
    Owner { owner: u32, me: u32 },
    #[error("it is a symbolic link; give the path of the file itself")]
    Link,
    #[error("it is not a regular file")]
    Kind,
    #[error("it has {0} hard links, so it may be another file too; remove the others")]
    Links(u64),
    #[error("others may write to it (mode {0:o}); take that right away, or remove it")]
    Writable(u32),
}

impl From<Unfit> for io::Error {
    fn from(unfit: Unfit) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, unfit)
    }
}

/// The reason, if the error says that a file is not one to use.
pub(crate) fn unfit(error: &io::Error) -> Option<Unfit> {
    error.get_ref()?.downcast_ref::<Unfit>().copied()
}

/// The user that this process acts as.
pub(crate) fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// What a name stands for, without following it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) len: u64,
    pub(crate) allocated: u64,
    pub(crate) owner: u32,
    /// Device and inode.
    pub(crate) identity: (u64, u64),
}

/// Device and inode of an open file.
pub(crate) fn identity(file: &File) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A folder, held open.
#[derive(Debug)]
pub(crate) struct Dir {
    handle: File,
    path: PathBuf,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const ANY: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

impl Dir {
    /// A folder that the user named: links in the path are resolved first, and none is followed afterwards.
    pub(crate) fn named(path: &Path) -> io::Result<Dir> {
        Dir::exactly(&path.canonicalize()?)
    }

    /// A folder by an absolute path that goes through no link; fails where one has been put since.
    pub(crate) fn exactly(path: &Path) -> io::Result<Dir> {
        let mut parts = path.components();
        if parts.next() != Some(Component::RootDir) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // Folders on the way need not be readable.
        let step = FOLDER.difference(OFlags::RDONLY).union(OFlags::PATH);
        let mut at = rustix::fs::open("/", step, Mode::empty())?;
        for part in parts {
            let Component::Normal(name) = part else { return Err(io::Error::from(io::ErrorKind::InvalidInput)) };
            at = rustix::fs::openat(&at, name, step, Mode::empty())?;
        }
        let handle = rustix::fs::openat(&at, ".", FOLDER, Mode::empty())?;
        Ok(Dir { handle: File::from(handle), path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file of ours alone: sidecar, live block, ring. `None`: there is none.
    pub(crate) fn private(&self, name: &str) -> io::Result<Option<File>> {
        let Some((file, stat)) = self.open(name)? else { return Ok(None) };
        judge(&stat, Use::Private)?;
        Ok(Some(file))
    }

    /// A file that holds somebody's data: a user's own choice, except that root takes root's files only.
    pub(crate) fn data(&self, name: &str) -> io::Result<Option<File>> {
        let Some((file, stat)) = self.open(name)? else { return Ok(None) };
        judge(&stat, if me() == 0 { Use::Root } else { Use::Any })?;
        Ok(Some(file))
    }

    /// A regular file of anybody's, for `follow`, which helps the process that has it open already.
    pub(crate) fn any(&self, name: &str) -> io::Result<Option<File>> {
        let Some((file, stat)) = self.open(name)? else { return Ok(None) };
        judge(&stat, Use::Any)?;
        Ok(Some(file))
    }

    fn open(&self, name: &str) -> io::Result<Option<(File, Stat)>> {
        match rustix::fs::openat(&self.handle, name, ANY, Mode::empty()) {
            Ok(fd) => {
                let stat = rustix::fs::fstat(fd.as_fd())?;
                Ok(Some((File::from(fd), stat)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) => Err(Unfit::Link.into()),
            // A file of somebody else that we may not open either: say whose it is.
            Err(Errno::ACCESS) => match self.stat(name)? {
                Some(there) if there.owner != me() => Err(Unfit::Owner { owner: there.owner, me: me() }.into()),
                _ => Err(Errno::ACCESS.into()),
            },
            Err(Errno::ISDIR | Errno::NXIO) => Err(Unfit::Kind.into()),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes a file that only its owner may read, and fails if the name is taken by anything.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        self.make(name, Mode::RUSR | Mode::WUSR)
    }

    /// Makes a data file, with the rights that the process's umask leaves it.
    pub(crate) fn create_data(&self, name: &str) -> io::Result<File> {
        self.make(name, Mode::from_raw_mode(0o666))
    }

    fn make(&self, name: &str, mode: Mode) -> io::Result<File> {
        let flags = ANY.union(OFlags::CREATE).union(OFlags::EXCL);
        Ok(File::from(rustix::fs::openat(&self.handle, name, flags, mode)?))
    }

    /// A second description of a data file that was opened here before, with further flags; `None` where that cannot be had.
    pub(crate) fn again(&self, name: &str, file: &File, flags: OFlags) -> Option<File> {
        let second = File::from(rustix::fs::openat(&self.handle, name, ANY.union(flags), Mode::empty()).ok()?);
        (identity(&second).ok()? == identity(file).ok()?).then_some(second)
    }

    /// What the name stands for; a link is described, not followed.
    pub(crate) fn stat(&self, name: &str) -> io::Result<Option<Entry>> {
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Entry {
                len: u64::try_from(stat.st_size).unwrap_or(0),
                allocated: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
                owner: stat.st_uid,
                identity: (stat.st_dev, stat.st_ino),
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) fn exists(&self, name: &str) -> io::Result<bool> {
        Ok(self.stat(name)?.is_some())
    }

    /// Removes the name if it is there.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Renames within the folder, over nothing.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.handle, from, &self.handle, to, RenameFlags::NOREPLACE) {
            // Not on this file system, or not on this kernel.
            Err(Errno::INVAL | Errno::NOSYS) if !self.exists(to)? => {
                Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
            }
            other => Ok(other?),
        }
    }

    /// Names in the folder that are UTF-8; ours are.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.handle)? {
            let entry = entry?;
            found.extend(OsStr::from_bytes(entry.file_name().to_bytes()).to_str().map(str::to_owned));
        }
        found.retain(|name| name != "." && name != "..");
        found.sort();
        Ok(found)
    }

    /// Magic number of the file system.
    pub(crate) fn file_system(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstatfs(&self.handle)?.f_type as u64)
    }

    /// Number of the file system.
    pub(crate) fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.handle)?.st_dev)
    }

    /// Makes creations and removals in the folder durable. File systems that cannot (EINVAL on some network ones) order
    /// them themselves.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self.handle.sync_all() {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }
}

/// For what a file is opened, and so what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Of this user and of nobody else in any way.
    Private,
    /// Root's own, under this one name.
    Root,
    /// Any file whose rights allow it.
    Any,
}

/// By the descriptor's own status.
fn judge(stat: &Stat, wanted: Use) -> Result<(), Unfit> {
    let (owner, me) = (stat.st_uid, me());
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Unfit::Kind);
    }
    if wanted == Use::Any {
        return Ok(());
    }
    if owner != me {
        return Err(Unfit::Owner { owner, me });
    }
    // None: it was removed after it was opened, which whoever locks it finds out.
    #[allow(clippy::useless_conversion, reason = "st_nlink is not u64 on every architecture")]
    let links = u64::from(stat.st_nlink);
    if links > 1 {
        return Err(Unfit::Links(links));
    }
    let rights = stat.st_mode & 0o777;
    if wanted == Use::Private && rights & 0o022 != 0 { Err(Unfit::Writable(rights)) } else { Ok(()) }
}

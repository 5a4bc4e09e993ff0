//! Directory handles: the only way in which this crate opens, creates, renames and removes files by name.
//!
//! A user who may write to a directory, or to one above it, can replace a file by a link, a pipe or another file at any
//! time. So a directory is opened once, component by component and without following links; its files are opened
//! through that handle, and never through a link in the last component; and an opened file is checked through its
//! descriptor, which no other user can replace.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::own::OwnFile;

/// Why a file must not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("it belongs to user {owner} and this process is user {me}; run as its owner")]
    Owner { owner: u32, me: u32 },
    #[error("it is a symbolic link; give the path of the file itself")]
    Link,
    #[error("it is not a regular file")]
    Kind,
    #[error("it has {0} hard links, so it may also be another file; remove the other names")]
    Links(u64),
    #[error("others may write to it (mode {0:o}); remove that permission, or the file")]
    Writable(u32),
}

impl From<Unfit> for io::Error {
    fn from(unfit: Unfit) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, unfit)
    }
}

/// The reason why a file must not be used, if the error is one.
pub(crate) fn unfit(error: &io::Error) -> Option<Unfit> {
    error.get_ref()?.downcast_ref::<Unfit>().copied()
}

/// Effective user ID of this process.
pub(crate) fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Status of a name, without following a link.
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

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir {
    handle: OwnFile,
    path: PathBuf,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const ANY: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

impl Dir {
    /// Opens a directory that the user named: links in the path are resolved first, and not followed afterwards.
    pub(crate) fn named(path: &Path) -> io::Result<Dir> {
        Dir::exactly(&path.canonicalize()?)
    }

    /// Opens a directory by an absolute path without links; fails if a component is a link by now.
    pub(crate) fn exactly(path: &Path) -> io::Result<Dir> {
        let mut parts = path.components();
        if parts.next() != Some(Component::RootDir) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // Components on the way need not be readable.
        let step = FOLDER.difference(OFlags::RDONLY).union(OFlags::PATH);
        let mut at = rustix::fs::open("/", step, Mode::empty())?;
        for part in parts {
            let Component::Normal(name) = part else { return Err(io::Error::from(io::ErrorKind::InvalidInput)) };
            at = rustix::fs::openat(&at, name, step, Mode::empty())?;
        }
        let handle = rustix::fs::openat(&at, ".", FOLDER, Mode::empty())?;
        Ok(Dir { handle: OwnFile::new(File::from(handle))?, path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the next sync of this directory fail.
    #[cfg(test)]
    pub(crate) fn fail_sync(&self, errno: i32) {
        self.handle.sync_error.store(errno, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a private file of this user: sidecar, live block or ring. `None` if it does not exist.
    pub(crate) fn private(&self, name: &str) -> io::Result<Option<File>> {
        let Some((file, stat)) = self.open(name)? else { return Ok(None) };
        judge(&stat, Use::Private)?;
        Ok(Some(file))
    }

    /// Opens a data file: any regular file, but for root only its own. `None` if it does not exist.
    pub(crate) fn data(&self, name: &str) -> io::Result<Option<File>> {
        let Some((file, stat)) = self.open(name)? else { return Ok(None) };
        judge(&stat, if me() == 0 { Use::Root } else { Use::Any })?;
        Ok(Some(file))
    }

    /// Opens a regular file of any user, for `follow`, which helps the process that writes it.
    pub(crate) fn any(&self, name: &str) -> io::Result<Option<File>> {
        let Some((file, stat)) = self.open(name)? else { return Ok(None) };
        judge(&stat, Use::Any)?;
        Ok(Some(file))
    }

    /// Opens a regular file of any user for reading. `None` if it does not exist.
    pub(crate) fn readable(&self, name: &str) -> io::Result<Option<File>> {
        // A pipe does not block; the check below refuses it.
        let flags = ANY.difference(OFlags::RDWR).union(OFlags::NONBLOCK);
        let Some((file, stat)) = self.open_with(name, flags)? else { return Ok(None) };
        judge(&stat, Use::Any)?;
        Ok(Some(file))
    }

    fn open(&self, name: &str) -> io::Result<Option<(File, Stat)>> {
        self.open_with(name, ANY)
    }

    fn open_with(&self, name: &str, flags: OFlags) -> io::Result<Option<(File, Stat)>> {
        match rustix::fs::openat(self.handle.get()?, name, flags, Mode::empty()) {
            Ok(fd) => {
                let stat = rustix::fs::fstat(fd.as_fd())?;
                Ok(Some((File::from(fd), stat)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) => Err(Unfit::Link.into()),
            // Another user's file that this user may not open: report its owner.
            Err(Errno::ACCESS) => match self.stat(name)? {
                Some(there) if there.owner != me() => Err(Unfit::Owner { owner: there.owner, me: me() }.into()),
                _ => Err(Errno::ACCESS.into()),
            },
            Err(Errno::ISDIR | Errno::NXIO) => Err(Unfit::Kind.into()),
            Err(e) => Err(e.into()),
        }
    }

    /// Creates a file that only its owner can access; fails if the name exists.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        self.make(name, Mode::RUSR | Mode::WUSR)
    }

    /// Creates a data file with the permissions that the umask leaves.
    pub(crate) fn create_data(&self, name: &str) -> io::Result<File> {
        self.make(name, Mode::from_raw_mode(0o666))
    }

    /// Creates the index of a data file with these permissions: users who may read the file may read the index, and
    /// only the owner may write to it.
    pub(crate) fn create_index(&self, name: &str, data_mode: u32) -> io::Result<File> {
        self.make(name, Mode::from_raw_mode(data_mode & 0o644))
    }

    fn make(&self, name: &str, mode: Mode) -> io::Result<File> {
        let flags = ANY.union(OFlags::CREATE).union(OFlags::EXCL);
        Ok(File::from(rustix::fs::openat(self.handle.get()?, name, flags, mode)?))
    }

    /// Opens a data file of this device and inode once more, with further flags; `None` if that fails or the name is another file
    /// by now.
    pub(crate) fn again(&self, name: &str, file: (u64, u64), flags: OFlags) -> Option<File> {
        let second =
            File::from(rustix::fs::openat(self.handle.get().ok()?, name, ANY.union(flags), Mode::empty()).ok()?);
        (identity(&second).ok()? == file).then_some(second)
    }

    /// Status of a name; does not follow a link.
    pub(crate) fn stat(&self, name: &str) -> io::Result<Option<Entry>> {
        match rustix::fs::statat(self.handle.get()?, name, AtFlags::SYMLINK_NOFOLLOW) {
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

    /// Removes the name if it exists.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(self.handle.get()?, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Renames within the directory; fails if `to` exists.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let handle = self.handle.get()?;
        match rustix::fs::renameat_with(handle, from, handle, to, RenameFlags::NOREPLACE) {
            // The file system or the kernel does not know RENAME_NOREPLACE.
            Err(Errno::INVAL | Errno::NOSYS) if !self.exists(to)? => {
                Ok(rustix::fs::renameat(handle, from, handle, to)?)
            }
            other => Ok(other?),
        }
    }

    /// Names in the directory that are UTF-8, as those of this library are.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(self.handle.get()?)? {
            let entry = entry?;
            found.extend(OsStr::from_bytes(entry.file_name().to_bytes()).to_str().map(str::to_owned));
        }
        found.retain(|name| name != "." && name != "..");
        found.sort();
        Ok(found)
    }

    /// Magic number of the file system.
    pub(crate) fn file_system(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstatfs(self.handle.get()?)?.f_type as u64)
    }

    /// Device number of the file system.
    pub(crate) fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(self.handle.get()?)?.st_dev)
    }

    /// Makes created and removed names durable. File systems that return EINVAL, such as some network ones, order these
    /// operations themselves.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self.handle.sync_all() {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }
}

/// What a file is opened for, and so what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Belongs to this user alone; others cannot write to it.
    Private,
    /// Root's own, with a single name.
    Root,
    /// Any regular file that can be opened.
    Any,
}

/// Checks the status of an opened file.
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
    // None if it was removed after it was opened; taking the lock detects that.
    #[allow(clippy::useless_conversion, reason = "st_nlink is not u64 on every architecture")]
    let links = u64::from(stat.st_nlink);
    if links > 1 {
        return Err(Unfit::Links(links));
    }
    let rights = stat.st_mode & 0o777;
    if wanted == Use::Private && rights & 0o022 != 0 { Err(Unfit::Writable(rights)) } else { Ok(()) }
}

//! Opens files below a directory without leaving the directory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Whether openat2 is missing or blocked by a filter; found out once.
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Opens `relative` below `dir`. A symbolic link in the path, `..` and an absolute path are refused: by the kernel if
/// it has openat2 (5.6), otherwise component by component.
pub(crate) fn beneath(dir: BorrowedFd<'_>, relative: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    // openat2 refuses a mode without O_CREAT.
    let mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(dir, relative, flags, mode, how) {
            // Older container runtimes return EPERM for unknown system calls.
            Err(Errno::NOSYS | Errno::PERM) => NO_OPENAT2.store(true, Ordering::Relaxed),
            opened => return opened,
        }
    }
    step_by_step(dir, relative, flags, mode)
}

/// Replacement for openat2 on kernels without it.
pub(crate) fn step_by_step(dir: BorrowedFd<'_>, relative: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut names = Vec::new();
    for part in relative.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    let Some((last, above)) = names.split_last() else { return Err(Errno::INVAL) };
    let mut held: Option<OwnedFd> = None;
    for name in above {
        let at = held.as_ref().map_or(dir, AsFd::as_fd);
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        held = Some(openat(at, *name, step, Mode::empty())?);
    }
    let at = held.as_ref().map_or(dir, AsFd::as_fd);
    openat(at, *last, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use rustix::fs::{Mode, OFlags};

    use super::{beneath, step_by_step};

    #[test]
    fn both_implementations_refuse_links_and_parent_directories() {
        let place = tempfile::tempdir().expect("a directory");
        let inside = place.path().join("inside");
        fs::create_dir_all(inside.join("a/b")).expect("made");
        fs::write(inside.join("a/b/file"), "x").expect("written");
        fs::write(place.path().join("secret"), "x").expect("written");
        symlink("../../secret", inside.join("a/last")).expect("linked");
        symlink("b", inside.join("a/middle")).expect("linked");
        let dir = fs::File::open(&inside).expect("opened");
        for open in [beneath, step_by_step] {
            let try_open = |path: &str| open(dir.as_fd(), Path::new(path), OFlags::RDONLY, Mode::empty());
            assert!(try_open("a/b/file").is_ok());
            for refused in ["a/last", "a/middle/file", "../secret", "a/../../secret", "/etc/passwd", ""] {
                assert!(try_open(refused).is_err(), "{refused}");
            }
            let make = |path: &str| {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                open(dir.as_fd(), Path::new(path), flags, Mode::from_raw_mode(0o600))
            };
            assert!(make("a/last").is_err(), "a link is not followed for writing");
            assert!(make("a/b/new").is_ok());
            fs::remove_file(inside.join("a/b/new")).expect("made by it");
        }
    }
}

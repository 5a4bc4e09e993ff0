//! Directories whose content is acted upon: no other user may control any component of their path.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, open, openat, readlinkat};
use rustix::io::Errno;

use crate::dir::{OTHERS_WRITE, PRIVATE_DIR, STICKY};
use crate::{Dir, Refusal};

/// The kernel's own limit (include/linux/namei.h: MAXSYMLINKS).
const LINKS_MAX: usize = 40;

impl Dir {
    /// Opens our own directory. Every component of the path must belong to root or us, and must not be writable by
    /// others (except sticky directories, in which others cannot replace our files).
    pub fn trusted(path: &Path) -> Result<Dir, Refusal> {
        walk(path, false)
    }

    /// Like `trusted`, but creates missing directories, accessible only to us.
    pub fn make_trusted(path: &Path) -> Result<Dir, Refusal> {
        walk(path, true)
    }
}

fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

fn root() -> Result<OwnedFd, Refusal> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open("/", flags, Mode::empty()).map_err(Refusal::io("open", "/"))
}

fn walk(path: &Path, make: bool) -> Result<Dir, Refusal> {
    if !path.is_absolute() {
        return Err(Refusal::Name { path: PathBuf::from("/"), name: path.display().to_string() });
    }
    let mut todo = parts(path);
    todo.reverse();
    let (mut at, mut shown, mut links) = (root()?, PathBuf::from("/"), 0);
    while let Some(name) = todo.pop() {
        let here = shown.join(&name);
        let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match openat(&at, &name, step, Mode::empty()) {
            Err(Errno::NOENT) if make => {
                match mkdirat(&at, &name, Mode::from_raw_mode(PRIVATE_DIR)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(Refusal::io("make", &here)(error)),
                }
                openat(&at, &name, step, Mode::empty())
            }
            opened => opened,
        };
        let opened = opened.map_err(Refusal::io("open", &here))?;
        let stat = fstat(&opened).map_err(Refusal::io("look at", &here))?;
        let own = rustix::process::geteuid().as_raw();
        if stat.st_uid != 0 && stat.st_uid != own {
            return Err(Refusal::Owner { path: here, owner: stat.st_uid, own });
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            links += 1;
            if links > LINKS_MAX {
                return Err(Refusal::Link { path: here });
            }
            let to = readlinkat(&at, &name, Vec::new()).map_err(Refusal::io("read the link", &here))?;
            let to = PathBuf::from(OsString::from_vec(to.into_bytes()));
            if to.is_absolute() {
                (at, shown) = (root()?, PathBuf::from("/"));
            }
            todo.extend(parts(&to).into_iter().rev());
            continue;
        }
        if stat.st_mode & OTHERS_WRITE != 0 && (stat.st_mode & STICKY == 0 || todo.is_empty()) {
            return Err(Refusal::Writable { path: here, mode: stat.st_mode & 0o7777 });
        }
        (at, shown) = (opened, here);
    }
    Dir::own(&at, Path::new("."), path)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use crate::{Dir, Refusal};

    #[test]
    fn a_path_with_a_component_writable_by_others_is_not_trusted() {
        let place = tempfile::tempdir().expect("a directory");
        let state = place.path().join("a/state");
        assert!(Dir::trusted(&state).is_err_and(|refusal| refusal.is_missing()));
        Dir::make_trusted(&state).expect("made");
        let mode = |path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(place.path().join("a")), mode(state.clone())), (0o700, 0o700));
        symlink("a", place.path().join("own-link")).expect("linked");
        Dir::trusted(&place.path().join("own-link/state")).expect("our own link is accepted");
        set_permissions(place.path().join("a"), Permissions::from_mode(0o777)).expect("chmod");
        assert!(matches!(Dir::trusted(&state), Err(Refusal::Writable { .. })));
        set_permissions(place.path().join("a"), Permissions::from_mode(0o1777)).expect("chmod");
        Dir::trusted(&state).expect("sticky, as /tmp is");
        assert!(Dir::trusted(&place.path().join("a")).is_err(), "sticky is not enough for the last");
        assert!(Dir::trusted(std::path::Path::new("relative")).is_err());
    }

    #[test]
    fn a_path_with_a_directory_or_link_of_another_user_is_not_trusted() {
        assert!(rustix::process::geteuid().is_root(), "giving a directory away needs root");
        let place = tempfile::tempdir().expect("a directory");
        create_dir(place.path().join("theirs")).expect("made");
        create_dir(place.path().join("theirs/state")).expect("made");
        symlink("/", place.path().join("link")).expect("linked");
        let give = |name: &str| {
            std::os::unix::fs::lchown(place.path().join(name), Some(65534), Some(65534)).expect("given away");
        };
        give("theirs");
        give("link");
        assert!(matches!(Dir::trusted(&place.path().join("theirs/state")), Err(Refusal::Owner { owner: 65534, .. })));
        assert!(matches!(Dir::trusted(&place.path().join("link/tmp")), Err(Refusal::Owner { owner: 65534, .. })));
    }
}

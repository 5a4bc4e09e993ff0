//! Files that appear completely or not at all.

use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use crate::dir::{OTHERS_WRITE, own_uid};
use crate::regular::kind_of;
use crate::{Dir, Refusal};

/// A file under a temporary name. `publish` renames it to its final name; dropping it before removes it.
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
        // A killed run may have left this file. It is safe to remove even if another user created it: removing does
        // not follow links.
        match dir.remove(&temporary) {
            Err(refusal) if !refusal.is_missing() => return Err(refusal),
            _ => {}
        }
        let file = dir.create(&temporary)?;
        Ok(Pending { dir: dir.clone(), name: name.to_owned(), temporary, file, published: false })
    }

    /// The file to write to.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Renames the file to its final name, replacing an existing file. `durable` syncs the content first.
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
    /// Begins a file that gets its name when it is complete.
    pub fn pending(&self, name: &str) -> Result<Pending, Refusal> {
        Pending::new(self, name)
    }

    /// Replaces a file atomically: readers see either the old or the new content.
    pub fn replace(&self, name: &str, bytes: &[u8], durable: bool) -> Result<(), Refusal> {
        let pending = self.pending(name)?;
        pending.file().write_all(bytes).map_err(Refusal::io("write", self.path().join(name)))?;
        pending.publish(durable)
    }
}

/// Writes an output file that the user named. A regular file is replaced atomically and is readable only by its owner.
/// A link, a pipe or a device (`/dev/stdout`) is written to only if no user except root and us could have created it.
pub fn write_output(path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = Dir::open(above)?;
    let name = path.file_name().and_then(|name| std::str::from_utf8(name.as_bytes()).ok());
    let name = name.ok_or_else(|| Refusal::Name { path: above.to_owned(), name: path.display().to_string() })?;
    let kind = match dir.stat(name) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(refusal) if refusal.is_missing() => FileType::RegularFile,
        Err(refusal) => return Err(refusal),
    };
    let of_dir = fstat(&dir).map_err(Refusal::io("look at", above))?;
    let ours = (of_dir.st_uid == 0 || of_dir.st_uid == own_uid()) && of_dir.st_mode & OTHERS_WRITE == 0;
    match kind {
        FileType::RegularFile => dir.replace(name, bytes, false),
        FileType::Directory => {
            Err(Refusal::Kind { path: path.to_owned(), found: kind_of(kind), wanted: "a regular file" })
        }
        _ if ours => {
            let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOCTTY;
            let file = openat(&dir, name, flags, Mode::empty()).map_err(Refusal::io("open", path))?;
            File::from(file).write_all(bytes).map_err(Refusal::io("write", path))
        }
        FileType::Symlink => Err(Refusal::Link { path: path.to_owned() }),
        _ => Err(Refusal::Kind { path: path.to_owned(), found: kind_of(kind), wanted: "a regular file" }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::write_output;
    use crate::Refusal;

    #[test]
    fn write_output_refuses_links_that_others_could_have_made() {
        let place = tempfile::tempdir().expect("a directory");
        let (secret, shared) = (place.path().join("secret"), place.path().join("shared"));
        fs::write(&secret, "kept").expect("written");
        fs::create_dir(&shared).expect("made");
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).expect("chmod");
        let planted = shared.join("page.html");
        symlink(&secret, &planted).expect("linked");
        assert!(matches!(write_output(&planted, b"page"), Err(Refusal::Link { .. })));
        assert_eq!(fs::read(&secret).expect("there"), b"kept");

        let own = place.path().join("page.html");
        symlink(&secret, &own).expect("linked");
        write_output(&own, b"ours").expect("our own link, in a directory of ours");
        assert_eq!(fs::read(&secret).expect("there"), b"ours");
    }

    #[test]
    fn write_output_replaces_files_and_writes_to_devices() {
        let place = tempfile::tempdir().expect("a directory");
        let page = place.path().join("page.html");
        for content in [&b"a long first one"[..], b"short"] {
            write_output(&page, content).expect("written");
            assert_eq!(fs::read(&page).expect("there"), content);
        }
        assert_eq!(fs::metadata(&page).expect("there").permissions().mode() & 0o777, 0o600);
        write_output(Path::new("/dev/null"), b"gone").expect("a system device");
        assert!(!Path::new("/dev/null.tmp").exists());
        assert!(matches!(write_output(place.path(), b"x"), Err(Refusal::Kind { found: "a directory", .. })));
    }
}

//! Reads files that the user named, and files in directories of unknown origin, only if they are regular.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use crate::Refusal;
use crate::dir::check_owner;

/// The kind in words, for messages.
pub(crate) fn kind_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

/// Opens a regular file for reading, through any symbolic links. Refuses a pipe, a device or a socket without waiting
/// for it. Files of /proc and /sys are regular files of length 0 and are read like any other.
pub fn open_regular(path: &Path) -> Result<File, Refusal> {
    // Without NONBLOCK, opening a pipe waits for a writer, and opening a tape drive waits for a tape.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = open(path, flags, Mode::empty()).map_err(Refusal::io("open", path))?;
    let stat = fstat(&file).map_err(Refusal::io("look at", path))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return Err(Refusal::Kind { path: path.to_owned(), found: kind_of(kind), wanted: "a regular file" });
    }
    let flags = rustix::fs::fcntl_getfl(file.as_fd()).map_err(Refusal::io("look at", path))?;
    rustix::fs::fcntl_setfl(file.as_fd(), flags - OFlags::NONBLOCK).map_err(Refusal::io("open", path))?;
    Ok(File::from(file))
}

/// The content of a regular file of at most `bytes_max` bytes.
pub fn read_regular(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    whole(open_regular(path)?, path, bytes_max)
}

/// Like `read_regular`, for a file whose instructions are followed: it must belong to us or root, and not be writable
/// by others.
pub fn read_believed(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    let file = open_regular(path)?;
    check_owner(&fstat(&file).map_err(Refusal::io("look at", path))?, true, path)?;
    whole(file, path, bytes_max)
}

/// Like `read_believed`, for a secret: other users must not be able to read the file. Its group may.
pub fn read_secret(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    let file = open_regular(path)?;
    let stat = fstat(&file).map_err(Refusal::io("look at", path))?;
    check_owner(&stat, true, path)?;
    if stat.st_mode & 0o007 != 0 {
        return Err(Refusal::Readable { path: path.to_owned(), mode: stat.st_mode & 0o7777 });
    }
    whole(file, path, bytes_max)
}

fn whole(file: File, path: &Path, bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let limited = Limited::new(file, bytes_max);
    match limited.read_to_end(&mut bytes) {
        Ok(true) => Ok(bytes),
        Ok(false) => Err(Refusal::TooLong { path: path.to_owned(), most: bytes_max }),
        Err(error) => Err(Refusal::io("read", path)(error)),
    }
}

/// A source that may be endless, with a limit.
#[derive(Debug)]
pub struct Limited<R> {
    from: R,
    bytes_max: u64,
}

impl<R: Read> Limited<R> {
    pub fn new(from: R, bytes_max: u64) -> Limited<R> {
        Limited { from, bytes_max }
    }

    /// Appends at most the limit; returns false if there was more.
    pub fn read_to_end(self, into: &mut Vec<u8>) -> io::Result<bool> {
        let Limited { from, bytes_max } = self;
        let before = into.len() as u64;
        from.take(bytes_max.saturating_add(1)).read_to_end(into)?;
        if into.len() as u64 - before <= bytes_max {
            return Ok(true);
        }
        into.pop();
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{open_regular, read_regular};
    use crate::Refusal;

    #[test]
    fn pipes_and_devices_are_refused_and_long_files_hit_the_limit() {
        let place = tempfile::tempdir().expect("a directory");
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
        assert!(matches!(open_regular(&pipe), Err(Refusal::Kind { found: "a named pipe", .. })));
        assert!(matches!(open_regular(Path::new("/dev/zero")), Err(Refusal::Kind { found: "a device", .. })));
        let file = place.path().join("file");
        std::fs::write(&file, [7; 100]).expect("written");
        assert_eq!(read_regular(&file, 100).expect("short enough").len(), 100);
        assert!(matches!(read_regular(&file, 99), Err(Refusal::TooLong { most: 99, .. })));
        assert!(!read_regular(Path::new("/proc/self/status"), 1 << 20).expect("of length 0").is_empty());
    }
}

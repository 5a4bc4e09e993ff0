//! Names: the files of a path or pattern, and what lies beside them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A single file, or a pattern with `{}` for the sequence number.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    given: PathBuf,
    dir: PathBuf,
    head: String,
    /// What follows the number; `None` for a single file.
    tail: Option<String>,
}

impl Names {
    /// Splits a path; its name must be UTF-8 and not empty.
    pub(crate) fn of(given: &Path) -> Result<Names, String> {
        let name = given.file_name().ok_or("a path must end in a file name")?;
        let name = name.to_str().ok_or("the file name must be UTF-8")?;
        let dir = match given.parent() {
            Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
            _ => PathBuf::from("."),
        };
        let dir = dir.canonicalize().map_err(|e| format!("folder {}: {e}", dir.display()))?;
        let (head, tail) = match name.split_once("{}") {
            Some((_, tail)) if tail.contains("{}") => return Err("only one {} may stand in the name".to_owned()),
            Some((head, tail)) => (head.to_owned(), Some(tail.to_owned())),
            None => (name.to_owned(), None),
        };
        Ok(Names { given: given.to_owned(), dir, head, tail })
    }

    pub(crate) fn given(&self) -> &Path {
        &self.given
    }

    /// The path or pattern, absolute.
    pub(crate) fn full(&self) -> PathBuf {
        match &self.tail {
            Some(tail) => self.dir.join(format!("{}{{}}{tail}", self.head)),
            None => self.dir.join(&self.head),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn rolls(&self) -> bool {
        self.tail.is_some()
    }

    /// The file of that number; a single file is number 0.
    pub(crate) fn path(&self, seq: u64) -> PathBuf {
        match &self.tail {
            Some(tail) => self.dir.join(format!("{}{seq:08}{tail}", self.head)),
            None => self.dir.join(&self.head),
        }
    }

    /// Numbers of the files present, ascending.
    pub(crate) fn present(&self) -> io::Result<Vec<u64>> {
        let Some(tail) = &self.tail else {
            return Ok(if self.path(0).try_exists()? { vec![0] } else { Vec::new() });
        };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix(self.head.as_str())?.strip_suffix(tail.as_str()));
            if let Some(n) = number.filter(|n| n.len() >= 8 && n.bytes().all(|b| b.is_ascii_digit())) {
                found.extend(n.parse::<u64>().ok().filter(|seq| format!("{seq:08}") == n));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn side_name(&self) -> String {
        match &self.tail {
            Some(tail) => format!(".{}_roll_{tail}.precursor", self.head),
            None => format!(".{}.precursor", self.head),
        }
    }

    /// The small file that holds the lock and the journalled position.
    pub(crate) fn sidecar(&self) -> PathBuf {
        self.dir.join(self.side_name())
    }

    /// Stem of the shared-memory files: a hash of the full path, so that one folder serves all.
    pub(crate) fn shm_stem(&self) -> String {
        let full = self.sidecar();
        // FNV-1a, 64 bits: names need to differ, not to resist an adversary; the token inside is what is checked.
        let hash = full
            .as_os_str()
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3));
        format!("precursor-{hash:016x}")
    }

    /// Opens file `seq` for reading and writing, creating it; a new file's name is made durable at once.
    pub(crate) fn open(&self, seq: u64) -> io::Result<File> {
        let path = self.path(seq);
        let fresh = !path.try_exists()?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        if fresh {
            self.sync_dir()?;
        }
        Ok(file)
    }

    /// Makes creations and removals in the folder durable. File systems that cannot (EINVAL on some network ones) order
    /// them themselves.
    pub(crate) fn sync_dir(&self) -> io::Result<()> {
        match File::open(&self.dir)?.sync_all() {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }
}

/// Removes a file if it is there.
pub(crate) fn remove_if_present(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

pub(crate) fn read_full(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|r| !r.is_empty()) {
        match file.read_at(rest, at + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// Whether the file holds nothing but zeros from there on.
pub(crate) fn zeros_from(file: &File, from: u64) -> io::Result<bool> {
    let (mut at, mut buffer) = (from, vec![0; 1 << 20]);
    loop {
        let got = read_full(file, &mut buffer, at)?;
        if got == 0 {
            return Ok(true);
        }
        if buffer.get(..got).is_none_or(|b| b.iter().any(|b| *b != 0)) {
            return Ok(false);
        }
        at += got as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn a_pattern_finds_its_own_files_only() {
        let dir = std::env::temp_dir().join(format!("precursor-names-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let names = Names::of(&dir.join("j-{}.log")).unwrap();
        for name in
            ["j-00000002.log", "j-00000010.log", "j-2.log", "j-00000003.log.gz", "k-00000004.log", "j-000000005.log"]
        {
            std::fs::write(dir.join(name), b"").unwrap();
        }
        assert_eq!(names.present().unwrap(), [2, 10]);
        assert_eq!(names.path(2).file_name().unwrap(), "j-00000002.log");
        assert!(Names::of(&dir.join("{}{}")).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}

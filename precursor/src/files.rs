//! Names of the data files of a path or pattern, and of the files beside them.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::fork::Locked;
use crate::frame::{self, FILE_HEADER_LEN, FileHeader, Format, Scan};
use crate::handles::Dir;
use crate::own::OwnFile;

/// Prefix of all shared-memory files of this library.
pub(crate) const STEM: &str = "precursor-";

/// Why a path cannot name a data file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NameError {
    #[error("directory {}: {error}", path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error("a path must end in a file name")]
    NoFile,
    #[error("the file name must be UTF-8")]
    NotUtf8,
    #[error("only one {{}} is allowed in the name")]
    TwoNumbers,
}

impl NameError {
    fn folder(path: &Path) -> impl FnOnce(io::Error) -> NameError {
        let path = path.to_owned();
        move |error| NameError::Folder { path, error }
    }
}

/// Error of a lock: another appender has the file open.
#[derive(Debug, thiserror::Error)]
#[error("another appender has the file open, perhaps under another name; close it first")]
struct InUse;

/// Error of creating a file whose name may not be durable.
#[derive(Debug, thiserror::Error)]
#[error("sync its directory: {0}")]
struct NameUnsynced(#[source] io::Error);

/// Whether the error means that another appender has a file open.
pub(crate) fn in_use(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<InUse>())
}

fn locked(file: File) -> io::Result<Locked> {
    let lock = Locked::new(file)?;
    if lock.try_lock_data()? { Ok(lock) } else { Err(io::Error::new(io::ErrorKind::WouldBlock, InUse)) }
}

/// The name of a single file, or a pattern with `{}` for the sequence number, in an open directory.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    given: PathBuf,
    dir: Arc<Dir>,
    head: String,
    /// Text after the number; `None` for a single file.
    tail: Option<String>,
}

impl Names {
    /// Splits a path from the user. Its file name must be UTF-8.
    pub(crate) fn of(given: &Path) -> Result<Names, NameError> {
        let dir = match given.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        let dir = Dir::named(dir).map_err(NameError::folder(dir))?;
        Names::within(dir, given)
    }

    /// Splits an absolute path from shared memory; no component may be a symbolic link.
    pub(crate) fn exactly(found: &Path) -> Result<Names, NameError> {
        let dir = found.parent().ok_or(NameError::NoFile)?;
        let dir = Dir::exactly(dir).map_err(NameError::folder(dir))?;
        Names::within(dir, found)
    }

    fn within(dir: Dir, given: &Path) -> Result<Names, NameError> {
        let name = given.file_name().ok_or(NameError::NoFile)?;
        let name = name.to_str().ok_or(NameError::NotUtf8)?;
        let (head, tail) = match name.split_once("{}") {
            Some((_, tail)) if tail.contains("{}") => return Err(NameError::TwoNumbers),
            Some((head, tail)) => (head.to_owned(), Some(tail.to_owned())),
            None => (name.to_owned(), None),
        };
        Ok(Names { given: given.to_owned(), dir: Arc::new(dir), head, tail })
    }

    pub(crate) fn given(&self) -> &Path {
        &self.given
    }

    /// The absolute path or pattern.
    pub(crate) fn full(&self) -> PathBuf {
        match &self.tail {
            Some(tail) => self.dir.join(&format!("{}{{}}{tail}", self.head)),
            None => self.dir.join(&self.head),
        }
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    pub(crate) fn rolls(&self) -> bool {
        self.tail.is_some()
    }

    /// Name of file number `seq`; a single file has number 0.
    pub(crate) fn name(&self, seq: u64) -> String {
        match &self.tail {
            Some(tail) => format!("{}{seq:08}{tail}", self.head),
            None => self.head.clone(),
        }
    }

    /// Path of file number `seq`, for messages.
    pub(crate) fn path(&self, seq: u64) -> PathBuf {
        self.dir.join(&self.name(seq))
    }

    /// Numbers of the existing files, ascending.
    pub(crate) fn present(&self) -> io::Result<Vec<u64>> {
        if !self.rolls() {
            return Ok(if self.dir.exists(&self.name(0))? { vec![0] } else { Vec::new() });
        }
        let mut found: Vec<u64> = self.dir.names()?.iter().filter_map(|name| self.number_in(name)).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// The number in the name of a file of the pattern; `None` for any other name.
    fn number_in(&self, name: &str) -> Option<u64> {
        let number = name.strip_prefix(self.head.as_str())?.strip_suffix(self.tail.as_deref()?)?;
        let digits = number.len() >= 8 && number.bytes().all(|b| b.is_ascii_digit());
        number.parse().ok().filter(|seq| digits && format!("{seq:08}") == number)
    }

    /// Name of the index of file `seq`.
    pub(crate) fn index_name(&self, seq: u64) -> String {
        format!(".{}.index", self.name(seq))
    }

    /// Removes the indexes of files before `seq` that were archived or removed.
    pub(crate) fn remove_indexes_without_file(&self, before: u64) -> io::Result<()> {
        for name in self.dir.names()? {
            let data = name.strip_prefix('.').and_then(|name| name.strip_suffix(".index"));
            let seq = data.and_then(|data| self.number_in(data)).filter(|seq| *seq < before);
            if let Some(seq) = seq.filter(|_| !self.dir.exists(data.unwrap_or_default()).unwrap_or(true)) {
                crate::index::remove(self, seq);
            }
        }
        Ok(())
    }

    /// Name of the sidecar, the small file with the lock and the journalled position.
    pub(crate) fn side_name(&self) -> String {
        match &self.tail {
            Some(tail) => format!(".{}_roll_{tail}.precursor", self.head),
            None => format!(".{}.precursor", self.head),
        }
    }

    /// Path of the sidecar, for messages.
    pub(crate) fn sidecar(&self) -> PathBuf {
        self.dir.join(&self.side_name())
    }

    /// Prefix of the shared-memory files of this path: a hash of the full path, so that one directory serves all
    /// appenders.
    pub(crate) fn shm_prefix(&self) -> String {
        let full = self.sidecar();
        // FNV-1a, 64 bits. Names must differ, not resist an attacker: owner, boot and token are checked.
        let hash = full
            .as_os_str()
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3));
        format!("{STEM}{hash:016x}")
    }

    /// Stem of one run's shared-memory files. `id` is random, so that other users cannot create the names first.
    pub(crate) fn shm_stem(&self, id: u64) -> String {
        format!("{}-{id:016x}", self.shm_prefix())
    }

    /// Opens file `seq`; fails if it does not exist.
    pub(crate) fn existing(&self, seq: u64) -> io::Result<File> {
        self.dir.data(&self.name(seq))?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Opens file `seq` for reading; fails if it does not exist.
    pub(crate) fn readable(&self, seq: u64) -> io::Result<File> {
        self.dir.readable(&self.name(seq))?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Opens file `seq` for reading and writing, or creates it and makes its name durable. A failed sync of the
    /// directory is never an error of a full disk, which callers would try again: the file then exists, and the kernel
    /// reports the failure only once.
    pub(crate) fn open(&self, seq: u64) -> io::Result<OwnFile> {
        let name = self.name(seq);
        loop {
            if let Some(file) = self.dir.data(&name)? {
                return OwnFile::new(file);
            }
            match self.dir.create_data(&name) {
                // Another process created it first; check it like any existing file.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                Ok(file) => {
                    let file = OwnFile::new(file)?;
                    self.sync_dir().map_err(|e| io::Error::other(NameUnsynced(e)))?;
                    return Ok(file);
                }
            }
        }
    }

    /// Locks file `seq`, which is open as `file`, against other appenders under any name.
    pub(crate) fn lock(&self, seq: u64, file: &OwnFile) -> io::Result<Locked> {
        let replaced = || io::Error::other("it was replaced while it was opened; try again");
        // A separate open file description: forked children keep copies of the one that the appender writes through.
        locked(self.dir.again(&self.name(seq), file.identity(), OFlags::empty()).ok_or_else(replaced)?)
    }

    /// Locks the existing files from number `from` on, or the last one without any.
    pub(crate) fn lock_from(&self, from: Option<u64>) -> io::Result<Vec<Locked>> {
        let present = self.present()?;
        let from = from.into_iter().chain(present.last().copied()).min();
        let later = present.into_iter().filter(|seq| from.is_some_and(|from| *seq >= from));
        later.map(|seq| self.existing(seq).and_then(locked)).collect()
    }

    /// Length of file `seq`, bytes; 0 if it does not exist.
    pub(crate) fn len(&self, seq: u64) -> io::Result<u64> {
        Ok(self.dir.stat(&self.name(seq))?.map_or(0, |entry| entry.len))
    }

    /// Removes file `seq` and its index.
    pub(crate) fn remove(&self, seq: u64) -> io::Result<()> {
        self.dir.remove(&self.name(seq))?;
        crate::index::remove(self, seq);
        Ok(())
    }

    pub(crate) fn sync_dir(&self) -> io::Result<()> {
        self.dir.sync()
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

/// A read buffer for `bytes` bytes, between 4 KiB and 1 MiB long.
fn buffer_for(bytes: u64) -> Vec<u8> {
    const LONGEST: usize = 1 << 20;
    vec![0; usize::try_from(bytes).map_or(LONGEST, |bytes| bytes.clamp(4096, LONGEST))]
}

/// Whether the file contains only zeros from `from` on.
pub(crate) fn zeros_from(file: &File, from: u64) -> io::Result<bool> {
    Ok(data_end(file, from)? == from)
}

/// End of the last byte that is not zero, at least `from`.
pub(crate) fn data_end(file: &File, from: u64) -> io::Result<u64> {
    let (mut at, mut end, mut buffer) = (from, from, buffer_for(file.metadata()?.len().saturating_sub(from)));
    loop {
        let got = read_full(file, &mut buffer, at)?;
        if got == 0 {
            return Ok(end);
        }
        if let Some(last) = buffer.get(..got).and_then(|bytes| bytes.iter().rposition(|byte| *byte != 0)) {
            end = at + last as u64 + 1;
        }
        at += got as u64;
    }
}

/// Header of a file of format 2; `None` if it has none that is whole.
pub(crate) fn header_of(file: &File) -> io::Result<Option<FileHeader>> {
    let mut bytes = [0; FILE_HEADER_LEN];
    let got = read_full(file, &mut bytes, 0)?;
    Ok(FileHeader::decode(bytes.get(..got).unwrap_or_default()).ok())
}

/// Result of reading frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// End of the run of valid frames, bytes of the file.
    pub(crate) end: u64,
    pub(crate) format: Format,
    /// Format 2: number of the record after the run; `None` if it is not known, because the run is empty.
    pub(crate) next: Option<u64>,
}

/// The run of valid frames that begins at `from`, or behind the file's header.
pub(crate) fn scan_frames(file: &File, from: u64) -> io::Result<Scanned> {
    let len = file.metadata()?.len();
    let header = header_of(file)?;
    let head = if header.is_some() { FILE_HEADER_LEN as u64 } else { 0 };
    let mut at = from.max(head);
    let mut scan = Scan {
        format: if header.is_some() { Format::Second } else { Format::First },
        // In the middle of a file any number may follow.
        next: header.filter(|_| from <= head).map(|header| header.first),
    };
    let mut buffer = buffer_for(len.saturating_sub(from));
    while at < len {
        let got = read_full(file, &mut buffer, at)?;
        let Some(bytes) = buffer.get(..got) else { break };
        let sound = scan.run_len(bytes);
        at += sound as u64;
        if sound > 0 {
            continue;
        }
        // No whole frame in the buffer: there is none, or it is longer than the buffer.
        let needed = bytes.first_chunk::<8>().map_or(0, |w| scan.format.claimed_len(u64::from_le_bytes(*w)));
        if needed <= buffer.len() || at.saturating_add(needed as u64) > len {
            break;
        }
        buffer.resize(needed, 0);
    }
    Ok(Scanned { end: at, format: scan.format, next: scan.next })
}

/// End of the run of records that begins at `from`, which the first filler ends too.
pub(crate) fn records_from(file: &File, from: u64) -> io::Result<u64> {
    let mut at = from;
    let mut scan = Scan { format: Format::Second, next: None };
    loop {
        let mut word = [0; frame::WORD];
        if read_full(file, &mut word, at)? < word.len() {
            return Ok(at);
        }
        let claimed = scan.format.claimed_len(u64::from_le_bytes(word));
        let fits = claimed > 0 && claimed as u64 <= file.metadata()?.len().saturating_sub(at);
        let mut whole = vec![0; if fits { claimed } else { 0 }];
        let got = read_full(file, &mut whole, at)?;
        match whole.get(..got).and_then(|bytes| scan.take(bytes)).filter(|found| found.payload.is_some()) {
            Some(found) => at += found.len as u64,
            None => return Ok(at),
        }
    }
}

/// Whether the file begins with a header, or with a whole, valid frame of format 1.
pub(crate) fn is_framed(file: &File) -> io::Result<bool> {
    if header_of(file)?.is_some() {
        return Ok(true);
    }
    let mut word = [0; frame::WORD];
    if read_full(file, &mut word, 0)? < word.len() {
        return Ok(false);
    }
    let claimed = Format::First.claimed_len(u64::from_le_bytes(word));
    if claimed == 0 || claimed as u64 > file.metadata()?.len() {
        return Ok(false);
    }
    let mut whole = vec![0; claimed];
    Ok(read_full(file, &mut whole, 0)? == claimed && Format::First.first(&whole).is_some())
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

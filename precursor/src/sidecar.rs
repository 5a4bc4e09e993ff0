//! The small file beside the data: the lock that keeps a second appender out, and the journalled position.
//!
//! Two slots, written in turn, each with a generation and a CRC: a torn write leaves the other.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::files::Names;

const MAGIC: &[u8; 8] = b"prcrsrS1";
const SLOT_BYTES: usize = 1024;
/// Slots lie in different 4 KiB blocks, so that one torn block cannot take both.
const SLOT_AT: [u64; 2] = [0, 4096];
const FIXED: usize = 58;

/// What a slot says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) token: u64,
    /// Number of the file in which the durable part ends.
    pub(crate) seq: u64,
    /// Length of the durable part in that file, bytes.
    pub(crate) len: u64,
    /// The file is longer than its data (window, prefetch).
    pub(crate) preallocated: bool,
    pub(crate) framed: bool,
    pub(crate) shm_dir: PathBuf,
}

impl Entry {
    fn encode(&self, generation: u64) -> Option<Vec<u8>> {
        let dir = self.shm_dir.as_os_str().as_bytes();
        let dir_len = u16::try_from(dir.len()).ok()?;
        let mut out = Vec::with_capacity(SLOT_BYTES);
        out.extend(MAGIC);
        for value in [generation, self.token, self.seq, self.len] {
            out.extend(value.to_le_bytes());
        }
        out.extend((u64::from(self.preallocated) | u64::from(self.framed) << 1).to_le_bytes());
        out.extend([0; 8]);
        out.extend(dir_len.to_le_bytes());
        out.extend(dir);
        let room = SLOT_BYTES - 4;
        if out.len() > room {
            return None;
        }
        out.resize(room, 0);
        out.extend(crc32fast::hash(&out).to_le_bytes());
        Some(out)
    }

    fn decode(slot: &[u8]) -> Option<(u64, Entry)> {
        let (body, crc) = slot.get(..SLOT_BYTES)?.split_last_chunk::<4>()?;
        if body.get(..8)? != MAGIC || crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
        let flags = number(40)?;
        let dir_len = usize::from(u16::from_le_bytes(body.get(56..FIXED)?.try_into().ok()?));
        let dir = body.get(FIXED..FIXED.checked_add(dir_len)?)?.to_vec();
        let entry = Entry {
            token: number(16)?,
            seq: number(24)?,
            len: number(32)?,
            preallocated: flags & 1 != 0,
            framed: flags & 2 != 0,
            shm_dir: PathBuf::from(std::ffi::OsString::from_vec(dir)),
        };
        Some((number(8)?, entry))
    }
}

/// The sidecar, held: as long as it lives, no other appender opens the same path.
#[derive(Debug)]
pub(crate) struct Sidecar {
    file: File,
    generation: u64,
}

/// Why a sidecar was not taken.
pub(crate) enum Taken {
    Ours(Sidecar),
    Busy,
}

impl Sidecar {
    /// Takes the lock, creating the file.
    pub(crate) fn take(names: &Names) -> io::Result<Taken> {
        let path = names.sidecar();
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Taken::Busy),
                Err(e) => return Err(e.into()),
            }
            // The holder removes the file as it closes: a lock on a removed file excludes nobody.
            if same_file(&file, &path)? {
                let generation = read_newest(&file)?.map_or(0, |(generation, _)| generation);
                return Ok(Taken::Ours(Sidecar { file, generation }));
            }
        }
    }

    /// Token of the newest entry, without taking the lock; none where there is no sidecar.
    pub(crate) fn token(names: &Names) -> Option<u64> {
        let file = File::open(names.sidecar()).ok()?;
        read_newest(&file).ok()?.map(|(_, entry)| entry.token)
    }

    /// The newest whole entry.
    pub(crate) fn entry(&self) -> io::Result<Option<Entry>> {
        Ok(read_newest(&self.file)?.map(|(_, entry)| entry))
    }

    /// Replaces the entry, durably.
    pub(crate) fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let generation = self.generation + 1;
        let slot = entry.encode(generation).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
        self.file.write_all_at(&slot, SLOT_AT[(generation % 2) as usize])?;
        self.file.sync_data()?;
        self.generation = generation;
        Ok(())
    }

    /// Removes it: the files have their exact lengths, and nothing beside them is needed.
    pub(crate) fn remove(self, names: &Names) -> io::Result<()> {
        crate::files::remove_if_present(&names.sidecar())
    }
}

fn same_file(file: &File, path: &std::path::Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let ours = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn read_newest(file: &File) -> io::Result<Option<(u64, Entry)>> {
    let mut newest: Option<(u64, Entry)> = None;
    for at in SLOT_AT {
        let mut slot = [0; SLOT_BYTES];
        match file.read_exact_at(&mut slot, at) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(e) => return Err(e),
        }
        if let Some(found) = Entry::decode(&slot).filter(|f| newest.as_ref().is_none_or(|n| f.0 > n.0)) {
            newest = Some(found);
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::{Entry, SLOT_AT, SLOT_BYTES, Sidecar, Taken};
    use crate::files::Names;
    use std::os::unix::fs::FileExt;

    fn entry(len: u64) -> Entry {
        Entry { token: 7, seq: 3, len, preallocated: true, framed: false, shm_dir: "/dev/shm".into() }
    }

    #[test]
    fn a_torn_slot_leaves_the_other_and_a_second_holder_is_refused() {
        let dir = std::env::temp_dir().join(format!("precursor-sidecar-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let names = Names::of(&dir.join("data")).unwrap();
        let Taken::Ours(mut side) = Sidecar::take(&names).unwrap() else { panic!("nobody holds it") };
        assert_eq!(side.entry().unwrap(), None);
        assert!(matches!(Sidecar::take(&names).unwrap(), Taken::Busy));
        for len in 1..=4 {
            side.write(&entry(len)).unwrap();
        }
        assert_eq!(side.entry().unwrap(), Some(entry(4)));
        for byte in [0, 20, SLOT_BYTES as u64 - 1] {
            let mut was = [0; 1];
            side.file.read_exact_at(&mut was, SLOT_AT[0] + byte).unwrap();
            side.file.write_all_at(&[was[0] ^ 1], SLOT_AT[0] + byte).unwrap();
            assert_eq!(side.entry().unwrap(), Some(entry(3)), "byte {byte} damaged");
            side.file.write_all_at(&was, SLOT_AT[0] + byte).unwrap();
        }
        side.remove(&names).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }
}

//! The sidecar: a small file beside the data that holds the lock against a second appender, and the journalled
//! position.
//!
//! It has two slots, written in turn, each with a generation and a CRC, so a torn write leaves the other slot valid.
//! Only its owner can read it, and only the owner's sidecar is trusted. Beside a pattern it stays after close: it alone
//! knows the position of the first existing file after older ones were archived.

use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::files::Names;
use crate::fork::Locked;

const MAGIC: &[u8; 8] = b"prcrsrS2";
/// Magic number of version 0.1, whose entries have no boot, base or shared-memory number.
const MAGIC_1: &[u8; 8] = b"prcrsrS1";
const SLOT_BYTES: usize = 1024;
/// The slots are in different 4 KiB blocks, so one torn block cannot destroy both.
const SLOT_AT: [u64; 2] = [0, 4096];
const FILE_BYTES: u64 = SLOT_AT[1] + SLOT_BYTES as u64;
/// Number of words after the magic. The boot (16 bytes) and the length of the directory's path (2 bytes) follow.
const WORDS: usize = 7;
const BOOT_AT: usize = 8 + 8 * WORDS;
const DIR_LEN_AT: usize = BOOT_AT + 16;

const PREALLOCATED: u64 = 1;
const FRAMED: u64 = 2;
const CLOSED: u64 = 4;
const BASED: u64 = 8;
const NUMBERED: u64 = 16;
/// The number of the next record, before the checksum.
const NUMBER_AT: usize = SLOT_BYTES - 12;

/// Contents of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) token: u64,
    /// Number of the file in which the durable data ends.
    pub(crate) seq: u64,
    /// Length of the durable data in that file, bytes.
    pub(crate) len: u64,
    /// Position of that file's first byte; `None` if unknown (written by version 0.1).
    pub(crate) base: Option<u64>,
    /// The writer has closed: the files have their exact lengths, and nothing is to be recovered.
    pub(crate) closed: bool,
    /// The file is longer than its data (window, prefetch).
    pub(crate) preallocated: bool,
    pub(crate) framed: bool,
    /// Number of the record at `len`, if it is known: of the next record, if the writer has closed.
    pub(crate) number: Option<u64>,
    /// Number in the names of the shared-memory files.
    pub(crate) shm_id: u64,
    /// Boot in which the entry was written; 0 if unknown.
    pub(crate) boot: u128,
    pub(crate) shm_dir: PathBuf,
}

fn number(body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(body.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A path stored as a length of two bytes and the bytes.
fn folder(body: &[u8], at: usize) -> Option<PathBuf> {
    let len = usize::from(u16::from_le_bytes(body.get(at..at.checked_add(2)?)?.try_into().ok()?));
    let from = at + 2;
    let dir = body.get(from..from.checked_add(len)?)?.to_vec();
    Some(PathBuf::from(std::ffi::OsString::from_vec(dir)))
}

impl Entry {
    fn flags(&self) -> u64 {
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        flag(self.preallocated, PREALLOCATED)
            | flag(self.framed, FRAMED)
            | flag(self.closed, CLOSED)
            | flag(self.base.is_some(), BASED)
            | flag(self.number.is_some(), NUMBERED)
    }

    pub(crate) fn encode(&self, generation: u64) -> Option<Vec<u8>> {
        let dir = self.shm_dir.as_os_str().as_bytes();
        let dir_len = u16::try_from(dir.len()).ok()?;
        let mut out = Vec::with_capacity(SLOT_BYTES);
        out.extend(MAGIC);
        let base = self.base.unwrap_or(0);
        for value in [generation, self.token, self.seq, self.len, self.flags(), base, self.shm_id] {
            out.extend(value.to_le_bytes());
        }
        out.extend(self.boot.to_le_bytes());
        out.extend(dir_len.to_le_bytes());
        out.extend(dir);
        let room = if self.number.is_some() { NUMBER_AT } else { SLOT_BYTES - 4 };
        if out.len() > room {
            return None;
        }
        out.resize(room, 0);
        out.extend(self.number.map(u64::to_le_bytes).into_iter().flatten());
        out.extend(crc32fast::hash(&out).to_le_bytes());
        Some(out)
    }

    /// Generation and contents of a slot; `None` if the slot is damaged.
    pub(crate) fn decode(slot: &[u8]) -> Option<(u64, Entry)> {
        let (body, crc) = slot.get(..SLOT_BYTES)?.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let first = body.get(..8)? == MAGIC_1;
        if !first && body.get(..8)? != MAGIC {
            return None;
        }
        let flags = number(body, 40)?;
        let numbered = flags & NUMBERED != 0 && !first;
        let boot = body.get(BOOT_AT..DIR_LEN_AT)?.try_into().ok()?;
        let entry = Entry {
            token: number(body, 16)?,
            seq: number(body, 24)?,
            len: number(body, 32)?,
            base: if flags & BASED != 0 && !first { Some(number(body, 48)?) } else { None },
            closed: flags & CLOSED != 0 && !first,
            preallocated: flags & PREALLOCATED != 0,
            framed: flags & FRAMED != 0,
            number: if numbered { Some(number(body, NUMBER_AT)?) } else { None },
            shm_id: if first { 0 } else { number(body, 56)? },
            boot: if first { 0 } else { u128::from_le_bytes(boot) },
            // Entries of version 0.1 do not name their shared memory, so it is not used; their longest path would not
            // fit either.
            shm_dir: if first {
                PathBuf::new()
            } else {
                folder(if numbered { body.get(..NUMBER_AT)? } else { body }, DIR_LEN_AT)?
            },
        };
        Some((number(body, 8)?, entry))
    }
}

/// An open sidecar. While it lives, no other appender opens the same path.
#[derive(Debug)]
pub(crate) struct Sidecar {
    lock: Locked,
    generation: u64,
    /// File number in the newest entry.
    pub(crate) seq: u64,
}

/// Result of taking a sidecar's lock.
pub(crate) enum Taken {
    Ours(Sidecar),
    Busy,
}

impl Sidecar {
    /// Takes the lock; creates the file if necessary.
    pub(crate) fn take(names: &Names) -> io::Result<Taken> {
        let (dir, name) = (names.dir(), names.side_name());
        loop {
            let file = match dir.private(&name)? {
                Some(file) => file,
                None => match dir.create(&name) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                    other => other?,
                },
            };
            let lock = Locked::new(file)?;
            // The second lock is the only one that an appender in Java can take.
            if !lock.try_lock()? || !lock.try_lock_data()? {
                return Ok(Taken::Busy);
            }
            // The previous holder may have removed the file while closing; a lock on a removed file excludes
            // no other process.
            let identity = dir.stat(&name)?.map(|entry| entry.identity);
            if identity == Some(lock.file().identity()) {
                // Best effort: allocate both slots now, so that the last entry can be written on a full disk.
                let _ = crate::sys::allocate(lock.file().get()?, 0, FILE_BYTES, true);
                let newest = read_newest(lock.file().get()?)?;
                let (generation, seq) = newest.map_or((0, u64::MAX), |(generation, entry)| (generation, entry.seq));
                return Ok(Taken::Ours(Sidecar { lock, generation, seq }));
            }
        }
    }

    /// The newest entry of this user's sidecar, without the lock; `None` if there is none.
    pub(crate) fn peek(names: &Names) -> Option<Entry> {
        let file = names.dir().private(&names.side_name()).ok()??;
        read_newest(&file).ok()?.map(|(_, entry)| entry)
    }

    /// The newest valid entry.
    pub(crate) fn entry(&self) -> io::Result<Option<Entry>> {
        Ok(read_newest(self.lock.file().get()?)?.map(|(_, entry)| entry))
    }

    /// Writes the next entry, durably.
    pub(crate) fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let generation = self.generation + 1;
        let slot = entry.encode(generation).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
        self.lock.file().write_all_at(&slot, SLOT_AT[(generation % 2) as usize])?;
        self.lock.file().sync_data()?;
        (self.generation, self.seq) = (generation, entry.seq);
        Ok(())
    }

    /// Removes the file, durably. Only for a file that has its exact length.
    pub(crate) fn remove(self, names: &Names) -> io::Result<()> {
        names.dir().remove(&names.side_name())?;
        names.sync_dir()
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
    use std::path::PathBuf;

    fn entry(len: u64) -> Entry {
        let base = Some(1 << 40);
        let shm_dir = "/dev/shm".into();
        let (preallocated, framed, closed) = (true, false, false);
        let (number, boot) = (Some(11), 1 << 100);
        Entry { token: 7, seq: 3, len, base, closed, preallocated, framed, number, shm_id: 9, boot, shm_dir }
    }

    #[test]
    fn a_torn_slot_leaves_the_other_and_a_second_holder_is_refused() {
        let dir = std::env::temp_dir().join(format!("precursor-sidecar-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let names = Names::of(&dir.join("data")).unwrap();
        let Taken::Ours(mut side) = Sidecar::take(&names).unwrap() else { panic!("the lock is free") };
        assert_eq!(side.entry().unwrap(), None);
        assert!(matches!(Sidecar::take(&names).unwrap(), Taken::Busy));
        for len in 1..=4 {
            side.write(&entry(len)).unwrap();
        }
        assert_eq!(side.entry().unwrap(), Some(entry(4)));
        for byte in [0, 20, SLOT_BYTES as u64 - 1] {
            let mut was = [0; 1];
            side.lock.file().get().unwrap().read_exact_at(&mut was, SLOT_AT[0] + byte).unwrap();
            side.lock.file().write_all_at(&[was[0] ^ 1], SLOT_AT[0] + byte).unwrap();
            assert_eq!(side.entry().unwrap(), Some(entry(3)), "byte {byte} damaged");
            side.lock.file().write_all_at(&was, SLOT_AT[0] + byte).unwrap();
        }
        side.remove(&names).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// An entry of version 0.1 is read; fields that it lacks are unknown.
    #[test]
    fn an_entry_of_the_first_version_is_read() {
        let mut slot = super::MAGIC_1.to_vec();
        // Generation, token, file, length, flags, unused.
        for value in [5u64, 7, 3, 4096, 1, 0] {
            slot.extend(value.to_le_bytes());
        }
        slot.extend(8u16.to_le_bytes());
        slot.extend(b"/dev/shm");
        slot.resize(SLOT_BYTES - 4, 0);
        slot.extend(crc32fast::hash(&slot).to_le_bytes());
        let (generation, found) = Entry::decode(&slot).unwrap();
        assert_eq!(generation, 5);
        assert_eq!(
            found,
            Entry { base: None, number: None, shm_id: 0, boot: 0, shm_dir: PathBuf::new(), ..entry(4096) }
        );
    }
}

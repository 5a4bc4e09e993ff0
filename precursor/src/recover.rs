//! Finds the end of the data that a dead writer left, and cuts the file to its exact length.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::claim;
use crate::error::RecoverError;
use crate::files::{NameError, Names, Scanned, header_of, read_full, scan_frames, zeros_from};
use crate::frame::{self, Format};
use crate::handles::{Dir, unfit};
use crate::live::{LiveMap, remove_shm};
use crate::replay::replay;
use crate::resync::{rewrite_from, sync_from};
use crate::sidecar::{Entry, Sidecar, Taken};

/// How the end of the data was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// From the file's length: it was closed, or never written by this library.
    Length,
    /// From the live block in shared memory: the process died and the machine did not. Exact; each accepted byte is
    /// there.
    Live,
    /// From the frames: the machine died, or the live block was removed. Each durable byte is there, and later records
    /// that were whole.
    Frames,
    /// From the position journalled at the last `sync_to`: exactly the durable bytes.
    Journalled,
    /// From the file's length: the file is neither framed nor preallocated, and the live block is gone. Each durable
    /// byte is there; later bytes are what the file system kept. Also after a sync has failed: the later bytes were
    /// read, written again and synced, but whether the device holds them correctly is not known, and no later sync
    /// proves it.
    Unproven,
}

/// Result of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The file in which the data ends; `None` without a file.
    pub path: Option<PathBuf>,
    /// Exact length of that file now, bytes.
    pub len: u64,
    /// How the end was found.
    pub evidence: Evidence,
    /// Bytes that were only in the ring and have been written to the file.
    pub replayed_bytes: u64,
    /// Files with data after a gap, renamed to `NAME.torn`. Nothing in them was durable.
    pub set_aside: Vec<PathBuf>,
    /// Bytes cut off after the end: preallocated space, a torn record, or bytes that were never accepted.
    pub cut_bytes: u64,
}

impl Recovered {
    /// What recovery did, for people; `None` if there was nothing to recover.
    pub(crate) fn sentence(&self) -> Option<String> {
        let from = match self.evidence {
            Evidence::Length => return None,
            Evidence::Live => "its shared memory: every accepted byte is there",
            Evidence::Frames => "its frames: every durable byte is there, and later records that were whole",
            Evidence::Journalled => "the journalled position: every durable byte is there, and nothing after it",
            Evidence::Unproven => "the file's length: every durable byte is there, later bytes are not proven",
        };
        let (replayed, cut) = (self.replayed_bytes, self.cut_bytes);
        Some(format!(
            "recovered after its last writer's death, from {from} ({replayed} bytes written from the ring, {cut} cut off)"
        ))
    }
}

/// End of the data, and the base of the last file.
pub(crate) struct Ended {
    pub(crate) recovered: Recovered,
    /// Number of the file in which the data ends, or of the next file to create.
    pub(crate) seq: u64,
    /// Position of that file's first byte.
    pub(crate) base: u64,
    /// Number of the next record; `None` if no file has numbers and the sidecar does not know.
    pub(crate) number: Option<u64>,
}

impl Ended {
    /// The sidecar's entry when nothing is left to recover.
    pub(crate) fn entry(&self, was: &Entry) -> Entry {
        let (seq, len, base) = (self.seq, self.recovered.len, Some(self.base));
        let (number, boot) = (self.number, crate::probe::boot_id());
        Entry { seq, len, base, closed: true, number, boot, ..was.clone() }
    }
}

/// Recovers a file or pattern. Afterwards its files have their exact lengths, durably, and only a pattern's sidecar,
/// which knows the positions, remains beside them. Running it again changes nothing.
///
/// Only files of this process's user are trusted: sidecar, live block and rings; the live block must also be from this
/// boot. Root recovers only root's files.
pub fn recover(path: impl AsRef<Path>) -> Result<Recovered, RecoverError> {
    let path = path.as_ref();
    let foreign = |error: NameError| RecoverError::Foreign { path: path.to_owned(), problem: error.to_string() };
    recover_names(&Names::of(path).map_err(foreign)?)
}

pub(crate) fn recover_names(names: &Names) -> Result<Recovered, RecoverError> {
    if !names.dir().exists(&names.side_name()).map_err(RecoverError::io("look for", &names.sidecar()))? {
        return Ok(by_length(names, None)?.recovered);
    }
    match Sidecar::take(names).map_err(RecoverError::io("lock", &names.sidecar()))? {
        Taken::Busy => Err(RecoverError::Busy { path: names.given().to_owned() }),
        Taken::Ours(mut side) => {
            let was = side.entry().map_err(RecoverError::io("read", &names.sidecar()))?;
            let journalled = was.as_ref().map(|entry| entry.seq);
            let _locks = names.lock_from(journalled).map_err(RecoverError::io("lock a file of", names.given()))?;
            let ended = recover_locked(names, &mut side)?;
            match was.filter(|_| names.rolls()) {
                Some(was) if was.closed => {}
                Some(was) => {
                    side.write(&ended.entry(&was)).map_err(RecoverError::io("write", &names.sidecar()))?;
                }
                None => side.remove(names).map_err(RecoverError::io("remove", &names.sidecar()))?,
            }
            Ok(ended.recovered)
        }
    }
}

/// Recovers while the caller holds the sidecar's lock; keeps the sidecar.
pub(crate) fn recover_locked(names: &Names, side: &mut Sidecar) -> Result<Ended, RecoverError> {
    let Some(entry) = side.entry().map_err(RecoverError::io("read", &names.sidecar()))? else {
        return by_length(names, None);
    };
    let stem = names.shm_stem(entry.shm_id);
    let shm = match Dir::exactly(&entry.shm_dir) {
        // Removed with the container or the machine, or the writer had none.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => None,
        other => Some(other.map_err(RecoverError::io("open", &entry.shm_dir))?),
    };
    let clear = |shm: &Dir| remove_shm(shm, &stem).map_err(RecoverError::io("remove", &entry.shm_dir));
    if entry.closed {
        // The writer was killed, or the power was cut, after it had finished and before everything was removed.
        shm.as_ref().map_or(Ok(()), clear)?;
        return by_length(names, Some(&entry));
    }
    let ended = match shm.as_ref().map(|shm| (shm, found_in(shm, &stem, &entry))) {
        Some((shm, Ok(Some(live)))) => {
            let mut ended = from_live(names, &entry, &live, shm, &stem)?;
            if let Some(from) = live.distrusted() {
                rewrite_from(names, ended.seq, ended.base, from)?;
                ended.recovered.evidence = Evidence::Unproven;
            }
            // The kernel reports a write-back error only once, so the live block must record it for the next attempt.
            sync_from(names, entry.seq).inspect_err(|_| live.distrust(0))?;
            ended
        }
        Some((_, Err(e))) => return Err(RecoverError::io("map", &entry.shm_dir)(e)),
        Some((_, Ok(None))) | None => {
            let ended = from_disk(names, &entry)?;
            sync_from(names, entry.seq)?;
            ended
        }
    };
    // Before the live block is removed: then the journalled position is the end, and must not be the old one.
    let (seq, len, base) = (ended.seq, ended.recovered.len, Some(ended.base));
    let journalled = Entry { seq, len, base, number: ended.number, ..entry.clone() };
    side.write(&journalled).map_err(RecoverError::io("write", &names.sidecar()))?;
    // Last: until everything is on the device, a recovery after a second crash needs the live block and the rings.
    shm.as_ref().map_or(Ok(()), clear)?;
    Ok(ended)
}

/// The live block of the run that wrote `entry`. Ignores one of another user, run or boot.
fn found_in(shm: &Dir, stem: &str, entry: &Entry) -> io::Result<Option<LiveMap>> {
    match LiveMap::find(shm, stem) {
        Err(e) if unfit(&e).is_some() => Ok(None),
        other => Ok(other?.filter(|live| live.belongs_to(entry))),
    }
}

/// The files' own lengths, without anything to recover; positions continue from the sidecar's entry.
fn by_length(names: &Names, entry: Option<&Entry>) -> Result<Ended, RecoverError> {
    let present = names.present().map_err(RecoverError::io("list", names.dir().path()))?;
    let Some(&last) = present.last() else { return Ok(all_gone(names, entry)) };
    if let Some(entry) = entry.filter(|entry| entry.seq > last) {
        return Ok(all_gone(names, Some(entry)));
    }
    let path = names.path(last);
    let len = names.existing(last).and_then(|file| Ok(file.metadata()?.len()));
    let len = len.map_err(RecoverError::io("look at", &path))?;
    let base = base_of(names, entry, &present, last)?;
    let number = next_number(names, entry, last)?;
    Ok(Ended { recovered: nothing_done(Some(path), len), seq: last, base, number })
}

/// No file from the journalled one on exists: they were archived, and positions continue after them.
fn all_gone(names: &Names, entry: Option<&Entry>) -> Ended {
    let known =
        entry.filter(|_| names.rolls()).and_then(|e| Some((e.seq.checked_add(1)?, e.base?.saturating_add(e.len))));
    let (seq, base) = known.unwrap_or((0, 0));
    Ended { recovered: nothing_done(None, 0), seq, base, number: entry.and_then(|e| e.number) }
}

fn nothing_done(path: Option<PathBuf>, len: u64) -> Recovered {
    Recovered { path, len, evidence: Evidence::Length, replayed_bytes: 0, set_aside: Vec::new(), cut_bytes: 0 }
}

/// Number of the record after those in file `seq`. An empty file continues the one before.
fn next_number(names: &Names, entry: Option<&Entry>, seq: u64) -> Result<Option<u64>, RecoverError> {
    let present = names.present().map_err(RecoverError::io("list", names.dir().path()))?;
    for seq in present.into_iter().rev().filter(|n| *n <= seq) {
        let header = names.existing(seq).and_then(|file| header_of(&file));
        match header.map_err(RecoverError::io("read", &names.path(seq)))? {
            Some(_) => return Ok(sound_end(names, seq, 0)?.next),
            None if names.len(seq).map_err(RecoverError::io("look at", &names.path(seq)))? > 0 => break,
            None => {}
        }
    }
    Ok(entry.and_then(|e| e.number))
}

/// Position of the first byte of file `seq`: from its header, or counted from the journalled file, or from the first
/// existing one.
fn base_of(names: &Names, entry: Option<&Entry>, present: &[u64], seq: u64) -> Result<u64, RecoverError> {
    let header = names.existing(seq).and_then(|file| header_of(&file));
    if let Some(header) = header.map_err(RecoverError::io("read", &names.path(seq)))?.filter(|h| h.seq == seq) {
        return Ok(header.base);
    }
    let (mut base, from) = match entry.filter(|e| e.seq <= seq).and_then(|e| Some((e, e.base?))) {
        Some((e, base)) if present.contains(&e.seq) => (base, e.seq),
        Some((e, base)) => (base.saturating_add(e.len), e.seq),
        None => (0, 0),
    };
    for before in present.iter().copied().filter(|n| (from..seq).contains(n)) {
        let len = names.len(before).map_err(RecoverError::io("look at", &names.path(before)))?;
        base = base.saturating_add(len);
    }
    Ok(base)
}

fn from_live(names: &Names, entry: &Entry, live: &LiveMap, shm: &Dir, stem: &str) -> Result<Ended, RecoverError> {
    let foreign = |problem: &str| RecoverError::Foreign { path: entry.shm_dir.clone(), problem: problem.to_owned() };
    let (mut seq, mut base) = live.file();
    let mut end = live.position.0.load(Ordering::Acquire);
    // Checked before anything is written.
    let least = least_of(entry, seq);
    let most = if live.many() { claim::end(&live.reserved.0) } else { end };
    if seq < entry.seq || most.checked_sub(base).is_none_or(|len| len < least) {
        return Err(foreign("the live block ends before the journalled durable position; nothing was changed"));
    }
    if seq != 0 && !names.rolls() {
        return Err(foreign("the live block names several files, but the path is a single file; nothing was changed"));
    }
    let mut replayed_bytes = 0;
    if live.ring_count.load(Ordering::Acquire) > 0 {
        let done = replay(names, shm, stem, live, least).map_err(|e| {
            let full = "no space left; free some and recover again, the ring keeps its bytes until then";
            let shown = if crate::space::is_full(&e) { io::Error::new(io::ErrorKind::StorageFull, full) } else { e };
            RecoverError::io("replay the ring into", names.given())(shown)
        })?;
        (seq, base, end, replayed_bytes) = (done.seq, done.base, done.end, done.bytes);
    }
    let mut len = end.checked_sub(base).ok_or_else(|| foreign("the live block contradicts itself"))?;
    if entry.framed && live.format() == Format::Second && live.distrusted().is_none() {
        len = with_unacknowledged(names, seq, len)?;
    }
    if let Some(durable) = live.distrusted() {
        len = remaining(names, entry, seq, len, durable.saturating_sub(base))?;
    }
    let mut cut_bytes = cut(names, entry, seq, len)?;
    // The writer may have died after leaving a preallocated file and before the helper cut it.
    if let Some((before, start)) = live.file_before().filter(|_| entry.preallocated && names.rolls()) {
        let len = base.checked_sub(start).ok_or_else(|| foreign("the live block contradicts itself"))?;
        let exists = names.dir().exists(&names.name(before));
        let exists = exists.map_err(RecoverError::io("look for", &names.path(before)))?;
        cut_bytes += if exists && before < seq { cut(names, entry, before, len)? } else { 0 };
    }
    let prepared = live.preparing.load(Ordering::Acquire).checked_sub(1);
    let prepared = prepared.filter(|next| *next > seq && names.rolls());
    if let Some(next) = prepared {
        names.remove(next).map_err(RecoverError::io("remove", &names.path(next)))?;
    }
    let path = Some(names.path(seq));
    let evidence = Evidence::Live;
    let recovered = Recovered { path, len, evidence, replayed_bytes, set_aside: Vec::new(), cut_bytes };
    let number = next_number(names, Some(entry), seq)?;
    Ok(Ended { recovered, seq, base, number })
}

/// Length of the data with the records that were stored whole and whose position was not: a reader of the file may have
/// seen them. Not with an end mark: the next file had not begun.
fn with_unacknowledged(names: &Names, seq: u64, len: u64) -> Result<u64, RecoverError> {
    let scanned = names.existing(seq).and_then(|file| crate::files::records_from(&file, len));
    scanned.map_err(RecoverError::io("read", &names.path(seq)))
}

/// Length of the journalled durable data in file `seq`; in a later file no byte is known to be durable.
fn least_of(entry: &Entry, seq: u64) -> u64 {
    if seq == entry.seq { entry.len } else { 0 }
}

/// What remains of `len` bytes after the file system has failed: it may have lost the end of the file, or frames before
/// it, but not the first `durable` bytes. Later frames could not be read past one that is not whole.
fn remaining(names: &Names, entry: &Entry, seq: u64, len: u64, durable: u64) -> Result<u64, RecoverError> {
    let (path, least) = (names.path(seq), least_of(entry, seq));
    let file_len = names.len(seq).map_err(RecoverError::io("look at", &path))?;
    if file_len < least.max(durable) {
        // `cut` refuses this file.
        return Ok(len);
    }
    if !entry.framed {
        return Ok(len.min(file_len));
    }
    let scanned = sound_end(names, seq, least)?;
    let sound = scanned.end;
    // A sync may have ended within a frame. A frame that is damaged although it was durable is left to the reader.
    let mut word = [0; frame::WORD];
    let read = names.existing(seq).and_then(|file| read_full(&file, &mut word, sound));
    read.map_err(RecoverError::io("read", &path))?;
    let claimed = scanned.format.claimed_len(u64::from_le_bytes(word)) as u64;
    Ok(len.min(if sound + claimed < durable { file_len } else { sound }))
}

/// After the machine died: from the journalled position on, by the contents of the files.
fn from_disk(names: &Names, entry: &Entry) -> Result<Ended, RecoverError> {
    let present = names.present().map_err(RecoverError::io("list", names.dir().path()))?;
    let later: Vec<u64> = present.iter().copied().filter(|seq| *seq >= entry.seq).collect();
    let Some(&first) = later.first() else { return by_length(names, Some(entry)) };
    let (mut seq, mut len) = (first, if first == entry.seq { entry.len } else { 0 });
    let (mut evidence, mut left_cut) = (Evidence::Journalled, 0);
    if entry.framed {
        evidence = Evidence::Frames;
        len = sound_end(names, seq, len)?.end;
        // The next file continues this one only if this one is complete; otherwise records between them are missing.
        for next in later.iter().copied().skip(1) {
            if !ends_with_mark(names, seq, len)? {
                break;
            }
            left_cut += cut(names, entry, seq, len)?;
            (seq, len) = (next, sound_end(names, next, 0)?.end);
        }
    } else if !entry.preallocated {
        evidence = Evidence::Unproven;
        seq = later.last().copied().unwrap_or(seq);
        len = names.len(seq).map_err(RecoverError::io("look at", &names.path(seq)))?;
    }
    let cut_bytes = left_cut + cut(names, entry, seq, len)?;
    let mut set_aside = Vec::new();
    for next in later.into_iter().filter(|next| *next > seq) {
        set_aside.extend(clear_away(names, next)?);
    }
    let path = Some(names.path(seq));
    let recovered = Recovered { path, len, evidence, replayed_bytes: 0, set_aside, cut_bytes };
    let base = base_of(names, Some(entry), &present, seq)?;
    let number = next_number(names, Some(entry), seq)?;
    Ok(Ended { recovered, seq, base, number })
}

/// Cuts a file to its exact length, but never below the journalled durable length. Returns the number of bytes cut off.
fn cut(names: &Names, entry: &Entry, seq: u64, len: u64) -> Result<u64, RecoverError> {
    let path = names.path(seq);
    let work = || -> io::Result<u64> {
        let file = names.existing(seq)?;
        let was = file.metadata()?.len();
        // Never extended: a file shorter than its data has lost bytes, and zeros would hide that.
        if was < len {
            let message = format!("it has {was} bytes instead of {len}: it was cut or replaced");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if seq == entry.seq && len < entry.len && was > len {
            let message = format!("its end was found at {len}, but {} bytes are durable; nothing was cut", entry.len);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        file.set_len(len)?;
        Ok(was - len)
    };
    work().map_err(RecoverError::io("cut", &path))
}

/// End of the valid frames from offset `from` on.
fn sound_end(names: &Names, seq: u64, from: u64) -> Result<Scanned, RecoverError> {
    let scanned = names.existing(seq).and_then(|file| scan_frames(&file, from));
    scanned.map_err(RecoverError::io("read", &names.path(seq)))
}

fn ends_with_mark(names: &Names, seq: u64, len: u64) -> Result<bool, RecoverError> {
    let path = names.path(seq);
    let look = || -> io::Result<bool> {
        let mut last = [0; frame::END_MARK_LEN];
        let Some(at) = len.checked_sub(last.len() as u64) else { return Ok(false) };
        names.existing(seq)?.read_exact_at(&mut last, at)?;
        Ok(frame::is_end_mark(&last))
    };
    look().map_err(RecoverError::io("read", &path))
}

/// Removes a file that was prepared for a roll, which contains only zeros. Renames any other file for a person to look
/// at.
fn clear_away(names: &Names, seq: u64) -> Result<Option<PathBuf>, RecoverError> {
    let path = names.path(seq);
    let only_zeros = names.existing(seq).and_then(|file| zeros_from(&file, 0));
    if only_zeros.map_err(RecoverError::io("read", &path))? {
        names.remove(seq).map_err(RecoverError::io("remove", &path))?;
        return Ok(None);
    }
    let aside = format!("{}.torn", names.name(seq));
    names.dir().rename(&names.name(seq), &aside).map_err(RecoverError::io("set aside", &path))?;
    Ok(Some(names.dir().join(&aside)))
}

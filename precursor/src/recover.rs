//! Finds the true end of data that a dead writer left, and gives the file its exact length.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::error::RecoverError;
use crate::files::{Names, read_full, zeros_from};
use crate::frame;
use crate::live::{LiveMap, remove_shm};
use crate::replay::replay;
use crate::resync::{rewrite_from, sync_from};
use crate::sidecar::{Entry, Sidecar, Taken};

/// From what the end was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing lay beside the file: it was closed, or never written by this library. Its length is its end.
    Length,
    /// The live block in shared memory: the process died, the machine did not. Exact: every accepted byte is there.
    Live,
    /// The frames themselves: the machine died, or the live block was removed. Every durable byte is there, and what else
    /// was whole.
    Frames,
    /// The position journalled at the last `sync_to`: every durable byte, and nothing after it.
    Journalled,
    /// Not framed, not preallocated, and the live block is gone: the file's length. Every durable byte is there; bytes after
    /// the last `sync_to` are whatever the file system kept. Also after a sync had failed: the bytes after the last durable one
    /// were read back and written again, and synced; whether the device holds them right is not known, and no later sync says so.
    Unproven,
}

/// What recovery found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The file in which the data ends; `None`: there is no file.
    pub path: Option<PathBuf>,
    /// Its exact length now, bytes.
    pub len: u64,
    /// From what it was found.
    pub evidence: Evidence,
    /// Bytes that were in the ring only and have been written to the file.
    pub replayed_bytes: u64,
    /// Files that hold data from beyond a gap, renamed with `.torn` added: nothing in them was durable.
    pub set_aside: Vec<PathBuf>,
    /// Bytes cut off behind the end: preallocation, a torn record, what was never accepted.
    pub cut_bytes: u64,
}

impl Recovered {
    /// What was done about a dead writer's file, if there was one.
    pub(crate) fn sentence(&self) -> Option<String> {
        let from = match self.evidence {
            Evidence::Length => return None,
            Evidence::Live => "its shared memory: every accepted byte is there",
            Evidence::Frames => "its frames: every durable byte is there, and what else was whole",
            Evidence::Journalled => "the journalled position: every durable byte is there, and nothing after it",
            Evidence::Unproven => "the file's length: every durable byte is there, what follows is not proven",
        };
        let (replayed, cut) = (self.replayed_bytes, self.cut_bytes);
        Some(format!(
            "recovered after its last writer's death, from {from} ({replayed} bytes written from the ring, {cut} cut off)"
        ))
    }
}

/// Recovers a file or pattern. Afterwards its files have their exact lengths, durably, and nothing lies beside them. Running it
/// twice, or where nothing is to be done, changes nothing.
pub fn recover(path: impl AsRef<Path>) -> Result<Recovered, RecoverError> {
    let path = path.as_ref();
    let names = Names::of(path).map_err(|problem| RecoverError::Foreign { path: path.to_owned(), problem })?;
    if !names.sidecar().try_exists().map_err(RecoverError::io("look for", &names.sidecar()))? {
        return by_length(&names);
    }
    match Sidecar::take(&names).map_err(RecoverError::io("lock", &names.sidecar()))? {
        Taken::Busy => Err(RecoverError::Busy { path: path.to_owned() }),
        Taken::Ours(mut side) => {
            let found = recover_held(&names, &mut side)?;
            side.remove(&names).map_err(RecoverError::io("remove", &names.sidecar()))?;
            Ok(found)
        }
    }
}

/// Recovers under a lock already held, leaving the sidecar.
pub(crate) fn recover_held(names: &Names, side: &mut Sidecar) -> Result<Recovered, RecoverError> {
    let Some(entry) = side.entry().map_err(RecoverError::io("read", &names.sidecar()))? else {
        return by_length(names);
    };
    let stem = names.shm_stem();
    let live = LiveMap::find(&entry.shm_dir, &stem, entry.token).map_err(RecoverError::io("map", &entry.shm_dir))?;
    let (seq, found) = match live {
        Some(live) => {
            let (seq, mut found) = from_live(names, &entry, &live)?;
            if let Some(from) = live.distrusted() {
                rewrite_from(names, seq, live.file().1, from)?;
                found.evidence = Evidence::Unproven;
            }
            // An error of write-back is told once; the next attempt must know of it.
            sync_from(names, entry.seq).inspect_err(|_| live.distrust(0))?;
            (seq, found)
        }
        None => {
            let found = from_disk(names, &entry)?;
            sync_from(names, entry.seq)?;
            found
        }
    };
    // Before the live block goes: without it the journalled position is the end, and it must not be the old one.
    let journalled = Entry { seq, len: found.len, ..entry.clone() };
    side.write(&journalled).map_err(RecoverError::io("write", &names.sidecar()))?;
    // Last: until everything is on the device, a second crash must find what this run found.
    remove_shm(&entry.shm_dir, &stem).map_err(RecoverError::io("remove", &entry.shm_dir))?;
    Ok(found)
}

fn by_length(names: &Names) -> Result<Recovered, RecoverError> {
    let last = names.present().map_err(RecoverError::io("list", names.dir()))?.last().copied();
    let path = last.map(|seq| names.path(seq));
    let len = match &path {
        Some(path) => std::fs::metadata(path).map_err(RecoverError::io("look at", path))?.len(),
        None => 0,
    };
    Ok(Recovered { path, len, evidence: Evidence::Length, replayed_bytes: 0, set_aside: Vec::new(), cut_bytes: 0 })
}

fn from_live(names: &Names, entry: &Entry, live: &LiveMap) -> Result<(u64, Recovered), RecoverError> {
    let foreign = |problem: &str| RecoverError::Foreign { path: entry.shm_dir.clone(), problem: problem.to_owned() };
    let (mut seq, mut base) = live.file();
    let mut end = live.position.0.load(Ordering::Acquire);
    let mut replayed_bytes = 0;
    if live.ring_count.load(Ordering::Acquire) > 0 {
        let done = replay(names, entry, live).map_err(|e| {
            let full = "no space left; free some and recover again, the ring keeps its bytes until then";
            let told = if crate::space::is_full(&e) { io::Error::new(io::ErrorKind::StorageFull, full) } else { e };
            RecoverError::io("replay the ring into", names.given())(told)
        })?;
        (seq, base, end, replayed_bytes) = (done.seq, done.base, done.end, done.bytes);
    }
    let len = end.checked_sub(base).ok_or_else(|| foreign("the live block contradicts itself"))?;
    let mut cut_bytes = cut(names, seq, len)?;
    // The writer may have died after it had left a preallocated file and before the helper had cut it.
    if let Some((before, start)) = live.file_before().filter(|_| entry.preallocated) {
        let len = base.checked_sub(start).ok_or_else(|| foreign("the live block contradicts itself"))?;
        let there = names.path(before).try_exists().map_err(RecoverError::io("look for", &names.path(before)))?;
        cut_bytes += if there && before < seq { cut(names, before, len)? } else { 0 };
    }
    let prepared = live.preparing.load(Ordering::Acquire).checked_sub(1).filter(|next| *next > seq);
    if let Some(next) = prepared {
        let path = names.path(next);
        crate::files::remove_if_present(&path).map_err(RecoverError::io("remove", &path))?;
    }
    let found = Recovered {
        path: Some(names.path(seq)),
        len,
        evidence: Evidence::Live,
        replayed_bytes,
        set_aside: Vec::new(),
        cut_bytes,
    };
    Ok((seq, found))
}

/// After the machine's death: from the journalled position on, by what the files themselves say.
fn from_disk(names: &Names, entry: &Entry) -> Result<(u64, Recovered), RecoverError> {
    let present = names.present().map_err(RecoverError::io("list", names.dir()))?;
    let later: Vec<u64> = present.into_iter().filter(|seq| *seq >= entry.seq).collect();
    let Some(&first) = later.first() else { return Ok((entry.seq, by_length(names)?)) };
    let (mut seq, mut len) = (first, if first == entry.seq { entry.len } else { 0 });
    let (mut evidence, mut left_cut) = (Evidence::Journalled, 0);
    if entry.framed {
        evidence = Evidence::Frames;
        len = sound_end(names, seq, len)?;
        // The next file follows on only if this one was complete: otherwise records between them are missing.
        for next in later.iter().copied().skip(1) {
            if !ends_with_mark(names, seq, len)? {
                break;
            }
            left_cut += cut(names, seq, len)?;
            (seq, len) = (next, sound_end(names, next, 0)?);
        }
    } else if !entry.preallocated {
        evidence = Evidence::Unproven;
        seq = later.last().copied().unwrap_or(seq);
        let path = names.path(seq);
        len = std::fs::metadata(&path).map_err(RecoverError::io("look at", &path))?.len();
    }
    let cut_bytes = left_cut + cut(names, seq, len)?;
    let mut set_aside = Vec::new();
    for next in later.into_iter().filter(|next| *next > seq) {
        set_aside.extend(clear_away(names, next)?);
    }
    let found = Recovered { path: Some(names.path(seq)), len, evidence, replayed_bytes: 0, set_aside, cut_bytes };
    Ok((seq, found))
}

/// Gives a file its exact length; returns how much that cut off.
fn cut(names: &Names, seq: u64, len: u64) -> Result<u64, RecoverError> {
    let path = names.path(seq);
    let work = || -> io::Result<u64> {
        let file = names.open(seq)?;
        let was = file.metadata()?.len();
        // Never longer: a file that is shorter than its journalled end has lost durable bytes, and zeros would hide that.
        if was < len {
            let message = format!("{was} bytes, and {len} were durable: the file was cut or replaced since");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        file.set_len(len)?;
        Ok(was - len)
    };
    work().map_err(RecoverError::io("cut", &path))
}

/// End of the sound frames from `from` on, or 0 of a file that is not there.
fn sound_end(names: &Names, seq: u64, from: u64) -> Result<u64, RecoverError> {
    let path = names.path(seq);
    scan(&path, from).map_err(RecoverError::io("read", &path))
}

fn scan(path: &Path, from: u64) -> io::Result<u64> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut at = from;
    let mut buffer = vec![0; 1 << 20];
    while at < len {
        let got = read_full(&file, &mut buffer, at)?;
        let Some(bytes) = buffer.get(..got) else { break };
        let sound = frame::sound_len(bytes);
        at += sound as u64;
        if sound > 0 {
            continue;
        }
        // No whole frame in the buffer: either none is here, or it is longer than the buffer.
        let needed = bytes.first_chunk::<8>().map_or(0, |w| frame::claimed_len(u64::from_le_bytes(*w)));
        if needed <= buffer.len() || at.saturating_add(needed as u64) > len {
            break;
        }
        buffer.resize(needed, 0);
    }
    Ok(at)
}

fn ends_with_mark(names: &Names, seq: u64, len: u64) -> Result<bool, RecoverError> {
    let path = names.path(seq);
    let look = || -> io::Result<bool> {
        let mut last = [0; frame::END_MARK_LEN];
        let Some(at) = len.checked_sub(last.len() as u64) else { return Ok(false) };
        File::open(&path)?.read_exact_at(&mut last, at)?;
        Ok(frame::is_end_mark(&last))
    };
    look().map_err(RecoverError::io("read", &path))
}

/// Removes a file prepared for a roll, which holds nothing but zeros; anything else is renamed for a human to look at.
fn clear_away(names: &Names, seq: u64) -> Result<Option<PathBuf>, RecoverError> {
    let path = names.path(seq);
    let only_zeros = File::open(&path).and_then(|file| zeros_from(&file, 0));
    if only_zeros.map_err(RecoverError::io("read", &path))? {
        crate::files::remove_if_present(&path).map_err(RecoverError::io("remove", &path))?;
        return Ok(None);
    }
    let mut aside = path.clone().into_os_string();
    aside.push(".torn");
    let aside = PathBuf::from(aside);
    std::fs::rename(&path, &aside).map_err(RecoverError::io("set aside", &path))?;
    Ok(Some(aside))
}

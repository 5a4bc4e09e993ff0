//! The shared memory of a running or dead writer, as a reader sees it (docs/precursor-shared-memory.md).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;

use crate::files::Names;
use crate::frame::WORD;
use crate::handles::{Dir, unfit};
use crate::live::{LiveMap, RINGS};
use crate::ring::RingMemory;
use crate::ring_use;
use crate::sidecar::Sidecar;

/// Interval at which a reader looks whose writer does not wake it. The kernel adds about 50 us.
const POLL: Duration = Duration::from_micros(10);

/// A live block with the rings that were mapped so far.
#[derive(Debug)]
pub(crate) struct LiveView {
    live: LiveMap,
    dir: Dir,
    stem: String,
    rings: [Option<RingMemory>; RINGS],
}

/// Where the bytes of a position are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the file.
    File,
    /// In this ring; as many bytes from the position on.
    Ring(usize, u64),
}

impl LiveView {
    /// The shared memory of the writer of these files. `None` without a writer, if its shared memory has been
    /// removed, or if it belongs to another user.
    pub(crate) fn find(names: &Names) -> io::Result<Option<LiveView>> {
        let Some(entry) = Sidecar::peek(names).filter(|entry| !entry.closed) else { return Ok(None) };
        let Ok(dir) = Dir::exactly(&entry.shm_dir) else { return Ok(None) };
        let stem = names.shm_stem(entry.shm_id);
        let live = match LiveMap::find(&dir, &stem) {
            Err(e) if unfit(&e).is_some() => return Ok(None),
            other => other?.filter(|live| live.belongs_to(&entry)),
        };
        Ok(live.map(|live| LiveView { live, dir, stem, rings: Default::default() }))
    }

    pub(crate) fn token(&self) -> u64 {
        self.live.token()
    }

    /// Whether the writer lives.
    pub(crate) fn is_held(&self) -> bool {
        self.live.is_held()
    }

    pub(crate) fn many(&self) -> bool {
        self.live.many()
    }

    /// End of what a reader may believe. With many producers only the flusher knows in which file a record is, so the
    /// records are read from the file.
    pub(crate) fn published(&self) -> u64 {
        match self.many() {
            true => self.live.flushed.0.load(Ordering::Acquire),
            false => self.live.position.0.load(Ordering::Acquire),
        }
    }

    /// Number and base of the current file, both of one moment.
    pub(crate) fn file(&self) -> (u64, u64) {
        loop {
            let epoch = self.live.epoch();
            let found = self.live.file();
            // The entries must have been read before the epoch is read again.
            fence(Ordering::Acquire);
            if self.live.epoch() == epoch {
                return found;
            }
        }
    }

    /// Number and base of the file at whose end the writer appends, which the flusher may not have reached.
    pub(crate) fn last_file(&self) -> (u64, u64) {
        loop {
            let (seq, base) = self.file();
            let announced = if self.many() { None } else { self.live.announced_after(base) };
            // The flusher must not have reached one of the announced ends between the two.
            if self.file() == (seq, base) {
                return announced.map_or((seq, base), |(count, last)| (seq.saturating_add(count), last));
            }
        }
    }

    fn place(&self, at: u64) -> Place {
        let count = self.live.ring_count.load(Ordering::Acquire);
        if self.many() || count == 0 || at < self.live.flushed.0.load(Ordering::Acquire) {
            return Place::File;
        }
        let entries = self.live.rings.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default();
        let begins = |ring: &&crate::live::RingEntry| ring.start.load(Ordering::Acquire) <= at;
        let Some(index) = entries.iter().rposition(|ring| begins(&ring)) else { return Place::File };
        let end = entries.get(index + 1).map_or(u64::MAX, |next| next.start.load(Ordering::Acquire));
        Place::Ring(index, end.saturating_sub(at))
    }

    /// Copies at most `len` bytes from position `at` on, all of them published and `at` and `len` multiples of 8, from
    /// the ring to the end of `out`. `None` if they are in the file.
    pub(crate) fn copy(&mut self, at: u64, len: u64, out: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let Place::Ring(index, most) = self.place(at) else { return Ok(None) };
        let Some(ring) = self.ring(index)? else { return Ok(None) };
        let len = len.min(most).min(ring.capacity) / WORD as u64 * WORD as u64;
        let begin = out.len();
        for word in (at..at + len).step_by(WORD) {
            // SAFETY: `at` maps every position, `word` is a multiple of 8, so the word is aligned and mapped. The
            // writer may store here at the same time: such bytes are discarded below.
            let value = unsafe { &*ring.at(word).cast::<AtomicU64>() }.load(Ordering::Relaxed);
            out.extend_from_slice(&value.to_ne_bytes());
        }
        if !ring_use::is_unused(&self.live.flushed.0, at) || self.place(at) == Place::File {
            out.truncate(begin);
            return Ok(None);
        }
        Ok(Some(len))
    }

    /// The mapped ring. `None` if it is drained and its name removed.
    fn ring(&mut self, index: usize) -> io::Result<Option<&RingMemory>> {
        let Some(slot) = self.rings.get_mut(index) else { return Ok(None) };
        if slot.is_none() {
            let capacity = self.live.rings.get(index).map_or(0, |ring| ring.capacity.load(Ordering::Acquire));
            match RingMemory::find(&self.dir, &self.stem, index, capacity) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                found => *slot = Some(found?),
            }
        }
        Ok(slot.as_ref())
    }

    /// Sleeps until the writer publishes something after `seen`, at most for this time.
    pub(crate) fn sleep(&self, seen: u64, most: Duration) {
        if self.live.never_wakes() {
            std::thread::sleep(most.min(POLL));
            return;
        }
        let word = &self.live.waiting.0;
        word.store(1, Ordering::Relaxed);
        // The writer stores the position and then looks for readers; this looks in the other order.
        fence(Ordering::SeqCst);
        if self.published() > seen {
            return;
        }
        let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().max(1).into() };
        // Woken, interrupted, or too late: the caller looks again in any case.
        let _ = futex::wait(word, futex::Flags::empty(), 1, Some(&time));
    }
}

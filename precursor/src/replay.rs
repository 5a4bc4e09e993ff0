//! Writes the rest of a dead process's ring to the file.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::claim;
use crate::files::Names;
use crate::frame::{self, Format, Word};
use crate::handles::Dir;
use crate::live::{LiveMap, RINGS};
use crate::own::OwnFile;
use crate::ring::RingMemory;

/// End of the data after the replay.
pub(crate) struct Replayed {
    pub(crate) seq: u64,
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) bytes: u64,
}

fn bad(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Writes the bytes between `flushed` and the end of the data. Writing a range that the flusher had already written
/// changes nothing, so a replay can be interrupted and run again as long as the live block and the rings exist.
///
/// `least`: durable bytes of the current file. They had been written before they were synced, so a live block with a
/// smaller `flushed` is damaged, and using it would overwrite or cut those bytes.
pub(crate) fn replay(names: &Names, shm: &Dir, stem: &str, live: &LiveMap, least: u64) -> io::Result<Replayed> {
    let from = live.flushed.0.load(Ordering::Acquire);
    let end = match live.many() {
        true => claim::end(&live.reserved.0),
        false => live.position.0.load(Ordering::Acquire),
    };
    let rings = find_rings(shm, stem, live, from, end)?;
    let (seq, base) = live.file();
    if base > from || from > end || !live.boundaries_fit() {
        return Err(bad("the live block contradicts itself"));
    }
    if from - base < least {
        let written = from - base;
        let message = format!(
            "the live block says that {written} bytes were written, but {least} are durable; nothing was changed"
        );
        return Err(bad(&message));
    }
    // Never beyond the end of the file: bytes before `from` would be missing, and zeros would hide that.
    let file_len = names.len(seq)?;
    if file_len < from - base {
        if live.distrusted().is_some() && file_len >= least {
            // The failed file system has lost bytes that were written. The ring's bytes would follow a gap.
            return Ok(Replayed { seq, base, end: from, bytes: 0 });
        }
        let written = from - base;
        return Err(bad(&format!(
            "it has {file_len} bytes, but {written} had been written: it was cut, removed or replaced"
        )));
    }
    let mut out = Out { names, seq, base, file: names.open(seq)? };
    if live.many() {
        if let Some((ring, _)) = rings.first() {
            settle(live, ring, from, end)?;
            // The live block does not contain the roll size. The frames stay whole, so they may all go to one file.
            out.write(ring, from, end)?;
        }
    } else {
        let mut at = from;
        while at < end {
            let boundary = next_boundary(live, &out);
            if boundary == Some(at) {
                out.roll(at)?;
                // Recorded at once, so that after a second crash recovery resumes in the right file.
                live.set_file(out.seq, out.base);
                live.pop_boundary();
                continue;
            }
            let (ring, ring_end) = ring_of(&rings, at).ok_or_else(|| bad("a ring is missing"))?;
            let stop = end.min(ring_end).min(boundary.unwrap_or(u64::MAX));
            if stop <= at {
                return Err(bad("the live block's boundaries are not ascending"));
            }
            out.write(ring, at, stop)?;
            at = stop;
        }
    }
    Ok(Replayed { seq: out.seq, base: out.base, end, bytes: end - from })
}

/// The next announced end of a file. Drops those at which the flusher had already rolled.
fn next_boundary(live: &LiveMap, out: &Out<'_>) -> Option<u64> {
    while live.next_boundary().is_some_and(|b| b <= out.base && out.base > 0) {
        live.pop_boundary();
    }
    live.next_boundary()
}

type Rings = Vec<(RingMemory, u64)>;

/// The rings with bytes between `from` and `end`, each with the position at which the next ring takes over.
fn find_rings(shm: &Dir, stem: &str, live: &LiveMap, from: u64, end: u64) -> io::Result<Rings> {
    let count = usize::try_from(live.ring_count.load(Ordering::Acquire)).ok().filter(|c| *c <= RINGS);
    let entries =
        live.rings.get(..count.ok_or_else(|| bad("the live block names too many rings"))?).unwrap_or_default();
    let mut rings = Vec::new();
    for (index, ring) in entries.iter().enumerate() {
        let start = ring.start.load(Ordering::Relaxed);
        let stop = entries.get(index + 1).map_or(u64::MAX, |next| next.start.load(Ordering::Relaxed));
        if start >= end || stop <= from {
            continue;
        }
        let capacity = ring.capacity.load(Ordering::Relaxed);
        if end.min(stop).saturating_sub(from.max(start)) > capacity {
            return Err(bad("a ring would hold more than its capacity"));
        }
        let memory = RingMemory::find(shm, stem, index, capacity)?;
        rings.push((memory, stop));
    }
    Ok(rings)
}

fn ring_of(rings: &Rings, at: u64) -> Option<(&RingMemory, u64)> {
    rings.iter().find(|(_, stop)| at < *stop).map(|(ring, stop)| (ring, *stop))
}

struct Out<'a> {
    names: &'a Names,
    seq: u64,
    base: u64,
    file: OwnFile,
}

impl Out<'_> {
    fn write(&self, ring: &RingMemory, from: u64, to: u64) -> io::Result<()> {
        let len = usize::try_from(to - from).map_err(|_| bad("a ring would hold more than its capacity"))?;
        if len as u64 > ring.capacity {
            return Err(bad("a ring would hold more than its capacity"));
        }
        // SAFETY: the range is not longer than the ring (checked above), and its producer is dead. (A producer of a
        // failed `close` may still store into a place that it had taken; the kernel then copies old or new bytes of a
        // record that was never acknowledged.)
        self.file.write_all_at(unsafe { ring.bytes(from, len) }, from - self.base)
    }

    fn roll(&mut self, at: u64) -> io::Result<()> {
        let next =
            self.seq.checked_add(1).ok_or_else(|| bad("the live block needs more files than there are numbers"))?;
        self.file.set_len(at - self.base)?;
        (self.seq, self.base) = (next, at);
        self.file = self.names.open(self.seq)?;
        Ok(())
    }
}

/// Many producers: turns frames that a dead producer did not finish into fillers, so that later frames can be read, and
/// numbers the records that the flusher had not numbered.
fn settle(live: &LiveMap, ring: &RingMemory, from: u64, end: u64) -> io::Result<()> {
    if end - from > ring.capacity || !from.is_multiple_of(8) || !end.is_multiple_of(8) {
        return Err(bad("the live block contradicts itself"));
    }
    // SAFETY: `from` and every frame length are multiples of 8, `at` maps every position, and words are accessed only
    // as atomics.
    let word_at = |at: u64| unsafe { &*ring.at(at).cast::<AtomicU64>() };
    let load = |at: u64| u64::from_le(word_at(at).load(Ordering::Acquire));
    let (format, (unnumbered, mut number)) = (live.format(), live.unnumbered());
    let mut at = from;
    while at < end {
        let word = frame::word(load(at));
        let filler = match word {
            Word::Data(len) if whole_in(format.framed_len(len), at, end) => {
                if format == Format::Second && at >= unnumbered {
                    word_at(at + frame::NUMBER_AT as u64).store(number.to_le(), Ordering::Release);
                    number = number.wrapping_add(1);
                }
                at += format.framed_len(len) as u64;
                continue;
            }
            Word::Data(len) | Word::Reserved(len) => format.framed_len(len) - frame::WORD,
            Word::Filler(len) => len,
            // The producer died after taking the place and before storing the length, so the place is all zeros, and
            // the next word that is not zero begins the next frame. (A damaged word without a valid state ends there
            // too.)
            Word::Empty => {
                let next = (at + 8..end).step_by(8).find(|p| load(*p) != 0).unwrap_or(end);
                (next - at) as usize - frame::WORD
            }
        };
        let whole = frame::filler_len(filler);
        if !whole_in(whole, at, end) {
            return Err(bad("a frame in the ring extends beyond the reserved part"));
        }
        word_at(at).store(format.filler(filler).to_le(), Ordering::Release);
        at += whole as u64;
    }
    Ok(())
}

fn whole_in(len: usize, at: u64, end: u64) -> bool {
    len as u64 <= end - at
}

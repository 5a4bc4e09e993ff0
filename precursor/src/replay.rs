//! Writes what a dead process left in its ring to the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::claim;
use crate::files::Names;
use crate::frame::{self, Word};
use crate::handles::Dir;
use crate::live::{LiveMap, RINGS};
use crate::ring::RingMemory;

/// Where the data ends once everything is replayed.
pub(crate) struct Replayed {
    pub(crate) seq: u64,
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) bytes: u64,
}

fn bad(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Writing a range again that the flusher had already written changes nothing: the bytes are the same. So this can be
/// interrupted and run again, as long as the live block and rings stay until the end.
///
/// `least`: so many bytes of the present file are durable. What was synced had been written before, so that a live block
/// which says less is damaged; believed, it would overwrite those bytes, or end the file before them.
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
            "the live block says that {written} bytes were written, and {least} were durable; nothing was changed"
        );
        return Err(bad(&message));
    }
    // Never into a hole: what lay before is lost, and zeros would hide that.
    let there = names.len(seq)?;
    if there < from - base {
        let written = from - base;
        return Err(bad(&format!(
            "it has {there} bytes, and {written} had been written: it was cut, removed or replaced since"
        )));
    }
    let mut out = Out { names, seq, base, file: names.open(seq)? };
    if live.many() {
        if let Some((ring, _)) = rings.first() {
            settle(ring, from, end)?;
            // The roll size is not in the live block: frames stay whole in whichever file they are written to.
            out.write(ring, from, end)?;
        }
    } else {
        let mut at = from;
        while at < end {
            let boundary = next_boundary(live, &out);
            if boundary == Some(at) {
                out.roll(at)?;
                // Noted as it happens: a second crash resumes in the right file.
                live.set_file(out.seq, out.base);
                live.pop_boundary();
                continue;
            }
            let (ring, ring_end) = ring_of(&rings, at).ok_or_else(|| bad("a ring is missing"))?;
            let stop = end.min(ring_end).min(boundary.unwrap_or(u64::MAX));
            if stop <= at {
                return Err(bad("the live block's boundaries go backwards"));
            }
            out.write(ring, at, stop)?;
            at = stop;
        }
    }
    Ok(Replayed { seq: out.seq, base: out.base, end, bytes: end - from })
}

/// A boundary that the flusher had rolled at but not yet taken off the list is the base of the present file.
fn next_boundary(live: &LiveMap, out: &Out<'_>) -> Option<u64> {
    while live.next_boundary().is_some_and(|b| b <= out.base && out.base > 0) {
        live.pop_boundary();
    }
    live.next_boundary()
}

type Rings = Vec<(RingMemory, u64)>;

/// The rings that hold anything between `from` and `end`, each with the position at which the next takes over.
fn find_rings(shm: &Dir, stem: &str, live: &LiveMap, from: u64, end: u64) -> io::Result<Rings> {
    let count = usize::try_from(live.ring_count.load(Ordering::Acquire)).ok().filter(|c| *c <= RINGS);
    let entries = live.rings.get(..count.ok_or_else(|| bad("too many rings"))?).unwrap_or_default();
    let mut rings = Vec::new();
    for (index, ring) in entries.iter().enumerate() {
        let start = ring.start.load(Ordering::Relaxed);
        let stop = entries.get(index + 1).map_or(u64::MAX, |next| next.start.load(Ordering::Relaxed));
        if start >= end || stop <= from {
            continue;
        }
        let capacity = ring.capacity.load(Ordering::Relaxed);
        if end.min(stop).saturating_sub(from.max(start)) > capacity {
            return Err(bad("a ring holds more than it can"));
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
    file: File,
}

impl Out<'_> {
    fn write(&self, ring: &RingMemory, from: u64, to: u64) -> io::Result<()> {
        let len = usize::try_from(to - from).map_err(|_| bad("a ring holds more than it can"))?;
        if len as u64 > ring.capacity {
            return Err(bad("a ring holds more than it can"));
        }
        // SAFETY: the producer is dead, so nobody touches the range; its length was checked.
        self.file.write_all_at(unsafe { ring.bytes(from, len) }, from - self.base)
    }

    fn roll(&mut self, at: u64) -> io::Result<()> {
        let next =
            self.seq.checked_add(1).ok_or_else(|| bad("the live block speaks of more files than there are numbers"))?;
        self.file.set_len(at - self.base)?;
        (self.seq, self.base) = (next, at);
        self.file = self.names.open(self.seq)?;
        Ok(())
    }
}

/// Many producers: frames that a dead producer did not finish become filler, so that those behind them can be read.
fn settle(ring: &RingMemory, from: u64, end: u64) -> io::Result<()> {
    if end - from > ring.capacity || !from.is_multiple_of(8) || !end.is_multiple_of(8) {
        return Err(bad("the live block contradicts itself"));
    }
    // SAFETY: frames start on multiples of 8 in mapped memory; words are only ever accessed as atomics.
    let word_at = |at: u64| unsafe { &*ring.at(at).cast::<AtomicU64>() };
    let load = |at: u64| u64::from_le(word_at(at).load(Ordering::Acquire));
    let mut at = from;
    while at < end {
        let (len, filler) = match frame::word(load(at)) {
            Word::Data(len) => (len, false),
            Word::Reserved(len) | Word::Filler(len) => (len, true),
            // A producer that died between taking its place and saying how long it is: all of it is still zero, and the
            // next word that is not begins the next frame. (A word of no known state, which only damage makes, is its own end.)
            Word::Empty => {
                let next = (at + 8..end).step_by(8).find(|p| load(*p) != 0).unwrap_or(end);
                ((next - at) as usize - frame::HEADER, true)
            }
        };
        let whole = frame::framed_len(len) as u64;
        if whole > end - at {
            return Err(bad("a frame in the ring extends beyond the reserved part"));
        }
        if filler {
            word_at(at).store(frame::filler(len).to_le(), Ordering::Release);
        }
        at += whole;
    }
    Ok(())
}

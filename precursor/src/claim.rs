//! A ring that many producers share: how a place is taken, filled and published, and how the one consumer comes past it.
//!
//! Pure over its memory and its atomics, so that `tests/model_many.rs` runs this very file under loom.

use super::atomics::{AtomicU64, Ordering, fence};
use super::frame::{self, Word};

/// The ring's memory, by position.
pub(crate) trait Places {
    /// The word at a position that is a multiple of 8.
    fn word(&self, at: u64) -> &AtomicU64;

    /// Copies bytes in behind the word at `at`.
    ///
    /// # Safety
    /// `at` was taken for as many bytes, and is not yet published.
    unsafe fn copy_in(&self, at: u64, bytes: &[u8]);

    /// Makes a range zero again.
    ///
    /// # Safety
    /// The range was published, and is not yet given back.
    unsafe fn wipe(&self, at: u64, len: u64);
}

/// Set in `reserved` once the ring is sealed: no further place is taken.
const SEALED: u64 = 1 << 63;

/// The answer to a producer that asks for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The place's position.
    At(u64),
    /// The consumer has not given back enough.
    Full,
    /// The ring is sealed.
    Sealed,
}

/// Takes `need` bytes of a ring of that capacity.
#[inline]
pub(crate) fn take(reserved: &AtomicU64, freed: &AtomicU64, capacity: u64, need: u64) -> Taken {
    let mut at = reserved.load(Ordering::Relaxed);
    loop {
        if at & SEALED != 0 {
            return Taken::Sealed;
        }
        // Acquires the zeros that the consumer left there.
        if at + need > freed.load(Ordering::Acquire) + capacity {
            return Taken::Full;
        }
        match reserved.compare_exchange_weak(at, at + need, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Taken::At(at),
            Err(seen) => at = seen,
        }
    }
}

/// End of the places that were taken.
#[inline]
pub(crate) fn end(reserved: &AtomicU64) -> u64 {
    reserved.load(Ordering::Acquire) & !SEALED
}

/// Lets no producer take a further place. `end` does not move afterwards.
pub(crate) fn seal(reserved: &AtomicU64) {
    reserved.fetch_or(SEALED, Ordering::AcqRel);
}

/// Fills a place and publishes it.
///
/// # Safety
/// `at` came from `take` for these bytes with their frame, and is filled once.
#[inline]
pub(crate) unsafe fn fill(places: &impl Places, at: u64, bytes: &[u8]) {
    let word = places.word(at);
    // First of all, so that recovery can step over a record whose producer died.
    word.store(frame::reserved(bytes.len()).to_le(), Ordering::Release);
    // A release store alone lets later stores overtake it; recovery takes the first word that is not zero for a frame.
    fence(Ordering::AcqRel);
    // SAFETY: by the contract.
    unsafe { places.copy_in(at, bytes) };
    word.store(frame::data(bytes).to_le(), Ordering::Release);
}

/// End of the record at `at`, if it is published.
#[inline]
pub(crate) fn published(places: &impl Places, at: u64) -> Option<u64> {
    match frame::word(u64::from_le(places.word(at).load(Ordering::Acquire))) {
        Word::Data(len) => Some(at + frame::framed_len(len) as u64),
        _ => None,
    }
}

/// Gives a range back to the producers. Its zero words are what tells a later pass that nothing has been put there yet.
///
/// # Safety
/// Everything in the range was published, and the consumer needs it no more.
pub(crate) unsafe fn give_back(places: &impl Places, freed: &AtomicU64, from: u64, end: u64) {
    // SAFETY: by the contract.
    unsafe { places.wipe(from, end - from) };
    freed.store(end, Ordering::Release);
}

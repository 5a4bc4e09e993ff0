//! The protocol of a ring with many producers: they take, fill and publish places, and one consumer reads and frees
//! them.
//!
//! Pure over its memory and its atomics, so that `tests/model_many.rs` can run this file under loom.

use super::atomics::{AtomicU64, Ordering, fence};
use super::frame::{self, Word};

/// The ring's memory, addressed by position.
pub(crate) trait Places {
    /// The word at position `at`, a multiple of 8.
    fn word(&self, at: u64) -> &AtomicU64;

    /// Stores `time`, and `bytes` as the payload, in the frame at `at`.
    ///
    /// # Safety
    /// The caller has taken `at` for a record of this length and not yet published it.
    unsafe fn copy_in(&self, at: u64, time: u64, bytes: &[u8]);

    /// Zeroes a range.
    ///
    /// # Safety
    /// The range was published and not yet freed, and is at most as long as the ring.
    unsafe fn wipe(&self, at: u64, len: u64);
}

/// Bit of `reserved` that seals the ring: no further place is given out.
const SEALED: u64 = 1 << 63;

/// Answer to a producer that asks for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Position of the place.
    At(u64),
    /// The consumer has not freed enough.
    Full,
    /// The ring is sealed.
    Sealed,
}

/// Takes `need` bytes of a ring of `capacity` bytes.
#[inline]
pub(crate) fn take(reserved: &AtomicU64, freed: &AtomicU64, capacity: u64, need: u64) -> Taken {
    let mut at = reserved.load(Ordering::Relaxed);
    loop {
        if at & SEALED != 0 {
            return Taken::Sealed;
        }
        // Acquire: the zeros that the consumer stored before it freed the space.
        if at + need > freed.load(Ordering::Acquire) + capacity {
            return Taken::Full;
        }
        match reserved.compare_exchange_weak(at, at + need, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Taken::At(at),
            Err(seen) => at = seen,
        }
    }
}

/// End of the places given out.
#[inline]
pub(crate) fn end(reserved: &AtomicU64) -> u64 {
    reserved.load(Ordering::Acquire) & !SEALED
}

/// Seals the ring: no producer gets a further place, and `end` no longer moves.
pub(crate) fn seal(reserved: &AtomicU64) {
    reserved.fetch_or(SEALED, Ordering::AcqRel);
}

/// Fills a place and publishes the record. The consumer stores the record's number.
///
/// # Safety
/// `at` came from `take` for the framed length of `bytes`, and is filled only once.
#[inline]
pub(crate) unsafe fn fill(places: &impl Places, at: u64, time: u64, bytes: &[u8]) {
    let word = places.word(at);
    // The length is stored first, so that recovery can skip the record if its producer dies.
    word.store(frame::reserved(bytes.len()).to_le(), Ordering::Release);
    // A release store lets later stores overtake it, and recovery takes the first word that is not zero for a frame.
    fence(Ordering::AcqRel);
    // SAFETY: the caller took `at` for this record, and it is published only below.
    unsafe { places.copy_in(at, time, bytes) };
    word.store(frame::data(bytes, time).to_le(), Ordering::Release);
}

/// Stores the number of a published record, which only the consumer may do.
#[inline]
pub(crate) fn set_number(places: &impl Places, at: u64, number: u64) {
    places.word(at + frame::NUMBER_AT as u64).store(number.to_le(), Ordering::Release);
}

/// End of the record at `at`, if the record is published.
#[inline]
pub(crate) fn published(places: &impl Places, at: u64) -> Option<u64> {
    match frame::word(u64::from_le(places.word(at).load(Ordering::Acquire))) {
        Word::Data(len) => Some(at + frame::framed_len(len) as u64),
        _ => None,
    }
}

/// Frees a range for the producers. Zeroed first: a zero word means that no record has been published there yet.
///
/// # Safety
/// Everything in the range was published, the consumer has finished with it, and it is at most as long as the ring.
pub(crate) unsafe fn give_back(places: &impl Places, freed: &AtomicU64, from: u64, end: u64) {
    // SAFETY: the caller guarantees a published range; it is freed only after it is zeroed.
    unsafe { places.wipe(from, end - from) };
    freed.store(end, Ordering::Release);
}

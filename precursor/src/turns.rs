//! Whose turn it is with the ring that `window` falls back on.
//!
//! Pure over its atomics, so that `tests/model_lane.rs` runs this very file under loom.

use super::atomics::{AtomicU32, AtomicU64, Ordering};

const IDLE: u32 = 0;
/// The writer stores into the ring.
const STAGED: u32 = 1;
/// And one of the two is at the ring's books: the helper to write from it, or the writer to leave it.
const BUSY: u32 = 2;

/// The state, shared by writer and helper.
#[derive(Debug)]
pub(crate) struct Turns(AtomicU32);

impl Turns {
    pub(crate) fn idle() -> Turns {
        Turns(AtomicU32::new(IDLE))
    }

    pub(crate) fn in_use(&self) -> bool {
        self.0.load(Ordering::Acquire) != IDLE
    }

    /// Writer: begins to use the ring; what the helper needs to know of it was stored before.
    pub(crate) fn enter(&self) {
        self.0.store(STAGED, Ordering::Release);
    }

    /// Writer: leaves the ring if the helper is not at it and everything up to `cursor` is in the file. `left` is run in between.
    pub(crate) fn leave(&self, flushed: &AtomicU64, cursor: u64, left: impl FnOnce()) -> bool {
        if self.0.compare_exchange(STAGED, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let empty = flushed.load(Ordering::Acquire) == cursor;
        if empty {
            left();
        }
        self.0.store(if empty { IDLE } else { STAGED }, Ordering::Release);
        empty
    }

    /// Helper: does something with the ring, unless the writer is leaving it or does not use it.
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.0.compare_exchange(STAGED, BUSY, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let done = work();
        self.0.store(STAGED, Ordering::Release);
        Some(done)
    }
}

/// Helper: the range between what is in the file and what the writer has published, `most` bytes at most. Reading the position
/// acquires the bytes.
pub(crate) fn waiting(position: &AtomicU64, flushed: &AtomicU64, most: u64) -> (u64, u64) {
    let from = flushed.load(Ordering::Acquire);
    let end = position.load(Ordering::Acquire);
    (from, end.min(from + most))
}

/// Writer: how far it may store, given what is in the file already.
#[inline]
pub(crate) fn limit(flushed: &AtomicU64, capacity: u64) -> u64 {
    // Acquires that the helper has read what is stored over.
    flushed.load(Ordering::Acquire) + capacity
}

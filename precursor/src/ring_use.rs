//! Who may use the fallback ring of `window`: the writer or the helper.
//!
//! Pure over its atomics, so that `tests/model_lane.rs` can run this file under loom.

use super::atomics::{AtomicU32, AtomicU64, Ordering, fence};

const IDLE: u32 = 0;
/// The writer stores into the ring.
const STAGED: u32 = 1;
/// The writer stores into the ring, and the helper is writing from it or the writer is about to leave it.
const BUSY: u32 = 2;

/// The state, shared by the writer and the helper.
#[derive(Debug)]
pub(crate) struct RingUse(AtomicU32);

impl RingUse {
    pub(crate) fn idle() -> RingUse {
        RingUse(AtomicU32::new(IDLE))
    }

    pub(crate) fn in_use(&self) -> bool {
        self.0.load(Ordering::Acquire) != IDLE
    }

    /// Writer: starts to use the ring. Everything that the helper reads must be stored before.
    pub(crate) fn enter(&self) {
        self.0.store(STAGED, Ordering::Release);
        // For readers, as in `limit`.
        fence(Ordering::Release);
    }

    /// Writer: leaves the ring, if the helper is not using it and everything up to `cursor` is in the file. Then calls
    /// `left` before the ring counts as idle.
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

    /// Helper: calls `work`, unless the writer does not use the ring or is leaving it.
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.0.compare_exchange(STAGED, BUSY, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let done = work();
        self.0.store(STAGED, Ordering::Release);
        Some(done)
    }
}

/// Helper: the published range that is not yet in the file, at most `most` bytes. Reading the position acquires
/// the bytes.
pub(crate) fn waiting(position: &AtomicU64, flushed: &AtomicU64, most: u64) -> (u64, u64) {
    let from = flushed.load(Ordering::Acquire);
    let end = position.load(Ordering::Acquire);
    (from, end.min(from + most))
}

/// Writer: the position up to which it may store, given `flushed`.
#[inline]
pub(crate) fn limit(flushed: &AtomicU64, capacity: u64) -> u64 {
    // Acquire: the helper has finished reading the bytes that the writer will overwrite.
    let limit = flushed.load(Ordering::Acquire) + capacity;
    // A reader that sees bytes stored after this must also see `flushed`, see `is_unused`.
    fence(Ordering::Release);
    limit
}

/// Reader: whether the writer has not reused the place of position `at` in the ring. Asked after the bytes were read.
pub(crate) fn is_unused(flushed: &AtomicU64, at: u64) -> bool {
    fence(Ordering::Acquire);
    flushed.load(Ordering::Acquire) <= at
}

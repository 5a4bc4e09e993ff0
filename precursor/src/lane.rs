//! The fast path: where the next byte goes, and how far the writer may go without asking.

use super::atomics::{AtomicU64, Ordering};
use super::frame;

/// The writer's place. Between `cursor` and `limit` a store meets nothing: the bytes are present, writable and the writer's own.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Memory of position `p` is `base + (p & mask)`: the ring's base and mask; or, for a window, the map's base less the
    /// file's first position, and all ones.
    pub(crate) base: *mut u8,
    pub(crate) mask: u64,
    pub(crate) cursor: u64,
    pub(crate) limit: u64,
    pub(crate) framed: bool,
}

// SAFETY: `base` points into a mapping that the writer's side keeps alive, and the range between cursor and limit belongs to
// whoever owns the lane, on whatever thread.
unsafe impl Send for Lane {}

impl Lane {
    /// Bytes a record takes.
    #[inline(always)]
    pub(crate) fn need(&self, len: usize) -> u64 {
        (if self.framed { frame::framed_len(len) } else { len }) as u64
    }

    #[inline(always)]
    pub(crate) fn room(&self) -> u64 {
        self.limit.saturating_sub(self.cursor)
    }

    /// Where the payload of the next record goes.
    #[inline(always)]
    pub(crate) fn payload(&self) -> *mut u8 {
        let at = self.base.wrapping_add((self.cursor & self.mask) as usize);
        if self.framed { at.wrapping_add(frame::HEADER) } else { at }
    }

    /// Copies a record in.
    ///
    /// # Safety
    /// `room()` is at least `need(bytes.len())`, and the side that made the room still holds its memory.
    #[inline(always)]
    pub(crate) unsafe fn put(&mut self, bytes: &[u8]) {
        // SAFETY: by the contract the bytes from `payload()` on are the writer's own; `bytes` is a shared borrow and so
        // cannot overlap them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.payload(), bytes.len()) };
        if self.framed {
            // SAFETY: as above.
            unsafe { self.seal(bytes.len()) };
        }
    }

    /// Ends a framed file here.
    ///
    /// # Safety
    /// As for `put`, of `END_MARK_LEN` bytes.
    pub(crate) unsafe fn mark_end(&mut self) {
        let at = self.base.wrapping_add((self.cursor & self.mask) as usize);
        // SAFETY: by the contract.
        unsafe { at.cast::<[u8; frame::END_MARK_LEN]>().write_unaligned(frame::end_mark()) };
    }

    /// Completes a frame whose payload is in place: padding, then the word.
    ///
    /// # Safety
    /// As for `put`, and the payload has been stored.
    #[inline(always)]
    pub(crate) unsafe fn seal(&mut self, len: usize) {
        let at = self.payload();
        let pad = frame::framed_len(len) - frame::HEADER - len;
        // SAFETY: payload, padding and word are inside the room of the contract; frames start on multiples of 8, so the
        // word is aligned; the payload was initialised by the caller.
        unsafe {
            std::ptr::write_bytes(at.add(len), 0, pad);
            let payload = std::slice::from_raw_parts(at, len);
            let word = frame::data(payload).to_le();
            (*at.sub(frame::HEADER).cast::<AtomicU64>()).store(word, Ordering::Release);
        }
    }
}

//! The fast path: where the next byte goes, and how far the writer may store without asking.

use super::atomics::{AtomicU64, Ordering};
use super::frame::{self, Format};

/// The writer's place. From `cursor` to `limit` the memory is present, writable and the writer's own.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The memory of position `p` is `base + (p & mask)`. For a ring, the ring's base and its capacity less one; for a
    /// window, the map's base less the file's first position, and all ones.
    pub(crate) base: *mut u8,
    pub(crate) mask: u64,
    pub(crate) cursor: u64,
    pub(crate) limit: u64,
    pub(crate) framed: bool,
    /// Framed: number of the next record.
    pub(crate) number: u64,
}

// SAFETY: the writer's side keeps the mapping under `base` alive, and the range from `cursor` to `limit` belongs to the
// owner of the lane, on whichever thread.
unsafe impl Send for Lane {}

impl Lane {
    /// Bytes that a record of `len` bytes takes.
    #[inline(always)]
    pub(crate) fn need(&self, len: usize) -> u64 {
        (if self.framed { frame::framed_len(len) } else { len }) as u64
    }

    /// Length of a file's header, bytes.
    pub(crate) fn head_len(&self) -> u64 {
        if self.framed { frame::FILE_HEADER_LEN as u64 } else { 0 }
    }

    #[inline(always)]
    pub(crate) fn room(&self) -> u64 {
        self.limit.saturating_sub(self.cursor)
    }

    /// Address of the next record's payload.
    #[inline(always)]
    pub(crate) fn payload(&self) -> *mut u8 {
        let at = self.base.wrapping_add((self.cursor & self.mask) as usize);
        if self.framed { at.wrapping_add(frame::HEADER) } else { at }
    }

    /// Copies a record in. `time` is stored in its frame.
    ///
    /// # Safety
    /// `room()` is at least `need(bytes.len())`, and the memory is still mapped. Without room, only an empty record of
    /// an unframed lane is allowed. In a framed lane `base + (cursor & mask)` is a multiple of 8.
    #[inline(always)]
    pub(crate) unsafe fn put(&mut self, bytes: &[u8], time: u64) {
        // SAFETY: the caller made room, so the bytes from `payload()` on belong to the writer. `bytes` is a shared
        // borrow and cannot overlap them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.payload(), bytes.len()) };
        if self.framed {
            // SAFETY: the room covers the frame, and the payload has just been stored.
            unsafe { self.seal(bytes.len(), time) };
        }
    }

    /// Stores the mark that ends a framed file.
    ///
    /// # Safety
    /// The `END_MARK_LEN` bytes from the cursor on are mapped, and no other thread reads or stores them now.
    pub(crate) unsafe fn mark_end(&mut self) {
        // SAFETY: the caller guarantees these bytes.
        unsafe { self.put_raw(&Format::Second.end_mark()) };
    }

    /// Stores bytes that are neither counted nor framed: an end mark or a file's header.
    ///
    /// # Safety
    /// As many bytes from the cursor on are mapped, and no other thread reads or stores them now.
    pub(crate) unsafe fn put_raw(&mut self, bytes: &[u8]) {
        let at = self.base.wrapping_add((self.cursor & self.mask) as usize);
        // SAFETY: the caller guarantees the bytes at `at`; `bytes` is a shared borrow and cannot overlap them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    }

    /// Completes a frame whose payload is stored: pads it with zeros, stores number and time, then the word.
    ///
    /// # Safety
    /// As for `put`, the payload has been stored, and `base + (cursor & mask)` is a multiple of 8.
    #[inline(always)]
    pub(crate) unsafe fn seal(&mut self, len: usize, time: u64) {
        let at = self.payload();
        let pad = frame::framed_len(len) - frame::HEADER - len;
        // SAFETY: payload, padding and header lie within the room, the caller has stored the payload, and the words are
        // aligned by the contract.
        unsafe {
            std::ptr::write_bytes(at.add(len), 0, pad);
            let payload = std::slice::from_raw_parts(at, len);
            let word = frame::data(payload, time).to_le();
            let header = at.sub(frame::HEADER).cast::<AtomicU64>();
            (*header.add(1)).store(self.number.to_le(), Ordering::Relaxed);
            (*header.add(2)).store(time.to_le(), Ordering::Relaxed);
            (*header).store(word, Ordering::Release);
        }
        self.number += 1;
    }
}

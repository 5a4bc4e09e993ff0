//! Free space on the disk: observed at preallocation, and reported before it stops the writer.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::own::OwnFile;
use crate::sys;

const PLENTY: u64 = u64::MAX;

/// State of the disk's free space.
#[derive(Debug)]
pub(crate) struct Space {
    /// Bytes left when the last allocation got less than requested; otherwise `PLENTY`.
    tight: AtomicU64,
    /// Bytes left when the smallest allocation or a write failed; otherwise `PLENTY`.
    out: AtomicU64,
    /// How often the smallest allocation or a write has failed.
    failures: AtomicU64,
}

impl Space {
    pub(crate) fn new() -> Space {
        Space { tight: AtomicU64::new(PLENTY), out: AtomicU64::new(PLENTY), failures: AtomicU64::new(0) }
    }

    /// Bytes left, if the last allocation got less than requested or nothing.
    pub(crate) fn short(&self) -> Option<u64> {
        let left = self.tight.load(Ordering::Relaxed).min(self.out.load(Ordering::Relaxed));
        (left != PLENTY).then_some(left)
    }

    /// Bytes left, if no more space can be allocated.
    pub(crate) fn exhausted(&self) -> Option<u64> {
        let left = self.out.load(Ordering::Relaxed);
        (left != PLENTY).then_some(left)
    }

    pub(crate) fn is_short(&self, file: &OwnFile) {
        self.tight.store(bytes_left(file).min(PLENTY - 1), Ordering::Relaxed);
    }

    pub(crate) fn is_exhausted(&self, file: &OwnFile) {
        self.out.store(bytes_left(file).min(PLENTY - 1), Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Release);
    }

    /// How often an allocation or a write has failed, to wait for the next attempt.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    pub(crate) fn write_succeeded(&self) {
        self.out.store(PLENTY, Ordering::Relaxed);
    }

    /// Allocates `len` bytes, or on a full disk a half, a quarter ..., but at least `least`. Returns the allocated
    /// bytes.
    pub(crate) fn allocate(&self, file: &OwnFile, at: u64, len: u64, least: u64, keep_size: bool) -> io::Result<u64> {
        let mut want = len;
        loop {
            match sys::allocate(file.get()?, at, want, keep_size) {
                Ok(()) => {
                    let left = if want == len { PLENTY } else { bytes_left(file).min(PLENTY - 1) };
                    self.tight.store(left, Ordering::Relaxed);
                    self.out.store(PLENTY, Ordering::Relaxed);
                    return Ok(want);
                }
                Err(e) if is_full(&e) && want / 2 >= least => want = (want / 2).next_multiple_of(least),
                Err(e) => return Err(e),
            }
        }
    }
}

/// Bytes that this user can still allocate; 0 if the program has closed the descriptor.
pub(crate) fn bytes_left(file: &OwnFile) -> u64 {
    file.get().map_or(0, sys::bytes_left)
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

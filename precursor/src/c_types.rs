//! What the C ABI is made of: codes, structures, and how an error becomes both.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{AppendError, OpenError, SyncError};

/// Done.
pub const PRECURSOR_OK: c_int = 0;
/// An argument is null or out of range, or options contradict one another.
pub const PRECURSOR_INVALID: c_int = 1;
/// The mode asked for cannot be had here; `PRECURSOR_AUTO` would find another.
pub const PRECURSOR_REFUSED: c_int = 2;
/// Another appender holds the file.
pub const PRECURSOR_BUSY: c_int = 3;
/// No room, and the policy is `PRECURSOR_FAIL`: try again later.
pub const PRECURSOR_FULL: c_int = 4;
/// The disk is full.
pub const PRECURSOR_NO_SPACE: c_int = 5;
/// The record is longer than the mode takes.
pub const PRECURSOR_TOO_LONG: c_int = 6;
/// The device, the file system or the helper failed.
pub const PRECURSOR_FAILED: c_int = 7;
/// A bug in the library, caught at the border.
pub const PRECURSOR_PANIC: c_int = 8;

/// Let the machine be probed and a mode chosen.
pub const PRECURSOR_AUTO: u32 = 0;
/// Stores into locked memory; a flusher thread writes.
pub const PRECURSOR_RING: u32 = 1;
/// Stores into a mapped, populated, locked window of the file.
pub const PRECURSOR_WINDOW: u32 = 2;
/// Preallocated zeros, read ahead, `pwrite`.
pub const PRECURSOR_PREFETCH: u32 = 3;
/// `pwrite` alone.
pub const PRECURSOR_PLAIN: u32 = 4;

/// No room: wait.
pub const PRECURSOR_WAIT: u32 = 0;
/// No room: return `PRECURSOR_FULL`.
pub const PRECURSOR_FAIL: u32 = 1;
/// No room: grow the ring up to `grow_bytes_max`, then wait.
pub const PRECURSOR_GROW: u32 = 2;

/// An existing file: find its end and go on.
pub const PRECURSOR_CONTINUE: u32 = 0;
/// An existing file: empty it.
pub const PRECURSOR_REPLACE: u32 = 1;
/// An existing file: do not open.
pub const PRECURSOR_REFUSE: u32 = 2;

/// How to open. Fill it with `precursor_options_default` first, then change fields: later versions may add some.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct precursor_options {
    /// `sizeof(precursor_options)` of the caller; set by `precursor_options_default`.
    pub size: usize,
    /// `PRECURSOR_AUTO` and so on.
    pub mode: u32,
    /// `PRECURSOR_WAIT` and so on.
    pub back_pressure: u32,
    /// `PRECURSOR_CONTINUE` and so on.
    pub existing: u32,
    /// Not zero: records carry length and checksum.
    pub framed: u32,
    /// Not zero: readers must see each byte in the file once `append` has returned.
    pub readable_at_once: u32,
    /// Not zero: every append is timed for `worst_append_ns`.
    pub measure: u32,
    /// NUMA node of the memory; -1 = that of the opening thread.
    pub node: i32,
    /// CPU of the helper threads; -1 = any.
    pub helper_cpu: i32,
    /// File size at which a new file begins, bytes; the path must then hold {}. 0 = one file.
    pub roll_bytes: u64,
    /// Unit of preparation, bytes; 0 = chosen.
    pub window_bytes: u64,
    /// Capacity of the ring, bytes.
    pub ring_bytes: u64,
    /// Ceiling on memory, bytes.
    pub memory_bytes_max: u64,
    /// With `PRECURSOR_GROW`: all rings together, bytes.
    pub grow_bytes_max: u64,
    /// A thread syncs this often, ms; 0 = only `precursor_sync_to` does.
    pub sync_every_ms: u64,
}

/// Counters; see the Rust documentation of `Stats`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct precursor_stats {
    /// Mode in use, never `PRECURSOR_AUTO`.
    pub mode: u32,
    /// 1 if its memory is locked.
    pub locked: u32,
    pub appends: u64,
    pub position: u64,
    pub run_ahead_bytes: u64,
    pub late_windows: u64,
    pub waits: u64,
    /// 0 if not measured.
    pub worst_append_ns: u64,
    pub flusher_lag_bytes: u64,
    pub at_risk_bytes: u64,
    pub durable: u64,
    pub memory_bytes: u64,
    pub rolls: u64,
    pub grown: u64,
    /// Times `window` went over to its ring.
    pub fallbacks: u64,
    /// `UINT64_MAX`: space enough; else the bytes left on a disk that is running full.
    pub out_of_space: u64,
}

/// What recovery found.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct precursor_recovered {
    /// Exact length of the last file now, bytes.
    pub len: u64,
    /// Written from the ring to the file, bytes.
    pub replayed_bytes: u64,
    /// Cut off behind the end, bytes.
    pub cut_bytes: u64,
    /// 0 length, 1 live block (exact), 2 frames, 3 journalled position, 4 unproven length.
    pub evidence: u32,
}

pub(crate) struct Refusal {
    pub(crate) code: c_int,
    pub(crate) message: String,
}

pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
    Refusal { code: PRECURSOR_INVALID, message: message.into() }
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Refusal {
        let code = match &error {
            OpenError::Options { .. } | OpenError::Exists { .. } => PRECURSOR_INVALID,
            OpenError::Refused { .. } => PRECURSOR_REFUSED,
            OpenError::Busy { .. } => PRECURSOR_BUSY,
            OpenError::Recover(_) | OpenError::Io { .. } => PRECURSOR_FAILED,
        };
        Refusal { code, message: error.to_string() }
    }
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Refusal {
        let code = match &error {
            AppendError::TooLong { .. } => PRECURSOR_TOO_LONG,
            AppendError::Full { .. } => PRECURSOR_FULL,
            AppendError::OutOfSpace { .. } => PRECURSOR_NO_SPACE,
            AppendError::Failed { .. } => PRECURSOR_FAILED,
            AppendError::NotReserved { .. } | AppendError::Forked => PRECURSOR_INVALID,
        };
        Refusal { code, message: error.to_string() }
    }
}

impl From<SyncError> for Refusal {
    fn from(error: SyncError) -> Refusal {
        let code = if matches!(error, SyncError::Beyond { .. }) { PRECURSOR_INVALID } else { PRECURSOR_FAILED };
        Refusal { code, message: error.to_string() }
    }
}

/// Where a message may go: the caller's buffer, always ended by a zero.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) at: *mut c_char,
    pub(crate) len: usize,
}

impl Told {
    pub(crate) fn tell(self, message: &str) {
        if self.at.is_null() || self.len == 0 {
            return;
        }
        let bytes: Vec<u8> = message.bytes().filter(|b| *b != 0).take(self.len - 1).collect();
        // SAFETY: the caller of the ABI vouches for `len` writable bytes at `at`; the copy leaves one for the zero.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), self.at, bytes.len());
            *self.at.add(bytes.len()) = 0;
        }
    }
}

/// Runs the work of one call; nothing unwinds past here.
pub(crate) fn border(told: Told, work: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => PRECURSOR_OK,
        Ok(Err(refusal)) => {
            told.tell(&refusal.message);
            refusal.code
        }
        Err(_) => {
            told.tell("a bug in the library was caught; do not use this appender again");
            PRECURSOR_PANIC
        }
    }
}

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
/// This process was forked after the handle was opened; only the one that opened may use it.
pub const PRECURSOR_FORKED: c_int = 9;

/// Version of the header, as `precursor_version` gives the library's: 0x00MMmmpp.
pub const PRECURSOR_VERSION: u32 = 0x0001_0000;

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

/// How to open. Fill it with `precursor_options_default` first, then change fields: later versions may add some at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct precursor_options {
    /// `sizeof(precursor_options)` of the caller; set by `precursor_options_default`. A shorter one, of an older header, gets defaults for
    /// what it lacks; of a longer one, of a newer header, the rest must be zero.
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
    /// Folder for shared memory, zero-terminated; null = /dev/shm.
    pub shm_dir: *const c_char,
    /// Not zero: `PRECURSOR_WINDOW` leaves the process's SIGBUS handler alone.
    pub leave_sigbus: u32,
    /// Not zero: `PRECURSOR_AUTO` may take a mode whose records survive the process only after `precursor_sync_to`.
    pub process_death_may_lose: u32,
}

/// Counters; see the Rust documentation of `Stats`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct precursor_stats {
    /// Set it to `sizeof(precursor_stats)` before the call; afterwards how much of it was filled.
    pub size: usize,
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
    /// Set it to `sizeof(precursor_recovered)` before the call; afterwards how much of it was filled.
    pub size: usize,
    /// Exact length of the last file now, bytes.
    pub len: u64,
    /// Written from the ring to the file, bytes.
    pub replayed_bytes: u64,
    /// Cut off behind the end, bytes.
    pub cut_bytes: u64,
    /// 0 length, 1 live block (exact), 2 frames, 3 journalled position, 4 unproven length.
    pub evidence: u32,
    /// Zero.
    pub reserved: u32,
}

/// A structure that begins with its size in bytes, and only ever grows at its end.
///
/// # Safety
/// `repr(C)`, its first field is `size: usize`, it has no padding, and any bytes in its other fields are a value.
pub(crate) unsafe trait Sized8: Copy {}
// SAFETY: as above; pairs of 32 bits, and words of 64.
unsafe impl Sized8 for precursor_options {}
// SAFETY: as above.
unsafe impl Sized8 for precursor_stats {}
// SAFETY: as above.
unsafe impl Sized8 for precursor_recovered {}

/// Longest structure that any version will have; a size beyond it was never set.
const SIZE_MAX: usize = 4096;

/// # Safety
/// `at` is readable for its first field.
unsafe fn size_at<T: Sized8>(at: *const T) -> Result<usize, Refusal> {
    // SAFETY: by the contract.
    let size = unsafe { at.cast::<usize>().read() };
    if size < size_of::<usize>() || size > SIZE_MAX || !size.is_multiple_of(8) {
        return Err(invalid(format!("a structure's size field is {size}: set it first")));
    }
    Ok(size)
}

/// Takes a caller's structure over one of ours, as far as the caller's version knows it.
///
/// # Safety
/// `at` is readable for as many bytes as its first field says.
pub(crate) unsafe fn read_sized<T: Sized8>(at: *const T, ours: T) -> Result<T, Refusal> {
    // SAFETY: by the contract.
    let size = unsafe { size_at(at)? };
    let known = size.min(size_of::<T>());
    let mut out = ours;
    // SAFETY: `known` bytes are readable there and writable here; `Sized8` makes any bytes a value.
    unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), (&raw mut out).cast::<u8>(), known) };
    // SAFETY: by the contract.
    let rest = unsafe { std::slice::from_raw_parts(at.cast::<u8>().add(known), size - known) };
    match rest.iter().all(|b| *b == 0) {
        true => Ok(out),
        false => {
            Err(invalid("options use fields that this version of the library does not know; leave the new fields zero"))
        }
    }
}

/// Fills a caller's structure as far as both know it, and says in its size how far that is; what is beyond becomes zero.
///
/// # Safety
/// `at` is writable for as many bytes as its first field says.
pub(crate) unsafe fn write_sized<T: Sized8>(at: *mut T, filled: &T) -> Result<(), Refusal> {
    // SAFETY: by the contract.
    let size = unsafe { size_at(at)? };
    let known = size.min(size_of::<T>());
    // SAFETY: as above.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *filled).cast::<u8>(), at.cast::<u8>(), known);
        std::ptr::write_bytes(at.cast::<u8>().add(known), 0, size - known);
        at.cast::<usize>().write(known);
    }
    Ok(())
}

pub(crate) struct Refusal {
    pub(crate) code: c_int,
    /// None where the call has no room for one: an append that finds no room is the program's everyday, and costs no allocation.
    pub(crate) message: Option<String>,
}

pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
    Refusal { code: PRECURSOR_INVALID, message: Some(message.into()) }
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Refusal {
        let code = match &error {
            OpenError::Options { .. } | OpenError::Exists { .. } => PRECURSOR_INVALID,
            OpenError::Refused { .. } => PRECURSOR_REFUSED,
            OpenError::Busy { .. } => PRECURSOR_BUSY,
            OpenError::Recover(_) | OpenError::Io { .. } => PRECURSOR_FAILED,
        };
        Refusal { code, message: Some(error.to_string()) }
    }
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Refusal {
        let code = match &error {
            AppendError::TooLong { .. } => PRECURSOR_TOO_LONG,
            AppendError::Full { .. } => PRECURSOR_FULL,
            AppendError::OutOfSpace { .. } => PRECURSOR_NO_SPACE,
            AppendError::Failed { .. } => PRECURSOR_FAILED,
            AppendError::NotReserved { .. } => PRECURSOR_INVALID,
            AppendError::Forked => PRECURSOR_FORKED,
        };
        Refusal { code, message: None }
    }
}

impl From<SyncError> for Refusal {
    fn from(error: SyncError) -> Refusal {
        let code = match &error {
            SyncError::Beyond { .. } => PRECURSOR_INVALID,
            SyncError::Failed { .. } => PRECURSOR_FAILED,
            SyncError::Forked => PRECURSOR_FORKED,
        };
        Refusal { code, message: Some(error.to_string()) }
    }
}

/// Where a message may go: the caller's buffer, always ended by a zero.
#[derive(Clone, Copy)]
pub(crate) struct MessageBuffer {
    pub(crate) at: *mut c_char,
    pub(crate) len: usize,
}

/// For calls that have no room for a message.
pub(crate) const SILENT: MessageBuffer = MessageBuffer { at: std::ptr::null_mut(), len: 0 };

impl MessageBuffer {
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
pub(crate) fn border(told: MessageBuffer, work: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => PRECURSOR_OK,
        Ok(Err(refusal)) => {
            told.tell(refusal.message.as_deref().unwrap_or_default());
            refusal.code
        }
        Err(_) => {
            told.tell("a bug in the library was caught; do not use this appender again");
            PRECURSOR_PANIC
        }
    }
}

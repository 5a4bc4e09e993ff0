//! Codes and structures of the C interface, and the conversion of errors to codes and messages.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::core::Core;
use crate::{AppendError, OpenError, SyncError};

/// Success.
pub const PRECURSOR_OK: c_int = 0;
/// An argument is null or out of range, a handle is not open, the options contradict one another, the file exists
/// although it must not, a commit has no matching reservation, or a position was never appended.
pub const PRECURSOR_INVALID: c_int = 1;
/// This machine cannot run the requested mode; `PRECURSOR_AUTO` would choose another.
pub const PRECURSOR_REFUSED: c_int = 2;
/// Another appender has the file open.
pub const PRECURSOR_BUSY: c_int = 3;
/// No room is left, and the policy is `PRECURSOR_FAIL`: try again later.
pub const PRECURSOR_FULL: c_int = 4;
/// The disk or the quota is full.
pub const PRECURSOR_NO_SPACE: c_int = 5;
/// The record is longer than the mode can take.
pub const PRECURSOR_TOO_LONG: c_int = 6;
/// The device, the file system, a helper thread or recovery failed, or the appender is closed.
pub const PRECURSOR_FAILED: c_int = 7;
/// A bug in the library. Every later call on the handle returns this too. The file stays locked until the process ends;
/// opening it then recovers it.
pub const PRECURSOR_PANIC: c_int = 8;
/// This process was forked after the handle was opened. Only the process that opened it may use it.
pub const PRECURSOR_FORKED: c_int = 9;

/// No record is published yet.
pub const PRECURSOR_NONE: c_int = 10;
/// Records are missing, because files were archived or removed. The next call continues behind the gap.
pub const PRECURSOR_MISSING: c_int = 11;

/// Version of the header, 0x00MMmmpp. `precursor_version` returns the library's.
pub const PRECURSOR_VERSION: u32 = 0x0001_0200;

/// Modes, for `precursor_options.mode` and `precursor_stats.mode`.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum precursor_mode {
    /// Probe the machine and choose a mode.
    PRECURSOR_AUTO = 0,
    /// The writer stores into a locked ring in memory; a flusher thread writes the file.
    PRECURSOR_RING = 1,
    /// The writer stores into a mapped, populated and locked window of the file.
    PRECURSOR_WINDOW = 2,
    /// The writer calls `pwrite` on preallocated zeros that a helper thread reads ahead.
    PRECURSOR_PREFETCH = 3,
    /// The writer calls `pwrite`; nothing is prepared.
    PRECURSOR_PLAIN = 4,
}

/// The mode as a number, for Rust.
pub const PRECURSOR_AUTO: u32 = precursor_mode::PRECURSOR_AUTO as u32;
/// The mode as a number, for Rust.
pub const PRECURSOR_RING: u32 = precursor_mode::PRECURSOR_RING as u32;
/// The mode as a number, for Rust.
pub const PRECURSOR_WINDOW: u32 = precursor_mode::PRECURSOR_WINDOW as u32;
/// The mode as a number, for Rust.
pub const PRECURSOR_PREFETCH: u32 = precursor_mode::PRECURSOR_PREFETCH as u32;
/// The mode as a number, for Rust.
pub const PRECURSOR_PLAIN: u32 = precursor_mode::PRECURSOR_PLAIN as u32;

/// Without room, wait.
pub const PRECURSOR_WAIT: u32 = 0;
/// Without room, return `PRECURSOR_FULL`.
pub const PRECURSOR_FAIL: u32 = 1;
/// Without room, grow the ring up to `grow_bytes_max`, then wait.
pub const PRECURSOR_GROW: u32 = 2;

/// Append to an existing file, at the end of the data.
pub const PRECURSOR_CONTINUE: u32 = 0;
/// Discard the contents of an existing file.
pub const PRECURSOR_REPLACE: u32 = 1;
/// Refuse to open an existing file.
pub const PRECURSOR_REFUSE: u32 = 2;

/// Options of `precursor_open`. Call `precursor_options_default` first, then change fields: later versions may add
/// fields at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct precursor_options {
    /// The caller's `sizeof(precursor_options)`, set by `precursor_options_default`. Fields that a shorter, older
    /// structure lacks have their defaults; bytes that a longer, newer one adds must be zero.
    pub size: usize,
    /// A `precursor_mode`.
    pub mode: u32,
    /// `PRECURSOR_WAIT`, `PRECURSOR_FAIL` or `PRECURSOR_GROW`.
    pub back_pressure: u32,
    /// `PRECURSOR_CONTINUE`, `PRECURSOR_REPLACE` or `PRECURSOR_REFUSE`.
    pub existing: u32,
    /// Not zero: each record carries its length, a checksum and its number. `precursor_reader_open` reads such files.
    pub framed: u32,
    /// Not zero: readers of the file see each byte once `append` has returned.
    pub readable_at_once: u32,
    /// Not zero: measure every append for `worst_append_ns`.
    pub measure: u32,
    /// NUMA node of the memory, which the machine must have; -1 = the node of the opening thread.
    pub node: i32,
    /// CPU of the helper threads, which the machine must have; -1 = any.
    pub helper_cpu: i32,
    /// Size at which a new file begins, bytes; the path must then contain {}. 0 = one file.
    pub roll_bytes: u64,
    /// Bytes prepared and released at a time; 0 = chosen by the library.
    pub window_bytes: u64,
    /// Capacity of the ring, bytes.
    pub ring_bytes: u64,
    /// Upper limit of memory, bytes.
    pub memory_bytes_max: u64,
    /// With `PRECURSOR_GROW`: upper limit of all rings together, bytes.
    pub grow_bytes_max: u64,
    /// Interval at which a thread of the library syncs, ms; 0 = only `precursor_sync_to` syncs.
    pub sync_every_ms: u64,
    /// Directory for shared memory, zero-terminated; null = /dev/shm.
    pub shm_dir: *const c_char,
    /// Not zero: `PRECURSOR_WINDOW` does not install a SIGBUS handler.
    pub leave_sigbus: u32,
    /// Not zero: `PRECURSOR_AUTO` may choose a mode whose records survive the process only after `precursor_sync_to`.
    pub process_death_may_lose: u32,
    /// Not zero: framed records carry the time of their append.
    pub times: u32,
    /// Always 0.
    pub reserved: u32,
    /// Age at which a new file begins, ms; needs `roll_bytes`. 0 = at no age.
    pub roll_every_ms: u64,
    /// Most files of a pattern; older files are removed. 0 = all are kept.
    pub retain_files: u64,
    /// Most bytes of all files of a pattern; older files are removed. 0 = all are kept.
    pub retain_bytes: u64,
}

/// Counters; see the Rust documentation of `Stats`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct precursor_stats {
    /// Set to `sizeof(precursor_stats)` before the call; the library stores how many bytes it filled.
    pub size: usize,
    /// The mode in use, never `PRECURSOR_AUTO`.
    pub mode: u32,
    /// 1 if the mode's memory is locked.
    pub locked: u32,
    /// Records accepted.
    pub appends: u64,
    /// End of the appended data.
    pub position: u64,
    /// Bytes that the writer can append without waiting for the helper.
    pub run_ahead_bytes: u64,
    /// How often the writer reached a window or a file that was not ready.
    pub late_windows: u64,
    /// How many appends waited.
    pub waits: u64,
    /// Longest append, ns; 0 if not measured.
    pub worst_append_ns: u64,
    /// Accepted bytes that are not yet written to the file.
    pub flusher_lag_bytes: u64,
    /// Bytes that would be lost if the machine died now.
    pub at_risk_bytes: u64,
    /// Last durable position.
    pub durable: u64,
    /// Upper limit of the memory before the writer.
    pub memory_bytes: u64,
    /// Files begun after the first.
    pub rolls: u64,
    /// Rings added after the first.
    pub grown: u64,
    /// How often `window` switched to its ring.
    pub fallbacks: u64,
    /// `UINT64_MAX` while there is enough space; otherwise the bytes left on the full disk.
    pub out_of_space: u64,
}

/// Result of `precursor_recover`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct precursor_recovered {
    /// Set to `sizeof(precursor_recovered)` before the call; the library stores how many bytes it filled.
    pub size: usize,
    /// Exact length of the last file after recovery, bytes.
    pub len: u64,
    /// Bytes written from the ring to the file.
    pub replayed_bytes: u64,
    /// Bytes cut off beyond the end of the data.
    pub cut_bytes: u64,
    /// How the end was found: 0 length, 1 live block (exact), 2 frames, 3 journalled position, 4 unproven length.
    pub evidence: u32,
    /// Always 0.
    pub reserved: u32,
}

/// A record, filled in by `precursor_reader_next`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct precursor_record {
    /// Set to `sizeof(precursor_record)` before the call; the library stores how many bytes it filled.
    pub size: usize,
    /// Number of the record: consecutive over all files.
    pub number: u64,
    /// Time of the append, ns since 1970; 0 if the writer recorded none.
    pub time_ns: u64,
    /// End of the record, as `precursor_append` stored it.
    pub position: u64,
    /// The payload, valid until the next call on the reader.
    pub bytes: *const u8,
    /// Length of the payload, bytes.
    pub len: usize,
}

/// A structure whose first field is its size in bytes, and which only grows at its end.
///
/// # Safety
/// `repr(C)`; the first field is `size: usize`; it has no padding; and any bytes are valid values of the other
/// fields.
pub(crate) unsafe trait Sized8: Copy {}
// SAFETY: after the size, integers and pointers in pairs of 32 bits or words of 64, so no padding where usize has 64
// bits.
unsafe impl Sized8 for precursor_options {}
// SAFETY: as for `precursor_options`.
unsafe impl Sized8 for precursor_stats {}
// SAFETY: as for `precursor_options`.
unsafe impl Sized8 for precursor_recovered {}
// SAFETY: as for `precursor_options`.
unsafe impl Sized8 for precursor_record {}

/// Longest structure of any version, bytes; a larger size means that the caller has not set it.
const SIZE_MAX: usize = 4096;

/// # Safety
/// `at` is readable for its first field.
unsafe fn size_at<T: Sized8>(at: *const T) -> Result<usize, Refusal> {
    // SAFETY: the caller guarantees a readable first field.
    let size = unsafe { at.cast::<usize>().read() };
    if size < size_of::<usize>() || size > SIZE_MAX || !size.is_multiple_of(8) {
        return Err(invalid(format!("the size field of a structure is {size}: set it before the call")));
    }
    Ok(size)
}

/// Copies a caller's structure over `ours`, as many fields as both versions have.
///
/// # Safety
/// `at` has as many readable bytes as its first field says.
pub(crate) unsafe fn read_sized<T: Sized8>(at: *const T, ours: T) -> Result<T, Refusal> {
    // SAFETY: the caller guarantees a readable first field.
    let size = unsafe { size_at(at)? };
    let known = size.min(size_of::<T>());
    let mut out = ours;
    // SAFETY: `known` bytes are readable at `at` and fit into `out`; `Sized8` makes any bytes valid values.
    unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), (&raw mut out).cast::<u8>(), known) };
    // SAFETY: the caller guarantees `size` readable bytes, and `known` is at most `size`.
    let rest = unsafe { std::slice::from_raw_parts(at.cast::<u8>().add(known), size - known) };
    match rest.iter().all(|b| *b == 0) {
        true => Ok(out),
        false => {
            Err(invalid("options use fields that this version of the library does not know; leave the new fields zero"))
        }
    }
}

/// Fills a caller's structure as far as both versions have the fields, stores that length as its size, and zeroes the
/// remaining bytes.
///
/// # Safety
/// `at` has as many writable bytes as its first field says.
pub(crate) unsafe fn write_sized<T: Sized8>(at: *mut T, filled: &T) -> Result<(), Refusal> {
    // SAFETY: the caller guarantees a readable first field.
    let size = unsafe { size_at(at)? };
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are readable in `filled`; `at` has `size` writable bytes, and `known` is at most `size`.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *filled).cast::<u8>(), at.cast::<u8>(), known);
        std::ptr::write_bytes(at.cast::<u8>().add(known), 0, size - known);
        at.cast::<usize>().write(known);
    }
    Ok(())
}

pub(crate) struct Refusal {
    pub(crate) code: c_int,
    /// `None` for calls without a message buffer: a refused append is frequent and must not allocate.
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

/// The caller's buffer for a message, which is always zero-terminated.
#[derive(Clone, Copy)]
pub(crate) struct MessageBuffer {
    pub(crate) at: *mut c_char,
    pub(crate) len: usize,
}

/// For calls without a message buffer.
pub(crate) const SILENT: MessageBuffer = MessageBuffer { at: std::ptr::null_mut(), len: 0 };

impl MessageBuffer {
    /// Writes why the appender has failed, or an empty string.
    pub(crate) fn write_failure(self, core: &Core) {
        self.write(&core.failure.get().map(|f| format!("{}: {}", f.what, f.message)).unwrap_or_default());
    }

    pub(crate) fn write(self, message: &str) {
        if self.at.is_null() || self.len == 0 {
            return;
        }
        let bytes: Vec<u8> = message.bytes().filter(|b| *b != 0).take(self.len - 1).collect();
        // SAFETY: the caller of the C function guarantees `len` writable bytes; the copy leaves one for the zero.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), self.at, bytes.len());
            *self.at.add(bytes.len()) = 0;
        }
    }
}

/// Runs the work of one call; a panic becomes `PRECURSOR_PANIC`.
pub(crate) fn border(message: MessageBuffer, work: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => PRECURSOR_OK,
        Ok(Err(refusal)) => {
            message.write(refusal.message.as_deref().unwrap_or_default());
            refusal.code
        }
        Err(_) => {
            message.write("a bug in the library was caught; do not use this appender again");
            PRECURSOR_PANIC
        }
    }
}

//! The C interface for a single producer. cbindgen generates `include/precursor.h` from `c_types.rs`, this file,
//! `c_many.rs` and `c_read.rs`. No panic crosses the interface; null pointers, closed handles and invalid numbers return a code.

use std::ffi::{c_char, c_int};

use crate::c_convert::{DEFAULTS, open_into, path_of, put, put_stats, put_synced, record_of, text_of};
use crate::c_handle::Table;
use crate::c_types::{MessageBuffer, Refusal, SILENT, border, invalid, write_sized};
use crate::{After, Appender, Evidence, Options, Position, Recovered};

pub use crate::c_many::*;
pub use crate::c_read::*;
pub use crate::c_types::*;

/// An open appender. One thread at a time may use it, for every function; `precursor_syncer` serves other threads. A
/// handle is a number and not an address: a handle that is closed, or was never opened, returns `PRECURSOR_INVALID`.
#[allow(missing_debug_implementations, reason = "opaque to C")]
pub struct precursor {
    pub(crate) appender: Appender,
    reasons: std::ffi::CString,
}

/// Handles of single producers.
pub(crate) static APPENDERS: Table<precursor> = Table::new(1);

/// Version of the library: 0x00MMmmpp. A library is compatible with a header that has the same MM in
/// `PRECURSOR_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn precursor_version() -> u32 {
    PRECURSOR_VERSION
}

/// Fills in the defaults. `size` is the caller's `sizeof(precursor_options)`, which may differ from the library's.
///
/// # Safety
/// `options` is null, or points to `size` writable bytes aligned for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_options_default(options: *mut precursor_options, size: usize) -> c_int {
    border(SILENT, || {
        if options.is_null() || size < size_of::<usize>() {
            return Err(invalid("options is null, or size is too small"));
        }
        // SAFETY: `size` is at least one word, and the caller provides `size` writable, aligned bytes.
        unsafe { options.cast::<usize>().write(size) };
        // SAFETY: the first word now says `size`, and the caller provides that many writable bytes.
        unsafe { write_sized(options, &DEFAULTS)? };
        // Not the size that `write_sized` stored: fields that this library does not know stay zero, and are checked in
        // open.
        // SAFETY: as for the first store.
        unsafe { options.cast::<usize>().write(size) };
        Ok(())
    })
}

/// Opens `path` and stores the appender in `*out`. On failure `*out` is null, and `message` (if not null) receives the
/// cause and the remedy.
///
/// # Safety
/// `path` is a zero-terminated string. `options` is null (defaults) or filled by `precursor_options_default`. `out` is
/// null or writable. `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_open(
    path: *const c_char,
    options: *const precursor_options,
    out: *mut *mut precursor,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        let opened = |options: Options| {
            let appender = options.open()?;
            let reasons = text_of(appender.reasons());
            Ok(precursor { appender, reasons })
        };
        // SAFETY: the caller guarantees for `path`, `options` and `out` what `open_into` requires.
        unsafe { open_into(&APPENDERS, path, options, out, opened) }
    })
}

/// Appends `len` bytes. `*position` (may be null) receives the end of the record.
///
/// # Safety
/// No other thread uses `handle` now. `bytes` has `len` readable bytes. `position` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_append(
    handle: *mut precursor,
    bytes: *const u8,
    len: usize,
    position: *mut u64,
) -> c_int {
    let work = |open: &mut precursor| {
        // SAFETY: the caller guarantees `len` readable bytes.
        let bytes = unsafe { record_of(bytes, len)? };
        let end = open.appender.append(bytes)?;
        // SAFETY: the caller guarantees that `position` is null or writable.
        unsafe { put(position, end.bytes()) };
        Ok(())
    };
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { APPENDERS.exclusive(handle, SILENT, work) }
}

/// Lends `len` bytes of the file's or the ring's memory at `*at`, valid until the next call on this appender.
///
/// # Safety
/// No other thread uses `handle` now. `at` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reserve(handle: *mut precursor, len: usize, at: *mut *mut u8) -> c_int {
    let work = |open: &mut precursor| {
        if at.is_null() {
            return Err(invalid("at is null"));
        }
        let place = open.appender.reserve(len)?;
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { put(at, place.as_mut_ptr()) };
        Ok(())
    };
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { APPENDERS.exclusive(handle, SILENT, work) }
}

/// Appends the first `len` bytes of the reservation, and drops the reservation.
///
/// # Safety
/// As for `precursor_append`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_commit(handle: *mut precursor, len: usize, position: *mut u64) -> c_int {
    let work = |open: &mut precursor| {
        let end = open.appender.commit(len)?;
        // SAFETY: the caller guarantees that `position` is null or writable.
        unsafe { put(position, end.bytes()) };
        Ok(())
    };
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { APPENDERS.exclusive(handle, SILENT, work) }
}

/// End of the appended data; 0 if `handle` is not open.
///
/// # Safety
/// No other thread uses `handle` now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_position(handle: *const precursor) -> u64 {
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { APPENDERS.get(handle) }.map_or(0, |open| open.appender.position().bytes())
}

/// Makes everything up to `position` durable. `*durable` (may be null) receives the durable position, at least
/// `position`.
///
/// # Safety
/// No other thread uses `handle` now. `durable` is null or writable. `message` is null or has
/// `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_sync_to(
    handle: *mut precursor,
    position: u64,
    durable: *mut u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let work = |open: &mut precursor| {
        let synced = open.appender.sync_to(Position(position));
        // SAFETY: the caller guarantees that `durable` is null or writable.
        unsafe { put_synced(durable, synced) }
    };
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { APPENDERS.exclusive(handle, MessageBuffer { at: message, len: message_len }, work) }
}

/// Why this mode was chosen and what it lacks, in one string that is valid until close; null if `handle` is not open.
///
/// # Safety
/// No other thread uses `handle` now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reasons(handle: *const precursor) -> *const c_char {
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { APPENDERS.get(handle) }.map_or(std::ptr::null(), |open| open.reasons.as_ptr())
}

/// 1 if a record survives the death of this process once `precursor_append` has returned. 0 if it survives only after
/// `precursor_sync_to`: without shared memory, or if that may be removed with a container or at a logout.
///
/// # Safety
/// No other thread uses `handle` now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_survives_process(handle: *const precursor) -> c_int {
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { APPENDERS.get(handle) }
        .map_or(0, |open| c_int::from(open.appender.survival().process_death == After::Append))
}

/// Writes the reason why appends return `PRECURSOR_FAILED` to `message`; an empty string if nothing has failed.
///
/// # Safety
/// No other thread uses `handle` now. `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_failure(
    handle: *const precursor,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let buffer = MessageBuffer { at: message, len: message_len };
    let work = |open: &mut precursor| {
        buffer.write_failure(&open.appender.core);
        Ok(())
    };
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { APPENDERS.exclusive(handle, buffer, work) }
}

/// Fills in the counters, as many bytes as `stats->size` says.
///
/// # Safety
/// No other thread uses `handle` now. `stats` is null or has `stats->size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_get_stats(handle: *mut precursor, stats: *mut precursor_stats) -> c_int {
    let work = |open: &mut precursor| {
        // SAFETY: the caller guarantees `stats->size` writable bytes.
        unsafe { put_stats(stats, open.appender.stats()) }
    };
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { APPENDERS.exclusive(handle, SILENT, work) }
}

/// Closes: gives the file its exact length and makes it durable. The handle is closed, whatever this returns.
///
/// # Safety
/// No other thread uses `handle` now. `message` is null or has `message_len` writable
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_close(handle: *mut precursor, message: *mut c_char, message_len: usize) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: the caller guarantees that no other thread uses the handle.
        unsafe { APPENDERS.remove(handle)? }.appender.close()?;
        Ok(())
    })
}

/// Cuts a file or pattern to the true end of the data after a crash.
///
/// # Safety
/// `path` is a zero-terminated string. `out` is null or has `out->size` writable bytes. `message` is null or has
/// `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_recover(
    path: *const c_char,
    out: *mut precursor_recovered,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: the caller guarantees a zero-terminated string.
        let path = unsafe { path_of(path)? };
        let found = crate::recover(path).map_err(|e| {
            let code = if matches!(e, crate::RecoverError::Busy { .. }) { PRECURSOR_BUSY } else { PRECURSOR_FAILED };
            Refusal { code, message: Some(e.to_string()) }
        })?;
        let evidence = match found.evidence {
            Evidence::Length => 0,
            Evidence::Live => 1,
            Evidence::Frames => 2,
            Evidence::Journalled => 3,
            Evidence::Unproven => 4,
        };
        let Recovered { len, replayed_bytes, cut_bytes, .. } = found;
        let size = size_of::<precursor_recovered>();
        let filled = precursor_recovered { size, len, replayed_bytes, cut_bytes, evidence, reserved: 0 };
        // SAFETY: not null, and the caller guarantees `out->size` writable bytes.
        if out.is_null() { Ok(()) } else { unsafe { write_sized(out, &filled) } }
    })
}

//! The C interface for a single producer. cbindgen generates `include/precursor.h` from `c_types.rs`, this file and
//! `c_many.rs`. No panic crosses the interface; null pointers and invalid numbers return a code.

use std::ffi::{c_char, c_int};

use crate::c_convert::{
    DEFAULTS, open_into, path_of, put, put_stats, put_synced, record_of, shared, taken_back, text_of,
};
use crate::c_types::{
    MessageBuffer, PRECURSOR_BUSY, PRECURSOR_FAILED, PRECURSOR_VERSION, Refusal, SILENT, border, invalid,
    precursor_options, precursor_recovered, precursor_stats, write_sized,
};
use crate::{After, Appender, Evidence, Options, Position, Recovered};

/// An open appender. One thread at a time may use it, for every function; `precursor_syncer` serves other threads.
#[allow(missing_debug_implementations, reason = "opaque to C")]
pub struct precursor {
    pub(crate) appender: Appender,
    reasons: std::ffi::CString,
}

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
        unsafe { open_into(path, options, out, opened) }
    })
}

/// # Safety
/// `handle` is null, or came from `precursor_open` and was not closed. No other thread uses it during `'a`.
unsafe fn appender_of<'a>(handle: *mut precursor) -> Result<&'a mut precursor, Refusal> {
    // SAFETY: the caller guarantees that a handle that is not null is open and not used elsewhere, so the borrow is
    // unique.
    unsafe { handle.as_mut() }.ok_or_else(|| invalid("the handle is null"))
}

/// Appends `len` bytes. `*position` (may be null) receives the end of the record.
///
/// # Safety
/// `handle` is null, or open and used by no other thread now. `bytes` has `len` readable bytes. `position` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_append(
    handle: *mut precursor,
    bytes: *const u8,
    len: usize,
    position: *mut u64,
) -> c_int {
    border(SILENT, || {
        // SAFETY: the caller guarantees that the handle is open and used by no other thread.
        let held = unsafe { appender_of(handle)? };
        // SAFETY: the caller guarantees `len` readable bytes.
        let bytes = unsafe { record_of(bytes, len)? };
        let end = held.appender.append(bytes)?;
        // SAFETY: the caller guarantees that `position` is null or writable.
        unsafe { put(position, end.bytes()) };
        Ok(())
    })
}

/// Lends `len` bytes of the file's or the ring's memory at `*at`, valid until the next call on this appender.
///
/// # Safety
/// `handle` is null, or open and used by no other thread now. `at` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reserve(handle: *mut precursor, len: usize, at: *mut *mut u8) -> c_int {
    border(SILENT, || {
        // SAFETY: the caller guarantees that the handle is open and used by no other thread.
        let held = unsafe { appender_of(handle)? };
        if at.is_null() {
            return Err(invalid("at is null"));
        }
        let place = held.appender.reserve(len)?;
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { put(at, place.as_mut_ptr()) };
        Ok(())
    })
}

/// Appends the first `len` bytes of the reservation, and drops the reservation.
///
/// # Safety
/// As for `precursor_append`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_commit(handle: *mut precursor, len: usize, position: *mut u64) -> c_int {
    border(SILENT, || {
        // SAFETY: the caller guarantees that the handle is open and used by no other thread.
        let end = unsafe { appender_of(handle)? }.appender.commit(len)?;
        // SAFETY: the caller guarantees that `position` is null or writable.
        unsafe { put(position, end.bytes()) };
        Ok(())
    })
}

/// End of the appended data; 0 if `handle` is null.
///
/// # Safety
/// `handle` is null, or open and used by no other thread now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_position(handle: *const precursor) -> u64 {
    // SAFETY: the caller guarantees that a handle that is not null is open and used by no other thread.
    unsafe { handle.as_ref() }.map_or(0, |h| h.appender.position().bytes())
}

/// Makes everything up to `position` durable. `*durable` (may be null) receives the durable position, at least
/// `position`.
///
/// # Safety
/// `handle` is null, or open and used by no other thread now. `durable` is null or writable. `message` is null or has
/// `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_sync_to(
    handle: *mut precursor,
    position: u64,
    durable: *mut u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: the caller guarantees that the handle is open and used by no other thread.
        let synced = unsafe { appender_of(handle)? }.appender.sync_to(Position(position));
        // SAFETY: the caller guarantees that `durable` is null or writable.
        unsafe { put_synced(durable, synced) }
    })
}

/// Why this mode was chosen and what it lacks, in one string that is valid until close; null if `handle` is null.
///
/// # Safety
/// `handle` is null, or open and used by no other thread now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reasons(handle: *const precursor) -> *const c_char {
    // SAFETY: the caller guarantees that a handle that is not null is open and used by no other thread.
    unsafe { handle.as_ref() }.map_or(std::ptr::null(), |h| h.reasons.as_ptr())
}

/// 1 if a record survives the death of this process once `precursor_append` has returned. 0 if it survives only after
/// `precursor_sync_to`: without shared memory, or if that may be removed with a container or at a logout.
///
/// # Safety
/// `handle` is null, or open and used by no other thread now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_survives_process(handle: *const precursor) -> c_int {
    // SAFETY: the caller guarantees that a handle that is not null is open and used by no other thread.
    unsafe { handle.as_ref() }.map_or(0, |h| c_int::from(h.appender.survival().process_death == After::Append))
}

/// Writes the reason why appends return `PRECURSOR_FAILED` to `message`; an empty string if nothing has failed.
///
/// # Safety
/// `handle` is null, or open and used by no other thread now. `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_failure(
    handle: *const precursor,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let told = MessageBuffer { at: message, len: message_len };
    border(told, || {
        // SAFETY: the caller guarantees that the handle is open and used by no other thread.
        let held = unsafe { shared(handle)? };
        let failure = held.appender.core.failure.get();
        told.tell(&failure.map(|f| format!("{}: {}", f.what, f.message)).unwrap_or_default());
        Ok(())
    })
}

/// Fills in the counters, as many bytes as `stats->size` says.
///
/// # Safety
/// `handle` is null, or open and used by no other thread now. `stats` is null or has `stats->size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_get_stats(handle: *mut precursor, stats: *mut precursor_stats) -> c_int {
    border(SILENT, || {
        // SAFETY: the caller guarantees that the handle is open and used by no other thread.
        let counted = unsafe { appender_of(handle)? }.appender.stats();
        // SAFETY: the caller guarantees `stats->size` writable bytes.
        unsafe { put_stats(stats, counted) }
    })
}

/// Closes: gives the file its exact length and makes it durable. The handle is freed, whatever this returns.
///
/// # Safety
/// `handle` is null, or open and used by no thread, now or later. `message` is null or has `message_len` writable
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_close(handle: *mut precursor, message: *mut c_char, message_len: usize) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: the caller guarantees that the handle is open and that nothing uses it any more.
        unsafe { taken_back(handle)? }.appender.close()?;
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

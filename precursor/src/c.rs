//! The C ABI: `include/precursor.h` is generated from this file and `c_types.rs`. No panic crosses it, and no C caller's null or wrong number
//! does harm.

use std::ffi::{c_char, c_int};

use crate::c_convert::{
    DEFAULTS, open_into, path_of, put, put_stats, put_synced, record_of, shared, taken_back, text_of,
};
use crate::c_types::{
    MessageBuffer, PRECURSOR_BUSY, PRECURSOR_FAILED, PRECURSOR_VERSION, Refusal, SILENT, border, invalid,
    precursor_options, precursor_recovered, precursor_stats, write_sized,
};
use crate::{After, Appender, Evidence, Options, Position, Recovered};

/// An open appender. One thread uses it at a time; `precursor_sync_to` and `precursor_get_stats` too.
#[allow(missing_debug_implementations, reason = "opaque to C")]
pub struct precursor {
    pub(crate) appender: Appender,
    reasons: std::ffi::CString,
}

/// The library's version: 0x00MMmmpp. The same MM as `PRECURSOR_VERSION` of the header is compatible with it.
#[unsafe(no_mangle)]
pub extern "C" fn precursor_version() -> u32 {
    PRECURSOR_VERSION
}

/// Fills in the defaults. `size` is `sizeof(precursor_options)` of the caller, whatever the library's is.
///
/// # Safety
/// `options` has `size` writable bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_options_default(options: *mut precursor_options, size: usize) -> c_int {
    border(SILENT, || {
        if options.is_null() || size < size_of::<usize>() {
            return Err(invalid("options are null, or too short for their own size"));
        }
        // SAFETY: the first field lies within `size` bytes, which are writable by the contract.
        unsafe { options.cast::<usize>().write(size) };
        // SAFETY: as above.
        unsafe { write_sized(options, &DEFAULTS)? };
        // The caller's, not what was filled: what this library does not know stays zero, and is checked when it is used.
        // SAFETY: as above.
        unsafe { options.cast::<usize>().write(size) };
        Ok(())
    })
}

/// Opens `path` and stores the appender in `*out`. On failure `*out` is null and `message` (if not null) holds a sentence that
/// says what happened and what to do.
///
/// # Safety
/// `path` is a zero-terminated string; `options` is null (defaults) or filled; `out` is writable; `message` is null or has
/// `message_len` writable bytes.
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
        // SAFETY: by the contract.
        unsafe { open_into(path, options, out, opened) }
    })
}

/// # Safety
/// `handle` is null or came from `precursor_open` and was not closed; nobody else uses it now.
unsafe fn appender_of<'a>(handle: *mut precursor) -> Result<&'a mut precursor, Refusal> {
    // SAFETY: by the contract.
    unsafe { handle.as_mut() }.ok_or_else(|| invalid("the handle is null"))
}

/// Appends `len` bytes. `*position` (may be null) receives the end of the record.
///
/// # Safety
/// `handle` is open and used by no other thread now; `bytes` has `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_append(
    handle: *mut precursor,
    bytes: *const u8,
    len: usize,
    position: *mut u64,
) -> c_int {
    border(SILENT, || {
        // SAFETY: by the contract.
        let held = unsafe { appender_of(handle)? };
        // SAFETY: by the contract.
        let bytes = unsafe { record_of(bytes, len)? };
        let end = held.appender.append(bytes)?;
        // SAFETY: by the contract.
        unsafe { put(position, end.bytes()) };
        Ok(())
    })
}

/// Lends `len` bytes of the file's own memory at `*at`, valid until the next call on this appender.
///
/// # Safety
/// `handle` is open and used by no other thread now; `at` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reserve(handle: *mut precursor, len: usize, at: *mut *mut u8) -> c_int {
    border(SILENT, || {
        // SAFETY: by the contract.
        let held = unsafe { appender_of(handle)? };
        if at.is_null() {
            return Err(invalid("at is null"));
        }
        let place = held.appender.reserve(len)?;
        // SAFETY: not null, writable by the contract.
        unsafe { put(at, place.as_mut_ptr()) };
        Ok(())
    })
}

/// Appends the first `len` bytes of the reservation.
///
/// # Safety
/// As for `precursor_append`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_commit(handle: *mut precursor, len: usize, position: *mut u64) -> c_int {
    border(SILENT, || {
        // SAFETY: by the contract.
        let end = unsafe { appender_of(handle)? }.appender.commit(len)?;
        // SAFETY: by the contract.
        unsafe { put(position, end.bytes()) };
        Ok(())
    })
}

/// End of what was appended; 0 for null.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_position(handle: *const precursor) -> u64 {
    // SAFETY: by the contract.
    unsafe { handle.as_ref() }.map_or(0, |h| h.appender.position().bytes())
}

/// Puts everything up to `position` on the device; `*durable` (may be null) receives how far it is safe.
///
/// # Safety
/// As for `precursor_append`; `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_sync_to(
    handle: *mut precursor,
    position: u64,
    durable: *mut u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: by the contract.
        let synced = unsafe { appender_of(handle)? }.appender.sync_to(Position(position));
        // SAFETY: by the contract.
        unsafe { put_synced(durable, synced) }
    })
}

/// Why this mode was chosen and what it does without; valid until close, null for null.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reasons(handle: *const precursor) -> *const c_char {
    // SAFETY: by the contract.
    unsafe { handle.as_ref() }.map_or(std::ptr::null(), |h| h.reasons.as_ptr())
}

/// 1 if a record survives the death of this process once `append` has returned, 0 if only after `precursor_sync_to`: without shared
/// memory, or where it may go with a container or at a logout.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_survives_process(handle: *const precursor) -> c_int {
    // SAFETY: by the contract.
    unsafe { handle.as_ref() }.map_or(0, |h| c_int::from(h.appender.survival().process_death == After::Append))
}

/// Why appends fail with `PRECURSOR_FAILED`: fills in `message`, which becomes empty while nothing has failed.
///
/// # Safety
/// `handle` is null or open; `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_failure(
    handle: *const precursor,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let told = MessageBuffer { at: message, len: message_len };
    border(told, || {
        // SAFETY: by the contract.
        let held = unsafe { shared(handle)? };
        let failure = held.appender.core.failure.get();
        told.tell(&failure.map(|f| format!("{}: {}", f.what, f.message)).unwrap_or_default());
        Ok(())
    })
}

/// Fills in the counters, as far as `stats->size` says that there is room.
///
/// # Safety
/// `handle` is open and used by no other thread now; `stats` has as many writable bytes as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_get_stats(handle: *mut precursor, stats: *mut precursor_stats) -> c_int {
    border(SILENT, || {
        // SAFETY: by the contract.
        let counted = unsafe { appender_of(handle)? }.appender.stats();
        // SAFETY: by the contract.
        unsafe { put_stats(stats, counted) }
    })
}

/// Closes: the file gets its exact length and is durable. The handle is gone whatever is returned.
///
/// # Safety
/// `handle` is null or open, and used by nobody; `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_close(handle: *mut precursor, message: *mut c_char, message_len: usize) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: by the contract.
        unsafe { taken_back(handle)? }.appender.close()?;
        Ok(())
    })
}

/// Brings a file or pattern to the true end of its data after a crash.
///
/// # Safety
/// `path` is a zero-terminated string; `out` is null or has as many writable bytes as its size says; `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_recover(
    path: *const c_char,
    out: *mut precursor_recovered,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: by the contract.
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
        // SAFETY: not null, and by the contract.
        if out.is_null() { Ok(()) } else { unsafe { write_sized(out, &filled) } }
    })
}

//! The rest of the C ABI: many producers, and handles that sync from other threads.

use std::ffi::{c_char, c_int};

use crate::c::precursor;
use crate::c_convert::{open_into, put, put_stats, put_synced, record_of, shared, taken_back, text_of};
use crate::c_types::{MessageBuffer, SILENT, border, invalid, precursor_options, precursor_stats};
use crate::{ManyAppender, Options, Position, Syncer};

/// An appender for many threads at a time: every function on it may be called from any thread, but `precursor_many_close` only once
/// no other call is under way.
#[allow(missing_debug_implementations, reason = "opaque to C")]
pub struct precursor_many {
    appender: ManyAppender,
    reasons: std::ffi::CString,
}

/// Syncs and looks from any thread, beside the one that appends. It outlives its appender; then it can only look.
#[allow(missing_debug_implementations, reason = "opaque to C")]
pub struct precursor_syncer {
    syncer: Syncer,
}

/// Opens `path` for many producers: framed records in a ring. As `precursor_open` otherwise.
///
/// # Safety
/// As for `precursor_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_open_many(
    path: *const c_char,
    options: *const precursor_options,
    out: *mut *mut precursor_many,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        let opened = |options: Options| {
            let appender = options.open_many()?;
            let reasons = text_of(&appender.reasons());
            Ok(precursor_many { appender, reasons })
        };
        // SAFETY: by the contract.
        unsafe { open_into(path, options, out, opened) }
    })
}

/// Appends `len` bytes, from any thread. `*position` (may be null) receives the end of the record.
///
/// # Safety
/// `handle` is open; `bytes` has `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_append(
    handle: *const precursor_many,
    bytes: *const u8,
    len: usize,
    position: *mut u64,
) -> c_int {
    border(SILENT, || {
        // SAFETY: by the contract.
        let held = unsafe { shared(handle)? };
        // SAFETY: by the contract.
        let bytes = unsafe { record_of(bytes, len)? };
        let end = held.appender.append(bytes)?;
        // SAFETY: by the contract.
        unsafe { put(position, end.bytes()) };
        Ok(())
    })
}

/// Puts everything up to `position` on the device; waits for the records of other producers before it.
///
/// # Safety
/// `handle` is open; `durable` is null or writable; `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_sync_to(
    handle: *const precursor_many,
    position: u64,
    durable: *mut u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: by the contract.
        let held = unsafe { shared(handle)? };
        // SAFETY: by the contract.
        unsafe { put_synced(durable, held.appender.sync_to(Position(position))) }
    })
}

/// Fills in the counters; `worst_append_ns` is not measured here.
///
/// # Safety
/// `handle` is open; `stats` has as many writable bytes as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_get_stats(handle: *const precursor_many, stats: *mut precursor_stats) -> c_int {
    border(SILENT, || {
        // SAFETY: by the contract.
        let held = unsafe { shared(handle)? };
        // SAFETY: by the contract.
        unsafe { put_stats(stats, held.appender.stats()) }
    })
}

/// Why this mode was chosen and what it does without; valid until close, null for null.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_reasons(handle: *const precursor_many) -> *const c_char {
    // SAFETY: by the contract.
    unsafe { handle.as_ref() }.map_or(std::ptr::null(), |h| h.reasons.as_ptr())
}

/// Closes for all producers. The handle is gone whatever is returned.
///
/// # Safety
/// `handle` is null or open, and used by nobody; `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_close(
    handle: *mut precursor_many,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: by the contract.
        unsafe { taken_back(handle)? }.appender.close()?;
        Ok(())
    })
}

/// # Safety
/// `out` is writable or null.
unsafe fn hand_out(syncer: Option<Syncer>, out: *mut *mut precursor_syncer) -> c_int {
    border(SILENT, || {
        if out.is_null() {
            return Err(invalid("out is null"));
        }
        let made = syncer.map_or(std::ptr::null_mut(), |syncer| Box::into_raw(Box::new(precursor_syncer { syncer })));
        // SAFETY: not null, writable by the contract.
        unsafe { out.write(made) };
        if made.is_null() { Err(invalid("appender is null")) } else { Ok(()) }
    })
}

/// Makes a handle for syncing from another thread; give it back with `precursor_syncer_free`.
///
/// # Safety
/// `handle` is null or open; `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_get_syncer(handle: *const precursor, out: *mut *mut precursor_syncer) -> c_int {
    // SAFETY: by the contract.
    unsafe { hand_out(handle.as_ref().map(|held| held.appender.syncer()), out) }
}

/// As `precursor_get_syncer`, of an appender for many threads.
///
/// # Safety
/// As for `precursor_get_syncer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_get_syncer(
    handle: *const precursor_many,
    out: *mut *mut precursor_syncer,
) -> c_int {
    // SAFETY: by the contract.
    unsafe { hand_out(handle.as_ref().map(|held| held.appender.syncer()), out) }
}

/// As `precursor_sync_to`, from any thread and at any time.
///
/// # Safety
/// `syncer` was not freed; `durable` is null or writable; `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_sync_to(
    syncer: *const precursor_syncer,
    position: u64,
    durable: *mut u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: by the contract.
        let held = unsafe { shared(syncer)? };
        // SAFETY: by the contract.
        unsafe { put_synced(durable, held.syncer.sync_to(Position(position))) }
    })
}

/// End of what was appended, as far as it can be seen from here; 0 for null.
///
/// # Safety
/// `syncer` is null or was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_position(syncer: *const precursor_syncer) -> u64 {
    // SAFETY: by the contract.
    unsafe { syncer.as_ref() }.map_or(0, |held| held.syncer.position().bytes())
}

/// Fills in the counters, from any thread.
///
/// # Safety
/// `syncer` was not freed; `stats` has as many writable bytes as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_get_stats(
    syncer: *const precursor_syncer,
    stats: *mut precursor_stats,
) -> c_int {
    border(SILENT, || {
        // SAFETY: by the contract.
        let held = unsafe { shared(syncer)? };
        // SAFETY: by the contract.
        unsafe { put_stats(stats, held.syncer.stats()) }
    })
}

/// Gives the handle back; null is nothing.
///
/// # Safety
/// `syncer` is null or was not freed, and is used by nobody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_free(syncer: *mut precursor_syncer) {
    // SAFETY: it came from `hand_out`, and by the contract.
    drop(unsafe { taken_back(syncer) });
}

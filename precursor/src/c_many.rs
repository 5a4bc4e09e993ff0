//! The C interface for many producers, and for handles that sync on other threads.

use std::ffi::{c_char, c_int};

use crate::c::precursor;
use crate::c_convert::{open_into, put, put_stats, put_synced, record_of, shared, taken_back, text_of};
use crate::c_types::{MessageBuffer, SILENT, border, invalid, precursor_options, precursor_stats};
use crate::{ManyAppender, Options, Position, Syncer};

/// An appender for many threads. Any thread may call any function on it at any time, except `precursor_many_close`,
/// which must be the last call: no other may be running or follow.
#[allow(missing_debug_implementations, reason = "opaque to C")]
pub struct precursor_many {
    appender: ManyAppender,
    reasons: std::ffi::CString,
}

/// Syncs and reads counters from any thread, while another thread appends. It outlives its appender; after close it can
/// only read counters.
#[allow(missing_debug_implementations, reason = "opaque to C")]
pub struct precursor_syncer {
    syncer: Syncer,
}

/// Opens `path` for many producers: framed records in a ring. Otherwise as `precursor_open`.
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
        // SAFETY: the caller guarantees for `path`, `options` and `out` what `open_into` requires.
        unsafe { open_into(path, options, out, opened) }
    })
}

/// Appends `len` bytes, from any thread. `*position` (may be null) receives the end of the record.
///
/// # Safety
/// `handle` is null or open. `bytes` has `len` readable bytes. `position` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_append(
    handle: *const precursor_many,
    bytes: *const u8,
    len: usize,
    position: *mut u64,
) -> c_int {
    border(SILENT, || {
        // SAFETY: the caller guarantees that the handle is open; only shared borrows exist before close.
        let held = unsafe { shared(handle)? };
        // SAFETY: the caller guarantees `len` readable bytes.
        let bytes = unsafe { record_of(bytes, len)? };
        let end = held.appender.append(bytes)?;
        // SAFETY: the caller guarantees that `position` is null or writable.
        unsafe { put(position, end.bytes()) };
        Ok(())
    })
}

/// Makes everything up to `position` durable. Waits for other producers whose records come before `position`.
///
/// # Safety
/// `handle` is null or open. `durable` is null or writable. `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_sync_to(
    handle: *const precursor_many,
    position: u64,
    durable: *mut u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: the caller guarantees that the handle is open; only shared borrows exist before close.
        let held = unsafe { shared(handle)? };
        // SAFETY: the caller guarantees that `durable` is null or writable.
        unsafe { put_synced(durable, held.appender.sync_to(Position(position))) }
    })
}

/// Fills in the counters. `worst_append_ns` is 0: it is not measured for many producers.
///
/// # Safety
/// `handle` is null or open. `stats` is null or has `stats->size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_get_stats(handle: *const precursor_many, stats: *mut precursor_stats) -> c_int {
    border(SILENT, || {
        // SAFETY: the caller guarantees that the handle is open; only shared borrows exist before close.
        let held = unsafe { shared(handle)? };
        // SAFETY: the caller guarantees `stats->size` writable bytes.
        unsafe { put_stats(stats, held.appender.stats()) }
    })
}

/// Why this mode was chosen and what it lacks, in one string that is valid until close; null if `handle` is null.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_reasons(handle: *const precursor_many) -> *const c_char {
    // SAFETY: the caller guarantees that a handle that is not null is open; only shared borrows exist before close.
    unsafe { handle.as_ref() }.map_or(std::ptr::null(), |h| h.reasons.as_ptr())
}

/// Closes for all producers. The handle is freed, whatever this returns.
///
/// # Safety
/// `handle` is null, or open and used by no thread, now or later. `message` is null or has `message_len` writable
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_close(
    handle: *mut precursor_many,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: the caller guarantees that the handle is open and that nothing uses it any more.
        unsafe { taken_back(handle)? }.appender.close()?;
        Ok(())
    })
}

/// # Safety
/// `out` is null or writable.
unsafe fn hand_out(syncer: Option<Syncer>, out: *mut *mut precursor_syncer) -> c_int {
    border(SILENT, || {
        if out.is_null() {
            return Err(invalid("out is null"));
        }
        let made = syncer.map_or(std::ptr::null_mut(), |syncer| Box::into_raw(Box::new(precursor_syncer { syncer })));
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { out.write(made) };
        if made.is_null() { Err(invalid("appender is null")) } else { Ok(()) }
    })
}

/// Creates a handle for syncing on another thread; free it with `precursor_syncer_free`.
///
/// # Safety
/// `handle` is null, or open and used by no other thread now. `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_get_syncer(handle: *const precursor, out: *mut *mut precursor_syncer) -> c_int {
    // SAFETY: the caller guarantees that a handle that is not null is open and used by no other thread, and that `out`
    // is null or writable.
    unsafe { hand_out(handle.as_ref().map(|held| held.appender.syncer()), out) }
}

/// As `precursor_get_syncer`, for an appender of many producers, from any thread.
///
/// # Safety
/// `handle` is null or open. `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_get_syncer(
    handle: *const precursor_many,
    out: *mut *mut precursor_syncer,
) -> c_int {
    // SAFETY: the caller guarantees that a handle that is not null is open, and that `out` is null or writable.
    unsafe { hand_out(handle.as_ref().map(|held| held.appender.syncer()), out) }
}

/// As `precursor_sync_to`, from any thread and at any time. After close it succeeds only up to the durable position.
///
/// # Safety
/// `syncer` is null or was not freed. `durable` is null or writable. `message` is null or has `message_len` writable
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_sync_to(
    syncer: *const precursor_syncer,
    position: u64,
    durable: *mut u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: the caller guarantees that the syncer was not freed; only shared borrows exist before that.
        let held = unsafe { shared(syncer)? };
        // SAFETY: the caller guarantees that `durable` is null or writable.
        unsafe { put_synced(durable, held.syncer.sync_to(Position(position))) }
    })
}

/// End of the appended data, as published to other threads; 0 if `syncer` is null.
///
/// # Safety
/// `syncer` is null or was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_position(syncer: *const precursor_syncer) -> u64 {
    // SAFETY: the caller guarantees that a syncer that is not null was not freed.
    unsafe { syncer.as_ref() }.map_or(0, |held| held.syncer.position().bytes())
}

/// Fills in the counters, from any thread.
///
/// # Safety
/// `syncer` is null or was not freed. `stats` is null or has `stats->size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_get_stats(
    syncer: *const precursor_syncer,
    stats: *mut precursor_stats,
) -> c_int {
    border(SILENT, || {
        // SAFETY: the caller guarantees that the syncer was not freed; only shared borrows exist before that.
        let held = unsafe { shared(syncer)? };
        // SAFETY: the caller guarantees `stats->size` writable bytes.
        unsafe { put_stats(stats, held.syncer.stats()) }
    })
}

/// Frees the handle. Null is allowed.
///
/// # Safety
/// `syncer` is null, or was not freed and is used by no thread, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_free(syncer: *mut precursor_syncer) {
    // SAFETY: it came from `Box::into_raw` in `hand_out`, and the caller guarantees that nothing uses it any more.
    drop(unsafe { taken_back(syncer) });
}

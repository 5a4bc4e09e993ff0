//! The C interface for many producers, and for handles that sync on other threads.

use std::ffi::{c_char, c_int};

use crate::c::{APPENDERS, precursor};
use crate::c_convert::{open_into, put, put_stats, put_synced, record_of, text_of};
use crate::c_handle::Table;
use crate::c_types::{MessageBuffer, SILENT, border, invalid, precursor_options, precursor_stats};
use crate::{ManyAppender, Options, Position, Syncer};

/// An appender for many threads. Any thread may call any function on it at any time, except that no other call may be
/// running during `precursor_many_close`. Later calls return `PRECURSOR_INVALID`.
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

static MANY: Table<precursor_many> = Table::new(2);
static SYNCERS: Table<precursor_syncer> = Table::new(3);

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
        unsafe { open_into(&MANY, path, options, out, opened) }
    })
}

/// Appends `len` bytes, from any thread. `*position` (may be null) receives the end of the record.
///
/// # Safety
/// No other thread closes `handle` now. `bytes` has `len` readable bytes. `position` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_append(
    handle: *const precursor_many,
    bytes: *const u8,
    len: usize,
    position: *mut u64,
) -> c_int {
    let work = |open: &precursor_many| {
        // SAFETY: the caller guarantees `len` readable bytes.
        let bytes = unsafe { record_of(bytes, len)? };
        let end = open.appender.append(bytes)?;
        // SAFETY: the caller guarantees that `position` is null or writable.
        unsafe { put(position, end.bytes()) };
        Ok(())
    };
    // SAFETY: the caller guarantees that no other thread closes the handle now.
    unsafe { MANY.shared(handle, SILENT, work) }
}

/// Makes everything up to `position` durable. Waits for other producers whose records come before `position`.
///
/// # Safety
/// No other thread closes `handle` now. `durable` is null or writable. `message` is null or has `message_len` writable
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_sync_to(
    handle: *const precursor_many,
    position: u64,
    durable: *mut u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let work = |open: &precursor_many| {
        let synced = open.appender.sync_to(Position(position));
        // SAFETY: the caller guarantees that `durable` is null or writable.
        unsafe { put_synced(durable, synced) }
    };
    // SAFETY: the caller guarantees that no other thread closes the handle now.
    unsafe { MANY.shared(handle, MessageBuffer { at: message, len: message_len }, work) }
}

/// Fills in the counters. `worst_append_ns` is 0: it is not measured for many producers.
///
/// # Safety
/// No other thread closes `handle` now. `stats` is null or has `stats->size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_get_stats(handle: *const precursor_many, stats: *mut precursor_stats) -> c_int {
    let work = |open: &precursor_many| {
        // SAFETY: the caller guarantees `stats->size` writable bytes.
        unsafe { put_stats(stats, open.appender.stats()) }
    };
    // SAFETY: the caller guarantees that no other thread closes the handle now.
    unsafe { MANY.shared(handle, SILENT, work) }
}

/// Why this mode was chosen and what it lacks, in one string that is valid until close; null if `handle` is not open.
///
/// # Safety
/// No other thread closes `handle` now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_reasons(handle: *const precursor_many) -> *const c_char {
    // SAFETY: the caller guarantees that no other thread closes the handle now.
    unsafe { MANY.get(handle) }.map_or(std::ptr::null(), |open| open.reasons.as_ptr())
}

/// As `precursor_failure`, from any thread.
///
/// # Safety
/// No other thread closes `handle` now. `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_failure(
    handle: *const precursor_many,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let buffer = MessageBuffer { at: message, len: message_len };
    let work = |open: &precursor_many| {
        buffer.write_failure(&open.appender.syncer().core);
        Ok(())
    };
    // SAFETY: the caller guarantees that no other thread closes the handle now.
    unsafe { MANY.shared(handle, buffer, work) }
}

/// Closes for all producers. The handle is closed, whatever this returns.
///
/// # Safety
/// No other thread uses `handle` now. `message` is null or has `message_len` writable
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_close(
    handle: *mut precursor_many,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        // SAFETY: the caller guarantees that no other thread uses the handle.
        unsafe { MANY.remove(handle)? }.appender.close()?;
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
        let handle = syncer.and_then(|syncer| SYNCERS.insert(precursor_syncer { syncer }));
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { out.write(handle.unwrap_or(std::ptr::null_mut())) };
        handle.map(|_| ()).ok_or_else(|| invalid("the appender is not open"))
    })
}

/// Creates a handle for syncing on another thread; free it with `precursor_syncer_free`.
///
/// # Safety
/// No other thread uses `handle` now. `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_get_syncer(handle: *const precursor, out: *mut *mut precursor_syncer) -> c_int {
    // SAFETY: the caller guarantees that no other thread uses the handle, and that `out` is null or writable.
    unsafe { hand_out(APPENDERS.get(handle).map(|open| open.appender.syncer()), out) }
}

/// As `precursor_get_syncer`, for an appender of many producers, from any thread.
///
/// # Safety
/// No other thread closes `handle` now. `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_many_get_syncer(
    handle: *const precursor_many,
    out: *mut *mut precursor_syncer,
) -> c_int {
    // SAFETY: the caller guarantees that no other thread closes the handle now, and that `out` is null or writable.
    unsafe { hand_out(MANY.get(handle).map(|open| open.appender.syncer()), out) }
}

/// As `precursor_sync_to`, from any thread and at any time. After close it succeeds only up to the durable position.
///
/// # Safety
/// No other thread frees `syncer` now. `durable` is null or writable. `message` is null or has `message_len` writable
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_sync_to(
    syncer: *const precursor_syncer,
    position: u64,
    durable: *mut u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let work = |open: &precursor_syncer| {
        // SAFETY: the caller guarantees that `durable` is null or writable.
        unsafe { put_synced(durable, open.syncer.sync_to(Position(position))) }
    };
    // SAFETY: the caller guarantees that no other thread frees the syncer now.
    unsafe { SYNCERS.shared(syncer, MessageBuffer { at: message, len: message_len }, work) }
}

/// End of the appended data, as published to other threads; 0 if `syncer` is not open.
///
/// # Safety
/// No other thread frees `syncer` now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_position(syncer: *const precursor_syncer) -> u64 {
    // SAFETY: the caller guarantees that no other thread frees the syncer now.
    unsafe { SYNCERS.get(syncer) }.map_or(0, |open| open.syncer.position().bytes())
}

/// Fills in the counters, from any thread.
///
/// # Safety
/// No other thread frees `syncer` now. `stats` is null or has `stats->size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_get_stats(
    syncer: *const precursor_syncer,
    stats: *mut precursor_stats,
) -> c_int {
    let work = |open: &precursor_syncer| {
        // SAFETY: the caller guarantees `stats->size` writable bytes.
        unsafe { put_stats(stats, open.syncer.stats()) }
    };
    // SAFETY: the caller guarantees that no other thread frees the syncer now.
    unsafe { SYNCERS.shared(syncer, SILENT, work) }
}

/// Frees the handle. Does nothing if it is null or not open.
///
/// # Safety
/// No other thread uses `syncer` now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_syncer_free(syncer: *mut precursor_syncer) {
    // SAFETY: the caller guarantees that no other thread uses the syncer.
    drop(unsafe { SYNCERS.remove(syncer) });
}

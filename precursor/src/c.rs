//! The C ABI: `include/precursor.h` is generated from this file and `c_types.rs`. No panic crosses it, and no C caller's null or wrong number
//! does harm.

use std::ffi::{CStr, c_char, c_int};
use std::path::PathBuf;
use std::time::Duration;

use crate::c_types::{
    PRECURSOR_AUTO, PRECURSOR_BUSY, PRECURSOR_CONTINUE, PRECURSOR_FAIL, PRECURSOR_FAILED, PRECURSOR_GROW,
    PRECURSOR_PLAIN, PRECURSOR_PREFETCH, PRECURSOR_REFUSE, PRECURSOR_REPLACE, PRECURSOR_RING, PRECURSOR_WAIT,
    PRECURSOR_WINDOW, Refusal, Told, border, invalid, precursor_options, precursor_recovered, precursor_stats,
};
use crate::{Appender, BackPressure, Durability, Evidence, Existing, Framing, Mode, Options, Position, Recovered};

/// An open appender. One thread uses it at a time; `precursor_sync_to` and `precursor_get_stats` too.
#[allow(missing_debug_implementations, reason = "opaque to C")]
pub struct precursor {
    appender: Appender,
    reasons: std::ffi::CString,
}

const SILENT: Told = Told { at: std::ptr::null_mut(), len: 0 };

/// Fills in the defaults.
///
/// # Safety
/// `options` points to a `precursor_options`, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_options_default(options: *mut precursor_options) {
    let defaults = precursor_options {
        size: size_of::<precursor_options>(),
        mode: PRECURSOR_AUTO,
        back_pressure: PRECURSOR_WAIT,
        existing: PRECURSOR_CONTINUE,
        framed: 0,
        readable_at_once: 0,
        measure: 1,
        node: -1,
        helper_cpu: -1,
        roll_bytes: 0,
        window_bytes: 0,
        ring_bytes: 8 << 20,
        memory_bytes_max: 64 << 20,
        grow_bytes_max: 0,
        sync_every_ms: 0,
    };
    if !options.is_null() {
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { options.write(defaults) };
    }
}

fn mode_of(code: u32) -> Result<Option<Mode>, Refusal> {
    Ok(match code {
        PRECURSOR_AUTO => None,
        PRECURSOR_RING => Some(Mode::Ring),
        PRECURSOR_WINDOW => Some(Mode::Window),
        PRECURSOR_PREFETCH => Some(Mode::Prefetch),
        PRECURSOR_PLAIN => Some(Mode::Plain),
        other => return Err(invalid(format!("mode {other} is not known"))),
    })
}

fn code_of(mode: Mode) -> u32 {
    match mode {
        Mode::Ring => PRECURSOR_RING,
        Mode::Window => PRECURSOR_WINDOW,
        Mode::Prefetch => PRECURSOR_PREFETCH,
        Mode::Plain => PRECURSOR_PLAIN,
    }
}

/// # Safety
/// `path` is a zero-terminated string or null.
unsafe fn path_of(path: *const c_char) -> Result<PathBuf, Refusal> {
    use std::os::unix::ffi::OsStrExt;
    if path.is_null() {
        return Err(invalid("path is null"));
    }
    // SAFETY: not null, zero-terminated by the contract.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

fn options_of(path: PathBuf, c: &precursor_options) -> Result<Options, Refusal> {
    if c.size != size_of::<precursor_options>() {
        return Err(invalid("options were not filled by precursor_options_default of this library"));
    }
    let mut options = Options::new(path)
        .mode(mode_of(c.mode)?)
        .roll_bytes(c.roll_bytes)
        .ring_bytes(c.ring_bytes)
        .memory_bytes_max(c.memory_bytes_max)
        .framing(if c.framed != 0 { Framing::Records } else { Framing::None })
        .readable_at_once(c.readable_at_once != 0)
        .measure(c.measure != 0)
        .existing(match c.existing {
            PRECURSOR_CONTINUE => Existing::Continue,
            PRECURSOR_REPLACE => Existing::Replace,
            PRECURSOR_REFUSE => Existing::Refuse,
            other => return Err(invalid(format!("existing {other} is not known"))),
        })
        .back_pressure(match c.back_pressure {
            PRECURSOR_WAIT => BackPressure::Wait,
            PRECURSOR_FAIL => BackPressure::Fail,
            PRECURSOR_GROW => BackPressure::Grow { bytes_max: c.grow_bytes_max },
            other => return Err(invalid(format!("back_pressure {other} is not known"))),
        });
    if c.window_bytes != 0 {
        options = options.window_bytes(c.window_bytes);
    }
    if let Ok(node) = u32::try_from(c.node) {
        options = options.node(node);
    }
    if let Ok(cpu) = u32::try_from(c.helper_cpu) {
        options = options.helper_cpu(cpu);
    }
    if c.sync_every_ms != 0 {
        options = options.durability(Durability::Every(Duration::from_millis(c.sync_every_ms)));
    }
    Ok(options)
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
    border(Told { at: message, len: message_len }, || {
        if out.is_null() {
            return Err(invalid("out is null"));
        }
        // SAFETY: not null, writable by the contract.
        unsafe { out.write(std::ptr::null_mut()) };
        // SAFETY: by the contract.
        let path = unsafe { path_of(path)? };
        let options = match options.is_null() {
            true => Options::new(path),
            // SAFETY: not null, filled by the contract.
            false => options_of(path, unsafe { &*options })?,
        };
        let appender = options.open()?;
        let reasons = std::ffi::CString::new(appender.reasons().join("; ").replace('\0', " ")).unwrap_or_default();
        // SAFETY: as above.
        unsafe { out.write(Box::into_raw(Box::new(precursor { appender, reasons }))) };
        Ok(())
    })
}

/// # Safety
/// `handle` is null or came from `precursor_open` and was not closed; nobody else uses it now.
unsafe fn appender_of<'a>(handle: *mut precursor) -> Result<&'a mut precursor, Refusal> {
    // SAFETY: by the contract.
    unsafe { handle.as_mut() }.ok_or_else(|| invalid("appender is null"))
}

/// # Safety
/// `out` is null or writable.
unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not null, writable by the contract.
        unsafe { out.write(value) };
    }
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
        if bytes.is_null() && len != 0 || isize::try_from(len).is_err() {
            return Err(invalid("bytes is null or len too large"));
        }
        let bytes = match len {
            0 => &[][..],
            // SAFETY: not null, readable by the contract.
            _ => unsafe { std::slice::from_raw_parts(bytes, len) },
        };
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
    border(Told { at: message, len: message_len }, || {
        // SAFETY: by the contract.
        let safe = unsafe { appender_of(handle)? }.appender.sync_to(Position(position))?;
        // SAFETY: by the contract.
        unsafe { put(durable, safe.bytes()) };
        Ok(())
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

/// Fills in the counters.
///
/// # Safety
/// `handle` is open and used by no other thread now; `stats` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_get_stats(handle: *mut precursor, stats: *mut precursor_stats) -> c_int {
    border(SILENT, || {
        // SAFETY: by the contract.
        let s = unsafe { appender_of(handle)? }.appender.stats();
        let filled = precursor_stats {
            mode: code_of(s.mode),
            locked: u32::from(s.locked),
            appends: s.appends,
            position: s.position,
            run_ahead_bytes: s.run_ahead_bytes,
            late_windows: s.late_windows,
            waits: s.waits,
            worst_append_ns: s.worst_append_ns.unwrap_or(0),
            flusher_lag_bytes: s.flusher_lag_bytes,
            at_risk_bytes: s.at_risk_bytes,
            durable: s.durable,
            memory_bytes: s.memory_bytes,
            rolls: s.rolls,
            grown: s.grown,
            fallbacks: s.fallbacks,
            out_of_space: s.out_of_space.unwrap_or(u64::MAX),
        };
        // SAFETY: by the contract.
        unsafe { put(stats, filled) };
        Ok(())
    })
}

/// Closes: the file gets its exact length and is durable. The handle is gone whatever is returned.
///
/// # Safety
/// `handle` is null or open, and used by nobody; `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_close(handle: *mut precursor, message: *mut c_char, message_len: usize) -> c_int {
    border(Told { at: message, len: message_len }, || {
        if handle.is_null() {
            return Err(invalid("appender is null"));
        }
        // SAFETY: it came from Box::into_raw in `precursor_open` and is given back once.
        let held = unsafe { Box::from_raw(handle) };
        held.appender.close()?;
        Ok(())
    })
}

/// Brings a file or pattern to the true end of its data after a crash.
///
/// # Safety
/// `path` is a zero-terminated string; `out` is null or writable; `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_recover(
    path: *const c_char,
    out: *mut precursor_recovered,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(Told { at: message, len: message_len }, || {
        // SAFETY: by the contract.
        let path = unsafe { path_of(path)? };
        let found = crate::recover(path).map_err(|e| {
            let code = if matches!(e, crate::RecoverError::Busy { .. }) { PRECURSOR_BUSY } else { PRECURSOR_FAILED };
            Refusal { code, message: e.to_string() }
        })?;
        let evidence = match found.evidence {
            Evidence::Length => 0,
            Evidence::Live => 1,
            Evidence::Frames => 2,
            Evidence::Journalled => 3,
            Evidence::Unproven => 4,
        };
        let Recovered { len, replayed_bytes, cut_bytes, .. } = found;
        // SAFETY: by the contract.
        unsafe { put(out, precursor_recovered { len, replayed_bytes, cut_bytes, evidence }) };
        Ok(())
    })
}

//! Converts between C's structures and Rust's.

use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::time::Duration;

use crate::c_handle::Table;
use crate::c_types::{
    PRECURSOR_AUTO, PRECURSOR_CONTINUE, PRECURSOR_FAIL, PRECURSOR_GROW, PRECURSOR_PLAIN, PRECURSOR_PREFETCH,
    PRECURSOR_REFUSE, PRECURSOR_REPLACE, PRECURSOR_RING, PRECURSOR_WAIT, PRECURSOR_WINDOW, Refusal, invalid,
    precursor_options, precursor_stats, read_sized, write_sized,
};
use crate::{BackPressure, Durability, Durable, Existing, Framing, Mode, OpenError, Options, Stats, SyncError};

pub(crate) const DEFAULTS: precursor_options = precursor_options {
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
    shm_dir: std::ptr::null(),
    leave_sigbus: 0,
    process_death_may_lose: 0,
    times: 0,
    reserved: 0,
    roll_every_ms: 0,
    retain_files: 0,
    retain_bytes: 0,
};

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

pub(crate) fn code_of(mode: Mode) -> u32 {
    match mode {
        Mode::Ring => PRECURSOR_RING,
        Mode::Window => PRECURSOR_WINDOW,
        Mode::Prefetch => PRECURSOR_PREFETCH,
        Mode::Plain => PRECURSOR_PLAIN,
    }
}

/// # Safety
/// `path` is a zero-terminated string or null.
pub(crate) unsafe fn path_of(path: *const c_char) -> Result<PathBuf, Refusal> {
    use std::os::unix::ffi::OsStrExt;
    if path.is_null() {
        return Err(invalid("path is null"));
    }
    // SAFETY: not null, and the caller guarantees the terminating zero.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

/// # Safety
/// `options` is null, or has as many readable bytes as its `size` says; its `shm_dir` is null or zero-terminated.
pub(crate) unsafe fn options_of(path: PathBuf, options: *const precursor_options) -> Result<Options, Refusal> {
    if options.is_null() {
        return Ok(Options::new(path));
    }
    // SAFETY: not null, and the caller guarantees `size` readable bytes.
    let c = unsafe { read_sized(options, DEFAULTS)? };
    let mut options = Options::new(path)
        .mode(mode_of(c.mode)?)
        .roll_bytes(c.roll_bytes)
        .ring_bytes(c.ring_bytes)
        .memory_bytes_max(c.memory_bytes_max)
        .framing(if c.framed != 0 { Framing::Records } else { Framing::None })
        .readable_at_once(c.readable_at_once != 0)
        .measure(c.measure != 0)
        .handle_sigbus(c.leave_sigbus == 0)
        .process_death_may_lose(c.process_death_may_lose != 0)
        .times(c.times != 0)
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
    if !c.shm_dir.is_null() {
        // SAFETY: not null, and the caller guarantees the terminating zero.
        options = options.shm_dir(unsafe { path_of(c.shm_dir)? });
    }
    if let Some(node) = number_or_any("node", c.node)? {
        options = options.node(node);
    }
    if let Some(cpu) = number_or_any("helper_cpu", c.helper_cpu)? {
        options = options.helper_cpu(cpu);
    }
    options = options.retain_files(c.retain_files).retain_bytes(c.retain_bytes);
    if c.roll_every_ms != 0 {
        options = options.roll_every(Duration::from_millis(c.roll_every_ms));
    }
    if c.sync_every_ms != 0 {
        options = options.durability(Durability::Every(Duration::from_millis(c.sync_every_ms)));
    }
    Ok(options)
}

/// -1 is `None`.
fn number_or_any(field: &str, number: i32) -> Result<Option<u32>, Refusal> {
    match u32::try_from(number) {
        Ok(number) => Ok(Some(number)),
        Err(_) if number == -1 => Ok(None),
        Err(_) => Err(invalid(format!("{field} is {number}; give a number, or -1 for any"))),
    }
}

pub(crate) fn text_of(reasons: &[String]) -> std::ffi::CString {
    std::ffi::CString::new(reasons.join("; ").replace('\0', " ")).unwrap_or_default()
}

/// Opens with `open` and stores the handle in `*out`; stores null if that fails.
///
/// # Safety
/// `path` is a zero-terminated string or null; `options` as for `options_of`; `out` is null or writable.
pub(crate) unsafe fn open_into<H>(
    table: &Table<H>,
    path: *const c_char,
    options: *const precursor_options,
    out: *mut *mut H,
    open: impl FnOnce(Options) -> Result<H, OpenError>,
) -> Result<(), Refusal> {
    if out.is_null() {
        return Err(invalid("out is null"));
    }
    // SAFETY: not null, and the caller guarantees that it is writable.
    unsafe { out.write(std::ptr::null_mut()) };
    // SAFETY: the caller guarantees for `path` and `options` what `path_of` and `options_of` require.
    let options = unsafe { options_of(path_of(path)?, options)? };
    let handle = table.insert(open(options)?).ok_or_else(|| invalid("too many handles are open"))?;
    // SAFETY: as for the first store.
    unsafe { out.write(handle) };
    Ok(())
}

/// # Safety
/// `bytes` has `len` readable bytes, or is null.
pub(crate) unsafe fn record_of<'a>(bytes: *const u8, len: usize) -> Result<&'a [u8], Refusal> {
    match len {
        0 => Ok(&[]),
        _ if bytes.is_null() || isize::try_from(len).is_err() => Err(invalid("bytes is null or len too large")),
        // SAFETY: not null, at most `isize::MAX` bytes, and the caller guarantees that they are readable.
        _ => Ok(unsafe { std::slice::from_raw_parts(bytes, len) }),
    }
}

/// # Safety
/// `out` is null or writable.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { out.write(value) };
    }
}

/// # Safety
/// `durable` is null or writable.
pub(crate) unsafe fn put_synced(durable: *mut u64, synced: Result<Durable, SyncError>) -> Result<(), Refusal> {
    let safe = synced?;
    // SAFETY: the caller guarantees that `durable` is null or writable.
    unsafe { put(durable, safe.bytes()) };
    Ok(())
}

/// # Safety
/// `stats` is null, or has `stats->size` writable bytes.
pub(crate) unsafe fn put_stats(stats: *mut precursor_stats, s: Stats) -> Result<(), Refusal> {
    if stats.is_null() {
        return Err(invalid("stats is null"));
    }
    let filled = precursor_stats {
        size: size_of::<precursor_stats>(),
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
    // SAFETY: not null, and the caller guarantees `stats->size` writable bytes.
    unsafe { write_sized(stats, &filled) }
}

//! The C interface for reading, and the texts of the codes.

use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

use crate::c_convert::{path_of, put};
use crate::c_handle::Table;
use crate::c_types::{
    MessageBuffer, PRECURSOR_FAILED, PRECURSOR_INVALID, PRECURSOR_MISSING, PRECURSOR_NONE, PRECURSOR_TOO_LONG, Refusal,
    SILENT, border, invalid, precursor_record, write_sized,
};
use crate::{ReadError, Reader, Seek, Waiting, Writer};

/// A reader of a framed file or pattern. One thread at a time may use it; it may move between threads.
#[allow(missing_debug_implementations, reason = "opaque to C")]
pub struct precursor_reader {
    reader: Reader,
}

/// Where `precursor_reader_seek` continues.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum precursor_seek {
    /// The first record that exists.
    PRECURSOR_SEEK_FIRST = 0,
    /// Behind the last published record.
    PRECURSOR_SEEK_END = 1,
    /// The first record that ends after this position.
    PRECURSOR_SEEK_AFTER = 2,
    /// The record with this number.
    PRECURSOR_SEEK_NUMBER = 3,
    /// The first record whose time is this or later, ns since 1970.
    PRECURSOR_SEEK_TIME = 4,
}

/// What `precursor_reader_writer` knows of the writer.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum precursor_writer {
    /// None is known: the last one has closed, or its shared memory cannot be read by this user.
    PRECURSOR_WRITER_UNKNOWN = 0,
    /// It runs.
    PRECURSOR_WRITER_ALIVE = 1,
    /// It has died, and its data are not recovered yet. The reader reads what recovery will keep.
    PRECURSOR_WRITER_DEAD = 2,
}

static READERS: Table<precursor_reader> = Table::new(4);

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Refusal {
        let code = match &error {
            ReadError::Path { .. } | ReadError::NotFramed { .. } | ReadError::Version { .. } => PRECURSOR_INVALID,
            ReadError::Missing { .. } => PRECURSOR_MISSING,
            ReadError::TooLong { .. } => PRECURSOR_TOO_LONG,
            ReadError::Damaged { .. }
            | ReadError::Truncated { .. }
            | ReadError::Removed { .. }
            | ReadError::Io { .. } => PRECURSOR_FAILED,
        };
        Refusal { code, message: Some(error.to_string()) }
    }
}

/// What a code means, in one English sentence. Never null; for an unknown number, a sentence that says so.
#[unsafe(no_mangle)]
pub extern "C" fn precursor_strerror(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        0 => c"success",
        1 => c"an argument, a handle or an option is not valid, or the file is not framed by this library",
        2 => c"this machine cannot run the requested mode; open with PRECURSOR_AUTO",
        3 => c"another appender has the file open; close it first",
        4 => c"no room is left in the ring; try again later",
        5 => c"the disk or the quota is full; free space",
        6 => c"the record is too long",
        7 => c"the device, the file system, a helper thread or recovery failed; see the message or precursor_failure",
        8 => c"a bug in the library was caught; end the process and open the file again",
        9 => c"this process was forked after the handle was opened; use it in the parent",
        10 => c"no record is published yet; read again later",
        11 => c"records are missing, because files were archived or removed; the next call continues behind the gap",
        _ => c"this number is not a code of precursor",
    };
    text.as_ptr()
}

/// Opens the framed file or pattern `path` at its first record, and stores the reader in `*out`. The file need not
/// exist yet. On failure `*out` is null, and `message` (if not null) receives the cause and the remedy.
///
/// # Safety
/// `path` is a zero-terminated string. `out` is null or writable. `message` is null or has `message_len` writable
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reader_open(
    path: *const c_char,
    out: *mut *mut precursor_reader,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    border(MessageBuffer { at: message, len: message_len }, || {
        if out.is_null() {
            return Err(invalid("out is null"));
        }
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { put(out, std::ptr::null_mut()) };
        // SAFETY: the caller guarantees a zero-terminated string.
        let path = unsafe { path_of(path)? };
        let reader = Reader::open(path)?;
        let handle = READERS.insert(precursor_reader { reader }).ok_or_else(|| invalid("too many handles are open"))?;
        // SAFETY: as for the first store.
        unsafe { put(out, handle) };
        Ok(())
    })
}

/// Fills in the next record; waits for it at most `wait_us` microseconds. Returns `PRECURSOR_NONE` if there is none.
/// `record->bytes` is valid until the next call on this reader.
///
/// # Safety
/// No other thread uses `handle` now. `record` is null or has `record->size` writable bytes. `message` is null or has
/// `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reader_next(
    handle: *mut precursor_reader,
    record: *mut precursor_record,
    wait_us: u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let work = |open: &mut precursor_reader| {
        if record.is_null() {
            return Err(invalid("record is null"));
        }
        let found = open.reader.next_within(Duration::from_micros(wait_us))?;
        let found = found.ok_or(Refusal { code: PRECURSOR_NONE, message: None })?;
        let filled = precursor_record {
            size: size_of::<precursor_record>(),
            number: found.number,
            time_ns: found.time_ns.unwrap_or(0),
            position: found.position.bytes(),
            bytes: found.bytes.as_ptr(),
            len: found.bytes.len(),
        };
        // SAFETY: not null, and the caller guarantees `record->size` writable bytes.
        unsafe { write_sized(record, &filled) }
    };
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { READERS.exclusive(handle, MessageBuffer { at: message, len: message_len }, work) }
}

/// Continues elsewhere: `to` is a `precursor_seek`, `value` the position, number or time.
///
/// # Safety
/// No other thread uses `handle` now. `message` is null or has `message_len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reader_seek(
    handle: *mut precursor_reader,
    to: u32,
    value: u64,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let work = |open: &mut precursor_reader| {
        let to = match to {
            0 => Seek::First,
            1 => Seek::End,
            2 => Seek::After(value),
            3 => Seek::Number(value),
            4 => Seek::TimeNs(value),
            other => return Err(invalid(format!("seek {other} is not known"))),
        };
        Ok(open.reader.seek(to)?)
    };
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { READERS.exclusive(handle, MessageBuffer { at: message, len: message_len }, work) }
}

/// Not zero: the reader spins while it waits, which costs the writer nothing. 0 (default): it sleeps.
///
/// # Safety
/// No other thread uses `handle` now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reader_spin(handle: *mut precursor_reader, spin: c_int) -> c_int {
    let work = |open: &mut precursor_reader| {
        open.reader.waiting(if spin == 0 { Waiting::Asleep } else { Waiting::Spinning });
        Ok(())
    };
    // SAFETY: the caller guarantees that no other thread uses the handle.
    unsafe { READERS.exclusive(handle, SILENT, work) }
}

/// What is known of the writer now, a `precursor_writer`; `PRECURSOR_WRITER_UNKNOWN` also if `handle` is not open.
///
/// # Safety
/// No other thread uses `handle` now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reader_writer(handle: *const precursor_reader) -> u32 {
    // SAFETY: the caller guarantees that no other thread uses the handle.
    let known = unsafe { READERS.get(handle) }.map(|open| open.reader.writer());
    (match known {
        None | Some(Writer::Unknown) => precursor_writer::PRECURSOR_WRITER_UNKNOWN,
        Some(Writer::Alive) => precursor_writer::PRECURSOR_WRITER_ALIVE,
        Some(Writer::Dead) => precursor_writer::PRECURSOR_WRITER_DEAD,
    }) as u32
}

/// Closes a reader.
///
/// # Safety
/// No other thread uses `handle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn precursor_reader_close(handle: *mut precursor_reader) -> c_int {
    border(SILENT, || {
        // SAFETY: the caller guarantees that no other thread uses the handle.
        drop(unsafe { READERS.remove(handle)? });
        Ok(())
    })
}

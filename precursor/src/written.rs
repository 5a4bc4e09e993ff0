//! The writer's side of `plain` and `prefetch`: `pwrite` on the writer's thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::{Core, DataFile};
use crate::error::AppendError;
use crate::frame::{self, FILE_HEADER_LEN, Format};
use crate::lane::Lane;
use crate::mode::Mode;
use crate::options::BackPressure;
use crate::patience::Patience;
use crate::timer::Timer;

/// Interval at which the descriptor of the file is checked, ns.
const CHECK_NS: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct WrittenSide {
    file: Arc<DataFile>,
    file_base: u64,
    /// The file is ended, and the next one has not begun.
    marked: bool,
    /// A write has failed, so the file may be longer than its data.
    torn: bool,
    timer: Timer,
    /// Time of the last check of the file's descriptor, ticks.
    checked: u64,
    /// Buffer for one record; grows to the longest one.
    pub(crate) record: Vec<u8>,
}

impl WrittenSide {
    pub(crate) fn new(file: Arc<DataFile>, file_base: u64, timer: Timer) -> WrittenSide {
        WrittenSide {
            file,
            file_base,
            marked: false,
            torn: false,
            timer,
            checked: 0,
            record: Vec::with_capacity(64 << 10),
        }
    }

    /// Writes one record. The caller moves the cursor past it.
    pub(crate) fn append(&mut self, core: &Core, lane: &mut Lane, bytes: &[u8], time: u64) -> Result<(), AppendError> {
        let mut need = lane.need(bytes.len());
        if core.roll_bytes != 0 && (self.marked || lane.cursor + need > self.file_base + core.roll_room()) {
            self.roll(core, lane)?;
        }
        let at = lane.cursor - self.file_base;
        // A file that a roll has begun has no header yet.
        let begins = lane.framed && at == 0;
        if begins {
            need += FILE_HEADER_LEN as u64;
        }
        if core.mode == Mode::Prefetch {
            let file = &self.file;
            wait_for(core, || (at + need <= file.zeroed.load(Ordering::Acquire)).then_some(()))?;
        }
        self.check_descriptor().map_err(|e| self.write_error(core, &e))?;
        let written = if lane.framed {
            self.record.clear();
            if begins {
                let header = core.header(self.file.seq, self.file_base, lane.number);
                self.record.extend_from_slice(&header.encode());
            }
            for word in [frame::data(bytes, time), lane.number, time] {
                self.record.extend_from_slice(&word.to_le_bytes());
            }
            self.record.extend_from_slice(bytes);
            self.record.resize(need as usize, 0);
            self.file.file.write_unchecked(&self.record, at)
        } else {
            self.file.file.write_unchecked(bytes, at)
        };
        written.map_err(|e| self.write_error(core, &e))?;
        // Room for exactly this record: nothing is mapped, so every append must come here.
        lane.limit = lane.cursor + need;
        lane.number += u64::from(lane.framed);
        if begins {
            lane.cursor += FILE_HEADER_LEN as u64;
        }
        if core.mode == Mode::Prefetch && at + need > self.file.warm.load(Ordering::Relaxed) {
            core.counters.0.late.fetch_add(1, Ordering::Relaxed);
            core.wake_helper();
        }
        Ok(())
    }

    /// Ends a file that is old, unless it is empty or the next file is not ready.
    pub(crate) fn roll_by_age(&mut self, core: &Core, lane: &mut Lane) {
        if lane.cursor <= self.file_base + lane.head_len() || core.mode == Mode::Prefetch && !core.has_next() {
            return;
        }
        // An error fails the appender, or leaves the file current: the record that follows reports it.
        let _ = self.roll(core, lane);
    }

    /// Checks at most once in `CHECK_NS`, since a system call before each write would double the cost of an append.
    fn check_descriptor(&mut self) -> io::Result<()> {
        let now = self.timer.ticks();
        if self.checked == 0 || self.timer.ns(now.wrapping_sub(self.checked)) > CHECK_NS {
            self.file.file.get()?;
            self.checked = now;
        }
        Ok(())
    }

    fn roll(&mut self, core: &Core, lane: &mut Lane) -> Result<(), AppendError> {
        if lane.framed && !self.marked {
            let mark = Format::Second.end_mark();
            let at = lane.cursor - self.file_base;
            self.file.file.write_all_at(&mark, at).map_err(|e| self.write_error(core, &e))?;
            lane.cursor += mark.len() as u64;
            lane.limit = lane.cursor;
            core.live.position.0.store(lane.cursor, Ordering::Release);
            // Creating the next file may fail for now; the mark must not be written twice.
            self.marked = true;
        }
        let next = if core.mode == Mode::Plain {
            self.plain_next(core, lane.cursor)?
        } else {
            wait_for(core, || core.take_next())?
        };
        let (seq, base) = (next.seq, lane.cursor);
        if core.mode == Mode::Plain {
            core.leave(&self.file, Arc::clone(&next));
        }
        (self.file, self.file_base, self.marked, self.torn) = (next, base, false, false);
        core.live.set_file(seq, base);
        core.counters.0.rolls.fetch_add(1, Ordering::Relaxed);
        core.signals.0.roll_due.store(false, Ordering::Relaxed);
        // `leave` fails the appender if an older file could not be synced.
        core.failure().map_or(Ok(()), Err)
    }

    /// `plain`: cuts the file that ends at `end` to its data, and creates the next one. In `prefetch` the helper does
    /// both.
    fn plain_next(&mut self, core: &Core, end: u64) -> Result<Arc<DataFile>, AppendError> {
        if self.torn {
            self.file.file.set_len(end - self.file_base).map_err(|e| self.write_error(core, &e))?;
            self.torn = false;
        }
        core.create_next(self.file.seq + 1)
            .map(Arc::new)
            .map_err(|e| error_of(core, &self.file, "create the next file", &e))
    }

    /// Converts a failed write, which has not moved the position. The next record overwrites the bytes of a short
    /// write; the next roll, or close, cuts off the others.
    fn write_error(&mut self, core: &Core, error: &io::Error) -> AppendError {
        self.torn = true;
        error_of(core, &self.file, "write", error)
    }
}

/// A full disk is an error of this append; any other error fails the appender.
fn error_of(core: &Core, file: &DataFile, what: &'static str, error: &io::Error) -> AppendError {
    if crate::space::is_full(error) {
        return AppendError::OutOfSpace { bytes_left: crate::space::bytes_left(&file.file) };
    }
    core.fail(what, error);
    AppendError::Failed { what, message: error.to_string() }
}

/// Waits for something that the helper prepares, as the policy allows. Counts a wait as late.
fn wait_for<T>(core: &Core, ready: impl Fn() -> Option<T>) -> Result<T, AppendError> {
    let mut patience = Patience::new();
    let mut late = false;
    loop {
        if let Some(found) = ready() {
            return Ok(found);
        }
        if !late {
            core.counters.0.late.fetch_add(1, Ordering::Relaxed);
            late = true;
        }
        if let Some(refusal) = core.append_refusal() {
            return Err(refusal);
        }
        if core.back_pressure == BackPressure::Fail {
            return Err(AppendError::Full { waiting_bytes: 0 });
        }
        patience.wait(core);
    }
}

//! The appender: one producer's handle.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crate::claim;
use crate::core::{Core, lock};
use crate::error::{AppendError, SyncError};
use crate::fork::Born;
use crate::hot::HotPage;
use crate::options::Durability;
use crate::plan::Mode;
use crate::ring::RingSide;
use crate::stats::{Durable, Position, Stats, Survival};
use crate::syncer::Syncer;
use crate::timer::Timer;
use crate::window::WindowSide;
use crate::written::WrittenSide;

#[derive(Debug)]
pub(crate) enum Side {
    Ring(RingSide),
    Window(WindowSide),
    Written(WrittenSide),
}

/// Appends records. One thread at a time; it may be moved between threads.
///
/// A record is in one file whole, and in the order of the calls. What an append survives is [`Appender::survival`]. Dropping an
/// appender closes it and loses the error; call [`Appender::close`].
///
/// After `fork` only the parent may use it: the child has neither the helper thread nor the memory. Its calls answer `Forked`, and
/// dropping it there changes nothing; nor does the child hold the lock.
#[derive(Debug)]
pub struct Appender {
    pub(crate) born: Born,
    pub(crate) hot: HotPage,
    pub(crate) measure: bool,
    pub(crate) timer: Timer,
    pub(crate) record_max: usize,
    pub(crate) side: Side,
    pub(crate) core: Arc<Core>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) reasons: Vec<String>,
    pub(crate) durability: Durability,
}

impl Appender {
    /// Appends a record, and drops a reservation that was not committed. No allocation, lock or system call while there is room
    /// (`ring`, `window`); `plain` and `prefetch` make one `pwrite`.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result<Position, AppendError> {
        if self.born.elsewhere() {
            return Err(AppendError::Forked);
        }
        let begun = if self.measure { self.timer.ticks() } else { 0 };
        self.hot.reserved = None;
        self.admit(bytes.len())?;
        let need = self.hot.lane.need(bytes.len());
        if need > self.hot.lane.room() {
            self.append_slowly(bytes, need)?;
        } else {
            // SAFETY: there is room, and `side` holds the memory.
            unsafe { self.hot.lane.put(bytes) };
        }
        Ok(self.publish(need, begun))
    }

    /// Whether a record of that length may be appended, wherever the writer is.
    #[inline(always)]
    fn admit(&self, len: usize) -> Result<(), AppendError> {
        if len > self.record_max || self.core.failed.0.load(Ordering::Acquire) {
            return Err(self.refusal(len));
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self, len: usize) -> AppendError {
        self.core.failure().unwrap_or(AppendError::TooLong { len, max: self.record_max })
    }

    /// Moves the cursor past a record that is in place, and lets readers and recovery see it.
    #[inline(always)]
    fn publish(&mut self, need: u64, begun: u64) -> Position {
        debug_assert!(need <= self.hot.lane.room());
        self.hot.lane.cursor += need;
        self.core.live.position.0.store(self.hot.lane.cursor, Ordering::Release);
        self.hot.appends += 1;
        let counters = &self.core.live.position.1;
        counters.appends.store(self.hot.appends, Ordering::Relaxed);
        if self.measure {
            let took = self.timer.ticks().wrapping_sub(begun);
            if took > self.hot.worst_ticks {
                self.hot.worst_ticks = took;
                counters.worst_ticks.store(took, Ordering::Relaxed);
            }
        }
        Position(self.hot.lane.cursor)
    }

    #[cold]
    #[inline(never)]
    fn append_slowly(&mut self, bytes: &[u8], need: u64) -> Result<(), AppendError> {
        if let Side::Written(side) = &mut self.side {
            return side.append(&self.core, &mut self.hot.lane, bytes);
        }
        self.make_room(need)?;
        // SAFETY: `make_room` returned, so there is room, and `side` holds the memory.
        unsafe { self.hot.lane.put(bytes) };
        Ok(())
    }

    fn make_room(&mut self, need: u64) -> Result<(), AppendError> {
        match &mut self.side {
            Side::Ring(side) => side.make_room(&self.core, &mut self.hot.lane, need),
            Side::Window(side) => side.make_room(&self.core, &mut self.hot.lane, need),
            Side::Written(_) => Ok(()),
        }
    }

    /// Gives `len` bytes of the file's own memory to fill in; [`Appender::commit`] appends them. Their contents are unspecified. A
    /// further `reserve` or `append` drops the reservation, also where it is refused. (`plain` and `prefetch` lend a buffer.)
    pub fn reserve(&mut self, len: usize) -> Result<&mut [u8], AppendError> {
        if self.born.elsewhere() {
            return Err(AppendError::Forked);
        }
        self.hot.reserved = None;
        self.admit(len)?;
        let need = self.hot.lane.need(len);
        if matches!(self.side, Side::Written(_)) {
            return Ok(self.lend(len));
        }
        if need > self.hot.lane.room() {
            self.make_room(need)?;
        }
        self.hot.reserved = Some(len);
        // SAFETY: `need` bytes from the cursor on belong to this writer; they are mapped file or ring memory and so hold
        // initialised bytes; the borrow of self keeps others out until it ends.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.hot.lane.payload(), len) })
    }

    fn lend(&mut self, len: usize) -> &mut [u8] {
        self.hot.reserved = Some(len);
        match &mut self.side {
            Side::Written(side) => {
                side.record.clear();
                side.record.resize(len, 0);
                &mut side.record
            }
            Side::Ring(_) | Side::Window(_) => &mut [],
        }
    }

    /// Appends the first `len` bytes of the reservation, and drops the reservation, also where it is refused: without one, for more
    /// bytes than were reserved, or after a failure.
    pub fn commit(&mut self, len: usize) -> Result<Position, AppendError> {
        if self.born.elsewhere() {
            return Err(AppendError::Forked);
        }
        let begun = if self.measure { self.timer.ticks() } else { 0 };
        let reserved = self.hot.reserved.take();
        if reserved.is_none_or(|reserved| len > reserved) {
            return Err(AppendError::NotReserved { len, reserved: reserved.unwrap_or(0) });
        }
        self.admit(len)?;
        let need = self.hot.lane.need(len);
        if let Side::Written(side) = &mut self.side {
            let mut record = std::mem::take(&mut side.record);
            record.truncate(len);
            let done = side.append(&self.core, &mut self.hot.lane, &record);
            record.clear();
            side.record = record;
            done?;
        } else if self.hot.lane.framed {
            // SAFETY: `reserve` made this room and lent it, and no call since has moved the cursor: each drops the reservation. The
            // borrow has ended, so the bytes are in place.
            unsafe { self.hot.lane.seal(len) };
        }
        Ok(self.publish(need, begun))
    }

    /// Why appends fail with [`AppendError::Failed`]; `None` while nothing has failed. The next `append` returns the same error.
    pub fn failure(&self) -> Option<AppendError> {
        self.core.failure()
    }

    /// End of what was appended; in a forked child of what was durable.
    pub fn position(&self) -> Position {
        if self.born.elsewhere() { Position(self.core.seen_position()) } else { Position(self.hot.lane.cursor) }
    }

    /// Puts everything up to `position` on the device, on this thread: the one call here that waits for it.
    pub fn sync_to(&self, position: Position) -> Result<Durable, SyncError> {
        self.core.sync_to(position.0).map(Durable)
    }

    /// A handle for syncing and looking from other threads, so that the writer need not wait for the device.
    pub fn syncer(&self) -> Syncer {
        Syncer { core: Arc::clone(&self.core), timer: self.timer }
    }

    /// Method of writing.
    pub fn mode(&self) -> Mode {
        self.core.mode
    }

    /// Why this mode, and what it had to do without: sentences for people.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// What a record survives, and after which call, as this appender was opened.
    pub fn survival(&self) -> Survival {
        self.core.survival()
    }

    /// What reaches the device unasked.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let room = if self.born.elsewhere() { 0 } else { self.hot.lane.room() };
        self.syncer().stats().with_room(room)
    }

    /// Gives everything to the file, gives the file its exact length, makes it durable, and removes what lay beside it.
    ///
    /// After an error the data is where it was: reopening or [`crate::recover`] brings it to its end.
    pub fn close(mut self) -> Result<Durable, SyncError> {
        self.finish()
    }

    pub(crate) fn finish(&mut self) -> Result<Durable, SyncError> {
        if self.born.elsewhere() {
            return Err(SyncError::Forked);
        }
        if self.core.live.many() {
            claim::seal(&self.core.live.reserved.0);
        }
        self.core.closing.store(true, Ordering::Release);
        self.core.wake_helper();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            if thread.join().is_err() {
                self.core.fail("helper thread", &std::io::Error::other("panicked"));
            }
        }
        self.core.finish().map(Durable)
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        if self.born.elsewhere() {
            // Handles of threads that are not here: not even to be detached.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        if lock(&self.core.sidecar).is_some() {
            // The error is lost, as the type's documentation says.
            let _ = self.finish();
        }
    }
}

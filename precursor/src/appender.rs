//! [`Appender`]: the handle of a single producer.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use std::thread::JoinHandle;

use crate::claim;
use crate::core::Core;
use crate::error::{AppendError, SyncError};
use crate::fork::Born;
use crate::hot::HotPage;
use crate::mode::Mode;
use crate::options::Durability;
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

/// Appends records. One thread uses it at a time; it may move between threads.
///
/// Records are in the order of the calls, and each is whole in one file. [`Appender::survival`] says what an append
/// survives. Dropping an appender closes it and discards the error; call [`Appender::close`] instead.
///
/// After `fork` only the parent may use it, since the child has neither the helper thread nor the memory: in the child
/// the calls return `Forked`, dropping the appender changes nothing, and the child does not hold the lock.
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
    /// Ends after all others, since it reads what they have written.
    pub(crate) keeper: Option<JoinHandle<()>>,
    pub(crate) reasons: Vec<String>,
    pub(crate) durability: Durability,
}

impl Appender {
    /// Appends a record, and drops a reservation that was not committed. While there is room, `ring` and `window` make
    /// no allocation, lock or system call; `plain` and `prefetch` make one `pwrite`.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result<Position, AppendError> {
        if self.born.elsewhere() {
            return Err(AppendError::Forked);
        }
        let begun = if self.measure { self.timer.ticks() } else { 0 };
        self.hot.reserved = None;
        self.admit(bytes.len())?;
        if self.core.signals.0.roll_due.load(Ordering::Relaxed) {
            self.roll_by_age();
        }
        let need = self.hot.lane.need(bytes.len());
        if need > self.hot.lane.room() {
            self.append_slowly(bytes, need)?;
        } else {
            let time = self.time();
            // SAFETY: `need` bytes fit below the lane's limit, and `self.side` keeps the memory mapped. In `plain` and
            // `prefetch` there is never room, so only an empty, unframed record comes here, and no byte is copied.
            unsafe { self.hot.lane.put(bytes, time) };
        }
        Ok(self.publish(need, begun))
    }

    /// The time for the next frame: never before that of the frame before; 0 if records carry no time.
    #[inline(always)]
    fn time(&mut self) -> u64 {
        if !self.core.times {
            return 0;
        }
        self.hot.time = self.hot.time.max(self.core.time());
        self.hot.time
    }

    /// Refuses a record that is too long, or any record after a failure.
    #[inline(always)]
    fn admit(&self, len: usize) -> Result<(), AppendError> {
        if len > self.record_max || self.core.signals.0.failed.load(Ordering::Acquire) {
            return Err(self.refusal(len));
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self, len: usize) -> AppendError {
        self.core.failure().unwrap_or(AppendError::TooLong { len, max: self.record_max })
    }

    /// Moves the cursor past a stored record and publishes the position to the helper, to readers and to recovery.
    #[inline(always)]
    pub(crate) fn publish(&mut self, need: u64, begun: u64) -> Position {
        debug_assert!(need <= self.hot.lane.room());
        self.hot.lane.cursor += need;
        self.core.live.position.0.store(self.hot.lane.cursor, Ordering::Release);
        self.hot.appends += 1;
        let counters = &self.core.live.position.1;
        counters.appends.store(self.hot.appends, Ordering::Relaxed);
        // Without a fence, the processor may load this before the position is visible, and a reader may then fall
        // asleep. The helper wakes it in its next turn.
        compiler_fence(Ordering::SeqCst);
        if self.core.live.waiting.0.load(Ordering::Relaxed) != 0 {
            self.core.live.wake_readers();
        }
        if self.measure {
            // The counters of two CPUs may differ, and the thread may have moved between them.
            let took = self.timer.ticks().saturating_sub(begun);
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
        let time = self.time();
        if let Side::Written(side) = &mut self.side {
            return side.append(&self.core, &mut self.hot.lane, bytes, time);
        }
        self.make_room(need)?;
        // SAFETY: `make_room` returned Ok, so `need` bytes fit below the lane's limit, and `self.side` keeps them
        // mapped.
        unsafe { self.hot.lane.put(bytes, time) };
        Ok(())
    }

    /// Ends the current file if it holds a record and the next one is ready; otherwise a later append does.
    #[cold]
    #[inline(never)]
    fn roll_by_age(&mut self) {
        match &mut self.side {
            Side::Ring(side) => side.roll_by_age(&self.core, &mut self.hot.lane),
            Side::Window(side) => side.roll_by_age(&self.core, &mut self.hot.lane),
            Side::Written(side) => side.roll_by_age(&self.core, &mut self.hot.lane),
        }
    }

    fn make_room(&mut self, need: u64) -> Result<(), AppendError> {
        match &mut self.side {
            Side::Ring(side) => side.make_room(&self.core, &mut self.hot.lane, need),
            Side::Window(side) => side.make_room(&self.core, &mut self.hot.lane, need),
            Side::Written(_) => Ok(()),
        }
    }

    /// Lends `len` bytes of the file's (`window`) or the ring's memory, to be filled and then appended by
    /// [`Appender::commit`]. Their contents are unspecified. `plain` and `prefetch` lend a buffer. The next `reserve`
    /// or `append` drops the reservation, even if that call is refused.
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
        // SAFETY: there is room for `need` bytes, so payload and frame lie in mapped memory, which is always
        // initialised. Up to the limit only this writer stores; the borrow of `self` excludes other calls until it
        // ends.
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

    /// Appends the first `len` bytes of the reservation, and drops the reservation. Fails without a reservation, for
    /// more bytes than reserved, or after a failure of the appender; the reservation is dropped then too.
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
        let (need, time) = (self.hot.lane.need(len), self.time());
        if let Side::Written(side) = &mut self.side {
            let mut record = std::mem::take(&mut side.record);
            record.truncate(len);
            let done = side.append(&self.core, &mut self.hot.lane, &record, time);
            record.clear();
            side.record = record;
            done?;
        } else if self.hot.lane.framed {
            // SAFETY: `reserve` made room for at least `len` bytes, and every call that moves the cursor drops the
            // reservation, so the payload is still at the cursor. The borrow that filled it has ended.
            unsafe { self.hot.lane.seal(len, time) };
        }
        Ok(self.publish(need, begun))
    }

    /// The reason why appends fail with [`AppendError::Failed`], which the next `append` returns too; `None` before a
    /// failure.
    pub fn failure(&self) -> Option<AppendError> {
        self.core.failure()
    }

    /// End of the appended data; in a forked child, the last durable position.
    pub fn position(&self) -> Position {
        if self.born.elsewhere() { Position(self.core.seen_position()) } else { Position(self.hot.lane.cursor) }
    }

    /// Makes everything up to `position` durable, on the calling thread. The only call besides `close` that waits for
    /// the device.
    pub fn sync_to(&self, position: Position) -> Result<Durable, SyncError> {
        self.core.sync_to(position.0).map(Durable)
    }

    /// A handle for syncing and reading counters on other threads, so that the writer need not wait for the device.
    pub fn syncer(&self) -> Syncer {
        Syncer { core: Arc::clone(&self.core), timer: self.timer }
    }

    /// Mode of writing.
    pub fn mode(&self) -> Mode {
        self.core.mode
    }

    /// Why this mode was chosen and what it lacks, as sentences for people.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// Which call makes a record survive the death of the process and of the machine.
    pub fn survival(&self) -> Survival {
        self.core.survival()
    }

    /// When records are synced without a call of `sync_to`.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Counters since open.
    pub fn stats(&self) -> Stats {
        let room = if self.born.elsewhere() { 0 } else { self.hot.lane.room() };
        self.syncer().stats().with_room(room)
    }

    /// Writes everything to the file, cuts the file to its exact length, makes it durable, and removes its shared
    /// memory and (without a pattern) its sidecar.
    ///
    /// An error loses no accepted record while the machine runs: reopening or [`crate::recover`] completes the file.
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
        let keeper = self.keeper.take();
        if let Some(keeper) = &keeper {
            keeper.thread().unpark();
        }
        self.threads.drain(..).for_each(|thread| join(&self.core, thread));
        self.core.filed.store(true, Ordering::Release);
        keeper.into_iter().for_each(|keeper| join(&self.core, keeper));
        self.core.finish().map(Durable)
    }
}

fn join(core: &Core, thread: JoinHandle<()>) {
    thread.thread().unpark();
    if thread.join().is_err() {
        core.fail("helper thread", &std::io::Error::other("panicked"));
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        if self.born.elsewhere() {
            // The threads do not exist in the child, so their handles are neither joined nor detached.
            std::mem::forget((std::mem::take(&mut self.threads), self.keeper.take()));
            return;
        }
        // Not the sidecar's lock: a sync may hold it until `closing` is set.
        if !self.core.closing.load(Ordering::Acquire) {
            // The error is discarded, as documented on the type.
            let _ = self.finish();
        }
    }
}

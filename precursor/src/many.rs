//! [`ManyAppender`]: many producers on one ring.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::appender::{Appender, Side};
use crate::claim::{self, Taken};
use crate::core::{Core, lock};
use crate::error::{AppendError, SyncError};
use crate::frame;
use crate::options::BackPressure;
use crate::patience::Patience;
use crate::ring::RingMemory;
use crate::stats::{Durable, Position, Stats, Survival};
use crate::syncer::Syncer;

/// Appends framed records from many threads; clone it for each thread.
///
/// A producer takes a place with one compare-and-swap, stores its record and commits it by its frame's word. While
/// there is room, no producer waits for another. But the flusher writes the records in the order of their places, and
/// recovery reads a framed file only up to the first frame that is not whole, so no record after an uncommitted one can
/// be made durable. A producer that is descheduled inside `append`, between taking its place and committing it,
/// therefore holds up the flush, every `sync_to` of a later position, `close` and, once the ring is full, all other
/// producers, for as long as it does not run. Choose a ring that holds what all producers append in that time.
///
/// A thread that is ended there (by `pthread_cancel`, for example) holds them up for good: `sync_to` of later positions
/// does not return, `close` fails after 10 s, and recovery skips the thread's record and keeps the others.
#[derive(Debug, Clone)]
pub struct ManyAppender {
    ring: Arc<RingMemory>,
    core: Arc<Core>,
    /// The appender that owns the helper threads; `None` after close.
    owner: Arc<Mutex<Option<Appender>>>,
    syncer: Syncer,
    record_max: usize,
}

impl ManyAppender {
    pub(crate) fn of(appender: Appender) -> io::Result<ManyAppender> {
        let Side::Ring(side) = &appender.side else {
            return Err(io::Error::other("many producers need a ring"));
        };
        Ok(ManyAppender {
            ring: Arc::clone(&side.ring),
            core: Arc::clone(&appender.core),
            syncer: appender.syncer(),
            record_max: appender.record_max,
            owner: Arc::new(Mutex::new(Some(appender))),
        })
    }

    /// Appends a record, from any thread. Returns the end of the record. Records are in the order of their places.
    #[inline]
    pub fn append(&self, bytes: &[u8]) -> Result<Position, AppendError> {
        if self.core.born.elsewhere() {
            return Err(AppendError::Forked);
        }
        if let Some(failed) = self.core.failure_seen() {
            return Err(failed);
        }
        if bytes.len() > self.record_max {
            return Err(AppendError::TooLong { len: bytes.len(), max: self.record_max });
        }
        let at = self.take_place(frame::framed_len(bytes.len()) as u64)?;
        // SAFETY: `take_place` has given `at` to this call for this record, and it is filled only here.
        unsafe { claim::fill(&*self.ring, at, self.core.time(), bytes) };
        // `SeqCst`: after the store of the record's word, and before the check for a failure.
        self.core.live.position.1.appends.fetch_add(1, Ordering::SeqCst);
        if self.core.live.waiting.0.load(Ordering::Relaxed) != 0 {
            // Readers of many producers read what the flusher has written.
            self.core.wake_helper();
        }
        // A `close` that has given up on this producer has also released the file, so the record may not be in it.
        match self.core.failure_seen() {
            Some(failed) => Err(failed),
            None => Ok(Position(at + frame::framed_len(bytes.len()) as u64)),
        }
    }

    #[inline]
    fn take_place(&self, need: u64) -> Result<u64, AppendError> {
        let live = &self.core.live;
        let mut patience = Patience::new();
        loop {
            match claim::take(&live.reserved.0, &live.freed.0, self.ring.capacity, need) {
                Taken::At(at) => return Ok(at),
                Taken::Full => self.no_room(&mut patience)?,
                Taken::Sealed => return Err(self.core.failure().unwrap_or_else(closed)),
            }
        }
    }

    #[cold]
    fn no_room(&self, patience: &mut Patience) -> Result<(), AppendError> {
        if let Some(refusal) = self.core.append_refusal() {
            return Err(refusal);
        }
        if self.core.back_pressure == BackPressure::Fail {
            let live = &self.core.live;
            let waiting = claim::end(&live.reserved.0).saturating_sub(live.flushed.0.load(Ordering::Relaxed));
            return Err(AppendError::Full { waiting_bytes: waiting });
        }
        patience.wait(&self.core);
        Ok(())
    }

    /// As [`Appender::sync_to`]. Waits for other producers whose records come before `position`.
    pub fn sync_to(&self, position: Position) -> Result<Durable, SyncError> {
        self.syncer.sync_to(position)
    }

    /// As [`Appender::failure`].
    pub fn failure(&self) -> Option<AppendError> {
        self.core.failure()
    }

    /// A handle that syncs and reads counters, as from [`Appender::syncer`].
    pub fn syncer(&self) -> Syncer {
        self.syncer.clone()
    }

    /// Counters since open. `worst_append_ns` is not measured.
    pub fn stats(&self) -> Stats {
        self.syncer.stats()
    }

    /// As [`Appender::survival`].
    pub fn survival(&self) -> Survival {
        self.core.survival()
    }

    /// As [`Appender::reasons`]; empty after close.
    pub fn reasons(&self) -> Vec<String> {
        lock(&self.owner).as_ref().map(|a| a.reasons().to_vec()).unwrap_or_default()
    }

    /// Closes for all producers, at any time: later appends are refused, and producers that have taken a place are
    /// waited for, so every record for which `append` returns `Ok` is in the file. Otherwise as [`Appender::close`].
    pub fn close(self) -> Result<Durable, SyncError> {
        if self.core.born.elsewhere() {
            return Err(SyncError::Forked);
        }
        let owner = lock(&self.owner).take();
        match owner {
            Some(appender) => appender.close(),
            None => Err(SyncError::Failed {
                what: "close",
                message: "already closed".to_owned(),
                durable: self.stats().durable,
            }),
        }
    }
}

fn closed() -> AppendError {
    AppendError::Failed { what: "append", message: "the appender is closed".to_owned() }
}

#[cfg(test)]
#[path = "many_tests.rs"]
mod tests;

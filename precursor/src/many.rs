//! Many producers on one ring.

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

/// Appends from many threads; clone it for each. Records are framed.
///
/// A producer takes its place with one compare-and-swap, stores its record, and commits it by its frame's word. While there is room
/// no producer waits for another. The flusher does: files hold the records in the order of their places, and recovery reads a framed
/// file up to the first frame that is not whole, so nothing behind a record that is not committed can be called durable. A producer
/// that is descheduled inside `append`, between taking its place and committing it, therefore holds up the flush, each `sync_to` of
/// a later position, `close`, and, once the ring is full, all other producers, for as long as it does not run. Choose a ring that
/// holds what all producers append in that time.
///
/// A thread that is ended there (by `pthread_cancel`, say) holds them up for good: `sync_to` of later positions does not return, `close`
/// gives up after 10 s with an error, and recovery steps over its record and keeps the others.
#[derive(Debug, Clone)]
pub struct ManyAppender {
    ring: Arc<RingMemory>,
    core: Arc<Core>,
    /// The appender that owns the threads; `close` takes it.
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

    /// Appends a record from any thread; the position is the end of that record. Records are in the order in which places were
    /// taken.
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
        // SAFETY: taken just now for this record.
        unsafe { claim::fill(&*self.ring, at, bytes) };
        // Between the record's word and the question whether something has failed.
        self.core.live.position.1.appends.fetch_add(1, Ordering::SeqCst);
        // A `close` that has given up on this producer has let go of the file: the record may not be in it.
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

    /// As [`Appender::sync_to`]; waits for the records of other producers that are before `position`.
    pub fn sync_to(&self, position: Position) -> Result<Durable, SyncError> {
        self.syncer.sync_to(position)
    }

    /// As [`Appender::failure`].
    pub fn failure(&self) -> Option<AppendError> {
        self.core.failure()
    }

    /// A handle that only syncs and looks.
    pub fn syncer(&self) -> Syncer {
        self.syncer.clone()
    }

    /// Counters; `worst_append_ns` is not measured here.
    pub fn stats(&self) -> Stats {
        self.syncer.stats()
    }

    /// What a record survives, and after which call.
    pub fn survival(&self) -> Survival {
        self.core.survival()
    }

    /// Why this mode, and what it had to do without.
    pub fn reasons(&self) -> Vec<String> {
        lock(&self.owner).as_ref().map(|a| a.reasons().to_vec()).unwrap_or_default()
    }

    /// Closes for all producers, at any time: a later `append` is refused, and one that has taken its place is waited for, so that every
    /// record for which `append` returns `Ok` is in the file. As [`Appender::close`] otherwise.
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

//! Many producers on one ring.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::appender::{Appender, Side};
use crate::claim;
use crate::core::{Core, lock};
use crate::error::{AppendError, SyncError};
use crate::frame;
use crate::options::BackPressure;
use crate::patience::Patience;
use crate::ring::RingMemory;
use crate::stats::{Durable, Position, Stats};
use crate::syncer::Syncer;

/// Appends from many threads; clone it for each. Records are framed.
///
/// A producer takes its place with one compare-and-swap, stores its record, and commits it by its frame's word: none waits for
/// another. The flusher stops at the first record that is not committed, so a producer that is stopped for long inside
/// `append` holds back the flush, not the others, until the ring is full. One that is ended there (by `pthread_cancel`, say) holds it
/// back for good: then `sync_to` of later positions does not return, and recovery steps over its record.
#[derive(Debug, Clone)]
pub struct ManyAppender {
    ring: Arc<RingMemory>,
    core: Arc<Core>,
    /// The appender that owns the threads; taken by whoever closes.
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
        if bytes.len() > self.record_max {
            return Err(AppendError::TooLong { len: bytes.len(), max: self.record_max });
        }
        let need = frame::framed_len(bytes.len()) as u64;
        let at = self.take_place(need)?;
        // SAFETY: taken just now for this record.
        unsafe { claim::fill(&*self.ring, at, bytes) };
        self.core.live.position.1.appends.fetch_add(1, Ordering::Relaxed);
        Ok(Position(at + need))
    }

    #[inline]
    fn take_place(&self, need: u64) -> Result<u64, AppendError> {
        let live = &self.core.live;
        let mut patience = Patience::new();
        loop {
            if self.core.closing.load(Ordering::Relaxed) {
                return Err(AppendError::Failed { what: "append", message: "the appender is closed".to_owned() });
            }
            match claim::take(&live.reserved.0, &live.freed.0, self.ring.capacity, need) {
                Some(at) => return Ok(at),
                None => self.no_room(&mut patience)?,
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
            let waiting =
                live.reserved.0.load(Ordering::Relaxed).saturating_sub(live.flushed.0.load(Ordering::Relaxed));
            return Err(AppendError::Full { waiting_bytes: waiting });
        }
        patience.wait(&self.core);
        Ok(())
    }

    /// As [`Appender::sync_to`]; waits for the records of other producers that are before `position`.
    pub fn sync_to(&self, position: Position) -> Result<Durable, SyncError> {
        self.syncer.sync_to(position)
    }

    /// A handle that only syncs and looks.
    pub fn syncer(&self) -> Syncer {
        self.syncer.clone()
    }

    /// Counters; `worst_append_ns` is not measured here.
    pub fn stats(&self) -> Stats {
        self.syncer.stats()
    }

    /// Why this mode, and what it had to do without.
    pub fn reasons(&self) -> Vec<String> {
        lock(&self.owner).as_ref().map(|a| a.reasons().to_vec()).unwrap_or_default()
    }

    /// Closes for all producers. Call it when none is inside `append`; a later append is refused.
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

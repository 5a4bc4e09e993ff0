//! Many producers on one ring.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::appender::{Appender, Side};
use crate::core::{Core, lock};
use crate::error::{AppendError, SyncError};
use crate::frame;
use crate::lane::Patience;
use crate::options::BackPressure;
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
        if self.core.roll_bytes != 0 && need > self.core.roll_room() {
            return Err(AppendError::TooLong { len: bytes.len(), max: self.core.roll_room() as usize - frame::HEADER });
        }
        let at = self.take_place(need)?;
        let place = self.ring.at(at);
        // SAFETY: the swap made [at, at + need) this producer's own until its word says Data; it is mapped (the second half
        // mirrors the first), zeroed by the flusher, and its word is aligned since places are multiples of 8.
        unsafe {
            let word = &*place.cast::<AtomicU64>();
            // First of all, so that recovery can step over a record whose producer died.
            word.store(frame::reserved(bytes.len()).to_le(), Ordering::Release);
            // A release store alone lets later stores overtake it; recovery takes the first word that is not zero for a frame.
            fence(Ordering::AcqRel);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.add(frame::HEADER), bytes.len());
            word.store(frame::data(bytes).to_le(), Ordering::Release);
        }
        self.core.live.position.1.appends.fetch_add(1, Ordering::Relaxed);
        Ok(Position(at + need))
    }

    #[inline]
    fn take_place(&self, need: u64) -> Result<u64, AppendError> {
        let reserved = &self.core.live.reserved.0;
        let mut patience = Patience::new();
        let mut at = reserved.load(Ordering::Relaxed);
        loop {
            let freed = self.core.live.freed.0.load(Ordering::Acquire);
            if self.core.closing.load(Ordering::Relaxed) {
                return Err(AppendError::Failed { what: "append", message: "the appender is closed".to_owned() });
            }
            if at + need > freed + self.ring.capacity {
                self.no_room(&mut patience)?;
                at = reserved.load(Ordering::Relaxed);
                continue;
            }
            match reserved.compare_exchange_weak(at, at + need, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(at),
                Err(seen) => at = seen,
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

    /// As [`Appender::sync_to`]; waits for the records of other producers that lie before `position`.
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

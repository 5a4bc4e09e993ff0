//! [`Syncer`], which syncs on other threads, and the close of an appender.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::core::{Core, lock};
use crate::error::{AppendError, SyncError};
use crate::live::remove_shm;
use crate::mode::Mode;
use crate::options::Framing;
use crate::sidecar::Entry;
use crate::stats::{Durable, Position, Stats};
use crate::timer::Timer;

/// A handle for threads other than the writer's. It outlives the appender; after close it can only read counters.
#[derive(Debug, Clone)]
pub struct Syncer {
    pub(crate) core: Arc<Core>,
    pub(crate) timer: Timer,
}

impl Syncer {
    /// As [`crate::Appender::sync_to`], on the calling thread. Concurrent callers share one sync of the device.
    pub fn sync_to(&self, position: Position) -> Result<Durable, SyncError> {
        self.core.sync_to(position.0).map(Durable)
    }

    /// As [`crate::Appender::failure`].
    pub fn failure(&self) -> Option<AppendError> {
        self.core.failure()
    }

    /// End of the appended data, as published to other threads.
    pub fn position(&self) -> Position {
        Position(self.core.seen_position())
    }

    /// Counters since open. `run_ahead_bytes` is what the helper has prepared, even if the writer has not read it yet.
    /// A forked child sees the last durable position, and no counters of the writer.
    pub fn stats(&self) -> Stats {
        let core = &self.core;
        let counters = &core.counters.0;
        let position = self.position().0;
        let durable = core.durable.load(Ordering::Acquire);
        let (mut lag, mut run_ahead_bytes, mut appends, mut worst) = (0, 0, 0, 0);
        if !core.born.elsewhere() {
            let writer = &core.live.position.1;
            lag = position.saturating_sub(core.filed_end());
            run_ahead_bytes = self.run_ahead(position, lag);
            appends = writer.appends.load(Ordering::Relaxed);
            worst = writer.worst_ticks.load(Ordering::Relaxed);
        }
        Stats {
            mode: core.mode,
            locked: core.locked,
            appends,
            position,
            run_ahead_bytes,
            late_windows: counters.late.load(Ordering::Relaxed),
            waits: counters.waits.load(Ordering::Relaxed),
            worst_append_ns: (worst > 0).then(|| self.timer.ns(worst)),
            flusher_lag_bytes: lag,
            at_risk_bytes: position.saturating_sub(durable),
            durable,
            memory_bytes: core.memory_bytes,
            rolls: counters.rolls.load(Ordering::Relaxed),
            grown: counters.grown.load(Ordering::Relaxed),
            fallbacks: counters.fallbacks.load(Ordering::Relaxed),
            out_of_space: core.space.short(),
        }
    }

    fn run_ahead(&self, position: u64, lag: u64) -> u64 {
        match self.core.mode {
            Mode::Ring => self.core.ring_bytes().saturating_sub(lag),
            Mode::Plain => 0,
            Mode::Window | Mode::Prefetch => {
                let (_, base) = self.core.live.file();
                let warm = lock(&self.core.files).current.warm.load(Ordering::Relaxed);
                (base + warm).saturating_sub(position)
            }
        }
    }
}

impl Core {
    /// Capacity of the ring in use, bytes.
    pub(crate) fn ring_bytes(&self) -> u64 {
        let count = self.live.ring_count.load(Ordering::Acquire) as usize;
        let last = count.checked_sub(1).and_then(|i| self.live.rings.get(i));
        last.map_or(0, |r| r.capacity.load(Ordering::Relaxed))
    }

    /// End of the accepted data; in a forked child, the last durable position.
    pub(crate) fn seen_position(&self) -> u64 {
        match self.born.elsewhere() {
            true => self.durable.load(Ordering::Acquire),
            false => self.live.position.0.load(Ordering::Acquire),
        }
    }

    /// Closes an appender whose threads have ended. First the files are cut and made durable, then the sidecar says so,
    /// durably, so that after a power cut an old entry cuts nothing. Only then are the shared memory and the sidecar
    /// removed.
    pub(crate) fn finish(&self) -> Result<u64, SyncError> {
        if let Some(f) = self.failure.get() {
            // Releases the locks; everything else stays for recovery.
            self.unlock_files();
            drop(lock(&self.sidecar).take());
            return Err(SyncError::Failed {
                what: f.what,
                message: f.message.clone(),
                durable: self.durable.load(Ordering::Acquire),
            });
        }
        let ended = self.end_files();
        self.unlock_files();
        let sidecar = lock(&self.sidecar).take();
        let durable = self.durable.load(Ordering::Acquire);
        let failed = |e: io::Error| SyncError::Failed { what: "close", message: e.to_string(), durable };
        let end = ended.map_err(|e| {
            self.live.distrust(durable);
            self.fail("close", &e);
            failed(e)
        })?;
        self.durable.store(end, Ordering::Release);
        self.live.wake_readers();
        let mut sidecar = sidecar.ok_or_else(|| failed(io::Error::other("closed twice")))?;
        let (seq, base) = self.live.file();
        let entry = Entry { closed: true, ..self.entry(seq, end - base, base, Some(self.next_number())) };
        match sidecar.write(&entry) {
            // On a full disk the old entry is harmless, unless recovery takes the end of the data from it.
            Err(e) if !crate::space::is_full(&e) || self.end_is_journalled() => return Err(failed(e)),
            _ => {}
        }
        if let Some(shm) = self.named_shm() {
            remove_shm(shm, &self.stem).map_err(failed)?;
        }
        if !self.names.rolls() {
            sidecar.remove(&self.names).map_err(failed)?;
        }
        Ok(end)
    }

    /// Whether recovery after the machine's death takes the end of the data, or its position, from the sidecar.
    fn end_is_journalled(&self) -> bool {
        self.names.rolls() || self.preallocated() && self.framing == Framing::None
    }

    fn end_files(&self) -> io::Result<u64> {
        let end = self.live.position.0.load(Ordering::Acquire);
        let (_, base) = self.live.file();
        let files = lock(&self.files);
        let (current, older) = (Arc::clone(&files.current), files.older.clone());
        drop(files);
        self.sync_left(&older)?;
        self.check_stores(&current)?;
        current.file.set_len(end - base)?;
        current.file.sync_all()?;
        // The removal of a file prepared for a roll must be durable, or the file would come back.
        if self.names.rolls() {
            self.names.sync_dir()?;
        }
        Ok(end)
    }
}

/// The thread of [`crate::Durability::Every`].
pub(crate) fn sync_every(core: &Core, period: Duration) {
    let mut due = Instant::now() + period;
    while !core.closing.load(Ordering::Acquire) {
        let now = Instant::now();
        if now < due {
            std::thread::park_timeout(due - now);
            core.panic_if_doomed();
            continue;
        }
        let position = core.live.position.0.load(Ordering::Acquire);
        // The core keeps a failure; the writer and `close` report it. A full disk is not a failure: the thread tries
        // again.
        if core.sync_to(position).is_err() && core.failure.get().is_some() {
            return;
        }
        due = Instant::now() + period;
    }
}

//! The fallback ring of `window`, for a helper that is too slow: throttled in its page faults
//! (`mm/memory.c: fault_dirty_shared_page`), without a CPU, or slower than the writer.
//!
//! The writer switches to the ring by itself, at the latest one page after the helper has become silent. The helper
//! writes the ring to the file, as the flusher of `ring` does. Once its writes have been fast for a while, it prepares
//! windows again and sets `ready`. The writer returns when the ring is empty, so no byte is ever in both places.
//! Recovery finds the ring through the live block and replays it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::appender::Appender;
use crate::choose::Choice;
use crate::core::{Core, DataFile};
use crate::mode::Mode;
use crate::options::Options;
use crate::ring::{RingMemory, RingNeeds};
use crate::ring_use::{self, RingUse};
use crate::timer::Timer;

/// Smallest useful ring, bytes: a smaller one is full before the helper runs.
const STAGE_BYTES_MIN: u64 = 64 << 10;
/// A helper without a sign of life for this long may be stuck, ns; more than ten naps.
const SILENT_NS: u64 = 30_000_000;
/// Most bytes that the helper writes at a time.
const PIECE_BYTES: u64 = 128 << 10;
/// A system call of the helper that takes longer than this was made to wait.
pub(crate) const SLOW: Duration = Duration::from_millis(10);
/// How long writes must be fast before windows are prepared again; doubled at each relapse, up to `STAY_MAX`.
const STAY_MIN: Duration = Duration::from_millis(250);
const STAY_MAX: Duration = Duration::from_secs(64);

/// State shared by the writer and the helper.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) ring: RingMemory,
    ring_use: RingUse,
    /// The helper prepares windows again.
    ready: AtomicBool,
    /// A system call of the helper was slow.
    flee: AtomicBool,
    /// Time of the helper's last sign of life, ticks.
    seen: AtomicU64,
    timer: Timer,
}

impl Stage {
    pub(crate) fn new(ring: RingMemory, timer: Timer) -> Stage {
        let (ready, flee) = (AtomicBool::new(false), AtomicBool::new(false));
        Stage { ring, ring_use: RingUse::idle(), ready, flee, seen: AtomicU64::new(timer.ticks()), timer }
    }

    pub(crate) fn in_use(&self) -> bool {
        self.ring_use.in_use()
    }

    /// Helper: reports that it runs, and the duration of the last call.
    pub(crate) fn beat(&self, took: Duration) {
        self.seen.store(self.timer.ticks(), Ordering::Relaxed);
        if took > SLOW {
            self.flee.store(true, Ordering::Relaxed);
        }
    }

    /// Writer: whether to leave the window, because the helper may not have made write-protected pages writable again.
    pub(crate) fn must_flee(&self) -> bool {
        // On another CPU the helper's counter may be slightly ahead.
        let silent = self.timer.ticks().saturating_sub(self.seen.load(Ordering::Relaxed));
        self.flee.load(Ordering::Relaxed) || self.timer.ns(silent) > SILENT_NS
    }

    /// Writer: switches to the ring, at position `cursor`.
    pub(crate) fn enter(&self, core: &Core, cursor: u64) {
        core.live.flushed.0.store(cursor, Ordering::Relaxed);
        if let Some(entry) = core.live.rings.first() {
            entry.capacity.store(self.ring.capacity, Ordering::Relaxed);
            entry.start.store(cursor, Ordering::Relaxed);
        }
        // From here on recovery reads the ring.
        core.live.ring_count.store(1, Ordering::Release);
        self.ready.store(false, Ordering::Relaxed);
        self.flee.store(false, Ordering::Relaxed);
        self.ring_use.enter();
    }

    /// Writer: whether windows are prepared again.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Writer: leaves the ring, if the helper is not using it and the ring is empty.
    pub(crate) fn leave(&self, core: &Core, cursor: u64) -> bool {
        self.ring_use.leave(&core.live.flushed.0, cursor, || core.live.ring_count.store(0, Ordering::Release))
    }
}

/// Result of one turn of the helper at the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The writer uses its window.
    NotInUse,
    /// A piece was written, or the ring was empty; come again after this time.
    Drained(Duration),
    /// Writes are fast: prepare windows.
    Prepare,
}

/// The helper's state while it drains the ring.
#[derive(Debug)]
pub(crate) struct Drain {
    calm_since: Option<Instant>,
    stay: Duration,
    left: Instant,
}

impl Drain {
    pub(crate) fn new() -> Drain {
        Drain { calm_since: None, stay: STAY_MIN / 2, left: Instant::now() }
    }

    /// A system call was slow, so preparing windows would be slow too.
    pub(crate) fn on_slow(&mut self, core: &Core) {
        self.calm_since = self.calm_since.map(|_| Instant::now());
        if let Some(stage) = core.stage.get() {
            stage.ready.store(false, Ordering::Relaxed);
        }
    }

    /// Sets whether the writer may return to its window.
    pub(crate) fn set_ready(&self, core: &Core, ready: bool) {
        if let Some(stage) = core.stage.get() {
            stage.ready.store(ready, Ordering::Relaxed);
        }
    }

    /// Writes a piece of the ring to the file. `base` is the file's first position; the file was current at `epoch`.
    pub(crate) fn turn(&mut self, core: &Core, file: &DataFile, base: u64, epoch: u64) -> io::Result<Turn> {
        let Some(stage) = core.stage.get().filter(|stage| stage.in_use()) else {
            if self.calm_since.take().is_some() {
                self.left = Instant::now();
            }
            return Ok(Turn::NotInUse);
        };
        if self.calm_since.is_none() {
            let relapse = self.left.elapsed() < 8 * self.stay;
            self.stay = if relapse { (2 * self.stay).min(STAY_MAX) } else { STAY_MIN };
            self.calm_since = Some(Instant::now());
        }
        let begun = Instant::now();
        let left = stage.drain(core, file, base, epoch)?;
        if begun.elapsed() > SLOW {
            self.on_slow(core);
        }
        if left > 0 {
            return Ok(Turn::Drained(Duration::ZERO));
        }
        let calm = self.calm_since.is_some_and(|since| since.elapsed() >= self.stay);
        Ok(if calm { Turn::Prepare } else { Turn::Drained(Duration::from_millis(1)) })
    }
}

impl Stage {
    /// Writes at most one piece. Returns the number of bytes that wait behind it.
    fn drain(&self, core: &Core, file: &DataFile, base: u64, epoch: u64) -> io::Result<u64> {
        self.ring_use.with(|| self.write_piece(core, file, base, epoch)).unwrap_or(Ok(0))
    }

    fn write_piece(&self, core: &Core, file: &DataFile, base: u64, epoch: u64) -> io::Result<u64> {
        // The writer changes files only while it is not in the ring, so the epoch is stable during this turn.
        if core.live.epoch() != epoch {
            return Ok(0);
        }
        let (from, end) = ring_use::waiting(&core.live.position.0, &core.live.flushed.0, u64::MAX / 2);
        let waiting = end - from;
        let len = waiting.min(PIECE_BYTES);
        if len > 0 {
            // SAFETY: `position` and `flushed` bound a published range that is not longer than the ring, and the writer
            // reuses the space only after `flushed` moves below.
            let bytes = unsafe { self.ring.bytes(from, len as usize) };
            file.file.write_all_at(bytes, from - base)?;
            core.live.flushed.0.store(from + len, Ordering::Release);
            core.space.write_succeeded();
        }
        Ok(waiting - len)
    }

    /// At close: writes everything that is in the ring.
    pub(crate) fn drain_all(&self, core: &Core, file: &DataFile, base: u64, epoch: u64) -> io::Result<()> {
        while self.in_use() && self.drain(core, file, base, epoch)? > 0 {}
        Ok(())
    }
}

impl Core {
    /// End of the accepted data that has reached the file.
    pub(crate) fn filed_end(&self) -> u64 {
        let position = self.live.position.0.load(Ordering::Acquire);
        // Position first: a ring that the writer has left holds none of the bytes before a position read earlier.
        let in_ring = self.mode == Mode::Ring || self.stage.get().is_some_and(Stage::in_use);
        if in_ring { position.min(self.live.flushed.0.load(Ordering::Acquire)) } else { position }
    }
}

/// Capacity of the fallback ring, bytes: a power of two, at most five eighths of the budget. (Half of a budget that was
/// rounded down to pages would leave a quarter.) 0 = no ring.
pub(crate) fn stage_bytes(options: &Options, choice: &Choice) -> u64 {
    let most = options.ring_bytes.next_power_of_two().min(choice.budget.bytes / 8 * 5);
    let wanted =
        choice.mode == Mode::Window && choice.ring_beside && !options.readable_at_once && most >= STAGE_BYTES_MIN;
    if wanted { 1 << most.ilog2() } else { 0 }
}

/// Creates the fallback ring, or adds the reason why there is none.
pub(crate) fn add_stage(options: &Options, appender: &mut Appender, choice: &Choice, node: Option<u32>) {
    let core = &appender.core;
    let capacity = stage_bytes(options, choice);
    let refusal = if options.readable_at_once {
        "readers must see each byte in the file at once".to_owned()
    } else if !choice.ring_beside {
        "its shared memory, with its records, may be removed; process_death_may_lose allows it".to_owned()
    } else if capacity == 0 {
        format!("{} leaves no memory for one", choice.budget.bound.name())
    } else if !core.live.survives_process() {
        "no shared-memory file can be created, so it would be lost with the process".to_owned()
    } else {
        let needs = RingNeeds { dir: core.named_shm(), stem: &core.stem, node, locked: core.locked };
        match RingMemory::create(&needs, 0, capacity) {
            Ok(ring) => {
                // Set once per appender, here.
                let _ = core.stage.set(Stage::new(ring, appender.timer));
                return;
            }
            Err(e) => e.to_string(),
        }
    };
    appender.reasons.push(format!("no ring to fall back on when the window is late: {refusal}"));
}

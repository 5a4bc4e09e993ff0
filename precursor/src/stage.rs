//! The ring that `window` falls back on while its helper cannot keep up: throttled in the page faults with which it prepares
//! (`mm/memory.c: fault_dirty_shared_page`), kept off the CPU, or simply slower than the writer.
//!
//! The writer goes over to the ring by itself, at the latest one page after the helper has fallen silent; the helper writes the
//! ring to the file as the flusher of `ring` does, and once that has gone quickly for a while it prepares windows again and says
//! so. The writer returns at a moment when nothing is left in the ring, so no byte is ever in two places. Recovery sees a ring in
//! the live block and replays it.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::appender::Appender;
use crate::choose::Choice;
use crate::core::{Core, DataFile};
use crate::options::Options;
use crate::plan::Mode;
use crate::ring::{RingMemory, RingNeeds};
use crate::timer::Timer;
use crate::turns::{self, Turns};

/// Less than this is filled before the helper could help, bytes.
const STAGE_BYTES_MIN: u64 = 64 << 10;
/// A helper that has said nothing for this long may be stuck, ns: ten of its naps and more.
const SILENT_NS: u64 = 30_000_000;
/// Most bytes the helper writes at a time.
const PIECE_BYTES: u64 = 128 << 10;
/// A call of the helper into the kernel that took this long was made to wait.
pub(crate) const SLOW: Duration = Duration::from_millis(10);
/// How long writing must go quickly before windows are prepared again; doubled at each relapse.
const STAY_MIN: Duration = Duration::from_millis(250);
const STAY_MAX: Duration = Duration::from_secs(64);

/// What writer and helper share.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) ring: RingMemory,
    turns: Turns,
    /// Windows are prepared again.
    ready: AtomicBool,
    /// The helper was made to wait.
    flee: AtomicBool,
    /// When the helper was last seen at work, ticks.
    seen: AtomicU64,
    timer: Timer,
}

impl Stage {
    pub(crate) fn new(ring: RingMemory, timer: Timer) -> Stage {
        let (ready, flee) = (AtomicBool::new(false), AtomicBool::new(false));
        Stage { ring, turns: Turns::idle(), ready, flee, seen: AtomicU64::new(timer.ticks()), timer }
    }

    pub(crate) fn in_use(&self) -> bool {
        self.turns.in_use()
    }

    /// Helper: alive, and its last call took that long.
    pub(crate) fn beat(&self, took: Duration) {
        self.seen.store(self.timer.ticks(), Ordering::Relaxed);
        if took > SLOW {
            self.flee.store(true, Ordering::Relaxed);
        }
    }

    /// Writer: the helper may not have undone what write-back protects.
    pub(crate) fn must_flee(&self) -> bool {
        // The helper's counter may be read a little ahead of ours on another CPU.
        let silent = self.timer.ticks().saturating_sub(self.seen.load(Ordering::Relaxed));
        self.flee.load(Ordering::Relaxed) || self.timer.ns(silent) > SILENT_NS
    }

    /// Writer: begins to use the ring at that position.
    pub(crate) fn enter(&self, core: &Core, cursor: u64) {
        core.live.flushed.0.store(cursor, Ordering::Relaxed);
        if let Some(entry) = core.live.rings.first() {
            entry.capacity.store(self.ring.capacity, Ordering::Relaxed);
            entry.start.store(cursor, Ordering::Relaxed);
        }
        // From here on recovery looks into the ring.
        core.live.ring_count.store(1, Ordering::Release);
        self.ready.store(false, Ordering::Relaxed);
        self.flee.store(false, Ordering::Relaxed);
        self.turns.enter();
    }

    /// Writer: windows are prepared again.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Writer: leaves the ring, if the helper is not at it and nothing is left in it.
    pub(crate) fn leave(&self, core: &Core, cursor: u64) -> bool {
        self.turns.leave(&core.live.flushed.0, cursor, || core.live.ring_count.store(0, Ordering::Release))
    }
}

/// What the helper found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The writer is in its window.
    NotInUse,
    /// A piece was written, or there was none: come again after this long.
    Drained(Duration),
    /// Writing goes quickly: prepare windows.
    Prepare,
}

/// The helper's memory of it.
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

    /// A call into the kernel was made to wait: preparing windows would wait likewise.
    pub(crate) fn on_slow(&mut self, core: &Core) {
        self.calm_since = self.calm_since.map(|_| Instant::now());
        if let Some(stage) = core.stage.get() {
            stage.ready.store(false, Ordering::Relaxed);
        }
    }

    /// Tells the writer whether it may return.
    pub(crate) fn tell_ready(&self, core: &Core, ready: bool) {
        if let Some(stage) = core.stage.get() {
            stage.ready.store(ready, Ordering::Relaxed);
        }
    }

    /// Writes a piece of the ring to the file, which begins at `base` and was current when the live block counted `epoch` files.
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
    /// Writes at most a piece; returns how many bytes were seen beyond it.
    fn drain(&self, core: &Core, file: &DataFile, base: u64, epoch: u64) -> io::Result<u64> {
        self.turns.with(|| self.write_piece(core, file, base, epoch)).unwrap_or(Ok(0))
    }

    fn write_piece(&self, core: &Core, file: &DataFile, base: u64, epoch: u64) -> io::Result<u64> {
        // The writer changes files only outside the ring, so this cannot change before the state does.
        if core.live.epoch() != epoch {
            return Ok(0);
        }
        let (from, end) = turns::waiting(&core.live.position.0, &core.live.flushed.0, u64::MAX / 2);
        let waiting = end - from;
        let len = waiting.min(PIECE_BYTES);
        if len > 0 {
            // SAFETY: published by the producer, and not freed before `flushed` moves below.
            let bytes = unsafe { self.ring.bytes(from, len as usize) };
            file.file.write_all_at(bytes, from - base)?;
            core.live.flushed.0.store(from + len, Ordering::Release);
            core.space.write_succeeded();
        }
        Ok(waiting - len)
    }

    /// At the end: everything, whatever it takes.
    pub(crate) fn drain_all(&self, core: &Core, file: &DataFile, base: u64, epoch: u64) -> io::Result<()> {
        while self.in_use() && self.drain(core, file, base, epoch)? > 0 {}
        Ok(())
    }
}

impl Core {
    /// End of what the file has, of all that was accepted.
    pub(crate) fn filed_end(&self) -> u64 {
        let position = self.live.position.0.load(Ordering::Acquire);
        // In this order: a ring that is not in use now holds nothing of what lay before a position read earlier.
        let in_ring = self.mode == Mode::Ring || self.stage.get().is_some_and(Stage::in_use);
        if in_ring { position.min(self.live.flushed.0.load(Ordering::Acquire)) } else { position }
    }
}

/// Size of the ring that `window` falls back on: a power of two, five eighths of its budget at most (half of a budget that was
/// rounded down to pages would give a quarter); 0 = none.
pub(crate) fn stage_bytes(options: &Options, choice: &Choice) -> u64 {
    let most = options.ring_bytes.next_power_of_two().min(choice.budget.bytes / 8 * 5);
    let wanted =
        choice.mode == Mode::Window && choice.ring_beside && !options.readable_at_once && most >= STAGE_BYTES_MIN;
    if wanted { 1 << most.ilog2() } else { 0 }
}

/// Gives `window` its ring, or says why it has none.
pub(crate) fn add_stage(options: &Options, appender: &mut Appender, choice: &Choice, node: Option<u32>) {
    let core = &appender.core;
    let capacity = stage_bytes(options, choice);
    let refusal = if options.readable_at_once {
        "readers must see each byte in the file at once".to_owned()
    } else if !choice.ring_beside {
        "its shared memory may be removed, and the records in it with it; process_death_may_lose allows it".to_owned()
    } else if capacity == 0 {
        format!("{} leaves no memory for one", choice.budget.bound.name())
    } else if !core.live.survives_process() {
        "no shared-memory file can be made, so it would die with the process".to_owned()
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

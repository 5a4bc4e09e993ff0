//! The helper thread of `window` and `prefetch`, which performs the planner's steps.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::core::{Core, DataFile};
use crate::mode::Mode;
use crate::own::OwnFile;
use crate::plan::{Ledger, Planner, Span, Step, Which};
use crate::ring::TOUCH_BYTES;
use crate::sigbus::Guarded;
use crate::stage::{Drain, SLOW, Turn};
use crate::sys::{self, Mapping, page_bytes};
use crate::write_back::WriteBack;

/// Interval at which allocation is tried again on a full disk.
const RETRY: Duration = Duration::from_millis(50);
/// Fewest bytes populated in one call, unless the window is smaller.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Block of zeros that `prefetch` writes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

#[derive(Debug)]
pub(crate) struct Helper {
    core: Arc<Core>,
    planner: Planner,
    start: Instant,
    current: Arc<DataFile>,
    /// Position of the current file's first byte.
    base: u64,
    epoch: u64,
    next: Option<Arc<DataFile>>,
    ledger: Ledger,
    retry_at: Option<Instant>,
    scratch: Vec<u8>,
    write_back: WriteBack,
    drain: Drain,
    /// Bytes populated in one call. Reduced while such calls are slow, so that the writer gets each piece as it is
    /// ready.
    piece_bytes: u64,
}

impl Helper {
    /// A helper for a file whose data ends at `len`. Windows before `len` are neither locked nor written back.
    pub(crate) fn new(
        core: Arc<Core>,
        planner: Planner,
        current: Arc<DataFile>,
        base: u64,
        len: u64,
    ) -> io::Result<Helper> {
        let from = len / page_bytes() * page_bytes();
        let window = planner.tuning().window_bytes;
        let window_start = len / window * window;
        let ledger = Ledger {
            position: len,
            flushed: len,
            // `prefetch` writes zeros from the exact end of the data.
            allocated: if core.mode == Mode::Prefetch { len } else { from },
            warm: from,
            written_back: window_start,
            released: window_start,
            ..Ledger::default()
        };
        let epoch = core.live.epoch();
        Ok(Helper {
            core,
            planner,
            start: Instant::now(),
            current,
            base,
            epoch,
            next: None,
            ledger,
            retry_at: None,
            scratch: Vec::new(),
            write_back: WriteBack::start()?,
            drain: Drain::new(),
            // Small at first: on a slow device each page may be throttled (`mm/page-writeback.c: balance_dirty_pages`).
            piece_bytes: window.min(PIECE_BYTES_MIN),
        })
    }

    /// Runs until the appender closes. A failure is stored in the core, where the writer finds it.
    pub(crate) fn run(mut self) {
        while !self.core.closing.load(Ordering::Acquire) {
            self.core.panic_if_doomed();
            self.look();
            if let Err(e) = self.core.check_stores(&self.current).and_then(|()| self.turn())
                && !self.out_of_space(&e)
            {
                self.core.fail("prepare the next window", &e);
                return;
            }
        }
        self.drop_prepared();
        if let Some(stage) = self.core.stage.get()
            && let Err(e) = stage.drain_all(&self.core, &self.current, self.base, self.epoch)
        {
            self.core.fail("write", &e);
        }
    }

    /// Drains a piece of the fallback ring, or performs the planner's next step.
    fn turn(&mut self) -> io::Result<()> {
        self.beat(Duration::ZERO);
        let waiting_for_space = self.retry_at.is_some_and(|at| Instant::now() < at);
        if waiting_for_space {
            std::thread::park_timeout(RETRY / 4);
            return Ok(());
        }
        self.touch_ahead();
        let turn = self.drain.turn(&self.core, &self.current, self.base, self.epoch)?;
        if let Turn::Drained(nap) = turn {
            std::thread::park_timeout(nap);
            return Ok(());
        }
        if self.core.signals.0.roll_due.load(Ordering::Acquire) && self.ledger.next_warm == 0 {
            // Earlier than the planner would: the current file is not nearly full.
            let first = Span { at: 0, len: self.planner.tuning().window_bytes.min(self.core.roll_bytes) };
            self.allocate(Which::Next, first)?;
            return self.warm(Which::Next, Span { at: 0, len: self.ledger.next_allocated });
        }
        let step = self.planner.next(self.now_ns(), &self.ledger);
        self.perform(step)?;
        // The planner refreshes or naps only if nothing more urgent is left to prepare.
        if turn == Turn::Prepare && matches!(step, Step::Refresh(_) | Step::Nap(_)) {
            let window = self.planner.tuning().window_bytes;
            let file_end = if self.core.roll_bytes == 0 { u64::MAX } else { self.core.roll_bytes };
            self.drain.set_ready(&self.core, self.ledger.warm >= file_end.min(self.ledger.position + window));
        }
        Ok(())
    }

    /// Touches the next pages of the window or of the ring before the writer reaches them.
    fn touch_ahead(&self) {
        if let Some(stage) = self.core.stage.get().filter(|stage| stage.in_use()) {
            return stage.ring.touch_ahead(self.base + self.ledger.position);
        }
        if let Some(map) = &self.current.map {
            let from = (self.ledger.position / page_bytes() + 1) * page_bytes();
            let end = self.ledger.warm.min(from + TOUCH_BYTES);
            map.touch(from as usize, end.saturating_sub(from) as usize);
        }
    }

    fn beat(&self, took: Duration) {
        if let Some(stage) = self.core.stage.get() {
            stage.beat(took);
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Reads the writer's position, and follows it to the next file after a roll.
    fn look(&mut self) {
        while self.epoch != self.core.live.epoch() {
            self.rolled();
        }
        let position = self.core.live.position.0.load(Ordering::Acquire);
        self.planner.pace.on_position(self.now_ns(), position);
        self.ledger.position = position.saturating_sub(self.base);
        self.ledger.flushed = self.ledger.position;
        self.ledger.write_back_busy = self.write_back.is_busy();
        self.core.live.wake_readers();
    }

    fn rolled(&mut self) {
        let Some(next) = self.next.take() else { return };
        let (_, base) = self.core.live.file();
        self.epoch += 1;
        let old = std::mem::replace(&mut self.current, Arc::clone(&next));
        if let Err(e) = self.core.check_stores(&old) {
            self.core.fail("append", &e);
        }
        // Cut before the file counts as left: a sync that covers the file must cover its length, and recovery and
        // readers need nothing else for it.
        if let Err(e) = old.file.set_len(base - self.base) {
            self.core.fail("cut the previous file", &e);
        }
        // Unlocked here and not when the last owner unmaps it, because write-back may keep the file while its device is
        // busy.
        if let Err(e) = self.let_go(&old, self.ledger.released, self.ledger.warm) {
            self.core.fail("unlock the previous file", &e);
        }
        self.core.leave(&old, next);
        // A hint: the kernel or `sync_to` writes the remaining pages.
        if !self.write_back.is_busy() {
            self.write_back.hand(
                old,
                Span { at: self.ledger.written_back, len: (base - self.base).saturating_sub(self.ledger.written_back) },
            );
        }
        let (allocated, warm) = (self.ledger.next_allocated, self.ledger.next_warm);
        self.ledger = Ledger { allocated, warm, ..Ledger::default() };
        self.core.live.preparing.store(0, Ordering::Release);
        self.base = base;
    }

    fn perform(&mut self, step: Step) -> io::Result<()> {
        match step {
            Step::Nap(ns) => std::thread::park_timeout(Duration::from_nanos(ns)),
            Step::Allocate(which, span) => self.allocate(which, span)?,
            Step::Warm(which, span) => self.warm(which, span)?,
            Step::Refresh(span) => self.refresh(span)?,
            Step::WriteBack(span) => {
                self.write_back.hand(Arc::clone(&self.current), span);
                self.ledger.written_back = span.end();
            }
            Step::Release(span) => {
                self.let_go(&self.current, span.at, span.end())?;
                self.ledger.released = span.end();
            }
            // The planner of these modes never flushes a ring.
            Step::Flush(_) => {}
        }
        Ok(())
    }

    fn allocate(&mut self, which: Which, span: Span) -> io::Result<()> {
        let file = self.target(which)?;
        let got = self.core.space.allocate(&file.file, span.at, span.len, page_bytes(), false)?;
        let got = Span { at: span.at, len: got };
        if self.core.mode == Mode::Prefetch {
            write_zeros(&file, got)?;
            file.zeroed.store(got.end(), Ordering::Release);
        }
        match which {
            Which::Current => self.ledger.allocated = got.end(),
            Which::Next => self.ledger.next_allocated = got.end(),
        }
        self.retry_at = None;
        Ok(())
    }

    fn warm(&mut self, which: Which, span: Span) -> io::Result<()> {
        let begun = Instant::now();
        let file = self.target(which)?;
        let mut end = span.end();
        if let Some(map) = &file.map {
            end = span.at.saturating_add(self.piece_bytes).min(end);
            let len = (end - span.at) as usize;
            if self.core.locked {
                map.lock_on_fault(span.at as usize, len)?;
            }
            populate(map, &file.file, span.at, len)?;
            self.on_piece(begun.elapsed());
        } else {
            self.scratch.resize(span.len as usize, 0);
            let _ = file.file.get()?.read_at(&mut self.scratch, span.at)?;
        }
        file.warm.store(end, Ordering::Release);
        match which {
            Which::Current => self.ledger.warm = end,
            Which::Next => {
                self.ledger.next_warm = end;
                if span.at == 0 {
                    self.core.offer_next(file);
                }
            }
        }
        let cost_ns = begun.elapsed().as_nanos() * u128::from(span.len) / u128::from((end - span.at).max(1));
        self.planner.pace.on_warmed(u64::try_from(cost_ns).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Adapts the size of a piece to the duration of the last call.
    fn on_piece(&mut self, took: Duration) {
        self.beat(took);
        let window = self.planner.tuning().window_bytes;
        let least = window.min(PIECE_BYTES_MIN);
        if took > SLOW {
            self.drain.on_slow(&self.core);
            self.piece_bytes = (self.piece_bytes / 4 / page_bytes() * page_bytes()).max(least);
        } else if took < SLOW / 8 {
            self.piece_bytes = (self.piece_bytes * 2).min(window);
        }
    }

    /// Unlocks and unmaps a range behind the writer.
    fn let_go(&self, file: &DataFile, from: u64, end: u64) -> io::Result<()> {
        let Some(map) = file.map.as_ref().filter(|_| from < end) else { return Ok(()) };
        if self.core.locked {
            map.unlock(from as usize, (end - from) as usize)?;
        }
        map.forget_pages(from as usize, (end - from) as usize)
    }

    fn refresh(&mut self, span: Span) -> io::Result<()> {
        let Some(map) = &self.current.map else { return Ok(()) };
        let begun = Instant::now();
        populate(map, &self.current.file, span.at, span.len.min(self.piece_bytes) as usize)?;
        self.on_piece(begun.elapsed());
        Ok(())
    }

    /// The file of a step. Creates the next file if the step is the first one for it.
    fn target(&mut self, which: Which) -> io::Result<Arc<DataFile>> {
        if which == Which::Current {
            return Ok(Arc::clone(&self.current));
        }
        if let Some(next) = &self.next {
            return Ok(Arc::clone(next));
        }
        let seq = self.current.seq + 1;
        self.core.live.preparing.store(seq + 1, Ordering::Release);
        let file = self.core.names.open(seq)?;
        let map = match &self.current.map {
            Some(map) => Some(map_file(file.get()?, map.len())?),
            None => None,
        };
        let next = Arc::new(DataFile::new(&self.core.names, seq, file, map, self.current.guard.is_some())?);
        self.next = Some(Arc::clone(&next));
        Ok(next)
    }

    /// Reports a full disk and schedules a retry. Not a failure: allocated blocks can still be written.
    fn out_of_space(&mut self, error: &io::Error) -> bool {
        let full = crate::space::is_full(error);
        if full {
            self.core.space.is_exhausted(&self.current.file);
            self.retry_at = Some(Instant::now() + RETRY);
        }
        full
    }

    /// Removes the file that was prepared for a roll, if no roll happened.
    fn drop_prepared(&mut self) {
        self.look();
        if let Some(next) = self.next.take() {
            drop(self.core.take_next());
            // If this fails, recovery removes the file, which holds only zeros.
            let _ = self.core.names.remove(next.seq);
        }
    }
}

/// Populates a range of a mapped file. The kernel answers EFAULT for every fault that would raise SIGBUS, also for one
/// for which the file system has no block (`mm/gup.c: faultin_page_range`).
pub(crate) fn populate(map: &Mapping, file: &OwnFile, at: u64, len: usize) -> io::Result<()> {
    match map.populate_write(at as usize, len) {
        Err(e) if e.raw_os_error() == Some(libc::EFAULT) => {
            let full = crate::space::bytes_left(file) < len as u64;
            Err(if full { io::Error::from_raw_os_error(libc::ENOSPC) } else { Guarded::error() })
        }
        other => other,
    }
}

/// Maps a file for `window`, with `MADV_DONTFORK`.
pub(crate) fn map_file(file: &std::fs::File, len: usize) -> io::Result<Mapping> {
    let map = Mapping::of(file, len)?;
    map.not_in_children()?;
    Ok(map)
}

fn write_zeros(file: &DataFile, span: Span) -> io::Result<()> {
    let mut at = span.at;
    while at < span.end() {
        let len = (span.end() - at).min(ZEROS.len() as u64);
        file.file.write_all_at(&ZEROS[..len as usize], at)?;
        at += len;
    }
    sys::start_write_back(file.file.get()?, span.at, span.len)
}

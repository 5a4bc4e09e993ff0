//! The flusher thread of `ring`, which writes the ring to the file, and the thread that adds rings under
//! `BackPressure::Grow`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::claim;
use crate::core::{Core, DataFile};
use crate::frame::{self, Format};
use crate::options::BackPressure;
use crate::plan::{Ledger, Planner, Step};
use crate::ring::{RingMemory, RingNeeds, Spare, TOUCH_BYTES};
use crate::ring_use;
use crate::sys;

const RETRY: Duration = Duration::from_millis(50);
/// Longest nap while the writer pauses, ns; the naps become longer up to this.
const IDLE_NAP_NS_MAX: u64 = 5_000_000;
/// Nap behind a small flush, ns: each wake-up takes CPU time from the writer, and the ring holds what it appends until
/// then. A waiting append, `sync_to` and `close` end the nap.
const QUIET_NAP_NS: u64 = 2_000_000;
/// How long `close` waits for a producer that has not published its record. A running thread publishes much sooner.
const STALL: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

#[derive(Debug)]
pub(crate) struct Flusher {
    core: Arc<Core>,
    planner: Planner,
    start: Instant,
    rings: VecDeque<Arc<RingMemory>>,
    /// Rings from the growing thread, which sends each to the writer and to the flusher.
    made: Option<std::sync::mpsc::Receiver<Arc<RingMemory>>>,
    file: Arc<DataFile>,
    base: u64,
    allocated: u64,
    /// Many producers: end of the published records, the number of the next one, and where the current file must end.
    committed: u64,
    number: u64,
    boundary: Option<u64>,
    retry_at: Option<Instant>,
    idle_rounds: u64,
    /// The last flush was small.
    quiet: bool,
    /// Closing: the position at which the flush is stuck, and since when.
    stalled: Option<(u64, Instant)>,
}

impl Flusher {
    pub(crate) fn new(
        core: Arc<Core>,
        planner: Planner,
        ring: Arc<RingMemory>,
        made: Option<std::sync::mpsc::Receiver<Arc<RingMemory>>>,
        file: Arc<DataFile>,
        base: u64,
    ) -> Flusher {
        let flushed = core.live.flushed.0.load(Ordering::Relaxed);
        let number = core.live.unnumbered().1;
        Flusher {
            core,
            planner,
            start: Instant::now(),
            rings: VecDeque::from([ring]),
            made,
            file,
            base,
            allocated: flushed - base,
            committed: flushed,
            number,
            boundary: None,
            retry_at: None,
            idle_rounds: 0,
            quiet: false,
            stalled: None,
        }
    }

    /// Runs until the appender closes and everything is in the file, or until a failure.
    pub(crate) fn run(mut self) {
        loop {
            self.core.panic_if_doomed();
            let closing = self.core.closing.load(Ordering::Acquire);
            let pending = self.pending_end();
            let flushed = self.core.live.flushed.0.load(Ordering::Relaxed);
            if closing && pending == flushed && self.boundary_at(flushed).is_none() {
                match self.unpublished() {
                    false => return,
                    true if self.gives_up(pending) => return,
                    true => {}
                }
            }
            if let Err(e) = self.turn(flushed, pending) {
                if !crate::space::is_full(&e) {
                    self.core.fail("write", &e);
                    return;
                }
                self.out_of_space();
                if closing {
                    // `close` reports the error, and the ring keeps the bytes for recovery.
                    self.core.fail("write", &e);
                    return;
                }
            }
        }
    }

    /// End of the published records, which may be flushed.
    fn pending_end(&mut self) -> u64 {
        if !self.core.live.many() {
            return self.core.live.position.0.load(Ordering::Acquire);
        }
        let reserved = claim::end(&self.core.live.reserved.0);
        let mut numbered = false;
        while self.boundary.is_none() && self.committed < reserved {
            let Some(ring) = self.rings.front() else { break };
            let Some(end) = claim::published(&**ring, self.committed) else { break };
            let old = self.core.signals.0.roll_due.load(Ordering::Relaxed)
                && self.committed > self.base + frame::FILE_HEADER_LEN as u64;
            if self.core.roll_bytes != 0 && (old || end > self.base + self.core.roll_room()) {
                self.core.signals.0.roll_due.store(false, Ordering::Relaxed);
                self.boundary = Some(self.committed);
                break;
            }
            claim::set_number(&**ring, self.committed, self.number);
            (self.committed, self.number) = (end, self.number + 1);
            numbered = true;
        }
        if numbered {
            // Before the position: recovery numbers the records from here on.
            self.core.live.set_unnumbered(self.committed, self.number);
        }
        self.core.live.position.0.store(self.committed, Ordering::Release);
        self.committed
    }

    /// Many producers: whether one has taken a place and not yet published its record.
    fn unpublished(&self) -> bool {
        self.core.live.many() && self.committed < claim::end(&self.core.live.reserved.0)
    }

    /// Closing: whether a producer has blocked later records for too long. The ring keeps all of them for recovery.
    fn gives_up(&mut self, pending: u64) -> bool {
        let (at, since) = *self.stalled.get_or_insert_with(|| (pending, Instant::now()));
        if at != pending {
            self.stalled = None;
        } else if since.elapsed() > STALL {
            let waiting_bytes = claim::end(&self.core.live.reserved.0) - pending;
            let problem = format!(
                "a producer has been inside append for {} s, and {waiting_bytes} bytes wait behind it",
                STALL.as_secs()
            );
            self.core.fail("close", &io::Error::other(problem));
            return true;
        }
        false
    }

    fn boundary_at(&self, flushed: u64) -> Option<u64> {
        let next = if self.core.live.many() { self.boundary } else { self.core.live.next_boundary() };
        next.filter(|b| *b == flushed)
    }

    fn turn(&mut self, flushed: u64, pending: u64) -> io::Result<()> {
        if self.boundary_at(flushed).is_some() {
            return self.roll(flushed);
        }
        if let Some(ring) = self.rings.back() {
            ring.touch_ahead(self.core.live.position.0.load(Ordering::Relaxed));
        }
        let announced = if self.core.live.many() { None } else { self.core.live.next_boundary() };
        let ring_end = self.next_ring_start(flushed).unwrap_or(u64::MAX);
        let end = pending.min(announced.unwrap_or(u64::MAX)).min(ring_end);
        let now_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let waiting_for_space = self.retry_at.is_some_and(|at| Instant::now() < at);
        let ledger = Ledger {
            position: end - self.base,
            flushed: flushed - self.base,
            allocated: if waiting_for_space { u64::MAX } else { self.allocated },
            ..Ledger::default()
        };
        if pending == flushed {
            self.core.live.wake_readers();
        }
        match self.planner.next(now_ns, &ledger) {
            Step::Flush(span) => {
                self.idle_rounds = 0;
                let capacity = self.rings.front().map_or(0, |ring| ring.capacity);
                self.quiet = span.len < (capacity / 64).min(TOUCH_BYTES / 2);
                self.flush(flushed, span.len as usize)
            }
            Step::Allocate(_, span) => self.allocate(span.at, span.len),
            Step::Nap(ns) => {
                // The writer is not idle while a record is about to be published.
                self.idle_rounds = if self.unpublished() { 0 } else { (self.idle_rounds + 1).min(1000) };
                let least_ns = if self.quiet { QUIET_NAP_NS } else { ns / 2 };
                let nap_ns = (least_ns + ns * self.idle_rounds / 64).min(IDLE_NAP_NS_MAX);
                std::thread::park_timeout(Duration::from_nanos(nap_ns));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Position at which the next ring takes over from the front one. Drops rings that are drained.
    fn next_ring_start(&mut self, flushed: u64) -> Option<u64> {
        let count = self.core.live.ring_count.load(Ordering::Acquire);
        while self.rings.back().is_some_and(|r| (r.index as u64) + 1 < count) {
            match self.made.as_ref().and_then(|m| m.recv().ok()) {
                Some(ring) => self.rings.push_back(ring),
                None => break,
            }
        }
        loop {
            let next = self.rings.get(1)?;
            let start = self.core.live.rings.get(next.index)?.start.load(Ordering::Relaxed);
            if flushed < start {
                return Some(start);
            }
            if let Some(done) = self.rings.pop_front() {
                // Remove its name: everything in it is in the file's page cache.
                if let Some(shm) = self.core.named_shm() {
                    let _ = shm.remove(&format!("{}.ring{}", self.core.stem, done.index));
                }
            }
        }
    }

    fn flush(&mut self, flushed: u64, len: usize) -> io::Result<()> {
        let Some(ring) = self.rings.front() else { return Ok(()) };
        // SAFETY: the planner's span ends at `end`, so the bytes are published, in this ring and no more than it holds.
        // Producers reuse them only after `flushed` (or `freed`) moves below.
        let bytes = unsafe { ring.bytes(flushed, len) };
        self.file.file.write_all_at(bytes, flushed - self.base)?;
        let end = flushed + len as u64;
        self.core.live.flushed.0.store(end, Ordering::Release);
        if self.core.live.many() {
            self.core.live.wake_readers();
            // SAFETY: the range was published and has just been written to the file, and this is the only consumer.
            unsafe { claim::give_back(&**ring, &self.core.live.freed.0, flushed, end) };
        }
        self.core.space.write_succeeded();
        Ok(())
    }

    fn allocate(&mut self, at: u64, len: u64) -> io::Result<()> {
        match self.core.space.allocate(&self.file.file, at, len, sys::page_bytes(), true) {
            Ok(got) => {
                (self.allocated, self.retry_at) = (at + got, None);
                Ok(())
            }
            // The file system cannot preallocate; the ring does not need it.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)) => {
                self.allocated = u64::MAX;
                Ok(())
            }
            // Only reported: the file may own enough blocks already, and the write will show whether it does.
            Err(e) if crate::space::is_full(&e) => {
                self.core.space.is_short(&self.file.file);
                self.retry_at = Some(Instant::now() + RETRY);
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    fn out_of_space(&mut self) {
        self.core.space.is_exhausted(&self.file.file);
        std::thread::park_timeout(Duration::from_millis(5));
        self.retry_at = Some(Instant::now() + RETRY);
    }

    fn roll(&mut self, at: u64) -> io::Result<()> {
        let next = Arc::new(self.core.create_next(self.file.seq + 1)?);
        let (mut len, mut base) = (at - self.base, at);
        if self.core.live.many() {
            // The mark and the header are not in the ring: with many producers only the flusher knows where a file
            // ends. So the positions do not count them.
            self.file.file.write_all_at(&Format::Second.end_mark(), len)?;
            len += frame::END_MARK_LEN as u64;
            base = at.saturating_sub(frame::FILE_HEADER_LEN as u64);
            next.file.write_all_at(&self.core.header(next.seq, base, self.number).encode(), 0)?;
        }
        // Frees the blocks allocated beyond the end.
        self.file.file.set_len(len)?;
        let _ = self.file.file.get().and_then(|own| sys::start_write_back(own, 0, len));
        self.core.live.set_file(next.seq, base);
        self.core.leave(&self.file, Arc::clone(&next));
        if self.boundary.take().is_none() {
            self.core.live.pop_boundary();
        }
        self.core.counters.0.rolls.fetch_add(1, Ordering::Relaxed);
        (self.file, self.base, self.allocated) = (next, base, 0);
        Ok(())
    }
}

impl Core {
    pub(crate) fn create_next(&self, seq: u64) -> io::Result<DataFile> {
        DataFile::new(&self.names, seq, self.names.open(seq)?, None, false)
    }
}

/// Adds a ring of twice the capacity whenever the current one is a quarter full, within the policy's limit.
pub(crate) fn grow(
    core: &Core,
    spare: &Spare,
    made: &std::sync::mpsc::Sender<Arc<RingMemory>>,
    node: Option<u32>,
    first: u64,
) {
    let BackPressure::Grow { bytes_max } = core.back_pressure else { return };
    let (mut total, mut capacity, mut index) = (first, first, 0);
    while !core.closing.load(Ordering::Acquire) {
        std::thread::park_timeout(Duration::from_millis(1));
        // `waiting` reads `flushed` first; otherwise the flusher could pass the position that was read.
        let (flushed, position) = ring_use::waiting(&core.live.position.0, &core.live.flushed.0, u64::MAX / 2);
        let lag = position - flushed;
        let room = bytes_max.min(core.memory_bytes.max(first)).saturating_sub(total);
        let wanted = (capacity * 2).min(if room == 0 { 0 } else { 1 << room.ilog2() });
        let full = index + 1 >= crate::live::RINGS;
        if full || !spare.is_none() || lag < capacity / 4 || wanted < sys::page_bytes() {
            continue;
        }
        core.panic_if_doomed();
        let needs = RingNeeds { dir: core.named_shm(), stem: &core.stem, node, locked: core.locked };
        // Without memory for a ring, appends wait, as at the policy's limit.
        let Ok(ring) = RingMemory::create(&needs, index + 1, wanted) else { return };
        let ring = Arc::new(ring);
        if made.send(Arc::clone(&ring)).is_err() {
            return;
        }
        (index, capacity, total) = (index + 1, wanted, total + wanted);
        spare.offer(ring);
    }
}

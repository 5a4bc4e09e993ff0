//! The operations of one imitated thread, and of the actor that starts imitated processes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{CREATED, IDS_PER_THREAD, Observed, Sync, mix};
use crate::dice::Dice;
use crate::histogram::Histogram;
use crate::{FileId, Op, OpenHow, Stream};

/// A shorter pause is computed: a sleep takes about this much longer than asked for.
const SLEEP_NS_MIN: u64 = 60_000;
/// A shorter pause is left out: the driver itself takes about as long between two operations.
const PAUSE_NS_MIN: u64 = 1_000;
const COMPUTE_NS: u64 = 5_000_000;
const PIECE_BYTES: u64 = 1 << 20;
const DIRECT_BYTES: u64 = 4096;

/// Creates the files of one thread, or of all, before the measured part.
#[derive(Debug)]
struct Preparation {
    file: u64,
    end: u64,
    at_bytes: u64,
    is_open: bool,
    how: OpenHow,
}

impl Preparation {
    fn next(&mut self, of: &Observed) -> Option<Op> {
        if self.file >= self.end {
            return None;
        }
        let file = FileId(self.file);
        if !self.is_open {
            self.is_open = true;
            return Some(Op::Create { file });
        }
        let size = if of.grow { 0 } else { of.file_bytes };
        if self.at_bytes < size {
            let (offset_bytes, bytes) = (self.at_bytes, PIECE_BYTES.min(size - self.at_bytes));
            self.at_bytes += bytes;
            return Some(Op::Write { file, offset_bytes, bytes });
        }
        // The data must be on the disk, so that preparation leaves no dirty pages to the measured part.
        if self.at_bytes == size {
            self.at_bytes += 1;
            return Some(Op::Fsync { file });
        }
        (self.file, self.at_bytes, self.is_open) = (self.file + 1, 0, false);
        Some(Op::Open { file, how: self.how })
    }
}

fn how(of: &Observed) -> OpenHow {
    OpenHow { append: of.append, direct: of.direct, data_sync: of.data_sync }
}

fn preparation(of: &Observed, thread: u64) -> Preparation {
    let first = of.first_file(thread);
    let makes = of.uses_files() && (!of.shared || thread == 0);
    let end = if makes { first + of.files } else { first };
    Preparation { file: first, end, at_bytes: 0, is_open: false, how: how(of) }
}

/// Prepares the files of all processes, starts the processes, and waits for them.
#[derive(Debug)]
pub struct Starter {
    of: Arc<Observed>,
    preparation: Preparation,
    thread: u64,
    started: u64,
    begun: bool,
    ready: bool,
    waits: bool,
}

impl Starter {
    pub fn new(of: Arc<Observed>) -> Starter {
        let preparation = preparation(&of, 0);
        Starter { of, preparation, thread: 0, started: 0, begun: false, ready: false, waits: false }
    }
}

impl Stream for Starter {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some(Op::Measure { on: false });
        }
        while self.thread < self.of.threads {
            if let Some(op) = self.preparation.next(&self.of) {
                return Some(op);
            }
            self.thread += 1;
            self.preparation = preparation(&self.of, self.thread);
        }
        if !std::mem::replace(&mut self.ready, true) {
            return Some(Op::Measure { on: true });
        }
        if self.started < self.of.threads {
            self.started += 1;
            return Some(Op::Spawn { actor: self.started as usize });
        }
        (!std::mem::replace(&mut self.waits, true)).then_some(Op::WaitSpawned)
    }
}

/// A part of a file that is read or written next.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: FileId,
    offset_bytes: u64,
    bytes: u64,
    /// The file had reached its size.
    wraps: bool,
}

/// One imitated thread.
#[derive(Debug)]
pub struct Thread {
    of: Arc<Observed>,
    thread: u64,
    dice: Dice,
    preparation: Option<Preparation>,
    begun: bool,
    /// Whether the files were opened with their flags: a process opens the files that its starter made.
    opened: u64,
    next: VecDeque<Op>,
    offsets: Vec<u64>,
    until_sync: u64,
    done: u64,
    due_ns: u64,
    created: VecDeque<u64>,
    created_count: u64,
}

impl Thread {
    pub fn new(of: Arc<Observed>, thread: u64) -> Thread {
        let mut dice = Dice::new(of.seed, thread, "observed");
        let files = if of.uses_files() { of.files } else { 0 };
        let preparation = (!of.process).then(|| preparation(&of, thread));
        let until_sync = of.sync_every.draw(&mut dice);
        let opened = if of.process { 0 } else { files };
        Thread {
            thread,
            dice,
            preparation,
            begun: false,
            opened,
            next: VecDeque::new(),
            offsets: vec![0; files as usize],
            until_sync,
            done: 0,
            due_ns: 0,
            created: VecDeque::new(),
            created_count: 0,
            of,
        }
    }

    fn file(&self, place: u64) -> FileId {
        FileId(self.of.first_file(self.thread) + place)
    }

    /// Queues a pause, then the operation.
    fn after(&mut self, pause: &Histogram, op: Op, now_ns: u64) {
        let pause_ns = pause.draw_spread(&mut self.dice);
        if self.of.open_loop {
            // A late thread catches up, as clients of a server do.
            self.due_ns = self.due_ns.saturating_add(pause_ns);
            if self.due_ns > now_ns {
                self.next.push_back(Op::SleepUntil { at_ns: self.due_ns });
            }
        } else if pause_ns >= SLEEP_NS_MIN {
            self.next.push_back(Op::Sleep { ns: pause_ns - SLEEP_NS_MIN / 2 });
        } else if pause_ns >= PAUSE_NS_MIN {
            self.next.push_back(Op::Compute { ns: pause_ns });
        }
        self.next.push_back(op);
    }

    /// The next read or write.
    fn place(&mut self, sizes: &Histogram) -> Place {
        let of = self.of.clone();
        let file = self.dice.below(of.files) as usize;
        let mut bytes = sizes.draw(&mut self.dice).clamp(1, of.file_bytes);
        if of.direct {
            bytes = bytes.next_multiple_of(DIRECT_BYTES).min(of.file_bytes / DIRECT_BYTES * DIRECT_BYTES);
        }
        let mut at = self.offsets.get(file).copied().unwrap_or(0);
        if !of.grow && self.dice.share() >= of.sequential {
            // Programs access whole pages at random; a small record is within one.
            let pages = (of.file_bytes - bytes) / DIRECT_BYTES + 1;
            at = self.dice.below(pages) * DIRECT_BYTES;
        }
        let wraps = at > 0 && at + bytes > of.file_bytes;
        if at + bytes > of.file_bytes {
            at = 0;
        }
        if of.direct {
            at = at / DIRECT_BYTES * DIRECT_BYTES;
        }
        if let Some(offset) = self.offsets.get_mut(file) {
            *offset = at + bytes;
        }
        Place { file: self.file(file as u64), offset_bytes: at, bytes, wraps }
    }

    fn write(&mut self, now_ns: u64) {
        let of = self.of.clone();
        let Place { file, offset_bytes, bytes, wraps } = self.place(&of.write_bytes);
        if of.grow && wraps {
            self.next.push_back(Op::Truncate { file, bytes: 0 });
        }
        let op = if of.append { Op::Append { file, bytes } } else { Op::Write { file, offset_bytes, bytes } };
        self.after(&of.write_pause, op, now_ns);
        if !of.sync_every.is_empty() {
            self.until_sync = self.until_sync.saturating_sub(1);
            if self.until_sync == 0 {
                self.until_sync = of.sync_every.draw(&mut self.dice).max(1);
                self.sync(file, now_ns);
            }
        }
    }

    fn sync(&mut self, file: FileId, now_ns: u64) {
        let of = self.of.clone();
        match of.sync {
            Sync::Full => self.after(&of.sync_pause, Op::Fsync { file }, now_ns),
            Sync::Data => self.after(&of.sync_pause, Op::Fdatasync { file }, now_ns),
            Sync::None => {}
        }
    }

    fn create(&mut self, now_ns: u64) {
        let of = self.of.clone();
        if self.created.len() as u64 >= of.created_max {
            self.unlink(now_ns);
        }
        let id = self.thread * IDS_PER_THREAD + CREATED + self.created_count % (IDS_PER_THREAD - CREATED);
        self.created_count += 1;
        self.created.push_back(id);
        let file = FileId(id);
        self.after(&of.other_pause, Op::Create { file }, now_ns);
        let mut offset_bytes = 0;
        for _ in 0..of.create_writes.draw(&mut self.dice) {
            let bytes = of.write_bytes.draw(&mut self.dice).max(1);
            self.after(&of.write_pause, Op::Write { file, offset_bytes, bytes }, now_ns);
            offset_bytes += bytes;
        }
        self.next.push_back(Op::Close { file });
    }

    fn unlink(&mut self, now_ns: u64) {
        let of = self.of.clone();
        if let Some(id) = self.created.pop_front() {
            self.after(&of.other_pause, Op::Unlink { file: FileId(id) }, now_ns);
        }
    }

    fn plan(&mut self, now_ns: u64) {
        let of = self.of.clone();
        if of.pass > 0 && self.done > 0 && self.done.is_multiple_of(of.pass) && of.pass_pause_ns > 0 {
            self.next.push_back(Op::Sleep { ns: of.pass_pause_ns });
        }
        self.done += 1;
        match of.mix.draw(&mut self.dice) {
            mix::READ => {
                let Place { file, offset_bytes, bytes, .. } = self.place(&of.read_bytes);
                let op = Op::Read { file, offset_bytes, bytes };
                self.after(&of.read_pause, op, now_ns);
            }
            mix::SYNC => {
                let place = self.dice.below(of.files);
                let file = self.file(place);
                self.sync(file, now_ns);
            }
            mix::SYNCFS => self.after(&of.sync_pause, Op::Syncfs, now_ns),
            mix::CREATE => self.create(now_ns),
            mix::UNLINK => self.unlink(now_ns),
            mix::COMPUTE => self.after(&of.other_pause, Op::Compute { ns: COMPUTE_NS }, now_ns),
            mix::MEMORY => {
                let touch = Op::TouchOwn { offset_bytes: 0, bytes: of.memory_bytes, write: true };
                self.after(&of.other_pause, touch, now_ns);
                self.next.push_back(Op::DropKept);
            }
            _ => self.write(now_ns),
        }
        if self.next.is_empty() {
            // Nothing to do (no created file to remove, no way to sync): yield, so that time passes.
            self.next.push_back(Op::Sleep { ns: 1_000_000 });
        }
    }

    fn prepare(&mut self) -> Option<Op> {
        if let Some(preparation) = &mut self.preparation {
            if !std::mem::replace(&mut self.begun, true) {
                return Some(Op::Measure { on: false });
            }
            if let Some(op) = preparation.next(&self.of) {
                return Some(op);
            }
            self.preparation = None;
            return Some(Op::Measure { on: true });
        }
        let files = self.offsets.len() as u64;
        if self.opened < files {
            self.opened += 1;
            let file = self.file(self.opened - 1);
            return Some(Op::Open { file, how: how(&self.of) });
        }
        None
    }
}

impl Stream for Thread {
    fn next(&mut self, now_ns: u64) -> Option<Op> {
        if let Some(op) = self.prepare() {
            return Some(op);
        }
        if self.due_ns == 0 {
            self.due_ns = now_ns;
        }
        while self.next.is_empty() {
            self.plan(now_ns);
        }
        self.next.pop_front()
    }
}

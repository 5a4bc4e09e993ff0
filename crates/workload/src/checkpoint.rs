//! A database-like engine: threads change pages and a log in short critical sections, and a periodic checkpoint asks
//! all of them to leave, waits, and flushes.
//!
//! Databases print the two times separately: critical time (waiting for threads) and flush time. A stall in the
//! write() of one thread extends the critical time for all threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::dice::Dice;
use super::outcome::checkpoint::CheckpointObserver;
use super::params::SCALE;
use super::{Actor, ActorStart, FileId, Footprint, LockId, Mark, Observe, Op, ParamError, ParamKind, ParamSpec};
use super::{Params, Role, Stream, Workload, WorkloadEntry};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "checkpoint",
    sentence: "A database-like engine whose checkpoints wait for every thread to leave its critical section, then flush.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "threads",
        kind: ParamKind::Count { min: 1, max: 1024 },
        default: "16",
        sentence: "Threads that change data.",
    },
    ParamSpec {
        name: "interval",
        kind: ParamKind::Duration { min_ns: 1_000_000, max_ns: 86_400_000_000_000 },
        default: "5s",
        sentence: "Time from the end of one checkpoint to the beginning of the next.",
    },
    ParamSpec {
        name: "data_size",
        kind: ParamKind::Size { min: 1 << 16, max: 1 << 44 },
        default: "2GiB",
        sentence: "Size of the data files together (scaled).",
    },
    ParamSpec {
        name: "data_files",
        kind: ParamKind::Count { min: 1, max: 1024 },
        default: "8",
        sentence: "Number of data files for the pages. Writers of the same file wait for each other in the kernel.",
    },
    ParamSpec {
        name: "page",
        kind: ParamKind::Size { min: 512, max: 1 << 20 },
        default: "8KiB",
        sentence: "Bytes of one change in a data file.",
    },
    ParamSpec {
        name: "pages",
        kind: ParamKind::Count { min: 0, max: 4096 },
        default: "4",
        sentence: "Pages changed in one critical section.",
    },
    ParamSpec {
        name: "record",
        kind: ParamKind::Size { min: 1, max: 1 << 20 },
        default: "512",
        sentence: "Bytes appended to the log in one critical section.",
    },
    ParamSpec {
        name: "think",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 3_600_000_000_000 },
        default: "5ms",
        sentence: "Pause of a thread between two critical sections.",
    },
    SCALE,
];

#[derive(Debug)]
struct Engine {
    seed: u64,
    threads: u64,
    interval_ns: u64,
    data_pages: u64,
    data_files: u64,
    page_bytes: u64,
    pages: u64,
    record_bytes: u64,
    think_ns: u64,
}

fn build(params: &Params, seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    let page_bytes = params.size_bytes("page");
    let data_pages = (params.scaled_size_bytes("data_size") / page_bytes).max(1);
    Ok(Box::new(Engine {
        seed,
        threads: params.count("threads"),
        interval_ns: params.duration_ns("interval"),
        data_pages,
        data_files: params.count("data_files").min(data_pages),
        page_bytes,
        pages: params.count("pages"),
        record_bytes: params.size_bytes("record"),
        think_ns: params.duration_ns("think"),
    }))
}

const LOG: FileId = FileId(0);

/// File ids of the data files follow the log's.
fn data(number: u64) -> FileId {
    FileId(1 + number)
}

/// Taken shared in a critical section, exclusively by a checkpoint.
const SECTION: LockId = LockId(0);
/// Interval at which threads check whether the data files exist.
const READY_POLL_NS: u64 = 1_000_000;
/// Bytes of one write() of the preparation.
const PREPARE_BYTES: u64 = 1 << 20;

/// State shared by threads and checkpoint: whether the data files exist, and the bytes changed since the last
/// checkpoint.
#[derive(Debug, Default)]
struct Shared {
    ready: AtomicBool,
    changed_bytes: AtomicU64,
}

impl Engine {
    /// Bytes of each data file: pages are distributed one by one, so some files have one more.
    fn file_bytes(&self) -> u64 {
        self.data_pages.div_ceil(self.data_files) * self.page_bytes
    }
}

impl Workload for Engine {
    fn footprint(&self) -> Footprint {
        let cycle_ns = u128::from(self.think_ns.max(50_000));
        let log_per_s = u128::from(self.threads * self.record_bytes) * 1_000_000_000 / cycle_ns;
        let log_bytes = log_per_s * u128::from(self.interval_ns) / 1_000_000_000;
        Footprint {
            // Each checkpoint empties the log.
            disk_bytes: (self.data_files * self.file_bytes())
                .saturating_add(u64::try_from(log_bytes).unwrap_or(u64::MAX)),
            growth_bytes_per_s: 0,
            files: 1 + self.data_files,
            memory_bytes: (self.threads + 1) * (1 << 20),
            threads: u32::try_from(self.threads + 1).unwrap_or(u32::MAX),
            processes: 0,
        }
    }

    fn actors(&self) -> Vec<Actor> {
        let shared = Arc::new(Shared::default());
        let checkpoint = Checkpoint {
            shared: Arc::clone(&shared),
            step: Step::Begin,
            written_bytes: 0,
            file: 0,
            files: self.data_files,
            file_bytes: self.file_bytes(),
            interval_ns: self.interval_ns,
        };
        let mut actors = vec![Actor {
            name: "checkpoint".to_owned(),
            role: Role::Foreground,
            start: ActorStart::Immediately,
            stream: Box::new(checkpoint),
        }];
        actors.extend((0..self.threads).map(|thread| Actor {
            name: format!("engine-{thread}"),
            role: Role::Foreground,
            start: ActorStart::Immediately,
            stream: Box::new(Thread {
                shared: Arc::clone(&shared),
                dice: Dice::new(self.seed, thread, "checkpoint pages"),
                step: ThreadStep::Wait,
                data_pages: self.data_pages,
                data_files: self.data_files,
                page_bytes: self.page_bytes,
                pages: self.pages,
                pages_left: 0,
                record_bytes: self.record_bytes,
                think_ns: self.think_ns,
            }),
        }));
        actors
    }

    fn path(&self, file: FileId) -> String {
        if file == LOG { "log".to_owned() } else { format!("data-{}", file.0 - 1) }
    }

    fn observer(&self) -> Option<Box<dyn Observe>> {
        Some(Box::new(CheckpointObserver::default()))
    }
}

#[derive(Debug)]
enum Step {
    Begin,
    CreateLog,
    CreateData,
    Fill,
    SyncFill,
    Ready,
    Interval,
    Asked,
    Lock,
    Empty,
    FlushData,
    FlushLog,
    TruncateLog,
    Done,
    Unlock,
}

#[derive(Debug)]
struct Checkpoint {
    shared: Arc<Shared>,
    step: Step,
    /// The data file that is being created or flushed.
    file: u64,
    files: u64,
    written_bytes: u64,
    file_bytes: u64,
    interval_ns: u64,
}

impl Checkpoint {
    /// The step after this data file: `again` for the next file, or `after` once all files are done.
    fn for_each_file(&mut self, again: Step, after: Step) -> Step {
        self.file += 1;
        self.written_bytes = 0;
        if self.file < self.files {
            return again;
        }
        self.file = 0;
        after
    }
}

impl Stream for Checkpoint {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let file = data(self.file);
        let (step, op) = match self.step {
            Step::Begin => (Step::CreateLog, Op::Measure { on: false }),
            Step::CreateLog => (Step::CreateData, Op::Create { file: LOG }),
            Step::CreateData => (Step::Fill, Op::Create { file }),
            Step::Fill => {
                let offset_bytes = self.written_bytes;
                let bytes = PREPARE_BYTES.min(self.file_bytes - offset_bytes);
                self.written_bytes += bytes;
                let done = self.written_bytes == self.file_bytes;
                (if done { Step::SyncFill } else { Step::Fill }, Op::Write { file, offset_bytes, bytes })
            }
            Step::SyncFill => (self.for_each_file(Step::CreateData, Step::Ready), Op::Fsync { file }),
            Step::Ready => {
                self.shared.ready.store(true, Ordering::Release);
                (Step::Interval, Op::Measure { on: true })
            }
            Step::Interval => (Step::Asked, Op::Sleep { ns: self.interval_ns }),
            Step::Asked => (Step::Lock, Op::Mark { mark: Mark::CheckpointAsked, value: 0 }),
            Step::Lock => (Step::Empty, Op::Lock { lock: SECTION, exclusive: true }),
            Step::Empty => {
                let value = self.shared.changed_bytes.swap(0, Ordering::AcqRel);
                (Step::FlushData, Op::Mark { mark: Mark::CriticalSectionEmpty, value })
            }
            Step::FlushData => (self.for_each_file(Step::FlushData, Step::FlushLog), Op::Fsync { file }),
            Step::FlushLog => (Step::TruncateLog, Op::Fdatasync { file: LOG }),
            Step::TruncateLog => (Step::Done, Op::Truncate { file: LOG, bytes: 0 }),
            Step::Done => (Step::Unlock, Op::Mark { mark: Mark::CheckpointDone, value: 0 }),
            Step::Unlock => (Step::Interval, Op::Unlock { lock: SECTION }),
        };
        self.step = step;
        Some(op)
    }
}

#[derive(Debug)]
enum ThreadStep {
    Wait,
    Enter,
    Change,
    Log,
    Leave,
    Think,
}

#[derive(Debug)]
struct Thread {
    shared: Arc<Shared>,
    dice: Dice,
    step: ThreadStep,
    data_pages: u64,
    data_files: u64,
    page_bytes: u64,
    pages: u64,
    pages_left: u64,
    record_bytes: u64,
    think_ns: u64,
}

impl Stream for Thread {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let waiting = matches!(self.step, ThreadStep::Wait) && !self.shared.ready.load(Ordering::Acquire);
        let (step, op) = match self.step {
            ThreadStep::Wait if waiting => (ThreadStep::Wait, Op::Sleep { ns: READY_POLL_NS }),
            ThreadStep::Wait | ThreadStep::Enter => {
                self.pages_left = self.pages;
                let next = if self.pages > 0 { ThreadStep::Change } else { ThreadStep::Log };
                (next, Op::Lock { lock: SECTION, exclusive: false })
            }
            ThreadStep::Change => {
                self.pages_left -= 1;
                self.shared.changed_bytes.fetch_add(self.page_bytes, Ordering::AcqRel);
                let page = self.dice.below(self.data_pages);
                let (file, offset_bytes) = (data(page % self.data_files), page / self.data_files * self.page_bytes);
                let next = if self.pages_left > 0 { ThreadStep::Change } else { ThreadStep::Log };
                (next, Op::Write { file, offset_bytes, bytes: self.page_bytes })
            }
            ThreadStep::Log => {
                self.shared.changed_bytes.fetch_add(self.record_bytes, Ordering::AcqRel);
                (ThreadStep::Leave, Op::Append { file: LOG, bytes: self.record_bytes })
            }
            ThreadStep::Leave => (ThreadStep::Think, Op::Unlock { lock: SECTION }),
            ThreadStep::Think => (ThreadStep::Enter, Op::Sleep { ns: self.think_ns }),
        };
        self.step = step;
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRY, LOG, Mark, Op, Params, SECTION, data};

    #[test]
    fn a_checkpoint_flushes_while_it_holds_the_exclusive_lock() {
        let given = [("data_size", "1MiB"), ("threads", "2"), ("data_files", "2")];
        let params = Params::check("checkpoint", ENTRY.params, given).expect("parameters");
        let mut actors = (ENTRY.build)(&params, 1).expect("workload").actors();
        assert!(matches!(actors[1].stream.next(0), Some(Op::Sleep { .. })), "threads wait for the data files");
        let prepared = std::iter::from_fn(|| actors[0].stream.next(0)).position(|op| op == Op::Measure { on: true });
        assert!(prepared.is_some_and(|ops| ops > 4), "{prepared:?}");
        let section: Vec<Op> = (0..7).filter_map(|_| actors[1].stream.next(0)).collect();
        assert_eq!(section[0], Op::Lock { lock: SECTION, exclusive: false });
        assert_eq!(section.iter().filter(|op| matches!(op, Op::Write { .. })).count(), 4);
        assert_eq!(section[6], Op::Unlock { lock: SECTION });
        let round: Vec<Op> = (0..10).filter_map(|_| actors[0].stream.next(0)).collect();
        let expected = Op::Mark { mark: Mark::CriticalSectionEmpty, value: 4 * 8192 + 512 };
        assert_eq!((round[2], round[3]), (Op::Lock { lock: SECTION, exclusive: true }, expected));
        assert_eq!(round[9], Op::Unlock { lock: SECTION });
        assert_eq!(
            round[4..7],
            [Op::Fsync { file: data(0) }, Op::Fsync { file: data(1) }, Op::Fdatasync { file: LOG }]
        );
    }
}

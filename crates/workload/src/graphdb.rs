//! A graph database that maps its files. Readers walk mapped files from the front under a shared lock. Writers append
//! bursts to new files, and map each instead of a random old one under the exclusive lock. Files that are not mapped
//! any more pollute the page cache; nothing is deleted until the end, unless `replaced` says so.
//!
//! Defaults are those of the case study: 2500 files of 10 MB, 25 readers, 10 writers. Bursts of 1 MiB every 500 ms
//! from 10 writers result in the 20 MB/s of the study's pgpgout column.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::dice::Dice;
use super::outcome::graphdb::GraphdbObserver;
use super::params::SCALE;
use super::{Actor, ActorStart, FileId, Footprint, LockId, Observe, Op, ParamError, ParamKind, ParamSpec};
use super::{Params, Role, Stream, Workload, WorkloadEntry};

mod writer;

use writer::{Writer, WriterStep};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "graphdb",
    sentence: "Readers of mapped files under a shared lock, writers that replace files, a cache full of old files.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "files",
        kind: ParamKind::Count { min: 1, max: 1 << 24 },
        default: "2500",
        sentence: "Files written before the measured part, to fill the page cache (scaled).",
    },
    ParamSpec {
        name: "live",
        kind: ParamKind::Count { min: 1, max: 1 << 24 },
        default: "250",
        sentence: "Number of these files that are mapped and read, the last ones (scaled).",
    },
    ParamSpec {
        name: "file_size",
        kind: ParamKind::Size { min: 4096, max: 1 << 40 },
        default: "10MiB",
        sentence: "Size of each file.",
    },
    ParamSpec {
        name: "readers",
        kind: ParamKind::Count { min: 1, max: 1024 },
        default: "25",
        sentence: "Threads that read a random length of mapped files from the front.",
    },
    ParamSpec {
        name: "writers",
        kind: ParamKind::Count { min: 0, max: 1024 },
        default: "10",
        sentence: "Threads that write new files and replace mapped files with them.",
    },
    ParamSpec {
        name: "burst",
        kind: ParamKind::Size { min: 512, max: 1 << 30 },
        default: "1MiB",
        sentence: "Bytes of one append of a writer.",
    },
    ParamSpec {
        name: "burst_pause",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 3_600_000_000_000 },
        default: "500ms",
        sentence: "Pause of a writer after each burst.",
    },
    ParamSpec {
        name: "read_pause",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 3_600_000_000_000 },
        default: "10ms",
        sentence: "Pause of a reader after each read.",
    },
    ParamSpec {
        name: "load",
        kind: ParamKind::Choice(&["write", "allocate"]),
        default: "write",
        sentence: "How the files are created: written, or only allocated, so that reads return zeros and files take no \
            memory before they are read.",
    },
    ParamSpec {
        name: "replaced",
        kind: ParamKind::Choice(&["keep", "delete"]),
        default: "keep",
        sentence: "Whether a replaced file stays on disk (and in the page cache) or is deleted.",
    },
    ParamSpec {
        name: "checked",
        kind: ParamKind::Switch,
        default: "false",
        sentence: "Whether a writer reads a new file completely through its mapping before other threads can.",
    },
    SCALE,
];

#[derive(Debug)]
struct Graphdb {
    seed: u64,
    files: u64,
    live: u64,
    file_bytes: u64,
    readers: u64,
    writers: u64,
    burst_bytes: u64,
    burst_pause_ns: u64,
    read_pause_ns: u64,
    allocate: bool,
    deletes: bool,
    checks: bool,
}

fn build(params: &Params, seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    let files = params.scaled_count("files");
    let file_bytes = params.size_bytes("file_size");
    Ok(Box::new(Graphdb {
        seed,
        files,
        live: params.scaled_count("live").min(files),
        file_bytes,
        readers: params.count("readers"),
        writers: params.count("writers"),
        burst_bytes: params.size_bytes("burst").min(file_bytes),
        burst_pause_ns: params.duration_ns("burst_pause"),
        read_pause_ns: params.duration_ns("read_pause"),
        allocate: params.choice("load") == "allocate",
        deletes: params.choice("replaced") == "delete",
        checks: params.switch("checked"),
    }))
}

/// The database's only lock.
const MAPPINGS: LockId = LockId(0);
/// File ids of the loader are below this; file n of writer w is (w + 1) * 2^32 + n.
const WRITER_FILES: u64 = 1 << 32;
/// Interval at which actors check whether the loader has finished.
const READY_POLL_NS: u64 = 1_000_000;

/// State shared by the threads of a run: the file mapped in each slot. It is written with `MAPPINGS` held exclusively
/// and read with it held shared, so plain atomics are sufficient.
#[derive(Debug)]
struct Shared {
    slots: Vec<AtomicU64>,
    ready: AtomicBool,
}

impl Shared {
    fn file(&self, slot: u64) -> FileId {
        FileId(self.slots[slot as usize].load(Ordering::Acquire))
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}

impl Workload for Graphdb {
    fn footprint(&self) -> Footprint {
        let threads = self.readers + self.writers + 1;
        // The rate of a writer that never stalls. Each write is assumed to run at 100 MB/s, in case the pause is 0.
        let cycle_ns = self.burst_pause_ns + self.burst_bytes.saturating_mul(10);
        let per_writer = u128::from(self.burst_bytes) * 1_000_000_000 / u128::from(cycle_ns.max(1));
        Footprint {
            disk_bytes: self.files.saturating_mul(self.file_bytes),
            growth_bytes_per_s: self.writers.saturating_mul(u64::try_from(per_writer).unwrap_or(u64::MAX)),
            files: self.files,
            memory_bytes: threads * (1 << 20),
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            processes: 0,
        }
    }

    fn actors(&self) -> Vec<Actor> {
        let first_live = self.files - self.live;
        let shared = Arc::new(Shared {
            slots: (first_live..self.files).map(AtomicU64::new).collect(),
            ready: AtomicBool::new(false),
        });
        let actor = |name: String, role, stream| Actor { name, role, start: ActorStart::Immediately, stream };
        let loader = Loader {
            shared: Arc::clone(&shared),
            step: LoaderStep::Begin,
            file: 0,
            written_bytes: 0,
            files: self.files,
            first_live,
            file_bytes: self.file_bytes,
            allocate: self.allocate,
        };
        let mut actors = vec![actor("graphdb-load".to_owned(), Role::Neighbour, Box::new(loader) as Box<dyn Stream>)];
        for reader in 0..self.readers {
            let stream = Reader {
                shared: Arc::clone(&shared),
                dice: Dice::new(self.seed, reader, "graphdb reads"),
                step: ReaderStep::Wait,
                file_bytes: self.file_bytes,
                pause_ns: self.read_pause_ns,
            };
            actors.push(actor(format!("graphdb-read-{reader}"), Role::Foreground, Box::new(stream)));
        }
        for writer in 0..self.writers {
            let stream = Writer {
                shared: Arc::clone(&shared),
                dice: Dice::new(self.seed, writer, "graphdb slots"),
                step: WriterStep::Wait,
                file: FileId((writer + 1) * WRITER_FILES),
                old: FileId(0),
                slot: 0,
                written_bytes: 0,
                file_bytes: self.file_bytes,
                burst_bytes: self.burst_bytes,
                pause_ns: self.burst_pause_ns,
                deletes: self.deletes,
                checks: self.checks,
            };
            actors.push(actor(format!("graphdb-write-{writer}"), Role::Foreground, Box::new(stream)));
        }
        actors
    }

    fn path(&self, file: FileId) -> String {
        match file.0 / WRITER_FILES {
            0 => format!("data-{}", file.0),
            writer => format!("new-{}-{}", writer - 1, file.0 % WRITER_FILES),
        }
    }

    fn observer(&self) -> Option<Box<dyn Observe>> {
        Some(Box::new(GraphdbObserver::default()))
    }
}

/// Writes all files unmeasured, maps the live ones, then lets the other actors begin.
#[derive(Debug)]
enum LoaderStep {
    Begin,
    Create,
    Append,
    Finish,
    Ready,
    End,
}

#[derive(Debug)]
struct Loader {
    shared: Arc<Shared>,
    step: LoaderStep,
    file: u64,
    written_bytes: u64,
    files: u64,
    first_live: u64,
    file_bytes: u64,
    allocate: bool,
}

impl Stream for Loader {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let file = FileId(self.file);
        Some(match self.step {
            LoaderStep::Begin => {
                self.step = LoaderStep::Create;
                Op::Measure { on: false }
            }
            LoaderStep::Create => {
                self.step = LoaderStep::Append;
                self.written_bytes = 0;
                Op::Create { file }
            }
            LoaderStep::Append if self.allocate => {
                self.step = LoaderStep::Finish;
                Op::Allocate { file, offset_bytes: 0, bytes: self.file_bytes }
            }
            LoaderStep::Append => {
                let bytes = (self.file_bytes - self.written_bytes).min(1 << 20);
                self.written_bytes += bytes;
                if self.written_bytes == self.file_bytes {
                    self.step = LoaderStep::Finish;
                }
                Op::Append { file, bytes }
            }
            LoaderStep::Finish => {
                self.file += 1;
                self.step = if self.file == self.files { LoaderStep::Ready } else { LoaderStep::Create };
                if file.0 < self.first_live { Op::Close { file } } else { Op::Map { file, bytes: self.file_bytes } }
            }
            LoaderStep::Ready => {
                self.step = LoaderStep::End;
                self.shared.ready.store(true, Ordering::Release);
                Op::Measure { on: true }
            }
            LoaderStep::End => return None,
        })
    }
}

#[derive(Debug)]
enum ReaderStep {
    Wait,
    Lock,
    Touch,
    Unlock,
    Pause,
}

#[derive(Debug)]
struct Reader {
    shared: Arc<Shared>,
    dice: Dice,
    step: ReaderStep,
    file_bytes: u64,
    pause_ns: u64,
}

impl Stream for Reader {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let (step, op) = match self.step {
            ReaderStep::Wait if !self.shared.is_ready() => (ReaderStep::Wait, Op::Sleep { ns: READY_POLL_NS }),
            ReaderStep::Wait | ReaderStep::Lock => (ReaderStep::Touch, Op::Lock { lock: MAPPINGS, exclusive: false }),
            ReaderStep::Touch => {
                let file = self.shared.file(self.dice.below(self.shared.slots.len() as u64));
                let bytes = self.dice.between(1, self.file_bytes);
                (ReaderStep::Unlock, Op::Touch { file, offset_bytes: 0, bytes, write: false })
            }
            ReaderStep::Unlock => (ReaderStep::Pause, Op::Unlock { lock: MAPPINGS }),
            ReaderStep::Pause => (ReaderStep::Lock, Op::Sleep { ns: self.pause_ns }),
        };
        self.step = step;
        Some(op)
    }
}

#[cfg(test)]
mod tests;

//! File accesses as in benchmarks: random, sequential or mostly to a hot part; with calls or through a mapping; with
//! or without syncs.
//!
//! Most published measurements of kernel patches use such loads (fio, dd, IOzone, a database's data file).

use super::dice::Dice;
use super::{Actor, ActorStart, FileId, Footprint, Op, ParamError, ParamKind, ParamSpec, Params, Role, Stream};
use super::{Workload, WorkloadEntry};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "access",
    sentence: "Reads and writes files at random, sequentially or in a hot part; by calls or mapped; with syncs.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "threads",
        kind: ParamKind::Count { min: 1, max: 4096 },
        default: "1",
        sentence: "Threads that access files.",
    },
    ParamSpec {
        name: "files",
        kind: ParamKind::Count { min: 1, max: 1_000_000 },
        default: "1",
        sentence: "Files of each thread (or of all threads, if shared).",
    },
    ParamSpec {
        name: "shared",
        kind: ParamKind::Choice(&["no", "yes"]),
        default: "no",
        sentence: "Whether all threads access the same files.",
    },
    ParamSpec {
        name: "file_size",
        kind: ParamKind::Size { min: 4096, max: 1 << 44 },
        default: "256MiB",
        sentence: "Size of each file; the files are created before the measured part.",
    },
    ParamSpec {
        name: "bytes",
        kind: ParamKind::Size { min: 1, max: 64 << 20 },
        default: "4KiB",
        sentence: "Bytes of one access.",
    },
    ParamSpec {
        name: "pattern",
        kind: ParamKind::Choice(&["random", "sequential", "hot"]),
        default: "random",
        sentence: "Offsets of accesses: random, sequential, or nine of ten in the first tenth of the file.",
    },
    ParamSpec {
        name: "reads",
        kind: ParamKind::Share,
        default: "1",
        sentence: "Share of accesses that are reads; the others are writes.",
    },
    ParamSpec {
        name: "method",
        kind: ParamKind::Choice(&["call", "mapped"]),
        default: "call",
        sentence: "With read() and write(), or through a shared mapping of each file.",
    },
    ParamSpec {
        name: "sync",
        kind: ParamKind::Choice(&["none", "fsync", "fdatasync"]),
        default: "none",
        sentence: "How a file is synced after sync_every writes.",
    },
    ParamSpec {
        name: "sync_every",
        kind: ParamKind::Count { min: 1, max: 1_000_000_000 },
        default: "1",
        sentence: "Number of writes of a thread between two syncs.",
    },
    ParamSpec {
        name: "fill",
        kind: ParamKind::Choice(&["write", "allocate"]),
        default: "write",
        sentence: "How the files are created: written, or only allocated (reads return zeros without disk access).",
    },
    ParamSpec {
        name: "pause",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 86_400_000_000_000 },
        default: "0s",
        sentence: "Sleep after each access.",
    },
    ParamSpec {
        name: "compute",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 86_400_000_000_000 },
        default: "0s",
        sentence: "CPU time of the program for each access.",
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Random,
    Sequential,
    Hot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    None,
    Full,
    Data,
}

#[derive(Clone, Debug)]
struct Access {
    threads: u64,
    files: u64,
    shared: bool,
    file_bytes: u64,
    bytes: u64,
    pattern: Pattern,
    reads: f64,
    mapped: bool,
    sync: Sync,
    sync_every: u64,
    allocates: bool,
    pause_ns: u64,
    compute_ns: u64,
    seed: u64,
}

fn build(params: &Params, seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    let access = Access {
        threads: params.count("threads"),
        files: params.count("files"),
        shared: params.choice("shared") == "yes",
        file_bytes: params.size_bytes("file_size"),
        bytes: params.size_bytes("bytes"),
        pattern: match params.choice("pattern") {
            "sequential" => Pattern::Sequential,
            "hot" => Pattern::Hot,
            _ => Pattern::Random,
        },
        reads: params.share("reads"),
        mapped: params.choice("method") == "mapped",
        sync: match params.choice("sync") {
            "fsync" => Sync::Full,
            "fdatasync" => Sync::Data,
            _ => Sync::None,
        },
        sync_every: params.count("sync_every"),
        allocates: params.choice("fill") == "allocate",
        pause_ns: params.duration_ns("pause"),
        compute_ns: params.duration_ns("compute"),
        seed,
    };
    if access.bytes > access.file_bytes {
        return Err(ParamError::Impossible {
            workload: "access".to_owned(),
            why: format!("one access ({} B) is larger than the file ({} B)", access.bytes, access.file_bytes),
        });
    }
    Ok(Box::new(access))
}

impl Access {
    fn all_files(&self) -> u64 {
        if self.shared { self.files } else { self.files * self.threads }
    }
}

impl Workload for Access {
    fn footprint(&self) -> Footprint {
        Footprint {
            disk_bytes: self.all_files().saturating_mul(self.file_bytes),
            growth_bytes_per_s: 0,
            files: self.all_files(),
            memory_bytes: self.threads * self.bytes,
            threads: u32::try_from(self.threads).unwrap_or(u32::MAX),
            processes: 0,
        }
    }

    fn actors(&self) -> Vec<Actor> {
        let one = |thread: u64| Actor {
            name: format!("access-{thread}"),
            role: Role::Foreground,
            start: ActorStart::Immediately,
            stream: Box::new(OneThread {
                of: self.clone(),
                first: if self.shared { 0 } else { thread * self.files },
                // Of the threads that share the files, the first creates them.
                makes: !self.shared || thread == 0,
                dice: Dice::new(self.seed, thread, "access"),
                step: Step::Prepare,
                file: 0,
                offset_bytes: 0,
                writes: 0,
                written: FileId(0),
            }),
        };
        (0..self.threads).map(one).collect()
    }

    fn path(&self, file: FileId) -> String {
        format!("access-{}", file.0)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Prepare,
    Make,
    Fill,
    Map,
    Ready,
    Compute,
    Access,
    Sync,
    Pause,
}

#[derive(Debug)]
struct OneThread {
    of: Access,
    first: u64,
    makes: bool,
    dice: Dice,
    step: Step,
    file: u64,
    offset_bytes: u64,
    /// Number of writes since the last sync; `written` is the file of the last write.
    writes: u64,
    written: FileId,
}

const FILL_BYTES: u64 = 1 << 20;

impl OneThread {
    fn own(&self) -> FileId {
        FileId(self.first + self.file)
    }

    /// Moves on to the next file of the preparation; returns true after the last.
    fn next_file(&mut self) -> bool {
        self.offset_bytes = 0;
        self.file += 1;
        let end = self.file == self.of.files;
        if end {
            self.file = 0;
        }
        end
    }

    fn fill(&mut self) -> Op {
        let file = self.own();
        let (offset_bytes, whole) = (self.offset_bytes, self.of.file_bytes);
        let bytes = FILL_BYTES.min(whole - offset_bytes);
        let op = if self.of.allocates {
            self.offset_bytes = whole;
            Op::Allocate { file, offset_bytes: 0, bytes: whole }
        } else {
            self.offset_bytes += bytes;
            Op::Write { file, offset_bytes, bytes }
        };
        self.step = Step::Fill;
        if self.offset_bytes == whole {
            let end = self.next_file();
            self.step = match (end, self.of.mapped) {
                (false, _) => Step::Make,
                (true, true) => Step::Map,
                (true, false) => Step::Ready,
            };
        }
        op
    }

    fn place(&mut self) -> u64 {
        let places = (self.of.file_bytes / self.of.bytes).max(1);
        match self.of.pattern {
            Pattern::Random => self.dice.below(places),
            Pattern::Hot if self.dice.share() < 0.9 => self.dice.below((places / 10).max(1)),
            Pattern::Hot => self.dice.below(places),
            Pattern::Sequential => {
                let at = self.offset_bytes / self.of.bytes;
                self.offset_bytes = if at + 1 >= places { 0 } else { self.offset_bytes + self.of.bytes };
                at % places
            }
        }
    }

    fn access(&mut self) -> Op {
        let reads = self.of.reads >= 1.0 || (self.of.reads > 0.0 && self.dice.share() < self.of.reads);
        let offset_bytes = self.place() * self.of.bytes;
        let (file, bytes) = (self.own(), self.of.bytes);
        // In sequential order, a file is read to its end before the next one.
        let over = self.of.pattern != Pattern::Sequential || self.offset_bytes == 0;
        if self.of.files > 1 && over {
            self.file = match self.of.pattern {
                Pattern::Sequential => (self.file + 1) % self.of.files,
                _ => self.dice.below(self.of.files),
            };
        }
        if !reads {
            (self.writes, self.written) = (self.writes + 1, file);
        }
        let syncs = self.of.sync != Sync::None && !reads && self.writes >= self.of.sync_every;
        self.step = if syncs { Step::Sync } else { Step::Pause };
        match (self.of.mapped, reads) {
            (true, _) => Op::Touch { file, offset_bytes, bytes, write: !reads },
            (false, true) => Op::Read { file, offset_bytes, bytes },
            (false, false) => Op::Write { file, offset_bytes, bytes },
        }
    }
}

impl OneThread {
    /// CPU time before an access, if any; otherwise the access itself.
    fn compute(&mut self) -> Op {
        self.step = Step::Access;
        match self.of.compute_ns {
            0 => self.access(),
            ns => Op::Compute { ns },
        }
    }
}

impl Stream for OneThread {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let file = self.own();
        Some(match self.step {
            Step::Prepare => {
                self.step = match (self.makes, self.of.mapped) {
                    (true, _) => Step::Make,
                    (false, _) => Step::Ready,
                };
                Op::Measure { on: false }
            }
            Step::Make => {
                self.step = Step::Fill;
                Op::Create { file }
            }
            Step::Fill => self.fill(),
            Step::Map => {
                if self.next_file() {
                    self.step = Step::Ready;
                }
                Op::Map { file, bytes: self.of.file_bytes }
            }
            Step::Ready => {
                self.step = Step::Compute;
                Op::Measure { on: true }
            }
            Step::Compute => self.compute(),
            Step::Access => self.access(),
            Step::Sync => {
                self.writes = 0;
                self.step = Step::Pause;
                let file = self.written;
                if self.of.sync == Sync::Full { Op::Fsync { file } } else { Op::Fdatasync { file } }
            }
            Step::Pause if self.of.pause_ns == 0 => self.compute(),
            Step::Pause => {
                self.step = Step::Compute;
                Op::Sleep { ns: self.of.pause_ns }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRY, FileId, Op, Params};

    fn operations(given: &[(&str, &str)], count: usize) -> Vec<Op> {
        let params = Params::check("access", ENTRY.params, given.iter().copied()).expect("declared");
        let mut actors = (ENTRY.build)(&params, 1).expect("possible").actors();
        (0..count).filter_map(|_| actors[0].stream.next(0)).collect()
    }

    fn measured(given: &[(&str, &str)], count: usize) -> Vec<Op> {
        let all = operations(given, count + 300);
        let ready = all.iter().position(|op| *op == Op::Measure { on: true }).expect("it is ready at some time");
        all[ready + 1..].iter().take(count).copied().collect()
    }

    #[test]
    fn random_accesses_are_aligned_and_have_the_requested_share_of_reads() {
        let ops = measured(&[("file_size", "1MiB"), ("reads", "0.7")], 1000);
        let reads = ops.iter().filter(|op| matches!(op, Op::Read { .. })).count();
        assert!((600..800).contains(&reads), "{reads} of 1000");
        for op in &ops {
            let (Op::Read { offset_bytes, bytes, .. } | Op::Write { offset_bytes, bytes, .. }) = op else {
                panic!("{op:?}");
            };
            assert!(offset_bytes % 4096 == 0 && offset_bytes + bytes <= 1 << 20);
        }
    }

    #[test]
    fn a_sync_follows_every_nth_write_on_the_written_file() {
        let given = [("file_size", "64KiB"), ("reads", "0"), ("sync", "fdatasync"), ("sync_every", "3")];
        let ops = measured(&given, 12);
        let syncs: Vec<usize> = (0..12).filter(|&at| matches!(ops[at], Op::Fdatasync { file: FileId(0) })).collect();
        assert_eq!(syncs, [3, 7, 11]);
        let of_many = measured(&[("files", "8"), ("file_size", "64KiB"), ("reads", "0"), ("sync", "fsync")], 40);
        for pair in of_many.chunks(2) {
            let [Op::Write { file, .. }, Op::Fsync { file: synced }] = pair else { panic!("{pair:?}") };
            assert_eq!(file, synced, "the written file, not the next one");
        }
    }

    #[test]
    fn sequential_files_are_read_to_the_end_and_mapped_files_are_touched() {
        let given = [("file_size", "8KiB"), ("files", "2"), ("pattern", "sequential")];
        let places: Vec<(u64, u64)> = measured(&given, 5)
            .iter()
            .filter_map(|op| match op {
                Op::Read { file, offset_bytes, .. } => Some((file.0, *offset_bytes)),
                _ => None,
            })
            .collect();
        assert_eq!(places, [(0, 0), (0, 4096), (1, 0), (1, 4096), (0, 0)]);
        let mapped = measured(&[("file_size", "8KiB"), ("method", "mapped"), ("reads", "0")], 3);
        assert!(mapped.iter().all(|op| matches!(op, Op::Touch { write: true, .. })), "{mapped:?}");
    }

    #[test]
    fn the_hot_tenth_gets_nine_of_ten_accesses() {
        let ops = measured(&[("file_size", "4MiB"), ("pattern", "hot")], 2000);
        let hot =
            ops.iter().filter(|op| matches!(op, Op::Read { offset_bytes, .. } if *offset_bytes < 400 << 10)).count();
        assert!((1750..1900).contains(&hot), "{hot} of 2000: 90 %, plus a tenth of the others");
    }
}

//! Many writers that each write one large file as fast as possible without fsync, optionally together with a reader
//! that walks a tree as tar does. The workload shows how unevenly a kernel treats the writers.
//!
//! Defaults are those of the case study: 10 writers, 200 MiB each in write() calls of 1 MiB, delays of 3 s or more
//! reported.

use super::outcome::bulk::BulkObserver;
use super::params::SCALE;
use super::{Actor, ActorStart, DirId, FileId, Footprint, Mark, Observe, Op, ParamError, ParamKind, ParamSpec, Params};
use super::{Role, Stream, Workload, WorkloadEntry};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "bulk",
    sentence: "Writers of one large file each, in large write() calls without fsync: delays and fairness.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "writers",
        kind: ParamKind::Count { min: 1, max: 1024 },
        default: "10",
        sentence: "Number of writers, each with its own file.",
    },
    ParamSpec {
        name: "file_size",
        kind: ParamKind::Size { min: 4096, max: 1 << 44 },
        default: "200MiB",
        sentence: "Bytes that each writer writes (scaled).",
    },
    ParamSpec {
        name: "bytes",
        kind: ParamKind::Size { min: 512, max: 64 << 20 },
        default: "1MiB",
        sentence: "Bytes of one call.",
    },
    ParamSpec {
        name: "rounds",
        kind: ParamKind::Count { min: 0, max: 1 << 32 },
        default: "1",
        sentence: "How often a writer overwrites its file; 0 means until the scenario ends.",
    },
    ParamSpec {
        name: "delay_over",
        kind: ParamKind::Duration { min_ns: 1_000, max_ns: 3_600_000_000_000 },
        default: "3s",
        sentence: "Calls that take longer are listed as delays.",
    },
    ParamSpec {
        name: "readers",
        kind: ParamKind::Count { min: 0, max: 64 },
        default: "0",
        sentence: "Threads that read a tree of files during the writes, like tar.",
    },
    ParamSpec {
        name: "reader_files",
        kind: ParamKind::Count { min: 1, max: 10_000_000 },
        default: "2000",
        sentence: "Files in each reader's tree (scaled).",
    },
    ParamSpec {
        name: "reader_file_size",
        kind: ParamKind::Size { min: 1, max: 1 << 40 },
        default: "100KiB",
        sentence: "Size of each file in a reader's tree.",
    },
    SCALE,
];

#[derive(Debug)]
struct Bulk {
    writers: u64,
    file_bytes: u64,
    bytes: u64,
    rounds: u64,
    delay_over_ns: u64,
    readers: u64,
    reader_files: u64,
    reader_file_bytes: u64,
}

fn build(params: &Params, _seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    Ok(Box::new(Bulk {
        writers: params.count("writers"),
        file_bytes: params.scaled_size_bytes("file_size").max(params.size_bytes("bytes")),
        bytes: params.size_bytes("bytes"),
        rounds: params.count("rounds"),
        delay_over_ns: params.duration_ns("delay_over"),
        readers: params.count("readers"),
        reader_files: params.scaled_count("reader_files"),
        reader_file_bytes: params.size_bytes("reader_file_size"),
    }))
}

/// File ids below this are the writers'; file n of reader r is (r + 1) * 2^32 + n.
const READER_FILES: u64 = 1 << 32;

/// Files in one directory of a reader's tree.
const FILES_A_DIRECTORY: u64 = 100;

impl Workload for Bulk {
    fn footprint(&self) -> Footprint {
        let threads = self.writers + self.readers;
        Footprint {
            disk_bytes: (self.readers * self.reader_files)
                .saturating_mul(self.reader_file_bytes)
                .saturating_add(self.writers * self.file_bytes),
            growth_bytes_per_s: 0,
            files: self.writers + self.readers * self.reader_files,
            memory_bytes: threads * self.bytes.max(1 << 20),
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            processes: 0,
        }
    }

    fn actors(&self) -> Vec<Actor> {
        let writers = (0..self.writers).map(|writer| Actor {
            name: format!("bulk-{writer}"),
            role: Role::Foreground,
            start: ActorStart::Immediately,
            stream: Box::new(Writer {
                file: FileId(writer),
                step: WriterStep::Create,
                written_bytes: 0,
                rounds_done: 0,
                file_bytes: self.file_bytes,
                bytes: self.bytes,
                rounds: self.rounds,
            }),
        });
        let readers = (0..self.readers).map(|reader| Actor {
            name: format!("bulk-tar-{reader}"),
            role: Role::Neighbour,
            start: ActorStart::Immediately,
            stream: Box::new(Reader {
                base: (reader + 1) * READER_FILES,
                files: self.reader_files,
                file_bytes: self.reader_file_bytes,
                bytes: self.bytes.min(self.reader_file_bytes),
                step: ReaderStep::Prepare,
                file: 0,
                offset_bytes: 0,
            }),
        });
        writers.chain(readers).collect()
    }

    fn path(&self, file: FileId) -> String {
        match file.0.checked_sub(READER_FILES) {
            None => format!("bulk-{}", file.0),
            Some(own) => {
                let dir = self.directory_path(self.directory(file));
                format!("{dir}/{}", own % READER_FILES)
            }
        }
    }

    fn directory(&self, file: FileId) -> DirId {
        if file.0 < READER_FILES {
            return DirId(0);
        }
        // Directory d of reader r is (r + 1) * 2^32 + d + 1; the reader's root directory is (r + 1) * 2^32.
        let (reader, number) = (file.0 / READER_FILES, file.0 % READER_FILES);
        DirId(reader * READER_FILES + number / FILES_A_DIRECTORY + 1)
    }

    fn directory_path(&self, dir: DirId) -> String {
        match (dir.0 / READER_FILES, dir.0 % READER_FILES) {
            (0, _) => String::new(),
            (reader, 0) => format!("tree-{}", reader - 1),
            (reader, number) => format!("tree-{}/{:04}", reader - 1, number - 1),
        }
    }

    fn observer(&self) -> Option<Box<dyn Observe>> {
        Some(Box::new(BulkObserver::new(self.delay_over_ns)))
    }
}

#[derive(Debug)]
enum WriterStep {
    Create,
    Append,
    Done,
    Close,
    End,
}

#[derive(Debug)]
struct Writer {
    file: FileId,
    step: WriterStep,
    written_bytes: u64,
    rounds_done: u64,
    file_bytes: u64,
    bytes: u64,
    rounds: u64,
}

impl Stream for Writer {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let file = self.file;
        match self.step {
            WriterStep::Create => {
                self.step = WriterStep::Append;
                Some(Op::Create { file })
            }
            WriterStep::Append => {
                let offset_bytes = self.written_bytes;
                let bytes = self.bytes.min(self.file_bytes - offset_bytes);
                self.written_bytes += bytes;
                let first_round = self.rounds_done == 0;
                if self.written_bytes >= self.file_bytes {
                    self.rounds_done += 1;
                    self.written_bytes = 0;
                    if self.rounds_done == self.rounds {
                        self.step = WriterStep::Done;
                    }
                }
                // Later rounds overwrite the file: truncating it would discard data that is still to be written.
                Some(if first_round { Op::Append { file, bytes } } else { Op::Write { file, offset_bytes, bytes } })
            }
            WriterStep::Done => {
                self.step = WriterStep::Close;
                Some(Op::Mark { mark: Mark::WriterDone, value: self.rounds_done * self.file_bytes })
            }
            WriterStep::Close => {
                self.step = WriterStep::End;
                Some(Op::Close { file })
            }
            WriterStep::End => None,
        }
    }
}

/// Creates its tree unmeasured, then reads it repeatedly in order, directory by directory.
#[derive(Debug)]
enum ReaderStep {
    Prepare,
    Directory,
    Create,
    Fill,
    FillClose,
    Ready,
    List,
    Stat,
    Read,
    Close,
}

#[derive(Debug)]
struct Reader {
    base: u64,
    files: u64,
    file_bytes: u64,
    bytes: u64,
    step: ReaderStep,
    file: u64,
    offset_bytes: u64,
}

impl Reader {
    fn directory(&self) -> DirId {
        DirId(self.base + self.file / FILES_A_DIRECTORY + 1)
    }

    fn at_directory(&self) -> bool {
        self.file.is_multiple_of(FILES_A_DIRECTORY)
    }

    /// Moves on to the next file; returns false after the last.
    fn advance(&mut self) -> bool {
        self.offset_bytes = 0;
        self.file += 1;
        if self.file == self.files {
            self.file = 0;
            return false;
        }
        true
    }

    fn prepare(&mut self) -> Option<Op> {
        let file = FileId(self.base + self.file);
        Some(match self.step {
            ReaderStep::Prepare => {
                self.step = ReaderStep::Directory;
                Op::Measure { on: false }
            }
            ReaderStep::Directory => {
                self.step = ReaderStep::Create;
                Op::Mkdir { dir: self.directory() }
            }
            ReaderStep::Create => {
                self.step = ReaderStep::Fill;
                Op::Create { file }
            }
            ReaderStep::Fill => {
                self.step = ReaderStep::FillClose;
                Op::Append { file, bytes: self.file_bytes }
            }
            ReaderStep::FillClose => {
                self.step = match (self.advance(), self.at_directory()) {
                    (false, _) => ReaderStep::Ready,
                    (true, true) => ReaderStep::Directory,
                    (true, false) => ReaderStep::Create,
                };
                Op::Close { file }
            }
            _ => return None,
        })
    }
}

impl Stream for Reader {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        if let Some(op) = self.prepare() {
            return Some(op);
        }
        let file = FileId(self.base + self.file);
        let op = match self.step {
            ReaderStep::Ready => {
                self.step = ReaderStep::List;
                Op::Measure { on: true }
            }
            ReaderStep::List => {
                self.step = ReaderStep::Stat;
                Op::List { dir: self.directory() }
            }
            ReaderStep::Stat => {
                self.step = ReaderStep::Read;
                Op::Stat { file }
            }
            ReaderStep::Read => {
                let (offset_bytes, bytes) = (self.offset_bytes, self.bytes.min(self.file_bytes - self.offset_bytes));
                self.offset_bytes += bytes;
                if self.offset_bytes >= self.file_bytes {
                    self.step = ReaderStep::Close;
                }
                Op::Read { file, offset_bytes, bytes }
            }
            _ => {
                self.advance();
                self.step = if self.at_directory() { ReaderStep::List } else { ReaderStep::Stat };
                Op::Close { file }
            }
        };
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::{DirId, ENTRY, FileId, Mark, Op, Params};

    fn workload(given: &[(&str, &str)]) -> Box<dyn super::Workload> {
        let params = Params::check("bulk", ENTRY.params, given.iter().copied()).expect("parameters");
        (ENTRY.build)(&params, 1).expect("workload")
    }

    #[test]
    fn the_defaults_are_ten_writers_of_200_mib_in_calls_of_1_mib() {
        let workload = workload(&[]);
        assert_eq!(workload.footprint().disk_bytes, 2000 << 20);
        let mut actors = workload.actors();
        assert_eq!(actors.len(), 10);
        let ops: Vec<Op> = std::iter::from_fn(|| actors[9].stream.next(0)).collect();
        let sizes: Vec<u64> =
            ops.iter().filter_map(|op| if let Op::Append { bytes, .. } = op { Some(*bytes) } else { None }).collect();
        assert_eq!(sizes, [1 << 20; 200]);
        assert_eq!(ops[ops.len() - 2], Op::Mark { mark: Mark::WriterDone, value: 200 << 20 });
    }

    #[test]
    fn a_reader_creates_its_tree_unmeasured_and_reads_it_repeatedly_in_order() {
        let workload = workload(&[("readers", "1"), ("reader_files", "150"), ("writers", "1")]);
        let mut actors = workload.actors();
        let ops: Vec<Op> = (0..2000).filter_map(|_| actors[1].stream.next(0)).collect();
        assert_eq!(ops.len(), 2000, "a reader never ends by itself");
        assert_eq!(ops[0], Op::Measure { on: false });
        let ready = ops.iter().position(|op| *op == Op::Measure { on: true }).expect("preparation ends");
        assert_eq!(ops[..ready].iter().filter(|op| matches!(op, Op::Create { .. })).count(), 150);
        let read: Vec<u64> = ops[ready..]
            .iter()
            .filter_map(|op| if let Op::Stat { file } = op { Some(file.0 % super::READER_FILES) } else { None })
            .collect();
        assert_eq!(read[..151], (0..150).chain([0]).collect::<Vec<_>>());
    }

    #[test]
    fn paths_match_their_directories() {
        let workload = workload(&[("readers", "2")]);
        let file = FileId(2 * super::READER_FILES + 250);
        let dir = workload.directory(file);
        assert_eq!(workload.path(file), "tree-1/0002/250");
        assert_eq!(workload.directory_path(dir), "tree-1/0002");
        assert_eq!(workload.directory_path(DirId(2 * super::READER_FILES)), "tree-1");
    }
}

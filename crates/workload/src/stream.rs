//! A neighbour that writes or reads files from front to back as fast as possible, which fills the page cache with
//! dirty or clean pages until memory runs short.

use super::{Actor, ActorStart, FileId, Footprint, Op, ParamError, ParamKind, ParamSpec, Params, Role, Stream};
use super::{Workload, WorkloadEntry};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "stream",
    sentence: "A neighbour that writes or reads files front to back, filling the page cache.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "threads",
        kind: ParamKind::Count { min: 1, max: 256 },
        default: "1",
        sentence: "Number of threads, each with its own file.",
    },
    ParamSpec {
        name: "file_size",
        kind: ParamKind::Size { min: 4096, max: 1 << 44 },
        default: "1GiB",
        sentence: "Size of each file; at its end the thread starts again at offset 0.",
    },
    ParamSpec {
        name: "bytes",
        kind: ParamKind::Size { min: 512, max: 64 << 20 },
        default: "256KiB",
        sentence: "Bytes of one call.",
    },
    ParamSpec {
        name: "direction",
        kind: ParamKind::Choice(&["write", "read"]),
        default: "write",
        sentence: "Whether it fills the page cache with dirty or clean pages.",
    },
    ParamSpec {
        name: "fill",
        kind: ParamKind::Choice(&["write", "allocate"]),
        default: "write",
        sentence: "How files to be read are created before the measured part: written, or only allocated, so that \
            reads return zeros and files take neither memory nor disk before.",
    },
    ParamSpec {
        name: "pause",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 3_600_000_000_000 },
        default: "0ns",
        sentence: "Pause after each call, to limit the rate.",
    },
    ParamSpec {
        name: "at_least",
        kind: ParamKind::Size { min: 0, max: 1 << 44 },
        default: "0B",
        sentence: "Bytes that each thread transfers before the run may end: on a machine that is too slow, the run \
            lasts longer than its duration.",
    },
];

#[derive(Debug)]
struct Streams {
    threads: u64,
    file_bytes: u64,
    bytes: u64,
    read: bool,
    allocate: bool,
    pause_ns: u64,
    at_least_bytes: u64,
}

fn build(params: &Params, _seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    let streams = Streams {
        threads: params.count("threads"),
        file_bytes: params.size_bytes("file_size"),
        bytes: params.size_bytes("bytes"),
        read: params.choice("direction") == "read",
        allocate: params.choice("fill") == "allocate",
        pause_ns: params.duration_ns("pause"),
        at_least_bytes: params.size_bytes("at_least"),
    };
    if streams.bytes > streams.file_bytes {
        return Err(ParamError::Impossible {
            workload: "stream".to_owned(),
            why: format!("one call ({} B) is larger than the file ({} B)", streams.bytes, streams.file_bytes),
        });
    }
    Ok(Box::new(streams))
}

impl Workload for Streams {
    fn footprint(&self) -> Footprint {
        Footprint {
            disk_bytes: self.threads * self.file_bytes,
            growth_bytes_per_s: 0,
            files: self.threads,
            memory_bytes: self.threads * self.bytes,
            threads: u32::try_from(self.threads).unwrap_or(u32::MAX),
            processes: 0,
        }
    }

    fn actors(&self) -> Vec<Actor> {
        (0..self.threads)
            .map(|thread| Actor {
                name: format!("stream-{thread}"),
                role: Role::Neighbour,
                start: ActorStart::Immediately,
                stream: Box::new(OneStream {
                    file: FileId(thread),
                    step: if self.read { Step::Prepare } else { Step::Create },
                    read: self.read,
                    allocate: self.allocate,
                    offset_bytes: 0,
                    file_bytes: self.file_bytes,
                    bytes: self.bytes,
                    pause_ns: self.pause_ns,
                    owed_bytes: self.at_least_bytes,
                    keeps: false,
                }),
            })
            .collect()
    }

    fn path(&self, file: FileId) -> String {
        format!("stream-{}", file.0)
    }
}

#[derive(Debug)]
enum Step {
    /// A reader's file is created before the measured part. Otherwise the run would measure dirty pages, which have
    /// their own limits by node.
    Prepare,
    Create,
    Fill,
    Ready,
    Move,
    Pause,
}

#[derive(Debug)]
struct OneStream {
    file: FileId,
    step: Step,
    read: bool,
    allocate: bool,
    offset_bytes: u64,
    file_bytes: u64,
    bytes: u64,
    pause_ns: u64,
    /// Bytes to transfer before the run may end; `keeps` is whether the run is being extended for them.
    owed_bytes: u64,
    keeps: bool,
}

impl OneStream {
    /// Advances by one call; returns true after the last call of the file.
    fn advance(&mut self) -> bool {
        self.offset_bytes += self.bytes;
        let end = self.offset_bytes + self.bytes > self.file_bytes;
        if end {
            self.offset_bytes = 0;
        }
        end
    }

    /// Requests the extension of the run before the first call, and ends it when `owed_bytes` have been transferred.
    fn keep_running(&mut self) -> Option<Op> {
        let owes = self.owed_bytes > 0;
        (owes != self.keeps).then(|| {
            self.keeps = owes;
            Op::KeepRunning { on: owes }
        })
    }

    fn fill(&mut self) -> Op {
        let (file, offset_bytes, bytes) = (self.file, self.offset_bytes, self.bytes);
        if self.allocate {
            self.step = Step::Ready;
            return Op::Allocate { file, offset_bytes: 0, bytes: self.file_bytes };
        }
        self.step = if self.advance() { Step::Ready } else { Step::Fill };
        Op::Write { file, offset_bytes, bytes }
    }
}

impl Stream for OneStream {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        if matches!(self.step, Step::Move)
            && let Some(op) = self.keep_running()
        {
            return Some(op);
        }
        let (file, offset_bytes, bytes) = (self.file, self.offset_bytes, self.bytes);
        Some(match self.step {
            Step::Prepare => {
                self.step = Step::Create;
                Op::Measure { on: false }
            }
            Step::Create => {
                self.step = if self.read { Step::Fill } else { Step::Move };
                Op::Create { file }
            }
            Step::Fill => self.fill(),
            Step::Ready => {
                self.step = Step::Move;
                Op::Measure { on: true }
            }
            Step::Move => {
                self.advance();
                self.owed_bytes = self.owed_bytes.saturating_sub(bytes);
                self.step = if self.pause_ns > 0 { Step::Pause } else { Step::Move };
                if self.read { Op::Read { file, offset_bytes, bytes } } else { Op::Write { file, offset_bytes, bytes } }
            }
            Step::Pause => {
                self.step = Step::Move;
                Op::Sleep { ns: self.pause_ns }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRY, Op, Params};

    fn operations(given: &[(&str, &str)], count: usize) -> Vec<Op> {
        let params = Params::check("stream", ENTRY.params, given.iter().copied()).expect("declared");
        let mut actors = (ENTRY.build)(&params, 1).expect("possible").actors();
        (0..count).filter_map(|_| actors[0].stream.next(0)).collect()
    }

    #[test]
    fn a_reader_creates_its_file_unmeasured_and_then_only_reads() {
        let given = [("direction", "read"), ("file_size", "8KiB"), ("bytes", "4KiB")];
        let ops = operations(&given, 20);
        let ready = ops.iter().position(|op| *op == Op::Measure { on: true }).expect("preparation ends");
        assert_eq!(ops[0], Op::Measure { on: false });
        assert_eq!(ops[..ready].iter().filter(|op| matches!(op, Op::Write { .. })).count(), 2);
        assert!(ops[ready + 1..].iter().all(|op| matches!(op, Op::Read { .. })), "{ops:?}");
    }

    #[test]
    fn an_allocated_file_is_never_written() {
        let given = [("direction", "read"), ("fill", "allocate"), ("file_size", "1MiB")];
        let ops = operations(&given, 20);
        assert!(ops.iter().any(|op| matches!(op, Op::Allocate { bytes, .. } if *bytes == 1 << 20)));
        assert!(!ops.iter().any(|op| matches!(op, Op::Write { .. })), "{ops:?}");
    }

    #[test]
    fn the_run_is_extended_until_the_requested_bytes_are_transferred() {
        let ops = operations(&[("file_size", "8KiB"), ("bytes", "4KiB"), ("at_least", "12KiB")], 8);
        let at = |on: bool| ops.iter().position(|op| *op == Op::KeepRunning { on }).expect("requested once");
        let moved = |range: &[Op]| range.iter().filter(|op| matches!(op, Op::Write { .. })).count();
        assert_eq!((moved(&ops[..at(true)]), moved(&ops[at(true)..at(false)])), (0, 3), "{ops:?}");
        assert_eq!(ops.iter().filter(|op| matches!(op, Op::KeepRunning { .. })).count(), 2);
        assert!(!operations(&[], 8).iter().any(|op| matches!(op, Op::KeepRunning { .. })));
    }

    #[test]
    fn a_writer_pauses_after_each_call_and_wraps_at_the_end() {
        let ops = operations(&[("file_size", "8KiB"), ("bytes", "4KiB"), ("pause", "1ms")], 7);
        let offsets = ops.iter().filter_map(|op| match op {
            Op::Write { offset_bytes, .. } => Some(*offset_bytes),
            _ => None,
        });
        assert_eq!(offsets.collect::<Vec<_>>(), [0, 4096, 0]);
        assert_eq!(ops.iter().filter(|op| matches!(op, Op::Sleep { ns: 1_000_000 })).count(), 3);
    }
}

//! Anonymous memory of programs: touched repeatedly, or only once and then left alone while other programs need
//! memory.

use super::dice::Dice;
use super::{Actor, ActorStart, FileId, Footprint, Op, ParamError, ParamKind, ParamSpec, Params, Role, Stream};
use super::{Workload, WorkloadEntry};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "memory",
    sentence: "Programs that allocate memory and touch it sequentially, at random, mostly a hot part, or only once.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "threads",
        kind: ParamKind::Count { min: 1, max: 4096 },
        default: "1",
        sentence: "Number of programs, each with its own memory.",
    },
    ParamSpec {
        name: "size",
        kind: ParamKind::Size { min: 4096, max: 1 << 44 },
        default: "256MiB",
        sentence: "Memory of each program.",
    },
    ParamSpec {
        name: "bytes",
        kind: ParamKind::Size { min: 1, max: 64 << 20 },
        default: "4KiB",
        sentence: "Bytes of one touch.",
    },
    ParamSpec {
        name: "pattern",
        kind: ParamKind::Choice(&["random", "sequential", "hot", "once"]),
        default: "random",
        sentence: "Touches after the first pass: random, sequential, nine of ten in the first tenth, or none.",
    },
    ParamSpec { name: "reads", kind: ParamKind::Share, default: "0.5", sentence: "Share of touches that only read." },
    ParamSpec {
        name: "pause",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 86_400_000_000_000 },
        default: "0s",
        sentence: "Sleep after each touch.",
    },
    ParamSpec {
        name: "compute",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 86_400_000_000_000 },
        default: "0s",
        sentence: "CPU time of the program for each touch.",
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Random,
    Sequential,
    Hot,
    Once,
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    threads: u64,
    size_bytes: u64,
    bytes: u64,
    pattern: Pattern,
    reads: f64,
    pause_ns: u64,
    compute_ns: u64,
    seed: u64,
}

fn build(params: &Params, seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    Ok(Box::new(Memory {
        threads: params.count("threads"),
        size_bytes: params.size_bytes("size"),
        bytes: params.size_bytes("bytes").min(params.size_bytes("size")),
        pattern: match params.choice("pattern") {
            "sequential" => Pattern::Sequential,
            "hot" => Pattern::Hot,
            "once" => Pattern::Once,
            _ => Pattern::Random,
        },
        reads: params.share("reads"),
        pause_ns: params.duration_ns("pause"),
        compute_ns: params.duration_ns("compute"),
        seed,
    }))
}

impl Workload for Memory {
    fn footprint(&self) -> Footprint {
        Footprint {
            memory_bytes: self.threads * self.size_bytes,
            threads: u32::try_from(self.threads).unwrap_or(u32::MAX),
            ..Footprint::default()
        }
    }

    fn actors(&self) -> Vec<Actor> {
        let one = |thread: u64| Actor {
            name: format!("memory-{thread}"),
            role: Role::Foreground,
            start: ActorStart::Immediately,
            stream: Box::new(OneProgram {
                of: *self,
                dice: Dice::new(self.seed, thread, "memory"),
                step: Step::Take,
                offset_bytes: 0,
            }),
        };
        (0..self.threads).map(one).collect()
    }

    fn path(&self, file: FileId) -> String {
        format!("memory-{}", file.0)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take,
    Compute,
    Touch,
    Pause,
}

#[derive(Debug)]
struct OneProgram {
    of: Memory,
    dice: Dice,
    step: Step,
    offset_bytes: u64,
}

const TAKEN_AT_ONCE: u64 = 2 << 20;
/// A program that has touched its memory once only sleeps.
const IDLE_NS: u64 = 1_000_000_000;

impl OneProgram {
    /// Touches the next piece for the first time.
    fn take(&mut self) -> Op {
        let offset_bytes = self.offset_bytes;
        let bytes = TAKEN_AT_ONCE.min(self.of.size_bytes - offset_bytes);
        self.offset_bytes += bytes;
        if self.offset_bytes == self.of.size_bytes {
            (self.step, self.offset_bytes) = (Step::Compute, 0);
        }
        Op::TouchOwn { offset_bytes, bytes, write: true }
    }

    fn touch(&mut self) -> Op {
        let places = (self.of.size_bytes / self.of.bytes).max(1);
        let place = match self.of.pattern {
            Pattern::Hot if self.dice.share() < 0.9 => self.dice.below((places / 10).max(1)),
            Pattern::Random | Pattern::Hot => self.dice.below(places),
            Pattern::Sequential | Pattern::Once => {
                let at = self.offset_bytes / self.of.bytes % places;
                self.offset_bytes = (at + 1) % places * self.of.bytes;
                at
            }
        };
        let write = !(self.of.reads >= 1.0 || (self.of.reads > 0.0 && self.dice.share() < self.of.reads));
        Op::TouchOwn { offset_bytes: place * self.of.bytes, bytes: self.of.bytes, write }
    }
}

impl OneProgram {
    /// CPU time before a touch, if any; otherwise the touch itself. A program that touches its memory only once sleeps
    /// instead.
    fn compute(&mut self) -> Op {
        if self.of.pattern == Pattern::Once {
            self.step = Step::Compute;
            return Op::Sleep { ns: IDLE_NS };
        }
        self.step = Step::Touch;
        match self.of.compute_ns {
            0 => self.touch_once(),
            ns => Op::Compute { ns },
        }
    }

    fn touch_once(&mut self) -> Op {
        self.step = Step::Pause;
        self.touch()
    }
}

impl Stream for OneProgram {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        Some(match self.step {
            Step::Take => self.take(),
            Step::Compute => self.compute(),
            Step::Touch => self.touch_once(),
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
    use super::{ENTRY, Op, Params};

    fn operations(given: &[(&str, &str)], count: usize) -> Vec<Op> {
        let params = Params::check("memory", ENTRY.params, given.iter().copied()).expect("declared");
        let mut actors = (ENTRY.build)(&params, 1).expect("possible").actors();
        (0..count).filter_map(|_| actors[0].stream.next(0)).collect()
    }

    #[test]
    fn all_memory_is_written_once_and_then_touched_by_pattern() {
        let ops = operations(&[("size", "5MiB"), ("pattern", "sequential"), ("bytes", "1MiB"), ("reads", "1")], 9);
        let taken: Vec<(u64, u64)> = ops[..3]
            .iter()
            .filter_map(|op| match op {
                Op::TouchOwn { offset_bytes, bytes, write: true } => Some((*offset_bytes, *bytes)),
                _ => None,
            })
            .collect();
        assert_eq!(taken, [(0, 2 << 20), (2 << 20, 2 << 20), (4 << 20, 1 << 20)]);
        let read = |at: u64| Op::TouchOwn { offset_bytes: at << 20, bytes: 1 << 20, write: false };
        assert_eq!(ops[3..], [read(0), read(1), read(2), read(3), read(4), read(0)]);
    }

    #[test]
    fn memory_that_is_touched_once_is_left_alone() {
        let ops = operations(&[("size", "2MiB"), ("pattern", "once")], 4);
        assert!(ops[1..].iter().all(|op| matches!(op, Op::Sleep { .. })), "{ops:?}");
    }
}

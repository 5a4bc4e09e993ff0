//! Pipelines of batch jobs: each job reads the previous job's file completely into its own memory, computes, writes a
//! file of the same size and ends, which frees the memory. Then the next job of the pipeline begins.
//!
//! Scientific workflows look like this.

use super::{Actor, ActorStart, FileId, Footprint, Op, ParamError, ParamKind, ParamSpec, Params, Role, Stream};
use super::{Workload, WorkloadEntry};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "pipeline",
    sentence: "Consecutive batch jobs: read a whole file, compute, write another file, free the memory.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "pipelines",
        kind: ParamKind::Count { min: 1, max: 256 },
        default: "1",
        sentence: "Number of concurrent pipelines, each with its own files.",
    },
    ParamSpec {
        name: "tasks",
        kind: ParamKind::Count { min: 1, max: 1000 },
        default: "3",
        sentence: "Consecutive jobs of a pipeline.",
    },
    ParamSpec {
        name: "file_size",
        kind: ParamKind::Size { min: 4096, max: 1 << 44 },
        default: "1GiB",
        sentence: "Size of each file.",
    },
    ParamSpec {
        name: "compute",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 86_400_000_000_000 },
        default: "1s",
        sentence: "CPU time of a job between reading and writing.",
    },
    ParamSpec {
        name: "bytes",
        kind: ParamKind::Size { min: 4096, max: 64 << 20 },
        default: "64MiB",
        sentence: "Bytes of one write() call.",
    },
];

#[derive(Debug)]
struct Pipelines {
    pipelines: u64,
    tasks: u64,
    file_bytes: u64,
    compute_ns: u64,
    bytes: u64,
}

fn build(params: &Params, _seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    Ok(Box::new(Pipelines {
        pipelines: params.count("pipelines"),
        tasks: params.count("tasks"),
        file_bytes: params.size_bytes("file_size"),
        compute_ns: params.duration_ns("compute"),
        bytes: params.size_bytes("bytes"),
    }))
}

/// File ids of one pipeline: the input, then the file of each job.
const FILES: u64 = 1 << 16;

impl Workload for Pipelines {
    fn footprint(&self) -> Footprint {
        Footprint {
            disk_bytes: self.pipelines * (self.tasks + 1) * self.file_bytes,
            growth_bytes_per_s: 0,
            files: self.pipelines * (self.tasks + 1),
            memory_bytes: self.pipelines * (self.file_bytes + self.bytes),
            threads: u32::try_from(self.pipelines).unwrap_or(u32::MAX),
            processes: 0,
        }
    }

    fn actors(&self) -> Vec<Actor> {
        let one = |pipeline: u64| Actor {
            name: format!("pipe-{pipeline}"),
            role: Role::Foreground,
            start: ActorStart::Immediately,
            stream: Box::new(Pipeline {
                first: pipeline * FILES,
                tasks: self.tasks,
                file_bytes: self.file_bytes,
                compute_ns: self.compute_ns,
                bytes: self.bytes,
                task: 0,
                moved_bytes: 0,
                step: Step::Prepare,
            }),
        };
        (0..self.pipelines).map(one).collect()
    }

    fn path(&self, file: FileId) -> String {
        format!("pipe-{}-{}", file.0 / FILES, file.0 % FILES)
    }
}

#[derive(Debug)]
enum Step {
    Prepare,
    MakeInput,
    FillInput,
    CloseInput,
    Ready,
    Read,
    CloseRead,
    Compute,
    Create,
    Write,
    CloseWritten,
    Exit,
}

#[derive(Debug)]
struct Pipeline {
    first: u64,
    tasks: u64,
    file_bytes: u64,
    compute_ns: u64,
    bytes: u64,
    task: u64,
    moved_bytes: u64,
    step: Step,
}

impl Pipeline {
    /// The next call that writes the file; the flag is true for the last one.
    fn append(&mut self, file: FileId) -> (Op, bool) {
        let bytes = self.bytes.min(self.file_bytes - self.moved_bytes);
        self.moved_bytes += bytes;
        let last = self.moved_bytes == self.file_bytes;
        if last {
            self.moved_bytes = 0;
        }
        (Op::Append { file, bytes }, last)
    }
}

impl Stream for Pipeline {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let input = FileId(self.first + self.task);
        let output = FileId(self.first + self.task + 1);
        let (op, step) = match self.step {
            Step::Prepare => (Op::Measure { on: false }, Step::MakeInput),
            Step::MakeInput => (Op::Create { file: input }, Step::FillInput),
            Step::FillInput => {
                let (op, last) = self.append(input);
                (op, if last { Step::CloseInput } else { Step::FillInput })
            }
            Step::CloseInput => (Op::Close { file: input }, Step::Ready),
            Step::Ready => (Op::Measure { on: true }, Step::Read),
            Step::Read if self.task == self.tasks => return None,
            Step::Read => (Op::ReadKept { file: input, offset_bytes: 0, bytes: self.file_bytes }, Step::CloseRead),
            Step::CloseRead => (Op::Close { file: input }, Step::Compute),
            Step::Compute => (Op::Compute { ns: self.compute_ns }, Step::Create),
            Step::Create => (Op::Create { file: output }, Step::Write),
            Step::Write => {
                let (op, last) = self.append(output);
                (op, if last { Step::CloseWritten } else { Step::Write })
            }
            Step::CloseWritten => (Op::Close { file: output }, Step::Exit),
            Step::Exit => {
                self.task += 1;
                (Op::DropKept, Step::Read)
            }
        };
        self.step = step;
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRY, FileId, Op, Params};

    #[test]
    fn each_job_reads_the_previous_jobs_file_and_frees_its_memory() {
        let given = [("tasks", "2"), ("file_size", "100MiB"), ("compute", "3s")];
        let params = Params::check("pipeline", ENTRY.params, given.iter().copied()).expect("parameters");
        let mut actors = (ENTRY.build)(&params, 1).expect("workload").actors();
        let ops: Vec<Op> = std::iter::from_fn(|| actors[0].stream.next(0)).collect();
        let measured = ops.iter().position(|op| *op == Op::Measure { on: true }).expect("a measured part");
        let (whole, first, rest) = (100 << 20, 64 << 20, 36 << 20);
        let job = |number: u64| {
            let (input, output) = (FileId(number), FileId(number + 1));
            [
                Op::ReadKept { file: input, offset_bytes: 0, bytes: whole },
                Op::Close { file: input },
                Op::Compute { ns: 3_000_000_000 },
                Op::Create { file: output },
                Op::Append { file: output, bytes: first },
                Op::Append { file: output, bytes: rest },
                Op::Close { file: output },
                Op::DropKept,
            ]
        };
        assert_eq!(ops[measured + 1..], [job(0), job(1)].concat());
    }
}

//! The trading journal: small appends to growing files at a fixed rate, as an open loop.
//!
//! Defaults are those of the case study: 220 bytes every 200 us from one thread.

use super::outcome::journal::JournalObserver;
use super::{Actor, ActorStart, FileId, Footprint, Op, ParamError, ParamKind, ParamSpec, Params, Role, Stream};
use super::{Observe, Workload, WorkloadEntry};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "journal",
    sentence: "Small appends to growing files at a fixed rate, with latency counted from the due time.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "bytes",
        kind: ParamKind::Size { min: 1, max: 16 << 20 },
        default: "220",
        sentence: "Bytes of one record.",
    },
    ParamSpec {
        name: "interval",
        kind: ParamKind::Duration { min_ns: 1_000, max_ns: 3_600_000_000_000 },
        default: "200us",
        sentence: "Time between two records of one writer.",
    },
    ParamSpec {
        name: "writers",
        kind: ParamKind::Count { min: 1, max: 1024 },
        default: "1",
        sentence: "Number of writers, each with its own file.",
    },
    ParamSpec {
        name: "roll_size",
        kind: ParamKind::Size { min: 0, max: 1 << 40 },
        default: "0",
        sentence: "Size at which a writer continues in a new file; 0 means never.",
    },
    ParamSpec {
        name: "fdatasync_every",
        kind: ParamKind::Count { min: 0, max: 1 << 32 },
        default: "0",
        sentence: "Records between two fdatasync() calls; 0 means never.",
    },
];

#[derive(Debug)]
struct Journal {
    bytes: u64,
    interval_ns: u64,
    writers: u64,
    roll_bytes: u64,
    fdatasync_every: u64,
}

fn build(params: &Params, _seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    Ok(Box::new(Journal {
        bytes: params.size_bytes("bytes"),
        interval_ns: params.duration_ns("interval"),
        writers: params.count("writers"),
        roll_bytes: params.size_bytes("roll_size"),
        fdatasync_every: params.count("fdatasync_every"),
    }))
}

/// File ids are writer + roll * 2^32, so that writers can roll over independently.
fn file_of(writer: u64, roll: u64) -> FileId {
    FileId(writer | roll << 32)
}

impl Workload for Journal {
    fn footprint(&self) -> Footprint {
        let per_s = u128::from(self.writers * self.bytes) * 1_000_000_000 / u128::from(self.interval_ns.max(1));
        Footprint {
            disk_bytes: 0,
            growth_bytes_per_s: u64::try_from(per_s).unwrap_or(u64::MAX),
            files: self.writers,
            memory_bytes: self.writers * (1 << 20),
            threads: u32::try_from(self.writers).unwrap_or(u32::MAX),
            processes: 0,
        }
    }

    fn actors(&self) -> Vec<Actor> {
        (0..self.writers)
            .map(|writer| Actor {
                name: format!("journal-{writer}"),
                role: Role::Foreground,
                start: ActorStart::Immediately,
                stream: Box::new(Writer {
                    writer,
                    roll: 0,
                    written_bytes: 0,
                    record: 0,
                    step: Step::Create,
                    // Writers are spread evenly over the interval, because they represent independent sources.
                    phase_ns: self.interval_ns * writer / self.writers,
                    bytes: self.bytes,
                    interval_ns: self.interval_ns,
                    roll_bytes: self.roll_bytes,
                    fdatasync_every: self.fdatasync_every,
                }),
            })
            .collect()
    }

    fn path(&self, file: FileId) -> String {
        format!("journal-{}.{}", file.0 & 0xffff_ffff, file.0 >> 32)
    }

    fn observer(&self) -> Option<Box<dyn Observe>> {
        Some(Box::new(JournalObserver::new(self.interval_ns)))
    }
}

#[derive(Debug)]
enum Step {
    Create,
    Wait,
    Append,
    Sync,
    Roll,
}

#[derive(Debug)]
struct Writer {
    writer: u64,
    roll: u64,
    written_bytes: u64,
    record: u64,
    step: Step,
    phase_ns: u64,
    bytes: u64,
    interval_ns: u64,
    roll_bytes: u64,
    fdatasync_every: u64,
}

impl Stream for Writer {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let file = file_of(self.writer, self.roll);
        Some(match self.step {
            Step::Create => {
                self.step = Step::Wait;
                Op::Create { file }
            }
            Step::Wait => {
                self.step = Step::Append;
                let at_ns = self.phase_ns + self.record * self.interval_ns;
                self.record += 1;
                Op::SleepUntil { at_ns }
            }
            Step::Append => {
                self.written_bytes += self.bytes;
                self.step = if self.fdatasync_every > 0 && self.record.is_multiple_of(self.fdatasync_every) {
                    Step::Sync
                } else if self.roll_bytes > 0 && self.written_bytes >= self.roll_bytes {
                    Step::Roll
                } else {
                    Step::Wait
                };
                Op::Append { file, bytes: self.bytes }
            }
            Step::Sync => {
                self.step =
                    if self.roll_bytes > 0 && self.written_bytes >= self.roll_bytes { Step::Roll } else { Step::Wait };
                Op::Fdatasync { file }
            }
            Step::Roll => {
                self.roll += 1;
                self.written_bytes = 0;
                self.step = Step::Create;
                Op::Close { file }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRY, Op, Params};

    fn ops(given: &[(&str, &str)], count: usize) -> Vec<Op> {
        let params = Params::check("journal", ENTRY.params, given.iter().copied()).expect("parameters");
        let workload = (ENTRY.build)(&params, 1).expect("workload");
        let mut actors = workload.actors();
        (0..count).filter_map(|_| actors[0].stream.next(0)).collect()
    }

    #[test]
    fn appends_are_due_every_interval_from_the_start() {
        let due: Vec<u64> = ops(&[], 9)
            .iter()
            .filter_map(|op| if let Op::SleepUntil { at_ns } = op { Some(*at_ns) } else { None })
            .collect();
        assert_eq!(due, [0, 200_000, 400_000, 600_000]);
    }

    #[test]
    fn a_writer_rolls_over_full_files_and_syncs_every_nth_record() {
        let ops = ops(&[("bytes", "100"), ("roll_size", "200"), ("fdatasync_every", "2")], 9);
        let file = super::file_of(0, 0);
        assert_eq!(ops[2..4], [Op::Append { file, bytes: 100 }, Op::SleepUntil { at_ns: 200_000 }]);
        assert_eq!(
            ops[4..8],
            [
                Op::Append { file, bytes: 100 },
                Op::Fdatasync { file },
                Op::Close { file },
                Op::Create { file: super::file_of(0, 1) }
            ]
        );
    }
}

//! Calls syncfs() on a whole file system, like a package manager, a backup, a snapshot, or sync(1) in a script.

use super::{Actor, ActorStart, FileId, Footprint, Op, ParamError, ParamKind, ParamSpec, Params, Role, Stream};
use super::{Workload, WorkloadEntry};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "syncs",
    sentence: "Threads that repeatedly call syncfs() on the file system of the workloads' files.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "threads",
        kind: ParamKind::Count { min: 1, max: 1024 },
        default: "1",
        sentence: "Threads that sync.",
    },
    ParamSpec {
        name: "pause",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 86_400_000_000_000 },
        default: "30s",
        sentence: "Sleep before each call.",
    },
];

#[derive(Clone, Copy, Debug)]
struct Syncs {
    threads: u64,
    pause_ns: u64,
}

fn build(params: &Params, _seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    Ok(Box::new(Syncs { threads: params.count("threads"), pause_ns: params.duration_ns("pause") }))
}

impl Workload for Syncs {
    fn footprint(&self) -> Footprint {
        Footprint { threads: u32::try_from(self.threads).unwrap_or(u32::MAX), ..Footprint::default() }
    }

    fn actors(&self) -> Vec<Actor> {
        let one = |thread: u64| Actor {
            name: format!("sync-{thread}"),
            role: Role::Foreground,
            start: ActorStart::Immediately,
            stream: Box::new(Caller { pause_ns: self.pause_ns, sleeps: true }),
        };
        (0..self.threads).map(one).collect()
    }

    fn path(&self, file: FileId) -> String {
        format!("sync-{}", file.0)
    }
}

#[derive(Debug)]
struct Caller {
    pause_ns: u64,
    sleeps: bool,
}

impl Stream for Caller {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let sleeps = self.sleeps;
        self.sleeps = !sleeps;
        Some(if sleeps { Op::Sleep { ns: self.pause_ns } } else { Op::Syncfs })
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRY, Op, Params};

    #[test]
    fn each_call_follows_a_pause_after_the_previous_one() {
        let params = Params::check("syncs", ENTRY.params, [("pause", "2s")]).expect("parameters");
        let mut actors = (ENTRY.build)(&params, 1).expect("workload").actors();
        let ops: Vec<Op> = std::iter::from_fn(|| actors[0].stream.next(0)).take(4).collect();
        let sleep = Op::Sleep { ns: 2_000_000_000 };
        assert_eq!((actors.len(), ops), (1, vec![sleep, Op::Syncfs, sleep, Op::Syncfs]));
    }
}

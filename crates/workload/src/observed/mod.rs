//! Imitates recorded programs: operations in the recorded proportions, with the recorded sizes, pauses, distances
//! between syncs, flags and files. `flatwater reproduce` writes scenarios of this workload.
//!
//! With `process`, the first actor prepares the files, starts the others as processes, and waits for them; they are
//! then other programs to the tracer.

mod params;
mod thread;

use std::sync::Arc;

use super::histogram::Histogram;
use super::{Actor, ActorStart, DirId, FileId, Footprint, ParamError, Params, Role, Workload, WorkloadEntry};
use params::{PARAMS, TRANSFER_MAX};
use thread::{Starter, Thread};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "observed",
    sentence: "Imitates recorded programs by histograms of their operations; `flatwater reproduce` writes it.",
    params: PARAMS,
    build,
};

/// Numbers of operations in `mix`.
pub(crate) mod mix {
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const SYNC: u64 = 2;
    pub const SYNCFS: u64 = 4;
    pub const CREATE: u64 = 5;
    pub const UNLINK: u64 = 7;
    pub const COMPUTE: u64 = 8;
    pub const MEMORY: u64 = 9;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    None,
    Full,
    Data,
}

/// Ids of the files of one thread.
const IDS_PER_THREAD: u64 = 1 << 32;
/// Created files have ids from here on.
const CREATED: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Observed {
    threads: u64,
    process: bool,
    mix: Histogram,
    sync: Sync,
    sync_every: Histogram,
    write_bytes: Histogram,
    read_bytes: Histogram,
    create_writes: Histogram,
    read_pause: Histogram,
    write_pause: Histogram,
    sync_pause: Histogram,
    other_pause: Histogram,
    pass: u64,
    pass_pause_ns: u64,
    open_loop: bool,
    files: u64,
    shared: bool,
    file_bytes: u64,
    grow: bool,
    sequential: f64,
    direct: bool,
    data_sync: bool,
    append: bool,
    created_max: u64,
    memory_bytes: u64,
    seed: u64,
}

fn build(params: &Params, seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    let histogram = |name: &str| params.histogram(name);
    let observed = Observed {
        threads: params.count("threads"),
        process: params.switch("process"),
        mix: histogram("mix"),
        sync: match params.choice("sync") {
            "fsync" => Sync::Full,
            "fdatasync" => Sync::Data,
            _ => Sync::None,
        },
        sync_every: histogram("sync_every"),
        write_bytes: histogram("write_size"),
        read_bytes: histogram("read_size"),
        create_writes: histogram("create_writes"),
        read_pause: histogram("read_pause"),
        write_pause: histogram("write_pause"),
        sync_pause: histogram("sync_pause"),
        other_pause: histogram("other_pause"),
        pass: params.count("pass"),
        pass_pause_ns: params.duration_ns("pass_pause"),
        open_loop: params.choice("loop") == "open",
        files: params.count("files"),
        shared: params.switch("shared"),
        file_bytes: params.size_bytes("file_size"),
        grow: params.switch("grow"),
        sequential: params.share("sequential"),
        direct: params.switch("direct"),
        data_sync: params.switch("data_sync"),
        append: params.switch("append"),
        created_max: params.count("created_max"),
        memory_bytes: params.size_bytes("memory"),
        seed,
    };
    let largest = observed.write_bytes.max().max(observed.read_bytes.max());
    let why = if observed.mix.is_empty() {
        Some("its mix has no operation".to_owned())
    } else if largest > observed.file_bytes {
        Some(format!("one transfer ({largest} B) is larger than the file ({} B)", observed.file_bytes))
    } else {
        None
    };
    match why {
        Some(why) => Err(ParamError::Impossible { workload: "observed".to_owned(), why }),
        None => Ok(Box::new(observed)),
    }
}

impl Observed {
    fn creates(&self) -> bool {
        self.mix.has(mix::CREATE)
    }

    /// Whether operations of the mix use the prepared files.
    fn uses_files(&self) -> bool {
        [mix::READ, mix::WRITE, mix::SYNC].into_iter().any(|op| self.mix.has(op))
    }

    fn first_file(&self, thread: u64) -> u64 {
        if self.shared { 0 } else { thread * IDS_PER_THREAD }
    }
}

impl Workload for Observed {
    fn footprint(&self) -> Footprint {
        let sets = if self.shared { 1 } else { self.threads };
        let prepared = if self.uses_files() { sets * self.files } else { 0 };
        let created = if self.creates() { self.threads * self.created_max } else { 0 };
        let of_created = self.write_bytes.max().saturating_mul(self.create_writes.max().max(1)).max(4096);
        let memory = if self.mix.has(mix::MEMORY) { self.memory_bytes } else { 0 };
        let buffers = self.write_bytes.max().max(self.read_bytes.max()).min(TRANSFER_MAX) + 4096;
        let tasks = u32::try_from(self.threads).unwrap_or(u32::MAX);
        Footprint {
            disk_bytes: prepared.saturating_mul(self.file_bytes).saturating_add(created.saturating_mul(of_created)),
            growth_bytes_per_s: 0,
            files: prepared + created,
            memory_bytes: self.threads.saturating_mul(memory + buffers),
            threads: if self.process { 1 } else { tasks },
            processes: if self.process { tasks } else { 0 },
        }
    }

    fn actors(&self) -> Vec<Actor> {
        let of = Arc::new(self.clone());
        let mut actors = Vec::new();
        if self.process {
            actors.push(Actor {
                name: "observed".to_owned(),
                role: Role::Neighbour,
                start: ActorStart::Immediately,
                stream: Box::new(Starter::new(of.clone())),
            });
        }
        let start = if self.process { ActorStart::OnSpawn } else { ActorStart::Immediately };
        actors.extend((0..self.threads).map(|thread| Actor {
            name: format!("observed-{thread}"),
            role: if self.process { Role::Neighbour } else { Role::Foreground },
            start,
            stream: Box::new(Thread::new(of.clone(), thread)),
        }));
        actors
    }

    fn path(&self, file: FileId) -> String {
        let (thread, own) = (file.0 / IDS_PER_THREAD, file.0 % IDS_PER_THREAD);
        match own.checked_sub(CREATED) {
            Some(created) => format!("created-{thread}-{created}"),
            None => format!("file-{thread}-{own}"),
        }
    }

    fn directory(&self, _file: FileId) -> DirId {
        DirId(0)
    }
}

#[cfg(test)]
mod tests;

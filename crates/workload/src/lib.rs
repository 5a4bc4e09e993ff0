//! Workloads as pure streams of operations: name + parameters + seed -> actors that each yield `Op`s.
//!
//! Nothing in here does I/O, reads a clock or knows who performs it. The host makes the calls, the simulator
//! models them, and the same seed gives the same operations on both.

pub mod dice;
pub mod observe;
pub mod outcome;
pub mod params;

pub use observe::{Observation, Observe};
pub use params::{ParamError, ParamKind, ParamSpec, Params};

use serde::{Deserialize, Serialize};

use flatwater_recording::OpKind;

/// A file of the workload. Its path is `Workload::path(file)`, relative to the scenario's directory, so that
/// operations stay small and free of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

/// A directory; its path is `Workload::directory_path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DirId(pub u64);

/// A readers-writer lock inside the program (not a file lock), shared by the actors of one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockId(pub u32);

/// What an actor does next. Files are opened when first used, unless `Open` or `Create` says how; handles
/// are the workload's, not the actor's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Creates an empty file (O_CREAT | O_EXCL) and keeps it open.
    Create {
        file: FileId,
    },
    Open {
        file: FileId,
        how: OpenHow,
    },
    Close {
        file: FileId,
    },
    /// write() at the end of the file.
    Append {
        file: FileId,
        bytes: u64,
    },
    /// pwrite().
    Write {
        file: FileId,
        offset_bytes: u64,
        bytes: u64,
    },
    /// pread(); reading past the end is no error.
    Read {
        file: FileId,
        offset_bytes: u64,
        bytes: u64,
    },
    /// read() of so many bytes into fresh memory, which the thread keeps until `DropKept`.
    ReadKept {
        file: FileId,
        offset_bytes: u64,
        bytes: u64,
    },
    /// Frees what `ReadKept` and `TouchOwn` took.
    DropKept,
    /// Reads (or writes) one byte in each page of memory of the thread's own, which it takes when first touched.
    TouchOwn {
        offset_bytes: u64,
        bytes: u64,
        write: bool,
    },
    /// Maps the whole file shared; `bytes` is its length.
    Map {
        file: FileId,
        bytes: u64,
    },
    /// Reads (or writes) one byte in each page of the range of a mapped file.
    Touch {
        file: FileId,
        offset_bytes: u64,
        bytes: u64,
        write: bool,
    },
    Unmap {
        file: FileId,
    },
    Fsync {
        file: FileId,
    },
    Fdatasync {
        file: FileId,
    },
    /// syncfs() of the file system that the workload's files lie on; a model syncs all that it has.
    Syncfs,
    Truncate {
        file: FileId,
        bytes: u64,
    },
    /// fallocate().
    Allocate {
        file: FileId,
        offset_bytes: u64,
        bytes: u64,
    },
    Rename {
        from: FileId,
        to: FileId,
    },
    Unlink {
        file: FileId,
    },
    Stat {
        file: FileId,
    },
    Mkdir {
        dir: DirId,
    },
    /// Removes an empty directory; counted among unlink(), as unlinkat() does both.
    Rmdir {
        dir: DirId,
    },
    List {
        dir: DirId,
    },
    /// Open loop: wait until this instant after the workload's start; the next operation is charged from it.
    SleepUntil {
        at_ns: u64,
    },
    Sleep {
        ns: u64,
    },
    /// Burns CPU in user space.
    Compute {
        ns: u64,
    },
    /// While somebody waits for it exclusively, nobody new gets it shared (as std's RwLock on Linux does):
    /// otherwise readers could keep a checkpoint waiting for ever.
    Lock {
        lock: LockId,
        exclusive: bool,
    },
    Unlock {
        lock: LockId,
    },
    /// Starts the actor of this index (one made with `start: ActorStart::OnSpawn`) as a process of its own.
    Spawn {
        actor: usize,
    },
    /// Waits until every actor this one spawned has ended.
    WaitSpawned,
    /// From here on this actor's operations count (or no longer): set-up is not measured. Actors begin
    /// measured; one that prepares yields `on: false` first and `on: true` when all is ready. While any actor
    /// of a workload is preparing, the workload's duration has not begun.
    Measure {
        on: bool,
    },
    /// While any actor asks for it (`on`), the run does not end although its duration is over: it must reach a state of
    /// the machine first (so many pages read), and a slow machine takes longer for that. The host bounds it.
    KeepRunning {
        on: bool,
    },
    /// Marks progress that the outcome is computed from: `value` as the workload defines it.
    Mark {
        mark: Mark,
        value: u64,
    },
}

/// What a workload tells about itself while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mark {
    RunBegin,
    RunEnd,
    CheckpointAsked,
    CriticalSectionEmpty,
    CheckpointDone,
    WriterDone,
    Delivered,
    Remapped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenHow {
    pub append: bool,
    pub direct: bool,
    pub data_sync: bool,
}

impl Op {
    /// The file it is about, if it is about one.
    #[must_use]
    pub fn file(&self) -> Option<FileId> {
        match *self {
            Op::Create { file } | Op::Open { file, .. } | Op::Close { file } | Op::Append { file, .. } => Some(file),
            Op::Write { file, .. } | Op::Read { file, .. } | Op::ReadKept { file, .. } => Some(file),
            Op::Map { file, .. } | Op::Touch { file, .. } => Some(file),
            Op::Unmap { file } | Op::Fsync { file } | Op::Fdatasync { file } | Op::Truncate { file, .. } => Some(file),
            Op::Allocate { file, .. } | Op::Unlink { file } | Op::Stat { file } => Some(file),
            Op::Rename { from, .. } => Some(from),
            _ => None,
        }
    }

    /// Under which name its latency is counted; `None` for what is not a call (sleeps, marks, unlocks).
    #[must_use]
    pub fn kind(&self) -> Option<OpKind> {
        Some(match self {
            Op::Create { .. } => OpKind::Create,
            Op::Open { .. } => OpKind::Open,
            Op::Close { .. } => OpKind::Close,
            Op::Append { .. } | Op::Write { .. } => OpKind::Write,
            Op::Read { .. } | Op::ReadKept { .. } => OpKind::Read,
            Op::Map { .. } => OpKind::Map,
            Op::Touch { .. } | Op::TouchOwn { .. } => OpKind::PageFault,
            Op::Unmap { .. } => OpKind::Unmap,
            Op::Fsync { .. } => OpKind::Fsync,
            Op::Fdatasync { .. } => OpKind::Fdatasync,
            Op::Syncfs => OpKind::Syncfs,
            Op::Truncate { .. } => OpKind::Truncate,
            Op::Allocate { .. } => OpKind::Fallocate,
            Op::Rename { .. } => OpKind::Rename,
            Op::Unlink { .. } | Op::Rmdir { .. } => OpKind::Unlink,
            Op::Stat { .. } => OpKind::Stat,
            Op::Mkdir { .. } => OpKind::Mkdir,
            Op::List { .. } => OpKind::List,
            Op::Lock { .. } => OpKind::Lock,
            Op::Spawn { .. } => OpKind::Spawn,
            Op::SleepUntil { .. } | Op::Sleep { .. } | Op::Compute { .. } | Op::Unlock { .. } => return None,
            Op::WaitSpawned | Op::Measure { .. } | Op::KeepRunning { .. } => return None,
            Op::Mark { .. } | Op::DropKept => return None,
        })
    }
}

/// The stream of one actor. Pure: what it yields depends only on its parameters, its seed and the instants
/// it is told.
pub trait Stream: Send {
    /// The next operation; `now_ns` is the time since the workload's start. `None` ends the actor.
    fn next(&mut self, now_ns: u64) -> Option<Op>;

    /// What comes next, where that is one append after the other, each at its instant: whoever knows that nothing can tell
    /// them apart may perform several at once and `skip` them. `None` where something else comes next.
    fn appends(&self) -> Option<Appends> {
        None
    }

    /// Takes so many of the `appends`, each with the sleep before it.
    fn skip(&mut self, _appends: u64) {}
}

/// `count` times `SleepUntil` and `Append`, the first at `at_ns`, the others an interval apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appends {
    pub file: FileId,
    pub bytes: u64,
    pub at_ns: u64,
    pub interval_ns: u64,
    pub count: u64,
}

/// One thread (or process) of a workload.
pub struct Actor {
    /// Shown as the thread's name; at most 15 bytes, the kernel's limit for comm.
    pub name: String,
    pub role: Role,
    pub start: ActorStart,
    pub stream: Box<dyn Stream>,
}

impl std::fmt::Debug for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Actor").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its latencies are what the scenario is about.
    Foreground,
    /// It is there to make trouble; its latencies are kept under its own thread name only.
    Neighbour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorStart {
    Immediately,
    /// Begins when another actor yields `Op::Spawn` with its index, as a process of its own on the host.
    OnSpawn,
}

/// What a workload will take of the machine; the preflight compares it with what is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub disk_bytes: u64,
    /// How much more disk it takes for each second that it runs.
    pub growth_bytes_per_s: u64,
    pub files: u64,
    /// Anonymous memory of the workload itself, without page cache.
    pub memory_bytes: u64,
    pub threads: u32,
    pub processes: u32,
}

/// One workload, built from its parameters.
pub trait Workload: Send + Sync {
    fn footprint(&self) -> Footprint;

    /// The actors, made again at each call, each with a generator of its own derived from the seed.
    fn actors(&self) -> Vec<Actor>;

    /// Path relative to the scenario's directory; never leaves it.
    fn path(&self, file: FileId) -> String;

    /// The directory that holds this file, for models that count dentries and inodes.
    /// All in the workload's own, unless it says otherwise.
    fn directory(&self, _file: FileId) -> DirId {
        DirId(0)
    }

    fn directory_path(&self, _dir: DirId) -> String {
        String::new()
    }

    /// The directory in which this one lies; `None` directly under the workload's own.
    fn directory_above(&self, _dir: DirId) -> Option<DirId> {
        None
    }

    /// Computes the workload's own table from what its actors did; `None` if it has none. Operations are
    /// worth handing over only if there is one.
    fn observer(&self) -> Option<Box<dyn Observe>> {
        None
    }
}

/// Parameters and seed -> workload.
pub type Build = fn(&Params, u64) -> Result<Box<dyn Workload>, ParamError>;

/// A line of the registry.
#[derive(Clone, Copy)]
pub struct WorkloadEntry {
    pub name: &'static str,
    pub sentence: &'static str,
    pub params: &'static [ParamSpec],
    pub build: Build,
}

impl std::fmt::Debug for WorkloadEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkloadEntry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every workload there is. Adding one is its file and its line here.
pub const WORKLOADS: &[WorkloadEntry] = &[
    journal::ENTRY,
    access::ENTRY,
    bulk::ENTRY,
    checkpoint::ENTRY,
    graphdb::ENTRY,
    maildir::ENTRY,
    memory::ENTRY,
    pipeline::ENTRY,
    sdet::ENTRY,
    stream::ENTRY,
    syncs::ENTRY,
];

pub mod access;
pub mod bulk;
pub mod checkpoint;
pub mod graphdb;
pub mod journal;
pub mod maildir;
pub mod memory;
pub mod pipeline;
pub mod scenario;
pub mod sdet;
pub mod stream;
pub mod syncs;

/// The workload of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static WorkloadEntry> {
    WORKLOADS.iter().find(|entry| entry.name == name)
}

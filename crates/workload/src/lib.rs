//! Workloads as pure streams of operations: name + parameters + seed -> actors that each yield `Op`s.
//!
//! This crate does no I/O, reads no clock, and does not depend on who performs the operations. The host performs them,
//! the simulator models them, and the same seed gives the same operations on both.
//!
//! - [`Workload`] describes its [`Footprint`] and creates [`Actor`]s. Each has a [`Stream`] of [`Op`]s.
//! - [`WORKLOADS`] is the registry; each [`WorkloadEntry`] declares its parameters as [`ParamSpec`]s and is built from
//!   [`Params`].
//! - [`Observe`] turns the performed operations into the workload's own results.
//! - [`scenario`] reads scenario files: machine, settings and workloads.

pub mod dice;
pub mod histogram;
pub mod observe;
pub mod outcome;
pub mod params;

pub use observe::{Observation, Observe};
pub use params::{ParamError, ParamKind, ParamSpec, Params};

use serde::{Deserialize, Serialize};

use flatwater_recording::OpKind;

/// A file of the workload. Its path is `Workload::path(file)`, relative to the scenario's directory. Ids instead of
/// paths keep operations small and free of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

/// A directory; its path is `Workload::directory_path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DirId(pub u64);

/// A readers-writer lock inside the program (not a file lock), shared by the actors of one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockId(pub u32);

/// An operation of an actor. Files are opened on first use, unless `Open` or `Create` comes first. Handles belong to
/// the workload, not to the actor.
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
    /// pread(); reading past the end is not an error.
    Read {
        file: FileId,
        offset_bytes: u64,
        bytes: u64,
    },
    /// read() into new memory, which the thread keeps until `DropKept`.
    ReadKept {
        file: FileId,
        offset_bytes: u64,
        bytes: u64,
    },
    /// Frees the memory of `ReadKept` and `TouchOwn`.
    DropKept,
    /// Reads (or writes) one byte in each page of the thread's own memory, which is allocated on first touch.
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
    /// Reads (or writes) one byte in each page of a range of a mapped file.
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
    /// syncfs() of the file system with the workload's files; a model syncs all its file systems.
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
    /// Removes an empty directory. Counted as unlink, because unlinkat() does both.
    Rmdir {
        dir: DirId,
    },
    List {
        dir: DirId,
    },
    /// Open loop: wait until this instant after the workload's start. The latency of the next operation counts from
    /// it.
    SleepUntil {
        at_ns: u64,
    },
    Sleep {
        ns: u64,
    },
    /// Uses CPU time in user space.
    Compute {
        ns: u64,
    },
    /// While an actor waits for exclusive access, no further actor gets shared access (like std's RwLock on Linux).
    /// Otherwise readers could keep a checkpoint waiting forever.
    Lock {
        lock: LockId,
        exclusive: bool,
    },
    Unlock {
        lock: LockId,
    },
    /// Starts the actor with this index (one with `start: ActorStart::OnSpawn`) as a separate process.
    Spawn {
        actor: usize,
    },
    /// Waits until all actors that this one has spawned have ended.
    WaitSpawned,
    /// From here on this actor's operations are measured, or no longer: preparation is not measured. Actors begin
    /// measured. An actor that prepares yields `on: false` first, and `on: true` when it is ready. The workload's
    /// duration begins when no actor is preparing any more.
    Measure {
        on: bool,
    },
    /// While any actor requests it (`on`), the run continues after its duration, because the machine must first reach
    /// a certain state (a number of pages read), which takes longer on a slow machine. The host limits the extension.
    KeepRunning {
        on: bool,
    },
    /// Marks progress for the workload's results; the workload defines the meaning of `value`.
    Mark {
        mark: Mark,
        value: u64,
    },
}

/// Progress that a workload reports during a run.
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
    /// The file of the operation, if it has one.
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

    /// The kind under which its latency is counted; `None` if it is not a call (sleeps, marks, unlocks).
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

/// The operations of one actor. Pure: the result depends only on parameters, seed and the instants passed to `next`.
pub trait Stream: Send {
    /// The next operation, or `None` at the actor's end. `now_ns` is the time since the workload's start.
    fn next(&mut self, now_ns: u64) -> Option<Op>;
}

/// One thread or process of a workload.
pub struct Actor {
    /// Name of the thread; at most 15 bytes, the kernel's limit for comm.
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
    /// The scenario judges its latencies.
    Foreground,
    /// Only disturbs the foreground; its latencies are recorded only under its own thread name.
    Neighbour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorStart {
    Immediately,
    /// Begins when another actor yields `Op::Spawn` with its index; on the host as a separate process.
    OnSpawn,
}

/// Resources that a workload needs. The preflight check compares them with the free resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub disk_bytes: u64,
    /// Additional disk space per second of the run.
    pub growth_bytes_per_s: u64,
    pub files: u64,
    /// Anonymous memory of the workload itself, without page cache.
    pub memory_bytes: u64,
    pub threads: u32,
    pub processes: u32,
}

/// A workload, built from its parameters.
pub trait Workload: Send + Sync {
    fn footprint(&self) -> Footprint;

    /// Creates the actors, each with a random generator derived from the seed. Every call creates new ones.
    fn actors(&self) -> Vec<Actor>;

    /// Path relative to the scenario's directory; never outside that directory.
    fn path(&self, file: FileId) -> String;

    /// The directory of this file, for models that count dentries and inodes. By default all files are in the
    /// workload's own directory.
    fn directory(&self, _file: FileId) -> DirId {
        DirId(0)
    }

    fn directory_path(&self, _dir: DirId) -> String {
        String::new()
    }

    /// The parent of this directory; `None` if the parent is the workload's own directory.
    fn directory_above(&self, _dir: DirId) -> Option<DirId> {
        None
    }

    /// An observer that computes the workload's results from its operations; `None` if it has none. Operations need to
    /// be reported only if there is one.
    fn observer(&self) -> Option<Box<dyn Observe>> {
        None
    }
}

/// Builds a workload from parameters and seed.
pub type Build = fn(&Params, u64) -> Result<Box<dyn Workload>, ParamError>;

/// An entry of the registry.
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

/// All workloads. To add one, add its file and an entry here.
pub const WORKLOADS: &[WorkloadEntry] = &[
    journal::ENTRY,
    access::ENTRY,
    bulk::ENTRY,
    checkpoint::ENTRY,
    graphdb::ENTRY,
    maildir::ENTRY,
    memory::ENTRY,
    observed::ENTRY,
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
pub mod observed;
pub mod pipeline;
pub mod scenario;
pub mod sdet;
pub mod stream;
pub mod syncs;

/// The workload with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static WorkloadEntry> {
    WORKLOADS.iter().find(|entry| entry.name == name)
}

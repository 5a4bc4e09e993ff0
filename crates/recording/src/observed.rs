//! Which operations of the targets could be observed. A recording without observed operations says nothing about
//! stalls, so reports must not present it as quiet.

use serde::{Deserialize, Serialize};

/// A way in which programs access files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AccessKind {
    /// System calls on files: read(), write(), fsync() and similar.
    FileCalls,
    /// Page faults of user code: reads and writes of mapped files.
    PageFaults,
    /// System calls on files that are not timed: fcntl(), flock(), setxattr() ...
    OtherCalls,
    /// Requests submitted to an io_uring.
    IoUring,
    /// Requests submitted with io_submit().
    LinuxAio,
}

impl AccessKind {
    /// The name in summaries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AccessKind::FileCalls => "file-calls",
            AccessKind::PageFaults => "page-faults",
            AccessKind::OtherCalls => "other-calls",
            AccessKind::IoUring => "io-uring",
            AccessKind::LinuxAio => "linux-aio",
        }
    }

    /// A plural noun for messages.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            AccessKind::FileCalls => "system calls on files",
            AccessKind::PageFaults => "page faults",
            AccessKind::OtherCalls => "other system calls that reach files",
            AccessKind::IoUring => "io_uring requests",
            AccessKind::LinuxAio => "io_submit() requests",
        }
    }
}

/// Whether the operations of one kind were timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Observed {
    /// The way in which the files were accessed.
    pub access: AccessKind,
    /// Whether their durations were measured.
    pub timed: bool,
    /// Number of operations, timed or not; absent if not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Why they were not timed; empty if they were.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The remedy; empty if nothing helps.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// The processes that use this access; empty if it applies to all targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
}

impl Observed {
    /// All operations of this kind were timed.
    #[must_use]
    pub fn timed(access: AccessKind, count: Option<u64>) -> Observed {
        Observed { access, timed: true, count, why: String::new(), remedy: String::new(), pids: Vec::new() }
    }

    /// No operation of this kind could be timed.
    #[must_use]
    pub fn missed(access: AccessKind, why: impl Into<String>, remedy: impl Into<String>) -> Observed {
        Observed { access, timed: false, count: None, why: why.into(), remedy: remedy.into(), pids: Vec::new() }
    }

    /// Sets the number of operations.
    #[must_use]
    pub fn counted(mut self, count: u64) -> Observed {
        self.count = Some(count);
        self
    }

    /// Limits the statement to these processes.
    #[must_use]
    pub fn of(mut self, pids: Vec<u32>) -> Observed {
        self.pids = pids;
        self
    }
}

/// A watched process, with its state when first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WatchedProcess {
    /// Process id in the recorded machine.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// `comm`, from the kernel.
    pub name: String,
    /// Path of the executable.
    pub executable: Option<String>,
    /// Number of threads that were seen.
    pub threads: u64,
    /// `postgresql.service`, `container 8f3b0c1d2e4f of pod ...`; absent if the cgroup's path names neither.
    pub container: Option<String>,
    /// Title that the process wrote over its command line (`postgres: checkpointer`); absent if it did not change its
    /// command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl WatchedProcess {
    /// A process with one thread.
    #[must_use]
    pub fn new(pid: u32, parent: u32, name: impl Into<String>) -> WatchedProcess {
        WatchedProcess { pid, parent, name: name.into(), threads: 1, ..WatchedProcess::default() }
    }
}

//! What could be seen of the targets at all. A recording in which nothing could be seen says nothing about stalls, so it
//! must never read as one in which nothing was wrong.

use serde::{Deserialize, Serialize};

/// One way in which a program reaches its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AccessKind {
    /// System calls on files: read(), write(), fsync() and similar.
    FileCalls,
    /// Page faults of user code, which is how a mapped file is read and written.
    PageFaults,
    /// System calls that reach files and that nobody times: fcntl(), flock(), setxattr() ...
    OtherCalls,
    /// Requests handed to an io_uring.
    IoUring,
    /// Requests handed to io_submit().
    LinuxAio,
}

impl AccessKind {
    /// As summaries have it.
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

    /// For people, in the plural.
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

/// Whether operations of one kind were timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Observed {
    pub access: AccessKind,
    pub timed: bool,
    /// How many there were, timed or not; absent where they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Why they were not timed; empty where they were.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What the user can do about it; empty where nothing can be done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// Which processes do this; empty where it holds for all targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
}

impl Observed {
    /// Every operation of this kind was timed.
    #[must_use]
    pub fn timed(access: AccessKind, count: Option<u64>) -> Observed {
        Observed { access, timed: true, count, why: String::new(), remedy: String::new(), pids: Vec::new() }
    }

    /// None of this kind could be timed.
    #[must_use]
    pub fn missed(access: AccessKind, why: impl Into<String>, remedy: impl Into<String>) -> Observed {
        Observed { access, timed: false, count: None, why: why.into(), remedy: remedy.into(), pids: Vec::new() }
    }

    /// The same, with how many there were.
    #[must_use]
    pub fn counted(mut self, count: u64) -> Observed {
        self.count = Some(count);
        self
    }

    /// The same, of these processes only.
    #[must_use]
    pub fn of(mut self, pids: Vec<u32>) -> Observed {
        self.pids = pids;
        self
    }
}

/// A process that was watched, as it was when it was first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WatchedProcess {
    pub pid: u32,
    pub parent: u32,
    /// `comm`, as the kernel keeps it.
    pub name: String,
    pub executable: Option<String>,
    pub threads: u64,
    /// `postgresql.service`, `container 8f3b0c1d2e4f of pod ...`; absent where its cgroup names nothing.
    pub container: Option<String>,
    /// What the process calls itself where others have their command line (`postgres: checkpointer`); absent for
    /// programs that leave their command line alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl WatchedProcess {
    #[must_use]
    pub fn new(pid: u32, parent: u32, name: impl Into<String>) -> WatchedProcess {
        WatchedProcess { pid, parent, name: name.into(), threads: 1, ..WatchedProcess::default() }
    }
}

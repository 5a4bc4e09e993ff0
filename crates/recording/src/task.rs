//! Tasks: a thread, with its process and cgroup.

/// A thread or a whole process.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// Process id (tgid). 0 is the idle task, or no process at all; see [`Task::is_only_a_cgroup`].
    pub pid: u32,
    /// Thread id; 0 for a whole process.
    pub tid: u32,
    /// `comm` of the thread, or of the process for a whole process.
    pub name: String,
    /// Path of the cgroup as in /proc/PID/cgroup (on version 1, of the memory controller). Absent if it could not be
    /// read in time, for example because the process had ended.
    pub cgroup: Option<String>,
}

impl Task {
    /// Printed for a program of which only the cgroup is known.
    pub const SOME_PROGRAM: &str = "some program";

    /// A task without a known cgroup.
    #[must_use]
    pub fn new(pid: u32, tid: u32, name: impl Into<String>) -> Task {
        Task { pid, tid, name: name.into(), cgroup: None }
    }

    /// The same task in a cgroup.
    #[must_use]
    pub fn in_cgroup(mut self, cgroup: Option<String>) -> Task {
        self.cgroup = cgroup;
        self
    }

    /// Whether only the cgroup is known: the kernel charged it for a request that one of the kernel's own threads
    /// submitted.
    #[must_use]
    pub fn is_only_a_cgroup(&self) -> bool {
        self.pid == 0 && self.name.is_empty() && self.cgroup.as_deref().is_some_and(|path| path != "/")
    }

    /// The same process without the thread.
    #[must_use]
    pub fn process(&self) -> Task {
        Task { tid: 0, ..self.clone() }
    }
}

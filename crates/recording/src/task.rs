//! Who did something: a thread, with the process and the cgroup that it belongs to.

/// A thread, or a whole process.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// The process (tgid). 0: the idle task, that is to say no process; see [`Task::is_only_a_cgroup`].
    pub pid: u32,
    /// The thread; 0 where a whole process is meant.
    pub tid: u32,
    /// `comm` of the thread, or of the process where a whole process is meant.
    pub name: String,
    /// Path of its cgroup as /proc/PID/cgroup shows it: the memory controller's on version 1. Absent where it was not found
    /// out in time, as for a process that has ended.
    pub cgroup: Option<String>,
}

impl Task {
    /// What a program is called of which nothing is known but its cgroup.
    pub const SOME_PROGRAM: &str = "some program";

    #[must_use]
    pub fn new(pid: u32, tid: u32, name: impl Into<String>) -> Task {
        Task { pid, tid, name: name.into(), cgroup: None }
    }

    #[must_use]
    pub fn in_cgroup(mut self, cgroup: Option<String>) -> Task {
        self.cgroup = cgroup;
        self
    }

    /// Whether only a cgroup is known: the kernel charged it for a request that one of its own threads submitted.
    #[must_use]
    pub fn is_only_a_cgroup(&self) -> bool {
        self.pid == 0 && self.name.is_empty() && self.cgroup.as_deref().is_some_and(|path| path != "/")
    }

    /// The same process without its thread.
    #[must_use]
    pub fn process(&self) -> Task {
        Task { tid: 0, ..self.clone() }
    }
}

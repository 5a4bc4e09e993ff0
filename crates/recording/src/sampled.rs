//! Tasks for which one kernel stack was taken at one instant: SysRq-w and -t, /proc/PID/stack, hung-task and lockup
//! reports, crash's `bt`, `ps -o wchan`.
//!
//! Such a sample shows where a task was but not for how long; only a hung-task report gives the time too (and also
//! becomes a `Call`). The evidence is the number of tasks at the same place, and the place of the task that holds what
//! they wait for.

use serde::{Deserialize, Serialize};

use super::{Cause, StackId};

/// Maximum number of samples; later ones are dropped, with a gap.
pub const SAMPLED_TASKS_MAX: usize = 4096;

/// The place of a task at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SampledTask {
    /// ns on the recording's clock; absent if the log has no time.
    #[serde(default)]
    pub at_ns: Option<u64>,
    /// The tool that listed the task.
    pub reported_by: ReportedBy,
    /// `comm`; empty if the stack came without a task.
    #[serde(default)]
    pub task: String,
    /// Process id.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The kernel's letter of the state: D uninterruptible, S interruptible, R running or runnable; absent if not
    /// printed.
    #[serde(default)]
    pub state: Option<char>,
    /// Minimum time that the task had been there, if the report gives it.
    #[serde(default)]
    pub blocked_ns: Option<u64>,
    /// Innermost frame first, in the recording's stacks. A wait channel is a stack with one frame.
    #[serde(default)]
    pub stack: Option<StackId>,
    /// The cause that the symbol rules assign to the stack; absent if no rule matches a frame.
    #[serde(default)]
    pub cause: Option<Cause>,
    /// The frame that named the cause.
    #[serde(default)]
    pub frame: Option<String>,
    /// Locks that the report lists as held by this task (lockdep): `&type->i_mutex_dir_key#4`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// The lock that the task waits for, if the report names it.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Name and pid of the holder of that lock as printed: `blocked on a mutex likely owned by task x:12`.
    #[serde(default)]
    pub owner: Option<String>,
    /// Number of tasks with this name, state and stack in the log; at least 1.
    pub count: u32,
    /// File and line of the first of them in the log.
    #[serde(default)]
    pub file: String,
    /// Its line in the file, counted from 1.
    #[serde(default)]
    pub line: u32,
}

/// The kind of report that showed the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ReportedBy {
    /// khungtaskd: `INFO: task x:1 blocked for more than 120 seconds`.
    HungTask,
    /// SysRq-w, SysRq-t, or the task line of any other report (`x D ...`, `task:x state:D`).
    TaskList,
    /// /proc/PID/stack.
    ProcStack,
    /// A stack without any information about its task.
    BareFrames,
    /// `bt` and `foreach bt` of crash, which read a dump.
    Crash,
    /// `ps -o wchan`, /proc/PID/wchan.
    WaitChannel,
    /// Soft and hard lockups, RCU stalls: the task was running, not waiting.
    Lockup,
    /// Lockdep's list of held locks.
    HeldLocks,
    /// Any other warning of the kernel with a call trace.
    Warning,
    /// offcputime: `blocked_ns` is the sum over the whole recording.
    OffCpu,
    /// A stack that a tracer printed with an event or a sample: the task may have been running.
    Traced,
}

impl SampledTask {
    /// A task of which nothing else is known.
    #[must_use]
    pub fn new(reported_by: ReportedBy) -> SampledTask {
        SampledTask {
            at_ns: None,
            reported_by,
            task: String::new(),
            pid: None,
            state: None,
            blocked_ns: None,
            stack: None,
            cause: None,
            frame: None,
            holds: Vec::new(),
            waits_for: None,
            owner: None,
            count: 1,
            file: String::new(),
            line: 0,
        }
    }

    /// Whether the task was asleep. A stack without a state (/proc/PID/stack) counts as asleep, because a running task
    /// has no stack there.
    #[must_use]
    pub fn slept(&self) -> bool {
        match self.state {
            Some(state) => !matches!(state, 'R' | 'X' | 'Z'),
            None => !matches!(self.reported_by, ReportedBy::Lockup | ReportedBy::Warning | ReportedBy::Traced),
        }
    }
}

impl ReportedBy {
    /// A noun for messages.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            ReportedBy::HungTask => "a hung-task report",
            ReportedBy::TaskList => "a list of tasks",
            ReportedBy::ProcStack => "/proc/PID/stack",
            ReportedBy::BareFrames => "a stack without its task",
            ReportedBy::Crash => "crash's bt",
            ReportedBy::WaitChannel => "a wait channel",
            ReportedBy::Lockup => "a lockup report",
            ReportedBy::HeldLocks => "a list of held locks",
            ReportedBy::Warning => "a kernel warning",
            ReportedBy::Traced => "a tracer's stack",
            ReportedBy::OffCpu => "sleeping times summed by stack",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ReportedBy, SampledTask};

    #[test]
    fn a_lockup_is_not_a_sleep_but_a_stack_in_proc_is() {
        let of = |by, state| SampledTask { state, ..SampledTask::new(by) };
        assert!(of(ReportedBy::ProcStack, None).slept());
        assert!(of(ReportedBy::TaskList, Some('D')).slept());
        assert!(!of(ReportedBy::TaskList, Some('R')).slept());
        assert!(!of(ReportedBy::Lockup, None).slept());
    }

    #[test]
    fn json_round_trips_and_older_json_may_lack_fields() {
        let task = SampledTask { state: Some('D'), ..SampledTask::new(ReportedBy::Crash) };
        let json = serde_json::to_string(&task).expect("json");
        assert_eq!(serde_json::from_str::<SampledTask>(&json).expect("read"), task);
        let bare = r#"{"reported_by":"wait-channel","count":3}"#;
        assert_eq!(serde_json::from_str::<SampledTask>(bare).expect("read").count, 3);
    }
}

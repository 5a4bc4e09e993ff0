//! Tasks of which one kernel stack was taken at one moment: SysRq-w and -t, /proc/PID/stack, hung-task and lockup
//! reports, crash's `bt`, `ps -o wchan`.
//!
//! Such a sample says where a task was, and not for how long: only a hung-task report says that too (and is a `Call` as
//! well). What speaks is how many tasks stand in one place, and where the one stands that holds what they wait for.

use serde::{Deserialize, Serialize};

use super::{Cause, StackId};

/// Samples beyond these are dropped, with a gap.
pub const SAMPLED_TASKS_MAX: usize = 4096;

/// Where a task was at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SampledTask {
    /// ns on the recording's clock; absent where the log gives no time.
    #[serde(default)]
    pub at_ns: Option<u64>,
    pub reported_by: ReportedBy,
    /// `comm`; empty where the stack came without its task.
    #[serde(default)]
    pub task: String,
    #[serde(default)]
    pub pid: Option<u32>,
    /// The state as the kernel's letter: D uninterruptible, S interruptible, R running or ready; absent where not printed.
    #[serde(default)]
    pub state: Option<char>,
    /// For how long it had been there at least, where the report says so.
    #[serde(default)]
    pub blocked_ns: Option<u64>,
    /// Innermost frame first, in the recording's stacks. A wait channel is a stack of one frame.
    #[serde(default)]
    pub stack: Option<StackId>,
    /// What the symbol rules make of the stack; absent where they know no frame.
    #[serde(default)]
    pub cause: Option<Cause>,
    /// The frame that named the cause.
    #[serde(default)]
    pub frame: Option<String>,
    /// Locks that the report lists as held by this task (lockdep), `&type->i_mutex_dir_key#4`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// The lock that it waits for, where the report names it.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// The task that holds that lock, by name and pid as printed: `blocked on a mutex likely owned by task x:12`.
    #[serde(default)]
    pub owner: Option<String>,
    /// Tasks of this name, state and stack that the log shows; 1 or more.
    pub count: u32,
    /// Where the log has it: file and line of the first.
    #[serde(default)]
    pub file: String,
    #[serde(default)]
    pub line: u32,
}

/// Which kind of report showed the task.
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
    /// Frames without a word about the task.
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
    /// offcputime: `blocked_ns` is the sum over the time of the recording.
    OffCpu,
    /// A stack that a tracer printed with an event or a sample: the task may have been running.
    Traced,
}

impl SampledTask {
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

    /// Whether the task was asleep. Of a stack without a state (/proc/PID/stack) it is taken to be: a running task has
    /// none there.
    #[must_use]
    pub fn slept(&self) -> bool {
        match self.state {
            Some(state) => !matches!(state, 'R' | 'X' | 'Z'),
            None => !matches!(self.reported_by, ReportedBy::Lockup | ReportedBy::Warning | ReportedBy::Traced),
        }
    }
}

impl ReportedBy {
    /// For people.
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
            ReportedBy::OffCpu => "a sum of sleeps by stack",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ReportedBy, SampledTask};

    #[test]
    fn a_lockup_is_no_sleep_and_a_stack_in_proc_is_one() {
        let of = |by, state| SampledTask { state, ..SampledTask::new(by) };
        assert!(of(ReportedBy::ProcStack, None).slept());
        assert!(of(ReportedBy::TaskList, Some('D')).slept());
        assert!(!of(ReportedBy::TaskList, Some('R')).slept());
        assert!(!of(ReportedBy::Lockup, None).slept());
    }

    #[test]
    fn it_comes_back_from_json_and_older_json_lacks_fields() {
        let task = SampledTask { state: Some('D'), ..SampledTask::new(ReportedBy::Crash) };
        let json = serde_json::to_string(&task).expect("json");
        assert_eq!(serde_json::from_str::<SampledTask>(&json).expect("read"), task);
        let bare = r#"{"reported_by":"wait-channel","count":3}"#;
        assert_eq!(serde_json::from_str::<SampledTask>(bare).expect("read").count, 3);
    }
}

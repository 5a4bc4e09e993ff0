//! The input of the controller: stalls with their evidence, the limit's effect on the victim, and its state. Late and
//! missing observations are values as well.

use serde::Serialize;

use crate::action::{Action, Device, Direction, Setting};
use crate::controller::EpisodeId;
use crate::group::GroupPath;
use crate::reason::Refusal;

/// Everything since the last step.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// CLOCK_BOOTTIME, ns: it counts suspended time, and no program can set it.
    pub now_ns: u64,
    pub stalls: Vec<VictimStall>,
    /// Answers to `Decision::Measure`, in any order; they may be late or never come.
    pub measures: Vec<Measure>,
    pub lease: Lease,
    pub orders: Vec<Order>,
}

/// The calls of one group that waited, and the processes that made them wait.
#[derive(Clone, Debug)]
pub struct VictimStall {
    pub victim: Victim,
    /// Time lost in the span, summed over the group's calls, ns.
    pub stall_ns: u64,
    /// Share of `stall_ns` in which a limit of the victim's own cgroup held the calls back, 0 to 1.
    pub own_limit_share: f64,
    /// Whether events were lost or hooks are shed, so that another process may be to blame.
    pub is_incomplete: bool,
    /// Largest share first.
    pub suspects: Vec<Suspect>,
}

/// A group of calls that waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Victim {
    /// `None` for the root group.
    pub group: Option<GroupPath>,
    /// A program of the group, for people.
    pub program: String,
    /// Whether only root can put a process into the group.
    pub is_trusted: bool,
    /// Slow calls in the span, their longest, and the span.
    pub calls: u64,
    pub worst_ns: u64,
    pub span_ns: u64,
}

/// A process, or the programs of a cgroup, that made a victim wait.
#[derive(Clone, Debug)]
pub struct Suspect {
    pub program: String,
    /// `None` if it is not known, or for the root group.
    pub group: Option<GroupPath>,
    pub is_in_root_group: bool,
    /// Whether only root can change the group's settings.
    pub is_trusted: bool,
    /// Share of the victim's stall time, 0 to 1.
    pub share: f64,
    pub stall_ns: u64,
    pub means: Means,
    /// Whether the shares are measured, not sampled or inferred.
    pub is_measured: bool,
    /// Whether its group is one that a waiting call belongs to.
    pub is_in_victims_group: bool,
    /// Whether it used the victim's file system; `None` if that is not known.
    pub same_file_system: Option<bool>,
    /// One sentence for each kind of evidence.
    pub evidence: Vec<String>,
    pub amount: Amount,
    pub knobs: Knobs,
}

/// How the aggressor made the victim wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// It had requests at the device ahead of the victim's, or at the same time, or in the device's cache.
    Device,
    /// It dirtied pages, so that the kernel paused the victim.
    DirtyPages,
    /// It took the memory that had to be reclaimed.
    Memory,
    /// It occupied the CPU.
    Cpu,
    /// It had the lock.
    Lock,
    /// A journal's commit wrote its changes.
    Journal,
    /// Another means, on which no limit acts.
    Other,
}

/// How much the aggressor uses. `None`: not observed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    pub device: Option<Device>,
    pub direction: Option<Direction>,
    pub bytes_per_s: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// CPU time per second, us.
    pub cpu_us_per_s: Option<u64>,
}

/// The present value of a setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// In the form of `Setting::value_in`.
    Value(String),
    /// The group was removed.
    Gone,
    /// Not readable at this time.
    #[default]
    Missing,
}

/// The text of each knob's file, or why it cannot be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knobs {
    pub io_max: Result<String, Refusal>,
    pub io_weight: Result<String, Refusal>,
    pub memory_high: Result<String, Refusal>,
    pub cpu_max: Result<String, Refusal>,
    pub cpu_weight: Result<String, Refusal>,
}

impl Knobs {
    /// Knobs that cannot be set for one reason.
    #[must_use]
    pub fn none(why: Refusal) -> Knobs {
        Knobs { io_max: Err(why), io_weight: Err(why), memory_high: Err(why), cpu_max: Err(why), cpu_weight: Err(why) }
    }

    /// The text of the file that this setting is written to.
    pub fn text(&self, setting: Setting) -> Result<&str, Refusal> {
        let text = match setting {
            Setting::IoMax { .. } => &self.io_max,
            Setting::IoWeight { .. } => &self.io_weight,
            Setting::MemoryHigh { .. } => &self.memory_high,
            Setting::CpuMax { .. } => &self.cpu_max,
            Setting::CpuWeight { .. } => &self.cpu_weight,
        };
        text.as_deref().map_err(|why| *why)
    }
}

/// An interval in which the victim's calls are measured, with the limit in force or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub number: u64,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// The answer to a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    pub number: u64,
    pub victim: Sight,
    /// The throughput of the aggressor in the window: bytes or CPU time per second; `None` if not observed.
    pub aggressor_per_s: Option<f64>,
}

/// The victim's own calls in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sight {
    /// Stall time per second of the window, in seconds: 0 if it made calls and none was slow.
    Stalled(f64),
    /// It made no calls: that is not the same as fast calls.
    Idle,
    /// Its processes have ended.
    Gone,
    /// Events were lost, or hooks were shed.
    NotObserved,
}

/// The state of the limit, as the process that guarantees its end reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lease {
    /// No limit is in force.
    #[default]
    Free,
    /// A limit was requested, or its end, and the answer has not come yet.
    Pending,
    /// The limit is in force.
    Held { action: Action, reading: Reading },
    /// The kernel refused the limit, or showed another value afterwards; nothing is in force.
    Failed,
    /// The setting has a value that another program or person chose, and that stays.
    Foreign,
    /// The group was removed, and the limit with it.
    Gone,
    /// The process does not answer.
    Lost,
}

/// An order of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// End this episode, and leave the cgroup alone.
    Release(EpisodeId),
    ReleaseAll,
    /// The daemon ends.
    End,
}

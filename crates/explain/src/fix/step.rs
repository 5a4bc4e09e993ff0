//! One change on the recorded machine: a file, a property or a process, its new value, and where its present value is.

use flatwater_recording::CgroupFile;
use flatwater_recording::knob::Key;

/// One change on a machine. [`super::commands`] prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// `restore` is the setting in force, which may be the one that this change clears; absent if it is unknown.
    Sysctl {
        key: Key,
        value: String,
        restore: Option<(Key, String)>,
    },
    /// `old` is absent if it is unknown.
    File {
        file: SysFile,
        value: String,
        old: Option<String>,
    },
    /// SCHED_FIFO for threads.
    RealTime {
        priority: String,
        threads: Vec<u32>,
    },
    Remount {
        mount_point: String,
        options: Vec<&'static MountOption>,
    },
    /// `file` is the name in the group's version of cgroups.
    Cgroup {
        group: Group,
        file: &'static str,
        value: Amount,
    },
    /// A property of a systemd unit, the owner of the cgroup (version 2). It takes no expression of the shell.
    Unit {
        unit: String,
        group: Group,
        file: CgroupFile,
        value: Figure,
    },
    /// Moves processes to a new cgroup.
    Move {
        pids: Vec<u32>,
        to: Group,
    },
}

/// A file of /sys that contains one value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SysFile {
    HugePages(&'static str),
    LruGen(&'static str),
    Queue { disk: String, attribute: &'static str },
}

/// A cgroup in the hierarchy of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    pub controller: flatwater_recording::Controller,
    /// Path below the hierarchy's mount point.
    pub path: String,
    /// Whether a step before this one creates it, so that it has the kernel's defaults.
    pub is_new: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Amount {
    Figure(Figure),
    /// Half of what the group uses when the command runs.
    HalfOfMemory,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Figure {
    Number(u64),
    /// Bytes per second to one disk.
    Rate {
        disk: String,
        bytes_per_s: u64,
    },
}

/// A mount option that a remount sets.
#[derive(Debug, PartialEq, Eq)]
pub struct MountOption {
    pub name: &'static str,
    /// What findmnt prints for the group of options that this one belongs to, as an extended regular expression.
    pub present: &'static str,
    /// The option in force if findmnt prints none of the group.
    pub absent: &'static str,
    /// What a remount needs before it accepts another option of the group (mount(8) merges the present options).
    pub clears: &'static str,
    /// The first kernel with this option.
    pub since: [u32; 3],
}

pub static MOUNT_OPTIONS: [MountOption; 3] = [
    MountOption { name: "lazytime", present: "lazytime", absent: "nolazytime", clears: "", since: [4, 0, 0] },
    MountOption {
        name: "noatime",
        present: "noatime|relatime",
        absent: "strictatime",
        clears: "atime,",
        since: [2, 6, 0],
    },
    MountOption { name: "nodiscard", present: "discard", absent: "nodiscard", clears: "", since: [2, 6, 28] },
];

impl SysFile {
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            SysFile::HugePages(attribute) => format!("/sys/kernel/mm/transparent_hugepage/{attribute}"),
            SysFile::LruGen(attribute) => format!("/sys/kernel/mm/lru_gen/{attribute}"),
            SysFile::Queue { disk, attribute } => format!("/sys/block/{disk}/queue/{attribute}"),
        }
    }
}

impl Group {
    #[must_use]
    pub fn directory(&self) -> String {
        format!("{}/{}", self.controller.mount_point.trim_end_matches('/'), self.path.trim_start_matches('/'))
    }
}

//! Where commands for the recorded machine apply: its cgroup controllers and the file system of the target's files.

use serde::{Deserialize, Serialize};

/// A cgroup controller and the hierarchy that it is mounted in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Controller {
    /// Which controller it is.
    pub name: ControllerName,
    /// 1 or 2.
    pub version: u32,
    /// Mount point of the hierarchy: `/sys/fs/cgroup/memory`.
    pub mount_point: String,
}

impl Controller {
    /// A controller and its hierarchy.
    #[must_use]
    pub fn new(name: ControllerName, version: u32, mount_point: impl Into<String>) -> Controller {
        Controller { name, version, mount_point: mount_point.into() }
    }
}

/// A cgroup controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerName {
    /// memory
    #[default]
    Memory,
    /// `blkio` in version 1.
    Io,
    /// cpu
    Cpu,
}

impl ControllerName {
    /// All controllers.
    pub const ALL: [ControllerName; 3] = [ControllerName::Memory, ControllerName::Io, ControllerName::Cpu];

    /// The kernel's name in this cgroup version.
    #[must_use]
    pub fn in_version(self, version: u32) -> &'static str {
        match self {
            ControllerName::Memory => "memory",
            ControllerName::Io if version == 1 => "blkio",
            ControllerName::Io => "io",
            ControllerName::Cpu => "cpu",
        }
    }
}

/// A limit or weight of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupFile {
    /// io.max
    IoMax,
    /// io.weight
    IoWeight,
    /// memory.max
    MemoryMax,
    /// memory.high
    MemoryHigh,
    /// cpu.max
    CpuMax,
    /// cpu.weight
    CpuWeight,
}

impl CgroupFile {
    /// The file's name in version 2.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CgroupFile::IoMax => "io.max",
            CgroupFile::IoWeight => "io.weight",
            CgroupFile::MemoryMax => "memory.max",
            CgroupFile::MemoryHigh => "memory.high",
            CgroupFile::CpuMax => "cpu.max",
            CgroupFile::CpuWeight => "cpu.weight",
        }
    }

    /// The name of the file with this effect in a cgroup version; `None` if that version has none with one value. In
    /// version 1 `IoMax` is the limit on writes.
    #[must_use]
    pub fn in_version(self, version: u32) -> Option<&'static str> {
        match (self, version) {
            (file, 2) => Some(file.name()),
            (CgroupFile::IoMax, 1) => Some("blkio.throttle.write_bps_device"),
            (CgroupFile::MemoryMax, 1) => Some("memory.limit_in_bytes"),
            (CgroupFile::CpuWeight, 1) => Some("cpu.shares"),
            _ => None,
        }
    }

    /// The systemd property that sets the file; of `IoMax` the limit on writes.
    #[must_use]
    pub fn unit_property(self) -> &'static str {
        match self {
            CgroupFile::IoMax => "IOWriteBandwidthMax",
            CgroupFile::IoWeight => "IOWeight",
            CgroupFile::MemoryMax => "MemoryMax",
            CgroupFile::MemoryHigh => "MemoryHigh",
            CgroupFile::CpuMax => "CPUQuota",
            CgroupFile::CpuWeight => "CPUWeight",
        }
    }
}

/// The file system that contains the target's files, and its device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Storage {
    /// Where the file system is mounted.
    pub mount_point: String,
    /// `ext4`, `xfs`, `btrfs`, ...
    pub file_system: String,
    /// The whole disk, to which queue settings apply: `vda`; absent for file systems without a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Whether a commit of this file system also writes what other processes changed; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_journal: Option<bool>,
    /// The I/O schedulers that the disk's queue offers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedulers: Vec<String>,
}

impl Storage {
    /// A file system of which nothing else is known.
    #[must_use]
    pub fn new(mount_point: impl Into<String>, file_system: impl Into<String>) -> Storage {
        Storage { mount_point: mount_point.into(), file_system: file_system.into(), ..Storage::default() }
    }
}

//! Limits: one setting of one cgroup.

use std::fmt;

use flatwater_recording::CgroupFile;
use flatwater_recording::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::group::GroupPath;

/// A block device, as `io.max` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A direction of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    Read,
    Write,
}

/// A knob with its value. The lower the value, the harder the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Setting {
    IoMax {
        device: Device,
        direction: Direction,
        bytes_per_s: u64,
    },
    /// The default weight, 1 to 10,000; the kernel's default is 100.
    IoWeight {
        weight: u32,
    },
    MemoryHigh {
        bytes: u64,
    },
    /// Time per period of 100 ms.
    CpuMax {
        quota_us: u64,
    },
    /// 1 to 10,000; the kernel's default is 100.
    CpuWeight {
        weight: u32,
    },
}

/// The period of `cpu.max`.
pub const CPU_PERIOD_US: u64 = 100_000;
/// The kernel's default of both weights.
pub const WEIGHT_DEFAULT: u32 = 100;

impl Setting {
    #[must_use]
    pub fn file(self) -> CgroupFile {
        match self {
            Setting::IoMax { .. } => CgroupFile::IoMax,
            Setting::IoWeight { .. } => CgroupFile::IoWeight,
            Setting::MemoryHigh { .. } => CgroupFile::MemoryHigh,
            Setting::CpuMax { .. } => CgroupFile::CpuMax,
            Setting::CpuWeight { .. } => CgroupFile::CpuWeight,
        }
    }

    /// The text that is written to the knob's file.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Setting::IoMax { device, direction: Direction::Write, bytes_per_s } => {
                format!("{device} wbps={bytes_per_s}")
            }
            Setting::IoMax { device, direction: Direction::Read, bytes_per_s } => {
                format!("{device} rbps={bytes_per_s}")
            }
            Setting::IoWeight { weight } => format!("default {weight}"),
            Setting::MemoryHigh { bytes } => bytes.to_string(),
            Setting::CpuMax { quota_us } => format!("{quota_us} {CPU_PERIOD_US}"),
            Setting::CpuWeight { weight } => weight.to_string(),
        }
    }

    /// The text that removes the limit, if the knob had its default before.
    #[must_use]
    pub fn default_text(self) -> String {
        match self {
            Setting::IoMax { device, direction: Direction::Write, .. } => format!("{device} wbps=max"),
            Setting::IoMax { device, direction: Direction::Read, .. } => format!("{device} rbps=max"),
            Setting::IoWeight { .. } => format!("default {WEIGHT_DEFAULT}"),
            Setting::MemoryHigh { .. } => "max".to_owned(),
            Setting::CpuMax { .. } => format!("max {CPU_PERIOD_US}"),
            Setting::CpuWeight { .. } => WEIGHT_DEFAULT.to_string(),
        }
    }

    /// The present value of this knob, for this device and direction, in the file's text, as `value` prints it.
    /// `None` if the text does not have the file's format.
    #[must_use]
    pub fn value_in(self, text: &str) -> Option<String> {
        match self {
            Setting::IoMax { device, direction, .. } => {
                let key = if direction == Direction::Write { "wbps=" } else { "rbps=" };
                let number = device.to_string();
                // A device without a line has no limit.
                let mut lines = text.lines().map(str::split_whitespace);
                let line = lines.find_map(|mut fields| (fields.next() == Some(&number)).then_some(fields));
                let Some(mut fields) = line else { return Some("max".to_owned()) };
                fields.find_map(|field| field.strip_prefix(key)).map(str::to_owned)
            }
            Setting::IoWeight { .. } => {
                let line = text.lines().find_map(|line| line.strip_prefix("default "));
                Some(line.unwrap_or(text).trim().to_owned()).filter(|value| !value.contains(char::is_whitespace))
            }
            Setting::MemoryHigh { .. } | Setting::CpuWeight { .. } => Some(text.trim().to_owned()),
            Setting::CpuMax { .. } => {
                let (quota, period) = text.trim().split_once(' ')?;
                // Another period is a choice of another program, whatever the quota.
                let own = period.parse() == Ok(CPU_PERIOD_US);
                Some(if own { quota.to_owned() } else { text.trim().to_owned() })
            }
        }
    }

    /// The value, in the form of `value_in`.
    #[must_use]
    pub fn value(self) -> String {
        match self {
            Setting::IoMax { bytes_per_s, .. } => bytes_per_s.to_string(),
            Setting::IoWeight { weight } | Setting::CpuWeight { weight } => weight.to_string(),
            Setting::MemoryHigh { bytes } => bytes.to_string(),
            Setting::CpuMax { quota_us } => quota_us.to_string(),
        }
    }

    /// The knob's default, in the form of `value_in`.
    #[must_use]
    pub fn default_value(self) -> String {
        match self {
            Setting::IoMax { .. } | Setting::MemoryHigh { .. } | Setting::CpuMax { .. } => "max".to_owned(),
            Setting::IoWeight { .. } | Setting::CpuWeight { .. } => WEIGHT_DEFAULT.to_string(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::IoMax { direction: Direction::Write, bytes_per_s, .. } => {
                write!(f, "writes {}/s", Bytes(*bytes_per_s))
            }
            Setting::IoMax { direction: Direction::Read, bytes_per_s, .. } => {
                write!(f, "reads {}/s", Bytes(*bytes_per_s))
            }
            Setting::IoWeight { weight } => write!(f, "I/O weight {weight}"),
            Setting::MemoryHigh { bytes } => write!(f, "memory {}", Bytes(*bytes)),
            Setting::CpuMax { quota_us } => write!(f, "{} % of a CPU", quota_us * 100 / CPU_PERIOD_US),
            Setting::CpuWeight { weight } => write!(f, "CPU weight {weight}"),
        }
    }
}

/// One setting of one cgroup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Action {
    pub group: GroupPath,
    pub setting: Setting,
}

impl Action {
    /// The command that a person would run.
    #[must_use]
    pub fn command(&self) -> String {
        let (group, setting) = (quoted(self.group.as_str()), self.setting);
        format!("echo '{}' > /sys/fs/cgroup{group}/{}", setting.text(), setting.file().name())
    }

    /// The command that undoes `command`.
    #[must_use]
    pub fn undo_command(&self) -> String {
        let (group, setting) = (quoted(self.group.as_str()), self.setting);
        format!("echo '{}' > /sys/fs/cgroup{group}/{}", setting.default_text(), setting.file().name())
    }
}

/// A path for a shell: users choose the names of their groups.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-@:".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::{Action, Device, Direction, Setting};
    use crate::group::GroupPath;

    const DISK: Device = Device { major: 254, minor: 16 };

    fn writes(bytes_per_s: u64) -> Setting {
        Setting::IoMax { device: DISK, direction: Direction::Write, bytes_per_s }
    }

    #[test]
    fn values_are_read_in_the_kernels_formats() {
        let text = "8:0 rbps=max wbps=77 riops=max wiops=max\n254:16 rbps=9 wbps=1048576 riops=max wiops=5\n";
        assert_eq!(writes(1 << 20).value_in(text), Some(writes(1 << 20).value()));
        assert_eq!(writes(1).value_in(""), Some("max".to_owned()), "no limit on any device");
        assert_eq!(writes(1).value_in("8:0 wbps=7\n"), Some("max".to_owned()), "none on this device");
        assert_eq!(writes(1).value_in("254:16 riops=5\n"), None, "damaged");
        let high = Setting::MemoryHigh { bytes: 5 };
        assert_eq!((high.value_in("max\n"), high.default_value()), (Some("max".to_owned()), "max".to_owned()));
        let cpu = Setting::CpuMax { quota_us: 50_000 };
        assert_eq!(cpu.value_in("50000 100000\n"), Some(cpu.value()));
        assert_eq!(cpu.value_in("max 100000\n"), Some(cpu.default_value()));
        assert_eq!(cpu.value_in("max 5000\n").as_deref(), Some("max 5000"), "not the default");
        let weight = Setting::IoWeight { weight: 10 };
        assert_eq!(weight.value_in("default 100\n8:0 50\n"), Some(weight.default_value()));
        assert_eq!(Setting::CpuWeight { weight: 10 }.value_in("10\n"), Some("10".to_owned()));
    }

    #[test]
    fn a_command_quotes_the_names_of_users() {
        let group = GroupPath::new("/user.slice/a b;rm -rf '$HOME'").expect("a group");
        let command = Action { group, setting: writes(1 << 20) }.command();
        assert_eq!(
            command,
            "echo '254:16 wbps=1048576' > /sys/fs/cgroup'/user.slice/a b;rm -rf '\\''$HOME'\\'''/io.max"
        );
    }
}

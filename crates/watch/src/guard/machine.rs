//! Reads what the guard needs of cgroups: the settings, and how much a group uses.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use flatwater_guard::action::Direction;
use flatwater_guard::{Amount, Device, GroupPath, Knobs, Means, Refusal};
use flatwater_host::setup::lease::boottime_ns;
use flatwater_host::setup::limit;
use flatwater_recording::{CgroupFile, QueueOwner, RequestOp};

use crate::cgroup::Hierarchies;
use crate::second::Second;

/// The readings of each group, for rates.
#[derive(Debug, Default)]
pub struct Machine {
    cpu: BTreeMap<GroupPath, (u64, u64)>,
}

/// The known facts of a suspect's group.
#[derive(Clone, Debug)]
pub struct Facts {
    pub is_trusted: bool,
    pub amount: Amount,
    pub knobs: Knobs,
}

impl Default for Facts {
    fn default() -> Facts {
        Facts { is_trusted: false, amount: Amount::default(), knobs: Knobs::none(Refusal::GroupUnknown) }
    }
}

const GROUPS_MAX: usize = 256;
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// A file of a group of cgroup v2.
pub fn read(group: &GroupPath, file: &str) -> Option<String> {
    let mut text = String::new();
    limit::open(group).ok()?.read(file).ok()?.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The value of `key` in a file of lines `key value`.
pub fn number(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == key)?.1.trim().parse().ok()
}

/// CPU time that the group has used, us.
pub fn cpu_us(group: &GroupPath) -> Option<u64> {
    number(&read(group, "cpu.stat")?, "usage_usec")
}

/// Bytes that the group has read and written on all devices.
pub fn io_bytes(group: &GroupPath) -> Option<u64> {
    let text = read(group, "io.stat")?;
    let fields = text.split_whitespace().filter_map(|field| field.split_once('='));
    let bytes = fields.filter(|(key, _)| ["rbytes", "wbytes"].contains(key));
    Some(bytes.filter_map(|(_, value)| value.parse::<u64>().ok()).fold(0, u64::saturating_add))
}

impl Machine {
    pub fn is_trusted(&self, group: &GroupPath) -> bool {
        limit::is_trusted(group)
    }

    /// Reads the data for a limit against these means. `devices`: the devices that the victim waited for.
    pub fn facts(&mut self, group: &GroupPath, means: Means, seconds: &[&Second], devices: &BTreeSet<&str>) -> Facts {
        let text = |knob: CgroupFile| limit::knob_text(group, knob.name());
        let mut knobs = Knobs::none(Refusal::NoController);
        let mut amount = Amount::default();
        match means {
            Means::Device => {
                knobs.io_max = text(CgroupFile::IoMax);
                amount = of_device(group, seconds, devices);
                if amount.device.is_some_and(limit::has_io_cost) {
                    knobs.io_weight = text(CgroupFile::IoWeight);
                }
            }
            Means::Memory | Means::DirtyPages => {
                knobs.memory_high = text(CgroupFile::MemoryHigh);
                amount.memory_bytes = read(group, "memory.current").and_then(|text| text.trim().parse().ok());
            }
            Means::Cpu => {
                knobs.cpu_max = text(CgroupFile::CpuMax);
                knobs.cpu_weight = text(CgroupFile::CpuWeight);
                amount.cpu_us_per_s = self.cpu_us_per_s(group);
            }
            Means::Lock | Means::Journal | Means::Other => {}
        }
        Facts { is_trusted: limit::is_trusted(group), amount, knobs }
    }

    /// Since the last call for this group.
    fn cpu_us_per_s(&mut self, group: &GroupPath) -> Option<u64> {
        let (now_ns, now_us) = (boottime_ns(), cpu_us(group)?);
        if self.cpu.len() >= GROUPS_MAX {
            self.cpu.clear();
        }
        let (before_ns, before_us) = self.cpu.insert(group.clone(), (now_ns, now_us))?;
        let passed_ms = now_ns.saturating_sub(before_ns) / 1_000_000;
        now_us.saturating_sub(before_us).saturating_mul(1_000).checked_div(passed_ms)
    }
}

/// The direction and the device, of those that the victim waited for, in which the group moved most bytes.
fn of_device(group: &GroupPath, seconds: &[&Second], devices: &BTreeSet<&str>) -> Amount {
    let mut sums: BTreeMap<(&str, Direction), u64> = BTreeMap::new();
    let in_group = |row: &&QueueOwner| {
        let path = row.owner.as_ref().and_then(|owner| owner.cgroup.as_deref());
        devices.contains(row.device.as_str())
            && path.is_some_and(|path| Hierarchies::machine().made_by_root(path) == group.as_str())
    };
    for row in seconds.iter().flat_map(|second| &second.users.owners).filter(in_group) {
        let direction = match row.op {
            RequestOp::Read => Direction::Read,
            RequestOp::Write => Direction::Write,
            _ => continue,
        };
        let sum = sums.entry((row.device.as_str(), direction)).or_default();
        *sum = sum.saturating_add(row.bytes);
    }
    let from_ns = seconds.iter().map(|second| second.start_ns).min().unwrap_or(0);
    let to_ns = seconds.iter().map(|second| second.end_ns).max().unwrap_or(0);
    let Some(((name, direction), bytes)) = sums.into_iter().max_by_key(|(_, bytes)| *bytes) else {
        return Amount::default();
    };
    let passed_ms = (to_ns.saturating_sub(from_ns) / 1_000_000).max(1);
    Amount {
        device: device_of(name),
        direction: Some(direction),
        bytes_per_s: Some(bytes.saturating_mul(1_000) / passed_ms),
        ..Amount::default()
    }
}

/// The number of a whole disk: io.max takes no partitions.
fn device_of(name: &str) -> Option<Device> {
    // Names of devices have no slash (`cciss!c0d0`), but this one comes from a table.
    let name = (!name.contains('/') && !name.starts_with('.')).then_some(name)?;
    let text = std::fs::read_to_string(format!("/sys/block/{name}/dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::{device_of, number};

    #[test]
    fn a_number_is_found_by_its_whole_key() {
        let text = "usage_usec 77\nuser_usec 5\nuser 9\n";
        assert_eq!(
            (number(text, "user"), number(text, "usage_usec"), number(text, "system")),
            (Some(9), Some(77), None)
        );
        assert_eq!(device_of("../../../etc"), None);
    }
}

//! The machine of a reproduction: file system, volume, limits.

use super::{Bounds, NotReproducible, printable};
use flatwater_recording::{GroupRole, OperationKind, Recording};

/// The file system that the target used most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// As in the recording's tables.
    pub number: String,
}

/// `[setup]` of the scenario, as lines, and the room for files.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub lines: Vec<String>,
    pub room_bytes: u64,
    /// Values for fixes.
    pub memory_limit: Option<u64>,
    pub dirty_limit: Option<u64>,
    pub write_bps: Option<u64>,
    pub file_system: Option<&'static str>,
}

const VOLUME_MAX: u64 = 2 << 30;
/// File systems that a run can make, with the smallest volume that their mkfs accepts (and room for a journal).
const KNOWN: &[(&str, u64)] = &[("ext4", 128 << 20), ("ext2", 64 << 20), ("xfs", 512 << 20), ("btrfs", 256 << 20)];
/// Memory of the imitating processes besides the page cache.
const OWN_BYTES: u64 = 40 << 20;
const LIMIT_MIN: u64 = 64 << 20;
/// The largest value of these knobs.
const RATE_MAX: u64 = 64 << 30;

pub fn place(recording: &Recording) -> Place {
    let mut best: (u64, &str) = (0, "");
    for row in recording.operations.iter().filter(|row| row.role == GroupRole::Target) {
        let sum: u64 = recording
            .operations
            .iter()
            .filter(|other| other.role == GroupRole::Target && other.file_system == row.file_system)
            .map(|other| match other.op {
                OperationKind::Open => 1,
                OperationKind::Read => other.count.min(1 << 40),
                _ => other.count.min(1 << 40).saturating_mul(16),
            })
            .fold(0, u64::saturating_add);
        if sum > best.0 {
            best = (sum, &row.file_system);
        }
    }
    Place { number: best.1.to_owned() }
}

fn limit<'a>(recording: &'a Recording, name: &str, file_system: &str) -> Option<&'a str> {
    let row = recording.limits.iter().find(|row| row.name == name && row.file_system == file_system)?;
    row.at_end.as_deref().or(row.at_start.as_deref())
}

fn number(recording: &Recording, name: &str, file_system: &str) -> Option<u64> {
    limit(recording, name, file_system)?.trim().parse().ok()
}

pub fn setup(
    recording: &Recording,
    place: &Place,
    bounds: &Bounds,
    notes: &mut Vec<String>,
) -> Result<Setup, NotReproducible> {
    let recorded = limit(recording, "file_system", &place.number).unwrap_or("unknown");
    let wanted = bounds.file_system.as_deref().unwrap_or(recorded);
    let (file_system, smallest) = KNOWN.iter().find(|(name, _)| *name == wanted).copied().unwrap_or(KNOWN[0]);
    if file_system != recorded {
        notes.push(format!("recorded on {}, reproduced on {file_system}", printable(recorded)));
    }
    let size = number(recording, "capacity", &place.number).unwrap_or(VOLUME_MAX);
    let size = size.clamp(smallest, VOLUME_MAX).min(bounds.disk_bytes) >> 20 << 20;
    if size < smallest {
        return Err(NotReproducible::NoRoom { need: smallest >> 20, free: bounds.disk_bytes >> 20 });
    }
    let mut setup = Setup { room_bytes: size / 10 * 7, file_system: Some(file_system), ..Setup::default() };
    setup.lines.push(format!("\"mount.file_system\" = \"{file_system}\""));
    setup.lines.push(format!("\"mount.size\" = \"{}MiB\"", size >> 20));
    dirty_limits(recording, place, notes, &mut setup);
    let own = number(recording, "cgroup.memory_limit", "");
    let anonymous = number(recording, "cgroup.memory_anon_bytes", "").unwrap_or(0);
    let most = bounds.memory_bytes.max(LIMIT_MIN);
    let limit = own.map(|own| own.saturating_sub(anonymous).saturating_add(OWN_BYTES).clamp(LIMIT_MIN, most));
    setup.memory_limit = own.and(limit);
    // Without a recorded limit the cgroup only bounds what a reproduction can take from the machine.
    setup.lines.push(format!("\"cgroup.memory_limit\" = \"{}MiB\"", limit.unwrap_or(most) >> 20));
    for name in ["cgroup.write_bps", "cgroup.read_bps"] {
        if let Some(value) = number(recording, name, "").map(|value| value.clamp(4096, RATE_MAX)) {
            setup.lines.push(format!("\"{name}\" = \"{value}B\""));
            setup.write_bps = Some(value);
        }
    }
    for name in ["cgroup.write_iops", "cgroup.read_iops"] {
        if let Some(value) = number(recording, name, "").map(|value| value.clamp(1, 10_000_000)) {
            setup.lines.push(format!("\"{name}\" = {value}"));
        }
    }
    if let Some(value) = number(recording, "cgroup.cpu_quota_us", "").map(|value| value.clamp(1_000, 10_000_000)) {
        setup.lines.push(format!("\"cgroup.cpu_quota_us\" = {value}"));
    }
    Ok(setup)
}

fn dirty_limits(recording: &Recording, place: &Place, notes: &mut Vec<String>, setup: &mut Setup) {
    if number(recording, "bdi.strict_limit", &place.number) == Some(1) {
        setup.lines.push("\"bdi.strict_limit\" = 1".to_owned());
        if let Some(bytes) = number(recording, "bdi.max_bytes", &place.number) {
            let bytes = bytes.clamp(1 << 20, RATE_MAX);
            setup.lines.push(format!("\"bdi.max_bytes\" = \"{bytes}B\""));
            setup.dirty_limit = Some(bytes);
        }
    }
    let usual = [
        ("vm.dirty_ratio", 20),
        ("vm.dirty_background_ratio", 10),
        ("vm.dirty_bytes", 0),
        ("vm.dirty_background_bytes", 0),
    ];
    for (name, usual) in usual {
        if let Some(value) = number(recording, name, "").filter(|value| *value != usual) {
            notes.push(format!(
                "recorded with {name} = {value} of the whole machine, which is not set; --with {name}={value} --apply sets it"
            ));
        }
    }
}

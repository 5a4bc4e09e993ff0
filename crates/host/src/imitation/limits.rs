//! Reads the limits that a reproduction needs: dirty limits, limits of the target's cgroups, file systems with their
//! options and devices. Read twice, because a limit is often the cause of a stall and set while the recording runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::proc::mounts::{self, Mount};
use crate::sampler::devices_of;
use crate::setup::knobs::{self, Device};
use flatwater_recording::Limit;
use flatwater_recording::knob::{self, KnobPlace};

/// Look for limits at most this many levels up.
const LEVELS_MAX: usize = 16;

/// Name and file system of a limit.
type Key = (String, String);

#[derive(Debug)]
pub struct Limits {
    pid: Option<u32>,
    directory: Option<PathBuf>,
    start: BTreeMap<Key, String>,
}

impl Limits {
    /// Reads the limits of this process and of the file system under the directory.
    #[must_use]
    pub fn at_start(pid: Option<u32>, directory: Option<&Path>) -> Limits {
        let mounts = mounts::read().unwrap_or_default();
        let own = directory.and_then(|directory| mounts::above(&mounts, directory)).map(|mount| mount.number.clone());
        let numbers: Vec<String> = own.into_iter().collect();
        Limits { pid, directory: directory.map(Path::to_owned), start: read(pid, &mounts, &numbers) }
    }

    /// Reads them again, with those of the file systems that the target used.
    #[must_use]
    pub fn at_end(self, file_systems: &[String]) -> Vec<Limit> {
        let mounts = mounts::read().unwrap_or_default();
        let mut numbers = file_systems.to_vec();
        let own = self.directory.as_deref().and_then(|directory| mounts::above(&mounts, directory));
        numbers.extend(own.map(|mount| mount.number.clone()).filter(|own| !file_systems.contains(own)));
        let end = read(self.pid, &mounts, &numbers);
        let mut rows: BTreeMap<Key, Limit> = BTreeMap::new();
        for ((key, value), is_end) in self.start.iter().map(|one| (one, false)).chain(end.iter().map(|one| (one, true)))
        {
            let new = || Limit { name: key.0.clone(), file_system: key.1.clone(), ..Limit::default() };
            let row = rows.entry(key.clone()).or_insert_with(new);
            *(if is_end { &mut row.at_end } else { &mut row.at_start }) = Some(value.clone());
        }
        rows.into_values().collect()
    }
}

fn read(pid: Option<u32>, mounts: &[Mount], numbers: &[String]) -> BTreeMap<Key, String> {
    let mut found = BTreeMap::new();
    for key in ["vm.dirty_ratio", "vm.dirty_background_ratio", "vm.dirty_bytes", "vm.dirty_background_bytes"] {
        let value = knob::find(key).ok().and_then(|knob| knobs::read(&knobs::file_of(knob, None)?).ok());
        found.extend(value.map(|value| ((key.to_owned(), String::new()), value)));
    }
    for number in numbers {
        if let Some(mount) = mounts.iter().find(|mount| mount.number == *number) {
            file_system(mount, &mut found);
        }
    }
    if let Some(pid) = pid {
        cgroups(pid, mounts, numbers, &mut found);
    }
    found
}

fn file_system(mount: &Mount, found: &mut BTreeMap<Key, String>) {
    let mut put = |name: &str, value: String| found.insert((name.to_owned(), mount.number.clone()), value);
    put("file_system", mount.kind.clone());
    put("mount_options", mount.all_options());
    if let Ok(space) = rustix::fs::statvfs(&mount.point) {
        put("capacity", space.f_blocks.saturating_mul(space.f_frsize).to_string());
        put("room", space.f_bavail.saturating_mul(space.f_frsize).to_string());
    }
    let Some(device) = devices_of(&mount.point).into_iter().next() else { return };
    put("device", device.name.clone());
    let disk = Device { number: device.disk_number, name: device.disk, own: false };
    for knob in
        flatwater_recording::knob::KNOBS.iter().filter(|knob| [KnobPlace::Bdi, KnobPlace::Queue].contains(&knob.place))
    {
        if let Some(value) = knobs::file_of(knob, Some(&disk)).and_then(|file| knobs::read(&file).ok()) {
            put(knob.key, value);
        }
    }
}

/// The limits on the process's cgroups and those above: the smallest of each.
fn cgroups(pid: u32, mounts: &[Mount], numbers: &[String], found: &mut BTreeMap<Key, String>) {
    let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let disks: Vec<String> = numbers.iter().filter_map(|number| disk_of(mounts, number)).collect();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let mount = mounts.iter().find(|mount| match controllers {
            "" => mount.kind == "cgroup2",
            several => mount.kind == "cgroup" && several.split(',').all(|one| mount.has(one)),
        });
        let Some(mount) = mount else { continue };
        let mut place = mount.point.join(path.trim_start_matches('/'));
        let usage = [
            ("cgroup.memory_usage_bytes", &["memory.usage_in_bytes", "memory.current"][..]),
            ("cgroup.memory_anon_bytes", &["memory.stat"]),
        ];
        for (name, files) in usage {
            let text = files.iter().find_map(|file| fs::read_to_string(place.join(file)).ok());
            let value =
                text.and_then(|text| if name.ends_with("anon_bytes") { anonymous(&text) } else { number(&text) });
            found.extend(value.map(|value| ((name.to_owned(), String::new()), value.to_string())));
        }
        for _ in 0..LEVELS_MAX {
            limits_at(&place, &disks, found);
            if place == mount.point || !place.pop() {
                break;
            }
        }
    }
}

fn disk_of(mounts: &[Mount], number: &str) -> Option<String> {
    let mount = mounts.iter().find(|mount| mount.number == number)?;
    devices_of(&mount.point).into_iter().next().map(|device| device.disk_number)
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `anon` of v2, `rss` of v1.
fn anonymous(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("anon ").or_else(|| line.strip_prefix("rss ")).and_then(number))
}

/// Higher than any memory limit: for "no limit", v1 shows the largest page-aligned number.
const NO_LIMIT: u64 = 1 << 60;

fn limits_at(place: &Path, disks: &[String], found: &mut BTreeMap<Key, String>) {
    let mut put = |name: &str, value: u64| {
        let known = found.entry((name.to_owned(), String::new())).or_insert_with(|| value.to_string());
        if known.parse::<u64>().is_ok_and(|known| value < known) {
            *known = value.to_string();
        }
    };
    let text = |file: &str| fs::read_to_string(place.join(file)).ok();
    for (file, name) in [
        ("memory.limit_in_bytes", "cgroup.memory_limit"),
        ("memory.max", "cgroup.memory_limit"),
        ("memory.high", "cgroup.memory_high"),
    ] {
        if let Some(limit) = text(file).and_then(|text| number(&text)).filter(|limit| *limit < NO_LIMIT) {
            put(name, limit);
        }
    }
    for (file, key, name) in [
        ("blkio.throttle.write_bps_device", "", "cgroup.write_bps"),
        ("blkio.throttle.read_bps_device", "", "cgroup.read_bps"),
        ("blkio.throttle.write_iops_device", "", "cgroup.write_iops"),
        ("blkio.throttle.read_iops_device", "", "cgroup.read_iops"),
        ("io.max", "wbps=", "cgroup.write_bps"),
        ("io.max", "rbps=", "cgroup.read_bps"),
        ("io.max", "wiops=", "cgroup.write_iops"),
        ("io.max", "riops=", "cgroup.read_iops"),
    ] {
        let Some(text) = text(file) else { continue };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let of_target = words.next().is_some_and(|device| disks.iter().any(|disk| disk == device));
            let value = words.find_map(|word| word.strip_prefix(key).and_then(number));
            if let Some(value) = value.filter(|value| of_target && *value > 0) {
                put(name, value);
            }
        }
    }
    let quota = |quota: u64, period: u64| quota.saturating_mul(100_000) / period.max(1);
    if let (Some(limit), Some(period)) = (
        text("cpu.cfs_quota_us").and_then(|text| number(&text)),
        text("cpu.cfs_period_us").and_then(|text| number(&text)),
    ) {
        put("cgroup.cpu_quota_us", quota(limit, period));
    }
    let both = text("cpu.max");
    if let Some((limit, period)) = both.as_deref().and_then(|text| text.trim().split_once(' '))
        && let (Some(limit), Some(period)) = (number(limit), number(period))
    {
        put("cgroup.cpu_quota_us", quota(limit, period));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{anonymous, limits_at};

    #[test]
    fn the_smallest_limit_of_both_versions_counts_and_no_limit_is_absent() {
        let place = tempfile::tempdir().expect("a directory");
        let write = |file: &str, text: &str| std::fs::write(place.path().join(file), text).expect("written");
        let mut found = BTreeMap::new();
        write("memory.limit_in_bytes", "9223372036854771712\n");
        write("blkio.throttle.write_bps_device", "7:3 1048576\n8:0 5\n");
        write("io.max", "7:3 rbps=max wbps=2097152 riops=120 wiops=max\n");
        write("cpu.max", "50000 100000\n");
        limits_at(place.path(), &["7:3".to_owned()], &mut found);
        write("memory.limit_in_bytes", "104857600\n");
        limits_at(place.path(), &["7:3".to_owned()], &mut found);
        let shown: Vec<(&str, &str)> = found.iter().map(|((name, _), value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("cgroup.cpu_quota_us", "50000"),
            ("cgroup.memory_limit", "104857600"),
            ("cgroup.read_iops", "120"),
            ("cgroup.write_bps", "1048576"),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn anonymous_memory_is_read_in_both_versions() {
        assert_eq!(anonymous("cache 9\nrss 4096\n"), Some(4_096));
        assert_eq!(anonymous("anon 8192\nfile 1\n"), Some(8_192));
        assert_eq!(anonymous("file 1\n"), None);
    }
}

//! The settings in force for the programs that `record` follows: the knobs of the machine and of their device, the mount
//! options of their directory, and the limits of their cgroup. `compare` shows what changed between two recordings.

use std::io;
use std::path::Path;

use super::proc::mounts;
use super::sampler::TargetCgroup;
use super::setup::knobs::{self, Device};
use flatwater_recording::{Gap, Setup};

/// The period in which `cgroup.cpu_quota_us` counts.
const PERIOD_US: u64 = 100_000;
/// v1 shows "no limit" as the largest multiple of the page size in an i64; no machine has half as much memory.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// Reads the settings. A setting that is not set or that this kernel does not have is absent; one that cannot be read
/// becomes a gap.
pub(crate) fn observe(directory: Option<&Path>, cgroup: Option<&TargetCgroup>) -> (Setup, Vec<Gap>) {
    let device = directory.and_then(|directory| Device::of(directory, false));
    let (mut setup, mut gaps) = knobs::observe(device.as_ref());
    let mounts = mounts::read().unwrap_or_default();
    let place = directory.and_then(|directory| std::fs::canonicalize(directory).ok());
    if let Some(mount) = place.as_deref().and_then(|place| mounts::above(&mounts, place)) {
        setup.observe("mount.options", &mount.all_options());
    }
    if let Some(cgroup) = cgroup {
        let place = Limits { memory: &cgroup.memory, cpu: cgroup.cpu.as_deref().unwrap_or(&cgroup.memory) };
        let device = device.as_ref().map(|device| device.number.as_str());
        let read = if cgroup.version == 1 { place.v1() } else { place.v2(device) };
        for (key, value) in read {
            match value {
                Ok(Some(value)) => setup.observe(key, &value.to_string()),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => gaps.push(Gap::new(key, format!("{}: {error}", cgroup.name), "run as root")),
            }
        }
    }
    (setup, gaps)
}

/// The files with the limits of a cgroup.
struct Limits<'a> {
    memory: &'a Path,
    cpu: &'a Path,
}

/// A key of a knob, and its value; `None`: no limit.
type Limit = (&'static str, io::Result<Option<u64>>);

impl Limits<'_> {
    fn v2(&self, device: Option<&str>) -> Vec<Limit> {
        let bytes = |name: &str| Ok(number(&text(self.memory, name)?));
        // A limit of a cgroup above holds as well: in Kubernetes that of the pod.
        let limit = bytes("memory.max").map(|own| above(self.memory, "memory.max").into_iter().chain(own).min());
        let positive = |name: &str| bytes(name).map(|bytes| bytes.filter(|bytes| *bytes > 0));
        let mut all = vec![
            ("cgroup.memory_limit", limit),
            ("cgroup.memory_high", bytes("memory.high")),
            ("cgroup.memory_low", positive("memory.low")),
            ("cgroup.memory_min", positive("memory.min")),
            ("cgroup.cpu_quota_us", text(self.cpu, "cpu.max").map(|text| quota(&text))),
        ];
        let Some(device) = device else { return all };
        let of_io = text(self.memory, "io.max");
        let keys = [
            ("cgroup.write_bps", "wbps"),
            ("cgroup.read_bps", "rbps"),
            ("cgroup.write_iops", "wiops"),
            ("cgroup.read_iops", "riops"),
        ];
        for (key, field) in keys {
            let read = of_io.as_deref().map(|text| of_device(text, device, field));
            all.push((key, read.map_err(|error| io::Error::from(error.kind()))));
        }
        all
    }

    fn v1(&self) -> Vec<Limit> {
        let limited = |name: &str| Ok(number(&text(self.memory, name)?).filter(|bytes| *bytes < UNLIMITED_BYTES));
        let quota = || {
            let quota = number(&text(self.cpu, "cpu.cfs_quota_us")?);
            let period = number(&text(self.cpu, "cpu.cfs_period_us")?);
            Ok(quota.zip(period).and_then(|(quota, period)| per_period(quota, period)))
        };
        vec![
            ("cgroup.memory_limit", limited("memory.limit_in_bytes")),
            ("cgroup.soft_limit", limited("memory.soft_limit_in_bytes")),
            ("cgroup.cpu_quota_us", quota()),
        ]
    }
}

fn text(directory: &Path, name: &str) -> io::Result<String> {
    super::proc::text::read(directory.join(name))
}

/// `None` for `max` and -1.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The smallest value of this file in the cgroups above.
fn above(directory: &Path, name: &str) -> Option<u64> {
    let above = directory.ancestors().skip(1).take_while(|above| above.starts_with("/sys/fs/cgroup"));
    above.filter_map(|above| number(&text(above, name).ok()?)).min()
}

/// `200000 100000` of cpu.max.
fn quota(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    per_period(number(quota)?, number(period)?)
}

fn per_period(quota_us: u64, period_us: u64) -> Option<u64> {
    quota_us.checked_mul(PERIOD_US)?.checked_div(period_us)
}

/// The field of a device's line in io.max: `8:16 rbps=2097152 wbps=max riops=120 wiops=max`.
fn of_device(text: &str, device: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' '))?;
    line.split(' ').find_map(|part| number(part.strip_prefix(field)?.strip_prefix('=')?))
}

#[cfg(test)]
mod tests {
    use super::{Limits, observe, of_device, quota};

    /// `record` stored no settings, so that `compare` could not show what had changed.
    #[test]
    fn the_settings_of_a_directory_are_read() {
        let here = std::env::current_dir().expect("a directory");
        let (setup, _) = observe(Some(&here), None);
        assert!(setup.get("vm.dirty_ratio").is_some() && setup.get("vm.swappiness").is_some(), "{setup:?}");
        assert!(setup.get("mount.options").is_some_and(|options| options.starts_with("r")), "{setup:?}");
        assert_eq!(setup.get("cgroup.memory_limit"), None, "no limit is not 0");
    }

    #[test]
    fn limits_of_both_versions_are_read_and_no_limit_is_absent() {
        let place = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).expect("written");
        let limits = Limits { memory: place.path(), cpu: place.path() };
        let of = |all: Vec<super::Limit>, key: &str| {
            all.into_iter().find(|(name, _)| *name == key).and_then(|(_, value)| value.ok()?)
        };
        write("memory.max", "1073741824\n");
        write("memory.high", "max\n");
        write("memory.low", "0\n");
        write("cpu.max", "50000 100000\n");
        write("io.max", "8:0 rbps=1 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=7 riops=max wiops=max\n");
        let v2 = |key| of(limits.v2(Some("8:16")), key);
        assert_eq!(v2("cgroup.memory_limit"), Some(1 << 30));
        assert_eq!((v2("cgroup.memory_high"), v2("cgroup.memory_low")), (None, None));
        assert_eq!(
            (v2("cgroup.cpu_quota_us"), v2("cgroup.write_bps"), v2("cgroup.read_bps")),
            (Some(50_000), Some(7), None)
        );
        write("memory.limit_in_bytes", "9223372036854771712\n");
        write("memory.soft_limit_in_bytes", "4096\n");
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        let v1 = |key| of(limits.v1(), key);
        assert_eq!(
            (v1("cgroup.memory_limit"), v1("cgroup.soft_limit"), v1("cgroup.cpu_quota_us")),
            (None, Some(4096), None)
        );
    }

    #[test]
    fn quotas_count_in_periods_of_100_ms_and_devices_do_not_match_by_prefix() {
        assert_eq!((quota("20000 50000"), quota("max 100000"), quota("1 0")), (Some(40_000), None, None));
        assert_eq!(of_device("8:1 wbps=5\n8:16 wbps=6", "8:1", "wbps"), Some(5));
        assert_eq!(of_device("8:16 wbps=6", "8:1", "wbps"), None);
    }
}

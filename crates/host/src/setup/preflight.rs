//! Checks, before anything is created, whether a scenario fits: compares the workloads' needs with the free resources.

use std::path::Path;

use super::volume;
use flatwater_recording::units::Bytes;
use flatwater_workload::params::SCALE;
use flatwater_workload::scenario::Scenario;
use flatwater_workload::{Footprint, ParamError};

/// Share of disk and memory to leave free: a full file system itself causes stalls.
const LEFT_FREE: f64 = 0.05;

#[derive(Debug, thiserror::Error)]
pub enum Misfit {
    #[error(transparent)]
    Workload(#[from] ParamError),
    #[error(
        "scenario '{scenario}' uses the device '{device}' in addition to its disk, but a run on this machine has one directory; \
         a model has several devices (--on sim)"
    )]
    Devices { scenario: String, device: String },
    #[error("scenario '{scenario}' does not fit: it needs {}, but only {} are free{}", amount(*.need, .what), amount(*.free, .what), scale_hint(*.scale))]
    TooLarge { scenario: String, what: &'static str, need: u64, free: u64, scale: Option<f64> },
}

/// An amount such as `200 GiB on disk` or `12 threads and processes`.
fn amount(number: u64, what: &str) -> String {
    match what.strip_prefix("bytes ") {
        Some(where_) => format!("{} {where_}", Bytes(number)),
        None => format!("{number} {what}"),
    }
}

fn scale_hint(scale: Option<f64>) -> String {
    match scale {
        Some(scale) => format!("; --scale {scale} would fit"),
        None => {
            "; choose another directory with -d, a shorter -t, a larger mount.size, or a smaller workload".to_owned()
        }
    }
}

/// What all workloads of the scenario need together, over its duration.
pub fn footprint(scenario: &Scenario) -> Result<Footprint, ParamError> {
    let mut sum = Footprint::default();
    for (index, spec) in scenario.workloads.iter().enumerate() {
        let one = (spec.entry.build)(&spec.params, scenario.seed ^ index as u64)?.footprint();
        let seconds = spec.duration.unwrap_or(scenario.duration).0.div_ceil(1_000_000_000);
        sum.disk_bytes = sum.disk_bytes.saturating_add(one.disk_bytes);
        sum.disk_bytes = sum.disk_bytes.saturating_add(one.growth_bytes_per_s.saturating_mul(seconds));
        sum.files = sum.files.saturating_add(one.files);
        sum.memory_bytes = sum.memory_bytes.saturating_add(one.memory_bytes);
        sum.threads = sum.threads.saturating_add(one.threads);
        sum.processes = sum.processes.saturating_add(one.processes);
    }
    Ok(sum)
}

/// The free resources of the place where the scenario would run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    pub disk_bytes: u64,
    /// `None` if the file system creates inodes on demand.
    pub files: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Threads and processes together.
    pub tasks: Option<u64>,
}

impl Free {
    /// Reads the free resources. A value that cannot be read is not checked.
    #[must_use]
    pub fn at(dir: &Path) -> Free {
        let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
        let disk = rustix::fs::statvfs(existing).ok();
        let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        });
        Free {
            disk_bytes: disk.as_ref().map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
            files: disk.filter(|disk| disk.f_files > 0).map(|disk| disk.f_favail),
            memory_bytes: memory.map(|kib| kib << 10),
            tasks: rustix::process::getrlimit(rustix::process::Resource::Nproc).current,
        }
    }
}

/// Why a volume's image must not be made in this directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPlace {
    #[error("{0} is in memory, so that the volume would have no device; choose a directory on a disk with -d")]
    Memory(String),
    #[error("{0} is on a network file system; choose a directory on a local disk with -d")]
    Network(String),
    #[error("{0} is on a read-only file system; choose another directory with -d")]
    ReadOnly(String),
    #[error("{0} cannot hold files: {1}; choose another directory with -d")]
    Unusable(String, String),
}

/// Refuses a directory in which a volume would not behave as a disk.
pub fn place_of_volume(dir: &Path) -> Result<(), BadPlace> {
    /// include/uapi/linux/magic.h: tmpfs, ramfs; NFS, CIFS, SMB2, FUSE, AFS, Ceph, 9P.
    const MEMORY: &[u64] = &[0x0102_1994, 0x8584_58f6];
    const NETWORK: &[u64] = &[0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x5346_414f, 0x00c3_6400, 0x0102_1997];
    let name = || dir.display().to_string();
    let of = |error: rustix::io::Errno| BadPlace::Unusable(name(), std::io::Error::from(error).to_string());
    let kind = rustix::fs::statfs(dir).map_err(of)?.f_type.cast_unsigned();
    let space = rustix::fs::statvfs(dir).map_err(of)?;
    if MEMORY.contains(&kind) {
        return Err(BadPlace::Memory(name()));
    }
    if NETWORK.contains(&kind) {
        return Err(BadPlace::Network(name()));
    }
    if space.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Err(BadPlace::ReadOnly(name()));
    }
    if space.f_blocks == 0 {
        return Err(BadPlace::Unusable(name(), "its file system has no blocks".to_owned()));
    }
    Ok(())
}

/// Refuses a scenario that does not fit in `dir`, with the `--scale` that would fit.
pub fn check(scenario: &Scenario, dir: &Path) -> Result<Footprint, Misfit> {
    if let Some(device) = scenario.machine.devices.first() {
        return Err(Misfit::Devices { scenario: scenario.name.clone(), device: device.name.clone() });
    }
    let (need, mut free) = (footprint(scenario)?, Free::at(dir));
    let volume = volume::Spec::of(&scenario.setup);
    if let Some(volume) = &volume {
        // The files go onto the volume, whose image must fit into the directory.
        fit(scenario, "bytes on disk for its volume", volume.bytes, free.disk_bytes, None)?;
        free = Free { disk_bytes: volume.bytes, files: None, ..free };
    }
    compare(scenario, &need, &free)?;
    Ok(need)
}

fn compare(scenario: &Scenario, need: &Footprint, free: &Free) -> Result<(), Misfit> {
    let scalable = scenario.workloads.iter().any(|spec| spec.entry.params.iter().any(|one| one.name == SCALE.name));
    let scale_for = |need: u64, free: u64| {
        // The figures include a scale that the user has set.
        let now = scenario.workloads.iter().filter_map(|spec| {
            let known = spec.params.iter().find(|(name, _)| *name == SCALE.name)?;
            known.1.parse::<f64>().ok()
        });
        let now = now.fold(1.0, f64::min);
        let scale = now * free as f64 * (1.0 - 2.0 * LEFT_FREE) / need as f64;
        let digits = 10_f64.powf((-scale.log10()).ceil() + 1.0);
        (scalable && scale > 0.0 && scale.is_finite()).then(|| (scale * digits).floor() / digits)
    };
    let disk = (free.disk_bytes as f64 * (1.0 - LEFT_FREE)) as u64;
    let on_disk = if volume::Spec::of(&scenario.setup).is_some() { "bytes on its volume" } else { "bytes on disk" };
    fit(scenario, on_disk, need.disk_bytes, disk, scale_for(need.disk_bytes, disk))?;
    if let Some(files) = free.files {
        fit(scenario, "files", need.files, files, scale_for(need.files, files))?;
    }
    if let Some(memory) = free.memory_bytes {
        fit(scenario, "bytes of memory", need.memory_bytes, memory, scale_for(need.memory_bytes, memory))?;
    }
    let tasks = u64::from(need.threads) + u64::from(need.processes);
    fit(scenario, "threads and processes", tasks, free.tasks.unwrap_or(u64::MAX), None)
}

fn fit(scenario: &Scenario, what: &'static str, need: u64, free: u64, scale: Option<f64>) -> Result<(), Misfit> {
    if need <= free {
        return Ok(());
    }
    Err(Misfit::TooLarge { scenario: scenario.name.clone(), what, need, free, scale })
}

#[cfg(test)]
mod tests {
    use super::{Free, Misfit, check, compare, footprint};
    use flatwater_workload::scenario::Scenario;

    fn scenario(workload: &str) -> Scenario {
        let text = format!("name = 'x'\nsentence = 'X.'\nduration = '10s'\n[[workload]]\n{workload}\n");
        Scenario::parse("x", &text).expect("a scenario")
    }

    #[test]
    fn a_misfit_is_refused_with_the_scale_that_fits() {
        let scenario = scenario("use = 'maildir'");
        let need = footprint(&scenario).expect("its footprint");
        let free = Free { disk_bytes: 100 << 30, files: Some(1 << 24), memory_bytes: Some(8 << 30), tasks: Some(1000) };
        let Err(Misfit::TooLarge { scale: Some(scale), .. }) = compare(&scenario, &need, &free) else {
            panic!("200 GiB do not fit into 100")
        };
        let text = format!("use = 'maildir'\nscale = {scale}");
        let scaled = footprint(&self::scenario(&text)).expect("its footprint");
        assert!(scaled.disk_bytes <= free.disk_bytes && scaled.disk_bytes > free.disk_bytes / 2, "{scale}: {scaled:?}");
    }

    #[test]
    fn a_scenario_with_several_devices_is_refused_with_a_hint() {
        let one = scenario("use = 'journal'");
        assert!(check(&one, std::path::Path::new("/")).is_ok());
        let several = scenario("use = 'journal'\n[[machine.device]]\nname = 'usb'");
        let why = check(&several, std::path::Path::new("/")).expect_err("there is one directory").to_string();
        assert!(why.contains("'usb'") && why.contains("--on sim"), "{why}");
    }

    #[test]
    fn growth_counts_for_the_scenarios_duration() {
        let need = footprint(&scenario("use = 'journal'")).expect("its footprint");
        assert_eq!(need.disk_bytes, 10 * 5000 * 220);
    }
}

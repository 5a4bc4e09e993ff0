//! Lists the files to sample on this machine, and the gaps for those that it does not have.

use std::io;
use std::path::{Path, PathBuf};

use super::options::SamplerOptions;
use super::target::TargetCgroup;
use crate::proc::KernelFile;
use crate::proc::cgroup::{self, CgroupFile};
use flatwater_recording::Gap;
use flatwater_recording::schema::{Column, writeback};

/// The kind of a file, with the entity whose row it fills.
#[derive(Clone, Debug)]
pub(super) enum Reads {
    Zoneinfo,
    Vmstat,
    Meminfo,
    Stat,
    Buddyinfo,
    Pressure(&'static str),
    Numastat(u32),
    NodeMeminfo(u32),
    Disk(String),
    BdiStats(String),
    /// A size in /sys/class/bdi that is derived from the global limit.
    BdiSize(String, Column),
    Cgroup(String, CgroupFile),
}

#[derive(Debug)]
pub(super) struct Source {
    pub(super) reads: Reads,
    pub(super) file: KernelFile,
    /// Whether its failure has been reported.
    pub(super) failing: bool,
}

/// Ancestors of the target's cgroup are sampled if they have a limit; cgroups nested deeper than this are rare.
const ANCESTORS_MAX: usize = 6;

/// Opens all files that exist; the others become gaps unless they are optional.
pub(super) fn open(options: &SamplerOptions) -> (Vec<Source>, Vec<Gap>) {
    let (mut sources, mut gaps) = (Vec::new(), Vec::new());
    for (path, reads, optional) in wanted(options) {
        match KernelFile::open(&path) {
            Ok(file) => sources.push(Source { reads, file, failing: false }),
            Err(_) if optional => {}
            Err(error) => gaps.push(gap(&path, &reads, &error)),
        }
    }
    (sources, gaps)
}

/// Triples of (path, kind, whether the file is optional).
fn wanted(options: &SamplerOptions) -> Vec<(PathBuf, Reads, bool)> {
    let at = |path: &str| options.root.join(path);
    let mut all = vec![
        (at("proc/zoneinfo"), Reads::Zoneinfo, false),
        (at("proc/vmstat"), Reads::Vmstat, false),
        (at("proc/meminfo"), Reads::Meminfo, false),
        (at("proc/stat"), Reads::Stat, false),
        (at("proc/buddyinfo"), Reads::Buddyinfo, false),
    ];
    for resource in ["cpu", "memory", "io"] {
        all.push((at("proc/pressure").join(resource), Reads::Pressure(resource), false));
    }
    for node in nodes(&options.root) {
        let place = at("sys/devices/system/node").join(format!("node{node}"));
        all.push((place.join("numastat"), Reads::Numastat(node), false));
        all.push((place.join("meminfo"), Reads::NodeMeminfo(node), false));
    }
    let mut numbers: Vec<&str> = Vec::new();
    for device in &options.devices {
        let stat = at("sys/dev/block").join(&device.number).join("stat");
        all.push((stat, Reads::Disk(device.name.clone()), false));
        if !numbers.contains(&device.disk_number.as_str()) {
            numbers.push(&device.disk_number);
        }
    }
    for number in numbers {
        let bdi = at("sys/class/bdi").join(number);
        for (file, column) in [("max_bytes", writeback::MAX_BYTES), ("min_bytes", writeback::MIN_BYTES)] {
            // Since 6.2; before, max_ratio in the setup has the same information.
            all.push((bdi.join(file), Reads::BdiSize(number.to_owned(), column), true));
        }
        let stats = at("sys/kernel/debug/bdi").join(number).join("stats");
        all.push((stats, Reads::BdiStats(number.to_owned()), false));
    }
    all.extend(options.cgroup.iter().flat_map(cgroup_files));
    all
}

/// The online NUMA nodes; empty if the kernel has no NUMA support.
pub(crate) fn nodes(root: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(root.join("sys/devices/system/node"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut nodes: Vec<u32> = names.filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    nodes.sort_unstable();
    nodes
}

fn cgroup_files(target: &TargetCgroup) -> Vec<(PathBuf, Reads, bool)> {
    let mut found = Vec::new();
    let files = if target.version == 1 { cgroup::V1 } else { cgroup::V2 };
    let (mut place, mut name) = (target.memory.as_path(), target.name.as_str());
    for generation in 0..ANCESTORS_MAX {
        if generation == 0 || has_limit(place, target.version) {
            for &(file, meaning) in files {
                let optional = generation > 0 || cgroup::is_optional(file);
                found.push((place.join(file), Reads::Cgroup(name.to_owned(), meaning), optional));
            }
        }
        name = match name.rfind('/') {
            Some(slash) if slash > 0 => name.get(..slash).unwrap_or("/"),
            _ => break,
        };
        let Some(parent) = place.parent() else { break };
        place = parent;
    }
    if let Some(cpu) = &target.cpu {
        found.push((cpu.join("cpu.stat"), Reads::Cgroup(target.name.clone(), CgroupFile::CpuStat), true));
    }
    found
}

fn has_limit(place: &Path, version: u32) -> bool {
    let files: &[&str] = if version == 1 { &["memory.limit_in_bytes"] } else { &["memory.max", "memory.high"] };
    files.iter().any(|file| {
        let text = std::fs::read_to_string(place.join(file)).unwrap_or_default();
        // For "no limit", v1 shows the largest page-aligned number and v2 `max`.
        text.trim().parse::<i64>().is_ok_and(|limit| limit < 1 << 60)
    })
}

/// The gap for a file that cannot be opened or read.
pub(super) fn gap(path: &Path, reads: &Reads, error: &io::Error) -> Gap {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let remedy = match reads {
        _ if denied => "run as root",
        Reads::Pressure(_) => "needs Linux 4.20 with CONFIG_PSI; if it is compiled in but disabled, boot with psi=1",
        Reads::BdiStats(_) => "as root: mount -t debugfs none /sys/kernel/debug",
        Reads::Numastat(_) | Reads::NodeMeminfo(_) => "needs a kernel with CONFIG_NUMA",
        Reads::Cgroup(..) => "the cgroup was removed, or its memory controller is off; see cgroup.controllers",
        Reads::Zoneinfo | Reads::Vmstat | Reads::Meminfo | Reads::Stat | Reads::Buddyinfo => {
            "mount /proc here, without subset=pid"
        }
        Reads::Disk(_) | Reads::BdiSize(..) => "",
    };
    Gap::new(path.display().to_string(), error.to_string(), remedy)
}

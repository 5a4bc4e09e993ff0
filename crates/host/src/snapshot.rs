//! Reads this machine once, as a recording: settings, one row of each table, and every memory cgroup with a limit.
//! `flatwater check` uses it. Changes nothing.

use std::path::{Path, PathBuf};

use super::clock::monotonic_ns;
use super::proc::KernelFile;
use super::proc::cgroup;
use super::proc::sheet::{Filled, Sheet};
use super::sampler::{Probe, SamplerOptions, Spare, TargetCgroup, devices_of};
use super::setup::knobs::{self, Device};
use flatwater_recording::{Gap, Header, Machine, Recording, Series, Table, Target};

/// Visit at most this many cgroups.
const CGROUPS_MAX: usize = 4096;

/// Takes the snapshot. `directory` selects the device whose counters are read.
#[must_use]
pub fn take(directory: &Path, machine: Machine) -> Recording {
    let device = Device::of(directory, false);
    let (setup, mut gaps) = knobs::observe(device.as_ref());
    let devices = devices_of(directory);
    let mut probe = Probe::open(&SamplerOptions { devices, ..SamplerOptions::default() });
    let mut spare = Spare::default();
    probe.reserve(&mut spare, 1);
    probe.sample(monotonic_ns());
    let drained = probe.drain(&mut spare);
    gaps.extend(drained.gaps);
    let mut series = drained.series;
    series.retain(|series| series.table != Table::Cgroup);
    if let Some(root) = cgroup_root() {
        let (limited, missing) = cgroups(root, CGROUPS_MAX);
        series.extend(limited);
        gaps.extend(missing);
    }
    let target = Target {
        what: "this machine".to_owned(),
        directory: Some(directory.display().to_string()),
        device: device.map(|device| device.name),
        ..Target::default()
    };
    let header = Header { machine, setup, target, ..Header::default() };
    Recording { header, series, gaps, ..Recording::default() }
}

fn cgroup_root() -> Option<PathBuf> {
    let mut roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(PathBuf::from).into_iter();
    roots.find(|root| root.join("memory.stat").exists() || root.join("cgroup.controllers").exists())
}

/// The memory files of each cgroup below `root` that has a limit, and gaps if there are more than `visited_max` cgroups
/// or if the table is full.
fn cgroups(root: PathBuf, visited_max: usize) -> (Option<Series>, Vec<Gap>) {
    let mut sheet = Sheet::new(Table::Cgroup);
    let (mut waiting, mut visited) = (vec![root], 0);
    let (mut buffer, mut gaps) = (Vec::new(), Vec::new());
    while let Some(directory) = waiting.pop() {
        if visited == visited_max {
            gaps.push(Gap::new("memory cgroups of this machine", format!("only {visited_max} of them were read"), ""));
            break;
        }
        visited += 1;
        let below = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        waiting
            .extend(below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()));
        if let Some(target) = TargetCgroup::at(&directory).filter(has_limit) {
            read(&target, &mut sheet, &mut buffer);
        }
    }
    gaps.extend(sheet.take_reached().into_iter().map(|limit| limit.gap(Table::Cgroup)));
    let mut filled = Filled::default();
    let series = (!sheet.is_empty()).then(|| {
        sheet.swap(&mut filled);
        sheet.series(&filled)
    });
    (series, gaps)
}

fn has_limit(target: &TargetCgroup) -> bool {
    let file = if target.version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
    let limit = std::fs::read_to_string(target.memory.join(file)).ok().and_then(|text| text.trim().parse::<u64>().ok());
    // For "no limit", v1 shows the largest page-aligned number.
    limit.is_some_and(|limit| limit < 1 << 60)
}

fn read(target: &TargetCgroup, sheet: &mut Sheet, buffer: &mut Vec<u8>) {
    sheet.open(monotonic_ns(), None, target.name.as_bytes());
    for &(file, meaning) in if target.version == 1 { cgroup::V1 } else { cgroup::V2 } {
        // The cgroup may be removed while it is read; values read before that are kept.
        if let Ok(text) = KernelFile::open(&target.memory.join(file))
            .as_mut()
            .map_err(|_| ())
            .and_then(|file| file.read(buffer).map_err(|_| ()))
        {
            cgroup::read(text, meaning, sheet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cgroups;

    /// H7: cgroups beyond the limit were left out silently.
    #[test]
    fn cgroups_beyond_the_limit_are_a_gap() {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["a", "b", "b/c"] {
            std::fs::create_dir(root.path().join(name)).expect("made");
        }
        let gaps = |visited_max| cgroups(root.path().to_owned(), visited_max).1;
        assert_eq!(gaps(4), []);
        assert_eq!(gaps(3).iter().map(|gap| gap.why.as_str()).collect::<Vec<_>>(), ["only 3 of them were read"]);
    }
}

//! Reads this machine once, as a recording: settings, one row of each table, and every memory cgroup with a limit.
//! `flatwater check` uses it. Changes nothing.

use std::path::{Path, PathBuf};

use super::clock::monotonic_ns;
use super::proc::KernelFile;
use super::proc::cgroup;
use super::proc::sheet::{Filled, Sheet};
use super::sampler::{Probe, SamplerOptions, Spare, TargetCgroup, devices_of};
use super::setup::knobs::{self, Device};
use flatwater_recording::{Header, Machine, Recording, Series, Table, Target};

/// Read at most this many cgroups.
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
    series.extend(cgroups());
    let target = Target {
        what: "this machine".to_owned(),
        directory: Some(directory.display().to_string()),
        device: device.map(|device| device.name),
        ..Target::default()
    };
    let header = Header { machine, setup, target, ..Header::default() };
    Recording { header, series, gaps, ..Recording::default() }
}

/// The memory files of each cgroup that has a limit; at most `CGROUPS_MAX` cgroups are visited.
fn cgroups() -> Option<Series> {
    let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(PathBuf::from);
    let root =
        roots.into_iter().find(|root| root.join("memory.stat").exists() || root.join("cgroup.controllers").exists())?;
    let mut sheet = Sheet::new(Table::Cgroup);
    let (mut waiting, mut seen) = (vec![root], 0);
    let mut buffer = Vec::new();
    while let Some(directory) = waiting.pop() {
        let below = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        waiting
            .extend(below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()));
        seen += 1;
        if seen > CGROUPS_MAX {
            break;
        }
        if let Some(target) = TargetCgroup::at(&directory).filter(has_limit) {
            read(&target, &mut sheet, &mut buffer);
        }
    }
    let mut filled = Filled::default();
    (!sheet.is_empty()).then(|| {
        sheet.swap(&mut filled);
        sheet.series(&filled)
    })
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

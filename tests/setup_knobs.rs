//! Sets every knob that this kernel has to another value and restores it. Needs root.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatwater_host::setup::knobs::{file_of, read};
use flatwater_host::setup::{Applied, Log, SetupContext, SetupError};
use flatwater_recording::Setup;
use flatwater_recording::knob::{KNOBS, Knob, KnobKind, KnobPlace};
use needs::{Need, skip};

fn silent() -> Log {
    Arc::new(|_: &str| {})
}

fn context(dir: &Path) -> SetupContext {
    SetupContext { dir: dir.to_owned(), name: "knobs".to_owned(), apply: true, keep: false }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(Need::Root, "knobs", "knobs are only set as root");
    }
    root
}

/// A value close to the present one, so that the change has no visible effect on the machine.
fn another(knob: &Knob, held: &str) -> Option<String> {
    let near = |min: i128, max: i128| {
        let now: i128 = held.parse().ok()?;
        [now + 1, now - 1].into_iter().find(|value| (min..=max).contains(value)).map(|value| value.to_string())
    };
    match knob.kind {
        KnobKind::Integer { min, max } => near(min.into(), max.into()),
        KnobKind::Size { .. } => Some((256_u64 << 20).to_string()),
        KnobKind::SizeKib { min, max } => near(min.into(), max.into()),
        KnobKind::Choice(choices) => choices.iter().find(|choice| **choice != held).map(|&choice| choice.to_owned()),
        KnobKind::Integers { .. } => {
            let (first, rest) = held.split_once(' ')?;
            Some(format!("{} {rest}", first.parse::<u64>().ok()? + 1))
        }
        KnobKind::Duration { .. } | KnobKind::Text => None,
    }
}

fn one(key: &str, value: &str) -> Setup {
    let mut setup = Setup::default();
    setup.set(key, value).unwrap_or_else(|error| panic!("{key}={value}: {error}"));
    setup
}

/// The present values of all files.
fn held(files: &[(&'static Knob, PathBuf)]) -> Vec<(&'static str, String)> {
    files.iter().filter_map(|(knob, file)| Some((knob.key, read(file).ok()?))).collect()
}

#[test]
fn every_knob_of_the_machine_is_set_and_restored() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let shared = [KnobPlace::Sysctl, KnobPlace::HugePages];
    let files: Vec<(&Knob, PathBuf)> = KNOBS
        .iter()
        .filter(|knob| shared.contains(&knob.place))
        .filter_map(|knob| Some((knob, file_of(knob, None)?)))
        .filter(|(_, file)| file.exists())
        .collect();
    let before = held(&files);
    let mut set = 0;
    for (knob, file) in &files {
        let now = read(file).expect("readable");
        let Some(value) = another(knob, &now) else { continue };
        let applied = match Applied::apply(&one(knob.key, &value), &context(dir.path()), silent()) {
            Ok(applied) => applied,
            // Some kernels have the file but refuse the write.
            Err(SetupError::File { source, .. }) => {
                eprintln!("left out: {}={value}: {source}", knob.key);
                continue;
            }
            Err(error) => panic!("{}={value}: {error}", knob.key),
        };
        assert_eq!(read(file).expect("readable"), value, "{}", knob.key);
        let restored = applied.restore();
        assert!(restored.failed.is_empty() && restored.stepped_back.is_empty(), "{}: {restored:?}", knob.key);
        assert_eq!(held(&files), before, "after {}={value}", knob.key);
        set += 1;
    }
    println!("{set} of {} knobs set and put back", files.len());
    assert!(set >= 15, "only {set} of {} knobs could be set", files.len());
}

#[test]
fn every_knob_of_a_volume_and_its_cgroup_is_in_force() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut setup = one("mount.size", "32MiB");
    for (key, value) in [
        ("mount.file_system", "ext4"),
        ("mount.options", "noatime,nobarrier"),
        ("mount.mkfs_options", "-b 1024"),
        ("queue.scheduler", "mq-deadline"),
        ("queue.nr_requests", "1"),
        ("queue.read_ahead_kb", "64"),
        ("queue.max_sectors_kb", "64"),
        ("bdi.strict_limit", "1"),
        ("bdi.max_ratio", "50"),
        ("bdi.min_ratio", "1"),
        ("cgroup.memory_limit", "64MiB"),
        ("cgroup.write_bps", "8MiB"),
        ("cgroup.read_bps", "9MiB"),
        ("cgroup.write_iops", "1000"),
        ("cgroup.read_iops", "1100"),
        ("cgroup.cpu_quota_us", "90000"),
    ] {
        setup.set(key, value).unwrap_or_else(|error| panic!("{key}={value}: {error}"));
    }
    let mut applied = match Applied::apply(&setup, &context(dir.path()), silent()) {
        Ok(applied) => applied,
        Err(error) => return skip(Need::Loop, "limits of a volume", error),
    };
    let device = applied.device().cloned().expect("a loop device");
    let holds = |key: &str| {
        let knob = flatwater_recording::knob::find(key).expect("a knob");
        read(&file_of(knob, Some(&device)).expect("a file")).expect("readable")
    };
    for (key, value) in [
        ("queue.scheduler", "mq-deadline"),
        ("queue.read_ahead_kb", "64"),
        ("queue.max_sectors_kb", "64"),
        ("bdi.strict_limit", "1"),
        ("bdi.max_ratio", "50"),
        ("bdi.min_ratio", "1"),
    ] {
        assert_eq!(holds(key), value, "{key}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let line = mounts.lines().find(|line| line.contains(&dir.path().display().to_string())).expect("the mount");
    assert!(line.contains("noatime") && line.contains("ext4"), "{line}");
    // A change during a run, as from a timeline. The limit is raised, so that nothing is reclaimed.
    let changes = applied.change(&one("cgroup.memory_limit", "96MiB")).expect("change");
    assert_eq!(changes[0].old.as_deref(), Some("67108864"));
    let limit = applied.memory_cgroup().map(|cgroup| {
        let v1 = std::fs::read_to_string(cgroup.join("memory.limit_in_bytes"));
        v1.or_else(|_| std::fs::read_to_string(cgroup.join("memory.max"))).expect("a limit")
    });
    assert_eq!(limit.as_deref().map(str::trim), Some("100663296"));
    let restored = applied.restore();
    assert!(restored.failed.is_empty() && restored.stepped_back.is_empty(), "{restored:?}");
}

#[test]
fn a_value_that_the_kernel_completes_is_not_a_foreign_change() {
    if !is_root() {
        return;
    }
    // The kernel accepts fewer numbers than there are zones and keeps the old values of the others.
    let file = Path::new("/proc/sys/vm/lowmem_reserve_ratio");
    let Ok(before) = read(file) else {
        return skip(Need::Root, "lowmem_reserve_ratio", format!("no {}", file.display()));
    };
    let dir = tempfile::tempdir().expect("a directory");
    let applied = Applied::apply(&one("vm.lowmem_reserve_ratio", "255"), &context(dir.path()), silent());
    let restored = applied.expect("apply").restore();
    assert!(restored.failed.is_empty() && restored.stepped_back.is_empty(), "{restored:?}");
    assert_eq!(read(file).expect("readable"), before);
}

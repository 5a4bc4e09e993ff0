//! The setup on the real machine: it takes effect, and nothing remains afterwards. Without root only parts are checked.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flatwater_host::setup::{Applied, Log, SetupContext, recover, state};
use flatwater_recording::Setup;
use needs::{Need, skip};

/// Serializes these tests, because they share the process's state directory and the machine.
static ONE: Mutex<()> = Mutex::new(());

fn setup(pairs: &[(&str, &str)]) -> Setup {
    let mut setup = Setup::default();
    for (key, value) in pairs {
        setup.set(key, value).expect("a knob and its value");
    }
    setup
}

fn listening() -> (Log, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let ear = lines.clone();
    (Arc::new(move |line: &str| ear.lock().expect("not poisoned").push(line.to_owned())), lines)
}

fn context(dir: &Path, apply: bool) -> SetupContext {
    SetupContext { dir: dir.to_owned(), name: "test".to_owned(), apply, keep: false }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(Need::Root, "changes to the machine", "not root");
    }
    root
}

fn journals() -> Vec<PathBuf> {
    let places = state::candidates();
    let entries = places.iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    let own = format!("setup-{}-", std::process::id());
    entries.map(|entry| entry.path()).filter(|path| path.display().to_string().contains(&own)).collect()
}

fn mounts_below(dir: &Path) -> usize {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    mounts.lines().filter(|line| line.contains(&dir.display().to_string())).count()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).expect("readable").flatten().map(|entry| entry.path()).collect()
}

#[test]
fn a_shared_knob_is_set_only_with_apply_and_restored_on_drop() {
    let _one = ONE.lock();
    let knob = Path::new("/proc/sys/vm/compaction_proactiveness");
    let held = || std::fs::read_to_string(knob).expect("a knob").trim().to_owned();
    let before = held();
    let other = if before == "21" { "22" } else { "21" };
    let wanted = setup(&[("vm.compaction_proactiveness", other)]);
    let dir = tempfile::tempdir().expect("a directory");
    let (log, lines) = listening();
    let applied = Applied::apply(&wanted, &context(dir.path(), false), log.clone()).expect("apply");
    assert_eq!((applied.withheld().len(), held()), (1, before.clone()));
    assert!(lines.lock().expect("not poisoned").iter().any(|line| line.contains("--apply")));
    drop(applied);
    if is_root() {
        let applied = Applied::apply(&wanted, &context(dir.path(), true), log).expect("apply");
        assert_eq!(held(), other);
        assert_eq!(applied.changes()[0].old.as_deref(), Some(before.as_str()));
        assert_eq!(journals().len(), 1, "the journal is on disk while the setup is applied");
        drop(applied);
        assert_eq!(held(), before);
    }
    assert!(journals().is_empty() && entries(dir.path()).is_empty());
}

#[test]
fn a_knob_that_another_process_changed_is_not_restored() {
    let _one = ONE.lock();
    if !is_root() {
        return;
    }
    let knob = Path::new("/proc/sys/vm/compaction_proactiveness");
    let before = std::fs::read_to_string(knob).expect("a knob");
    let dir = tempfile::tempdir().expect("a directory");
    let (log, lines) = listening();
    let wanted = setup(&[("vm.compaction_proactiveness", "31")]);
    let applied = Applied::apply(&wanted, &context(dir.path(), true), log).expect("apply");
    std::fs::write(knob, "47").expect("write");
    let restored = applied.restore();
    let after = std::fs::read_to_string(knob).expect("a knob");
    std::fs::write(knob, before).expect("restored");
    assert_eq!(after.trim(), "47");
    assert_eq!((restored.stepped_back.len(), restored.failed.len()), (1, 0));
    assert!(lines.lock().expect("not poisoned").iter().any(|line| line.contains("another process")));
}

#[test]
fn a_volume_with_limits_is_created_used_and_removed() {
    let _one = ONE.lock();
    if !is_root() {
        return;
    }
    let limits = || {
        let devices = std::fs::read_dir("/sys/class/bdi").expect("bdi").flatten().map(|entry| entry.path());
        let mut limits: Vec<(PathBuf, String)> = devices
            .flat_map(|bdi| ["strict_limit", "max_ratio_fine"].map(|name| bdi.join(name)))
            .map(|file| (file.clone(), std::fs::read_to_string(file).unwrap_or_default()))
            .collect();
        limits.sort();
        limits
    };
    let before = limits();
    let dir = tempfile::tempdir().expect("a directory");
    let (log, lines) = listening();
    let wanted = setup(&[
        ("mount.size", "64MiB"),
        ("cgroup.memory_limit", "64MiB"),
        ("cgroup.write_bps", "8MiB"),
        ("bdi.strict_limit", "1"),
        ("bdi.max_bytes", "4MiB"),
    ]);
    let applied = match Applied::apply(&wanted, &context(dir.path(), false), log) {
        Ok(applied) => applied,
        // The machine has no loop devices or no blkio controller.
        Err(error) => return skip(Need::Loop, "a volume with limits", error),
    };
    let device = applied.device().cloned().expect("a loop device");
    assert!(device.own && device.name.starts_with("loop"), "{device:?}");
    assert_eq!(mounts_below(dir.path()), 1);
    let strict = PathBuf::from(format!("/sys/class/bdi/{}/strict_limit", device.number));
    assert_eq!(std::fs::read_to_string(&strict).expect("strict_limit").trim(), "1");
    std::fs::write(applied.work_dir().join("file"), vec![1; 1 << 20]).expect("writable");
    let cgroup = applied.memory_cgroup().map(Path::to_owned).expect("a memory cgroup");
    assert!(cgroup.is_dir());
    let restored = applied.restore();
    assert!(restored.failed.is_empty(), "{restored:?} {:?}", lines.lock());
    let of_device = |limits: Vec<(PathBuf, String)>| -> Vec<(PathBuf, String)> {
        limits.into_iter().filter(|(file, _)| file.parent() == strict.parent()).collect()
    };
    assert_eq!(of_device(limits()), of_device(before));
    assert!(!cgroup.exists() && mounts_below(dir.path()) == 0 && entries(dir.path()).is_empty());
    let backing = Path::new("/sys/block").join(&device.name).join("loop/backing_file");
    let ours = std::fs::read_to_string(backing).is_ok_and(|file| file.contains(&dir.path().display().to_string()));
    assert!(!ours && journals().is_empty());
}

#[test]
fn an_impossible_setup_leaves_nothing_and_names_the_remedy() {
    let _one = ONE.lock();
    let dir = tempfile::tempdir().expect("a directory");
    let (log, _) = listening();
    let wanted = setup(&[("cgroup.write_bps", "1MiB")]);
    let error = Applied::apply(&wanted, &context(dir.path(), true), log.clone()).expect_err("not its own device");
    assert!(error.to_string().contains("mount.size"), "{error}");
    assert!(entries(dir.path()).is_empty() && journals().is_empty());
    assert!(recover(&log).failed.is_empty());
}

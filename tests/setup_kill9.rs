//! Kills `verify` with SIGKILL at random instants: after `restore` every setting, cgroup, loop device, mount and file
//! is as before. Needs root and the blkio and memory controllers.

use needs::{Need, skip};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SCENARIO: &str = r#"
name = "kill"
sentence = "A run that changes every kind of setting."
duration = "1s"

[setup]
"mount.size" = "32MiB"
"cgroup.memory_limit" = "64MiB"
"cgroup.write_bps" = "16MiB"
"bdi.strict_limit" = 1
"bdi.max_bytes" = "8MiB"
"vm.compaction_proactiveness" = 27
"vm.watermark_boost_factor" = 14000

[[workload]]
use = "journal"

[[workload]]
use = "stream"
file_size = "8MiB"
bytes = "64KiB"
pause = "1ms"
"#;

const KNOBS: [&str; 2] = ["/proc/sys/vm/compaction_proactiveness", "/proc/sys/vm/watermark_boost_factor"];

fn flatwater(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.env("FLATWATER_STATE", state).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Directories below /sys/fs/cgroup that are named like flatwater's cgroups.
fn cgroups() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut todo = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
        }
        if dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("flatwater-")) {
            found.insert(dir);
        }
    }
    found
}

/// The traces that a run may leave: mounts, loop devices and files in the test's directory, journals, and settings.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    knobs: Vec<String>,
    mounts: usize,
    loops: usize,
    files: BTreeSet<PathBuf>,
    journals: usize,
}

fn left(dir: &Path, state: &Path) -> Left {
    let name = dir.display().to_string();
    let blocks = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let backing = blocks.map(|block| read(&block.path().join("loop/backing_file").display().to_string()));
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    Left {
        knobs: KNOBS.iter().map(|knob| read(knob)).collect(),
        mounts: read("/proc/self/mounts").lines().filter(|line| line.contains(&name)).count(),
        loops: backing.filter(|file| file.contains(&name)).count(),
        files: files.filter(|path| !path.ends_with("kill.toml")).collect(),
        journals: std::fs::read_dir(state).into_iter().flatten().count(),
    }
}

/// `FLATWATER_KILLS=1000..1400` selects other instants (`make test-kills` tries 300).
fn rounds() -> std::ops::Range<u64> {
    let named = std::env::var("FLATWATER_KILLS").unwrap_or_else(|_| "0..8".to_owned());
    let parsed = named.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parsed.expect("FLATWATER_KILLS is like 0..300")
}

#[test]
fn killed_at_many_instants_it_restores_everything() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "kill -9 of a set-up", "not root");
    }
    let (dir, state) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let scenario = dir.path().join("kill.toml");
    std::fs::write(&scenario, SCENARIO).expect("write");
    let before = left(dir.path(), state.path());
    let cgroups_before = cgroups();
    let began = Instant::now();
    let mut caught = 0;
    for round in rounds() {
        let mut verify = flatwater(state.path());
        verify.arg("verify").arg(&scenario).arg("--set").arg("cgroup.memory_limit=96MiB").arg("--apply");
        verify.args(["--block", "300ms", "--settle", "50ms", "-d"]).arg(dir.path());
        let mut child = verify.spawn().expect("flatwater starts");
        // Pseudorandom waits that cover start, mkfs, mount, limits, measuring, sealing, restoring and the next run.
        let wait = 5 + round.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 2_000;
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().expect("kill");
        child.wait().expect("wait");
        caught += usize::from(left(dir.path(), state.path()) != before);
        let restored =
            flatwater(state.path()).arg("restore").stderr(Stdio::piped()).output().expect("flatwater starts");
        let reported = format!("round {round}, killed after {wait} ms:\n{}", String::from_utf8_lossy(&restored.stderr));
        assert!(restored.status.success(), "{reported}{:?}", left(dir.path(), state.path()));
        assert_eq!(left(dir.path(), state.path()), before, "{reported}");
    }
    // Other runs on this machine may come and go, so only cgroups of dead processes count.
    let until = Instant::now() + Duration::from_secs(20);
    let own = |set: BTreeSet<PathBuf>| set.difference(&cgroups_before).filter(|dir| is_dead(dir)).count();
    while own(cgroups()) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(own(cgroups()), 0, "{:?}", cgroups());
    let kills = rounds().count();
    println!("{kills} kills in {:?}, {caught} of them in the middle of changes", began.elapsed());
    assert!(caught * 2 >= kills, "only {caught} of {kills} kills left anything to restore");
}

/// Whether a cgroup is named after a process that has ended.
fn is_dead(dir: &Path) -> bool {
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let pid = name.split('-').nth(1).map(str::to_owned).unwrap_or_default();
    !Path::new("/proc").join(pid).exists()
}

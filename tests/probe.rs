//! `flatwater probe`: mistakes, an end to end run, kill -9 and ^C.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use needs::{Need, skip};
use serde_json::Value;

use crate::common::loopdisk::LoopDisk;
use crate::common::{alone, is_root, tool};

fn probe(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.arg("probe").args(arguments).env("FLATWATER_STATE", state).stdin(Stdio::null());
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A mounted file system; unmounted when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn tmpfs(options: &str) -> Result<Mounted, String> {
        let point = tempfile::tempdir().map_err(|error| error.to_string())?;
        tool("mount", &["-t", "tmpfs", "-o", options, "none", &point.path().to_string_lossy()])?;
        Ok(Mounted(point))
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(why) = tool("umount", &["-l", &self.path()]) {
            eprintln!("{why}");
        }
    }
}

#[test]
fn wrong_places_and_options_are_refused_in_one_line() {
    let state = tempfile::tempdir().expect("a directory");
    let file = state.path().join("file");
    std::fs::write(&file, "").expect("written");
    let mut cases: Vec<(Vec<String>, i32, &str)> = vec![
        (vec![file.display().to_string()], 2, "is not a directory"),
        (vec!["/nowhere".to_owned()], 2, "give an existing directory"),
        (vec!["/proc".to_owned()], 1, "stores no files"),
        (vec![".".to_owned(), "-t".to_owned(), "5s".to_owned()], 2, "a probe takes 10 to 60 s"),
        (vec!["--cgroup".to_owned(), "/no/such/group".to_owned()], 2, "is not a cgroup"),
    ];
    let small = Mounted::tmpfs("size=20m");
    let fixed = Mounted::tmpfs("size=600m,ro");
    match (&small, &fixed) {
        (Ok(small), Ok(fixed)) => {
            cases.push((vec![small.path()], 1, "a probe uses a tenth of that and needs"));
            cases.push((vec![fixed.path()], 1, "read-only file system"));
        }
        (Err(why), _) | (_, Err(why)) => skip(Need::Root, "a small and a read-only file system", why),
    }
    let place = tempfile::tempdir().expect("a directory");
    for (arguments, status, wanted) in cases {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = probe(state.path(), &words).current_dir(place.path()).output().expect("the command runs");
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {text}");
        assert!(text.contains(wanted) && text.lines().count() == 1, "{words:?}: {text}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
    assert_eq!(std::fs::read_dir(place.path()).expect("readable").count(), 0);
}

/// Everything of a probe with this process id that is left on the machine.
fn traces(pid: u32, places: &[&Path], state: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for place in places.iter().chain([&Path::new("/dev/shm")]) {
        let names = std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
        found.extend(names.filter(|path| path.to_string_lossy().contains(&format!("flatwater-probe-{pid}-"))));
    }
    let mut todo = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = todo.pop() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        todo.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(&format!("flatwater-{pid}-")) {
            found.push(folder);
        }
    }
    found.extend(std::fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.path()));
    let mut found: Vec<String> = found.into_iter().map(|path| path.display().to_string()).collect();
    found.extend(children(state).into_iter().map(|pid| format!("process {pid}")));
    found
}

/// The processes of probes with this state directory.
fn children(state: &Path) -> Vec<u32> {
    let wanted = format!("FLATWATER_STATE={}", state.display());
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    let is_ours = |pid: &u32| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_child = read("cmdline").split(|byte| *byte == 0).any(|word| word == b"__probe");
        is_child && read("environ").split(|byte| *byte == 0).any(|word| word == wanted.as_bytes())
    };
    pids.filter(is_ours).collect()
}

fn start(place: &str, state: &Path) -> Child {
    let mut command = probe(state, &[place, "-t", "20s"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command runs")
}

/// Waits until nothing is left; returns what is left after a long time.
fn left(pid: u32, place: &Path, state: &Path) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let left = traces(pid, &[place], state);
        // No process removes a journal that has not begun; see `restore`.
        if left.iter().all(|path| path.ends_with(".begun")) || begun.elapsed() > Duration::from_secs(40) {
            return left;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_killed_probe_leaves_nothing() {
    let place = match Mounted::tmpfs("size=600m") {
        Ok(place) => place,
        Err(why) => return skip(Need::Root, "kill -9 of a probe", why),
    };
    let mut caught = 0;
    for wait_ms in [5, 10, 15, 20, 25, 30, 40, 60, 120, 250, 900, 2_500, 6_000] {
        let state = tempfile::tempdir().expect("a directory");
        let mut child = start(&place.path(), state.path());
        std::thread::sleep(Duration::from_millis(wait_ms));
        child.kill().expect("kill");
        let pid = child.id();
        caught += usize::from(!traces(pid, &[Path::new(&place.path())], state.path()).is_empty());
        child.wait().expect("wait");
        let remains = left(pid, Path::new(&place.path()), state.path());
        // No process removes a journal that has no entry yet.
        if remains.iter().all(|path| path.ends_with(".begun")) {
            restore(state.path());
            assert_eq!(traces(pid, &[], state.path()), Vec::<String>::new(), "after {wait_ms} ms");
        } else {
            panic!("after {wait_ms} ms: {remains:?}");
        }
    }
    assert!(caught >= 3, "only {caught} of 13 kills came while there was anything to remove");
}

fn restore(state: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    let restored = command.arg("restore").env("FLATWATER_STATE", state).output().expect("the command runs");
    assert!(restored.status.success(), "{}", errors(&restored));
}

/// The process that cleans up after a killed probe may be killed as well: then `restore` does it.
#[test]
fn restore_cleans_up_after_a_probe_whose_processes_were_all_killed() {
    let place = match Mounted::tmpfs("size=600m") {
        Ok(place) => place,
        Err(why) => return skip(Need::Root, "kill -9 of all processes of a probe", why),
    };
    let state = tempfile::tempdir().expect("a directory");
    let mut child = start(&place.path(), state.path());
    let begun = Instant::now();
    while children(state.path()).len() < 4 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let others = children(state.path());
    child.kill().expect("kill");
    for pid in &others {
        let _ = tool("kill", &["-9", &pid.to_string()]);
    }
    child.wait().expect("wait");
    let (pid, path) = (child.id(), PathBuf::from(place.path()));
    assert!(!traces(pid, &[&path], state.path()).is_empty(), "{others:?}");
    restore(state.path());
    assert_eq!(left(pid, &path, state.path()), Vec::<String>::new());
}

#[test]
fn an_interrupted_probe_leaves_nothing_and_says_so() {
    let place = match Mounted::tmpfs("size=600m") {
        Ok(place) => place,
        Err(why) => return skip(Need::Root, "^C during a probe", why),
    };
    let state = tempfile::tempdir().expect("a directory");
    let mut command = probe(state.path(), &[&place.path(), "-t", "40s"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let pid = child.id();
    let begun = Instant::now();
    while children(state.path()).len() < 4 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    tool("kill", &["-INT", &pid.to_string()]).expect("sent");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(130), "{}", errors(&output));
    assert!(errors(&output).contains("interrupted"), "{}", errors(&output));
    assert_eq!(left(pid, Path::new(&place.path()), state.path()), Vec::<String>::new());
}

/// The limit of 8 MiB/s is one of the root cgroup of v1, which contains victim and neighbour: their requests, and those
/// of the journal's thread, wait for it, before they reach the device's queue.
#[test]
fn a_slow_disk_is_not_isolated_and_the_limit_is_the_mechanism() {
    let _alone = alone();
    if !is_root() {
        return skip(Need::Root, "probe of a slow disk", "not root");
    }
    let disk = match LoopDisk::ext4("probe", 700) {
        Ok(disk) => disk,
        Err(why) => return skip(Need::Loop, "probe of a slow disk", why),
    };
    if let Err(why) = disk.slow_writes(8 << 20) {
        return skip(Need::Loop, "probe of a slow disk", why);
    }
    let state = tempfile::tempdir().expect("a directory");
    let out = state.path().join("out");
    let path = disk.path().display().to_string();
    let out_text = out.display().to_string();
    let arguments = [&path, "-t", "25s", "--neighbour", "dirty-stream", "--format", "json", "-o", &out_text];
    let output = probe(&state.path().join("state"), &arguments).output().expect("the command runs");
    assert_eq!(output.status.code(), Some(10), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let pairs = report["pairs"].as_array().expect("pairs");
    let fsync = pairs.iter().find(|pair| {
        pair["operation"] == "fsync" && pair["neighbour"] == "dirty-stream" && pair["where"] == "same-file-system"
    });
    let fsync = fsync.expect("the pair");
    assert!(["degraded", "severe"].contains(&fsync["verdict"].as_str().unwrap_or_default()), "{fsync:#}");
    assert_eq!(fsync["mechanism"]["name"], "own-limit", "{fsync:#}");
    for file in ["probe.json", "probe.html", "recording/header.json"] {
        assert!(out.join(file).exists(), "{file}");
    }
    let kept = std::fs::read_dir(disk.path()).expect("readable").flatten().map(|entry| entry.file_name());
    assert_eq!(kept.filter(|name| name != "lost+found").count(), 0);
}

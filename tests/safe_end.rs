//! How a run ends on a signal and on a full disk (S9, S10). Each test fails on 3c238a6. Needs root.

use std::fs::{read_to_string, write};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::common::exploit::{flatwater, text};
use flatwater_recording::{Recording, read};
use rustix::process::{Pid, Signal, kill_process};

/// Serializes these tests, because they wait for a measurement to start.
static ONE: Mutex<()> = Mutex::new(());

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("kill");
}

fn wait_for(what: &str, there: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !there() {
        assert!(Instant::now() < until, "{what} did not begin within 30 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the measurement has begun, that is, latencies are being written.
fn is_measuring(out: &Path) -> bool {
    out.join("latency.frames").metadata().is_ok_and(|meta| meta.len() > 0)
}

fn recorded(out: &Path) -> Recording {
    read(out).expect("an openable recording")
}

/// S10: a run overrode `nohup`'s ignored SIGHUP, and an interrupted run was marked complete.
#[test]
fn s10_an_ignored_hangup_does_not_end_a_run() {
    let _one = ONE.lock();
    let place = tempfile::tempdir().expect("a directory");
    let out = place.path().join("out");
    let mut command = flatwater();
    command.args(["run", "journal", "-t", "4s", "-d"]).arg(place.path()).arg("-o").arg(&out);
    // SAFETY: signal(2) is async-signal-safe and does not affect the parent.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        });
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_for("the measured part", || is_measuring(&out));
    send(&child, Signal::HUP);
    let ended = child.wait_with_output().expect("wait");
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let recording = recorded(&out);
    assert!(recording.header.complete && recording.header.duration_ns >= 3_900_000_000, "{:?}", recording.header);
}

#[test]
fn s10_an_interrupted_run_is_marked_in_recording_text_and_status() {
    let _one = ONE.lock();
    let place = tempfile::tempdir().expect("a directory");
    let out = place.path().join("out");
    let mut command = flatwater();
    command.args(["run", "journal", "-t", "60s", "-d"]).arg(place.path()).arg("-o").arg(&out);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_for("the measured part", || is_measuring(&out));
    send(&child, Signal::INT);
    let ended = child.wait_with_output().expect("wait");
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    assert!(text(&ended.stdout).contains("interrupted after"), "{}", text(&ended.stdout));
    assert!(out.join("report.html").exists(), "an interrupted run has its report");
    let recording = recorded(&out);
    assert!(
        !recording.header.complete
            && recording.header.notes.iter().any(|note| note.to_string().starts_with("interrupted"))
    );
    assert!(recording.gaps.iter().any(|gap| gap.what.contains("end of this recording")), "{:?}", recording.gaps);
}

const KNOB: &str = "/proc/sys/vm/compaction_proactiveness";

/// S10: a second ^C left every setting, cgroup and file of the run in place.
#[test]
fn s10_a_second_signal_still_restores() {
    let _one = ONE.lock();
    let before = read_to_string(KNOB).expect("a knob");
    let other = if before.trim() == "23" { "24" } else { "23" };
    let (place, state) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let (work, out) = (place.path().join("work"), place.path().join("out"));
    std::fs::create_dir(&work).expect("create");
    let mut command = flatwater();
    command
        .args(["run", "journal", "-t", "60s", "--apply", "--set"])
        .arg(format!("vm.compaction_proactiveness={other}"));
    command
        .args(["--set", "mount.size=128MiB", "-d"])
        .arg(&work)
        .arg("-o")
        .arg(&out)
        .env("FLATWATER_STATE", state.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_for("the measured part", || is_measuring(&out));
    let set = read_to_string(KNOB).expect("a knob");
    send(&child, Signal::INT);
    // Two signals of one kind become one if the first has not been handled yet.
    let mut printed = String::new();
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    while !printed.contains("ending;") && lines.read_line(&mut printed).expect("text") > 0 {}
    send(&child, Signal::INT);
    lines.read_to_string(&mut printed).expect("text");
    let ended = child.wait().expect("wait");
    let after = read_to_string(KNOB).expect("a knob");
    write(KNOB, &before).expect("restored");
    let left = names(&work);
    let restored = flatwater().arg("restore").env("FLATWATER_STATE", state.path()).output().expect("it starts");
    assert_eq!(set.trim(), other, "the run changed the setting: {printed}");
    assert_eq!(after, before, "{printed}");
    assert!(printed.contains("stopping at once"), "{printed}");
    assert!(left.is_empty() && names(state.path()).is_empty(), "{left:?} {printed}");
    assert_eq!(ended.code(), Some(130), "{printed}");
    assert_eq!(text(&restored.stdout).trim(), "nothing to restore");
    let explained = flatwater().arg("explain").arg(&out).output().expect("it starts");
    assert!(
        matches!(explained.status.code(), Some(0 | 4)) && text(&explained.stdout).contains("journal on host"),
        "{}",
        text(&explained.stderr)
    );
}

fn names(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// A tmpfs of 4 MiB, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> SmallDisk {
        let place = tempfile::tempdir().expect("a directory");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("safe_end", place.path(), "tmpfs", flags, c"size=4m,mode=0700")
            .expect("mounted: needs root");
        SmallDisk(place)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// S9: on a full disk outcomes.json was written before the reserve was released, so there was no summary, no report,
/// and nothing was sealed.
#[test]
fn s9_a_full_disk_leaves_a_summary_and_an_openable_recording() {
    let _one = ONE.lock();
    let (disk, work) = (SmallDisk::new(), tempfile::tempdir().expect("a directory"));
    let out = disk.0.path().join("out");
    let mut command = flatwater();
    command.args(["run", "journal", "-t", "4s", "-d"]).arg(work.path()).arg("-o").arg(&out);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_for("the measured part", || is_measuring(&out));
    let mut filler = std::fs::File::create(disk.0.path().join("filler")).expect("create");
    for bytes in [64 << 10, 4096, 1] {
        while filler.write_all(&vec![0; bytes]).is_ok() {}
    }
    let ended = child.wait_with_output().expect("wait");
    let (messages, printed) = (text(&ended.stderr), text(&ended.stdout));
    assert!(ended.status.success(), "{messages}");
    assert!(printed.contains("journal") && printed.contains("write"), "no summary: {printed} {messages}");
    let recording = recorded(&out);
    assert!(recording.gaps.iter().any(|gap| gap.what == "part of this recording"), "{:?}", recording.gaps);
    assert!(!recording.outcomes.is_empty() || recording.gaps.iter().any(|gap| gap.why.contains("outcomes")));
}

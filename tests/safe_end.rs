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
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

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

/// A run that changes a setting and makes a volume, with the setting before the run.
struct Setup {
    before: String,
    other: &'static str,
    place: tempfile::TempDir,
    state: tempfile::TempDir,
}

impl Setup {
    fn new() -> Setup {
        let before = read_to_string(KNOB).expect("a knob");
        let other = if before.trim() == "23" { "24" } else { "23" };
        let setup = Setup {
            before,
            other,
            place: tempfile::tempdir().expect("a directory"),
            state: tempfile::tempdir().expect("a directory"),
        };
        std::fs::create_dir(setup.work()).expect("create");
        setup
    }

    fn work(&self) -> PathBuf {
        self.place.path().join("work")
    }

    fn out(&self) -> PathBuf {
        self.place.path().join("out")
    }

    /// Returns when the run measures, with the setting changed.
    fn started(&self) -> Child {
        let mut command = flatwater();
        command
            .args(["run", "journal", "-t", "60s", "--apply", "--set"])
            .arg(format!("vm.compaction_proactiveness={}", self.other));
        command
            .args(["--set", "mount.size=128MiB", "-d"])
            .arg(self.work())
            .arg("-o")
            .arg(self.out())
            .env("FLATWATER_STATE", self.state.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        wait_for("the measured part", || is_measuring(&self.out()));
        assert_eq!(read_to_string(KNOB).expect("a knob").trim(), self.other, "the run changed the setting");
        child
    }

    /// Checks that the ended run restored the machine; restores it if not.
    fn assert_restored(&self, printed: &str) {
        let after = read_to_string(KNOB).expect("a knob");
        write(KNOB, &self.before).expect("restored");
        let left = names(&self.work());
        let left_of_state = names(self.state.path());
        let restored =
            flatwater().arg("restore").env("FLATWATER_STATE", self.state.path()).output().expect("it starts");
        assert_eq!(after, self.before, "{printed}");
        assert!(left.is_empty() && left_of_state.is_empty(), "{left:?} {left_of_state:?} {printed}");
        assert_eq!(text(&restored.stdout).trim(), "nothing to restore");
    }
}

/// S10: a second ^C left every setting, cgroup and file of the run in place.
#[test]
fn s10_a_second_signal_still_restores() {
    let _one = ONE.lock();
    let setup = Setup::new();
    let mut child = setup.started();
    send(&child, Signal::INT);
    // Two signals of one kind become one if the first has not been handled yet.
    let mut printed = String::new();
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    while !printed.contains("ending;") && lines.read_line(&mut printed).expect("text") > 0 {}
    send(&child, Signal::INT);
    lines.read_to_string(&mut printed).expect("text");
    let ended = child.wait().expect("wait");
    setup.assert_restored(&printed);
    assert!(printed.contains("stopping at once"), "{printed}");
    assert_eq!(ended.code(), Some(130), "{printed}");
    let explained = flatwater().arg("explain").arg(setup.out()).output().expect("it starts");
    assert!(
        matches!(explained.status.code(), Some(0 | 4)) && text(&explained.stdout).contains("journal on host"),
        "{}",
        text(&explained.stderr)
    );
}

/// A third signal within some ms of the second ended `restore` before it ignored signals.
#[test]
fn s10_signals_at_random_instants_still_restore() {
    let _one = ONE.lock();
    let setup = Setup::new();
    let child = setup.started();
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("a handle");
    let mut random = u64::from(child.id());
    let ended = std::thread::spawn(move || child.wait_with_output().expect("wait"));
    let mut sent = 0;
    while !ended.is_finished() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let signal = [Signal::INT, Signal::TERM, Signal::HUP][(random >> 33) as usize % 3];
        // Fails once the process has ended.
        let _ = pidfd_send_signal(&process, signal);
        sent += 1;
        std::thread::sleep(Duration::from_micros((random >> 40) % 1_000));
    }
    let ended = ended.join().expect("waited");
    let printed = text(&ended.stderr);
    setup.assert_restored(&printed);
    assert!(sent >= 3 && printed.contains("stopping at once"), "{sent} signals: {printed}");
    assert!(matches!(ended.status.code(), Some(129 | 130 | 143)), "{:?} after {sent} signals: {printed}", ended.status);
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

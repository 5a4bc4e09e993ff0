//! The targets of `record` with other programs: a process tree whose workers already run, a program by name, and one
//! that makes no calls.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use flatwater_recording::{OpKind, read};
use needs::{Need, Started, skip};

fn record(arguments: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.arg("record").args(arguments).args(["-t", "2s", "--format", "json", "-o"]).arg(out);
    command.stdin(Stdio::null()).output().expect("flatwater starts")
}

fn can_trace(test: &str) -> bool {
    let able = rustix::process::geteuid().is_root() && flatwater_host::tracer::measure_hook_cost().is_ok();
    if !able {
        skip(Need::Bpf, test, "no hook on system calls can be attached");
    }
    able
}

fn wait_for(what: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !what() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(what(), "the program under test did not start within 10 s");
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    })
}

/// The parent only waits; a worker that started before the recording writes, as in PostgreSQL.
const POOL: &str = "(i=0; while [ $i -lt 20000 ]; do dd if=/dev/zero of=worker bs=4k count=64 conv=notrunc,fsync; i=$((i+1)); done) & wait";

#[test]
fn a_pid_includes_its_running_children() {
    if !can_trace("workers of a pid") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let pool = Started::shell(POOL, directory.path());
    wait_for(|| directory.path().join("worker").exists());
    let out = directory.path().join("rec");
    let output = record(&["-p", &pool.pid().to_string()], &out);
    let explained = json(&output);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(explained["conclusion"], "not-observed");
    let recording = read(&out).expect("a recording");
    let fsyncs: u64 = recording.latency.iter().filter(|b| b.op == OpKind::Fsync).map(|b| b.from_start.count()).sum();
    assert!(fsyncs > 0, "the worker's fsync() calls were timed");
    let listed: Vec<&str> = recording.header.target.processes.iter().map(|process| process.name.as_str()).collect();
    assert!(listed.len() >= 2 && listed.contains(&"sh"), "{listed:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("watching sh (pid"));
}

#[test]
fn a_program_is_watched_by_its_name() {
    if !can_trace("a program by name") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("fw-logger");
    fs::copy("/bin/dd", &program).expect("a copy of dd");
    let endless = "exec ./fw-logger if=/dev/zero of=log bs=512 count=100000000 oflag=append conv=notrunc";
    let _first = Started::shell(endless, directory.path());
    wait_for(|| directory.path().join("log").exists());
    // The program ends with its process group when `_first` is dropped.
    let out = directory.path().join("rec");
    let output = record(&["--program", "fw-logger"], &out);
    assert_ne!(json(&output)["conclusion"], "not-observed");
    let recording = read(&out).expect("a recording");
    let writes: u64 = recording.latency.iter().filter(|b| b.op == OpKind::Write).map(|b| b.from_start.count()).sum();
    assert!(writes > 100, "{writes} writes were timed");
    let output = record(&["--program", "no-such-program"], &directory.path().join("none"));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no process runs no-such-program"));
}

/// Records a shell script from its first instruction.
fn record_script(script: &str, directory: &Path) -> flatwater_recording::Recording {
    let out = directory.join("rec");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.args(["record", "--format", "json", "-o"]).arg(&out).args(["--", "sh", "-c", script]);
    let output = command.current_dir(directory).stdin(Stdio::null()).output().expect("flatwater starts");
    assert!(out.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    read(&out).expect("a recording")
}

/// A little less than the time for which `cat` waits for its input.
const PIPE_WAIT_NS: u64 = 2_900_000_000;

/// `cat` waits 3 s for its input. On a busy machine the reads of cat's program and libraries are slow calls, but no
/// call on a file takes that long.
#[test]
fn a_wait_for_a_pipe_is_not_a_stall() {
    if !can_trace("pipes") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let recording = record_script("sleep 3 | cat; head -c 10 /dev/urandom > /dev/null", directory.path());
    let data: Vec<_> = recording.calls.iter().filter(|call| matches!(call.op, OpKind::Read | OpKind::Write)).collect();
    let is_stream = |file: &str| file.starts_with("pipe:") || file.ends_with("urandom");
    assert!(!data.iter().any(|call| call.file.as_deref().is_some_and(is_stream)), "{data:?}");
    assert!(data.iter().all(|call| call.duration_ns < PIPE_WAIT_NS), "{data:?}");
    let reads = || recording.latency.iter().filter(|bucket| bucket.op == OpKind::Read);
    assert!(reads().map(|bucket| bucket.from_start.count()).sum::<u64>() > 0, "reads of files are timed");
    let worst_ns = reads().map(|bucket| bucket.worst_from_start_ns).max();
    assert!(worst_ns < Some(PIPE_WAIT_NS), "a read of {worst_ns:?} ns is in the histogram");
}

#[test]
fn calls_beside_read_and_write_are_timed() {
    if !can_trace("other calls") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let script = "mkdir d && dd if=/dev/zero of=d/a bs=64k count=64 2>/dev/null && ln d/a d/b && ln -s a d/c && \
                  sync && sync -f d/a && ls -lR d >/dev/null && cp d/a d/e && rm -r d";
    let recording = record_script(script, directory.path());
    let count = |op: OpKind| -> u64 {
        recording.latency.iter().filter(|bucket| bucket.op == op).map(|bucket| bucket.from_start.count()).sum()
    };
    use OpKind::{Close, Link, List, Mkdir, Open, Stat, Symlink, Sync, Syncfs, Unlink, Write};
    for op in [Close, Link, List, Mkdir, Open, Stat, Symlink, Sync, Syncfs, Unlink, Write] {
        assert!(count(op) > 0, "no {} was timed", op.name());
    }
    assert_eq!((count(Sync), count(Syncfs), count(Mkdir), count(Link), count(Symlink)), (1, 1, 1, 1, 1));
    assert!(count(Write) >= 64);
}

#[test]
fn an_idle_target_is_not_observed_rather_than_quiet() {
    if !can_trace("an idle target") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let idle = Started::shell("exec sleep 60", directory.path());
    wait_for(|| fs::read_to_string(format!("/proc/{}/comm", idle.pid())).is_ok_and(|name| name.trim() == "sleep"));
    let output = record(&["-p", &idle.pid().to_string()], &directory.path().join("rec"));
    let explained = json(&output);
    assert_eq!(output.status.code(), Some(4), "{explained}");
    assert_eq!(explained["conclusion"], "not-observed");
    assert!(explained["findings"].as_array().expect("findings").iter().all(|finding| finding["cause"] != "quiet"));
}

/// A victim that syncs little, beside a neighbour that syncs much: the neighbour is named. Without the neighbour, it is
/// not.
#[test]
fn a_neighbour_that_fills_the_disk_is_named() {
    if !can_trace("a neighbour named") {
        return;
    }
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on the disk");
    fs::copy("/bin/dd", place.path().join("streamer")).expect("a copy of dd");
    let victim = "while :; do dd if=/dev/zero of=victim bs=64k count=64 conv=notrunc,fsync; sleep 0.02; done";
    let stream = "while :; do ./streamer if=/dev/zero of=stream bs=1M count=200 conv=notrunc,fsync; done";
    let victim = Started::shell(victim, place.path());
    let pid = victim.pid().to_string();
    let blamed = |name: &str| -> Vec<String> {
        let explained = json(&record(&["-p", &pid, "-m", "2ms"], &place.path().join(name)));
        let findings = explained["findings"].as_array().expect("findings").iter();
        let named = findings.flat_map(|finding| finding["aggressors"].as_array().cloned().unwrap_or_default());
        named.map(|aggressor| aggressor["program"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert!(!blamed("alone").contains(&"streamer".to_owned()), "the neighbour does not run yet");
    let _stream = Started::shell(stream, place.path());
    wait_for(|| place.path().join("stream").exists());
    let blamed = blamed("beside");
    assert!(blamed.contains(&"streamer".to_owned()), "{blamed:?}");
}

/// The short form of `make programs`: a real fio with a neighbour that locks its file, and one with a neighbour that
/// fills its memory cgroup.
#[test]
#[ignore = "make test-verify"]
fn a_real_programs_neighbour_is_named() {
    let test = "a_real_programs_neighbour_is_named";
    if !can_trace(test) {
        return;
    }
    if Command::new("fio").arg("--version").output().is_err() {
        return skip(Need::Fio, test, "fio is not installed");
    }
    if !Path::new("/sys/fs/cgroup/memory/cgroup.procs").exists() {
        return skip(Need::Memcg, test, "no memory controller in cgroup v1");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/programs.py");
    let out = Command::new("python3")
        .arg("-B")
        .arg(script)
        .args(["--flatwater", env!("CARGO_BIN_EXE_flatwater"), "--short", "--runs", "6", "--image-mib", "1024"])
        .args(["--only", "fio-psync", "--beside", "alone,lock-holder,full-cgroup"])
        .stdin(Stdio::null())
        .output()
        .expect("python3 starts");
    let message = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{message}");
    assert!(
        message.contains("fio-psync beside full-cgroup") && message.contains("fio-psync beside lock-holder"),
        "{message}"
    );
}

//! `flatwater reproduce`: its refusals, the scenario that it writes, and what a killed check leaves.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use flatwater_recording::{
    GroupRole, Header, Limit, OperationFiles, OperationKind, Operations, Recording, Source, write_whole,
};
use flatwater_workload::scenario::Scenario;
use needs::{Need, skip};

/// A program that writes 4 KiB every 4 ms and syncs every 8 writes.
fn recording() -> Recording {
    let row = |op, count| Operations {
        role: GroupRole::Target,
        pid: Some(7),
        thread: "../db\"".to_owned(),
        file_system: "7:3".to_owned(),
        op,
        count,
        call_ns: 1_000_000_000,
        threads: 1,
        ..Operations::default()
    };
    let write = Operations {
        pauses: 1_000,
        pause_ns: 4_000_000_000,
        pause_classes: "2097152:1000".to_owned(),
        size_classes: "4096:1000".to_owned(),
        sync_classes: "8:125".to_owned(),
        sequential: 1_000,
        ..row(OperationKind::Write, 1_000)
    };
    let files = OperationFiles {
        pid: Some(7),
        file_system: "7:3".to_owned(),
        files: 1_000_000,
        written: Some(true),
        bytes: 1 << 63,
        ..OperationFiles::default()
    };
    let limit = Limit {
        name: "capacity".to_owned(),
        file_system: "7:3".to_owned(),
        at_end: Some((128_u64 << 20).to_string()),
        ..Limit::default()
    };
    Recording {
        header: Header {
            format_version: 1,
            complete: true,
            duration_ns: 5_000_000_000,
            threshold_ns: 1_000_000,
            ..Header::default()
        },
        operations: vec![write, row(OperationKind::Fsync, 125)],
        operation_files: vec![files],
        limits: vec![limit],
        ..Recording::default()
    }
}

fn reproduce(recording: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.arg("reproduce").arg(recording).arg("-o").arg(out).args(more).stdin(Stdio::null());
    command
}

fn refused(place: &Path, recording: &Path, more: &[&str], word: &str) {
    let Output { status, stderr, .. } = reproduce(recording, &place.join("out"), more).output().expect("it runs");
    let message = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(2), "{message}");
    assert!(message.contains(word), "{word} in {message}");
    assert!(!place.join("out/scenario.toml").exists(), "nothing is written");
}

#[test]
fn a_recording_without_the_tables_or_a_bad_place_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let old = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recordings-3c238a6/host");
    refused(place.path(), Path::new(old), &[], "flatwater run");
    let write = |name: &str, recording: &Recording| {
        let path = place.path().join(name);
        std::fs::create_dir(&path).expect("made");
        write_whole(&path, recording).expect("written");
        path
    };
    let mut imported = recording();
    imported.header.source = Source::Import;
    refused(place.path(), &write("imported", &imported), &[], "imported from logs");
    let empty = Recording { operations: Vec::new(), ..recording() };
    refused(place.path(), &write("empty", &empty), &[], "record again");
    // A damaged table is a missing one.
    let damaged = write("damaged", &recording());
    std::fs::write(damaged.join("operations.parquet"), b"PAR1 no table").expect("written");
    refused(place.path(), &damaged, &[], "record again");
    let whole = write("whole", &recording());
    refused(place.path(), &whole, &["-d", "/dev/shm"], "memory");
    refused(place.path(), &whole, &["-d", "/proc"], "-d");
}

#[test]
fn verify_names_the_command_that_numbers_the_fixes_of_a_recording() {
    let place = tempfile::tempdir().expect("a directory");
    write_whole(place.path(), &recording()).expect("written");
    for (fix, words) in
        [(None, ["is a recording: give --fix N", "flatwater explain"]), (Some("7"), ["no fix", "flatwater explain"])]
    {
        let mut verify = Command::new(env!("CARGO_BIN_EXE_flatwater"));
        verify.arg("verify").arg(place.path()).args(fix.map(|number| ["--fix", number]).into_iter().flatten());
        let Output { status, stderr, .. } = verify.stdin(Stdio::null()).output().expect("it runs");
        let message = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(2), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{words:?} in {message}");
    }
}

#[test]
fn a_hostile_recording_becomes_a_bounded_scenario_in_its_own_directory() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (rec, out) = (place.path().join("rec"), place.path().join("out"));
    std::fs::create_dir(&rec).expect("made");
    write_whole(&rec, &recording()).expect("written");
    let done = reproduce(&rec, &out, &["-d", &place.path().display().to_string()]).output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let names: Vec<_> = std::fs::read_dir(&out).expect("made").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(std::fs::read_dir(place.path()).expect("readable").count(), 2, "nothing beside it");
    let scenario = Scenario::load(&out.join("scenario.toml").display().to_string()).expect("a scenario");
    let spec = &scenario.workloads[0];
    let footprint = (spec.entry.build)(&spec.params, 1).expect("possible").footprint();
    assert!(footprint.disk_bytes <= 128 << 20 && footprint.files <= 256, "{footprint:?}");
}

/// After kill -9 and `restore`, no mount, loop device or file of the check is left.
#[test]
fn a_killed_check_is_undone_by_restore() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skip(Need::Loop, "kill -9 of reproduce --check", "no loop devices");
    }
    let (place, state) = (
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (rec, work) = (place.path().join("rec"), place.path().join("work"));
    for path in [&rec, &work] {
        std::fs::create_dir(path).expect("made");
    }
    write_whole(&rec, &recording()).expect("written");
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.contains(&work.display().to_string())
    };
    let directory = work.display().to_string();
    let mut check = reproduce(&rec, &place.path().join("out"), &["--check", "-d", &directory]);
    let mut child = check
        .env("FLATWATER_STATE", state.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !mounted() && child.try_wait().expect("known").is_none() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let made = mounted();
    std::thread::sleep(Duration::from_millis(1_500));
    child.kill().expect("killed");
    child.wait().expect("ended");
    let mut restore = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    let restored = restore.arg("restore").env("FLATWATER_STATE", state.path()).output().expect("it runs");
    assert!(made, "the check makes its volume");
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert!(!mounted());
    assert_eq!(std::fs::read_dir(&work).expect("readable").count(), 0, "no file is left");
    assert_eq!(std::fs::read_dir(state.path()).expect("readable").count(), 0, "no journal is left");
}

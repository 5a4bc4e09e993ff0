//! `record` as a normal user: slow calls are found in /proc, their causes are right, and what is not seen is listed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use flatwater_recording::{Cause, OpKind};
use needs::{Need, skip, unprivileged_command};

use crate::common::exploit::{Killed, Yard, flatwater, text, within};
use crate::common::is_root;
use crate::common::loopdisk::{Frozen, LoopDisk};

const LONG: Duration = Duration::from_secs(90);

/// The file system is frozen for 400 ms, so the length and the cause of one write() are known.
#[test]
fn a_write_to_a_frozen_file_system_is_found_with_its_length_and_its_cause() {
    if !is_root() {
        return skip(Need::Root, "without privileges", "needs root to freeze a file system");
    }
    let disk = match LoopDisk::ext4("polled", 64) {
        Ok(disk) => disk,
        Err(why) => return skip(Need::Loop, "without privileges", why),
    };
    fs::set_permissions(disk.path(), fs::Permissions::from_mode(0o777)).expect("chmod");
    let yard = Yard::new();
    let out = yard.theirs().join("rec");
    let file = disk.path().join("log");
    let script = format!("echo a >{0}; touch {0}.begun; while :; do echo a >>{0}; sleep 0.01; done", file.display());
    let out_text = out.to_str().expect("UTF-8").to_owned();
    let arguments = ["record", "-t", "3s", "--format", "json", "-o", &out_text, "--", "timeout", "20", "sh", "-c"];
    let mut command = unprivileged_command(flatwater().get_program());
    command.args(arguments).stdin(Stdio::null());
    let recorder = std::thread::spawn(move || within(LONG, command.arg(script)).expect("it ends"));
    while !disk.path().join("log.begun").exists() {
        assert!(!recorder.is_finished(), "{}", text(&recorder.join().expect("joined").stderr));
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    let frozen = Frozen::of(disk.path()).expect("frozen");
    let begun = std::time::Instant::now();
    std::thread::sleep(Duration::from_millis(400));
    drop(frozen);
    let thawed_ns = u64::try_from(begun.elapsed().as_nanos()).expect("short");
    let output = recorder.join().expect("joined");
    let recording = flatwater_recording::read(&out).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let slow = recording.calls.iter().max_by_key(|call| call.duration_ns).expect("a slow call");
    assert!(matches!(slow.op, OpKind::Write | OpKind::Open), "{slow:?}");
    // The freeze begins some time after the call of fsfreeze, and a busy machine thaws late.
    assert!(slow.duration_ns > 300_000_000 && slow.duration_ns < thawed_ns + 400_000_000, "{slow:?}");
    assert_eq!(slow.by_cause().into_iter().max_by_key(|(_, ns)| *ns).map(|(cause, _)| cause), Some(Cause::FsFreeze));
    let explained: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an explanation");
    assert_eq!(explained["findings"][0]["cause"], "fs-freeze", "{explained}");
    assert!(explained["findings"][0]["aggressors"].is_null(), "nothing shows who froze it: {explained}");
    assert!(recording.gaps.iter().any(|gap| gap.what.contains("who made them wait")), "{:?}", recording.gaps);
}

/// The processes of another user cannot be read: that is a gap, and no answer.
#[test]
fn processes_of_another_user_give_no_answer() {
    if !is_root() {
        return skip(Need::Root, "without privileges", "needs root to own the other process");
    }
    let yard = Yard::new();
    let other = Killed(Command::new("sleep").arg("60").spawn().expect("sleep"));
    let (pid, out) = (other.0.id().to_string(), yard.theirs().join("rec"));
    let arguments = ["record", "-t", "1s", "--format", "json", "-p", &pid, "-o", out.to_str().expect("UTF-8")];
    let mut command = unprivileged_command(flatwater().get_program());
    let output = within(LONG, command.args(arguments).stdin(Stdio::null())).expect("it ends");
    drop(other);
    let explained: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an explanation");
    assert_eq!(explained["findings"][0]["cause"], "not-observed", "{explained}");
    let recording = flatwater_recording::read(&out).expect("a recording");
    let refused = recording.gaps.iter().find(|gap| gap.what == "calls of some threads").expect("a gap");
    assert!(refused.why.contains("denied") && refused.remedy.contains("record -- CMD"), "{refused:?}");
}

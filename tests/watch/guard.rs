//! The guard of a running daemon on this machine: it names victim and aggressor, refuses where a limit would harm, and
//! changes nothing. Limits are tested in guests with cgroup v2 (tests/matrix/guard.rs).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Daemon, can_trace};
use crate::common::groups::MemoryGroup;
use crate::common::loopdisk::LoopDisk;
use crate::common::neighbour::{Neighbour, Task};
use crate::common::{Scratch, alone};

/// The path of a group below its mount, as in /proc/PID/cgroup.
fn name_of(group: &MemoryGroup) -> String {
    format!("/{}", group.path().file_name().expect("a name").to_string_lossy())
}

fn guard(daemon: &Daemon, words: &[&str]) -> (String, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.arg("guard").arg("-c").arg(&daemon.config).args(words).stdin(Stdio::null());
    let output = command.output().expect("flatwater starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    (format!("{}{errors}", String::from_utf8_lossy(&output.stdout)), output.status.success())
}

fn advices(daemon: &Daemon) -> Vec<Value> {
    let (text, _) = guard(daemon, &["list", "--format", "json"]);
    let state: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    state["advices"].as_array().cloned().unwrap_or_default()
}

#[test]
#[ignore = "three minutes of a stall: make test-guard"]
fn a_neighbour_on_the_same_journal_is_named_and_not_limited() {
    if !can_trace("the guard's advice") {
        return;
    }
    let _alone = alone();
    let disk = LoopDisk::ext4("watch-guard", 256).expect("a disk");
    let place = Scratch::new("watch-guard");
    let (db, jobs) = (MemoryGroup::new(256 << 20).expect("a group"), MemoryGroup::new(256 << 20).expect("a group"));
    let (victim, aggressor) = (name_of(&db), name_of(&jobs));
    // Act mode, so that the refusal is not the mode.
    let policy = format!("[guard]\nmode = \"act\"\nvictims = [\"{victim}\"]\nallow = [\"{aggressor}\"]\n");
    let daemon = Daemon::start(place.path(), &format!("after = \"2s\"\n[budget]\ncpu_share = 0.9\n{policy}---\n"));
    assert!(guard(&daemon, &["list"]).0.contains("act: protects"), "{:?}", guard(&daemon, &["list"]));
    disk.slow_writes(6 << 20).expect("limit");
    let time = Duration::from_secs(80);
    let of = |name: &str| disk.path().join(name);
    let mut loads = [
        (Neighbour::start(&Task::SyncedJournal(of("journal")), time), &db),
        (Neighbour::start(&Task::Sync(of("other")), time), &jobs),
        (Neighbour::start(&Task::Stream(of("stream")), time), &jobs),
    ];
    for (load, group) in &mut loads {
        group.add(load.pid()).expect("moved");
        load.release();
    }
    let end = Instant::now() + time;
    let found = loop {
        let all = advices(&daemon);
        let wanted =
            |advice: &&Value| advice["victim"]["group"] == *victim && advice["aggressor"]["group"] == *aggressor;
        if let Some(advice) = all.iter().find(wanted) {
            break advice.clone();
        }
        assert!(Instant::now() < end, "no advice within {time:?}: {all:?}\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(500));
    };
    drop(loads);
    judge(&daemon, &found, &victim, &aggressor);
    let log = daemon.stop();
    assert!(log.contains("guard: ") && log.contains(&aggressor), "{log}");
    let settings = ["memory.high", "io.max"].map(|file| Path::new(jobs.path()).join(file).exists());
    assert!(jobs.is_v2() || settings == [false; 2]);
}

fn judge(daemon: &Daemon, advice: &Value, victim: &str, aggressor: &str) {
    // The disk is slow by a limit on its device, which may count as the victim's own.
    // Both use one file system, or the journal wrote the neighbour's changes: a limit would harm.
    let why = advice["refusal"].as_str().unwrap_or_default();
    let harmful = [
        "own-limit",
        "shared-journal",
        "lock-holder",
        "weak-evidence",
        "file-system-unknown",
        "means-unknown",
        "cgroup-v1",
    ];
    assert!(harmful.contains(&why), "{advice}");
    assert!(advice["aggressor"]["share"].as_f64() >= Some(0.2), "{advice}");
    assert!(advice["aggressor"]["evidence"].as_array().is_some_and(|lines| !lines.is_empty()), "{advice}");
    let id = advice["id"].as_u64().expect("a number").to_string();
    let (shown, ok) = guard(daemon, &["show", &id]);
    assert!(ok && shown.contains(victim) && shown.contains(aggressor), "{shown}");
    assert!(!guard(daemon, &["show", "99999"]).1, "an unknown advice is an error");
    let (listed, _) = guard(daemon, &["list"]);
    assert!(listed.contains(victim) && listed.contains(aggressor), "{listed}");
    let metrics = daemon.metrics();
    assert!(metrics.contains(&format!("flatwater_guard_refusals_total{{reason=\"{why}\"}}")), "{metrics}");
    assert!(metrics.contains("flatwater_guard_limiting 0"), "{metrics}");
    assert!(!metrics.contains("flatwater_guard_limited_seconds_total{"), "nothing was limited: {metrics}");
    assert!(guard(daemon, &["release", &id]).1 && guard(daemon, &["release", "--all"]).1);
}

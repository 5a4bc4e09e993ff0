//! The daemon under stress: killed at any instant, with 5000 cgroups, with scrapers that never read, after a thousand
//! recordings. The long tests are part of `make test-long`.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Daemon, can_trace, complete, named_dd, until};
use crate::common::groups::MemoryGroup;
use crate::common::loopdisk::{BareLoop, Frozen, LoopDisk};
use crate::common::{Scratch, alone};
use flatwater_explain::{CauseId, Finding};
use flatwater_recording::{Call, Cause, Request, read};
use needs::{Need, skip};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// Kills a writing daemon at random instants (FLATWATER_SEED), and reads the recordings each time.
fn killed_at_random(name: &str, times: usize) {
    if !can_trace(name) {
        return;
    }
    let _alone = alone();
    let place = Scratch::new(name);
    let seed: u64 = std::env::var("FLATWATER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_122);
    println!("FLATWATER_SEED={seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    let (mut written, mut unfinished) = (0, 0);
    for round in 0..times {
        let mut daemon = Daemon::start(place.path(), "look_back = \"5s\"\nafter = \"1s\"\n---\n");
        assert_eq!(daemon.unfinished(), [""; 0], "round {round}: the daemon removes at its start what a kill left");
        let mut asking = Command::new(env!("CARGO_BIN_EXE_flatwater"));
        asking.args(["watch", "-c"]).arg(&daemon.config).arg("dump");
        let mut asking =
            asking.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("flatwater starts");
        // From before it begins to write until after it seals.
        std::thread::sleep(Duration::from_millis(u64::from(random.next_u32() % 4_000)));
        daemon.signal(rustix::process::Signal::KILL);
        daemon.child.wait().expect("wait");
        let _ = asking.wait();
        unfinished += daemon.unfinished().len();
        for path in daemon.recordings() {
            let recording = read(&path).unwrap_or_else(|error| panic!("round {round}: {}: {error}", path.display()));
            assert!(path.join("header.json").exists() && path.join("set-off-by").exists(), "{}", path.display());
            written += usize::from(recording.header.complete || recording.header.duration_ns > 0);
            fs::remove_dir_all(&path).expect("remove");
        }
    }
    assert!(written * 4 >= times, "{written} of {times} left a recording: the kills came too early");
    println!("{times} kills, {written} recordings, each was read; {unfinished} were not begun or not removed");
}

#[test]
fn killed_at_eight_instants_every_recording_is_read() {
    killed_at_random("watch-kill", 8);
}

#[test]
#[ignore = "five minutes: make test-long"]
fn killed_at_a_hundred_instants_every_recording_is_read() {
    killed_at_random("watch-kills", 100);
}

/// Resident memory of a process, MiB.
fn rss_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().split(' ').next()?.parse::<u64>().ok());
    kib.expect("it runs") >> 10
}

#[test]
#[ignore = "an hour: make test-long"]
fn a_thousand_recordings_leave_memory_and_the_quota_as_they_were() {
    if !can_trace("a thousand recordings") {
        return;
    }
    let _alone = alone();
    let place = Scratch::new("watch-thousand");
    let store = "look_back = \"5s\"\nafter = \"1s\"\n---\n";
    let daemon = Daemon::start(place.path(), store);
    let (mut made, mut first_mib) = (0, 0);
    let mut last = String::new();
    while made < 1_000 {
        let answer = daemon.ask(&["dump"]);
        assert!(answer.status.success(), "{made}: {}", String::from_utf8_lossy(&answer.stderr));
        let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
        let path = answer["recording"].as_str().expect("a path").to_owned();
        made += usize::from(path != last);
        until("sealed", Duration::from_secs(60), || complete(Path::new(&path)).is_some());
        if made == 50 {
            first_mib = rss_mib(daemon.child.id());
        }
        // Other tests check the store's quota. Here the test's disk must not fill up.
        fs::remove_dir_all(&path).expect("remove");
        last = path;
    }
    let last_mib = rss_mib(daemon.child.id());
    println!("1000 recordings: {first_mib} MiB resident after 50 of them, {last_mib} MiB at the end");
    assert!(last_mib <= first_mib + 8, "{first_mib} MiB have become {last_mib} MiB");
    daemon.stop();
}

#[test]
fn scrapers_that_never_read_do_not_block_others() {
    if !can_trace("a scraper that never reads") {
        return;
    }
    let _alone = alone();
    let place = Scratch::new("watch-deaf");
    let daemon = Daemon::start(place.path(), "---\n");
    // Fewer than the daemon serves at a time. Each occupies a thread until its timeout.
    let deaf: Vec<UnixStream> = (0..6)
        .map(|_| {
            let mut stream = UnixStream::connect(place.path().join("watch.sock")).expect("connects");
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("write");
            stream
        })
        .collect();
    until("the others are answered", Duration::from_secs(30), || daemon.metrics().contains("flatwater_calls_seen"));
    drop(deaf);
    // A second daemon reports that the socket is in use.
    let second = Command::new(env!("CARGO_BIN_EXE_flatwater"))
        .args(["watch", "-c"])
        .arg(&daemon.config)
        .stdin(Stdio::null())
        .output()
        .expect("it ends");
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && message.contains("another flatwater watch runs"), "{message}");
    daemon.stop();
}

/// Each cgroup has a process that writes, syncs and exits.
#[test]
#[ignore = "two minutes and five thousand groups: make test-long"]
fn five_thousand_cgroups_in_a_minute_stay_within_the_budget_of_memory() {
    if !can_trace("five thousand groups") {
        return;
    }
    let _alone = alone();
    let Ok(parent) = MemoryGroup::new(1 << 30) else {
        return skip(Need::Memcg, "five thousand groups", "no memory cgroup can be created");
    };
    let disk = LoopDisk::ext4("watch-groups", 64).expect("a disk");
    let place = Scratch::new("watch-groups");
    let daemon = Daemon::start(place.path(), "threshold = \"1ms\"\n---\nlabel_values = 50\n");
    let (start, mut most_mib) = (Instant::now(), 0);
    for at in 0..5_000 {
        let group = parent.path().join(format!("pod{at}"));
        fs::create_dir(&group).expect("a group");
        let file = disk.path().join("file");
        let script = format!(
            "echo $$ >{}/cgroup.procs && exec dd if=/dev/zero of={} bs=4k count=1 conv=fsync",
            group.display(),
            file.display()
        );
        let mut shell = Command::new("sh");
        let status = shell.args(["-c", &script]).stderr(Stdio::null()).status().expect("runs");
        assert!(status.success(), "{at}");
        let gone = Instant::now() + Duration::from_secs(5);
        // The group's last process may still be exiting.
        while fs::remove_dir(&group).is_err() {
            assert!(Instant::now() < gone, "{} cannot be removed", group.display());
        }
        if at % 100 == 0 {
            most_mib = most_mib.max(rss_mib(daemon.child.id()));
        }
    }
    let metrics = daemon.metrics();
    let series = metrics.lines().filter(|line| line.starts_with("flatwater_stalls_total")).count();
    println!("5000 groups in {:.0} s: {most_mib} MiB resident at most, {series} series", start.elapsed().as_secs_f64());
    assert!(most_mib <= 64, "{most_mib} MiB");
    assert!(series <= 51 * 8, "labels are capped: {series} series");
    daemon.stop();
}

/// A hang is recorded while it lasts. In addition, the file of a loop device is frozen, so that the device does not
/// answer.
#[test]
fn a_frozen_file_system_is_recorded_while_it_is_frozen() {
    if !can_trace("a hang that the daemon sees") {
        return;
    }
    let _alone = alone();
    let disk = LoopDisk::ext4("watch-frozen", 64).expect("a disk");
    let image = disk.path().join("inner.img");
    fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let device = BareLoop::over(&image).expect("a loop device over the image");
    let place = Scratch::new("watch-frozen-daemon");
    let dd = named_dd(place.path(), "fw-freezes");
    let triggers = "look_back = \"20s\"\nafter = \"2s\"\n---\n[[trigger]]\nstall = \"2s\"\nprogram = \"fw-freezes\"\n";
    let daemon = Daemon::start(place.path(), triggers);
    let frozen = Frozen::of(disk.path()).expect("freeze");
    let file = format!("of={}", disk.path().join("victim").display());
    let mut command = Command::new(&dd);
    let mut writer = command.args(["if=/dev/zero", &file, "bs=4k", "count=1"]).spawn().expect("dd starts");
    let file = format!("of={}", device.path());
    let mut command = Command::new(&dd);
    let mut direct =
        command.args(["if=/dev/zero", &file, "bs=4k", "count=1", "oflag=direct"]).spawn().expect("dd starts");
    until("the metrics have it", Duration::from_secs(60), || {
        let metrics = daemon.metrics();
        metrics.contains("flatwater_hanging_calls ") && !metrics.contains("flatwater_hanging_calls 0")
    });
    until("sealed", Duration::from_secs(90), || {
        daemon.recordings().first().is_some_and(|path| complete(path).is_some())
    });
    assert_eq!(writer.try_wait().expect("wait"), None, "dd still hangs");
    let recording = complete(&daemon.recordings().remove(0)).expect("complete");
    let hung = |call: &&Call| call.still_under_way && call.tid == writer.id();
    let [call] = recording.calls.iter().filter(hung).collect::<Vec<_>>()[..] else {
        panic!("{:?}", recording.calls.iter().filter(|call| call.thread == "fw-freezes").collect::<Vec<_>>())
    };
    assert!(call.duration_ns >= 2_000_000_000 && call.tiles(), "{call:?}");
    let frozen_ns = call.by_cause().get(&Cause::FsFreeze).copied().unwrap_or(0);
    assert!(frozen_ns * 10 >= call.duration_ns * 9, "{call:?}");
    let first = recording.header.notes.first().expect("a note").to_string();
    assert!(first.contains("of fw-freezes") && first.contains("so far"), "{first}");
    let standing = |request: &&Request| request.still_under_way == Some(true);
    let found: Vec<_> = recording.requests.iter().filter(standing).collect();
    let of_direct = found.iter().find(|request| request.submitter.pid == direct.id()).expect("its request");
    assert_eq!(of_direct.device, device.path().trim_start_matches("/dev/"), "{found:?}");
    let statement =
        |finding: &Finding| finding.evidence.iter().any(|evidence| evidence.text.contains("had not completed"));
    let findings = flatwater_explain::explain(&recording).findings;
    assert!(findings.iter().any(|finding| finding.cause == CauseId::DeviceSlow && statement(finding)), "{findings:?}");
    drop(frozen);
    assert!(writer.wait().expect("ends").success() && direct.wait().expect("ends").success());
    daemon.stop();
}

//! Compares operations of io_uring with fio's figures, and finds slow calls without hooks on system calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flatwater_host::record::{RecordOptions, record};
use flatwater_host::run::Progress;
use flatwater_host::tracer::Level;
use flatwater_recording::{
    AccessKind, AsyncInterface, Call, Cause, OpKind, OwnerBasis, Recording, RequestOp, WakerKind, histogram,
};
use flatwater_safefs::Dir;
use needs::{Need, Started, skip};

fn can_trace(test: &str) -> bool {
    let able = rustix::process::geteuid().is_root() && flatwater_host::tracer::measure_hook_cost().is_ok();
    if !able {
        skip(Need::Bpf, test, "no hook can be attached");
    }
    able
}

/// A directory on a disk; /tmp may be in memory.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").expect("a folder on the disk")
}

fn options(out: &Path) -> RecordOptions {
    let out = Dir::claim(out, None).expect("a folder for the recording");
    let duration = Some(Duration::from_secs(4));
    RecordOptions { duration, level: Some(Level::Calls), ..RecordOptions::new(out) }
}

fn recorded(options: &RecordOptions) -> Recording {
    record(options, &AtomicBool::new(false), &mut |_| {}).expect("it records");
    Recording::open(options.out.path()).expect("a recording")
}

/// Like `recorded`, with a load that starts after the hooks are attached and the recording has begun.
fn recorded_beside(options: &RecordOptions, load: impl FnOnce() -> Started) -> Recording {
    let (mut load, mut started) = (Some(load), None);
    let begin = &mut |progress: Progress<'_>| {
        if matches!(progress, Progress::Measuring { .. }) {
            started = started.take().or_else(|| load.take().map(|load| load()));
        }
    };
    record(options, &AtomicBool::new(false), begin).expect("it records");
    Recording::open(options.out.path()).expect("a recording")
}

fn words(command: &str) -> Vec<std::ffi::OsString> {
    command.split_whitespace().map(Into::into).collect()
}

/// Count, and median, 99th percentile and maximum in ns.
#[derive(Clone, Copy, Debug)]
struct Figures {
    count: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

fn ours(recording: &Recording, op: OpKind) -> Figures {
    let mut all = histogram();
    let mut max_ns = 0;
    for bucket in recording.latency.iter().filter(|bucket| bucket.op == op) {
        all.add(bucket.from_start.unpack()).expect("the same bounds");
        max_ns = max_ns.max(bucket.worst_from_start_ns);
    }
    Figures { count: all.len(), p50_ns: all.value_at_quantile(0.5), p99_ns: all.value_at_quantile(0.99), max_ns }
}

fn fios(section: &serde_json::Value, latency: &str) -> Figures {
    let figures = &section[latency];
    let percentile = |name: &str| figures["percentile"][name].as_u64().expect("a percentile");
    Figures {
        count: figures["N"].as_u64().expect("a count"),
        p50_ns: percentile("50.000000"),
        p99_ns: percentile("99.000000"),
        max_ns: figures["max"].as_u64().expect("a maximum"),
    }
}

fn assert_alike(what: &str, ours: Figures, theirs: Figures) {
    eprintln!("{what}: flatwater {ours:?}, fio {theirs:?}");
    assert_eq!(ours.count, theirs.count, "{what}");
    // fio's latency includes the time until it reaps the operation: a microsecond or two, and possibly a wait for a
    // CPU.
    let near = |name: &str, ours: std::ops::RangeInclusive<u64>, theirs: u64| {
        let slack_ns = theirs / 10 + 3_000;
        let fits = theirs.saturating_sub(slack_ns) <= *ours.end() && *ours.start() <= theirs + slack_ns;
        assert!(fits, "{what} {name}: {ours:?} ns, fio says {theirs} ns");
    };
    // The BPF program counts in classes an eighth wide; a percentile is the upper end of a class.
    let class = |upper_ns: u64| upper_ns * 8 / 9..=upper_ns;
    near("p50", class(ours.p50_ns), theirs.p50_ns);
    near("p99", class(ours.p99_ns), theirs.p99_ns);
    near("max", ours.max_ns..=ours.max_ns, theirs.max_ns);
}

/// Runs fio under `record`; returns fio's figures and the recording. fio's latencies end when it reaps an operation, so
/// it never waits for a CPU (SCHED_FIFO): on a busy machine its largest latency was that of the run queue.
fn fio(engine: &str, more: &str, place: &Path) -> (serde_json::Value, Recording) {
    let json = place.join("fio.json");
    let command = format!(
        "chrt -f 1 fio --name=u --ioengine={engine} --directory={} --filename=fio.dat --size=64m --rw=randwrite --bs=4k \
         --thread --number_ios=4000 --norandommap --output-format=json --output={} {more}",
        place.display(),
        json.display()
    );
    let options = options(&place.join("rec"));
    // On a fast disk the slowest sync takes less than a millisecond.
    let options = RecordOptions { command: words(&command), duration: None, threshold_ns: 100_000, ..options };
    let recording = recorded(&options);
    let text = fs::read_to_string(json).expect("fio's figures");
    let value: serde_json::Value = serde_json::from_str(&text).expect("fio's json");
    (value["jobs"][0].clone(), recording)
}

fn has_fio(test: &str) -> bool {
    let able = Command::new("fio").arg("--version").output().is_ok();
    if !able {
        skip(Need::Fio, test, "fio is not installed (apt install fio)");
    }
    able && can_trace(test)
}

fn timed(recording: &Recording, access: AccessKind) -> u64 {
    let seen = recording.header.observed.iter().find(|seen| seen.access == access && seen.timed);
    seen.and_then(|seen| seen.count).unwrap_or_else(|| panic!("{access:?} in {:?}", recording.header.observed))
}

#[test]
fn io_uring_latencies_agree_with_fio() {
    if !has_fio("io_uring against fio") {
        return;
    }
    let place = on_disk();
    let (job, recording) = fio("io_uring", "--iodepth=4 --direct=1 --fsync=16", place.path());
    assert_alike("io_uring write", ours(&recording, OpKind::UringWrite), fios(&job["write"], "clat_ns"));
    let (fsync, theirs) = (ours(&recording, OpKind::UringFsync), fios(&job["sync"], "lat_ns"));
    assert_alike("io_uring fsync", fsync, theirs);
    let writes = ours(&recording, OpKind::UringWrite).count;
    assert_eq!(timed(&recording, AccessKind::IoUring), writes + fsync.count);
    let slow: Vec<_> = recording.calls.iter().filter(|call| call.op == OpKind::UringFsync).collect();
    assert!(!slow.is_empty(), "4 000 writes with 250 fsyncs and none over 100 us");
    assert!(slow.iter().all(|call| call.tiles() && call.file.as_deref().is_some_and(|file| file.ends_with("fio.dat"))));
    let more = recording.async_calls.iter().find(|more| more.opcode == "IORING_OP_FSYNC").expect("its row");
    assert_eq!((more.interface, more.punted), (AsyncInterface::IoUring, Some(true)));
}

#[test]
fn level_0_finds_slow_calls_without_a_hook_on_system_calls() {
    if !can_trace("level 0") {
        return;
    }
    let place = on_disk();
    let victim = Started::shell(
        "i=0; while [ $i -lt 400 ]; do dd if=/dev/zero of=victim bs=1M count=48 conv=notrunc,fsync; i=$((i+1)); done",
        place.path(),
    );
    let options =
        RecordOptions { level: Some(Level::Sleeps), pids: vec![victim.pid()], ..options(&place.path().join("rec")) };
    let recording = recorded(&options);
    assert!(recording.header.hooks.iter().all(|hook| !hook.hook.contains("sys_enter")), "{:?}", recording.header.hooks);
    let fsyncs: Vec<_> = recording.calls.iter().filter(|call| call.op == OpKind::Fsync).collect();
    assert!(fsyncs.len() >= 5, "{} slow fsyncs", fsyncs.len());
    assert!(fsyncs.iter().all(|call| call.tiles() && call.thread == "dd" && call.file.as_deref() == Some("victim")));
    assert!(!recording.waits.is_empty());
}

#[test]
fn level_0_finds_a_write_that_waited_for_a_cpu_and_names_the_process_that_had_it() {
    if !can_trace("level 0 beside CPU hogs") {
        return;
    }
    let place = on_disk();
    fs::copy("/bin/dash", place.path().join("hog")).expect("a shell under another name");
    // The write never sleeps, so only the wait for a CPU can make it slow.
    let write = "while :; do taskset -c 0 dd if=/dev/zero of=victim bs=16M count=8 conv=notrunc; done";
    let victim = Started::shell(write, place.path());
    let hogs = "for i in 1 2 3; do timeout --foreground 60 taskset -c 0 ./hog -c 'while :; do :; done' & done; wait";
    let options =
        RecordOptions { level: Some(Level::Sleeps), pids: vec![victim.pid()], ..options(&place.path().join("rec")) };
    let recording = recorded_beside(&options, || Started::shell(hogs, place.path()));
    let waited = |call: &&Call| call.op == OpKind::Write && call.by_cause().contains_key(&Cause::RunQueue);
    let writes: Vec<_> = recording.calls.iter().filter(waited).collect();
    assert!(writes.len() >= 3, "{} writes waited for a CPU", writes.len());
    assert!(writes.iter().all(|call| call.tiles() && call.thread == "dd" && call.file.as_deref() == Some("victim")));
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &recording.cpu_owners {
        *by_name.entry(row.owner.as_ref().map_or("", |owner| &owner.name)).or_default() += row.ran_ns;
    }
    // Other processes of this machine have the CPU as well, and on a busy machine for longer.
    assert!(by_name.get("hog").is_some_and(|ran_ns| *ran_ns > 1_000_000), "{by_name:?}");
}

#[test]
fn the_flushers_writes_are_charged_to_the_dirtier_of_the_pages() {
    if !can_trace("flusher's owner") {
        return;
    }
    let place = on_disk();
    fs::copy("/bin/dd", place.path().join("dirtier")).expect("dd under another name");
    let victim = Started::shell("sleep 60", place.path());
    let load = || Started::shell("./dirtier if=/dev/zero of=dirty bs=1M count=64; sync; sleep 60", place.path());
    let wanted = RecordOptions { pids: vec![victim.pid()], ..options(&place.path().join("rec")) };
    let recording = recorded_beside(&wanted, load);
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(place.path().join("dirty")).expect("the file"));
    let charged: Vec<_> = recording.queue_owners.iter().filter(|row| row.inode == Some(inode)).collect();
    let bytes: u64 = charged.iter().filter(|row| row.op == RequestOp::Write).map(|row| row.bytes).sum();
    assert!(bytes >= 60 << 20, "{bytes} of 64 MiB: {charged:?}");
    for row in charged {
        let owner = row.owner.as_ref().expect("an owner");
        assert_eq!((owner.name.as_str(), row.file.as_deref()), ("dirtier", Some("dirty")), "{row:?}");
        assert_eq!(row.owner_basis, OwnerBasis::Dirtier);
    }
    assert!(recording.dirtiers.iter().any(|row| row.inode == Some(inode) && row.owner.name == "dirtier"));
}

#[test]
fn the_holder_of_a_lock_ends_the_wait_for_it() {
    if !can_trace("flock holder") {
        return;
    }
    let place = on_disk();
    let contend = "i=0; while [ $i -lt 200 ]; do flock lock true; i=$((i+1)); sleep 0.01; done";
    let hold = "i=0; while [ $i -lt 200 ]; do flock lock sleep 0.05; i=$((i+1)); done";
    let victim = Started::shell(&format!("sleep 4; {contend}"), place.path());
    let wanted = RecordOptions { pids: vec![victim.pid()], ..options(&place.path().join("rec")) };
    let wanted = RecordOptions { duration: Some(Duration::from_secs(6)), ..wanted };
    let recording = recorded_beside(&wanted, || Started::shell(hold, place.path()));
    let slow: Vec<_> = recording.calls.iter().filter(|call| call.op == OpKind::Lock).collect();
    assert!(slow.len() >= 5, "{} slow flock()", slow.len());
    let by_holder = slow.iter().filter(|call| {
        recording.waits_of(call).any(|wait| {
            wait.waker_kind == WakerKind::Task
                && wait.waker.as_ref().is_some_and(|waker| waker.name == "flock" || waker.name == "sleep")
        })
    });
    assert!(by_holder.count() * 10 >= slow.len() * 8, "{:?}", recording.waits);
}

#[test]
fn a_neighbour_that_syncs_is_ahead_in_the_queue() {
    if !can_trace("fsync neighbour") {
        return;
    }
    let place = on_disk();
    fs::copy("/bin/dd", place.path().join("streamer")).expect("dd under another name");
    let victim = "while :; do dd if=/dev/zero of=victim bs=4k count=2 conv=notrunc,fsync; sleep 0.02; done";
    let victim = Started::shell(victim, place.path());
    let stream = "while :; do ./streamer if=/dev/zero of=stream bs=1M count=200 conv=notrunc,fsync; done";
    let wanted = RecordOptions { pids: vec![victim.pid()], ..options(&place.path().join("rec")) };
    let recording = recorded_beside(&wanted, || Started::shell(stream, place.path()));
    assert!(!recording.requests.is_empty(), "the victim's syncs waited for requests");
    let (mut theirs_ns, mut all_ns) = (0, 0);
    for row in &recording.queue_ahead {
        all_ns += row.device_ns;
        let neighbour = row.owner.as_ref().is_some_and(|owner| owner.name == "streamer");
        theirs_ns += if neighbour { row.device_ns } else { 0 };
    }
    assert!(all_ns > 0 && theirs_ns * 10 >= all_ns * 8, "{theirs_ns} of {all_ns} ns");
}

//! Real stalls of other processes: the right cause comes first, nearly all time has a cause, and the file is named.

#[allow(dead_code)]
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::groups::MemoryGroup;
use crate::common::loopdisk::{BareLoop, Frozen, LoopDisk};
use crate::common::neighbour::{Neighbour, Task};
use crate::common::victim::Blame;
use crate::common::{Scratch, alone, wait_for_few_dirty_pages};
use flatwater_host::tracer::{Targets, TraceOptions, Tracer, measure_hook_cost};
use flatwater_recording::{Call, Cause, OpKind, Recording, RequestOp, WakerBasis};
use needs::{Need, Started, skip};

const THRESHOLD_NS: u64 = 1_000_000;
const TIME: Duration = Duration::from_secs(4);

fn tracer(targets: Targets) -> Result<Tracer, String> {
    let (tracer, _) = Tracer::start(TraceOptions::others(THRESHOLD_NS, targets));
    if tracer.sees() { Ok(tracer) } else { Err(tracer.gaps().first().map_or(String::new(), |gap| gap.why.clone())) }
}

/// Follows a victim that has not been released yet until it ends. Returns its slow calls.
fn follow(mut victim: Neighbour, title: &str) -> Result<Vec<Call>, String> {
    let targets = Targets { pids: vec![victim.pid()], cgroup: None, faults: false };
    let tracer = tracer(targets)?;
    victim.release();
    victim.wait();
    let mut calls = tracer.drain();
    let (rest, stacks, losses) = tracer.finish();
    calls.extend(rest);
    let blame = Blame::of_calls(&calls);
    blame.print(title);
    eprintln!("  {} stacks, {losses:?}", stacks.len());
    assert_eq!(losses.lost, 0);
    assert_eq!(blame.not_tiling, 0, "parts must tile their call");
    Ok(calls)
}

fn check(calls: &[Call], cause: Cause, file: &Path) {
    let mut blame = Blame::of_calls(calls);
    assert!(blame.calls > 0, "the stall did not happen");
    assert!(blame.named_share() >= 0.95, "named: {:.3}", blame.named_share());
    blame.by_cause.remove(&Cause::RunQueue);
    assert_eq!(blame.top(), Some(cause));
    let path = file.to_string_lossy();
    assert!(calls.iter().any(|call| call.file.as_deref() == Some(&*path)), "no call names {path}");
}

#[test]
fn a_full_memory_group_is_memcg_reclaim() {
    let _alone = alone();
    if let Err(why) = wait_for_few_dirty_pages() {
        return skip(Need::Idle, "foreign memcg", why);
    }
    let scratch = Scratch::new("foreign-memcg");
    let group = match MemoryGroup::new(128 << 20) {
        Ok(group) => group,
        Err(why) => return skip(Need::Memcg, "foreign memcg", why),
    };
    let file = scratch.path().join("stream");
    let victim = Neighbour::start(&Task::Stream(file.clone()), TIME);
    group.add(victim.pid()).expect("the victim joins");
    match follow(victim, "foreign, memory group full") {
        Ok(calls) => {
            assert!(calls.iter().all(|call| call.bytes == Some(256 << 10) || call.op != OpKind::Write));
            assert!(calls.iter().any(|call| call.offset_bytes.is_some_and(|at| at > 0 && at % (256 << 10) == 0)));
            check(&calls, Cause::MemcgReclaim, &file);
        }
        Err(why) => skip(Need::Bpf, "foreign memcg", why),
    }
}

#[test]
fn a_slow_disk_with_few_dirty_pages_is_dirty_throttle() {
    let _alone = alone();
    let disk = match LoopDisk::ext4("foreign-dirty", 1024) {
        Ok(disk) => disk,
        Err(why) => return skip(Need::Loop, "foreign dirty throttle", why),
    };
    if let Err(why) = disk.bound_dirty(4 << 20) {
        return skip(Need::Loop, "foreign dirty throttle", why);
    }
    let file = disk.path().join("stream");
    let victim = Neighbour::start(&Task::Stream(file.clone()), TIME);
    match follow(victim, "foreign, few dirty pages allowed") {
        Ok(calls) => check(&calls, Cause::DirtyThrottle, &file),
        Err(why) => skip(Need::Bpf, "foreign dirty throttle", why),
    }
}

#[test]
fn neighbours_that_sync_make_journal_commits() {
    let _alone = alone();
    let disk = match LoopDisk::ext4("foreign-sync", 1024) {
        Ok(disk) => disk,
        Err(why) => return skip(Need::Loop, "foreign fsync", why),
    };
    let file = disk.path().join("journal");
    let victim = Neighbour::start(&Task::SyncedJournal(file.clone()), TIME);
    let sync = |name: &str| Neighbour::started(&Task::Sync(disk.path().join(name)), TIME);
    let neighbours = [sync("a"), sync("b"), sync("c")];
    let outcome = follow(victim, "foreign, neighbours sync");
    drop(neighbours);
    match outcome {
        Ok(calls) => {
            assert!(calls.iter().any(|call| call.op == OpKind::Fdatasync));
            check(&calls, Cause::JournalCommit, &file);
        }
        Err(why) => skip(Need::Bpf, "foreign fsync", why),
    }
}

#[test]
fn busy_neighbours_are_the_run_queue() {
    let _alone = alone();
    let scratch = Scratch::new("foreign-cpu");
    let file = scratch.path().join("stream");
    let victim = Neighbour::start(&Task::Stream(file), TIME / 2);
    let neighbours: Vec<Neighbour> = (0..8).map(|_| Neighbour::started(&Task::Spin, TIME)).collect();
    let outcome = follow(victim, "foreign, CPUs busy");
    drop(neighbours);
    match outcome {
        Ok(calls) => {
            let blame = Blame::of_calls(&calls);
            assert!(blame.named_share() >= 0.95, "named: {:.3}", blame.named_share());
            assert_eq!(blame.top(), Some(Cause::RunQueue));
        }
        Err(why) => skip(Need::Bpf, "foreign CPU contention", why),
    }
}

#[test]
fn page_faults_that_read_are_timed() {
    let _alone = alone();
    let scratch = Scratch::new("foreign-fault");
    let file = scratch.path().join("mapped");
    std::fs::write(&file, vec![1_u8; 64 << 20]).expect("the file to map");
    std::fs::File::open(&file).and_then(|file| file.sync_all()).expect("on disk, so that it can be dropped");
    let mut victim = Neighbour::start(&Task::MapRead(file.clone()), TIME);
    let targets = Targets { pids: vec![victim.pid()], cgroup: None, faults: true };
    let (tracer, _) = Tracer::start(TraceOptions::others(20_000, targets));
    if !tracer.sees() {
        return skip(Need::Bpf, "foreign page faults", format!("{:?}", tracer.gaps()));
    }
    victim.release();
    victim.wait();
    let (calls, _, losses) = tracer.finish();
    let path = file.to_string_lossy();
    let faults: Vec<Call> = calls.into_iter().filter(|call| call.op == OpKind::PageFault).collect();
    Blame::of_calls(&faults).print("foreign, page faults");
    assert!(faults.iter().all(Call::tiles));
    // Only the first faults can be named, because the mapping is gone when the tracer looks it up.
    let reads = faults.iter().filter(|call| call.by_cause().contains_key(&Cause::SynchronousRead));
    // Readahead reads most of the file in a few of the faults.
    assert!(reads.count() >= 2, "{} faults, {losses:?}", faults.len());
    eprintln!("  {} name the file", faults.iter().filter(|call| call.file.as_deref() == Some(&*path)).count());
}

/// The kernel does not report the end of a fault. User code that runs after it, through interrupts, must not count.
#[test]
fn user_time_after_a_fault_is_not_part_of_the_fault() {
    let _alone = alone();
    let mut victim = Neighbour::start(&Task::Spin, TIME / 2);
    let targets = Targets { pids: vec![victim.pid()], cgroup: None, faults: true };
    let (tracer, _) = Tracer::start(TraceOptions::others(1_000_000, targets));
    if !tracer.sees() {
        return skip(Need::Bpf, "time after a fault", format!("{:?}", tracer.gaps()));
    }
    victim.release();
    victim.wait();
    let (calls, _, losses) = tracer.finish();
    let on_cpu = [Cause::Compute, Cause::Unexplained, Cause::Interrupt, Cause::Steal];
    let faults = calls.iter().filter(|call| call.op == OpKind::PageFault);
    let invented: Vec<&Call> = faults
        .filter(|call| {
            on_cpu.iter().map(|cause| call.by_cause().get(cause).copied().unwrap_or(0)).sum::<u64>() > 1_000_000
        })
        .collect();
    assert!(invented.is_empty(), "{invented:?} {losses:?}");
}

#[test]
fn processes_that_join_a_group_are_followed() {
    let _alone = alone();
    let scratch = Scratch::new("foreign-group");
    let group = match MemoryGroup::new(96 << 20) {
        Ok(group) => group,
        Err(why) => return skip(Need::Memcg, "foreign group", why),
    };
    let targets = Targets { pids: Vec::new(), cgroup: Some(group.path().to_owned()), faults: false };
    let tracer = match tracer(targets) {
        Ok(tracer) => tracer,
        Err(why) => return skip(Need::Bpf, "foreign group", why),
    };
    let mut inside = Neighbour::start(&Task::Stream(scratch.path().join("in")), TIME / 2);
    let outside = Neighbour::started(&Task::Stream(scratch.path().join("out")), TIME / 2);
    group.add(inside.pid()).expect("joins");
    inside.release();
    let pid = inside.pid();
    inside.wait();
    drop(outside);
    let (calls, _, losses) = tracer.finish();
    Blame::of_calls(&calls).print("foreign, by group");
    assert!(!calls.is_empty(), "{losses:?}");
    assert!(calls.iter().all(|call| call.pid == pid));
}

#[test]
fn the_cost_of_the_hooks_is_measured() {
    let _alone = alone();
    match measure_hook_cost() {
        Ok(cost) => {
            eprintln!("{cost:?}");
            assert!(cost.without_ns > 0 && cost.with_ns > 0);
        }
        Err(why) => skip(Need::Bpf, "hook cost", why),
    }
}

/// On a kernel that does not allow hooks on functions, `--level 1` was accepted and timed nothing.
#[test]
fn level_1_is_refused_where_it_would_time_nothing() {
    let test = "level 1 refused";
    let _alone = alone();
    if measure_hook_cost().is_err() {
        return skip(Need::Bpf, test, "no hook on system calls can be attached");
    }
    let place = tempfile::tempdir().expect("a directory");
    let own = std::process::id().to_string();
    let out = place.path().join("rec");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flatwater"));
    let recorded =
        command.args(["record", "--level", "1", "-t", "1s", "-p", &own, "-o"]).arg(&out).output().expect("runs");
    let message = String::from_utf8_lossy(&recorded.stderr);
    match flatwater_host::tracer::functions::allowed() {
        Ok(()) => assert!(out.join("header.json").exists(), "{message}"),
        Err(_) => {
            assert!(!recorded.status.success() && !out.exists(), "{:?}: {message}", recorded.status);
            for way_out in ["--level 2", "--level 0"] {
                assert!(message.contains(way_out), "{message}");
            }
        }
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "{what} did not happen within a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn sleeps_in_the_kernel(process: &Started) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('D'))
}

/// Starts `record` for two processes at this level, with some features of the kernel disabled.
fn recording_of(pids: [u32; 2], (level, without): (&str, &str), out: &Path) -> std::process::Child {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flatwater"));
    let pids = pids.map(|pid| pid.to_string());
    command.args(["record", "--level", level, "--format", "json", "-p", &pids[0], "-p", &pids[1], "-o"]).arg(out);
    command.env("FLATWATER_TRACER_WITHOUT", without);
    let quiet = std::process::Stdio::null;
    command.stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().expect("flatwater starts")
}

/// Checks the only call on this file, which has not returned, and returns its share of the recording's duration.
fn not_returned(recording: &Recording, file: &str) -> f64 {
    let own = |call: &&Call| call.file.as_deref().is_some_and(|path| path.rsplit('/').next() == Some(file));
    let calls: Vec<&Call> = recording.calls.iter().filter(own).collect();
    let [call] = calls[..] else { panic!("{file}: one call, not {calls:?} of {:?}", recording.calls) };
    assert!(call.still_under_way && call.tiles(), "{call:?}");
    assert_eq!(call.end_ns(), recording.header.clock.start_ns + recording.header.duration_ns, "{call:?}");
    let frozen_ns = call.by_cause().get(&Cause::FsFreeze).copied().unwrap_or(0);
    assert!(frozen_ns * 10 >= call.duration_ns * 9, "{call:?}");
    call.duration_ns as f64 / recording.header.duration_ns as f64
}

/// One writer blocks on a frozen file system before the recording starts, another one later; neither returns. Repeated
/// with each kind of hook.
#[test]
fn a_call_that_does_not_return_is_recorded() {
    let test = "calls that have not returned";
    let _alone = alone();
    if measure_hook_cost().is_err() {
        return skip(Need::Bpf, test, "no hook on system calls can be attached");
    }
    let disk = match LoopDisk::ext4("foreign-frozen", 64) {
        Ok(disk) => disk,
        Err(why) => return skip(Need::Loop, test, why),
    };
    let scratch = Scratch::new("foreign-frozen-begin");
    let writer = |name: &str| {
        let file = disk.path().join(name);
        std::fs::write(&file, "x").expect("a file");
        let (begin, file) = (scratch.path().join(format!("begin-{name}")), file.display().to_string());
        let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", begin.display());
        Started::shell(
            &format!("{wait}; exec dd if=/dev/zero of={file} bs=4k count=1 conv=notrunc,nocreat"),
            scratch.path(),
        )
    };
    let begin = |name: &str| std::fs::write(scratch.path().join(format!("begin-{name}")), "").expect("write");
    let (early, late) = (writer("early"), writer("late"));
    let _frozen = Frozen::of(disk.path()).expect("the disk is frozen");
    begin("early");
    wait_until("the first writer's wait", || sleeps_in_the_kernel(&early));
    let ways = [("2", ""), ("0", ""), ("2", "task-storage"), ("2", "task-storage,ring-buffer,typed-tracepoints")];
    let out = |way: usize| scratch.path().join(format!("rec-{way}"));
    let pids = [early.pid(), late.pid()];
    let mut recorders: Vec<_> = ways.iter().enumerate().map(|(at, way)| recording_of(pids, *way, &out(at))).collect();
    wait_until("the recordings' beginning", || (0..ways.len()).all(|way| out(way).join("header.json").exists()));
    std::thread::sleep(Duration::from_millis(500));
    begin("late");
    wait_until("the second writer's wait", || sleeps_in_the_kernel(&late));
    std::thread::sleep(Duration::from_millis(1_500));
    for recorder in &mut recorders {
        let pid = rustix::process::Pid::from_child(recorder);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    }
    for (at, mut recorder) in recorders.into_iter().enumerate() {
        assert!(recorder.wait().expect("it ends").success(), "{:?}", ways[at]);
        let recording = flatwater_recording::read(&out(at)).expect("a recording");
        eprintln!("{:?}: {} calls", ways[at], recording.calls.len());
        assert!(not_returned(&recording, "late") > 0.0);
        // Without typed tracepoints only system calls are hooked, and this call began before the hooks were attached.
        if at < 3 {
            assert!(not_returned(&recording, "early") > 0.99);
        }
        let explanation = flatwater_explain::explain(&recording);
        assert_eq!(explanation.findings[0].cause, flatwater_explain::CauseId::FsFreeze, "{:?}", ways[at]);
        assert!(explanation.slow.still_under_way >= 1 && explanation.slow.under_way_ns_max >= 1_000_000_000);
    }
}

/// Records a command. Returns the printed explanation and the recording.
fn recorded(min: &str, out: &Path, words: &[&str]) -> (serde_json::Value, Recording) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.args(["record", "-m", min, "--format", "json", "-o"]).arg(out).arg("--").args(words);
    let output = command.output().expect("flatwater starts");
    let reported = serde_json::from_slice(&output.stdout).expect("an explanation");
    (reported, flatwater_recording::read(out).expect("a recording"))
}

/// Reads completed by a device (Documentation/block/stat.rst).
fn completed_reads(device: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/sys/block/{device}/stat")).expect("its counters");
    stat.split_whitespace().next().and_then(|reads| reads.parse().ok()).expect("a number")
}

/// The recording's file system is frozen while another device completes twice as many requests as the kernel's buffer
/// holds. No request is lost.
#[test]
fn events_are_not_lost_while_the_recordings_disk_is_frozen() {
    let test = "a recording's frozen disk";
    let _alone = alone();
    if measure_hook_cost().is_err() {
        return skip(Need::Bpf, test, "no hook on system calls can be attached");
    }
    let disk = match LoopDisk::ext4("foreign-stalled-out", 64) {
        Ok(disk) => disk,
        Err(why) => return skip(Need::Loop, test, why),
    };
    let scratch = Scratch::new("foreign-stalled-load");
    let image = scratch.path().join("load.img");
    std::fs::write(&image, vec![0; 16 << 20]).expect("an image");
    let device = BareLoop::over(&image).expect("a loop device over the image");
    // At most about 16 000 requests per second, so that user space can buffer them.
    let load = format!(
        "while :; do dd if={} of=/dev/null bs=4k count=400 iflag=direct 2>/dev/null; sleep 0.02; done",
        device.path()
    );
    let busy = [Started::shell(&load, scratch.path()), Started::shell(&load, scratch.path())];
    let out = disk.path().join("rec");
    let mut recorder = recording_of([busy[0].pid(), busy[1].pid()], ("2", ""), &out);
    wait_until("the recording's beginning", || out.join("header.json").exists());
    std::thread::sleep(Duration::from_millis(500));
    let name = device.path().trim_start_matches("/dev/");
    let frozen = Frozen::of(disk.path()).expect("the disk is frozen");
    // Within a second the recorder blocks in its first write to the frozen file system.
    std::thread::sleep(Duration::from_millis(1_200));
    let before = completed_reads(name);
    wait_until("60 000 requests", || completed_reads(name) - before > 60_000);
    drop(frozen);
    drop(busy);
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&recorder);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(recorder.wait().expect("it ends").success());
    let recording = flatwater_recording::read(&out).expect("a recording");
    let reported: u64 = recording.queue_owners.iter().filter(|row| row.device == name).map(|row| row.requests).sum();
    eprintln!("{reported} requests of {name}, {:?}", recording.header.losses);
    assert!(reported > 60_000, "{reported} requests");
    assert_eq!(recording.header.losses.lost, 0);
}

/// The OOM killer ends the program; the causes of the last calls are not the reason.
#[test]
fn an_oom_kill_of_the_program_is_reported() {
    let test = "a killed program";
    let _alone = alone();
    let group = match MemoryGroup::new(24 << 20) {
        Ok(group) => group,
        Err(why) => return skip(Need::Memcg, test, why),
    };
    let scratch = Scratch::new("foreign-killed");
    let out = scratch.path().join("recording");
    // The input has no newline, so tail buffers everything.
    let script =
        format!("echo $$ >{}/cgroup.procs; head -c 200M /dev/zero | tail -n 1 >/dev/null", group.path().display());
    let (reported, recording) = recorded("100us", &out, &["sh", "-c", &script]);
    if let Some(gap) = recording.gaps.iter().find(|gap| gap.what == "the kernel's log") {
        return skip(Need::Root, test, &gap.why);
    }
    let victims: Vec<&str> =
        recording.events.iter().filter_map(|event| event.kind.killed()).map(|(_, name)| name).collect();
    // Sometimes the kernel also kills `head`, before the memory of `tail` is free.
    assert!(matches!(victims[..], ["tail"] | ["tail", "head"]), "{:?}", recording.events);
    let killed = &reported["findings"][0];
    assert_eq!(killed["cause"], "out-of-memory", "{}", reported["findings"]);
    let headline = killed["headline"].as_str().unwrap_or_default();
    assert!(headline.contains("killed tail (pid") && headline.contains("which was recorded"), "{headline}");
    assert!(reported["notes"].to_string().contains("OOM killer killed tail"), "{}", reported["notes"]);
}

/// The file under a loop device is truncated, so a read of the device fails. The recording has the error.
#[test]
fn a_call_that_failed_is_recorded_with_its_error() {
    let test = "a call that failed";
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, test, "not root");
    }
    let scratch = Scratch::new("foreign-failed");
    let image = scratch.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let device = match BareLoop::over(&image) {
        Ok(device) => device,
        Err(why) => return skip(Need::Loop, test, why),
    };
    std::fs::File::options().write(true).open(&image).and_then(|file| file.set_len(0)).expect("truncate");
    let out = scratch.path().join("recording");
    let input = format!("if={}", device.path());
    let (reported, recording) =
        recorded("1us", &out, &["dd", "iflag=direct", "bs=4k", "count=1", &input, "of=/dev/null"]);
    // dd may end before its whole path is looked up.
    let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let of_device =
        |call: &&Call| call.op == OpKind::Read && call.file.as_deref().and_then(last) == last(device.path());
    let reads: Vec<&Call> = recording.calls.iter().filter(of_device).collect();
    assert_eq!(reads.iter().map(|call| call.errno).collect::<Vec<_>>(), [Some(libc::EIO as u32)], "{reads:?}");
    let note = "failed in the end: 1 read() with Input/output error (os error 5)";
    assert!(reported["notes"].to_string().contains(note), "{}", reported["notes"]);
    let opened = recording.calls.iter().filter(|call| call.op == OpKind::Open && call.errno.is_none());
    assert!(opened.count() > 0, "successful calls have no error");
}

/// A write to a device that does not complete it, because the loop device's file is on a frozen file system. A direct
/// write is the writer's own request; that of a sync may be the flusher's.
#[test]
fn a_device_that_does_not_answer_is_named_with_its_request() {
    let test = "a device that does not answer";
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, test, "not root");
    }
    let disk = match LoopDisk::ext4("foreign-hung", 64) {
        Ok(disk) => disk,
        Err(why) => return skip(Need::Loop, test, why),
    };
    let image = disk.path().join("inner.img");
    std::fs::write(&image, vec![0; 8 << 20]).expect("an image");
    let device = BareLoop::over(&image).expect("a loop device over the image");
    let scratch = Scratch::new("foreign-hung-begin");
    let begin = scratch.path().join("begin");
    let writer = |how: &str| {
        let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", begin.display());
        Started::shell(
            &format!("{wait}; exec dd if=/dev/zero of={} bs=4k count=1 {how}", device.path()),
            scratch.path(),
        )
    };
    let (direct, synced) = (writer("oflag=direct"), writer("seek=64 conv=notrunc,fsync"));
    let frozen = Frozen::of(disk.path()).expect("the disk is frozen");
    let out = scratch.path().join("rec");
    let mut recorder = recording_of([direct.pid(), synced.pid()], ("2", ""), &out);
    wait_until("the recording's beginning", || out.join("header.json").exists());
    std::fs::write(&begin, "").expect("write");
    wait_until("the writers' waits", || sleeps_in_the_kernel(&direct) && sleeps_in_the_kernel(&synced));
    std::thread::sleep(Duration::from_millis(2_500));
    let pid = rustix::process::Pid::from_child(&recorder);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(recorder.wait().expect("it ends").success());
    drop(frozen);

    let recording = flatwater_recording::read(&out).expect("a recording");
    let name = device.path().trim_start_matches("/dev/");
    let hung: Vec<_> = recording.requests.iter().filter(|request| request.still_under_way == Some(true)).collect();
    let of_direct =
        hung.iter().find(|request| request.submitter.pid == direct.pid()).expect("the direct writer's request");
    assert_eq!((of_direct.device.as_str(), of_direct.bytes, of_direct.op), (name, 4_096, RequestOp::Write), "{hung:?}");
    assert!(of_direct.complete_ns - of_direct.issue_ns.expect("an issued request") >= 1_000_000_000, "{of_direct:?}");
    let wait = recording.waits.iter().find(|wait| wait.request == Some(of_direct.id)).expect("its wait");
    assert_eq!((wait.call_tid, wait.basis), (direct.pid(), WakerBasis::OwnRequest), "{wait:?}");
    let explanation = flatwater_explain::explain(&recording);
    let top = &explanation.findings[0];
    assert_eq!(top.cause, flatwater_explain::CauseId::DeviceSlow, "{:?}", explanation.findings);
    let message = format!("{name} had not completed");
    assert!(top.evidence.iter().any(|evidence| evidence.text.contains(&message)), "{top:?}");
}

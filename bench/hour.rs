//! An hour at 10 Hz as fast as it can be made: what its end (sealing, explaining, the page) takes in memory and time, how
//! large it is, and how long the page takes to open. `cargo bench --bench hour -- [CALLS]...` (0 and 12000 slow calls
//! by default), as root for slabinfo. Each hour is a process of its own, so that one's memory is not the other's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use flatwater_explain::explain;
use flatwater_host::clock::monotonic_ns;
use flatwater_host::own_cost::{give_back_memory, keep_memory_small, rss_bytes_max};
use flatwater_host::sampler::{Probe, SamplerOptions, Spare, TargetCgroup, devices_of};
use flatwater_recording::latency::histogram;
use flatwater_recording::{
    Call, Cause, Clock, Header, LatencyBucket, OpKind, PackedHistogram, RecordingWriter, Segment, Stack, StackId, read,
};
use flatwater_report::{Options, render};

const SAMPLES: u64 = 36_000;
const PERIOD_NS: u64 = 100_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = SAMPLES * PERIOD_NS;
const CASE: &str = "FLATWATER_BENCH_HOUR";

fn main() {
    keep_memory_small();
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hour");
    if let Ok(calls) = std::env::var(CASE) {
        one_hour(&place, calls.parse().expect("a number of ours"));
        return;
    }
    let mut cases: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    if cases.is_empty() {
        cases = vec![0, 12_000];
    }
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).expect("a directory under the build's");
    for calls in cases {
        let me = std::env::current_exe().expect("this program");
        let done = Command::new(me).env(CASE, calls.to_string()).status().expect("started");
        assert!(done.success(), "{calls} calls: {done}");
    }
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("crates/report/web/test/opening.mjs");
    match Command::new("node").arg(script).arg(&place).status() {
        Ok(done) if done.success() => {}
        other => println!("pages were not opened in a browser: {other:?}"),
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Says the most memory that was resident since the last time, and what is now.
fn told(what: &str, begin: Instant) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let now = mib(pages * rustix::param::page_size() as u64);
    let most = mib(rss_bytes_max());
    println!("  {what}: {:.2} s, most resident {most:.1} MiB, at its end {now:.1} MiB", begin.elapsed().as_secs_f64());
    // Begins anew to look for the most (proc(5)).
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn one_hour(place: &Path, calls: u64) {
    println!("an hour of {SAMPLES} samples with {calls} slow calls");
    let dir = place.join(format!("rec-{calls}"));
    let start_ns = monotonic_ns();
    let header = Header {
        clock: Clock { start_ns, wall_offset_ns: None },
        duration_ns: HOUR_NS,
        threshold_ns: 1_000_000,
        ..Header::default()
    };
    let begin = Instant::now();
    let mut writer = RecordingWriter::create(&dir, &header).expect("created");
    record(&mut writer, start_ns, calls);
    told("recorded", begin);
    let begin = Instant::now();
    let finished = writer.finish(&Header { complete: true, ..header }).expect("finished");
    assert!(finished.sealed, "{finished:?}");
    give_back_memory();
    told("sealed", begin);
    let begin = Instant::now();
    conclude(&dir, "report.html");
    told("explained and reported from all samples", begin);
    std::fs::copy(dir.join("report.html"), place.join(format!("hour-{calls}-calls.html"))).expect("copied");
    let bytes: u64 = std::fs::read_dir(&dir).expect("listed").map(|entry| bytes_of(&entry.expect("entry"))).sum();
    println!("  sealed size with the page's {:.1} MB", bytes as f64 / 1e6);
}

fn bytes_of(entry: &std::fs::DirEntry) -> u64 {
    entry.metadata().map_or(0, |metadata| metadata.len())
}

fn conclude(dir: &Path, page: &str) {
    let begin = Instant::now();
    let recording = read(dir).expect("readable");
    told("  read", begin);
    let explanation = explain(&recording);
    told("  explained", begin);
    let html = render("html", &recording, &explanation, &Options::default()).expect("a page needs nothing");
    std::fs::write(dir.join(page), html).expect("written");
    told("  the page", begin);
    let text = render("text", &recording, &explanation, &Options::default()).expect("text needs nothing");
    assert!(!text.is_empty());
}

/// Samples of this machine as fast as they come, at the moments of an hour; calls and latencies beside them.
fn record(writer: &mut RecordingWriter, start_ns: u64, calls: u64) {
    let options = SamplerOptions {
        devices: devices_of(Path::new(".")),
        cgroup: TargetCgroup::of_process(std::process::id()),
        ..SamplerOptions::default()
    };
    let (mut probe, mut spare) = (Probe::open(&options), Spare::default());
    writer.append_stacks(&stacks()).expect("appended");
    let mut made = 0;
    for sample in 0..SAMPLES {
        probe.sample(start_ns + sample * PERIOD_NS);
        if sample % 10 == 9 {
            for series in &probe.drain(&mut spare).series {
                writer.append_series(series).expect("appended");
            }
            let second = sample / 10;
            let until = calls * (second + 1) / (SAMPLES / 10);
            let slow: Vec<Call> = (made..until).map(|number| call(number, start_ns + second * SECOND_NS)).collect();
            made = until;
            writer.append_calls(&slow).expect("appended");
            writer.append_latency(&[bucket(start_ns + second * SECOND_NS, &slow)]).expect("appended");
            writer.flush_now();
        }
    }
}

fn stacks() -> Vec<Stack> {
    let frames = ["shrink_node", "try_to_free_mem_cgroup_pages", "ext4_da_write_begin", "vfs_write", "ksys_write"];
    (0..200)
        .map(|id| Stack { id: StackId(id), frames: frames.iter().map(|frame| format!("{frame}_{id}")).collect() })
        .collect()
}

fn call(number: u64, second_ns: u64) -> Call {
    let causes = [Cause::MemcgReclaim, Cause::JournalCommit, Cause::RunQueue, Cause::Lock, Cause::DirtyThrottle];
    let mut duration_ns = 0;
    let segments = (0..1 + number % 6)
        .map(|turn| {
            let (offset_ns, ns) = (duration_ns, 400_000 + (number * 7919 + turn * 104_729) % 9_000_000);
            duration_ns += ns;
            let cause = causes[((number + turn) % 5) as usize];
            Segment::bracketed(offset_ns, ns, cause).with_stack(Some(StackId((number % 200) as u32)))
        })
        .collect();
    Call {
        pid: 4711,
        tid: 4712,
        thread: "journal-0".to_owned(),
        op: OpKind::Write,
        bytes: Some(220),
        offset_bytes: Some(number * 220 * 5_000),
        file: Some("/srv/data/journal-0".to_owned()),
        due_ns: Some(second_ns),
        start_ns: second_ns + number % 1000 * 900_000,
        duration_ns,
        segments,
        after_exit_ns: 0,
        damaged: false,
    }
}

/// 5 000 quick writes and the slow ones.
fn bucket(start_ns: u64, slow: &[Call]) -> LatencyBucket {
    let (mut service, mut waited) = (histogram(), histogram());
    for number in 0..5_000_u64 {
        let ns = 1_300
            + (number * number * 31 + start_ns / SECOND_NS * 17) % 1_900
            + if number % 64 == 0 { 7_000 } else { 0 };
        service.saturating_record(ns);
        waited.saturating_record(ns + 50_000 + number % 17 * 300);
    }
    for call in slow {
        service.saturating_record(call.duration_ns);
        waited.saturating_record(call.duration_ns + 10_000);
    }
    LatencyBucket {
        start_ns,
        width_ns: SECOND_NS,
        op: OpKind::Write,
        thread: String::new(),
        bytes: 5_000 * 220,
        worst_from_start_ns: service.max(),
        worst_from_due_ns: Some(waited.max()),
        from_start: PackedHistogram::pack(&service),
        from_due: Some(PackedHistogram::pack(&waited)),
    }
}

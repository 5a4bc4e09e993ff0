//! Recordings for the benches of reading: this machine's counters as fast as they can be sampled, at the moments of as many
//! hours as wanted, with slow calls and latencies beside them.

use std::path::Path;
use std::time::Instant;

use flatwater_host::clock::monotonic_ns;
use flatwater_host::own_cost::{give_back_memory, keep_memory_small, rss_bytes_max};
use flatwater_host::sampler::{Probe, SamplerOptions, Spare, TargetCgroup, devices_of};
use flatwater_recording::latency::histogram;
use flatwater_recording::{
    Call, Cause, Clock, Header, LatencyBucket, OpKind, PackedHistogram, RecordingWriter, Segment, Stack, StackId,
};

pub const SECOND_NS: u64 = 1_000_000_000;

/// What a recording is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub seconds: u64,
    /// Samples a second; 0 for none.
    pub hz: u64,
    pub calls: u64,
    /// Slow calls take this share of what they take otherwise, 1/100.
    pub slow_percent: u64,
}

/// Prints the most memory that was resident since the last time.
pub fn print_step(what: &str, begin: Instant) {
    let mib = rss_bytes_max() as f64 / f64::from(1 << 20);
    println!("  {what}: {:.2} s, most resident {mib:.1} MiB", begin.elapsed().as_secs_f64());
    // The kernel begins anew to look for the most (proc(5)).
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

pub fn make(dir: &Path, wanted: Wanted) {
    keep_memory_small();
    let Wanted { seconds, hz, calls, .. } = wanted;
    println!("{seconds} s with {hz} samples and {} slow calls a second", calls / seconds);
    let start_ns = monotonic_ns();
    let header = Header {
        clock: Clock { start_ns, wall_offset_ns: None },
        duration_ns: seconds * SECOND_NS,
        threshold_ns: 1_000_000,
        ..Header::default()
    };
    let begin = Instant::now();
    let mut writer = RecordingWriter::create(dir, &header).expect("created");
    record(&mut writer, start_ns, wanted);
    print_step("recorded", begin);
    let begin = Instant::now();
    let finished = writer.finish(&Header { complete: true, ..header }).expect("finished");
    assert!(finished.sealed, "{finished:?}");
    give_back_memory();
    print_step("sealed", begin);
}

fn record(writer: &mut RecordingWriter, start_ns: u64, wanted: Wanted) {
    let options = SamplerOptions {
        devices: devices_of(Path::new(".")),
        cgroup: TargetCgroup::of_process(std::process::id()),
        ..SamplerOptions::default()
    };
    let (mut probe, mut spare) = (Probe::open(&options), Spare::default());
    writer.append_stacks(&stacks()).expect("appended");
    let mut made = 0;
    for second in 0..wanted.seconds {
        let second_ns = start_ns + second * SECOND_NS;
        for sample in 0..wanted.hz {
            probe.sample(second_ns + sample * SECOND_NS / wanted.hz);
        }
        for series in &probe.drain(&mut spare).series {
            writer.append_series(series).expect("appended");
        }
        let until = wanted.calls * (second + 1) / wanted.seconds;
        let slow: Vec<Call> = (made..until).map(|number| call(number, second_ns, wanted.slow_percent)).collect();
        made = until;
        writer.append_calls(&slow).expect("appended");
        writer.append_latency(&[bucket(second_ns, &slow)]).expect("appended");
        writer.flush_now();
    }
}

fn stacks() -> Vec<Stack> {
    let frames = ["shrink_node", "try_to_free_mem_cgroup_pages", "ext4_da_write_begin", "vfs_write", "ksys_write"];
    (0..200)
        .map(|id| Stack { id: StackId(id), frames: frames.iter().map(|frame| format!("{frame}_{id}")).collect() })
        .collect()
}

fn call(number: u64, second_ns: u64, slow_percent: u64) -> Call {
    let causes = [Cause::MemcgReclaim, Cause::JournalCommit, Cause::RunQueue, Cause::Lock, Cause::DirtyThrottle];
    let mut duration_ns = 0;
    let segments = (0..1 + number % 6)
        .map(|turn| {
            let ns = (400_000 + (number * 7919 + turn * 104_729) % 9_000_000) * slow_percent / 100;
            let offset_ns = duration_ns;
            duration_ns += ns;
            let cause = causes[((number + turn) % 5) as usize];
            Segment::bracketed(offset_ns, ns, cause).with_stack(Some(StackId((number % 200) as u32)))
        })
        .collect();
    let start_ns = second_ns + number % 1000 * 900_000;
    let mut call = Call::new(OpKind::Write, start_ns, duration_ns, segments)
        .by(4711, 4712 + (number % 32) as u32, format!("journal-{}", number % 32))
        .on(Some("/srv/data/journal-0".to_owned()), Some(220), Some(number * 220 * 5_000));
    call.due_ns = Some(second_ns);
    call
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

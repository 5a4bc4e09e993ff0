//! Synthetic recordings for the benches of reading: this machine's counters sampled as fast as possible, or made-up
//! ones, with timestamps that span as many hours as wanted, plus slow calls and latencies.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use flatwater_host::clock::monotonic_ns;
use flatwater_host::own_cost::{give_back_memory, keep_memory_small, rss_bytes_max};
use flatwater_host::sampler::{Probe, SamplerOptions, Spare, TargetCgroup, devices_of};
use flatwater_recording::schema::{Column, vmstat};
use flatwater_recording::{
    Call, Cause, Clock, ColumnKind, Entity, Header, LatencyBucket, OpKind, PackedHistogram, RecordingWriter, Segment,
    Series, Stack, StackId, Table, histogram,
};

pub const SECOND_NS: u64 = 1_000_000_000;

/// Source of the counters.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each bench uses one variant")]
pub enum Samples {
    /// All tables of this machine, this often per second; 0 for none.
    OfThisMachine { hz: u64 },
    /// Every column of vmstat each second, each rising at a different rate. A day of samples takes a minute to make.
    Made,
}

/// Contents of the recording.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub seconds: u64,
    pub samples: Samples,
    pub calls: u64,
    /// Duration of the slow calls, in per cent of their usual duration.
    pub slow_percent: u64,
}

/// Prints a step's duration and the peak of resident memory since the previous step.
pub fn print_step(what: &str, begin: Instant) {
    let mib = rss_bytes_max() as f64 / f64::from(1 << 20);
    println!("  {what}: {:.2} s, most resident {mib:.1} MiB", begin.elapsed().as_secs_f64());
    // Resets the kernel's peak (proc(5)).
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

pub fn make(dir: &Path, wanted: Wanted) {
    keep_memory_small();
    let Wanted { seconds, samples, calls, .. } = wanted;
    println!("{seconds} s, {samples:?}, {} slow calls a second", calls / seconds);
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
    let mut sampled = match wanted.samples {
        Samples::OfThisMachine { hz } => Some((this_machine(), Spare::default(), hz)),
        Samples::Made => None,
    };
    writer.append_stacks(&stacks()).expect("appended");
    let mut made = 0;
    for second in 0..wanted.seconds {
        let second_ns = start_ns + second * SECOND_NS;
        if let Some((probe, spare, hz)) = &mut sampled {
            for sample in 0..*hz {
                probe.sample(second_ns + sample * SECOND_NS / *hz);
            }
            for series in &probe.drain(spare).series {
                writer.append_series(series).expect("appended");
            }
        } else if second % MADE_SECONDS == 0 {
            let seconds = second..(second + MADE_SECONDS).min(wanted.seconds);
            writer.append_series(&made_up(start_ns, seconds)).expect("appended");
        }
        let until = wanted.calls * (second + 1) / wanted.seconds;
        let slow: Vec<Call> = (made..until).map(|number| call(number, second_ns, wanted.slow_percent)).collect();
        made = until;
        writer.append_calls(&slow).expect("appended");
        writer.append_latency(&[bucket(second_ns, &slow)]).expect("appended");
        writer.flush_now();
    }
}

fn this_machine() -> Probe {
    Probe::open(&SamplerOptions {
        devices: devices_of(Path::new(".")),
        cgroup: TargetCgroup::of_process(std::process::id()),
        ..SamplerOptions::default()
    })
}

/// Seconds of made-up samples that are appended together.
const MADE_SECONDS: u64 = 600;

fn made_up(start_ns: u64, seconds: Range<u64>) -> Series {
    let columns = vmstat::ALL.columns;
    let mut series = Series::new(Table::Vmstat);
    for second in seconds {
        let value = |(number, column): (usize, &Column)| {
            // Rates differ by counter, step up every half hour and vary from second to second; values never decrease.
            let (rate, jump) = (1 + number as u64 * 37, second * 7919 % 3);
            let value = match column.kind {
                ColumnKind::Counter => (3 * second + jump + second / 1800) * rate,
                _ => 1_000_000 + jump * rate,
            };
            (column.name, column.kind, i64::try_from(value).ok())
        };
        let values: Vec<_> = columns.iter().enumerate().map(value).collect();
        series.push(start_ns + second * SECOND_NS, &Entity::default(), &values);
    }
    series
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

/// The slow calls and 5 000 quick writes.
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

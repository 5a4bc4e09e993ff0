//! Runs a scenario on the simulator and prints the results, the speed and the memory: `cargo bench --bench sim --
//! SCENARIO [SECONDS] [KEY=VALUE ...]`.
//!
//! `cargo bench --bench sim -- beside` runs a journal and streams of large reads, and sends the same page accesses
//! through libCacheSim's CLOCK and LRU (bench/beside.py; PYTHON names an interpreter with the wheel).
//!
//! `cargo bench --bench sim -- copies` compares 16 settings on copies of one warm machine with 16 machines that each
//! warm up.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use flatwater_experiment::whatif::{self, Goal};
use flatwater_recording::units::Nanos;
use flatwater_recording::{PackedHistogram, Recording, Table};
use flatwater_sim as sim;
use flatwater_workload::Op;
use flatwater_workload::scenario::Scenario;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if arguments.first().is_some_and(|first| first == "beside") {
        return beside();
    }
    if arguments.first().is_some_and(|first| first == "copies") {
        return copies();
    }
    let names = if arguments.is_empty() { vec!["journal-2.6.32".to_owned()] } else { vec![arguments[0].clone()] };
    for name in names {
        let mut scenario = Scenario::load(&name).unwrap_or_else(|error| panic!("{error}"));
        if let Some(seconds) = arguments.get(1).and_then(|seconds| seconds.parse().ok()) {
            scenario.duration = Nanos::from_secs(seconds);
        }
        for pair in &arguments[arguments.len().min(2)..] {
            let (key, value) = pair.split_once('=').expect("KEY=VALUE");
            scenario.setup.set(key, value).unwrap_or_else(|error| panic!("{error}"));
        }
        let begin = Instant::now();
        let (recording, truth) = sim::run(&scenario).unwrap_or_else(|error| panic!("{error}"));
        let seconds = begin.elapsed().as_secs_f64();
        show(&recording);
        println!(
            "{name}: {:.0} s of virtual time in {seconds:.2} s; {:.2} M operations/s, {:.2} M events/s; {} windows for {} M frames",
            scenario.duration.as_secs_f64(),
            truth.operations as f64 / seconds / 1e6,
            truth.events as f64 / seconds / 1e6,
            truth.chunks,
            truth.frames >> 20,
        );
        memory(truth.frames);
    }
}

/// Prints the process's peak memory, recording included, in total and per modelled frame.
fn memory(frames: u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    match peak {
        Some::<u64>(kib) => {
            println!("peak memory {} MiB, {:.1} bytes a frame", kib >> 10, (kib * 1024) as f64 / frames.max(1) as f64);
        }
        None => println!("peak memory unknown: /proc/self/status has no VmHWM"),
    }
}

const MEMORY_BYTES: u64 = 1 << 30;

/// Workloads that are compared with libCacheSim, on the same machine of 1 GiB.
const BESIDE: [(&str, &str); 3] = [
    ("a journal of 10 M appends", JOURNAL),
    ("reads of 256 KiB through a file twice as large as memory", READ_LARGE),
    ("reads of 256 KiB through a file of half the memory, again and again", READ_CACHED),
];
const JOURNAL: &str = "duration = '2000s'\n[[workload]]\nuse = 'journal'\nbytes = '220'\ninterval = '200us'\n";
const READ_LARGE: &str =
    "duration = '60s'\n[[workload]]\nuse = 'stream'\ndirection = 'read'\nfile_size = '2GiB'\nbytes = '256KiB'\n";
const READ_CACHED: &str =
    "duration = '12s'\n[[workload]]\nuse = 'stream'\ndirection = 'read'\nfile_size = '512MiB'\nbytes = '256KiB'\n";

fn beside_scenario(workload: &str) -> Scenario {
    let (duration, workload) = workload.split_once('\n').expect("the duration is the first line");
    let text = format!(
        "name = 'beside'\nsentence = 'Page accesses on 1 GiB.'\n{duration}\nthreshold = '100ms'\nkernel = 'linux-2.6.32'\n\
         [machine]\ncpus = 4\nnodes = ['1GiB']\n\
         disk = {{ size = '1TiB', write_bps = '150MB', read_bps = '1GB', seek = '4ms', rotation = '4ms' }}\n{workload}"
    );
    Scenario::parse("beside", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// The pages that one operation accesses, as they appear in a trace.
fn pages_of(op: &Op, lengths: &mut BTreeMap<u64, u64>) -> Option<(u64, std::ops::RangeInclusive<u64>)> {
    let (file, offset, bytes) = match *op {
        Op::Append { file, bytes } => {
            let length = lengths.entry(file.0).or_default();
            (file.0, std::mem::replace(length, *length + bytes), bytes)
        }
        Op::Read { file, offset_bytes, bytes } => (file.0, offset_bytes, bytes),
        _ => return None,
    };
    Some((file, offset / 4096..=(offset + bytes - 1) / 4096))
}

/// Writes the page accesses of the first measured operations of the scenario's streams as an oracleGeneral trace.
/// Returns the number of accesses.
fn trace(scenario: &Scenario, operations: u64, path: &Path) -> u64 {
    let file = std::fs::File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut out = std::io::BufWriter::new(file);
    let (mut lengths, mut accesses, mut left) = (BTreeMap::<u64, u64>::new(), 0, operations);
    for spec in &scenario.workloads {
        let workload = (spec.entry.build)(&spec.params, scenario.seed).expect("parameters are checked");
        for mut actor in workload.actors() {
            let (mut now_ns, mut measured) = (0, true);
            while now_ns < scenario.duration.0 && left > 0 {
                let Some(op) = actor.stream.next(now_ns) else { break };
                match op {
                    Op::SleepUntil { at_ns } => now_ns = at_ns,
                    Op::Measure { on } => measured = on,
                    Op::KeepRunning { .. } | Op::Sleep { .. } | Op::Compute { .. } | Op::Mark { .. } => {}
                    _ if !measured => {}
                    _ => left -= 1,
                }
                let Some((file, pages)) = pages_of(&op, &mut lengths).filter(|_| measured) else { continue };
                for page in pages {
                    accesses += 1;
                    let object = (file + 1) << 36 | page;
                    let second = u32::try_from(now_ns / 1_000_000_000).unwrap_or(u32::MAX);
                    let parts = [&second.to_le_bytes()[..], &object.to_le_bytes(), &4096_u32.to_le_bytes(), &[0; 8]];
                    parts.iter().for_each(|part| out.write_all(part).expect("room for the trace"));
                }
            }
        }
    }
    assert_eq!(left, 0, "the trace has as many operations as were performed");
    out.flush().expect("room for the trace");
    accesses
}

/// Runs `whatif` with 16 settings on copies of a warm machine, and compares with 16 runs that each warm up.
fn copies() {
    let mut scenario = Scenario::load("journal-2.6.32").unwrap_or_else(|error| panic!("{error}"));
    let (warm, measured) = (Nanos::from_secs(36_000), Nanos::from_secs(60));
    scenario.duration = measured;
    let settings: Vec<Vec<(&'static str, String)>> =
        (1..=16_u64).map(|step| vec![("vm.min_free_kbytes", (step * 131_072).to_string())]).collect();
    let goal = Goal::parse("write.p9999").unwrap_or_else(|error| panic!("{error}"));
    let begin = Instant::now();
    let machine = sim::Warm::up(&scenario, &sim::Options::default(), warm.0).unwrap_or_else(|error| panic!("{error}"));
    let go_on = |changed: &Scenario| machine.go_on(changed).map(|(recording, _)| recording);
    let tried =
        whatif::search_copies(&scenario, &settings, goal, 1, &go_on, &|_| ()).unwrap_or_else(|error| panic!("{error}"));
    let together = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for _ in &settings {
        let machine =
            sim::Warm::up(&scenario, &sim::Options::default(), warm.0).unwrap_or_else(|error| panic!("{error}"));
        machine.go_on(&scenario).unwrap_or_else(|error| panic!("{error}"));
    }
    let apart = begin.elapsed().as_secs_f64();
    println!(
        "{} settings of the journal, {:.0} s after {:.0} h: {together:.2} s from one warm machine, {apart:.2} s where each warms \
         up; {:.1} x as fast, one process at a time",
        tried.len(),
        measured.as_secs_f64(),
        warm.as_secs_f64() / 3600.0,
        apart / together
    );
}

fn beside() {
    println!("memory of {} MiB, one thread, best of three", MEMORY_BYTES >> 20);
    for (name, workload) in BESIDE {
        let scenario = beside_scenario(workload);
        let (mut best, mut operations) = (f64::MAX, 0);
        for _ in 0..3 {
            let begin = Instant::now();
            let (_, truth) = sim::run(&scenario).unwrap_or_else(|error| panic!("{error}"));
            best = best.min(begin.elapsed().as_secs_f64());
            operations = truth.operations;
        }
        let path = std::env::temp_dir().join(format!("flatwater-beside-{}.trace", std::process::id()));
        let accesses = trace(&scenario, operations, &path);
        let rate = |seconds: f64| accesses as f64 / seconds / 1e6;
        println!("{name}: {operations} calls, {accesses} page accesses");
        println!("  flatwater {best:.2} s, {:.1} M accesses/s", rate(best));
        beside_libcachesim(&path, best, rate);
        let _ = std::fs::remove_file(&path);
    }
}

/// Runs the trace through libCacheSim. `flatwater_s` is flatwater's time.
fn beside_libcachesim(path: &Path, flatwater_s: f64, rate: impl Fn(f64) -> f64) {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("bench/beside.py");
    let ran = Command::new(&python).arg(script).arg(path).arg(MEMORY_BYTES.to_string()).output();
    match ran {
        Ok(ran) if ran.status.success() => {
            for line in String::from_utf8_lossy(&ran.stdout).lines() {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let (Some(name), Some(Ok(seconds))) = (fields.first(), fields.get(1).map(|field| field.parse::<f64>()))
                else {
                    continue;
                };
                let (ratio, missed) = (seconds / flatwater_s, fields.get(2).unwrap_or(&"?"));
                println!(
                    "  libCacheSim {name} {seconds:.2} s, {:.1} M accesses/s, {missed} missed; flatwater is {ratio:.2} x as fast",
                    rate(seconds)
                );
            }
        }
        Ok(ran) => {
            let message = String::from_utf8_lossy(&ran.stderr);
            println!("SKIPPED libCacheSim: {}", message.lines().last().unwrap_or("it failed without a message"));
            println!("SKIPPED: python3 -m venv V && V/bin/pip install libcachesim, then PYTHON=V/bin/python");
        }
        Err(error) => println!("SKIPPED libCacheSim: {python}: {error}; PYTHON names another interpreter"),
    }
}

fn show(recording: &Recording) {
    let mut by_op: BTreeMap<_, Vec<&PackedHistogram>> = BTreeMap::new();
    for bucket in recording.latency.iter().filter(|bucket| bucket.thread.is_empty()) {
        by_op.entry(bucket.op).or_default().push(&bucket.from_start);
    }
    for (op, histograms) in by_op {
        let all = PackedHistogram::merged(histograms);
        let at = |quantile: f64| Nanos(all.value_at_quantile(quantile));
        println!(
            "{:12} {:>10}  p50 {} p99 {} p99.9 {} p99.99 {} max {}",
            op.name(),
            all.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.9999),
            Nanos(all.max())
        );
    }
    let mut causes: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    for call in &recording.calls {
        for (cause, ns) in call.by_cause() {
            let sum = causes.entry(cause.name()).or_default();
            *sum = (sum.0 + ns, sum.1 + 1);
        }
    }
    println!("slow calls {}: {causes:?}", recording.calls.len());
    let mut per_bucket: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
    let width = (recording.header.duration_ns / 20).max(1);
    for call in &recording.calls {
        let slot = per_bucket.entry(call.start_ns / width).or_default();
        *slot = (slot.0 + 1, slot.1.max(call.duration_ns / 1000));
    }
    println!("slow calls (count, worst us) by 1/20 of the run: {per_bucket:?}");
    for (table, column) in [
        (Table::Zones, "free"),
        (Table::Zones, "nr_file_pages"),
        (Table::Slabs, "active_objs"),
        (Table::Slabs, "num_slabs"),
        (Table::Meminfo, "Cached_bytes"),
        (Table::Meminfo, "Buffers_bytes"),
        (Table::Meminfo, "MemFree_bytes"),
        (Table::Nodes, "numa_miss"),
        (Table::Vmstat, "pgscan_direct"),
        (Table::Vmstat, "pgsteal_direct"),
        (Table::Vmstat, "pgscan_kswapd"),
        (Table::Vmstat, "pgsteal_kswapd"),
        (Table::Vmstat, "pgpgin"),
        (Table::Vmstat, "allocstall"),
    ] {
        let Some(series) = recording.table(table) else { continue };
        for (entity, rows) in series.by_entity() {
            let values: Vec<i64> = rows.values(column).map(|(_, value)| value).collect();
            let step = (values.len() / 10).max(1);
            let some: Vec<i64> = values.iter().copied().step_by(step).collect();
            println!("{} {:?}{} {column}: {some:?}", table.name(), entity.node.unwrap_or(0), entity.name);
        }
    }
    for outcome in &recording.outcomes {
        let text = format!("{outcome:?}");
        println!("{}", &text[..text.len().min(2000)]);
    }
}

//! Ablation: prints one row for each verdict of the model, or compares two such listings.
//!
//! ```sh
//! cargo run -p flatwater-sim --example verdicts -- [NAME...] > before.txt   # all rows, or those of matching scenarios
//! cargo run -p flatwater-sim --example verdicts -- --compare before.txt after.txt
//! ```
//!
//! Remove a mechanism, run it again, and compare: a row changes its verdict if a published figure enters or leaves its
//! tolerance, another cause is first, the direction of a fix turns, or a figure of a modern kernel moves by more than
//! 15 %, the bound of the example `agree`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatwater_explain::explain;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Entity, OpKind, PackedHistogram, Recording, Table};
use flatwater_sim::kernel::Throttle;
use flatwater_sim::{Ablations, Options, run_with};
use flatwater_workload::scenario::Scenario;

/// A published figure of a case study: scenario, seconds to run, `key=value` to set, metric, lower and upper bound.
type Case = (&'static str, u64, &'static str, &'static str, f64, f64);

const CASES: &[Case] = &[
    ("journal-2.6.32", 600, "", "longest_ms", 30.0, 60.0),
    ("journal-2.6.32", 600, "", "slow_calls", 100.0, 1e9),
    ("journal-2.6.32-zone-reclaim", 600, "", "longest_ms", 7.5, 18.75),
    ("journal-2.6.32-no-monitor", 600, "", "slow_calls", 0.0, 0.0),
    ("journal-2.6.32-precursor", 600, "", "longest_ms", 0.0, 0.0875),
    ("bulk-2.6.17", 300, "seed=1", "longest_ms", 3840.0, 31_200.0),
    ("bulk-2.6.17", 300, "seed=1", "over_3s_percent", 1.0, 8.0),
    ("bulk-2.6.17", 300, "seed=2", "longest_ms", 3840.0, 31_200.0),
    ("bulk-2.6.17", 300, "seed=3", "longest_ms", 3840.0, 31_200.0),
    ("bulk-2.6.17", 300, "throttle=3.2", "longest_ms", 0.0, 2667.0),
    ("bulk-2.6.17-ratelimit16", 300, "seed=1", "longest_ms", 0.0, 6000.0),
    ("graphdb-zone-reclaim", 420, "switch=300", "longest_ms", 10_000.0, 60_000.0),
    ("graphdb-zone-reclaim", 420, "switch=300", "pgscan_direct", 3e7, 1e9),
    ("graphdb-zone-reclaim", 300, "", "longest_ms", 50.0, 1000.0),
    ("graphdb-zone-reclaim", 300, "", "pgscan_direct", 0.0, 1000.0),
    ("maildir-pae", 240, "", "Cached_mb", 1200.0, 1800.0),
    ("maildir-pae", 240, "", "MemFree_mb", 8000.0, 12_000.0),
    ("maildir-pae-pressure", 300, "", "Cached_mb", 2000.0, 3000.0),
    ("maildir-pae-leak", 180, "", "MemFree_mb", 0.0, 500.0),
    ("maildir-x86_64", 960, "", "Cached_mb", 6240.0, 9360.0),
    ("maildir-x86_64", 960, "", "Buffers_mb", 1200.0, 1850.0),
    ("sdet-2.2.3", 480, "", "Buffers_mb", 310.0, 489.0),
    ("sdet-2.2.5", 300, "", "Buffers_mb", 85.0, 104.0),
    ("sdet-2.2.3-proposed", 300, "", "Buffers_mb", 85.0, 104.0),
];

/// Settings whose effect on the goal has a direction: scenario, setting, values, goal.
const FIXES: &[(&str, &str, [&str; 2], &str)] = &[
    ("held-out/reads-beside-writer", "queue.wbt_lat_usec", ["0", "75000"], "read_p99_us"),
    ("held-out/reads-beside-writer", "queue.scheduler", ["none", "bfq"], "read_p99_us"),
    ("held-out/reads-beside-writer", "queue.scheduler", ["none", "mq-deadline"], "read_p99_us"),
    ("held-out/reads-beside-writer", "queue.nr_requests", ["64", "256"], "read_p99_us"),
    ("held-out/bulk-slow-disk-16mib", "vm.dirty_bytes", ["64MiB", "8MiB"], "write_p99_us"),
    ("held-out/checkpoints", "vm.dirty_background_bytes", ["64MiB", "4MiB"], "longest_ms"),
    ("held-out/writer-fsync", "queue.max_sectors_kb", ["128", "1280"], "longest_ms"),
    ("held-out/writer-fsync", "journal_commit_interval", ["5s", "1s"], "longest_ms"),
    ("held-out/writer-fsync", "mount.options", ["data=ordered", "data=journal"], "longest_ms"),
    ("held-out/readahead-wide", "queue.read_ahead_kb", ["128", "1024"], "read_p99_us"),
    ("held-out/memory-beside-mapped", "vm.swappiness", ["10", "100"], "pgsteal"),
    ("held-out/maildir-beside-writer", "vm.vfs_cache_pressure", ["50", "300"], "SReclaimable_mb"),
    ("numa-zone-reclaim", "vm.zone_reclaim_mode", ["0", "1"], "numa_miss"),
    ("full-cgroup", "cgroup.memory_limit", ["256MiB", "1GiB"], "write_p99_us"),
    ("numa-precursor", "precursor", ["off", "prefetch"], "write_p99_us"),
];

const MODERN: [&str; 3] = ["linux-6.1", "linux-6.12", "linux-6.18"];
/// Length of a run on a modern kernel: a third of the scenarios' 30 s.
const MODERN_SECONDS: u64 = 10;
const FIGURES: &[&str] = &["MemFree_mb", "Cached_mb", "Dirty_mb", "pgsteal", "pgscan", "SReclaimable_mb", "calls"];

/// A figure of a recording by name; `None` if the recording lacks it.
fn figure(recording: &Recording, name: &str) -> Option<f64> {
    let last = |table, column: &str| recording.table(table)?.rows_of(&Entity::default())?.last(column);
    let quantile = |op, at| {
        let own = recording.latency.iter().filter(|bucket| bucket.op == op && bucket.thread.is_empty());
        PackedHistogram::merged(own.map(|bucket| &bucket.from_start)).value_at_quantile(at) as f64 / 1e3
    };
    let calls = || recording.latency.iter().filter(|bucket| bucket.thread.is_empty());
    Some(match name {
        "longest_ms" => calls().map(|bucket| bucket.worst_from_start_ns).max()? as f64 / 1e6,
        "slow_calls" => recording.calls.len() as f64,
        "calls" => calls().map(|bucket| bucket.from_start.count()).sum::<u64>() as f64,
        "over_3s_percent" => {
            let over = recording.calls.iter().filter(|call| call.duration_ns > 3_000_000_000).count() as f64;
            100.0 * over / calls().map(|bucket| bucket.from_start.count()).sum::<u64>() as f64
        }
        "write_p99_us" => quantile(OpKind::Write, 0.99),
        "read_p99_us" => quantile(OpKind::Read, 0.99),
        "pgsteal" | "pgscan" => {
            let of = |who: &str| last(Table::Vmstat, &format!("{name}_{who}")).unwrap_or(0);
            (of("direct") + of("kswapd")) as f64
        }
        "numa_miss" => {
            let nodes = recording.table(Table::Nodes)?;
            nodes.by_entity().filter_map(|(_, rows)| rows.rise("numa_miss")).sum::<i64>() as f64
        }
        _ => match name.strip_suffix("_mb") {
            Some(column) => last(Table::Meminfo, &format!("{column}_bytes"))? as f64 / 1e6,
            None => last(Table::Vmstat, name)? as f64,
        },
    })
}

struct Job {
    scenario: String,
    kernel: Option<&'static str>,
    seconds: u64,
    set: Vec<String>,
}

fn perform(job: &Job) -> Result<Recording, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let path = root.join(format!("{}.toml", job.scenario));
    let name = if path.exists() { path.to_string_lossy().into_owned() } else { job.scenario.clone() };
    let mut scenario = Scenario::load(&name).map_err(|error| error.to_string())?;
    if let Some(kernel) = job.kernel {
        scenario.kernel = Some(kernel.to_owned());
        if scenario.machine.node_bytes.is_empty() {
            scenario.machine.node_bytes = vec![2 << 30];
        }
    }
    scenario.duration = Nanos::from_secs(job.seconds);
    let mut options = Options::default();
    for assignment in job.set.iter().filter(|assignment| !assignment.is_empty()) {
        match assignment.split_once('=') {
            Some(("seed", seed)) => options.seed = seed.parse().ok(),
            Some(("throttle", _)) => {
                options.ablations = Ablations { throttle: Some(Throttle::IoLess), ..Ablations::default() };
            }
            Some(("switch", at)) => scenario.timeline[0].at = Nanos::from_secs(at.parse().unwrap_or(0)),
            _ => scenario.set(assignment).map_err(|error| error.to_string())?,
        }
    }
    run_with(&scenario, &options, |_| true).map(|(recording, _)| recording).map_err(|error| error.to_string())
}

/// The first finding. Explaining is left out where there are no slow calls to explain.
fn first_cause(recording: &Recording) -> String {
    let explanation = explain(recording);
    explanation.findings.first().map_or_else(|| "none".to_owned(), |finding| finding.cause.to_string())
}

type Row = (String, String, String);

fn case_rows(scenario: &str, seconds: u64, set: &str) -> Vec<Row> {
    let job = Job { scenario: scenario.to_owned(), kernel: None, seconds, set: vec![set.to_owned()] };
    let name = format!("{scenario} {seconds}s {set}");
    let recording = match perform(&job) {
        Ok(recording) => recording,
        Err(why) => return vec![(name, why, "refused".to_owned())],
    };
    let own = CASES.iter().filter(|case| (case.0, case.1, case.2) == (scenario, seconds, set));
    let mut rows: Vec<Row> = own
        .map(|(_, _, _, metric, low, high)| {
            let value = figure(&recording, metric).unwrap_or(f64::NAN);
            let verdict = if (*low..=*high).contains(&value) { "within" } else { "missed" };
            (format!("{name} {metric}"), format!("{value:.4}"), verdict.to_owned())
        })
        .collect();
    rows.push((format!("{name} first"), "-".to_owned(), first_cause(&recording)));
    rows
}

fn modern_rows(scenario: &str, kernel: &'static str) -> Vec<Row> {
    let job = Job { scenario: scenario.to_owned(), kernel: Some(kernel), seconds: MODERN_SECONDS, set: vec![] };
    let name = format!("{scenario} {kernel}");
    match perform(&job) {
        Err(why) => vec![(name, why, "refused".to_owned())],
        Ok(recording) => {
            let mut rows = vec![(format!("{name} first"), "-".to_owned(), first_cause(&recording))];
            rows.extend(FIGURES.iter().filter_map(|metric| {
                let value = figure(&recording, metric)?;
                Some((format!("{name} {metric}"), format!("{value:.4}"), "figure".to_owned()))
            }));
            rows
        }
    }
}

fn fix_rows(fix: &(&str, &str, [&str; 2], &str), kernel: &'static str) -> Vec<Row> {
    let (scenario, key, values, goal) = *fix;
    let name = format!("{scenario} {kernel} {key}={}..{} {goal}", values[0], values[1]);
    let got = values.map(|value| {
        let set = vec![format!("{key}={value}")];
        let job = Job { scenario: scenario.to_owned(), kernel: Some(kernel), seconds: MODERN_SECONDS, set };
        perform(&job).map(|recording| figure(&recording, goal).unwrap_or(f64::NAN))
    });
    match got {
        [Ok(before), Ok(after)] => {
            let verdict = match after / before {
                ratio if ratio < 0.9 => "falls",
                ratio if ratio > 1.1 => "rises",
                _ => "same",
            };
            vec![(name, format!("{before:.4} -> {after:.4}"), verdict.to_owned())]
        }
        [Err(why), _] | [_, Err(why)] => vec![(name, why, "refused".to_owned())],
    }
}

type Work = Box<dyn Fn() -> Vec<Row> + Send + Sync>;

fn works(filters: &[String]) -> Vec<(String, Work)> {
    let mut all: Vec<(String, Work)> = Vec::new();
    let mut cases: Vec<(&str, u64, &str)> = CASES.iter().map(|case| (case.0, case.1, case.2)).collect();
    cases.dedup();
    for (scenario, seconds, set) in cases {
        all.push((format!("case {scenario}"), Box::new(move || case_rows(scenario, seconds, set))));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/held-out");
    let files = std::fs::read_dir(folder).expect("the held-out scenarios");
    let stems = files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_string_lossy().into_owned()));
    let mut stems: Vec<String> = stems.collect();
    stems.sort();
    for kernel in MODERN {
        for stem in &stems {
            let scenario = format!("held-out/{stem}");
            all.push((format!("modern {scenario} {kernel}"), Box::new(move || modern_rows(&scenario, kernel))));
        }
        for fix in FIXES {
            all.push((format!("fix {} {kernel}", fix.0), Box::new(move || fix_rows(fix, kernel))));
        }
    }
    all.retain(|(name, _)| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())));
    all
}

fn read(path: &str) -> BTreeMap<String, (String, String)> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let row = |line: &str| {
        let mut cells = line.split('\t').map(str::to_owned);
        Some((cells.next()?, (cells.next()?, cells.next()?)))
    };
    text.lines().filter_map(row).collect()
}

/// Prints the rows whose verdict differs, and how many there are.
fn compare(before: &str, after: &str) {
    let (before, after) = (read(before), read(after));
    let (mut changed, mut rows) = (0, 0);
    let mut errors: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, (value, verdict)) in &before {
        let Some((now, verdict_now)) = after.get(name) else { continue };
        rows += 1;
        let moved = match (value.parse::<f64>(), now.parse::<f64>()) {
            (Ok(value), Ok(now)) if verdict == "figure" => {
                let error = (now - value).abs() / value.abs().max(now.abs()).max(20.0);
                errors.entry(name.rsplit(' ').next().unwrap_or_default()).or_default().push(error);
                error > 0.15
            }
            _ => false,
        };
        if moved || verdict != verdict_now {
            changed += 1;
            println!("{name}\t{value} {verdict}\t{now} {verdict_now}");
        }
    }
    for (metric, errors) in errors {
        println!("{metric}: mean change {:.2} %", 100.0 * errors.iter().sum::<f64>() / errors.len() as f64);
    }
    println!("{changed} of {rows} verdicts changed");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, before, after] = arguments.as_slice()
        && flag == "--compare"
    {
        return compare(before, after);
    }
    let (works, next) = (works(&arguments), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((name, work)) = works.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = std::time::Instant::now();
                    let rows = work();
                    for (row, value, verdict) in rows {
                        println!("{row}\t{value}\t{}", verdict.replace('\n', " "));
                    }
                    eprintln!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
                }
            });
        }
    });
}

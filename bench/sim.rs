//! Runs a scenario on the simulator and prints what came out and how fast: `cargo bench --bench sim -- SCENARIO [SECONDS]`.

use std::collections::BTreeMap;
use std::time::Instant;

use flatwater::recording::{PackedHistogram, Recording, Table};
use flatwater::scenario::Scenario;
use flatwater::sim;
use flatwater::units::Nanos;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
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

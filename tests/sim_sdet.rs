//! The developers of 2.2.3: what bforget does to memory, run after run. Values are the model's, with room around them.

use flatwater::explain;
use flatwater::recording::{Recording, Table, WorkloadOutcome};
use flatwater::scenario::Scenario;
use flatwater::sim::{Ablations, Options, run_with};

const MIB: i64 = 1 << 20;

struct Came {
    recording: Recording,
    /// (buffers, free, cached) MiB, (read, written) KiB/s and idle share of each tenth of the run.
    tenths: Vec<[f64; 6]>,
    per_hour: Vec<f64>,
}

fn column(recording: &Recording, table: Table, name: &str) -> Vec<i64> {
    let series = recording.series.iter().find(|series| series.table == table).expect("sampled");
    let column = series.column(name).expect(name);
    column.values.iter().map(|value| value.expect("read")).collect()
}

fn come(name: &str, orphaning: bool, seconds: u64) -> Came {
    let mut scenario = Scenario::load(name).expect("built in");
    scenario.duration.0 = seconds * 1_000_000_000;
    let options = Options { ablations: Ablations { orphaning, ..Ablations::default() }, seed: None };
    let (recording, _) = run_with(&scenario, &options, |_| true).expect("runs");
    let level = |name| column(&recording, Table::Meminfo, name);
    let [buffers, free, cached] = ["Buffers_bytes", "MemFree_bytes", "Cached_bytes"].map(level);
    let [read, written] = ["pgpgin", "pgpgout"].map(|name| column(&recording, Table::Vmstat, name));
    let idle = column(&recording, Table::Cpu, "idle_ns");
    let last = buffers.len() - 1;
    let tenths = (0..10).map(|tenth| {
        let (from, to) = (last * tenth / 10, last * (tenth + 1) / 10);
        let rate = |values: &[i64]| (values[to] - values[from]) as f64 / (seconds as f64 / 10.0);
        let mib = |values: &[i64]| (values[to] / MIB) as f64;
        [mib(&buffers), mib(&free), mib(&cached), rate(&read), rate(&written), rate(&idle) / 4e9]
    });
    let tenths: Vec<[f64; 6]> = tenths.collect();
    let per_hour = recording.outcomes.iter().find_map(|outcome| match outcome {
        WorkloadOutcome::Sdet(table) => Some(table.runs.iter().map(|run| run.scripts_per_hour.round()).collect()),
        _ => None,
    });
    let came = Came { tenths, per_hour: per_hour.unwrap_or_default(), recording };
    println!("{name}, orphaning {orphaning}: buff free cached MiB, bi bo KiB/s, idle");
    came.tenths.iter().for_each(|tenth| println!("{tenth:.2?}"));
    println!("scripts/hour {:?}", came.per_hour);
    came
}

fn names_orphans(came: &Came) -> bool {
    let explanation = explain::explain(&came.recording);
    explanation.findings.iter().any(|finding| finding.cause == "orphaned-buffers")
}

#[test]
fn on_2_2_3_buffers_fill_memory() {
    let came = come("sdet-2.2.3", true, 200);
    let [buffers, free, ..] = came.tenths[9];
    assert!((310.0..=466.0).contains(&buffers), "published 388 MB, +-20 %: {buffers}");
    assert!(free <= 8.0, "free at the floor: {free}");
    // Published: reads over 300 KiB/s, 70 % idle, falling throughput. The model's hot metadata is too small for it.
    assert!(came.tenths[9][3] < 100.0 && !names_orphans(&came), "not reached: {:?}", came.tenths[9]);
}

#[test]
fn on_2_2_5_they_settle_and_without_orphaning_too() {
    for (name, orphaning) in [("sdet-2.2.5", true), ("sdet-2.2.3", false)] {
        let came = come(name, orphaning, 200);
        let [buffers, _, _, read, _, idle] = came.tenths[9];
        assert!((buffers - came.tenths[1][0]).abs() <= 10.0, "settled: {buffers}");
        assert!((73.0..=110.0).contains(&buffers), "published 89 to 92 MB, +-20 %: {buffers}");
        assert!(read < 100.0 && idle < 0.1, "{read} KiB/s, idle {idle}");
        assert!(!names_orphans(&came));
    }
}

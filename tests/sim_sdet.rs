//! The developers of 2.2.3: the effect of bforget() on memory, and of memory on the work, run after run. Bounds are the
//! published figures where the model reaches them; docs/simulator.md lists those that it misses.

use flatwater_explain as explain;
use flatwater_recording::outcome::WorkloadOutcome;
use flatwater_recording::{Recording, Table};
use flatwater_sim::{Ablations, Options, run_with};
use flatwater_workload::scenario::Scenario;

const MIB: i64 = 1 << 20;
/// Seconds of sleep and set-up at the beginning, without work.
const REST_S: u64 = 75;

/// Means over an interval of the run.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    buffers_mib: f64,
    free_mib: f64,
    /// KiB/s, vmstat's `bi`.
    read: f64,
    idle: f64,
    blocked: f64,
}

struct Came {
    recording: Recording,
    per_hour: Vec<f64>,
}

impl Came {
    fn column(&self, table: Table, name: &str) -> Vec<i64> {
        let series = self.recording.series.iter().find(|series| series.table == table).expect("sampled");
        series.column(name).expect(name).values().iter().map(|value| value.expect("read")).collect()
    }

    /// Means from sample `from` to sample `to`; samples are 1 s apart.
    fn stretch(&self, from: usize, to: usize) -> Stretch {
        let mean = |values: Vec<i64>| values[from..to].iter().sum::<i64>() as f64 / (to - from) as f64;
        let rate = |values: Vec<i64>| (values[to] - values[from]) as f64 / (to - from) as f64;
        Stretch {
            buffers_mib: mean(self.column(Table::Meminfo, "Buffers_bytes")) / MIB as f64,
            free_mib: mean(self.column(Table::Meminfo, "MemFree_bytes")) / MIB as f64,
            read: rate(self.column(Table::Vmstat, "pgpgin")),
            idle: rate(self.column(Table::Cpu, "idle_ns")) / 4e9,
            blocked: mean(self.column(Table::Cpu, "procs_blocked")),
        }
    }

    fn names_orphans(&self) -> bool {
        explain::explain(&self.recording)
            .findings
            .iter()
            .any(|finding| finding.cause == explain::CauseId::OrphanedBuffers)
    }
}

fn come(name: &str, orphaning: bool, seconds: u64) -> Came {
    let mut scenario = Scenario::load(name).expect("built in");
    scenario.duration.0 = seconds * 1_000_000_000;
    let options = Options { ablations: Ablations { orphaning, ..Ablations::default() }, ..Options::default() };
    let (recording, _) = run_with(&scenario, &options, |_| true).expect("runs");
    let per_hour = recording.outcomes.iter().find_map(|outcome| match outcome {
        WorkloadOutcome::Sdet(table) => Some(table.runs.iter().map(|run| run.scripts_per_hour.round()).collect()),
        _ => None,
    });
    let came = Came { recording, per_hour: per_hour.unwrap_or_default() };
    println!("{name}, orphaning {orphaning}: scripts/hour {:?}", came.per_hour);
    for from in (REST_S as usize..seconds as usize - 30).step_by(30) {
        println!("{from:4} s {:.2?}", came.stretch(from, from + 30));
    }
    came
}

#[test]
fn on_2_2_3_buffers_fill_memory_and_the_work_waits_for_the_disk() {
    let came = come("sdet-2.2.3", true, 480);
    let rest = came.stretch(40, 60);
    assert!((70.5..=74.0).contains(&rest.buffers_mib) && rest.idle > 0.9, "at rest 74 064 kB, an input: {rest:?}");
    let late = came.stretch(300, 479);
    println!("{late:?}");
    assert!((310.0..=466.0).contains(&late.buffers_mib), "published 388 MB, +-20 %: {late:?}");
    assert!(late.free_mib <= 16.0, "free at the floor: {late:?}");
    assert!(late.idle >= 0.7, "published idle 70 % or more: {late:?}");
    assert!(late.blocked >= 55.0, "published 78 to 122 blocked, the model has a fifth less: {late:?}");
    assert!(late.read >= 300.0, "published 320 to 480 blocks of 1 KiB a second: {late:?}");
    let (first, last) = (came.per_hour.first().expect("runs"), came.per_hour.last().expect("runs"));
    assert!(last * 1.5 < *first, "throughput falls: {:?}", came.per_hour);
    assert!(came.names_orphans());
}

#[test]
#[ignore = "make test-model"]
fn memory_settles_with_either_fix_and_without_orphaning() {
    for (name, orphaning) in [("sdet-2.2.5", true), ("sdet-2.2.3-proposed", true), ("sdet-2.2.3", false)] {
        let came = come(name, orphaning, 300);
        let (middle, late) = (came.stretch(150, 200), came.stretch(250, 299));
        assert!((late.buffers_mib - middle.buffers_mib).abs() <= 1.0, "{name} settled: {middle:?} {late:?}");
        // vmstat printed 89 232 to 91 856 kB of 1024 bytes.
        let kb = late.buffers_mib * 1.024;
        assert!((81.0..=101.0).contains(&kb), "{name}, published 89 to 92 MB, +-10 %: {kb}");
        println!("{name}: {late:?}");
        assert!(late.read < 100.0 && late.idle < 0.1, "{name}: {late:?}");
        let runs = &came.per_hour[1..];
        let (low, high) = (runs.iter().copied().fold(f64::MAX, f64::min), runs.iter().copied().fold(0.0, f64::max));
        assert!(runs.len() >= 3 && high <= low * 1.03, "{name}, flat within 3 %: {:?}", came.per_hour);
        assert!(!came.names_orphans(), "{name}");
    }
}

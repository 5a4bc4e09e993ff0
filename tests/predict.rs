//! Published befores and afters of one kernel patch, predicted by the model: tests/predict/*.toml, one file a source.
//!
//! No row was used while the mechanisms were built. Each is run twice, before and after; the table in docs/predictions.md has
//! the predicted ratio beside the published one. A row is a hit if the ratio is within 15 % and, where the published change is
//! 5 % or more, has its sign; misses stay in the table. `FLATWATER_WRITE=1` writes the table after a change of the model.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use flatwater_sim::kernel::Throttle;
use flatwater_sim::{self as sim, Ablations, Options};
use flatwater_workload::scenario::Scenario;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    source: String,
    figure: String,
    kernel: String,
    before: String,
    after: String,
    cpus: u32,
    memory: String,
    disk_mb_per_s: f64,
    /// The row that the disk's bandwidth was taken from.
    disk_from: String,
    duration_s: u64,
    row: Vec<Row>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    dds: u64,
    thresh: Option<String>,
    background: Option<String>,
    bytes: Option<String>,
    file_system: Option<String>,
    published: [f64; 2],
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn scenario(of: &Source, row: &Row) -> Scenario {
    let mut text = format!(
        "name = 'predict'\nsentence = 'Streams of dd.'\nduration = '{}s'\nthreshold = '10s'\nkernel = '{}'\n\
         [machine]\ncpus = {}\nnodes = ['{}']\n\
         disk = {{ size = '500GB', write_bps = '{}kB', seek = '8ms', file_system = '{}' }}\n[setup]\n",
        of.duration_s,
        of.kernel,
        of.cpus,
        of.memory,
        (of.disk_mb_per_s * 1000.0) as u64,
        row.file_system.as_deref().unwrap_or("xfs"),
    );
    for (key, value) in [("vm.dirty_bytes", &row.thresh), ("vm.dirty_background_bytes", &row.background)] {
        if let Some(value) = value {
            let _ = writeln!(text, "'{key}' = '{value}'");
        }
    }
    let bytes = row.bytes.as_deref().unwrap_or("4KiB");
    let _ = writeln!(
        text,
        "[[workload]]\nuse = 'stream'\nthreads = {}\nfile_size = '4GiB'\nbytes = '{bytes}'\ndirection = 'write'",
        row.dds
    );
    Scenario::parse("predict", &text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", row.name))
}

/// What `before` or `after` says: the one thing that the patch changed.
fn options(what: &str) -> Options {
    let throttle = match what {
        "throttle=2.6.32" => Throttle::DoublingPauses,
        "throttle=3.2" => Throttle::IoLess,
        other => panic!("a change that the harness does not know: {other}"),
    };
    Options { ablations: Ablations { throttle: Some(throttle), ..Ablations::default() }, ..Options::default() }
}

/// Bytes that reached the disk, MB/s, without the first fifth of the time.
fn write_mb_per_s(of: &Source, row: &Row, what: &str) -> f64 {
    use flatwater_recording::{Entity, Table};
    let recording = sim::run_with(&scenario(of, row), &options(what), |_| true).expect("runs").0;
    let disks = recording.table(Table::Disks).expect("a disk");
    let rows = disks.rows_of(&Entity::named("sda")).expect("its rows");
    let all: Vec<(u64, i64)> = rows.values("write_bytes").collect();
    let from = all.iter().find(|(at_ns, _)| *at_ns >= of.duration_s * 200_000_000).expect("samples");
    let last = all.last().expect("samples");
    (last.1 - from.1) as f64 / 1e6 / ((last.0 - from.0) as f64 / 1e9)
}

struct Outcome {
    line: String,
    hit: bool,
    counts: bool,
}

fn judge(of: &Source, row: &Row) -> Outcome {
    assert_eq!(of.figure, "write_mb_per_s", "the only figure that the harness computes so far");
    let got = [write_mb_per_s(of, row, &of.before), write_mb_per_s(of, row, &of.after)];
    let ratio = |values: [f64; 2]| values[1] / values[0];
    let (published, predicted) = (ratio(row.published), ratio(got));
    let same_sign = (published - 1.0).abs() < 0.05 || (published > 1.0) == (predicted > 1.0);
    let hit = same_sign && (predicted / published).ln().abs() <= 1.15_f64.ln();
    let counts = row.name != of.disk_from;
    let verdict = match (counts, hit) {
        (false, _) => "calibration",
        (true, true) => "hit",
        (true, false) => "**miss**",
    };
    let [before, after] = row.published;
    let line = format!(
        "| {} | {before:.1} -> {after:.1} | {published:.2} | {:.1} -> {:.1} | {predicted:.2} | {verdict} |\n",
        row.name, got[0], got[1]
    );
    Outcome { line, hit, counts }
}

fn table() -> String {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root().join("tests/predict"))
        .expect("rows")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    let mut table = String::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("text");
        let of: Source = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let outcomes: Vec<Outcome> = of.row.iter().map(|row| judge(&of, row)).collect();
        let counted = outcomes.iter().filter(|outcome| outcome.counts);
        let (hits, all) = counted.fold((0, 0), |sum, outcome| (sum.0 + u32::from(outcome.hit), sum.1 + 1));
        let _ = write!(table, "{}: {hits} of {all} predicted.\n\n", of.source);
        table.push_str("| row | published | ratio | model | ratio | |\n|---|---|---|---|---|---|\n");
        outcomes.iter().for_each(|outcome| table.push_str(&outcome.line));
    }
    table
}

#[test]
fn the_page_says_which_rows_were_predicted_and_which_were_not() {
    let path = root().join("docs/predictions.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (open, close) = ("<!-- predictions -->\n", "<!-- end of predictions -->");
    let (before, rest) = page.split_once(open).expect("the beginning of the table");
    let (held, after) = rest.split_once(close).expect("its end");
    let wanted = table();
    if std::env::var_os("FLATWATER_WRITE").is_some() {
        std::fs::write(&path, format!("{before}{open}{wanted}{close}{after}")).expect("written");
        return;
    }
    assert!(
        held == wanted,
        "docs/predictions.md is not what the model gives: FLATWATER_WRITE=1 cargo test --test predict\n{wanted}"
    );
}

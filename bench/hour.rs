//! Measures time and memory of `explain` and `report --format html` on recordings of an hour with 0, 12 000 and a million
//! slow calls. Compares them with an earlier build and with a plain read of every column, and also measures sealing,
//! the recordings' size, and how long the page takes to open.
//!
//! `cargo bench --bench hour -- [--build FLATWATER] [--beside FLATWATER] [--prepared]`, as root for slabinfo. Each step
//! runs in its own process, so that its memory is its own. `--prepared` uses the recordings of the previous run.

mod made;
mod measured;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const CASE: &str = "FLATWATER_BENCH_HOUR";
const ROUNDS: usize = 5;
/// Samples per second and slow calls: a quiet hour, a bad one, and one in which every call was slow. The last has no
/// samples, so its time is that of the calls.
const CASES: [(u64, u64); 3] = [(10, 0), (10, 12_000), (0, 1_000_000)];

fn main() {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hour");
    if let Ok(case) = std::env::var(CASE) {
        return step(&place, &case);
    }
    if !std::env::args().any(|word| word == "--prepared") {
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).expect("a directory under the build's");
        CASES.iter().for_each(|(hz, calls)| again(&format!("make {hz} {calls}")));
    }
    let out = place.join("out");
    for (_, calls) in CASES {
        let dir = place.join(format!("rec-{calls}"));
        let recording = dir.to_str().expect("a path in UTF-8");
        println!("{calls} slow calls, {:.1} MB", bytes_in(&dir) as f64 / 1e6);
        measured::beside("explain", ROUNDS, &["explain", recording], &out);
        measured::beside("report --format html", ROUNDS, &["report", recording, "--format", "html"], &out);
        std::fs::copy(&out, place.join(format!("hour-{calls}-calls.html"))).expect("copied");
        again(&format!("plain {calls}"));
    }
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("crates/report/web/test/opening.mjs");
    match Command::new("node").arg(script).arg(&place).status() {
        Ok(done) if done.success() => {}
        other => println!("the pages were not opened in a browser: {other:?}"),
    }
}

/// Runs a step of this program in another process.
fn again(case: &str) {
    let me = std::env::current_exe().expect("this program");
    let done = Command::new(me).env(CASE, case).status().expect("started");
    assert!(done.success(), "{case}: {done}");
}

fn step(place: &Path, case: &str) {
    let number = |word: &str| word.parse().expect("a number");
    match case.split(' ').collect::<Vec<_>>()[..] {
        ["make", hz, calls] => {
            let samples = made::Samples::OfThisMachine { hz: number(hz) };
            let wanted = made::Wanted { seconds: 3600, samples, calls: number(calls), slow_percent: 100 };
            made::make(&place.join(format!("rec-{calls}")), wanted);
        }
        ["plain", calls] => read_plainly(&place.join(format!("rec-{calls}"))),
        _ => panic!("no such step: {case}"),
    }
}

fn bytes_in(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("entry"));
    entries.map(|entry| entry.metadata().map_or(0, |metadata| metadata.len())).sum()
}

/// Reads every column of every table with the Parquet crate's reader, batch by batch, and keeps nothing.
fn read_plainly(dir: &Path) {
    let begin = Instant::now();
    let (mut rows, mut values) = (0, 0);
    for entry in std::fs::read_dir(dir).expect("listed") {
        let path = entry.expect("entry").path();
        if path.extension().is_some_and(|extension| extension == "parquet") {
            let file = std::fs::File::open(&path).expect("opened");
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|builder| builder.build());
            for batch in reader.expect("our Parquet") {
                let batch = batch.expect("our Parquet");
                rows += batch.num_rows();
                values += batch.num_rows() * batch.num_columns();
            }
        }
    }
    made::print_step(&format!("{rows} rows, {values} values by the Parquet crate's reader"), begin);
}

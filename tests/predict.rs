//! Published measurements before and after a kernel patch or setting, compared with the model: tests/predict/*.toml,
//! one file per source.
//!
//! No counted row was used while the mechanisms were built. A row is a hit if the model's ratio of after to before is
//! within 15 % of the published one and, for published changes of 5 % or more, has its sign. The first answer of the
//! model is stored in the row (`first`) and is the one that counts, even if the model answers differently now.
//! docs/predictions.md has the result.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use flatwater_recording::{Entity, OpKind, Recording, Table};
use flatwater_sim::kernel::Throttle;
use flatwater_sim::{self as sim, Ablations, Options};
use flatwater_workload::scenario::Scenario;

type Values = BTreeMap<String, String>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    source: String,
    /// The date of the first answers; only in sources added since 2026-11-27.
    asked: Option<String>,
    figure: String,
    /// A scenario file with placeholders like {kernel}, filled from a row's values.
    scenario: String,
    #[serde(default)]
    common: Values,
    #[serde(default)]
    before: Values,
    #[serde(default)]
    after: Values,
    row: Vec<Row>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    set: Values,
    #[serde(default)]
    before: Values,
    #[serde(default)]
    after: Values,
    published: [f64; 2],
    /// The model's ratio when it first answered.
    first: Option<f64>,
    /// `calibration` or `seen`: the row does not count.
    standing: Option<String>,
    /// Why the row is missed or does not count.
    why: Option<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(of: &Source, row: &Row, parts: [&Values; 2]) -> String {
    let mut text = of.scenario.clone();
    let own = parts.into_iter().rev().chain([&row.set, &of.common]);
    for (key, value) in own.flatten() {
        text = text.replace(&format!("{{{key}}}"), value);
    }
    text
}

/// Options of the model in a row's values, which are not part of the scenario: the throttling algorithm.
fn options(parts: [&Values; 2]) -> Options {
    let named = parts.into_iter().rev().find_map(|values| values.get("throttle"));
    let throttle = named.map(|name| match name.as_str() {
        "2.6.32" => Throttle::DoublingPauses,
        "3.1" => Throttle::GoodAreas,
        "3.2" => Throttle::IoLess,
        other => panic!("unknown throttle: {other}"),
    });
    Options { ablations: Ablations { throttle, ..Ablations::default() }, ..Options::default() }
}

/// The mean rate of a counter of all disks after the first fifth of the run, in millions per second.
fn of_disks(recording: &Recording, column: &str) -> f64 {
    let disks = recording.table(Table::Disks).expect("a disk");
    let after_ns = recording.header.clock.start_ns + recording.header.duration_ns / 5;
    let rates = disks.by_entity().map(|(_, rows)| {
        let all: Vec<(u64, i64)> = rows.values(column).collect();
        let from = all.iter().find(|(at_ns, _)| *at_ns >= after_ns).expect("samples");
        let last = all.last().expect("samples");
        (last.1 - from.1) as f64 / 1e6 / ((last.0 - from.0) as f64 / 1e9)
    });
    rates.sum()
}

/// Calls of one kind by foreground threads: calls per second, MB/s, and the mean duration in seconds.
fn of_calls(recording: &Recording, op: OpKind) -> [f64; 3] {
    let own = || recording.latency.iter().filter(|bucket| bucket.op == op && bucket.thread.is_empty());
    let calls: u64 = own().map(|bucket| bucket.from_start.count()).sum();
    let bytes: u64 = own().map(|bucket| bucket.bytes).sum();
    let sum = |bucket: &flatwater_recording::LatencyBucket| -> f64 {
        bucket.from_start.steps().map(|(low, high, count)| (low + high) as f64 / 2e9 * count as f64).sum()
    };
    let seconds = recording.header.duration_ns as f64 / 1e9;
    let mean_s = own().map(sum).sum::<f64>() / calls.max(1) as f64;
    [calls as f64 / seconds, bytes as f64 / 1e6 / seconds, mean_s]
}

/// MB/s read and written by the calls of all threads, including neighbours.
fn of_all_calls(recording: &Recording) -> f64 {
    let moves = |op: OpKind| matches!(op, OpKind::Read | OpKind::Write);
    let bytes: u64 = recording.latency.iter().filter(|bucket| moves(bucket.op)).map(|bucket| bucket.bytes).sum();
    bytes as f64 / 1e6 / (recording.header.duration_ns as f64 / 1e9)
}

/// The longest call of a kind by a foreground thread, in ms. Includes calls still under way at the end, if they are
/// over the scenario's threshold. NaN without such a call.
fn longest_ms(recording: &Recording, op: OpKind) -> f64 {
    let own = recording.latency.iter().filter(|bucket| bucket.op == op && bucket.thread.is_empty());
    let cut_off = recording.calls.iter().filter(|call| call.still_under_way && call.op == op);
    let all = own.map(|bucket| bucket.worst_from_start_ns).chain(cut_off.map(|call| call.duration_ns));
    all.max().map_or(f64::NAN, |ns| ns as f64 / 1e6)
}

/// Seconds from the first page fault of the foreground threads to the `wanted`th, or to the end of the run if there
/// were fewer.
fn seconds_of_touches(recording: &Recording, wanted: u64) -> f64 {
    let own = |bucket: &&flatwater_recording::LatencyBucket| bucket.op == OpKind::PageFault && bucket.thread.is_empty();
    let mut by_time: BTreeMap<u64, u64> = BTreeMap::new();
    for bucket in recording.latency.iter().filter(own) {
        *by_time.entry(bucket.start_ns).or_default() += bucket.from_start.count();
    }
    let from_ns = by_time.keys().next().copied().unwrap_or(0);
    let sums = by_time.iter().scan(0, |sum, (start_ns, count)| {
        *sum += count;
        Some((*start_ns, *sum))
    });
    let end_ns = recording.header.clock.start_ns + recording.header.duration_ns;
    let at_ns = sums.into_iter().find(|(_, sum)| *sum >= wanted).map_or(end_ns, |(start_ns, _)| start_ns);
    (at_ns - from_ns) as f64 / 1e9
}

/// The final value of a counter in /proc/vmstat.
fn counted(recording: &Recording, name: &str) -> f64 {
    let rows = recording.table(Table::Vmstat).and_then(|table| table.rows_of(&Entity::default()));
    rows.and_then(|rows| rows.last(name)).expect(name) as f64
}

/// The mean of a column of meminfo in the second half of the run, MB.
fn meminfo_mb(recording: &Recording, column: &str) -> f64 {
    let meminfo = recording.table(Table::Meminfo).expect("meminfo");
    let rows = meminfo.rows_of(&Entity::default()).expect("its rows");
    let all: Vec<i64> = rows.values(column).map(|(_, bytes)| bytes).collect();
    let late = &all[all.len() / 2..];
    late.iter().sum::<i64>() as f64 / late.len().max(1) as f64 / 1e6
}

/// Figures by scenario text and options, because many rows share one side of their comparison.
type Known = BTreeMap<String, f64>;

fn figure(of: &Source, row: &Row, parts: [&Values; 2], known: &mut Known) -> f64 {
    let (text, options) = (text(of, row, parts), options(parts));
    let key = format!("{text}{options:?}");
    if let Some(figure) = known.get(&key) {
        return *figure;
    }
    let scenario = Scenario::parse("predict", &text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", row.name));
    let recording =
        sim::run_with(&scenario, &options, |_| true).unwrap_or_else(|error| panic!("{}: {error}", row.name)).0;
    let got = figure_of(of, &recording);
    known.insert(key, got);
    got
}

fn figure_of(of: &Source, recording: &Recording) -> f64 {
    match of.figure.as_str() {
        "write_mb_per_s" => of_disks(recording, "write_bytes"),
        "read_mb_per_s" => of_disks(recording, "read_bytes"),
        "writes_per_s" => of_calls(recording, OpKind::Write)[0],
        "call_mb_per_s" => of_all_calls(recording),
        "read_call_mb_per_s" => of_calls(recording, OpKind::Read)[1],
        "fsync_mean_s" => of_calls(recording, OpKind::Fsync)[2],
        "fsyncs_per_s" => of_calls(recording, OpKind::Fsync)[0],
        "read_mean_ms" => of_calls(recording, OpKind::Read)[2] * 1e3,
        "touches_per_s" => of_calls(recording, OpKind::PageFault)[0],
        "reads_per_s" => of_calls(recording, OpKind::Read)[0],
        "syncfs_max_s" => longest_ms(recording, OpKind::Syncfs) / 1e3,
        "us_per_write" => of_calls(recording, OpKind::Write)[2] * 1e6,
        "faults" => counted(recording, "pgfault"),
        "us_per_touch" => of_calls(recording, OpKind::PageFault)[2] * 1e6,
        "seconds_of_512000_touches" => seconds_of_touches(recording, 512_000),
        "write_max_ms" => longest_ms(recording, OpKind::Write),
        "read_max_ms" => longest_ms(recording, OpKind::Read),
        "write_call_mb_per_s" => of_calls(recording, OpKind::Write)[1],
        "creates_per_s" => of_calls(recording, OpKind::Create)[0],
        "reclaimable_slab_mb" => meminfo_mb(recording, "SReclaimable_bytes"),
        "cached_mb" => meminfo_mb(recording, "Cached_bytes"),
        "slab_to_cache" => meminfo_mb(recording, "SReclaimable_bytes") / meminfo_mb(recording, "Cached_bytes"),
        other => panic!("unknown figure: {other}"),
    }
}

struct Outcome {
    line: String,
    hit: bool,
    /// Whether the present model hits. Proves nothing, because mechanisms may have been written since.
    now: bool,
    counts: bool,
}

fn is_hit(published: f64, predicted: f64) -> bool {
    let same_sign = (published - 1.0).abs() < 0.05 || (published > 1.0) == (predicted > 1.0);
    same_sign && (predicted / published).ln().abs() <= 1.15_f64.ln()
}

/// Whether the model sees no difference between both sides, for example two kernel versions without a modelled change
/// between them.
fn is_same(of: &Source, row: &Row) -> bool {
    let [before, after] = [[&of.before, &row.before], [&of.after, &row.after]].map(|parts| {
        let text = text(of, row, parts);
        let known = |line: &str| {
            let name = line.strip_prefix("kernel = ").map(|name| name.trim_matches('"'));
            name.and_then(sim::kernel::same_as).map_or(line.to_owned(), |known| format!("kernel = \"{known}\""))
        };
        (text.lines().map(known).collect::<Vec<_>>(), format!("{:?}", options(parts)))
    });
    before == after
}

fn judge(of: &Source, row: &Row, known: &mut Known) -> Outcome {
    let got = [[&of.before, &row.before], [&of.after, &row.after]].map(|parts| figure(of, row, parts, known));
    let published = row.published[1] / row.published[0];
    let predicted = got[1] / got[0];
    // Rounded to two digits like `first` in the files.
    let first = row.first.unwrap_or((predicted * 100.0).round() / 100.0);
    let (hit, counts) = (is_hit(published, first), row.standing.is_none());
    let mut verdict = match (&row.standing, hit) {
        (Some(standing), _) => standing.clone(),
        (None, true) => "hit".to_owned(),
        (None, false) => "**miss**".to_owned(),
    };
    if is_same(of, row) {
        verdict.push_str(" (the model knows of no change between the two)");
    }
    if let Some(why) = &row.why {
        let _ = write!(verdict, ": {why}");
    }
    let digits = if row.published[0] < 10.0 { 2 } else { 1 };
    let pair = |[before, after]: [f64; 2]| format!("{before:.digits$} -> {after:.digits$}");
    let line = format!(
        "| {} | {} | {published:.2} | {first:.2} | {} | {predicted:.2} | {verdict} |\n",
        row.name,
        pair(row.published),
        pair(got),
    );
    Outcome { line, hit, now: is_hit(published, predicted), counts }
}

fn sources() -> Vec<(String, Source)> {
    let files = std::fs::read_dir(root().join("tests/predict")).expect("rows");
    let mut files: Vec<PathBuf> = files.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("text");
        let of: Source = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(), of)
    };
    files.into_iter().map(read).collect()
}

/// Among the rows that count: first answers that hit, present answers that hit, and all.
type Score = [u32; 3];

fn table_of(of: &Source) -> (String, Score) {
    let mut known = Known::new();
    let outcomes: Vec<Outcome> = of.row.iter().map(|row| judge(of, row, &mut known)).collect();
    let counted = outcomes.iter().filter(|outcome| outcome.counts);
    let score = counted.fold([0; 3], |[hits, now, all]: Score, outcome| {
        [hits + u32::from(outcome.hit), now + u32::from(outcome.now), all + 1]
    });
    let mut table = format!("{}: {} of {} predicted.\n\n", of.source, score[0], score[2]);
    table.push_str("| row | published | ratio | first answer | model | ratio | |\n|---|---|---|---|---|---|---|\n");
    outcomes.iter().for_each(|outcome| table.push_str(&outcome.line));
    (table, score)
}

fn table() -> (String, Score) {
    let (sources, next) = (sources(), AtomicUsize::new(0));
    let work = || {
        let mut own = Vec::new();
        while let Some((place, (name, of))) = sources.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            let begun = Instant::now();
            own.push((place, table_of(of)));
            println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
        }
        own
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<(usize, (String, Score))> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    all.sort_by_key(|(place, _)| *place);
    let (mut tables, mut score, mut by_day) = (Vec::new(), [0; 3], BTreeMap::<&str, Score>::new());
    for (place, (table, own)) in all {
        let of_day = sources[place].1.asked.as_deref().map(|day| by_day.entry(day).or_default());
        for sum in of_day.into_iter().chain([&mut score]) {
            sum.iter_mut().zip(own).for_each(|(sum, own): (&mut u32, u32)| *sum += own);
        }
        tables.push(table);
    }
    let [hits, now, all] = score;
    let of_days: String = by_day
        .iter()
        .map(|(day, [hits, _, all])| format!(" Of those first asked on {day}: {hits} of {all}."))
        .collect();
    let text = format!(
        "{hits} of {all} rows from {} sources were predicted; the present model has {now} of them right, which proves nothing where \
        a mechanism was written since the row was asked.{of_days}\n\n{}",
        tables.len(),
        tables.join("\n")
    );
    (text, score)
}

/// Run by `make test-model`. Writes the table to target/predictions.md; `FLATWATER_PREDICT=NAME` prints the rows of one
/// file instead.
#[test]
#[ignore = "runs the model about 500 times: make test-model"]
fn every_published_row_gets_an_answer() {
    if let Ok(name) = std::env::var("FLATWATER_PREDICT") {
        sources().iter().filter(|(own, _)| *own == name).for_each(|(_, of)| println!("{}", table_of(of).0));
        return;
    }
    let (table, [_, _, rows]) = table();
    println!("{}", table.lines().next().unwrap_or_default());
    crate::common::write_result("predictions.md", &table);
    let listed: usize =
        sources().iter().map(|(_, of)| of.row.iter().filter(|row| row.standing.is_none()).count()).sum();
    assert_eq!(rows as usize, listed, "each row that counts has an outcome");
}

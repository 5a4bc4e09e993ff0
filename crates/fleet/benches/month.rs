//! A month of a large fleet: the speed of compaction, and the time and peak memory of each named question.
//!
//! ```text
//! cargo bench --manifest-path crates/fleet/Cargo.toml --bench month -- --place /some/disk [--hosts 10000] [--days 30] [--keep]
//! ```
//!
//! Questions cover a sixteenth, a quarter and all of the days, to show how cost grows with the data. Each runs in a
//! separate process with two threads; files are in the page cache, as for a second user. CPU time is printed beside
//! elapsed time, because it depends little on other load.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use flatwater_fleet::Fleet;
use flatwater_fleet::ask::{Limits, Question, Session};
use flatwater_fleet::compact::{self, compact};
use flatwater_fleet::generate::{Options, generate};
use flatwater_fleet::time::Range;
use flatwater_recording::summary::HourStart;

/// 2026-10-01 00:00; the month is over.
const FROM: HourStart = HourStart::of_hours(497_448);
/// Hours whose inputs are compacted.
const INPUT_HOURS: i64 = 3;

struct Given {
    place: PathBuf,
    hosts: u32,
    days: i64,
    keep: bool,
    /// In the child processes: the question, and the number of days.
    ask: Option<(String, i64)>,
}

fn given() -> Given {
    let mut all = std::env::args().skip(1);
    let mut given =
        Given { place: std::env::temp_dir().join("flatwater-month"), hosts: 10_000, days: 30, keep: false, ask: None };
    let number = |text: Option<String>| text.and_then(|text| text.parse().ok()).expect("a number");
    while let Some(one) = all.next() {
        match one.as_str() {
            "--place" => given.place = all.next().expect("a directory").into(),
            "--hosts" => given.hosts = number(all.next()) as u32,
            "--days" => given.days = number(all.next()),
            "--keep" => given.keep = true,
            "--ask" => given.ask = Some((all.next().expect("a question"), number(all.next()))),
            // Passed by cargo.
            "--bench" => {}
            other => panic!("{other} is not known"),
        }
    }
    given
}

fn main() {
    let given = given();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    match &given.ask {
        Some((question, days)) => runtime.block_on(ask(&given.place, question, *days)),
        None => runtime.block_on(month(&given)),
    }
}

/// Answers one question in this process; prints seconds, seconds to open, CPU seconds, rows, and peak memory in MiB.
async fn ask(place: &Path, name: &str, days: i64) {
    let fleet = Fleet::directory(place.to_owned()).expect("a directory");
    let range = Range { from: FROM, to: HourStart::of_hours(FROM.hours() + 24 * days) };
    let question = Question::find(name, None).expect("known");
    let host = [("host".to_owned(), "host-00042".to_owned())];
    let sql = question.sql(if name == "host" { &host } else { &[] }, range).expect("SQL");
    let began = Instant::now();
    let limits = Limits { memory_bytes: 1 << 30, threads: Some(2) };
    let mut session = Session::open(&fleet, range, limits).await.expect("opened");
    let opened = began.elapsed();
    let rows = session.rows(&sql).await.expect("answered");
    let count: usize = rows.iter().map(|batch| batch.num_rows()).sum();
    let (seconds, opened) = (began.elapsed().as_secs_f64(), opened.as_secs_f64());
    println!("{seconds:.2} {opened:.2} {:.2} {count} {}", cpu_seconds(), most_memory_mib());
}

/// CPU time of all threads, in user and kernel mode, seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    // The command's name may have blanks. After it, fields 12 and 13 are in ticks, 100 per second on Linux.
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    let ticks = rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("ticks"));
    ticks.sum::<u64>() as f64 / 100.0
}

fn most_memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") / 1024
}

async fn month(given: &Given) {
    let fleet = Fleet::directory(given.place.join("month")).expect("a directory");
    let options =
        Options { hosts: given.hosts, hours: 24 * given.days, from: FROM, seed: 1, compacted: true, like: Vec::new() };
    if fleet.list("v=1/table=days").await.expect("listed").is_empty() {
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let truth = generate(&fleet, &options).await.expect("generated");
        let (rows, took, cpu_took) = (truth.rows, began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        println!("generated {rows} rows in {took:.0} s, {cpu_took:.0} s of CPU time");
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let days = compact(&fleet, &compact::Options::default()).await.expect("compacted").days;
        println!(
            "added up {days} days in {:.0} s, {:.0} s of CPU time",
            began.elapsed().as_secs_f64(),
            cpu_seconds() - cpu
        );
    }
    let parts = fleet.list("v=1/table=summary").await.expect("listed");
    let days = fleet.list("v=1/table=days").await.expect("listed");
    let mib = |files: &[object_store::ObjectMeta]| files.iter().map(|file| file.size).sum::<u64>() >> 20;
    println!("{} files of hours, {} MiB; {} of days, {} MiB\n", parts.len(), mib(&parts), days.len(), mib(&days));
    let heads = ["days", "seconds", "to open", "CPU s", "rows", "most MiB"];
    println!("{:<12}{}", "question", heads.map(|head| format!("{head:>9}")).concat());
    for question in Question::all(None).expect("well formed") {
        for days in [given.days / 16, given.days / 4, given.days].into_iter().filter(|days| *days > 0) {
            let answer = Command::new(std::env::current_exe().expect("itself"))
                .args(["--place", &given.place.join("month").display().to_string()])
                .args(["--ask", &question.name, &days.to_string()])
                .output()
                .expect("starts");
            assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
            let text = String::from_utf8(answer.stdout).expect("text");
            let cells: String = text.split_whitespace().map(|cell| format!("{cell:>9}")).collect();
            println!("{:<12}{days:>9}{cells}", question.name);
        }
    }
    compaction(given).await;
    if !given.keep {
        std::fs::remove_dir_all(&given.place).expect("removed");
    }
}

/// Compacts inputs as hosts push them.
async fn compaction(given: &Given) {
    println!();
    for hosts in [given.hosts / 16, given.hosts / 4, given.hosts].into_iter().filter(|hosts| *hosts > 0) {
        let place = given.place.join("inputs");
        let fleet = Fleet::directory(place.clone()).expect("a directory");
        let options = Options { hosts, hours: INPUT_HOURS, from: FROM, seed: 1, compacted: false, like: Vec::new() };
        generate(&fleet, &options).await.expect("generated");
        let cpu = cpu_seconds();
        let done = compact(&fleet, &compact::Options::default()).await.expect("compacted");
        let cpu = cpu_seconds() - cpu;
        println!(
            "compacted {} rows of {} summaries in {:.2} s, {cpu:.2} s of CPU time: {:.0} rows a second",
            done.rows,
            done.summaries,
            done.seconds,
            done.rows as f64 / done.seconds
        );
        std::fs::remove_dir_all(place).expect("removed");
    }
}

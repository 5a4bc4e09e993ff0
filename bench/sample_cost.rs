//! Measures sampling: one sample compared with bare preads of the same files; bare preads at 10 Hz and nothing else,
//! which is the kernel's part; and at 10 Hz the share of a core, memory, and the recording's size. `cargo bench --bench
//! sample_cost -- [SECONDS]` (60 by default; as root for slabinfo).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flatwater_host::clock::monotonic_ns;
use flatwater_host::own_cost::{OwnCostMeter, rss_bytes_max, thread_cpu_ns};
use flatwater_host::sampler::{Probe, Sampler, SamplerOptions, Spare, TargetCgroup, devices_of};
use flatwater_recording::{Header, RecordingWriter};

const ROUNDS: usize = 31;
const PER_ROUND: u64 = 300;
const PERIOD_NS: u64 = 100_000_000;

fn main() {
    let seconds = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(60);
    let options = SamplerOptions {
        devices: devices_of(Path::new(".")),
        cgroup: TargetCgroup::of_process(std::process::id()),
        ..SamplerOptions::default()
    };
    one_sample(&options);
    bare_at_pace(&options, seconds.min(20));
    steady(&options, seconds);
}

/// A file and the number of reads that its text takes.
struct Bare {
    file: File,
    reads: u32,
}

fn bare(paths: &[PathBuf], buffer: &mut [u8]) -> Vec<Bare> {
    let open = |path: &PathBuf| {
        let file = File::open(path).expect("a file that the probe has open");
        let (mut reads, mut at) = (0, 0);
        loop {
            let got = file.read_at(buffer, at).expect("readable");
            if got == 0 {
                return Bare { file, reads };
            }
            (reads, at) = (reads + 1, at + got as u64);
        }
    };
    paths.iter().map(open).collect()
}

/// Mean CPU time of one turn over a round, ns.
fn round(mut turn: impl FnMut()) -> u64 {
    let before = thread_cpu_ns();
    for _ in 0..PER_ROUND {
        turn();
    }
    (thread_cpu_ns() - before) / PER_ROUND
}

fn one_sample(options: &SamplerOptions) {
    let mut probe = Probe::open(options);
    let mut spare = Spare::default();
    probe.sample(monotonic_ns());
    probe.reserve(&mut spare, PER_ROUND as usize + 2);
    let mut buffer = vec![0; 64 << 10];
    let files = bare(&probe.paths(), &mut buffer);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(round(|| {
            for Bare { file, reads } in &files {
                let mut at = 0;
                for _ in 0..*reads {
                    at += file.read_at(&mut buffer, at).expect("readable") as u64;
                }
            }
        }));
        ours.push(round(|| probe.sample(monotonic_ns())));
        drop(probe.drain(&mut spare));
    }
    let mut ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| *ours as f64 / *theirs as f64).collect();
    ratios.sort_by(f64::total_cmp);
    ours.sort_unstable();
    theirs.sort_unstable();
    println!(
        "one sample of {} files: {:.1} us of CPU, bare preads {:.1} us (medians of {ROUNDS} interleaved rounds); ratio {:.3} ({:.3} to {:.3})",
        files.len(),
        ours[ROUNDS / 2] as f64 / 1e3,
        theirs[ROUNDS / 2] as f64 / 1e3,
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1]
    );
}

/// Reads files every 100 ms and discards the text, with caches as cold as a sampler's: no sampler of these files can
/// cost less. First without files, then with those that explaining a stall needs most, then with all.
fn bare_at_pace(options: &SamplerOptions, seconds: u64) {
    let all = Probe::open(options).paths();
    let needed = |path: &&PathBuf| {
        let text = path.to_string_lossy();
        ["/vmstat", "/zoneinfo"].iter().any(|end| text.ends_with(end))
            || ["/proc/pressure", "/sys/dev/block"].iter().any(|start| text.starts_with(start))
    };
    let needed: Vec<PathBuf> = all.iter().filter(needed).cloned().collect();
    for paths in [Vec::new(), needed, all] {
        let count = paths.len();
        let cpu_ns = std::thread::spawn(move || read_at_pace(&paths, seconds * 10)).join().expect("the reader ends");
        println!(
            "bare preads of {count} files at 10 Hz for {seconds} s: {:.3} % of a core, with the sleeps",
            cpu_ns as f64 / 1e7 / seconds as f64
        );
    }
}

/// CPU time of this many turns, ns.
fn read_at_pace(paths: &[PathBuf], turns: u64) -> u64 {
    let mut buffer = vec![0; 64 << 10];
    let files = bare(paths, &mut buffer);
    let (begin, before) = (Instant::now(), thread_cpu_ns());
    for turn in 1..=turns {
        std::thread::sleep(Duration::from_nanos(turn * PERIOD_NS).saturating_sub(begin.elapsed()));
        for Bare { file, reads } in &files {
            let mut at = 0;
            for _ in 0..*reads {
                at += file.read_at(&mut buffer, at).expect("readable") as u64;
            }
        }
    }
    thread_cpu_ns() - before
}

fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = statm.split(' ').nth(1).expect("resident").parse().expect("a number");
    pages * rustix::param::page_size() as u64
}

fn directory_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("entry"));
    entries.filter(|entry| entry.file_name() != "reserve").map(|entry| entry.metadata().expect("metadata").len()).sum()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn steady(options: &SamplerOptions, seconds: u64) {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory under the build's");
    let dir = place.path().join("rec");
    let mut writer = RecordingWriter::create(&dir, &Header::default()).expect("created");
    let meter = OwnCostMeter::start();
    let mut sampler = Sampler::start(options);
    let begin = Instant::now();
    for second in 1..=seconds {
        std::thread::sleep(Duration::from_secs(second).saturating_sub(begin.elapsed()));
        let drained = sampler.drain();
        for series in &drained.series {
            writer.append_series(series).expect("appended");
        }
        writer.flush();
        if [10, seconds / 2, seconds].contains(&second) {
            println!("after {second} s: resident {:.1} MiB", mib(rss_bytes()));
        }
    }
    let end = sampler.stop();
    let share = meter.finish(0).cpu_share;
    for series in &end.drained.series {
        writer.append_series(series).expect("appended");
    }
    writer.flush_now();
    let framed = directory_bytes(&dir);
    let finished = writer.finish(&Header { complete: true, ..Header::default() }).expect("finished");
    assert!(finished.sealed, "{finished:?}");
    let sealed = directory_bytes(&dir);
    let per_hour = 3600.0 / seconds as f64;
    println!(
        "{} samples at 10 Hz in {seconds} s, {} late: the thread {:.3} % of a core, with writing {:.3} %",
        end.samples,
        end.samples_late,
        end.cpu_ns as f64 / 1e7 / seconds as f64,
        share * 100.0
    );
    println!(
        "on disk: {:.2} MiB in frames, {:.2} MiB sealed; an hour at this rate {:.1} and {:.1} MB; most resident {:.1} MiB",
        mib(framed),
        mib(sealed),
        framed as f64 * per_hour / 1e6,
        sealed as f64 * per_hour / 1e6,
        mib(rss_bytes_max())
    );
}

//! Measures tracing: of existing programs (time per write() call, compared with no tracer, bpftrace and strace), and of
//! flatwater's own threads (p50 and p99.9 of write(), traced and untraced).
//!
//! All variants of a comparison run in turn, round after round, so that a slow moment of the machine affects each.
//! Prints medians and the spread over rounds or pairs. `cargo bench --bench trace_cost -- [own|foreign] [ROUNDS [HZ]]`,
//! as root; a round of `own` takes 20 s.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flatwater_host::clock::{monotonic_ns, sleep_until};
use flatwater_host::tracer::{DEFAULT_HZ, Targets, TraceOptions, Tracer, measure_hook_cost};

const LOOP: &str = "FLATWATER_BENCH_LOOP";
const CALLS: u32 = 200_000;
/// Fewer calls under strace, which stops the program twice for each.
const CALLS_STRACE: u32 = 10_000;
const JOURNAL_PERIOD_NS: u64 = 200_000;
/// A block lasts 2 s, after a warm-up of a quarter second.
const BLOCK_WRITES: usize = 10_000;
const BLOCK_WARM_UP: usize = 1_250;
const TURNS_PER_ROUND: usize = 2;

type Outcome = Result<f64, String>;
type Variant = (&'static str, fn(&Path) -> Outcome);

fn main() {
    if let Ok(order) = std::env::var(LOOP) {
        write_loop(&order);
        return;
    }
    let rounds = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(7);
    let scratch = Scratch::new();
    machine();
    let only = std::env::args().nth(1).unwrap_or_default();
    if only != "own" {
        foreign(&scratch.0, rounds);
    }
    if only != "foreign" {
        own(&scratch.0, rounds);
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-cost-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory under the build's");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn machine() {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("kernel {}, load average {}", kernel.trim(), load.trim());
    match measure_hook_cost() {
        Ok(cost) => println!(
            "system call hooks, a thread outside the target: {} ns without, {} ns with, +{} ns (spread {} ns)",
            cost.without_ns, cost.with_ns, cost.added_ns, cost.spread_ns
        ),
        Err(why) => println!("system call hooks: not measured, {why}"),
    }
}

// ---- an existing program ----------------------------------------------------------------------------------

/// The program: waits for a line, writes 220 bytes as often as ordered, and prints ns per call.
fn write_loop(order: &str) {
    let (calls, path) = order.split_once('|').expect("an order of this bench");
    let calls: u32 = calls.parse().expect("a number");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path).expect("the loop's file");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the line to start");
    let record = [b'x'; 220];
    // Written once before, so that every variant writes to cached pages.
    for _ in 0..40_000 {
        file.write_all(&record).expect("write");
    }
    file.rewind().expect("rewind");
    let mut ns = 0;
    let mut left = calls;
    while left > 0 {
        let batch = left.min(40_000);
        let start = monotonic_ns();
        for _ in 0..batch {
            file.write_all(&record).expect("write");
        }
        ns += monotonic_ns() - start;
        file.rewind().expect("rewind");
        left -= batch;
    }
    println!("{}", ns as f64 / f64::from(calls));
}

fn start_loop(prefix: &[&str], dir: &Path, calls: u32) -> Result<Child, String> {
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut words: Vec<&std::ffi::OsStr> = prefix.iter().map(std::ffi::OsStr::new).collect();
    words.push(me.as_os_str());
    Command::new(words[0])
        .args(&words[1..])
        .env(LOOP, format!("{calls}|{}", dir.join("loop").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", words[0].to_string_lossy()))
}

fn go(child: &mut Child) -> Outcome {
    child.stdin.as_mut().ok_or("no standard input")?.write_all(b"go\n").map_err(|error| error.to_string())?;
    let mut text = String::new();
    let stdout = child.stdout.as_mut().ok_or("no standard output")?;
    stdout.read_to_string(&mut text).map_err(|error| error.to_string())?;
    let _ = child.wait();
    text.trim().parse().map_err(|_| format!("the loop printed {text:?}"))
}

fn untraced(dir: &Path) -> Outcome {
    go(&mut start_loop(&[], dir, CALLS)?)
}

fn ours(dir: &Path) -> Outcome {
    let mut child = start_loop(&[], dir, CALLS)?;
    let targets = Targets { pids: vec![child.id()], cgroup: None, faults: false };
    let (tracer, _) = Tracer::start(TraceOptions::others(1_000_000, targets));
    if !tracer.sees() {
        let _ = child.kill();
        return Err(tracer.gaps().first().map_or(String::new(), |gap| gap.why.clone()));
    }
    let ns = go(&mut child);
    drop(tracer);
    ns
}

fn strace(dir: &Path) -> Outcome {
    go(&mut start_loop(&["strace", "-f", "-c", "-o", "/dev/null"], dir, CALLS_STRACE)?)
}

/// bpftrace with the same histogram as flatwater. If tracefs is not mounted, bpftrace gets a private mount.
fn bpftrace(dir: &Path) -> Outcome {
    let mut child = start_loop(&[], dir, CALLS)?;
    let script = format!(
        "tracepoint:syscalls:sys_enter_write /pid == {0}/ {{ @start[tid] = nsecs; }} \
         tracepoint:syscalls:sys_exit_write /pid == {0} && @start[tid]/ \
         {{ @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }}",
        child.id()
    );
    let shell =
        "test -d /sys/kernel/tracing/events || mount -t tracefs nodev /sys/kernel/tracing; exec bpftrace -e \"$0\"";
    let tracing = Command::new("unshare")
        .args(["-m", "sh", "-c", shell, &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut tracing = tracing.map_err(|error| format!("unshare: {error}"))?;
    let mut first = String::new();
    let mut lines = BufReader::new(tracing.stdout.take().ok_or("no standard output")?);
    lines.read_line(&mut first).map_err(|error| error.to_string())?;
    let outcome = if first.contains("Attaching") {
        // bpftrace prints this before it attaches.
        std::thread::sleep(Duration::from_millis(1_500));
        go(&mut child)
    } else {
        let _ = child.kill();
        Err(format!("bpftrace printed {first:?}"))
    };
    let _ = tracing.kill();
    let _ = tracing.wait();
    let _ = child.wait();
    outcome
}

fn foreign(dir: &Path, rounds: usize) {
    let variants: [Variant; 4] =
        [("none", untraced), ("flatwater", ours), ("bpftrace", bpftrace), ("strace -f -c", strace)];
    let mut seen: Vec<Vec<f64>> = vec![Vec::new(); variants.len()];
    for _ in 0..rounds {
        for (variant, values) in variants.iter().zip(&mut seen) {
            match (variant.1)(dir) {
                Ok(ns) => values.push(ns),
                Err(why) => println!("{}: {why}", variant.0),
            }
        }
    }
    println!("\n220-byte write() to pages in the cache, ns per call, {rounds} rounds");
    println!("{:14} {:>10} {:>10} {:>10} {:>12}", "", "median", "least", "most", "added");
    let base = median(&seen[0]);
    for (variant, values) in variants.iter().zip(&seen) {
        let (least, most) = span(values);
        let added = median(values) - base;
        println!("{:14} {:10.0} {least:10.0} {most:10.0} {added:12.0}", variant.0, median(values));
    }
}

// ---- flatwater's own threads ------------------------------------------------------------------------------

/// How a block of writes is observed.
#[derive(Clone, Copy, PartialEq)]
enum Watched {
    No,
    /// Traced, with this many stack samples per second and CPU.
    Traced(u32),
}

/// Median and 99.9th percentile of a block, ns.
type Block = [f64; 2];

/// Writes like the journal for one block, on one CPU with real-time priority; otherwise other programs of a shared
/// machine would dominate the result. The warm-up, during which the caches still have the loader's data, is not
/// counted.
fn block(dir: &Path, watched: Watched) -> Block {
    let tracer = match watched {
        Watched::No => None,
        Watched::Traced(hz) => Some(Tracer::start(TraceOptions { hz, ..TraceOptions::own(1_000_000) }).0),
    };
    let path = dir.join("journal");
    let mut times = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            alone_on_a_cpu();
            let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            let mut slot = tracer.as_ref().and_then(|tracer| tracer.op_slot(tid));
            assert_eq!(slot.is_some(), watched != Watched::No, "tracing must work on this machine");
            let mut file = File::create(&path).expect("the journal's file");
            let mut times = Vec::with_capacity(BLOCK_WARM_UP + BLOCK_WRITES);
            let mut due = monotonic_ns();
            for _ in 0..BLOCK_WARM_UP + BLOCK_WRITES {
                due += JOURNAL_PERIOD_NS;
                sleep_until(due);
                times.push(one_write(&mut file, slot.as_mut()));
            }
            times.split_off(BLOCK_WARM_UP)
        });
        writer.join().expect("the journal's thread")
    });
    drop(tracer);
    times.sort_unstable();
    [quantile(&times, 0.5), quantile(&times, 0.999)]
}

/// Pins the calling thread to the last CPU that it may use, and gives it priority over all ordinary threads.
fn alone_on_a_cpu() {
    let allowed = rustix::thread::sched_getaffinity(None).expect("this thread's CPUs");
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)).expect("a CPU");
    let mut one = rustix::thread::CpuSet::new();
    one.set(last);
    rustix::thread::sched_setaffinity(None, &one).expect("pinned");
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: `first` is a local that outlives the call; 0 means the calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
    assert_eq!(done, 0, "real-time priority: run as root");
}

#[inline(never)]
fn one_write(file: &mut File, slot: Option<&mut flatwater_host::tracer::OpSlot>) -> u64 {
    let record = [b'x'; 220];
    let start;
    let end;
    match slot {
        Some(slot) => {
            start = monotonic_ns();
            slot.enter(start);
            file.write_all(&record).expect("write");
            end = monotonic_ns();
            slot.leave(end);
        }
        None => {
            start = monotonic_ns();
            file.write_all(&record).expect("write");
            end = monotonic_ns();
        }
    }
    end - start
}

/// Runs short blocks in turn: untraced, traced, traced, untraced, and so on, so that each kind goes first equally
/// often. Neighbours form a pair. The two untraced blocks between turns also form a pair, which shows the spread of
/// equal blocks on this machine. All pairs count.
fn own(dir: &Path, rounds: usize) {
    // The second number is the rate of stack samples per second.
    let hz = std::env::args().filter_map(|word| word.parse().ok()).nth(1).unwrap_or(DEFAULT_HZ);
    let (mut untraced, mut traced): (Vec<Block>, Vec<Block>) = (Vec::new(), Vec::new());
    for _ in 0..rounds * TURNS_PER_ROUND {
        for watched in [Watched::No, Watched::Traced(hz), Watched::Traced(hz), Watched::No] {
            let kind = if watched == Watched::No { &mut untraced } else { &mut traced };
            kind.push(block(dir, watched));
        }
    }
    let pairs = traced.len();
    println!(
        "\njournal of own threads, 220 bytes every 200 us, {pairs} pairs of blocks of {BLOCK_WRITES} writes; {hz} samples a second"
    );
    for (place, name) in ["p50", "p99.9"].into_iter().enumerate() {
        let of = |blocks: &[Block]| blocks.iter().map(|block| block[place]).collect::<Vec<f64>>();
        let (untraced, traced) = (of(&untraced), of(&traced));
        let ratios: Vec<f64> = traced.iter().zip(&untraced).map(|(traced, not)| traced / not).collect();
        let like: Vec<f64> = untraced[1..].chunks_exact(2).map(|pair| pair[1] / pair[0]).collect();
        println!("{name}: untraced {:.0} ns, traced {:.0} ns (medians)", median(&untraced), median(&traced));
        println!("  traced / untraced    {}", with_interval(&ratios));
        println!("  untraced / untraced  {}", with_interval(&like));
    }
}

/// The median, and the two values between which it lies with 95 % (binomial, for any distribution).
fn with_interval(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let reach = 0.5 * 1.96 * count.sqrt();
    let low = ((count / 2.0 - reach).floor().max(0.0)) as usize;
    let high = ((count / 2.0 + reach).ceil() as usize).min(sorted.len().saturating_sub(1));
    let get = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    format!("{:.4} (95 %: {:.4} to {:.4}, {} pairs)", median(values), get(low), get(high), sorted.len())
}

// ---- numbers ----------------------------------------------------------------------------------------------

fn quantile(sorted: &[u64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * q).round() as usize).map_or(f64::NAN, |&ns| ns as f64)
}

fn median(values: &[f64]) -> f64 {
    at(values, 0.5)
}

fn at(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

fn span(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &value| (least.min(value), most.max(value)))
}

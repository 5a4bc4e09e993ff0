//! Measures what `flatwater watch` costs and which stalls it finds.
//!
//! `cargo bench --bench watch_cost -- cost [SECONDS]`: at 0, 5 000, 20 000 and 50 000 context switches per second, the
//! CPU time of the daemon (/proc/PID/task/TID/schedstat) and of the hooks (the kernel's count of BPF programs, less the
//! cost of counting). Compared with bpftrace running a similar program (sleeps of every thread by kernel stack, and
//! each request of a block device), and with atop, which has no hooks and writes counters and processes to a file each
//! second.
//!
//! `... -- recall SCENARIO...`: `run` performs and records each scenario, timing each call of the threads that it
//! starts, while the daemon watches at level 0; then the calls over the daemon's threshold are compared.
//!
//! As root, on a quiet machine. `FLATWATER=path` measures another binary than the one built with this bench.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flatwater_host::bpf_stats::{OwnPrograms, loaded_ids};
use flatwater_recording::{Call, OpKind, Recording, read};

const RATES: [u64; 4] = [0, 5_000, 20_000, 50_000];
const LIMIT_NS: u64 = 5_000_000;
/// bpftrace program for sleeps and requests, as its users write it.
const LIKE: &str = "
tracepoint:sched:sched_switch { if (args->prev_state & 2) { @asleep[args->prev_pid] = nsecs; } }
tracepoint:sched:sched_waking /@asleep[args->pid]/ {
  $slept = nsecs - @asleep[args->pid]; delete(@asleep[args->pid]);
  if ($slept > 1250000) { @slow[args->comm, comm, kstack(24)] = sum($slept); }
}
tracepoint:block:block_rq_insert { @queued[args->dev, args->sector] = nsecs; @who[args->dev, args->sector] = comm; }
tracepoint:block:block_rq_issue { @issued[args->dev, args->sector] = nsecs; }
tracepoint:block:block_rq_complete /@issued[args->dev, args->sector]/ {
  @device[args->dev] = hist(nsecs - @issued[args->dev, args->sector]);
  delete(@issued[args->dev, args->sector]); delete(@queued[args->dev, args->sector]); delete(@who[args->dev, args->sector]);
}";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("recall", scenarios)) => recall(scenarios),
        Some(("cost", rest)) => cost(rest.first().and_then(|word| word.parse().ok()).unwrap_or(20)),
        _ => cost(20),
    }
}

fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    format!("kernel {}, load average {}", read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"))
}

fn flatwater() -> PathBuf {
    std::env::var_os("FLATWATER").map_or_else(|| env!("CARGO_BIN_EXE_flatwater").into(), PathBuf::from)
}

/// A directory below the build's, since the daemon refuses a store in a world-writable place.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("watch-cost-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory under the build's");
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that is ended with the measurement.
struct Running {
    child: Child,
    programs: OwnPrograms,
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(mut command: Command, ready: impl Fn() -> bool) -> Running {
        let before = loaded_ids();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        let until = Instant::now() + Duration::from_secs(90);
        while !ready() {
            assert!(Instant::now() < until, "not ready after 90 s: {command:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
        // Excludes work that is done once at the start.
        std::thread::sleep(Duration::from_secs(3));
        Running { child, programs: OwnPrograms::since(&before) }
    }

    /// CPU time of the process's threads, s; in ns resolution (/proc/PID/stat counts in steps of 10 ms).
    fn cpu_s(&self) -> f64 {
        let tasks =
            fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().filter_map(Result::ok);
        let ran_ns = tasks.filter_map(|task| {
            let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            stat.split_whitespace().next()?.parse::<u64>().ok()
        });
        ran_ns.sum::<u64>() as f64 / 1e9
    }

    fn rss_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let kib =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().split(' ').next()?.parse::<u64>().ok());
        kib.unwrap_or(0) >> 10
    }
}

fn watch(place: &Path) -> Running {
    let (config, socket) = (place.join("watch.toml"), place.join("watch.sock"));
    let _ = fs::remove_file(&socket);
    let text = format!(
        "[store]\ndirectory = \"{}\"\nkeep_free = 0.0\n[metrics]\nsocket = \"{}\"\n[budget]\ncpu_share = 1.0\n\
         [[trigger]]\nstall = \"1h\"\n",
        place.join("store").display(),
        socket.display()
    );
    fs::write(&config, text).expect("the configuration is written");
    let mut command = Command::new(flatwater());
    command.args(["watch", "-c"]).arg(&config);
    Running::start(command, || {
        let asked = Command::new(flatwater()).args(["watch", "-c"]).arg(&config).arg("status").output();
        asked.is_ok_and(|output| output.status.success())
    })
}

/// Starts bpftrace in a private mount namespace, since tracefs may not be mounted.
fn bpftrace() -> Option<Running> {
    Command::new("bpftrace").arg("--version").output().ok().filter(|output| output.status.success())?;
    let script =
        "mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing; exec bpftrace -q -e \"$0\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, LIKE]);
    let before = loaded_ids();
    Some(Running::start(command, || loaded_ids().difference(&before).count() >= 5))
}

/// Starts atop, which has no hooks: counters and every process once a second, to a file.
fn atop(place: &Path) -> Option<Running> {
    Command::new("atop").arg("-V").output().ok().filter(|output| output.status.success())?;
    let file = place.join("atop.raw");
    let mut command = Command::new("atop");
    command.arg("-w").arg(&file).arg("1");
    Some(Running::start(command, || fs::metadata(&file).is_ok_and(|found| found.len() > 0)))
}

fn switches() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    stat.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok()).unwrap_or(0)
}

/// Two threads on one CPU exchange a byte, with `rate` context switches per second.
fn ping_pong(rate: u64, length: Duration) {
    if rate == 0 {
        std::thread::sleep(length);
        return;
    }
    let pair = || std::io::pipe().expect("a pipe");
    let ((mut read_there, mut write_here), (mut read_here, mut write_there)) = (pair(), pair());
    let pin = || {
        let mut set = rustix::thread::CpuSet::new();
        set.set(0);
        rustix::thread::sched_setaffinity(None, &set).expect("pinned");
    };
    let other = std::thread::spawn(move || {
        pin();
        let mut byte = [0];
        while read_there.read(&mut byte).is_ok_and(|count| count == 1) {
            write_there.write_all(&byte).expect("answered");
        }
    });
    pin();
    let (start, mut done, mut byte) = (Instant::now(), 0_u64, [0]);
    while start.elapsed() < length {
        // Two switches per exchange; the sleep of each batch adds two.
        let due = (start.elapsed().as_secs_f64() * (rate / 2) as f64) as u64;
        while done < due {
            write_here.write_all(&[1]).expect("asked");
            read_here.read_exact(&mut byte).expect("answered");
            done += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(write_here);
    other.join().expect("ended");
}

fn cost(seconds: u64) {
    println!("{}", machine());
    let place = Place::new();
    println!(
        "| who | asked switches/s | switches/s | hooks, % of a core | process, % of a core | sum | ns a switch | RSS MiB |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    let length = Duration::from_secs(seconds);
    for who in ["flatwater watch", "bpftrace", "atop -w"] {
        let started = match who {
            "bpftrace" => bpftrace(),
            "atop -w" => atop(&place.0),
            _ => Some(watch(&place.0)),
        };
        let Some(mut running) = started else {
            println!("| {who} | not installed | | | | | | |");
            continue;
        };
        for rate in RATES {
            let (cpu_s, before, start) = (running.cpu_s(), switches(), Instant::now());
            running.programs.begin();
            ping_pong(rate, length);
            let hooks = running.programs.end();
            let wall_s = start.elapsed().as_secs_f64();
            let per_s = (switches() - before) as f64 / wall_s;
            let process = (running.cpu_s() - cpu_s) / wall_s;
            let hooks_share = hooks.map_or(f64::NAN, |share| share);
            println!(
                "| {who} | {rate} | {per_s:.0} | {:.3} | {:.3} | {:.3} | {:.0} | {} |",
                hooks_share * 100.0,
                process * 100.0,
                (hooks_share + process) * 100.0,
                hooks_share * 1e9 / per_s,
                running.rss_mib()
            );
        }
    }
}

fn recall(scenarios: &[String]) {
    println!("{}", machine());
    println!(
        "| scenario | calls over 5 ms | found | recall | share of their time | seen, of these threads | invented |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for scenario in scenarios {
        let place = Place::new();
        let truth = place.0.join("truth");
        let daemon = watch(&place.0);
        let mut run = Command::new(flatwater());
        run.args(["run", scenario, "-o"]).arg(&truth).stdin(Stdio::null()).stdout(Stdio::null());
        let status = run.status().expect("run");
        // The daemon reports a call a second after its last sleep.
        std::thread::sleep(Duration::from_secs(3));
        let config = place.0.join("watch.toml");
        let dump = Command::new(flatwater()).args(["watch", "-c"]).arg(&config).arg("dump").output().expect("dump");
        drop(daemon);
        let answer: serde_json::Value = serde_json::from_slice(&dump.stdout).unwrap_or_default();
        let Some(seen) = answer["recording"].as_str() else {
            println!(
                "| {scenario} | run ended {status}, no dump: {} | | | | | |",
                String::from_utf8_lossy(&dump.stderr).trim()
            );
            continue;
        };
        match (read(&truth), read(Path::new(seen))) {
            (Ok(truth), Ok(seen)) => compare(scenario, &truth, &seen),
            (truth, seen) => println!("| {scenario} | {:?} {:?} | | | | | |", truth.err(), seen.err()),
        }
    }
}

/// Compares only the last minute, which is all that the daemon holds.
fn compare(scenario: &str, truth: &Recording, seen: &Recording) {
    let tids: BTreeSet<u32> = truth.calls.iter().map(|call| call.tid).collect();
    let from_ns = seen.header.clock.start_ns.max(truth.header.clock.start_ns);
    let until_ns = truth.header.clock.start_ns + truth.header.duration_ns;
    let within = |call: &&Call| call.start_ns >= from_ns && call.end_ns() <= until_ns;
    let file_call = |call: &&Call| !matches!(call.op, OpKind::PageFault | OpKind::Other);
    let slow: Vec<&Call> =
        truth.calls.iter().filter(within).filter(file_call).filter(|call| call.duration_ns >= LIMIT_NS).collect();
    let theirs: Vec<&Call> = seen.calls.iter().filter(|call| tids.contains(&call.tid)).filter(within).collect();
    let overlap_ns = |a: &Call, b: &Call| {
        a.end_ns().min(b.end_ns()).saturating_sub(a.start_ns.max(b.start_ns)) * u64::from(a.tid == b.tid)
    };
    let best_ns = |call: &Call| theirs.iter().map(|other| overlap_ns(call, other)).max().unwrap_or(0);
    let found = slow.iter().filter(|call| best_ns(call) > 0).count();
    let (time_ns, found_ns) =
        slow.iter().fold((0, 0), |(all, found), call| (all + call.duration_ns, found + best_ns(call)));
    let real = |call: &&&Call| slow.iter().any(|other| overlap_ns(other, call) > 0);
    let invented = theirs.len() - theirs.iter().filter(real).count();
    println!(
        "| {scenario} | {} | {found} | {:.1} % | {:.1} % | {} | {invented} |",
        slow.len(),
        100.0 * found as f64 / slow.len().max(1) as f64,
        100.0 * found_ns as f64 / time_ns.max(1) as f64,
        theirs.len(),
    );
}

//! One cell: a way of appending under a condition, as an open loop of timed appends.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::Scheduling;
use crate::loads::{Condition, fork_until};
use crate::place::{Cgroup, SlowVolume, fifo_here, pin_here};
use crate::rivals::Method;

/// Length of a record, bytes, and interval between two, from the case study of the journal.
const RECORD: usize = 220;
const INTERVAL: Duration = Duration::from_micros(200);

#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub way: Method,
    pub condition: Condition,
    pub seconds: u64,
    pub memory_mib: u64,
    pub scheduling: Scheduling,
}

/// Results of a cell, ns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    pub count: u64,
    pub p50: u64,
    pub p999: u64,
    pub p9999: u64,
    pub max: u64,
    /// Calls over 1 ms.
    pub slow: u64,
    /// Those calls over 1 ms in which the thread was preempted and took no page fault: no way of writing can avoid
    /// them.
    pub preempted: u64,
    pub due_p999: u64,
    pub due_max: u64,
    /// Late windows and waits, as the library counts them.
    pub late: u64,
    /// Duration of opening.
    pub open: u64,
    /// CPU time of the process while it appended, per 10,000 of the wall time; 0 = not measured.
    pub cpu: u64,
}

impl Figures {
    fn fields(&self) -> [u64; 12] {
        [
            self.count,
            self.p50,
            self.p999,
            self.p9999,
            self.max,
            self.slow,
            self.preempted,
            self.due_p999,
            self.due_max,
            self.late,
            self.open,
            self.cpu,
        ]
    }

    pub fn line(&self) -> String {
        self.fields().map(|f| f.to_string()).join(" ")
    }

    fn parse(line: &str) -> Result<Figures> {
        let fields: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [count, p50, p999, p9999, max, slow, preempted, due_p999, due_max, late, open, cpu] = fields[..] else {
            bail!("a cell printed: {line}");
        };
        Ok(Figures { count, p50, p999, p9999, max, slow, preempted, due_p999, due_max, late, open, cpu })
    }
}

impl Cell {
    /// Sets up, runs the cell's processes, and cleans up.
    pub fn perform(&self, dir: &Path) -> Result<Figures> {
        let scratch = dir.join(format!("precursor-bench-{}", std::process::id()));
        std::fs::create_dir_all(&scratch)?;
        let mut slow = match self.condition {
            Condition::SlowDevice => Some(SlowVolume::create(&scratch)?),
            _ => None,
        };
        let place = slow.as_ref().map_or(scratch.as_path(), SlowVolume::dir).to_owned();
        let memory_mib = if self.condition == Condition::Bulk { self.memory_mib.max(512) } else { self.memory_mib };
        let group = Cgroup::create(memory_mib)?;
        let result = self.with_neighbours(&group, &place, &mut slow);
        drop(group);
        drop(slow);
        std::fs::remove_dir_all(&scratch)?;
        result
    }

    fn with_neighbours(&self, group: &Cgroup, dir: &Path, slow: &mut Option<SlowVolume>) -> Result<Figures> {
        let mut children = Vec::new();
        let outcome = self.run_all(group, dir, &mut children);
        for child in &mut children {
            let _ = child.kill();
        }
        // First lift the device's limit: a child may wait for the device before it exits.
        if let Some(slow) = slow {
            slow.release();
        }
        for mut child in children {
            let _ = child.wait();
        }
        // Recover what the killed cell left in shared memory, as after any crash.
        let _ = precursor::recover(dir.join("journal"));
        outcome
    }

    fn run_all(&self, group: &Cgroup, dir: &Path, children: &mut Vec<Child>) -> Result<Figures> {
        for (number, kind) in self.condition.neighbours().into_iter().enumerate() {
            let number = number.to_string();
            let args = ["load", "--dir", text(dir)?, "--kind", kind.name(), "--number", &number];
            children.push(start(group, ours(&args, self.scheduling)?)?);
        }
        // Long enough for the cgroup to reach its limit, and for the slow device to reach its dirty limit.
        std::thread::sleep(Duration::from_millis(if children.is_empty() { 100 } else { 1500 }));
        let mut child = start(group, self.command(dir)?)?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
        // The figures are complete; closing, which takes long on a slow device, is not measured.
        children.push(child);
        Figures::parse(line.trim())
    }
}

impl Cell {
    /// The command of the cell's process.
    fn command(&self, dir: &Path) -> Result<Command> {
        let (dir, seconds) = (text(dir)?, self.seconds.to_string());
        if matches!(self.way, Method::Chronicle | Method::JavaMap | Method::JavaRing) {
            if self.scheduling != Scheduling::default() || self.condition == Condition::Fork {
                bail!("SKIPPED: a JVM runs under the default scheduler, and does not fork");
            }
            return match self.way {
                Method::Chronicle => crate::chronicle::command(dir, self.seconds),
                way => crate::java::command(way, dir, self.seconds),
            };
        }
        let (way, condition) = (self.way.name(), self.condition.name());
        ours(&["cell", "--dir", dir, "--seconds", &seconds, "--way", way, "--condition", condition], self.scheduling)
    }
}

fn text(dir: &Path) -> Result<&str> {
    dir.to_str().context("the directory's name must be UTF-8")
}

/// This program, run again.
fn ours(args: &[&str], scheduling: Scheduling) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).args(scheduling.arguments());
    Ok(command)
}

fn start(group: &Cgroup, mut command: Command) -> Result<Child> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start a cell's process")?;
    let moved = group.add(child.id());
    if moved.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    moved?;
    child.stdin.take().context("no stdin")?.write_all(b"go\n")?;
    Ok(child)
}

/// Runs in the cell's process: an open loop, in which latency counts from the time at which an append was due.
pub fn run(dir: &Path, seconds: u64, way: Method, condition: Condition, scheduling: Scheduling) -> Result<Figures> {
    let opening = Instant::now();
    let mut writer = way.open(dir)?;
    let open = ns(opening.elapsed());
    let count = usize::try_from(seconds * 1_000_000_000 / INTERVAL.as_nanos() as u64)?;
    let (mut service, mut from_due) = (Vec::with_capacity(count), Vec::with_capacity(count));
    // Touch them now, so that the memory for results does not stall the appends.
    service.resize(count, 0u64);
    from_due.resize(count, 0u64);
    // SAFETY: prctl takes plain numbers here; it sets this thread's timer slack to 1 ns.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let stop = AtomicBool::new(false);
    let (preempted, cpu) = std::thread::scope(|scope| {
        if condition == Condition::Fork {
            scope.spawn(|| fork_until(&stop));
        }
        // After the helper threads have started, which would inherit the CPU.
        let mut done = settle(scheduling);
        let record = [0x61; RECORD];
        let (begun, cpu_begun) = (Instant::now(), cpu_ns());
        let mut preempted = 0;
        for i in 0..if done.is_ok() { count } else { 0 } {
            let due = INTERVAL * u32::try_from(i).unwrap_or(u32::MAX);
            if let Some(early) = due.checked_sub(begun.elapsed()) {
                std::thread::sleep(early);
            }
            let before = switches_and_faults();
            let start = begun.elapsed();
            done = writer.append(&record);
            let end = begun.elapsed();
            if done.is_err() {
                break;
            }
            let took = writer.own_ns().unwrap_or(ns(end - start));
            if took > 1_000_000 {
                let after = switches_and_faults();
                preempted += u64::from(after.0 > before.0 && after.1 == before.1);
            }
            service[i] = took;
            from_due[i] = ns(end.saturating_sub(due));
            // A cell that has fallen far behind (O_DIRECT on a slow device) ends early with the results so far.
            if end > Duration::from_secs(3 * seconds) {
                service.truncate(i + 1);
                from_due.truncate(i + 1);
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        let cpu = (cpu_ns() - cpu_begun) * 10_000 / ns(begun.elapsed()).max(1);
        done.map(|()| (preempted, cpu))
    })?;
    let late = writer.late();
    // Not closed: the parent kills this process after it has read the line.
    std::mem::forget(writer);
    Ok(Figures { preempted, late, open, cpu, ..figures(service, from_due) })
}

fn settle(scheduling: Scheduling) -> Result<()> {
    if scheduling.pin {
        pin_here(0)?;
    }
    if scheduling.fifo { fifo_here() } else { Ok(()) }
}

/// Involuntary context switches and page faults of this thread.
fn switches_and_faults() -> (i64, i64) {
    // SAFETY: rusage consists of integers, for which zero is valid, and it outlives the call that fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    (usage.ru_nivcsw, usage.ru_minflt + usage.ru_majflt)
}

/// CPU time of this process, ns.
fn cpu_ns() -> u64 {
    // SAFETY: rusage consists of integers, for which zero is valid, and it outlives the call that fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000;
    u64::try_from(ns(usage.ru_utime) + ns(usage.ru_stime)).unwrap_or(0)
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn figures(mut service: Vec<u64>, mut from_due: Vec<u64>) -> Figures {
    service.sort_unstable();
    from_due.sort_unstable();
    Figures {
        count: service.len() as u64,
        p50: at(&service, 0.5),
        p999: at(&service, 0.999),
        p9999: at(&service, 0.9999),
        max: at(&service, 1.0),
        slow: service.iter().filter(|ns| **ns > 1_000_000).count() as u64,
        due_p999: at(&from_due, 0.999),
        due_max: at(&from_due, 1.0),
        ..Figures::default()
    }
}

/// The value at a quantile of sorted values; 0 for an empty slice.
pub fn at(sorted: &[u64], quantile: f64) -> u64 {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

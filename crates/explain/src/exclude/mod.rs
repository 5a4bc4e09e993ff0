//! Which figures of a log exclude the usual causes of a stall, and which suggest a stall without naming its cause.
//!
//! `quiet` is a claim and needs figures. A matter is excluded by figures that would show it: waits for devices by
//! iowait, blocked threads or the devices' own times; memory shortage by scans, pressure, or available memory.

mod io;
mod levels;
#[cfg(test)]
mod tests;
mod unjudged;

pub use io::{BLOCK_IO, device_keeps_up};
use io::{busy_device, delays, devices, of_requests, reads_again};
pub use unjudged::{Unjudged, unjudged};

use super::Evidence;
use super::counters::lasting;
use super::facts::Facts;
use super::operations::operations;
use super::sums::total;
use flatwater_recording::schema::{Column, cgroup, cpu, meminfo, vmstat, workload};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Cause, Table};

/// The subject of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matter {
    /// The calls themselves were timed.
    Calls,
    Device,
    Memory,
    Processor,
    Cgroup,
    /// The log itself: many lines were not understood.
    Reading,
    /// Most of the log consists of figures that no rule judges.
    Unjudged,
}

/// The shortest event that the figures of a log can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Operations were timed one by one: a slow one shows, however short.
    Operations,
    /// Averages, counters and levels: a stall shorter than the interval between two readings need not show.
    Averages,
}

/// The resolution of this log.
#[must_use]
pub fn resolution(facts: &Facts<'_>) -> Resolution {
    let formats = facts.recording.header.import.as_ref().map_or(&[][..], |import| &import.formats);
    let timed = formats.is_empty() || formats.iter().any(|read| read.kind.times_operations());
    if timed && facts.timed() { Resolution::Operations } else { Resolution::Averages }
}

/// One figure and its subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub matter: Matter,
    pub evidence: Evidence,
}

/// The figures of a log for and against a quiet machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub excluded: Vec<Shown>,
    pub suspicious: Vec<Shown>,
}

/// Share of CPU time spent waiting for I/O: below the first, a slow device is excluded; from the second, one is
/// suspected.
const IOWAIT_CALM: f64 = 0.10;
const IOWAIT_SUSPICIOUS: f64 = 0.20;
const BLOCKED_CALM: f64 = 1.0;
const BLOCKED_SUSPICIOUS: f64 = 2.0;
const BLOCKED_SHARE_MIN: f64 = 0.2;
/// Pages per second in one direction in one interval; 2 MiB/s with pages of 4 KiB.
const SWAP_PEAK_SUSPICIOUS: f64 = 512.0;
/// Share of time in which some thread waited (PSI).
const PRESSURE_CALM: f64 = 0.05;
const PRESSURE_SUSPICIOUS: f64 = 0.10;
/// Share of memory that is available without reclaiming much.
const AVAILABLE_CALM: f64 = 0.15;
const AVAILABLE_SUSPICIOUS: f64 = 0.04;
/// Minimum share of a log's lines that must be understood before their silence counts.
const UNDERSTOOD_MIN: f64 = 0.5;
/// From this share of unjudged figures among the understood lines, the other lines do not represent the log.
const UNJUDGED_MAX: f64 = 0.5;
/// Share of CPU time in the kernel that needs an explanation. A healthy machine full of short-lived processes
/// spends nearly two thirds there (SDET on 2.2.5: 61 %).
const SYSTEM_SUSPICIOUS: f64 = 0.7;
/// Pauses of a garbage collector are calm up to this mean, ns, if it computed for at least this share of the time.
const PAUSE_CALM_NS: f64 = 250e6;
const PAUSE_COMPUTED_MIN: f64 = 0.8;
/// A histogram whose longest time is shorter than this does not measure operations on files.
const TIMED_NS_MIN: u64 = 100;
/// Share of time in which some thread waited for a CPU.
const CPU_PRESSURE_SUSPICIOUS: f64 = 0.9;
/// Shorter waits are not stalls.
const STALL_NS_MIN: u64 = 500_000;
/// Slower calls are stalls, whatever they wait for.
const CALL_CALM_NS: u64 = 20_000_000;

impl View {
    /// Whether figures exclude trouble, and none suggests it.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.suspicious.is_empty() && !self.excluded.is_empty()
    }

    /// Whether rates (of scans, swapping, pressure) exclude trouble in this matter, and no figure suggests it.
    #[must_use]
    pub fn is_calm(&self, matter: Matter) -> bool {
        let moving = |shown: &&Shown| shown.matter == matter && shown.evidence.unit != "%";
        !self.suspicious.iter().any(|shown| shown.matter == matter) && self.excluded.iter().any(|shown| moving(&shown))
    }

    /// The one measurement that would settle the suspicion.
    #[must_use]
    pub fn settle(&self) -> &'static str {
        let of = |matter: Matter| self.suspicious.iter().any(|shown| shown.matter == matter);
        let seen = |matter: Matter| self.excluded.iter().any(|shown| shown.matter == matter);
        match () {
            () if of(Matter::Reading) => {
                "paste the tables whole, as their tools print them: the lines that were not understood are listed"
            }
            () if of(Matter::Device) => {
                "`iostat -x 1` while it is slow: r_await, w_await and f_await against aqu-sz, for each device"
            }
            () if of(Matter::Memory) => {
                "`sar -B 1` and /proc/pressure/memory while it is slow: pgscand/s and %vmeff show whether callers \
                    reclaim"
            }
            () if of(Matter::Cgroup) => {
                "memory.events, memory.pressure and cpu.stat of the cgroup twice, a minute apart, while it is slow"
            }
            () if of(Matter::Processor) => {
                "`perf top -g` while it is slow, and `sar -B 1`: they name the functions, and say whether pages are \
                 scanned"
            }
            () if of(Matter::Calls) => super::finding::SETTLE_RECORD,
            () if of(Matter::Unjudged) => {
                "the same figures a second time, some minutes later while it is slow: one reading of them does not \
                    show what grows"
            }
            () if seen(Matter::Memory) && !seen(Matter::Device) => {
                "`iostat -x 1` while it is slow: memory has room, and the log shows nothing about devices"
            }
            () => {
                "`vmstat 1 60` and the files of /proc/pressure while it is slow: they show whether tasks wait for \
                    devices, memory or CPUs"
            }
        }
    }
}

/// The figures of this log for and against a quiet machine.
#[must_use]
pub fn view(facts: &Facts<'_>) -> View {
    let mut view = View::default();
    for look in [
        calls,
        collector,
        processors,
        devices,
        busy_device,
        reads_again,
        delays,
        swapping,
        scanning,
        pressure,
        memory,
        levels::shrinking,
        levels::vanishing,
        levels::dirty_peak,
        printed_by_kernel,
        cgroups,
        reading,
    ] {
        look(facts, &mut view);
    }
    view
}

/// The share of the log's lines that was understood; `None` if nothing was imported.
#[must_use]
pub fn basis(facts: &Facts<'_>) -> Option<Evidence> {
    let import = facts.recording.header.import.as_ref()?;
    let share = import.understood_share()?;
    let text = format!("{} of {} lines were understood ({:.0} %)", import.understood, import.lines, share * 100.0);
    Some(Evidence::new(text, share * 100.0, "%"))
}

impl View {
    fn calm(&mut self, matter: Matter, evidence: Evidence) {
        self.excluded.push(Shown { matter, evidence });
    }

    fn odd(&mut self, matter: Matter, evidence: Evidence) {
        self.suspicious.push(Shown { matter, evidence });
    }
}

fn calls(facts: &Facts<'_>, view: &mut View) {
    let all = operations(facts.recording);
    let slowest = all.iter().max_by_key(|line| line.from_start.max_ns);
    // Requests at a device are judged by `devices`.
    let of_calls = of_requests(facts.recording).is_none();
    if let Some(worst) = slowest.filter(|line| of_calls && line.from_start.max_ns >= TIMED_NS_MIN) {
        let text = format!(
            "{} operations were timed; the slowest, a {}, took {}",
            total(all.iter().map(|line| line.count)),
            worst.name,
            Nanos(worst.from_start.max_ns)
        );
        let evidence = Evidence::new(text, worst.from_start.max_ns as f64, "ns");
        match worst.from_start.max_ns {
            ns if ns <= CALL_CALM_NS => view.calm(Matter::Calls, evidence),
            _ => view.odd(Matter::Calls, evidence),
        }
    }
    if let Some(evidence) = waits_for_cpus(facts) {
        view.calm(Matter::Processor, evidence);
    } else if facts.calls > 0 {
        let text = format!("{} slow calls, {} together, without a cause", facts.calls, Nanos(facts.lost_ns));
        view.odd(Matter::Calls, Evidence::new(text, facts.lost_ns as f64, "ns"));
    }
    // Logs contain stacks because something had stopped.
    let stacks = facts.recording.header.sampled_tasks.iter().filter(|task| !matches!(task.state, Some('S' | 'I')));
    let stacks = stacks.count();
    if stacks > 0 {
        let text = format!("the log shows stacks of {stacks} tasks, and no rule names what they wait for");
        view.odd(Matter::Calls, Evidence::new(text, stacks as f64, "tasks"));
    }
    if let Some(trouble) = super::trouble::of_devices(facts) {
        view.odd(Matter::Device, trouble);
    }
}

/// The longest wait for a CPU of any thread, as perf sched lists it, if it is too short to be noticed.
fn waits_for_cpus(facts: &Facts<'_>) -> Option<Evidence> {
    let calls = &facts.recording.calls;
    let longest = calls.iter().map(|call| call.duration_ns).max()?;
    let only = calls.iter().flat_map(|call| &call.segments).all(|segment| segment.cause == Cause::RunQueue);
    (only && longest < STALL_NS_MIN).then(|| {
        let text = format!("the longest wait of {} threads for a CPU took {}", calls.len(), Nanos(longest));
        Evidence::new(text, longest as f64, "ns")
    })
}

fn processors(facts: &Facts<'_>, view: &mut View) {
    let wait = facts.cpu_share(cpu::IOWAIT_NS);
    if let Some(mean) = wait.mean() {
        let text = format!("CPUs waited for I/O {:.1} % of the time", mean * 100.0);
        let evidence = Evidence::new(text, mean * 100.0, "%");
        match mean {
            // Requests timed at the device are better evidence: a task may wait for many quick ones.
            _ if mean >= IOWAIT_SUSPICIOUS && io::device_keeps_up(facts.recording) => {}
            _ if mean >= IOWAIT_SUSPICIOUS => view.odd(Matter::Device, evidence),
            _ if mean < IOWAIT_CALM && lasting(wait.len(), wait.len(), wait.seconds()) => {
                view.calm(Matter::Device, evidence);
            }
            _ => {}
        }
    }
    let blocked = facts.blocked();
    if let Some(mean) = blocked.mean() {
        let text = format!("{mean:.1} threads were blocked on average, of {} readings", blocked.len());
        let evidence = Evidence::new(text, mean, "threads");
        // With a hundred runnable threads, a few are blocked at any moment.
        let runnable = facts.runnable().mean().unwrap_or(0.0);
        match mean {
            _ if mean >= BLOCKED_SUSPICIOUS && mean >= BLOCKED_SHARE_MIN * runnable => {
                view.odd(Matter::Device, evidence)
            }
            _ if mean >= BLOCKED_CALM / 2.0 && wait.mean().is_some_and(|wait| wait >= IOWAIT_CALM) => {
                view.odd(Matter::Device, evidence);
            }
            // One of ten CPUs that waits all the time is an iowait of 10 %.
            _ if mean < BLOCKED_CALM && blocked.len() >= 3 && wait.mean().is_none_or(|wait| wait < IOWAIT_CALM) => {
                view.calm(Matter::Device, evidence);
            }
            _ => {}
        }
    }
    if let Some(mean) = facts.cpu_share(cpu::SYSTEM_NS).mean().filter(|mean| *mean >= SYSTEM_SUSPICIOUS) {
        let text = format!(
            "{:.0} % of CPU time was spent in the kernel, and the log does not say in which functions",
            mean * 100.0
        );
        view.odd(Matter::Processor, Evidence::new(text, mean * 100.0, "%"));
    }
    let idle = facts.cpu_share(cpu::IDLE_NS);
    if let Some(mean) = idle.mean().filter(|mean| *mean >= 0.2) {
        let text = format!("CPUs were idle {:.0} % of the time", mean * 100.0);
        view.calm(Matter::Processor, Evidence::new(text, mean * 100.0, "%"));
    }
}

/// Garbage collectors: short pauses in which the collector computed are not stalls.
fn collector(facts: &Facts<'_>, view: &mut View) {
    let Some(table) = facts.recording.table(Table::Workload) else { return };
    for (_, rows) in table.by_entity() {
        let risen = |column: Column| rows.rise(column).or_else(|| rows.last(column)).map(|value| value as f64);
        let (Some(pauses), Some(ns)) = (risen(workload::GC_PAUSES), risen(workload::GC_PAUSE_NS)) else { continue };
        let computed = risen(workload::GC_USER_NS).unwrap_or(0.0) + risen(workload::GC_SYSTEM_NS).unwrap_or(0.0);
        if pauses < 1.0 || ns <= 0.0 {
            continue;
        }
        let mean_ns = ns / pauses;
        let text = format!("{pauses:.0} pauses of a garbage collector, {} each on average", Nanos(mean_ns as u64));
        if mean_ns <= PAUSE_CALM_NS && computed >= PAUSE_COMPUTED_MIN * ns {
            view.calm(Matter::Calls, Evidence::new(format!("{text}, computing"), mean_ns, "ns"));
        }
    }
}

fn swapping(facts: &Facts<'_>, view: &mut View) {
    let mean = |column: Column| facts.vmstat_rate(column).mean();
    let (Some(into), Some(out)) = (mean(vmstat::PSWPIN), mean(vmstat::PSWPOUT)) else { return };
    let text = format!("{into:.0} pages/s were swapped in and {out:.0} out");
    let evidence = Evidence::new(text, into.max(out), "pages/s");
    // The mean over a day hides a minute of swapping.
    let peak = |column: Column| facts.vmstat_rate(column).peak().map_or(0.0, |point| point.value);
    let worst = peak(vmstat::PSWPIN).max(peak(vmstat::PSWPOUT));
    if into.max(out) < 250.0 && worst >= SWAP_PEAK_SUSPICIOUS {
        let text = format!("at most {worst:.0} pages/s were swapped one way");
        return view.odd(Matter::Memory, Evidence::new(text, worst, "pages/s"));
    }
    match into.max(out) {
        rate if rate < 10.0 => view.calm(Matter::Memory, evidence),
        rate if rate >= 250.0 => view.odd(Matter::Memory, evidence),
        _ => {}
    }
}

fn scanning(facts: &Facts<'_>, view: &mut View) {
    let Some(scans) = facts.scans() else { return };
    let Some(direct) = scans.direct().map(|pages| pages / scans.seconds().max(1e-9)) else { return };
    let text = format!("callers scanned {direct:.0} pages/s on average");
    let evidence = Evidence::new(text, direct, "pages/s");
    match direct {
        rate if rate < 10.0 => view.calm(Matter::Memory, evidence),
        rate if rate >= 1000.0 => view.odd(Matter::Memory, evidence),
        _ => {}
    }
}

fn pressure(facts: &Facts<'_>, view: &mut View) {
    for (resource, matter) in
        [("io", Matter::Device), ("memory", Matter::Memory), ("cpu", Matter::Processor), ("unnamed", Matter::Device)]
    {
        let Some(pressed) = facts.pressed(resource) else { continue };
        let evidence = pressed.evidence(resource);
        match pressed.some {
            some if some < PRESSURE_CALM => view.calm(matter, evidence),
            some if some >= PRESSURE_SUSPICIOUS && matter != Matter::Processor => view.odd(matter, evidence),
            // Full CPUs are normal. That some thread waits for a CPU all the time is not.
            some if some >= CPU_PRESSURE_SUSPICIOUS => view.odd(matter, evidence),
            _ => {}
        }
    }
}

fn memory(facts: &Facts<'_>, view: &mut View) {
    let get = |column: Column| facts.meminfo(column).map(|bytes| bytes as f64);
    let total = get(meminfo::MEM_TOTAL_BYTES).filter(|total| *total > 0.0);
    let cache = || {
        let each = [meminfo::BUFFERS_BYTES, meminfo::CACHED_BYTES, meminfo::BUFFERS_CACHED_BYTES];
        each.into_iter().filter_map(get).sum::<f64>() - get(meminfo::SHMEM_BYTES).unwrap_or(0.0)
    };
    let room = get(meminfo::MEM_AVAILABLE_BYTES).or_else(|| Some(get(meminfo::MEM_FREE_BYTES)? + cache()));
    let Some((total, room)) = total.zip(room) else { return };
    let share = room / total;
    let text =
        format!("{} of {} ({:.0} %) are available", Bytes(room.max(0.0) as u64), Bytes(total as u64), share * 100.0);
    let evidence = Evidence::new(text, share * 100.0, "%");
    let dirty = get(meminfo::DIRTY_BYTES).unwrap_or(0.0) + get(meminfo::WRITEBACK_BYTES).unwrap_or(0.0);
    match () {
        () if share < AVAILABLE_SUSPICIOUS => view.odd(Matter::Memory, evidence),
        () if dirty >= 0.05 * total => {
            let text = format!("{} are dirty or under writeback", Bytes(dirty as u64));
            view.odd(Matter::Device, Evidence::new(text, dirty, "bytes"));
        }
        () if share >= AVAILABLE_CALM => view.calm(Matter::Memory, evidence),
        () => {}
    }
}

/// The kernel prints Mem-Info after a failed allocation, for an OOM kill and for SysRq-m. A paste may lack the line that
/// says which.
fn printed_by_kernel(facts: &Facts<'_>, view: &mut View) {
    let import = facts.recording.header.import.as_ref();
    if import.is_some_and(|import| import.memory_reported) {
        let text = "the kernel printed the state of memory (Mem-Info), as it does after a failed allocation, for an \
            OOM kill and for SysRq-m; the log does not say which";
        view.odd(Matter::Memory, Evidence::statement(text));
    }
}

/// The counters of a cgroup's limits, and the limit of each.
const LIMITS: &[(Column, &str)] = &[
    (cgroup::EVENTS_MAX, "its memory limit"),
    (cgroup::EVENTS_HIGH, "memory.high"),
    (cgroup::EVENTS_OOM, "a failed charge at its memory limit"),
    (cgroup::CPU_THROTTLED, "its CPU quota"),
];

fn cgroups(facts: &Facts<'_>, view: &mut View) {
    let Some(table) = facts.recording.table(Table::Cgroup) else { return };
    for (entity, rows) in table.by_entity() {
        let usage = rows.last(cgroup::USAGE_BYTES).zip(rows.last(cgroup::LIMIT_BYTES));
        let share = usage.filter(|(_, limit)| *limit > 0).map(|(usage, limit)| usage as f64 / limit as f64);
        let counted: Vec<(&str, i64)> =
            LIMITS.iter().filter_map(|(column, name)| Some((*name, rows.last(*column)?))).collect();
        let name = if entity.name.is_empty() { "the cgroup" } else { &entity.name };
        if let Some(share) = share.filter(|share| *share >= 0.95) {
            let text = format!("{name} uses {:.0} % of the memory limit", share * 100.0);
            view.odd(Matter::Cgroup, Evidence::new(text, share * 100.0, "%"));
        } else if !counted.is_empty() && counted.iter().all(|(_, times)| *times == 0) {
            let limits: Vec<&str> = counted.iter().map(|(limit, _)| *limit).collect();
            let text = format!("{name} never reached {}, by its counters", limits.join(", "));
            view.calm(Matter::Cgroup, Evidence::new(text, 0.0, "times"));
        }
    }
}

fn reading(facts: &Facts<'_>, view: &mut View) {
    let share = facts.recording.header.import.as_ref().and_then(|import| import.understood_share());
    if let Some(share) = share.filter(|share| *share < UNDERSTOOD_MIN) {
        let text = format!("only {:.0} % of the lines were understood", share * 100.0);
        view.odd(Matter::Reading, Evidence::new(text, share * 100.0, "%"));
    }
    if let Some(part) = unjudged(facts, view).filter(|part| part.share >= UNJUDGED_MAX) {
        view.odd(Matter::Unjudged, part.evidence());
    }
}

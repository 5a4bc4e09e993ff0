//! Which figures of a log exclude the usual causes of a stall, and which make one likely without naming it.
//!
//! `quiet` is a claim and needs figures. A matter is excluded by figures that would show it: waiting for devices by
//! iowait, blocked threads or the devices' own times; want of memory by scans, pressure, or room that is left.

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
use flatwater_recording::schema::{cgroup, cpu, meminfo, vmstat, workload};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Cause, Column, Table};

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matter {
    /// The calls themselves were timed.
    Calls,
    Device,
    Memory,
    Processor,
    Cgroup,
    /// The log itself: much of it was not understood.
    Reading,
    /// Most of the log are figures about which no rule says whether they are well.
    Unjudged,
}

/// One figure and what it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub matter: Matter,
    pub evidence: Evidence,
}

/// What a log shows for and against a quiet machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub excluded: Vec<Shown>,
    pub suspicious: Vec<Shown>,
}

/// Of processor time, waiting for I/O: under the first it excludes a slow device, from the second on it speaks for one.
const IOWAIT_CALM: f64 = 0.10;
const IOWAIT_SUSPICIOUS: f64 = 0.20;
const BLOCKED_CALM: f64 = 1.0;
const BLOCKED_SUSPICIOUS: f64 = 2.0;
const BLOCKED_SHARE_MIN: f64 = 0.2;
/// Pages a second one way in one interval: 2 MiB of pages of 4 KiB.
const SWAP_PEAK_SUSPICIOUS: f64 = 512.0;
/// Share of time in which somebody waited (PSI).
const PRESSURE_CALM: f64 = 0.05;
const PRESSURE_SUSPICIOUS: f64 = 0.10;
/// Of all memory, what may be had without reclaim in earnest.
const AVAILABLE_CALM: f64 = 0.15;
const AVAILABLE_SUSPICIOUS: f64 = 0.04;
/// Lines understood of a log, from which on what it does not show counts.
const UNDERSTOOD_MIN: f64 = 0.5;
/// Of the lines understood, those of figures that nobody judges, from which on the others do not speak for the whole.
const UNJUDGED_MAX: f64 = 0.5;
/// Kernel time as a share of all, from which on somebody should say what for. A machine full of short-lived processes spends
/// nearly two thirds there and is well (SDET on 2.2.5: 61 %).
const SYSTEM_SUSPICIOUS: f64 = 0.7;
/// A collector's pause that is short, and whose time its own threads computed.
const PAUSE_CALM_NS: f64 = 250e6;
const PAUSE_COMPUTED_MIN: f64 = 0.8;
/// What never took so long was no operation of a file: a histogram of something else.
const TIMED_NS_MIN: u64 = 100;
/// Of the time some thread waits for a processor.
const CPU_PRESSURE_SUSPICIOUS: f64 = 0.9;
/// Nothing shorter is anybody's stall.
const STALL_NS_MIN: u64 = 500_000;
/// Calls slower than this are somebody's stall, whatever they wait for.
const CALL_CALM_NS: u64 = 20_000_000;

impl View {
    /// Figures exclude trouble, and none speaks for it.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.suspicious.is_empty() && !self.excluded.is_empty()
    }

    /// Figures of moving pages (scans, swapping, pressure) exclude trouble in this matter, and none speaks for it.
    #[must_use]
    pub fn is_calm(&self, matter: Matter) -> bool {
        let moving = |shown: &&Shown| shown.matter == matter && shown.evidence.unit != "%";
        !self.suspicious.iter().any(|shown| shown.matter == matter) && self.excluded.iter().any(|shown| moving(&shown))
    }

    /// Of how many different matters trouble is excluded.
    #[must_use]
    pub fn matters(&self) -> usize {
        let mut matters: Vec<Matter> = self.excluded.iter().map(|shown| shown.matter).collect();
        matters.sort_unstable();
        matters.dedup();
        matters.len()
    }

    /// The one measurement that would settle it.
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
                "`perf top -g` while it is slow, and `sar -B 1`: they name the functions, and say whether pages are scanned"
            }
            () if of(Matter::Calls) => super::finding::SETTLE_RECORD,
            () if of(Matter::Unjudged) => {
                "the same figures a second time, some minutes later while it is slow: one reading of them does not show \
                    what grows"
            }
            () if seen(Matter::Memory) && !seen(Matter::Device) => {
                "`iostat -x 1` while it is slow: memory has room, and of the devices the log shows nothing"
            }
            () => {
                "`vmstat 1 60` and the files of /proc/pressure while it is slow: they show whether tasks wait for \
                    devices, memory or CPUs"
            }
        }
    }
}

/// What the figures of this log say for and against.
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

/// How much of the text the verdict rests on; `None` where nothing was imported.
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
    // Requests at a device are judged as such.
    let of_calls = of_requests(facts.recording).is_none();
    if let Some(worst) = slowest.filter(|line| of_calls && line.from_start.max_ns >= TIMED_NS_MIN) {
        let text = format!(
            "{} operations were timed; the slowest, a {}, took {}",
            all.iter().map(|line| line.count).sum::<u64>(),
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
    // Whoever prints stacks has seen something stand still.
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

/// Each thread's longest wait for a processor, as perf sched lists it, where all are so short that nobody noticed.
fn waits_for_cpus(facts: &Facts<'_>) -> Option<Evidence> {
    let calls = &facts.recording.calls;
    let longest = calls.iter().map(|call| call.duration_ns).max()?;
    let only = calls.iter().flat_map(|call| &call.segments).all(|segment| segment.cause == Cause::RunQueue);
    (only && longest < STALL_NS_MIN).then(|| {
        let text = format!("the longest wait of {} threads for a processor took {}", calls.len(), Nanos(longest));
        Evidence::new(text, longest as f64, "ns")
    })
}

fn processors(facts: &Facts<'_>, view: &mut View) {
    let wait = facts.cpu_share(cpu::IOWAIT_NS);
    if let Some(mean) = wait.mean() {
        let text = format!("processors waited for I/O {:.1} % of the time", mean * 100.0);
        let evidence = Evidence::new(text, mean * 100.0, "%");
        match mean {
            // Requests that were timed at the device say more: whoever waits waits for many quick ones.
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
        // A few of a hundred threads that run are blocked at any moment.
        let runnable = facts.runnable().mean().unwrap_or(0.0);
        match mean {
            _ if mean >= BLOCKED_SUSPICIOUS && mean >= BLOCKED_SHARE_MIN * runnable => {
                view.odd(Matter::Device, evidence)
            }
            _ if mean >= BLOCKED_CALM / 2.0 && wait.mean().is_some_and(|wait| wait >= IOWAIT_CALM) => {
                view.odd(Matter::Device, evidence);
            }
            // One of many processors that waits all the time is a tenth of them.
            _ if mean < BLOCKED_CALM && blocked.len() >= 3 && wait.mean().is_none_or(|wait| wait < IOWAIT_CALM) => {
                view.calm(Matter::Device, evidence);
            }
            _ => {}
        }
    }
    if let Some(mean) = facts.cpu_share(cpu::SYSTEM_NS).mean().filter(|mean| *mean >= SYSTEM_SUSPICIOUS) {
        let text =
            format!("{:.0} % of processor time was spent in the kernel, and nothing here says what for", mean * 100.0);
        view.odd(Matter::Processor, Evidence::new(text, mean * 100.0, "%"));
    }
    let idle = facts.cpu_share(cpu::IDLE_NS);
    if let Some(mean) = idle.mean().filter(|mean| *mean >= 0.2) {
        let text = format!("processors were idle {:.0} % of the time", mean * 100.0);
        view.calm(Matter::Processor, Evidence::new(text, mean * 100.0, "%"));
    }
}

/// A JVM's collector: short pauses that it computed in are no stall of anybody's.
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
        let text = format!("{pauses:.0} pauses of a collector, {} each on average", Nanos(mean_ns as u64));
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
    // A pause of a minute is lost in the mean over a day, and one machine's swapping in that of two.
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
    let direct = scans.direct() / scans.seconds().max(1e-9);
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
            // Full processors are what they are for; nobody has one at once, minute after minute, is another matter.
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
        format!("{} of {} ({:.0} %) can be had", Bytes(room.max(0.0) as u64), Bytes(total as u64), share * 100.0);
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
        view.odd(Matter::Memory, Evidence::said(text));
    }
}

fn cgroups(facts: &Facts<'_>, view: &mut View) {
    let Some(table) = facts.recording.table(Table::Cgroup) else { return };
    for (entity, rows) in table.by_entity() {
        let usage = rows.last(cgroup::USAGE_BYTES).zip(rows.last(cgroup::LIMIT_BYTES));
        let share = usage.filter(|(_, limit)| *limit > 0).map(|(usage, limit)| usage as f64 / limit as f64);
        let met = [cgroup::EVENTS_MAX, cgroup::EVENTS_HIGH, cgroup::EVENTS_OOM, cgroup::CPU_THROTTLED];
        let met: Vec<i64> = met.into_iter().filter_map(|column| rows.last(column)).collect();
        let name = if entity.name.is_empty() { "the cgroup" } else { &entity.name };
        if let Some(share) = share.filter(|share| *share >= 0.95) {
            let text = format!("{name} uses {:.0} % of its limit", share * 100.0);
            view.odd(Matter::Cgroup, Evidence::new(text, share * 100.0, "%"));
        } else if !met.is_empty() && met.iter().all(|times| *times == 0) {
            let text = format!("{name} never met a bound of its memory or its processors");
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

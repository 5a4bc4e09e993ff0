//! Observes the machine: slow calls of every process, and the kernel's counters.
//!
//! The hooks of level 0 (scheduler, reclaim, block layer) are always attached; they add no cost to system calls. After
//! a trigger the hooks on system calls are added for a while (`arm`), so that times are exact. With `level = 2` they
//! stay attached.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};

use flatwater_host::bpf_stats::{OwnPrograms, loaded_ids};
use flatwater_host::clock::monotonic_ns;
use flatwater_host::kernel_log::KernelLog;
use flatwater_host::own_cost::give_back_memory;
use flatwater_host::sampler::{BlockDevice, Probe, SamplerOptions, Spare, devices_of};
use flatwater_host::sight::refused;
use flatwater_host::tracer::{Level, Targets, TraceOptions, Tracer};
use flatwater_host::waits::machine::{MachineTracer, MachineWaits, Timed};
use flatwater_recording::{
    AccessKind, Call, Event, EventKind, Gap, HookStatus, LatencyBucket, Losses, Observed, Request, Stack, StackId,
};

use crate::aggressor::{Evidence, Requests};
use crate::config::Config;
use crate::owner::Owners;
use crate::second::{OwnedCall, Second};

/// The hooks to attach, as the budget allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub threshold_ns: u64,
    /// Whether to record the owners of block requests.
    pub requests: bool,
    /// `Calls`: hooks on system calls are always attached.
    pub level: Level,
}

/// Observation of every process of this machine.
#[derive(Debug)]
pub struct Sight {
    machine: Option<MachineTracer>,
    /// The hooks on system calls, while they are attached.
    exact: Option<Exact>,
    /// A thread that loads these hooks, which takes half a second; the loop does not wait for it.
    arming: Option<Receiver<Armed>>,
    arming_since_ns: u64,
    armed_until_ns: u64,
    /// Thread id, start and end of calls that were timed exactly. The same calls are found once more by their sleeps.
    timed: VecDeque<(u32, u64, u64)>,
    /// Calls under way when the threads were last checked.
    hanging: Vec<Call>,
    /// Requests that had not completed for a second or longer at that time.
    standing: Vec<Request>,
    next_exact_id: u32,
    wanted: Wanted,
    probe: Probe,
    spare: Spare,
    owners: Owners,
    requests: Requests,
    /// Stacks that calls and waits can still refer to; a machine has a few hundred.
    stacks: BTreeMap<StackId, Arc<Stack>>,
    hooks: Vec<HookStatus>,
    /// The daemon's BPF programs, to measure their cost.
    pub programs: OwnPrograms,
    pub devices: Vec<BlockDevice>,
    since_ns: u64,
    /// Returned with the next second.
    gaps: Vec<Gap>,
    events: Vec<Event>,
    /// `None` if it cannot be read.
    kernel_log: Option<KernelLog>,
    /// Losses of tracers that were replaced.
    before: Losses,
    /// From hooks on system calls that were detached since the last second.
    detached: TimedCalls,
}

/// Records of hooks on system calls.
#[derive(Debug, Default)]
struct TimedCalls {
    calls: Vec<Call>,
    latency: Vec<LatencyBucket>,
    events: Vec<Event>,
}

impl TimedCalls {
    fn add(&mut self, mut more: TimedCalls) {
        self.calls.append(&mut more.calls);
        self.latency.append(&mut more.latency);
        self.events.append(&mut more.events);
    }
}

#[derive(Debug)]
struct Exact {
    tracer: Tracer,
    hooks: Vec<HookStatus>,
    stacks_reported: usize,
    /// The first id of this tracer's stacks.
    first_id: u32,
}

/// The result of the thread that loads the hooks, with the BPF programs that were loaded before.
struct Armed {
    tracer: Tracer,
    hooks: Vec<HookStatus>,
    others: BTreeSet<u32>,
}

/// First stack id of the hooks on system calls; the ids of level 0 are below.
const EXACT_IDS: u32 = 1 << 31;
/// Above this many kernel stacks the tracer of system calls is restarted, because its tables in the kernel fill up.
const STACKS_MAX: usize = 4_096;
const DEVICES_MAX: usize = 64;
/// How long `timed` keeps a call: it is found by its sleeps one second or more after it returned.
const TIMED_KEPT_NS: u64 = 10_000_000_000;
const TIMED_MAX: usize = 16_384;
/// Without stalls, each process's dirty pages and memory are read once in this many seconds.
const MEMORY_EVERY: u64 = 10;

impl Sight {
    /// Attaches the hooks that this kernel allows, and opens the counters. Never fails: whatever is unavailable is a
    /// gap.
    #[must_use]
    pub fn open(config: &Config) -> Sight {
        let (devices, devices_gap) = at_most(DEVICES_MAX, mounted_devices());
        let options = SamplerOptions { hz: config.sample_hz, devices: devices.clone(), ..SamplerOptions::default() };
        let wanted = Wanted { threshold_ns: config.threshold_ns, requests: true, level: config.level };
        let (kernel_log, log_gap) = match KernelLog::open() {
            Ok(log) => (Some(log), None),
            Err(gap) => (None, Some(gap)),
        };
        let mut sight = Sight {
            machine: None,
            exact: None,
            arming: None,
            arming_since_ns: 0,
            armed_until_ns: 0,
            timed: VecDeque::new(),
            hanging: Vec::new(),
            standing: Vec::new(),
            next_exact_id: EXACT_IDS,
            wanted,
            probe: Probe::open(&options),
            spare: Spare::default(),
            owners: Owners::default(),
            requests: Requests::default(),
            stacks: BTreeMap::new(),
            hooks: Vec::new(),
            programs: OwnPrograms::default(),
            devices,
            since_ns: monotonic_ns(),
            gaps: log_gap.into_iter().chain(devices_gap).collect(),
            events: Vec::new(),
            kernel_log,
            before: Losses::default(),
            detached: TimedCalls::default(),
        };
        sight.attach(wanted);
        sight
    }

    /// Attaches these hooks instead of the previous ones.
    pub fn attach(&mut self, wanted: Wanted) {
        self.detach();
        self.wanted = wanted;
        let others = loaded_ids();
        match MachineTracer::start(wanted.threshold_ns, wanted.requests) {
            Ok((machine, hooks)) => {
                self.gaps.extend(refused(&hooks));
                self.hooks = hooks;
                self.machine = Some(machine);
            }
            Err(why) => {
                let remedy = "run as root on Linux 5.11 or later with BTF; `flatwater check` lists each hook";
                self.gaps.push(Gap::new("slow calls and their aggressors", why.to_string(), remedy));
            }
        }
        self.programs = OwnPrograms::since(&others);
        if wanted.level == Level::Calls {
            let (tracer, hooks) = Tracer::start(system_calls(wanted.threshold_ns));
            self.gaps.extend(tracer.gaps().iter().cloned());
            self.take_exact(tracer, hooks);
            self.programs.add_since(&others);
        }
        give_back_memory();
    }

    /// Detaches all hooks.
    pub fn detach(&mut self) {
        self.disarm();
        if let Some(machine) = self.machine.take() {
            self.before = self.before.and(machine.losses());
        }
    }

    /// Attaches hooks on system calls until this time, so that the next calls are timed exactly.
    pub fn arm(&mut self, until_ns: u64) {
        self.armed_until_ns = self.armed_until_ns.max(until_ns);
        if self.exact.is_some() || self.arming.is_some() || self.machine.is_none() {
            return;
        }
        let since_ns = monotonic_ns();
        let (sender, receiver) = mpsc::sync_channel(1);
        let options = system_calls(self.wanted.threshold_ns);
        let load = move || {
            // If the receiver is gone, the tracer is dropped and detaches by itself.
            let others = loaded_ids();
            let (tracer, hooks) = Tracer::start(options);
            let _ = sender.send(Armed { tracer, hooks, others });
        };
        if std::thread::Builder::new().name("fw-arm".to_owned()).spawn(load).is_ok() {
            self.arming = Some(receiver);
            self.arming_since_ns = since_ns;
        }
    }

    /// Detaches the hooks on system calls; those of level 0 stay.
    pub fn disarm(&mut self) {
        self.arming = None;
        self.armed_until_ns = 0;
        let Some(mut exact) = self.exact.take() else { return };
        exact.tracer.stop();
        let calls = exact.tracer.drain_all();
        let timed = self.read_timed(&mut exact, calls, monotonic_ns());
        self.detached.add(timed);
        self.before = self.before.and(exact.tracer.losses());
        drop(exact);
        self.events.push(Event::new(monotonic_ns(), EventKind::Timing { every_call: false }));
        give_back_memory();
    }

    /// Whether hooks on system calls are attached, or being loaded.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.exact.is_some() || self.arming.is_some()
    }

    fn take_exact(&mut self, tracer: Tracer, hooks: Vec<HookStatus>) {
        self.events.push(Event::new(monotonic_ns(), EventKind::Timing { every_call: true }));
        self.exact = Some(Exact { tracer, hooks, stacks_reported: 0, first_id: self.next_exact_id });
    }

    fn look_at_arming(&mut self, now_ns: u64) {
        match self.arming.as_ref().map(Receiver::try_recv) {
            Some(Ok(Armed { tracer, hooks, others })) => {
                self.arming = None;
                if tracer.sees() {
                    self.programs.add_since(&others);
                    self.take_exact(tracer, hooks);
                } else {
                    self.gaps.extend(tracer.gaps().iter().cloned());
                }
                give_back_memory();
            }
            Some(Err(TryRecvError::Disconnected)) => self.arming = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        let worn = self.exact.as_ref().is_some_and(|exact| exact.stacks_reported > STACKS_MAX);
        if self.wanted.level == Level::Calls {
            if worn {
                self.attach(self.wanted);
            }
        } else if self.exact.is_some() && (worn || now_ns >= self.armed_until_ns) {
            self.disarm();
        }
    }

    /// Whether slow calls are observed, exactly or by their sleeps.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.machine.is_some() || self.exact.is_some()
    }

    /// Whether calls are timed exactly now.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.exact.is_some()
    }

    /// The status of all hooks: attached or refused.
    #[must_use]
    pub fn hooks(&self) -> Vec<HookStatus> {
        let of_calls = self.exact.as_ref().map_or(&[][..], |exact| &exact.hooks);
        let new = of_calls.iter().filter(|hook| self.hooks.iter().all(|other| other.hook != hook.hook));
        self.hooks.iter().chain(new).cloned().collect()
    }

    #[must_use]
    pub fn losses(&self) -> Losses {
        let exact = self.exact.as_ref().map(|exact| exact.tracer.losses()).unwrap_or_default();
        let machine = self.machine.as_ref().map(MachineTracer::losses).unwrap_or_default();
        self.before.and(exact).and(machine)
    }

    /// Which kinds of access are observed.
    #[must_use]
    pub fn observed(&self) -> Vec<Observed> {
        if !self.is_attached() {
            let why = "the hooks are shed, or this kernel refused them";
            return vec![Observed::missed(AccessKind::FileCalls, why, "`flatwater check` lists each hook")];
        }
        let remedy = "flatwater record";
        let each = "a hook on each of these for every program would cost too much";
        vec![
            Observed::timed(AccessKind::FileCalls, None),
            match self.machine.is_some() {
                true => Observed::timed(AccessKind::PageFaults, None),
                false => Observed::missed(AccessKind::PageFaults, each, remedy),
            },
            Observed::missed(AccessKind::IoUring, each, remedy),
            Observed::missed(AccessKind::LinuxAio, each, remedy),
        ]
    }

    /// Reads the counters; `take` returns them.
    pub fn sample(&mut self) {
        self.probe.sample(monotonic_ns());
    }

    /// Empties the kernel's ring buffer, which holds events between two calls of `take`.
    pub fn pump(&mut self) {
        if let Some(machine) = &mut self.machine {
            machine.pump();
        }
    }

    /// Returns everything since the last call. If `busy`, the memory use of each process is read as well.
    pub fn take(&mut self, busy: bool) -> Second {
        let end_ns = monotonic_ns();
        let every_call_at_start = self.exact.is_some();
        self.look_at_arming(end_ns);
        let drained = self.probe.drain(&mut self.spare);
        let mut second = Second {
            start_ns: self.since_ns,
            end_ns,
            every_call_at_start,
            series: drained.series,
            gaps: std::mem::take(&mut self.gaps),
            ..Second::default()
        };
        second.gaps.extend(drained.gaps);
        let exact = self.take_timed(&mut second);
        let memory = busy || (end_ns / 1_000_000_000).is_multiple_of(MEMORY_EVERY);
        let mut found = match &mut self.machine {
            Some(machine) => {
                let timed = match (&self.exact, &self.arming) {
                    (Some(_), _) => Timed::Calls(&exact),
                    (None, _) if !exact.is_empty() => Timed::Calls(&exact),
                    (None, Some(_)) => Timed::Since(self.arming_since_ns),
                    (None, None) => Timed::None,
                };
                machine.take(timed, self.since_ns, end_ns, memory)
            }
            None => MachineWaits::default(),
        };
        self.forget_twins(&exact, &mut found, end_ns);
        let ended = || exact.iter().chain(&found.calls);
        if found.under_way.is_some() {
            self.standing = std::mem::take(&mut found.standing);
        }
        self.hanging =
            still_hanging(std::mem::take(&mut self.hanging), found.under_way.take(), ended, found.stacks_from);
        second.hangs_seen = self.machine.as_ref().is_some_and(MachineTracer::sees_hangs);
        self.requests.add(&found.waited.requests, &found.waited.ahead);
        let evidence = Evidence::of(&found.waited.waits, &found.waited.cpus, &self.requests);
        let owners = &mut self.owners;
        let mut owned = |call: Call| {
            let (owner, account) = owners.of(call.pid, &call.thread, evidence.cgroup(&call), end_ns);
            let (device, aggressors) = (evidence.device(&call), evidence.shares(&call));
            OwnedCall { call, owner, account, device, aggressors }
        };
        second.gaps.append(&mut found.gaps);
        second.calls = exact.into_iter().chain(found.calls).map(&mut owned).collect();
        second.under_way = self.hanging.iter().cloned().map(owned).collect();
        if !second.under_way.is_empty() {
            second.standing.clone_from(&self.standing);
        }
        (second.waited, second.users) = (found.waited, found.users);
        self.keep_stacks(found.stacks, found.stacks_from);
        let ids: BTreeSet<StackId> = second.stack_ids().collect();
        second.stacks = ids.iter().filter_map(|id| self.stacks.get(id)).map(Arc::clone).collect();
        if self.exact.is_none() {
            self.stacks.split_off(&StackId(EXACT_IDS));
        }
        second.events.append(&mut self.events);
        if let Some(log) = &mut self.kernel_log {
            second.events.extend(log.take());
            second.gaps.extend(log.missing());
        }
        self.since_ns = end_ns;
        second
    }

    /// Adds stacks of level 0, and drops those below `from`, which nothing refers to any more.
    fn keep_stacks(&mut self, new: Vec<Stack>, from: StackId) {
        self.stacks.extend(new.into_iter().map(|stack| (stack.id, Arc::new(stack))));
        let exactly = self.stacks.split_off(&StackId(EXACT_IDS));
        self.stacks = self.stacks.split_off(&from);
        self.stacks.extend(exactly);
    }

    /// Moves the calls that hooks on system calls have timed, with their stacks, latencies and events, into the second.
    fn take_timed(&mut self, second: &mut Second) -> Vec<Call> {
        let mut timed = std::mem::take(&mut self.detached);
        if let Some(mut exact) = self.exact.take() {
            let calls = exact.tracer.drain();
            timed.add(self.read_timed(&mut exact, calls, second.end_ns));
            self.exact = Some(exact);
        }
        second.latency = timed.latency;
        second.events = timed.events;
        timed.calls
    }

    /// Adds the latencies and events since the last second to these calls, and keeps the stacks.
    fn read_timed(&mut self, exact: &mut Exact, mut calls: Vec<Call>, end_ns: u64) -> TimedCalls {
        let mut stacks = exact.tracer.stacks_from(exact.stacks_reported);
        exact.stacks_reported += stacks.len();
        let renamed = |id: &mut StackId| id.0 = id.0.wrapping_add(exact.first_id);
        stacks.iter_mut().for_each(|stack: &mut Stack| renamed(&mut stack.id));
        let segments = calls.iter_mut().flat_map(|call| call.segments.iter_mut());
        segments.filter_map(|segment| segment.stack.as_mut()).for_each(renamed);
        let next_id = exact.first_id.wrapping_add(exact.stacks_reported as u32);
        self.next_exact_id = next_id.max(EXACT_IDS);
        self.stacks.extend(stacks.into_iter().map(|stack| (stack.id, Arc::new(stack))));
        let latency = exact.tracer.latencies(self.since_ns, end_ns);
        TimedCalls { calls, latency, events: exact.tracer.drain_events() }
    }

    /// Drops calls found by their sleeps, with their wait chains, that were also timed exactly.
    fn forget_twins(&mut self, exact: &[Call], found: &mut MachineWaits, now_ns: u64) {
        self.timed.extend(exact.iter().map(|call| (call.tid, call.start_ns, call.end_ns())));
        let twin = |call: &Call| {
            let overlaps =
                |(tid, from, to): &(u32, u64, u64)| *tid == call.tid && *from < call.end_ns() && call.start_ns < *to;
            self.timed.iter().any(overlaps)
        };
        let (twins, others): (Vec<Call>, Vec<Call>) = std::mem::take(&mut found.calls).into_iter().partition(twin);
        found.calls = others;
        // Only now: on a busy machine the last look may have been longer ago than calls are kept.
        while let Some((_, _, end_ns)) = self.timed.front() {
            if end_ns.saturating_add(TIMED_KEPT_NS) > now_ns && self.timed.len() <= TIMED_MAX {
                break;
            }
            self.timed.pop_front();
        }
        let is_theirs = |tid: u32, start_ns: u64| {
            let exactly = exact.iter().any(|call| (call.tid, call.start_ns) == (tid, start_ns));
            !exactly && twins.iter().any(|call| (call.tid, call.start_ns) == (tid, start_ns))
        };
        found.waited.waits.retain(|wait| !is_theirs(wait.call_tid, wait.call_start_ns));
        found.waited.cpus.retain(|row| !is_theirs(row.call_tid, row.call_start_ns));
    }
}

/// The calls under way now. If the threads were not checked, the previous ones that have not returned since and whose
/// stacks are known.
fn still_hanging<'a, Ended: Iterator<Item = &'a Call>>(
    mut before: Vec<Call>,
    asked: Option<Vec<Call>>,
    ended: impl Fn() -> Ended,
    stacks_from: StackId,
) -> Vec<Call> {
    if let Some(now) = asked {
        return now;
    }
    before.retain(|hung| {
        let over = ended().any(|call| call.tid == hung.tid && call.end_ns() >= hung.end_ns());
        !over && hung.segments.iter().filter_map(|segment| segment.stack).all(|stack| stack >= stacks_from)
    });
    before
}

fn system_calls(threshold_ns: u64) -> TraceOptions {
    let targets = Targets { pids: Vec::new(), cgroup: whole_machine(), faults: false };
    // No CPU samples: a daemon must not interrupt every CPU hundreds of times a second.
    TraceOptions { hz: 0, ..TraceOptions::others(threshold_ns, targets) }
}

/// The root of the hierarchy that separates containers: the memory controller's, or the unified one.
fn whole_machine() -> Option<PathBuf> {
    ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
        .into_iter()
        .map(Path::new)
        .find(|root| root.join("cgroup.procs").exists())
        .map(Path::to_owned)
}

/// The devices below all file systems that are mounted from a device.
fn mounted_devices() -> Vec<BlockDevice> {
    // A query of a network file system whose server is gone would hang.
    let mounts = flatwater_host::proc::mounts::read().unwrap_or_default();
    let places = mounts.iter().filter(|mount| mount.source.as_bytes().starts_with(b"/dev/")).map(|mount| &mount.point);
    let mut found: Vec<BlockDevice> = Vec::new();
    for place in places {
        for device in devices_of(place) {
            if !found.contains(&device) {
                found.push(device);
            }
        }
    }
    found
}

/// The first devices, and a gap that names the others.
fn at_most(count_max: usize, mut devices: Vec<BlockDevice>) -> (Vec<BlockDevice>, Option<Gap>) {
    let others = devices.split_off(devices.len().min(count_max));
    let names: Vec<&str> = others.iter().take(8).map(|device| device.name.as_str()).collect();
    let gap = (!names.is_empty()).then(|| {
        let more = if others.len() > names.len() { ", ..." } else { "" };
        let what = format!(
            "counters of {} of {} devices: {}{more}",
            others.len(),
            devices.len() + others.len(),
            names.join(", ")
        );
        Gap::new(what, format!("at most {count_max} devices are read"), "slow calls on these devices are still timed")
    });
    (devices, gap)
}

#[cfg(test)]
pub(crate) mod tests;

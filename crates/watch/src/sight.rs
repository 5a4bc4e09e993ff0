//! What the daemon sees of the machine: hooks on every process, and the kernel's counters.

use std::path::{Path, PathBuf};

use flatwater_host::bpf_stats::{OwnPrograms, loaded_ids};
use flatwater_host::clock::monotonic_ns;
use flatwater_host::own_cost::give_back_memory;
use flatwater_host::sampler::{BlockDevice, Probe, SamplerOptions, Spare, devices_of};
use flatwater_host::tracer::{Targets, TraceOptions, Tracer};
use flatwater_recording::{AccessKind, Gap, HookStatus, Losses, Observed};

use crate::config::Config;
use crate::owner::Owners;
use crate::second::{OwnedCall, Second};

/// Every process of this machine, from now on.
#[derive(Debug)]
pub struct Sight {
    tracer: Option<Tracer>,
    probe: Probe,
    spare: Spare,
    owners: Owners,
    hooks: Vec<HookStatus>,
    /// For what the hooks cost.
    pub programs: OwnPrograms,
    pub devices: Vec<BlockDevice>,
    stacks_told: usize,
    since_ns: u64,
    /// Told with the next second.
    gaps: Vec<Gap>,
    /// Losses of tracers that were replaced.
    before: Losses,
}

/// More kernel stacks than this, and the tracer begins anew: its tables in the kernel fill up.
const STACKS_MAX: usize = 4_096;
const DEVICES_MAX: usize = 64;

impl Sight {
    /// Attaches what this kernel allows and opens the counters; never fails: what cannot be had is a gap.
    #[must_use]
    pub fn open(config: &Config) -> Sight {
        let devices = mounted_devices();
        let options = SamplerOptions { hz: config.sample_hz, devices: devices.clone(), ..SamplerOptions::default() };
        let mut sight = Sight {
            tracer: None,
            probe: Probe::open(&options),
            spare: Spare::default(),
            owners: Owners::default(),
            hooks: Vec::new(),
            programs: OwnPrograms::default(),
            devices,
            stacks_told: 0,
            since_ns: monotonic_ns(),
            gaps: Vec::new(),
            before: Losses::default(),
        };
        sight.attach(config.threshold_ns);
        sight
    }

    /// Attaches the hooks, with this threshold; those of before are let go.
    pub fn attach(&mut self, threshold_ns: u64) {
        self.detach();
        let targets = Targets { pids: Vec::new(), cgroup: whole_machine(), faults: false };
        // No samples of the CPU: a daemon does not interrupt every CPU hundreds of times a second.
        let options = TraceOptions { hz: 0, ..TraceOptions::others(threshold_ns, targets) };
        let others = loaded_ids();
        let (tracer, hooks) = Tracer::start(options);
        self.programs = OwnPrograms::since(&others);
        give_back_memory();
        self.gaps.extend(tracer.gaps().iter().cloned());
        self.hooks = hooks;
        self.tracer = Some(tracer);
        self.stacks_told = 0;
    }

    /// Lets the hooks go: nothing is paid for them any more.
    pub fn detach(&mut self) {
        if let Some(tracer) = self.tracer.take() {
            let (_, _, losses) = tracer.finish();
            self.before = self.before.and(losses);
        }
    }

    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.tracer.as_ref().is_some_and(Tracer::sees)
    }

    #[must_use]
    pub fn hooks(&self) -> &[HookStatus] {
        &self.hooks
    }

    #[must_use]
    pub fn losses(&self) -> Losses {
        self.before.and(self.tracer.as_ref().map(Tracer::losses).unwrap_or_default())
    }

    /// Whether the tracer should begin anew; then the stacks of before must be forgotten.
    #[must_use]
    pub fn is_worn(&self) -> bool {
        self.stacks_told > STACKS_MAX
    }

    /// What of the machine's programs is seen.
    #[must_use]
    pub fn observed(&self) -> Vec<Observed> {
        if self.is_attached() {
            return vec![
                Observed::timed(AccessKind::FileCalls, None),
                Observed::missed(
                    AccessKind::PageFaults,
                    "a hook on each fault would cost too much",
                    "flatwater record",
                ),
            ];
        }
        let first = self.tracer.as_ref().and_then(|tracer| tracer.gaps().first());
        let (why, remedy) = first.map_or(("the hooks are let go", ""), |gap| (gap.why.as_str(), gap.remedy.as_str()));
        vec![Observed::missed(AccessKind::FileCalls, why, remedy)]
    }

    /// Reads the counters once; they wait for the next `take`.
    pub fn sample(&mut self) {
        self.probe.sample(monotonic_ns());
    }

    /// Everything since the last time.
    pub fn take(&mut self) -> Second {
        let end_ns = monotonic_ns();
        let drained = self.probe.drain(&mut self.spare);
        let mut second = Second {
            start_ns: self.since_ns,
            end_ns,
            series: drained.series,
            gaps: std::mem::take(&mut self.gaps),
            ..Second::default()
        };
        second.gaps.extend(drained.gaps);
        if let Some(tracer) = &self.tracer {
            let owners = &mut self.owners;
            let calls = tracer
                .drain()
                .into_iter()
                .map(|call| OwnedCall { owner: owners.of(call.pid, &call.thread, end_ns), call });
            second.calls = calls.collect();
            second.stacks = tracer.stacks_from(self.stacks_told);
            self.stacks_told += second.stacks.len();
            second.latency = tracer.latencies(self.since_ns, end_ns);
            second.events = tracer.drain_events();
        }
        self.since_ns = end_ns;
        second
    }
}

/// The root of the hierarchy that tells containers apart: the memory controller's, or the unified one.
fn whole_machine() -> Option<PathBuf> {
    ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
        .into_iter()
        .map(Path::new)
        .find(|root| root.join("cgroup.procs").exists())
        .map(Path::to_owned)
}

/// The devices below everything that is mounted from one.
fn mounted_devices() -> Vec<BlockDevice> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let source = fields.next()?;
        // Asking a network file system whose server is gone would hang us.
        (source.starts_with("/dev/")).then(|| fields.next()).flatten()
    });
    let mut found: Vec<BlockDevice> = Vec::new();
    for place in places {
        for device in devices_of(Path::new(place)) {
            if found.len() < DEVICES_MAX && !found.contains(&device) {
                found.push(device);
            }
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use flatwater_recording::{Call, OpKind, Segment};

    /// A write of thread `journal` that is wholly unexplained.
    pub(crate) fn call(start_ns: u64, duration_ns: u64) -> Call {
        let mut call = Call::new(OpKind::Write, start_ns, duration_ns, vec![Segment::unexplained(duration_ns)]);
        call.bytes = Some(220);
        call.by(7, 7, "journal")
    }
}

//! Options of the tracer.

use std::path::PathBuf;

use flatwater_recording::Noise;

/// Default samples per second and CPU. A prime, so that samples do not run in step with timers. Low, because each
/// sample takes a few microseconds from the running thread, which may be a measured call.
pub const DEFAULT_HZ: u32 = 199;

#[derive(Clone, Debug)]
pub struct TraceOptions {
    pub traced: Traced,
    /// Only calls of at least this length are kept.
    pub threshold_ns: u64,
    /// CPU-clock samples per second; 0 for none.
    pub hz: u32,
    /// How long a thread may stay on the CPU without a named cause before that time is `unexplained`: the noise floor
    /// of the machine (the largest gap of a spinning thread), but at least the default.
    pub plain_cpu_ns: u64,
    /// For other programs; own threads need no hook on system calls.
    pub level: Level,
    /// Count the calls of other programs, so that they can be imitated.
    pub profile: bool,
}

/// Which hooks are used, and therefore which programs are slowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Hooks of the scheduler, reclaim and the block layer only; no system call is slowed. Calls are found by their
    /// sleeps, so calls that did not sleep, and time on the CPU, are not seen.
    Sleeps,
    /// Also hooks on the functions of file system calls: exact times and histograms; other system calls are not slowed.
    /// Not every kernel allows hooks on functions.
    Files,
    /// Hooks on every system call: exact times and histograms; every system call of the machine is slowed.
    #[default]
    Calls,
}

/// Whose calls are traced.
#[derive(Clone, Debug)]
pub enum Traced {
    /// Threads of this process, which time their own operations and call `OpSlot::enter` and `leave`.
    Own,
    /// Processes that already exist, and the children that they fork later.
    Others(Targets),
}

#[derive(Clone, Debug, Default)]
pub struct Targets {
    pub pids: Vec<u32>,
    /// A directory under /sys/fs/cgroup: its processes, those of the cgroups below it, and those that join later.
    pub cgroup: Option<PathBuf>,
    /// Also trace page faults of user code (a hook on every page fault of the machine).
    pub faults: bool,
}

impl TraceOptions {
    #[must_use]
    pub fn own(threshold_ns: u64) -> TraceOptions {
        TraceOptions {
            traced: Traced::Own,
            threshold_ns,
            hz: DEFAULT_HZ,
            plain_cpu_ns: 200_000,
            level: Level::Calls,
            profile: false,
        }
    }

    #[must_use]
    pub fn others(threshold_ns: u64, targets: Targets) -> TraceOptions {
        TraceOptions { traced: Traced::Others(targets), ..TraceOptions::own(threshold_ns) }
    }

    /// Raises `plain_cpu_ns` to the largest gap of the noise measurement, since this machine takes that long from any
    /// thread.
    #[must_use]
    pub fn above(mut self, noise: &Noise) -> TraceOptions {
        self.plain_cpu_ns = self.plain_cpu_ns.max(noise.gap_ns_max);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{Targets, TraceOptions};
    use flatwater_recording::Noise;

    #[test]
    fn the_noise_floor_raises_the_allowance_and_never_lowers_it() {
        let others = || TraceOptions::others(1_000_000, Targets::default());
        let noise = |gap_ns_max| Noise { gap_ns_max, ..Noise::default() };
        assert_eq!(others().above(&noise(3_000_000)).plain_cpu_ns, 3_000_000);
        assert_eq!(others().above(&noise(1)).plain_cpu_ns, others().plain_cpu_ns);
    }
}

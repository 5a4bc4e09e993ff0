//! What a tracer is asked for.

use std::path::PathBuf;

use flatwater_recording::Noise;

/// Samples per second and CPU, by default. A prime, so that it does not run in step with timers; low, since each takes
/// a few microseconds from whatever runs, our own measured calls among them.
pub const DEFAULT_HZ: u32 = 199;

#[derive(Clone, Debug)]
pub struct TraceOptions {
    pub whom: Traced,
    /// Only calls of at least this are kept.
    pub threshold_ns: u64,
    /// CPU-clock samples per second; 0 takes none.
    pub hz: u32,
    /// How long a thread may stay on the CPU with nothing in its way before we call that unexplained: the noise
    /// floor of the machine (largest gap of a spinning thread), at least the default.
    pub plain_cpu_ns: u64,
    /// Of other programs; our own threads need no hook on system calls.
    pub level: Level,
}

/// Which hooks are used, and so who pays for the tracing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The scheduler's and the block layer's: no system call pays. Calls are found by their sleeps, so what a call did on
    /// the CPU is not seen, nor are calls that did not sleep.
    Sleeps,
    /// The functions of the system calls on files too: exact times and histograms, and no other system call pays. Not every
    /// kernel allows hooks on functions.
    Files,
    /// Every system call: exact times and histograms, and every system call of the machine pays.
    #[default]
    Calls,
}

/// Whose calls are traced.
#[derive(Clone, Debug)]
pub enum Traced {
    /// Our own threads, which time themselves and call `OpSlot::enter` and `leave`.
    Own,
    /// Processes that exist already, with the children they make from now on.
    Others(Targets),
}

#[derive(Clone, Debug, Default)]
pub struct Targets {
    pub pids: Vec<u32>,
    /// A directory under /sys/fs/cgroup; its processes, those of the groups below, and those that join later.
    pub cgroup: Option<PathBuf>,
    /// Page faults of user code too (a hook on each of the machine's page faults).
    pub faults: bool,
}

impl TraceOptions {
    #[must_use]
    pub fn own(threshold_ns: u64) -> TraceOptions {
        TraceOptions { whom: Traced::Own, threshold_ns, hz: DEFAULT_HZ, plain_cpu_ns: 200_000, level: Level::Calls }
    }

    #[must_use]
    pub fn others(threshold_ns: u64, targets: Targets) -> TraceOptions {
        TraceOptions { whom: Traced::Others(targets), ..TraceOptions::own(threshold_ns) }
    }

    /// Lets a thread run without a sign for as long as this machine takes from any thread, before that needs a name.
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

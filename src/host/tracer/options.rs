//! What a tracer is asked for.

use std::path::PathBuf;

/// Samples per second and CPU, unless told otherwise. A prime, so that it does not run in step with timers; low,
/// since each takes a few microseconds from whatever runs, our own measured calls among them.
pub const DEFAULT_HZ: u32 = 199;

#[derive(Clone, Debug)]
pub struct TraceOptions {
    pub whom: Whom,
    /// Only calls of at least this are kept.
    pub threshold_ns: u64,
    /// CPU-clock samples per second; 0 takes none.
    pub hz: u32,
    /// How long a thread may stay on the CPU with nothing in its way before we call that unexplained: the noise
    /// floor of the machine (largest gap of a spinning thread), at least the default.
    pub plain_cpu_ns: u64,
}

/// Whose calls.
#[derive(Clone, Debug)]
pub enum Whom {
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
        TraceOptions { whom: Whom::Own, threshold_ns, hz: DEFAULT_HZ, plain_cpu_ns: 200_000 }
    }

    #[must_use]
    pub fn others(threshold_ns: u64, targets: Targets) -> TraceOptions {
        TraceOptions { whom: Whom::Others(targets), ..TraceOptions::own(threshold_ns) }
    }
}

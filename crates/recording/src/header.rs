//! What is known about a recording as a whole: machine, settings, clock, tracing, losses, our own cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::units::Nanos;
use super::{ImportSummary, Note, Observed, SampledTask, Setup, Speed, WatchedProcess};

/// The format's version; readers refuse a higher one and accept every lower one.
pub const FORMAT_VERSION: u32 = 1;

/// Readers assume that every field may be absent: `serde(default)` throughout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    pub format_version: u32,
    /// The flatwater that wrote it, `0.1.0`.
    pub written_by: String,
    pub source: Source,
    pub clock: Clock,
    /// From the first to the last instant of the measured part; the noise probes are outside.
    pub duration_ns: u64,
    pub machine: Machine,
    /// Measured where the machine is one that a model is held to (the guests of `run --on vm`).
    pub speed: Option<Speed>,
    /// Read before anything ran, where the machine is one that a model is held to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zone_blocks: Vec<ZoneBlocks>,
    /// Every knob that could be read at the start, after the scenario's setup was applied.
    pub setup: Setup,
    /// Name of the scenario, and its full text so that it can be run again.
    pub scenario: Option<String>,
    pub scenario_text: Option<String>,
    pub seed: u64,
    /// Calls at or over this are kept one by one.
    pub threshold_ns: u64,
    pub target: Target,
    pub noise_before: Option<Noise>,
    pub noise_after: Option<Noise>,
    /// Which hooks saw what, one line per hook; empty where nothing was traced.
    pub hooks: Vec<HookStatus>,
    /// What could be seen of programs of others; empty where flatwater's own threads were measured, which time themselves.
    pub observed: Vec<Observed>,
    /// How much of the imported text was understood; absent where nothing was imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportSummary>,
    /// Tasks of which a log shows one kernel stack or wait channel, in the order of the log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sampled_tasks: Vec<SampledTask>,
    pub losses: Losses,
    pub own_cost: OwnCost,
    /// Virtual time runs unlike a real machine's (software emulation): latencies must not be compared with
    /// another source's; counters may.
    pub time_distorted: bool,
    /// The emulated machine counts its time in instructions, each of which takes 2^so many ns (QEMU's `-icount shift=`): slow, but
    /// the same on any host. Absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icount: Option<u32>,
    /// Name of the trigger by which `watch` kept this recording; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// The recording ended as planned; false while it is written and after kill -9.
    pub complete: bool,
    /// Things worth saying at the top of every report ("ran without root: ...").
    pub notes: Vec<Note>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    #[default]
    Host,
    Vm,
    Sim,
    Import,
}

impl Source {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::Host => "host",
            Source::Vm => "vm",
            Source::Sim => "sim",
            Source::Import => "import",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// CLOCK_MONOTONIC (or virtual) ns at the start of the measured part.
    pub start_ns: u64,
    /// Add to a monotonic instant to get ns since the epoch; absent where wall time is unknown (sim, some imports).
    pub wall_offset_ns: Option<i64>,
}

/// The shape of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub hostname: Option<String>,
    /// `uname -r`, or the simulator's profile name.
    pub kernel: Option<String>,
    pub cpu_model: Option<String>,
    pub cpus: Option<u32>,
    /// Bytes of a page frame; see `page_size_bytes`.
    pub page_bytes: Option<u64>,
    /// Byte order of the machine that was recorded. The recording's own files are little-endian whatever it was.
    pub endianness: Option<Endianness>,
    /// Inode of the PID namespace that the recorder ran in (`readlink /proc/self/ns/pid`): the process ids of the recording are
    /// those that are valid there. Absent for models and logs.
    pub pid_namespace: Option<u64>,
    /// The kernel's random name for the time since it booted (/proc/sys/kernel/random/boot_id). Two machines of one hostname
    /// differ in it. Absent for models and logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    pub memory_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub nodes: Vec<NodeShape>,
    /// `kvm`, `qemu-tcg`, `firecracker`, ...; absent on bare metal or where it is not known.
    pub hypervisor: Option<String>,
}

impl Machine {
    /// Bytes of a page frame; 4096 where nobody recorded it, as in logs, whose importers count in such pages too.
    #[must_use]
    pub fn page_size_bytes(&self) -> u64 {
        self.page_bytes.filter(|bytes| *bytes > 0).unwrap_or(4096)
    }
}

/// Which byte of a number a machine stores first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endianness {
    Little,
    Big,
}

impl Endianness {
    /// That of the machine this runs on.
    #[must_use]
    pub const fn native() -> Endianness {
        if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Endianness::Little => "little",
            Endianness::Big => "big",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeShape {
    pub node: u32,
    pub cpus: Vec<u32>,
    pub memory_bytes: Option<u64>,
    /// SLIT distances to node 0, 1, ...; 10 is local.
    pub distances: Vec<u32>,
}

/// How often the clock of a guest that counts instructions stops on its way through a sleep, so that a disk can answer meanwhile.
pub const ICOUNT_TICK: Nanos = Nanos(250_000);

/// What a zone's page blocks hold (/proc/pagetypeinfo).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ZoneBlocks {
    pub node: u32,
    pub zone: String,
    /// Free pieces in blocks of reclaimable slabs, by order: how many of one page, of two, of four ... (up to those of a page block in
    /// recordings of before 2026-11-26).
    pub reclaimable: Vec<u64>,
    /// The same in blocks of unmovable allocations.
    pub unmovable: Vec<u64>,
    /// Blocks that are free in part, whatever their kind, in the order of their addresses (/proc/kpageflags).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partial: Vec<PartialBlock>,
}

/// A page block of which a part is free. No file says of which kind it is: the pieces of `ZoneBlocks` do, put together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartialBlock {
    /// Its free pieces, by order.
    pub free: Vec<u64>,
    /// Pages on lists of page cache or of anonymous memory.
    pub listed_pages: u64,
    /// The zone has all of it.
    pub whole: bool,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// `journal`, or the command line, or `pid 1234`.
    pub what: String,
    pub pids: Vec<u32>,
    /// The processes that were watched, each as it was when it was first seen; at most 1024.
    pub processes: Vec<WatchedProcess>,
    pub directory: Option<String>,
    pub file_system: Option<String>,
    /// `vda`, `loop0`.
    pub device: Option<String>,
    pub device_number: Option<String>,
    pub cgroup: Option<String>,
    /// Names of threads that are there to make trouble: their calls are kept, but they are not what was measured.
    pub neighbours: Vec<String>,
    /// Parameters of each workload that ran, `workload.key` -> value as given.
    pub parameters: BTreeMap<String, String>,
}

/// What a thread that makes no syscalls loses on this machine: the floor under every latency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Noise {
    pub spin_ns: u64,
    /// Largest gap, without waits for a CPU that another thread held.
    pub gap_ns_max: u64,
    /// Number of gaps over 10 us.
    pub gaps: u64,
    pub gaps_total_ns: u64,
    /// Rise of /proc/stat steal over the spin; absent where unreadable.
    pub steal_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HookStatus {
    /// Program or event, `tp_btf/mm_vmscan_memcg_reclaim_begin`.
    pub hook: String,
    /// What it serves, by cause name or `calls`, `samples`.
    pub serves: Vec<String>,
    pub state: HookState,
    /// Why it is not exact; empty where it is.
    pub reason: String,
}

impl HookStatus {
    #[must_use]
    pub fn new(
        hook: impl Into<String>,
        serves: Vec<String>,
        state: HookState,
        reason: impl Into<String>,
    ) -> HookStatus {
        HookStatus { hook: hook.into(), serves, state, reason: reason.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookState {
    Exact,
    Sampled,
    Unavailable,
}

/// Events that did not make it. All zero in a good recording; printed when not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Ring buffer full.
    pub lost: u64,
    /// Brackets nested deeper than the tracer follows.
    pub too_deep: u64,
    /// More segments in one call than the tracer holds; the rest were merged.
    #[serde(rename = "parts_merged")]
    pub segments_merged: u64,
    /// Stack ids that collided or failed.
    pub stack_errors: u64,
    /// A begin without its end, or the reverse.
    pub unbalanced: u64,
    /// Threads for which there was no state to be had.
    pub no_state: u64,
    /// Samples that the sampler could not take in time.
    pub samples_late: u64,
}

impl Losses {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Losses) -> Losses {
        Losses {
            lost: self.lost + other.lost,
            too_deep: self.too_deep + other.too_deep,
            segments_merged: self.segments_merged + other.segments_merged,
            stack_errors: self.stack_errors + other.stack_errors,
            unbalanced: self.unbalanced + other.unbalanced,
            no_state: self.no_state + other.no_state,
            samples_late: self.samples_late + other.samples_late,
        }
    }

    #[must_use]
    pub fn any(&self) -> bool {
        *self != Losses::default()
    }

    /// Each loss that is not zero: how many, of what.
    pub fn each(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let all = [
            (self.lost, "lost in the ring buffer"),
            (self.too_deep, "nested too deep"),
            (self.segments_merged, "segments merged"),
            (self.stack_errors, "stacks collided or failed"),
            (self.unbalanced, "begin without end"),
            (self.no_state, "threads without state"),
            (self.samples_late, "samples late"),
        ];
        all.into_iter().filter(|(n, _)| *n > 0)
    }
}

/// What flatwater itself cost the machine while it recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnCost {
    /// CPU time of all but the workload's own threads, as a share of one core.
    pub cpu_share: f64,
    pub rss_bytes: u64,
    /// Added to each syscall of the machine while syscall hooks were attached, measured here; absent if none were.
    pub syscall_ns: Option<u64>,
}

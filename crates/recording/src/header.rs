//! The header of a recording: machine, settings, clock, tracing, losses, and flatwater's own cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Controller, ImportSummary, Note, Observed, SampledTask, Setup, Storage, WatchedProcess};

/// Version of the format. Readers refuse a higher one and accept every lower one.
pub const FORMAT_VERSION: u32 = 1;

/// Facts about the whole recording. Every field may be absent from the file (`serde(default)`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of the format; a reader refuses a higher one than it knows.
    pub format_version: u32,
    /// Version of the flatwater that wrote the recording: `0.1.0`.
    pub written_by: String,
    /// Where the recording comes from.
    pub source: Source,
    /// The offset to wall time.
    pub clock: Clock,
    /// Length of the measured part, from its first to its last instant, without the noise probes.
    pub duration_ns: u64,
    /// The recorded machine.
    pub machine: Machine,
    /// Every knob that could be read at the start, after the scenario's setup was applied.
    pub setup: Setup,
    /// Name of the scenario; `scenario_text` is its full text, so that it can be run again.
    pub scenario: Option<String>,
    /// The text of the scenario.
    pub scenario_text: Option<String>,
    /// The seed of the workload's random numbers.
    pub seed: u64,
    /// Calls that took at least this long are recorded one by one.
    pub threshold_ns: u64,
    /// What was watched.
    pub target: Target,
    /// The machine's own noise before the run.
    pub noise_before: Option<Noise>,
    /// The machine's own noise after the run.
    pub noise_after: Option<Noise>,
    /// State of each hook, one entry per hook; empty if nothing was traced.
    pub hooks: Vec<HookStatus>,
    /// Which operations of other programs could be timed; empty if the recording is of flatwater's own threads, which
    /// time themselves.
    pub observed: Vec<Observed>,
    /// How much of the imported text was understood; absent if nothing was imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportSummary>,
    /// Tasks for which a log shows one kernel stack or wait channel, in the order of the log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sampled_tasks: Vec<SampledTask>,
    /// Records that the tracer lost.
    pub losses: Losses,
    /// What the observation cost.
    pub own_cost: OwnCost,
    /// Virtual time differs from that of a real machine (software emulation). Latencies must not be compared with
    /// those of another source; counters may be.
    pub time_distorted: bool,
    /// Name of the trigger by which `watch` kept this recording; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Whether the recording ended as planned; false while it is written and after kill -9.
    pub complete: bool,
    /// Remarks for the top of every report ("ran without root: ...").
    pub notes: Vec<Note>,
}

/// Where a recording comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Real calls on this machine.
    #[default]
    Host,
    /// Real calls in a guest.
    Vm,
    /// The model of a kernel.
    Sim,
    /// Logs of other tools.
    Import,
}

impl Source {
    /// The name in the header.
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

/// The offset of CLOCK_MONOTONIC to wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// CLOCK_MONOTONIC (or virtual) ns at the start of the measured part.
    pub start_ns: u64,
    /// Add this to an instant to get ns since the epoch; absent if wall time is unknown (sim, some imports).
    pub wall_offset_ns: Option<i64>,
}

/// Properties of the recorded machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Name of the machine.
    pub hostname: Option<String>,
    /// `uname -r`, or the name of the simulator's profile.
    pub kernel: Option<String>,
    /// Name of the processor.
    pub cpu_model: Option<String>,
    /// Number of CPUs that were online.
    pub cpus: Option<u32>,
    /// Bytes of a page frame; see `page_size_bytes`.
    pub page_bytes: Option<u64>,
    /// Byte order of the recorded machine. The files of the recording are always little-endian.
    pub endianness: Option<Endianness>,
    /// Inode of the PID namespace of the recorder (`readlink /proc/self/ns/pid`), in which the recording's process ids
    /// are valid. Absent for models and logs.
    pub pid_namespace: Option<u64>,
    /// Random id of this boot (/proc/sys/kernel/random/boot_id); differs between two machines with the same hostname.
    /// Absent for models and logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Size of the memory.
    pub memory_bytes: Option<u64>,
    /// Size of the swap.
    pub swap_bytes: Option<u64>,
    /// Its NUMA nodes.
    pub nodes: Vec<NodeShape>,
    /// `kvm`, `qemu-tcg`, `firecracker`, ...; absent on bare metal or if unknown.
    pub hypervisor: Option<String>,
    /// The mounted cgroup controllers that can limit a program; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<Controller>,
}

impl Machine {
    /// Bytes of a page frame; 4096 if not recorded, as in logs, whose importers assume the same size.
    #[must_use]
    pub fn page_size_bytes(&self) -> u64 {
        self.page_bytes.filter(|bytes| *bytes > 0).unwrap_or(4096)
    }
}

/// Byte order of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endianness {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

impl Endianness {
    /// The byte order of the machine that runs this code.
    #[must_use]
    pub const fn native() -> Endianness {
        if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little }
    }

    /// The name in the header.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Endianness::Little => "little",
            Endianness::Big => "big",
        }
    }
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeShape {
    /// Number of the node.
    pub node: u32,
    /// Numbers of the CPUs.
    pub cpus: Vec<u32>,
    /// Size of the memory.
    pub memory_bytes: Option<u64>,
    /// SLIT distances to node 0, 1, ...; 10 is local.
    pub distances: Vec<u32>,
}

/// The measured programs or workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// Name of the scenario (`journal`), the command line, or `pid 1234`.
    pub what: String,
    /// Processes that were watched from the start.
    pub pids: Vec<u32>,
    /// The watched processes, each with its state when first seen; at most 1024.
    pub processes: Vec<WatchedProcess>,
    /// Directory of the watched files.
    pub directory: Option<String>,
    /// Its file system.
    pub file_system: Option<String>,
    /// `vda`, `loop0`.
    pub device: Option<String>,
    /// Number of the device, major:minor.
    pub device_number: Option<String>,
    /// Where the files of `directory` are stored; absent if unknown, and before version 0.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// The cgroup that was watched.
    pub cgroup: Option<String>,
    /// Names of threads that only disturb the measured ones: their calls are recorded but not judged.
    pub neighbours: Vec<String>,
    /// Parameters of each workload that ran: `workload.key` -> value as given.
    pub parameters: BTreeMap<String, String>,
}

/// The time that a thread without system calls loses on this machine: the floor of every latency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Noise {
    /// How long the loop ran, ns.
    pub spin_ns: u64,
    /// Largest gap, without waits for a CPU that another thread used.
    pub gap_ns_max: u64,
    /// Number of gaps over 10 us.
    pub gaps: u64,
    /// Sum of the gaps, ns.
    pub gaps_total_ns: u64,
    /// Rise of steal in /proc/stat during the spin; absent if unreadable.
    pub steal_ns: Option<u64>,
}

/// Whether a hook of the tracer worked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HookStatus {
    /// Program or event: `tp_btf/mm_vmscan_memcg_reclaim_begin`.
    pub hook: String,
    /// The purposes of the hook: names of causes, `calls`, `samples`.
    pub serves: Vec<String>,
    /// How well it worked.
    pub state: HookState,
    /// Why the state is not `Exact`; empty if it is.
    pub reason: String,
}

impl HookStatus {
    /// The status of one hook.
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

/// How well a hook observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookState {
    /// It saw each occurrence.
    Exact,
    /// It saw a sample.
    Sampled,
    /// This kernel does not have it, or refused it.
    Unavailable,
}

/// Events that were lost. All counts are zero in a good recording; reports print the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// The ring buffer was full.
    pub lost: u64,
    /// Brackets were nested deeper than the tracer can follow.
    pub too_deep: u64,
    /// A call had more segments than the tracer can store, and the remaining ones were merged.
    #[serde(rename = "parts_merged")]
    pub segments_merged: u64,
    /// Stack ids collided or failed.
    pub stack_errors: u64,
    /// An event had a begin without an end, or the reverse.
    pub unbalanced: u64,
    /// Threads without state, because none was available.
    pub no_state: u64,
    /// Samples that were taken too late.
    pub samples_late: u64,
}

impl Losses {
    /// The sum of both.
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

    /// Whether anything was lost.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Losses::default()
    }

    /// Each loss that is not zero: (count, description).
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

/// The cost of flatwater itself during the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnCost {
    /// CPU time of all threads except the workload's own, as a share of one core.
    pub cpu_share: f64,
    /// Memory in use.
    pub rss_bytes: u64,
    /// Time added to each system call of the machine by the hooks on system calls, measured on this machine; absent if
    /// there were none.
    pub syscall_ns: Option<u64>,
}

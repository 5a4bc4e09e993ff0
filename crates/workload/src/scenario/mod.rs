//! A scenario: what happens, on which machine, under which settings, in which order. The same file runs on
//! the host, in a vm and in the simulator.

pub mod builtin;
mod kernel_block;
mod machine;
mod parse;
mod place;
mod set;
#[cfg(test)]
mod wrong_files;

pub use kernel_block::{BlockExtent, BlockKind, KernelBlock, KernelBlockError};
pub use parse::ScenarioError;
pub use set::SetError;

use crate::{Actor, Params, Role, Workload, WorkloadEntry};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Setup, Speed};

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    /// One sentence for `flatwater scenarios`.
    pub sentence: String,
    /// The text it was read from, kept for the recording's header.
    pub text: String,
    /// How long the measured part lasts.
    pub duration: Nanos,
    /// Calls at or over this are kept one by one.
    pub threshold: Nanos,
    pub seed: u64,
    /// For vm and sim; the host has its own.
    pub machine: MachineSpec,
    /// Simulator profile, `linux-2.6.32`; absent if the scenario is for real kernels only.
    pub kernel: Option<String>,
    /// Settings that hold from the start.
    pub setup: Setup,
    pub workloads: Vec<WorkloadSpec>,
    /// In order of time.
    pub timeline: Vec<Change>,
    /// What a reader should see, in words.
    pub expect: Vec<String>,
    /// Figure that `verify` judges by (`p99.9`, `worst` ...); absent is its default.
    pub judge: Option<String>,
    /// Measured part of each run of `verify`, and the time to settle before it; absent is its default.
    pub block: Option<Nanos>,
    pub settle: Option<Nanos>,
    /// Scenario that runs instead where the right to make this one's setup is missing.
    pub fallback: Option<String>,
    /// Named fixes that belong to this scenario, for `verify --fix NAME`.
    pub fixes: Vec<NamedFix>,
}

#[derive(Clone, Debug)]
pub struct WorkloadSpec {
    /// Its name within the scenario (two `stream`s need two); by default the workload's.
    pub label: String,
    pub entry: &'static WorkloadEntry,
    pub params: Params,
    pub start: Nanos,
    /// `None`: until the scenario ends or its streams do.
    pub duration: Option<Nanos>,
    /// Over what the workload says of itself: a journal can be there to make trouble for another one.
    pub role: Option<Role>,
    /// Where its files lie: 0 is the machine's disk, 1 the first of its further devices.
    pub device: usize,
    pub cpu: Option<u32>,
    pub node: Option<u32>,
    pub fifo_priority: Option<u32>,
}

/// Longest name of a thread that the kernel keeps (TASK_COMM_LEN without its end).
const THREAD_NAME_MAX: usize = 15;

impl Scenario {
    /// All devices of the machine by name, the disk first, each with its settings.
    pub fn devices(&self) -> impl Iterator<Item = (&str, &DiskSpec, &Setup)> {
        let further = self.machine.devices.iter().map(|own| (own.name.as_str(), &own.disk, &own.setup));
        std::iter::once((FIRST_DEVICE, &self.machine.disk, &self.setup)).chain(further)
    }
}

impl WorkloadSpec {
    /// The workload's actors as this scenario has them: in its role, and under its label's name.
    #[must_use]
    pub fn actors(&self, workload: &dyn Workload) -> Vec<Actor> {
        let mut actors = workload.actors();
        for actor in &mut actors {
            actor.role = self.role.unwrap_or(actor.role);
            if let Some(rest) = actor.name.strip_prefix(self.entry.name).filter(|_| self.label != self.entry.name) {
                let room = THREAD_NAME_MAX.saturating_sub(rest.len());
                let label: String = self.label.chars().filter(char::is_ascii).take(room).collect();
                actor.name = format!("{label}{rest}");
            }
        }
        actors
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub at: Nanos,
    pub set: Setup,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFix {
    pub name: String,
    pub sentence: String,
    pub set: Setup,
}

/// What processes beside the workloads hold of each node from an instant on, beyond what they held at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    pub at: Nanos,
    pub node_bytes: Vec<u64>,
}

impl Growth {
    /// Of all nodes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.node_bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The machine that vm and sim build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineSpec {
    pub cpus: Option<u32>,
    /// Memory of each node, bytes; one entry per node.
    pub node_bytes: Vec<u64>,
    /// Distance between different nodes; 10 is local.
    pub distance: Option<u32>,
    pub disk: DiskSpec,
    /// Devices beside the disk (sim only).
    pub devices: Vec<DeviceSpec>,
    /// Memory of each node that the page allocator never gets (kernel image, firmware), bytes (sim only: a real
    /// machine has its own).
    pub reserved_bytes: Vec<u64>,
    /// Memory of each node that the initramfs, slabs and processes hold from the start, bytes (sim only).
    pub resident_bytes: Vec<u64>,
    /// Page blocks of each node that the kernel's allocations have claimed and that are free in part when the run begins (sim only,
    /// 5.0 and later).
    pub kernel_blocks: Vec<Vec<KernelBlock>>,
    /// File pages of each node that processes have mapped from an initramfs, where they lie on no list, bytes (sim only).
    pub mapped_unlisted_bytes: Vec<u64>,
    /// Pages of the disk's own cache on each node when the run begins (Buffers in /proc/meminfo), the directory's first blocks of inodes
    /// among them, bytes (sim only, 5.0 and later).
    pub buffers_bytes: Vec<u64>,
    /// The min watermark of each node's zones, lowest first, where the kernel shared vm.min_free_kbytes out before it gave the initramfs
    /// back, bytes (sim only).
    pub zone_min_bytes: Vec<Vec<u64>>,
    /// Memory that processes beside the workloads hold in addition, from some instant of the run on (sim only).
    pub grows: Vec<Growth>,
    /// What the scenario's memory cgroup is charged for memory of processes that is none of the workloads', from some instant of the run
    /// on (sim only).
    pub cgroup_grows: Vec<Growth>,
    /// What processes beside the workloads use of one CPU's time, percent (sim only).
    pub own_cpu_percent: u32,
    /// Where an emulator executes the CPUs in turn, how long a turn is (sim only).
    pub cpu_turn: Option<Nanos>,
    /// Size of the swap area, on the scenario's disk (sim only).
    pub swap_bytes: u64,
    /// CPU speed relative to the profile's reference, percent; absent is 100 (sim only).
    pub cpu_speed_percent: Option<u32>,
    /// What was measured of its CPUs, which then counts instead of the profile's times (sim only).
    pub speed: Option<Speed>,
}

/// What recordings of the model call the machine's disk.
pub const FIRST_DEVICE: &str = "sda";

/// A device beside the machine's disk, with its own file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSpec {
    pub name: String,
    pub disk: DiskSpec,
    /// Settings of this device: of its queue, its part of the dirty limit, its mount. Those of `Scenario::setup` are the
    /// disk's.
    pub setup: Setup,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskSpec {
    pub bytes: Option<u64>,
    pub write_bytes_per_s: Option<u64>,
    pub read_bytes_per_s: Option<u64>,
    /// At most so many requests a second, one at a time.
    pub iops: Option<u64>,
    /// Of one command of a flash device, which serves `queue_depth` of them at once, ns (sim).
    pub latency_ns: Option<u64>,
    /// Of a flush of a flash device's write cache, ns; without it the device has none that could be lost (sim).
    pub flush_ns: Option<u64>,
    /// Commands that the device takes at once (sim).
    pub queue_depth: Option<u32>,
    /// Of a drive with an arm, bytes; 0 switches its write cache and readahead off (sim).
    pub cache_bytes: Option<u64>,
    /// Whether a drive with an arm answers writes from its cache (sim).
    pub write_cache: Option<bool>,
    /// Mean seek, ns (sim: rotating disks).
    pub seek_ns: Option<u64>,
    pub rotation_ns: Option<u64>,
    /// Of the network to the server whose disk this is (sim: nfs).
    pub network_bytes_per_s: Option<u64>,
    /// A round trip to that server and back.
    pub network_rtt_ns: Option<u64>,
    /// `ext4`, `xfs`, `ext2`, ...
    pub file_system: Option<String>,
    /// The disk is an array of such drives; only `bytes` is the whole's (sim).
    pub array: Option<ArraySpec>,
}

/// Drives as one disk: of md, or behind a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// `raid0`, `raid1`, `raid10` or `raid5`.
    pub level: String,
    pub drives: u32,
    pub chunk_bytes: Option<u64>,
    pub controller: Option<ControllerSpec>,
}

/// A RAID controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerSpec {
    /// Of its write-back cache with a battery, bytes; none unless said.
    pub cache_bytes: Option<u64>,
    /// Its own time for a command, ns.
    pub command_ns: Option<u64>,
    /// Of its link to the host.
    pub link_bytes_per_s: Option<u64>,
}

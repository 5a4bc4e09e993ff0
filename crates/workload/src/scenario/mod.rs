//! Scenarios: machine, settings, workloads and timeline. The same file runs on the host, in a vm and in the simulator.

pub mod builtin;
mod machine;
mod parse;
mod place;
mod set;
#[cfg(test)]
mod wrong_files;

pub use parse::ScenarioError;
pub use set::SetError;

use std::collections::BTreeMap;

use crate::{Actor, Params, Role, Workload, WorkloadEntry};
use flatwater_recording::Setup;
use flatwater_recording::units::Nanos;

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    /// One sentence for `flatwater scenarios`.
    pub sentence: String,
    /// The text of the scenario, kept for the recording's header.
    pub text: String,
    /// Length of the measured part.
    pub duration: Nanos,
    /// Calls that took at least this long are recorded one by one.
    pub threshold: Nanos,
    pub seed: u64,
    /// For vm and sim; the host is its own machine.
    pub machine: MachineSpec,
    /// Simulator profile, `linux-2.6.32`; absent if the scenario is only for real kernels.
    pub kernel: Option<String>,
    /// Settings from the start of the run.
    pub setup: Setup,
    /// Inputs of the simulator that are not settings of a machine (`model.*`). The simulator checks them; a host and a
    /// vm ignore them.
    pub model: BTreeMap<String, String>,
    pub workloads: Vec<WorkloadSpec>,
    /// Ordered by time.
    pub timeline: Vec<Change>,
    /// Expected results, in words.
    pub expect: Vec<String>,
    /// Figure that `verify` compares (`p99.9`, `worst` ...); absent for its default.
    pub judge: Option<String>,
    /// Measured part of each run of `verify`; `settle` is the time to settle before it. Absent for the defaults.
    pub block: Option<Nanos>,
    pub settle: Option<Nanos>,
    /// Scenario to run instead if the permissions for this one's setup are missing.
    pub fallback: Option<String>,
    /// Named fixes of this scenario, for `verify --fix NAME`.
    pub fixes: Vec<NamedFix>,
}

#[derive(Clone, Debug)]
pub struct WorkloadSpec {
    /// Name within the scenario, by default the workload's name. Two workloads of the same kind need different labels.
    pub label: String,
    pub entry: &'static WorkloadEntry,
    pub params: Params,
    pub start: Nanos,
    /// `None`: until the scenario or the workload's streams end.
    pub duration: Option<Nanos>,
    /// Overrides the workload's own role: for example, a journal can be a neighbour of another one.
    pub role: Option<Role>,
    /// Device for the files: 0 is the machine's disk, 1 the first of the other devices.
    pub device: usize,
    pub cpu: Option<u32>,
    pub node: Option<u32>,
    pub fifo_priority: Option<u32>,
}

/// Maximum length of a thread's name in the kernel (TASK_COMM_LEN without the terminator).
const THREAD_NAME_MAX: usize = 15;

/// The name of an actor's thread: with the workload's label instead of the workload's name.
#[must_use]
pub fn thread_name(label: &str, workload: &str, actor: &str) -> String {
    match actor.strip_prefix(workload).filter(|_| label != workload) {
        Some(rest) => {
            let room = THREAD_NAME_MAX.saturating_sub(rest.len());
            let label: String = label.chars().filter(char::is_ascii).take(room).collect();
            format!("{label}{rest}")
        }
        None => actor.to_owned(),
    }
}

impl Scenario {
    /// All devices of the machine with name and settings, the disk first.
    pub fn devices(&self) -> impl Iterator<Item = (&str, &DiskSpec, &Setup)> {
        let further = self.machine.devices.iter().map(|own| (own.name.as_str(), &own.disk, &own.setup));
        std::iter::once((FIRST_DEVICE, &self.machine.disk, &self.setup)).chain(further)
    }
}

impl WorkloadSpec {
    /// The workload's actors in this scenario: with the spec's role, and named after its label.
    #[must_use]
    pub fn actors(&self, workload: &dyn Workload) -> Vec<Actor> {
        let mut actors = workload.actors();
        for actor in &mut actors {
            actor.role = self.role.unwrap_or(actor.role);
            actor.name = thread_name(&self.label, self.entry.name, &actor.name);
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

/// Memory that processes other than the workloads have on each node from an instant on, in addition to the amount at
/// the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    pub at: Nanos,
    pub node_bytes: Vec<u64>,
}

impl Growth {
    /// Sum over all nodes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.node_bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The machine that vm and sim create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineSpec {
    pub cpus: Option<u32>,
    /// Memory of each node, bytes; one entry per node.
    pub node_bytes: Vec<u64>,
    /// Distance between different nodes; 10 is local.
    pub distance: Option<u32>,
    pub disk: DiskSpec,
    /// Devices in addition to the disk (sim only).
    pub devices: Vec<DeviceSpec>,
    /// Memory of each node that the page allocator never gets (kernel image, firmware), bytes (sim only: a real
    /// machine has its own).
    pub reserved_bytes: Vec<u64>,
    /// Memory of each node used by initramfs, slabs and processes from the start, bytes (sim only).
    pub resident_bytes: Vec<u64>,
    /// Pages of the block device's page cache on each node when the run begins (Buffers in /proc/meminfo), including
    /// the first inode blocks of the directory, bytes (sim only, 5.0 and later).
    pub buffers_bytes: Vec<u64>,
    /// Min watermark of each node's zones, lowest zone first, for a kernel that divided vm.min_free_kbytes before it
    /// freed the initramfs, bytes (sim only).
    pub zone_min_bytes: Vec<Vec<u64>>,
    /// Additional memory of processes other than the workloads, by time (sim only).
    pub grows: Vec<Growth>,
    /// Additional memory that the scenario's memory cgroup is charged for processes other than the workloads, by time
    /// (sim only).
    pub cgroup_grows: Vec<Growth>,
    /// CPU time of processes other than the workloads, in percent of one CPU (sim only).
    pub own_cpu_percent: u32,
    /// Size of the swap area, which is on the scenario's disk (sim only).
    pub swap_bytes: u64,
    /// CPU speed relative to the profile's reference, percent; absent is 100 (sim only).
    pub cpu_speed_percent: Option<u32>,
}

/// Name of the machine's disk in recordings of the model.
pub const FIRST_DEVICE: &str = "sda";

/// A device in addition to the machine's disk, with its own file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSpec {
    pub name: String,
    pub disk: DiskSpec,
    /// Settings of this device: its queue, its share of the dirty limit, its mount. Those in `Scenario::setup` apply
    /// to the disk.
    pub setup: Setup,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskSpec {
    pub bytes: Option<u64>,
    pub write_bytes_per_s: Option<u64>,
    pub read_bytes_per_s: Option<u64>,
    /// Maximum requests per second, one at a time.
    pub iops: Option<u64>,
    /// Latency of one command of a flash device, which serves `queue_depth` commands at once, ns (sim).
    pub latency_ns: Option<u64>,
    /// Duration of a flush of a flash device's write cache, ns; without it, the device has no volatile cache (sim).
    pub flush_ns: Option<u64>,
    /// Commands that the device accepts at once (sim).
    pub queue_depth: Option<u32>,
    /// Cache of a rotating disk, bytes; 0 disables its write cache and readahead (sim).
    pub cache_bytes: Option<u64>,
    /// Whether a rotating disk completes writes in its cache (sim).
    pub write_cache: Option<bool>,
    /// Mean seek time, ns (sim: rotating disks).
    pub seek_ns: Option<u64>,
    pub rotation_ns: Option<u64>,
    /// Rate of the network to the server of this disk (sim: nfs).
    pub network_bytes_per_s: Option<u64>,
    /// Round-trip time to that server.
    pub network_rtt_ns: Option<u64>,
    /// `ext4`, `xfs`, `ext2`, ...
    pub file_system: Option<String>,
    /// The disk is an array of such drives; only `bytes` is the size of the whole array (sim).
    pub array: Option<ArraySpec>,
}

/// Drives that form one disk: an md array, or drives of a controller.
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
    /// Battery-backed write-back cache, bytes; absent for none.
    pub cache_bytes: Option<u64>,
    /// Time of the controller for a command, ns.
    pub command_ns: Option<u64>,
    /// Rate of the drive's link to the host.
    pub link_bytes_per_s: Option<u64>,
}

//! QEMU's command line from the machine section of a scenario.

use std::fmt::Write as _;
use std::os::fd::RawFd;
use std::process::Command;

use super::VmError;
use super::arch::Arch;
use super::guest::{OUT_DISK, WORK_DISK};
use super::initramfs::Prepared;
use flatwater_recording::units::Bytes;
use flatwater_workload::scenario::MachineSpec;

/// Smaller guests do not finish booting.
const NODE_BYTES_MIN: u64 = 64 << 20;
const TOTAL_BYTES_MIN: u64 = 192 << 20;
/// Maximum share of the host's free memory for a guest.
const FREE_SHARE_MAX: f64 = 0.75;

/// The machine with all defaults filled in.
#[derive(Clone, Debug)]
pub struct Machine {
    pub cpus: u32,
    pub node_bytes: Vec<u64>,
    pub distance: u32,
    pub disk_bytes: u64,
    pub file_system: String,
    pub write_bytes_per_s: Option<u64>,
    pub read_bytes_per_s: Option<u64>,
    pub iops: Option<u64>,
}

impl Machine {
    pub fn plan(spec: &MachineSpec) -> Result<Machine, VmError> {
        let impossible = |why: String| VmError::Machine { why };
        if let Some(device) = spec.devices.first() {
            let why = format!(
                "the guest has one disk, and the scenario has another device '{}'; the model supports several (--on sim)",
                device.name
            );
            return Err(impossible(why));
        }
        let node_bytes = if spec.node_bytes.is_empty() { vec![512 << 20] } else { spec.node_bytes.clone() };
        let nodes = u32::try_from(node_bytes.len()).unwrap_or(u32::MAX);
        let cpus = spec.cpus.unwrap_or(2).max(nodes);
        if let Some(small) = node_bytes.iter().find(|bytes| **bytes < NODE_BYTES_MIN) {
            return Err(impossible(format!(
                "a node of {} is too small to boot: use {} or more",
                Bytes(*small),
                Bytes(NODE_BYTES_MIN)
            )));
        }
        let total: u64 = node_bytes.iter().sum();
        if total < TOTAL_BYTES_MIN {
            return Err(impossible(format!(
                "{} in total is too small to boot: use {} or more",
                Bytes(total),
                Bytes(TOTAL_BYTES_MIN)
            )));
        }
        if let Some(free) = free_bytes().filter(|free| total as f64 > *free as f64 * FREE_SHARE_MAX) {
            return Err(impossible(format!("it needs {}, and this host has {} available", Bytes(total), Bytes(free))));
        }
        Ok(Machine {
            cpus,
            node_bytes,
            distance: spec.distance.unwrap_or(20).clamp(11, 254),
            disk_bytes: spec.disk.bytes.unwrap_or(4 << 30).max(64 << 20),
            file_system: spec.disk.file_system.clone().unwrap_or_else(|| "ext4".to_owned()),
            write_bytes_per_s: spec.disk.write_bytes_per_s,
            read_bytes_per_s: spec.disk.read_bytes_per_s,
            iops: spec.disk.iops,
        })
    }

    /// Prints as `2 nodes of 192 MiB, 2 CPUs, ext4`.
    #[must_use]
    pub fn describe(&self) -> String {
        let sizes: Vec<String> = self.node_bytes.iter().map(|bytes| Bytes(*bytes).to_string()).collect();
        let plural = if sizes.len() == 1 { "" } else { "s" };
        format!("{} node{plural} of {}, {} CPUs, {}", sizes.len(), sizes.join(" + "), self.cpus, self.file_system)
    }

    /// `-numa` and memory backends. CPUs are assigned to nodes in turn, as on the case study's machine.
    fn numa_arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        for (node, bytes) in self.node_bytes.iter().enumerate() {
            arguments.extend(["-object".to_owned(), format!("memory-backend-ram,id=m{node},size={bytes}")]);
            let mut numa = format!("node,nodeid={node},memdev=m{node}");
            let cpus = (0..self.cpus as usize).filter(|cpu| cpu % self.node_bytes.len() == node);
            cpus.for_each(|cpu| {
                let _ = write!(numa, ",cpus={cpu}");
            });
            arguments.extend(["-numa".to_owned(), numa]);
        }
        for from in 0..self.node_bytes.len() {
            for to in 0..self.node_bytes.len() {
                let value = if from == to { 10 } else { self.distance };
                arguments.extend(["-numa".to_owned(), format!("dist,src={from},dst={to},val={value}")]);
            }
        }
        arguments
    }

    pub fn command(&self, prepared: &Prepared, accelerator: &str, console: RawFd) -> Command {
        let arch = prepared.arch;
        let mut command = Command::new(arch.qemu());
        // One thread for all of the guest's CPUs: with a thread for each, guests hung while the kernel patched its own
        // code (in 3 of 26 attaches on 6.1, QEMU 7.2); with one thread, in none of 30, and guests were not slower.
        let accel = if accelerator == "tcg" { "tcg,thread=single" } else { accelerator };
        let (machine, cpu) = (arch.machine(), arch.processor(accelerator));
        let total: u64 = self.node_bytes.iter().sum();
        // Denies operations that QEMU never needs but an attacker who breaks out of the guest does.
        command.args(["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", machine]);
        command.args(["-accel", accel, "-cpu", cpu, "-m"]).arg(format!("{}M", total >> 20));
        command.arg("-smp").arg(format!("{0},sockets={0}", self.cpus));
        command.args(self.numa_arguments());
        command.arg("-kernel").arg(&prepared.kernel).arg("-initrd").arg(&prepared.initramfs);
        command.arg("-append").arg(arch.kernel_arguments());
        // A pipe that we read within limits, because a file would grow for as long as the guest prints. It is passed as
        // a descriptor, because QEMU runs as uid 65534, which may not open our pipe by name. It is opened for
        // appending, because QEMU truncates other files first, which fails on a pipe.
        command.arg("-add-fd").arg(format!("fd={console},set=1"));
        command.args(["-chardev", "file,id=console,path=/dev/fdset/1,append=on", "-serial", "chardev:console"]);
        match arch {
            Arch::X86_64 => command.args(["-serial", "stdio"]),
            Arch::Aarch64 => command
                .args(["-chardev", "stdio,id=lines", "-device", "virtio-serial-pci"])
                .args(["-device", "virtserialport,chardev=lines,nr=1"]),
        };
        command.args(["-monitor", "none", "-net", "none"]);
        let mut limits = String::new();
        for (key, value) in
            [("bps-write", self.write_bytes_per_s), ("bps-read", self.read_bytes_per_s), ("iops-total", self.iops)]
        {
            if let Some(value) = value {
                let _ = write!(limits, ",throttling.{key}={value}");
            }
        }
        let disks = [(WORK_DISK, &prepared.disk, limits.as_str()), (OUT_DISK, &prepared.out_path, "")];
        for (name, path, limits) in disks {
            let file = path.display();
            command.arg("-drive").arg(format!("file={file},if=none,id={name},format=raw,cache=unsafe{limits}"));
            command.arg("-device").arg(format!("nvme,drive={name},serial={name}"));
        }
        command
    }
}

/// Whether QEMU is on the PATH.
#[must_use]
pub fn is_installed(arch: Arch) -> bool {
    // An empty PATH has one element, the current directory.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.is_absolute() && folder.join(arch.qemu()).is_file())
}

/// Accelerators to try, best first. Only a boot shows whether KVM really works. KVM cannot run another architecture.
#[must_use]
pub fn accelerators(arch: Arch, kvm_refused: bool) -> Vec<&'static str> {
    let can_open = || std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    if arch == Arch::OWN && !kvm_refused && can_open() { vec!["kvm", "tcg"] } else { vec!["tcg"] }
}

fn free_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

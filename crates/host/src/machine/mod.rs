//! Describes this machine for the recording's header.

mod hypervisor;
mod storage;

pub use storage::storage_of;

use std::fs;
use std::path::Path;

use super::proc::text::Scan;
use flatwater_recording::{Endianness, Machine, NodeShape};

/// Describes this machine; an unknown field is `None`.
#[must_use]
pub fn describe() -> Machine {
    let mut machine = describe_at(Path::new("/"));
    machine.hypervisor = hypervisor::detect();
    machine.controllers = storage::controllers();
    machine
}

/// Whether the CPU is emulated in software, so that times cannot be compared with a real machine's.
#[must_use]
pub fn is_emulated(machine: &Machine) -> bool {
    machine.hypervisor.as_deref() == Some("qemu-tcg")
}

/// Describes the machine whose files are below `root`; `hypervisor` is `None`, because only the CPU knows it.
fn describe_at(root: &Path) -> Machine {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let line = |path: &str| text(path).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let meminfo = text("proc/meminfo").unwrap_or_default();
    let cpuinfo = text("proc/cpuinfo").unwrap_or_default();
    let online = line("sys/devices/system/cpu/online").map(|list| cpu_list(&list).len());
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    Machine {
        hostname: line("proc/sys/kernel/hostname"),
        kernel: line("proc/sys/kernel/osrelease"),
        cpu_model: cpu_model(&cpuinfo),
        cpus: online.or((processors > 0).then_some(processors)).and_then(|cpus| u32::try_from(cpus).ok()),
        page_bytes: u64::try_from(rustix::param::page_size()).ok(),
        endianness: Some(Endianness::native()),
        pid_namespace: pid_namespace(root),
        boot_id: line("proc/sys/kernel/random/boot_id"),
        memory_bytes: kib(&meminfo, "MemTotal:"),
        swap_bytes: kib(&meminfo, "SwapTotal:"),
        nodes: nodes(root),
        hypervisor: None,
        controllers: Vec::new(),
    }
}

/// The number in `pid:[4026531836]` (fs/nsfs.c: ns_get_name).
fn pid_namespace(root: &Path) -> Option<u64> {
    let link = fs::read_link(root.join("proc/self/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// `model name` on x86; arm64 prints only part numbers.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let value = |key: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    value("model name").or_else(|| value("CPU part").map(|part| format!("CPU part {part}")))
}

/// The number after `word`, which is in KiB, as bytes.
fn kib(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.split_once(word)?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn nodes(root: &Path) -> Vec<NodeShape> {
    let place = root.join("sys/devices/system/node");
    super::sampler::nodes(root)
        .into_iter()
        .map(|node| {
            let text = |file: &str| fs::read_to_string(place.join(format!("node{node}/{file}"))).unwrap_or_default();
            let distances = text("distance").split_whitespace().filter_map(|word| word.parse().ok()).collect();
            NodeShape {
                node,
                cpus: cpu_list(&text("cpulist")),
                memory_bytes: kib(&text("meminfo"), "MemTotal:"),
                distances,
            }
        })
        .collect()
}

/// Parses a list like `0-3,8`.
fn cpu_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let mut scan = Scan::new(range.as_bytes());
        let Some(first) = scan.number() else { continue };
        let last = if scan.take(b"-") { scan.number().unwrap_or(first) } else { first };
        // Linux supports at most 8192 CPUs (CONFIG_NR_CPUS).
        cpus.extend((first..=last.min(first.saturating_add(8191))).filter_map(|cpu| u32::try_from(cpu).ok()));
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::{cpu_list, describe, describe_at, is_emulated};
    use flatwater_recording::{Machine, NodeShape};

    #[test]
    fn only_qemu_tcg_is_emulated() {
        let on = |name: &str| is_emulated(&Machine { hypervisor: Some(name.to_owned()), ..Machine::default() });
        assert!(on("qemu-tcg") && !on("kvm") && !is_emulated(&Machine::default()));
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(cpu_list("\n"), [0_u32; 0]);
        assert_eq!(cpu_list("3-1"), [0_u32; 0]);
    }

    #[test]
    fn a_machine_of_two_nodes() {
        let place = tempfile::tempdir().expect("temporary directory");
        let put = |path: &str, text: &str| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            std::fs::write(path, text).expect("written");
        };
        put("proc/meminfo", "MemTotal:  2048 kB\nSwapTotal:   0 kB\n");
        put("proc/sys/kernel/osrelease", "2.6.32-5-amd64\n");
        put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nprocessor\t: 1\n");
        for (node, cpus, distances) in [(0, "0", "10 21"), (1, "1", "21 10")] {
            put(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
            put(&format!("sys/devices/system/node/node{node}/distance"), distances);
            put(&format!("sys/devices/system/node/node{node}/meminfo"), &format!("Node {node} MemTotal:  1024 kB\n"));
        }
        let machine = describe_at(place.path());
        assert_eq!((machine.cpus, machine.memory_bytes, machine.swap_bytes), (Some(2), Some(2 << 20), Some(0)));
        assert_eq!(machine.cpu_model.as_deref(), Some("Some CPU @ 2.0GHz"));
        assert_eq!(machine.kernel.as_deref(), Some("2.6.32-5-amd64"));
        let second = NodeShape { node: 1, cpus: vec![1], memory_bytes: Some(1 << 20), distances: vec![21, 10] };
        assert_eq!(machine.nodes.get(1), Some(&second));
    }

    #[test]
    fn this_machine_has_memory_and_a_kernel() {
        let machine = describe();
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(machine.kernel.is_some() && machine.cpus.is_some_and(|cpus| cpus > 0));
        let link = std::fs::read_link("/proc/self/ns/pid").expect("procfs");
        assert_eq!(machine.pid_namespace.map(|inode| format!("pid:[{inode}]")).as_deref(), link.to_str());
        assert_eq!(machine.endianness, Some(flatwater_recording::Endianness::native()));
    }
}

//! CPU, NUMA node and priority of a thread.

use std::fs;

use rustix::thread::CpuSet;

/// Applied as far as possible: a thread that cannot be placed still runs, with the latencies that result.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub cpu: Option<u32>,
    /// The thread runs on the node's CPUs. Memory follows, since the kernel by default allocates on the node of the
    /// CPU.
    pub node: Option<u32>,
    pub fifo_priority: Option<u32>,
}

impl Placement {
    /// Applies the placement to the calling thread.
    pub fn take(self) {
        let cpus = match (self.cpu, self.node) {
            (Some(cpu), _) => vec![cpu as usize],
            (None, Some(node)) => cpus_of_node(node),
            (None, None) => Vec::new(),
        };
        let mut set = CpuSet::new();
        cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
        if set.count() > 0 {
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
        if let Some(priority) = self.fifo_priority.filter(|priority| *priority > 0) {
            // The kernel's struct sched_param is one int. Calls the kernel directly, because musl's struct has more
            // fields and musl refuses the call.
            let priority: libc::c_int = priority.cast_signed();
            // SAFETY: a valid pointer to the int that the kernel reads; 0 is the calling thread.
            let _ = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority) };
        }
    }
}

fn cpus_of_node(node: u32) -> Vec<usize> {
    let list = fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).unwrap_or_default();
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    ranges.flatten().collect()
}

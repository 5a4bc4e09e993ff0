//! What flatwater itself costs the machine: the CPU time of all threads but the workload's, and resident memory.

use rustix::thread::ClockId;
use rustix::time::clock_gettime;

use super::clock::monotonic_ns;
use flatwater_recording::OwnCost;

/// Measures the cost from the start of the measured part.
#[derive(Clone, Copy, Debug)]
pub struct OwnCostMeter {
    started_ns: u64,
    cpu_ns: u64,
}

impl OwnCostMeter {
    #[must_use]
    pub fn start() -> OwnCostMeter {
        OwnCostMeter { started_ns: monotonic_ns(), cpu_ns: cpu_ns(ClockId::ProcessCPUTime) }
    }

    /// Returns the cost since the start. `workload_cpu_ns` is the CPU time of this process's workload threads (each
    /// calls `thread_cpu_ns` when it ends). The process clock does not include child processes.
    #[must_use]
    pub fn finish(&self, workload_cpu_ns: u64) -> OwnCost {
        let used_ns = cpu_ns(ClockId::ProcessCPUTime).saturating_sub(self.cpu_ns).saturating_sub(workload_cpu_ns);
        let wall_ns = monotonic_ns().saturating_sub(self.started_ns).max(1);
        OwnCost { cpu_share: used_ns as f64 / wall_ns as f64, rss_bytes: rss_bytes_max(), syscall_ns: None }
    }
}

/// CPU time of the calling thread so far.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    cpu_ns(ClockId::ThreadCPUTime)
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Makes glibc map each allocation of 128 KiB or more separately, so that `free` returns its memory to the kernel. By
/// default glibc raises this threshold (M_MMAP_THRESHOLD in mallopt(3)) to the size of the largest freed mapping, and a
/// long-running process keeps what it frees. Call this before any other thread starts.
pub fn keep_memory_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer; no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Returns freed memory to the kernel. Loading the hooks (which reads the kernel's BTF) and sealing a recording
/// allocate much memory for a short time, and the C library would keep it until the process ends.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer and may be called from any thread at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Peak resident memory of this process (VmHWM), bytes; 0 if /proc is not mounted.
#[must_use]
pub fn rss_bytes_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::{OwnCostMeter, thread_cpu_ns};

    #[test]
    fn the_workloads_cpu_time_is_subtracted() {
        let meter = OwnCostMeter::start();
        let worker = std::thread::spawn(|| {
            let mut sum = 0_u64;
            while thread_cpu_ns() < 20_000_000 {
                sum = black_box(sum.wrapping_add(1));
            }
            thread_cpu_ns()
        });
        let workload_ns = worker.join().expect("the worker ends");
        assert!(workload_ns >= 20_000_000);
        assert!(meter.finish(0).cpu_share > meter.finish(workload_ns).cpu_share);
        assert!(meter.finish(0).rss_bytes > 1 << 20);
    }
}

//! What we ourselves cost the machine: CPU time of all but the workload's threads, and resident memory.

use rustix::thread::ClockId;
use rustix::time::clock_gettime;

use super::clock::monotonic_ns;
use flatwater_recording::OwnCost;

/// Started when the measured part begins.
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

    /// The cost since the start. `workload_cpu_ns` is what the measured threads of this process used (each asks
    /// `thread_cpu_ns` when it ends); children are not counted in the first place.
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

/// Has the C library ask the kernel for each larger piece of memory by itself, and give it back when it is freed. Left to
/// itself glibc raises the size from which it does so to the largest piece that was freed (M_MMAP_THRESHOLD in
/// mallopt(3)), and what long runs free in between stays with the process. Call it first of all.
pub fn keep_memory_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer; no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Gives memory that was freed back to the kernel. Reading the kernel's type information to load the hooks takes
/// much for a moment, and so does sealing; the C library may keep it for as long as we run.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer and may be called from any thread at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The most memory that was resident so far; 0 only if /proc is not mounted.
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
    fn the_workloads_share_is_not_ours() {
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

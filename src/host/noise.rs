//! The noise floor: what a thread loses that makes no syscalls and touches no memory.
//!
//! Interrupts, the scheduler and the hypervisor take it off its CPU. Nothing shorter than that can be blamed
//! on the kernel's memory management.

use std::path::Path;
use std::time::Duration;

use super::clock::monotonic_ns;
use super::proc::stat;
use crate::recording::Noise;

/// A gap between two clock readings that is worth counting; the reading itself takes some tens of ns.
const GAP_NS: u64 = 10_000;

/// Spins for this long, on the CPU given if it can be pinned there, in a thread of its own.
#[must_use]
pub fn measure(cpu: Option<u32>, length: Duration) -> Noise {
    let before_ns = steal_ns(Path::new("/proc/stat"));
    let spin = std::thread::Builder::new().name("noise".to_owned()).spawn(move || {
        if let Some(cpu) = cpu.map(|cpu| cpu as usize).filter(|&cpu| cpu < rustix::thread::CpuSet::MAX_CPU) {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            // Without the right to pin, the floor of wherever we run is still a floor.
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
        spin(length)
    });
    let mut noise = spin.ok().and_then(|thread| thread.join().ok()).unwrap_or_default();
    let after_ns = steal_ns(Path::new("/proc/stat"));
    noise.steal_ns = after_ns.zip(before_ns).map(|(after, before)| after.saturating_sub(before));
    noise
}

fn spin(length: Duration) -> Noise {
    let start = monotonic_ns();
    let end = start.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    let mut noise = Noise::default();
    let mut last = start;
    while last < end {
        let now = monotonic_ns();
        let gap_ns = now.saturating_sub(last);
        if gap_ns > GAP_NS {
            noise.gaps += 1;
            noise.gaps_total_ns += gap_ns;
        }
        noise.gap_ns_max = noise.gap_ns_max.max(gap_ns);
        last = now;
    }
    noise.spin_ns = last - start;
    noise
}

fn steal_ns(path: &Path) -> Option<u64> {
    let tick_ns = 1_000_000_000 / i64::try_from(rustix::param::clock_ticks_per_second()).ok()?.max(1);
    stat::steal_ns(&std::fs::read(path).ok()?, tick_ns)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::measure;

    #[test]
    fn a_spin_lasts_as_asked_and_its_gaps_fit_into_it() {
        let noise = measure(Some(0), Duration::from_millis(50));
        assert!(noise.spin_ns >= 50_000_000);
        assert!(noise.gap_ns_max > 0 && noise.gap_ns_max <= noise.spin_ns);
        assert!(noise.gaps_total_ns <= noise.spin_ns);
    }
}

//! Measures the noise floor: the time that a thread loses although it makes no system calls and touches no memory.
//!
//! Interrupts and the hypervisor take the CPU from such a thread. A delay shorter than the noise floor cannot be blamed
//! on memory management. Time in which the thread waited for the CPU while other threads ran is subtracted: in a call,
//! scheduler events measure this time exactly.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::clock::monotonic_ns;
use super::proc::stat;
use flatwater_recording::Noise;

/// The shortest gap between two clock readings that counts as noise. A reading itself takes some tens of ns.
const GAP_NS: u64 = 10_000;

/// Spins for `length` in a new thread, on `cpu` if the thread can be pinned to that CPU.
#[must_use]
pub fn measure(cpu: Option<u32>, length: Duration) -> Noise {
    let before_ns = steal_ns(Path::new("/proc/stat"));
    let spin = std::thread::Builder::new().name("noise".to_owned()).spawn(move || {
        if let Some(cpu) = cpu.map(|cpu| cpu as usize).filter(|&cpu| cpu < rustix::thread::CpuSet::MAX_CPU) {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            // Without permission to pin, the noise floor of any CPU is better than none.
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
    let queue = File::open("/proc/thread-self/schedstat").ok();
    let waited_ns = || queue.as_ref().and_then(run_delay_ns).unwrap_or(0);
    let mut waited_before_ns = waited_ns();
    let start = monotonic_ns();
    let end = start.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    let mut noise = Noise::default();
    let mut last = start;
    while last < end {
        let now = monotonic_ns();
        let mut gap_ns = now.saturating_sub(last);
        last = now;
        if gap_ns > GAP_NS {
            let waited_after_ns = waited_ns();
            gap_ns = gap_ns.saturating_sub(waited_after_ns.saturating_sub(waited_before_ns));
            waited_before_ns = waited_after_ns;
            // The read of schedstat above must not count as a gap of the machine.
            last = monotonic_ns();
        }
        if gap_ns > GAP_NS {
            noise.gaps += 1;
            noise.gaps_total_ns += gap_ns;
        }
        noise.gap_ns_max = noise.gap_ns_max.max(gap_ns);
    }
    noise.spin_ns = last - start;
    noise
}

/// The second number of schedstat: time runnable but not running. `None` if the kernel does not count it.
fn run_delay_ns(file: &File) -> Option<u64> {
    let mut bytes = [0; 96];
    let got = file.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(bytes.get(..got)?).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

fn steal_ns(path: &Path) -> Option<u64> {
    let tick_ns = 1_000_000_000 / i64::try_from(rustix::param::clock_ticks_per_second()).ok()?.max(1);
    stat::steal_ns(&std::fs::read(path).ok()?, tick_ns)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{measure, run_delay_ns};

    #[test]
    fn run_delay_is_read_from_schedstat() {
        let file = std::fs::File::open("/proc/thread-self/schedstat");
        if let Ok(file) = file {
            assert!(run_delay_ns(&file).is_some());
        }
        let other = std::fs::File::open("/proc/self/comm").expect("/proc is mounted");
        assert_eq!(run_delay_ns(&other), None);
    }

    #[test]
    fn a_spin_lasts_as_asked_and_its_gaps_fit_into_it() {
        let noise = measure(Some(0), Duration::from_millis(50));
        assert!(noise.spin_ns >= 50_000_000);
        assert!(noise.gap_ns_max > 0 && noise.gap_ns_max <= noise.spin_ns);
        assert!(noise.gaps_total_ns <= noise.spin_ns);
    }
}

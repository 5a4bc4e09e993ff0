//! Restricts an emulating QEMU to one host CPU, so that the guest's CPUs and its devices do not run in parallel.
//!
//! With one thread for all of a guest's CPUs, QEMU before 8.1 omits the guest's memory barriers ("tcg: Do not elide
//! memory barriers for !CF_PARALLEL in system mode", c914d46d0a64, 8.1.0), but the thread that emulates the devices
//! still runs in parallel. The guest's driver and the emulated NVMe device then miss each other's doorbells
//! (drivers/nvme/host/pci.c: nvme_dbbuf_update_and_check_event needs its mb()), and the disk hangs until a command
//! times out, twice for 30 s. On a single host CPU both see each other's stores. Later versions are treated alike,
//! because asking for the version would run a program once more, as root and outside of the sandbox.

use rustix::thread::CpuSet;

/// A CPU that we may use, for an emulated guest. Different processes choose different CPUs by chance.
pub fn needed(accelerator: &str) -> Option<CpuSet> {
    (accelerator == "tcg").then(ours).flatten()
}

fn ours() -> Option<CpuSet> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let chosen = own.get(std::process::id() as usize % own.len().max(1))?;
    let mut one = CpuSet::new();
    one.set(*chosen);
    Some(one)
}

#[cfg(test)]
mod tests {
    use super::needed;
    use rustix::thread::CpuSet;

    #[test]
    fn an_emulated_guest_gets_one_cpu_and_a_kvm_guest_all() {
        let one = needed("tcg").expect("a process has a CPU");
        let allowed = rustix::thread::sched_getaffinity(None).expect("known");
        assert_eq!(one.count(), 1);
        assert!((0..CpuSet::MAX_CPU).all(|cpu| !one.is_set(cpu) || allowed.is_set(cpu)));
        assert!(needed("kvm").is_none());
    }
}

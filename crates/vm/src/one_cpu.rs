//! The CPU of the host that all of an emulating QEMU shares, so that a guest's CPUs and its devices do not run at once.
//!
//! With one thread for all of a guest's CPUs, QEMU before 8.1 leaves the guest's memory barriers out ("tcg: Do not elide memory barriers for
//! !CF_PARALLEL in system mode", c914d46d0a64, 8.1.0), but the thread of its devices still runs beside. A guest's driver and the
//! emulated nvme then miss each other's doorbells (drivers/nvme/host/pci.c: nvme_dbbuf_update_and_check_event needs its mb()), and
//! the disk stands still until a command times out, for 30 s twice. On one CPU of the host both see what the other has stored. Later
//! versions are treated alike: asking for the version would be one more run of a program, as root and outside of the sandbox.

use rustix::thread::CpuSet;

/// One that we may use, for an emulated guest; guests of several processes share them out by chance.
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
    fn an_emulated_guest_has_one_cpu_of_ours_and_one_under_kvm_all() {
        let one = needed("tcg").expect("a process has a CPU");
        let allowed = rustix::thread::sched_getaffinity(None).expect("known");
        assert_eq!(one.count(), 1);
        assert!((0..CpuSet::MAX_CPU).all(|cpu| !one.is_set(cpu) || allowed.is_set(cpu)));
        assert!(needed("kvm").is_none());
    }
}

//! Where a guest's CPUs and its devices may not run at once: QEMU before 8.1.
//!
//! With one thread for all of a guest's CPUs it leaves the guest's memory barriers out ("tcg: Do not elide memory barriers for !CF_PARALLEL
//! in system mode", c914d46d0a64, 8.1.0), but the thread of its devices still runs beside. A guest's driver and the emulated nvme
//! then miss each other's doorbells (drivers/nvme/host/pci.c: nvme_dbbuf_update_and_check_event needs its mb()), and the disk
//! stands still until a command times out, for 30 s twice. On one CPU of the host both see what the other has stored.

use std::process::{Command, Stdio};

use rustix::thread::CpuSet;

use crate::arch::Arch;

/// The first version that keeps the barriers.
const KEEPS_BARRIERS: (u32, u32) = (8, 1);

/// The CPU of the host that all of QEMU has to share, or none.
pub fn needed(arch: Arch, accelerator: &str) -> Option<CpuSet> {
    (accelerator == "tcg" && version(arch).is_none_or(|version| version < KEEPS_BARRIERS)).then(ours).flatten()
}

/// One that we may use; guests of several processes share them out by chance.
fn ours() -> Option<CpuSet> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let chosen = own.get(std::process::id() as usize % own.len().max(1))?;
    let mut one = CpuSet::new();
    one.set(*chosen);
    Some(one)
}

fn version(arch: Arch) -> Option<(u32, u32)> {
    let said = Command::new(arch.qemu()).arg("--version").stdin(Stdio::null()).output().ok()?;
    parse(std::str::from_utf8(&said.stdout).ok()?)
}

/// `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`.
fn parse(said: &str) -> Option<(u32, u32)> {
    let mut parts = said.split_once("version ")?.1.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{KEEPS_BARRIERS, ours, parse};

    #[test]
    fn versions_are_read_and_one_cpu_of_ours_is_chosen() {
        let old =
            "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003-2022 Fabrice Bellard";
        assert_eq!(parse(old), Some((7, 2)));
        assert_eq!(parse("QEMU emulator version 10.0.2"), Some((10, 0)));
        assert_eq!(parse("QEMU emulator version 9"), None);
        assert!(parse("").is_none() && (7, 2) < KEEPS_BARRIERS && (10, 0) > KEEPS_BARRIERS && (8, 0) < KEEPS_BARRIERS);
        let one = ours().expect("a process has a CPU");
        let allowed = rustix::thread::sched_getaffinity(None).expect("known");
        assert_eq!(one.count(), 1);
        assert!((0..rustix::thread::CpuSet::MAX_CPU).all(|cpu| !one.is_set(cpu) || allowed.is_set(cpu)));
    }
}

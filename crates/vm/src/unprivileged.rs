//! Runs QEMU as uid 65534 if root started it: an attacker who breaks out of a guest is then not root.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use flatwater_safefs::Dir;
use rustix::fs::{Gid, Mode, Uid};
use rustix::io::FdFlags;
use rustix::process::Signal;
use rustix::thread::CpuSet;

/// The kernel's overflow uid and gid (kernel/sys.c), which are the same everywhere.
const OVERFLOW_ID: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lets other users pass through this directory but not list it.
pub fn let_through(dir: &Dir) -> io::Result<()> {
    if is_root() {
        rustix::fs::fchmod(dir, Mode::from_raw_mode(0o711))?;
    }
    Ok(())
}

/// Gives a file for QEMU to the user that QEMU runs as. Its name remains under our control, because it is in our
/// directory.
pub fn give(file: &File) -> io::Result<()> {
    if is_root() {
        rustix::fs::fchown(file, Some(Uid::from_raw(OVERFLOW_ID)), Some(Gid::from_raw(OVERFLOW_ID)))?;
    }
    Ok(())
}

/// Configures the command: as root, it runs as uid 65534 but keeps the group that may use KVM. It can never gain
/// privileges, inherits no descriptor except the console's, runs only on `cpus` if given, and is killed when we exit.
pub fn start_unprivileged(command: &mut Command, console: &impl AsRawFd, cpus: Option<CpuSet>) {
    let (root, console) = (is_root(), console.as_raw_fd());
    let kvm = std::fs::metadata("/dev/kvm").ok().map(|meta| meta.gid()).filter(|gid| *gid != 0);
    let groups: Vec<Gid> = kvm.into_iter().map(Gid::from_raw).collect();
    // SAFETY: between fork and exec the closure only makes system calls with values prepared before, and allocates
    // nothing; the console's descriptor stays open until the caller has spawned.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // All our descriptors are close-on-exec; QEMU needs this one.
            rustix::io::fcntl_setfd(BorrowedFd::borrow_raw(console), FdFlags::empty())?;
            if let Some(cpus) = &cpus {
                rustix::thread::sched_setaffinity(None, cpus)?;
            }
            if root {
                rustix::thread::set_thread_groups(&groups)?;
                rustix::thread::set_thread_gid(Gid::from_raw(OVERFLOW_ID))?;
                rustix::thread::set_thread_uid(Uid::from_raw(OVERFLOW_ID))?;
                // Changing the ids clears it in the kernel.
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            }
            rustix::thread::set_no_new_privs(true)?;
            Ok(())
        });
    }
}

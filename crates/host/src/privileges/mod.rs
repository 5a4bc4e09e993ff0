//! Drops the capabilities that this process does not need after its hooks are attached. [`User`] selects the user of a
//! command.
//!
//! Capabilities belong to threads (capabilities(7)), and hooks are attached by a process that already has several: the
//! signal thread, the reader of the ring buffer, the sampler. Dropping before these start would mean attaching without
//! capabilities. So each thread is sent a signal and drops its own capabilities in the handler, like libcap's psx.
//! Afterwards the state of all threads is checked in /proc/self/task.

mod user;

use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, CapabilitySets};

pub use user::{User, UserError};

/// Why capabilities could not be dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivilegeError {
    #[error("cannot drop privileges: {what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error("cannot drop privileges: thread {tid} ({name}) still has them; please report this")]
    Kept { tid: i32, name: String },
}

/// Needed to follow programs after the hooks are attached: for updates of BPF maps (on kernels where these are
/// privileged), files of /proc/PID with ptrace access checks, and access through directories of other users.
const WATCHING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH);
/// Also needed to restore a run's setup: for umount and loop devices, for files below another user's directory given
/// with `-d`, and for locked pages and scheduling of the workloads.
const RESTORING: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE);
/// Needed for delay accounting over netlink (kernel/taskstats.c: GENL_ADMIN_PERM).
const COUNTING_TASKS: CapabilitySet = CapabilitySet::NET_ADMIN;
/// Also needed to attach hooks again, as the daemon does for a new threshold or a smaller budget: for the kernel's BPF
/// statistics and list of programs (kernel/bpf/syscall.c: bpf_enable_stats, bpf_obj_get_next_id), for maps' locked
/// memory before 5.11, and for addresses in /proc/kallsyms.
const ATTACHING: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_RESOURCE).union(CapabilitySet::SYSLOG);
/// The last capability of kernels before 5.8 (include/uapi/linux/capability.h: CAP_PERFMON is 38).
const LAST_BEFORE_PERFMON: u32 = 37;

/// The remaining work of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Restore a setup; only `run`.
    pub restoring: bool,
    /// Read delay accounting, because no hook could be attached.
    pub counting_tasks: bool,
    /// Attach other hooks later, and measure their cost; only `watch`.
    pub attaching: bool,
}

impl Needs {
    /// The capabilities to keep, if the process has them.
    #[must_use]
    pub fn capabilities(self) -> CapabilitySet {
        let mut keep = WATCHING;
        if self.restoring {
            keep |= RESTORING;
        }
        if self.counting_tasks {
            keep |= COUNTING_TASKS;
        }
        if self.attaching {
            keep |= ATTACHING;
        }
        if last_capability() <= LAST_BEFORE_PERFMON {
            // On these kernels CAP_SYS_ADMIN includes BPF and PERFMON.
            keep |= CapabilitySet::SYS_ADMIN;
        }
        keep
    }
}

fn last_capability() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
    text.trim().parse().unwrap_or(u32::MAX)
}

/// Interval between two checks of the signalled threads.
const LOOK: Duration = Duration::from_millis(1);
/// A thread in uninterruptible sleep handles its signal late, for example one that reads /proc on a hung machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// For the signal handler, which may only use atomics and system calls.
static KEEP: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicI32 = AtomicI32::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Drops, on every thread, all capabilities that are not needed any more. Sets no_new_privs, so that a program that
/// root executes cannot regain them (security/commoncap.c: cap_bprm_creds_from_file).
pub fn drop_on_all_threads(needs: Needs) -> Result<(), PrivilegeError> {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let failed = |what| move |source: io::Error| PrivilegeError::System { what, source };
    let keep = needs.capabilities();
    KEEP.store(keep.bits(), Ordering::SeqCst);
    FAILED.store(0, Ordering::SeqCst);
    let signal =
        free_signal().ok_or_else(|| failed("a signal")(io::Error::other("every real-time signal is taken")))?;
    let restored = Handler::set(signal).map_err(failed("the handler"))?;
    let until = Instant::now() + PATIENCE;
    let mut asked = BTreeSet::new();
    loop {
        // A thread that another thread created before it dropped its own is found in the next round.
        let having = threads_beyond(keep).map_err(failed("/proc/self/task"))?;
        let Some(&tid) = having.first() else { break };
        if let error @ 1.. = FAILED.load(Ordering::SeqCst) {
            return Err(failed("capset")(io::Error::from_raw_os_error(error)));
        }
        if Instant::now() > until {
            let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
            return Err(PrivilegeError::Kept { tid, name: name.trim().to_owned() });
        }
        for tid in having {
            if asked.insert(tid) {
                send(tid, signal);
            }
        }
        std::thread::sleep(LOOK);
    }
    drop(restored);
    Ok(())
}

/// Threads of this process that have more capabilities than `keep`, or could regain them by exec.
fn threads_beyond(keep: CapabilitySet) -> io::Result<Vec<i32>> {
    let mut beyond = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // The thread has ended.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let permitted = field("CapPrm:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(u64::MAX);
        let inheritable = field("CapInh:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(u64::MAX);
        // NoNewPrivs is shown since 4.10; before, rely on the handler's own result.
        let closed = field("NoNewPrivs:").is_none_or(|value| value == "1");
        // A zombie cannot use its capabilities.
        let ended = field("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
        if !ended && ((permitted | inheritable) & !keep.bits() != 0 || !closed) {
            beyond.push(tid);
        }
    }
    Ok(beyond)
}

extern "C" fn drop_own(_signal: libc::c_int) {
    // SAFETY: the address of this thread's own errno, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    if let Err(error) = drop_on_this_thread(CapabilitySet::from_bits_retain(KEEP.load(Ordering::SeqCst))) {
        FAILED.store(error.raw_os_error(), Ordering::SeqCst);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Makes only system calls and does not allocate, because it runs in a signal handler.
fn drop_on_this_thread(keep: CapabilitySet) -> rustix::io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let has = rustix::thread::capabilities(None)?;
    let left = CapabilitySets {
        effective: has.effective & keep,
        permitted: has.permitted & keep,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, left)
}

/// The installed handler; dropping it restores the signal's previous action.
struct Handler {
    signal: libc::c_int,
    before: libc::sigaction,
}

impl Handler {
    fn set(signal: libc::c_int) -> io::Result<Handler> {
        let handler: extern "C" fn(libc::c_int) = drop_own;
        // SAFETY: all fields of `sigaction` may be zero; the handler only makes system calls and uses atomics, and both
        // structures outlive the call.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            let mut before = std::mem::zeroed();
            if libc::sigaction(signal, &raw const action, &raw mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Handler { signal, before })
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // A thread that receives the signal only now must not end the process, as the default action would. SAFETY:
        // both structures outlive the calls.
        unsafe {
            if self.before.sa_sigaction == libc::SIG_DFL {
                self.before.sa_sigaction = libc::SIG_IGN;
            }
            libc::sigaction(self.signal, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// A real-time signal without a handler.
fn free_signal() -> Option<libc::c_int> {
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|&signal| {
        // SAFETY: the call fills a zeroed structure and changes nothing.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            let read = libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0;
            read && (now.sa_sigaction == libc::SIG_DFL || now.sa_sigaction == libc::SIG_IGN)
        }
    })
}

fn send(tid: i32, signal: libc::c_int) {
    // SAFETY: passes no pointer. If the thread has ended, the call fails, and the next round does not find the thread.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, signal) };
}

#[cfg(test)]
mod tests {
    use super::{ATTACHING, COUNTING_TASKS, Needs, RESTORING, WATCHING};
    use rustix::thread::CapabilitySet;

    #[test]
    fn a_recording_keeps_only_the_capabilities_to_follow_programs() {
        let old = if super::last_capability() <= 37 { CapabilitySet::SYS_ADMIN } else { CapabilitySet::empty() };
        assert_eq!(Needs::default().capabilities(), WATCHING | old);
        assert_eq!(WATCHING.bits(), (1 << 39) | (1 << 38) | (1 << 19) | (1 << 2), "capability.h");
        let all = Needs { restoring: true, counting_tasks: true, attaching: true }.capabilities();
        assert_eq!(all, WATCHING | RESTORING | COUNTING_TASKS | ATTACHING | old);
        for gone in [CapabilitySet::SYS_MODULE, CapabilitySet::SETUID, CapabilitySet::SYS_RAWIO, CapabilitySet::SETPCAP]
        {
            assert!(!all.contains(gone), "{gone:?}");
        }
    }
}

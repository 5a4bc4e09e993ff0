//! Which capabilities this process keeps once its hooks are attached, and as which user a command runs.
//!
//! Capabilities belong to threads (capabilities(7)), and the hooks can only be attached by a process that already has
//! threads: the one that waits for signals, the reader of the ring buffer, the sampler. Dropping before these start
//! would mean to attach without rights. So each thread is sent a signal and drops its own capabilities in the handler,
//! as libcap's psx does; afterwards /proc/self/task is read, and the threads' state is checked rather than assumed.

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

/// What following programs takes after the hooks are attached: updates of BPF maps (on kernels where these are not for
/// everybody), the readings of /proc/PID that ptrace's rules guard, and directories of other users on the way there.
const WATCHING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH);
/// What taking back a run's setup needs on top: umount and loop devices; directories and files below a directory of
/// another user that was named with `-d`; the locked pages and the scheduling of its workloads.
const RESTORING: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE);
/// Delay accounting is asked over netlink (kernel/taskstats.c: GENL_ADMIN_PERM).
const COUNTING_TASKS: CapabilitySet = CapabilitySet::NET_ADMIN;
/// What attaching again takes on top, as a daemon does it for a new threshold or a smaller budget: the counts of the
/// kernel's BPF statistics and its list of programs (kernel/bpf/syscall.c: bpf_enable_stats, bpf_obj_get_next_id),
/// memory that maps lock before 5.11, addresses in /proc/kallsyms.
const ATTACHING: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_RESOURCE).union(CapabilitySet::SYSLOG);
/// The first capability that a kernel before 5.8 does not know (include/uapi/linux/capability.h: CAP_PERFMON).
const LAST_BEFORE_PERFMON: u32 = 37;

/// What the process still has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Take back a setup: only `run`.
    pub restoring: bool,
    /// No hook could be attached: threads are counted instead.
    pub counting_tasks: bool,
    /// Attach other hooks later, and ask what they cost: only `watch`.
    pub attaching: bool,
}

impl Needs {
    /// The capabilities to keep, of those that the process has.
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
            // There BPF and PERFMON are a part of it.
            keep |= CapabilitySet::SYS_ADMIN;
        }
        keep
    }
}

fn last_capability() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
    text.trim().parse().unwrap_or(u32::MAX)
}

/// Interval between two checks of threads that were sent the signal.
const LOOK: Duration = Duration::from_millis(1);
/// A thread in uninterruptible sleep hears its signal late: one that reads /proc of a stuck machine, for instance.
const PATIENCE: Duration = Duration::from_secs(20);

/// For the handler, which may only touch atomics and make system calls.
static KEEP: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicI32 = AtomicI32::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Drops, on every thread, all capabilities that are not needed any more, and the way back to them: with no_new_privs a
/// program that root executes has no more than this process has (security/commoncap.c: cap_bprm_creds_from_file).
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
        // A thread that was made meanwhile by one that still had its rights is met in the next round.
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

/// Threads of ours that may still do more than this, or could get it back by executing something.
fn threads_beyond(keep: CapabilitySet) -> io::Result<Vec<i32>> {
    let mut beyond = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Gone meanwhile: it has no rights any more.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let permitted = field("CapPrm:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(u64::MAX);
        let inheritable = field("CapInh:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(u64::MAX);
        // NoNewPrivs is shown since 4.10: where it is not, the handler's own result has to do.
        let closed = field("NoNewPrivs:").is_none_or(|value| value == "1");
        // A zombie has rights that nobody can use.
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

/// System calls alone, and nothing allocated: it runs in a signal handler.
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

/// The handler as long as it is needed; then the signal is what it was.
struct Handler {
    signal: libc::c_int,
    before: libc::sigaction,
}

impl Handler {
    fn set(signal: libc::c_int) -> io::Result<Handler> {
        let handler: extern "C" fn(libc::c_int) = drop_own;
        // SAFETY: all fields of `sigaction` may be zero; the handler makes system calls and touches atomics alone, and
        // both structures outlive the call.
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
        // A thread that hears of the signal only now must not end the process: its default action would.
        // SAFETY: both structures outlive the calls.
        unsafe {
            if self.before.sa_sigaction == libc::SIG_DFL {
                self.before.sa_sigaction = libc::SIG_IGN;
            }
            libc::sigaction(self.signal, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// A real-time signal that nobody handles.
fn free_signal() -> Option<libc::c_int> {
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|&signal| {
        // SAFETY: a zeroed structure is filled by the call, which changes nothing.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            let read = libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0;
            read && (now.sa_sigaction == libc::SIG_DFL || now.sa_sigaction == libc::SIG_IGN)
        }
    })
}

fn send(tid: i32, signal: libc::c_int) {
    // SAFETY: takes no pointer. A thread that has ended meanwhile is no error: the next look does not find it.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, signal) };
}

#[cfg(test)]
mod tests {
    use super::{ATTACHING, COUNTING_TASKS, Needs, RESTORING, WATCHING};
    use rustix::thread::CapabilitySet;

    #[test]
    fn a_recording_keeps_what_watching_takes_and_no_more() {
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

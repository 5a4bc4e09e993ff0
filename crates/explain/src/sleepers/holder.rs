//! Finds the task that other tasks wait for, and its cause: the holder of a lock, the committing thread, or the
//! flusher.

use flatwater_recording::symbol::{cause_of, meaning};
use flatwater_recording::{Cause, SampledTask};

use super::{Group, NO_QUEUE_NS, Role, Sleeper, shown};

/// Frames that most stacks share, so that they do not relate two tasks.
const EVERYWHERE: &[&str] = &[
    "__schedule",
    "schedule",
    "io_schedule",
    "schedule_timeout",
    "schedule_preempt_disabled",
    "do_syscall_64",
    "do_syscall_x64",
    "system_call_fastpath",
    "syscall_return_slowpath",
    "entry_SYSCALL_64_after_hwframe",
    "ksys_write",
    "vfs_write",
    "new_sync_write",
    "do_sync_write",
    "__vfs_write",
    "ksys_read",
    "vfs_read",
    "kthread",
    "ret_from_fork",
    "ret_from_fork_asm",
    "kernel_thread",
    "child_rip",
    "process_one_work",
    "worker_thread",
    "down_read",
    "down_write",
    "mutex_lock",
    "do_sys_open",
    "do_filp_open",
    "do_sys_openat2",
    "path_openat",
    "sys_write",
    "sys_fsync",
    "do_fsync",
    "vfs_fsync",
    "vfs_fsync_range",
];

/// The reason of a group's wait.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    pub cause: Cause,
    /// The task that the group waits for, as an index into the sleepers.
    pub holder: usize,
    /// Whether the log names the holder; otherwise the stacks suggest it.
    pub named: bool,
    /// How the relation is known, for the evidence.
    pub because: String,
}

/// The last wait in the chain of this group's tasks, if another task's stack shows it.
pub(super) fn link(sleepers: &[Sleeper<'_>], group: &Group) -> Option<Link> {
    match group.cause {
        Cause::Lock => behind_lock(sleepers),
        Cause::JournalCommit | Cause::JournalBuffer => behind_commit(sleepers),
        Cause::PageWriteback => behind_flusher(sleepers, |cause| cause != Cause::PageWriteback),
        // A flusher that waits for its device is the normal case of throttling; if it waits for anything else, that
        // is the reason.
        Cause::DirtyThrottle => behind_flusher(sleepers, |cause| {
            matches!(
                cause,
                Cause::JournalCommit
                    | Cause::JournalBuffer
                    | Cause::JournalFull
                    | Cause::Lock
                    | Cause::PageAllocation
                    | Cause::DirectReclaim
                    | Cause::FsFreeze
            )
        }),
        _ => None,
    }
}

/// The lock's holder: named by the kernel (since 6.17), named by lockdep, or past the lock in the function that
/// takes it. A task in an outer function only may be the holder as well, but is not evidence of one.
fn behind_lock(sleepers: &[Sleeper<'_>]) -> Option<Link> {
    let waiters = || sleepers.iter().filter(|sleeper| sleeper.cause == Cause::Lock);
    let others = || sleepers.iter().enumerate().filter(|(_, sleeper)| sleeper.cause != Cause::Lock);
    let link = |at: usize, named: bool, because: &str| Link {
        cause: sleepers[at].cause,
        holder: at,
        named,
        because: because.to_owned(),
    };
    let owns = |holder: &Sleeper<'_>| {
        waiters().any(|waiter| {
            let owner = waiter.task.owner.as_deref().is_some_and(|owner| is_task(owner, holder.task));
            let lock = waiter.task.waits_for.as_deref();
            owner || lock.is_some_and(|lock| holder.task.holds.iter().any(|held| held.contains(lock)))
        })
    };
    if let Some((at, _)) = others().find(|(_, holder)| owns(holder)) {
        return Some(link(at, true, "the log names it as the holder of a lock that they wait for"));
    }
    let shared = |holder: &Sleeper<'_>| waiters().filter(|waiter| shares(waiter, holder)).count();
    let nearest = others().map(|(at, holder)| (shared(holder), at)).filter(|(shared, _)| *shared > 0);
    if let Some((_, at)) = nearest.max_by_key(|(shared, at)| (*shared, std::cmp::Reverse(*at))) {
        return Some(link(at, false, "it is in the function that takes the lock, and waits for something else"));
    }
    stuck_commit(sleepers)
}

/// A committing thread that hangs itself, on the device or for lack of memory: tasks that need the file system's
/// locks finally wait for the commit. Most waiters must be in a file system: others wait for locks that a commit does
/// not need (rtnl_mutex, a terminal's lock).
fn stuck_commit(sleepers: &[Sleeper<'_>]) -> Option<Link> {
    let still = |sleeper: &Sleeper<'_>| {
        matches!(
            sleeper.cause,
            Cause::DeviceWait
                | Cause::PageWriteback
                | Cause::RequestQueue
                | Cause::SynchronousRead
                | Cause::PageAllocation
                | Cause::DirectReclaim
        )
    };
    let hung = |sleeper: &Sleeper<'_>| sleeper.task.blocked_ns >= Some(NO_QUEUE_NS);
    let waiters = sleepers.iter().filter(|sleeper| sleeper.cause == Cause::Lock);
    let (inside, outside): (Vec<_>, Vec<_>) = waiters.partition(|waiter| is_in_file_system(waiter));
    if inside.len() <= outside.len() {
        return None;
    }
    let (at, thread) = sleepers
        .iter()
        .enumerate()
        .find(|(_, sleeper)| sleeper.role == Role::Commit && still(sleeper) && hung(sleeper))?;
    let because = "a committing thread hangs, and tasks that hold its file system's locks would wait for it".to_owned();
    Some(Link { cause: thread.cause, holder: at, named: false, because })
}

/// Whether a function of a file system, or of the VFS for names and inodes, is on the stack. vfs_write() and
/// vfs_ioctl() also serve terminals and sockets.
fn is_in_file_system(sleeper: &Sleeper<'_>) -> bool {
    const STARTS: &[&str] = &[
        "ext4_",
        "ext3_",
        "ext2_",
        "jbd2_",
        "journal_",
        "xfs_",
        "xlog_",
        "btrfs_",
        "f2fs_",
        "ocfs2_",
        "gfs2_",
        "nfs_",
        "reiserfs_",
        "jfs_",
        "vfs_fsync",
        "vfs_unlink",
        "vfs_rename",
        "vfs_mkdir",
        "vfs_rmdir",
        "do_unlinkat",
        "do_rename",
        "do_mkdir",
        "do_sys_open",
        "do_filp_open",
        "do_last",
        "path_",
        "lookup_",
        "__lookup",
        "filename_",
        "iterate_dir",
        "generic_file_",
        "sync_",
        "iterate_supers",
        "iput",
        "evict",
        "inode_",
    ];
    sleeper.frames.iter().any(|frame| STARTS.iter().any(|start| frame.starts_with(start)))
}

/// Whether a log's notation of a task (`java:4711`, `java(4711)`, `java/4711`) is this task.
fn is_task(printed: &str, task: &SampledTask) -> bool {
    let (name, pid) = printed.rsplit_once([':', '/', '(']).unwrap_or((printed, ""));
    let pid: Option<u32> = pid.trim_end_matches(')').parse().ok();
    match (pid, task.pid) {
        (Some(printed), Some(pid)) => printed == pid,
        _ => !name.is_empty() && name == task.task,
    }
}

/// Whether the holder is in the function in which the waiter takes the lock (the first caller outside the lock's
/// own functions).
fn shares(waiter: &Sleeper<'_>, holder: &Sleeper<'_>) -> bool {
    let lock = waiter.frames.iter().rposition(|frame| *frame == waiter.frame).map_or(0, |at| at.saturating_add(1));
    let of_lock = |frame: &str| {
        cause_of(frame) == Some(Cause::Lock)
            || frame.ends_with("lock")
            || frame.contains("_lock_")
            || frame.contains("down_")
    };
    let outside = waiter.frames.get(lock..).unwrap_or_default();
    let taker = outside.iter().find(|frame| !EVERYWHERE.contains(frame) && !of_lock(frame));
    taker.is_some_and(|frame| !is_entry(frame) && holder.frames.contains(frame))
}

fn is_entry(frame: &str) -> bool {
    ["__x64_sys_", "__arm64_sys_", "__se_sys_", "SyS_", "sys_", "el0", "do_el0", "invoke_syscall", "entry_", "__do_sys"]
        .iter()
        .any(|start| frame.starts_with(start))
}

/// The wait of the committing thread itself, below its commit function.
fn behind_commit(sleepers: &[Sleeper<'_>]) -> Option<Link> {
    let (at, thread) = sleepers.iter().enumerate().find(|(_, sleeper)| sleeper.role == Role::Commit)?;
    let own = ["jbd2_journal_commit_transaction", "journal_commit_transaction", "xlog_cil_push_work", "xfsaild"];
    let end = thread.frames.iter().position(|frame| own.contains(frame)).unwrap_or(thread.frames.len());
    let inner = meaning(&thread.frames[..end]).map(|known| known.cause);
    match inner {
        // Short waits for the device are part of every commit; only one that is too long for a queue is the reason.
        Some(Cause::DeviceWait) if thread.task.blocked_ns < Some(NO_QUEUE_NS) => None,
        Some(cause) if !matches!(cause, Cause::JournalCommit | Cause::JournalBuffer) => {
            let because = format!("a committing thread itself waits in {}", shown(&thread.frames[..end]));
            Some(Link { cause, holder: at, named: false, because })
        }
        // The commit waits until the last open handle is closed, and its owner sleeps elsewhere.
        _ if thread.cause == Cause::JournalCommit => handle_holder(sleepers),
        _ => None,
    }
}

fn handle_holder(sleepers: &[Sleeper<'_>]) -> Option<Link> {
    let journal = |cause| matches!(cause, Cause::JournalCommit | Cause::JournalBuffer | Cause::JournalFull);
    let in_file_system = |sleeper: &Sleeper<'_>| {
        sleeper.frames.iter().any(|frame| frame.starts_with("ext4_") || frame.starts_with("ext3_"))
    };
    let (at, holder) = sleepers
        .iter()
        .enumerate()
        .find(|(_, sleeper)| sleeper.role != Role::Commit && !journal(sleeper.cause) && in_file_system(sleeper))?;
    let because = "the commit waits until every open handle is closed, and this task may have one open".to_owned();
    Some(Link { cause: holder.cause, holder: at, named: false, because })
}

fn behind_flusher(sleepers: &[Sleeper<'_>], is_reason: impl Fn(Cause) -> bool) -> Option<Link> {
    let (at, flusher) =
        sleepers.iter().enumerate().find(|(_, sleeper)| sleeper.role == Role::Flusher && is_reason(sleeper.cause))?;
    let because = "a flusher itself waits there, perhaps that of another device".to_owned();
    Some(Link { cause: flusher.cause, holder: at, named: false, because })
}

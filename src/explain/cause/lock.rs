//! lock: the call waits for a kernel lock that another thread holds.

use super::CauseEntry;
use crate::explain::facts::Facts;
use crate::explain::{Finding, Fix, finding};
use crate::recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "lock",
    span: Some(Cause::Lock),
    headline: "the call waits for a lock that another thread holds",
    mechanism: "write() takes the inode's i_rwsem exclusively for its whole length (i_mutex before 4.7), so two \
        writers of one file go one after the other, and whatever stops the first (reclaim, throttling, a read) \
        stops all. A rename or unlink holds the directories' i_rwsem; fork, mmap and faults share mmap_lock; \
        truncate holds invalidate_lock (5.15).",
    kernels: "All; the tracepoints lock:contention_begin and _end since 5.19.",
    in_spans: "Exact: between contention_begin and contention_end, or a sleep in rwsem_down_read_slowpath, \
        rwsem_down_write_slowpath, __mutex_lock.",
    in_counters: "Context switches and idle CPU rise together without I/O; `perf lock report` names the lock.",
    against: "Waiting for a page or a buffer (folio_lock, bit waits) that is under I/O: that is the device, not a \
        lock.",
    fix: "One file per writer, or one thread that writes for all; move what holds the lock long (truncate of a \
        large file, a directory of a million entries, slow reclaim inside write()) elsewhere. Mend what the holder \
        waits for: it is usually another finding of the same recording.",
    prove: "The kernel stack shows which lock; with one writer per file the part goes.",
    sources: &[
        "kernel/locking/rwsem.c: rwsem_down_write_slowpath",
        "fs/ext4/file.c: ext4_buffered_write_iter",
        "include/trace/events/lock.h",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes =
        [Fix::advice("give each writer a file of its own, and look what the holder of the lock was waiting for")];
    finding::from_spans(facts, Cause::Lock, ENTRY.headline, fixes)
}

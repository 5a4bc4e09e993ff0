//! Names the lock that a stack waits for, and its usual holder, by the frame above the lock's slow path.

use crate::facts::{CauseSum, Facts};
use crate::{Evidence, Fix};
use flatwater_recording::Stack;
use flatwater_recording::units::Nanos;

/// One place in the kernel that takes a well-known lock.
pub struct LockName {
    /// A stack with any of these functions is at this place.
    places: &'static [&'static str],
    pub lock: &'static str,
    /// What usually holds the lock.
    pub holder: &'static str,
    pub fix: &'static str,
}

/// Searched for each frame from the innermost outwards, so that the first frame with an entry counts: a write()
/// that waits for blocks already holds i_rwsem and does not wait for it.
pub const LOCKS: &[LockName] = &[
    // fs/ext4/inode.c, 6.18: the extent status tree is searched first, without the lock. i_data_sem is taken only
    // for a block that is unknown there or known as a hole; ext4_map_blocks of the flusher takes it for writing.
    LockName {
        places: &["ext4_da_get_block_prep", "ext4_da_map_blocks", "ext4_map_blocks", "ext4_map_create_blocks"],
        lock: "i_data_sem, the map of this file's blocks (ext4)",
        holder: "the flusher, while it gives this file's delayed pages their blocks (ext4_do_writepages), or a \
            truncate",
        fix: "preallocate the file (fallocate): a block that is mapped already is found without this lock",
    },
    LockName {
        places: &["xfs_ilock", "xfs_ilock_for_iomap", "xfs_ilock_iocb"],
        lock: "the inode's lock (xfs)",
        holder: "another writer of the same file, or the flusher while it allocates the file's blocks",
        fix: "one writer per file, and preallocate it (fallocate)",
    },
    // mm/filemap.c: a page is locked while it is read, and while writeback maps it to blocks.
    LockName {
        places: &[
            "__filemap_get_folio",
            "__filemap_get_folio_mpol",
            "grab_cache_page_write_begin",
            "pagecache_get_page",
        ],
        lock: "the lock of a page of this file",
        holder: "a read of that page which has not ended, or the flusher while it maps the page to blocks",
        fix: "write whole pages and keep those ahead of the writer locked in memory; read nothing ahead that cannot \
            stay",
    },
    // include/linux/fs.h: inode_lock() is down_write(&inode->i_rwsem).
    LockName {
        places: &["ext4_buffered_write_iter", "generic_file_write_iter", "btrfs_inode_lock", "ext4_dio_write_iter"],
        lock: "i_rwsem of the file",
        holder: "another writer of the same file, or its truncate or fallocate",
        fix: "one writer per file, or one thread that writes for all",
    },
    LockName {
        places: &["do_truncate", "vfs_fallocate", "ext4_fallocate", "do_fsync", "ext4_sync_file"],
        lock: "i_rwsem of the file",
        holder: "a writer of the same file",
        fix: "do not resize a file while others write it",
    },
    LockName {
        places: &["lock_rename", "lock_two_directories", "do_unlinkat", "do_rmdir", "filename_create", "path_openat"],
        lock: "i_rwsem of the directory",
        holder: "another create, rename or unlink in the same directory",
        fix: "spread the files over several directories",
    },
    LockName {
        places: &[
            "lock_mm_and_find_vma",
            "do_user_addr_fault",
            "vm_mmap_pgoff",
            "__vm_munmap",
            "dup_mmap",
            "do_mprotect_pkey",
            "do_madvise",
            "mmap_write_lock_killable",
        ],
        lock: "mmap_lock of the process",
        holder: "another thread of the process in mmap, munmap, mprotect or fork",
        fix: "map and unmap outside the threads that must not wait, or in another process",
    },
    LockName {
        places: &["folio_lruvec_lock_irqsave", "folio_batch_move_lru", "lru_add_drain_cpu", "shrink_inactive_list"],
        lock: "lru_lock of the node's or the cgroup's page lists",
        holder: "threads that reclaim, or add and drop pages, in the same node and cgroup",
        fix: "fix the reclaim; the lock wait is its consequence",
    },
    LockName {
        places: &["pipe_write", "pipe_read", "anon_pipe_write", "anon_pipe_read"],
        lock: "the pipe's mutex",
        holder: "its other end",
        fix: "one pipe per pair of threads",
    },
];

/// The lock with most of the cause's time, and its time in ns.
pub fn most(facts: &Facts<'_>, sum: &CauseSum) -> Option<(&'static LockName, u64)> {
    let mut ns_of = vec![0_u64; LOCKS.len()];
    for (&id, &ns) in &sum.by_stack_ns {
        let frames = facts.recording.stack(id).map(|stack| stack.frames.as_slice()).unwrap_or_default();
        if let Some(index) = frames.iter().find_map(|frame| of_frame(frame)) {
            ns_of[index] = ns_of[index].saturating_add(ns);
        }
    }
    let (index, &ns) = ns_of.iter().enumerate().max_by_key(|&(index, ns)| (ns, std::cmp::Reverse(index)))?;
    (ns > 0).then(|| (&LOCKS[index], ns))
}

fn of_frame(frame: &str) -> Option<usize> {
    LOCKS.iter().position(|lock| lock.places.contains(&frame))
}

/// The lock that a thread with this stack waits for.
pub fn of_stack(stack: &Stack) -> Option<&'static LockName> {
    stack.frames.iter().find_map(|frame| of_frame(frame)).and_then(|index| LOCKS.get(index))
}

/// The evidence of a finding about this lock.
pub fn evidence(sum: &CauseSum, lock: &LockName, ns: u64) -> Evidence {
    let share = 100.0 * ns as f64 / sum.lost_ns.max(1) as f64;
    let text =
        format!("{} ({share:.0} %) waiting for {}, which is usually held by {}", Nanos(ns), lock.lock, lock.holder);
    Evidence::new(text, ns as f64, "ns")
}

pub fn fix(lock: &LockName) -> Fix {
    Fix::advice(lock.fix)
}

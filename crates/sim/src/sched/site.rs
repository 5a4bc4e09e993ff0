//! Where in the kernel a simulated thread spends or loses time: a site has a cause and a stack of function names,
//! innermost first, as a tracer would report it. The stacks do not have every frame.
//!
//! The stack depends on the kernel's generation: shrink_mmap of 2.2 is shrink_inactive_list in 2.6 and
//! shrink_folio_list in 6.x. A refill is called by the allocation of that kind of object.

use crate::mm::slab::CacheKind;
use flatwater_recording::Cause;

/// Kernels whose functions have the same names in the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    V2_2,
    /// 2.6.17 to 2.6.32.
    V2_6,
    /// 6.1 and later: folios.
    #[default]
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The call's own work.
    Work,
    RunQueue,
    Interrupt,
    /// Waits for the node's slab list lock inside a refill.
    SlabListLock(CacheKind),
    /// Waits for the same lock again, after the node's slabs could not grow.
    SlabNodeLock(CacheKind),
    /// Waits for the lock of another node, after the local node had no object.
    SlabRemoteLock(CacheKind),
    SlabGrow(CacheKind),
    DirectReclaim,
    NodeReclaim,
    MemcgReclaim,
    /// Sleeps until pages have been written (cgroup v1).
    MemcgThrottle,
    /// Waits for a folio that reclaim finds under writeback a second time (cgroup v1).
    MemcgWriteback,
    ShrinkSlab,
    CongestionWait,
    BalanceDirty,
    /// A throttled writer that submits pages itself and finds the queue full (2.6.17).
    GetRequestWait,
    GetRequestRead,
    ReadWait,
    FaultWait,
    MetadataRead,
    CommitWait,
    JournalBuffer,
    SyncWait,
    /// Waits for a file system's pages, in sync() and syncfs().
    SyncfsWait,
    UserLock,
    /// ext2's superblock lock, while another task allocates under it (2.2).
    SuperLock,
    /// Reclaim inside an allocation (2.2).
    FreePages,
}

impl Site {
    #[must_use]
    pub fn cause(self) -> Cause {
        match self {
            Site::Work => Cause::Compute,
            Site::RunQueue => Cause::RunQueue,
            Site::Interrupt => Cause::Interrupt,
            Site::SlabListLock(_) | Site::SlabNodeLock(_) | Site::SlabRemoteLock(_) | Site::SlabGrow(_) => {
                Cause::SlabRefill
            }
            Site::DirectReclaim | Site::FreePages => Cause::DirectReclaim,
            Site::NodeReclaim => Cause::NodeReclaim,
            Site::MemcgReclaim | Site::MemcgThrottle | Site::MemcgWriteback => Cause::MemcgReclaim,
            Site::ShrinkSlab => Cause::Shrinker,
            Site::CongestionWait => Cause::ReclaimThrottle,
            Site::BalanceDirty => Cause::DirtyThrottle,
            Site::GetRequestWait | Site::GetRequestRead => Cause::RequestQueue,
            Site::ReadWait | Site::FaultWait | Site::MetadataRead => Cause::SynchronousRead,
            Site::CommitWait => Cause::JournalCommit,
            Site::JournalBuffer => Cause::JournalBuffer,
            Site::SyncWait | Site::SyncfsWait => Cause::DeviceSlow,
            Site::UserLock | Site::SuperLock => Cause::Lock,
        }
    }

    /// The stack in kernels of this generation, innermost first; empty for the call's own work.
    #[must_use]
    pub fn frames(self, of: Generation) -> Vec<&'static str> {
        match self {
            Site::SlabListLock(kind) | Site::SlabNodeLock(kind) | Site::SlabRemoteLock(kind) | Site::SlabGrow(kind) => {
                [self.slab_frames(of), allocator_of(kind)].concat()
            }
            _ if of == Generation::V6 => self.frames_of_6().unwrap_or_else(|| self.frames_of_2()).to_vec(),
            _ => self.frames_of_2().to_vec(),
        }
    }

    /// mm/slab.c of 2.6; mm/slub.c of 6.x, which has one lock a node and neither refill nor fallback.
    fn slab_frames(self, of: Generation) -> &'static [&'static str] {
        match (self, of) {
            (Site::SlabGrow(_), Generation::V6) => &["new_slab", "___slab_alloc", "kmem_cache_alloc"],
            (_, Generation::V6) => &["_raw_spin_lock_irqsave", "get_partial_node", "___slab_alloc", "kmem_cache_alloc"],
            (Site::SlabGrow(_), _) => &["cache_grow", "cache_alloc_refill", "kmem_cache_alloc"],
            (Site::SlabNodeLock(_), _) => &["_spin_lock", "____cache_alloc_node", "kmem_cache_alloc"],
            (Site::SlabRemoteLock(_), _) => {
                &["_spin_lock", "____cache_alloc_node", "fallback_alloc", "kmem_cache_alloc"]
            }
            _ => &["_spin_lock", "cache_alloc_refill", "kmem_cache_alloc"],
        }
    }

    /// 2.2 and 2.6: the names of 2.6.32, and of 2.2.1 for sites that only 2.2 has.
    fn frames_of_2(self) -> &'static [&'static str] {
        match self {
            Site::RunQueue => &["schedule"],
            Site::Interrupt => {
                &["end_bio_bh_io_sync", "bio_endio", "blk_update_request", "blk_done_softirq", "__do_softirq"]
            }
            Site::DirectReclaim => &["shrink_page_list", "shrink_zone", "try_to_free_pages", "__alloc_pages_slowpath"],
            Site::NodeReclaim => &["shrink_page_list", "shrink_zone", "__zone_reclaim", "get_page_from_freelist"],
            Site::ShrinkSlab => &["prune_icache", "shrink_slab", "try_to_free_pages", "__alloc_pages_slowpath"],
            Site::CongestionWait => &["io_schedule_timeout", "congestion_wait", "try_to_free_pages"],
            Site::BalanceDirty => &["io_schedule_timeout", "balance_dirty_pages", "balance_dirty_pages_ratelimited"],
            Site::GetRequestWait => {
                &["io_schedule", "get_request_wait", "__make_request", "mpage_writepages", "balance_dirty_pages"]
            }
            Site::GetRequestRead => &["io_schedule", "get_request_wait", "__make_request", "submit_bh"],
            Site::ReadWait => &["io_schedule", "sync_page", "wait_on_page_bit", "do_generic_file_read"],
            Site::FaultWait => &["io_schedule", "wait_on_page_bit", "filemap_fault", "__do_fault"],
            Site::MetadataRead => &["io_schedule", "__wait_on_buffer", "bread"],
            Site::CommitWait => &["schedule", "log_wait_commit", "ext3_sync_file"],
            Site::JournalBuffer => &["schedule", "do_get_write_access", "journal_get_write_access", "ext3_dirty_inode"],
            Site::SyncWait => &["io_schedule", "wait_on_page_bit", "filemap_fdatawait", "do_fsync"],
            Site::SyncfsWait => {
                &["io_schedule", "wait_on_page_bit", "filemap_fdatawait", "sync_inodes_sb", "sync_filesystem"]
            }
            Site::UserLock => &["futex_wait"],
            Site::SuperLock => &["schedule", "__wait_on_super", "ext2_new_block"],
            Site::FreePages => &["shrink_mmap", "do_try_to_free_pages", "try_to_free_pages", "__get_free_pages"],
            _ => &[],
        }
    }

    /// The names of 6.1, where they differ.
    fn frames_of_6(self) -> Option<&'static [&'static str]> {
        Some(match self {
            Site::Interrupt => &["ext4_end_bio", "bio_endio", "blk_update_request", "blk_done_softirq", "__do_softirq"],
            Site::DirectReclaim => {
                &["shrink_folio_list", "shrink_lruvec", "shrink_node", "try_to_free_pages", "__alloc_pages_slowpath"]
            }
            Site::NodeReclaim => {
                &["shrink_folio_list", "shrink_lruvec", "shrink_node", "__node_reclaim", "get_page_from_freelist"]
            }
            Site::MemcgReclaim => {
                &["shrink_folio_list", "shrink_lruvec", "try_to_free_mem_cgroup_pages", "try_charge_memcg"]
            }
            Site::MemcgThrottle => &[
                "schedule_timeout",
                "reclaim_throttle",
                "shrink_lruvec",
                "try_to_free_mem_cgroup_pages",
                "try_charge_memcg",
            ],
            Site::MemcgWriteback => &[
                "io_schedule",
                "folio_wait_writeback",
                "shrink_folio_list",
                "shrink_lruvec",
                "try_to_free_mem_cgroup_pages",
                "try_charge_memcg",
            ],
            Site::ShrinkSlab => {
                &["prune_icache_sb", "do_shrink_slab", "shrink_slab", "shrink_node", "try_to_free_pages"]
            }
            Site::CongestionWait => &["schedule_timeout", "reclaim_throttle", "do_try_to_free_pages"],
            Site::BalanceDirty => {
                &["io_schedule_timeout", "balance_dirty_pages", "balance_dirty_pages_ratelimited_flags"]
            }
            Site::GetRequestWait => &["io_schedule", "blk_mq_get_tag", "blk_mq_submit_bio", "ext4_writepages"],
            Site::GetRequestRead => &["io_schedule", "blk_mq_get_tag", "blk_mq_submit_bio", "submit_bh"],
            Site::ReadWait => &["io_schedule", "folio_wait_bit_common", "filemap_get_pages", "filemap_read"],
            Site::FaultWait => &["io_schedule", "folio_wait_bit_common", "filemap_fault", "__do_fault"],
            Site::MetadataRead => &["io_schedule", "bit_wait_io", "__wait_on_buffer", "ext4_read_bh"],
            Site::CommitWait => &["schedule", "jbd2_log_wait_commit", "ext4_sync_file"],
            Site::JournalBuffer => {
                &["schedule", "do_get_write_access", "jbd2_journal_get_write_access", "ext4_dirty_inode"]
            }
            Site::SyncWait => &["io_schedule", "folio_wait_writeback", "file_write_and_wait_range", "do_fsync"],
            Site::SyncfsWait => &["io_schedule", "folio_wait_writeback", "__filemap_fdatawait_range", "sync_inodes_sb"],
            _ => return None,
        })
    }
}

/// The callers that allocate an object of this kind.
fn allocator_of(kind: CacheKind) -> &'static [&'static str] {
    match kind {
        CacheKind::BufferHead => &["alloc_buffer_head", "alloc_page_buffers"],
        CacheKind::Inode => &["alloc_inode", "new_inode"],
        CacheKind::Dentry => &["d_alloc", "do_lookup"],
        CacheKind::RadixNode => &["radix_tree_node_alloc", "radix_tree_insert", "add_to_page_cache_locked"],
    }
}

/// The outermost function of every site: the entry of the call.
pub fn call_root(op: flatwater_recording::OpKind) -> &'static str {
    use flatwater_recording::OpKind;
    match op {
        OpKind::Read => "vfs_read",
        OpKind::Write => "vfs_write",
        OpKind::Fsync | OpKind::Fdatasync => "do_fsync",
        OpKind::PageFault => "handle_mm_fault",
        OpKind::Create | OpKind::Open => "do_sys_open",
        OpKind::Stat => "vfs_stat",
        OpKind::Unlink => "do_unlinkat",
        OpKind::Rename => "do_renameat",
        OpKind::Mkdir => "do_mkdirat",
        OpKind::List => "vfs_readdir",
        OpKind::Lock => "sys_futex",
        OpKind::Spawn => "do_fork",
        _ => "system_call",
    }
}

#[cfg(test)]
mod tests {
    use super::{Generation, Site};
    use crate::mm::slab::{CACHES, CacheKind};
    use flatwater_recording::symbol::{cause_of, meaning_inside};
    use flatwater_recording::{Cause, Ends};

    #[test]
    fn a_stack_depends_on_the_kernel_and_the_object() {
        let old = Site::DirectReclaim.frames(Generation::V2_6);
        let new = Site::DirectReclaim.frames(Generation::V6);
        assert!(old.contains(&"shrink_zone") && !new.contains(&"shrink_zone"), "{new:?}");
        let dentry = Site::SlabListLock(CacheKind::Dentry).frames(Generation::V2_6);
        assert_eq!(dentry[..3], ["_spin_lock", "cache_alloc_refill", "kmem_cache_alloc"]);
        assert!(dentry.contains(&"d_alloc") && !dentry.contains(&"alloc_buffer_head"), "{dentry:?}");
        for site in [Site::SlabListLock(CacheKind::Inode), Site::SlabRemoteLock(CacheKind::Inode)] {
            assert!(!site.frames(Generation::V6).contains(&"cache_alloc_refill"), "SLUB has no refill");
        }
        assert!(Site::Work.frames(Generation::V6).is_empty());
    }

    /// All sites; a site missing here does not compile.
    fn all() -> Vec<Site> {
        let listed = |site: Site| match site {
            Site::Work | Site::RunQueue | Site::Interrupt | Site::SlabListLock(_) | Site::SlabNodeLock(_) => (),
            Site::SlabRemoteLock(_) | Site::SlabGrow(_) | Site::DirectReclaim | Site::NodeReclaim => (),
            Site::MemcgReclaim | Site::MemcgThrottle | Site::MemcgWriteback | Site::ShrinkSlab => (),
            Site::CongestionWait | Site::BalanceDirty | Site::GetRequestWait | Site::GetRequestRead => (),
            Site::ReadWait | Site::FaultWait | Site::MetadataRead | Site::CommitWait => (),
            Site::JournalBuffer | Site::SyncWait | Site::UserLock | Site::SuperLock => (),
            Site::FreePages | Site::SyncfsWait => (),
        };
        let of_cache = CACHES.into_iter().flat_map(|kind| {
            [Site::SlabListLock(kind), Site::SlabNodeLock(kind), Site::SlabRemoteLock(kind), Site::SlabGrow(kind)]
        });
        let mut sites: Vec<Site> = of_cache.collect();
        sites.extend([Site::Work, Site::RunQueue, Site::Interrupt, Site::DirectReclaim, Site::NodeReclaim]);
        sites.extend([Site::MemcgReclaim, Site::MemcgThrottle, Site::MemcgWriteback, Site::ShrinkSlab]);
        sites.extend([Site::CongestionWait, Site::BalanceDirty, Site::GetRequestWait, Site::GetRequestRead]);
        sites.extend([Site::ReadWait, Site::FaultWait, Site::MetadataRead, Site::CommitWait]);
        sites.extend([Site::JournalBuffer, Site::SyncWait, Site::UserLock, Site::SuperLock]);
        sites.extend([Site::FreePages, Site::SyncfsWait]);
        sites.iter().for_each(|&site| listed(site));
        sites
    }

    /// The cause that the tracer of a real kernel reports for a thread waiting below these frames: from its innermost
    /// bracketed function, and the function that names the wait (crates/host/src/tracer/attribution.rs).
    fn cause_by_stack(frames: &[&str]) -> Option<Cause> {
        let bracketed = |cause: &Cause| cause.spec().brackets.iter().any(|of| !matches!(of.ends, Ends::Function(_)));
        // A lock's bracket is the lock itself; other brackets include the functions below.
        let bracket = frames.iter().filter_map(|frame| cause_of(frame)).find(bracketed).filter(|&of| of != Cause::Lock);
        let own = meaning_inside(frames, bracket).map(|meaning| meaning.cause);
        let own = own.filter(|own| !bracket.is_some_and(|bracket| own.spec().belongs_to.contains(&bracket)));
        own.or(bracket)
    }

    #[test]
    fn every_site_has_the_cause_that_its_stack_has_by_the_specs() {
        let mut checked = 0;
        for generation in [Generation::V2_2, Generation::V2_6, Generation::V6] {
            for site in all() {
                let (cause, frames) = (site.cause(), site.frames(generation));
                let unnamed = cause.spec().symbols.is_empty() && cause.spec().brackets.is_empty();
                // A site that these kernels lack, or a cause that a stack does not show (on the CPU, in the device).
                if frames.is_empty() || unnamed {
                    continue;
                }
                let by_stack = match site {
                    // The model knows which lock it is; a stack of 2.6 only that it is a lock.
                    Site::SlabListLock(_) | Site::SlabNodeLock(_) | Site::SlabRemoteLock(_)
                        if frames.first() == Some(&"_spin_lock") =>
                    {
                        Cause::Lock
                    }
                    _ => cause,
                };
                assert_eq!(cause_by_stack(&frames), Some(by_stack), "{site:?} in {generation:?}: {frames:?}");
                checked += 1;
            }
        }
        assert!(checked > 90, "{checked}");
    }
}

//! Where in the kernel a simulated thread spends or loses time: a site is a cause and a stack of function names,
//! innermost first, as a tracer would have taken it. The stacks are outlines, not every frame.

use flatwater_recording::Cause;

macro_rules! sites {
    ($($(#[$doc:meta])* $variant:ident: $cause:ident, [$($frame:literal),*];)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Site { $($(#[$doc])* $variant),* }

        impl Site {
            pub const ALL: &[Site] = &[$(Site::$variant),*];

            #[must_use]
            pub fn cause(self) -> Cause {
                match self { $(Site::$variant => Cause::$cause),* }
            }

            #[must_use]
            pub fn frames(self) -> &'static [&'static str] {
                match self { $(Site::$variant => &[$($frame),*]),* }
            }
        }
    };
}

sites! {
    /// The call's own work.
    Work: Compute, [];
    RunQueue: RunQueue, ["schedule"];
    Interrupt: Interrupt, ["end_bio_bh_io_sync", "bio_endio", "blk_update_request", "blk_done_softirq", "__do_softirq"];
    /// Waiting for the node's slab list lock inside a refill.
    SlabListLock: SlabRefill, ["_spin_lock", "cache_alloc_refill", "kmem_cache_alloc", "alloc_buffer_head", "alloc_page_buffers"];
    /// The same lock, on another node, after the local one had nothing.
    SlabRemoteLock: SlabRefill, ["_spin_lock", "____cache_alloc_node", "fallback_alloc", "kmem_cache_alloc", "alloc_buffer_head"];
    SlabGrow: SlabRefill, ["cache_grow", "cache_alloc_refill", "kmem_cache_alloc", "alloc_buffer_head"];
    DirectReclaim: DirectReclaim, ["shrink_page_list", "shrink_zone", "try_to_free_pages", "__alloc_pages_slowpath"];
    NodeReclaim: NodeReclaim, ["shrink_page_list", "shrink_zone", "__zone_reclaim", "get_page_from_freelist"];
    MemcgReclaim: MemcgReclaim, ["shrink_folio_list", "shrink_lruvec", "try_to_free_mem_cgroup_pages", "try_charge_memcg"];
    /// Asleep until the device has written something (cgroup v1).
    MemcgThrottle: MemcgReclaim, ["schedule_timeout", "reclaim_throttle", "shrink_lruvec", "try_to_free_mem_cgroup_pages", "try_charge_memcg"];
    /// For one folio that reclaim has met under writeback before (cgroup v1).
    MemcgWriteback: MemcgReclaim, ["io_schedule", "folio_wait_writeback", "shrink_folio_list", "shrink_lruvec", "try_to_free_mem_cgroup_pages", "try_charge_memcg"];
    ShrinkSlab: Shrinker, ["prune_icache", "shrink_slab", "try_to_free_pages", "__alloc_pages_slowpath"];
    CongestionWait: ReclaimThrottle, ["io_schedule_timeout", "congestion_wait", "try_to_free_pages"];
    BalanceDirty: DirtyThrottle, ["io_schedule_timeout", "balance_dirty_pages", "balance_dirty_pages_ratelimited"];
    /// A throttled writer that submits pages itself and finds the queue full (2.6.17).
    GetRequestWait: RequestQueue, ["io_schedule", "get_request_wait", "__make_request", "mpage_writepages", "balance_dirty_pages"];
    GetRequestRead: RequestQueue, ["io_schedule", "get_request_wait", "__make_request", "submit_bh"];
    ReadWait: SynchronousRead, ["io_schedule", "sync_page", "wait_on_page_bit", "do_generic_file_read"];
    FaultWait: SynchronousRead, ["io_schedule", "wait_on_page_bit", "filemap_fault", "__do_fault"];
    MetadataRead: SynchronousRead, ["io_schedule", "__wait_on_buffer", "bread"];
    PageWriteback: PageWriteback, ["io_schedule", "wait_on_page_bit", "wait_on_page_writeback"];
    CommitWait: JournalCommit, ["schedule", "jbd2_log_wait_commit", "ext4_sync_file"];
    JournalBuffer: JournalBuffer, ["schedule", "do_get_write_access", "jbd2_journal_get_write_access", "ext4_dirty_inode"];
    SyncWait: DeviceSlow, ["io_schedule", "wait_on_page_bit", "filemap_fdatawait_range", "do_fsync"];
    UserLock: Lock, ["futex_wait"];
    SwapIn: SwapIn, ["io_schedule", "swapin_readahead", "do_swap_page"];
    /// ext2's superblock, while somebody else allocates under it (2.2).
    SuperLock: Lock, ["schedule", "__wait_on_super", "ext2_new_block"];
    /// A locked buffer being written out (2.2).
    BufferWait: PageWriteback, ["schedule", "__wait_on_buffer", "getblk"];
    /// Reclaim inside an allocation (2.2).
    FreePages: DirectReclaim, ["shrink_mmap", "do_try_to_free_pages", "try_to_free_pages", "__get_free_pages"];
    PrecursorWait: SynchronousRead, ["io_schedule", "wait_on_page_bit", "prefetch"];
}

/// Stands under every site: the entry of the call.
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

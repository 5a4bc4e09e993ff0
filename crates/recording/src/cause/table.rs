//! The causes and their specs. To add a cause, see docs/adding.md.
//!
//! Function names without a version are those of 6.x. For an older name, a comment gives the last version with that
//! name, as far as we know.

use super::{CauseSpec, Hook, NoiseClass, Rank, asleep, by_system, function, seldom, symbols, tracepoints, written};

macro_rules! causes {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal { $($field:ident: $value:expr,)* })*) => {
        /// Why a thread made no progress during a segment of a call, or what it was busy with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "causes without a text are described by docs/causes.md")]
        pub enum Cause { $($(#[doc = $doc])* $variant),* }

        impl Cause {
            /// All causes in the order of their declaration.
            pub const ALL: &[Cause] = &[$(Cause::$variant),*];
        }

        pub(super) static SPECS: &[CauseSpec] = &[
            $(CauseSpec { $($field: $value,)* ..CauseSpec::new(Cause::$variant, $name) }),*
        ];
    };
}

const RECLAIM: &[Cause] = &[Cause::DirectReclaim, Cause::MemcgReclaim, Cause::NodeReclaim];
const SLEEP: &[Hook] = &[Hook::SchedSwitch];
const SAMPLE: &[Hook] = &[Hook::CpuClock];

causes! {
    DirectReclaim = "direct-reclaim" {
        brackets: &[seldom(tracepoints(
            "DIRECT_RECLAIM", "mm_vmscan_direct_reclaim_begin", "mm_vmscan_direct_reclaim_end",
        ))],
        symbols: &[
            symbols(Rank::Does, &[
                "try_to_free_pages", "__alloc_pages_direct_reclaim", "__perform_reclaim",
                // ZFS waits for the ARC to shrink (module/zfs/arc.c).
                "arc_wait_for_eviction", "arc_get_data_impl", "arc_get_data_buf",
            ]),
            symbols(Rank::Waits, &["__alloc_pages_may_oom", "out_of_memory"]),
        ],
        can_run: true,
        noise: NoiseClass::MemoryManagement,
    }
    MemcgReclaim = "memcg-reclaim" {
        brackets: &[
            seldom(tracepoints("MEMCG_RECLAIM", "mm_vmscan_memcg_reclaim_begin", "mm_vmscan_memcg_reclaim_end")),
            tracepoints(
                "SOFTLIMIT_RECLAIM", "mm_vmscan_memcg_softlimit_reclaim_begin", "mm_vmscan_memcg_softlimit_reclaim_end",
            ),
        ],
        symbols: &[symbols(Rank::Does, &[
            "try_to_free_mem_cgroup_pages", "mem_cgroup_soft_limit_reclaim", "memcg1_soft_limit_reclaim",
            "mem_cgroup_shrink_node", "mem_cgroup_hierarchical_reclaim", "mem_cgroup_reclaim", "try_charge_memcg",
            "mem_cgroup_oom_synchronize",
        ]), symbols(Rank::Does, by_system::MEMCG_RECLAIM)],
        can_run: true,
        noise: NoiseClass::MemoryManagement,
    }
    NodeReclaim = "node-reclaim" {
        brackets: &[seldom(tracepoints(
            "NODE_RECLAIM", "mm_vmscan_node_reclaim_begin", "mm_vmscan_node_reclaim_end",
        ))],
        // `zone_reclaim` until 4.7.
        symbols: &[symbols(Rank::Does, &["node_reclaim", "__node_reclaim", "zone_reclaim", "__zone_reclaim"])],
        can_run: true,
        noise: NoiseClass::MemoryManagement,
    }
    ReclaimThrottle = "reclaim-throttle" {
        // `reclaim_throttle` is new in 5.16; before, reclaim slept in `congestion_wait` or `wait_iff_congested`.
        symbols: &[
            symbols(Rank::Does, &[
                "reclaim_throttle", "throttle_direct_reclaim", "wait_iff_congested",
                // Until 4.9, at the end of a round of reclaim (mm/page-writeback.c): too many pages are under
                // writeback, including swap.
                "throttle_vm_writeout",
            ]),
            // balance_dirty_pages of 2.6 and loops of file systems (kmem_alloc of xfs) also sleep in these; they are
            // more specific.
            symbols(Rank::Waits, &["congestion_wait", "blk_congestion_wait"]),
        ],
        // Reclaim within a cgroup is throttled because of the cgroup's own dirty pages, global reclaim because of those
        // of all tasks. Only the latter counts as a separate cause.
        belongs_to: &[Cause::MemcgReclaim],
        noise: NoiseClass::MemoryManagement,
        hooks: SLEEP,
    }
    Compaction = "compaction" {
        brackets: &[seldom(tracepoints("COMPACTION", "mm_compaction_begin", "mm_compaction_end"))],
        symbols: &[
            symbols(Rank::Does, &[
            "compact_zone", "compact_zone_order", "try_to_compact_pages", "__alloc_pages_direct_compact",
            "migrate_pages", "migrate_pages_batch", "compaction_alloc", "isolate_migratepages_block",
            // The remaining functions of the two scanners and of page migration (mm/compaction.c, mm/migrate.c), as
            // profiles show them.
            "isolate_migratepages", "isolate_migratepages_range", "isolate_freepages", "isolate_freepages_block",
            "isolate_freepages_range", "fast_isolate_freepages", "fast_isolate_around", "fast_find_migrateblock",
            "split_map_pages", "split_free_pages", "release_freepages", "release_free_list", "compaction_free",
            "compact_finished", "__compact_finished", "compaction_suitable", "__compaction_suitable",
            "suitable_migration_source", "suitable_migration_target", "pageblock_pfn_to_page", "__pageblock_pfn_to_page",
            "update_pageblock_skip", "__reset_isolation_suitable", "__reset_isolation_pfn", "compact_node",
            "proactive_compact_node", "compact_pgdat", "kcompactd_do_work", "migrate_pages_sync", "unmap_and_move",
            "__unmap_and_move", "migrate_folio_unmap", "migrate_folio_move", "move_to_new_page", "move_to_new_folio",
            "migrate_page_copy", "folio_migrate_copy", "migrate_page_move_mapping", "folio_migrate_mapping",
            "__folio_migrate_mapping", "buffer_migrate_page", "buffer_migrate_folio", "remove_migration_pte",
            "remove_migration_ptes", "try_to_migrate", "try_to_migrate_one",
        ]),
            // A task that touches a page under migration waits here, below do_swap_page (mm/migrate.c).
            symbols(Rank::Refines, &[
                "migration_entry_wait", "__migration_entry_wait", "migration_entry_wait_on_locked",
            ]), symbols(Rank::Does, by_system::COMPACTION)],
        can_run: true,
        noise: NoiseClass::MemoryManagement,
    }
    Shrinker = "shrinker" {
        brackets: &[tracepoints("SHRINKER", "mm_shrink_slab_start", "mm_shrink_slab_end")],
        symbols: &[
            symbols(Rank::Does, &[
                "do_shrink_slab", "shrink_slab", "shrink_slab_memcg", "shrink_slab_node", "prune_icache_sb",
                "prune_dcache_sb", "super_cache_scan", "shrink_dentry_list", "xfs_reclaim_inodes_ag",
                "xfs_reclaim_inodes_nr", "deferred_split_scan", "ext4_es_scan",
                // Functions that shrinkers call, for the lists of a super block (mm/list_lru.c, fs/super.c; other
                // names in 2.6 and 3.x) ...
                "super_cache_count", "list_lru_count_one", "list_lru_count_node", "__list_lru_count_one",
                "list_lru_walk_one", "list_lru_walk_node", "__list_lru_walk_one", "inode_lru_isolate", "dentry_lru_isolate",
                "scan_shadow_nodes", "count_shadow_nodes", "shadow_lru_isolate", "prune_super", "prune_icache",
                "prune_dcache", "shrink_icache_memory", "shrink_dcache_memory", "shrink_dqcache_memory",
                // ... and for the caches of file systems, devices and drivers.
                "dqcache_shrink_scan", "mb_cache_scan", "mb_cache_shrink*", "jbd2_journal_shrink_scan", "ext4_es_shrink",
                "__es_shrink", "es_reclaim_extents", "xfs_reclaim_inodes_shrink", "xfs_buftarg_shrink_scan",
                "xfs_qm_shrink_scan", "xfs_inodegc_shrinker_scan", "nfs_access_cache_scan", "nfs_access_cache_shrinker",
                "nfs4_xattr_cache_scan", "nfsd_file_lru_scan", "nfsd_reply_cache_scan", "nfsd_client_shrinker_scan",
                "rpcauth_cache_shrink_scan", "gfs2_glock_shrink_scan", "gfs2_scan_glock_lru", "gfs2_qd_shrink_scan",
                "f2fs_shrink_scan", "ubifs_shrinker_scan", "shrink_tnc", "erofs_shrink_scan", "bch2_btree_cache_scan",
                "bch2_btree_key_cache_scan", "bch_mca_scan", "dm_bufio_shrink_scan", "dm_bufio_shrinker",
                "dmz_mblock_shrinker_scan", "raid5_cache_scan", "zs_shrinker_scan", "mmu_shrink_scan", "mmu_shrink",
                "i915_gem_shrink*", "ttm_pool_shrinker_scan", "ttm_pool_mm_shrink*",
                "msm_gem_shrinker_scan", "panfrost_gem_shrinker_scan", "drm_gem_lru_scan", "binder_shrink_scan",
                "binder_alloc_free_page", "ashmem_shrink_scan", "lowmem_scan", "lowmem_shrink",
                "virtio_balloon_shrinker_scan", "vmballoon_shrinker_scan", "kfree_rcu_shrink_scan",
                "lazy_rcu_shrink_scan", "shrink_huge_zero_page_scan", "lu_cache_shrink_scan", "ldlm_pools_cli_scan",
                "ldlm_pools_srv_scan", "osc_cache_shrink_scan", "zpl_prune_sb", "spl_kmem_cache_generic_shrinker_scan*",
            ]),
            // Since 6.8 zswap_shrinker_scan writes compressed pages back to the swap device and waits for each.
            symbols(Rank::Refines, &["zswap_shrinker_scan"]), symbols(Rank::Does, by_system::SHRINKER)],
        can_run: true,
        noise: NoiseClass::MemoryManagement,
    }
    DirtyThrottle = "dirty-throttle" {
        // `balance_dirty_pages_ratelimited_nr` is the name in 2.6.
        symbols: &[symbols(Rank::Does, &[
            "balance_dirty_pages", "balance_dirty_pages_ratelimited", "balance_dirty_pages_ratelimited_flags",
            "balance_dirty_pages_ratelimited_nr",
            // The write throttle of ZFS (module/zfs/dmu_tx.c, dsl_dir.c), and of Lustre clients (osc_cache.c).
            "dmu_tx_wait", "dmu_tx_delay", "txg_wait_open", "txg_delay", "dsl_dir_tempreserve_space",
            "dsl_pool_tempreserve_space", "osc_enter_cache",
        ])],
        hooks: SLEEP,
    }
    /// Waiting for a commit of the journal.
    JournalCommit = "journal-commit" {
        symbols: &[
            symbols(Rank::Does, &[
            "jbd2_log_wait_commit", "log_wait_commit", "jbd2_complete_transaction",
            "jbd2_trans_will_send_data_barrier", "wait_transaction_locked", "wait_transaction_switching",
            "jbd2_journal_lock_updates", "jbd2_journal_wait_updates", "ext4_fc_commit", "jbd2_fc_begin_commit",
            "jbd2_fc_wait_bufs", "xfs_log_force", "xfs_log_force_seq", "xfs_log_force_lsn", "xlog_wait_on_iclog",
            "xlog_force_lsn", "xlog_cil_force_seq",
            // With an underscore until 5.x. xlog_cil_push_background is inlined into xfs_log_commit_cil, where callers
            // that have filled the log's buffer sleep (fs/xfs/xfs_log_cil.c).
            "_xfs_log_force*", "__xfs_log_force*", "xlog_cil_push_now", "xfs_log_commit_cil", "xlog_cil_commit",
            "xlog_wait", "xfs_extent_busy_flush", "xfs_log_quiesce", "xfs_ail_push_all_sync", "xfs_qm_dqunpin_wait",
            // Until 3.17 a new handle waited for a locked transaction in this function itself.
            "start_this_handle",
            // The committing threads, and tasks that commit a transaction themselves.
            "jbd2_journal_commit_transaction", "journal_commit_transaction", "jbd2_journal_force_commit*",
            "jbd2_journal_flush", "jbd2_journal_destroy", "journal_force_commit*", "journal_flush",
            "ext4_fc_wait_committing_inode", "xlog_cil_push_work", "xlog_cil_push_background", "xlog_cil_flush",
            "xlog_state_get_iclog_space",
            // An inode or buffer is pinned until its log record is written (fs/xfs/xfs_inode.c, xfs_buf.c).
            "__xfs_iunpin_wait", "xfs_iunpin_wait", "xfs_buf_wait_unpin",
            "btrfs_sync_log", "btrfs_wait_for_commit", "wait_for_commit", "wait_current_trans",
            "btrfs_commit_transaction", "btrfs_commit_transaction_async", "btrfs_write_and_wait_transaction",
            "btrfs_wait_for_commit_*", "wait_log_commit", "wait_for_writer", "btrfs_sync_fs", "btrfs_throttle",
            "btrfs_write_marked_extents", "btrfs_wait_marked_extents", "btrfs_wait_extents", "btrfs_wait_cache_io",
            "f2fs_issue_checkpoint", "f2fs_write_checkpoint", "f2fs_wait_on_all_pages", "flush_commit_list",
            "flush_journal_list", "do_journal_end", "do_journal_begin_r", "reiserfs_wait_on_write_block",
            "gfs2_log_flush", "lmGroupCommit", "bch2_journal_flush_seq", "zil_commit", "zil_commit_impl",
            "txg_wait_synced*", "spa_sync", "dsl_pool_sync", "dsl_sync_task*", "queue_log_writer",
            "nilfs_transaction_begin", "nilfs_construct_segment", "txBegin", "bch2_journal_flush_async",
        ]),
            // A task that runs delayed references does the work of the whole transaction, including all reads for it
            // (fs/btrfs/extent-tree.c).
            symbols(Rank::Refines, &["btrfs_run_delayed_refs", "__btrfs_run_delayed_refs"]), asleep(Rank::Does, by_system::JOURNAL_COMMIT), symbols(Rank::Waits, by_system::IN_TRANSACTION)],
        hooks: SLEEP,
    }
    /// Waiting for one buffer that a commit holds.
    JournalBuffer = "journal-buffer" {
        symbols: &[symbols(Rank::Does, &[
            "do_get_write_access", "jbd2_journal_get_write_access", "jbd2_journal_get_create_access", "xfs_buf_lock",
            "journal_get_write_access", "jbd2_journal_invalidate_folio", "reiserfs_prepare_for_journal",
            "journal_get_create_access", "journal_get_undo_access", "jbd2_journal_get_undo_access",
        ]), symbols(Rank::Does, by_system::JOURNAL_BUFFER)],
        hooks: SLEEP,
    }
    /// Waiting for space in the log.
    JournalFull = "journal-full" {
        symbols: &[
            symbols(Rank::Does, &[
                "add_transaction_credits", "xlog_grant_head_wait", "xlog_grant_head_check", "xfs_log_reserve",
                // Until 3.6.
                "xlog_grant_log_space", "xlog_regrant_write_log_space",
                "gfs2_log_reserve", "bch2_journal_res_get_slowpath", "xlog_grant_head_wake",
                // bcache (drivers/md/bcache/journal.c).
                "journal_wait_for_write",
            ]),
            // A task that frees log space waits for buffers, for the checkpoint mutex or for a commit: all because the
            // log is full.
            symbols(Rank::Refines, &[
                "__jbd2_log_wait_for_space", "jbd2_log_do_checkpoint", "__log_wait_for_space", "log_do_checkpoint",
            ]), symbols(Rank::Does, by_system::JOURNAL_FULL)],
        hooks: SLEEP,
    }
    PageWriteback = "page-writeback" {
        // `wait_on_page_writeback` until 5.16.
        symbols: &[symbols(Rank::Does, &[
            "folio_wait_writeback", "folio_wait_writeback_killable", "wait_on_page_writeback",
            "wait_on_page_writeback_bit", "__filemap_fdatawait_range", "filemap_fdatawait_range",
            "wb_wait_for_completion", "writeback_inodes_sb", "__writeback_inodes_sb_nr", "sync_inodes_sb",
            "wait_on_page_writeback_range", "filemap_fdatawait", "filemap_fdatawait_keep_errors",
            "filemap_fdatawait_range_keep_errors", "file_write_and_wait_range", "filemap_write_and_wait_range",
            "wait_sb_inodes", "writeback_inodes_sb_nr", "try_to_writeback_inodes_sb", "inode_wait_for_writeback",
            "__inode_wait_for_writeback", "inode_sleep_on_writeback",
            "btrfs_wait_ordered_*", "btrfs_start_ordered_extent*", "btrfs_fdatawrite_range", "sync_filesystem",
            "sync_inodes_one_sb", "wait_on_page_writeback_killable", "xfs_buf_delwri_submit", "lock_extent_buffer_for_io",
            "wait_on_extent_buffer_writeback", "f2fs_wait_on_page_writeback", "f2fs_wait_on_block_writeback",
            "fuse_set_nowrite", "fuse_wait_on_page_writeback",
        ]), symbols(Rank::Does, by_system::PAGE_WRITEBACK)],
        belongs_to: RECLAIM,
        hooks: SLEEP,
    }
    StablePage = "stable-page" {
        symbols: &[symbols(Rank::Refines, &["folio_wait_stable", "wait_for_stable_page"])],
        hooks: SLEEP,
    }
    BlockAllocation = "block-allocation" {
        symbols: &[symbols(Rank::Does, &[
            "ext4_mb_*", "ext4_ext_map_blocks", "ext4_ind_map_blocks", "ext4_read_block_bitmap",
            "ext4_wait_block_bitmap", "ext4_alloc_file_blocks", "ext4_free_blocks", "ext4_new_meta_blocks",
            "__ext4_new_inode", "ext4_wait_inode_bitmap", "xfs_alloc_*", "xfs_bmapi_allocate",
            "xfs_bmapi_convert_delalloc", "xfs_dialloc", "btrfs_reserve_extent", "btrfs_delalloc_reserve_metadata",
            "find_free_extent", "find_free_extent_*", "btrfs_cache_block_group", "cache_block_group", "flush_space",
            "btrfs_alloc_data_chunk_ondemand", "btrfs_reserve_data_bytes", "btrfs_check_data_free_space",
            "btrfs_preempt_reclaim_metadata_space", "btrfs_block_rsv_refill", "btrfs_alloc_chunk", "tree_search_offset",
            "bch_bucket_alloc", "bch_bucket_alloc_set", "bch2_bucket_alloc_trans", "bch2_alloc_sectors_start_trans",
            "wait_reserve_ticket", "handle_reserve_ticket", "__reserve_bytes",
            "btrfs_reserve_metadata_bytes", "btrfs_async_reclaim_metadata_space", "f2fs_gc", "f2fs_balance_fs",
        ]), symbols(Rank::Does, by_system::BLOCK_ALLOCATION)],
        can_run: true,
        hooks: &[Hook::SchedSwitch, Hook::CpuClock],
    }
    SynchronousRead = "synchronous-read" {
        symbols: &[symbols(Rank::Does, &[
            "filemap_read", "filemap_get_pages", "filemap_update_page", "generic_file_buffered_read",
            "do_generic_file_read", "ext4_block_write_begin", "__block_write_begin_int", "ext4_read_folio",
            "iomap_read_folio_sync", "iomap_write_begin", "ext4_bread", "ext4_read_bh", "read_cache_folio",
            "do_read_cache_folio", "page_cache_ra_unbounded", "filemap_fault", "__ext4_get_inode_loc", "__bread_gfp",
            "bread", "__bread_slow", "ext4_get_inode_loc", "ext4_find_entry", "__ext4_find_entry",
            "__ext4_read_dirblock", "ondemand_readahead", "page_cache_sync_readahead", "page_cache_sync_ra",
            "mpage_readpages", "mpage_readahead", "read_cache_page", "wait_on_page_read", "_xfs_buf_read",
            "xfs_buf_read_map", "xfs_trans_read_buf_map", "read_extent_buffer_pages*",
            "btree_read_extent_buffer_pages", "btrfs_read_extent_buffer", "read_tree_block", "search_by_key",
            "dbuf_read", "dbuf_read_done", "dmu_buf_hold_array_by_dnode", "arc_read", "ext3_bread", "ext3_find_entry",
            "ext2_get_inode", "squashfs_read_data", "nfs_readpage*", "nfs_read_folio",
        ]), symbols(Rank::Does, by_system::SYNCHRONOUS_READ)],
        belongs_to: RECLAIM,
        hooks: SLEEP,
    }
    RequestQueue = "request-queue" {
        // No tag is free, or writeback throttling delays the submitter. `get_request_wait` until 3.6.
        symbols: &[symbols(Rank::Does, &[
            "blk_mq_get_tag", "sbitmap_get", "rq_qos_wait", "wbt_wait", "__rq_qos_throttle", "get_request_wait",
            "get_request", "__blk_throtl_bio", "blk_throtl_bio", "blkcg_maybe_throttle_current", "__bio_queue_enter",
            "blk_queue_enter", "ioc_rqos_throttle", "blkcg_iolatency_throttle",
            // blk_mq_get_tag until 4.10.
            "bt_get",
            "blk_mq_freeze_queue*", "blk_freeze_queue*", "blk_mq_get_request",
            "__get_request_wait", "wait_for_in_progress", "inc_ap_bio", "blk_queue_bio",
            // The equivalents of network file systems: SMB credits; NFS session slots and congestion control.
            "wait_for_free_request", "wait_for_free_credits", "nfs4_wait_for_slot",
        ]), asleep(Rank::Does, by_system::REQUEST_QUEUE)],
        belongs_to: RECLAIM,
        hooks: SLEEP,
    }
    /// The device is slow between issue and completion of a request. No stack can show this.
    DeviceSlow = "device-slow" {
        belongs_to: RECLAIM,
    }
    /// Waiting for the device. Whether in its queue, for the device itself or for a read is not known.
    DeviceWait = "device-wait" {
        symbols: &[
            // The device is a server, an array or a process: NFS, SMB, FUSE, Ceph, md.
            symbols(Rank::Does, &[
                "rpc_wait_bit_killable", "nfs_wait_bit_killable", "nfs_wait_bit_uninterruptible", "wait_for_response",
                "request_wait_answer", "ceph_osdc_wait_request", "md_write_start", "md_flush_request",
                "raid5_get_active_stripe", "md_super_wait", "p9_client_rpc", "ptlrpc_set_wait",
                "scsi_block_when_processing_errors", "scsi_execute", "scsi_execute_cmd", "__nvme_submit_sync_cmd",
                "nvme_wait_freeze",
                "nfs_wait_on_request", "nfs_iocounter_wait", "nfs_wait_client_init_complete", "nfs4_wait_clnt_recover",
                // The server replies "later" (NFS4ERR_DELAY, NFS4ERR_GRACE; EJUKEBOX in version 3), and the client
                // sleeps.
                "nfs4_delay*", "nfs4_handle_exception", "nfs4_do_handle_exception", "rpc_delay",
                "rpc_wait_for_completion_task", "__rpc_wait_for_completion_task", "smb2_reconnect*", "cifs_reconnect*",
                "compound_send_recv", "SendReceive*", "__nfs_commit_inode", "wait_on_commit",
                "ceph_mdsc_wait_request", "ceph_mdsc_do_request", "__ceph_get_caps", "ceph_get_caps", "ceph_osdc_sync",
                "cl_sync_io_wait", "ptlrpc_queue_wait", "drbd_al_begin_io*", "drbd_md_sync*",
                "make_stripe_request", "get_active_stripe", "wait_for_suspend", "bitmap_unplug", "md_bitmap_unplug*",
                "md_bitmap_wait_*", "bitmap_startwrite", "md_bitmap_startwrite", "md_update_sb", "submit_flush_wait",
                "f2fs_issue_flush", "ata_port_wait_eh", "ata_exec_internal*", "mmc_wait_for_req*", "__mmc_claim_host",
                "mmc_wait_for_cmd", "blkdev_issue_*", "blk_wait_io", "scsi_test_unit_ready",
                // A request to a USB host controller, or a command for the firmware of a network adapter.
                "usb_start_wait_urb", "usb_kill_urb", "usb_poison_urb", "mlx5_cmd_invoke", "__mlx4_cmd",
            ]),
            // Waiting for a buffer or page that is being read or written: used only if no other frame has a cause.
            symbols(Rank::Waits, &[
                // One bio or one request; the submitter's frame gives its purpose.
                "submit_bio_wait", "blk_execute_rq",
                "__wait_on_buffer", "folio_wait_bit",
                "wait_on_page_bit", "wait_on_page_bit_killable", "wait_on_page_bit_killable_timeout", "xfs_buf_iowait",
                "zio_wait", "bch_journal_meta", "bch_btree_node_read", "wait_on_page_locked", "wait_on_buffer",
                // Direct I/O, and RPC calls that wait for a server; an outer frame shows the server's kind.
                "dio_await_completion", "dio_await_one", "iomap_dio_rw", "__iomap_dio_rw", "__blkdev_direct_IO*",
                "__rpc_execute", "rpc_execute", "rpc_run_task", "nfs4_call_sync_sequence", "nfs4_do_call_sync",
                "nfs3_rpc_wrapper",
                "wait_for_completion_io*", "dm_wait_for_completion", "raid1_make_request", "raid10_make_request",
                "raid5_make_request", "md_handle_request",
            ]),
            symbols(Rank::Sleeps, &[
                // Shared by locks, reads and writes of a page; the caller's frame gives the reason (mm/filemap.c).
                "folio_wait_bit_common", "wait_on_page_bit_common", "io_schedule", "io_schedule_timeout", "blk_io_schedule", "bit_wait_io", "sleep_on_page",
                "sleep_on_page_killable", "sleep_on_buffer", "sync_page", "sync_page_killable", "sync_buffer",
            ]), asleep(Rank::Does, by_system::DEVICE_WAIT), symbols(Rank::Waits, by_system::DEVICE_WAIT_OF)],
        belongs_to: RECLAIM,
        hooks: SLEEP,
    }
    Lock = "lock" {
        // The flags of contention_begin distinguish a mutex (which spins, then sleeps), a spinlock and a percpu
        // semaphore.
        brackets: &[
            written("LOCK_SLEEP", "contention_begin", "contention_end"),
            written("LOCK_SPIN", "contention_begin", "contention_end"),
            written("LOCK_PERCPU", "contention_begin", "contention_end"),
        ],
        symbols: &[
            // A task that looks up a page to write to it waits for the page lock, which writeback holds while it
            // prepares the page.
            symbols(Rank::Waits, &[
                "__filemap_get_folio", "__filemap_get_folio_mpol", "grab_cache_page_write_begin", "__folio_lock",
                "__folio_lock_killable", "__folio_lock_or_retry", "__lock_page", "__lock_page_killable",
                "__lock_page_or_retry",
                // Spinning, in stacks of CPUs that make no progress.
                "_raw_spin_lock", "_raw_spin_lock_*", "__raw_spin_lock*", "_raw_read_lock*", "_raw_write_lock*",
                "do_raw_spin_lock", "_read_lock*", "_write_lock*",
            ]),
            symbols(Rank::Does, &[
                "rwsem_down_*", "__mutex_lock*", "mutex_lock*", "mutex_spin_on_owner", "osq_lock", "down_write",
                "down_read", "down_write_killable", "down_read_killable", "__down_common", "call_rwsem_down_*",
                "native_queued_spin_lock_slowpath", "queued_spin_lock_slowpath", "__pv_queued_spin_lock_slowpath",
                "queued_write_lock_slowpath", "queued_read_lock_slowpath", "rt_mutex_slowlock*", "__rt_mutex_slowlock*",
                "rtlock_slowlock*", "rt_spin_lock*", "rt_write_lock*", "rt_read_lock*",
                "__inode_dio_wait", "inode_dio_wait", "__wait_on_freeing_inode", "futex_wait", "__lock_buffer",
                "locks_lock_inode_wait", "__down", "__down_failed", "__down_interruptible", "__down_read", "__down_write",
                "__down_write_nested", "percpu_down_write", "__ww_mutex_lock*", "lock_kernel", "lock_super",
                "lock_mount",
                // Locks of trees, extents and clusters that file systems implement themselves.
                "btrfs_tree_lock", "btrfs_tree_read_lock", "btrfs_tree_lock_nested", "btrfs_tree_read_lock_nested",
                "__btrfs_tree_lock", "__btrfs_tree_read_lock", "btrfs_lock_root_node", "btrfs_read_lock_root_node",
                "lock_extent", "lock_extent_bits", "btrfs_lock_extent_bits", "wait_extent_bit",
                "gfs2_glock_wait", "gfs2_glock_nq", "__ocfs2_cluster_lock", "ocfs2_wait_for_mask", "ldlm_completion_ast",
                "xfs_iflock", "__xfs_iflock", "xfs_ilock_*", "btrfs_lock_and_flush_ordered_range",
                "rrw_enter*", "zfs_rangelock_enter*", "zfs_range_lock", "zfs_znode_hold_enter", "spa_config_enter*",
                "dsl_pool_config_enter*", "dlm_posix_lock", "nlmclnt_*", "six_lock_slowpath", "reiserfs_write_lock",
                "d_alloc_parallel", "d_wait_lookup", "down_common", "rwbase_write_lock", "rwbase_read_lock", "__lock_sock",
                "lock_sock_nested", "super_lock", "super_lock_shared", "grab_super", "wait_on_inode",
                // File locks and leases, which programs and servers hold.
                "flock_lock_inode_wait", "posix_lock_inode_wait", "__break_lease", "dlm_lock_sync",
                // md: requests against resync, recovery and reshape of the array.
                "wait_barrier", "_wait_barrier", "wait_read_barrier", "regular_request_wait", "raise_barrier",
                "freeze_array", "wait_for_serialization",
                // ext2's superblock in 2.2 (fs/super.c).
                "__wait_on_super",
                // Run-queue locks and other spinlocks (until 2.6.32 without a queue).
                "_spin_lock", "double_lock_balance",
                // Pages of hugetlbfs have no device: a task that waits for one waits for the task that locked it.
                "hugetlb_fault",
            ]),
            // Waits for a percpu semaphore that is not about freezing: for the threadgroup lock, and for CPU hotplug.
            symbols(Rank::Refines, &["cpus_read_lock", "get_online_cpus", "cpus_write_lock",
                "cgroup_procs_write_start", "cgroup_attach_lock", "cgroup_update_dfl_csses"]), symbols(Rank::Does, by_system::LOCK), asleep(Rank::Does, by_system::LOCK_OF_OTHERS), asleep(Rank::Waits, by_system::LOCK_OF_INODE)],
        can_run: true,
        hooks: SLEEP,
    }
    SlabRefill = "slab-refill" {
        brackets: &[
            function("BUFFER_HEAD", &["alloc_buffer_head"]),
            // `new_slab` is inlined by the compiler; this function is not.
            function("SLAB_GROW", &["allocate_slab"]),
        ],
        // 6.18 refills per-CPU sheaves; SLAB (until 6.8) its per-CPU arrays.
        symbols: &[symbols(Rank::Does, &[
            "allocate_slab", "new_slab", "___slab_alloc", "__slab_alloc", "get_partial_node", "refill_objects",
            "refill_sheaf", "__pcs_replace_empty_main", "cache_alloc_refill", "cache_grow", "cache_grow_begin",
            "fallback_alloc", "alloc_buffer_head", "__kmem_cache_alloc_bulk",
        ])],
        can_run: true,
        belongs_to: RECLAIM,
        noise: NoiseClass::MemoryManagement,
        hooks: SAMPLE,
    }
    PageAllocation = "page-allocation" {
        // `__alloc_pages_slowpath` is inlined by the compiler; these are not, and each kernel has one of them.
        // `__alloc_pages_nodemask` until 5.11.
        brackets: &[function("PAGE_ALLOC", &[
            "__alloc_pages_nodemask", "__alloc_pages", "__alloc_pages_noprof", "__alloc_frozen_pages_noprof",
        ])],
        symbols: &[
            symbols(Rank::Does, &[
            "__alloc_pages", "__alloc_pages_noprof", "__alloc_frozen_pages_noprof", "__alloc_pages_nodemask",
            "__alloc_pages_internal", "__alloc_pages_slowpath", "get_page_from_freelist", "rmqueue", "rmqueue_bulk",
            "__rmqueue_pcplist", "prep_new_page", "clear_page_erms", "alloc_pages_bulk_noprof", "drain_all_pages",
            "__drain_all_pages", "should_reclaim_retry",
            // Retry loops of file systems after a failed allocation (mm/mempool.c; linux/sched/mm.h since 5.17).
            "memalloc_retry_wait", "__alloc_pages_bulk",
            "btrfs_alloc_page_array", "xfs_buf_alloc_pages", "xfs_buf_alloc_backing_mem", "kmem_alloc",
            // Caches of SPL.
            "spl_cache_grow*", "spl_kmem_cache_alloc", "spl_kmem_alloc_impl",
        ]),
            // Waiting for an element of a reserve, usually until a request in flight releases one; an outer frame
            // gives the purpose.
            symbols(Rank::Sleeps, &["mempool_alloc", "mempool_alloc_noprof"]), asleep(Rank::Does, by_system::PAGE_ALLOCATION), asleep(Rank::Waits, by_system::PAGE_ALLOCATION_OF)],
        can_run: true,
        belongs_to: RECLAIM,
        noise: NoiseClass::MemoryManagement,
        hooks: SAMPLE,
    }
    PageFault = "page-fault" {
        symbols: &[
            symbols(Rank::Waits, &["handle_mm_fault", "__handle_mm_fault", "do_user_addr_fault", "exc_page_fault"]),
            // The program's own userfaultfd handler has not answered yet (fs/userfaultfd.c), whatever the kind of
            // memory.
            symbols(Rank::Refines, &["handle_userfault", "hugetlb_handle_userfault"]),
        ],
        can_run: true,
        belongs_to: RECLAIM,
        noise: NoiseClass::MemoryManagement,
        processor_time: true,
        hooks: &[Hook::SchedSwitch, Hook::CpuClock, Hook::PageFaultUser],
    }
    SwapIn = "swap-in" {
        symbols: &[symbols(Rank::Refines, &[
            "do_swap_page", "swapin_readahead", "swap_readpage", "swap_read_folio", "read_swap_cache_async",
            "swap_cluster_readahead", "swap_vma_readahead", "shmem_swapin", "shmem_swapin_folio",
            "shmem_swapin_cluster",
        ]), symbols(Rank::Refines, by_system::SWAP_IN)],
        noise: NoiseClass::MemoryManagement,
        hooks: SLEEP,
    }
    MemcgOverHigh = "memcg-over-high" {
        symbols: &[symbols(Rank::Refines, &[
            "mem_cgroup_handle_over_high", "__mem_cgroup_handle_over_high", "reclaim_high", "calculate_high_delay",
        ])],
        can_run: true,
        hooks: SLEEP,
    }
    FsFreeze = "fs-freeze" {
        // A writer to a frozen file system sleeps in `__percpu_down_read`.
        symbols: &[
            symbols(Rank::Does, &["percpu_rwsem_wait", "__percpu_down_read", "percpu_down_read"]),
            // Until 5.6 that semaphore slept in the functions of a plain rwsem, and until 4.1 it did not exist: only
            // the caller shows the cause.
            symbols(Rank::Refines, &["__sb_start_write", "sb_wait_write"]),
            // Tasks that freeze or thaw a file system, including their waits.
            symbols(Rank::Refines, &["freeze_super", "thaw_super"]),
            symbols(Rank::Refines, by_system::FS_FREEZE),
        ],
        hooks: SLEEP,
    }
    CpuQuota = "cpu-quota" {
        hooks: SLEEP,
    }
    RunQueue = "run-queue" {
        processor_time: true,
        hooks: &[Hook::SchedSwitch, Hook::SchedWakeup],
    }
    Steal = "steal" {
        processor_time: true,
    }
    Interrupt = "interrupt" {
        brackets: &[
            tracepoints("HARD_IRQ", "irq_handler_entry", "irq_handler_exit"),
            tracepoints("SOFT_IRQ", "softirq_entry", "softirq_exit"),
        ],
        symbols: &[symbols(Rank::Does, &[
            "handle_softirqs", "__do_softirq", "__irq_exit_rcu", "do_softirq", "common_interrupt", "sysvec_*",
            "handle_irq_event",
        ])],
        can_run: true,
        noise: NoiseClass::Machine,
        processor_time: true,
    }
    Compute = "compute" {
        can_run: true,
        noise: NoiseClass::Machine,
        processor_time: true,
        hooks: SAMPLE,
    }
    /// An io_uring operation was queued for a worker that performed another operation.
    WorkerQueue = "worker-queue" {
        hooks: SLEEP,
    }
    /// An operation of io_uring or libaio was complete, and its program had not collected the result.
    CompletionWait = "completion-wait" {
        hooks: SLEEP,
    }
    /// The device had done all requests of an asynchronous operation, and the kernel had not completed it.
    CompletionWork = "completion-work" {
        hooks: SLEEP,
    }
    Unexplained = "unexplained" {
        // These functions have no cause, and neither have frames outside of them (`symbol::meaning`).
        symbols: &[asleep(Rank::Refines, by_system::OUTSIDE)],
    }
}

//! Kernel functions that sleep in their own body, by subsystem, for the table of causes.
//!
//! The lists come from reading whole source trees (2.6.32, 4.4 and 6.12; OpenZFS 2.x) for functions that call a
//! sleeping primitive themselves (`wait_event`, `wait_for_completion`, `schedule`, `msleep`, `wait_on_bit` ...). No
//! other frame lies between such a function and `schedule`, so the stack has no cause if the function is not listed.
//! Functions that sleep below a listed one (a mutex, a buffer, a page) are left out. Waits that say nothing about
//! writes are left out too: idle threads, modules, tracing, hot-plug, unmounting, RCU grace periods, and waits for a
//! work item, whose reason is on another stack.

/// Lists of functions. The macro keeps rustfmt from putting each name on a separate line.
macro_rules! lists {
    ($($(#[doc = $doc:literal])* $name:ident = [$($function:literal),* $(,)?])*) => {
        $($(#[doc = $doc])* pub const $name: &[&str] = &[$($function),*];)*
    };
}

lists! {
    /// Waiting for memory of a cgroup, or for reclaim within it (mm/memcontrol.c).
    MEMCG_RECLAIM = [
        // Until 4.x. From 2.6.34 to 3.11 `mem_cgroup_handle_oom` waited for the OOM kill.
        "mem_cgroup_handle_oom", "mem_cgroup_oom", "mem_cgroup_out_of_memory", "__mem_cgroup_try_charge",
        "mem_cgroup_do_charge", "try_charge", "mem_cgroup_force_empty", "mem_cgroup_resize_limit",
        "mem_cgroup_resize_max",
    ]
    /// Moving pages to free a range (mm/page_alloc.c, mm/cma.c, mm/memory_hotplug.c).
    COMPACTION = [
        "alloc_contig_range", "alloc_contig_range_noprof", "__alloc_contig_migrate_range", "alloc_contig_pages",
        "alloc_contig_pages_noprof", "cma_alloc", "__cma_alloc", "do_migrate_range", "migrate_prep",
    ]
    /// Callbacks of shrinkers (`count_objects`, `scan_objects`; `shrink` until 3.11).
    SHRINKER = [
        "bch2_btree_cache_count", "bch2_btree_key_cache_count", "bch_mca_count", "btrfs_compr_pool_count",
        "btrfs_compr_pool_scan", "deferred_split_count", "dm_bufio_shrink_count", "dmz_mblock_shrinker_count",
        "dqcache_shrink_count", "erofs_shrink_count", "ext4_es_count", "f2fs_shrink_count", "gfs2_glock_shrink_count",
        "gfs2_qd_shrink_count", "gfs2_shrink_glock_memory", "gfs2_shrink_qd_memory", "jbd2_journal_shrink_count",
        "kfree_rcu_shrink_count", "lazy_rcu_shrink_count", "mb_cache_count", "nfs_access_cache_count",
        "nfsd4_state_shrinker_count", "nfsd4_state_shrinker_scan", "nfsd_file_lru_count", "nfsd_reply_cache_count",
        "raid5_cache_count", "rpcauth_cache_shrink_count", "rpcauth_cache_shrinker", "shrink_huge_zero_page_count",
        "ubifs_shrink_count", "ubifs_shrink_scan", "ubifs_shrinker", "vmap_node_shrink_count",
        "vmap_node_shrink_scan", "xfs_buftarg_shrink_count", "xfs_inodegc_shrinker_count", "xfs_qm_shrink_count",
        "xfs_qm_shake", "zs_shrinker_count", "zswap_shrinker_count", "shrink_slab_locked", "drop_slab",
        "drop_slab_node",
    ]
    /// Waiting for a journal commit, or performing one.
    JOURNAL_COMMIT = [
        // jbd, jbd2 (transaction.c, commit.c, journal.c): a synchronous handle waits for others to join before it
        // commits; releasing an inode waits for the commit that writes its data; `inverted_lock` belongs to kjournald.
        "jbd2_journal_stop", "journal_stop", "jbd2_journal_release_jbd_inode", "journal_lock_updates",
        "inverted_lock",
        // ext4's fast commits (fast_commit.c).
        "ext4_fc_perform_commit", "ext4_fc_submit_inode_data_all", "ext4_fc_wait_inode_data_all",
        "ext4_fc_start_update", "ext4_fc_del", "ext4_force_commit", "ext3_force_commit",
        // reiserfs (journal.c).
        "let_transaction_grow", "reiserfs_async_progress_wait", "check_journal_end", "flush_async_commits",
        "flush_older_commits", "flush_used_journal_lists", "reiserfs_commit_for_inode", "do_journal_release",
        // JFS (jfs_logmgr.c, jfs_txnmgr.c): a transaction block, its locks, the group commit.
        "txLock", "txLockAlloc", "txBeginAnon", "txCommit", "txLazyCommit", "TXN_SLEEP_DROP_LOCK", "lmLogSync",
        "lmWriteRecord", "lbmIOWait", "jfs_flush_journal", "jfs_syncpt",
        // GFS2 (log.c, glops.c), OCFS2 (journal.c).
        "log_flush_commit", "log_flush_wait", "gfs2_log_flush_wait", "gfs2_log_shutdown", "gfs2_meta_syncfs",
        "gfs2_ail1_wait", "gfs2_ail_flush", "ocfs2_commit_cache", "ocfs2_checkpoint_inode", "ocfs2_sync_fs",
        // XFS (xfs_log.c, xfs_log_cil.c, xfs_extent_busy.c).
        "xlog_cil_force_work", "xlog_cil_push", "xlog_cil_order_write", "xlog_cil_write_commit_record",
        "xlog_wait_on_iclog_lsn", "xlog_force_iclog", "xlog_write", "xlog_sync", "xfs_extent_busy_wait_all",
        "xfs_log_cover", "xfs_log_unmount", "xfs_sync_sb",
        // btrfs (transaction.c, delayed-inode.c, extent-tree.c).
        "wait_current_trans_commit_start", "wait_current_trans_commit_start_and_unblock",
        "wait_transaction_pre_flush", "btrfs_wait_pending_ordered", "btrfs_async_run_delayed_refs",
        "btrfs_balance_delayed_items", "throttle_on_drops", "btrfs_commit_current_transaction",
        // F2FS checkpoints, NILFS2 segments, UBIFS commits.
        "flush_remained_ckpt_reqs", "f2fs_flush_ckpt_thread", "wait_on_all_pages_writeback", "f2fs_sync_meta_pages",
        "f2fs_sync_fs", "block_operations", "nilfs_segctor_sync", "nilfs_segctor_do_construct",
        "nilfs_segctor_construct", "nilfs_construct_dsync_segment", "nilfs_transaction_lock", "wait_for_commit_start",
        "ubifs_run_commit", "ubifs_commit_required", "run_bg_commit",
        // ZFS (zil.c, txg.c): blocks of the intent log, and transaction groups.
        "zil_commit_waiter", "zil_commit_writer", "zil_commit_writer_stall", "zil_process_commit_list",
        "zil_lwb_flush_wait_all", "zil_lwb_write_issue", "zil_lwb_write_close", "zil_sync", "zil_suspend",
        "zil_close", "txg_quiesce", "txg_wait_callbacks", "txg_sync_thread", "txg_quiesce_thread",
        "spa_sync_iterate_to_convergence", "dsl_pool_sync_mos",
    ]
    /// Beginning or ending a transaction. A frame further in or out gives the reason.
    IN_TRANSACTION = [
        "start_transaction", "join_transaction", "btrfs_start_transaction", "btrfs_join_transaction",
        "__btrfs_end_transaction", "btrfs_end_transaction", "xfs_trans_commit", "__xfs_trans_commit",
        "_xfs_trans_commit",
    ]
    /// Waiting for one buffer that a commit holds.
    JOURNAL_BUFFER = [
        "jbd2_journal_get_undo_access_credits", "jbd2_journal_dirty_metadata", "journal_dirty_metadata",
        "journal_dirty_data",
    ]
    /// Waiting for space in the log.
    JOURNAL_FULL = [
        // Some compilers inline `xlog_grant_head_wait` into these (xfs_log.c).
        "xfs_log_regrant", "xlog_grant_push_ail", "__gfs2_log_reserve", "gfs2_log_try_reserve",
        // bcachefs (btree_trans_commit.c, btree_update_interior.c, journal_reclaim.c).
        "bch2_trans_commit_error", "bch2_btree_update_start", "bch2_journal_flush_pins", "bch2_journal_pin_flush",
        // raid5's own journal has no free space (raid5-cache.c).
        "r5l_run_no_space_stripes",
    ]
    /// Waiting until pages or an inode are written.
    PAGE_WRITEBACK = [
        // 2.6 (fs-writeback.c, buffer.c).
        "bdi_sched_wait", "bdi_wait_on_work_clear", "bdi_sync_writeback", "fsync_bdev", "sync_blockdev",
        "__sync_blockdev", "sync_mapping_buffers", "fsync_buffers_list", "osync_buffers_list", "write_inode_now",
        "sync_inode", "__sync_filesystem", "__fsync_super",
        // Waiting for all writes in flight of one file.
        "ext4_ioend_wait", "ext4_flush_completed_IO", "ext4_flush_unwritten_io", "xfs_ioend_wait", "xfs_flush_inodes",
        "xfs_buf_delwri_submit_buffers", "gfs2_ordered_wait", "nfs_wb_all", "nfs_wb_page", "nfs_wb_folio",
        "nfs_wb_page_cancel", "nfs_sync_mapping_wait", "nfs_sync_mapping_range", "fuse_sync_fs_writes",
        "fuse_sync_writes", "fuse_wait_on_folio_writeback", "btrfs_start_delalloc_inodes",
        "btrfs_start_delalloc_roots", "btrfs_start_delalloc_snapshot", "start_delalloc_inodes",
        "btrfs_wait_and_free_delalloc_work", "btrfs_run_delalloc_work", "btrfs_wait_logged_extents",
        "wait_ordered_extents", "btrfs_run_ordered_extent_work", "bch2_inode_flush_nocow_writes",
        "f2fs_wait_on_node_pages_writeback", "f2fs_write_cache_pages",
    ]
    /// Searching for free blocks, or waiting for other tasks to free blocks.
    BLOCK_ALLOCATION = [
        // ext2, ext3, ext4 (balloc.c, ialloc.c, mballoc.c).
        "ext4_discard_preallocations", "ext4_should_retry_alloc", "ext4_read_inode_bitmap", "ext4_init_inode_table",
        "ext4_find_inode_bit", "ext4_claim_free_clusters", "ext4_new_inode", "ext3_new_inode", "ext3_new_blocks",
        "ext3_try_to_allocate", "ext3_try_to_allocate_with_rsv", "ext3_free_blocks", "ext3_free_blocks_sb",
        "ext3_alloc_branch", "ext2_new_blocks", "ext2_new_inode", "ext2_alloc_branch", "ext2_free_blocks",
        "read_block_bitmap", "read_inode_bitmap", "load_block_bitmap",
        // XFS passes a btree split to a worker and waits for it (libxfs/xfs_btree.c).
        "xfs_btree_split", "xfs_btree_split_worker", "xfs_bmapi_allocate_worker", "__xfs_bmapi_allocate",
        "xfs_bmap_btalloc", "xfs_dialloc_ag", "xfs_dialloc_select_ag", "xfs_dialloc_try_ag", "xfs_ialloc_ag_alloc",
        "xfs_ialloc_ag_select", "xfs_difree", "xfs_free_extent", "__xfs_free_extent", "xfs_defer_drain_wait",
        // btrfs (block-group.c, space-info.c, qgroup.c; extent-tree.c until 5.3).
        "btrfs_caching_ctl_wait_done", "btrfs_wait_block_group_cache_progress", "btrfs_wait_block_group_cache_done",
        "wait_block_group_cache_done", "wait_block_group_cache_progress", "btrfs_find_free_ino",
        "btrfs_find_free_objectid", "caching_kthread", "reserve_metadata_bytes", "reserve_metadata_space",
        "btrfs_reserve_metadata_space", "wait_on_flush", "maybe_allocate_chunk", "shrink_delalloc", "do_chunk_alloc",
        "btrfs_chunk_alloc", "check_system_chunk", "btrfs_async_reclaim_data_space", "btrfs_reclaim_bgs_work",
        "try_flush_qgroup", "btrfs_qgroup_reserve_data", "__btrfs_qgroup_reserve_meta", "btrfs_qgroup_reserve_meta",
        // F2FS: no free segment without cleaning. NILFS2, OCFS2, GFS2.
        "f2fs_allocate_segment_for_resize", "f2fs_allocate_data_block", "f2fs_gc_range", "do_garbage_collect",
        "garbage_collect", "nilfs_clean_segments", "ocfs2_reserve_suballoc_bits", "ocfs2_reserve_clusters_with_limit",
        "ocfs2_claim_suballoc_bits", "ocfs2_reserve_local_alloc_bits", "gfs2_inplace_reserve",
        "gfs2_inplace_reserve_i",
        // UBIFS, UBI: no erased block.
        "make_free_space", "make_reservation", "ubifs_garbage_collect", "ubi_wl_get_peb", "produce_free_peb",
        // bcache, bcachefs (alloc_foreground.c), ZFS (metaslab.c), device-mapper's zoned devices.
        "bch_allocator_push", "__bch2_wait_on_allocator", "bch2_bucket_alloc_set_trans", "metaslab_load_wait",
        "metaslab_flush_wait", "metaslab_load", "metaslab_activate", "metaslab_group_disable_wait",
        "metaslab_alloc_dva", "dmz_wait_for_free_zones",
    ]
    /// Reading a block or a page synchronously.
    SYNCHRONOUS_READ = [
        // fs/buffer.c, mm/filemap.c, block/partitions.
        "__bh_read", "bh_submit_read", "__bread", "__block_prepare_write", "__block_write_begin", "block_write_begin",
        "nobh_write_begin", "block_truncate_page", "do_read_cache_page", "read_cache_page_async",
        "read_cache_page_gfp", "wait_on_read", "read_dev_sector", "read_part_sector",
        // ext2, ext3, ext4.
        "ext3_get_branch", "ext4_get_branch", "ext2_get_branch", "__ext3_get_inode_loc", "ext3_get_inode_loc",
        "ext3_block_truncate_page", "ext4_block_truncate_page", "__ext4_block_zero_page_range",
        "read_extent_tree_block", "__read_extent_tree_block", "ext4_bread_batch", "ext4_sb_bread",
        "__ext4_sb_bread_gfp", "ext4_read_bh_lock", "mext_page_mkuptodate", "jread",
        // XFS.
        "xfs_buf_read", "xfs_buf_read_uncached",
        // btrfs.
        "btrfs_read_node_slot", "read_node_slot", "read_block_for_search", "reada_for_balance",
        "submit_read_wait_bio_list",
        // GFS2, OCFS2, reiserfs, JFS, F2FS, NILFS2, UDF, HPFS, UBIFS.
        "gfs2_meta_wait", "gfs2_meta_read", "gfs2_meta_ra", "gfs2_meta_indirect_buffer", "ocfs2_read_blocks",
        "ocfs2_read_blocks_sync", "reiserfs_breada", "lbmRead", "__get_meta_page", "f2fs_get_meta_page",
        "f2fs_get_meta_folio", "get_node_page", "__get_node_page", "__get_node_folio", "f2fs_get_node_page",
        "f2fs_get_node_folio", "f2fs_get_lock_data_page", "f2fs_get_read_data_page", "nilfs_mdt_read_block",
        "nilfs_btnode_get", "__nilfs_btree_get_block", "udf_bread", "hpfs_get_sector", "ubifs_read_node",
        "ubifs_leb_read",
        // Compressed read-only file systems: waiting for a block that another task reads, or reading it.
        "squashfs_cache_get", "squashfs_bio_read", "squashfs_bio_read_cached", "squashfs_read_metadata",
        "zisofs_readpage", "zisofs_uncompress_block", "z_erofs_runqueue", "erofs_bread", "erofs_read_metabuf",
        // ZFS.
        "dbuf_noread", "dbuf_read_impl", "dmu_buf_hold", "dmu_buf_hold_array", "dmu_tx_check_ioerr",
        "dmu_tx_count_write", "dmu_prefetch_wait_by_dnode", "dmu_read_abd", "dnode_hold_impl", "zap_lockdir",
        "traverse_visitbp",
        // Metadata of device-mapper.
        "dm_bufio_read", "dm_bufio_get", "new_read", "dmz_get_mblock",
    ]
    /// Waiting for permission to submit a request.
    REQUEST_QUEUE = [
        // The queue is frozen or drained (blk-core.c until 4.x, elevator.c).
        "__blk_drain_queue", "blk_drain_queue", "blk_queue_bypass_start", "elv_quiesce_start", "elv_drain_elevator",
        "blk_mq_alloc_request", "__blk_mq_alloc_requests", "blk_mq_alloc_request_hctx", "blk_mq_queue_enter",
        "blkcg_maybe_throttle_blkg", "blkcg_schedule_throttle", "blk_crypto_get_keyslot",
        // FUSE: the connection's limit of requests in flight (dev.c). NFS: the limit of pages (write.c). SMB: credits.
        "fuse_get_req", "__fuse_get_req", "fuse_get_req_nofail", "fuse_get_req_nofail_nopages", "get_reserved_req",
        "nfs_writepages", "smb2_wait_mtu_credits",
        // Buffers, permits and credits of device-mapper targets.
        "__wait_for_free_buffer", "wait_permit", "get_mapping",
        // null_blk, Xen.
        "alloc_cmd",
    ]
    /// Waiting for a device, or for a server or daemon in the place of a device.
    DEVICE_WAIT = [
        // aio (fs/aio.c).
        "wait_for_all_aios",
        // NFS client: mounts, sessions, layouts, renames of files in use.
        "nfs_get_client", "nfs_direct_wait", "nfs_block_sillyrename", "nfs_wait_on_sillyrename",
        "nfs_cache_wait_for_upcall", "nfs4_wait_ds_connect", "nfs4_drain_slot_tbl", "nfs4_slot_wait_on_seqid",
        "nfs4_run_open_task", "pnfs_update_layout", "_pnfs_return_layout", "pnfs_roc", "nlm_wait_on_grace",
        "rpc_call_sync",
        // SMB client.
        "cifs_wait_for_server_reconnect", "smb_send_kvec", "smb_send_rqst", "__smb_send_rqst", "smb_sendv",
        "cifs_send_recv", "cifs_call_async", "cifs_user_readv", "cifs_user_writev",
        // Ceph, rbd.
        "wait_requests", "wait_caps_flush", "wait_unsafe_requests", "unsafe_request_wait", "sync_write_wait",
        "flush_mdlog_and_wait_mdsc_unsafe_requests", "flush_mdlog_and_wait_inode_unsafe_requests",
        "ceph_wait_on_conflict_unlink", "__do_request", "wait_request_timeout", "linger_reg_commit_wait",
        "linger_notify_finish_wait", "__do_generic_request", "wait_generic_request", "ceph_monc_wait_osdmap",
        "ceph_fsync", "ceph_write_inode", "__rbd_obj_request_wait", "rbd_obj_request_wait", "rbd_quiesce_lock",
        // FUSE, 9p, netfs, AFS, Coda, OrangeFS, NCP.
        "request_wait", "wait_answer_interruptible", "p9_virtio_request", "p9_virtio_zc_request", "p9_client_zc_rpc",
        "p9_xen_request", "p9_get_mapped_pages", "netfs_wait_for_read", "netfs_unbuffered_read",
        "netfs_unbuffered_write", "netfs_end_writethrough", "afs_wait_for_call_to_complete", "afs_make_call",
        "coda_waitfor_upcall", "wait_for_matching_downcall", "do_ncp_rpc_call",
        // device-mapper: waiting for the requests of a device that is being suspended; I/O of targets.
        "dm_wait_for_bios_completion", "sync_io", "chunk_io", "__check_for_conflicting_io",
        "dm_bufio_write_dirty_buffers", "__write_dirty_buffer", "dm_consult_userspace",
        "multipath_wait_for_pg_init_completion", "writecache_wait_on_freelist", "writecache_wait_for_ios",
        "wait_and_add_new_range", "dm_integrity_map_continue", "dm_integrity_flush_buffers", "sleep_on_endio_wait",
        // md: a stripe, a page of the bitmap, a blocked member (md.c, raid1.c, raid10.c, raid5.c).
        "md_make_request", "md_submit_bio", "md_wait_for_blocked_rdev", "md_allow_write", "raid1_write_request",
        "raid1_read_request", "raid10_write_request", "raid10_read_request", "raid5_read_one_chunk",
        "chunk_aligned_read", "make_discard_request", "raid5_make_request_batch", "sync_page_io",
        "bitmap_wait_behind_writes", "bitmap_update_sb", "md_bitmap_update_sb", "write_sb_page",
        // DRBD: the peer, or DRBD's own metadata.
        "drbd_md_get_buffer", "wait_until_done_or_force_detached", "bm_page_lock_io", "_drbd_wait_ee_list_empty",
        "drbd_wait_ee_list_empty", "drbd_alloc_pages", "drbd_wait_misc", "drbd_make_request", "__drbd_make_request",
        "drbd_submit_bio", "drbd_suspend_io", "complete_conflicting_writes", "wait_for_and_update_peer_seq",
        "drbd_rs_begin_io",
        // bcache, bcachefs, loop, nbd, zram, Xen, AoE.
        "bch_prio_write", "prio_io", "__uuid_write", "bch_btree_node_write_sync", "do_btree_node_write",
        "bch2_btree_node_wait_on_read", "bch2_btree_node_wait_on_write", "__bch2_btree_node_wait_on_read",
        "__bch2_btree_node_wait_on_write", "bch2_btree_node_io_lock", "loop_switch", "nbd_find_request",
        "nbd_thread_send", "wait_for_reconnect", "read_from_bdev_sync", "xen_blk_drain_io", "aoedev_flush",
        // SCSI, ATA, SAS: commands outside the queue, and error handling.
        "scsi_send_eh_cmnd", "scsi_try_bus_reset", "scsi_try_host_reset", "scsi_execute_req",
        "scsi_execute_req_flags", "scsi_wait_req", "sd_sync_cache", "sd_spinup_disk", "fc_block_scsi_eh",
        "fc_block_rport", "iscsi_block_scsi_eh", "sas_wait_eh", "ata_eh_recover", "ata_eh_reset", "ata_wait_ready",
        "ata_wait_after_reset", "ata_sff_busy_sleep", "ata_sff_wait_after_reset", "sata_link_hardreset",
        "sata_link_resume", "sata_link_debounce", "usb_stor_msg_common", "usb_stor_bulk_transfer_sglist",
        "usb_stor_bulk_srb", "cciss_bigpassthru", "sendcmd_withirq_core",
        // NVMe: a controller that starts, stops or is reset.
        "nvme_submit_sync_cmd", "nvme_execute_rq", "nvme_wait_ready", "nvme_disable_ctrl", "nvme_shutdown_ctrl",
        "nvme_wait_reset", "nvme_wait_freeze_timeout", "__nvme_delete_io_queues", "nvme_disable_io_queues",
        "nvme_reset_ctrl_sync", "nvme_mpath_wait_freeze",
        // SD cards and flash.
        "mmc_blk_rw_wait", "__mmc_poll_for_busy", "mmc_poll_for_busy", "__mmc_switch", "mmc_wait_for_data_req_done",
        "mmc_wait_ongoing_tfr_cmd", "do_sync_erase", "nand_wait", "nand_wait_ready", "get_chip",
        // Discards and cache flushes of file systems.
        "__wait_discard_cmd_range", "__wait_one_discard_bio", "__submit_flush_wait", "nilfs_segbuf_wait", "jfsIOWait",
        "o2hb_wait_on_io", "zio_resume_wait", "vdev_submit_bio_wait",
    ]
    /// Waiting for I/O whose purpose only an outer frame shows.
    DEVICE_WAIT_OF = [
        // `make_request` of md until 4.x, and of other drivers.
        "make_request", "wait_on_sync_kiocb", "wait_on_retry_sync_kiocb", "ocfs2_write_block",
        "ocfs2_write_super_or_backup", "__wait_cp_io", "xfs_buf_submit_wait", "xfs_buf_iowait_timeout",
        "sync_dirty_buffer", "__sync_dirty_buffer", "write_dirty_buffer", "jbd2_write_superblock", "wait_dev_flush",
        "write_dev_flush", "wait_dev_supers", "write_dev_supers",
    ]
    /// The locks themselves.
    LOCK = [
        // Semaphores and sleeping locks of real-time kernels (kernel/locking).
        "down", "down_interruptible", "down_killable", "down_timeout", "__down_killable", "__down_timeout",
        "___down_common", "rwsem_spin_on_owner", "rwsem_optimistic_spin", "mutex_optimistic_spin",
        "down_write_nested", "down_read_nested", "down_write_killable_nested", "rt_mutex_lock",
        "rt_mutex_lock_nested", "rt_mutex_wait_proxy_lock", "__rt_mutex_lock", "__rt_down_read", "__rt_down_write",
        "rt_down_read", "rt_down_write", "rwbase_rtmutex_lock_state", "ww_mutex_lock", "ldsem_down_read",
        "ldsem_down_write", "ldsem_down_write_nested", "lg_global_lock",
    ]
    /// Waiting for the holder of an inode, a record, an extent or a cluster lock. These functions also run without
    /// waiting.
    LOCK_OF_OTHERS = [
        // Inodes, super blocks, files and records (fs).
        "inode_dio_wait_interruptible", "inode_wait_for_lru_isolating", "wait_on_new_inode", "find_inode",
        "find_inode_fast", "do_lock_file_wait", "posix_lock_file_wait", "flock_lock_file_wait",
        "locks_mandatory_area", "fcntl_setlk", "bd_prepare_to_claim", "__fd_install", "expand_files", "lock_rename",
        "wait_on_dquot", "dqget", "invalidate_dquots", "mb_cache_entry_get", "__mb_cache_entry_find",
        "mb_cache_entry_wait_unused", "get_unlocked_entry", "wait_entry_unlocked", "get_unlocked_mapping_entry",
        "ext4_unwritten_wait", "ext4_wait_dax_page", "xfs_inew_wait", "xfs_wait_dax_page", "fuse_file_cached_io_open",
        "mem_hotplug_begin", "cgroup_lock_and_drain_offline",
        // btrfs: extents, snapshots, operations that exclude each other (locking.c, block-group.c, dev-replace.c).
        "wait_on_state", "btrfs_drew_read_lock", "btrfs_drew_write_lock", "btrfs_wait_nocow_writers",
        "btrfs_wait_block_group_reservations", "btrfs_wait_for_no_snapshoting_writes", "wait_snapshoting_atomic_t",
        "wait_for_snapshot_creation", "btrfs_bio_counter_inc_blocked", "btrfs_rm_dev_replace_blocked",
        "exclop_start_or_cancel_reloc", "lock_delalloc_pages", "lock_delalloc_folios",
        // GFS2 and its lock manager (glock.c, lock_dlm.c; dlm).
        "wait_on_holder", "wait_on_demote", "glock_wait_internal", "gfs2_glock_holder_wait", "gfs2_glock_demote_wait",
        "gfs2_glock_async_wait", "gfs2_glock_dq_wait", "gfs2_instantiate", "gfs2_gl_hash_clear", "find_insert_glock",
        "gdlm_lock", "sync_lock", "sync_unlock", "dlm_posix_get", "dlm_posix_unlock", "dlm_lock_sync_interruptible",
        // OCFS2 and its lock manager (dlmglue.c, dlm/).
        "ocfs2_cluster_lock", "ocfs2_wait_for_mask_interruptible", "ocfs2_wait_for_recovery", "dlm_wait_for_recovery",
        "dlm_wait_for_node_death", "dlm_wait_for_node_recovery", "dlm_wait_for_lock_mastery", "dlm_get_lock_resource",
        "__dlm_wait_on_lockres_flags", "dlmlock", "o2net_send_message_vec",
        // JFS, bcache, network file systems.
        "__lock_metapage", "mca_cannibalize_lock", "nfs4_retry_setlk", "nfs4_retry_setlk_simple",
        "nfs4_set_lock_task_retry", "nfs_page_group_lock", "nfs_page_group_lock_wait", "nfs_page_set_headlock",
        "nfs_commit_set_lock", "nfs_clear_invalid_mapping", "__nfs_revalidate_mapping", "nfs_iocounter_wait_on",
        "cifs_get_writer", "cifs_revalidate_mapping", "cifs_lock_add_if", "cifs_posix_lock_set", "cifs_oplock_break",
        "cifs_down_write", "oplock_break_pending", "wait_for_break_ack", "wait_lease_breaking",
        "ksmbd_vfs_posix_lock_wait", "ceph_lock_wait_for_completion", "nfsd_wait_for_delegreturn",
        // md, ZFS, zram.
        "lock_all_bitmaps", "zfs_dirent_lock", "zrl_add_impl", "zrl_add", "zfs_holdfs", "spa_namespace_wait",
        "spa_namespace_enter", "zcomp_strm_multi_find",
        // Device-mapper's block manager: a lookup waits while another task changes the block
        // (drivers/md/persistent-data).
        "dm_bm_read_lock", "dm_bm_write_lock", "dm_tm_read_lock", "dm_tm_shadow_block",
    ]
    /// Waiting for an inode that another task reads or frees; an outer frame may show that the inode is being written
    /// (fs/inode.c).
    LOCK_OF_INODE = [
        "inode_wait", "ifind", "ifind_fast", "ilookup", "ilookup5", "iget_locked", "iget5_locked", "get_new_inode",
        "get_new_inode_fast", "inode_insert5", "insert_inode_locked", "insert_inode_locked4",
    ]
    /// Retrying an allocation, or waiting for memory of a pool that others use.
    PAGE_ALLOCATION = [
        "__alloc_pages_high_priority", "map_new_virtual", "kmap_high", "dma_pool_alloc", "free_more_memory",
        "kmem_zone_alloc", "kmem_realloc", "_xfs_buf_lookup_pages", "xfs_buf_allocate_memory", "xfs_buf_alloc_kmem",
        "journal_alloc_journal_head", "alloc_jh", "get_bitmap_node", "get_mem_for_virtual_node", "svc_alloc_arg",
        "vdo_allocate_memory", "abd_alloc_chunks", "abd_alloc_from_pages", "task_alloc",
    ]
    /// An allocation in a loop; an outer frame gives its purpose.
    PAGE_ALLOCATION_OF = [
        "__vmalloc_area_node", "__vmalloc_node_range", "__vmalloc_node_range_noprof", "ext4_bio_write_page",
    ]
    /// Reading pages back from swap.
    SWAP_IN = [
        "__read_swap_cache_async", "swap_read_folio_bdev_sync", "swap_read_folio_bdev_async", "try_to_unuse",
        "unuse_pte_range",
    ]
    /// Freezing a file system, or waiting for the thaw (fs/super.c, fs/block_dev.c).
    FS_FREEZE = [
        "freeze_bdev", "thaw_bdev", "bdev_freeze", "bdev_thaw", "get_super_thawed", "get_super_exclusive_thawed",
        "user_get_super", "wait_for_partially_frozen", "lock_fs",
    ]
    /// Waits without a cause of their own: an RCU grace period, an answer of a daemon in user space, the end of a
    /// thread, a core dump, a device that is not a disk. The outer frames only show what the thread was about to do
    /// next.
    OUTSIDE = [
        // kernel/rcu, and srcu.
        "synchronize_rcu*", "synchronize_sched*", "synchronize_srcu*", "__synchronize_srcu", "synchronize_net",
        "wait_rcu_gp", "__wait_rcu_gp", "rcu_barrier*", "_rcu_barrier", "srcu_barrier",
        // Upcalls to rpc.gssd, mountd, the automounter, fanotify listeners, userfaultfd handlers and the module
        // loader.
        "gss_cred_init", "gss_create_upcall", "cache_wait_req", "autofs_wait", "autofs4_wait", "autofs_expire_wait",
        "autofs4_expire_wait", "fanotify_handle_event", "fanotify_get_response*", "userfaultfd_event_wait_completion",
        "cachefiles_ondemand_send_req", "call_usermodehelper_exec", "__cld_pipe_upcall",
        // Threads and processes that exit, are traced, are frozen or dump core.
        "kthread_stop", "kthread_park", "coredump_wait", "do_coredump", "de_thread", "wait_for_vfork_done", "do_wait",
        "ptrace_stop", "refrigerator", "__refrigerator",
        // Graphics, and the balloon driver of a guest.
        "dma_fence_*", "dma_resv_*", "tell_host",
        // A reference to a network device, a module or an object that has not been dropped yet.
        "netdev_wait_allrefs*", "pin_kill",
    ]
}

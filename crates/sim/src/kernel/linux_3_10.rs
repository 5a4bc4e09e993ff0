//! Linux 3.10: the first with IO-less throttling here; LRU lists by zone, SLUB, ext4 and xfs.

use super::linux_6::{COSTS, OBJECTS};
use super::{
    Batch, Batches, CfqDepth, Constant, DirtySpread, Immediate, IoLessRule, KswapdRule, Profile, QueueRule, ReadAround,
    ReclaimWrites, Shares, ShrinkRule, SlabFallback, SwapRule, SyncWrites, Throttle, ZoneReclaim, linux_2_6_32,
};

pub fn profile() -> Profile {
    Profile {
        name: "linux-3.10",
        sentence: "3.10: pauses instead of writeback in balance_dirty_pages, only kswapd writes from reclaim, LRU \
            lists by zone.",
        hz: Constant::kernel(1000, "kernel/Kconfig.hz", "CONFIG_HZ of that distribution", "3.10"),
        struct_page_bytes: Constant::kernel(64, "include/linux/mm_types.h", "sizeof(struct page), x86-64", "3.10"),
        reclaim_distance: Some(Constant::kernel(30, "include/linux/topology.h", "RECLAIM_DISTANCE", "3.10")),
        dirty_spread: DirtySpread::ByZone,
        slab_fallback: SlabFallback::TriesHarder,
        slub: true,
        zone_reclaim: ZoneReclaim::PerZone,
        throttle: Throttle::IoLess,
        io_less: IoLessRule { plans_pauses: true, ..linux_2_6_32::profile().io_less },
        shares: Shares::ByTime,
        shrink: ShrinkRule {
            divisor_is_lru: true,
            winds_up: false,
            counts_inode_pages: true,
            cache_holds_inodes: false,
            dentries_queue: false,
            lazy_inodes: true,
            new_are_referenced: true,
        },
        reclaim_writes: ReclaimWrites::Kswapd,
        immediate: Immediate::Writeback,
        kswapd: KswapdRule::WholeShares,
        waits_uncongested: false,
        swap: SwapRule { trims_cache: true, zero_is_never: true, ..linux_2_6_32::profile().swap },
        spares_used_once: true,
        read_around: ReadAround::Marked,
        khugepaged: true,
        huge_pages: true,
        slabinfo_walks_all: false,
        journal: true,
        batches: Batches { ext3: Batch::No, ext4: Batch::No },
        device_background: true,
        ext3_barriers: true,
        md_barriers: true,
        queue: QueueRule {
            cfq_scales: true,
            sync_writes: SyncWrites::AmongSeekers,
            cfq_depth: CfqDepth::Twice,
            drains: false,
            ..linux_2_6_32::profile().queue
        },
        file_systems: &["ext4", "xfs", "ext3", "ext2", "nfs", "nfs4"],
        schedulers: &["cfq", "deadline", "none", "noop"],
        page_tables: false,
        inodes_per_block: Constant::kernel(16, "fs/ext4/ext4.h", "EXT4_INODES_PER_BLOCK (256 bytes)", "3.10"),
        objects: OBJECTS,
        costs: COSTS,
        ..linux_2_6_32::profile()
    }
}

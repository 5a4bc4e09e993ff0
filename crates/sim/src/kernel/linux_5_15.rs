//! Linux 5.15: watermark boosts, CPU lists sized by the low watermark, page cache that holds inodes.

use super::{
    BandwidthRule, BarrierOptions, Constant, IoLessRule, NfsCongestion, NfsRule, Profile, QueueRule, ScanBalance,
    ShadowNodes, ShrinkRule, SwapRule, Workingset, linux_4_18,
};

pub fn profile() -> Profile {
    Profile {
        name: "linux-5.15",
        sentence: "5.15: as 4.18, with watermark boosts (5.0), CPU lists by low watermark (5.14) and page cache that holds inodes.",
        hz: Constant::kernel(250, "kernel/Kconfig.hz", "CONFIG_HZ, default", "5.15"),
        min_free_kbytes_max: Constant::kernel(262_144, "mm/page_alloc.c", "init_per_zone_wmark_min", "5.15"),
        page_blocks: true,
        shadow_nodes: ShadowNodes::OfAll,
        scan_sees_refaults: true,
        xfs_barrier_options: BarrierOptions::Gone,
        shrink: ShrinkRule { cache_holds_inodes: true, ..linux_4_18::profile().shrink },
        workingset: Workingset::OfBoth,
        swap: SwapRule {
            balance: ScanBalance::Cost,
            starts_active: false,
            activates_faulted: false,
            ..linux_4_18::profile().swap
        },
        queue: QueueRule { multi_queue: true, ..linux_4_18::profile().queue },
        schedulers: &["deadline", "mq-deadline", "bfq", "none"],
        populates_write: true,
        nfs: NfsRule { congestion: NfsCongestion::Marks, reads_far_ahead: false },
        writes_start_handles: false,
        converts_extents: true,
        io_less: IoLessRule { bandwidth: BandwidthRule::ByFile, ..linux_4_18::profile().io_less },
        ..linux_4_18::profile()
    }
}

//! Linux 2.6.17: the kernel of the ten bulk writers.

use super::{Constant, Profile, SlabFallback, Throttle, ZoneReclaim, linux_2_6_32};

pub fn profile() -> Profile {
    Profile {
        name: "linux-2.6.17",
        sentence: "2.6.17: a per-CPU dirty rate limit, writers that write out a chunk themselves, batching requests.",
        hz: Constant::kernel(250, "kernel/Kconfig.hz", "CONFIG_HZ, default", "2.6.17"),
        schedulers: &["deadline", "none", "noop"],
        file_systems: &["ext3", "ext2", "reiserfs"],
        shared_lru: true,
        relatime: false,
        slab_fallback: SlabFallback::TriesHarder,
        zone_reclaim: ZoneReclaim::None,
        throttle: Throttle::PerCpuRateLimit,
        min_free_kbytes_max: Constant::kernel(65_536, "mm/page_alloc.c", "init_per_zone_pages_min", "2.6.17"),
        dirty_ratio: Constant::kernel(40, "mm/page-writeback.c", "vm_dirty_ratio", "2.6.17"),
        background_ratio: Constant::kernel(10, "mm/page-writeback.c", "dirty_background_ratio", "2.6.17"),
        ..linux_2_6_32::profile()
    }
}

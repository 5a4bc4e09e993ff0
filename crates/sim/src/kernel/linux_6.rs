//! Linux 6.1, 6.12 and 6.18.

use super::{Constant, CostTable, Objects, Profile, SlabFallback, Throttle, ZoneReclaim, linux_2_6_32};
use crate::mm::slab::ObjectShape;
use crate::sched::site::Generation;

/// SLUB, in slabs of one page: 39 buffer_heads of 104 B; ext4 inode 1192 B, dentry 192 B as measured on 6.18.
pub const OBJECTS: Objects = Objects {
    buffer_head: Constant::kernel(
        ObjectShape { name: "buffer_head", bytes: 104, per_slab: 39, pages: 1 },
        "include/linux/buffer_head.h",
        "sizeof; mm/slub.c: calculate_order",
        "6.1",
    ),
    inode: Constant::measured(
        ObjectShape { name: "ext4_inode_cache", bytes: 1192, per_slab: 3, pages: 1 },
        "/proc/slabinfo of 6.18",
    ),
    dentry: Constant::kernel(
        ObjectShape { name: "dentry", bytes: 192, per_slab: 21, pages: 1 },
        "include/linux/dcache.h",
        "sizeof; mm/slub.c: calculate_order",
        "6.1",
    ),
    radix_node: Constant::kernel(
        ObjectShape { name: "radix_tree_node", bytes: 584, per_slab: 7, pages: 1 },
        "include/linux/xarray.h",
        "sizeof; mm/slub.c: calculate_order",
        "6.1",
    ),
};

const OVERWRITES: &str =
    "pwrite() of 256 KiB over cached pages of ext4, 6.18: 384 ns a page in pages of their own, 163 ns in large folios";

/// The guest's other times were eight times the profile's; the most pages that it passed over were 11 million a second.
const PASSED_PAGES: &str =
    "Debian 6.1 in an emulated guest (agree numa-graphdb): 91 ns a page, its times over the profile's being 8";

const RECLAIMED: &str = "MADV_PAGEOUT of mapped clean pages of ext4, 6.18, less POSIX_FADV_DONTNEED of unmapped ones, CPU time, medians of three times 25 rounds 826 to 930 ns, 2-core guest; bench/reclaim_cost.py";

const FAULTS: &str = "bench/fault_around.py on ext4 of 6.18, medians of three times 9 rounds of 1024 faults 1.77 to 2.09 us and 184 to 203 ns, 2-core guest";

const UNMAPPED: &str = "bench/unmapped_cost.py on ext4 of 6.18, medians of three times 15 rounds 364 to 437, 835 to 870 and 334 to 414 ns, 2-core guest";

const KEPT: &str = "bench/keep_cost.py on ext4 of 6.18, median of 15 rounds 2.12 us, 2-core guest";

const ON_6_18: &str = "programs timing one operation on ext4 of 6.18, outside any cgroup, idle 2-core guest";

pub const COSTS: CostTable = CostTable {
    write_base_ns: Constant::assumed(900, "a plain write of a microsecond"),
    write_step_ns: Constant::measured(220, OVERWRITES),
    read_base_ns: Constant::assumed(700, "a plain read of a page in memory"),
    copy_byte_ps: Constant::assumed(120, "8 GB/s"),
    scan_page_ns: Constant::measured(370, UNMAPPED),
    scan_mapped_ns: Constant::assumed(0, "part of keep_mapped_ns and of reclaim_mapped_ns"),
    keep_mapped_ns: Constant::measured(2_100, KEPT),
    reclaim_mapped_ns: Constant::measured(850, RECLAIMED),
    free_page_ns: Constant::measured(850, UNMAPPED),
    drop_buffers_ns: Constant::measured(380, UNMAPPED),
    ahead_page_ns: Constant::measured(
        15,
        "pread() of a hole, 64 KiB a call, on ext4 of 6.18, less the second time and less memset of cold memory: six runs",
    ),
    pass_page_ns: Constant::measured(11, PASSED_PAGES),
    // Not measured on other kernels.
    stat_ns: Constant::measured(400, ON_6_18),
    open_ns: Constant::measured(900, ON_6_18),
    close_ns: Constant::measured(300, ON_6_18),
    create_ns: Constant::measured(20_000, ON_6_18),
    rename_ns: Constant::measured(21_700, ON_6_18),
    unlink_ns: Constant::measured(14_000, ON_6_18),
    list_ns: Constant::measured(13_400, ON_6_18),
    minor_fault_ns: Constant::measured(1_950, FAULTS),
    map_page_ns: Constant::measured(195, FAULTS),
    ..linux_2_6_32::COSTS
};

const COSTS_6_18: CostTable = CostTable {
    // 5.4 us for the first 4 KiB of a file, 45 us for a fresh 256 KiB: a folio's blocks are reserved once.
    add_to_cache_ns: Constant::measured(3_300, ON_6_18),
    folio_page_ns: Constant::measured(160, ON_6_18),
    free_folio_page_ns: Constant::assumed(30, "a few instructions a page"),
    // 1.5 to 2.6 s of softirq for 26 million pages.
    end_page_ns: Constant::measured(60, ON_6_18),
    ..COSTS
};

pub fn v6_1() -> Profile {
    Profile {
        name: "linux-6.1",
        generation: Generation::V6,
        sentence: "6.1: large folios only where xfs reads; pauses instead of writeback in balance_dirty_pages.",
        hz: Constant::kernel(250, "kernel/Kconfig.hz", "CONFIG_HZ, default", "6.1"),
        struct_page_bytes: Constant::kernel(64, "include/linux/mm_types.h", "sizeof(struct page), x86-64", "6.1"),
        min_free_kbytes_max: Constant::kernel(262_144, "mm/page_alloc.c", "init_per_zone_wmark_min", "6.1"),
        reclaim_distance: None,
        slab_fallback: SlabFallback::TriesHarder,
        zone_reclaim: ZoneReclaim::PerNode,
        throttle: Throttle::IoLess,
        request_pages: crate::block::REQUEST_PAGES_4_3,
        file_systems: &["ext4", "xfs", "ext2"],
        schedulers: &["deadline", "mq-deadline", "none"],
        ahead_folio_systems: &["xfs"],
        inodes_per_block: Constant::kernel(16, "fs/ext4/ext4.h", "EXT4_INODES_PER_BLOCK (256 bytes)", "6.1"),
        objects: OBJECTS,
        costs: COSTS,
        ..linux_2_6_32::profile()
    }
}

pub fn v6_12() -> Profile {
    Profile {
        name: "linux-6.12",
        pcp_auto_tuning: true,
        sentence: "6.12: as 6.1, with large folios for writes on xfs (6.6 and later).",
        large_folio_systems: &["xfs"],
        ..v6_1()
    }
}

pub fn v6_18() -> Profile {
    Profile {
        name: "linux-6.18",
        sentence: "6.18: large folios in ext4 and xfs, one for a write of many pages.",
        large_folio_systems: &["ext4", "xfs"],
        ahead_folio_systems: &["ext4", "xfs"],
        request_pages: crate::block::REQUEST_PAGES_6_17,
        costs: COSTS_6_18,
        ..v6_12()
    }
}

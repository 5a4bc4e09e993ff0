//! Linux 6.1 and 6.18 in outline: node LRU lists, scale-factor watermarks, IO-less throttling, jbd2.

use super::{
    Costs, NameCosts, Objects, Profile, ShrinkRule, SlabFallback, Throttle, WatermarkRule, ZoneReclaim, linux_2_6_32,
};
use crate::slab::ObjectShape;

/// SLUB: 39 buffer_heads of 104 B a page; ext4 inode 1192 B, dentry 192 B as measured on 6.18.
const OBJECTS: Objects = Objects {
    buffer_head: ObjectShape { name: "buffer_head", bytes: 104, per_slab: 39 },
    inode: ObjectShape { name: "ext4_inode_cache", bytes: 1192, per_slab: 3 },
    dentry: ObjectShape { name: "dentry", bytes: 192, per_slab: 21 },
    radix_node: ObjectShape { name: "radix_tree_node", bytes: 584, per_slab: 7 },
};

const COSTS: Costs = Costs {
    write_base_ns: 900,
    read_base_ns: 700,
    copy_byte_ps: 120,
    scan_page_ns: 90,
    scan_mapped_ns: 90,
    free_page_ns: 150,
    // Calibrated: the most that a guest passed over in a second of numa-graphdb.
    pass_page_ns: 13,
    jiffy_ns: 4_000_000,
    ..linux_2_6_32::COSTS
};

/// Measured on 6.18 with programs of their own (docs/simulator.md), on ext4, outside any cgroup.
const COSTS_6_18: Costs = Costs {
    // 5.4 us for the first 4 KiB of a file, 45 us for a fresh 256 KiB: a folio's blocks are reserved once.
    add_to_cache_ns: 3_300,
    folio_page_ns: 160,
    free_folio_page_ns: 30,
    // 1.5 to 2.6 s of softirq for 26 million pages.
    end_page_ns: 60,
    names: NameCosts {
        stat_ns: 400,
        open_ns: 900,
        close_ns: 300,
        create_ns: 20_000,
        rename_ns: 21_700,
        unlink_ns: 14_000,
        list_ns: 13_400,
    },
    ..COSTS
};

pub fn v6_1() -> Profile {
    Profile {
        name: "linux-6.1",
        sentence: "6.1: LRU lists by node and cgroup, IO-less throttling, jbd2 commits, stable pages off.",
        struct_page_bytes: 64,
        hz: 250,
        watermarks: WatermarkRule::ScaleFactor,
        // mm/page_alloc.c: calculate_min_free_kbytes, 5.9 and later.
        min_free_kbytes_max: 262_144,
        reclaim_distance: None,
        // Zonelists by zone went with 4.14.
        zonelist_by_zone: false,
        lru_per_node: true,
        page_blocks: true,
        flash_disk: true,
        tree_nodes: true,
        slab_fallback: SlabFallback::TriesHarder,
        zone_reclaim: ZoneReclaim::PerNode,
        throttle: Throttle::IoLess,
        shrink: ShrinkRule { divisor_is_lru: false, winds_up: false, counts_inode_pages: true, dentries_queue: false },
        slabinfo_walks_all: false,
        journal: true,
        converts_extents: true,
        page_tables: false,
        inodes_per_block: 16,
        objects: OBJECTS,
        costs: COSTS,
        ..linux_2_6_32::profile()
    }
}

pub fn v6_18() -> Profile {
    Profile {
        name: "linux-6.18",
        sentence: "6.18: as 6.1, with large folios in ext4: one for a write of many pages.",
        large_folios: true,
        costs: COSTS_6_18,
        ..v6_1()
    }
}

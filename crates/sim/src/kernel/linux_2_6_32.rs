//! Linux 2.6.32, x86-64, SLAB: the kernel of the trading journal and of the graph database.

use super::{Costs, NameCosts, Objects, Profile, ShrinkRule, SlabFallback, Throttle, WatermarkRule, ZoneReclaim};
use crate::slab::ObjectShape;

/// Objects with their slab's management on the same page (`mm/slab.c: cache_estimate`): 104 B -> 37 a page.
const OBJECTS: Objects = Objects {
    buffer_head: ObjectShape { name: "buffer_head", bytes: 104, per_slab: 37 },
    inode: ObjectShape { name: "ext3_inode_cache", bytes: 760, per_slab: 5 },
    dentry: ObjectShape { name: "dentry", bytes: 192, per_slab: 20 },
    radix_node: ObjectShape { name: "radix_tree_node", bytes: 568, per_slab: 7 },
};

const NONE_MEASURED: NameCosts =
    NameCosts { stat_ns: 0, open_ns: 0, close_ns: 0, create_ns: 0, rename_ns: 0, unlink_ns: 0, list_ns: 0 };

pub const COSTS: Costs = Costs {
    write_base_ns: 1_300,
    write_page_ns: 0,
    read_base_ns: 900,
    copy_byte_ps: 250,
    alloc_page_ns: 250,
    add_to_cache_ns: 350,
    folio_page_ns: 0,
    free_folio_page_ns: 0,
    slab_object_ns: 60,
    slab_step_ns: 15,
    cache_grow_ns: 2_000,
    // Fitted to the 40 ms of the published trace; our own walk of 425 k synthetic slabs took 35 ns each in the order of
    // addresses and 181 ns each at random, and a list through which days of reclaim have gone is in no order.
    slab_walk_ns: 160,
    scan_page_ns: 150,
    // Fitted to the two windows of 4.24 M pages a second (sar -B) in which at most one task looks on each of the database's four
    // nodes; our own walk of 8 M synthetic struct pages, list in random order, alone on its machine: 260 to 290 ns each.
    scan_mapped_ns: 940,
    free_page_ns: 250,
    pass_page_ns: 8,
    prune_object_ns: 300,
    lookup_ns: 900,
    names: NONE_MEASURED,
    minor_fault_ns: 700,
    touch_ns: 60,
    unmap_page_ns: 60,
    submit_io_ns: 1_500,
    writepage_ns: 300,
    balance_ns: 1_500,
    end_page_ns: 350,
    wakeup_ns: 2_000,
    fork_ns: 60_000,
    store_ns: 120,
    jiffy_ns: 1_000_000,
    burst_ns: 50_000,
};

pub fn profile() -> Profile {
    Profile {
        name: "linux-2.6.32",
        sentence: "2.6.32, 64-bit, SLAB, LRU lists by zone, GFP_THISNODE without reclaim, zone_reclaim.",
        page_bytes: 4096,
        // sizeof(struct page), x86-64 without debugging: present = spanned x (1 - 56/4096).
        struct_page_bytes: 56,
        hz: 1000,
        lowmem_bytes: None,
        pci_hole_bytes: 1 << 30,
        watermarks: WatermarkRule::Quarter,
        // mm/page_alloc.c: sysctl_lowmem_reserve_ratio.
        lowmem_reserve_ratio: [256, 256, 32],
        // mm/page_alloc.c: init_per_zone_wmark_min.
        min_free_kbytes_max: 65_536,
        // include/linux/topology.h: RECLAIM_DISTANCE.
        reclaim_distance: Some(20),
        // mm/page_alloc.c: default_zonelist_order: DMA zones under half of memory and 70 % of no node.
        zonelist_by_zone: true,
        lru_per_node: false,
        ages_evenly: false,
        page_blocks: false,
        tree_nodes: false,
        large_folios: false,
        slab_fallback: SlabFallback::Refuses,
        zone_reclaim: ZoneReclaim::OrderAsLruPages,
        throttle: Throttle::DoublingPauses,
        shrink: ShrinkRule { divisor_is_lru: true, winds_up: true, counts_inode_pages: false, dentries_queue: true },
        slabinfo_walks_all: true,
        buffer_heads: true,
        radix_nodes: false,
        buffer_cache: None,
        journal: false,
        converts_extents: false,
        stable_pages: false,
        read_around: true,
        page_tables: true,
        leaks_journalled_pages: false,
        flash_disk: false,
        // mm/page-writeback.c: vm_dirty_ratio, dirty_background_ratio.
        dirty_ratio: 20,
        background_ratio: 10,
        // ext3: 128-byte inodes.
        inodes_per_block: 32,
        names_per_block: None,
        objects: OBJECTS,
        costs: COSTS,
    }
}

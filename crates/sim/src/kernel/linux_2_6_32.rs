//! Linux 2.6.32, x86-64, SLAB: the kernel of the trading journal and of the graph database.

use super::{Constant, CostTable, Objects, Profile, SlabFallback, Throttle, ZoneReclaim};
use crate::mm::slab::ObjectShape;
use crate::sched::site::Generation;

/// sizeof of the struct on x86-64.
const fn object(name: &'static str, bytes: u64, from: &'static str) -> Constant<ObjectShape> {
    Constant::kernel(ObjectShape::slab(name, bytes, 8), from, "sizeof; mm/slab.c: cache_estimate", "2.6.32")
}

const OBJECTS: Objects = Objects {
    buffer_head: object("buffer_head", 104, "include/linux/buffer_head.h"),
    inode: object("ext3_inode_cache", 760, "include/linux/ext3_fs_i.h"),
    dentry: object("dentry", 192, "include/linux/dcache.h"),
    radix_node: object("radix_tree_node", 568, "lib/radix-tree.c"),
};

const WALKED_SLABS: &str =
    "a list of 425 000 synthetic slabs in random order, idle 2-core guest (the walk of bench/walks.rs)";
const CLEARED: &str = "first touches of huge pages, 344 ns each 4 KiB, beside read() of cached bytes into memory in use, 293 ns, \
     6.18, 2-core guest; bench/walks.rs repeats it";
const NOT_APART: Constant<u64> = Constant::assumed(0, "part of the lookup");

pub const COSTS: CostTable = CostTable {
    write_base_ns: Constant::assumed(1_300, "a plain write of a few microseconds"),
    write_step_ns: Constant::assumed(0, "part of copying (4 GB/s)"),
    read_base_ns: Constant::assumed(900, "a plain read of a page in memory: under a microsecond"),
    copy_byte_ps: Constant::assumed(250, "4 GB/s: memory of 2009, both ends cold"),
    clear_percent: Constant::assumed(50, "one end is cold, not two"),
    clear_huge_percent: Constant::measured(117, CLEARED),
    alloc_page_ns: Constant::assumed(250, "part of a plain write"),
    add_to_cache_ns: Constant::assumed(350, "part of a plain write"),
    folio_page_ns: Constant::assumed(0, "no large folios"),
    ahead_page_ns: Constant::assumed(0, "no large folios"),
    free_folio_page_ns: Constant::assumed(0, "no large folios"),
    slab_object_ns: Constant::assumed(60, "part of a plain write"),
    slab_step_ns: Constant::assumed(15, "a few instructions with the slab in the cache"),
    cache_grow_ns: Constant::assumed(2_000, "9 us in the published trace with probes on"),
    slab_walk_ns: Constant::measured(181, WALKED_SLABS),
    scan_page_ns: Constant::assumed(150, "two cache misses"),
    scan_mapped_ns: Constant::assumed(150, "as unmapped pages"),
    keep_mapped_ns: Constant::fitted(940, "graphdb-zone-reclaim: pages scanned a second"),
    reclaim_mapped_ns: Constant::assumed(790, "with the look as much as a page that stays"),
    free_page_ns: Constant::assumed(250, "part of a plain truncation"),
    drop_buffers_ns: Constant::assumed(0, "part of free_page_ns"),
    pass_page_ns: Constant::assumed(8, "one list move"),
    prune_object_ns: Constant::assumed(300, "a few cache misses"),
    lookup_ns: Constant::assumed(900, "a path of two components"),
    stat_ns: NOT_APART,
    open_ns: NOT_APART,
    close_ns: NOT_APART,
    create_ns: NOT_APART,
    rename_ns: NOT_APART,
    unlink_ns: NOT_APART,
    list_ns: NOT_APART,
    minor_fault_ns: Constant::assumed(600, "entry, page table, exit"),
    map_page_ns: Constant::assumed(100, "a look into the page cache and an entry"),
    touch_ns: Constant::assumed(60, "a load that misses every cache"),
    unmap_page_ns: Constant::assumed(60, "a cleared entry"),
    submit_io_ns: Constant::assumed(1_500, "a bio and a request"),
    writepage_ns: Constant::assumed(300, "a page of a bio"),
    balance_ns: Constant::assumed(1_500, "page states of all CPUs summed up"),
    end_page_ns: Constant::assumed(350, "softirq bursts of 45 us for a request of 128 pages"),
    wakeup_ns: Constant::assumed(2_000, "a context switch"),
    fork_ns: Constant::assumed(60_000, "a small process"),
    store_ns: Constant::assumed(120, "a store to a mapped page"),
    burst_ns: Constant::assumed(50_000, "granularity: shorter than anything that is measured"),
};

const INODES_PER_BLOCK: Constant<u64> =
    Constant::kernel(32, "include/linux/ext3_fs.h", "EXT3_GOOD_OLD_INODE_SIZE (128 bytes)", "2.6.32");

/// mm/page_alloc.c: sysctl_lowmem_reserve_ratio.
const LOWMEM_RESERVE_RATIO: [u64; 3] = [256, 256, 32];

pub fn profile() -> Profile {
    PROFILE
}

const PROFILE: Profile = Profile {
    name: "linux-2.6.32",
    generation: Generation::V2_6,
    sentence: "2.6.32, 64-bit, SLAB, LRU lists by zone, GFP_THISNODE without reclaim, zone_reclaim.",
    struct_page_bytes: Constant::kernel(56, "include/linux/mm_types.h", "sizeof(struct page), x86-64", "2.6.32"),
    hz: Constant::kernel(1000, "kernel/Kconfig.hz", "CONFIG_HZ of that distribution", "2.6.32"),
    lowmem_bytes: None,
    pci_hole_bytes: Constant::assumed(1 << 30, "what PCI takes below 4 GiB on such machines"),
    lowmem_reserve_ratio: LOWMEM_RESERVE_RATIO,
    min_free_kbytes_max: Constant::kernel(65_536, "mm/page_alloc.c", "init_per_zone_wmark_min", "2.6.32"),
    reclaim_distance: Some(Constant::kernel(20, "include/linux/topology.h", "RECLAIM_DISTANCE", "2.6.32")),
    large_folio_systems: &[],
    ahead_folio_systems: &[],
    shared_lru: false,
    relatime: true,
    pcp_auto_tuning: false,
    slab_fallback: SlabFallback::Refuses,
    zone_reclaim: ZoneReclaim::OrderAsLruPages,
    throttle: Throttle::DoublingPauses,
    radix_nodes: false,
    buffer_cache: None,
    file_systems: &["ext3", "ext2", "reiserfs"],
    schedulers: &["deadline", "none", "noop"],
    request_pages: crate::block::REQUEST_PAGES,
    leaks_journalled_pages: false,
    dirty_ratio: Constant::kernel(20, "mm/page-writeback.c", "vm_dirty_ratio", "2.6.32"),
    background_ratio: Constant::kernel(10, "mm/page-writeback.c", "dirty_background_ratio", "2.6.32"),
    inodes_per_block: INODES_PER_BLOCK,
    names_per_block: None,
    objects: OBJECTS,
    costs: COSTS,
};

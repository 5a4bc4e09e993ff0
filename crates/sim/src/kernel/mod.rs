//! Kernel profiles: which choices a version makes and with which constants. One file per version.
//!
//! Facts of a kernel carry their function and file; times are calibrated and listed with what they were fitted to in
//! docs/simulator.md. They are for a CPU of about 2.7 GHz; `cpu_speed_percent` of a scenario scales them.

mod linux_2_2;
mod linux_2_2_3;
mod linux_2_2_3_proposed;
mod linux_2_2_5;
mod linux_2_6_17;
mod linux_2_6_20;
mod linux_2_6_32;
mod linux_6;
mod name_costs;
mod speed;

pub use self::name_costs::NameCosts;
use super::slab::ObjectShape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatermarkRule {
    /// low = min + min/4, high = min + min/2.
    Quarter,
    /// Gaps from watermark_scale_factor (4.6 and later).
    ScaleFactor,
}

/// What GFP_THISNODE does when the node is below its low mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlabFallback {
    /// Fails at once, without waking kswapd (2.6.32).
    Refuses,
    /// Wakes kswapd and goes down to min.
    TriesHarder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneReclaim {
    None,
    /// __zone_reclaim of 2.6.32, which passes `order` to shrink_slab where lru_pages belongs.
    OrderAsLruPages,
    /// node_reclaim of 4.8 and later.
    PerNode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    None,
    PerCpuRateLimit,
    DoublingPauses,
    IoLess,
}

#[derive(Clone, Copy, Debug)]
pub struct ShrinkRule {
    /// The request is divided by the LRU's length (up to 4.15); later it follows the priority instead.
    pub divisor_is_lru: bool,
    /// What a caller without __GFP_FS may not ask for stays owed in full, up to twice the cache, and the next caller asks
    /// for it at once (mm/vmscan.c: shrink_slab, up to 3.0; 3.1 ends it: "reduce wind up shrinker->nr").
    pub winds_up: bool,
    /// Pages that go with their inodes count as reclaimed (fs/inode.c: prune_icache_sb, 3.3 and later).
    pub counts_inode_pages: bool,
    /// A dentry is marked as referenced only when it is put on the list anew, not at each lookup, and stays where it is
    /// while it is used (fs/dcache.c: dput, prune_dcache, up to 2.6.37): a queue with one second chance.
    pub dentries_queue: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Objects {
    pub buffer_head: ObjectShape,
    pub inode: ObjectShape,
    pub dentry: ObjectShape,
    pub radix_node: ObjectShape,
}

/// CPU times in ns, of which those marked * are fitted.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A write() of no bytes, to the page cache and back.
    pub write_base_ns: u64,
    /// A new page of a file in a write(), beside what putting it into the page cache takes.
    pub write_page_ns: u64,
    pub read_base_ns: u64,
    /// Copying one byte, ps.
    pub copy_byte_ps: u64,
    pub alloc_page_ns: u64,
    pub add_to_cache_ns: u64,
    /// Each further page of a large folio, in place of the two above.
    pub folio_page_ns: u64,
    /// Freeing each page of a large folio, beside `free_page_ns` for the folio.
    pub free_folio_page_ns: u64,
    pub slab_object_ns: u64,
    /// Moving one object between a slab and the CPU's array, under the list lock.
    pub slab_step_ns: u64,
    pub cache_grow_ns: u64,
    /// * Visiting one slab on a list in s_show().
    pub slab_walk_ns: u64,
    /// * Looking at one page in shrink_page_list, lists and locks included.
    pub scan_page_ns: u64,
    /// * The same for a page that processes have mapped.
    pub scan_mapped_ns: u64,
    /// Passing over one in isolate_lru_folios.
    pub pass_page_ns: u64,
    pub free_page_ns: u64,
    pub prune_object_ns: u64,
    pub lookup_ns: u64,
    pub names: NameCosts,
    pub minor_fault_ns: u64,
    pub touch_ns: u64,
    pub unmap_page_ns: u64,
    pub submit_io_ns: u64,
    pub writepage_ns: u64,
    /// One look at the dirty limits in balance_dirty_pages: the page states of all CPUs summed up.
    pub balance_ns: u64,
    /// Softirq work to end the I/O of one page.
    pub end_page_ns: u64,
    pub wakeup_ns: u64,
    pub fork_ns: u64,
    pub store_ns: u64,
    pub jiffy_ns: u64,
    /// How much noted CPU time a long loop performs at once.
    pub burst_ns: u64,
}

/// What `__bforget` of fs/buffer.c makes of the buffer of a freed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bforget {
    Orphans,
    FreesWhenUnheld,
    PutsLastFree,
}

/// Constants of the 2.2 generation; a profile that has them runs on its own memory model (`sim::v22`).
#[derive(Clone, Copy, Debug)]
pub struct BufferCache {
    pub bforget: Bforget,
    pub freepages_shift: u32,
    pub freepages_min: [u64; 2],
    pub priority: u32,
    pub swap_cluster_max: u64,
    pub buffermem_min_percent: u64,
    pub pagecache_min_percent: u64,
    pub nfract_percent: u64,
    pub ndirty: usize,
    pub age_buffer_ns: u64,
    pub kernel_bytes: u64,
    pub process_pages: u64,
}

#[derive(Clone, Debug)]
pub struct Profile {
    pub name: &'static str,
    pub sentence: &'static str,
    pub page_bytes: u64,
    pub struct_page_bytes: u64,
    pub hz: u64,
    /// 32-bit: memory that the kernel can address without mapping; the rest is HighMem.
    pub lowmem_bytes: Option<u64>,
    /// Address range below 4 GiB that PCI takes on these machines: memory moves above it, mem_map covers it.
    pub pci_hole_bytes: u64,
    pub watermarks: WatermarkRule,
    pub lowmem_reserve_ratio: [u64; 3],
    pub min_free_kbytes_max: u64,
    /// zone_reclaim_mode is 1 at boot if some distance is over this; `None` where that was dropped.
    pub reclaim_distance: Option<u64>,
    /// The order of zonelists on machines with small DMA zones: by zone, then node.
    pub zonelist_by_zone: bool,
    /// LRU lists belong to a node, not a zone (4.8 and later).
    pub lru_per_node: bool,
    /// Each pass ages the active list by the same share as it looks at of the inactive one, and goes on to the end of it
    /// (mm/vmscan.c: shrink_zone, up to 2.6.27).
    pub ages_evenly: bool,
    /// Free pages are kept by kind of page block, whose mixing raises the watermarks for a while (5.0 and later); a CPU's
    /// list is sized by the zone's low mark (5.14 and later).
    pub page_blocks: bool,
    /// Nodes of the page cache's trees are counted: shadow entries keep them (3.15 and later).
    pub tree_nodes: bool,
    /// A write of many pages takes one folio for them (ext4: 6.16 and later).
    pub large_folios: bool,
    pub slab_fallback: SlabFallback,
    pub zone_reclaim: ZoneReclaim,
    pub throttle: Throttle,
    pub shrink: ShrinkRule,
    pub slabinfo_walks_all: bool,
    pub buffer_heads: bool,
    /// Files of more than one page take a radix tree node (of 64 pages; the further ones of long files are left out).
    pub radix_nodes: bool,
    /// 2.2: buffers beside pages.
    pub buffer_cache: Option<BufferCache>,
    pub journal: bool,
    /// Blocks are allocated as unwritten and converted when their data is on disk (ext4's dioread_nolock, 5.6 and later).
    pub converts_extents: bool,
    pub stable_pages: bool,
    pub read_around: bool,
    /// The first touch of each 2 MiB of a mapping takes a page for its table, from the faulting thread's node.
    pub page_tables: bool,
    /// Truncated pages with journalled buffers stay on the LRU, mapped by nobody.
    pub leaks_journalled_pages: bool,
    /// The disk of the time, where the scenario says nothing of seeks: flash.
    pub flash_disk: bool,
    pub dirty_ratio: u64,
    pub background_ratio: u64,
    pub inodes_per_block: u64,
    /// Names in a block of a directory, where directories are modelled: a name that no dentry knows is looked up in the
    /// block that its hash leads to, and listing reads them all.
    pub names_per_block: Option<u64>,
    pub objects: Objects,
    pub costs: Costs,
}

impl Costs {
    /// Times on a machine whose CPUs run at `percent` of the reference.
    #[must_use]
    pub fn at_speed(&self, percent: u64) -> Costs {
        self.at_ratio(100, percent.max(1))
    }

    /// Times that are `to / of` as long.
    fn at_ratio(&self, to: u64, of: u64) -> Costs {
        let scale = |ns: u64| ns * to / of.max(1);
        Costs {
            write_base_ns: scale(self.write_base_ns),
            write_page_ns: scale(self.write_page_ns),
            read_base_ns: scale(self.read_base_ns),
            copy_byte_ps: scale(self.copy_byte_ps),
            alloc_page_ns: scale(self.alloc_page_ns),
            add_to_cache_ns: scale(self.add_to_cache_ns),
            folio_page_ns: scale(self.folio_page_ns),
            free_folio_page_ns: scale(self.free_folio_page_ns),
            slab_object_ns: scale(self.slab_object_ns),
            slab_step_ns: scale(self.slab_step_ns),
            cache_grow_ns: scale(self.cache_grow_ns),
            slab_walk_ns: scale(self.slab_walk_ns),
            scan_page_ns: scale(self.scan_page_ns),
            scan_mapped_ns: scale(self.scan_mapped_ns),
            pass_page_ns: scale(self.pass_page_ns),
            free_page_ns: scale(self.free_page_ns),
            prune_object_ns: scale(self.prune_object_ns),
            lookup_ns: scale(self.lookup_ns),
            names: self.names.scaled(scale),
            minor_fault_ns: scale(self.minor_fault_ns),
            // A load of mapped memory: the memory's time, not the CPU's.
            touch_ns: self.touch_ns,
            unmap_page_ns: scale(self.unmap_page_ns),
            submit_io_ns: scale(self.submit_io_ns),
            writepage_ns: scale(self.writepage_ns),
            balance_ns: scale(self.balance_ns),
            end_page_ns: scale(self.end_page_ns),
            wakeup_ns: scale(self.wakeup_ns),
            fork_ns: scale(self.fork_ns),
            store_ns: scale(self.store_ns),
            ..*self
        }
    }
}

/// Every profile there is. Adding one is its file and its line here.
pub const PROFILES: &[fn() -> Profile] = &[
    linux_2_2_3::profile,
    linux_2_2_3_proposed::profile,
    linux_2_2_5::profile,
    linux_2_6_17::profile,
    linux_2_6_20::pae_leak,
    linux_2_6_20::pae,
    linux_2_6_20::x86_64,
    linux_2_6_32::profile,
    linux_6::v6_1,
    linux_6::v6_18,
];

#[must_use]
pub fn find(name: &str) -> Option<Profile> {
    PROFILES.iter().map(|make| make()).find(|profile| profile.name == name)
}

//! Kernel profiles: the constants and features of each version, a row of data each.
//!
//! Every number is a `Constant` with its origin. CPU times are for a CPU of about 2.7 GHz; `cpu_speed_percent` of a
//! scenario scales them.

mod costs;
mod linux_2_2;
mod linux_2_6_17;
mod linux_2_6_20;
mod linux_2_6_32;
mod linux_6;
mod throttle;

pub use self::costs::{CostTable, Costs};
pub use self::throttle::Throttle;
use crate::constant::{Constant, Entry, Provenance};
use crate::mm::slab::ObjectShape;
use crate::sched::site::Generation;

/// Size of a page on every modelled machine.
pub const PAGE_BYTES: u64 = 4096;

/// What GFP_THISNODE does when the node is below its low watermark.
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

#[derive(Clone, Copy, Debug)]
pub struct Objects {
    pub buffer_head: Constant<ObjectShape>,
    pub inode: Constant<ObjectShape>,
    pub dentry: Constant<ObjectShape>,
    pub radix_node: Constant<ObjectShape>,
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
    pub freepages_shift: Constant<u64>,
    pub freepages_min: Constant<u64>,
    pub freepages_max: Constant<u64>,
    pub priority: Constant<u64>,
    pub swap_cluster_max: Constant<u64>,
    pub buffermem_min_percent: Constant<u64>,
    pub pagecache_min_percent: Constant<u64>,
    pub nfract_percent: Constant<u64>,
    pub ndirty: Constant<u64>,
    pub age_buffer_ns: Constant<u64>,
    pub kernel_bytes: Constant<u64>,
    pub process_pages: Constant<u64>,
}

#[derive(Clone, Debug)]
pub struct Profile {
    pub name: &'static str,
    pub generation: Generation,
    pub sentence: &'static str,
    pub struct_page_bytes: Constant<u64>,
    pub hz: Constant<u64>,
    /// 32-bit: lowmem, which the kernel can address without mapping; the rest is highmem.
    pub lowmem_bytes: Option<Constant<u64>>,
    /// Address range below 4 GiB that PCI uses on these machines: memory is above it, and mem_map covers it.
    pub pci_hole_bytes: Constant<u64>,
    pub lowmem_reserve_ratio: [u64; 3],
    pub min_free_kbytes_max: Constant<u64>,
    /// zone_reclaim_mode is 1 at boot if a distance exceeds this; `None` for never.
    pub reclaim_distance: Option<Constant<u64>>,
    /// File systems with large folios for writes.
    pub large_folio_systems: &'static [&'static str],
    /// File systems with large folios for readahead.
    pub ahead_folio_systems: &'static [&'static str],
    /// File and process pages share the LRU lists; each pass ages the active list by the same fraction as it scans of
    /// the inactive list (mm/vmscan.c: shrink_zone, up to 2.6.27).
    pub shared_lru: bool,
    /// Access times are relative to changes unless a mount option says otherwise (MNT_RELATIME, 2.6.30).
    pub relatime: bool,
    /// A CPU's list of free pages and its batches grow while pages are only taken (mm/page_alloc.c: nr_pcp_alloc, 6.7).
    pub pcp_auto_tuning: bool,
    pub slab_fallback: SlabFallback,
    pub zone_reclaim: ZoneReclaim,
    pub throttle: Throttle,
    /// Files of more than one page have a radix tree node (only the first node is modelled).
    pub radix_nodes: bool,
    /// 2.2: constants of the buffer cache.
    pub buffer_cache: Option<BufferCache>,
    /// File systems that the profile models; the first is the default.
    pub file_systems: &'static [&'static str],
    /// The first is the default of a disk with an arm (block/Kconfig.iosched: DEFAULT_IOSCHED).
    pub schedulers: &'static [&'static str],
    /// Pages of the largest request of a device that takes larger ones (max_sectors_kb).
    pub request_pages: Constant<u32>,
    /// Truncated pages with journalled buffers stay on the LRU without a file.
    pub leaks_journalled_pages: bool,
    pub dirty_ratio: Constant<u64>,
    pub background_ratio: Constant<u64>,
    pub inodes_per_block: Constant<u64>,
    /// Names in a block of a directory, if directories are modelled (`namei`).
    pub names_per_block: Option<Constant<u64>>,
    pub objects: Objects,
    pub costs: CostTable,
}

/// The constants of a profile other than CPU times, by field.
macro_rules! numbers {
    ($profile:expr, $($name:ident),+) => {
        vec![$(Entry {
            module: "kernel",
            name: stringify!($name),
            value: $profile.$name.get(),
            provenance: $profile.$name.provenance(),
        }),+]
    };
}

impl Profile {
    /// One tick.
    #[must_use]
    pub fn jiffy_ns(&self) -> u64 {
        1_000_000_000 / self.hz.get()
    }

    /// A kernel of 6.x: LRU lists by node, SLUB, shadow entries, shrinkers by priority, IO-less balance_dirty_pages,
    /// blk-mq with plugs.
    #[must_use]
    #[inline]
    pub fn is_6(&self) -> bool {
        self.generation == Generation::V6
    }

    /// Every constant of the table, for the listing.
    #[must_use]
    pub fn constants(&self) -> Vec<Entry> {
        if let Some(cache) = &self.buffer_cache {
            return [cache.constants(), self.costs.entries()].concat();
        }
        let mut all = numbers!(
            self,
            struct_page_bytes,
            hz,
            pci_hole_bytes,
            min_free_kbytes_max,
            dirty_ratio,
            background_ratio,
            inodes_per_block
        );
        let pairs = [
            ("lowmem_bytes", self.lowmem_bytes),
            ("reclaim_distance", self.reclaim_distance),
            ("names_per_block", self.names_per_block),
        ];
        for (name, constant) in pairs {
            all.extend(constant.map(|constant| entry(name, constant.get(), constant.provenance())));
        }
        for shape in [self.objects.buffer_head, self.objects.inode, self.objects.dentry, self.objects.radix_node] {
            all.push(entry(shape.get().name, shape.get().bytes, shape.provenance()));
        }
        all.extend(self.costs.entries());
        all
    }
}

fn entry(name: &'static str, value: u64, provenance: Provenance) -> Entry {
    Entry { module: "kernel", name, value, provenance }
}

impl BufferCache {
    fn constants(&self) -> Vec<Entry> {
        numbers!(
            self,
            freepages_shift,
            freepages_min,
            freepages_max,
            priority,
            swap_cluster_max,
            buffermem_min_percent,
            pagecache_min_percent,
            nfract_percent,
            ndirty,
            age_buffer_ns,
            kernel_bytes,
            process_pages
        )
    }
}

/// The kernels of the case studies, and modern kernels for `whatif`.
pub const PROFILES: &[fn() -> Profile] = &[
    linux_2_2::v2_2_3,
    linux_2_2::v2_2_3_proposed,
    linux_2_2::v2_2_5,
    linux_2_6_17::profile,
    linux_2_6_20::pae_leak,
    linux_2_6_20::pae,
    linux_2_6_20::x86_64,
    linux_2_6_32::profile,
    linux_6::v6_1,
    linux_6::v6_12,
    linux_6::v6_18,
];

/// The profile of this name.
#[must_use]
pub fn find(name: &str) -> Option<Profile> {
    PROFILES.iter().map(|make| make()).find(|profile| profile.name == name)
}

/// Changes in modern kernels that are known to matter and that the model does not have.
pub const ABSENT: &[&str] = &[
    "5.18: xfs: drop async cache flushes from CIL commits",
    "5.18: ext4: make mb_optimize_scan performance mount option work with extents",
    "6.4: mm: handle page faults under per-VMA locks",
];

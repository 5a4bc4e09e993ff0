//! Kernel profiles: which choices a version makes and with which constants. One file per version.
//!
//! Every number is a `Constant`, which says where it comes from. CPU times are for a CPU of about 2.7 GHz;
//! `cpu_speed_percent` of a scenario scales them.

mod costs;
mod linux_2_2;
mod linux_2_2_3;
mod linux_2_2_3_proposed;
mod linux_2_2_5;
mod linux_2_6_17;
mod linux_2_6_20;
mod linux_2_6_32;
mod linux_6;
mod rules;
mod speed;
mod throttle;

pub use self::costs::{CostTable, Costs};
pub use self::rules::{ContextReadahead, FaultAround, QueueRule, Scheduler};
pub use self::throttle::Throttle;
use super::constant::{Constant, Entry, Provenance};
use super::site::Generation;
use super::slab::ObjectShape;

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

/// Who calls pageout() for dirty pages of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimWrites {
    /// mm/vmscan.c: shrink_page_list, up to 3.1.
    Everybody,
    /// kswapd (3.2: "mm: vmscan: do not writeback filesystem pages in direct reclaim"), below priority 10, from 3.11 on where dirty pages
    /// fill the tail, from 4.11 on only what it has met there before.
    Kswapd,
    /// Nobody (ext4 in 6.2 and later; no file system from 6.16 on).
    Nobody,
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
    /// A kernel of 6.x; the others are of 2.2 or 2.6.
    pub six: bool,
    pub sentence: &'static str,
    pub page_bytes: u64,
    pub struct_page_bytes: Constant<u64>,
    pub hz: Constant<u64>,
    /// 32-bit: memory that the kernel can address without mapping; the rest is HighMem.
    pub lowmem_bytes: Option<Constant<u64>>,
    /// Address range below 4 GiB that PCI takes on these machines: memory moves above it, mem_map covers it.
    pub pci_hole_bytes: Constant<u64>,
    pub lowmem_reserve_ratio: [u64; 3],
    pub min_free_kbytes_max: Constant<u64>,
    /// zone_reclaim_mode is 1 at boot if some distance is over this; `None` where that was dropped.
    pub reclaim_distance: Option<Constant<u64>>,
    /// Each pass ages the active list by the same fraction as it scans of the inactive one, and continues to the end of
    /// it (mm/vmscan.c: shrink_zone, up to 2.6.27).
    pub ages_evenly: bool,
    /// A CPU that only takes pages takes twice as many each time, and may hold more the more it takes (mm/page_alloc.c: nr_pcp_alloc,
    /// 6.7 and later).
    pub scales_batches: bool,
    /// A write of many pages takes one folio for them on these.
    pub large_folio_systems: &'static [&'static str],
    /// Readahead takes folios that grow with its windows on these.
    pub ahead_folio_systems: &'static [&'static str],
    pub slab_fallback: SlabFallback,
    pub zone_reclaim: ZoneReclaim,
    pub throttle: Throttle,
    /// A device has at least a part of what is left of the dirty limit (6.14 and later).
    pub shares_have_floor: bool,
    /// Files of more than one page take a radix tree node (of 64 pages; the further ones of long files are left out).
    pub radix_nodes: bool,
    /// 2.2: buffers beside pages.
    pub buffer_cache: Option<BufferCache>,
    /// Access times are kept relative to changes unless a mount says otherwise (2.6.30 and later).
    pub relatime: bool,
    /// File systems whose mechanisms the profile has; the first is what it runs if the scenario names none.
    pub file_systems: &'static [&'static str],
    /// The first is the one that a disk with an arm has unless it is told otherwise (block/Kconfig.iosched: DEFAULT_IOSCHED).
    pub schedulers: &'static [&'static str],
    /// Reclaim writes dirty pages of files itself (pageout): everybody up to 3.1, then only kswapd when it is in trouble.
    pub reclaim_writes: ReclaimWrites,
    /// What shrinkers free counts towards what a memory cgroup is to be relieved of (up to 6.3).
    pub memcg_counts_slabs: bool,
    pub scheduler: Scheduler,
    pub fault_around: FaultAround,
    pub context_readahead: ContextReadahead,
    pub queue: QueueRule,
    /// Pages of the largest request of a device that takes larger ones (max_sectors_kb).
    pub request_pages: Constant<u32>,
    /// Truncated pages with journalled buffers stay on the LRU, mapped by nobody.
    pub leaks_journalled_pages: bool,
    pub dirty_ratio: Constant<u64>,
    pub background_ratio: Constant<u64>,
    pub inodes_per_block: Constant<u64>,
    /// Names in a block of a directory, where directories are modelled: a name that no dentry knows is looked up in the
    /// block that its hash leads to, and listing reads them all.
    pub names_per_block: Option<Constant<u64>>,
    pub objects: Objects,
    pub costs: CostTable,
}

/// The numbers of a profile that are no CPU times: name of the field, and the constant.
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

    /// LRU lists by node, page blocks, SLUB, shadow entries, shrinkers by priority, IO-less balance_dirty_pages.
    #[must_use]
    pub fn is_6(&self) -> bool {
        self.six
    }

    /// Whose function names its stacks have.
    #[must_use]
    pub fn generation(&self) -> Generation {
        match (&self.buffer_cache, self.six) {
            (Some(_), _) => Generation::V2_2,
            (None, false) => Generation::V2_6,
            (None, true) => Generation::V6,
        }
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

/// The kernels of the case studies, and kernels of today for `whatif`.
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

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
mod linux_3_10;
mod linux_4_18;
mod linux_5_15;
mod linux_6;
mod rules;
mod speed;
mod throttle;
mod version;

pub use self::costs::{CostTable, Costs};
pub use self::rules::{
    CfqDepth, ContextReadahead, FaultAround, QueueRule, ReadAround, Scheduler, SyncRule, SyncWrites,
};
pub use self::throttle::{BandwidthRule, IoLessRule, Throttle};
use super::constant::{Constant, Entry, Provenance};
use super::site::Generation;
use super::slab::ObjectShape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatermarkRule {
    /// low = min + min/4, high = min + min/2.
    Quarter,
    /// Gaps from watermark_scale_factor (4.6 and later).
    ScaleFactor,
}

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
    /// __zone_reclaim with the zone's own lru_pages (2.6.38 to 4.7).
    PerZone,
    /// node_reclaim of 4.8 and later.
    PerNode,
}

/// The fair zone allocator: which zones a request takes pages from in turn, each up to the gap between its low and high
/// watermark (mm/page_alloc.c: NR_ALLOC_BATCH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairZones {
    /// None: the first zone above its low watermark (up to 3.11, 4.8 and later).
    None,
    /// All of the zonelist; spent batches end in the slow path, which wakes kswapd (3.12).
    All,
    /// Those of the node, the same way (3.13, 3.14).
    OfNode,
    /// Those of the node, and all of the zonelist without fairness before the slow path (3.15 to 4.7).
    OfNodeFirst,
}

/// Whether processes' pages count as memory that could be dirty (mm/page-writeback.c: determine_dirtyable_memory, later
/// global_dirtyable_memory).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirtyable {
    /// All pages on the lists (up to 2.6.31).
    AllLists,
    /// While there is room in swap: what is reclaimable (2.6.32 to 3.13).
    WithSwap,
    /// Pages of files alone (3.14).
    Files,
}

/// How many of the page cache's tree nodes may have nothing but shadow entries (mm/workingset.c: count_shadow_nodes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowNodes {
    /// No shrinker asks (up to 4.15, whose shrinkers go by what was scanned).
    Kept,
    /// By pages of files (4.6 to 4.19).
    OfFiles,
    /// By all pages on LRU lists, and half of those beyond it go at once (4.20).
    OfAll,
}

/// What the client of NFS does with more pages under writeback than nfs_congestion_kb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsCongestion {
    /// It marks its device as congested, which no flusher of 2.6.32 and later heeds.
    Marks,
    /// Its flusher writes nothing until it is asked again (5.18 to 6.10: "nfs: remove reliance on bdi congestion").
    Skips,
    /// Its flusher waits until there are a quarter fewer (6.11: "nfs: Block on write congestion").
    Waits,
}

#[derive(Clone, Copy, Debug)]
pub struct NfsRule {
    pub congestion: NfsCongestion,
    /// Readahead of 15 times the largest read (fs/nfs/client.c: NFS_MAX_READAHEAD, up to 5.3), later of 128 KiB.
    pub reads_far_ahead: bool,
}

/// Whose part of the dirty limit a page for a write() may not exceed (`spread`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtySpread {
    /// Nobody's (up to 3.2).
    None,
    /// The zone's (3.3 to 4.7).
    ByZone,
    /// The node's (4.8 and later).
    ByNode,
}

/// Multi-gen LRU: none, on lists of a node or cgroup one by one (6.1), or a node as a whole by lru_gen_shrink_node (6.3: "mm:
/// multi-gen LRU: clarify scan_control flags").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generations {
    None,
    ByLruvec,
    ByNode,
}

/// How kswapd brings the zones of a node back to their high watermarks (up to 4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KswapdRule {
    /// Rounds that end once a cluster was freed, with naps below priority 10; a zone is spared above 8 times its high watermark
    /// (mm/vmscan.c: balance_pgdat, up to 3.8).
    Naps,
    /// The same without naps, and a zone is spared that is a hundredth of itself above (3.9, 3.10).
    WholeShares,
    /// No more than the high watermark is asked for, and scanned in proportion (3.11 to 3.15).
    Proportional,
    /// The same, with one nudge towards proportion (3.16 to 4.7).
    ProportionalOnce,
}

/// Which pages go to the tail of the inactive list once they are written, because reclaim met them there (PG_reclaim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Immediate {
    /// Those that reclaim itself writes.
    Own,
    /// Dirty ones that it leaves to the flusher (3.2: "mm: vmscan: immediately reclaim end-of-LRU dirty pages when writeback
    /// completes").
    Dirty,
    /// Those under writeback too (3.6: "memcg: further prevent OOM with too many dirty pages"; the mark is everybody's).
    Writeback,
    /// Both, which meanwhile stand on the active list, out of the way (4.11: "mm: vmscan: move dirty pages out of the way until they're
    /// flushed").
    MovesAway,
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

/// A device's part of the dirty limit, from 2.6.24 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// By the last so many pages written, and no more than others leave of the limit (up to 2.6.35).
    Clipped,
    /// The same without that; who is above the limit of all is held whatever his device has (2.6.36 to 3.5: "writeback:
    /// balance_dirty_pages(): reduce calls to global_page_state").
    ByEvents,
    /// By what was written in the last seconds (3.6 and later).
    ByTime,
    /// The same, and at least a part of what is left of the limit (6.14 and later).
    ByTimeAndRoom,
}

impl Shares {
    /// Parts are those of a period of time (lib/flex_proportions.c), not of so many events (lib/proportions.c).
    #[must_use]
    pub fn are_by_time(self) -> bool {
        matches!(self, Shares::ByTime | Shares::ByTimeAndRoom)
    }
}

/// What is remembered of evicted pages (mm/workingset.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workingset {
    Forgets,
    /// 3.15 to 5.8: files' pages, against the active list.
    OfFiles,
    /// 5.9 and later: all pages, against all that they compete with.
    OfBoth,
}

/// How reclaim divides its work between files' pages and anonymous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanBalance {
    /// One list; mapped pages go once swap_tendency reaches 100 (up to 2.6.27).
    Tendency,
    /// By the part of what was scanned that was in use (2.6.28 to 5.7).
    Rotated,
    /// By what refaults and writing out have cost (5.8 and later).
    Cost,
}

#[derive(Clone, Copy, Debug)]
pub struct SwapRule {
    pub balance: ScanBalance,
    /// New anonymous pages begin on the active list (up to 5.8).
    pub starts_active: bool,
    /// A page that a fault brings back goes to the active list (do_swap_page: activate_page, 3.19 to 5.8).
    pub activates_faulted: bool,
    /// Enough inactive page cache keeps anonymous pages from being scanned (3.8 and later).
    pub trims_cache: bool,
    /// vm.swappiness=0 scans no anonymous page while there are others (3.5 and later).
    pub zero_is_never: bool,
    /// The window of swap readahead follows how many pages of the last ones were used (3.14 and later).
    pub watches_readahead: bool,
}

/// What the handle of an fsync waits for before its transaction is committed (fs/jbd/transaction.c: journal_stop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    No,
    /// A tick, and another while others joined (up to 2.6.28).
    Jiffies,
    /// As long as commits take (2.6.29 and later).
    CommitTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    pub ext3: Batch,
    pub ext4: Batch,
}

/// What XFS makes of its mount options barrier and nobarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierOptions {
    Obeyed,
    /// It says so and flushes all the same (fs/xfs/xfs_super.c: xfs_parseargs, 4.10 to 4.18).
    Ignored,
    /// It is not mounted (4.19 and later).
    Gone,
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
    /// Page cache keeps an inode off the list of unused ones (fs/inode.c: __inode_add_lru, 5.15 and later).
    pub cache_holds_inodes: bool,
    /// A dentry is marked as referenced only when it is put on the list again, not at each lookup, and stays where it
    /// is while it is used (fs/dcache.c: dput, prune_dcache, up to 2.6.37): a queue with one second chance.
    pub dentries_queue: bool,
    /// Inodes that are used again stay on the list of unused ones until the shrinker meets them (fs/inode.c: inode_lru_isolate, 2.6.37
    /// and later).
    pub lazy_inodes: bool,
    /// A dentry or inode that is put on its list for the first time has a second chance there at once (fs/dcache.c: dput, fs/inode.c:
    /// iput_final, up to 4.14).
    pub new_are_referenced: bool,
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
    pub sentence: &'static str,
    pub page_bytes: u64,
    pub struct_page_bytes: Constant<u64>,
    pub hz: Constant<u64>,
    /// 32-bit: memory that the kernel can address without mapping; the rest is HighMem.
    pub lowmem_bytes: Option<Constant<u64>>,
    /// Address range below 4 GiB that PCI takes on these machines: memory moves above it, mem_map covers it.
    pub pci_hole_bytes: Constant<u64>,
    pub watermarks: WatermarkRule,
    pub lowmem_reserve_ratio: [u64; 3],
    pub min_free_kbytes_max: Constant<u64>,
    /// zone_reclaim_mode is 1 at boot if some distance is over this; `None` where that was dropped.
    pub reclaim_distance: Option<Constant<u64>>,
    /// The order of zonelists on machines with small DMA zones: by zone, then node (mm/page_alloc.c: default_zonelist_order, 2.6.32:
    /// DMA zones under half of memory and 70 % of no node).
    pub zonelist_by_zone: bool,
    /// LRU lists belong to a node, not a zone (4.8 and later).
    pub lru_per_node: bool,
    /// Each pass ages the active list by the same fraction as it scans of the inactive one, and continues to the end of
    /// it (mm/vmscan.c: shrink_zone, up to 2.6.27).
    pub ages_evenly: bool,
    /// Free pages are kept by kind of page block, whose mixing raises the watermarks for a while (5.0 and later); a
    /// CPU's list is sized by the zone's low watermark (5.14 and later).
    pub page_blocks: bool,
    /// What kswapd reclaims for a boost comes from the lists alone, slabs are spared (mm/vmscan.c: balance_pgdat,
    /// `may_shrinkslab`, 5.0 to 5.2).
    pub boosts_spare_slabs: bool,
    /// A request that finds no page of its kind claims a whole block or takes one page, never all that a block has free (6.10
    /// and later).
    pub whole_block_or_page: bool,
    /// A CPU that only takes pages takes twice as many each time, and may hold more the more it takes (mm/page_alloc.c: nr_pcp_alloc,
    /// 6.7 and later).
    pub scales_batches: bool,
    /// Nodes of the page cache's trees are counted: shadow entries keep them (3.15 and later).
    pub tree_nodes: bool,
    pub shadow_nodes: ShadowNodes,
    /// A write of many pages takes one folio for them on these.
    pub large_folio_systems: &'static [&'static str],
    /// Readahead takes folios that grow with its windows on these.
    pub ahead_folio_systems: &'static [&'static str],
    pub slab_fallback: SlabFallback,
    pub zone_reclaim: ZoneReclaim,
    pub fair_zones: FairZones,
    /// Whether pages that a write() will dirty are spread by the dirty limit of each zone or node.
    pub dirty_spread: DirtySpread,
    pub dirtyable: Dirtyable,
    pub throttle: Throttle,
    pub io_less: IoLessRule,
    pub shares: Shares,
    pub shrink: ShrinkRule,
    pub slabinfo_walks_all: bool,
    pub buffer_heads: bool,
    /// Files of more than one page take a radix tree node (of 64 pages; the further ones of long files are left out).
    pub radix_nodes: bool,
    /// 2.2: buffers beside pages.
    pub buffer_cache: Option<BufferCache>,
    pub journal: bool,
    /// Access times are kept relative to changes unless a mount says otherwise (2.6.30 and later).
    pub relatime: bool,
    /// File systems whose mechanisms the profile has; the first is what it runs if the scenario names none.
    pub file_systems: &'static [&'static str],
    /// The first is the one that a disk with an arm has unless it is told otherwise (block/Kconfig.iosched: DEFAULT_IOSCHED).
    pub schedulers: &'static [&'static str],
    /// MADV_POPULATE_WRITE (mm/madvise.c, 5.14 and later).
    pub populates_write: bool,
    /// ext4 starts a handle for each page of a write though its blocks are allocated later (up to 5.14).
    pub writes_start_handles: bool,
    /// `journal_async_commit` still flushes once for a commit; before, it did without (up to 2.6.31).
    pub async_commit_flushes: bool,
    /// While a flusher writes all that is dirty, it is not asked to do so once more (fs/fs-writeback.c: wb_start_writeback, 4.15 and later).
    pub one_full_flush: bool,
    /// ext4 holds a handle while it submits pages, also those that need no blocks (up to 4.13).
    pub writeback_holds_handles: bool,
    /// Blocks are allocated as unwritten and converted when their data is on disk (ext4's dioread_nolock, 5.6 and later).
    pub converts_extents: bool,
    pub stable_pages: bool,
    /// Reclaim writes dirty pages of files itself (pageout): everybody up to 3.1, then only kswapd when it is in trouble.
    pub reclaim_writes: ReclaimWrites,
    pub immediate: Immediate,
    pub nfs: NfsRule,
    /// How zones are balanced; 4.8 and later balance nodes.
    pub kswapd: KswapdRule,
    /// SLUB instead of SLAB.
    pub slub: bool,
    /// Anonymous memory comes in pages of 2 MiB where it may.
    pub huge_pages: bool,
    /// What multi-gen LRU the kernel has to turn on (lru_gen.enabled).
    pub generations: Generations,
    /// A third generation is aged whatever the sizes of the oldest and the youngest (mm/vmscan.c: should_run_aging, 6.14 and later), and
    /// pages of faults, and those that reclaim rejects, begin before the youngest (include/linux/mm_inline.h: lru_gen_folio_seq).
    pub lru_gen_reworked: bool,
    /// Multi-gen LRU (CONFIG_LRU_GEN_ENABLED) instead of the active and the inactive list.
    pub lru_gen: bool,
    /// A write marks its page accessed as a read does (up to 4.6; 4.7: "mm: filemap: only do access activations on reads").
    pub writes_activate: bool,
    pub workingset: Workingset,
    /// Callers that reclaim sleep although no device is congested (congestion_wait, up to 2.6.36; later wait_iff_congested).
    pub waits_uncongested: bool,
    /// reclaim_throttle() in place of congestion_wait() (5.16 and later).
    pub throttles_reclaim: bool,
    /// What shrinkers free counts towards what a memory cgroup is to be relieved of (up to 6.3).
    pub memcg_counts_slabs: bool,
    /// Activated refaults take the active list's protection (4.12 and later).
    pub refaults_age_active: bool,
    pub swap: SwapRule,
    /// A mapped page found referenced for the first time is spared, not activated (2.6.34 and later).
    pub spares_used_once: bool,
    /// khugepaged raises min_free_kbytes at boot (2.6.38 and later, where transparent huge pages are on).
    pub khugepaged: bool,
    pub scheduler: Scheduler,
    pub sync: SyncRule,
    pub read_around: ReadAround,
    pub fault_around: FaultAround,
    pub context_readahead: ContextReadahead,
    /// A call of more than the readahead limit reads as much as the device takes at once (4.10 and later).
    pub calls_widen_readahead: bool,
    pub queue: QueueRule,
    /// Pages of the largest request of a device that takes larger ones (max_sectors_kb).
    pub request_pages: Constant<u32>,
    /// fsync and the commits that it asks for write as reads do: with requests of the synchronous pool, by whose they are
    /// in CFQ (2.6.30: "block: Add BIO_RW_SYNCIO", "ext3: Use WRITE_SYNC for commits which are caused by fsync()").
    pub sync_writes: bool,
    /// jbd writes the data and the log of every commit as if somebody waited for it (fs/jbd/commit.c: journal_commit_transaction with
    /// WRITE_SYNC, 3.0 and 3.1; 3.4: "jbd: Refine commit writeout logic").
    pub jbd_writes_sync: bool,
    /// Whether a device's flusher also writes when the device is over its share of the background limit
    /// (mm/page-writeback.c: over_bground_thresh, 3.2).
    pub device_background: bool,
    /// fdatasync of what only overwrote blocks waits for no commit (ext3, ext4: 2.6.26 and later).
    pub fdatasync_skips: bool,
    pub batches: Batches,
    pub xfs_barrier_options: BarrierOptions,
    /// The active list of files is aged by the root of its size, as that of anonymous pages is (4.7 and later).
    pub files_by_ratio: bool,
    /// Whether there are files enough to spare anonymous pages is also decided by refaults (5.3 and later), not only what is aged.
    pub scan_sees_refaults: bool,
    /// The first touch of each 2 MiB of a mapping takes a page for its table, from the faulting thread's node.
    pub page_tables: bool,
    /// Truncated pages with journalled buffers stay on the LRU, mapped by nobody.
    pub leaks_journalled_pages: bool,
    /// A disk has several commands at once (NCQ in libata, 2.6.18 and later).
    pub queues_commands: bool,
    /// ext3 has its log written in order by flushes of the disk's cache (3.1 and later by default).
    pub ext3_barriers: bool,
    /// md passes flushes on at every level; before, only raid1 did (2.6.33 and later).
    pub md_barriers: bool,
    /// The disk of the time, where the scenario says nothing of seeks: flash.
    pub flash_disk: bool,
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

    /// Whose function names its stacks have.
    #[must_use]
    pub fn generation(&self) -> Generation {
        let has_folios = self.name.starts_with("linux-6");
        match (&self.buffer_cache, self.slub) {
            (Some(_), _) => Generation::V2_2,
            (None, false) => Generation::V2_6,
            (None, true) if has_folios => Generation::V6,
            (None, true) => Generation::V3,
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

/// Every profile with a file of its own. Adding one is its file and its line here; kernels between them are made of the one
/// before by what changed since (`version`).
pub const PROFILES: &[fn() -> Profile] = &[
    linux_2_2_3::profile,
    linux_2_2_3_proposed::profile,
    linux_2_2_5::profile,
    linux_2_6_17::profile,
    linux_2_6_20::pae_leak,
    linux_2_6_20::pae,
    linux_2_6_20::x86_64,
    linux_2_6_32::profile,
    linux_3_10::profile,
    linux_4_18::profile,
    linux_5_15::profile,
    linux_6::v6_1,
    linux_6::v6_12,
    linux_6::v6_18,
    linux_6::v6_18_lru_gen,
];

pub use version::{absent, absent_in, history, same_as};

#[must_use]
pub fn find(name: &str) -> Option<Profile> {
    let own = PROFILES.iter().map(|make| make()).find(|profile| profile.name == name);
    own.or_else(|| version::between(name))
}

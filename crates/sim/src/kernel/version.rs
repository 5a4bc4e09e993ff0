//! Kernels between those that have a profile of their own: the one before, and each change up to the version asked for.
//!
//! A before and after of one patch so is two versions that differ in nothing else. A version is what the model knows of it;
//! of the changes that it has not, some are named.

use super::{
    BandwidthRule, BarrierOptions, Batch, Batches, CfqDepth, Constant, ContextReadahead, DirtySpread, Dirtyable,
    FairZones, FaultAround, Generations, Immediate, KswapdRule, NfsCongestion, Profile, ReadAround, ReclaimWrites,
    ScanBalance, Scheduler, ShadowNodes, Shares, SyncRule, SyncWrites, Throttle, WatermarkRule, Workingset,
    ZoneReclaim, linux_2_6_17, linux_2_6_32, linux_3_10, linux_4_18, linux_5_15, linux_6,
};

type Version = [u32; 3];

/// What a version brought that profiles tell apart.
struct Change {
    since: Version,
    /// The commit's title.
    title: &'static str,
    apply: fn(&mut Profile),
}

const fn change(since: Version, title: &'static str, apply: fn(&mut Profile)) -> Change {
    Change { since, title, apply }
}

const BASES: &[(Version, fn() -> Profile)] = &[
    ([2, 6, 17], linux_2_6_17::profile),
    ([2, 6, 32], linux_2_6_32::profile),
    ([3, 10, 0], linux_3_10::profile),
    ([4, 18, 0], linux_4_18::profile),
    ([5, 15, 0], linux_5_15::profile),
    ([6, 1, 0], linux_6::v6_1),
    ([6, 12, 0], linux_6::v6_12),
    ([6, 18, 0], linux_6::v6_18),
];

/// In order of version. A base has all of what came before it.
const CHANGES: &[Change] = &[
    change([2, 6, 18], "libata: implement NCQ", |profile| profile.queues_commands = true),
    change([2, 6, 18], "Make CFQ the default IO scheduler", |profile| {
        profile.schedulers = &["cfq", "deadline", "anticipatory", "none", "noop"];
    }),
    change([2, 6, 22], "Change default dirty-writeback limits (to 10 and 5)", |profile| {
        profile.dirty_ratio = Constant::kernel(10, "mm/page-writeback.c", "vm_dirty_ratio", "2.6.22");
        profile.background_ratio = Constant::kernel(5, "mm/page-writeback.c", "dirty_background_ratio", "2.6.22");
    }),
    change([2, 6, 22], "cfq-iosched.c: a synchronous request preempts the asynchronous queue", |profile| {
        profile.queue.cfq_preempts = true;
    }),
    change(
        [2, 6, 22],
        "cfq-iosched.c: the device has no more of a queue than a quantum, of the only busy one four",
        |profile| {
            profile.queue.cfq_depth = CfqDepth::FourfoldAlone;
        },
    ),
    change([2, 6, 24], "mm: per device dirty threshold; mm: dirty balancing for tasks", |profile| {
        profile.throttle = Throttle::TaskLimits;
    }),
    change([2, 6, 26], "ext3: fdatasync should skip metadata writeout when overwriting", |profile| {
        profile.fdatasync_skips = true;
    }),
    change([2, 6, 28], "cfq-iosched: fix queue depth detection", |profile| profile.queue.cfq_lets_go = false),
    change([2, 6, 28], "vmscan: split LRU lists into anon & file sets", |profile| {
        profile.ages_evenly = false;
        profile.swap.balance = ScanBalance::Rotated;
    }),
    change([2, 6, 28], "ext4: Rename ext4dev to ext4 (with delayed allocation)", |profile| {
        profile.file_systems = &["ext3", "ext2", "ext4", "xfs", "reiserfs"];
    }),
    change([2, 6, 29], "jbd: improve fsync batching; ext4: improve ext4 fsync batching", |profile| {
        profile.batches = Batches { ext3: Batch::CommitTime, ext4: Batch::CommitTime };
    }),
    change([2, 6, 30], "writeback: double the dirty thresholds (to 20 and 10)", |profile| {
        profile.dirty_ratio = Constant::kernel(20, "mm/page-writeback.c", "vm_dirty_ratio", "2.6.30");
        profile.background_ratio = Constant::kernel(10, "mm/page-writeback.c", "dirty_background_ratio", "2.6.30");
    }),
    change([2, 6, 30], "Add a strictatime mount option; relatime is the default", |profile| profile.relatime = true),
    change(
        [2, 6, 30],
        "block: Add BIO_RW_SYNCIO; ext3: Use WRITE_SYNC for commits which are caused by fsync()",
        |profile| {
            profile.sync_writes = true;
        },
    ),
    change([2, 6, 31], "readahead: introduce context readahead algorithm", |profile| {
        profile.context_readahead = ContextReadahead::AnyHistory;
    }),
    change([2, 6, 31], "readahead: sequential mmap readahead", |profile| profile.read_around = ReadAround::InOrder),
    change([2, 6, 31], "mm: prevent balance_dirty_pages() from doing too much work", |profile| {
        profile.throttle = Throttle::OverLimitOnly;
    }),
    change([2, 6, 32], "ext4: Fix async commit mode to be safe by using a barrier", |profile| {
        profile.async_commit_flushes = true;
    }),
    change([2, 6, 32], "ext3: Wait for proper transaction commit on fsync", |profile| profile.batches.ext3 = Batch::No),
    change([2, 6, 32], "cfq-iosched: implement slower async initiate and queue ramp up", |profile| {
        profile.queue.cfq_depth = CfqDepth::SinceSync;
    }),
    change(
        [2, 6, 33],
        "cfq-iosched: reduce write depth only if sync was delayed; no dispatch limit for single queue",
        |profile| {
            profile.queue.cfq_depth = CfqDepth::SinceLateSync;
        },
    ),
    change([2, 6, 33], "ext4: Wait for proper transaction commit on fsync", |profile| profile.batches.ext4 = Batch::No),
    change([2, 6, 33], "cfq-iosched: adapt slice to number of processes doing I/O", |profile| {
        profile.queue.cfq_scales = true
    }),
    change([2, 6, 33], "cfq-iosched: fix corner cases in idling logic", |profile| {
        profile.queue.sync_writes = SyncWrites::WaitedFor;
    }),
    change([2, 6, 33], "block: remove the anticipatory IO scheduler", |profile| {
        profile.schedulers = &["cfq", "deadline", "none", "noop"];
    }),
    change([2, 6, 33], "md: support barrier requests on all personalities", |profile| profile.md_barriers = true),
    change([2, 6, 34], "cfq-iosched: quantum check tweak", |profile| profile.queue.cfq_depth = CfqDepth::Twice),
    change([2, 6, 34], "vmscan: detect mapped file pages used only once", |profile| profile.spares_used_once = true),
    change([2, 6, 36], "writeback: balance_dirty_pages(): reduce calls to global_page_state", |profile| {
        profile.shares = Shares::ByEvents;
    }),
    change([2, 6, 37], "fs: implement lazy LRU updates for inodes", |profile| profile.shrink.lazy_inodes = true),
    change([2, 6, 37], "block: drop barrier ordering by queue draining", |profile| profile.queue.drains = false),
    change([2, 6, 37], "cfq: improve fsync performance for small files", |profile| {
        profile.queue.sync_writes = SyncWrites::AmongSeekers;
    }),
    change([2, 6, 37], "writeback: do not sleep on the congestion queue if there are no congested BDIs", |profile| {
        profile.waits_uncongested = false;
    }),
    change([2, 6, 38], "thp: add khugepaged; fs: dcache per-inode inode alias locking", |profile| {
        (profile.khugepaged, profile.huge_pages, profile.shrink.dentries_queue) = (true, true, false);
    }),
    change([2, 6, 39], "mm: wait for writeback when grabbing pages to begin a write (stable pages)", |profile| {
        profile.stable_pages = true;
    }),
    change([2, 6, 39], "block: kill off REQ_UNPLUG (jbd: WRITE_SYNC for every commit)", |profile| {
        profile.jbd_writes_sync = true;
    }),
    change([3, 0, 0], "mm: increase RECLAIM_DISTANCE to 30", |profile| {
        profile.reclaim_distance = Some(Constant::kernel(30, "include/linux/topology.h", "RECLAIM_DISTANCE", "3.0"));
        profile.zone_reclaim = ZoneReclaim::PerZone;
    }),
    change([3, 0, 0], "readahead: trigger mmap sequential readahead on PG_readahead", |profile| {
        profile.read_around = ReadAround::Marked;
    }),
    change([3, 1, 0], "ext3: make ext3 mount default to barrier=1", |profile| profile.ext3_barriers = true),
    change([3, 1, 0], "writeback: introduce max-pause and pass-good dirty limits", |profile| {
        profile.throttle = Throttle::GoodAreas;
    }),
    change([3, 1, 0], "vmscan: reduce wind up shrinker->nr when shrinker can't do work", |profile| {
        profile.shrink.winds_up = false;
    }),
    change([3, 2, 0], "writeback: IO-less balance_dirty_pages()", |profile| profile.throttle = Throttle::IoLess),
    change([3, 2, 0], "writeback: per-bdi background threshold", |profile| profile.device_background = true),
    change([3, 2, 0], "mm: vmscan: do not writeback filesystem pages in direct reclaim", |profile| {
        profile.reclaim_writes = ReclaimWrites::Kswapd;
    }),
    change([3, 2, 0], "mm: vmscan: immediately reclaim end-of-LRU dirty pages when writeback completes", |profile| {
        profile.immediate = Immediate::Dirty;
    }),
    change([3, 3, 0], "mm: try to distribute dirty pages fairly across zones", |profile| {
        profile.dirty_spread = DirtySpread::ByZone;
    }),
    change([3, 3, 0], "vfs: fix shrink_icache: count reclaimed pages (reclaim_state)", |profile| {
        profile.shrink.counts_inode_pages = true;
    }),
    change(
        [3, 3, 0],
        "writeback: max, min and target dirty pause time; writeback: dirty ratelimit - think time compensation",
        |profile| profile.io_less.plans_pauses = true,
    ),
    change([3, 4, 0], "jbd: Refine commit writeout logic", |profile| profile.jbd_writes_sync = false),
    change([3, 5, 0], "mm: fix the magically sub-optimal scan balance (swappiness 0)", |profile| {
        profile.swap.zero_is_never = true;
    }),
    change([3, 6, 0], "block: Convert BDI proportion calculations to flexible proportions", |profile| {
        profile.shares = Shares::ByTime;
    }),
    change([3, 6, 0], "memcg: further prevent OOM with too many dirty pages", |profile| {
        profile.immediate = Immediate::Writeback;
    }),
    change([3, 8, 0], "mm: memcg: only evict file pages when we have plenty", |profile| {
        profile.swap.trims_cache = true;
    }),
    change([3, 9, 0], "mm: only enforce stable page writes if the backing device requires it", |profile| {
        profile.stable_pages = false;
    }),
    change([3, 9, 0], "mm: don't wait on congested zones in balance_pgdat()", |profile| {
        profile.kswapd = KswapdRule::WholeShares;
    }),
    change([3, 11, 0], "Reduce system disruption due to kswapd (nine patches)", |profile| {
        profile.kswapd = KswapdRule::Proportional;
    }),
    change([3, 11, 0], "sync: don't block the flusher thread waiting on IO", |profile| {
        profile.sync = SyncRule::CommitsByFile;
    }),
    change([3, 12, 0], "readahead: make context readahead more conservative", |profile| {
        profile.context_readahead = ContextReadahead::MoreThanAsked;
    }),
    change(
        [3, 12, 0],
        "mm: page_alloc: fair zone allocator policy; mm: vmscan: fix numa reclaim balance problem in kswapd",
        |profile| profile.fair_zones = FairZones::All,
    ),
    change([3, 13, 0], "mm: page_alloc: revert NUMA aspect of fair allocation policy", |profile| {
        profile.fair_zones = FairZones::OfNode;
    }),
    change([3, 13, 0], "writeback: do not sync data dirtied after sync start", |profile| {
        profile.sync = SyncRule::SinceCall;
    }),
    change([3, 14, 0], "Revert \"writeback: do not sync data dirtied after sync start\"", |profile| {
        profile.sync = SyncRule::CommitsByFile;
    }),
    change([3, 14, 0], "mm/page-writeback.c: do not count anon pages as dirtyable memory", |profile| {
        profile.dirtyable = Dirtyable::Files;
    }),
    change([3, 14, 0], "swap: add a simple detector for inappropriate swapin readahead", |profile| {
        profile.swap.watches_readahead = true;
    }),
    change([3, 15, 0], "mm: thrash detection-based file cache sizing", |profile| {
        (profile.workingset, profile.tree_nodes) = (Workingset::OfFiles, true);
    }),
    change([3, 15, 0], "mm: introduce vm_ops->map_pages() (fault-around)", |profile| {
        profile.fault_around = FaultAround::Maps;
    }),
    change([3, 15, 0], "mm: page_alloc: spill to remote nodes before waking kswapd", |profile| {
        profile.fair_zones = FairZones::OfNodeFirst;
    }),
    change([3, 15, 0], "ext4: Speedup WB_SYNC_ALL pass; ext3: Speedup WB_SYNC_ALL pass", |profile| {
        profile.sync = SyncRule::Together;
    }),
    change([3, 16, 0], "mm: disable zone_reclaim_mode by default", |profile| profile.reclaim_distance = None),
    change(
        [3, 16, 0],
        "mm: vmscan: use proportional scanning during direct reclaim and full scan at DEF_PRIORITY",
        |profile| {
            profile.kswapd = KswapdRule::ProportionalOnce;
        },
    ),
    change([3, 19, 0], "mm: activate pages that are swapped in (do_swap_page)", |profile| {
        profile.swap.activates_faulted = true;
    }),
    change([3, 19, 0], "NVMe: Convert to blk-mq", |profile| profile.queue.has_multi_queue = true),
    change([4, 3, 0], "writeback: plug writeback at a high level", |profile| profile.queue.plugs = true),
    change([4, 3, 0], "block: bump BLK_DEF_MAX_SECTORS to 2560", |profile| {
        profile.request_pages = crate::block::REQUEST_PAGES_4_3;
    }),
    change([4, 6, 0], "mm: scale kswapd watermarks in proportion to memory", |profile| {
        profile.watermarks = WatermarkRule::ScaleFactor;
    }),
    change([4, 7, 0], "mm: filemap: only do access activations on reads", |profile| profile.writes_activate = false),
    change([4, 7, 0], "mm: vmscan: reduce size of inactive file list", |profile| profile.files_by_ratio = true),
    change([4, 8, 0], "cfq-iosched: Convert from jiffies to nanoseconds", |profile| profile.queue.cfq_ticks = false),
    change([4, 8, 0], "mm, page_alloc: consider dirtyable memory in terms of nodes", |profile| {
        profile.dirty_spread = DirtySpread::ByNode;
    }),
    change([4, 8, 0], "mm, vmscan: move LRU lists to node", |profile| {
        (profile.lru_per_node, profile.zone_reclaim) = (true, ZoneReclaim::PerNode);
    }),
    change([4, 8, 0], "mm, page_alloc: remove fair zone allocation policy", |profile| {
        profile.fair_zones = FairZones::None;
    }),
    change([4, 10, 0], "mm: don't cap request size based on read-ahead setting", |profile| {
        profile.calls_widen_readahead = true;
    }),
    change([4, 10, 0], "block: hook up writeback throttling", |profile| profile.queue.has_wbt = true),
    change([4, 10, 0], "xfs: deprecate barrier/nobarrier mount option", |profile| {
        profile.xfs_barrier_options = BarrierOptions::Ignored;
    }),
    change([4, 11, 0], "mm: vmscan: move dirty pages out of the way until they're flushed", |profile| {
        profile.immediate = Immediate::MovesAway;
    }),
    change([4, 12, 0], "mm: vmscan: fix IO/refault regression in cache workingset transition", |profile| {
        profile.refaults_age_active = true;
        profile.schedulers = &["cfq", "deadline", "mq-deadline", "bfq", "none", "noop"];
    }),
    // The first version that it was seen in; which one brought it was not found.
    change([4, 14, 0], "ext4: avoid unnecessary transaction stalls during writeback", |profile| {
        profile.writeback_holds_handles = false;
    }),
    change([4, 14, 0], "mm, page_alloc: rip out ZONELIST_ORDER_ZONE", |profile| profile.zonelist_by_zone = false),
    change([4, 15, 0], "fs-writeback: only allow one inflight and pending full flush", |profile| {
        profile.one_full_flush = true;
    }),
    change([4, 15, 0], "fs: don't set *REFERENCED on single use objects", |profile| {
        profile.shrink.new_are_referenced = false;
    }),
    change([4, 16, 0], "mm: use sc->priority for slab shrink targets", |profile| {
        (profile.shrink.divisor_is_lru, profile.shadow_nodes) = (false, ShadowNodes::OfFiles);
    }),
    change([4, 19, 0], "xfs: remove deprecated barrier/nobarrier mount options", |profile| {
        profile.xfs_barrier_options = BarrierOptions::Gone;
    }),
    change(
        [4, 20, 0],
        "mm: zero-seek shrinkers; mm: workingset: don't drop refault information prematurely",
        |profile| {
            profile.shadow_nodes = ShadowNodes::OfAll;
        },
    ),
    change([5, 0, 0], "mm: reclaim small amounts of memory when an external fragmentation event occurs", |profile| {
        (profile.page_blocks, profile.boosts_spare_slabs) = (true, true);
    }),
    change([5, 0, 0], "block: remove legacy IO schedulers", |profile| {
        profile.schedulers = &["deadline", "mq-deadline", "bfq", "none"];
        profile.queue.multi_queue = true;
    }),
    change([5, 3, 0], "mm, vmscan: do not special-case slab reclaim when watermarks are boosted", |profile| {
        profile.boosts_spare_slabs = false;
    }),
    change([5, 3, 0], "mm: vmscan: scan anonymous pages on file refaults", |profile| {
        profile.scan_sees_refaults = true;
    }),
    change([5, 4, 0], "NFS: Optimise the default readahead size", |profile| profile.nfs.reads_far_ahead = false),
    change([5, 6, 0], "ext4: Make dioread_nolock the default", |profile| profile.converts_extents = true),
    change([5, 8, 0], "mm: balance LRU lists based on relative thrashing", |profile| {
        profile.swap.balance = ScanBalance::Cost;
    }),
    change([5, 9, 0], "mm/vmscan: protect the workingset on anonymous LRU", |profile| {
        profile.workingset = Workingset::OfBoth;
        (profile.swap.starts_active, profile.swap.activates_faulted) = (false, false);
    }),
    change([5, 14, 0], "mm/madvise: introduce MADV_POPULATE_(READ|WRITE)", |profile| profile.populates_write = true),
    change([5, 15, 0], "vfs: keep inodes with page cache off the inode shrinker LRU", |profile| {
        profile.shrink.cache_holds_inodes = true;
    }),
    change([5, 15, 0], "ext4: drop unnecessary journal handle in delalloc write", |profile| {
        profile.writes_start_handles = false;
    }),
    change([5, 15, 0], "writeback: reliably update bandwidth estimation", |profile| {
        profile.io_less.bandwidth = BandwidthRule::ByFile;
    }),
    change([5, 16, 0], "mm/vmscan: throttle reclaim until some writeback completes if congested", |profile| {
        profile.throttles_reclaim = true;
    }),
    change([5, 18, 0], "xfs: Support large folios; mm/readahead: Add large folio readahead", |profile| {
        profile.ahead_folio_systems = &["xfs"];
    }),
    change([5, 18, 0], "nfs: remove reliance on bdi congestion", |profile| {
        profile.nfs.congestion = NfsCongestion::Skips;
    }),
    change([6, 1, 0], "mm: multi-gen LRU: minimal implementation", |profile| {
        profile.generations = Generations::ByLruvec
    }),
    change([6, 2, 0], "ext4: stop providing .writepage hook", |profile| {
        profile.reclaim_writes = ReclaimWrites::Nobody;
    }),
    change([6, 3, 0], "mm: multi-gen LRU: clarify scan_control flags", |profile| {
        profile.generations = Generations::ByNode
    }),
    change([6, 4, 0], "mm: vmscan: ignore non-LRU-based reclaim in memcg reclaim", |profile| {
        profile.memcg_counts_slabs = false;
    }),
    change([6, 6, 0], "iomap: Copy larger chunks from userspace", |profile| profile.large_folio_systems = &["xfs"]),
    change([6, 6, 0], "sched/fair: Commit to EEVDF", |profile| profile.scheduler = Scheduler::Eevdf),
    change(
        [6, 7, 0],
        "mm, page_alloc: scale the number of pages that are batch allocated; mm: add framework for PCP high auto-tuning",
        |profile| profile.scales_batches = true,
    ),
    change([6, 9, 0], "block/mq-deadline: Fix the tag reservation code", |profile| profile.queue.keeps_tags = true),
    change([6, 10, 0], "mm: page_alloc: fix freelist movement during block conversion", |profile| {
        profile.whole_block_or_page = true;
    }),
    change([6, 10, 0], "mm/filemap: don't decrease mmap_miss when folio has workingset flag", |profile| {
        profile.fault_around = FaultAround::SparesRefaulted;
    }),
    change([6, 11, 0], "nfs: Block on write congestion", |profile| profile.nfs.congestion = NfsCongestion::Waits),
    change([6, 14, 0], "mm/page-writeback: consolidate wb_thresh bumping logic into __wb_calc_thresh", |profile| {
        profile.shares = Shares::ByTimeAndRoom;
    }),
    change([6, 14, 0], "mm/mglru: rework aging feedback; rework workingset protection", |profile| {
        profile.lru_gen_reworked = true
    }),
    change([6, 16, 0], "ext4: enable large folio for regular file", |profile| {
        profile.large_folio_systems = &["ext4", "xfs"];
        profile.ahead_folio_systems = &["ext4", "xfs"];
    }),
    change([6, 17, 0], "block: Increase BLK_DEF_MAX_SECTORS_CAP", |profile| {
        profile.request_pages = crate::block::REQUEST_PAGES_6_17;
    }),
];

/// Changes that are known to matter and that the model has not, in order: a before and after across one of them is not to be
/// asked of it.
const ABSENT: &[(Version, &str)] = &[
    ([2, 6, 31], "vmscan: make mapped executable pages the first class citizen"),
    ([2, 6, 33], "readahead: add blk_run_backing_dev"),
    (
        [2, 6, 37],
        "mm/page_alloc.c: wait_iff_congested in place of congestion_wait where direct reclaim freed too little",
    ),
    ([2, 6, 39], "fs: make generic file read/write functions plug"),
    ([2, 6, 39], "xfs: delayed logging by default"),
    ([3, 3, 0], "readahead: fix pipeline break caused by block plug"),
    ([3, 13, 0], "blk-mq: new multi-queue block IO queueing mechanism"),
    ([4, 14, 0], "mm, swap: VMA based swap readahead"),
    ([5, 18, 0], "xfs: drop async cache flushes from CIL commits"),
    ([5, 18, 0], "ext4: make mb_optimize_scan performance mount option work with extents"),
    ([5, 19, 0], "ext4: improve write performance with disabled delalloc"),
    ([6, 4, 0], "mm: handle page faults under per-VMA locks"),
];

fn parse(name: &str) -> Option<Version> {
    let text = name.strip_prefix("linux-")?;
    let parts: Vec<u32> = text.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    match parts[..] {
        [major, minor] if major >= 3 => Some([major, minor, 0]),
        // Stable releases differ in nothing that the model has.
        [major, minor, _] if major >= 3 => Some([major, minor, 0]),
        [2, 6, patch] => Some([2, 6, patch]),
        _ => None,
    }
}

/// The profile of a version that has none of its own.
#[must_use]
pub fn between(name: &str) -> Option<Profile> {
    let version = parse(name)?;
    let (newest, _) = BASES.last()?;
    let (base, make) = BASES.iter().rev().find(|(base, _)| *base <= version).filter(|_| version <= *newest)?;
    let mut profile = make();
    for change in CHANGES.iter().filter(|change| change.since > *base && change.since <= version) {
        (change.apply)(&mut profile);
    }
    // Names of kernels live as long as the program: there is one for each scenario that asks for another.
    profile.name = Box::leak(name.to_owned().into_boxed_str());
    profile.sentence = "The profile before, and what the versions up to this one changed.";
    Some(profile)
}

fn spell(version: Version) -> String {
    match version {
        [2, 6, patch] => format!("linux-2.6.{patch}"),
        [major, minor, _] => format!("linux-{major}.{minor}"),
    }
}

/// What the model knows of the versions up to one, in order: the first version that has it, and the commits' titles. A base
/// stands for itself.
pub fn history() -> Vec<(String, &'static str)> {
    let changes = CHANGES.iter().map(|change| (change.since, change.title));
    let bases = BASES.iter().map(|(base, make)| (*base, make().sentence));
    let mut all: Vec<(Version, &str)> = bases.chain(changes).collect();
    all.sort_by_key(|(since, _)| *since);
    all.into_iter().map(|(since, what)| (spell(since), what)).collect()
}

/// Changes of all versions that the model is known not to have.
pub fn absent() -> impl Iterator<Item = (String, &'static str)> {
    ABSENT.iter().map(|(since, title)| (spell(*since), *title))
}

/// What a version brought that the model is known not to have.
pub fn absent_in(name: &str) -> impl Iterator<Item = &'static str> {
    let version = parse(name);
    ABSENT.iter().filter(move |(since, _)| Some(*since) == version).map(|(_, title)| *title)
}

/// The last version up to this one of which the model knows anything, if that is another: between the two it has no difference.
#[must_use]
pub fn same_as(name: &str) -> Option<String> {
    let version = parse(name)?;
    let known = CHANGES.iter().map(|change| change.since).chain(BASES.iter().map(|(base, _)| *base));
    let last = known.filter(|since| *since <= version).max()?;
    (last != version).then(|| spell(last))
}

#[cfg(test)]
mod tests {
    use super::{ABSENT, BASES, CHANGES, absent_in, between, history, parse, same_as};
    use crate::kernel::{CfqDepth, FairZones, FaultAround, Profile, SyncRule, Workingset};

    #[test]
    fn a_version_differs_from_the_one_before_in_its_own_changes_alone() {
        let limit = |name: &str| between(name).expect("known").dirty_ratio.get();
        assert_eq!(["linux-2.6.21", "linux-2.6.29", "linux-2.6.30"].map(limit), [40, 10, 20]);
        let (before, after) = (between("linux-3.14").expect("known"), between("linux-3.15").expect("known"));
        assert_eq!((before.workingset, after.workingset), (Workingset::Forgets, Workingset::OfFiles));
        let mut same = after.clone();
        (same.workingset, same.tree_nodes, same.name) = (before.workingset, before.tree_nodes, before.name);
        assert_eq!(std::mem::replace(&mut same.fault_around, before.fault_around), FaultAround::Maps);
        assert_eq!(std::mem::replace(&mut same.fair_zones, before.fair_zones), FairZones::OfNodeFirst);
        assert_eq!(std::mem::replace(&mut same.sync, before.sync), SyncRule::Together);
        assert_eq!(format!("{same:?}"), format!("{before:?}"));
        assert!(between("linux-3.5").is_some_and(|profile| profile.stable_pages && profile.swap.zero_is_never));
        assert!(between("linux-3.4").is_some_and(|profile| !profile.swap.zero_is_never));
        assert_eq!(parse("linux-5.4.17"), Some([5, 4, 0]));
        for unknown in ["linux-2.4.18", "linux-7.0", "linux-6.19", "freebsd", "linux-2.6.16"] {
            assert!(between(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn what_cfq_does_depends_on_the_version() {
        let queue = |name: &str| between(name).expect("known").queue;
        let depths = ["linux-2.6.19", "linux-2.6.26", "linux-2.6.33", "linux-3.4"].map(|name| queue(name).cfq_depth);
        assert_eq!(depths, [CfqDepth::Any, CfqDepth::FourfoldAlone, CfqDepth::SinceLateSync, CfqDepth::Twice]);
        let lets_go =
            ["linux-2.6.19", "linux-2.6.21", "linux-2.6.27", "linux-2.6.28"].map(|name| queue(name).cfq_lets_go);
        assert_eq!(lets_go, [true, true, true, false], "hw_tag, judged anew all the time from 2.6.28 on");
    }

    #[test]
    fn a_version_of_which_nothing_is_known_says_which_one_it_is() {
        assert_eq!(same_as("linux-5.5"), Some("linux-5.4".to_owned()));
        assert_eq!(same_as("linux-2.6.25"), Some("linux-2.6.24".to_owned()));
        assert_eq!([same_as("linux-5.15"), same_as("linux-3.9"), same_as("linux-2.2.3")], [None, None, None]);
        let (one, other) = (between("linux-5.5").expect("known"), between("linux-5.4").expect("known"));
        assert_eq!(format!("{one:?}").replace("5.5", "5.4"), format!("{other:?}"));
        let all = history();
        assert!(all.windows(2).all(|pair| parse(&pair[0].0) <= parse(&pair[1].0)), "{all:?}");
        assert!(all.contains(&("linux-4.10".to_owned(), "block: hook up writeback throttling")));
        assert!(all.contains(&("linux-3.2".to_owned(), "writeback: per-bdi background threshold")));
        let by_device = |name: &str| between(name).expect("known").device_background;
        assert_eq!(["linux-3.1", "linux-3.2", "linux-3.10", "linux-6.12"].map(by_device), [false, true, true, true]);
    }

    #[test]
    fn a_version_says_what_it_brought_that_the_model_has_not() {
        let titles = |name: &str| absent_in(name).collect::<Vec<_>>();
        assert_eq!(titles("linux-5.19"), ["ext4: improve write performance with disabled delalloc"]);
        assert_eq!(titles("linux-5.17"), [""; 0]);
        assert!(ABSENT.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert!(ABSENT.iter().all(|(_, title)| CHANGES.iter().all(|change| change.title != *title)));
    }

    /// What the changes make of the base before is what the next base has, in all that they are about.
    #[test]
    fn the_changes_lead_from_one_profile_to_the_next() {
        let features = |profile: &Profile| {
            format!(
                "{:?}",
                (
                    (profile.throttle, profile.reclaim_writes, profile.workingset, profile.refaults_age_active),
                    profile.writes_start_handles,
                    (
                        profile.immediate,
                        profile.throttles_reclaim,
                        profile.memcg_counts_slabs,
                        profile.waits_uncongested
                    ),
                    (profile.watermarks, profile.lru_per_node, profile.zonelist_by_zone, profile.writes_activate),
                    (profile.shrink, profile.swap, profile.stable_pages, profile.relatime, profile.page_blocks),
                    (profile.spares_used_once, profile.khugepaged, profile.converts_extents, profile.populates_write),
                    (
                        (profile.whole_block_or_page, profile.scales_batches),
                        profile.queues_commands,
                        profile.ext3_barriers,
                        profile.md_barriers,
                        (profile.jbd_writes_sync, profile.device_background)
                    ),
                    (profile.batches, profile.files_by_ratio, profile.scan_sees_refaults, profile.xfs_barrier_options),
                    (
                        profile.large_folio_systems,
                        profile.ages_evenly,
                        (profile.tree_nodes, profile.shadow_nodes),
                        (profile.generations, profile.lru_gen_reworked)
                    ),
                    (
                        profile.context_readahead,
                        profile.fdatasync_skips,
                        profile.sync_writes,
                        profile.ahead_folio_systems,
                        profile.calls_widen_readahead,
                        profile.fair_zones,
                        profile.dirty_spread,
                        (profile.queue, profile.request_pages.get()),
                        profile.shares,
                        profile.io_less,
                    ),
                )
            )
        };
        for pair in BASES.windows(2).skip(1) {
            let [(from, make), (to, next)] = [pair[0], pair[1]];
            let mut led = make();
            let between = CHANGES.iter().filter(|change| change.since > from && change.since <= to);
            between.for_each(|change| (change.apply)(&mut led));
            assert_eq!(features(&led), features(&next()), "{from:?} to {to:?}");
        }
        assert!(CHANGES.is_sorted_by_key(|change| change.since));
        assert!(CHANGES.iter().all(|change| !change.title.is_empty()));
    }
}

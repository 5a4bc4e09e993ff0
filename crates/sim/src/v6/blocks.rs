//! What page blocks have of a zone: how large the lists of CPUs are, by how much its watermarks are raised, and its frames.
//!
//! Models: `zone_batchsize`, `zone_highsize`, the most that `boost_watermark` raises (5.0 and later). What is free, and of which kind, is
//! the `buddy` system's; which block another kind takes is in `fallback`.

use super::buddy::Buddy;
use crate::constant::constants;
use crate::zone::Zone;

constants! {
    pub const PAGEBLOCK: u64 = kernel(512, "include/linux/pageblock-flags.h", "pageblock_nr_pages (2 MiB)", "6.1");
    /// What a CPU's list may grow to, of the zone and for each of the node's CPUs.
    const HIGH_FRACTION: u64 = kernel(8, "mm/page_alloc.c", "MIN_PERCPU_PAGELIST_HIGH_FRACTION", "6.12");
    /// What boot keeps of the DMA zone for itself: the first MiB (5.13 and later).
    pub const FIRST_MIB_PAGES: u64 = kernel(256, "arch/x86/realmode/init.c", "reserve_real_mode", "6.1");
    /// What is taken of that for devices that address 16 MiB (128 KiB up to 1 GiB of memory).
    pub const DMA_POOL_PAGES: u64 = kernel(32, "kernel/dma/pool.c", "dma_atomic_pool_init", "6.1");
}

/// What a zone knows of its free pages beside their number.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// Pages that a CPU's list moves at once, and holds at most (`pcp->batch`, `pcp->high`; from 6.7 on `high_min`, and `high_max`).
    pub batch: u64,
    pub high: u64,
    pub high_max: u64,
    /// Who allocated found less than the high watermark free (ZONE_BELOW_HIGH, 6.7 and later).
    pub below_high: bool,
    /// kswapd is at work here (ZONE_RECLAIM_ACTIVE).
    pub reclaim_active: bool,
    /// The temporary boost of every watermark, and its maximum (0: never).
    pub boost: u64,
    pub boost_max: u64,
    /// A boost that kswapd has not been woken for yet (ZONE_BOOSTED_WATERMARK).
    pub boosted: bool,
    /// Its free frames, one by one; none where nobody keeps account of them.
    pub buddy: Option<Buddy>,
}

impl Zone {
    /// mm/page_alloc.c: zone_batchsize, zone_highsize and boost_watermark's limits, 6.1: a quarter of a thousandth of
    /// the zone, at most 256 KiB, and the low watermark shared out among the node's CPUs; of what the zone managed when its watermarks were
    /// computed (zone_pcp_update).
    pub fn size_blocks(&mut self, cpus_of_node: u64, boost_factor: u64) {
        let managed = self.min_at_boot.map_or(self.managed, |_| self.managed_at_boot);
        let quarter = ((managed >> 10).min(256) / 4).max(1);
        let rounded = 1_u64 << (quarter + quarter / 2).ilog2();
        self.blocks.batch = (rounded - 1).max(1);
        let (cpus, least) = (cpus_of_node.max(1), 4 * self.blocks.batch);
        self.blocks.high = (self.low / cpus).max(least);
        // Up to 6.6 nothing uses it.
        self.blocks.high_max = (managed / HIGH_FRACTION.get() / cpus).max(self.blocks.high);
        // Not on zones of a few blocks, where a boost would be most of them.
        let boosts = boost_factor > 0 && 4 * PAGEBLOCK.get() <= self.managed;
        self.blocks.boost_max = if boosts { (self.high * boost_factor / 10_000).max(PAGEBLOCK.get()) } else { 0 };
    }
}

//! Page blocks: which free pages are the kernel's, and what falling back on the other kind's does to the watermarks.
//!
//! Models: of each zone's free pages how many are in blocks that kernel allocations have claimed; that a request takes
//! of its own kind first, then of the other, and that falling back raises the zone's watermarks by a block and wakes
//! kswapd (`steal_suitable_fallback`, `boost_watermark`, 5.0 and later). A free piece of a block or more changes its type at no cost.
//! Up to 6.9 a fallback takes all that its block has free; from 6.10 on only a block half of which is free or compatible, asked at
//! each order at which there is a piece, else one page, so that the next batch falls back again. Leaves out: addresses, orders of what
//! freed slabs leave, unmovable allocations, highatomic, compaction.

mod claim;
mod fallback;
pub mod open;

pub use open::Open;
use open::highest_bit;

use crate::constant::constants;
use crate::zone::{Zone, ZoneKind};

constants! {
    pub const PAGEBLOCK: u64 = kernel(512, "include/linux/pageblock-flags.h", "pageblock_nr_pages (2 MiB)", "6.1");
    /// The largest free piece that there is.
    const MAX_PIECE: u64 = kernel(1024, "include/linux/mmzone.h", "MAX_ORDER_NR_PAGES (MAX_PAGE_ORDER 10)", "6.12");
    /// Orders of free pieces, from one page to that.
    const ORDERS: usize = kernel(11, "include/linux/mmzone.h", "NR_PAGE_ORDERS (MAX_PAGE_ORDER + 1)", "6.12");
    /// The free piece that a freed slab of inodes leaves among others, pages.
    const SLAB_PIECE: u64 = kernel(4, "mm/slub.c", "calculate_order", "6.1");
    /// What a CPU's list may grow to, of the zone and for each of the node's CPUs.
    const HIGH_FRACTION: u64 = kernel(8, "mm/page_alloc.c", "MIN_PERCPU_PAGELIST_HIGH_FRACTION", "6.12");
    /// A piece of this size or more lets a movable request take all that its block has free.
    const STEALS_FROM: u64 = kernel(16, "mm/page_alloc.c", "can_steal_fallback (pageblock_order / 2)", "6.1");
    /// What boot keeps of the DMA zone for itself: the first MiB (5.13 and later).
    pub const FIRST_MIB_PAGES: u64 = kernel(256, "arch/x86/realmode/init.c", "reserve_real_mode", "6.1");
    /// The DMA zone begins at page 1, so that its first block is never made movable; 1 MiB of it is the allocator's.
    const FIRST_BLOCK_PAGES: u64 = kernel(256, "mm/page_alloc.c", "memmap_init_range", "6.1");
    /// What is taken of that for devices that address 16 MiB (128 KiB up to 1 GiB of memory).
    pub const DMA_POOL_PAGES: u64 = kernel(32, "kernel/dma/pool.c", "dma_atomic_pool_init", "6.1");
    /// Free pages of the kernel's page blocks at the start.
    const OPEN_PAGES: u64 = assumed(512, "the unmovable and the reclaimable block being filled, each half full");
}

/// Which of the open blocks (`Blocks::open`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reclaimable,
    Unmovable,
}

impl Blocks {
    /// Free pages for slabs that can be reclaimed: what freed ones left, and the blocks that they are filling.
    fn reclaimable(&self) -> u64 {
        self.kernel_free - self.free_of(Kind::Unmovable)
    }

    fn free_of(&self, kind: Kind) -> u64 {
        self.open[kind as usize].iter().map(Open::free).sum()
    }

    fn open_free(&self) -> u64 {
        self.free_of(Kind::Reclaimable) + self.free_of(Kind::Unmovable)
    }

    /// The sizes of the free pieces in blocks of a kind, a bit for each.
    fn sizes(&self, kind: Kind) -> u64 {
        self.open[kind as usize].iter().fold(0, |all, open| all | open.sizes())
    }

    /// A block becomes the slabs'. Those that are full need no telling from others.
    fn add_reclaimable(&mut self, open: Open) {
        let own = &mut self.open[Kind::Reclaimable as usize];
        own.retain(|open| open.free() + open.stolen > 0);
        own.push(open);
    }

    /// Pages that page cache had taken one by one are back before it used them.
    pub fn give_back(&mut self, pages: u64) {
        self.kernel_free += pages;
        self.cache_inside -= pages.min(self.cache_inside);
        let mut left = pages;
        for open in self.open.iter_mut().flatten() {
            let back = left.min(open.stolen);
            open.stolen -= back;
            open.give(back);
            left -= back;
        }
    }

    /// Pages of the slabs' block that a CPU's list had taken are back before anybody used them, the last ones first: they are the
    /// neighbours of what is left, and merge with it (__free_one_page).
    pub fn give_back_unused(&mut self, pages: u64, claims: u32) {
        if pages == 0 || claims != self.claims {
            return;
        }
        self.kernel_free += pages;
        match self.open[Kind::Reclaimable as usize].iter_mut().min_by_key(|open| open.smallest()) {
            Some(open) => open.give(pages),
            None => self.add_reclaimable(Open::new(pages, highest_bit(pages))),
        }
    }

    /// Pages that slabs had taken one by one of page cache's blocks are back unused.
    pub fn give_back_outside(&mut self, pages: u64) {
        self.slabs_outside -= pages.min(self.slabs_outside);
    }

    /// The block with the largest piece, of the slabs' if there are several (fallbacks[MIGRATE_MOVABLE]).
    fn with_largest(&self) -> Option<(Kind, usize)> {
        let of = |kind| Some((kind, self.with_largest_of(kind)?));
        let size = |(kind, place): &(Kind, usize)| self.open[*kind as usize][*place].largest();
        [of(Kind::Unmovable), of(Kind::Reclaimable)].into_iter().flatten().max_by_key(size)
    }

    fn with_largest_of(&self, kind: Kind) -> Option<usize> {
        let own = self.open[kind as usize].iter().enumerate().filter(|(_, open)| open.free() > 0);
        own.max_by_key(|(_, open)| open.largest()).map(|(place, _)| place)
    }

    /// All that is free of a block, with the block; of one that another zone has a part of only its largest piece
    /// (move_freepages_block: "moving whole block can fail due to zone boundary conditions").
    fn take_block(&mut self, kind: Kind, place: usize) -> Open {
        let own = &mut self.open[kind as usize];
        if own[place].whole {
            return own.remove(place);
        }
        let piece = own[place].largest();
        own[place].take_piece(piece);
        let mut taken = Open::new(piece, piece);
        taken.whole = false;
        taken
    }

    /// One page for a slab, of the smallest piece; whether it was of a block that is being filled.
    fn take_reclaimable(&mut self) -> bool {
        if self.reclaimable() == 0 {
            self.lose(self.kernel_free.min(1));
            return false;
        }
        let loose = self.kernel_free - self.open_free();
        self.kernel_free -= 1;
        let own = self.open[Kind::Reclaimable as usize].iter_mut();
        match own.min_by_key(|open| open.smallest()).filter(|_| loose == 0) {
            Some(open) => open.take_one(),
            None => return false,
        }
        true
    }

    /// Free pages of the kernel's blocks go, the smallest pieces first (__rmqueue_smallest): what freed slabs left, then of the blocks
    /// being filled. Says which of those the last one was of.
    fn lose(&mut self, pages: u64) -> Option<(Kind, usize)> {
        self.kernel_free -= pages;
        let mut of = None;
        for _ in self.kernel_free..self.open_free() {
            let kinds = [Kind::Reclaimable, Kind::Unmovable].into_iter();
            let all = kinds.flat_map(|kind| self.open[kind as usize].iter().enumerate().map(move |each| (kind, each)));
            let smallest = all.min_by_key(|(_, (_, open))| open.smallest()).map(|(kind, (place, _))| (kind, place));
            if let Some((kind, place)) = smallest {
                self.open[kind as usize][place].take_one();
            }
            of = smallest;
        }
        of
    }
}

/// Pages for a CPU's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refilled {
    pub pages: u64,
    /// The last ones of these, from blocks of the other kind, which stay that.
    pub stolen: u64,
    /// Those before them, slabs' of a block that they are filling.
    pub of_open_block: u64,
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
    boost_max: u64,
    /// A boost that kswapd has not been woken for yet (ZONE_BOOSTED_WATERMARK).
    pub boosted: bool,
    /// Free pages in blocks of the kernel's.
    pub kernel_free: u64,
    /// The blocks of reclaimable slabs and of unmovable allocations of which a part is free; it is among these pages. All that the model
    /// allocates for the kernel are slabs that can be reclaimed.
    open: [Vec<Open>; 2],
    /// What is left of the free pages of a block of the kernel's that page cache has moved to its own list: slabs move them back while
    /// the largest free piece is one of these (up to 6.9).
    lent: Open,
    /// Free pages of the DMA zone's first block, which is unmovable.
    boot_free: u64,
    /// Page cache in such blocks.
    cache_inside: u64,
    /// Slabs in blocks of the page cache's.
    slabs_outside: u64,
    /// How often page cache has claimed the slabs' block: unused pages of one that was claimed since they were taken are page cache's
    /// (free_pcppages_bulk asks the block which it is of).
    pub claims: u32,
    /// What is left over of a share of freed pages: of the cache's, of slabs'.
    rest: u64,
    rest_of_slabs: u64,
    /// A fallback takes a whole block or one page (6.10 and later).
    whole_block_or_page: bool,
}

impl Zone {
    /// mm/page_alloc.c: zone_batchsize, zone_highsize and boost_watermark's limits, 6.1: a quarter of a thousandth of
    /// the zone, at most 256 KiB, and the low watermark shared out among the node's CPUs; of what the zone managed when its watermarks were
    /// computed (zone_pcp_update).
    pub fn size_blocks(&mut self, cpus_of_node: u64, boost_factor: u64, whole_block_or_page: bool) {
        self.blocks.whole_block_or_page = whole_block_or_page;
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

    /// What boot leaves in the blocks of reclaimable slabs and of unmovable allocations; where it is not known one of each is half full.
    /// The DMA zone is not touched while there is another, but for its first block.
    pub fn open_kernel_blocks(&mut self, known: Option<[Vec<Open>; 2]>) {
        if self.kind == ZoneKind::Dma {
            let pool = DMA_POOL_PAGES.get().min(self.free);
            (self.free, self.pinned) = (self.free - pool, self.pinned + pool);
            self.blocks.boot_free = (FIRST_BLOCK_PAGES.get() - pool).min(self.free);
            return;
        }
        let half = OPEN_PAGES.get().min(self.free / 8) / 2;
        let mut room = self.free;
        self.blocks.open = known.unwrap_or([vec![Open::new(half, half)], vec![Open::new(half, half)]]);
        for own in &mut self.blocks.open {
            own.retain(|open| {
                let fits = open.free() <= room;
                room -= if fits { open.free() } else { 0 };
                fits
            });
        }
        self.blocks.kernel_free = self.blocks.open_free();
    }

    /// mm/page_alloc.c: rmqueue_bulk, __rmqueue, 6.1: pages for a CPU's list; the caller takes them off `free`.
    pub fn refill(&mut self, for_kernel: bool, batch: u64) -> Refilled {
        self.refill_of(for_kernel, batch, 1)
    }

    /// The same in pieces of so many pages (`min_order` of __rmqueue_claim).
    pub fn refill_of(&mut self, for_kernel: bool, batch: u64, piece: u64) -> Refilled {
        let mut got = Refilled::default();
        let mut steals = false;
        self.blocks.lose(self.blocks.kernel_free.saturating_sub(self.free));
        self.blocks.boot_free = self.blocks.boot_free.min(self.free - self.blocks.kernel_free);
        while got.pages < batch && got.pages < self.free {
            let movable = (self.free - got.pages).saturating_sub(self.blocks.kernel_free + self.blocks.boot_free);
            if (if for_kernel { self.blocks.reclaimable() } else { movable }) == 0 && !steals {
                steals = self.fall_back(for_kernel, movable, piece);
            }
            if steals {
                self.steal_one(for_kernel);
                got.stolen += 1;
            } else if for_kernel {
                got.of_open_block += u64::from(self.blocks.take_reclaimable());
            }
            got.pages += 1;
        }
        got
    }

    /// Claims free pages of another kind. The largest free piece is taken: while that is a whole block or more, it changes its type at
    /// no cost; else what a block of the other kind has left. True if nothing was claimed and the rest of the batch
    /// takes its pages one by one (6.10 and later).
    fn fall_back(&mut self, for_kernel: bool, movable: u64, piece: u64) -> bool {
        if self.take_whole(for_kernel, movable) {
            return false;
        }
        if self.blocks.whole_block_or_page {
            return self.claim_or_steal(for_kernel, movable, piece);
        }
        if for_kernel {
            self.steal_for_slabs(movable);
        } else {
            self.steal_for_cache();
        }
        self.raise_marks();
        false
    }

    /// mm/page_alloc.c: steal_suitable_fallback, try_to_steal_block: "Take ownership for orders >= pageblock_order", all of the piece.
    /// Pages of page cache that are free beyond the high watermark have not been reclaimed yet, and lie together.
    fn take_whole(&mut self, for_kernel: bool, movable: u64) -> bool {
        let whole = [MAX_PIECE.get(), PAGEBLOCK.get()];
        if for_kernel {
            let is_there = |piece: &u64| movable > self.high + 2 * piece;
            let Some(piece) = whole.into_iter().find(is_there) else { return false };
            self.blocks.kernel_free += piece;
            self.blocks.add_reclaimable(Open::new(piece, piece));
            return true;
        }
        // The other pieces stay.
        let taken =
            whole.into_iter().find(|piece| self.blocks.open.iter_mut().flatten().any(|open| open.take_piece(*piece)));
        self.blocks.kernel_free -= taken.unwrap_or(0);
        taken.is_some()
    }

    /// mm/page_alloc.c: boost_watermark: by a block, up to the maximum.
    fn raise_marks(&mut self) {
        if self.blocks.boost_max > 0 {
            self.blocks.boost = (self.blocks.boost + PAGEBLOCK.get()).min(self.blocks.boost_max);
            self.blocks.boosted = true;
        }
    }

    /// Whether a frame of a slab that is just freed lay in a block of the page cache's: by their share of the slabs.
    #[inline]
    pub fn leaves_cache_block(&mut self) -> bool {
        if self.blocks.slabs_outside == 0 {
            return false;
        }
        self.blocks.rest_of_slabs += self.blocks.slabs_outside;
        if self.blocks.rest_of_slabs <= self.slab {
            return false;
        }
        self.blocks.rest_of_slabs -= self.slab;
        self.blocks.slabs_outside -= 1;
        true
    }

    /// Whether a page of the cache that is just freed lay in a block of the kernel's: by their share of the cache.
    #[inline]
    pub fn leaves_kernel_block(&mut self) -> bool {
        if self.blocks.cache_inside == 0 {
            return false;
        }
        self.blocks.rest += self.blocks.cache_inside;
        if self.blocks.rest <= self.file {
            return false;
        }
        self.blocks.rest -= self.file;
        self.blocks.cache_inside -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Open, PAGEBLOCK};
    use crate::zone::{Zone, ZoneKind};

    /// 128 MiB with so many pages free, as boot leaves them.
    fn zone(free: u64) -> Zone {
        let mut zone = Zone::new(1, ZoneKind::Normal, 32_768, 32_000);
        (zone.min, zone.low, zone.high) = (240, 300, 360);
        zone.open_kernel_blocks(None);
        zone.free = free;
        zone.file = 32_000 - free;
        zone.size_blocks(1, 15_000, false);
        zone
    }

    /// Refills as a CPU's list would, so many times.
    fn refill(zone: &mut Zone, for_kernel: bool, times: u64) {
        for _ in 0..times {
            zone.free -= zone.refill(for_kernel, zone.blocks.batch).pages;
        }
    }

    #[test]
    fn page_cache_that_finds_only_pages_of_the_kernel_raises_the_marks_by_a_block() {
        let mut zone = zone(2_000);
        refill(&mut zone, false, 100);
        assert_eq!((zone.blocks.boost, zone.blocks.boosted), (0, false), "pages of its own kind are left");
        refill(&mut zone, false, 150);
        assert!(zone.blocks.boosted);
        assert!((PAGEBLOCK.get()..=540).contains(&zone.blocks.boost), "one and a half times the high mark at most");
    }

    #[test]
    fn the_kernel_claims_whole_blocks_as_long_as_there_are_any() {
        let mut zone = zone(8_000);
        refill(&mut zone, true, 200);
        assert_eq!(zone.blocks.boost, 0);
        zone.free = zone.blocks.kernel_free + 300;
        let left = zone.blocks.kernel_free / zone.blocks.batch + 1;
        refill(&mut zone, true, left);
        assert!(zone.blocks.boosted, "then it takes what a block of page cache has left");
    }

    /// The boosted DMA zone of a guest of 6.1 with 384 MiB had 598 free pages, above its boosted high watermark of 551: kswapd,
    /// woken for this zone alone, found nothing to do. 224 of these pages were the first block's.
    #[test]
    fn the_dma_zone_is_boosted_while_it_has_its_first_block_and_the_slabs_own() {
        let mut zone = Zone::new(0, ZoneKind::Dma, 4096, 4096 - super::FIRST_MIB_PAGES.get());
        (zone.min, zone.low, zone.high) = (27, 33, 39);
        zone.open_kernel_blocks(None);
        assert_eq!(zone.free, 3808, "as the guest's first sample says");
        zone.size_blocks(1, 15_000, false);
        refill(&mut zone, true, 1);
        assert_eq!(zone.blocks.boost, 0, "slabs claim a whole block first");
        while zone.blocks.boost == 0 {
            refill(&mut zone, false, 1);
        }
        assert_eq!(zone.blocks.kernel_free, 0, "all that the block had free goes to the page cache");
        let left = 224 + PAGEBLOCK.get() - zone.blocks.batch;
        assert!((left - zone.blocks.batch..=left).contains(&zone.free), "{} of {left}", zone.free);
        assert!(zone.free > zone.high + zone.blocks.boost);
    }

    /// A guest of 6.12 left 292 free pages in the block of reclaimable slabs and 164 in that of unmovable allocations.
    #[test]
    fn half_of_a_block_is_claimed_as_a_whole_and_of_less_pages_are_taken_one_by_one() {
        let mut zone = zone(456);
        zone.open_kernel_blocks(Some([vec![Open::new(292, 256)], vec![Open::new(164, 64)]]));
        zone.size_blocks(1, 15_000, true);
        let batch = zone.blocks.batch;
        // 292 >= 512 / 2: the block is page cache's from now on, and the marks are raised.
        refill(&mut zone, false, 1);
        assert_eq!((zone.blocks.kernel_free, zone.blocks.cache_inside, zone.blocks.boost), (164, 0, PAGEBLOCK.get()));
        assert_eq!(zone.free, 456 - batch);
        // 164 < 512 / 2: nothing is claimed, the pages stay the kernel's, and the next batch falls back again. Its pieces of 64 and of 32
        // pages each raise the marks, which stop at one and a half times the high mark.
        zone.free = 164;
        zone.blocks.boost = 0;
        refill(&mut zone, false, 1);
        assert_eq!((zone.blocks.kernel_free, zone.blocks.cache_inside), (164 - batch, batch));
        assert_eq!(zone.blocks.boost, 540);
        // Nor is anything of several blocks that have 440 free pages together.
        zone.free = 440;
        zone.open_kernel_blocks(Some([vec![], vec![Open::new(440, 128)]]));
        refill(&mut zone, false, 1);
        assert_eq!(zone.blocks.kernel_free, 440 - batch);
        // Nothing of 16 pages is left: no marks are raised for less.
        zone.blocks.lose(zone.blocks.kernel_free - 10);
        zone.free = 10;
        zone.blocks.boost = 0;
        refill(&mut zone, false, 1);
        assert_eq!((zone.blocks.boost, zone.blocks.kernel_free), (0, 10 - batch));
    }

    /// A claim of 1024 pages is split 512, 256, ..., 1 by its first page, so that of 700 the second block is whole: it changes its type
    /// and raises nothing. What is left of the first one does.
    #[test]
    fn a_whole_block_of_the_kernels_is_taken_silently() {
        let mut open = Open::new(1024, 1024);
        open.take_one();
        assert_eq!(open.sizes(), 1023);
        (0..323).for_each(|_| open.take_one());
        assert_eq!(open.sizes(), 700);
        for by_page in [false, true] {
            let mut zone = zone(700);
            zone.open_kernel_blocks(Some([vec![open], vec![]]));
            zone.size_blocks(1, 15_000, by_page);
            let batch = zone.blocks.batch;
            refill(&mut zone, false, 1);
            assert_eq!((zone.blocks.kernel_free, zone.blocks.boost), (188, 0));
            assert_eq!(zone.blocks.open[0][0].sizes(), 188);
            let until_empty = PAGEBLOCK.get() / batch;
            refill(&mut zone, false, until_empty);
            // Up to 6.9 all 188; from 6.10 on its pieces of 128, 32 and 16 pages are asked for, and then pages are taken one by one.
            assert!(zone.blocks.boost >= PAGEBLOCK.get() && zone.blocks.kernel_free < 188);
            assert_eq!(zone.blocks.kernel_free > 0, by_page);
        }
    }

    /// A guest of 6.12 whose last block, of 464 pages, has 289 free ones, among them one of 256, and two others with less: pages are taken
    /// one by one of all of them, the smallest pieces first, and the kernel keeps its blocks. Up to 6.9 such a block gives its largest piece
    /// alone, and others all that they have.
    #[test]
    fn of_a_block_that_ends_with_its_zone_no_more_than_a_piece_is_taken() {
        let blocks = || {
            let last = Open::of(&[1, 0, 0, 0, 0, 1, 0, 0, 1], 100, false);
            [vec![Open::of(&[0, 1, 1, 1, 0, 0, 1], 0, true)], vec![last, Open::of(&[0, 0, 0, 0, 0, 0, 1], 0, true)]]
        };
        let full = |by_page: bool| {
            let mut zone = zone(431);
            zone.open_kernel_blocks(Some(blocks()));
            zone.size_blocks(1, 15_000, by_page);
            zone
        };
        let mut zone = full(true);
        let batch = zone.blocks.batch;
        assert_eq!(zone.blocks.kernel_free, 289 + 78 + 64);
        refill(&mut zone, false, 1);
        assert_eq!((zone.blocks.kernel_free, zone.blocks.cache_inside), (431 - batch, batch));
        // 1 of the last block, then 2 and 4 of the first one.
        assert_eq!(zone.blocks.open[1][0].free(), 288);
        assert_eq!(zone.blocks.open[0][0].sizes(), 64 + 8);
        let mut zone = full(false);
        refill(&mut zone, false, 1);
        assert_eq!(zone.blocks.kernel_free, 431 - 256, "the largest piece is the last block's");
        zone.free = zone.blocks.kernel_free;
        refill(&mut zone, false, 1);
        assert_eq!(zone.blocks.kernel_free, 431 - 256 - 78, "64 of 78 of the slabs' block, and with them the others");
    }

    /// __rmqueue_claim for slabs: pieces of 32, 16, ..., 1 pages of page cache, of none of which half a block is free.
    #[test]
    fn slabs_raise_the_marks_at_each_order_at_which_they_find_a_piece() {
        for (by_page, boost) in [(false, 512), (true, 3 * 512)] {
            let mut zone = zone(300);
            zone.open_kernel_blocks(Some([vec![], vec![]]));
            zone.high = 1_024;
            zone.size_blocks(1, 15_000, by_page);
            refill(&mut zone, true, 1);
            assert_eq!(zone.blocks.boost, boost, "one and a half times 1024 at most");
        }
    }

    #[test]
    fn the_largest_piece_is_of_two_blocks() {
        for (free, claimed) in [(3_000, 1024), (2_000, 512)] {
            let mut zone = zone(free);
            zone.open_kernel_blocks(Some([vec![], vec![]]));
            refill(&mut zone, true, 1);
            assert_eq!((zone.blocks.kernel_free, zone.blocks.boost), (claimed - zone.blocks.batch, 0));
        }
    }

    #[test]
    fn no_boost_on_a_zone_of_a_few_blocks_nor_with_a_factor_of_0() {
        for (managed, factor) in [(4 * PAGEBLOCK.get() - 1, 15_000), (32_000, 0)] {
            let mut zone = zone(600);
            zone.managed = managed;
            zone.size_blocks(1, factor, false);
            refill(&mut zone, false, 80);
            assert_eq!((zone.blocks.boost, zone.blocks.boosted, zone.free), (0, false, 600 - 80 * zone.blocks.batch));
        }
    }
}

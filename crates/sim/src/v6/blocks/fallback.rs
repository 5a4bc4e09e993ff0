//! Falling back on page blocks of another kind up to 6.9: the largest free piece, with all that is free of its block.
//!
//! Models: that page cache and slabs so take the last free block of a zone from each other, again and again, each time raising the
//! watermarks (`steal_suitable_fallback`); which of them owns the block then. Leaves out: the pieces of blocks of page cache, of which none
//! is taken for larger than neighbours that were evicted together.

use super::{Blocks, Kind, Open, PAGEBLOCK, SLAB_PIECE, STEALS_FROM, highest_bit};
use crate::reclaim::CLUSTER;
use crate::zone::Zone;

impl Blocks {
    /// mm/page_alloc.c: move_freepages_block, 6.1: of a block that begins before its zone only what lies behind the piece is moved: the
    /// largest piece of the DMA zone's first block is its last one.
    fn take_first(&mut self) -> u64 {
        let piece = highest_bit(self.boot_free);
        self.boot_free -= piece;
        piece
    }

    /// The free pages that page cache has left of a block of the kernel's are the slabs' again. The block is theirs, too, if at most half
    /// of it is page cache ("consider all non-movable pages as compatible").
    fn take_back(&mut self) {
        let mut back = std::mem::take(&mut self.lent);
        self.kernel_free += back.free();
        if back.alike() < PAGEBLOCK.get() / 2 {
            // It has been theirs all the time.
            self.cache_inside -= back.free().min(self.cache_inside);
        } else if back.stolen <= PAGEBLOCK.get() / 2 {
            self.cache_inside += back.stolen;
        } else {
            back.stolen = 0;
        }
        self.add_reclaimable(back);
    }
}

impl Zone {
    /// mm/page_alloc.c: __rmqueue_fallback, steal_suitable_fallback, 6.1, for page cache: the largest piece of the kernel's, with all that
    /// is free of its block.
    pub(super) fn steal_for_cache(&mut self) {
        let found = self.blocks.with_largest();
        let largest = found.map_or(0, |(kind, place)| self.blocks.open[kind as usize][place].largest());
        let of_first = highest_bit(self.blocks.boot_free);
        if of_first > largest {
            self.blocks.cache_inside += self.blocks.take_first();
            return;
        }
        let Some((kind, place)) = found.filter(|_| largest >= STEALS_FROM.get()) else {
            // A small piece of another block ("find_smallest").
            self.blocks.open = Default::default();
            let stolen = SLAB_PIECE.get().min(self.blocks.kernel_free);
            self.blocks.kernel_free -= stolen;
            self.blocks.cache_inside += stolen;
            return;
        };
        let stolen = self.blocks.take_block(kind, place);
        self.blocks.kernel_free -= stolen.free().min(self.blocks.kernel_free);
        // "alike_pages = movable_pages": page cache's pages count. Of a block less than half of which is free or page cache's the pages
        // return to the kernel.
        if stolen.whole && stolen.alike() >= PAGEBLOCK.get() / 2 {
            self.blocks.cache_inside -= stolen.stolen.min(self.blocks.cache_inside);
            self.blocks.claims += u32::from(kind == Kind::Reclaimable);
        } else {
            self.blocks.cache_inside += stolen.free();
        }
        self.blocks.lent = stolen;
    }

    /// The same for slabs that can be reclaimed: of pieces of one size that of unmovable allocations comes first.
    pub(super) fn steal_for_slabs(&mut self, movable: u64) {
        let used = self.blocks.lent.free().saturating_sub(movable);
        (0..used).for_each(|_| self.blocks.lent.take_one());
        self.blocks.lent.stolen += used;
        let lent = self.blocks.lent.largest();
        let of_first = highest_bit(self.blocks.boot_free);
        // What a block full of page cache has free together: neighbours that were evicted together, a cluster.
        let of_cache = movable.min(CLUSTER.get());
        let largest = lent.max(of_cache);
        let is_larger = |place: &usize| self.blocks.open[Kind::Unmovable as usize][*place].largest() >= largest;
        let unmovable = self.blocks.with_largest_of(Kind::Unmovable).filter(is_larger);
        if of_first > 0 && of_first >= largest {
            let piece = self.blocks.take_first();
            self.blocks.kernel_free += piece;
            self.blocks.add_reclaimable(Open::new(piece, piece));
        } else if let Some(place) = unmovable {
            let lent = self.blocks.take_block(Kind::Unmovable, place);
            self.blocks.add_reclaimable(lent);
        } else if lent > of_cache {
            self.blocks.take_back();
        } else {
            self.blocks.kernel_free += of_cache;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Open;
    use crate::zone::{Zone, ZoneKind};

    /// A DMA zone of a guest of 6.1 with 512 MiB when its page cache is at an end: 388 free pages in the slabs' block, 224 in the first one.
    fn zone() -> Zone {
        let mut zone = Zone::new(0, ZoneKind::Dma, 4_096, 3_840);
        (zone.min, zone.low, zone.high, zone.free) = (23, 28, 33, 612);
        zone.blocks.boot_free = 224;
        zone.blocks.open = [vec![Open::new(388, 256)], Vec::new()];
        zone.blocks.kernel_free = 388;
        zone.size_blocks(2, 15_000, false);
        zone
    }

    /// Free pages of the kernel's and of page cache's, and whether the watermarks were raised since.
    fn of(zone: &mut Zone) -> (u64, u64, bool) {
        let raised = std::mem::take(&mut zone.blocks.boost) == 512;
        (zone.blocks.kernel_free, zone.free - zone.blocks.kernel_free - zone.blocks.boot_free, raised)
    }

    fn refill(zone: &mut Zone, for_kernel: bool, times: u64) {
        for _ in 0..times {
            zone.free -= zone.refill(for_kernel, 1).pages;
        }
    }

    #[test]
    fn slabs_and_page_cache_take_the_last_block_from_each_other() {
        let mut zone = zone();
        // The largest piece of the kernel's is of 256 pages, of the slabs' block: "free_pages + alike_pages >= 256", it is page cache's now.
        refill(&mut zone, false, 1);
        assert_eq!(of(&mut zone), (0, 387, true));
        refill(&mut zone, false, 40);
        assert_eq!(of(&mut zone), (0, 347, false), "the smallest pieces go first");
        // For a slab 256 pages of page cache's are a larger piece than 128 of the first block. 41 pages of it are page cache.
        refill(&mut zone, true, 1);
        assert_eq!((of(&mut zone), zone.blocks.cache_inside), ((346, 0, true), 41));
        refill(&mut zone, false, 1);
        assert_eq!((of(&mut zone), zone.blocks.cache_inside), ((0, 345, true), 0));
    }

    /// Its last pages are its largest piece, and behind none of its pieces there is more: 384 to 511, 320 to 383, 288 to 319.
    #[test]
    fn of_the_first_block_only_what_lies_behind_a_piece_is_moved() {
        let mut zone = zone();
        zone.free = 224;
        zone.blocks.open = Default::default();
        zone.blocks.kernel_free = 0;
        refill(&mut zone, true, 1);
        assert_eq!((of(&mut zone), zone.blocks.boot_free), ((127, 0, true), 96));
        refill(&mut zone, false, 1);
        // 127 = 64 + 63 pages of the slabs' are no larger than 64 of the first block, and come first (fallbacks[MIGRATE_MOVABLE]).
        assert_eq!((of(&mut zone), zone.blocks.boot_free), ((0, 126, true), 96));
    }
}

//! Falling back on page blocks of another kind.
//!
//! Models: the largest free piece with all that is free of its block, or for page cache a single one if none is large
//! (`__rmqueue_fallback`, `steal_suitable_fallback`, 6.1). Each time the zone's watermarks are raised by a block (`boost_watermark`).
//! A piece of a block or more changes its kind at no cost. Leaves out: ALLOC_NOFRAGMENT (normal zones of nodes that have a DMA32
//! zone), and that 6.10 and later claim half a block or take one page.

use super::blocks::PAGEBLOCK;
use super::buddy::{Kind, MAX_PAGE_ORDER};
use crate::constant::constants;
use crate::zone::Zone;

constants! {
    /// A piece of this size or more lets a movable request take all that its block has free, as a power of two.
    const STEALS_FROM: usize = kernel(4, "mm/page_alloc.c", "can_steal_fallback (pageblock_order / 2)", "6.1");
}

/// In which order the lists of others are looked at (fallbacks[MIGRATE_TYPES]).
fn fallbacks(kind: Kind) -> [Kind; 2] {
    match kind {
        Kind::Unmovable => [Kind::Reclaimable, Kind::Movable],
        Kind::Movable => [Kind::Reclaimable, Kind::Unmovable],
        Kind::Reclaimable => [Kind::Unmovable, Kind::Movable],
    }
}

/// mm/page_alloc.c: can_steal_fallback, 6.1.
fn can_steal(order: usize, kind: Kind) -> bool {
    order >= STEALS_FROM.get() || kind != Kind::Movable
}

/// Whether half of a block of another kind is free or compatible with the wanted one: pages on lists are movable; of a block of page cache
/// what is neither those nor free is the kernel's; of the kernel's own kinds nobody knows ("be conservative").
fn is_half((kind, other): (Kind, Kind), free: u64, listed: u64) -> bool {
    let alike = match (kind, other) {
        (Kind::Movable, _) => listed,
        (_, Kind::Movable) => PAGEBLOCK.get().saturating_sub(free + listed),
        _ => 0,
    };
    free + alike >= PAGEBLOCK.get() / 2
}

/// A request for a free piece.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub order: usize,
    pub kind: Kind,
    /// ALLOC_KSWAPD: if the watermarks are raised kswapd is woken.
    pub wakes: bool,
}

impl Zone {
    /// mm/page_alloc.c: __rmqueue: the first frame of a free piece.
    #[inline]
    pub fn rmqueue(&mut self, wanted: Wanted) -> Option<u32> {
        let found = self.blocks.buddy.as_mut()?.take_smallest(wanted.order, wanted.kind);
        if found.is_some() {
            return found;
        }
        if !self.fall_back(wanted) {
            return None;
        }
        self.blocks.buddy.as_mut()?.take_smallest(wanted.order, wanted.kind)
    }

    /// mm/page_alloc.c: find_suitable_fallback: the first piece of this size of another kind.
    fn suitable(&self, order: usize, kind: Kind) -> Option<(u32, Kind)> {
        let buddy = self.blocks.buddy.as_ref()?;
        fallbacks(kind).into_iter().find_map(|other| Some((buddy.first(other, order)?, other)))
    }

    /// mm/page_alloc.c: __rmqueue_fallback, 6.1: puts a piece of another kind on the wanted list; false if there is none.
    fn fall_back(&mut self, Wanted { order, kind, wakes }: Wanted) -> bool {
        let largest = (order..=MAX_PAGE_ORDER.get()).rev().find(|&size| self.suitable(size, kind).is_some());
        let Some(largest) = largest else { return false };
        let whole_block = can_steal(largest, kind);
        // "it's better to steal and split the smallest available page instead of the largest": find_smallest.
        let size = if whole_block {
            largest
        } else {
            (order..=largest).find(|&size| self.suitable(size, kind).is_some()).unwrap_or(largest)
        };
        let Some((piece, _)) = self.suitable(size, kind) else { return false };
        self.steal(piece, size, (kind, wakes), whole_block && can_steal(size, kind));
        true
    }

    /// mm/page_alloc.c: steal_suitable_fallback, 6.1.
    fn steal(&mut self, piece: u32, order: usize, (kind, wakes): (Kind, bool), whole_block: bool) {
        if self.take_ownership(piece, order, kind) {
            return;
        }
        self.raise_marks(wakes);
        let Some(buddy) = self.blocks.buddy.as_mut() else { return };
        // move_freepages_block: what ends before its block moves nothing; of a block that begins before its zone only what lies behind
        // the piece is moved.
        let (frames, [begins, ends]) = buddy.extent(piece);
        if !whole_block || !ends {
            return buddy.move_piece(piece, kind);
        }
        let old = buddy.kind(piece);
        let content = buddy.content(piece);
        let free = buddy.move_pieces(if begins { frames } else { piece..frames.end }, kind);
        if is_half((kind, old), free, content.listed) {
            buddy.set_kind(piece, kind);
        }
    }

    /// "Take ownership for orders >= pageblock_order": all blocks of the piece.
    fn take_ownership(&mut self, piece: u32, order: usize, kind: Kind) -> bool {
        let size = 1_u64 << order;
        let Some(buddy) = self.blocks.buddy.as_mut().filter(|_| size >= PAGEBLOCK.get()) else { return false };
        for block in 0..(size / PAGEBLOCK.get()) as u32 {
            buddy.set_kind(piece + block * PAGEBLOCK.get() as u32, kind);
        }
        buddy.move_piece(piece, kind);
        true
    }

    /// mm/page_alloc.c: boost_watermark: by a block, up to the maximum.
    fn raise_marks(&mut self, wakes: bool) {
        if self.blocks.boost_max > 0 {
            self.blocks.boost = (self.blocks.boost + PAGEBLOCK.get()).min(self.blocks.boost_max);
            self.blocks.boosted |= wakes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Wanted};
    use crate::v6::blocks::PAGEBLOCK;
    use crate::v6::buddy::Buddy;
    use crate::zone::{Zone, ZoneKind};

    /// A zone of four blocks with these free pieces, which are of their block's kind.
    fn zone(pieces: &[(u32, usize, Kind)]) -> Zone {
        let mut zone = Zone::new(1, ZoneKind::Normal, 2_048, 2_048);
        (zone.min, zone.low, zone.high) = (240, 300, 360);
        zone.size_blocks(1, 15_000);
        let mut buddy = Buddy::new(0, 2_048);
        for &(piece, order, kind) in pieces {
            buddy.set_kind(piece, kind);
            buddy.add(piece, order, kind);
        }
        zone.free = buddy.free();
        zone.blocks.buddy = Some(buddy);
        zone
    }

    fn take(zone: &mut Zone, order: usize, kind: Kind, times: u64) -> Vec<Option<u32>> {
        (0..times).map(|_| zone.rmqueue(Wanted { order, kind, wakes: true })).collect()
    }

    fn kind(zone: &Zone, frame: u32) -> Kind {
        zone.blocks.buddy.as_ref().expect("told apart").kind(frame)
    }

    fn first(zone: &Zone, kind: Kind, order: usize) -> Option<u32> {
        zone.blocks.buddy.as_ref().expect("told apart").first(kind, order)
    }

    /// A block of the slabs' of which 256 and 32 pages are free: half of it, so that it is page cache's from now on, and the marks are raised by
    /// 512, of 540 at most.
    #[test]
    fn page_cache_takes_all_that_the_block_of_the_largest_piece_has() {
        let pieces = [(0, 8, Kind::Reclaimable), (320, 5, Kind::Reclaimable), (512, 7, Kind::Unmovable)];
        let mut zone = zone(&pieces);
        assert_eq!(take(&mut zone, 0, Kind::Movable, 1), [Some(320)], "of the smallest piece");
        assert_eq!((kind(&zone, 0), first(&zone, Kind::Movable, 8)), (Kind::Movable, Some(0)));
        assert_eq!((zone.blocks.boost, zone.blocks.boosted, zone.blocks.boost_max), (PAGEBLOCK.get(), true, 540));
        // 128 of 512 pages are not half a block, unless 128 more of it are on lists.
        let mut fewer = zone.clone();
        take(&mut fewer, 0, Kind::Movable, 287);
        assert_eq!((take(&mut fewer, 0, Kind::Movable, 1), kind(&fewer, 512)), (vec![Some(512)], Kind::Unmovable));
        (0..128).for_each(|_| zone.blocks.buddy.as_mut().expect("told apart").list(700, 1));
        take(&mut zone, 0, Kind::Movable, 288);
        assert_eq!((kind(&zone, 512), zone.blocks.boost), (Kind::Movable, 540));
    }

    /// The largest piece is of 8 pages: one page of the smallest piece, of the slabs' if there are several, which goes on page cache's list.
    #[test]
    fn page_cache_takes_single_pages_where_no_piece_is_large() {
        let pieces = [(0, 3, Kind::Unmovable), (512, 1, Kind::Reclaimable), (1_024, 1, Kind::Unmovable)];
        let mut zone = zone(&pieces);
        assert_eq!(take(&mut zone, 0, Kind::Movable, 3), [Some(512), Some(513), Some(1_024)]);
        assert_eq!((kind(&zone, 512), kind(&zone, 1_024)), (Kind::Reclaimable, Kind::Unmovable));
        assert_eq!((first(&zone, Kind::Movable, 0), first(&zone, Kind::Unmovable, 3)), (Some(1_025), Some(0)));
        assert_eq!(zone.blocks.boost, 540, "each time");
    }

    /// The slabs' share of a block of page cache: what is neither free nor on lists counts as theirs.
    #[test]
    fn slabs_take_the_largest_piece_of_unmovable_blocks_first() {
        let pieces = [(0, 4, Kind::Movable), (512, 4, Kind::Unmovable)];
        let mut zone = zone(&pieces);
        assert_eq!((take(&mut zone, 2, Kind::Reclaimable, 1), kind(&zone, 512)), (vec![Some(512)], Kind::Unmovable));
        let listed = |zone: &mut Zone, pages: usize| {
            (0..pages).for_each(|_| zone.blocks.buddy.as_mut().expect("told apart").list(0, 1));
        };
        for (pages, becomes) in [(300, Kind::Movable), (200, Kind::Reclaimable)] {
            let mut zone = zone.clone();
            listed(&mut zone, pages);
            take(&mut zone, 2, Kind::Reclaimable, 3);
            assert_eq!((take(&mut zone, 2, Kind::Reclaimable, 1), kind(&zone, 0)), (vec![Some(0)], becomes));
        }
    }

    /// A piece of two blocks changes their kind and raises nothing, whoever takes it.
    #[test]
    fn whole_blocks_are_taken_silently() {
        let mut zone = zone(&[(1_024, 10, Kind::Movable)]);
        zone.blocks.buddy.as_mut().expect("told apart").set_kind(1_536, Kind::Movable);
        assert_eq!(take(&mut zone, 0, Kind::Reclaimable, 1), [Some(1_024)]);
        assert_eq!([1_024, 1_536].map(|frame| kind(&zone, frame)), [Kind::Reclaimable; 2]);
        assert_eq!((zone.blocks.boost, zone.blocks.boosted), (0, false));
    }

    /// Of the DMA zone's first block, which begins at frame 1, what lies behind the piece is moved: 384 to 511 lies behind all others.
    #[test]
    fn of_a_block_that_begins_before_its_zone_only_what_is_behind_a_piece_is_moved() {
        let mut zone = zone(&[]);
        let mut buddy = Buddy::new(1, 2_048);
        buddy.set_kind(1, Kind::Unmovable);
        [(288, 5), (320, 6), (384, 7)].into_iter().for_each(|(piece, order)| buddy.add(piece, order, Kind::Unmovable));
        zone.blocks.buddy = Some(buddy);
        assert_eq!(take(&mut zone, 0, Kind::Movable, 1), [Some(384)]);
        assert_eq!([5, 6].map(|order| first(&zone, Kind::Unmovable, order)), [Some(288), Some(320)]);
    }

    #[test]
    fn no_boost_on_a_zone_of_a_few_blocks_nor_with_a_factor_of_0() {
        for (managed, factor) in [(4 * PAGEBLOCK.get() - 1, 15_000), (32_000, 0)] {
            let mut zone = zone(&[(0, 5, Kind::Unmovable)]);
            zone.managed = managed;
            zone.size_blocks(1, factor);
            assert_eq!(take(&mut zone, 0, Kind::Movable, 2), [Some(0), Some(1)]);
            assert_eq!((zone.blocks.boost, zone.blocks.boosted), (0, false));
        }
    }
}

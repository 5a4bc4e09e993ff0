//! Falling back on page blocks of another kind from 6.10 on: a block half of which is free, or one page.
//!
//! Models: that a block is asked for at each order at which there is a piece, from the largest on, each time raising the watermarks
//! (`__rmqueue_claim`, `try_to_steal_block`), and that the rest of a batch takes single pages if none is claimed (`__rmqueue_steal`).
//! Leaves out: which of several pieces of one order is first on its list (here that of the lowest block).

use super::{Kind, Open, STEALS_FROM, highest_bit};
use crate::reclaim::CLUSTER;
use crate::zone::Zone;

impl Zone {
    /// mm/page_alloc.c: __rmqueue_claim, try_to_steal_block, 6.12.117: from the largest piece down to those for which nothing is claimed,
    /// the block of a piece of each order is claimed if half of it is free or compatible. Each time the watermarks are raised, whether
    /// it is or not.
    pub(super) fn claim_or_steal(&mut self, for_kernel: bool, movable: u64, least: u64) -> bool {
        let reclaimable = self.blocks.sizes(Kind::Reclaimable);
        let unmovable = self.blocks.sizes(Kind::Unmovable) | self.blocks.boot_free;
        let all = if for_kernel {
            // Of page cache's no piece is larger than neighbours that were evicted together, and there are some of each order.
            unmovable | (2 * highest_bit(movable.min(CLUSTER.get()))).saturating_sub(1)
        } else {
            (reclaimable | unmovable) & !(STEALS_FROM.get() - 1)
        };
        let all = all & !(least.next_power_of_two() - 1);
        let mut pieces = (0..u64::BITS).rev().map(|order| 1_u64 << order).filter(|piece| all & piece != 0);
        let claimed = pieces.any(|piece| {
            self.raise_marks();
            if for_kernel { self.claim_unmovable(piece) } else { self.claim_of_kernel(piece) }
        });
        !claimed
    }

    /// For slabs: the block of unmovable allocations that has this piece; of a block of page cache less than half is free where there is
    /// no whole one.
    fn claim_unmovable(&mut self, piece: u64) -> bool {
        let own = &mut self.blocks.open[Kind::Unmovable as usize];
        let first = own.iter().position(|open| open.sizes() & piece != 0);
        let Some(place) = first.filter(|place| own[*place].is_half_free()) else { return false };
        let claimed = own.remove(place);
        self.blocks.add_reclaimable(claimed);
        true
    }

    /// For page cache: the slabs' block that has this piece, or if none has it that of unmovable allocations. The first block of the DMA
    /// zone has too few pages for it.
    fn claim_of_kernel(&mut self, piece: u64) -> bool {
        let has = |open: &Open| open.sizes() & piece != 0;
        let of = |kind: Kind| Some((kind, self.blocks.open[kind as usize].iter().position(has)?));
        let Some((kind, place)) = of(Kind::Reclaimable).or_else(|| of(Kind::Unmovable)) else { return false };
        let own = &mut self.blocks.open[kind as usize];
        if !own[place].is_half() {
            return false;
        }
        let claimed = own.remove(place);
        self.blocks.claims += u32::from(kind == Kind::Reclaimable);
        self.blocks.kernel_free -= claimed.free();
        self.blocks.cache_inside -= claimed.stolen.min(self.blocks.cache_inside);
        true
    }

    /// mm/page_alloc.c: __rmqueue_steal, 6.12.117: a page of the other kind, of the smallest piece; its block stays what it is.
    pub(super) fn steal_one(&mut self, for_kernel: bool) {
        if for_kernel {
            self.blocks.slabs_outside += 1;
            return;
        }
        self.blocks.cache_inside += 1;
        if self.blocks.kernel_free == 0 {
            self.blocks.boot_free = self.blocks.boot_free.saturating_sub(1);
        } else if let Some((kind, place)) = self.blocks.lose(1) {
            self.blocks.open[kind as usize][place].stolen += 1;
        }
    }
}

//! One page block of the kernel's of which a part is free: its free pieces, and what else decides whether page cache may have it.
//!
//! Models: pieces by order, of which the smallest is split (`expand`) and to which what comes back is merged (`__free_one_page`). Leaves
//! out: addresses, so that pieces of one order count as neighbours.

use super::{MAX_PIECE, ORDERS, PAGEBLOCK};
use flatwater_workload::scenario::{BlockExtent, BlockKind, KernelBlock};

/// A block that kernel allocations are filling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// How many free pieces there are of each order.
    pieces: [u64; ORDERS.get()],
    free: u64,
    /// The zone has all of it (zone_spans_pfn of its first and of its last page).
    pub whole: bool,
    /// Free pages of several blocks may be counted together here: none of them is half free then.
    scattered: bool,
    /// Pages in it that lie on lists of page cache or of anonymous memory: they are compatible with page cache.
    listed: u64,
    /// Pages of it that page cache took one by one.
    pub stolen: u64,
}

impl Default for Open {
    fn default() -> Open {
        Open::new(0, 0)
    }
}

impl Open {
    /// Of so many free pages, and with a largest piece of so many, wherever they are.
    pub fn new(free: u64, largest: u64) -> Open {
        let mut open = Open::of(&[], 0, true);
        open.free = free;
        if let Some(order) = largest.min(free).min(MAX_PIECE.get()).checked_ilog2() {
            open.pieces[order as usize] = free >> order;
            let rest = free & ((1 << order) - 1);
            open.pieces.iter_mut().zip(0..).for_each(|(pieces, order)| *pieces += rest >> order & 1);
        }
        open.scattered = open.largest() < PAGEBLOCK.get() / 2;
        open
    }

    /// Of these free pieces, by order.
    pub fn of(given: &[u64], listed: u64, whole: bool) -> Open {
        let mut pieces = [0; ORDERS.get()];
        pieces.iter_mut().zip(given).for_each(|(own, given)| *own = *given);
        let free = pieces.iter().zip(0..).map(|(pieces, order)| pieces << order).sum();
        Open { pieces, free, whole, scattered: false, listed, stolen: 0 }
    }

    /// Of these free pieces, of several blocks together, where it is not known which are of one.
    pub fn several(given: &[u64]) -> Open {
        let open = Open::of(given, 0, true);
        Open { scattered: open.largest() < PAGEBLOCK.get() / 2, ..open }
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    /// The sizes of its free pieces, a bit for each.
    pub fn sizes(&self) -> u64 {
        self.pieces.iter().zip(0..).map(|(pieces, order)| u64::from(*pieces > 0) << order).sum()
    }

    pub fn largest(&self) -> u64 {
        highest_bit(self.sizes())
    }

    /// Its smallest free piece, pages; more than any where nothing is free.
    pub fn smallest(&self) -> u64 {
        1_u64.checked_shl(self.sizes().trailing_zeros()).unwrap_or(u64::MAX)
    }

    /// mm/page_alloc.c: expand: the first page of the smallest piece, the rest of which stays as pieces of each smaller order.
    pub fn take_one(&mut self) {
        let order = self.sizes().trailing_zeros() as usize;
        if order < ORDERS.get() {
            self.pieces[order] -= 1;
            self.pieces[..order].iter_mut().for_each(|pieces| *pieces += 1);
            self.free -= 1;
        }
    }

    /// One of its pieces of this size; false if it has none.
    pub fn take_piece(&mut self, size: u64) -> bool {
        let is_there = self.sizes() & size != 0;
        if is_there {
            self.pieces[size.ilog2() as usize] -= 1;
            self.free -= size;
        }
        is_there
    }

    /// Pages come back, which two by two are a piece of the next order.
    pub fn give(&mut self, pages: u64) {
        for _ in 0..pages {
            let last = ORDERS.get() - 1;
            let order = self.pieces[..last].iter().position(|pieces| *pieces == 0).unwrap_or(last);
            self.pieces[..order].iter_mut().for_each(|pieces| *pieces -= 1);
            self.pieces[order] += 1;
        }
        self.free += pages;
    }

    /// Pages that are free or compatible with page cache ("alike_pages").
    pub fn alike(&self) -> u64 {
        self.free + self.stolen + self.listed
    }

    /// mm/page_alloc.c: try_to_steal_block, 6.12: half of the block is free or compatible; prep_move_freepages_block refuses one that
    /// another zone has a part of.
    pub fn is_half(&self) -> bool {
        self.can_be_claimed() && self.alike() >= PAGEBLOCK.get() / 2
    }

    /// The same for slabs: of what is not free in a block of unmovable allocations nobody knows how much is compatible ("be
    /// conservative").
    pub fn is_half_free(&self) -> bool {
        self.can_be_claimed() && self.free >= PAGEBLOCK.get() / 2
    }

    fn can_be_claimed(&self) -> bool {
        self.whole && !self.scattered
    }
}

/// Those of reclaimable slabs and of unmovable allocations.
pub fn of_kinds(blocks: &[KernelBlock]) -> [Vec<Open>; 2] {
    [BlockKind::Reclaimable, BlockKind::Unmovable].map(|kind| {
        let own = blocks.iter().filter(|block| block.kind == kind);
        own.map(|block| match block.extent {
            BlockExtent::Whole => Open::of(&block.pieces, block.listed_pages, true),
            BlockExtent::Part => Open::of(&block.pieces, block.listed_pages, false),
            BlockExtent::Several => Open::several(&block.pieces),
        })
        .collect()
    })
}

/// The largest power of two in a number.
pub fn highest_bit(number: u64) -> u64 {
    number.checked_ilog2().map_or(0, |bit| 1 << bit)
}

#[cfg(test)]
mod tests {
    use super::Open;

    #[test]
    fn a_page_splits_the_smallest_piece_and_merges_with_what_is_left_of_it() {
        // 8 and 64 pages: one of the 8 leaves 4, 2 and 1.
        let mut open = Open::of(&[0, 0, 0, 1, 0, 0, 1], 0, true);
        assert_eq!((open.free(), open.largest(), open.smallest()), (72, 64, 8));
        open.take_one();
        assert_eq!((open.free(), open.sizes()), (71, 64 + 4 + 2 + 1));
        open.give(1);
        assert_eq!(open, Open::of(&[0, 0, 0, 1, 0, 0, 1], 0, true));
        assert!(open.take_piece(64) && !open.take_piece(64) && !open.take_piece(16));
        (0..8).for_each(|_| open.take_one());
        open.take_one();
        assert_eq!((open.free(), open.largest(), open.smallest()), (0, 0, u64::MAX));
    }

    #[test]
    fn which_block_may_be_claimed() {
        let half = [0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert!(Open::of(&half, 0, true).is_half() && Open::of(&half, 0, true).is_half_free());
        assert!(!Open::of(&half, 0, false).is_half(), "the zone ends within it");
        // 128 free pages, and as many of page cache: compatible with page cache, not with slabs.
        let mixed = Open::of(&half[1..], 128, true);
        assert!(mixed.is_half() && !mixed.is_half_free());
        assert!(!Open::of(&half[1..], 127, true).is_half());
        assert!(!Open::new(440, 128).is_half(), "perhaps of several blocks");
    }

    #[test]
    fn pieces_follow_from_their_sum_and_the_largest() {
        let open = Open::new(164, 64);
        assert_eq!((open.free(), open.sizes()), (164, 64 + 32 + 4));
        assert_eq!((Open::new(90, 500).free(), Open::new(90, 500).largest()), (90, 64));
        assert_eq!((Open::new(2_048, 4_096).free(), Open::new(2_048, 4_096).largest()), (2_048, 1_024));
        assert_eq!((Open::default().free(), Open::default().sizes()), (0, 0));
    }
}

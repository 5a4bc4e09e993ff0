//! The buddy system of a zone: its free pieces by size and kind of page, and of which kind each page block is.
//!
//! Models: `__rmqueue_smallest`, `expand`, `__free_one_page` with `buddy_merge_likely`, the order of the free lists, and what
//! `move_freepages` finds in a block. Leaves out: blocks of other kinds (highatomic, CMA, isolated), compaction, and what lies on lists of
//! the LRU is counted by block, not known by frame.

use std::collections::VecDeque;

use super::blocks::PAGEBLOCK;
use crate::constant::constants;

constants! {
    /// The largest free piece is of so many pages, as a power of two.
    pub const MAX_PAGE_ORDER: usize = kernel(10, "include/linux/mmzone.h", "MAX_PAGE_ORDER (MAX_ORDER - 1 up to 6.7)", "6.12");
    const ORDERS: usize = kernel(11, "include/linux/mmzone.h", "NR_PAGE_ORDERS (MAX_PAGE_ORDER + 1)", "6.12");
}

/// A frame that nobody has told from others.
pub const UNTOLD: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

/// For what pages of a block are (enum migratetype).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Unmovable,
    Movable,
    Reclaimable,
}

pub const KINDS: [Kind; 3] = [Kind::Unmovable, Kind::Movable, Kind::Reclaimable];

/// A page frame: its zone, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub zone: u8,
    pub number: u32,
}

impl From<u8> for Frame {
    fn from(zone: u8) -> Frame {
        Frame { zone, number: UNTOLD }
    }
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

/// What begins at a frame: a free piece on a list, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head(u8);

impl Head {
    fn of(order: usize, kind: Kind) -> Head {
        Head(1 + order as u8 + 16 * kind as u8)
    }

    fn order(self) -> Option<usize> {
        (self.0 % 16).checked_sub(1).map(usize::from)
    }

    fn kind(self) -> Kind {
        KINDS[usize::from(self.0 / 16)]
    }
}

#[derive(Clone, Copy, Debug)]
struct PageBlock {
    kind: Kind,
    /// Pages in it that lie on lists of page cache or of anonymous memory.
    listed: u16,
}

/// What is in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub free: u64,
    pub listed: u64,
}

#[derive(Clone, Debug)]
pub struct Buddy {
    /// The zone's first frame, and the one behind its last: a piece's buddy must lie between.
    span: (u32, u32),
    heads: Vec<Head>,
    /// Before and behind it on its list, of a frame with which a free piece begins.
    links: Vec<[u32; 2]>,
    lists: [[List; ORDERS.get()]; KINDS.len()],
    blocks: Vec<PageBlock>,
    free: u64,
    /// Runs of frames that are in use, nobody knows by whom.
    untold: VecDeque<(u32, u32)>,
}

impl Buddy {
    /// Nothing is free, and all blocks are movable.
    pub fn new(first: u32, end: u32) -> Buddy {
        let empty = List { head: NONE, tail: NONE };
        let blocks = (end as usize).div_ceil(PAGEBLOCK.get() as usize);
        Buddy {
            span: (first, end),
            heads: vec![Head::default(); end as usize],
            links: vec![[0; 2]; end as usize],
            lists: [[empty; ORDERS.get()]; KINDS.len()],
            blocks: vec![PageBlock { kind: Kind::Movable, listed: 0 }; blocks],
            free: 0,
            untold: VecDeque::new(),
        }
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    fn block(&self, frame: u32) -> &PageBlock {
        &self.blocks[frame as usize / PAGEBLOCK.get() as usize]
    }

    fn block_mut(&mut self, frame: u32) -> &mut PageBlock {
        &mut self.blocks[frame as usize / PAGEBLOCK.get() as usize]
    }

    pub fn kind(&self, frame: u32) -> Kind {
        self.block(frame).kind
    }

    pub fn set_kind(&mut self, frame: u32, kind: Kind) {
        self.block_mut(frame).kind = kind;
    }

    /// A page of the LRU more, or less, in the frame's block.
    #[inline]
    pub fn list(&mut self, frame: u32, more: i16) {
        let block = self.block_mut(frame);
        block.listed = block.listed.saturating_add_signed(more);
    }

    /// The first piece on a list.
    pub fn first(&self, kind: Kind, order: usize) -> Option<u32> {
        let head = self.lists[kind as usize][order].head;
        (head != NONE).then_some(head)
    }

    /// Whether there is a free piece of this size or more (mm/page_alloc.c: __zone_watermark_ok).
    pub fn has(&self, order: usize) -> bool {
        KINDS.iter().any(|&kind| (order..=MAX_PAGE_ORDER.get()).any(|order| self.first(kind, order).is_some()))
    }

    /// mm/page_alloc.c: __rmqueue_smallest.
    #[inline]
    pub fn take_smallest(&mut self, order: usize, kind: Kind) -> Option<u32> {
        let (found, piece) =
            (order..=MAX_PAGE_ORDER.get()).find_map(|each| self.first(kind, each).map(|piece| (each, piece)))?;
        self.take(piece, order, found, kind);
        Some(piece)
    }

    /// mm/page_alloc.c: del_page_from_free_list and expand: the first pages of a piece, whose rest goes on lists of this kind.
    pub fn take(&mut self, piece: u32, order: usize, found: usize, rest: Kind) {
        self.unlink(piece);
        self.free -= 1 << order;
        for half in (order..found).rev() {
            self.link(piece + (1 << half), half, rest, false);
        }
    }

    /// mm/page_alloc.c: __free_one_page.
    pub fn give(&mut self, frame: u32, order: usize, kind: Kind) {
        self.free += 1 << order;
        let (mut piece, mut order) = (frame, order);
        while order < MAX_PAGE_ORDER.get() {
            let buddy = piece ^ (1 << order);
            if !self.is_piece(buddy, order) {
                break;
            }
            self.unlink(buddy);
            (piece, order) = (piece & buddy, order + 1);
        }
        // mm/page_alloc.c: buddy_merge_likely.
        let above = order + 1;
        let to_tail = above < MAX_PAGE_ORDER.get() && self.is_piece((piece & !(1 << order)) ^ (1 << above), above);
        self.link(piece, order, kind, to_tail);
    }

    /// As boot gives memory to the allocator (FPI_TO_TAIL).
    pub fn add(&mut self, piece: u32, order: usize, kind: Kind) {
        self.free += 1 << order;
        self.link(piece, order, kind, true);
    }

    fn is_piece(&self, frame: u32, order: usize) -> bool {
        let (first, end) = self.span;
        (first..end).contains(&frame) && self.heads[frame as usize].order() == Some(order)
    }

    /// mm/page_alloc.c: move_to_free_list.
    pub fn move_piece(&mut self, piece: u32, kind: Kind) {
        if let Some(order) = self.heads[piece as usize].order() {
            self.unlink(piece);
            self.link(piece, order, kind, true);
        }
    }

    /// The frames of a block that the zone has, and whether those are its first and its last one (zone_spans_pfn).
    pub fn extent(&self, frame: u32) -> (std::ops::Range<u32>, [bool; 2]) {
        let size = PAGEBLOCK.get() as u32;
        let (from, to) = (frame / size * size, frame / size * size + size);
        let (first, end) = self.span;
        (from.max(first)..to.min(end), [from >= first, to <= end])
    }

    /// mm/page_alloc.c: move_freepages, from a frame to the end of its block; how many pages it moved.
    pub fn move_pieces(&mut self, frames: std::ops::Range<u32>, kind: Kind) -> u64 {
        let pieces: Vec<(u32, usize)> = self.pieces(frames).collect();
        pieces.iter().for_each(|(piece, _)| self.move_piece(*piece, kind));
        pieces.iter().map(|(_, order)| 1 << order).sum()
    }

    pub fn content(&self, frame: u32) -> Content {
        let (frames, _) = self.extent(frame);
        let free = self.pieces(frames).map(|(_, order)| 1 << order).sum();
        Content { free, listed: u64::from(self.block(frame).listed) }
    }

    fn pieces(&self, frames: std::ops::Range<u32>) -> impl Iterator<Item = (u32, usize)> + '_ {
        let mut at = frames.start;
        std::iter::from_fn(move || {
            while at < frames.end {
                let frame = at;
                let order = self.heads[frame as usize].order();
                at += order.map_or(1, |order| 1 << order);
                if let Some(order) = order {
                    return Some((frame, order));
                }
            }
            None
        })
    }

    fn link(&mut self, piece: u32, order: usize, kind: Kind, to_tail: bool) {
        self.heads[piece as usize] = Head::of(order, kind);
        let list = &mut self.lists[kind as usize][order];
        let (end, other) = if to_tail { (&mut list.tail, &mut list.head) } else { (&mut list.head, &mut list.tail) };
        let neighbour = std::mem::replace(end, piece);
        if neighbour == NONE {
            *other = piece;
        } else {
            self.links[neighbour as usize][usize::from(to_tail)] = piece;
        }
        self.links[piece as usize] = if to_tail { [neighbour, NONE] } else { [NONE, neighbour] };
    }

    fn unlink(&mut self, piece: u32) {
        let head = std::mem::take(&mut self.heads[piece as usize]);
        let Some(order) = head.order() else { return };
        let [before, behind] = self.links[piece as usize];
        let list = &mut self.lists[head.kind() as usize][order];
        if before == NONE {
            list.head = behind;
        }
        if behind == NONE {
            list.tail = before;
        }
        if before != NONE {
            self.links[before as usize][1] = behind;
        }
        if behind != NONE {
            self.links[behind as usize][0] = before;
        }
    }

    /// Takes so many pages, in the largest pieces, of which nobody will know who has which.
    pub fn take_untold(&mut self, pages: u64) {
        let mut left = pages.min(self.free);
        while left > 0 {
            let most = (left.ilog2() as usize).min(MAX_PAGE_ORDER.get());
            let mut all = (0..=most)
                .rev()
                .flat_map(|order| [Kind::Movable, Kind::Unmovable, Kind::Reclaimable].map(move |kind| (order, kind)));
            let Some((piece, order)) =
                all.find_map(|(order, kind)| self.take_smallest(order, kind).map(|piece| (piece, order)))
            else {
                return;
            };
            self.note_untold(piece, 1 << order);
            left -= 1 << order;
        }
    }

    pub fn note_untold(&mut self, first: u32, pages: u32) {
        if pages > 0 {
            self.untold.push_back((first, pages));
        }
    }

    /// The frame of a page that nobody told: one of those, in their order.
    pub fn tell(&mut self) -> Option<u32> {
        let (first, pages) = self.untold.front_mut()?;
        let frame = *first;
        (*first, *pages) = (*first + 1, *pages - 1);
        if *pages == 0 {
            self.untold.pop_front();
        }
        Some(frame)
    }

    /// The free pieces, and their sizes as powers of two.
    pub fn all(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        self.pieces(0..self.heads.len() as u32)
    }

    pub fn frames(&self) -> usize {
        self.heads.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Buddy, Content, Kind, MAX_PAGE_ORDER};

    /// Two blocks, of which the frames from 8 on to 15 are free.
    fn buddy() -> Buddy {
        let mut buddy = Buddy::new(0, 1024);
        buddy.add(8, 3, Kind::Movable);
        buddy
    }

    fn counted(buddy: &Buddy) -> u64 {
        buddy.all().map(|(_, order)| 1 << order).sum()
    }

    #[test]
    fn a_page_splits_the_smallest_piece_and_merges_with_what_is_left_of_it() {
        let mut buddy = buddy();
        buddy.add(64, 6, Kind::Movable);
        assert_eq!(buddy.take_smallest(0, Kind::Movable), Some(8));
        let left = |buddy: &Buddy| [0, 1, 2, 3, 6].map(|order| buddy.first(Kind::Movable, order));
        assert_eq!((left(&buddy), buddy.free()), ([Some(9), Some(10), Some(12), None, Some(64)], 71));
        buddy.give(8, 0, Kind::Movable);
        assert_eq!((left(&buddy), buddy.free()), ([None, None, None, Some(8), Some(64)], 72));
        assert_eq!((buddy.take_smallest(4, Kind::Movable), counted(&buddy)), (Some(64), 72 - 16));
        assert!(buddy.has(5) && !buddy.has(6) && buddy.take_smallest(0, Kind::Unmovable).is_none());
    }

    /// buddy_merge_likely: of 16 the buddy, 17, is in use, and 18 and 19 are free together.
    #[test]
    fn a_page_that_may_soon_merge_is_given_out_last() {
        let mut buddy = buddy();
        buddy.add(40, 0, Kind::Movable);
        buddy.add(18, 1, Kind::Movable);
        buddy.give(16, 0, Kind::Movable);
        buddy.give(24, 0, Kind::Movable);
        let taken: Vec<_> = (0..3).map(|_| buddy.take_smallest(0, Kind::Movable)).collect();
        assert_eq!(taken, [Some(24), Some(40), Some(16)], "what was given last comes first, but for 16");
    }

    /// Pieces of one kind merge with those of another, and are on the list of the last one.
    #[test]
    fn pieces_merge_whatever_their_kind() {
        let mut buddy = buddy();
        buddy.give(0, 3, Kind::Reclaimable);
        assert_eq!((buddy.first(Kind::Reclaimable, 4), buddy.first(Kind::Movable, 3)), (Some(0), None));
        let mut buddy = Buddy::new(0, 1024);
        buddy.set_kind(512, Kind::Unmovable);
        buddy.add(512, 9, Kind::Unmovable);
        buddy.give(0, 9, Kind::Movable);
        assert_eq!((buddy.first(Kind::Movable, MAX_PAGE_ORDER.get()), buddy.kind(512)), (Some(0), Kind::Unmovable));
    }

    #[test]
    fn a_block_knows_what_is_free_in_it_and_how_much_is_on_lists() {
        let mut buddy = buddy();
        buddy.add(512, 2, Kind::Movable);
        buddy.list(20, 1);
        buddy.list(21, 1);
        buddy.list(20, -1);
        assert_eq!(buddy.content(300), Content { free: 8, listed: 1 });
        assert_eq!((buddy.move_pieces(0..512, Kind::Unmovable), buddy.first(Kind::Unmovable, 3)), (8, Some(8)));
        assert_eq!(buddy.content(600), Content { free: 4, listed: 0 });
        // The DMA zone begins at frame 1; a zone that ends within its block.
        let buddy = Buddy::new(1, 976);
        assert_eq!((buddy.extent(300), buddy.extent(600)), ((1..512, [false, true]), (512..976, [true, false])));
    }

    #[test]
    fn frames_that_nobody_told_apart_come_back_in_their_order() {
        let mut buddy = buddy();
        buddy.add(64, 6, Kind::Movable);
        buddy.take_untold(66);
        assert_eq!(buddy.free(), 6);
        let told: Vec<_> = (0..67).map(|_| buddy.tell()).collect();
        assert_eq!((told[0], told[63], told[64], told[65], told[66]), (Some(64), Some(127), Some(8), Some(9), None));
    }
}

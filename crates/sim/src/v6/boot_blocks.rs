//! Which frames are free when boot has ended, and of which kind their page blocks are.
//!
//! Models: the blocks that the kernel's allocations have opened, as far as the scenario knows them, then what is used of the rest, then what is
//! free, in whole blocks as far as it goes; the DMA zone, of which boot uses the first MiB and a pool for devices. Leaves out: where in a block
//! its free pieces lie (the largest first), and which block is where.

use std::ops::Range;

use super::blocks::{DMA_POOL_PAGES, FIRST_MIB_PAGES, PAGEBLOCK};
use super::buddy::{Buddy, Kind, MAX_PAGE_ORDER};
use crate::constant::constants;
use crate::zone::{Zone, ZoneKind};
use flatwater_workload::scenario::{BlockExtent, BlockKind, KernelBlock};

constants! {
    /// Free pages of the kernel's page blocks where a scenario does not tell.
    const OPEN_PAGES: u64 = assumed(512, "the unmovable and the reclaimable block being filled, each half full");
    /// What firmware keeps at the end of memory, so that the last zone has a part of its last block.
    const FIRMWARE_PAGES: u64 = assumed(32, "128 KiB for ACPI tables, as QEMU has it; where a scenario tells of such a block");
    /// Zones of more frames are not kept account of: nobody falls back there.
    const FRAMES_MAX: u64 = assumed(1 << 24, "64 GiB: 9 bytes for each frame are enough");
}

/// A page block that is free in part.
struct Part {
    kind: Kind,
    /// Sizes of its free pieces, as powers of two, the largest first.
    orders: Vec<usize>,
    listed: u64,
    is_whole: bool,
}

impl Part {
    fn free(&self) -> u64 {
        self.orders.iter().map(|order| 1 << order).sum()
    }

    /// How much of its block is not the zone's: of one that ends with the zone at the end of a block some is firmware's.
    fn beyond(&self, spanned: u64) -> u64 {
        let room = PAGEBLOCK.get().saturating_sub(self.free());
        let is_last = !self.is_whole && spanned.is_multiple_of(PAGEBLOCK.get()) && spanned > PAGEBLOCK.get();
        if is_last { FIRMWARE_PAGES.get().min(room) } else { 0 }
    }

    /// The free pages of several blocks, in as few blocks as may be of which something is in use.
    fn of(block: &KernelBlock) -> Vec<Part> {
        let kind = match block.kind {
            BlockKind::Unmovable => Kind::Unmovable,
            BlockKind::Reclaimable => Kind::Reclaimable,
        };
        let sizes = block.pieces.iter().enumerate().rev();
        let orders: Vec<usize> =
            sizes.flat_map(|(order, pieces)| std::iter::repeat_n(order, *pieces as usize)).collect();
        let part =
            |orders| Part { kind, orders, listed: block.listed_pages, is_whole: block.extent != BlockExtent::Part };
        if block.extent != BlockExtent::Several {
            return vec![part(orders)];
        }
        let mut parts: Vec<Part> = Vec::new();
        for order in orders {
            let has_room = |part: &&mut Part| part.free() + (1 << order) < PAGEBLOCK.get();
            match parts.iter_mut().find(has_room) {
                Some(own) => own.orders.push(order),
                None => parts.push(part(vec![order])),
            }
        }
        parts
    }
}

/// A number of pages as pieces, the largest first.
fn pieces_of(pages: u64) -> Vec<usize> {
    (0..=MAX_PAGE_ORDER.get()).rev().filter(|order| pages >> order & 1 == 1).collect()
}

impl Zone {
    /// Says which of the zone's frames are free. Where the kernel's blocks are not known one of each kind is half full.
    pub fn lay_out(&mut self, known: Option<&[KernelBlock]>) {
        let is_dma = self.kind == ZoneKind::Dma;
        if is_dma {
            let pool = DMA_POOL_PAGES.get().min(self.free);
            (self.free, self.pinned) = (self.free - pool, self.pinned + pool);
        }
        if self.spanned > FRAMES_MAX.get() || self.spanned == 0 {
            return;
        }
        let half = OPEN_PAGES.get().min(self.free / 8) / 2;
        let unknown = |kind| Part { kind, orders: pieces_of(half), listed: 0, is_whole: true };
        let parts = match known {
            _ if is_dma => Vec::new(),
            Some(blocks) => blocks.iter().flat_map(Part::of).collect(),
            None => vec![unknown(Kind::Reclaimable), unknown(Kind::Unmovable)],
        };
        let in_use = FIRST_MIB_PAGES.get() + DMA_POOL_PAGES.get();
        let keeps_first =
            is_dma && (PAGEBLOCK.get() - in_use..=self.spanned.saturating_sub(in_use)).contains(&self.free);
        let end = self.spanned - parts.iter().map(|part| part.beyond(self.spanned)).max().unwrap_or(0);
        let mut layout = Layout::new(u32::from(keeps_first), end as u32);
        let mut left = self.free - if keeps_first { layout.first_block(in_use) } else { 0 };
        for part in parts {
            left -= layout.place(&part, left);
        }
        layout.fill(left);
        let buddy = layout.done();
        debug_assert_eq!(buddy.free(), self.free, "every free frame is somewhere");
        self.blocks.buddy = Some(buddy);
    }
}

struct Layout {
    buddy: Buddy,
    /// Blocks that have not been used yet: from the lower end kernel's go, from the upper free ones.
    blocks: Range<u32>,
    end: u32,
    /// Free pieces, and their kinds.
    pieces: Vec<(u32, usize, Kind)>,
}

impl Layout {
    fn new(first: u32, end: u32) -> Layout {
        let blocks = 0..end.div_ceil(PAGEBLOCK.get() as u32);
        Layout { buddy: Buddy::new(first, end), blocks, end, pieces: Vec::new() }
    }

    fn size(&self, block: u32) -> u64 {
        u64::from(self.end).saturating_sub(u64::from(block) * PAGEBLOCK.get()).min(PAGEBLOCK.get())
    }

    fn put(&mut self, block: u32, at: u64, orders: &[usize], kind: Kind) {
        let mut at = block * PAGEBLOCK.get() as u32 + at as u32;
        for order in orders {
            self.pieces.push((at, *order, kind));
            at += 1 << order;
        }
        self.buddy.set_kind(block * PAGEBLOCK.get() as u32, kind);
    }

    /// arch/x86/realmode/init.c: reserve_real_mode takes the first MiB; the zone begins at its second frame, so that this block is never made
    /// movable (mm/page_alloc.c: memmap_init_range). The pool is what is taken of it first.
    fn first_block(&mut self, from: u64) -> u64 {
        self.blocks.start = 1;
        let all = PAGEBLOCK.get() - from;
        let mut orders = pieces_of(all);
        orders.reverse();
        self.put(0, from, &orders, Kind::Unmovable);
        all
    }

    /// One of the kernel's blocks, if there is a block for it and room for the rest; how many of the free pages are there.
    fn place(&mut self, part: &Part, left: u64) -> u64 {
        let free = part.free();
        let ends_within = self.blocks.end.checked_sub(1).filter(|last| self.size(*last) < PAGEBLOCK.get());
        let block = match (part.is_whole, ends_within) {
            (false, Some(last)) if free <= self.size(last) => last,
            _ => self.blocks.start,
        };
        let whole = u64::from(self.blocks.end.saturating_sub(self.blocks.start)).saturating_sub(2) * PAGEBLOCK.get();
        if free == 0 || free > left || free > PAGEBLOCK.get() || whole < left - free {
            return 0;
        }
        self.put(block, 0, &part.orders, part.kind);
        self.buddy.list(block * PAGEBLOCK.get() as u32, part.listed.min(PAGEBLOCK.get() - free) as i16);
        self.blocks = if block == self.blocks.start { block + 1..self.blocks.end } else { self.blocks.start..block };
        free
    }

    /// Free pages of page cache's blocks, from the end on; what does not fill a block in another one.
    fn fill(&mut self, pages: u64) {
        let mut left = pages;
        let mut used = Vec::new();
        while let Some(block) = self.blocks.next_back() {
            let size = self.size(block);
            // A block that the zone has a part of is in use while others are not.
            let free = if size < PAGEBLOCK.get() && left <= self.room() { 0 } else { left.min(size) };
            self.put(block, 0, &pieces_of(free), Kind::Movable);
            left -= free;
            used.push((block * PAGEBLOCK.get() as u32 + free as u32, (size - free) as u32));
        }
        used.iter().rev().for_each(|(from, pages)| self.buddy.note_untold(*from, *pages));
    }

    fn room(&self) -> u64 {
        self.blocks.clone().map(|block| self.size(block)).sum()
    }

    /// Neighbours of whole blocks merge.
    fn done(mut self) -> Buddy {
        self.pieces.sort_unstable_by_key(|(at, ..)| *at);
        let block = PAGEBLOCK.get().ilog2() as usize;
        let mut pieces = self.pieces.iter().peekable();
        while let Some(&(at, order, kind)) = pieces.next() {
            let largest = 1 << MAX_PAGE_ORDER.get();
            let merges = order == block && at % largest == 0;
            let other = pieces.next_if(|other| merges && **other == (at + (1 << block), order, kind));
            self.buddy.add(at, order + usize::from(other.is_some()), kind);
        }
        self.buddy
    }
}

#[cfg(test)]
mod tests {
    use crate::v6::buddy::{Buddy, Content, Kind};
    use crate::zone::{Zone, ZoneKind};
    use flatwater_workload::scenario::KernelBlock;

    fn blocks(given: &str) -> Vec<KernelBlock> {
        given.split(',').map(|block| block.parse().expect("a block")).collect()
    }

    fn counted(buddy: &Buddy) -> u64 {
        buddy.all().map(|(_, order)| 1 << order).sum()
    }

    fn laid_out(kind: ZoneKind, (spanned, free): (u64, u64), known: Option<&str>) -> (Zone, Buddy) {
        let mut zone = Zone::new(0, kind, spanned, spanned);
        zone.free = free;
        let known = known.map(blocks);
        zone.lay_out(known.as_deref());
        let buddy = zone.blocks.buddy.take().expect("told apart");
        (zone, buddy)
    }

    /// The boosted DMA zone of a guest of 6.1 with 384 MiB had 598 free pages, 224 of which were the first block's.
    #[test]
    fn the_dma_zone_is_free_but_for_its_first_mib_and_a_pool() {
        let (zone, buddy) = laid_out(ZoneKind::Dma, (4_096, 4_096 - 256), None);
        assert_eq!((zone.free, zone.pinned, buddy.free()), (3_808, 32, 3_808), "as the guest's first sample says");
        assert_eq!((buddy.kind(1), buddy.content(1)), (Kind::Unmovable, Content { free: 224, listed: 0 }));
        assert_eq!([5, 6, 7].map(|order| buddy.first(Kind::Unmovable, order)), [Some(288), Some(320), Some(384)]);
        assert_eq!((buddy.first(Kind::Movable, 9), buddy.first(Kind::Movable, 10)), (Some(512), Some(1_024)));
    }

    /// Eight blocks, the last of 464 pages.
    #[test]
    fn the_kernels_blocks_come_first_and_what_is_free_last() {
        let known = "unmovable/1.0.0.0.0.0.1/7/whole,reclaimable/0.0.0.0.0.0.0.0.1/0/part,reclaimable/0.0.0.0.0.0.0.0.0.1/0/whole";
        let free = 65 + 256 + 512 + 512 + 300;
        let (_, buddy) = laid_out(ZoneKind::Normal, (4_048, free), Some(known));
        let content = |block: u32| (buddy.kind(512 * block), buddy.content(512 * block).free);
        let all = [0, 1, 2, 3, 4, 5, 6, 7].map(content);
        let (kernel, movable) = ([(Kind::Unmovable, 65), (Kind::Reclaimable, 512)], |free| (Kind::Movable, free));
        let rest = [movable(0), movable(0), movable(0), movable(300), movable(512), (Kind::Reclaimable, 256)];
        assert_eq!(all, [&kernel[..], &rest[..]].concat()[..]);
        assert_eq!((buddy.content(0).listed, counted(&buddy), buddy.free()), (7, free, free));
        assert_eq!(buddy.first(Kind::Unmovable, 6), Some(0), "the largest piece of a block is its first");
    }

    /// A node whose memory ends with a block, the last of which is told to be the zone's in part: firmware has the rest.
    #[test]
    fn a_block_that_ends_with_its_zone_is_never_the_zones_as_a_whole() {
        let known = "unmovable/1.0.0.0.0.1.0.0.1/100/part";
        let (_, buddy) = laid_out(ZoneKind::Normal, (4_096, 3_000), Some(known));
        assert_eq!((buddy.extent(4_000), buddy.content(4_000).free), ((3_584..4_064, [true, false]), 289));
        assert_eq!((buddy.kind(4_000), counted(&buddy)), (Kind::Unmovable, 3_000));
    }

    #[test]
    fn pieces_of_several_blocks_are_in_as_few_as_may_be() {
        // 256 + 128 + 64 + 32 + 16, and 128 + 8 x 2: not 512 in one.
        let (_, buddy) = laid_out(ZoneKind::Normal, (4_096, 1_000), Some("unmovable/0.8.0.0.1.1.1.2.1/0/several"));
        assert_eq!([0, 512].map(|block| buddy.content(block).free), [256 + 128 + 64 + 32 + 16 + 14, 128 + 2]);
        assert_eq!([0, 512, 1_024].map(|block| buddy.kind(block)), [Kind::Unmovable, Kind::Unmovable, Kind::Movable]);
    }

    /// Nothing is known: an unmovable and a reclaimable block are half full, and neighbours of one kind are one piece.
    #[test]
    fn every_free_frame_is_somewhere_whatever_a_scenario_says() {
        let (_, buddy) = laid_out(ZoneKind::Normal, (32_768, 20_000), None);
        assert_eq!(
            [0, 512].map(|block| (buddy.kind(block), buddy.content(block).free)),
            [(Kind::Reclaimable, 256), (Kind::Unmovable, 256)]
        );
        assert!(buddy.first(Kind::Movable, 10).is_some() && counted(&buddy) == 20_000);
        for (spanned, free) in [(1, 1), (600, 600), (512, 3), (5_000, 5_000), (4_048, 0), (1_024, 511)] {
            let known =
                "unmovable/0.0.0.0.0.0.0.0.1/9/whole,reclaimable/1/0/part,unmovable/0.0.0.0.0.0.0.0.0.9/0/several";
            for (kind, known) in [(ZoneKind::Normal, Some(known)), (ZoneKind::Dma, None), (ZoneKind::Normal, None)] {
                let (zone, buddy) = laid_out(kind, (spanned, free), known);
                assert_eq!((buddy.free(), counted(&buddy)), (zone.free, zone.free), "{kind:?} {spanned} {free}");
            }
        }
    }
}

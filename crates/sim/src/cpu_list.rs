//! Free pages on the lists of the CPUs, in front of the zones' own.
//!
//! Models: batches taken from the zone and given back to it. For 5.14 and later: sizes that follow the zone and its low
//! watermark, short lists while kswapd is at work, the growing batch of a CPU that only frees, and lists of their own
//! for what is in page blocks of the kernel's (`v6::blocks`). For 6.7 and later: batches that double while pages are only taken, and a
//! list that grows with them while its zone is above its high watermark and shrinks again (`pcp->high`). Leaves out: lists by order
//! (slabs of several pages pass them by), what a CPU holds of a remote node and gives back after three seconds.

use std::rc::Rc;

use super::Machine;
use super::constant::constants;
use super::memory::Mm;
use super::v6::blocks::{Blocks, Refilled};
use super::zone::{Zone, ZoneKind};

constants! {
    /// Zones over 512 MiB: smaller ones have shorter lists, which the model does not tell apart.
    const BATCH: u64 = kernel(31, "mm/page_alloc.c", "zone_batchsize", "2.6.32");
    const HIGH: u64 = kernel(6 * 31, "mm/page_alloc.c", "setup_pageset", "2.6.32");
    const SCALE_MAX: u8 = kernel(5, "mm/Kconfig", "PCP_BATCH_SCALE_MAX", "6.12");
    const STAT_INTERVAL_NS: u64 = kernel(1_000_000_000, "mm/vmstat.c", "sysctl_stat_interval (HZ)", "6.12");
}

/// What one CPU holds of one zone.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuList {
    /// In page blocks for movable pages (page cache); all of them where the profile does not tell them apart.
    movable: u32,
    /// At the tail of those, from blocks of the kernel's: taken last (`__rmqueue_steal`), and given back first.
    stolen: u32,
    /// In page blocks of the kernel's.
    kernel: u32,
    /// At the tail of those, from blocks of page cache's.
    outside: u32,
    /// Before them, as they were taken of the block that slabs are filling, and how often that had been claimed then.
    unused: u32,
    claims: u32,
    /// Doublings of the batch that is given back (`free_factor`, up to 6.6).
    factor: u8,
    /// Doublings of the batch that is taken (`alloc_factor`, 6.7 and later).
    alloc_factor: u8,
    /// What it may hold at present, and pages freed of late (`pcp->high`, `free_count`, 6.7 and later).
    high: u32,
    free_count: u32,
}

impl CpuList {
    fn count(&self) -> u64 {
        u64::from(self.movable) + u64::from(self.kernel)
    }

    /// The pages of an empty list.
    fn take_up(&mut self, for_kernel: bool, got: Refilled, claims: u32) {
        if for_kernel {
            self.kernel = got.pages as u32;
            (self.outside, self.unused, self.claims) = (got.stolen as u32, got.of_open_block as u32, claims);
        } else {
            (self.movable, self.stolen) = (got.pages as u32, got.stolen as u32);
        }
    }

    /// Within the zone's bounds, which may have changed.
    fn clamped_high(&mut self, blocks: &Blocks) -> u64 {
        let high = u64::from(self.high).clamp(blocks.high, blocks.high_max);
        self.high = high as u32;
        high
    }

    /// mm/page_alloc.c: nr_pcp_alloc, 6.8: twice as many each time that pages are taken and none is given back, up to what the list may
    /// hold beside a batch; while the zone is above its high watermark that grows by what is taken.
    fn batch(&mut self, blocks: &Blocks) -> u64 {
        let base = blocks.batch;
        let mut high = self.clamped_high(blocks);
        let batch = base << self.alloc_factor;
        if blocks.high < blocks.high_max && !blocks.below_high {
            high = (high + batch).min(blocks.high_max);
            self.high = high as u32;
        }
        let most = high.saturating_sub(self.count() + base).max(base);
        self.alloc_factor += u8::from(batch <= most && self.alloc_factor < SCALE_MAX.get());
        batch.min(most)
    }

    /// mm/page_alloc.c: nr_pcp_high, 6.8: from how many pages on some are given back.
    fn give_back_from(&mut self, blocks: &Blocks) -> u64 {
        let (least, most, batch) = (blocks.high, blocks.high_max, blocks.batch);
        let high = self.clamped_high(blocks);
        let freed = u64::from(self.free_count);
        if blocks.reclaim_active {
            self.high = (high.saturating_sub(freed.max(batch))).max(least) as u32;
            return (batch << 2).min(u64::from(self.high));
        }
        if least == most {
            return high;
        }
        if blocks.below_high {
            self.high = (high.saturating_sub(freed.max(batch))).max(least) as u32;
            return self.count().max(least);
        }
        if self.count() >= high && high < freed + batch {
            self.high = (freed + batch).clamp(least, most) as u32;
        }
        high
    }

    /// mm/page_alloc.c: free_unref_page_commit, nr_pcp_free, 6.8: how many pages are given back after one more was freed.
    fn due(&mut self, blocks: &Blocks) -> u64 {
        let batch = blocks.batch;
        self.free_count += u32::from(u64::from(self.free_count) < batch << SCALE_MAX.get());
        let high = self.give_back_from(blocks);
        if self.count() < high {
            return 0;
        }
        u64::from(self.free_count).max(batch).min(high.saturating_sub(batch))
    }

    /// mm/page_alloc.c: free_unref_page_commit, nr_pcp_high, nr_pcp_free, 6.1: the same up to 6.6.
    fn due_by_factor(&mut self, blocks: &Blocks) -> u64 {
        let batch = blocks.batch;
        let high = if blocks.reclaim_active { blocks.high.min(4 * batch) } else { blocks.high };
        if self.count() < high {
            return 0;
        }
        let most = high.saturating_sub(batch).max(1);
        let grown = batch << self.factor;
        self.factor += u8::from(grown < most);
        grown.clamp(batch.min(most), most)
    }

    /// mm/page_alloc.c: decay_pcp_high, 6.8: how many pages are given back each second, by an eighth of what it may hold.
    fn decay(&mut self, blocks: &Blocks) -> u64 {
        let high = u64::from(self.high);
        if high > blocks.high {
            let kept = self.count().saturating_sub(blocks.batch << SCALE_MAX.get());
            self.high = kept.max(high - (high >> 3)).max(blocks.high) as u32;
        }
        self.count().saturating_sub(u64::from(self.high))
    }
}

impl Mm {
    /// Takes one frame of the zone through the CPU's list; the watermarks have been checked.
    #[inline]
    pub fn take_frame(&mut self, zone: u8, cpu: u16, kind: ZoneKind) -> bool {
        let place = usize::from(cpu) * self.zones.len() + usize::from(zone);
        let list = &mut self.cpu_lists[place];
        let slot = &mut self.zones[usize::from(zone)];
        // User memory and page cache may lie anywhere (HighMem stands for GFP_HIGHUSER_MOVABLE).
        let for_kernel = self.profile.page_blocks && kind != ZoneKind::HighMem;
        if (if for_kernel { list.kernel } else { list.movable }) == 0 {
            let batch = if self.profile.scales_batches { list.batch(&slot.blocks) } else { slot.blocks.batch };
            let got = if self.profile.page_blocks {
                slot.refill(for_kernel, batch)
            } else {
                Refilled { pages: slot.free.min(BATCH.get()), ..Refilled::default() }
            };
            slot.free -= got.pages;
            slot.on_cpu_lists += got.pages;
            list.take_up(for_kernel, got, slot.blocks.claims);
        }
        let held = if for_kernel { &mut list.kernel } else { &mut list.movable };
        if *held == 0 {
            return false;
        }
        *held -= 1;
        list.stolen = list.stolen.min(list.movable);
        list.outside = list.outside.min(list.kernel);
        list.unused = list.unused.min(list.kernel - list.outside);
        list.factor >>= 1;
        list.free_count >>= 1;
        slot.on_cpu_lists -= 1;
        slot.alloc_batch -= 1;
        self.events.pgalloc += 1;
        true
    }

    /// Gives frames back through the CPU's list; `of_slabs` if they held kernel objects, not page cache.
    #[inline]
    pub fn give_frames(&mut self, zone: u8, cpu: u16, frames: u64, of_slabs: bool) {
        let place = usize::from(cpu) * self.zones.len() + usize::from(zone);
        let slot = &mut self.zones[usize::from(zone)];
        let list = &mut self.cpu_lists[place];
        self.events.pgfree += frames;
        if self.profile.page_blocks {
            for _ in 0..frames {
                let in_kernel_block = if of_slabs { !slot.leaves_cache_block() } else { slot.leaves_kernel_block() };
                give_one(slot, list, in_kernel_block, self.profile.scales_batches);
            }
            return;
        }
        let held = u64::from(list.movable) + frames;
        let kept = if held > HIGH.get() { HIGH.get() - BATCH.get() } else { held };
        slot.on_cpu_lists = slot.on_cpu_lists + kept - u64::from(list.movable);
        slot.free += held - kept;
        // mm/page_alloc.c: free_pages_bulk, 2.6.32.
        slot.all_unreclaimable &= held == kept;
        list.movable = kept as u32;
    }

    /// Frames of one slab, past the CPU's lists; watermarks have been checked, for who does not wake kswapd (`ALLOC_KSWAPD`): a boost
    /// that this brings is for the next one who does.
    pub fn take_together(&mut self, zone: u8, frames: u64) {
        let slot = &mut self.zones[usize::from(zone)];
        let boosted = slot.blocks.boosted;
        let moved = slot.refill_of(true, frames, frames).pages;
        debug_assert_eq!(moved, frames);
        slot.blocks.boosted = boosted;
        slot.free -= moved;
        self.events.pgalloc += moved;
    }

    /// Frames of one slab come back.
    pub fn give_together(&mut self, zone: u8, frames: u64) {
        self.events.pgfree += frames;
        let slot = &mut self.zones[usize::from(zone)];
        let outside = (0..frames).filter(|_| slot.leaves_cache_block()).count() as u64;
        slot.free += frames;
        slot.blocks.kernel_free += frames - outside;
        slot.note_high();
    }

    fn decay_lists(&mut self) {
        let zones = self.zones.len();
        for (place, list) in self.cpu_lists.iter_mut().enumerate() {
            let slot = &mut self.zones[place % zones];
            let due = list.decay(&slot.blocks);
            give_back(slot, list, due, false);
        }
    }

    /// mm/page_alloc.c: drain_all_pages.
    pub fn drain_lists(&mut self) {
        let zones = self.zones.len();
        for (place, list) in self.cpu_lists.iter_mut().enumerate() {
            give_back(&mut self.zones[place % zones], list, u64::MAX, false);
        }
    }
}

/// mm/page_alloc.c: free_unref_page_commit.
fn give_one(slot: &mut Zone, list: &mut CpuList, in_kernel_block: bool, scales: bool) {
    *(if in_kernel_block { &mut list.kernel } else { &mut list.movable }) += 1;
    slot.on_cpu_lists += 1;
    list.alloc_factor >>= 1;
    let due = if scales { list.due(&slot.blocks) } else { list.due_by_factor(&slot.blocks) };
    if due > 0 {
        give_back(slot, list, due, in_kernel_block);
        slot.note_high();
    }
}

/// mm/page_alloc.c: free_pcppages_bulk: one list is emptied first, the one that has just grown, from its tail, where what was taken
/// last and not used yet is.
fn give_back(slot: &mut Zone, list: &mut CpuList, pages: u64, kernels_first: bool) {
    let mut left = pages;
    for kernel in [kernels_first, !kernels_first] {
        let held = if kernel { &mut list.kernel } else { &mut list.movable };
        let freed = left.min(u64::from(*held));
        *held -= freed as u32;
        left -= freed;
        slot.on_cpu_lists -= freed;
        slot.free += freed;
        if kernel {
            let outside = freed.min(u64::from(list.outside));
            list.outside -= outside as u32;
            slot.blocks.give_back_outside(outside);
            let unused = (freed - outside).min(u64::from(list.unused));
            list.unused -= unused as u32;
            slot.blocks.kernel_free += freed - outside - unused;
            slot.blocks.give_back_unused(unused, list.claims);
        } else {
            let back = freed.min(u64::from(list.stolen));
            list.stolen -= back as u32;
            slot.blocks.give_back(back);
        }
    }
}

/// mm/vmstat.c: vmstat_update, 6.8, of all CPUs.
pub async fn decay_lists(m: Rc<Machine>) {
    loop {
        m.clock.sleep_until(m.clock.now() + STAT_INTERVAL_NS.get()).await;
        m.mm.borrow_mut().decay_lists();
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuList, give_back, give_one};
    use crate::v6::blocks::{Blocks, Open, Refilled};
    use crate::zone::{Zone, ZoneKind};

    /// 90 free pages of a block of unmovable allocations and 3 of page cache's: a batch of 7 takes 4 of the kernel's, and the list is
    /// emptied from its tail when kswapd gives pages back on this CPU.
    #[test]
    fn what_was_taken_of_the_kernels_blocks_and_not_used_comes_back_first() {
        let mut zone = Zone::new(1, ZoneKind::Dma32, 32_768, 28_000);
        (zone.min, zone.low, zone.high) = (20, 25, 30);
        zone.open_kernel_blocks(Some([vec![], vec![Open::new(90, 64)]]));
        zone.size_blocks(1, 15_000, true);
        zone.free = 93;
        let got = zone.refill(false, 7);
        assert_eq!((got.pages, got.stolen, zone.blocks.kernel_free), (7, 4, 86));
        zone.free -= got.pages;
        let mut list = CpuList::default();
        list.take_up(false, got, 0);
        zone.on_cpu_lists = got.pages;
        zone.blocks.below_high = true;
        while list.stolen > 0 {
            give_one(&mut zone, &mut list, false, true);
        }
        assert_eq!(zone.blocks.kernel_free, 90);
    }

    /// A block of 512 pages of which slabs take a batch: 255 and what is given back unused are half a block again, which page cache may
    /// claim; of a block that was claimed meanwhile they are page cache's.
    #[test]
    fn what_slabs_have_not_used_is_part_of_their_block_again() {
        let mut zone = Zone::new(1, ZoneKind::Dma32, 32_768, 28_000);
        (zone.min, zone.low, zone.high) = (20, 25, 30);
        zone.open_kernel_blocks(Some([vec![Open::new(300, 256)], vec![]]));
        zone.size_blocks(1, 15_000, true);
        zone.free = 300;
        let got = zone.refill(true, 100);
        assert_eq!((got, zone.blocks.kernel_free), (Refilled { pages: 100, stolen: 0, of_open_block: 100 }, 200));
        zone.free -= got.pages;
        let mut list = CpuList { kernel: 90, unused: 90, ..CpuList::default() };
        let mut claimed = (zone.clone(), list);
        zone.on_cpu_lists = 90;
        give_back(&mut zone, &mut list, 60, true);
        assert_eq!((list.kernel, list.unused, zone.blocks.kernel_free), (30, 30, 260));
        let got = zone.refill(false, 1);
        assert_eq!((got.pages, got.stolen, zone.blocks.kernel_free), (1, 0, 0), "claimed whole");
        claimed.1.claims = 1;
        claimed.0.on_cpu_lists = 90;
        give_back(&mut claimed.0, &mut claimed.1, 60, true);
        assert_eq!(claimed.0.blocks.kernel_free, 200, "they are of another block's kind");
    }

    /// 10 free pages of the slabs' block and 90 of page cache's, of which no piece can be claimed: a batch of 40 for slabs takes 30 of page cache's,
    /// and what it gives back of those is page cache's again.
    #[test]
    fn what_slabs_took_of_page_caches_blocks_and_did_not_use_is_page_caches_again() {
        let mut zone = Zone::new(1, ZoneKind::Dma32, 32_768, 28_000);
        (zone.min, zone.low, zone.high) = (20, 25, 30);
        zone.free = 100;
        zone.open_kernel_blocks(Some([vec![Open::new(10, 8)], vec![]]));
        zone.size_blocks(1, 15_000, true);
        let got = zone.refill(true, 40);
        assert_eq!((got, zone.blocks.kernel_free), (Refilled { pages: 40, stolen: 30, of_open_block: 10 }, 0));
        zone.free -= got.pages;
        zone.on_cpu_lists = got.pages;
        let mut list = CpuList::default();
        list.take_up(true, got, 0);
        give_back(&mut zone, &mut list, 35, true);
        assert_eq!((list.kernel, list.outside, list.unused), (5, 0, 5));
        assert_eq!((zone.blocks.kernel_free, zone.free), (5, 95), "5 of the slabs' block, 30 of page cache's");
    }

    /// A node of 108 MiB, below its high watermark: batches of 7, lists of 216.
    fn blocks(below_high: bool) -> Blocks {
        let mut blocks = Blocks::default();
        (blocks.batch, blocks.high, blocks.high_max) = (7, 216, 3_456);
        blocks.below_high = below_high;
        blocks
    }

    #[test]
    fn a_cpu_that_only_takes_pages_takes_twice_as_many_each_time() {
        let mut list = CpuList::default();
        let taken: Vec<u64> = (0..7).map(|_| list.batch(&blocks(true))).collect();
        assert_eq!(taken, [7, 14, 28, 56, 112, 209, 209], "216 - 7 at most");
        list.kernel = 205;
        assert_eq!(list.batch(&blocks(true)), 7, "what the list has room for, but a batch in any case");
    }

    /// nr_pcp_alloc: high = min(high + batch, high_max) while the zone is not below its high watermark.
    #[test]
    fn a_list_may_hold_more_the_more_is_taken_while_the_zone_is_above_its_high_watermark() {
        let mut list = CpuList::default();
        let taken: Vec<u64> = (0..7).map(|_| list.batch(&blocks(false))).collect();
        assert_eq!(taken, [7, 14, 28, 56, 112, 224, 224], "7 << 5 at most");
        assert_eq!(list.high, 216 + 7 + 14 + 28 + 56 + 112 + 224 + 224);
        (0..40).for_each(|_| _ = list.batch(&blocks(false)));
        assert_eq!(list.high, 3_456);
        assert_eq!(list.batch(&blocks(true)), 224, "it stays as large when the zone falls below");
    }

    /// nr_pcp_high and nr_pcp_free on a list that may hold 1000 pages and holds 500.
    #[test]
    fn what_is_given_back_depends_on_where_the_zone_stands() {
        let list = CpuList { movable: 500, high: 1_000, free_count: 49, ..CpuList::default() };
        let due = |mut list: CpuList, blocks: &Blocks| (list.due(blocks), list.high, list.free_count);
        assert_eq!(due(list, &blocks(false)), (0, 1_000, 50), "it has room");
        // high = count: max(count, high_min), and the list may hold 50 less.
        assert_eq!(due(list, &blocks(true)), (50, 950, 50));
        // min(batch << 2, high) = 28, of which all but a batch may go.
        let mut reclaimed = blocks(false);
        reclaimed.reclaim_active = true;
        assert_eq!(due(list, &reclaimed), (21, 950, 50));
        let full = CpuList { movable: 1_000, ..list };
        assert_eq!(due(full, &blocks(false)), (50, 1_000, 50));
        // need_high = free_count + batch.
        let small = CpuList { movable: 220, high: 216, free_count: 223, ..list };
        assert_eq!(due(small, &blocks(false)), (209, 231, 224));
        assert_eq!(due(CpuList { free_count: 224, ..small }, &blocks(true)).2, 224, "batch << 5 at most");
    }

    /// decay_pcp_high: by an eighth, but no more than 224 pages at once, down to high_min.
    #[test]
    fn an_idle_list_shrinks_by_an_eighth_each_second() {
        let mut list = CpuList { movable: 900, high: 1_000, ..CpuList::default() };
        assert_eq!((list.decay(&blocks(true)), list.high), (25, 875));
        let mut list = CpuList { movable: 10, high: 230, ..CpuList::default() };
        assert_eq!((list.decay(&blocks(true)), list.high), (0, 216));
        let mut list = CpuList { movable: 3_456, high: 3_456, ..CpuList::default() };
        assert_eq!((list.decay(&blocks(true)), list.high), (224, 3_232));
    }

    /// ZONE_BELOW_HIGH: set by who finds less than the high watermark free, cleared by who frees enough.
    #[test]
    fn the_flag_of_a_zone_below_its_high_watermark_is_cleared_when_pages_are_given_back() {
        let mut zone = Zone::new(1, ZoneKind::Dma32, 32_768, 28_000);
        (zone.min, zone.low, zone.high) = (20, 25, 30);
        zone.size_blocks(1, 15_000, true);
        zone.free = 30;
        assert!(zone.admits(25, ZoneKind::HighMem) && zone.blocks.below_high);
        let mut list = CpuList { movable: 40, ..CpuList::default() };
        zone.on_cpu_lists = 40;
        give_one(&mut zone, &mut list, false, true);
        assert!(!zone.blocks.below_high && zone.free > 30);
        give_back(&mut zone, &mut list, u64::MAX, false);
        assert_eq!((zone.free, list.count(), zone.on_cpu_lists), (71, 0, 0));
    }
}

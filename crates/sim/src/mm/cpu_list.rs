//! Free pages on the lists of the CPUs (`struct per_cpu_pages`), in front of the zones' own.
//!
//! Models: batches taken from the zone and given back to it. For 5.14 and later: sizes that follow the zone and its low
//! watermark, short lists while kswapd is at work, the growing batch of a CPU that only frees. For 6.7 and later:
//! batches that double while pages are only taken, and a list that grows with them while its zone is above its high
//! watermark (`pcp->high`). Leaves out: lists by migrate type and order, that an idle list shrinks each second, and
//! pages of a remote node that a CPU gives back after three seconds.

use crate::constant::constants;
use crate::mm::memory::Mm;
use crate::mm::zone::Zone;

constants! {
    /// For zones over 512 MiB; the model uses it for smaller zones too, whose batches are smaller.
    const BATCH: u64 = kernel(31, "mm/page_alloc.c", "zone_batchsize", "2.6.32");
    const HIGH: u64 = kernel(6 * 31, "mm/page_alloc.c", "setup_pageset", "2.6.32");
    const SCALE_MAX: u8 = kernel(5, "mm/Kconfig", "PCP_BATCH_SCALE_MAX", "6.12");
    /// Largest list, as a fraction of the zone, for all CPUs of the node together.
    const HIGH_FRACTION: u64 = kernel(8, "mm/page_alloc.c", "MIN_PERCPU_PAGELIST_HIGH_FRACTION", "6.12");
}

/// Sizes of the lists of one zone, and the zone's flags that change them (5.14 and later).
#[derive(Clone, Debug, Default)]
pub struct PcpSizes {
    /// Pages that move at once (`pcp->batch`).
    pub batch: u64,
    /// Pages that a list may hold (`pcp->high`; from 6.7 on `high_min` and `high_max`).
    pub high: u64,
    pub high_max: u64,
    /// An allocation found less than the high watermark free (ZONE_BELOW_HIGH, 6.7 and later).
    pub below_high: bool,
    /// kswapd is at work in the zone (ZONE_RECLAIM_ACTIVE).
    pub reclaim_active: bool,
}

impl Zone {
    /// mm/page_alloc.c: zone_batchsize and zone_highsize, 6.1: a quarter of a thousandth of the zone, at most 256 KiB,
    /// and the low watermark divided among the node's CPUs; of the pages that the zone managed when its watermarks were
    /// computed (zone_pcp_update).
    pub fn size_pcp(&mut self, cpus_of_node: u64) {
        let managed = self.min_at_boot.map_or(self.managed, |_| self.managed_at_boot);
        let quarter = ((managed >> 10).min(256) / 4).max(1);
        let rounded = 1_u64 << (quarter + quarter / 2).ilog2();
        let batch = (rounded - 1).max(1);
        let cpus = cpus_of_node.max(1);
        let high = (self.low / cpus).max(4 * batch);
        let high_max = (managed / HIGH_FRACTION.get() / cpus).max(high);
        self.pcp = PcpSizes { batch, high, high_max, ..self.pcp };
    }
}

/// Free pages of one zone on one CPU.
#[derive(Clone, Debug, Default)]
pub struct CpuList {
    /// Pages.
    count: u32,
    /// Doublings of the batch that is given back (`free_factor`, up to 6.6).
    factor: u8,
    /// Doublings of the batch that is taken (`alloc_factor`, 6.7 and later).
    alloc_factor: u8,
    /// Its present maximum, and recently freed pages (`pcp->high`, `free_count`, 6.7 and later).
    high: u32,
    free_count: u32,
    /// The last piece freed had several pages (PCPF_PREV_FREE_HIGH_ORDER).
    freed_large: bool,
}

impl CpuList {
    fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// The maximum within the zone's bounds, which may have changed.
    fn clamped_high(&mut self, sizes: &PcpSizes) -> u64 {
        let high = u64::from(self.high).clamp(sizes.high, sizes.high_max);
        self.high = high as u32;
        high
    }

    /// mm/page_alloc.c: nr_pcp_alloc, 6.8: twice as many pages each time that pages are taken and none is given back,
    /// up to the room of the list; while the zone is above its high watermark the list grows by the pages taken.
    fn batch(&mut self, sizes: &PcpSizes, order: usize) -> u64 {
        let base = sizes.batch;
        let mut high = self.clamped_high(sizes);
        let batch = if order > 0 { base } else { base << self.alloc_factor };
        if sizes.high < sizes.high_max && !sizes.below_high {
            high = (high + batch).min(sizes.high_max);
            self.high = high as u32;
        }
        if order > 0 {
            return batch;
        }
        let most = high.saturating_sub(self.count() + base).max(base);
        self.alloc_factor += u8::from(batch <= most && self.alloc_factor < SCALE_MAX.get());
        batch.min(most)
    }

    /// mm/page_alloc.c: nr_pcp_high, 6.8: the number of pages from which on some are given back.
    fn give_back_from(&mut self, sizes: &PcpSizes) -> u64 {
        let (least, most, batch) = (sizes.high, sizes.high_max, sizes.batch);
        let high = self.clamped_high(sizes);
        let freed = u64::from(self.free_count);
        if sizes.reclaim_active {
            self.high = (high.saturating_sub(freed.max(batch))).max(least) as u32;
            return (batch << 2).min(u64::from(self.high));
        }
        if least == most {
            return high;
        }
        if sizes.below_high {
            self.high = (high.saturating_sub(freed.max(batch))).max(least) as u32;
            return self.count().max(least);
        }
        if self.count() >= high && high < freed + batch {
            self.high = (freed + batch).clamp(least, most) as u32;
        }
        high
    }

    /// mm/page_alloc.c: free_unref_page_commit, nr_pcp_free, 6.8: pages to give back after one more piece was freed.
    fn due(&mut self, sizes: &PcpSizes, order: usize) -> u64 {
        let (batch, most) = (sizes.batch, sizes.batch << SCALE_MAX.get());
        let freed_large = std::mem::replace(&mut self.freed_large, order > 0);
        let all = order > 0 && freed_large && u64::from(self.free_count) >= batch && self.count() >= batch;
        self.free_count += if u64::from(self.free_count) < most { 1 << order } else { 0 };
        if all {
            self.high = self.clamped_high(sizes).saturating_sub(most).max(sizes.high) as u32;
            return self.count().min(most);
        }
        let high = self.give_back_from(sizes);
        if self.count() < high {
            return 0;
        }
        u64::from(self.free_count).max(batch).min(high.saturating_sub(batch))
    }

    /// mm/page_alloc.c: free_unref_page_commit, nr_pcp_high, nr_pcp_free, 6.1: as `due`, up to 6.6.
    fn due_by_factor(&mut self, sizes: &PcpSizes, order: usize) -> u64 {
        let batch = sizes.batch;
        if order > 0 && self.factor > 0 {
            return self.count();
        }
        let high = if sizes.reclaim_active { sizes.high.min(4 * batch) } else { sizes.high };
        if self.count() < high {
            return 0;
        }
        let most = high.saturating_sub(batch).max(1);
        let grown = batch << self.factor;
        self.factor += u8::from(grown < most);
        grown.clamp(batch.min(most), most)
    }
}

impl Mm {
    fn list_and_zone(&mut self, zone: u8, cpu: u16) -> (&mut CpuList, &mut Zone) {
        let place = usize::from(cpu) * self.zones.len() + usize::from(zone);
        (&mut self.cpu_lists[place], &mut self.zones[usize::from(zone)])
    }

    /// Takes 2^order frames of the zone through the CPU's list and returns the zone; the watermarks have been checked
    /// (mm/page_alloc.c: rmqueue_pcplist).
    #[inline]
    pub fn take_frames(&mut self, zone: u8, cpu: u16, order: u32) -> Option<u8> {
        let (is_6, scales) = (self.profile.is_6(), self.profile.pcp_auto_tuning);
        let frames = 1_u64 << order;
        let (list, slot) = self.list_and_zone(zone, cpu);
        if list.count() < frames {
            let batch = match (is_6, scales) {
                (false, _) => BATCH.get(),
                (true, false) => slot.pcp.batch,
                (true, true) => list.batch(&slot.pcp, order as usize),
            };
            list.refill(slot, batch.max(2 * frames - 1));
        }
        list.count = u64::from(list.count).checked_sub(frames)? as u32;
        list.factor >>= 1;
        list.free_count >>= 1;
        slot.on_cpu_lists -= frames;
        self.events.pgalloc += frames;
        Some(zone)
    }

    /// Gives frames back, on 6.x in one piece.
    #[inline]
    pub fn give_frames(&mut self, zone: u8, cpu: u16, frames: u64) {
        let (is_6, scales) = (self.profile.is_6(), self.profile.pcp_auto_tuning);
        self.events.pgfree += frames;
        let (list, slot) = self.list_and_zone(zone, cpu);
        if is_6 {
            return list.give(slot, frames, scales);
        }
        list.count += frames as u32;
        slot.on_cpu_lists += frames;
        if list.count() > HIGH.get() {
            let due = list.count() - (HIGH.get() - BATCH.get());
            list.give_back(slot, due);
            // mm/page_alloc.c: free_pages_bulk, 2.6.32.
            slot.all_unreclaimable = false;
        }
    }

    /// mm/page_alloc.c: drain_all_pages.
    pub fn drain_lists(&mut self) {
        let zones = self.zones.len();
        for (place, list) in self.cpu_lists.iter_mut().enumerate() {
            list.give_back(&mut self.zones[place % zones], u64::MAX);
        }
    }
}

impl CpuList {
    /// mm/page_alloc.c: rmqueue_bulk.
    fn refill(&mut self, slot: &mut Zone, batch: u64) {
        let pages = batch.min(slot.free);
        self.count += pages as u32;
        slot.free -= pages;
        slot.on_cpu_lists += pages;
    }

    /// mm/page_alloc.c: free_unref_page_commit.
    fn give(&mut self, slot: &mut Zone, pages: u64, scales: bool) {
        let order = pages.max(1).ilog2() as usize;
        self.count += pages as u32;
        slot.on_cpu_lists += pages;
        self.alloc_factor >>= 1;
        let due = if scales { self.due(&slot.pcp, order) } else { self.due_by_factor(&slot.pcp, order) };
        if due > 0 {
            self.give_back(slot, due);
            slot.note_high();
        }
    }

    /// mm/page_alloc.c: free_pcppages_bulk.
    fn give_back(&mut self, slot: &mut Zone, pages: u64) {
        let pages = pages.min(self.count());
        self.count -= pages as u32;
        slot.on_cpu_lists -= pages;
        slot.free += pages;
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuList, PcpSizes};
    use crate::mm::zone::{Zone, ZoneKind};

    /// free_unref_page_commit, 6.1: a CPU that only frees gives all pages back when a piece of several pages comes.
    #[test]
    fn pieces_of_several_pages_are_not_kept_by_a_cpu_that_only_frees() {
        let mut blocks = blocks(false);
        (blocks.batch, blocks.high) = (7, 100);
        let list = CpuList { count: 60, factor: 1, ..CpuList::default() };
        assert_eq!((list.clone().due_by_factor(&blocks, 2), list.clone().due_by_factor(&blocks, 0)), (60, 0));
        assert_eq!(CpuList { factor: 0, ..list.clone() }.due_by_factor(&blocks, 2), 0);
        // 6.12: two in a row, and a recently freed batch.
        let list = CpuList { count: 600, high: 1_000, free_count: 7, ..list.clone() };
        assert_eq!(list.clone().due(&blocks, 2), 0);
        let mut again = CpuList { freed_large: true, ..list.clone() };
        assert_eq!((again.due(&blocks, 2), again.high), (224, 776));
        assert_eq!(CpuList { free_count: 6, freed_large: true, ..again }.due(&blocks, 2), 0);
    }

    /// A node of 108 MiB, below its high watermark: batches of 7, lists of 216.
    fn blocks(below_high: bool) -> PcpSizes {
        let mut blocks = PcpSizes::default();
        (blocks.batch, blocks.high, blocks.high_max) = (7, 216, 3_456);
        blocks.below_high = below_high;
        blocks
    }

    #[test]
    fn a_cpu_that_only_takes_pages_takes_twice_as_many_each_time() {
        let mut list = CpuList::default();
        let taken: Vec<u64> = (0..7).map(|_| list.batch(&blocks(true), 0)).collect();
        assert_eq!(taken, [7, 14, 28, 56, 112, 209, 209], "216 - 7 at most");
        list.count = 205;
        assert_eq!(list.batch(&blocks(true), 0), 7, "the room of the list, but at least a batch");
    }

    /// nr_pcp_alloc: high = min(high + batch, high_max) while the zone is not below its high watermark.
    #[test]
    fn a_list_may_hold_more_the_more_is_taken_while_the_zone_is_above_its_high_watermark() {
        let mut list = CpuList::default();
        let taken: Vec<u64> = (0..7).map(|_| list.batch(&blocks(false), 0)).collect();
        assert_eq!(taken, [7, 14, 28, 56, 112, 224, 224], "7 << 5 at most");
        assert_eq!(list.high, 216 + 7 + 14 + 28 + 56 + 112 + 224 + 224);
        (0..40).for_each(|_| _ = list.batch(&blocks(false), 0));
        assert_eq!(list.high, 3_456);
        assert_eq!(list.batch(&blocks(true), 0), 224, "the list keeps its size when the zone falls below");
    }

    /// nr_pcp_high and nr_pcp_free on a list that may hold 1000 pages and holds 500.
    #[test]
    fn the_pages_given_back_depend_on_the_zones_free_pages() {
        let list = CpuList { count: 500, high: 1_000, free_count: 49, ..CpuList::default() };
        let due = |mut list: CpuList, blocks: &PcpSizes| (list.due(blocks, 0), list.high, list.free_count);
        assert_eq!(due(list.clone(), &blocks(false)), (0, 1_000, 50), "it has room");
        // high = count: max(count, high_min), and the list may hold 50 less.
        assert_eq!(due(list.clone(), &blocks(true)), (50, 950, 50));
        // min(batch << 2, high) = 28, of which all but a batch may go.
        let mut reclaimed = blocks(false);
        reclaimed.reclaim_active = true;
        assert_eq!(due(list.clone(), &reclaimed), (21, 950, 50));
        let full = CpuList { count: 1_000, ..list.clone() };
        assert_eq!(due(full.clone(), &blocks(false)), (50, 1_000, 50));
        // need_high = free_count + batch.
        let small = CpuList { count: 220, high: 216, free_count: 223, ..list.clone() };
        assert_eq!(due(small.clone(), &blocks(false)), (209, 231, 224));
        assert_eq!(due(CpuList { free_count: 224, ..small.clone() }, &blocks(true)).2, 224, "batch << 5 at most");
    }

    /// ZONE_BELOW_HIGH: an allocation that finds less than the high watermark free sets it; enough freed pages clear
    /// it.
    #[test]
    fn the_flag_of_a_zone_below_its_high_watermark_is_cleared_when_pages_are_given_back() {
        let mut zone = Zone::new(1, ZoneKind::Dma32, 32_768, 28_000);
        (zone.min, zone.low, zone.high) = (20, 25, 30);
        zone.size_pcp(1);
        zone.free = 30;
        assert!(zone.admits(25, ZoneKind::HighMem) && zone.pcp.below_high);
        let mut list = CpuList { count: 40, ..CpuList::default() };
        zone.on_cpu_lists = 40;
        list.give(&mut zone, 1, true);
        assert!(!zone.pcp.below_high && zone.free > 30);
        list.give_back(&mut zone, u64::MAX);
        assert_eq!((zone.free, list.count(), zone.on_cpu_lists), (71, 0, 0));
    }
}

//! Free pages on the lists of the CPUs, in front of the zones' own.
//!
//! Models: batches taken from the zone and given back to it. For 5.0 and later lists by kind and size of pieces (`free_pcppages_bulk`
//! empties them in turn). For 5.14 and later: sizes that follow the zone and its low watermark, short lists while kswapd is at work, the
//! growing batch of a CPU that only frees. For 6.7 and later: batches that double while pages are only taken, and a list that grows with
//! them while its zone is above its high watermark and shrinks again (`pcp->high`). Leaves out: what a CPU holds of a remote node and gives
//! back after three seconds.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Machine;
use super::alloc::Want;
use super::constant::constants;
use super::memory::Mm;
use super::v6::blocks::Blocks;
use super::v6::buddy::{Buddy, Frame, KINDS, Kind, UNTOLD};
use super::v6::fallback::Wanted;
use super::zone::Zone;

constants! {
    /// Zones over 512 MiB: smaller ones have shorter lists, which the model does not tell apart.
    const BATCH: u64 = kernel(31, "mm/page_alloc.c", "zone_batchsize", "2.6.32");
    const HIGH: u64 = kernel(6 * 31, "mm/page_alloc.c", "setup_pageset", "2.6.32");
    const SCALE_MAX: u8 = kernel(5, "mm/Kconfig", "PCP_BATCH_SCALE_MAX", "6.12");
    const STAT_INTERVAL_NS: u64 = kernel(1_000_000_000, "mm/vmstat.c", "sysctl_stat_interval (HZ)", "6.12");
    /// Sizes of pieces on lists, as powers of two from 0 on.
    const LISTED_ORDERS: usize = kernel(4, "include/linux/mmzone.h", "PAGE_ALLOC_COSTLY_ORDER + 1", "6.1");
}

/// A list for each kind and size.
const LISTS: usize = LISTED_ORDERS.get() * KINDS.len();

/// What one CPU holds of one zone.
#[derive(Clone, Debug, Default)]
pub struct CpuList {
    /// Pages.
    count: u32,
    /// Where frames are told apart, by `place`: those that were given back last are first.
    lists: [VecDeque<u32>; LISTS],
    /// Doublings of the batch that is given back (`free_factor`, up to 6.6).
    factor: u8,
    /// Doublings of the batch that is taken (`alloc_factor`, 6.7 and later).
    alloc_factor: u8,
    /// What it may hold at present, and pages freed of late (`pcp->high`, `free_count`, 6.7 and later).
    high: u32,
    free_count: u32,
    /// What was freed last was of several pages (PCPF_PREV_FREE_HIGH_ORDER).
    freed_large: bool,
}

/// mm/page_alloc.c: order_to_pindex.
fn place(order: usize, kind: Kind) -> usize {
    order * KINDS.len() + kind as usize
}

impl CpuList {
    fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// Within the zone's bounds, which may have changed.
    fn clamped_high(&mut self, blocks: &Blocks) -> u64 {
        let high = u64::from(self.high).clamp(blocks.high, blocks.high_max);
        self.high = high as u32;
        high
    }

    /// mm/page_alloc.c: nr_pcp_alloc, 6.8: twice as many each time that pages are taken and none is given back, up to what the list may
    /// hold beside a batch; while the zone is above its high watermark that grows by what is taken.
    fn batch(&mut self, blocks: &Blocks, order: usize) -> u64 {
        let base = blocks.batch;
        let mut high = self.clamped_high(blocks);
        let batch = if order > 0 { base } else { base << self.alloc_factor };
        if blocks.high < blocks.high_max && !blocks.below_high {
            high = (high + batch).min(blocks.high_max);
            self.high = high as u32;
        }
        if order > 0 {
            return batch;
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

    /// mm/page_alloc.c: free_unref_page_commit, nr_pcp_free, 6.8: how many pages are given back after a piece more was freed.
    fn due(&mut self, blocks: &Blocks, order: usize) -> u64 {
        let (batch, most) = (blocks.batch, blocks.batch << SCALE_MAX.get());
        let freed_large = std::mem::replace(&mut self.freed_large, order > 0);
        let all = order > 0 && freed_large && u64::from(self.free_count) >= batch && self.count() >= batch;
        self.free_count += if u64::from(self.free_count) < most { 1 << order } else { 0 };
        if all {
            self.high = self.clamped_high(blocks).saturating_sub(most).max(blocks.high) as u32;
            return self.count().min(most);
        }
        let high = self.give_back_from(blocks);
        if self.count() < high {
            return 0;
        }
        u64::from(self.free_count).max(batch).min(high.saturating_sub(batch))
    }

    /// mm/page_alloc.c: free_unref_page_commit, nr_pcp_high, nr_pcp_free, 6.1: the same up to 6.6.
    fn due_by_factor(&mut self, blocks: &Blocks, order: usize) -> u64 {
        let batch = blocks.batch;
        if order > 0 && self.factor > 0 {
            return self.count();
        }
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
    pub fn take_frame(&mut self, zone: u8, cpu: u16, want: Want) -> Option<Frame> {
        if self.profile.is_6() {
            return self.take_piece(zone, cpu, Wanted { order: 0, kind: want.mobility, wakes: true });
        }
        let list = &mut self.cpu_lists[usize::from(cpu) * self.zones.len() + usize::from(zone)];
        let slot = &mut self.zones[usize::from(zone)];
        if list.count == 0 {
            let got = slot.free.min(BATCH.get());
            slot.free -= got;
            slot.on_cpu_lists += got;
            list.count = got as u32;
        }
        list.count = list.count.checked_sub(1)?;
        slot.on_cpu_lists -= 1;
        self.events.pgalloc += 1;
        Some(Frame::from(zone))
    }

    /// mm/page_alloc.c: rmqueue_pcplist: the same for a free piece of several frames.
    #[inline]
    pub fn take_piece(&mut self, zone: u8, cpu: u16, wanted: Wanted) -> Option<Frame> {
        let list = &mut self.cpu_lists[usize::from(cpu) * self.zones.len() + usize::from(zone)];
        let slot = &mut self.zones[usize::from(zone)];
        let own = place(wanted.order, wanted.kind);
        if list.lists[own].is_empty() {
            let scales = self.profile.scales_batches;
            let batch = if scales { list.batch(&slot.blocks, wanted.order) } else { slot.blocks.batch };
            list.refill(slot, wanted, batch);
        }
        let number = list.lists[own].pop_front()?;
        list.count -= 1 << wanted.order;
        list.factor >>= 1;
        list.free_count >>= 1;
        slot.on_cpu_lists -= 1 << wanted.order;
        if wanted.kind == Kind::Movable
            && number != UNTOLD
            && let Some(buddy) = &mut slot.blocks.buddy
        {
            buddy.list(number, 1);
        }
        self.events.pgalloc += 1 << wanted.order;
        Some(Frame { zone, number })
    }

    /// Gives frames back that nobody tells from others.
    #[inline]
    pub fn give_frames(&mut self, zone: u8, cpu: u16, frames: u64) {
        let list = &mut self.cpu_lists[usize::from(cpu) * self.zones.len() + usize::from(zone)];
        let slot = &mut self.zones[usize::from(zone)];
        self.events.pgfree += frames;
        let held = u64::from(list.count) + frames;
        let kept = if held > HIGH.get() { HIGH.get() - BATCH.get() } else { held };
        slot.on_cpu_lists = slot.on_cpu_lists + kept - u64::from(list.count);
        slot.free += held - kept;
        // mm/page_alloc.c: free_pages_bulk, 2.6.32.
        slot.all_unreclaimable &= held == kept;
        list.count = kept as u32;
    }

    /// Gives a frame back, or the piece that begins with it, through the CPU's list.
    #[inline]
    pub fn give_frame(&mut self, frame: Frame, cpu: u16, order: usize, was: Kind) {
        if !self.profile.is_6() {
            return self.give_frames(frame.zone, cpu, 1 << order);
        }
        let list = &mut self.cpu_lists[usize::from(cpu) * self.zones.len() + usize::from(frame.zone)];
        let slot = &mut self.zones[usize::from(frame.zone)];
        self.events.pgfree += 1 << order;
        if frame.number == UNTOLD && slot.blocks.buddy.is_some() {
            for _ in 0..1 << order {
                let number = slot.blocks.buddy.as_mut().and_then(Buddy::tell).unwrap_or(UNTOLD);
                list.give(slot, number, 0, was, self.profile.scales_batches);
            }
            return;
        }
        if was == Kind::Movable
            && let Some(buddy) = &mut slot.blocks.buddy
        {
            buddy.list(frame.number, -1);
        }
        list.give(slot, frame.number, order, was, self.profile.scales_batches);
    }

    fn decay_lists(&mut self) {
        let zones = self.zones.len();
        for (place, list) in self.cpu_lists.iter_mut().enumerate() {
            let slot = &mut self.zones[place % zones];
            let due = list.decay(&slot.blocks);
            list.give_back(slot, due, 0);
        }
    }

    /// mm/page_alloc.c: drain_all_pages.
    pub fn drain_lists(&mut self) {
        let zones = self.zones.len();
        for (place, list) in self.cpu_lists.iter_mut().enumerate() {
            list.give_back(&mut self.zones[place % zones], u64::MAX, 0);
        }
    }
}

impl CpuList {
    /// The frames that it holds, and how many are with each, as a power of two.
    pub fn held(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        self.lists
            .iter()
            .enumerate()
            .flat_map(|(own, list)| list.iter().map(move |number| (*number, own / KINDS.len())))
    }

    /// mm/page_alloc.c: rmqueue_bulk; "Scale batch relative to order".
    fn refill(&mut self, slot: &mut Zone, wanted: Wanted, batch: u64) {
        let batch = if batch > 1 { (batch >> wanted.order).max(2) } else { batch };
        for _ in 0..batch {
            if slot.free < 1 << wanted.order {
                break;
            }
            let number = match slot.blocks.buddy {
                Some(_) => slot.rmqueue(wanted),
                None => Some(UNTOLD),
            };
            let Some(number) = number else { break };
            self.lists[place(wanted.order, wanted.kind)].push_back(number);
            self.count += 1 << wanted.order;
            slot.free -= 1 << wanted.order;
            slot.on_cpu_lists += 1 << wanted.order;
        }
    }

    /// mm/page_alloc.c: free_unref_page_commit: first on the list of its block's kind.
    fn give(&mut self, slot: &mut Zone, number: u32, order: usize, was: Kind, scales: bool) {
        let kind = slot.blocks.buddy.as_ref().filter(|_| number != UNTOLD).map_or(was, |buddy| buddy.kind(number));
        let own = place(order, kind);
        self.lists[own].push_front(number);
        self.count += 1 << order;
        slot.on_cpu_lists += 1 << order;
        self.alloc_factor >>= 1;
        let due = if scales { self.due(&slot.blocks, order) } else { self.due_by_factor(&slot.blocks, order) };
        if due > 0 {
            self.give_back(slot, due, own);
            slot.note_high();
        }
    }

    /// mm/page_alloc.c: free_pcppages_bulk: one list after the other is emptied, from one on, what was taken last and not used yet before
    /// the rest.
    fn give_back(&mut self, slot: &mut Zone, pages: u64, from: usize) {
        let mut left = pages.min(self.count());
        for own in (0..LISTS).map(|step| (from + step) % LISTS) {
            let (order, listed) = (own / KINDS.len(), KINDS[own % KINDS.len()]);
            while left > 0
                && let Some(number) = self.lists[own].pop_back()
            {
                self.count -= 1 << order;
                left = left.saturating_sub(1 << order);
                slot.on_cpu_lists -= 1 << order;
                slot.free += 1 << order;
                if let Some(buddy) = slot.blocks.buddy.as_mut().filter(|_| number != UNTOLD) {
                    buddy.give(number, order, listed);
                }
            }
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
    use super::{CpuList, place};
    use crate::v6::blocks::Blocks;
    use crate::v6::buddy::{Buddy, Kind, UNTOLD};
    use crate::v6::fallback::Wanted;
    use crate::zone::{Zone, ZoneKind};

    /// A zone of two blocks: 93 pages of page cache's and 90 of the kernel's unmovable ones.
    fn zone() -> Zone {
        let mut zone = Zone::new(1, ZoneKind::Dma32, 1_024, 28_000);
        (zone.min, zone.low, zone.high) = (20, 25, 30);
        zone.size_blocks(1, 15_000);
        let mut buddy = Buddy::new(0, 1_024);
        buddy.set_kind(512, Kind::Unmovable);
        [(0, 6), (64, 4), (80, 3), (88, 2), (92, 0)]
            .into_iter()
            .for_each(|(at, order)| buddy.add(at, order, Kind::Movable));
        [(512, 6), (576, 4), (592, 3), (600, 1)]
            .into_iter()
            .for_each(|(at, order)| buddy.add(at, order, Kind::Unmovable));
        zone.free = buddy.free();
        zone.blocks.buddy = Some(buddy);
        (zone.blocks.high, zone.blocks.high_max) = (1_000, 1_000);
        zone
    }

    fn wanted(order: usize, kind: Kind) -> Wanted {
        Wanted { order, kind, wakes: true }
    }

    /// rmqueue_bulk and free_pcppages_bulk: a batch of 7 is in the order of addresses where a piece is split; of pieces of four pages a batch is 2
    /// at least (7 >> 2 = 1); and the list that has just grown is emptied first, from its tail.
    #[test]
    fn lists_are_filled_by_batches_and_emptied_from_their_tails() {
        let (mut zone, mut list) = (zone(), CpuList::default());
        list.refill(&mut zone, wanted(0, Kind::Movable), 7);
        assert_eq!(list.lists[place(0, Kind::Movable)], [92, 88, 89, 90, 91, 80, 81]);
        list.refill(&mut zone, wanted(2, Kind::Unmovable), 7);
        assert_eq!((list.lists[place(2, Kind::Unmovable)].len(), list.count(), zone.on_cpu_lists), (2, 15, 15));
        assert_eq!(zone.free, 183 - 15);
        list.give_back(&mut zone, 2, place(0, Kind::Movable));
        assert_eq!(list.lists[place(0, Kind::Movable)], [92, 88, 89, 90, 91]);
        list.give_back(&mut zone, u64::MAX, place(0, Kind::Movable));
        assert_eq!((zone.free, zone.on_cpu_lists, list.count()), (183, 0, 0));
        assert_eq!(zone.blocks.buddy.as_ref().map(Buddy::free), Some(183));
    }

    /// free_unref_page_commit of 6.1: what only frees gives back all when a piece of several pages comes.
    #[test]
    fn pieces_of_several_pages_are_not_kept_by_a_cpu_that_only_frees() {
        let mut blocks = blocks(false);
        (blocks.batch, blocks.high) = (7, 100);
        let list = CpuList { count: 60, factor: 1, ..CpuList::default() };
        assert_eq!((list.clone().due_by_factor(&blocks, 2), list.clone().due_by_factor(&blocks, 0)), (60, 0));
        assert_eq!(CpuList { factor: 0, ..list.clone() }.due_by_factor(&blocks, 2), 0);
        // 6.12: two in a row, and a batch freed of late.
        let list = CpuList { count: 600, high: 1_000, free_count: 7, ..list.clone() };
        assert_eq!(list.clone().due(&blocks, 2), 0);
        let mut again = CpuList { freed_large: true, ..list.clone() };
        assert_eq!((again.due(&blocks, 2), again.high), (224, 776));
        assert_eq!(CpuList { free_count: 6, freed_large: true, ..again }.due(&blocks, 2), 0);
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
        let taken: Vec<u64> = (0..7).map(|_| list.batch(&blocks(true), 0)).collect();
        assert_eq!(taken, [7, 14, 28, 56, 112, 209, 209], "216 - 7 at most");
        list.count = 205;
        assert_eq!(list.batch(&blocks(true), 0), 7, "what the list has room for, but a batch in any case");
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
        assert_eq!(list.batch(&blocks(true), 0), 224, "it stays as large when the zone falls below");
    }

    /// nr_pcp_high and nr_pcp_free on a list that may hold 1000 pages and holds 500.
    #[test]
    fn what_is_given_back_depends_on_where_the_zone_stands() {
        let list = CpuList { count: 500, high: 1_000, free_count: 49, ..CpuList::default() };
        let due = |mut list: CpuList, blocks: &Blocks| (list.due(blocks, 0), list.high, list.free_count);
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

    /// decay_pcp_high: by an eighth, but no more than 224 pages at once, down to high_min.
    #[test]
    fn an_idle_list_shrinks_by_an_eighth_each_second() {
        let mut list = CpuList { count: 900, high: 1_000, ..CpuList::default() };
        assert_eq!((list.decay(&blocks(true)), list.high), (25, 875));
        let mut list = CpuList { count: 10, high: 230, ..CpuList::default() };
        assert_eq!((list.decay(&blocks(true)), list.high), (0, 216));
        let mut list = CpuList { count: 3_456, high: 3_456, ..CpuList::default() };
        assert_eq!((list.decay(&blocks(true)), list.high), (224, 3_232));
    }

    /// ZONE_BELOW_HIGH: set by who finds less than the high watermark free, cleared by who frees enough.
    #[test]
    fn the_flag_of_a_zone_below_its_high_watermark_is_cleared_when_pages_are_given_back() {
        let mut zone = Zone::new(1, ZoneKind::Dma32, 32_768, 28_000);
        (zone.min, zone.low, zone.high) = (20, 25, 30);
        zone.size_blocks(1, 15_000);
        zone.free = 30;
        assert!(zone.admits(25, ZoneKind::HighMem) && zone.blocks.below_high);
        let mut list = CpuList { count: 40, ..CpuList::default() };
        zone.on_cpu_lists = 40;
        list.lists[place(0, Kind::Movable)].extend([UNTOLD; 40]);
        list.give(&mut zone, UNTOLD, 0, Kind::Movable, true);
        assert!(!zone.blocks.below_high && zone.free > 30);
        list.give_back(&mut zone, u64::MAX, 0);
        assert_eq!((zone.free, list.count(), zone.on_cpu_lists), (71, 0, 0));
    }
}

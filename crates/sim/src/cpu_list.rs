//! Free pages on the lists of the CPUs, in front of the zones' own.
//!
//! Models: batches taken from the zone and given back to it. For 5.14 and later: sizes that follow the zone and its low
//! watermark, short lists while kswapd is at work, the growing batch of a CPU that only frees, and lists of their own
//! for what is in page blocks of the kernel's (`v6::blocks`). Leaves out: lists by order, remote draining.

use super::constant::constants;
use super::memory::Mm;
use super::zone::{Zone, ZoneKind};

constants! {
    /// Zones over 512 MiB: smaller ones have shorter lists, which the model does not tell apart.
    const BATCH: u64 = kernel(31, "mm/page_alloc.c", "zone_batchsize", "2.6.32");
    const HIGH: u64 = kernel(6 * 31, "mm/page_alloc.c", "setup_pageset", "2.6.32");
    const SCALE_MAX: u8 = kernel(5, "mm/Kconfig", "PCP_BATCH_SCALE_MAX", "6.12");
}

/// What one CPU holds of one zone.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuList {
    /// In page blocks for movable pages (page cache); all of them where the profile does not tell them apart.
    movable: u16,
    /// At the tail of those, from blocks of the kernel's: taken last (`__rmqueue_steal`), and given back first.
    stolen: u16,
    /// In page blocks of the kernel's.
    kernel: u16,
    /// Doublings of the batch that is given back (`free_factor`).
    factor: u8,
    /// Doublings of the batch that is taken (`alloc_factor`, 6.7 and later).
    alloc_factor: u8,
}

impl CpuList {
    /// mm/page_alloc.c: nr_pcp_alloc, 6.12: twice as many each time that pages are taken and none is given back, up to what the list may
    /// hold beside a batch. Leaves out: that the list may hold more while the zone has plenty (pcp->high).
    fn batch(&mut self, base: u64, high: u64) -> u64 {
        let most = high.saturating_sub(u64::from(self.movable) + u64::from(self.kernel) + base).max(base);
        let batch = base << self.alloc_factor;
        self.alloc_factor += u8::from(batch <= most && self.alloc_factor < SCALE_MAX.get());
        batch.min(most)
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
            let base = slot.blocks.batch;
            let batch = if self.profile.scales_batches { list.batch(base, slot.blocks.high) } else { base };
            let (moved, stolen) =
                if self.profile.page_blocks { slot.refill(for_kernel, batch) } else { (slot.free.min(BATCH.get()), 0) };
            list.stolen = if for_kernel { list.stolen } else { stolen as u16 };
            let held = if for_kernel { &mut list.kernel } else { &mut list.movable };
            slot.free -= moved;
            slot.on_cpu_lists += moved;
            *held = moved as u16;
        }
        let held = if for_kernel { &mut list.kernel } else { &mut list.movable };
        if *held == 0 {
            return false;
        }
        *held -= 1;
        list.stolen = list.stolen.min(list.movable);
        list.factor >>= 1;
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
                give_one(slot, list, in_kernel_block);
            }
            return;
        }
        let held = u64::from(list.movable) + frames;
        let kept = if held > HIGH.get() { HIGH.get() - BATCH.get() } else { held };
        slot.on_cpu_lists = slot.on_cpu_lists + kept - u64::from(list.movable);
        slot.free += held - kept;
        // mm/page_alloc.c: free_pages_bulk, 2.6.32.
        slot.all_unreclaimable &= held == kept;
        list.movable = kept as u16;
    }
}

/// mm/page_alloc.c: free_unref_page_commit, nr_pcp_high, nr_pcp_free, free_pcppages_bulk, 6.1.
fn give_one(slot: &mut Zone, list: &mut CpuList, in_kernel_block: bool) {
    *(if in_kernel_block { &mut list.kernel } else { &mut list.movable }) += 1;
    slot.on_cpu_lists += 1;
    list.alloc_factor >>= 1;
    let batch = slot.blocks.batch;
    let high = if slot.blocks.reclaim_active { slot.blocks.high.min(4 * batch) } else { slot.blocks.high };
    if u64::from(list.movable) + u64::from(list.kernel) < high {
        return;
    }
    let most = high.saturating_sub(batch).max(1);
    let grown = batch << list.factor;
    list.factor += u8::from(grown < most);
    // The list that has just grown is emptied first.
    let mut left = grown.clamp(batch.min(most), most);
    for kernel in [in_kernel_block, !in_kernel_block] {
        let held = if kernel { &mut list.kernel } else { &mut list.movable };
        let freed = left.min(u64::from(*held));
        *held -= freed as u16;
        left -= freed;
        slot.on_cpu_lists -= freed;
        slot.free += freed;
        if kernel {
            slot.blocks.kernel_free += freed;
        } else {
            // mm/page_alloc.c: free_pcppages_bulk: from the tail, where what was taken last and not used yet is.
            let back = freed.min(u64::from(list.stolen));
            list.stolen -= back as u16;
            slot.blocks.give_back(back);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuList, give_one};
    use crate::v6::blocks::Open;
    use crate::zone::{Zone, ZoneKind};

    /// 90 free pages of a block of unmovable allocations and 3 of page cache's: a batch of 7 takes 4 of the kernel's, and the list is
    /// emptied from its tail when kswapd gives pages back on this CPU.
    #[test]
    fn what_was_taken_of_the_kernels_blocks_and_not_used_comes_back_first() {
        let mut zone = Zone::new(1, ZoneKind::Dma32, 32_768, 28_000);
        (zone.min, zone.low, zone.high) = (20, 25, 30);
        zone.open_kernel_blocks(Some([Open::new(0, 0), Open::new(90, 64)]));
        zone.size_blocks(1, 15_000, true);
        zone.free = 93;
        let (moved, stolen) = zone.refill(false, 7);
        assert_eq!((moved, stolen, zone.blocks.kernel_free), (7, 4, 86));
        zone.free -= moved;
        let mut list = CpuList { movable: moved as u16, stolen: stolen as u16, ..CpuList::default() };
        zone.on_cpu_lists = moved;
        while list.stolen > 0 {
            give_one(&mut zone, &mut list, false);
        }
        assert_eq!(zone.blocks.kernel_free, 90);
    }

    /// A node of 108 MiB: batches of 7, lists of 216.
    #[test]
    fn a_cpu_that_only_takes_pages_takes_twice_as_many_each_time() {
        let mut list = CpuList::default();
        let taken: Vec<u64> = (0..7).map(|_| list.batch(7, 216)).collect();
        assert_eq!(taken, [7, 14, 28, 56, 112, 209, 209], "216 - 7 at most");
        list.kernel = 205;
        assert_eq!(list.batch(7, 216), 7, "what the list has room for, but a batch in any case");
    }
}

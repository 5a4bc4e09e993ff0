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
}

/// What one CPU holds of one zone.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuList {
    /// In page blocks for movable pages (page cache); all of them where the profile does not tell them apart.
    movable: u16,
    /// In page blocks of the kernel's.
    kernel: u16,
    /// Doublings of the batch that is given back (`free_factor`).
    factor: u8,
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
        let held = if for_kernel { &mut list.kernel } else { &mut list.movable };
        if *held == 0 {
            let moved = if self.profile.page_blocks { slot.refill(for_kernel) } else { slot.free.min(BATCH.get()) };
            slot.free -= moved;
            slot.on_cpu_lists += moved;
            *held = moved as u16;
        }
        if *held == 0 {
            return false;
        }
        *held -= 1;
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
        }
    }
}

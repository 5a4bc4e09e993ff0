//! Whether reclaim ages the active lists, and which of their pages.
//!
//! Models: inactive_list_is_low of 4.7 and later; swap_tendency of the one list of 2.6.17 and 2.6.20 (vm.swappiness).

use crate::Machine;
use crate::mm::memory::Mm;

impl Mm {
    /// mm/vmscan.c: inactive_list_is_low, 4.7: below 1 GiB the lists should be equal, above the active list may be
    /// larger by the root of ten times the size in GiB.
    pub fn is_below_ratio(&self, lruvec: u8) -> bool {
        let [inactive, active] = self.chunks.lruvecs[usize::from(lruvec)].pages;
        let gib = (inactive + active) >> 18;
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        inactive * ratio < active
    }

    /// mm/vmscan.c: shrink_active_list, 2.6.20: whether mapped pages may leave the active list.
    pub fn reclaims_mapped(&mut self, zone: usize, priority: u32, swappiness: u64) -> bool {
        let mapped_ratio = self.mapped_percent();
        let before = std::mem::replace(&mut self.zones[zone].prev_priority, priority);
        swap_tendency(mapped_ratio, before.min(priority), swappiness) >= 100
    }
}

/// mapped_ratio / 2 + distress + swappiness.
fn swap_tendency(mapped_ratio: u64, priority: u32, swappiness: u64) -> u64 {
    mapped_ratio / 2 + (100 >> priority) + swappiness
}

impl Machine {
    pub fn swappiness(&self) -> u64 {
        self.knobs.borrow().swappiness
    }
}

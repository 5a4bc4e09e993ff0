//! Where pages that will be dirtied come from: no node holds more than its part of the dirty limit.
//!
//! Models: mm/page-writeback.c: node_dirty_ok (4.8 and later), as get_page_from_freelist asks them
//! for __GFP_WRITE at the low watermark. Leaves out: the quarter more of real-time tasks and of loop devices.

use super::Machine;
use super::memory::Mm;
use super::zone::{Zone, totalreserve_pages};

/// The machine's dirty limit, of which each zone or node has a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyPart {
    Percent(u64),
    Bytes(u64),
}

impl Machine {
    /// Of what a page that a write() will dirty has to be a part; `None` where the kernel does not ask.
    pub fn dirty_part(&self) -> Option<DirtyPart> {
        if !self.profile.is_6() {
            return None;
        }
        let knobs = self.knobs.borrow();
        Some(knobs.dirty_bytes.map_or(DirtyPart::Percent(knobs.dirty_ratio), DirtyPart::Bytes))
    }
}

impl Mm {
    /// node_dirtyable_memory, global_dirtyable_memory: free pages without what the kernel keeps back, and file pages.
    pub fn dirtyable<'a>(&self, zones: impl Iterator<Item = &'a Zone> + Clone) -> u64 {
        let of = |sum: (u64, u64, u64), zone: &Zone| {
            (sum.0 + zone.free, sum.1 + zone.file, sum.2 + totalreserve_pages(std::slice::from_ref(zone)))
        };
        let (free, file, reserve) = zones.clone().fold((0, 0, 0), of);
        free.saturating_sub(reserve) + file
    }
}

/// node_dirty_limit, of so many dirtyable pages there and in all.
fn limit(part: DirtyPart, there: u64, all: u64) -> u64 {
    match part {
        DirtyPart::Percent(ratio) => ratio * there / 100,
        DirtyPart::Bytes(bytes) => bytes.div_ceil(4096) * there / (all + 1),
    }
}

impl Mm {
    /// Whether the node of a zone may have one more page that will be dirty.
    pub fn dirty_ok(&self, zone: u8, part: DirtyPart) -> bool {
        let asked = &self.zones[usize::from(zone)];
        let there = self.zones.iter().filter(|other| other.node == asked.node);
        let held: u64 = there.clone().map(|zone| zone.dirty + zone.writeback).sum();
        let all = if matches!(part, DirtyPart::Bytes(_)) { self.dirtyable(self.zones.iter()) } else { 0 };
        held <= limit(part, self.dirtyable(there), all)
    }
}

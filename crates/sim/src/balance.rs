//! How reclaim divides its work between files' pages and anonymous ones: vm.swappiness.
//!
//! Models: get_scan_ratio and get_scan_count: by how much of what was scanned of each kind was in use (2.6.28 to 5.7), or by
//! what bringing pages of each kind back has cost (5.8 and later); swap_tendency of the one list of 2.6.17 and 2.6.20.
//! Leaves out: memory cgroups (their anonymous pages have no lists here), generations.

use super::Machine;
use super::chunk::{ACTIVE, INACTIVE};
use super::kernel::ScanBalance;
use super::memory::Mm;

/// Parts of each list's share that are scanned: (files, anonymous, of).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fractions {
    pub file: u64,
    pub anonymous: u64,
    pub of: u64,
}

impl Fractions {
    pub const FILES: Fractions = Fractions { file: 1, anonymous: 0, of: 1 };
    const ANONYMOUS: Fractions = Fractions { file: 0, anonymous: 1, of: 1 };
    const EQUAL: Fractions = Fractions { file: 1, anonymous: 1, of: 1 };

    #[must_use]
    pub fn file_share(&self, pages: u64) -> u64 {
        (u128::from(pages) * u128::from(self.file) / u128::from(self.of.max(1))) as u64
    }

    #[must_use]
    pub fn anonymous_share(&self, pages: u64) -> u64 {
        (u128::from(pages) * u128::from(self.anonymous) / u128::from(self.of.max(1))) as u64
    }
}

/// get_scan_count, 2.6.32 to 5.7: pressure against the fraction of scanned pages that were in use. `more` is 1 up to 3.4, where
/// both priorities have one added (3.5: "mm: fix the magically sub-optimal scan balance").
fn by_rotation(swappiness: u64, more: u64, anonymous: (u64, u64), file: (u64, u64)) -> Fractions {
    let part = |priority: u64, (scanned, rotated): (u64, u64)| (priority + more) * (scanned + 1) / (rotated + 1);
    let (ap, fp) = (part(swappiness, anonymous), part(200 - swappiness, file));
    Fractions { file: fp, anonymous: ap, of: ap + fp + 1 }
}

/// calculate_pressure_balance, 5.8 and later: at least a third of the pressure on either kind, before swappiness.
fn by_cost(swappiness: u64, anon_cost: u64, file_cost: u64) -> Fractions {
    let total = anon_cost + file_cost;
    let (anon_cost, file_cost) = (total + anon_cost, total + file_cost);
    let total = anon_cost + file_cost;
    let ap = swappiness * (total + 1) / (anon_cost + 1);
    let fp = (200 - swappiness.min(200)) * (total + 1) / (file_cost + 1);
    Fractions { file: fp, anonymous: ap, of: (ap + fp).max(1) }
}

impl Mm {
    /// What of the lists of a zone (or, by node, of its node) reclaim scans at a priority.
    pub fn fractions(&mut self, zone: usize, priority: u32, swappiness: u64, file_is_low: bool) -> Fractions {
        let (own, other) = (self.zones[zone].lruvec, self.zones[zone].anonymous_lruvec);
        let rule = self.profile.swap;
        // No room: no anonymous page can go.
        if self.swap.free() == 0 || rule.balance == ScanBalance::Tendency {
            return Fractions::FILES;
        }
        let size = |mm: &Mm, lruvec: u8| mm.chunks.lruvecs[usize::from(lruvec)].pages;
        if rule.zero_is_never && priority == 0 && swappiness > 0 {
            return Fractions::EQUAL;
        }
        let node = self.zones[zone].node;
        let per_node = self.profile.lru_per_node;
        let own_zones =
            || self.zones.iter().enumerate().filter(|(at, of)| *at == zone || (per_node && of.node == node));
        let free: u64 = own_zones().map(|(_, zone)| zone.free).sum();
        let high: u64 = own_zones().map(|(_, zone)| zone.high).sum();
        let [inactive, active] = size(self, own);
        if inactive + active + free <= high {
            return Fractions::ANONYMOUS;
        }
        // 3.8: "mm: vmscan: only evict file pages when we have plenty"; 5.8: cache_trim_mode.
        if rule.trims_cache && !file_is_low && inactive >> priority > 0 {
            return Fractions::FILES;
        }
        if rule.balance == ScanBalance::Cost {
            let cost = |lruvec: u8| self.chunks.lruvecs[usize::from(lruvec)].fares.cost;
            return by_cost(swappiness, cost(other), cost(own));
        }
        for lruvec in [own, other] {
            let lruvec = &mut self.chunks.lruvecs[usize::from(lruvec)];
            let held = lruvec.pages[INACTIVE] + lruvec.pages[ACTIVE];
            if lruvec.fares.scanned > held / 4 {
                lruvec.fares.scanned /= 2;
                lruvec.fares.rotated /= 2;
            }
        }
        let fares = |lruvec: u8| {
            let fares = self.chunks.lruvecs[usize::from(lruvec)].fares;
            (fares.scanned, fares.rotated)
        };
        by_rotation(swappiness, u64::from(!rule.zero_is_never), fares(other), fares(own))
    }

    /// mm/swap.c: lru_note_cost, 5.8: a cost that has grown over a quarter of the lists is halved, for both.
    pub fn note_cost(&mut self, lruvec: u8, pages: u64) {
        let Some(other) = self.other_lruvec(lruvec) else { return };
        self.chunks.lruvecs[usize::from(lruvec)].fares.cost += pages;
        let pair = [usize::from(lruvec), usize::from(other)];
        let held: u64 = pair.iter().map(|&at| self.chunks.lruvecs[at].pages.iter().sum::<u64>()).sum();
        let cost: u64 = pair.iter().map(|&at| self.chunks.lruvecs[at].fares.cost).sum();
        if cost > held / 4 {
            pair.iter().for_each(|&at| self.chunks.lruvecs[at].fares.cost /= 2);
        }
    }

    /// inactive_anon_is_low: by the root of ten times the list's GiB.
    pub fn anonymous_is_low(&self, lruvec: u8) -> bool {
        self.swap.pages() > 0 && self.is_below_ratio(lruvec)
    }

    /// mm/vmscan.c: inactive_list_is_low, 4.7: below 1 GiB the lists are to be equal, then by the root of ten times the GiB.
    pub fn is_below_ratio(&self, lruvec: u8) -> bool {
        let [inactive, active] = self.chunks.lruvecs[usize::from(lruvec)].pages;
        let gib = (inactive + active) >> 18;
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        inactive * ratio < active
    }

    /// mm/vmscan.c: shrink_active_list, 2.6.20: whether mapped pages may be taken off the active list at all.
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

#[cfg(test)]
mod tests {
    use super::{by_cost, by_rotation, swap_tendency};

    #[test]
    fn at_equal_use_files_are_scanned_140_to_60_and_a_list_in_use_is_spared() {
        // ap = 60 * 1001 / 1, fp = 140 * 1001 / 1.
        let even = by_rotation(60, 0, (1000, 0), (1000, 0));
        assert_eq!((even.anonymous, even.file, even.of), (60_060, 140_140, 200_201));
        // Every second anonymous page was in use: ap = 60 * 1001 / 501 = 119.
        let used = by_rotation(60, 0, (1000, 500), (1000, 0));
        assert_eq!((used.anonymous, used.file), (119, 140_140));
        assert_eq!(by_rotation(0, 0, (1000, 0), (1000, 0)).anonymous, 0, "3.5 and later: swappiness 0 is never");
        assert_eq!(by_rotation(0, 1, (1000, 0), (1000, 0)).anonymous, 1001, "before, it was little");
    }

    #[test]
    fn the_cost_of_one_kind_leaves_it_a_third_of_the_pressure() {
        // No cost at all: by swappiness alone.
        let even = by_cost(100, 0, 0);
        assert_eq!(even.anonymous, even.file);
        // All cost is of files: anon_cost = 300, file_cost = 600, total 900: 100 * 901 / 301 to 100 * 901 / 601.
        let files = by_cost(100, 0, 300);
        assert_eq!((files.anonymous, files.file), (299, 149));
        assert_eq!(by_cost(0, 0, 300).anonymous, 0);
    }

    #[test]
    fn mapped_pages_go_when_half_the_mapped_share_distress_and_swappiness_come_to_100() {
        assert_eq!(swap_tendency(80, 12, 60), 100);
        assert_eq!(swap_tendency(78, 12, 60), 99);
        assert_eq!(swap_tendency(0, 1, 60), 110, "in distress");
        assert_eq!(swap_tendency(0, 12, 100), 100);
    }
}

//! What reclaim concludes from dirty pages and pages under writeback at the tail of a zone's list: whom it has write, and how long it
//! waits.
//!
//! Models: ZONE_TAIL_LRU_DIRTY, ZONE_WRITEBACK and ZONE_CONGESTED of shrink_inactive_list (3.11 to 4.7): kswapd writes pages only
//! where a whole cluster was dirty and not queued, waits where pages come round marked for reclaim while still under writeback,
//! and callers wait where all dirty pages lie on congested devices (wait_iff_congested). Before, nobody tags a zone: of 3.2 to
//! 3.10 ZONE_CONGESTED needs pages that kswapd's own pageout() left alone, and kswapd writes into full queues (PF_SWAPWRITE).
//! From 4.11 on the same by node, of what one call of shrink_node met; all zones of a node have its flags.

use super::Machine;
use super::chunk::ChunkId;
use super::kernel::{Immediate, KswapdRule};
use super::memory::Mm;
use super::reclaim::{Pass, Scanned};
use super::task::Task;
use super::zone::Zone;

/// What the last scans of a zone met at the tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// A cluster of nothing but dirty pages that nobody writes yet (ZONE_TAIL_LRU_DIRTY).
    pub dirty: bool,
    /// A cluster of nothing but pages under writeback (ZONE_WRITEBACK).
    pub writeback: bool,
    /// Dirty pages of congested devices alone (ZONE_CONGESTED).
    pub congested: bool,
}

impl Zone {
    /// mm/vmscan.c: shrink_inactive_list, 3.11, after a cluster: sets the zone's flags; whether everybody is to wait.
    fn note_tail(&mut self, step: Scanned, congested: bool) -> bool {
        let (taken, dirty) = (step.scanned, step.dirty + step.writeback + step.immediate);
        self.tail.writeback |= step.writeback > 0 && step.writeback == taken;
        // Pages of a congested device count, and those that come round before they are written.
        let on_congested = if congested { taken } else { step.immediate + step.recycled };
        self.tail.congested |= dirty > 0 && dirty == on_congested;
        let unqueued = taken > 0 && step.dirty == taken;
        self.tail.dirty |= unqueued;
        unqueued || step.immediate > 0
    }
}

/// Whether the device of the next page that is scanned has a congested queue of writes.
pub fn is_congested(m: &Machine, zone: usize, file: bool) -> bool {
    let inode = {
        let mm = m.mm.borrow();
        let lruvec = if file { mm.zones[zone].lruvec } else { mm.zones[zone].anonymous_lruvec };
        mm.chunks.tail(lruvec, super::chunk::INACTIVE).map(|id| mm.chunks.get(id).inode)
    };
    inode.is_some_and(|inode| m.device_of(inode).congested())
}

/// The waits at the end of shrink_inactive_list.
pub async fn stall(m: &Machine, task: &mut Task, zone: usize, step: Scanned, congested: bool, pass: Pass) {
    if m.profile.kswapd == KswapdRule::WholeShares || step.scanned == 0 {
        return;
    }
    let waits = m.mm.borrow_mut().zones[zone].note_tail(step, congested);
    let tenth_ns = m.profile.jiffy_ns() * m.profile.hz.get() / 10;
    if waits {
        m.congestion_wait(task, tenth_ns).await;
    }
    // mm/backing-dev.c: wait_iff_congested.
    let both = m.mm.borrow().zones[zone].tail.congested && m.devices.iter().any(super::device::Device::congested);
    if !pass.kswapd && both {
        m.congestion_wait(task, tenth_ns).await;
    }
}

impl Mm {
    /// Dirty pages and pages under writeback go to the active list; generations have a rule of their own (sort_folio).
    pub fn moves_away(&self) -> bool {
        self.profile.immediate == Immediate::MovesAway && !self.profile.lru_gen
    }

    /// mm/vmscan.c: shrink_page_list, 3.11: pages under writeback at the tail, which are marked so that they come there again once
    /// they are written (3.6).
    pub fn note_writeback(&mut self, id: ChunkId, pass: Pass, sum: &mut Scanned) {
        let marks = self.profile.immediate >= Immediate::Writeback && !self.profile.lru_per_node || self.moves_away();
        let chunk = self.chunks.get_mut(id);
        let pages = u64::from((chunk.writeback & chunk.present).count_ones());
        if pages == 0 || !marks {
            return;
        }
        if !std::mem::replace(&mut chunk.reclaim, true) {
            sum.writeback += pages;
        } else if pass.kswapd && self.zones[usize::from(chunk.zone)].tail.writeback {
            sum.immediate += pages;
        } else {
            (sum.writeback, sum.recycled) = (sum.writeback + pages, sum.recycled + pages);
        }
    }

    /// mm/vmscan.c: shrink_node, 4.17 and later, after kswapd's scan of a node: sets its flags; whether kswapd is to wait.
    fn note_node_tail(&mut self, node: usize, met: Scanned) -> bool {
        let taken = met.scanned - met.passed.min(met.scanned);
        let dirty = met.dirty + met.writeback + met.immediate;
        for zone in self.zones.iter_mut().filter(|zone| zone.node == node) {
            zone.tail.writeback |= met.writeback > 0 && met.writeback == taken;
            // Nothing dirty of nothing taken sets it, too.
            zone.tail.dirty |= met.dirty == taken;
            zone.tail.congested |= dirty > 0 && dirty == met.immediate + met.recycled;
        }
        met.immediate > 0
    }

    /// mm/vmscan.c: clear_pgdat_congested, where kswapd finds its node balanced (prepare_kswapd_sleep).
    pub fn relieve_node(&mut self, node: usize) {
        self.zones.iter_mut().filter(|zone| zone.node == node).for_each(|zone| zone.tail = Tail::default());
    }

    /// mm/vmscan.c: skip_throttle_noprogress, 5.16: where less than half of what could be reclaimed waits to be written.
    fn skips_throttle(&self, node: usize) -> bool {
        let own = || self.zones.iter().enumerate().filter(|(_, zone)| zone.node == node);
        let reclaimable: u64 = own().map(|(_, zone)| zone.file).sum();
        let pending: u64 = own().map(|(_, zone)| zone.dirty + zone.writeback).sum();
        2 * pending <= reclaimable
    }
}

/// mm/vmscan.c: reclaim_throttle, 5.16, VMSCAN_THROTTLE_CONGESTED and VMSCAN_THROTTLE_NOPROGRESS: a jiffy, if that can help.
pub async fn throttle_briefly(m: &Machine, task: &mut Task, node: usize) {
    if !m.mm.borrow().skips_throttle(node) && !m.is_hopeless(node) {
        m.congestion_wait(task, m.profile.jiffy_ns()).await;
    }
}

/// The waits at the end of shrink_node, from 4.11 on: kswapd's where pages come round before they are written, callers' where all dirty
/// pages do.
pub async fn stall_node(m: &Machine, task: &mut Task, node: usize, met: Scanned, kswapd: bool) {
    if m.profile.immediate != Immediate::MovesAway {
        return;
    }
    let tenth_ns = m.profile.jiffy_ns() * m.profile.hz.get() / 10;
    if kswapd {
        let waits = m.mm.borrow_mut().note_node_tail(node, met);
        if waits {
            m.congestion_wait(task, tenth_ns).await;
        }
        return;
    }
    let congested = m.mm.borrow().zones.iter().any(|zone| zone.node == node && zone.tail.congested);
    match m.profile.throttles_reclaim {
        _ if !congested => {}
        true => throttle_briefly(m, task, node).await,
        // mm/backing-dev.c: wait_iff_congested.
        false if m.devices.iter().any(super::device::Device::congested) => m.congestion_wait(task, tenth_ns).await,
        false => {}
    }
}

#[cfg(test)]
mod tests {
    use super::Tail;
    use crate::build;
    use crate::kernel;
    use crate::reclaim::Scanned;
    use crate::zone::{Zone, ZoneKind};

    #[test]
    fn a_zone_is_tagged_by_whole_clusters_alone() {
        let met = |step: Scanned, congested: bool| {
            let mut zone = Zone::new(0, ZoneKind::Normal, 10_000, 10_000);
            let waits = zone.note_tail(step, congested);
            (zone.tail, waits)
        };
        let of =
            |dirty, writeback, immediate| Scanned { scanned: 32, dirty, writeback, immediate, ..Scanned::default() };
        let none = Tail::default();
        assert_eq!(met(of(31, 0, 0), false), (none, false));
        assert_eq!(met(of(32, 0, 0), false), (Tail { dirty: true, ..none }, true), "flushers do not keep up");
        assert_eq!(met(of(0, 31, 0), false), (none, false));
        assert_eq!(met(of(0, 32, 0), false), (Tail { writeback: true, ..none }, false), "a warning only");
        // The second time round: marked for reclaim, and still under writeback.
        assert_eq!(met(of(0, 0, 4), false), (Tail { congested: true, ..none }, true));
        assert_eq!(met(of(16, 16, 0), true).0, Tail { congested: true, ..none });
        assert_eq!(met(of(16, 0, 0), true).0, none, "clean pages of the device count too");
    }

    /// A guest of 6.1: what kswapd met of a node in one call of shrink_node.
    #[test]
    fn a_node_is_tagged_by_all_that_was_met_and_relieved_once_it_is_balanced() {
        let mut mm = build::memory(&kernel::find("linux-6.1").expect("a profile"), &[256 << 20], 1);
        let mut met = |step: Scanned| {
            mm.relieve_node(0);
            let waits = mm.note_node_tail(0, step);
            (mm.zones[0].tail, waits)
        };
        let none = Tail::default();
        let half = Scanned { scanned: 64, dirty: 32, ..Scanned::default() };
        assert_eq!(met(half), (none, false));
        assert_eq!(met(Scanned { dirty: 64, ..half }), (Tail { dirty: true, ..none }, false));
        assert_eq!(met(Scanned::default()), (Tail { dirty: true, ..none }, false), "unqueued_dirty == file_taken == 0");
        let writeback = Scanned { scanned: 64, writeback: 64, recycled: 32, ..Scanned::default() };
        assert_eq!(met(writeback), (Tail { writeback: true, ..none }, false));
        let again = Scanned { recycled: 64, ..writeback };
        assert_eq!(met(again), (Tail { writeback: true, congested: true, ..none }, false), "all of it came round");
        assert!(met(Scanned { writeback: 0, recycled: 0, immediate: 1, ..writeback }).1, "kswapd waits");
    }

    #[test]
    fn callers_wait_only_where_more_than_half_is_yet_to_be_written() {
        let mut mm = build::memory(&kernel::find("linux-6.1").expect("a profile"), &[256 << 20], 1);
        (mm.zones[0].file, mm.zones[0].dirty, mm.zones[0].writeback) = (1000, 300, 200);
        assert!(mm.skips_throttle(0));
        mm.zones[0].dirty = 301;
        assert!(!mm.skips_throttle(0));
    }
}

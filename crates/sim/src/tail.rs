//! What reclaim concludes from dirty pages and pages under writeback at the tail of a zone's list: whom it has write, and how long it
//! waits.
//!
//! Models: ZONE_TAIL_LRU_DIRTY, ZONE_WRITEBACK and ZONE_CONGESTED of shrink_inactive_list (3.11 to 4.7): kswapd writes pages only
//! where a whole cluster was dirty and not queued, waits where pages come round marked for reclaim while still under writeback,
//! and callers wait where all dirty pages lie on congested devices (wait_iff_congested). Before, nobody tags a zone: of 3.2 to
//! 3.10 ZONE_CONGESTED needs pages that kswapd's own pageout() left alone, and kswapd writes into full queues (PF_SWAPWRITE).

use super::Machine;
use super::kernel::KswapdRule;
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

#[cfg(test)]
mod tests {
    use super::Tail;
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
}

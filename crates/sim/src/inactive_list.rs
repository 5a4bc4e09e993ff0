//! What reclaim concludes from dirty pages and pages under writeback at the tail of a node's list, and how long it waits.
//!
//! Models: PGDAT_DIRTY and PGDAT_WRITEBACK, by what one call of shrink_node found; all zones of a node have its flags. Leaves out: that
//! callers wait where all dirty pages are under writeback (LRUVEC_CONGESTED, reclaim_throttle).

use super::Machine;
use super::chunk::ChunkId;
use super::memory::Mm;
use super::reclaim::{Pass, Scanned};
use super::task::Task;

/// What the last scans of a zone met at the tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// A cluster of nothing but dirty pages that nobody writes yet (ZONE_TAIL_LRU_DIRTY).
    pub dirty: bool,
    /// A cluster of nothing but pages under writeback (ZONE_WRITEBACK).
    pub writeback: bool,
}

impl Mm {
    /// Dirty pages and pages under writeback go to the active list.
    pub fn moves_away(&self) -> bool {
        self.profile.is_6()
    }

    /// mm/vmscan.c: shrink_page_list, 3.11: pages under writeback at the tail, which are marked so that they come there again once
    /// they are written (3.6).
    pub fn note_writeback(&mut self, id: ChunkId, pass: Pass, sum: &mut Scanned) {
        let marks = self.moves_away();
        let chunk = self.chunks.get_mut(id);
        let pages = u64::from((chunk.writeback & chunk.present).count_ones());
        if pages == 0 || !marks {
            return;
        }
        let again = std::mem::replace(&mut chunk.reclaim, true);
        if again && pass.kswapd && self.zones[usize::from(chunk.zone)].tail.writeback {
            sum.immediate += pages;
        } else {
            sum.writeback += pages;
        }
    }

    /// mm/vmscan.c: shrink_node, 4.17 and later, after kswapd's scan of a node: sets its flags; whether kswapd is to wait.
    fn note_node_tail(&mut self, node: usize, met: Scanned) -> bool {
        let taken = met.scanned - met.passed.min(met.scanned);
        for zone in self.zones.iter_mut().filter(|zone| zone.node == node) {
            zone.tail.writeback |= met.writeback > 0 && met.writeback == taken;
            // Nothing dirty of nothing taken sets it, too.
            zone.tail.dirty |= met.dirty == taken;
        }
        met.immediate > 0
    }

    /// mm/vmscan.c: clear_pgdat_congested, where kswapd finds its node balanced (prepare_kswapd_sleep).
    pub fn relieve_node(&mut self, node: usize) {
        self.zones.iter_mut().filter(|zone| zone.node == node).for_each(|zone| zone.tail = Tail::default());
    }
}

/// The wait at the end of shrink_node: kswapd's where pages come round before they are written.
pub async fn stall_node(m: &Machine, task: &mut Task, node: usize, met: Scanned) {
    let waits = m.mm.borrow_mut().note_node_tail(node, met);
    if waits {
        m.congestion_wait(task, m.profile.jiffy_ns() * m.profile.hz.get() / 10).await;
    }
}

#[cfg(test)]
mod tests {
    use super::Tail;
    use crate::build;
    use crate::kernel;
    use crate::reclaim::Scanned;

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
        let writeback = Scanned { scanned: 64, writeback: 64, ..Scanned::default() };
        assert_eq!(met(writeback), (Tail { writeback: true, ..none }, false));
        assert!(met(Scanned { writeback: 0, immediate: 1, ..writeback }).1, "kswapd waits");
    }
}

//! kswapd of 4.8 and later, which balances a node, not zones.
//!
//! Models: wakeup_kswapd's look at the node, kswapd_try_to_sleep's tenth of a second, balance_pgdat with a priority that
//! rises while too little was scanned, and boosted reclaim. Leaves out: orders above 0, kcompactd, pfmemalloc throttling.

use super::node::{self, Share};
use crate::sim::Machine;
use crate::sim::reclaim::DEF_PRIORITY;
use crate::sim::site::Site;
use crate::sim::task::Task;
use crate::sim::zone::{Zone, ZoneKind};

/// A node from which nothing came so often is left to direct reclaim.
const MAX_RECLAIM_RETRIES: u32 = 16;

impl Zone {
    /// zone_watermark_ok with the high mark and what is withheld from requests for the highest zone.
    fn is_high(&self) -> bool {
        self.managed > 0 && self.above(self.high + self.blocks.boost, ZoneKind::HighMem)
    }
}

impl Machine {
    /// mm/vmscan.c: pgdat_balanced: one zone of the node above its high mark is enough.
    pub fn is_balanced(&self, node: usize) -> bool {
        self.mm.borrow().zones.iter().any(|zone| zone.node == node && zone.is_high())
    }

    /// A zone whose marks were raised wakes its node's kswapd, which may be balanced otherwise (mm/page_alloc.c: rmqueue).
    #[inline]
    pub fn note_boost(&self, zone: u8) {
        let mut mm = self.mm.borrow_mut();
        let slot = &mut mm.zones[usize::from(zone)];
        if std::mem::take(&mut slot.blocks.boosted) {
            let node = slot.node;
            drop(mm);
            self.wake_kswapd_of(node);
        }
    }
}

/// kswapd's life on one node.
pub async fn live(m: &Machine, task: &mut Task, node: usize) {
    let mut failures = 0;
    loop {
        task.begin();
        if balance(m, task, node).await == 0 {
            failures += 1;
        } else {
            failures = 0;
        }
        task.run(m).await;
        if !m.is_balanced(node) && failures < MAX_RECLAIM_RETRIES {
            continue;
        }
        // mm/vmscan.c: kswapd_try_to_sleep: a short sleep first; soundly only if that was not premature.
        m.kswapd.borrow_mut()[node] = Some(m.clock.current());
        m.clock.park(Some(m.clock.now() + m.costs.jiffy_ns * m.profile.hz / 10)).await;
        let woken = m.kswapd.borrow_mut()[node].take().is_none();
        if woken || !(m.is_balanced(node) || failures >= MAX_RECLAIM_RETRIES) {
            continue;
        }
        m.kswapd.borrow_mut()[node] = Some(m.clock.current());
        m.clock.park(None).await;
    }
}

/// mm/vmscan.c: balance_pgdat, 6.1. Pages freed; a node that needed nothing counts as one.
async fn balance(m: &Machine, task: &mut Task, node: usize) -> u64 {
    let boosts: Vec<(usize, u64)> = {
        let mut mm = m.mm.borrow_mut();
        mm.events.pageoutrun += 1;
        let own = mm.zones.iter_mut().enumerate().filter(|(_, zone)| zone.node == node);
        own.map(|(place, zone)| {
            zone.blocks.reclaim_active = true;
            (place, zone.blocks.boost)
        })
        .collect()
    };
    let mut to_boost: u64 = boosts.iter().map(|(_, boost)| boost).sum();
    let (mut priority, mut total) = (DEF_PRIORITY, 0);
    let mut needed = false;
    while priority >= 1 {
        let balanced = m.is_balanced(node);
        // A node below its own marks, of which the boost is a part, is first brought there without regard to it.
        if !balanced && to_boost > 0 {
            (to_boost, priority) = (0, DEF_PRIORITY);
        }
        if balanced && to_boost == 0 {
            break;
        }
        needed = true;
        // Boosted reclaim goes no further than priority 10, so that it does not come to writing.
        let gentle = to_boost > 0 && priority == DEF_PRIORITY - 2;
        let target: u64 = {
            let mm = m.mm.borrow();
            let wanted = |&(zone, _): &(usize, u64)| {
                let zone = &mm.zones[zone];
                (zone.high + zone.blocks.boost).max(crate::sim::reclaim::CLUSTER)
            };
            boosts.iter().map(wanted).sum()
        };
        let share = Share { priority, target, may_unmap: true, kswapd: true, fs: true, site: Site::DirectReclaim };
        let sum = node::shrink(m, task, node, share).await;
        total += sum.freed;
        task.run(m).await;
        task.begin();
        to_boost = to_boost.saturating_sub(sum.freed);
        if to_boost > 0 && sum.freed == 0 {
            break;
        }
        if !(gentle || sum.scanned >= target) || sum.freed == 0 {
            priority -= 1;
        }
    }
    let mut mm = m.mm.borrow_mut();
    for (zone, boost) in boosts {
        let blocks = &mut mm.zones[zone].blocks;
        blocks.reclaim_active = false;
        blocks.boost = blocks.boost.saturating_sub(boost);
    }
    if needed { total } else { 1 }
}

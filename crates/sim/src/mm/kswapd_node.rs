//! kswapd of 4.8 and later, which balances a node, not zones.
//!
//! Models: wakeup_kswapd's check of the node, kswapd_try_to_sleep's tenth of a second, balance_pgdat with a priority
//! that rises while too little was scanned. Leaves out: watermark boosts, orders above 0, kcompactd, pfmemalloc
//! throttling.

use crate::Machine;
use crate::constant::constants;
use crate::mm::reclaim::DEF_PRIORITY;
use crate::mm::shrink_node::{self, Share};
use crate::mm::zone::{Zone, ZoneKind};
use crate::sched::site::Site;
use crate::sched::task::Task;

constants! {
    /// Failed runs after which kswapd leaves a node to direct reclaim.
    const MAX_RECLAIM_RETRIES: u32 = kernel(16, "mm/internal.h", "MAX_RECLAIM_RETRIES", "6.1");
}

impl Zone {
    /// zone_watermark_ok with the high watermark and the reserve for requests of `highest`.
    fn is_high(&self, highest: ZoneKind) -> bool {
        self.kind <= highest && self.managed > 0 && self.above(self.high, highest)
    }
}

impl Machine {
    /// mm/vmscan.c: pgdat_balanced: one zone of the node above its high watermark is enough.
    pub fn is_balanced(&self, node: usize, highest: ZoneKind) -> bool {
        self.mm.borrow().zones.iter().any(|zone| zone.node == node && zone.is_high(highest))
    }

    fn what_for(&self, node: usize) -> Option<ZoneKind> {
        self.mm.borrow_mut().kswapd_highest.get_mut(node).and_then(Option::take)
    }

    pub fn is_hopeless(&self, node: usize) -> bool {
        self.mm.borrow().kswapd_failures.get(node).is_some_and(|failures| *failures >= MAX_RECLAIM_RETRIES.get())
    }

    /// Asks kswapd to balance its node up to this zone (wakeup_kswapd: `kswapd_highest_zoneidx`).
    pub fn ask_kswapd(&self, node: usize, highest: ZoneKind) {
        if let Some(asked) = self.mm.borrow_mut().kswapd_highest.get_mut(node) {
            *asked = (*asked).max(Some(highest));
        }
    }
}

/// kswapd of one node; begins asleep.
pub async fn live(m: &Machine, task: &mut Task, node: usize) {
    let mut highest = ZoneKind::HighMem;
    loop {
        // prepare_kswapd_sleep.
        if m.is_balanced(node, highest) || m.is_hopeless(node) {
            try_to_sleep(m, node, highest).await;
            task.begin();
            task.work(Site::Work, m.costs.wakeup_ns);
            task.run(m).await;
        }
        task.begin();
        highest = m.what_for(node).unwrap_or(highest);
        let failed = balance(m, task, node, highest).await == 0;
        if let Some(failures) = m.mm.borrow_mut().kswapd_failures.get_mut(node).filter(|_| failed) {
            *failures += 1;
        }
        task.run(m).await;
        highest = m.mm.borrow().kswapd_highest.get(node).copied().flatten().unwrap_or(highest);
    }
}

/// mm/vmscan.c: kswapd_try_to_sleep: sleeps shortly, and until it is woken if the node is still balanced then.
async fn try_to_sleep(m: &Machine, node: usize, highest: ZoneKind) {
    let tenth_ns = m.profile.jiffy_ns() * m.profile.hz.get() / 10;
    m.kswapd.borrow_mut()[node] = Some(m.clock.current());
    m.clock.park(Some(m.clock.now() + tenth_ns)).await;
    let woken = m.kswapd.borrow_mut()[node].take().is_none();
    if woken || !(m.is_balanced(node, highest) || m.is_hopeless(node)) {
        return;
    }
    m.kswapd.borrow_mut()[node] = Some(m.clock.current());
    m.clock.park(None).await;
}

/// mm/vmscan.c: balance_pgdat, 6.1. Returns the pages freed, or 1 if the node was balanced.
async fn balance(m: &Machine, task: &mut Task, node: usize, highest: ZoneKind) -> u64 {
    let target: u64 = {
        let mut mm = m.mm.borrow_mut();
        mm.events.pageoutrun += 1;
        let own = mm.zones.iter_mut().filter(|zone| zone.node == node && zone.kind <= highest);
        own.map(|zone| {
            zone.pcp.reclaim_active = true;
            zone.high.max(crate::mm::reclaim::CLUSTER.get())
        })
        .sum()
    };
    let (mut priority, mut total) = (DEF_PRIORITY.get(), 0);
    let mut needed = false;
    while priority >= 1 && !m.is_balanced(node, highest) {
        needed = true;
        let share = Share { target, kswapd: true, highest, ..Share::at(priority, Site::DirectReclaim) };
        let sum = shrink_node::shrink(m, task, node, share).await;
        total += sum.freed;
        task.run(m).await;
        task.begin();
        if sum.scanned < target || sum.freed == 0 {
            priority -= 1;
        }
    }
    let mut mm = m.mm.borrow_mut();
    let own = mm.root_lruvecs(node);
    mm.snapshot_refaults(&own);
    mm.zones.iter_mut().filter(|zone| zone.node == node).for_each(|zone| zone.pcp.reclaim_active = false);
    if needed { total } else { 1 }
}

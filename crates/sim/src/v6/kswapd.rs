//! kswapd of 4.8 and later, which balances a node, not zones.
//!
//! Models: wakeup_kswapd's check of the node, kswapd_try_to_sleep's tenth of a second, balance_pgdat with a priority
//! that rises while too little was scanned, and boosted reclaim. Leaves out: orders above 0, kcompactd, pfmemalloc
//! throttling.

use super::node::{self, Share};
use crate::Machine;
use crate::constant::constants;
use crate::fair::Fair;
use crate::reclaim::DEF_PRIORITY;
use crate::site::Site;
use crate::task::Task;
use crate::zone::{Zone, ZoneKind};

constants! {
    /// A node from which nothing came so often is left to direct reclaim.
    const MAX_RECLAIM_RETRIES: u32 = kernel(16, "mm/internal.h", "MAX_RECLAIM_RETRIES", "6.1");
}

impl Zone {
    /// zone_watermark_ok with the high watermark and what is withheld from requests for the highest zone.
    fn is_high(&self, highest: ZoneKind) -> bool {
        self.kind <= highest && self.managed > 0 && self.above(self.high + self.blocks.boost, highest)
    }
}

impl Machine {
    /// mm/vmscan.c: pgdat_balanced: one zone of the node above its high watermark is enough.
    pub fn is_balanced(&self, node: usize, highest: ZoneKind) -> bool {
        self.mm.borrow().zones.iter().any(|zone| zone.node == node && zone.is_high(highest))
    }

    /// mm/vmscan.c: pgdat_watermark_boosted: a zone of the node that may be reclaimed for has its watermarks raised.
    pub fn is_boosted(&self, node: usize, highest: ZoneKind) -> bool {
        let mm = self.mm.borrow();
        let mut own = mm.zones.iter().filter(|zone| zone.node == node && zone.kind <= highest && zone.managed > 0);
        own.any(|zone| zone.blocks.boost > 0)
    }

    /// A kswapd that is woken on the CPU of who woke it preempts him before his next allocation (kernel/sched/fair.c: check_preempt_wakeup;
    /// include/linux/sched/mm.h: might_alloc, PREEMPT_VOLUNTARY). Then what it was woken for is all that it is asked for; what is asked
    /// for in the rest of the waker's burst is for the next run.
    pub fn note_woken(&self, waker: &Task, node: usize) {
        let mut mm = self.mm.borrow_mut();
        let asked = mm.kswapd_highest.get(node).copied().flatten();
        let Some(woken) = mm.kswapd_woken.get_mut(node) else { return };
        let cpus = self.cpus.borrow();
        if !cpus.wakes_here(waker.cpu, woken.last_cpu, node) {
            return;
        }
        woken.cpu = Some(waker.cpu);
        woken.preempts = woken.fair.preempts((&waker.fair, waker.pending_ns()), waker.cpu, &cpus);
        if !woken.preempts {
            return;
        }
        woken.highest = asked;
        mm.kswapd_highest[node] = None;
    }

    fn what_for(&self, node: usize) -> Option<ZoneKind> {
        let mut mm = self.mm.borrow_mut();
        let woken_for = mm.kswapd_woken.get_mut(node).and_then(|woken| woken.highest.take());
        woken_for.or_else(|| mm.kswapd_highest.get_mut(node).and_then(Option::take))
    }

    pub fn is_hopeless(&self, node: usize) -> bool {
        self.mm.borrow().kswapd_failures.get(node).is_some_and(|failures| *failures >= MAX_RECLAIM_RETRIES.get())
    }

    /// Up to which zone kswapd is asked to balance its node (wakeup_kswapd: `kswapd_highest_zoneidx`).
    pub fn ask_kswapd(&self, node: usize, highest: ZoneKind) {
        if let Some(asked) = self.mm.borrow_mut().kswapd_highest.get_mut(node) {
            *asked = (*asked).max(Some(highest));
        }
    }

    /// A zone whose watermarks were boosted wakes its node's kswapd, which may be balanced otherwise (mm/page_alloc.c:
    /// rmqueue).
    #[inline]
    pub fn note_boost(&self, waker: &Task, zone: u8) {
        let mut mm = self.mm.borrow_mut();
        let slot = &mut mm.zones[usize::from(zone)];
        if std::mem::take(&mut slot.blocks.boosted) {
            let (node, kind) = (slot.node, slot.kind);
            drop(mm);
            self.ask_kswapd(node, kind);
            if self.is_hopeless(node) {
                return;
            }
            self.wake_kswapd_of(waker, node);
        }
    }
}

/// How a kswapd that slept was woken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Woken {
    /// For what, where that is known from the start, and the CPU of who woke it, on which it runs.
    highest: Option<ZoneKind>,
    cpu: Option<u16>,
    /// It preempts him.
    preempts: bool,
    /// Where it ran last, and how much.
    last_cpu: u16,
    fair: Fair,
}

/// A woken kswapd gets a CPU: that of who woke it before anybody else there, or one of its own, where it reads what it is asked for only
/// once it runs.
async fn take_cpu(m: &Machine, task: &mut Task, node: usize) {
    let woken = m.mm.borrow_mut().kswapd_woken.get_mut(node).map(|woken| (woken.cpu.take(), woken.preempts));
    let (cpu, preempts) = woken.unwrap_or_default();
    (task.pinned, task.preempts) = (cpu, cpu.is_some() && preempts);
    task.cpu = cpu.unwrap_or(task.cpu);
    task.work(Site::Work, m.costs.wakeup_ns);
    task.run(m).await;
    (task.pinned, task.preempts) = (None, false);
}

/// kswapd's life on one node, which begins asleep.
pub async fn live(m: &Machine, task: &mut Task, node: usize) {
    let mut highest = ZoneKind::HighMem;
    loop {
        // prepare_kswapd_sleep.
        if m.is_balanced(node, highest) || m.is_hopeless(node) {
            m.mm.borrow_mut().relieve_node(node);
            try_to_sleep(m, task, node, highest).await;
            task.begin();
            take_cpu(m, task, node).await;
        } else {
            task.begin();
        }
        highest = m.what_for(node).unwrap_or(highest);
        let failed = balance(m, task, node, highest).await == 0;
        if let Some(failures) = m.mm.borrow_mut().kswapd_failures.get_mut(node).filter(|_| failed) {
            *failures += 1;
        }
        task.run(m).await;
        highest = m.mm.borrow().kswapd_highest.get(node).copied().flatten().unwrap_or(highest);
    }
}

/// mm/vmscan.c: kswapd_try_to_sleep: a short sleep first; soundly only if that was not premature.
async fn try_to_sleep(m: &Machine, task: &mut Task, node: usize, highest: ZoneKind) {
    if let Some(woken) = m.mm.borrow_mut().kswapd_woken.get_mut(node) {
        (woken.last_cpu, woken.fair) = (task.cpu, task.fair);
    }
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

/// mm/vmscan.c: balance_pgdat, 6.1. Pages freed; a node that needed nothing counts as one.
async fn balance(m: &Machine, task: &mut Task, node: usize, highest: ZoneKind) -> u64 {
    let boosts: Vec<(usize, u64)> = {
        let mut mm = m.mm.borrow_mut();
        mm.events.pageoutrun += 1;
        let own = mm.zones.iter_mut().enumerate().filter(|(_, zone)| zone.node == node && zone.kind <= highest);
        own.map(|(place, zone)| {
            zone.blocks.reclaim_active = true;
            (place, zone.blocks.boost)
        })
        .collect()
    };
    let mut to_boost: u64 = boosts.iter().map(|(_, boost)| boost).sum();
    let (mut priority, mut total) = (DEF_PRIORITY.get(), 0);
    let mut needed = false;
    while priority >= 1 {
        let balanced = m.is_balanced(node, highest);
        // A node below its own watermarks, which include the boost, is first brought there without regard to it.
        if !balanced && to_boost > 0 {
            (to_boost, priority) = (0, DEF_PRIORITY.get());
        }
        if balanced && to_boost == 0 {
            break;
        }
        needed = true;
        // Boosted reclaim goes no further than priority 10, so that it does not come to writing.
        let gentle = to_boost > 0 && priority == DEF_PRIORITY.get() - 2;
        let target: u64 = {
            let mm = m.mm.borrow();
            let wanted = |&(zone, _): &(usize, u64)| {
                let zone = &mm.zones[zone];
                (zone.high + zone.blocks.boost).max(crate::reclaim::CLUSTER.get())
            };
            boosts.iter().map(wanted).sum()
        };
        // A boost is met without writing.
        let share = Share {
            target,
            may_writepage: to_boost == 0,
            kswapd: true,
            highest,
            ..Share::at(priority, Site::DirectReclaim)
        };
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
    let own = mm.root_lruvecs(node);
    mm.snapshot_refaults(&own);
    for (zone, boost) in boosts {
        let blocks = &mut mm.zones[zone].blocks;
        blocks.reclaim_active = false;
        blocks.boost = blocks.boost.saturating_sub(boost);
    }
    if needed { total } else { 1 }
}

//! kswapd of each node, which reclaims until its zones are above their high watermarks.
//!
//! Models: balance_pgdat of 2.6 (`kswapd_node` has that of 6.x): from priority 12 to 0 it scans each zone below its
//! high watermark and calls the shrinkers with the LRU pages of the zones up to the highest one below. Leaves out:
//! order > 0, congestion details, sleeping early, and that zones with plenty of free pages are spared (2.6.28).

use std::rc::Rc;

use crate::Machine;
use crate::mm::kswapd_node;
use crate::mm::memory::Mm;
use crate::mm::reclaim::{self, Pass};
use crate::mm::shrinker;
use crate::mm::zone::ZoneKind;
use crate::sched::site::Site;
use crate::sched::task::Task;

impl Machine {
    /// wake_all_kswapd: the node of every zone on the list that is below its low watermark.
    pub fn wake_kswapd(&self, zones: &[u8], highest: ZoneKind) {
        for &zone in zones {
            let (node, low) = {
                let mm = self.mm.borrow();
                let slot = &mm.zones[usize::from(zone)];
                (slot.node, slot.free <= slot.low)
            };
            // mm/vmscan.c: wakeup_kswapd, 5.0 and later, asks whether the node is balanced.
            let wanted = if self.profile.is_6() {
                self.ask_kswapd(node, highest);
                !self.is_hopeless(node) && !self.is_balanced(node, highest)
            } else {
                low
            };
            if wanted {
                self.wake_kswapd_of(node);
            }
        }
    }

    pub fn wake_kswapd_of(&self, node: usize) {
        let task = self.kswapd.borrow_mut().get_mut(node).and_then(Option::take);
        if let Some(task) = task {
            self.clock.wake(task);
        }
    }
}

pub async fn kswapd(m: Rc<Machine>, node: usize, cpu: u16) {
    let mut task = Task::new(node, cpu);
    task.memalloc = true;
    task.writes = crate::block::wbt::Purpose::Kswapd;
    task.bound_node = Some(node);
    if m.profile.is_6() {
        return kswapd_node::live(&m, &mut task, node).await;
    }
    loop {
        task.begin();
        balance(&m, &mut task, node).await;
        m.kswapd.borrow_mut()[node] = Some(m.clock.current());
        m.clock.park(None).await;
    }
}

/// mm/vmscan.c: balance_pgdat, 2.6.32, for order 0: repeats rounds until every zone is above its high watermark.
async fn balance(m: &Machine, task: &mut Task, node: usize) {
    let zones: Vec<usize> =
        (0..m.mm.borrow().zones.len()).filter(|&zone| m.mm.borrow().zones[zone].node == node).collect();
    loop {
        m.mm.borrow_mut().events.pageoutrun += 1;
        if balance_round(m, task, &zones).await {
            return;
        }
    }
}

/// One round through the priorities; true if every zone is above its high watermark.
async fn balance_round(m: &Machine, task: &mut Task, zones: &[usize]) -> bool {
    let (mut total_scanned, mut total_freed) = (0, 0);
    let mut well = true;
    for priority in (0..=reclaim::DEF_PRIORITY.get()).rev() {
        let Some((below, end, lru_pages)) = m.mm.borrow().zones_to_balance(zones, priority) else { return true };
        let pass = Pass { may_unmap: true, may_write: true, cpu: task.cpu, site: Site::DirectReclaim, kswapd: true };
        well = true;
        for zone in below {
            {
                let mm = m.mm.borrow();
                let slot = &mm.zones[zone];
                if slot.all_unreclaimable && priority != reclaim::DEF_PRIORITY.get() {
                    continue;
                }
                well &= slot.above(slot.high, end);
            }
            // Equal pressure on every zone.
            let sum = reclaim::shrink_zone(m, task, zone, priority, reclaim::CLUSTER.get(), pass).await;
            let shrunk = shrinker::shrink_slab(m, task, sum.scanned, lru_pages, true, Site::ShrinkSlab).await;
            total_freed += sum.freed + shrunk.counted();
            total_scanned += sum.scanned;
            m.mm.borrow_mut().note_unreclaimable(zone, shrunk.objects);
            task.run(m).await;
            task.begin();
        }
        if well {
            return true;
        }
        if total_scanned > 0 && priority < reclaim::DEF_PRIORITY.get() - 2 {
            m.congestion_wait(task, m.profile.jiffy_ns() * m.profile.hz.get() / 10).await;
            task.begin();
        }
        if total_freed >= reclaim::CLUSTER.get() {
            break;
        }
    }
    if total_scanned + total_freed == 0 {
        // All zones are unreclaimable: the kernel's loop spins here, but virtual time has to advance.
        m.congestion_wait(task, m.profile.jiffy_ns()).await;
        task.begin();
    }
    well
}

impl Mm {
    /// The zones up to the highest one below its high watermark (`end_zone`), that zone's kind, and the pages on their
    /// lists; `None` if no zone is below.
    fn zones_to_balance(&self, zones: &[usize], priority: u32) -> Option<(Vec<usize>, ZoneKind, u64)> {
        let is_short = |zone: usize| {
            let slot = &self.zones[zone];
            let given_up = slot.all_unreclaimable && priority != reclaim::DEF_PRIORITY.get();
            !given_up && !slot.above(slot.high, ZoneKind::Dma)
        };
        let end = zones.iter().copied().filter(|&zone| is_short(zone)).max()?;
        let below: Vec<usize> = zones.iter().copied().filter(|&zone| zone <= end).collect();
        let lru_pages = below.iter().map(|&zone| self.zone_lru_pages(zone)).sum();
        Some((below, self.zones[end].kind, lru_pages))
    }
}

//! kswapd: one task a node that brings its zones back up to their high marks.
//!
//! Models: balance_pgdat of 2.6: priority 12 to 0, each zone below high is scanned and the shrinkers are asked with a
//! divisor of the zones up to the highest that is short. Leaves out: order > 0, congestion details, sleeping early.

use std::rc::Rc;

use super::Machine;
use super::reclaim::{self, Pass};
use super::shrinker;
use super::site::Site;
use super::task::Task;
use super::v6;
use super::zone::ZoneKind;

impl Machine {
    /// wake_all_kswapd: the node of every zone on the list that is below its low mark.
    pub fn wake_kswapd(&self, zones: &[u8], highest: ZoneKind) {
        for &zone in zones {
            let (node, low) = {
                let mm = self.mm.borrow();
                let slot = &mm.zones[usize::from(zone)];
                (slot.node, slot.free <= slot.low)
            };
            // mm/vmscan.c: wakeup_kswapd, 4.8 and later, asks whether the node is balanced.
            let wanted = if self.profile.lru_per_node {
                self.ask_kswapd(node, highest);
                !self.is_balanced(node, highest) && !self.is_hopeless(node)
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
            self.note_woken(node);
            self.clock.wake(task);
        }
    }
}

pub async fn kswapd(m: Rc<Machine>, node: usize, cpu: u16) {
    let mut task = Task::new(node, cpu);
    task.memalloc = true;
    task.bound_node = Some(node);
    if m.profile.lru_per_node {
        return v6::kswapd::live(&m, &mut task, node).await;
    }
    loop {
        task.begin();
        balance(&m, &mut task, node).await;
        m.kswapd.borrow_mut()[node] = Some(m.clock.current());
        m.clock.park(None).await;
    }
}

async fn balance(m: &Machine, task: &mut Task, node: usize) {
    let zones: Vec<usize> =
        (0..m.mm.borrow().zones.len()).filter(|&zone| m.mm.borrow().zones[zone].node == node).collect();
    loop {
        let mut freed = 0;
        m.mm.borrow_mut().events.pageoutrun += 1;
        for priority in (0..=12).rev() {
            let (short, lru_pages) = {
                let mm = m.mm.borrow();
                // 2.6: end_zone is the highest zone below its high mark; only what lies up to it counts and is scanned.
                let is_short = |zone: usize| {
                    let slot = &mm.zones[zone];
                    slot.free < slot.high && !(priority < 12 && mm.unreclaimable(zone))
                };
                let end = zones.iter().copied().filter(|&zone| is_short(zone)).max();
                let below: Vec<usize> =
                    zones.iter().copied().filter(|&zone| Some(zone) <= end && end.is_some()).collect();
                let lru: u64 = below.iter().map(|&zone| mm.lru_pages(mm.zones[zone].lruvec)).sum();
                (below, lru)
            };
            if short.is_empty() {
                return;
            }
            let pass =
                Pass { may_unmap: true, may_write: true, cpu: task.cpu, site: Site::DirectReclaim, kswapd: true };
            let mut scanned = 0;
            for zone in short {
                // mm/vmscan.c: balance_pgdat, 2.6.32: a zone far above its high mark is left alone; up to 2.6.27 none is.
                let plenty = {
                    let mm = m.mm.borrow();
                    mm.zones[zone].free >= mm.zones[zone].high && !m.profile.ages_evenly
                };
                if plenty {
                    continue;
                }
                let sum = reclaim::shrink_zone(m, task, zone, priority, reclaim::CLUSTER.get(), pass).await;
                (freed, scanned) = (freed + sum.freed, scanned + sum.scanned);
                let shrunk = shrinker::shrink_slab(m, task, sum.scanned, lru_pages, true, Site::ShrinkSlab).await;
                freed += shrunk.counted(m);
                m.mm.borrow_mut().note_unreclaimable(zone, shrunk.objects);
                task.run(m).await;
                task.begin();
            }
            // mm/vmscan.c: balance_pgdat: a nap where it goes badly, and back to the gentlest priority where it goes at all.
            if scanned > 0 && priority < 10 {
                m.congestion_wait(task, m.profile.jiffy_ns() * m.profile.hz.get() / 10).await;
                task.begin();
            }
            if freed >= reclaim::CLUSTER.get() {
                break;
            }
        }
        if freed == 0 {
            // Nothing came of a whole round: wait for writeback before the next.
            m.wake_flusher();
            m.congestion_wait(task, m.profile.jiffy_ns() * m.profile.hz.get() / 10).await;
            task.begin();
        }
    }
}

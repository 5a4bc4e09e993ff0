//! Reclaim: the scan of the LRU lists and who starts it.
//!
//! Models: shrink_zone in clusters of 32 with the active list aged first, dirty, mapped, referenced and written-out
//! pages told apart, direct reclaim by priority, zone_reclaim with its bits, memory cgroup reclaim. Granularity:
//! a chunk (up to 32 pages of a file) is scanned, rotated and activated as one; its pages are freed one by one.
//! Leaves out: anonymous pages and swap, lumpy reclaim, the workingset shadow entries and multi-gen LRU of 6.x.

use super::Machine;
use super::alloc::Want;
use super::chunk::{ACTIVE, ChunkId, INACTIVE};
use super::kernel::ZoneReclaim;
use super::memory::Mm;
use super::shrinker;
use super::site::Site;
use super::task::Task;

/// SWAP_CLUSTER_MAX.
pub const CLUSTER: u64 = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    pub scanned: u64,
    pub freed: u64,
    /// Dirty pages met that this pass may not write.
    pub dirty: u64,
}

/// What a pass may do with the pages it meets.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    pub may_unmap: bool,
    pub may_write: bool,
    pub cpu: u16,
    pub site: Site,
    pub kswapd: bool,
}

impl Mm {
    /// Ages the active list by about a cluster (`shrink_active_list`): to the inactive head, not looked at again.
    fn age_active(&mut self, lruvec: u8) -> u64 {
        let mut scanned = 0;
        while scanned < CLUSTER {
            let Some(id) = self.chunks.tail(lruvec, ACTIVE) else { break };
            scanned += self.chunks.get(id).pages().max(1);
            self.chunks.get_mut(id).referenced = 0;
            self.chunks.move_to_head(id, INACTIVE);
        }
        scanned
    }

    /// Scans about a cluster at the inactive tail (`shrink_inactive_list`), limited to a zone where lists are shared.
    pub fn scan_inactive(&mut self, lruvec: u8, pass: Pass) -> Scanned {
        let mut sum = Scanned::default();
        // mm/vmscan.c: inactive_file_is_low, 2.6.32: the active list is aged while it is the longer one.
        let [inactive, active] = self.chunks.lruvecs[usize::from(lruvec)].pages;
        if active > inactive {
            sum.scanned += self.age_active(lruvec);
        }
        let mut looked = 0;
        while looked < CLUSTER {
            let Some(id) = self.chunks.tail(lruvec, INACTIVE) else { break };
            looked += self.chunks.get(id).pages().max(1);
            let freed = self.scan_chunk(id, pass, &mut sum);
            sum.freed += freed;
        }
        sum.scanned += looked;
        let zone = self.zones.iter_mut().find(|zone| zone.lruvec == lruvec);
        if let Some(zone) = zone {
            zone.scanned = if sum.freed > 0 { 0 } else { zone.scanned + sum.scanned };
        }
        let events = &mut self.events;
        if pass.kswapd {
            events.pgscan_kswapd += sum.scanned;
            events.pgsteal_kswapd += sum.freed;
        } else {
            events.pgscan_direct += sum.scanned;
            events.pgsteal_direct += sum.freed;
        }
        sum
    }

    /// One chunk at the tail: frees what may go and moves the rest on (`shrink_page_list`).
    fn scan_chunk(&mut self, id: ChunkId, pass: Pass, sum: &mut Scanned) -> u64 {
        let chunk = *self.chunks.get(id);
        let mapped = chunk.mapped & chunk.present;
        let busy = chunk.writeback | chunk.dirty;
        sum.dirty += u64::from(chunk.dirty.count_ones());
        // Mapped and referenced pages are activated; unmapped ones need a second call, which has activated them.
        let active = if pass.may_unmap { mapped & chunk.referenced } else { 0 };
        let kept = busy | active | if pass.may_unmap { 0 } else { mapped };
        let free = chunk.present & !kept;
        let freed = if free != 0 { self.drop_pages(id, free, pass.cpu) } else { 0 };
        if free == chunk.present {
            return freed;
        }
        let activate = active.count_ones() * 2 > (chunk.present & !free).count_ones();
        if pass.may_unmap {
            self.chunks.get_mut(id).referenced = 0;
        }
        self.chunks.move_to_head(id, if activate { ACTIVE } else { INACTIVE });
        freed
    }

    pub fn lru_pages(&self, lruvec: u8) -> u64 {
        self.chunks.lruvecs[usize::from(lruvec)].pages.iter().sum()
    }

    pub fn unreclaimable(&self, zone: usize) -> bool {
        let zone = &self.zones[zone];
        zone.scanned >= 6 * self.lru_pages(zone.lruvec)
    }

    /// The lists that hold pages of this zone: its own, and its node's of the memory cgroup.
    pub fn lruvecs_of(&self, zone: usize) -> [Option<u8>; 2] {
        let zone = &self.zones[zone];
        [Some(zone.lruvec), self.cgroup_lruvecs.get(zone.node).copied()]
    }
}

/// Charges the CPU that a scan took.
pub fn charge_scan(m: &Machine, task: &mut Task, sum: Scanned, site: Site) {
    let costs = &m.costs;
    task.work(site, sum.scanned * costs.scan_page_ns + sum.freed * costs.free_page_ns);
}

/// shrink_zone at one priority: up to `target` pages freed, `lru >> priority` scanned.
pub async fn shrink_zone(m: &Machine, task: &mut Task, zone: usize, priority: u32, target: u64, pass: Pass) -> Scanned {
    let mut sum = Scanned::default();
    let lruvecs = m.mm.borrow().lruvecs_of(zone);
    for lruvec in lruvecs.into_iter().flatten() {
        let mut left = (m.mm.borrow().lru_pages(lruvec) >> priority) as i64;
        while left > 0 {
            let step = m.mm.borrow_mut().scan_inactive(lruvec, pass);
            charge_scan(m, task, step, pass.site);
            left -= step.scanned.max(1) as i64;
            sum.scanned += step.scanned;
            sum.freed += step.freed;
            sum.dirty += step.dirty;
            if task.pending_ns() > m.costs.burst_ns {
                task.run(m).await;
            }
            // mm/vmscan.c: shrink_zone, 2.6.32: only kswapd, and only at the default priority, goes on past its target.
            if step.scanned == 0 || (sum.freed >= target && !pass.kswapd) {
                break;
            }
        }
    }
    if sum.dirty > 0 && pass.may_write {
        m.wake_flusher();
    }
    sum
}

/// mm/vmscan.c: try_to_free_pages, 2.6.32.
pub async fn direct(m: &Machine, task: &mut Task, zones: &[u8], want: Want) -> u64 {
    let pass = Pass { may_unmap: true, may_write: true, cpu: task.cpu, site: Site::DirectReclaim, kswapd: false };
    let mut total = Scanned::default();
    for priority in (0..=12).rev() {
        let mut round = Scanned::default();
        // The shrinkers' divisor counts the caller's zones only: small for GFP_KERNEL on a machine with highmem.
        let mut lru_pages = 0;
        for &zone in zones {
            let zone = usize::from(zone);
            lru_pages += m.mm.borrow().lru_pages(m.mm.borrow().zones[zone].lruvec);
            if priority < 12 && m.mm.borrow().unreclaimable(zone) {
                continue;
            }
            let sum = shrink_zone(m, task, zone, priority, CLUSTER, pass).await;
            round.scanned += sum.scanned;
            round.freed += sum.freed;
        }
        let freed = shrinker::shrink_slab(m, task, round.scanned, lru_pages, want.fs, Site::ShrinkSlab).await;
        total.freed += round.freed + freed;
        total.scanned += round.scanned;
        if total.freed >= CLUSTER {
            break;
        }
        if total.scanned > CLUSTER + CLUSTER / 2 && priority < 10 {
            m.wake_flusher();
            m.congestion_wait(task, m.costs.jiffy_ns * m.profile.hz / 10).await;
        }
    }
    task.run(m).await;
    total.freed
}

/// mm/vmscan.c: zone_reclaim and __zone_reclaim, 2.6.32. True if enough was freed for another try.
pub async fn zone_reclaim(m: &Machine, task: &mut Task, zone: u8, mode: u64, fs: bool) -> bool {
    let index = usize::from(zone);
    let (unmap, write) = (mode & 4 != 0, mode & 2 != 0);
    let (enter, slab_over) = {
        let mm = m.mm.borrow();
        let slot = &mm.zones[index];
        let cache = if unmap { slot.file } else { slot.file.saturating_sub(slot.mapped) };
        let slab_over = slot.slab_reclaimable > slot.min_slab;
        let full = cache <= slot.min_unmapped && !slab_over;
        // NOSCAN: a remote node that has CPUs of its own, or somebody is at it already.
        (!full && slot.node == task.node && !slot.reclaim_locked && !mm.unreclaimable(index), slab_over)
    };
    if !enter || m.profile.zone_reclaim == ZoneReclaim::None {
        return false;
    }
    m.mm.borrow_mut().zones[index].reclaim_locked = true;
    let pass = Pass { may_unmap: unmap, may_write: write, cpu: task.cpu, site: Site::NodeReclaim, kswapd: false };
    let mut sum = Scanned::default();
    // ZONE_RECLAIM_PRIORITY: it starts by looking at a sixteenth of the zone.
    for priority in (0..=4).rev() {
        let step = shrink_zone(m, task, index, priority, CLUSTER, pass).await;
        sum.scanned += step.scanned;
        sum.freed += step.freed;
        if sum.freed >= CLUSTER {
            break;
        }
    }
    if slab_over {
        // 2.6.32 passes `order` as lru_pages: 0 here, so that the divisor is 1 and every shrinker gets its cap.
        let divisor = match m.profile.zone_reclaim {
            ZoneReclaim::OrderAsLruPages => 0,
            _ => m.mm.borrow().lru_pages(m.mm.borrow().zones[index].lruvec),
        };
        shrinker::shrink_slab(m, task, sum.scanned, divisor, fs, Site::NodeReclaim).await;
    }
    task.run(m).await;
    let mut mm = m.mm.borrow_mut();
    mm.zones[index].reclaim_locked = false;
    let enough = sum.freed >= 1;
    if !enough {
        mm.events.zone_reclaim_failed += 1;
    }
    enough
}

/// try_to_free_mem_cgroup_pages, 6.1: the cgroup's own lists, all nodes.
pub async fn memcg(m: &Machine, task: &mut Task) -> u64 {
    let pass = Pass { may_unmap: true, may_write: false, cpu: task.cpu, site: Site::MemcgReclaim, kswapd: false };
    let mut freed = 0;
    for priority in (0..=12).rev() {
        let lruvecs = m.mm.borrow().cgroup_lruvecs.clone();
        for lruvec in lruvecs {
            let mut left = ((m.mm.borrow().lru_pages(lruvec) >> priority) as i64).max(CLUSTER as i64);
            while left > 0 && freed < CLUSTER {
                let step = m.mm.borrow_mut().scan_inactive(lruvec, pass);
                charge_scan(m, task, step, pass.site);
                freed += step.freed;
                left -= step.scanned.max(1) as i64;
                if step.scanned == 0 {
                    break;
                }
                if task.pending_ns() > m.costs.burst_ns {
                    task.run(m).await;
                }
            }
        }
        if freed >= CLUSTER {
            break;
        }
        // mm/vmscan.c: reclaim_throttle, 6.1: all dirty or under writeback: wake the flusher and wait for it.
        if priority < 10 {
            m.wake_flusher();
            m.congestion_wait(task, m.costs.jiffy_ns * m.profile.hz / 50).await;
        }
    }
    task.run(m).await;
    freed
}

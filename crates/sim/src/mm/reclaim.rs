//! Reclaim: the scan of the LRU lists, direct reclaim and zone reclaim.
//!
//! Models: shrink_zone in clusters of 32 pages after aging the active list, pages that are dirty, mapped, referenced or
//! under writeback, direct reclaim by priority, zone_reclaim_mode with its bits, `pageout`. A chunk (up to 32 pages of
//! a file) is scanned, rotated and activated as a whole; its pages are freed one by one. Leaves out: lumpy reclaim
//! (2.6.32), which no scenario can ask for (`refuse::not_yet`).

use crate::Machine;
use crate::constant::constants;
use crate::fs::inode::InodeId;
use crate::kernel::ZoneReclaim;
use crate::mm::alloc::Want;
use crate::mm::chunk::{ACTIVE, ChunkId, INACTIVE};
use crate::mm::memory::Mm;
use crate::mm::shrink_node;
use crate::mm::shrinker;
use crate::mm::zone::Zone;
use crate::sched::site::Site;
use crate::sched::task::{Mechanism, Task};
use crate::writeback;

constants! {
    pub const CLUSTER: u64 = kernel(32, "include/linux/swap.h", "SWAP_CLUSTER_MAX", "2.6.32");
    pub const DEF_PRIORITY: u32 = kernel(12, "include/linux/mmzone.h", "DEF_PRIORITY", "2.6.32");
    /// Zone reclaim starts by scanning a sixteenth of the zone.
    const ZONE_RECLAIM_PRIORITY: u32 = kernel(4, "mm/vmscan.c", "ZONE_RECLAIM_PRIORITY", "2.6.32");
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    pub scanned: u64,
    /// Of these, mapped pages that isolation skipped (3.3 and later): only moved on the list.
    pub passed: u64,
    /// Pages of zones above the requested ones: counted as scanned, and put back (6.x).
    pub skipped: u64,
    /// Pages moved from the active to the inactive list (PGREFILL): they take time, but do not count as pgscan.
    pub aged: u64,
    pub freed: u64,
    /// Mapped pages among the scanned.
    pub mapped: u64,
    /// Mapped pages among the freed, and freed pages with buffer_heads.
    pub unmapped: u64,
    pub buffered: u64,
    /// Dirty file pages that are not under writeback.
    pub dirty: u64,
}

impl Scanned {
    pub fn add(&mut self, step: Scanned) {
        self.scanned += step.scanned;
        self.passed += step.passed;
        self.skipped += step.skipped;
        self.aged += step.aged;
        self.freed += step.freed;
        self.mapped += step.mapped;
        self.unmapped += step.unmapped;
        self.buffered += step.buffered;
        self.dirty += step.dirty;
    }
}

/// The actions that a scan may take on a page.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    pub may_unmap: bool,
    pub may_write: bool,
    pub cpu: u16,
    pub site: Site,
    pub kswapd: bool,
}

/// How the active list is aged: whether mapped pages leave it (`reclaim_mapped`, 2.6.20).
#[derive(Clone, Copy, Debug)]
pub struct Age {
    takes_mapped: bool,
}

impl Mm {
    /// mm/vmscan.c: inactive_file_is_low, 2.6.32: the active list is aged while it is the longer one;
    /// inactive_list_is_low, 4.7.
    pub fn inactive_is_low(&self, lruvec: u8) -> bool {
        let [inactive, active] = self.chunks.lruvecs[usize::from(lruvec)].pages;
        if self.profile.is_6() { self.is_below_ratio(lruvec) } else { active > inactive }
    }

    /// Ages about `count` pages of the active list (`shrink_active_list`): moves them to the head of the inactive list.
    pub fn age_active(&mut self, lruvec: u8, count: u64) -> u64 {
        self.age(lruvec, count, true)
    }

    /// As `age_active`; on the shared list of 2.6.20 mapped pages stay unless `takes_mapped` and they were not
    /// referenced.
    fn age(&mut self, lruvec: u8, count: u64, takes_mapped: bool) -> u64 {
        let mut scanned = 0;
        while scanned < count {
            let Some(id) = self.chunks.tail(lruvec, ACTIVE) else { break };
            let one_list = self.profile.shared_lru;
            let folio = self.folio_of(id);
            if folio.is_large() {
                scanned += self.age_folio(&folio);
                continue;
            }
            let chunk = self.chunks.get_mut(id);
            let pages = chunk.pages().max(1);
            scanned += pages;
            let young = chunk.referenced & chunk.mapped;
            let in_use = chunk.mapped.count_ones() as u64 * 2 > pages;
            let stays = one_list && in_use && (!takes_mapped || u64::from(young.count_ones()) * 2 > pages);
            chunk.referenced = 0;
            self.chunks.move_to_head(id, if stays { ACTIVE } else { INACTIVE });
        }
        scanned
    }

    /// Scans about a cluster at the inactive tail (`shrink_inactive_list`) after aging a cluster of the active list if
    /// `age` is given.
    pub fn scan_cluster(&mut self, lruvec: u8, pass: Pass, age: Option<Age>, look: bool) -> Scanned {
        let mut sum = Scanned::default();
        if let Some(age) = age {
            sum.aged = self.age(lruvec, CLUSTER.get(), age.takes_mapped);
        }
        while look && sum.scanned < CLUSTER.get() {
            let Some(id) = self.chunks.tail(lruvec, INACTIVE) else { break };
            sum.scanned += self.chunks.get(id).pages().max(1);
            let freed = self.scan_chunk(id, pass, &mut sum);
            sum.freed += freed;
        }
        let zone = self.zones.iter_mut().find(|zone| zone.lruvec == lruvec);
        if let Some(zone) = zone {
            zone.scanned = if sum.freed > 0 { 0 } else { zone.scanned + sum.scanned + sum.aged };
        }
        self.events.note_scan(pass.kswapd, sum.scanned, sum.freed);
        sum
    }

    /// Frees the pages of a chunk that may be freed, and moves the others to the head of a list (`shrink_page_list`).
    pub fn scan_chunk(&mut self, id: ChunkId, pass: Pass, sum: &mut Scanned) -> u64 {
        let chunk = *self.chunks.get(id);
        let mapped = chunk.mapped & chunk.present;
        let busy = chunk.writeback | chunk.dirty;
        sum.dirty += u64::from(chunk.dirty.count_ones());
        sum.mapped += u64::from(mapped.count_ones());
        // mm/vmscan.c: shrink_page_list, 2.6.32: a dirty page that was not referenced since is written, one by one.
        let writes = chunk.dirty & !(chunk.writeback | chunk.referenced) & if pass.may_unmap { !0 } else { !mapped };
        // Dirty pages and pages under writeback go to the active list, and back to the tail once they are written.
        let moves_away = self.profile.is_6();
        let is_written = pass.may_write && writes != 0 && !moves_away;
        if is_written {
            self.pageout.push(Pageout { inode: chunk.inode, window: chunk.window, bits: writes });
        }
        // Mapped and referenced pages are activated; unmapped ones need a second call, which has activated them.
        let young = if pass.may_unmap { mapped & chunk.referenced } else { 0 };
        let left_to_flusher = chunk.dirty & !young != 0 && !is_written;
        self.chunks.get_mut(id).reclaim |= (left_to_flusher || chunk.writeback & chunk.present != 0) && moves_away;
        // mm/vmscan.c: page_check_references, 2.6.34 and later: the first reference through a page table keeps a page
        // inactive.
        let spares = self.profile.is_6();
        let active = if spares { young & chunk.used_once } else { young };
        let spared = young & !active;
        self.chunks.get_mut(id).used_once |= young;
        let kept = busy | active | spared | if pass.may_unmap { 0 } else { mapped };
        let free = chunk.present & !kept;
        sum.unmapped += u64::from((free & mapped).count_ones());
        sum.buffered += u64::from((free & chunk.buffers).count_ones());
        let freed = if free != 0 { self.evict(id, free, pass.cpu) } else { 0 };
        if free == chunk.present {
            return freed;
        }
        let mut activate = active.count_ones() * 2 > (chunk.present & !free).count_ones();
        let waits = (chunk.writeback | chunk.dirty & !young) & chunk.present;
        activate |= moves_away && waits != 0 && !is_written;
        if pass.may_unmap {
            self.chunks.get_mut(id).referenced = 0;
        }
        self.chunks.move_to_head(id, if activate { ACTIVE } else { INACTIVE });
        if activate {
            self.note_put_active(chunk.lruvec, u64::from((chunk.present & !free).count_ones()));
        }
        freed
    }

    pub fn lru_pages(&self, lruvec: u8) -> u64 {
        self.chunks.lruvecs[usize::from(lruvec)].pages.iter().sum()
    }

    /// mm/vmscan.c: zone_reclaimable_pages.
    pub fn zone_lru_pages(&self, zone: usize) -> u64 {
        self.lru_pages(self.zones[zone].lruvec)
    }

    pub fn unreclaimable(&self, zone: usize) -> bool {
        self.zones[zone].scanned >= 6 * self.zone_lru_pages(zone)
    }

    /// mm/vmscan.c: balance_pgdat: a zone scanned six times over while the shrinkers found nothing either is given up.
    pub fn note_unreclaimable(&mut self, zone: usize, shrunk_objects: u64) {
        let given_up = shrunk_objects == 0 && self.unreclaimable(zone);
        self.zones[zone].all_unreclaimable |= given_up;
    }

    /// The lists with pages of this zone: its own, and those of the memory cgroup on the same node.
    pub fn lruvecs_of(&self, zone: usize) -> [Option<u8>; 2] {
        let zone = &self.zones[zone];
        [Some(zone.lruvec), self.cgroup.lruvecs.get(zone.node).copied()]
    }
}

/// Dirty pages of one window that a scan may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pageout {
    pub inode: InodeId,
    pub window: u32,
    pub bits: u32,
}

/// mm/vmscan.c: pageout, 2.6.32, for the dirty pages of the last cluster: not into a congested queue, but for kswapd
/// and zone_reclaim (PF_SWAPWRITE in may_write_to_queue). The pages come to the tail of their list once they are
/// written (PG_reclaim).
pub async fn pageout(m: &Machine, task: &mut Task, pass: Pass) {
    if m.mm.borrow().pageout.is_empty() {
        return;
    }
    let dirty = std::mem::take(&mut m.mm.borrow_mut().pageout);
    for page in dirty {
        let waits = pass.kswapd || pass.site == Site::NodeReclaim;
        if !waits && m.device_of(page.inode).congested() {
            continue;
        }
        task.run(m).await;
        let was = std::mem::replace(&mut task.memalloc, true);
        writeback::write_for_reclaim(m, task, page).await;
        task.memalloc = was;
    }
}

/// Adds the CPU time of a scan.
pub fn charge_scan(m: &Machine, task: &mut Task, sum: Scanned, site: Site) {
    task.work(site, m.costs.of_scan(&sum));
}

impl Zone {
    /// mm/vmscan.c: shrink_zone, up to 2.6.27: shares of less than a cluster add up until they are one. A small zone is
    /// therefore not scanned in most rounds, but shrink_slab assumes a cluster in each.
    fn save_up(&mut self, shares: [u64; 2]) -> (i64, i64) {
        let [inactive, active] = [0, 1].map(|list| {
            self.due[list] += shares[list] + 1;
            if self.due[list] >= CLUSTER.get() { std::mem::take(&mut self.due[list]) as i64 } else { 0 }
        });
        (inactive, active)
    }
}

/// shrink_zone at one priority: up to `target` pages freed, `lru >> priority` scanned.
pub async fn shrink_zone(m: &Machine, task: &mut Task, zone: usize, priority: u32, target: u64, pass: Pass) -> Scanned {
    let mut sum = Scanned::default();
    // mm/vmscan.c: shrink_zone, 2.6.32, stops once it has freed more than a cluster, later kernels at a cluster;
    // kswapd, any task at DEF_PRIORITY, and all before 2.6.29 continue to the end of the share.
    let stop_at = target + 1;
    let evenly = m.profile.shared_lru;
    let stops = !pass.kswapd && priority < DEF_PRIORITY.get() && !evenly;
    let swappiness = m.swappiness();
    let age_rule = Age { takes_mapped: !evenly || m.mm.borrow_mut().reclaims_mapped(zone, priority, swappiness) };
    let lruvecs = m.mm.borrow().lruvecs_of(zone);
    for lruvec in lruvecs.into_iter().flatten() {
        let [inactive, active] = m.mm.borrow().chunks.lruvecs[usize::from(lruvec)].pages.map(|pages| pages >> priority);
        // Up to 2.6.27 each list has a separate share; later the active list's is spent on the list that is due.
        let (mut left, mut to_age) = if evenly {
            m.mm.borrow_mut().zones[zone].save_up([inactive, active])
        } else {
            ((inactive + active) as i64, 0)
        };
        while left > 0 || to_age > 0 {
            let step = {
                let mut mm = m.mm.borrow_mut();
                let age = if evenly { to_age > 0 } else { left > 0 && mm.inactive_is_low(lruvec) };
                mm.scan_cluster(lruvec, pass, age.then_some(age_rule), left > 0)
            };
            charge_scan(m, task, step, pass.site);
            pageout(m, task, pass).await;
            if evenly {
                left -= step.scanned as i64;
                to_age -= step.aged as i64;
            } else {
                left -= (step.scanned + step.aged) as i64;
            }
            sum.add(step);
            if task.pending_ns() > m.costs.burst_ns {
                task.run(m).await;
            }
            if step.scanned + step.aged == 0 || (sum.freed >= stop_at && stops) {
                break;
            }
        }
    }
    sum
}

/// mm/vmscan.c: try_to_free_pages.
pub async fn direct(m: &Machine, task: &mut Task, zones: &[u8], want: Want) -> u64 {
    task.enter(m, Mechanism::DirectReclaim);
    let freed = if m.profile.is_6() {
        shrink_node::direct(m, task, zones, want).await
    } else {
        direct_by_zone(m, task, zones, want).await
    };
    task.leave(m);
    freed
}

/// mm/vmscan.c: do_try_to_free_pages, 2.6.32.
async fn direct_by_zone(m: &Machine, task: &mut Task, zones: &[u8], want: Want) -> u64 {
    // shrink_page_list: without __GFP_FS nothing is written.
    let may_write = want.fs && !task.no_fs && !m.profile.is_6();
    let pass = Pass { may_unmap: true, may_write, cpu: task.cpu, site: Site::DirectReclaim, kswapd: false };
    let mut total = Scanned::default();
    for priority in (0..=DEF_PRIORITY.get()).rev() {
        let mut round = Scanned::default();
        // The shrinkers' divisor counts the caller's zones only: small for GFP_KERNEL on a machine with highmem.
        let mut lru_pages = 0;
        for &zone in zones {
            let zone = usize::from(zone);
            lru_pages += m.mm.borrow().zone_lru_pages(zone);
            if priority < DEF_PRIORITY.get() && m.mm.borrow().unreclaimable(zone) {
                continue;
            }
            let sum = shrink_zone(m, task, zone, priority, CLUSTER.get(), pass).await;
            round.scanned += sum.scanned;
            round.freed += sum.freed;
        }
        let freed = shrinker::shrink_slab(m, task, round.scanned, lru_pages, want.fs, Site::ShrinkSlab).await;
        total.freed += round.freed + freed.counted();
        total.scanned += round.scanned;
        if total.freed >= CLUSTER.get() {
            break;
        }
        if total.scanned > CLUSTER.get() + CLUSTER.get() / 2 {
            m.write_all_back();
        }
        let is_late = round.scanned > 0 && priority < DEF_PRIORITY.get() - 2;
        if is_late {
            m.congestion_wait(task, m.profile.jiffy_ns() * m.profile.hz.get() / 10).await;
        }
    }
    task.run(m).await;
    total.freed
}

/// mm/vmscan.c: zone_pagecache_reclaimable, 2.6.32, node_pagecache_reclaimable, 4.8.
fn cache_reclaimable(zones: &[&Zone], unmap: bool, write: bool) -> u64 {
    let sum = |of: fn(&Zone) -> u64| zones.iter().map(|zone| of(zone)).sum::<u64>();
    let mapped = if unmap { 0 } else { sum(|zone| zone.mapped) };
    sum(|zone| zone.file).saturating_sub(mapped).saturating_sub(if write { 0 } else { sum(|zone| zone.dirty) })
}

/// Work of one call of zone reclaim.
#[derive(Clone, Copy)]
struct Over {
    cache: bool,
    slab: bool,
}

impl Mm {
    /// The zones that are reclaimed together with this one: from 4.8 on the whole node.
    fn reclaimed_with(&mut self, zone: usize) -> &mut [Zone] {
        if self.profile.zone_reclaim != ZoneReclaim::PerNode {
            return &mut self.zones[zone..=zone];
        }
        let node = self.zones[zone].node;
        let first = self.zones.iter().position(|other| other.node == node).unwrap_or(zone);
        let count = self.zones[first..].iter().take_while(|other| other.node == node).count();
        &mut self.zones[first..first + count]
    }
}

/// mm/vmscan.c: zone_reclaim, 2.6.32, node_reclaim, 4.8: whether there is work (else FULL) that this task may do (else
/// NOSCAN).
fn enter_zone_reclaim(m: &Machine, task: &Task, zone: usize, unmap: bool, write: bool) -> Option<Over> {
    let mut mm = m.mm.borrow_mut();
    let zones = mm.reclaimed_with(zone);
    let all: Vec<&Zone> = zones.iter().collect();
    let sum = |of: fn(&Zone) -> u64| all.iter().map(|zone| of(zone)).sum::<u64>();
    let over = Over {
        cache: cache_reclaimable(&all, unmap, write) > sum(|zone| zone.min_unmapped),
        slab: sum(|zone| zone.slab_reclaimable) > sum(|zone| zone.min_slab),
    };
    let unreclaimable = all.iter().all(|zone| zone.all_unreclaimable);
    let full = !(over.cache || over.slab) || unreclaimable || m.profile.zone_reclaim == ZoneReclaim::None;
    // A node with CPUs is left to its own CPUs, a node under reclaim to the task that reclaims it
    // (ZONE_RECLAIM_LOCKED).
    if full || all.iter().any(|zone| zone.node != task.node || zone.reclaim_locked) {
        return None;
    }
    zones.iter_mut().for_each(|zone| zone.reclaim_locked = true);
    Some(over)
}

/// mm/vmscan.c: __zone_reclaim, 2.6.32. True if it freed anything (`nr_pages` is 1 << order).
pub async fn zone_reclaim(m: &Machine, task: &mut Task, zone: u8, mode: u64, fs: bool) -> bool {
    let index = usize::from(zone);
    let (unmap, write) = (mode & 4 != 0, mode & 2 != 0);
    let Some(over) = enter_zone_reclaim(m, task, index, unmap, write) else { return false };
    task.enter(m, Mechanism::NodeReclaim);
    let may_write = write && fs && !task.no_fs && !m.profile.is_6();
    let pass = Pass { may_unmap: unmap, may_write, cpu: task.cpu, site: Site::NodeReclaim, kswapd: false };
    let mut sum = Scanned::default();
    let per_node = m.profile.zone_reclaim == ZoneReclaim::PerNode;
    if per_node {
        sum.freed = shrink_node::node_reclaim(m, task, task.node, unmap, fs).await;
    } else if over.cache {
        // One freed page ends it between priorities, more than a cluster within one: if hardly a page can be freed,
        // every allocation scans a sixteenth of the zone, then an eighth, a quarter ...
        for priority in (0..=ZONE_RECLAIM_PRIORITY.get()).rev() {
            let step = shrink_zone(m, task, index, priority, CLUSTER.get(), pass).await;
            sum.scanned += step.scanned;
            sum.freed += step.freed;
            if sum.freed > 0 {
                break;
            }
        }
    }
    if over.slab && !per_node {
        sum.freed += shake_slab(m, task, index, sum.scanned, fs).await;
    }
    task.run(m).await;
    task.leave(m);
    let mut mm = m.mm.borrow_mut();
    mm.reclaimed_with(index).iter_mut().for_each(|zone| zone.reclaim_locked = false);
    if sum.freed == 0 {
        mm.events.zone_reclaim_failed += 1;
    }
    sum.freed > 0
}

/// Calls the shrinkers until the zone has fewer slab pages or they find no more objects.
async fn shake_slab(m: &Machine, task: &mut Task, zone: usize, scanned: u64, fs: bool) -> u64 {
    let before = m.mm.borrow().zones[zone].slab_reclaimable;
    loop {
        // 2.6.32 passes `order` as lru_pages: 0 here, so that the divisor is 1 and every shrinker gets its cap.
        let shrunk = shrinker::shrink_slab(m, task, scanned, 0, fs, Site::NodeReclaim).await;
        let freed = before.saturating_sub(m.mm.borrow().zones[zone].slab_reclaimable);
        if freed > 0 || shrunk.objects == 0 {
            return freed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cache_reclaimable;
    use crate::mm::zone::{Zone, ZoneKind};

    /// Node 1 of a guest of 6.1 whose recorder runs from its initramfs: 50 755 pages on the lists, 50 400 of them
    /// mapped.
    #[test]
    fn programs_of_an_initramfs_count_as_mapped_page_cache() {
        let mut zone = Zone::new(1, ZoneKind::Normal, 65_536, 65_000);
        (zone.file, zone.mapped) = (50_755, 50_400);
        assert_eq!(cache_reclaimable(&[&zone], false, true), 355);
        assert_eq!(cache_reclaimable(&[&zone], true, true), 50_755);
        // Without RECLAIM_WRITE dirty pages do not count.
        zone.dirty = 1_000;
        assert_eq!(cache_reclaimable(&[&zone], true, false), 49_755);
    }
}

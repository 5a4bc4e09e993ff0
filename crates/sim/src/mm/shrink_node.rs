//! Reclaim of 4.8 and later: shares of a node's lists and of the shrinkers' objects, by priority.
//!
//! Models: shrink_node, shrink_lruvec (a share of 1/2^priority of each list of file pages, a cluster of each in turn,
//! to the end or until enough pages are freed), direct reclaim and node_reclaim. Leaves out: writing dirty file pages,
//! and waits for them (PGDAT_DIRTY, PGDAT_WRITEBACK).

use crate::Machine;
use crate::constant::constants;
use crate::mm::alloc::Want;
use crate::mm::chunk::{ACTIVE, ChunkId, INACTIVE};
use crate::mm::memory::Mm;
use crate::mm::reclaim::{self, CLUSTER, DEF_PRIORITY, Pass, Scanned};
use crate::mm::super_cache;
use crate::mm::zone::ZoneKind;
use crate::sched::site::Site;
use crate::sched::task::Task;

constants! {
    const NODE_RECLAIM_PRIORITY: u32 = kernel(4, "mm/vmscan.c", "NODE_RECLAIM_PRIORITY", "6.1");
}

/// One call of shrink_node (`struct scan_control`).
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub priority: u32,
    /// Pages that are enough (`nr_to_reclaim`).
    pub target: u64,
    pub may_unmap: bool,
    pub kswapd: bool,
    pub fs: bool,
    pub site: Site,
    /// Pages of higher zones are left alone (`reclaim_idx`).
    pub highest: ZoneKind,
}

impl Share {
    /// Direct reclaim of a cluster without restrictions.
    pub fn at(priority: u32, site: Site) -> Share {
        Share {
            priority,
            target: CLUSTER.get(),
            may_unmap: true,
            kswapd: false,
            fs: true,
            site,
            highest: ZoneKind::HighMem,
        }
    }
}

impl Mm {
    /// mm/vmscan.c: inactive_is_low, 6.1, and what may_deactivate adds: observed refaults take the protection of the
    /// active list.
    pub fn inactive_below_ratio(&self, lruvec: u8) -> bool {
        if self.is_transitioning(lruvec) {
            return self.chunks.lruvecs[usize::from(lruvec)].pages[ACTIVE] > 0;
        }
        self.is_below_ratio(lruvec)
    }

    /// shrink_inactive_list: scans `count` pages at the tail; of a chunk that may be freed as a whole only as many as
    /// needed. Also returns the number of isolated pages.
    fn scan_inactive(&mut self, lruvec: u8, pass: Pass, count: u64, highest: ZoneKind) -> (Scanned, u64) {
        let mut sum = Scanned::default();
        let mut taken = 0;
        let held = self.chunks.lruvecs[usize::from(lruvec)].pages[INACTIVE];
        while sum.scanned < count {
            let Some(id) = self.chunks.tail(lruvec, INACTIVE) else { break };
            if self.zones[usize::from(self.chunks.get(id).zone)].kind > highest {
                // isolate_lru_folios: skipped pages do not count towards `count`; the whole list may be skipped.
                sum.skipped += self.chunks.get(id).pages().max(1);
                self.chunks.move_to_head(id, INACTIVE);
                if sum.skipped >= held {
                    break;
                }
                continue;
            }
            let chunk = *self.chunks.get(id);
            let left = count - sum.scanned;
            // isolate_lru_folios skips mapped pages that may not be unmapped.
            let skipped = if pass.may_unmap { 0 } else { chunk.mapped };
            taken += u64::from((chunk.present & !skipped).count_ones());
            sum.passed += u64::from((chunk.present & skipped).count_ones());
            if !self.evict_part(id, left, pass.cpu, &mut sum) {
                sum.scanned += chunk.pages().max(1);
                let freed = self.scan_chunk(id, pass, &mut sum);
                sum.freed += freed;
            }
        }
        self.events.note_scan(pass.kswapd, sum.scanned + sum.skipped, sum.freed);
        (sum, taken)
    }

    /// Frees at most `most` pages of a chunk of small folios that may all be freed; false if the chunk is not such a
    /// chunk or has no more pages.
    pub fn evict_part(&mut self, id: ChunkId, most: u64, cpu: u16, sum: &mut Scanned) -> bool {
        let chunk = *self.chunks.get(id);
        let most = most.next_multiple_of(1 << chunk.order);
        let kept = chunk.dirty | chunk.writeback | chunk.mapped;
        if chunk.anonymous || chunk.pages() <= most || kept & chunk.present != 0 {
            return false;
        }
        let mut bits = chunk.present;
        for _ in 0..most {
            bits &= bits.wrapping_sub(1);
        }
        let part = chunk.present & !bits;
        sum.scanned += most;
        sum.buffered += u64::from((part & chunk.buffers).count_ones());
        sum.freed += self.evict(id, part, cpu);
        true
    }

    /// Whether the next page to scan could be freed. In the kernel's list the pages of a chunk are mixed with those of
    /// other files, so that a chunk of dirty pages does not mean a batch of dirty pages.
    fn next_is_clean(&self, lruvec: u8, pass: Pass) -> bool {
        let Some(id) = self.chunks.tail(lruvec, INACTIVE) else { return false };
        let chunk = self.chunks.get(id);
        let kept = chunk.dirty | chunk.writeback | if pass.may_unmap { 0 } else { chunk.mapped };
        chunk.present & !kept != 0
    }

    /// Pages of each list to scan at a priority.
    pub fn scan_shares(&self, lruvec: u8, priority: u32, eligible: [(u64, u64); 2]) -> [u64; 2] {
        let pages = self.chunks.lruvecs[usize::from(lruvec)].pages;
        [INACTIVE, ACTIVE].map(|list| {
            let (own, all) = eligible[list];
            (pages[list] * own / all.max(1)) >> priority
        })
    }

    /// For each of a node's lists the pages in zones up to `highest`, and all its pages (lruvec_lru_size with
    /// `reclaim_idx`, since 4.11). For small zones alone the share is 0 at low priorities, and the list is not scanned.
    fn eligible(&self, node: usize, highest: ZoneKind) -> [(u64, u64); 2] {
        let own = self.zones.iter().enumerate().filter(|(_, zone)| zone.node == node);
        own.fold([(0, 0); 2], |sums, (place, zone)| {
            let lists = self.chunks.on_lists(place);
            [INACTIVE, ACTIVE].map(|list| {
                let (eligible, all) = sums[list];
                (eligible + if zone.kind <= highest { lists[list] } else { 0 }, all + lists[list])
            })
        })
    }
}

/// mm/vmscan.c: shrink_node, 6.1.
pub async fn shrink(m: &Machine, task: &mut Task, node: usize, share: Share) -> Scanned {
    let mut sum = Scanned::default();
    let first = m.mm.borrow().zones.iter().position(|zone| zone.node == node);
    let Some(first) = first else { return sum };
    let lruvecs = m.mm.borrow().lruvecs_of(first);
    for lruvec in lruvecs.into_iter().flatten() {
        shrink_lruvec(m, task, (first, lruvec), share, &mut sum).await;
    }
    sum.freed += super_cache::shrink(m, task, share).await;
    if let Some(failures) = m.mm.borrow_mut().kswapd_failures.get_mut(node).filter(|_| sum.freed > 0) {
        *failures = 0;
    }
    sum
}

/// mm/vmscan.c: shrink_lruvec, get_scan_count, 6.1.
async fn shrink_lruvec(m: &Machine, task: &mut Task, (zone, lruvec): (usize, u8), share: Share, sum: &mut Scanned) {
    let Share { priority, target, may_unmap, kswapd, site, .. } = share;
    let pass = Pass { may_unmap, may_write: false, cpu: task.cpu, site, kswapd };
    let eligible = {
        let mm = m.mm.borrow();
        mm.eligible(mm.zones[zone].node, share.highest)
    };
    let [mut inactive, mut active] = m.mm.borrow().scan_shares(lruvec, priority, eligible);
    let may_age = m.mm.borrow().inactive_below_ratio(lruvec);
    let to_the_end = !kswapd && priority == DEF_PRIORITY.get();
    let mut freed = 0;
    while inactive > 0 || active > 0 {
        let (step, all_dirty) = {
            let mut mm = m.mm.borrow_mut();
            let (mut step, taken) = mm.scan_inactive(lruvec, pass, inactive.min(CLUSTER.get()), share.highest);
            if active > 0 && may_age {
                step.aged = mm.age_active(lruvec, active.min(CLUSTER.get()));
            }
            (step, taken > 0 && step.dirty == taken && !mm.next_is_clean(lruvec, pass))
        };
        if all_dirty {
            m.write_all_back();
        }
        inactive = if step.scanned == 0 && step.skipped == 0 {
            0
        } else {
            inactive.saturating_sub(step.scanned.max(CLUSTER.get()))
        };
        active = active.saturating_sub(step.aged.max(CLUSTER.get()));
        reclaim::charge_scan(m, task, step, site);
        reclaim::pageout(m, task, pass).await;
        freed += step.freed;
        sum.add(step);
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
        if freed >= target && !to_the_end {
            break;
        }
    }
}

/// mm/vmscan.c: do_try_to_free_pages, shrink_zones, 6.1: every node of the zonelist once a round.
pub async fn direct(m: &Machine, task: &mut Task, zones: &[u8], want: Want) -> u64 {
    let mut nodes: Vec<usize> = zones.iter().map(|zone| m.mm.borrow().zones[usize::from(*zone)].node).collect();
    nodes.dedup();
    let mut total = 0;
    for priority in (0..=DEF_PRIORITY.get()).rev() {
        let share = Share { fs: want.fs, highest: want.kind, ..Share::at(priority, Site::DirectReclaim) };
        for &node in &nodes {
            total += shrink(m, task, node, share).await.freed;
        }
        if total >= CLUSTER.get() {
            break;
        }
    }
    for node in nodes {
        let mut mm = m.mm.borrow_mut();
        let own = mm.root_lruvecs(node);
        mm.snapshot_refaults(&own);
    }
    task.run(m).await;
    total
}

/// mm/vmscan.c: __node_reclaim, 6.1: one page is enough to end it between priorities, a cluster within one.
pub async fn node_reclaim(m: &Machine, task: &mut Task, node: usize, unmap: bool, fs: bool) -> u64 {
    let mut total = 0;
    for priority in (0..=NODE_RECLAIM_PRIORITY.get()).rev() {
        let share = Share { may_unmap: unmap, fs, ..Share::at(priority, Site::NodeReclaim) };
        total += shrink(m, task, node, share).await.freed;
        if total > 0 {
            break;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use crate::kernel;
    use crate::machine::build;
    use crate::mm::chunk::INACTIVE;
    use crate::mm::memory::Mm;
    use crate::mm::reclaim::Scanned;
    use crate::mm::slab::Object;
    use crate::mm::zone::ZoneKind;

    /// A guest of 6.1 with 384 MiB of page cache, 3072 pages in the DMA zone: for that zone alone
    /// get_scan_count comes to 3072 >> 12 = 0 pages where the whole list would give 65 572 >> 12 = 16.
    #[test]
    fn a_scan_for_a_small_zone_is_a_share_of_what_lies_there() {
        let profile = kernel::find("linux-6.1").expect("a profile");
        let mut mm = build::memory(&profile, &[384 << 20], 2);
        mm.chunks.set_on_lists(0, [3_072, 0]);
        mm.chunks.set_on_lists(1, [62_500, 0]);
        let lruvec = mm.zones[0].lruvec;
        mm.chunks.lruvecs[usize::from(lruvec)].pages[INACTIVE] = 65_572;
        let scanned = |highest, priority| {
            let eligible = mm.eligible(0, highest);
            mm.scan_shares(lruvec, priority, eligible)[INACTIVE]
        };
        assert_eq!([12, 11, 4].map(|priority| scanned(ZoneKind::Dma, priority)), [0, 1, 192]);
        assert_eq!([12, 11].map(|priority| scanned(ZoneKind::HighMem, priority)), [16, 32]);
        // lruvec_lru_size counts by list: once they are all on the active one, nothing of the inactive one is scanned
        // for that zone.
        mm.chunks.set_on_lists(0, [0, 3_072]);
        let eligible = mm.eligible(0, ZoneKind::Dma);
        assert_eq!(mm.scan_shares(lruvec, 1, eligible)[INACTIVE], 0);
    }

    /// Of 32 clean pages three are freed, in folios of four pages four. scan_chunk handles whole chunks and dirty ones.
    #[test]
    fn a_scan_takes_no_more_of_a_chunk_than_it_was_asked_for() {
        let mut mm = build::memory(&kernel::find("linux-6.18").expect("a profile"), &[256 << 20], 1);
        mm.zones[0].size_pcp(1);
        let inode = mm.inodes.add((1, 1), Object::default(), false);
        mm.inodes.get_mut(inode).size = 1 << 17;
        for page in 0..32 {
            mm.take_frames(0, 0, 0);
            mm.insert(inode, page, 0);
        }
        let id = mm.lookup(inode, 0).expect("cached").0;
        let take = |mm: &mut Mm, most| {
            let mut sum = Scanned::default();
            (mm.evict_part(id, most, 0, &mut sum), sum.scanned, sum.freed)
        };
        assert_eq!(take(&mut mm, 32), (false, 0, 0));
        assert_eq!((take(&mut mm, 3), mm.chunks.get(id).present), ((true, 3, 3), u32::MAX << 3));
        mm.chunks.get_mut(id).order = 2;
        assert_eq!(take(&mut mm, 3), (true, 4, 4));
        mm.chunks.get_mut(id).dirty = 1 << 31;
        assert_eq!(take(&mut mm, 3), (false, 0, 0));
    }
}

//! Reclaim of a node whose pages lie in generations (multi-gen LRU as of 6.3).
//!
//! Models: lru_gen_shrink_node, which does nothing for who may not write or not unmap (zone_reclaim_mode without both bits, a
//! kswapd that is only boosted), the priority that kswapd begins with, evict_folios in batches of 64 pages, the zones of a
//! generation from the highest eligible one down, and when a scan ends. The oldest generations are the inactive list, the
//! youngest and the one before it the active one; there are two of the oldest (four in all) from an aging until the older one has
//! nothing left. When a third generation is aged depends on the sizes of the oldest and the youngest (`should_run_aging`; 6.14: always).
//! Pages used by five calls are protected (the last tier's bits). Leaves out: protection of tiers by their refaults,
//! anonymous pages (`refuse`).

use super::node::Share;
use crate::Machine;
use crate::chunk::{ACTIVE, ChunkId, INACTIVE};
use crate::constant::constants;
use crate::kernel::Generations;
use crate::memory::Mm;
use crate::reclaim::{self, DEF_PRIORITY, Pass, Scanned};
use crate::task::Task;
use crate::zone::ZoneKind;

constants! {
    const MIN_LRU_BATCH: u64 = kernel(64, "include/linux/mmzone.h", "MIN_LRU_BATCH", "6.12");
    const MAX_LRU_BATCH: u64 = kernel(4096, "include/linux/mmzone.h", "MAX_LRU_BATCH", "6.12");
    const MIN_NR_GENS: u8 = kernel(2, "include/linux/mmzone.h", "MIN_NR_GENS", "6.12");
    /// Pages that are enough in any case (2 << order).
    const COMPACT_GAP: u64 = kernel(2, "include/linux/compaction.h", "compact_gap", "6.12");
}

/// mm/vmscan.c: lru_gen_shrink_node, 6.12: who may not write or not unmap would find little that is not reclaimed first anyway.
pub fn gives_up(m: &Machine, share: Share) -> bool {
    by_node(m) && !(share.may_writepage && share.may_unmap)
}

pub fn by_node(m: &Machine) -> bool {
    m.profile.lru_gen && m.profile.generations == Generations::ByNode
}

/// mm/vmscan.c: set_initial_priority, 6.12: at which what is expected to be reclaimed of `reclaimable` pages is enough.
#[must_use]
pub fn initial_priority(reclaimable: u64, target: u64) -> u32 {
    if target < MIN_LRU_BATCH.get() {
        return DEF_PRIORITY.get();
    }
    let fls = |pages: u64| pages.checked_ilog2().map_or(0, |bit| bit + 1);
    fls(reclaimable).saturating_sub(1 + fls(target - 1)).clamp(DEF_PRIORITY.get() / 2, DEF_PRIORITY.get())
}

/// The zones of a node, highest first: those that may be reclaimed for, and those above (`reclaim_idx`).
struct Zones {
    eligible: Vec<usize>,
    above: Vec<usize>,
}

impl Mm {
    /// mm/vmscan.c: should_abort_scan, 6.12: kswapd is done where all eligible zones have a batch more than they need.
    fn is_safe(&self, node: usize, highest: ZoneKind) -> bool {
        let mut eligible =
            self.zones.iter().filter(|zone| zone.node == node && zone.kind <= highest && zone.managed > 0);
        eligible.all(|zone| zone.above(zone.high + zone.blocks.boost + MIN_LRU_BATCH.get(), highest))
    }

    fn zones_for(&self, node: usize, highest: ZoneKind) -> Zones {
        let own = self.zones.iter().enumerate().rev().filter(|(_, zone)| zone.node == node);
        let (eligible, above): (Vec<_>, Vec<_>) = own.partition(|(_, zone)| zone.kind <= highest);
        let places = |zones: Vec<(usize, _)>| zones.into_iter().map(|(place, _)| place).collect();
        Zones { eligible: places(eligible), above: places(above) }
    }

    /// What lies at the end of the oldest generation of the first of these zones that has any there.
    fn oldest_of(&self, lruvec: u8, zones: &[usize]) -> Option<ChunkId> {
        let of_four = self.chunks.tail(lruvec, INACTIVE).is_some_and(|id| self.chunks.get(id).is_oldest());
        let mut held = zones.iter().filter(|zone| self.chunks.on_lists(**zone)[INACTIVE] > 0);
        held.find_map(|zone| {
            let tail = self.chunks.tail_of(lruvec, INACTIVE, *zone as u8);
            tail.filter(|id| !of_four || self.chunks.get(*id).is_oldest())
        })
    }

    /// mm/vmscan.c: sort_folio, 6.12: pages that calls have used five times or more go to the next generation, where they count from
    /// the beginning. How many did.
    fn protect(&mut self, id: ChunkId) -> u64 {
        let chunk = *self.chunks.get(id);
        let often = chunk.fully_referenced();
        if often == 0 {
            return 0;
        }
        if often == chunk.present {
            self.chunks.inc_gen(id, chunk.is_oldest());
            return chunk.pages();
        }
        let to = self.chunk_for(chunk.inode, chunk.window, chunk.zone, chunk.lruvec, ACTIVE);
        let other = *self.chunks.get(to);
        if other.buffers != 0 && other.buffer_zone != chunk.buffer_zone {
            // A chunk's buffer_heads are of one zone: these pages are not told from the others.
            return 0;
        }
        self.chunks.get_mut(to).buffer_zone = chunk.buffer_zone;
        self.chunks.move_pages(id, to, often);
        let moved = self.chunks.get_mut(to);
        moved.refs = moved.refs.map(|all| all & !often);
        moved.referenced &= !often;
        moved.used_once &= !often;
        u64::from(often.count_ones())
    }

    /// mm/vmscan.c: evict_folios, scan_folios, 6.12: a batch, and how many pages it looked at. Pages of zones above what is asked
    /// for grow younger and do not count as scanned.
    fn evict_batch(&mut self, lruvec: u8, zones: &Zones, pass: Pass) -> (Scanned, u64) {
        let mut sum = Scanned::default();
        let mut looked = 0;
        while sum.scanned < MIN_LRU_BATCH.get() && looked < MAX_LRU_BATCH.get() {
            if let Some(id) = self.oldest_of(lruvec, &zones.eligible) {
                let pages = self.chunks.get(id).pages().max(1);
                let protected = self.protect(id);
                if protected > 0 {
                    sum.aged += protected;
                    looked += protected;
                    continue;
                }
                // sort_folio: what waits for writeback goes to the next generation and does not count as isolated.
                let chunk = *self.chunks.get(id);
                let waiting = u64::from(((chunk.dirty | chunk.writeback) & chunk.present).count_ones());
                sum.scanned += pages - waiting;
                sum.aged += waiting;
                looked += pages;
                let freed = self.scan_chunk(id, pass, &mut sum);
                sum.freed += freed;
                if self.profile.lru_gen_reworked && self.chunks.get(id).is_youngest() {
                    self.chunks.get_mut(id).outer = false;
                }
                if waiting > 0 {
                    self.chunks.inc_gen(id, chunk.is_oldest());
                }
            } else if let Some(id) = self.oldest_of(lruvec, &zones.above) {
                let (pages, of_four) = (self.chunks.get(id).pages().max(1), self.chunks.get(id).is_oldest());
                sum.aged += pages;
                looked += pages;
                self.chunks.inc_gen(id, of_four);
            } else {
                break;
            }
        }
        self.events.note_scan(pass.kswapd, sum.scanned, sum.freed);
        // "isolated || !remaining ? scanned : 0", and nothing where that was the last of the oldest generation.
        let is_left = self.chunks.generations(lruvec) > MIN_NR_GENS.get();
        let went_on = is_left && (sum.scanned > 0 || looked >= MAX_LRU_BATCH.get());
        (sum, if went_on { looked } else { 0 })
    }

    /// mm/vmscan.c: get_nr_to_scan, 6.12: a share of all generations. Where they should age that is put off at the lowest pressure;
    /// else they do, and nothing is scanned until the next round.
    fn nr_to_scan(&mut self, lruvec: u8, priority: u32) -> u64 {
        let gens = self.chunks.generations(lruvec);
        let total = if gens > MIN_NR_GENS.get() { self.lru_pages(lruvec) } else { 0 };
        if priority == DEF_PRIORITY.get() || !self.should_age(lruvec, gens) {
            return total >> priority;
        }
        self.chunks.age(lruvec);
        0
    }

    /// mm/vmscan.c: should_run_aging, 6.12: never while there are more generations than one to evict from, always where there is none.
    /// In between the youngest is to hold no more than half of all pages, and the oldest no less than a quarter; from 6.14 on always.
    fn should_age(&self, lruvec: u8, gens: u8) -> bool {
        if gens != MIN_NR_GENS.get() + 1 || self.profile.lru_gen_reworked {
            return gens <= MIN_NR_GENS.get() + 1;
        }
        let [old, younger] = self.chunks.lruvecs[usize::from(lruvec)].pages;
        let (total, least) = (old + younger, u64::from(MIN_NR_GENS.get()));
        let may_be_young = younger * least > total;
        old * (least + 2) < total || may_be_young && self.chunks.youngest_pages(lruvec) * least > total
    }
}

/// mm/vmscan.c: try_to_shrink_lruvec, 6.12.
pub async fn shrink_lruvec(m: &Machine, task: &mut Task, (node, lruvec): (usize, u8), share: Share, sum: &mut Scanned) {
    // File pages are written by nobody: PGDAT_DIRTY, which lets kswapd, is the lists' alone.
    let pass =
        Pass { may_unmap: share.may_unmap, may_write: false, cpu: task.cpu, site: share.site, kswapd: share.kswapd };
    let zones = m.mm.borrow().zones_for(node, share.highest);
    let enough = share.target.max(COMPACT_GAP.get());
    let (mut looked, mut own) = (0, Scanned::default());
    loop {
        let wanted = m.mm.borrow_mut().nr_to_scan(lruvec, share.priority);
        if wanted == 0 {
            break;
        }
        let (step, went) = m.mm.borrow_mut().evict_batch(lruvec, &zones, pass);
        reclaim::charge_scan(m, task, step, share.site);
        own.add(step);
        looked += went;
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
        let safe = share.kswapd && m.mm.borrow().is_safe(node, share.highest);
        if went == 0 || looked >= wanted || sum.freed + own.freed >= enough || safe {
            break;
        }
    }
    // mm/vmscan.c: try_to_shrink_lruvec, 6.13: unqueued_dirty == file_taken.
    if own.dirty > 0 && own.scanned == 0 {
        m.write_all_back();
    }
    sum.add(own);
}

#[cfg(test)]
mod tests {
    use super::initial_priority;
    use crate::alloc::Want;
    use crate::build;
    use crate::chunk::{ACTIVE, INACTIVE};
    use crate::kernel::{self, Profile};
    use crate::memory::Mm;
    use crate::reclaim::{DEF_PRIORITY, Pass};
    use crate::site::Site;
    use crate::slab::Object;
    use crate::zone::ZoneKind;

    /// (total >> priority) is about what is wanted, within 6 and 12: fls(65536) - 1 - fls(511) = 17 - 1 - 9 = 7.
    #[test]
    fn kswapd_begins_where_a_scan_is_about_enough() {
        let cases = [(65_536, 512, 7), (65_536, 32, 12), (4_000, 512, 6), (1 << 24, 64, 12), (1 << 20, 1_024, 10)];
        for (reclaimable, target, priority) in cases {
            assert_eq!(initial_priority(reclaimable, target), priority, "{reclaimable} of {target}");
        }
    }

    /// A zone is safe 64 pages above its high watermark, and a node where all its zones are.
    #[test]
    fn kswapd_goes_on_until_every_zone_has_a_batch_to_spare() {
        let profile = kernel::find("linux-6.12").expect("a profile");
        let mut mm = build::memory(&profile, &[384 << 20], 2);
        for zone in &mut mm.zones {
            zone.free = zone.high + zone.reserve[ZoneKind::HighMem as usize] + 65;
        }
        assert!(mm.is_safe(0, ZoneKind::HighMem));
        mm.zones[0].free -= 1;
        assert!(!mm.is_safe(0, ZoneKind::HighMem));
    }

    fn machine() -> (Mm, u32, u8) {
        let profile = Profile { lru_gen: true, ..kernel::find("linux-6.12").expect("a profile") };
        let mut mm = build::memory(&profile, &[384 << 20], 2);
        let inode = mm.inodes.add((1, 1), Object::default(), false);
        mm.inodes.get_mut(inode).size = 1 << 20;
        let lruvec = mm.zones[0].lruvec;
        (mm, inode, lruvec)
    }

    /// inc_max_seq: MIN_NR_GENS generations are never evicted, so that what is in the youngest needs two agings; what a mapping
    /// used meanwhile is put off by one.
    #[test]
    fn the_youngest_generation_is_the_oldest_after_two_agings() {
        let (mut mm, inode, lruvec) = machine();
        let insert = |mm: &mut Mm, window: u64, in_fault: bool| {
            mm.take_frame(1, 0, Want::USER);
            mm.insert_as(inode, window * 32, 1, in_fault)
        };
        let (faulted, used) = (insert(&mut mm, 0, true), insert(&mut mm, 1, true));
        insert(&mut mm, 2, false);
        let held = |mm: &Mm| mm.chunks.lruvecs[usize::from(lruvec)].pages;
        assert_eq!(held(&mm), [1, 2], "a page read by a call begins in the oldest, one of a fault in the youngest");
        mm.chunks.age(lruvec);
        assert_eq!(held(&mm), [1, 2]);
        let chunk = mm.chunks.get_mut(used);
        (chunk.mapped, chunk.referenced) = (1, 1);
        let chunk = *chunk;
        mm.chunks.lruvecs[usize::from(lruvec)].walk.look_around(&chunk);
        mm.chunks.age(lruvec);
        assert_eq!(held(&mm), [2, 1]);
        assert_eq!([faulted, used].map(|id| mm.chunks.get(id).list), [0, 1]);
        mm.chunks.age(lruvec);
        assert_eq!(held(&mm), [3, 0], "its accessed bit was cleared by the walk");
        // Where the last walk found nothing and reclaim did not come by there is no walk.
        mm.chunks.get_mut(used).referenced = 1;
        mm.chunks.age(lruvec);
        assert_eq!((held(&mm), mm.chunks.get(used).referenced), ([3, 0], 1));
    }

    /// folio_inc_refs and sort_folio: the first access sets PG_referenced, the second PG_workingset, three more fill LRU_REFS_MASK:
    /// 3 + PG_workingset == BIT(2).
    #[test]
    fn a_page_that_calls_used_five_times_is_protected_once() {
        for (accesses, protected) in [(4, 0), (5, 1), (9, 1)] {
            let (mut mm, inode, lruvec) = machine();
            let pages = [0, 1].map(|page| {
                mm.take_frame(1, 0, Want::USER);
                mm.insert(inode, page, 1)
            });
            for _ in 0..accesses {
                mm.touch(pages[0], 1);
            }
            assert_eq!(mm.protect(pages[0]), protected, "{accesses} accesses");
            assert_eq!(mm.chunks.lruvecs[usize::from(lruvec)].pages, [2 - protected, protected]);
            let younger = mm.lookup(inode, 0).expect("cached").0;
            assert_eq!(mm.protect(younger), 0, "it counts from the beginning there");
        }
    }

    /// So many files of one page in the oldest generation, the one before the youngest, and the youngest.
    fn generations_of(mm: &mut Mm, inode: u32, pages: [u64; 3]) {
        let mut window = 0;
        for (generation, pages) in pages.into_iter().enumerate() {
            for _ in 0..pages {
                mm.take_frame(1, 0, Want::USER);
                let id = mm.insert(inode, window * 32, 1);
                if generation > 0 {
                    mm.chunks.make_younger(id, generation == 2);
                }
                window += 1;
            }
        }
    }

    /// should_run_aging with three generations: young * 2 > total, or old * 4 < total. From 6.14 on always.
    #[test]
    fn a_third_generation_is_aged_where_too_many_pages_are_young_or_too_few_old() {
        for (pages, by_size) in [([1, 4, 0], true), ([2, 6, 0], false), ([4, 0, 4], false), ([4, 0, 5], true)] {
            for (kernel, ages) in [("linux-6.12", by_size), ("linux-6.18", true)] {
                let profile = Profile { lru_gen: true, ..kernel::find(kernel).expect("a profile") };
                let mut mm = build::memory(&profile, &[384 << 20], 2);
                let inode = mm.inodes.add((1, 1), Object::default(), false);
                mm.inodes.get_mut(inode).size = 1 << 20;
                generations_of(&mut mm, inode, pages);
                let lruvec = mm.zones[0].lruvec;
                let total: u64 = pages.iter().sum();
                assert_eq!(mm.nr_to_scan(lruvec, DEF_PRIORITY.get()), 0, "{total} >> 12, and no aging yet");
                assert_eq!(mm.chunks.generations(lruvec), 3);
                assert_eq!(mm.nr_to_scan(lruvec, 0), if ages { 0 } else { total }, "{kernel} {pages:?}");
                assert_eq!(mm.chunks.generations(lruvec), if ages { 4 } else { 3 });
                assert_eq!(mm.nr_to_scan(lruvec, 0), total, "with a fourth there is no aging");
            }
        }
    }

    /// min_seq follows the oldest generation that has a page; where there is none to evict from nothing is scanned before an aging.
    #[test]
    fn four_generations_pass_one_by_one() {
        let (mut mm, inode, lruvec) = machine();
        generations_of(&mut mm, inode, [1, 4, 3]);
        let passed = |mm: &Mm| mm.chunks.lruvecs[usize::from(lruvec)].nonresident_age;
        assert_eq!(mm.nr_to_scan(lruvec, 0), 0);
        assert_eq!((mm.chunks.generations(lruvec), passed(&mm)), (4, 0));
        let oldest = mm.chunks.tail(lruvec, INACTIVE).expect("a page");
        mm.chunks.inc_gen(oldest, true);
        assert_eq!((mm.chunks.generations(lruvec), passed(&mm)), (3, 1), "it is of the next one now");
        assert_eq!(mm.chunks.lruvecs[usize::from(lruvec)].pages, [5, 3]);
        while let Some(id) = mm.chunks.tail(lruvec, INACTIVE) {
            mm.chunks.inc_gen(id, false);
        }
        assert_eq!((mm.chunks.generations(lruvec), passed(&mm)), (2, 2));
        assert_eq!([12, 11].map(|priority| mm.nr_to_scan(lruvec, priority)), [0, 0]);
        assert_eq!((mm.chunks.generations(lruvec), passed(&mm)), (3, 2));
    }

    /// walk_pte_range: pages of the oldest generation that a mapping used are put into what was the youngest.
    #[test]
    fn an_aging_takes_used_pages_out_of_the_oldest_generation() {
        let (mut mm, inode, lruvec) = machine();
        generations_of(&mut mm, inode, [2, 0, 0]);
        let used = mm.chunks.tail(lruvec, INACTIVE).expect("a page");
        (mm.chunks.get_mut(used).mapped, mm.chunks.get_mut(used).referenced) = (1, 1);
        mm.chunks.age(lruvec);
        assert_eq!(mm.chunks.lruvecs[usize::from(lruvec)].pages, [1, 1]);
        assert_eq!((usize::from(mm.chunks.get(used).list), mm.chunks.get(used).is_youngest()), (ACTIVE, false));
    }

    /// sort_folio: of a window with 24 dirty pages 8 are isolated, and a batch goes on until there are 64 of those.
    #[test]
    fn pages_that_wait_for_writeback_go_to_the_next_generation_and_are_not_scanned() {
        let (mut mm, inode, lruvec) = machine();
        for window in 0..10 {
            for page in 0..32 {
                mm.take_frame(1, 0, Want::USER);
                let id = mm.insert(inode, window * 32 + page, 1);
                if page >= 8 {
                    mm.set_dirty(id, 1 << page, 0);
                }
            }
        }
        let pass = Pass { may_unmap: true, may_write: false, cpu: 0, site: Site::DirectReclaim, kswapd: true };
        let zones = mm.zones_for(0, ZoneKind::HighMem);
        let (sum, looked) = mm.evict_batch(lruvec, &zones, pass);
        assert_eq!((sum.scanned, sum.freed, sum.aged, looked), (64, 64, 8 * 24, 8 * 32));
        assert_eq!(mm.chunks.lruvecs[usize::from(lruvec)].pages, [64, 8 * 24]);
        let sorted = mm.lookup(inode, 8).expect("cached").0;
        assert!(!mm.chunks.get(sorted).is_youngest() && mm.chunks.get(sorted).reclaim);
    }

    /// lru_gen_folio_seq, 6.18: gen = MIN_NR_GENS, so max_seq - 1, for PG_active without PG_workingset.
    #[test]
    fn from_6_14_on_a_page_of_a_fault_begins_before_the_youngest_generation() {
        for (kernel, youngest) in [("linux-6.12", true), ("linux-6.18", false)] {
            let profile = Profile { lru_gen: true, ..kernel::find(kernel).expect("a profile") };
            let mut mm = build::memory(&profile, &[384 << 20], 2);
            let inode = mm.inodes.add((1, 1), Object::default(), false);
            mm.take_frame(1, 0, Want::USER);
            let id = mm.insert_as(inode, 0, 1, true);
            assert_eq!((usize::from(mm.chunks.get(id).list), mm.chunks.get(id).is_youngest()), (ACTIVE, youngest));
        }
    }

    /// scan_folios: the zones of the oldest generation stand in lists of their own, of which the highest eligible one is taken
    /// first, to 64 pages. Those above are only moved on, and where nothing else is left the batch counts for nothing.
    #[test]
    fn the_highest_zone_is_reclaimed_first_and_those_above_grow_younger() {
        let profile = Profile { lru_gen: true, ..kernel::find("linux-6.12").expect("a profile") };
        let mut mm = build::memory(&profile, &[384 << 20], 2);
        let inode = mm.inodes.add((1, 1), Object::default(), false);
        mm.inodes.get_mut(inode).size = 1 << 20;
        let read = |mm: &mut Mm, window: u64, zone: u8| {
            for page in 0..32 {
                mm.take_frame(zone, 0, Want::USER);
                mm.insert(inode, window * 32 + page, zone);
            }
        };
        [(0, 0), (1, 1), (2, 1), (3, 1)].into_iter().for_each(|(window, zone)| read(&mut mm, window, zone));
        let lruvec = mm.zones[0].lruvec;
        let pass = Pass { may_unmap: true, may_write: false, cpu: 0, site: Site::DirectReclaim, kswapd: true };
        let batch = |mm: &mut Mm, highest| {
            let zones = mm.zones_for(0, highest);
            let (sum, looked) = mm.evict_batch(lruvec, &zones, pass);
            ((sum.scanned, sum.freed, looked), [0, 1].map(|zone| mm.chunks.on_lists(zone)))
        };
        assert_eq!(batch(&mut mm, ZoneKind::HighMem), ((64, 64, 64), [[32, 0], [32, 0]]));
        assert_eq!(batch(&mut mm, ZoneKind::Dma), ((32, 32, 0), [[0, 0], [0, 32]]), "nothing is left to evict");
        read(&mut mm, 4, 1);
        // What came in meanwhile is of the generation before the youngest.
        mm.chunks.age(lruvec);
        assert_eq!(batch(&mut mm, ZoneKind::Dma), ((0, 0, 0), [[0, 0], [0, 64]]));
        assert_eq!((mm.events.pgscan_kswapd, mm.events.pgsteal_kswapd), (96, 96));
    }
}

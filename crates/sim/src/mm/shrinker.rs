//! The dentry and inode shrinkers.
//!
//! Models: shrink_slab's arithmetic (4 x scanned / seeks x max_pass / (lru_pages + 1), capped at 2 x max_pass, in
//! batches of 128 with the remainder carried over), prune_dcache's second chance, prune_icache, which drops an unused
//! inode's clean pages and then the inode. Leaves out: per-super-block and per-memcg shrinkers of later kernels.

use crate::Machine;
use crate::constant::constants;
use crate::fs::inode::{InodeId, List, Place};
use crate::mm::memory::Mm;
use crate::mm::slab::CacheKind;
use crate::sched::site::Site;
use crate::sched::task::Task;

constants! {
    const BATCH: u64 = kernel(128, "mm/vmscan.c", "SHRINK_BATCH", "2.6.32");
    /// Cost of an object, in page reads.
    const SEEKS: u64 = kernel(2, "include/linux/mm.h", "DEFAULT_SEEKS", "2.6.32");
}

/// Objects that each shrinker has still to scan (`shrinker->nr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Owed {
    dentries: u64,
    inodes: u64,
    /// 3.1 and later: one shrinker for both.
    pub together: u64,
}

/// Result of a call of the shrinkers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shrunk {
    pub objects: u64,
    /// Objects scanned.
    pub visited: u64,
    /// Page cache pages freed with their inodes (pginodesteal).
    pub pages: u64,
    /// Pages of slabs that this emptied (`reclaim_state->reclaimed_slab`).
    pub slab_pages: u64,
}

impl Shrunk {
    /// Pages that the caller counts as progress.
    pub fn counted(self) -> u64 {
        self.slab_pages
    }
}

/// Calls both shrinkers for their shares.
pub async fn shrink_slab(m: &Machine, task: &mut Task, scanned: u64, lru_pages: u64, fs: bool, site: Site) -> Shrunk {
    // fs/dcache.c, fs/inode.c: without __GFP_FS both return -1.
    let may = fs && !task.no_fs;
    let pressure = m.knobs.borrow().vfs_cache_pressure;
    let scanned = scanned.max(u64::from(scanned == 0) * crate::mm::reclaim::CLUSTER.get());
    let mut shrunk = Shrunk::default();
    for kind in [CacheKind::Dentry, CacheKind::Inode] {
        let unused = match kind {
            CacheKind::Dentry => m.mm.borrow().inodes.with_dentry(),
            _ => m.mm.borrow().inodes.unused(),
        };
        // (nr_unused / 100) * sysctl_vfs_cache_pressure, in that order: below 100 objects it asks for none.
        let max_pass = unused / 100 * pressure;
        let mut owed = m.owed.get();
        let nr = if kind == CacheKind::Dentry { &mut owed.dentries } else { &mut owed.inodes };
        *nr = owe(*nr, scanned, max_pass, lru_pages + 1);
        let batches = if may { *nr / BATCH.get() } else { 0 };
        *nr -= batches * BATCH.get();
        m.owed.set(owed);
        for batch in 0..batches {
            let before = slab_pages(m);
            let done = match kind {
                CacheKind::Dentry => m.mm.borrow_mut().prune_dentries(BATCH.get(), task.cpu),
                _ => m.mm.borrow_mut().prune_inodes(BATCH.get(), task.cpu),
            };
            shrunk.slab_pages += before.saturating_sub(slab_pages(m));
            shrunk.objects += done.objects;
            shrunk.pages += done.pages;
            m.mm.borrow_mut().events.slabs_scanned += BATCH.get();
            task.work(site, done.visited * m.costs.prune_object_ns + done.pages * m.costs.free_page_ns);
            if done.visited == 0 {
                // The rest finds its list empty too, and counts as scanned nevertheless.
                m.mm.borrow_mut().events.slabs_scanned += (batches - batch - 1) * BATCH.get();
                break;
            }
            if task.pending_ns() > m.costs.burst_ns {
                task.run(m).await;
            }
        }
    }
    shrunk
}

/// shrink_slab: objects that a shrinker has to scan after `scanned` pages were scanned, at most twice all its objects.
fn owe(nr: u64, scanned: u64, max_pass: u64, divisor: u64) -> u64 {
    let delta = u128::from(4 * scanned / SEEKS.get()) * u128::from(max_pass) / u128::from(divisor);
    (u128::from(nr) + delta).min(2 * u128::from(max_pass)) as u64
}

pub fn slab_pages(m: &Machine) -> u64 {
    m.mm.borrow().sum(|zone| zone.slab)
}

impl Mm {
    /// Whether the dentry at the tail stays. A dentry in use leaves the list until the last dput, which puts it back as
    /// referenced; a referenced one moves to the head.
    pub fn keeps_dentry(&mut self, id: InodeId) -> bool {
        let again = self.inodes.new_are_referenced;
        let inode = self.inodes.get_mut(id);
        if inode.opens > 0 {
            (inode.pinned_dentry, inode.referenced) = (true, again);
            self.inodes.put(id, Place::Held);
        } else if std::mem::take(&mut inode.referenced) {
            self.inodes.put(id, Place::Dentry);
        } else {
            return false;
        }
        true
    }

    /// fs/dcache.c: prune_dcache, 2.6, dentry_lru_isolate, 3.12: scans dentries of the list; an unused dentry frees its
    /// inode for pruning.
    pub fn prune_dentries(&mut self, count: u64, cpu: u16) -> Shrunk {
        let mut shrunk = Shrunk::default();
        while shrunk.visited < count
            && let Some(id) = self.inodes.tail(List::Dentries)
        {
            shrunk.visited += 1;
            if !self.keeps_dentry(id) {
                // fs/inode.c: __inode_add_lru, 5.15 and later: page cache keeps an inode off the list
                // (mapping_shrinkable).
                let held = self.cache_holds(id);
                self.inodes.put(id, if held { Place::Cached } else { Place::Unused });
                self.free_dentry(id, cpu);
                shrunk.objects += 1;
            }
        }
        shrunk
    }

    /// fs/inode.c: prune_icache, 2.6, inode_lru_isolate, 2.6.37: scans inodes of the list. Up to 5.14 the clean
    /// unmapped pages of an unused one go first (pginodesteal), then it.
    pub fn prune_inodes(&mut self, count: u64, cpu: u16) -> Shrunk {
        let cache_holds = self.profile.is_6();
        let mut shrunk = Shrunk::default();
        while shrunk.visited < count
            && let Some(id) = self.inodes.tail(List::Inodes)
        {
            shrunk.visited += 1;
            let held = self.cache_holds(id);
            if self.inodes.keeps_unused(id, held) {
                continue;
            }
            // 5.15 and later: shadow entries go first, and the walk repeats with this inode (LRU_RETRY).
            if cache_holds && self.shadows.forget(id) {
                self.events.pginodesteal += 1;
                continue;
            }
            if self.inodes.get(id).pages > 0 {
                let dropped = self.invalidate(id, 0, false, cpu);
                self.events.pginodesteal += dropped;
                shrunk.pages += dropped;
            }
            if self.inodes.get(id).pages > 0 {
                self.inodes.put(id, Place::Unused);
            } else {
                self.free_inode(id, cpu);
                shrunk.objects += 1;
            }
        }
        shrunk
    }
}

#[cfg(test)]
mod tests {
    use super::{List, Place, owe};
    use crate::fs::inode::InodeId;
    use crate::kernel;
    use crate::machine::build;
    use crate::mm::memory::Mm;
    use crate::mm::slab::CacheKind;

    /// shrink_slab, 2.6.32: delta = (4 * scanned / seeks) * max_pass / (lru_pages + 1), and no more than 2 * max_pass
    /// owed.
    #[test]
    fn as_large_a_part_of_the_objects_is_asked_for_as_was_scanned_of_the_pages_twice() {
        // 32 of 1000 pages, of 10 000 objects: 64 * 10000 / 1001.
        assert_eq!(owe(0, 32, 10_000, 1_001), 639);
        assert_eq!(owe(100, 32, 10_000, 1_001), 739, "what was not done before stays owed");
        assert_eq!(owe(0, 32, 10_000, 1), 20_000, "zone_reclaim of 2.6.32: each asks for all it may");
        assert_eq!(owe(0, 32, 0, 1_001), 0);
    }

    /// Files with dentries, each with some pages; the dentry of the first was used recently.
    fn files(kernel: &str, files: u64, pages: u64) -> (Mm, Vec<InodeId>) {
        let mut mm = build::memory(&kernel::find(kernel).expect("a profile"), &[256 << 20], 1);
        mm.zones.iter_mut().for_each(|zone| zone.size_pcp(1));
        let made = (0..files).map(|file| {
            let [object, dentry] =
                [CacheKind::Inode, CacheKind::Dentry].map(|kind| build::add_object(&mut mm, kind, 1).expect("room"));
            let id = mm.inodes.add((1, file), object, false);
            (mm.inodes.get_mut(id).dentry, mm.inodes.get_mut(id).referenced) = (dentry, file == 0);
            for page in 0..pages {
                mm.take_frames(1, 0, 0);
                mm.insert(id, page, 1);
            }
            mm.inodes.put(id, Place::Dentry);
            id
        });
        let made = made.collect();
        (mm, made)
    }

    #[test]
    fn a_dentry_that_was_used_goes_round_once_more_and_the_others_leave_their_inodes() {
        for kernel in ["linux-2.6.32", "linux-6.1"] {
            let (mut mm, made) = files(kernel, 3, 0);
            let shrunk = mm.prune_dentries(2, 0);
            assert_eq!((shrunk.visited, shrunk.objects, mm.inodes.with_dentry()), (2, 1, 2), "{kernel}");
            assert_eq!((mm.inodes.get(made[1]).place, mm.inodes.tail(List::Inodes)), (Place::Unused, Some(made[1])));
            let shrunk = mm.prune_dentries(9, 0);
            assert_eq!(
                (shrunk.visited, shrunk.objects, mm.inodes.with_dentry()),
                (2, 2, 0),
                "{kernel}: as many as there are"
            );
        }
    }

    /// prune_icache drops an unused inode's pages with it; from 5.15 on they keep it off the list (mapping_shrinkable).
    #[test]
    fn the_pages_of_an_unused_inode_go_with_it_up_to_5_14_and_keep_it_later() {
        for (kernel, freed) in [("linux-2.6.32", 2), ("linux-6.1", 0)] {
            let (mut mm, _) = files(kernel, 3, 4);
            mm.prune_dentries(3, 0);
            // A second chance, where inodes that were just put on the list have one (up to 4.14).
            let shrunk = mm.prune_inodes(9, 0);
            assert_eq!(
                (shrunk.objects, shrunk.pages, mm.events.pginodesteal),
                (freed, 4 * freed, 4 * freed),
                "{kernel}"
            );
            assert_eq!(mm.zones[1].file, 4 * (3 - freed), "{kernel}");
            mm.check().expect("no page is lost");
        }
    }
}

//! Shadow entries of evicted pages, and refaults.
//!
//! Models: mm/workingset.c: the age of the list at each eviction (a shadow entry), the refault distance compared with
//! the active list, activation on refault, and that activated refaults end the protection of the active list (4.12). A
//! window of pages has one age, that of the last eviction. Leaves out: buckets of ages.

use std::ops::Range;

use crate::fs::inode::{InodeId, KeyMap};
use crate::mm::chunk::{ACTIVE, ChunkId, INACTIVE};
use crate::mm::memory::Mm;

/// The last eviction from a window.
#[derive(Clone, Copy, Debug, Default)]
struct Shadow {
    age: u32,
    /// The evicted pages of the window that have not come back.
    pages: u32,
    lruvec: u8,
}

#[derive(Debug, Default)]
pub struct Shadows(KeyMap<InodeId, Vec<Shadow>>);

impl Shadows {
    fn put(&mut self, inode: InodeId, window: u32, shadow: Shadow) {
        let all = self.0.entry(inode).or_default();
        let place = window as usize;
        if all.len() <= place {
            all.resize(place + 1, Shadow::default());
        }
        all[place] = Shadow { pages: all[place].pages | shadow.pages, ..shadow };
    }

    /// Takes the shadow entry of a page that comes back.
    fn take(&mut self, inode: InodeId, window: u32, bit: u32) -> Option<Shadow> {
        let shadow = self.0.get_mut(&inode)?.get_mut(window as usize)?;
        let found = shadow.pages & bit != 0;
        shadow.pages &= !bit;
        found.then_some(*shadow)
    }

    /// Whether these windows have shadow entries.
    pub fn any(&self, inode: InodeId, windows: Range<u32>) -> bool {
        let all = self.0.get(&inode).map_or(&[][..], Vec::as_slice);
        windows.filter_map(|window| all.get(window as usize)).any(|shadow| shadow.pages != 0)
    }

    /// Removes the file's shadow entries; returns whether it had any.
    pub fn forget(&mut self, inode: InodeId) -> bool {
        self.0.remove(&inode).is_some_and(|all| all.iter().any(|shadow| shadow.pages != 0))
    }
}

impl Mm {
    /// Frees pages and leaves shadow entries: workingset_eviction, then __remove_mapping.
    pub fn evict(&mut self, id: ChunkId, bits: u32, cpu: u16) -> u64 {
        let chunk = *self.chunks.get(id);
        let bits = bits & chunk.present;
        if self.profile.is_6() && chunk.inode != self.ownerless {
            let lruvec = &mut self.chunks.lruvecs[usize::from(chunk.lruvec)];
            let age = lruvec.nonresident_age as u32;
            lruvec.nonresident_age += u64::from(bits.count_ones());
            let shadow = Shadow { age, pages: bits, lruvec: chunk.lruvec };
            self.shadows.put(chunk.inode, chunk.window, shadow);
        }
        self.drop_pages(id, bits, cpu)
    }

    /// workingset_refault: whether a page that comes into memory is activated.
    pub fn refaults(&mut self, inode: InodeId, page: u64) -> bool {
        if !self.profile.is_6() {
            return false;
        }
        let (window, bit) = ((page / 32) as u32, 1 << (page % 32));
        let Some(shadow) = self.shadows.take(inode, window, bit) else { return false };
        let own = self.chunks.lruvecs[usize::from(shadow.lruvec)].nonresident_age as u32;
        let distance = u64::from(own.wrapping_sub(shadow.age));
        self.events.workingset_refault += 1;
        if distance > self.chunks.lruvecs[usize::from(shadow.lruvec)].pages[ACTIVE] {
            return false;
        }
        self.events.workingset_activate += 1;
        let lruvec = &mut self.chunks.lruvecs[usize::from(shadow.lruvec)];
        lruvec.activated += 1;
        lruvec.nonresident_age += 1;
        true
    }

    /// workingset_activation and update_page_reclaim_stat, for pages that a second access puts on the active list.
    pub fn note_activated(&mut self, lruvec: usize, pages: u64) {
        let lruvec = &mut self.chunks.lruvecs[lruvec];
        lruvec.nonresident_age += pages;
    }

    /// mm/vmscan.c: snapshot_refaults, at the end of reclaim: of the node's own lists, or of the cgroup's.
    pub fn snapshot_refaults(&mut self, lruvecs: &[u8]) {
        for &lruvec in lruvecs {
            let lruvec = &mut self.chunks.lruvecs[usize::from(lruvec)];
            lruvec.activated_before = lruvec.activated;
        }
    }

    /// The lists of a node that do not belong to a cgroup.
    pub fn root_lruvecs(&self, node: usize) -> Vec<u8> {
        let own = self.zones.iter().filter(|zone| zone.node == node);
        own.flat_map(|zone| [zone.lruvec, zone.anonymous_lruvec]).collect()
    }

    /// Refaults were activated since reclaim last ended: a new working set is being established (4.12).
    pub fn is_transitioning(&self, lruvec: u8) -> bool {
        let lruvec = &self.chunks.lruvecs[usize::from(lruvec)];
        self.profile.is_6() && lruvec.activated != lruvec.activated_before
    }

    /// Moves one page of a chunk to the active list.
    pub fn activate_page(&mut self, id: ChunkId, bit: u32) -> ChunkId {
        let chunk = *self.chunks.get(id);
        debug_assert_eq!(usize::from(chunk.list), INACTIVE);
        let to = self.chunk_for(chunk.inode, chunk.window, chunk.zone, chunk.lruvec, ACTIVE);
        if self.chunks.get(to).buffers != 0 && self.chunks.get(to).buffer_zone != chunk.buffer_zone {
            return id;
        }
        self.chunks.get_mut(to).buffer_zone = chunk.buffer_zone;
        self.chunks.move_pages(id, to, bit);
        self.chunks.get_mut(to).referenced &= !bit;
        self.note_activated(usize::from(chunk.lruvec), 1);
        to
    }
}

#[cfg(test)]
mod tests {
    use crate::fs::inode::InodeId;
    use crate::kernel;
    use crate::machine::build;
    use crate::mm::chunk::ACTIVE;
    use crate::mm::memory::Mm;
    use crate::mm::slab::Object;

    const PAGE: u64 = 4096;

    fn machine(kernel: &str) -> Mm {
        build::memory(&kernel::find(kernel).expect("a profile"), &[256 << 20], 1)
    }

    /// A page of a file, read and evicted again.
    fn evicted_page(mm: &mut Mm) -> InodeId {
        let inode = mm.inodes.add((1, 1), Object::default(), false);
        mm.inodes.get_mut(inode).size = 1 << 30;
        mm.take_frames(0, 0, 0);
        let id = mm.insert(inode, 0, 0);
        mm.evict(id, 1, 0);
        inode
    }

    /// A file with `pages` pages on the active list of the first zone.
    fn active_pages(mm: &mut Mm, pages: u64) {
        let inode = mm.inodes.add((7, 7), Object::default(), false);
        for page in 0..pages {
            mm.take_frames(0, 0, 0);
            let id = mm.insert(inode, page, 0);
            mm.chunks.move_to_head(id, ACTIVE);
        }
    }

    #[test]
    fn a_page_whose_refault_distance_is_within_the_active_list_is_activated_and_another_is_not() {
        // mm/workingset.c: refault_distance = nonresident_age - eviction; <= NR_ACTIVE_FILE activates.
        for (others, activated) in [(63, true), (64, true), (65, false)] {
            let mut mm = machine("linux-6.1");
            let lruvec = usize::from(mm.zones[0].lruvec);
            active_pages(&mut mm, 65);
            let inode = evicted_page(&mut mm);
            // Its own eviction counts as one.
            mm.chunks.lruvecs[lruvec].nonresident_age += others;
            mm.take_frames(0, 0, 0);
            let id = mm.insert(inode, 0, 0);
            assert_eq!(usize::from(mm.chunks.get(id).list) == ACTIVE, activated, "{others} others were evicted since");
            assert_eq!((mm.events.workingset_refault, mm.events.workingset_activate), (1, u64::from(activated)));
            assert_eq!(mm.is_transitioning(lruvec as u8), activated);
        }
    }

    #[test]
    fn reclaim_of_a_cgroup_forgets_the_cgroups_refaults_and_no_others() {
        let mut mm = machine("linux-6.18");
        mm.open_cgroup();
        let (root, own) = (mm.zones[0].lruvec, mm.cgroup.lruvecs.clone());
        for lruvec in [root, own[0]] {
            mm.chunks.lruvecs[usize::from(lruvec)].activated += 1;
        }
        mm.snapshot_refaults(&own);
        assert_eq!([root, own[0]].map(|lruvec| mm.is_transitioning(lruvec)), [true, false]);
        let roots = mm.root_lruvecs(0);
        mm.snapshot_refaults(&roots);
        assert!(!mm.is_transitioning(root));
    }

    #[test]
    fn kernel_2_6_32_remembers_nothing() {
        let mut mm = machine("linux-2.6.32");
        active_pages(&mut mm, 64);
        let inode = mm.inodes.add((1, 1), Object::default(), false);
        mm.inodes.get_mut(inode).size = PAGE;
        mm.take_frames(0, 0, 0);
        let id = mm.insert(inode, 0, 0);
        mm.evict(id, 1, 0);
        mm.take_frames(0, 0, 0);
        let id = mm.insert(inode, 0, 0);
        assert_ne!(usize::from(mm.chunks.get(id).list), ACTIVE);
        assert_eq!(mm.events.workingset_refault, 0);
    }
}

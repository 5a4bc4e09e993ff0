//! Reclaim of large folios: one unit of the LRU lists, with one state.
//!
//! Models: a folio larger than a chunk is isolated, checked, freed and aged as a whole (mm/vmscan.c:
//! isolate_lru_folios, shrink_folio_list, shrink_active_list, 6.18): one page that is dirty, or was accessed through a
//! mapping since the last scan, keeps the whole folio. Leaves out: folios smaller than a chunk, whose pages are freed
//! one by one, and splitting.

use crate::mm::chunk::{ACTIVE, ChunkId, INACTIVE, NONE, WINDOW_PAGES};
use crate::mm::memory::Mm;
use crate::mm::reclaim::{Pass, Scanned};

/// The chunks of a folio, in page order; a folio of one chunk needs no allocation.
#[derive(Clone, Debug)]
pub struct Folio {
    one: [ChunkId; 1],
    all: Vec<ChunkId>,
}

impl Folio {
    pub fn parts(&self) -> &[ChunkId] {
        if self.is_large() { &self.all } else { &self.one }
    }

    /// Whether the folio is larger than a chunk.
    pub fn is_large(&self) -> bool {
        self.all.len() > 1
    }
}

/// Result of folio_check_references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum References {
    Reclaim,
    Keep,
    Activate,
}

/// mm/vmscan.c: folio_check_references, 6.18: two pages accessed through a mapping, or one for the second time,
/// activate a folio; one for the first time keeps it inactive.
fn check_references(young: u32, referenced: bool) -> References {
    match young {
        0 => References::Reclaim,
        1 if !referenced => References::Keep,
        _ => References::Activate,
    }
}

impl Mm {
    /// The folio of a chunk; a chunk of smaller folios counts as one.
    pub fn folio_of(&self, id: ChunkId) -> Folio {
        let chunk = *self.chunks.get(id);
        let mut folio = Folio { one: [id], all: Vec::new() };
        let windows = (1_u32 << chunk.order) / WINDOW_PAGES as u32;
        if windows <= 1 {
            return folio;
        }
        let first = chunk.window / windows * windows;
        for window in first..first + windows {
            let mut at = self.inodes.get(chunk.inode).windows.get(window);
            while at != NONE {
                let part = self.chunks.get(at);
                let same = (part.order, part.list, part.lruvec) == (chunk.order, chunk.list, chunk.lruvec);
                if same {
                    folio.all.push(at);
                }
                at = part.sibling;
            }
        }
        folio
    }

    /// Moves a folio to the head of a list, so that its first page reaches the tail first.
    pub fn move_folio(&mut self, folio: &Folio, list: usize) {
        folio.parts().iter().for_each(|&part| self.chunks.move_to_head(part, list));
    }

    /// mm/vmscan.c: move_folios_to_lru, 5.9: counts activations by reclaim.
    pub fn note_put_active(&mut self, lruvec: u8, pages: u64) {
        if self.profile.is_6() {
            self.chunks.lruvecs[usize::from(lruvec)].nonresident_age += pages;
        }
    }

    /// mm/swap.c: folio_activate, for a large folio that is read a second time.
    pub fn activate_folio(&mut self, folio: &Folio) {
        let lruvec = usize::from(self.chunks.get(folio.parts()[0]).lruvec);
        let mut pages = 0;
        for &part in folio.parts() {
            let chunk = self.chunks.get_mut(part);
            chunk.referenced = 0;
            pages += chunk.pages();
        }
        self.note_activated(lruvec, pages);
        self.move_folio(folio, ACTIVE);
    }

    /// shrink_active_list for a large folio at the tail of the active list. Returns its pages.
    pub fn age_folio(&mut self, folio: &Folio) -> u64 {
        let mut pages = 0;
        for &part in folio.parts() {
            let chunk = self.chunks.get_mut(part);
            chunk.referenced = 0;
            pages += chunk.pages();
        }
        self.move_folio(folio, INACTIVE);
        pages.max(1)
    }

    fn put_folio_active(&mut self, folio: &Folio, lruvec: u8, pages: u64) {
        self.move_folio(folio, ACTIVE);
        self.note_put_active(lruvec, pages);
    }

    /// shrink_folio_list for a large folio at the tail. Returns the pages freed: all or none.
    pub fn scan_folio(&mut self, folio: &Folio, pass: Pass, sum: &mut Scanned) -> u64 {
        let lruvec = self.chunks.get(folio.parts()[0]).lruvec;
        let (mut pages, mut mapped, mut young, mut referenced) = (0, 0, 0, false);
        let (mut dirty, mut writeback) = (false, false);
        for &part in folio.parts() {
            let chunk = self.chunks.get(part);
            pages += chunk.pages();
            mapped += u64::from((chunk.mapped & chunk.present).count_ones());
            sum.dirty += u64::from(chunk.dirty.count_ones());
            young += (chunk.mapped & chunk.referenced & chunk.present).count_ones();
            referenced |= chunk.used_once != 0;
            dirty |= chunk.dirty != 0;
            writeback |= chunk.writeback != 0;
        }
        sum.scanned += pages.max(1);
        sum.mapped += mapped;
        // References of pages under writeback are not checked, those of dirty pages are.
        let found = if writeback { References::Reclaim } else { check_references(young, referenced) };
        if !writeback {
            for &part in folio.parts() {
                let chunk = self.chunks.get_mut(part);
                (chunk.referenced, chunk.used_once) = (0, if young > 0 { chunk.present } else { 0 });
            }
        }
        match found {
            References::Reclaim if dirty || writeback => {
                // folio_set_reclaim: it moves to the inactive tail once it is written.
                folio.parts().iter().for_each(|&part| self.chunks.get_mut(part).reclaim = true);
                self.put_folio_active(folio, lruvec, pages);
                0
            }
            References::Reclaim => {
                sum.unmapped += mapped;
                folio.parts().iter().map(|&part| self.evict(part, u32::MAX, pass.cpu)).sum()
            }
            References::Keep => {
                self.move_folio(folio, INACTIVE);
                0
            }
            References::Activate => {
                self.put_folio_active(folio, lruvec, pages);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{References, check_references};
    use crate::fs::inode::InodeId;
    use crate::kernel;
    use crate::machine::build;
    use crate::mm::chunk::{ACTIVE, INACTIVE};
    use crate::mm::memory::Mm;
    use crate::mm::reclaim::{Pass, Scanned};
    use crate::mm::slab::Object;
    use crate::sched::site::Site;

    #[test]
    fn two_young_pages_or_one_for_the_second_time_activate() {
        assert_eq!(check_references(0, true), References::Reclaim, "PG_referenced alone: clean pages go");
        assert_eq!(check_references(1, false), References::Keep);
        assert_eq!(check_references(1, true), References::Activate);
        assert_eq!(check_references(2, false), References::Activate, "referenced_ptes > 1");
    }

    /// A file of one folio of 256 pages, completely mapped.
    fn folio() -> (Mm, InodeId) {
        let mut mm = build::memory(&kernel::find("linux-6.18").expect("a profile"), &[256 << 20], 1);
        mm.zones[0].size_pcp(1);
        let inode = mm.inodes.add((1, 1), Object::default(), false);
        mm.inodes.get_mut(inode).size = 1 << 20;
        for page in 0..256 {
            mm.take_frames(0, 0, 0);
            let id = mm.insert(inode, page, 0);
            let chunk = mm.chunks.get_mut(id);
            (chunk.order, chunk.mapped) = (8, chunk.present);
            mm.zones[0].mapped += 1;
        }
        (mm, inode)
    }

    fn look(mm: &mut Mm) -> (u64, Scanned) {
        let tail = mm.chunks.tail(mm.zones[0].lruvec, INACTIVE).expect("a page");
        let folio = mm.folio_of(tail);
        assert_eq!(folio.parts().len(), 8);
        let pass = Pass { may_unmap: true, may_write: false, cpu: 0, site: Site::MemcgReclaim, kswapd: false };
        let mut sum = Scanned::default();
        (mm.scan_folio(&folio, pass, &mut sum), sum)
    }

    #[test]
    fn one_page_that_was_used_keeps_all_256_and_the_second_time_activates_them() {
        let (mut mm, inode) = folio();
        let last = mm.lookup(inode, 255).expect("cached").0;
        mm.chunks.get_mut(last).referenced = 1 << 31;
        let lruvec = usize::from(mm.zones[0].lruvec);
        let (freed, sum) = look(&mut mm);
        assert_eq!((freed, sum.scanned, mm.chunks.lruvecs[lruvec].pages), (0, 256, [256, 0]));
        mm.chunks.get_mut(last).referenced = 1 << 31;
        assert_eq!((look(&mut mm).0, mm.chunks.lruvecs[lruvec].pages), (0, [0, 256]));
    }

    #[test]
    fn an_unused_folio_is_reclaimed_whole_unless_a_page_is_dirty() {
        let (mut mm, inode) = folio();
        let first = mm.lookup(inode, 0).expect("cached").0;
        mm.chunks.get_mut(first).dirty = 1;
        assert_eq!(look(&mut mm).0, 0);
        assert_eq!(usize::from(mm.chunks.get(first).list), ACTIVE);
        assert!(mm.chunks.get(first).reclaim);
        // Used and dirty: active, but not to be reclaimed as soon as it is written.
        let (mut mm, inode) = folio();
        let first = mm.lookup(inode, 0).expect("cached").0;
        (mm.chunks.get_mut(first).dirty, mm.chunks.get_mut(first).referenced) = (1, 3);
        assert_eq!(look(&mut mm).0, 0);
        assert_eq!((usize::from(mm.chunks.get(first).list), mm.chunks.get(first).reclaim), (ACTIVE, false));
        let (mut mm, _) = folio();
        assert_eq!(look(&mut mm).0, 256);
        assert_eq!(mm.zones[0].file, 0);
    }
}

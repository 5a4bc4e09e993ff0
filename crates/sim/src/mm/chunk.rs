//! Page cache pages, stored in chunks of up to 32.
//!
//! Models: every page of the cache by file, offset, zone and state bits (present, dirty, under writeback, referenced,
//! mapped, with a buffer_head). A chunk has the pages of one aligned window of 32 pages (128 KiB) of one file that are
//! in one zone. It is the unit of the LRU lists, as large as SWAP_CLUSTER_MAX and the default readahead. Leaves out:
//! LRU order inside a window, locked pages. Costs about 1.5 bytes a page for streams, 56 bytes for a file of one page.

pub use crate::linked::NONE;
use crate::linked::{Link, Linked, List};
use crate::run::invariant::Broken;

pub type ChunkId = u32;
pub const WINDOW_PAGES: u64 = 32;

#[derive(Clone, Copy, Debug, Default)]
pub struct Chunk {
    link: Link,
    pub inode: u32,
    pub window: u32,
    /// The next chunk of the same window: its pages are in another zone or on another list.
    pub sibling: u32,
    pub present: u32,
    pub dirty: u32,
    pub writeback: u32,
    pub referenced: u32,
    pub mapped: u32,
    /// Mapped pages that a scan has found referenced and spared once (PG_referenced, 2.6.34 and later).
    pub used_once: u32,
    pub buffers: u32,
    /// Pages whose read begins the next readahead (PG_readahead).
    pub marked: u32,
    pub zone: u8,
    pub lruvec: u8,
    pub list: u8,
    /// Zone of the slabs that hold the pages' buffer_heads.
    pub buffer_zone: u8,
    /// PG_reclaim: moves to the tail of the inactive list when it has been written.
    pub reclaim: bool,
    /// Pages of a process's memory, not of a file.
    pub anonymous: bool,
    /// Order of the folio that the last page came with (`folio`).
    pub order: u8,
}

impl Linked for Chunk {
    #[inline]
    fn link(&mut self, _: usize) -> &mut Link {
        &mut self.link
    }
}

impl Chunk {
    #[inline]
    pub fn pages(&self) -> u64 {
        u64::from(self.present.count_ones())
    }
}

/// The window of a page, and the bits of the pages [page, end) in that window.
#[must_use]
pub fn bits_from(page: u64, end: u64) -> (u32, u32) {
    let count = (end - page).min(WINDOW_PAGES - page % WINDOW_PAGES);
    ((page / WINDOW_PAGES) as u32, (((1_u64 << count) - 1) << (page % WINDOW_PAGES)) as u32)
}

pub const INACTIVE: usize = 0;
pub const ACTIVE: usize = 1;

/// LRU lists of file or anonymous pages of a zone (2.6), node (4.8 and later) or memory cgroup. Up to 2.6.27 one pair
/// of lists has both.
#[derive(Clone, Debug, Default)]
pub struct Lruvec {
    lists: [List; 2],
    /// Pages on the inactive and the active list.
    pub pages: [u64; 2],
    /// Evictions and activations (`nonresident_age`; `workingset`).
    pub nonresident_age: u64,
    /// Activated refaults, and their number when reclaim last ended (`lruvec->refaults`).
    pub activated: u64,
    pub activated_before: u64,
}

#[derive(Debug, Default)]
pub struct Chunks {
    all: Vec<Chunk>,
    free: Vec<ChunkId>,
    pub lruvecs: Vec<Lruvec>,
    /// Pages on the inactive and the active list by zone, for /proc/zoneinfo: a list can have pages of several zones.
    on_lists: Vec<[u64; 2]>,
    /// The slab of each page's buffer_head, if the cache counts objects by slab.
    pub buffer_slabs: PerPage,
}

/// A number for each page of each chunk.
#[derive(Debug, Default)]
pub struct PerPage(Vec<[u32; WINDOW_PAGES as usize]>);

impl PerPage {
    pub fn note(&mut self, id: ChunkId, bit: u32, number: u32) {
        if self.0.len() <= id as usize {
            self.0.resize(id as usize + 1, [NONE; WINDOW_PAGES as usize]);
        }
        self.0[id as usize][bit.trailing_zeros() as usize] = number;
    }

    /// The numbers of these pages.
    pub fn of(&self, id: ChunkId, bits: u32) -> impl Iterator<Item = u32> + use<> {
        let numbers = self.0.get(id as usize).copied().unwrap_or([NONE; WINDOW_PAGES as usize]);
        (0..WINDOW_PAGES as usize).filter(move |page| bits >> page & 1 == 1).map(move |page| numbers[page])
    }

    pub fn move_pages(&mut self, from: ChunkId, to: ChunkId, bits: u32) {
        if self.0.len() > from as usize {
            for page in (0..WINDOW_PAGES as u32).filter(|page| bits >> page & 1 == 1) {
                let number = self.0[from as usize][page as usize];
                self.note(to, 1 << page, number);
            }
        }
    }
}

impl Chunks {
    pub fn add_lruvec(&mut self) -> u8 {
        self.lruvecs.push(Lruvec::default());
        (self.lruvecs.len() - 1) as u8
    }

    #[inline]
    pub fn get(&self, id: ChunkId) -> &Chunk {
        &self.all[id as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, id: ChunkId) -> &mut Chunk {
        &mut self.all[id as usize]
    }

    pub fn held(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// A chunk without pages, at the head of the inactive list.
    pub fn add(&mut self, inode: u32, window: u32, zone: u8, lruvec: u8, sibling: u32) -> ChunkId {
        if usize::from(zone) >= self.on_lists.len() {
            self.on_lists.resize(usize::from(zone) + 1, [0; 2]);
        }
        let chunk = Chunk { inode, window, sibling, zone, lruvec, buffer_zone: zone, ..Chunk::default() };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = chunk;
                id
            }
            None => {
                self.all.push(chunk);
                (self.all.len() - 1) as ChunkId
            }
        };
        self.join(id, true);
        id
    }

    /// Frees a chunk without pages that its file no longer refers to.
    pub fn remove(&mut self, id: ChunkId) {
        debug_assert_eq!(self.get(id).present, 0, "a chunk with pages is not removed");
        self.unlink(id);
        self.free.push(id);
    }

    pub fn tail(&self, lruvec: u8, list: usize) -> Option<ChunkId> {
        let id = self.lruvecs[usize::from(lruvec)].lists[list].tail;
        (id != NONE).then_some(id)
    }

    /// Moves a chunk with all its pages to the head of a list.
    pub fn move_to_head(&mut self, id: ChunkId, list: usize) {
        self.unlink(id);
        self.get_mut(id).list = list as u8;
        self.join(id, true);
    }

    /// folio_rotate_reclaimable: to the tail, where the next scan begins.
    pub fn move_to_inactive_tail(&mut self, id: ChunkId) {
        self.unlink(id);
        self.get_mut(id).list = INACTIVE as u8;
        self.join(id, false);
    }

    /// Marks one page of the chunk present.
    #[inline]
    pub fn set_present(&mut self, id: ChunkId, bit: u32) {
        let chunk = &mut self.all[id as usize];
        debug_assert_eq!(chunk.present & bit, 0);
        chunk.present |= bit;
        let pages = i64::from(bit.count_ones());
        let chunk = *chunk;
        self.count(&chunk, pages);
    }

    /// Takes one page out without clearing its state: it moves to another chunk.
    pub fn take_out(&mut self, id: ChunkId, bit: u32) {
        let chunk = self.get_mut(id);
        debug_assert_ne!(chunk.present & bit, 0);
        chunk.present &= !bit;
        let chunk = *chunk;
        self.count(&chunk, -1);
    }

    #[inline]
    fn count(&mut self, chunk: &Chunk, pages: i64) {
        let (lruvec, list) = (usize::from(chunk.lruvec), usize::from(chunk.list));
        let held = &mut self.lruvecs[lruvec].pages[list];
        *held = held.wrapping_add_signed(pages);
        if chunk.anonymous {
            return;
        }
        let held = &mut self.on_lists[usize::from(chunk.zone)][list];
        *held = held.wrapping_add_signed(pages);
    }

    /// Moves pages into another chunk of their window, with their state.
    pub fn move_pages(&mut self, from: ChunkId, to: ChunkId, bits: u32) {
        let source = self.get_mut(from);
        let known = [
            source.dirty,
            source.writeback,
            source.referenced,
            source.mapped,
            source.used_once,
            source.buffers,
            source.marked,
        ]
        .map(|all| all & bits);
        let pages = self.clear(from, bits);
        debug_assert_eq!(pages, u64::from(bits.count_ones()));
        self.set_present(to, bits);
        let target = self.get_mut(to);
        let [dirty, writeback, referenced, mapped, used_once, buffers, marked] = known;
        target.dirty |= dirty;
        target.writeback |= writeback;
        target.referenced |= referenced;
        target.mapped |= mapped;
        target.used_once |= used_once;
        target.buffers |= buffers;
        target.marked |= marked;
        self.buffer_slabs.move_pages(from, to, buffers);
    }

    /// Pages of files in the zone on the inactive and the active list.
    pub fn on_lists(&self, zone: usize) -> [u64; 2] {
        self.on_lists.get(zone).copied().unwrap_or_default()
    }

    /// For tests: counts pages of a zone as if they were on the lists.
    #[cfg(test)]
    pub fn set_on_lists(&mut self, zone: usize, pages: [u64; 2]) {
        if zone >= self.on_lists.len() {
            self.on_lists.resize(zone + 1, [0; 2]);
        }
        self.on_lists[zone] = pages;
    }

    /// Takes pages out; the caller returns their frames and buffer_heads.
    pub fn clear(&mut self, id: ChunkId, bits: u32) -> u64 {
        let chunk = &mut self.all[id as usize];
        let bits = bits & chunk.present;
        chunk.present &= !bits;
        chunk.dirty &= !bits;
        chunk.writeback &= !bits;
        chunk.referenced &= !bits;
        chunk.mapped &= !bits;
        chunk.used_once &= !bits;
        chunk.buffers &= !bits;
        chunk.marked &= !bits;
        let chunk = *chunk;
        let pages = bits.count_ones();
        self.count(&chunk, -i64::from(pages));
        u64::from(pages)
    }

    /// Puts a chunk at the head or the tail of the list that it names.
    fn join(&mut self, id: ChunkId, at_head: bool) {
        let chunk = *self.get(id);
        let list = &mut self.lruvecs[usize::from(chunk.lruvec)].lists[usize::from(chunk.list)];
        match at_head {
            true => list.push_head(&mut self.all, 0, id),
            false => list.push_tail(&mut self.all, 0, id),
        }
        self.count(&chunk, chunk.pages() as i64);
    }

    fn unlink(&mut self, id: ChunkId) {
        let chunk = *self.get(id);
        self.lruvecs[usize::from(chunk.lruvec)].lists[usize::from(chunk.list)].remove(&mut self.all, 0, id);
        self.count(&chunk, -(chunk.pages() as i64));
    }

    /// Checks that every chunk is once on the list that it names, and that the lists' counts are those of their chunks.
    /// Returns what they hold.
    pub fn check(&self, zones: usize) -> Result<Held, Broken> {
        let mut seen = vec![false; self.all.len()];
        let (mut held, mut on_lists) = (Held { by_zone: vec![0; zones], under_writeback: 0 }, 0);
        for (number, lruvec) in self.lruvecs.iter().enumerate() {
            for list in [INACTIVE, ACTIVE] {
                let (mut id, mut before, mut pages) = (lruvec.lists[list].head, NONE, 0);
                while id != NONE {
                    let chunk = self.get(id);
                    let listed = (usize::from(chunk.lruvec), usize::from(chunk.list), chunk.link.prev);
                    if std::mem::replace(&mut seen[id as usize], true) || listed != (number, list, before) {
                        let why =
                            if listed == (number, list, before) { "is on two lists" } else { "is on another list" };
                        return Err(Broken::Lists(format!("window {} of inode {} {why}", chunk.window, chunk.inode)));
                    }
                    pages += chunk.pages();
                    held.by_zone[usize::from(chunk.zone)] += chunk.pages();
                    held.under_writeback += u64::from((chunk.writeback & chunk.present).count_ones());
                    on_lists += 1;
                    (before, id) = (id, chunk.link.next);
                }
                if pages != lruvec.pages[list] {
                    return Err(Broken::Lists(format!(
                        "list {list} of lruvec {number}: {} pages counted, {pages} held",
                        lruvec.pages[list]
                    )));
                }
            }
        }
        if on_lists == self.held() {
            return Ok(held);
        }
        Err(Broken::Lists(format!("{on_lists} of {} windows are on a list", self.held())))
    }
}

/// Pages on the lists, for the conservation check.
#[derive(Debug)]
pub struct Held {
    pub by_zone: Vec<u64>,
    pub under_writeback: u64,
}

#[cfg(test)]
mod tests {
    use super::bits_from;

    #[test]
    fn pages_of_a_window_are_bits_up_to_its_end() {
        assert_eq!(bits_from(0, 1 << 20), (0, u32::MAX));
        assert_eq!(bits_from(31, 40), (0, 1 << 31));
        assert_eq!(bits_from(66, 69), (2, 0b11100));
    }
}

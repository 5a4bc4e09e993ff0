//! Page cache pages, held 32 at a time.
//!
//! Models: every page of the cache by file, offset, zone and state bits (present, dirty, under writeback,
//! referenced, mapped, with a buffer_head). A chunk is one aligned window of 32 pages (128 KiB) of one file, as far
//! as its pages lie in one zone: the unit of the LRU lists, equal to SWAP_CLUSTER_MAX and to the default readahead.
//! Leaves out: LRU order inside a window, locked pages. About 1.5 bytes a page frame for
//! streams, and 4 more where frames are told apart (5.0 and later: `v6::buddy`); 56 bytes for a file of one page.

use super::broken::Broken;
use super::v6::buddy::Frame;
use super::v6::walk::Walk;

pub type ChunkId = u32;
pub const NONE: u32 = u32::MAX;
pub const WINDOW_PAGES: u64 = 32;

#[derive(Clone, Copy, Debug, Default)]
pub struct Chunk {
    pub prev: u32,
    pub next: u32,
    pub inode: u32,
    pub window: u32,
    /// The next chunk of the same window (its pages lie in another zone or on another list).
    pub sibling: u32,
    pub present: u32,
    pub dirty: u32,
    pub writeback: u32,
    pub referenced: u32,
    pub mapped: u32,
    /// Mapped pages that a scan has found referenced and spared once (PG_referenced, 2.6.34 and later). With generations those that
    /// calls have used twice (PG_workingset).
    pub used_once: u32,
    /// With generations accesses by calls beyond the second, up to three, as two bits a page (LRU_REFS_MASK).
    pub refs: [u32; 2],
    pub buffers: u32,
    /// Pages that begin the next readahead when somebody comes to them (PG_readahead).
    pub marked: u32,
    pub zone: u8,
    pub lruvec: u8,
    pub list: u8,
    /// Zone of the slabs that hold the pages' buffer_heads.
    pub buffer_zone: u8,
    /// PG_reclaim: goes to the tail of the inactive list when it is written.
    pub reclaim: bool,
    /// Of a process's memory, not of a file: backed by swap (PG_swapbacked).
    pub anonymous: bool,
    /// They came from the active list (PG_workingset, 4.20 and later).
    pub workingset: bool,
    /// With generations: of the active list, in the youngest and not in the one before it; of the inactive list, in the oldest of four.
    pub outer: bool,
    /// How many pages the folio has that brought the last of them in (a power of two); `v6::folio`.
    pub order: u8,
}

impl Chunk {
    /// mm/swap.c: folio_inc_refs, 6.12: one more access by a call, beyond the first.
    pub fn inc_refs(&mut self, bit: u32) {
        let is_second = self.used_once & bit == 0;
        self.used_once |= bit;
        let [low, high] = &mut self.refs;
        if !is_second && *low & *high & bit == 0 {
            *high ^= *low & bit;
            *low ^= bit;
        }
    }

    /// Pages with so many accesses, five, that no tier of theirs is evicted (refs == BIT(LRU_REFS_WIDTH), PG_workingset among those).
    #[must_use]
    pub fn fully_referenced(&self) -> u32 {
        self.refs[0] & self.refs[1] & self.present
    }

    #[must_use]
    pub fn is_youngest(&self) -> bool {
        self.outer && usize::from(self.list) == ACTIVE
    }

    #[must_use]
    pub fn is_oldest(&self) -> bool {
        self.outer && usize::from(self.list) == INACTIVE
    }

    #[inline]
    pub fn pages(&self) -> u64 {
        u64::from(self.present.count_ones())
    }
}

/// The window of a page, and the bits of the pages from it on up to `end` that lie there.
#[must_use]
pub fn bits_from(page: u64, end: u64) -> (u32, u32) {
    let count = (end - page).min(WINDOW_PAGES - page % WINDOW_PAGES);
    ((page / WINDOW_PAGES) as u32, (((1_u64 << count) - 1) << (page % WINDOW_PAGES)) as u32)
}

pub const INACTIVE: usize = 0;
pub const ACTIVE: usize = 1;

/// The file LRU, or the anonymous one, of a zone (2.6), node (4.8 and later) or memory cgroup. Up to 2.6.27 one serves both.
#[derive(Clone, Debug, Default)]
pub struct Lruvec {
    head: [u32; 2],
    tail: [u32; 2],
    /// Pages on the inactive and the active list.
    pub pages: [u64; 2],
    /// Pages to scan of each list that do not fill a cluster yet.
    pub saved: [u64; 2],
    /// Generations: 2 where the oldest that may be evicted has nothing left, 4 where two of them are on the inactive list, else 3.
    gens: u8,
    pub walk: Walk,
    /// How it fares in reclaim, against the other kind of pages (`swap`).
    pub fares: Fares,
    /// Evictions and activations (`inactive_age`, later `nonresident_age`), of 3.15 and later (`workingset`); with generations how
    /// many have passed (`min_seq`).
    pub nonresident_age: u64,
    /// Refaults that were activated, and how many had been when reclaim last ended (`lruvec->refaults`).
    pub activated: u64,
    pub activated_before: u64,
}

/// struct zone_reclaim_stat, 2.6.28 to 5.7: pages scanned of late, and those of them that were in use; later what bringing
/// pages back has cost (`anon_cost`, `file_cost`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Fares {
    pub scanned: u64,
    pub rotated: u64,
    pub cost: u64,
}

#[derive(Debug, Default)]
pub struct Chunks {
    all: Vec<Chunk>,
    free: Vec<ChunkId>,
    pub lruvecs: Vec<Lruvec>,
    /// Pages on the inactive and the active list by zone, for what /proc/zoneinfo prints: a list may hold several zones'.
    on_lists: Vec<[u64; 2]>,
    /// In which slab each page's buffer_head is, where the cache keeps account of it.
    pub buffer_slabs: PerPage,
    /// The frame of each page, where the zone keeps account of it.
    pub frames: PerPage,
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

    /// Nothing is known of a chunk's pages.
    pub fn forget(&mut self, id: ChunkId) {
        if let Some(numbers) = self.0.get_mut(id as usize) {
            *numbers = [NONE; WINDOW_PAGES as usize];
        }
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
        self.lruvecs.push(Lruvec { head: [NONE; 2], tail: [NONE; 2], gens: 3, ..Lruvec::default() });
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

    /// The frame of each page that has one of its own.
    pub fn told(&self) -> impl Iterator<Item = Frame> + '_ {
        self.all
            .iter()
            .zip(0..)
            .flat_map(|(chunk, id)| self.frames.of(id, chunk.present).map(|number| Frame { zone: chunk.zone, number }))
    }

    pub fn held(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// A chunk without pages, at the head of the inactive list.
    pub fn add(&mut self, inode: u32, window: u32, zone: u8, lruvec: u8, sibling: u32) -> ChunkId {
        if usize::from(zone) >= self.on_lists.len() {
            self.on_lists.resize(usize::from(zone) + 1, [0; 2]);
        }
        let own = Chunk { inode, window, sibling, zone, lruvec, buffer_zone: zone, ..Chunk::default() };
        let chunk = Chunk { prev: NONE, next: NONE, list: INACTIVE as u8, ..own };
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
        self.link_head(id);
        id
    }

    /// Forgets a chunk; it holds no page any more and the file no longer names it.
    pub fn remove(&mut self, id: ChunkId) {
        debug_assert_eq!(self.get(id).present, 0, "a chunk with pages is not removed");
        self.unlink(id);
        self.free.push(id);
    }

    pub fn tail(&self, lruvec: u8, list: usize) -> Option<ChunkId> {
        let id = self.lruvecs[usize::from(lruvec)].tail[list];
        (id != NONE).then_some(id)
    }

    /// The last chunk on a list that lies in this zone: generations have a list for each zone, of which this is the tail.
    pub fn tail_of(&self, lruvec: u8, list: usize, zone: u8) -> Option<ChunkId> {
        let mut id = self.tail(lruvec, list)?;
        while self.get(id).zone != zone {
            id = self.get(id).prev;
            if id == NONE {
                return None;
            }
        }
        Some(id)
    }

    /// Moves a chunk with all its pages to the head of a list.
    pub fn move_to_head(&mut self, id: ChunkId, list: usize) {
        self.unlink(id);
        let chunk = self.get_mut(id);
        (chunk.list, chunk.outer) = (list as u8, false);
        self.link_head(id);
    }

    /// mm/vmscan.c: inc_max_seq after walk_mm, 6.12: a new youngest generation. The one before it may be evicted now, but for pages that were used
    /// through a mapping since the last time, where the walk came by: it has put those, of whatever generation, into what was the youngest.
    pub fn age(&mut self, lruvec: u8) {
        let gens = self.generations(lruvec);
        let mut walk = std::mem::take(&mut self.lruvecs[usize::from(lruvec)].walk);
        let (held, younger) = (self.list_from_tail(lruvec, INACTIVE), self.list_from_tail(lruvec, ACTIVE));
        for id in held {
            let used = walk.goes_through(self.get(id)) && self.take_used(id);
            // Both generations that were older than two are one here.
            self.get_mut(id).outer |= gens > 2;
            if used {
                self.make_younger(id, false);
            }
        }
        let mut passed = Vec::new();
        for id in younger {
            let used = walk.goes_through(self.get(id)) && self.take_used(id);
            let stays = std::mem::take(&mut self.get_mut(id).outer) || used;
            if !stays {
                passed.push(id);
            }
        }
        if gens == 2 {
            // What came in meanwhile is of the same generation, and younger.
            passed.into_iter().rev().for_each(|id| self.move_to_inactive_tail(id));
        } else {
            passed.into_iter().for_each(|id| self.move_to_head(id, INACTIVE));
        }
        walk.end();
        let own = &mut self.lruvecs[usize::from(lruvec)];
        (own.gens, own.walk) = ((gens + 1).min(4), walk);
    }

    /// mm/vmscan.c: try_to_inc_min_seq, 6.12: how many generations there are, those whose last page has gone not among them.
    pub fn generations(&mut self, lruvec: u8) -> u8 {
        let gens = match self.tail(lruvec, INACTIVE) {
            None => 2,
            Some(id) if self.get(id).is_oldest() => 4,
            Some(_) => 3,
        };
        let held = &mut self.lruvecs[usize::from(lruvec)];
        let passed = held.gens.saturating_sub(gens);
        held.gens -= passed;
        held.nonresident_age += u64::from(passed);
        held.gens
    }

    /// Pages in the youngest generation.
    pub fn youngest_pages(&self, lruvec: u8) -> u64 {
        let all = self.list_from_tail(lruvec, ACTIVE);
        all.into_iter().map(|id| self.get(id)).filter(|chunk| chunk.is_youngest()).map(Chunk::pages).sum()
    }

    fn list_from_tail(&self, lruvec: u8, list: usize) -> Vec<ChunkId> {
        let tail = self.tail(lruvec, list);
        std::iter::successors(tail, |id| Some(self.get(*id).prev).filter(|before| *before != NONE)).collect()
    }

    /// mm/vmscan.c: walk_pte_range, 6.12: accessed bits are cleared. Whether most of the pages had been used through a mapping.
    fn take_used(&mut self, id: ChunkId) -> bool {
        let chunk = self.get_mut(id);
        let used = chunk.mapped & chunk.referenced & chunk.present;
        chunk.referenced &= !used;
        used.count_ones() * 2 > chunk.present.count_ones()
    }

    /// mm/vmscan.c: folio_inc_gen, 6.12: from the oldest generation, of four if so, into the next, where accesses count from the
    /// beginning.
    pub fn inc_gen(&mut self, id: ChunkId, of_four: bool) {
        self.make_younger(id, false);
        if of_four {
            self.move_to_head(id, INACTIVE);
        }
        let chunk = self.get_mut(id);
        chunk.referenced &= chunk.mapped;
    }

    /// Moves a chunk into the generation before the youngest, or into the youngest.
    pub fn make_younger(&mut self, id: ChunkId, youngest: bool) {
        self.move_to_head(id, ACTIVE);
        let chunk = self.get_mut(id);
        (chunk.outer, chunk.refs, chunk.used_once) = (youngest, [0; 2], 0);
    }

    /// folio_rotate_reclaimable: where the scan comes next.
    pub fn move_to_inactive_tail(&mut self, id: ChunkId) {
        self.unlink(id);
        // It joins whichever generation is the oldest.
        let tail = self.tail(self.get(id).lruvec, INACTIVE);
        let of_four = tail.map_or(self.get(id).is_oldest(), |tail| self.get(tail).is_oldest());
        let chunk = self.get_mut(id);
        (chunk.list, chunk.outer) = (INACTIVE as u8, of_four);
        let chunk = *self.get(id);
        let lruvec = &mut self.lruvecs[usize::from(chunk.lruvec)];
        let tail = std::mem::replace(&mut lruvec.tail[INACTIVE], id);
        if tail == NONE {
            lruvec.head[INACTIVE] = id;
        } else {
            self.get_mut(tail).next = id;
        }
        (self.get_mut(id).prev, self.get_mut(id).next) = (tail, NONE);
        self.count(&chunk, chunk.pages() as i64);
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

    /// Takes one page out without clearing what else is known of it: it goes on in another chunk.
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

    /// Moves pages into another chunk of their window, with all that is known of each.
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
        let refs = source.refs.map(|all| all & bits);
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
        target.refs = [target.refs[0] | refs[0], target.refs[1] | refs[1]];
        self.buffer_slabs.move_pages(from, to, buffers);
        self.frames.move_pages(from, to, bits);
    }

    /// Pages of files in the zone on the inactive and the active list.
    pub fn on_lists(&self, zone: usize) -> [u64; 2] {
        self.on_lists.get(zone).copied().unwrap_or_default()
    }

    /// As if so many pages of a zone were on the lists.
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
        chunk.refs = chunk.refs.map(|all| all & !bits);
        let chunk = *chunk;
        let pages = bits.count_ones();
        self.count(&chunk, -i64::from(pages));
        u64::from(pages)
    }

    fn link_head(&mut self, id: ChunkId) {
        let chunk = *self.get(id);
        let (lruvec, list) = (usize::from(chunk.lruvec), usize::from(chunk.list));
        let head = self.lruvecs[lruvec].head[list];
        self.get_mut(id).prev = NONE;
        self.get_mut(id).next = head;
        if head == NONE {
            self.lruvecs[lruvec].tail[list] = id;
        } else {
            self.get_mut(head).prev = id;
        }
        self.lruvecs[lruvec].head[list] = id;
        self.count(&chunk, chunk.pages() as i64);
    }

    fn unlink(&mut self, id: ChunkId) {
        let chunk = *self.get(id);
        let (lruvec, list) = (usize::from(chunk.lruvec), usize::from(chunk.list));
        if chunk.prev == NONE {
            self.lruvecs[lruvec].head[list] = chunk.next;
        } else {
            self.get_mut(chunk.prev).next = chunk.next;
        }
        if chunk.next == NONE {
            self.lruvecs[lruvec].tail[list] = chunk.prev;
        } else {
            self.get_mut(chunk.next).prev = chunk.prev;
        }
        self.count(&chunk, -(chunk.pages() as i64));
    }

    /// Every chunk stands once on the list that it says it stands on, and the lists' counts are those of their chunks. Returns
    /// what they hold.
    pub fn check(&self, zones: usize) -> Result<Held, Broken> {
        let mut seen = vec![false; self.all.len()];
        let (mut held, mut on_lists) = (Held { by_zone: vec![0; zones], under_writeback: 0 }, 0);
        for (number, lruvec) in self.lruvecs.iter().enumerate() {
            for list in [INACTIVE, ACTIVE] {
                let (mut id, mut before, mut pages) = (lruvec.head[list], NONE, 0);
                while id != NONE {
                    let chunk = self.get(id);
                    let stands = (usize::from(chunk.lruvec), usize::from(chunk.list), chunk.prev);
                    if std::mem::replace(&mut seen[id as usize], true) || stands != (number, list, before) {
                        let why =
                            if stands == (number, list, before) { "is on two lists" } else { "stands on another list" };
                        return Err(Broken::Lists(format!("window {} of inode {} {why}", chunk.window, chunk.inode)));
                    }
                    pages += chunk.pages();
                    held.by_zone[usize::from(chunk.zone)] += chunk.pages();
                    held.under_writeback += u64::from((chunk.writeback & chunk.present).count_ones());
                    on_lists += 1;
                    (before, id) = (id, chunk.next);
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

/// What the lists hold, page by page: what the conservation check adds up.
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

//! The swap area, and reclaim of anonymous pages into it.
//!
//! Models: slots handed out in order (scan_swap_map), pages that stay in the swap cache until they are written to,
//! shrink_page_list for anonymous pages (referenced ones are activated, others get a slot, are written and freed once that is
//! done), readahead of an aligned cluster of slots (swapin_readahead), as many as were used of late (swapin_nr_pages, 3.14). Leaves
//! out: several areas, zswap, clusters by mapping (4.14), swapping of huge pages as a whole.

use super::Machine;
use super::alloc::{self, Want};
use super::block::{self, Done, Request};
use super::chunk::{ACTIVE, ChunkId, INACTIVE, NONE, WINDOW_PAGES};
use super::constant::constants;
use super::device::DeviceId;
use super::inode::{InodeId, KeyMap};
use super::kernel::Workingset;
use super::memory::Mm;
use super::reclaim::{Pageout, Pass, Scanned};
use super::site::Site;
use super::slab::Object;
use super::task::Task;
use super::v6::buddy::{Frame, Kind};
use super::vfs;
use std::collections::BTreeSet;

constants! {
    /// Slots that a fault reads at once: 1 << page_cluster.
    const CLUSTER_SLOTS: u32 = kernel(8, "mm/swap.c", "swap_setup (page_cluster 3)", "2.6.32");
    /// What a window with any hit is rounded up from.
    const WINDOW_MIN_SLOTS: u32 = kernel(4, "mm/swap_state.c", "swapin_nr_pages (roundup)", "3.14");
}

/// Anonymous memory has keys of its own: no workload has this number.
const ANONYMOUS: u32 = u32::MAX - 2;
const FREE: (InodeId, u32) = (NONE, 0);

#[derive(Debug, Default)]
pub struct Swap {
    /// On the disk, in pages.
    first: u64,
    /// Whose page each slot holds.
    owners: Vec<(InodeId, u32)>,
    next: usize,
    used: u64,
    /// The slot of each page, plus one.
    slots: KeyMap<InodeId, Vec<u32>>,
    /// Memories made so far.
    made: u64,
    /// Pages that were read ahead and not used yet (PageReadahead of the swap cache).
    ahead: BTreeSet<(InodeId, u32)>,
    window: Window,
}

/// mm/swap_state.c: how far the last swap readahead went, and how much of it was used.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// swapin_readahead_hits.
    hits: u32,
    last_slot: u32,
    last_pages: u32,
}

impl Window {
    /// mm/swap_state.c: swapin_nr_pages, 3.14.
    fn pages(&mut self, slot: u32) -> u32 {
        let mut pages = std::mem::take(&mut self.hits) + 2;
        if pages == 2 {
            // Nothing to judge by: a neighbour of the last one is worth two.
            if slot.abs_diff(self.last_slot) != 1 {
                pages = 1;
            }
            self.last_slot = slot;
        } else {
            pages = pages.next_power_of_two().max(WINDOW_MIN_SLOTS.get());
        }
        self.last_pages = pages.min(CLUSTER_SLOTS.get()).max(self.last_pages / 2);
        self.last_pages
    }
}

impl Swap {
    #[must_use]
    pub fn new(first: u64, pages: u64) -> Swap {
        Swap { first, owners: vec![FREE; pages as usize], ..Swap::default() }
    }

    #[must_use]
    pub fn pages(&self) -> u64 {
        self.owners.len() as u64
    }

    #[must_use]
    pub fn free(&self) -> u64 {
        self.pages() - self.used
    }

    /// vm_swap_full.
    fn is_full(&self) -> bool {
        self.free() * 2 < self.pages()
    }

    #[must_use]
    pub fn slot(&self, inode: InodeId, page: u32) -> Option<u32> {
        let slot = self.slots.get(&inode)?.get(page as usize).copied()?;
        slot.checked_sub(1)
    }

    fn any_slot(&self, inode: InodeId) -> bool {
        self.slots.contains_key(&inode)
    }

    /// get_swap_page: the next free slot upwards.
    fn assign(&mut self, inode: InodeId, page: u32) -> Option<u32> {
        if self.free() == 0 {
            return None;
        }
        while self.owners[self.next % self.owners.len()] != FREE {
            self.next += 1;
        }
        let slot = self.next % self.owners.len();
        self.next = slot + 1;
        self.owners[slot] = (inode, page);
        self.used += 1;
        let slots = self.slots.entry(inode).or_default();
        if slots.len() <= page as usize {
            slots.resize(page as usize + 1, 0);
        }
        slots[page as usize] = slot as u32 + 1;
        Some(slot as u32)
    }

    /// swap_free.
    pub fn release(&mut self, inode: InodeId, page: u32) {
        if let Some(slot) = self.slot(inode, page) {
            self.owners[slot as usize] = FREE;
            self.used -= 1;
            if let Some(slots) = self.slots.get_mut(&inode) {
                slots[page as usize] = 0;
            }
        }
    }

    fn release_all(&mut self, inode: InodeId) {
        self.ahead.retain(|(owner, _)| *owner != inode);
        for slot in self.slots.remove(&inode).unwrap_or_default().into_iter().filter(|slot| *slot > 0) {
            self.owners[slot as usize - 1] = FREE;
            self.used -= 1;
        }
    }

    /// A page that was read ahead is used for the first time.
    pub fn note_used(&mut self, inode: InodeId, page: u32) -> bool {
        let hit = !self.ahead.is_empty() && self.ahead.remove(&(inode, page));
        self.window.hits += u32::from(hit);
        hit
    }

    pub fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// The slots of the aligned cluster around one, and whose they are.
    fn cluster(&self, slot: u32, slots: u32) -> impl Iterator<Item = (u32, (InodeId, u32))> + '_ {
        let from = slot / slots * slots;
        (from..(from + slots).min(self.owners.len() as u32))
            .map(|slot| (slot, self.owners[slot as usize]))
            .filter(|(_, owner)| *owner != FREE)
    }
}

impl Mm {
    /// The memory of a process: pages by their place in it.
    pub fn open_memory(&mut self, in_cgroup: bool) -> InodeId {
        self.swap.made += 1;
        let key = (ANONYMOUS, self.swap.made);
        let id = self.inodes.add(key, Object::default(), in_cgroup);
        let inode = self.inodes.get_mut(id);
        (inode.anonymous, inode.opens) = (true, 1);
        id
    }

    /// exit_mmap: pages that are being written go when that is done.
    pub fn close_memory(&mut self, inode: InodeId, cpu: u16) -> u64 {
        self.swap.release_all(inode);
        let freed = self.invalidate(inode, 0, true, cpu);
        self.inodes.forget_name(inode);
        self.inodes.get_mut(inode).dead = true;
        if self.inodes.get(inode).pages == 0 {
            self.free_inode(inode, cpu);
        }
        freed
    }

    /// lru_cache_add_active_or_unevictable up to 5.8, lru_cache_add_inactive_or_unevictable later.
    pub fn insert_anonymous(&mut self, inode: InodeId, page: u64, frame: Frame, active: bool) -> ChunkId {
        let zone = frame.zone;
        let (window, bit) = ((page / WINDOW_PAGES) as u32, 1 << (page % WINDOW_PAGES));
        let lruvec = self.zones[usize::from(zone)].anonymous_lruvec;
        let id = self.chunk_for_anonymous(inode, window, zone, lruvec, if active { ACTIVE } else { INACTIVE });
        self.chunks.set_present(id, bit);
        self.note_frame(id, bit, frame);
        let chunk = self.chunks.get_mut(id);
        chunk.referenced |= bit;
        let memory = self.inodes.get_mut(inode);
        memory.pages += 1;
        self.cgroup.anonymous += u64::from(memory.in_cgroup);
        self.zones[usize::from(zone)].anonymous += 1;
        // update_page_reclaim_stat.
        let fares = &mut self.chunks.lruvecs[usize::from(lruvec)].fares;
        (fares.scanned, fares.rotated) = (fares.scanned + 1, fares.rotated + u64::from(active));
        id
    }

    fn chunk_for_anonymous(&mut self, inode: InodeId, window: u32, zone: u8, lruvec: u8, list: usize) -> ChunkId {
        let id = self.chunk_for(inode, window, zone, lruvec, list);
        // Before any page of it is counted.
        if self.chunks.get(id).present == 0 {
            self.chunks.get_mut(id).anonymous = true;
        }
        id
    }

    /// mm/vmscan.c: shrink_page_list for anonymous pages: add_to_swap, pageout; what has been written since is freed.
    pub fn scan_anonymous(&mut self, id: ChunkId, pass: Pass, sum: &mut Scanned) -> u64 {
        self.note_writeback(id, pass, sum);
        let chunk = *self.chunks.get(id);
        // page_check_references: PageSwapBacked and referenced through a table: activated.
        let young = chunk.referenced & chunk.present;
        let idle = chunk.present & !(young | chunk.writeback);
        let (mut clean, mut writes) = (0, 0);
        for place in (0..WINDOW_PAGES as u32).filter(|place| idle & 1 << place != 0) {
            let page = chunk.window * WINDOW_PAGES as u32 + place;
            if self.swap.slot(chunk.inode, page).is_some() {
                clean |= 1 << place;
            } else if pass.may_unmap && self.swap.assign(chunk.inode, page).is_some() {
                writes |= 1 << place;
            }
        }
        let freed = if clean != 0 && pass.may_unmap { self.evict(id, clean, pass.cpu) } else { 0 };
        if writes != 0 {
            self.pageout.push(Pageout { inode: chunk.inode, window: chunk.window, bits: writes });
        }
        if clean == chunk.present && freed > 0 {
            return freed;
        }
        let left = self.chunks.get(id).pages();
        // Nowhere to go: activate_locked.
        let stuck = idle & !(clean | writes);
        let rotated = u64::from((young | stuck).count_ones());
        sum.mapped += u64::from(young.count_ones());
        self.chunks.lruvecs[usize::from(chunk.lruvec)].fares.rotated += rotated;
        self.chunks.get_mut(id).referenced = 0;
        self.chunks.move_to_head(id, if rotated * 2 > left { ACTIVE } else { INACTIVE });
        freed
    }

    /// set_page_writeback for pages that have their slots.
    fn begin_swap_out(&mut self, page: Pageout) -> u32 {
        let mut id = self.inodes.get(page.inode).windows.get(page.window);
        let mut bits = 0;
        while id != NONE {
            let chunk = self.chunks.get_mut(id);
            let ready = page.bits & chunk.present & !chunk.writeback;
            chunk.writeback |= ready;
            chunk.reclaim |= ready != 0;
            bits |= ready;
            let zone = usize::from(chunk.zone);
            id = chunk.sibling;
            self.zones[zone].writeback += u64::from(ready.count_ones());
        }
        self.inodes.get_mut(page.inode).under_writeback += bits.count_ones();
        self.of_device(page.inode).writeback += u64::from(bits.count_ones());
        self.events.pswpout += u64::from(bits.count_ones());
        bits
    }
}

/// swap_writepage, for pages in their order as far as their slots are.
pub async fn write_out(m: &Machine, task: &mut Task, page: Pageout) {
    let bits = m.mm.borrow_mut().begin_swap_out(page);
    let first = page.window * WINDOW_PAGES as u32;
    let mut run: Option<(u32, u32, u32)> = None;
    for place in (0..WINDOW_PAGES as u32).filter(|place| bits & 1 << place != 0) {
        let Some(slot) = m.mm.borrow().swap.slot(page.inode, first + place) else { continue };
        match &mut run {
            Some((from, start, count)) if *from + *count == first + place && *start + *count == slot => *count += 1,
            _ => {
                submit_out(m, task, page.inode, run).await;
                run = Some((first + place, slot, 1));
            }
        }
    }
    submit_out(m, task, page.inode, run).await;
}

async fn submit_out(m: &Machine, task: &mut Task, inode: InodeId, run: Option<(u32, u32, u32)>) {
    let Some((page, slot, pages)) = run else { return };
    let position = m.mm.borrow().swap.first + u64::from(slot);
    let done = Done::Pages { inode, first_page: u64::from(page), pages };
    task.work(Site::Work, u64::from(pages) * m.costs.writepage_ns);
    m.mm.borrow_mut().events.pgpgout_kib += u64::from(pages) * 4;
    let request = Request::new(true, position, pages, done);
    block::submit(m, task, request, Site::GetRequestWait).await;
}

/// do_swap_page: a page comes back, and with it what else the cluster of slots holds.
pub async fn swap_in(m: &Machine, task: &mut Task, inode: InodeId, page: u64, slot: u32) {
    m.mm.borrow_mut().events.pgmajfault += 1;
    let watches = m.profile.swap.watches_readahead;
    let slots = if watches { m.mm.borrow_mut().swap.window.pages(slot) } else { CLUSTER_SLOTS.get() };
    let wanted: Vec<(u32, (InodeId, u32))> = {
        let mm = m.mm.borrow();
        let out = |owner: &(InodeId, u32)| mm.lookup(owner.0, u64::from(owner.1)).is_none();
        mm.swap.cluster(slot, slots).filter(|(_, owner)| out(owner)).collect()
    };
    let mut came: Vec<(u32, Frame, (InodeId, u32))> = Vec::new();
    for (slot, owner) in wanted {
        if let Some(frame) = alloc::page(m, task, Want::USER).await {
            // Locked until it is read, and on no list.
            m.mm.borrow_mut().zones[usize::from(frame.zone)].pinned += 1;
            came.push((slot, frame, owner));
        }
    }
    let (Some(first), Some(last)) = (came.first().map(|one| one.0), came.last().map(|one| one.0)) else { return };
    let position = m.mm.borrow().swap.first + u64::from(first);
    vfs::read_request(m, DeviceId::FIRST, task, (position, u64::from(last - first + 1)), Site::SwapIn).await;
    let activates = m.profile.swap.activates_faulted;
    let mut mm = m.mm.borrow_mut();
    for (slot, frame, (owner, at)) in came {
        mm.zones[usize::from(frame.zone)].pinned -= 1;
        // Its process ended meanwhile, or another fault of it was quicker.
        if mm.swap.slot(owner, at) != Some(slot) || mm.lookup(owner, u64::from(at)).is_some() {
            mm.give_frame(frame, task.cpu, 0, Kind::Movable);
            continue;
        }
        mm.events.pswpin += 1;
        let asked = (owner, u64::from(at)) == (inode, page);
        let refault = m.profile.workingset == Workingset::OfBoth && mm.refaults(owner, u64::from(at), true);
        let id = mm.insert_anonymous(owner, u64::from(at), frame, refault || (asked && activates));
        mm.swap.ahead.remove(&(owner, at));
        if !asked {
            mm.swap.ahead.insert((owner, at));
            mm.chunks.get_mut(id).referenced &= !(1 << (u64::from(at) % WINDOW_PAGES));
        }
        // try_to_free_swap: a full area is not kept for pages that are in memory.
        if mm.swap.is_full() {
            mm.swap.release(owner, at);
        }
    }
}

impl Mm {
    /// A store to a page in the swap cache makes it newer than its slot (reuse_swap_page).
    pub fn dirty_anonymous(&mut self, inode: InodeId, page: u64) {
        if self.swap.any_slot(inode) {
            self.swap.release(inode, page as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Swap, Window};

    #[test]
    fn the_window_of_swap_readahead_follows_what_was_used_of_the_last_one() {
        let mut window = Window::default();
        // At random: one page each; beside the last one: two.
        assert_eq!([500, 20, 900, 901].map(|slot| window.pages(slot)), [1, 1, 1, 2]);
        // One hit: 3 pages, rounded up to 4; five: 8, which is all of 1 << page_cluster; so are more.
        for (hits, wanted) in [(1, 4), (5, 8), (30, 8)] {
            window.hits = hits;
            assert_eq!(window.pages(10), wanted, "{hits} hits");
        }
        // It shrinks by half at a time.
        assert_eq!([40, 80, 120, 160].map(|slot| window.pages(slot)), [4, 2, 1, 1]);
    }

    #[test]
    fn slots_are_handed_out_upwards_and_a_fault_takes_the_cluster_around_its_own() {
        let mut swap = Swap::new(1000, 16);
        let slots: Vec<u32> = (0..10).map(|page| swap.assign(5, page).expect("room")).collect();
        assert_eq!(slots, (0..10).collect::<Vec<_>>());
        swap.release(5, 3);
        assert_eq!((swap.assign(6, 0), swap.free()), (Some(10), 6), "not the hole behind it");
        let around: Vec<u32> = swap.cluster(9, 8).map(|(slot, _)| slot).collect();
        assert_eq!(around, [8, 9, 10], "the aligned eight, as far as they are used");
        assert_eq!(swap.cluster(4, 8).count(), 7);
        swap.release_all(5);
        assert_eq!((swap.free(), swap.slot(5, 4), swap.slot(6, 0)), (15, None, Some(10)));
        let filled = (0..15).filter(|page| swap.assign(7, *page).is_some()).count();
        assert_eq!((filled, swap.assign(7, 99)), (15, None), "from the front again, until it is full");
    }
}

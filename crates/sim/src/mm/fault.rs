//! Faults of mapped files: cached pages are mapped together with their neighbours, other pages are read with their
//! neighbours.
//!
//! Models: filemap_fault (filemap_nopage up to 2.6.22): do_sync_mmap_readahead and do_async_mmap_readahead; a file
//! whose faults mostly miss is read page by page; do_fault_around and filemap_map_pages (3.15), again after a wait,
//! since the fault is then handled again. Leaves out: madvise(), huge pages, a count of misses for each open file (the
//! count is the file's).

use crate::Machine;
use crate::constant::constants;
use crate::fs::inode::InodeId;
use crate::fs::vfs;
use crate::mm::chunk::{ChunkId, NONE, WINDOW_PAGES};
use crate::mm::readahead::{self, Ahead};
use crate::sched::site::Site;
use crate::sched::task::Task;

constants! {
    /// Excess of faults that read over faults that do not which ends read-around.
    const LOTS_OF_MISSES: i32 = kernel(100, "mm/filemap.c", "MMAP_LOTSAMISS", "2.6.17");
    /// The count's maximum, in multiples of that.
    const COUNTED_TIMES: i32 = kernel(10, "mm/filemap.c", "do_sync_mmap_readahead", "3.0");
    /// Aligned pages that one fault maps.
    pub const AROUND_PAGES: u64 = kernel(16, "mm/memory.c", "fault_around_bytes (64 KiB)", "3.15");
    /// Parts of a read-around window, of which the last begins with the mark.
    const MARKED_PART: u32 = kernel(4, "mm/filemap.c", "do_sync_mmap_readahead", "3.0");
    /// How often one fault is handled: again after each wait.
    const ATTEMPTS: u32 = assumed(3, "the kernel's do_user_addr_fault repeats as long as the page is gone when its wait ends");
}

/// handle_mm_fault for a page that is not mapped; gives up if the page is reclaimed after each of `ATTEMPTS` reads.
pub async fn fault(m: &Machine, task: &mut Task, inode: InodeId, page: u64, write: bool) {
    m.mm.borrow_mut().events.pgfault += 1;
    task.work(Site::Work, m.costs.minor_fault_ns);
    for attempt in 0..ATTEMPTS.get() {
        // do_read_fault; do_shared_fault does not.
        if !write && map_around(m, task, inode, page) {
            return;
        }
        let found = m.mm.borrow().lookup(inode, page);
        let waited = match found {
            Some(place) => {
                if attempt == 0 {
                    found_cached(m, task, inode, page, place).await;
                }
                readahead::wait_for(m, task, inode, page, Site::FaultWait).await
            }
            None => {
                m.mm.borrow_mut().events.pgmajfault += 1;
                read_around(m, task, inode, page).await;
                true
            }
        };
        if !waited || !m.profile.is_6() {
            break;
        }
    }
    map_one(m, task, inode, page);
}

/// do_async_mmap_readahead.
async fn found_cached(m: &Machine, task: &mut Task, inode: InodeId, page: u64, (id, bit): (ChunkId, u32)) {
    let most = m.device_of(inode).knobs.borrow().read_ahead_pages;
    if most == 0 {
        return;
    }
    let marked = {
        let mut mm = m.mm.borrow_mut();
        let misses = &mut mm.inodes.get_mut(inode).ahead.misses;
        *misses = count(*misses, -1);
        mm.chunks.get(id).marked & bit != 0
    };
    if marked {
        readahead::reach_mark(m, task, inode, page, (id, bit), page + most - 1).await;
    }
}

/// The number of misses after one more or one less.
fn count(misses: i32, more: i32) -> i32 {
    misses.saturating_add(more).clamp(0, LOTS_OF_MISSES.get() * COUNTED_TIMES.get())
}

/// do_sync_mmap_readahead, which may read only the page itself, and the wait for the page.
async fn read_around(m: &Machine, task: &mut Task, inode: InodeId, page: u64) {
    let most = m.device_of(inode).knobs.borrow().read_ahead_pages;
    if let Some(window) = window(m, inode, page, most) {
        readahead::submit(m, task, inode, window, page).await;
        readahead::wait_for(m, task, inode, page, Site::FaultWait).await;
    }
    let missing = m.mm.borrow().lookup(inode, page).is_none();
    if missing {
        vfs::fetch(m, task, inode, (page, page + 1), 0, Site::FaultWait).await;
    }
}

fn window(m: &Machine, inode: InodeId, page: u64, most: u64) -> Option<Ahead> {
    let ahead = m.mm.borrow().inodes.get(inode).ahead;
    if most == 0 {
        return None;
    }
    let misses = count(ahead.misses, 1);
    m.mm.borrow_mut().inodes.get_mut(inode).ahead.misses = misses;
    (misses <= LOTS_OF_MISSES.get()).then(|| {
        let pages = most as u32;
        let left = pages / MARKED_PART.get();
        Ahead { start: page.saturating_sub(most / 2), pages, left, order: 0, ..ahead }
    })
}

/// do_fault_around and filemap_map_pages: maps the pages of the aligned block that are cached, have been read and carry
/// no mark. Returns whether the page itself was one of them.
fn map_around(m: &Machine, task: &mut Task, inode: InodeId, page: u64) -> bool {
    if !m.profile.is_6() {
        return false;
    }
    let (window, block) = block_of(page);
    let on_its_way = m.coming.borrow().of_window(inode, window);
    let mut mm = m.mm.borrow_mut();
    let (mut found, mut fewer, mut fresh) = (0, 0, 0);
    let mut id = mm.inodes.get(inode).windows.get(window);
    while id != NONE {
        let chunk = mm.chunks.get_mut(id);
        let here = chunk.present & block & !chunk.marked & !on_its_way;
        found |= here;
        fewer += here.count_ones();
        let added = here & !chunk.mapped;
        // arch_wants_old_prefaulted_pte: not on x86, whose entries begin accessed.
        (chunk.mapped, chunk.referenced) = (chunk.mapped | added, chunk.referenced | added);
        let (zone, next) = (usize::from(chunk.zone), chunk.sibling);
        mm.zones[zone].mapped += u64::from(added.count_ones());
        fresh += u64::from(added.count_ones());
        id = next;
    }
    let misses = &mut mm.inodes.get_mut(inode).ahead.misses;
    *misses = count(*misses, -(fewer as i32));
    task.work(Site::Work, fresh * m.costs.map_page_ns);
    found & 1 << (page % WINDOW_PAGES) != 0
}

/// The window of a page, and its bits in the fault-around block.
fn block_of(page: u64) -> (u32, u32) {
    let first = page % WINDOW_PAGES / AROUND_PAGES.get() * AROUND_PAGES.get();
    ((page / WINDOW_PAGES) as u32, (((1_u64 << AROUND_PAGES.get()) - 1) << first) as u32)
}

/// finish_fault: maps only the page itself, if it is cached.
fn map_one(m: &Machine, task: &mut Task, inode: InodeId, page: u64) {
    let mut mm = m.mm.borrow_mut();
    let Some((id, bit)) = mm.lookup(inode, page) else { return };
    let chunk = mm.chunks.get_mut(id);
    chunk.referenced |= bit;
    let added = u64::from(chunk.mapped & bit == 0);
    chunk.mapped |= bit;
    let zone = usize::from(chunk.zone);
    mm.zones[zone].mapped += added;
    task.work(Site::Work, m.costs.map_page_ns);
}

#[cfg(test)]
mod tests {
    use super::{block_of, count};

    #[test]
    fn misses_are_held_against_hits_between_0_and_1000() {
        assert_eq!([count(0, -1), count(1000, 1), count(7, -16)], [0, 1000, 0]);
    }

    #[test]
    fn a_block_is_an_aligned_half_window() {
        assert_eq!([0, 15, 16, 63].map(block_of), [(0, 0xffff), (0, 0xffff), (0, 0xffff_0000), (1, 0xffff_0000)]);
    }
}

//! Mapped files: references and unmapping. `fault` has the faults.
//!
//! Models: the accessed bit of each page as the chunk's reference, unmapping that leaves the pages cached.
//! Leaves out: shootdowns, private mappings, huge pages.

use crate::Machine;
use crate::fs::inode::InodeId;
use crate::kernel::PAGE_BYTES;
use crate::mm::chunk::{ACTIVE, INACTIVE, NONE, bits_from};
use crate::mm::fault;
use crate::mm::filemap_add;
use crate::mm::memory::Mm;
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::writeback::dirty_throttle;

/// Touches mapped pages.
pub async fn touch_mapped(m: &Machine, task: &mut Task, inode: InodeId, offset: u64, bytes: u64, write: bool) {
    let (first, last) = (offset / PAGE_BYTES, (offset + bytes.max(1) - 1) / PAGE_BYTES);
    let mut page = first;
    while page <= last {
        let known = if write { 0 } else { touch_known(m, task, inode, page, last) };
        if known > 0 {
            page += known;
            continue;
        }
        touch_page(m, task, inode, page, write).await;
        page += 1;
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
    }
}

/// References the rest of a window that is cached and mapped, at once and without a fault.
fn touch_known(m: &Machine, task: &mut Task, inode: InodeId, page: u64, last: u64) -> u64 {
    let (window, bits) = bits_from(page, last + 1);
    let count = u64::from(bits.count_ones());
    let mut mm = m.mm.borrow_mut();
    let id = mm.inodes.get(inode).windows.get(window);
    if id == NONE || mm.chunks.get(id).mapped & bits != bits {
        return 0;
    }
    mm.chunks.get_mut(id).referenced |= bits;
    task.work(Site::Work, count * m.costs.touch_ns);
    count
}

async fn touch_page(m: &Machine, task: &mut Task, inode: InodeId, page: u64, write: bool) {
    let is_mapped = reference(m, inode, page);
    if is_mapped {
        task.work(Site::Work, m.costs.touch_ns);
    } else {
        fault::fault(m, task, inode, page, write).await;
    }
    if !write {
        return;
    }
    let Some((id, bit)) = m.mm.borrow().lookup(inode, page) else { return };
    // fs/ext4/inode.c: ext4_page_mkwrite, 6.1: the page's block is a written one from then on.
    m.mm.borrow_mut().inodes.convert(inode, page, page + 1);
    let device = m.place_of(inode);
    let (id, bit) = filemap_add::buffer_of(m, task, inode, page, (id, bit)).await;
    if id != NONE && m.mark_dirty(id, bit) && dirty_throttle::due(m, device, task) {
        task.run(m).await;
        dirty_throttle::balance(m, device, task).await;
    }
}

/// Sets the accessed bit of a page's entry; false if the page has no entry.
fn reference(m: &Machine, inode: InodeId, page: u64) -> bool {
    let mut mm = m.mm.borrow_mut();
    let Some((id, bit)) = mm.lookup(inode, page) else { return false };
    let chunk = mm.chunks.get_mut(id);
    let is_mapped = chunk.mapped & bit != 0;
    chunk.referenced |= if is_mapped { bit } else { 0 };
    is_mapped
}

/// Unmaps every page of the file; the pages stay cached. Up to 4.6 pages that were written by write() and touched since
/// go to the active list: zap_pte_range (mm/memory.c, 2.6.32) marks a page with a young entry accessed, and
/// generic_perform_write had marked it once before. The pages of a replaced file are then on the active list, where
/// scans of the inactive list do not find them. From 4.7 on a write does not mark pages, so that this mark is the
/// first.
pub fn unmap(m: &Machine, task: &mut Task, inode: InodeId) {
    let mut mm = m.mm.borrow_mut();
    let pages = unmap_pages(&mut mm, inode);
    task.work(Site::Work, pages * m.costs.unmap_page_ns);
}

fn unmap_pages(mm: &mut Mm, inode: InodeId) -> u64 {
    let mut pages = 0;
    for window in 0..mm.inodes.get(inode).windows.end() {
        let mut id = mm.inodes.get(inode).windows.get(window);
        while id != NONE {
            let chunk = mm.chunks.get_mut(id);
            let count = u64::from(chunk.mapped.count_ones());
            let young = chunk.mapped & chunk.referenced & chunk.buffers;
            let activates = !mm.profile.is_6()
                && usize::from(chunk.list) == INACTIVE
                && young.count_ones() * 2 > chunk.present.count_ones();
            chunk.mapped = 0;
            let (zone, next) = (usize::from(chunk.zone), chunk.sibling);
            mm.zones[zone].mapped -= count;
            if activates {
                mm.chunks.get_mut(id).referenced = 0;
                mm.chunks.move_to_head(id, ACTIVE);
            }
            pages += count;
            id = next;
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::unmap_pages;
    use crate::kernel;
    use crate::machine::build;
    use crate::mm::slab::Object;

    /// The list of 8 mapped pages after they are unmapped; `written` of them have buffer_heads, `used` were referenced.
    fn list_of(kernel: &str, written: u32, used: u32) -> (u64, u64, [u64; 2]) {
        let mut mm = build::memory(&kernel::find(kernel).expect("a profile"), &[256 << 20], 1);
        mm.zones[0].size_pcp(1);
        let inode = mm.inodes.add((1, 1), Object::default(), false);
        let pages = (0..8).map(|page| {
            mm.take_frames(0, 0, 0);
            mm.insert(inode, page, 0)
        });
        let id = pages.last().expect("eight");
        let chunk = mm.chunks.get_mut(id);
        (chunk.mapped, chunk.buffers, chunk.referenced) = (0xff, (1 << written) - 1, (1 << used) - 1);
        mm.zones[0].mapped = 8;
        let unmapped = unmap_pages(&mut mm, inode);
        let lruvec = usize::from(mm.zones[0].lruvec);
        (unmapped, mm.zones[0].mapped, mm.chunks.lruvecs[lruvec].pages)
    }

    /// zap_pte_range: mark_page_accessed() of each page whose entry is young; up to 4.6 that is the second mark of what
    /// was written.
    #[test]
    fn pages_that_were_written_and_used_are_activated_when_they_are_unmapped_up_to_4_6() {
        for (written, used, active) in [(8, 8, true), (8, 5, true), (8, 4, false), (4, 8, false), (0, 8, false)] {
            for (kernel, marks) in [("linux-2.6.32", true), ("linux-6.1", false)] {
                let lists = if active && marks { [0, 8] } else { [8, 0] };
                assert_eq!(list_of(kernel, written, used), (8, 0, lists), "{kernel}: {written} written, {used} used");
            }
        }
    }
}

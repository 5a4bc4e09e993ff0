//! Mapped files: references and unmapping. `fault` has the faults.
//!
//! Models: the accessed bit of each page as the chunk's reference, unmapping that leaves the pages cached.
//! Leaves out: shootdowns, private mappings, huge pages.

use crate::Machine;
use crate::fs::inode::InodeId;
use crate::kernel::PAGE_BYTES;
use crate::mm::chunk::{NONE, bits_from};
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

/// Unmaps every page of the file; the pages stay cached.
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
            chunk.mapped = 0;
            let (zone, next) = (usize::from(chunk.zone), chunk.sibling);
            mm.zones[zone].mapped -= count;
            pages += count;
            id = next;
        }
    }
    pages
}

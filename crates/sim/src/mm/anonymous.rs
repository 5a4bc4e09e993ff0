//! Anonymous memory of the workloads, allocated at the first access.
//!
//! Models: faults of 4 KiB pages, or of 2 MiB with transparent huge pages (do_huge_pmd_anonymous_page), zeroing, and
//! charges to a memory cgroup. Leaves out: swapping; a huge page is 512 small pages after its fault.

use crate::Machine;
use crate::constant::constants;
use crate::fs::inode::{InodeId, owner};
use crate::fs::vfs;
use crate::kernel::PAGE_BYTES;
use crate::mm::alloc::{self, Want};
use crate::mm::chunk::{ChunkId, INACTIVE, NONE, WINDOW_PAGES, bits_from};
use crate::mm::memcontrol;
use crate::mm::memory::Mm;
use crate::mm::slab::Object;
use crate::sched::site::Site;
use crate::sched::task::Task;

constants! {
    const HUGE_PAGES: u64 = kernel(512, "arch/x86/include/asm/page_types.h", "HPAGE_PMD_NR", "4.18");
}

/// The thread's memory; made at its first use.
fn own(m: &Machine, task: &mut Task) -> InodeId {
    let in_cgroup = task.in_cgroup && m.mm.borrow().cgroup.exists();
    *task.own_memory.get_or_insert_with(|| m.mm.borrow_mut().open_memory(in_cgroup))
}

fn pages_at_once(m: &Machine) -> u64 {
    if m.knobs.borrow().huge_pages { HUGE_PAGES.get() } else { 1 }
}

/// read() into untouched memory: the copy faults it in.
pub async fn read_kept(m: &Machine, task: &mut Task, inode: InodeId, offset: u64, bytes: u64) {
    let (memory, at_once) = (own(m, task), pages_at_once(m));
    let mut done = 0;
    while done < bytes {
        let piece = (at_once * PAGE_BYTES).min(bytes - done);
        let pages = piece.div_ceil(PAGE_BYTES);
        let first = task.own_pages;
        task.own_pages += pages;
        fault(m, task, memory, first, pages).await;
        vfs::read_on(m, task, inode, (offset + done, offset + done + piece), offset + bytes).await;
        done += piece;
    }
}

/// One fault on memory that was never touched.
async fn fault(m: &Machine, task: &mut Task, memory: InodeId, first: u64, pages: u64) {
    task.work(Site::Work, m.costs.fault_ns());
    m.mm.borrow_mut().events.pgfault += 1;
    charge(m, task, memory, pages).await;
    for page in first..first + pages {
        let Some(frame) = alloc::frame(m, task, Want::USER).await else {
            m.mm.borrow_mut().uncharge_page(memory);
            continue;
        };
        task.work(Site::Work, if pages > 1 { m.costs.zero_huge_page_ns() } else { m.costs.zero_page_ns() });
        m.mm.borrow_mut().insert_anonymous(memory, page, frame);
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
    }
}

/// mm/memory.c: alloc_anon_folio; if the charge of a huge page fails, small pages are charged
/// (do_huge_pmd_anonymous_page).
async fn charge(m: &Machine, task: &mut Task, memory: InodeId, pages: u64) {
    let in_cgroup = m.mm.borrow().inodes.get(memory).in_cgroup;
    if !in_cgroup || memcontrol::charge(m, task, pages).await {
        return;
    }
    for _ in 0..pages {
        memcontrol::charge(m, task, 1).await;
    }
}

/// Loads from or stores to the thread's memory.
pub async fn touch(m: &Machine, task: &mut Task, offset: u64, bytes: u64, write: bool) {
    let memory = own(m, task);
    let last = (offset + bytes.max(1) - 1) / PAGE_BYTES;
    let mut page = offset / PAGE_BYTES;
    while page <= last {
        let known = touch_known(m, task, memory, (page, last), write);
        if known > 0 {
            page += known;
        } else {
            touch_page(m, task, memory, page, write).await;
            page += 1;
        }
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
    }
}

/// Accesses the rest of a window that is in memory, at once and without a fault.
fn touch_known(m: &Machine, task: &mut Task, memory: InodeId, (page, last): (u64, u64), write: bool) -> u64 {
    let (window, bits) = bits_from(page, last + 1);
    let count = u64::from(bits.count_ones());
    let mm = m.mm.borrow();
    let id = mm.inodes.get(memory).windows.get(window);
    if id == NONE || mm.chunks.get(id).present & bits != bits {
        return 0;
    }
    task.work(Site::Work, count * if write { m.costs.store_ns } else { m.costs.touch_ns });
    count
}

/// mm/memory.c: handle_mm_fault for one page.
async fn touch_page(m: &Machine, task: &mut Task, memory: InodeId, page: u64, write: bool) {
    if is_new(m, memory, page) {
        let at_once = pages_at_once(m);
        let first = page / at_once * at_once;
        // If a part of the huge page is in memory, this page alone.
        let whole = at_once > 1 && (first..first + at_once).all(|page| is_new(m, memory, page));
        let (first, pages) = if whole { (first, at_once) } else { (page, 1) };
        fault(m, task, memory, first, pages).await;
    }
    task.work(Site::Work, if write { m.costs.store_ns } else { m.costs.touch_ns });
}

fn is_new(m: &Machine, memory: InodeId, page: u64) -> bool {
    m.mm.borrow().lookup(memory, page).is_none()
}

impl Mm {
    /// Makes the memory of a process.
    pub fn open_memory(&mut self, in_cgroup: bool) -> InodeId {
        self.memories += 1;
        let id = self.inodes.add((owner::ANONYMOUS, self.memories), Object::default(), in_cgroup);
        let inode = self.inodes.get_mut(id);
        (inode.anonymous, inode.opens) = (true, 1);
        id
    }

    /// exit_mmap.
    fn close_memory(&mut self, inode: InodeId, cpu: u16) -> u64 {
        let freed = self.invalidate(inode, 0, true, cpu);
        self.inodes.forget_name(inode);
        self.inodes.get_mut(inode).dead = true;
        if self.inodes.get(inode).pages == 0 {
            self.free_inode(inode, cpu);
        }
        freed
    }

    /// A page of a process, on a list that is not scanned: the model has no swap.
    pub fn insert_anonymous(&mut self, inode: InodeId, page: u64, zone: u8) -> ChunkId {
        let (window, bit) = ((page / WINDOW_PAGES) as u32, 1 << (page % WINDOW_PAGES));
        let lruvec = self.zones[usize::from(zone)].anonymous_lruvec;
        let id = self.chunk_for(inode, window, zone, lruvec, INACTIVE);
        // Before its first page is counted.
        if self.chunks.get(id).present == 0 {
            self.chunks.get_mut(id).anonymous = true;
        }
        self.chunks.set_present(id, bit);
        let memory = self.inodes.get_mut(inode);
        memory.pages += 1;
        self.cgroup.anonymous += u64::from(memory.in_cgroup);
        self.zones[usize::from(zone)].anonymous += 1;
        id
    }
}

/// munmap() from a page on.
pub fn give_back(m: &Machine, task: &mut Task, from_page: u64) {
    let Some(memory) = task.own_memory else { return };
    let freed = m.mm.borrow_mut().invalidate(memory, from_page, true, task.cpu);
    task.work(Site::Work, freed * m.costs.unmap_page_ns);
}

/// exit_mmap.
pub fn drop_own(m: &Machine, task: &mut Task) {
    task.own_pages = 0;
    let Some(memory) = task.own_memory.take() else { return };
    let freed = m.mm.borrow_mut().close_memory(memory, task.cpu);
    task.work(Site::Work, freed * m.costs.unmap_page_ns);
}

//! Memory of the workload's own, taken page by page as it is first touched.
//!
//! Models: faults of 4 KiB pages, or of 2 MiB where transparent huge pages are on (do_huge_pmd_anonymous_page), zeroing, and
//! that nothing but the process's end gives them back. Leaves out: swap and the anonymous LRU lists.

use super::Machine;
use super::alloc::{self, Want};
use super::constant::constants;
use super::inode::InodeId;
use super::site::Site;
use super::task::Task;
use super::vfs;

constants! {
    const HUGE_PAGES: u64 = kernel(512, "arch/x86/include/asm/page_types.h", "HPAGE_PMD_NR", "4.18");
}

const PAGE: u64 = 4096;

/// read() into memory that nobody has touched yet: the copy faults it in.
pub async fn read_kept(m: &Machine, task: &mut Task, inode: InodeId, offset: u64, bytes: u64) {
    let at_once = if m.profile.huge_pages { HUGE_PAGES.get() } else { 1 };
    let mut done = 0;
    while done < bytes {
        let piece = (at_once * PAGE).min(bytes - done);
        take(m, task, piece.div_ceil(PAGE)).await;
        vfs::read_on(m, task, inode, (offset + done, offset + done + piece), offset + bytes).await;
        done += piece;
    }
}

/// One fault.
async fn take(m: &Machine, task: &mut Task, pages: u64) {
    task.work(Site::Work, m.costs.minor_fault_ns + pages * m.costs.zero_page_ns());
    for _ in 0..pages {
        let Some(zone) = alloc::frame(m, task, Want::USER).await else { continue };
        m.mm.borrow_mut().zones[usize::from(zone)].pinned += 1;
        let held = &mut task.kept;
        match held.iter_mut().find(|(of, _)| *of == zone) {
            Some((_, count)) => *count += 1,
            None => held.push((zone, 1)),
        }
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
    }
}

/// exit_mmap.
pub fn drop_kept(m: &Machine, task: &mut Task) {
    let mut mm = m.mm.borrow_mut();
    for (zone, pages) in std::mem::take(&mut task.kept) {
        mm.zones[usize::from(zone)].pinned -= pages;
        mm.give_frames(zone, task.cpu, pages, false);
        task.work(Site::Work, pages * m.costs.unmap_page_ns);
    }
}

//! Memory of the workload's own, taken as it is first touched.
//!
//! Models: faults of 4 KiB pages, or of 2 MiB where transparent huge pages are on (do_huge_pmd_anonymous_page), zeroing, the
//! anonymous LRU lists, charges to a memory cgroup, and faults on what was swapped out (`swap`). Leaves out: huge pages as one page
//! once they are there.

use super::Machine;
use super::alloc::{self, Want};
use super::chunk::{NONE, bits_from};
use super::constant::constants;
use super::inode::InodeId;
use super::site::Site;
use super::swap;
use super::task::Task;
use super::v6::cgroup;
use super::vfs;

constants! {
    const HUGE_PAGES: u64 = kernel(512, "arch/x86/include/asm/page_types.h", "HPAGE_PMD_NR", "4.18");
}

const PAGE: u64 = 4096;

/// The thread's memory, made when it first needs any.
fn own(m: &Machine, task: &mut Task) -> InodeId {
    let in_cgroup = task.in_cgroup && m.mm.borrow().cgroup.exists();
    *task.own_memory.get_or_insert_with(|| m.mm.borrow_mut().open_memory(in_cgroup))
}

fn pages_at_once(m: &Machine) -> u64 {
    if m.knobs.borrow().huge_pages { HUGE_PAGES.get() } else { 1 }
}

/// read() into memory that nobody has touched yet: the copy faults it in.
pub async fn read_kept(m: &Machine, task: &mut Task, inode: InodeId, offset: u64, bytes: u64) {
    let (memory, at_once) = (own(m, task), pages_at_once(m));
    let mut done = 0;
    while done < bytes {
        let piece = (at_once * PAGE).min(bytes - done);
        let pages = piece.div_ceil(PAGE);
        let first = task.own_pages;
        task.own_pages += pages;
        let far_ns = fault(m, task, memory, first, pages).await;
        task.work(Site::Work, far_ns);
        vfs::read_on(m, task, inode, (offset + done, offset + done + piece), offset + bytes).await;
        done += piece;
    }
}

/// One fault on memory that was never touched. Returns what copying into it takes longer because it is another node's.
async fn fault(m: &Machine, task: &mut Task, memory: InodeId, first: u64, pages: u64) -> u64 {
    task.work(Site::Work, m.costs.fault_ns());
    m.mm.borrow_mut().events.pgfault += 1;
    charge(m, task, memory, pages).await;
    let active = m.profile.swap.starts_active;
    let mut far_ns = 0;
    for page in first..first + pages {
        let Some(frame) = alloc::frame(m, task, Want::USER).await else {
            m.mm.borrow_mut().uncharge_page(memory);
            continue;
        };
        task.work(Site::Work, m.clear_ns(task, frame.zone, pages > 1));
        far_ns += m.far_copy_ns(task, frame.zone, PAGE);
        m.mm.borrow_mut().insert_anonymous(memory, page, frame, active);
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
    }
    far_ns
}

/// mm/memory.c: alloc_anon_folio; a huge page that cannot be charged is several small ones (do_huge_pmd_anonymous_page).
async fn charge(m: &Machine, task: &mut Task, memory: InodeId, pages: u64) {
    let in_cgroup = m.mm.borrow().inodes.get(memory).in_cgroup;
    if !in_cgroup || cgroup::charge(m, task, pages).await {
        return;
    }
    for _ in 0..pages {
        cgroup::charge(m, task, 1).await;
    }
}

/// Loads from or stores to memory of the thread's own.
pub async fn touch(m: &Machine, task: &mut Task, offset: u64, bytes: u64, write: bool) {
    let memory = own(m, task);
    let last = (offset + bytes.max(1) - 1) / PAGE;
    let mut page = offset / PAGE;
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

/// The rest of a window that is in memory: references without a fault, all at once.
fn touch_known(m: &Machine, task: &mut Task, memory: InodeId, (page, last): (u64, u64), write: bool) -> u64 {
    let (window, bits) = bits_from(page, last + 1);
    let count = u64::from(bits.count_ones());
    let mut mm = m.mm.borrow_mut();
    let id = mm.inodes.get(memory).windows.get(window);
    if id == NONE || mm.chunks.get(id).present & bits != bits {
        return 0;
    }
    mm.chunks.get_mut(id).referenced |= bits;
    if mm.swap.has_ahead() {
        let hits = (page..page + count).filter(|page| mm.swap.note_used(memory, *page as u32)).count();
        task.work(Site::Work, hits as u64 * m.costs.fault_ns());
    }
    if write {
        (page..page + count).for_each(|page| mm.dirty_anonymous(memory, page));
    }
    task.work(Site::Work, count * if write { m.costs.store_ns } else { m.costs.touch_ns });
    count
}

/// mm/memory.c: handle_mm_fault for one page: there, swapped out, or new.
async fn touch_page(m: &Machine, task: &mut Task, memory: InodeId, page: u64, write: bool) {
    let there = m.mm.borrow().lookup(memory, page).is_some();
    if !there {
        let slot = m.mm.borrow().swap.slot(memory, page as u32);
        match slot {
            Some(slot) => {
                task.work(Site::Work, m.costs.fault_ns());
                swap::swap_in(m, task, memory, page, slot).await;
            }
            None => {
                let at_once = pages_at_once(m);
                let first = page / at_once * at_once;
                // Part of the huge page is in memory or swapped out: this page alone.
                let whole = at_once > 1 && (first..first + at_once).all(|page| is_new(m, memory, page));
                let (first, pages) = if whole { (first, at_once) } else { (page, 1) };
                fault(m, task, memory, first, pages).await;
            }
        }
    }
    let mut mm = m.mm.borrow_mut();
    // In the swap cache, but in no table yet.
    if mm.swap.note_used(memory, page as u32) {
        task.work(Site::Work, m.costs.fault_ns());
    }
    if let Some((id, bit)) = mm.lookup(memory, page) {
        mm.chunks.get_mut(id).referenced |= bit;
        if write {
            mm.dirty_anonymous(memory, page);
        }
    }
    task.work(Site::Work, if write { m.costs.store_ns } else { m.costs.touch_ns });
}

fn is_new(m: &Machine, memory: InodeId, page: u64) -> bool {
    let mm = m.mm.borrow();
    mm.lookup(memory, page).is_none() && mm.swap.slot(memory, page as u32).is_none()
}

/// munmap() of all behind so many pages.
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

#[cfg(test)]
mod tests {
    use crate::run;
    use flatwater_recording::{Entity, Recording, Table};
    use flatwater_workload::scenario::Scenario;

    /// A program with so much memory, touched again and again or left alone, beside a file that is read again and again.
    fn squeezed(kernel: &str, swap: &str, swappiness: u32, program: &str, file: &str) -> Recording {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nduration = '4s'\nthreshold = '1ms'\nkernel = '{kernel}'\n\
             [machine]\ncpus = 2\nnodes = ['256MiB']\nswap = '{swap}'\n\
             disk = {{ size = '8GB', write_bps = '200MB', iops = 20000, file_system = 'ext2' }}\n\
             [setup]\n'vm.swappiness' = {swappiness}\n'mount.options' = 'noatime'\n\
             [[workload]]\nuse = 'memory'\n{program}\n\
             [[workload]]\nuse = 'access'\nfile_size = '{file}'\npattern = 'sequential'\nbytes = '128KiB'\n"
        );
        run(&Scenario::parse("x", &text).expect("parses")).unwrap_or_else(|error| panic!("{kernel}: {error}")).0
    }

    fn last(recording: &Recording, column: &str) -> i64 {
        let vmstat = recording.table(Table::Vmstat).expect("vmstat");
        vmstat.rows_of(&Entity::default()).expect("rows").last(column).unwrap_or(0)
    }

    #[test]
    fn more_memory_than_there_is_goes_to_swap_and_comes_back_on_every_kernel() {
        for kernel in ["linux-2.6.17", "linux-2.6.32", "linux-3.10", "linux-4.18", "linux-6.1"] {
            let ran = squeezed(kernel, "1GiB", 60, "size = '320MiB'\npattern = 'sequential'", "32MiB");
            let (out, back) = (last(&ran, "pswpout"), last(&ran, "pswpin"));
            assert!(out > 1000, "{kernel}: {out} pages out, {back} back");
        }
    }

    #[test]
    fn idle_memory_leaves_the_one_list_of_2_6_17_by_swappiness_and_the_split_lists_only_under_need() {
        let out = |kernel: &str, swap: &str, swappiness| {
            let idle = "size = '160MiB'\npattern = 'once'";
            last(&squeezed(kernel, swap, swappiness, idle, "192MiB"), "pswpout")
        };
        assert!(out("linux-2.6.17", "1GiB", 0) * 2 < out("linux-2.6.17", "1GiB", 100), "swap_tendency reaches 100");
        // 2.6.28: a stream of pages that are used once is what is scanned, however idle the memory.
        assert_eq!(out("linux-2.6.32", "1GiB", 60), 0);
        assert_eq!(out("linux-4.18", "1GiB", 0), 0, "3.5 and later: never, while there are files");
        assert_eq!(out("linux-6.1", "0B", 100), 0, "there is no swap");
    }
}

//! The memory cgroup of a scenario: its counter, charges and statistics.
//!
//! Models: try_charge_memcg with a batch of 64 pages stocked on each CPU, a large folio charged as a whole, kernel
//! objects charged by their bytes, its dirty pages and pages under writeback. Leaves out: nested cgroups, memory.high,
//! low and min, swap, out-of-memory kills (a page that cannot be charged is tried again).

use crate::Machine;
use crate::constant::constants;
use crate::kernel::PAGE_BYTES;
use crate::mm::memcg_reclaim;
use crate::mm::memory::Mm;
use crate::mm::reclaim::Scanned;
use crate::sched::task::{Mechanism, Task};

constants! {
    const BATCH: u64 = kernel(64, "include/linux/memcontrol.h", "MEMCG_CHARGE_BATCH", "6.1");
    const RETRIES: u32 = kernel(16, "mm/internal.h", "MAX_RECLAIM_RETRIES", "6.1");
    /// The charge of a larger folio fails where that of a smaller one retries.
    const COSTLY_PAGES: u64 = kernel(8, "include/linux/mmzone.h", "1 << PAGE_ALLOC_COSTLY_ORDER", "6.1");
}

#[derive(Clone, Debug, Default)]
pub struct Cgroup {
    /// Its LRU lists by node; empty if the scenario has no cgroup.
    pub lruvecs: Vec<u8>,
    pub limit: u64,
    /// Pages charged, including the CPUs' stocks and kernel objects.
    used: u64,
    /// Pages charged in advance and not used yet, by CPU.
    stock: Vec<u64>,
    /// Kernel objects, and the pages that are charged for them.
    object_bytes: u64,
    object_pages: u64,
    pub dirty: u64,
    pub writeback: u64,
    /// Pages of processes' memory.
    pub anonymous: u64,
    /// Charges that reached the limit (memory.failcnt, memory.events: max).
    pub limit_hits: u64,
    pub pgscan: u64,
    pub pgsteal: u64,
}

impl Cgroup {
    #[must_use]
    pub fn exists(&self) -> bool {
        !self.lruvecs.is_empty() && self.limit > 0
    }

    /// The usage that the kernel shows, pages.
    #[must_use]
    pub fn usage(&self) -> u64 {
        self.used
    }

    #[must_use]
    pub fn margin(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    fn fits(&mut self, pages: u64) -> bool {
        let fits = self.margin() >= pages;
        if fits {
            self.used += pages;
        } else {
            self.limit_hits += 1;
        }
        fits
    }

    fn stock_of(&mut self, cpu: u16) -> &mut u64 {
        let cpu = usize::from(cpu);
        if self.stock.len() <= cpu {
            self.stock.resize(cpu + 1, 0);
        }
        &mut self.stock[cpu]
    }

    /// mm/memcontrol.c: from the CPU's stock (consume_stock), else a batch, else only the needed pages.
    fn try_charge(&mut self, cpu: u16, pages: u64, batch: bool) -> bool {
        let stock = self.stock_of(cpu);
        if *stock >= pages {
            *stock -= pages;
            return true;
        }
        if batch && pages < BATCH.get() && self.fits(BATCH.get()) {
            *self.stock_of(cpu) += BATCH.get() - pages;
            return true;
        }
        self.fits(pages)
    }

    fn drain_stocks(&mut self) {
        self.used -= self.stock.drain(..).sum::<u64>();
    }

    pub fn uncharge(&mut self, pages: u64) {
        self.used = self.used.saturating_sub(pages);
    }

    /// obj_cgroup_uncharge: freed whole pages go to the CPU's stock, and to the counter when that is full.
    pub fn uncharge_objects(&mut self, bytes: u64, cpu: u16) {
        self.object_bytes = self.object_bytes.saturating_sub(bytes);
        let free = self.object_pages.saturating_sub(self.object_bytes.div_ceil(PAGE_BYTES));
        if free == 0 {
            return;
        }
        self.object_pages -= free;
        *self.stock_of(cpu) += free;
        if *self.stock_of(cpu) > BATCH.get() {
            self.used -= std::mem::take(self.stock_of(cpu));
        }
    }

    /// Counted for the cgroup alone, not in /proc/vmstat (mm/vmscan.c: shrink_inactive_list, cgroup_reclaim).
    pub fn note_scan(&mut self, sum: Scanned) {
        self.pgscan += sum.scanned;
        self.pgsteal += sum.freed;
    }

    /// Its page cache, pages.
    #[must_use]
    pub fn file(&self, mm: &Mm) -> u64 {
        self.lruvecs.iter().map(|&lruvec| mm.lru_pages(lruvec)).sum()
    }
}

impl Mm {
    /// Makes the cgroup with lists on every node. Metadata blocks are charged to it if its tasks read them.
    pub fn open_cgroup(&mut self) {
        self.cgroup.lruvecs = (0..self.nodes).map(|_| self.chunks.add_lruvec()).collect();
        for &device in &self.block_devices {
            self.inodes.get_mut(device).in_cgroup = true;
        }
    }
}

/// mm/memcontrol.c: try_charge_memcg. False only for large folios: the page cache then tries a smaller one.
pub async fn charge(m: &Machine, task: &mut Task, pages: u64) -> bool {
    if m.mm.borrow_mut().cgroup.try_charge(task.cpu, pages, true) {
        return true;
    }
    task.enter(m, Mechanism::MemcgReclaim);
    let charged = charge_by_reclaim(m, task, pages).await;
    task.leave(m);
    charged
}

async fn charge_by_reclaim(m: &Machine, task: &mut Task, pages: u64) -> bool {
    let mut tries = 0;
    loop {
        let freed = memcg_reclaim::reclaim(m, task, pages).await;
        let fits = {
            let cgroup = &mut m.mm.borrow_mut().cgroup;
            if cgroup.margin() < pages && tries == 0 {
                cgroup.drain_stocks();
            }
            cgroup.try_charge(task.cpu, pages, false)
        };
        if fits {
            return true;
        }
        tries += u32::from(freed == 0 || pages > COSTLY_PAGES.get());
        if tries > RETRIES.get() && pages > COSTLY_PAGES.get() {
            return false;
        }
        if tries > RETRIES.get() {
            // The kernel would kill a process here, which the model does not: wait for writeback instead.
            memcg_reclaim::throttle(m, task).await;
        }
    }
}

/// obj_cgroup_charge: objects are charged by their size, not by slab.
pub async fn charge_object(m: &Machine, task: &mut Task, bytes: u64) {
    if !task.in_cgroup || !m.mm.borrow().cgroup.exists() {
        return;
    }
    let needs_page = {
        let cgroup = &mut m.mm.borrow_mut().cgroup;
        cgroup.object_bytes += bytes;
        let needs_page = cgroup.object_bytes.div_ceil(PAGE_BYTES) > cgroup.object_pages;
        cgroup.object_pages += u64::from(needs_page);
        needs_page
    };
    if needs_page {
        charge(m, task, 1).await;
    }
}

#[cfg(test)]
mod tests {
    use super::Cgroup;

    fn limited(limit: u64) -> Cgroup {
        Cgroup { lruvecs: vec![0], limit, ..Cgroup::default() }
    }

    #[test]
    fn a_batch_is_stocked_while_there_is_room_and_single_pages_fit_where_a_batch_does_not() {
        let mut cgroup = limited(100);
        assert!(cgroup.try_charge(0, 1, true) && cgroup.usage() == 64, "a batch, 63 pages stocked");
        assert!(cgroup.try_charge(0, 60, true) && cgroup.usage() == 64, "from the stock");
        assert_eq!(cgroup.limit_hits, 0);
        // Another CPU has no stock: its batch does not fit, its page does.
        assert!(cgroup.try_charge(1, 1, true));
        assert_eq!((cgroup.usage(), cgroup.limit_hits), (65, 1));
        assert!(!cgroup.try_charge(1, 64, true), "a large folio does not, where 35 pages are left");
        assert_eq!((cgroup.usage(), cgroup.margin(), cgroup.limit_hits), (65, 35, 2));
        cgroup.drain_stocks();
        assert_eq!(cgroup.usage(), 62);
    }

    #[test]
    fn objects_come_free_by_the_page_and_go_to_the_stock() {
        let mut cgroup = limited(1000);
        (cgroup.object_bytes, cgroup.object_pages, cgroup.used) = (3 * 4096, 3, 3);
        cgroup.uncharge_objects(4000, 0);
        assert_eq!((cgroup.object_pages, cgroup.usage()), (3, 3), "part of a page");
        cgroup.uncharge_objects(4096, 0);
        assert_eq!((cgroup.object_pages, cgroup.usage()), (2, 3), "charged still, in the stock");
        assert!(cgroup.try_charge(0, 1, true));
        assert_eq!((cgroup.usage(), cgroup.limit_hits), (3, 0));
    }
}

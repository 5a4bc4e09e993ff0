//! Flushers, which write dirty pages in the background and pages that have been dirty for long.
//!
//! Models: pdflush with one thread for old pages and one for each device's background work (up to 2.6.31), and a
//! flusher of each device that writes 1024 pages of a file at a time (2.6.32 to 3.0). From 3.1 on wb_writeback: rounds
//! of up to a tenth of a second over the queued files, oldest first, half a second's worth of each; the flusher wakes
//! an interval after its last work and writes old pages and the remaining pages of files. Leaves out: waits for locked
//! files (inode_sleep_on_writeback), nr_dirty_inodes of the periodic work.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use crate::Machine;
use crate::block;
use crate::block::device::{Bdi, DeviceId};
use crate::block::wbt::Purpose;
use crate::constant::constants;
use crate::fs::inode::InodeId;
use crate::kernel::Throttle;
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::writeback::{FLUSH_PAGES, over_background, write_locked, write_some};

constants! {
    const MIN_WRITEBACK_PAGES: u64 = kernel(1024, "fs/fs-writeback.c", "MIN_WRITEBACK_PAGES (4096 >> (PAGE_SHIFT - 10))", "3.1");
    /// Largest part of a file that is written at a time, as a fraction of the dirty limit.
    const DIRTY_SCOPE: u64 = kernel(8, "include/linux/writeback.h", "DIRTY_SCOPE", "3.1");
    /// Rounds a second; after each the flusher checks whether work is left.
    const ROUNDS_PER_S: u64 = kernel(10, "fs/fs-writeback.c", "writeback_sb_inodes (HZ / 10)", "3.1");
}

/// writeback_chunk_size, in pages.
fn chunk_size(avg_write_bandwidth: u64, dirty_limit: u64, left: u64) -> u64 {
    let pages = (avg_write_bandwidth / 2).min(dirty_limit / DIRTY_SCOPE.get()).min(left);
    let least = MIN_WRITEBACK_PAGES.get();
    pages.saturating_add(least) / least * least
}

/// Work of a flusher of 3.1 and later (struct wb_writeback_work).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Old dirty pages (wb_check_old_data_flush).
    Old,
    /// Down to the background limit (wb_check_background_flush).
    Background,
    /// All pages that are dirty now (wb_check_start_all).
    All,
}

/// fs/fs-writeback.c: wb_writeback, 3.1 and later.
async fn write_back(m: &Machine, device: DeviceId, task: &mut Task, work: Work) {
    let start_ns = m.clock.now();
    let mut left = match work {
        Work::Background => u64::MAX,
        Work::Old => m.mm.borrow().dirty(),
        Work::All => m.mm.borrow().by_device[device.index()].dirty,
    };
    while left > 0 && (work != Work::Background || over_background(m, device)) {
        let older_ns = match work {
            Work::Old => m.clock.now().saturating_sub(m.knobs.borrow().dirty_expire_ns),
            Work::Background => m.clock.now(),
            Work::All => start_ns,
        };
        m.queue_io(device, older_ns);
        let progress = write_queued(m, device, task, &mut left).await;
        if progress == 0 {
            break;
        }
    }
}

/// fs/fs-writeback.c: writeback_sb_inodes: one round; returns its progress in pages and cleaned files.
async fn write_queued(m: &Machine, device: DeviceId, task: &mut Task, left: &mut u64) -> u64 {
    let until_ns = m.clock.now() + m.profile.jiffy_ns() * m.profile.hz.get() / ROUNDS_PER_S.get();
    let bdi = &m.device(device).bdi;
    let mut progress = 0;
    loop {
        let Some(inode) = bdi.borrow_mut().io.pop_front() else { break };
        if m.wb.borrow().locked.contains(&inode) {
            bdi.borrow_mut().more_io.push_back(inode);
            continue;
        }
        if m.dirty_pages(inode) == 0 {
            continue;
        }
        let chunk = {
            let own = bdi.borrow().bandwidth;
            chunk_size(own.avg_write_bandwidth, own.dirty_limit(), *left)
        };
        let wrote = write_locked(m, task, inode, chunk, Site::GetRequestWait).await;
        progress += wrote;
        *left = left.saturating_sub(wrote);
        // requeue_inode.
        match m.dirty_pages(inode) {
            0 => progress += 1,
            _ if wrote >= chunk => bdi.borrow_mut().more_io.push_back(inode),
            _ => {}
        }
        if progress > 0 && (m.clock.now() > until_ns || *left == 0) {
            break;
        }
    }
    task.run(m).await;
    progress
}

impl Machine {
    fn dirty_pages(&self, id: InodeId) -> u64 {
        self.mm.borrow().inodes.get(id).dirty.as_deref().map_or(0, |dirty| dirty.pages)
    }

    /// fs/fs-writeback.c: queue_io: when all queued files had their turn, queues the files with more to write, then
    /// those dirtied up to `older_ns`, oldest first.
    fn queue_io(&self, device: DeviceId, older_ns: u64) {
        let own = self.device(device);
        let mut bdi = own.bdi.borrow_mut();
        if !bdi.io.is_empty() {
            return;
        }
        bdi.io = std::mem::take(&mut bdi.more_io);
        let queued: BTreeSet<InodeId> = bdi.io.iter().copied().collect();
        let mm = self.mm.borrow();
        let since_ns = |id: InodeId| {
            let dirty = mm.inodes.get(id).dirty.as_deref().filter(|dirty| dirty.pages > 0);
            dirty.map(|dirty| dirty.since_ns)
        };
        let mut dirty = own.dirty_inodes.borrow_mut();
        dirty.retain(|&id| since_ns(id).is_some());
        let old = |&id: &InodeId| Some((since_ns(id).filter(|&since_ns| since_ns <= older_ns)?, id));
        let mut expired: Vec<_> = dirty.iter().filter(|id| !queued.contains(id)).filter_map(old).collect();
        expired.sort_unstable();
        bdi.io.extend(expired.into_iter().map(|(_, id)| id));
    }
}

/// mm/page-writeback.c: wb_kupdate: writes all pages that are old enough, however often a queue fills; skips a device
/// whose queue is full (generic_sync_sb_inodes, 2.6.24).
async fn write_old(m: &Machine, devices: &[DeviceId], task: &mut Task, older_ns: u64) {
    let mut expired: Vec<_> = devices.iter().map(|&device| m.expired_inodes(device, older_ns)).collect();
    loop {
        for (turn, &device) in expired.iter_mut().zip(devices) {
            write_old_of(m, device, task, turn, older_ns).await;
        }
        if expired.iter().all(VecDeque::is_empty) {
            break;
        }
        m.congestion_wait(task, m.profile.jiffy_ns() * m.profile.hz.get() / 10).await;
    }
    task.run(m).await;
}

/// Files left in `turn` wait for a full queue.
async fn write_old_of(m: &Machine, device: DeviceId, task: &mut Task, turn: &mut VecDeque<InodeId>, older_ns: u64) {
    while let Some(inode) = turn.pop_front() {
        if !m.may_write(inode, older_ns) {
            continue;
        }
        let wrote = write_locked(m, task, inode, FLUSH_PAGES.get(), Site::GetRequestWait).await;
        if m.device(device).congested() {
            turn.push_front(inode);
            return;
        }
        if wrote > 0 {
            turn.push_back(inode);
        }
    }
}

/// Writes pages for reclaim (wakeup_pdflush, wakeup_flusher_threads, up to 3.0): file by file, each time half a
/// second's worth at 100 MiB/s.
async fn write_all(m: &Machine, device: DeviceId, task: &mut Task, pages: u64) {
    let mut left = pages;
    if pages == 0 {
        return;
    }
    let mut turn = m.expired_inodes(device, u64::MAX);
    // queue_io: the oldest first.
    let since_ns = |id: &InodeId| m.mm.borrow().inodes.get(*id).dirty.as_deref().map(|dirty| dirty.since_ns);
    turn.make_contiguous().sort_by_key(since_ns);
    while let Some(inode) = turn.pop_front().filter(|_| left > 0) {
        if !m.may_write(inode, u64::MAX) {
            continue;
        }
        let chunk = (m.device(device).bdi.borrow().bandwidth.avg_write_bandwidth / 2).max(FLUSH_PAGES.get());
        let wrote = write_locked(m, task, inode, left.min(chunk), Site::GetRequestWait).await;
        left -= wrote.min(left);
        // Pages dirtied again under writeback wait for the next time.
        if wrote > 0 {
            turn.push_back(inode);
        }
        task.run(m).await;
    }
}

/// A flusher of these devices: writes old pages at every interval, and whenever it is woken down to the background
/// limit.
pub async fn flusher(m: Rc<Machine>, devices: Vec<DeviceId>) {
    let mut task = Task::new(0, 0);
    (task.memalloc, task.plugs) = (true, m.profile.is_6());
    let Some(first) = devices.iter().copied().min() else { return };
    let own = &m.device(first).bdi;
    own.borrow_mut().flusher = Some(m.clock.current());
    let by_file = m.profile.throttle == Throttle::IoLess;
    let mut periodic_ns = 0;
    loop {
        task.begin();
        let now = m.clock.now();
        let (interval, expire) = {
            let knobs = m.knobs.borrow();
            (knobs.writeback_interval_ns, knobs.dirty_expire_ns)
        };
        // wb_check_old_data_flush: at any wake-up, if the last time is an interval ago.
        let is_periodic = now >= periodic_ns && interval > 0;
        if is_periodic {
            periodic_ns = now + interval;
        }
        let wakes_ns = if by_file {
            for &device in &devices {
                perform(&m, device, &mut task, is_periodic).await;
            }
            // wb_workfn: wakes an interval after its work if pages are dirty, else an interval after the first dirtied
            // page (wb_wakeup_delayed).
            let is_dirty = devices.iter().any(|&device| m.mm.borrow().by_device[device.index()].dirty > 0);
            own.borrow_mut().wakes_at_first_dirty = !is_dirty;
            if is_dirty { m.clock.now() + interval } else { u64::MAX }
        } else {
            task.writes = Purpose::Background;
            if is_periodic {
                write_old(&m, &devices, &mut task, now.saturating_sub(expire)).await;
                // fs/fs-writeback.c: bdi_writeback_task, 2.6.32, sleeps for the interval once its work is done;
                // wb_kupdate before 2.6.32 counted from the beginning of the work.
                if m.profile.throttle == Throttle::DoublingPauses {
                    periodic_ns = m.clock.now() + interval;
                }
            }
            task.writes = Purpose::Plain;
            for &device in &devices {
                let asked = m.device(device).bdi.borrow_mut().full_flush.begin(false);
                let pages = if asked { m.mm.borrow().by_device[device.index()].dirty } else { 0 };
                write_all(&m, device, &mut task, pages).await;
            }
            task.writes = Purpose::Background;
            // Each further device has a thread for this (`background`).
            write_in_background(&m, first, &mut task).await;
            periodic_ns
        };
        block::unplug(&m, &mut task);
        if devices.iter().any(|&device| m.device(device).bdi.borrow().full_flush.is_asked()) {
            continue;
        }
        sleep(&m, own, (interval > 0).then_some(wakes_ns)).await;
    }
}

/// mm/pdflush.c: pdflush_operation, fs/fs-writeback.c: writeback_acquire: background work of a further device. One
/// thread a device (BDI_pdflush), without the kernel's limit of eight (MAX_PDFLUSH_THREADS).
pub async fn background(m: Rc<Machine>, device: DeviceId) {
    let mut task = Task::new(0, 0);
    (task.memalloc, task.writes) = (true, Purpose::Background);
    let own = &m.device(device).bdi;
    own.borrow_mut().flusher = Some(m.clock.current());
    loop {
        task.begin();
        write_in_background(&m, device, &mut task).await;
        sleep(&m, own, None).await;
    }
}

/// Sleeps until woken or until the deadline, which starts again when the first page is dirtied.
async fn sleep(m: &Machine, own: &RefCell<Bdi>, wakes_ns: Option<u64>) {
    let mut wakes_ns = wakes_ns;
    loop {
        own.borrow_mut().flusher_parked = true;
        m.clock.park(wakes_ns.filter(|at| *at < u64::MAX).map(|at| at.max(m.clock.now() + 1))).await;
        own.borrow_mut().flusher_parked = false;
        let is_first = std::mem::take(&mut own.borrow_mut().dirtied_first);
        if !is_first || own.borrow().full_flush.is_asked() {
            break;
        }
        let interval = m.knobs.borrow().writeback_interval_ns;
        wakes_ns = (interval > 0).then(|| m.clock.now() + interval);
    }
}

/// fs/fs-writeback.c: wb_do_writeback.
async fn perform(m: &Machine, device: DeviceId, task: &mut Task, is_periodic: bool) {
    let asked = m.device(device).bdi.borrow_mut().full_flush.begin(true);
    if asked {
        task.writes = Purpose::Plain;
        write_back(m, device, task, Work::All).await;
        m.device(device).bdi.borrow_mut().full_flush.end();
    }
    task.writes = Purpose::Background;
    if is_periodic {
        write_back(m, device, task, Work::Old).await;
    }
    if over_background(m, device) {
        write_back(m, device, task, Work::Background).await;
    }
}

/// mm/page-writeback.c: background_writeout, 2.6.24: writes a device's pages down to the background limit, up to 1024
/// at a time as far as its queue has room.
async fn write_in_background(m: &Machine, device: DeviceId, task: &mut Task) {
    while over_background(m, device) {
        let wrote = write_some(m, device, task, FLUSH_PAGES.get(), Site::GetRequestWait).await;
        // "Wrote less than expected".
        if wrote == 0 && !m.device(device).congested() {
            break;
        }
        if wrote == 0 {
            m.congestion_wait(task, m.profile.jiffy_ns() * m.profile.hz.get() / 10).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::chunk_size;

    /// writeback_chunk_size, 6.12: min(bandwidth / 2, limit / 8, left), and the next multiple of 1024 above it.
    #[test]
    fn of_a_file_as_much_is_written_as_half_a_second_takes_and_no_more_than_an_eighth_of_the_limit() {
        // 25600 pages a second: 12800 + 1024 = 13824, of which 13 * 1024 = 13312 are whole.
        assert_eq!(chunk_size(25_600, 1 << 20, u64::MAX), 13_312);
        // A limit of 40000: 5000 + 1024 = 6024, 5 * 1024.
        assert_eq!(chunk_size(25_600, 40_000, u64::MAX), 5_120);
        assert_eq!(chunk_size(25_600, 40_000, 1_000), 1_024);
        assert_eq!(chunk_size(25_600, 0, u64::MAX), 1_024, "3.2 before a task was throttled");
        assert_eq!(chunk_size(100, 1 << 20, u64::MAX), 1_024);
        assert_eq!(chunk_size(4_096, 1 << 20, u64::MAX), 3_072, "2048 is a multiple already: the next");
    }
}

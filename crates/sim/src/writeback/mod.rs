//! Dirty pages: the limits, and writing the pages of a file. `flusher` has background writing, `dirty_throttle` the
//! waits.
//!
//! Models: writing a file's dirty windows as requests, one writer a file at a time (I_LOCK). Leaves out: per-cgroup
//! flushers and bandwidths.

pub mod dirty_throttle;
pub mod flusher;
pub mod io_less;
pub mod proportions;
pub mod sync;
pub mod wb_thresh;

use crate::constant::constants;
use crate::kernel::PAGE_BYTES;
use std::collections::{BTreeSet, VecDeque};

use crate::Machine;
use crate::block::device::DeviceId;
use crate::block::{self, Done, Request};
use crate::fs::inode::InodeId;
use crate::kernel::Throttle;
use crate::mm::chunk::{NONE, WINDOW_PAGES};
use crate::mm::memory::Mm;
use crate::mm::reclaim::{CLUSTER, Pageout};
use crate::mm::zone::totalreserve_pages;
use crate::sched::clock::{Clock, WaitQueue};
use crate::sched::site::Site;
use crate::sched::task::{Culprit, Task};
use crate::writeback::io_less::Domain;
use crate::writeback::proportions::Completions;
use crate::writeback::wb_thresh::{dirty_of, shares};

constants! {
    /// Pages of one file that the flusher writes before it turns to the next.
    pub const FLUSH_PAGES: u64 = kernel(1024, "fs/fs-writeback.c", "MAX_WRITEBACK_PAGES", "2.6.32");
    const DIRTY_RATIO_MIN: u64 = kernel(5, "mm/page-writeback.c", "get_dirty_limits", "2.6.32");
    const RATELIMIT_MIN: u64 = kernel(16, "mm/page-writeback.c", "set_ratelimit", "2.6.18");
    const RATELIMIT_MAX: u64 = kernel(1024, "mm/page-writeback.c", "set_ratelimit (4096 * 1024 bytes)", "2.6.18");
}

#[derive(Debug, Default)]
pub struct Writeback {
    /// Pages dirtied on each CPU since its last check (`ratelimits`, 2.6).
    pub per_cpu: Vec<u32>,
    /// Pages dirtied on a CPU between two checks, by any task (3.2 and later).
    pub ratelimit_pages: u32,
    /// Files that a task is writing (I_LOCK): others skip them.
    pub locked: BTreeSet<InodeId>,
    /// Tasks that wait for the queue of any device to drain (mm/backing-dev.c: congestion_wqh).
    pub congestion: WaitQueue,
    pub waiting: WaitQueue,
    /// Tasks that sleep in reclaim until more than a cluster per task was written, and the pages written so far.
    pub throttled: WaitQueue,
    throttled_written: u64,
    /// Recently written pages, for the devices' parts of the limits.
    pub completions: Completions,
    /// The largest excess over the limit seen, and that limit.
    pub over_limit: (u64, u64),
}

/// Global limits in pages.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub background: u64,
    pub throttle: u64,
}

impl Writeback {
    pub fn new(cpus: usize) -> Writeback {
        Writeback { per_cpu: vec![0; cpus], ..Writeback::default() }
    }
}

impl Writeback {
    /// mm/vmscan.c: __acct_reclaim_writeback.
    pub fn written_for_throttled(&mut self, pages: u64, clock: &Clock) {
        self.throttled_written = if self.throttled.is_empty() { 0 } else { self.throttled_written + pages };
        if self.throttled_written > CLUSTER.get() * self.throttled.len() as u64 {
            self.throttled_written = 0;
            self.throttled.wake_all(clock);
        }
    }
}

/// mm/page-writeback.c: set_ratelimit, 2.6: pages dirtied on a CPU between two checks of the limits.
pub fn ratelimit_pages(total_pages: u64, cpus: u64) -> u64 {
    (total_pages / (cpus * 32)).clamp(RATELIMIT_MIN.get(), RATELIMIT_MAX.get())
}

/// get_dirty_limits: percentages of the dirtyable memory, or the byte knobs.
pub fn limits(m: &Machine) -> Limits {
    let knobs = m.knobs.borrow();
    let mm = m.mm.borrow();
    let available: u64 = match m.profile.throttle {
        // mm/page-writeback.c, 2.6.17: of all memory, capped at half of what is not mapped.
        Throttle::PerCpuRateLimit => mm.managed(),
        // determine_dirtyable_memory, 2.6.26 and 2.6.32.
        Throttle::DoublingPauses => mm.sum(|zone| zone.free + zone.file) + 1,
        // global_dirtyable_memory, 3.3 and later: without the kernel's reserve.
        _ => mm.dirtyable() + 1,
    };
    let mut ratio = knobs.dirty_ratio;
    if m.profile.throttle == Throttle::PerCpuRateLimit {
        ratio = ratio.min((100 - mm.mapped_percent().min(100)) / 2);
    }
    // Up to 2.6.36.
    if m.profile.throttle != Throttle::IoLess {
        ratio = ratio.max(DIRTY_RATIO_MIN.get());
    }
    let throttle = knobs.dirty_bytes.map_or(available * ratio / 100, |bytes| bytes.div_ceil(PAGE_BYTES));
    let background = match (m.profile.throttle, knobs.background_bytes) {
        // get_dirty_limits, 2.6.18, compares the ratios, not the pages.
        (Throttle::PerCpuRateLimit, _) => {
            let own = knobs.background_ratio;
            available * if own >= ratio { ratio / 2 } else { own } / 100
        }
        (_, bytes) => bytes.map_or(available * knobs.background_ratio / 100, |bytes| bytes.div_ceil(PAGE_BYTES)),
    };
    Limits::new(background, throttle)
}

impl Mm {
    /// Free pages above the kernel's reserve, and file pages (global_dirtyable_memory).
    fn dirtyable(&self) -> u64 {
        self.sum(|zone| zone.free).saturating_sub(totalreserve_pages(&self.zones)) + self.sum(|zone| zone.file)
    }
}

impl Limits {
    /// mm/page-writeback.c: get_dirty_limits, 2.6.32, domain_dirty_limits, 6.1: background at or above the limit
    /// becomes half the limit.
    pub fn new(background: u64, throttle: u64) -> Limits {
        Limits { background: if background >= throttle { throttle / 2 } else { background }, throttle }
    }

    /// mm/page-writeback.c: balance_dirty_pages, 2.6.32: no task is throttled below it (dirty_freerun_ceiling, 3.2).
    pub fn middle(&self) -> u64 {
        (self.background + self.throttle) / 2
    }
}

/// mm/page-writeback.c: balance_dirty_pages: the limits and dirty pages of the machine and of the writer's cgroup (v2).
pub fn domains(m: &Machine, device: DeviceId, in_cgroup: bool) -> (Domain, Option<Domain>) {
    let own = cgroup_limits(m).filter(|_| in_cgroup);
    let limits = limits(m);
    let share = shares(m, device, limits);
    let strict = m.device(device).knobs.borrow().bdi_strict;
    let (dirty, of_device) = dirty_of(m, device);
    let mm = m.mm.borrow();
    let of_cgroup = mm.cgroup.dirty + mm.cgroup.writeback;
    let cgroup = own.map(|limits| Domain::of_all(limits, of_cgroup, true));
    (Domain { limits, dirty, share, wb_dirty: of_device.sum(), of_cgroup: false, strict }, cgroup)
}

/// mdtc_calc_avail, domain_dirty_limits: shares of the cgroup's file pages and headroom.
fn cgroup_limits(m: &Machine) -> Option<Limits> {
    let mm = m.mm.borrow();
    if m.cgroup_v1() || !mm.cgroup.exists() {
        return None;
    }
    let knobs = m.knobs.borrow();
    let available = mm.cgroup.file(&mm) + mm.cgroup.margin();
    let throttle = available * knobs.dirty_ratio / 100;
    Some(Limits::new(available * knobs.background_ratio / 100, throttle))
}

/// Whether a device's flusher has to write (wb_over_bg_thresh; up to 3.1 by the machine's limit alone).
pub fn over_background(m: &Machine, device: DeviceId) -> bool {
    let all = limits(m);
    let own = m.mm.borrow().by_device[device.index()].dirty;
    let over_own = || m.profile.is_6() && own > shares(m, device, all).background;
    all_over_background(m, all) || over_own()
}

fn all_over_background(m: &Machine, all: Limits) -> bool {
    let mm = m.mm.borrow();
    mm.dirty() > all.background || cgroup_limits(m).is_some_and(|own| mm.cgroup.dirty > own.background)
}

/// Writes up to `max_pages` dirty pages of one file; returns how many were submitted.
pub async fn write_pages(m: &Machine, task: &mut Task, inode: InodeId, max_pages: u64, site: Site) -> u64 {
    let mut written = 0;
    let mut run: Option<(u64, u64)> = None;
    // pdflush sets wbc->nonblocking (mm/page-writeback.c: background_writeout, up to 2.6.35): it backs off from a
    // congested queue where a throttled writer would sleep for a request.
    let blocks = m.profile.throttle == Throttle::IoLess;
    m.begin_estimate(m.place_of(inode));
    let device = m.device_of(inode);
    let request_pages = device.knobs.borrow().request_pages;
    let backs_off = task.memalloc && !blocks;
    while written < max_pages && !(backs_off && device.congested()) {
        let Some((first, bits)) = next_dirty(m, inode) else { break };
        for (page, count) in runs(first, bits) {
            written += count;
            match run {
                Some((start, pages)) if start + pages == page && pages + count <= request_pages => {
                    run = Some((start, pages + count));
                }
                _ => {
                    flush_run(m, task, inode, run, site).await;
                    run = Some((page, count));
                }
            }
        }
    }
    flush_run(m, task, inode, run, site).await;
    m.end_estimate(m.place_of(inode));
    written
}

impl Mm {
    /// clear_page_dirty_for_io and set_page_writeback for dirty pages of a window that are not under writeback; returns
    /// them.
    pub fn begin_writeback(&mut self, inode: InodeId, window: u32, wanted: u32, for_reclaim: bool) -> u32 {
        let mut id = self.inodes.get(inode).windows.get(window);
        let mut bits = 0;
        while id != NONE {
            let chunk = self.chunks.get_mut(id);
            let ready = chunk.dirty & !chunk.writeback & wanted;
            chunk.dirty &= !ready;
            chunk.writeback |= ready;
            chunk.reclaim |= for_reclaim && ready != 0;
            bits |= ready;
            let zone = usize::from(chunk.zone);
            id = chunk.sibling;
            self.zones[zone].dirty -= u64::from(ready.count_ones());
            self.zones[zone].writeback += u64::from(ready.count_ones());
        }
        let count = u64::from(bits.count_ones());
        let device = self.of_device(inode);
        device.dirty -= count;
        device.writeback += count;
        let inode = self.inodes.get_mut(inode);
        inode.under_writeback += count as u32;
        if let Some(list) = inode.dirty.as_deref_mut() {
            list.pages -= count;
        }
        if inode.in_cgroup {
            self.cgroup.dirty -= count;
            self.cgroup.writeback += count;
        }
        bits
    }

    fn is_window_dirty(&self, inode: InodeId, window: u32) -> bool {
        let mut id = self.inodes.get(inode).windows.get(window);
        while id != NONE {
            let chunk = self.chunks.get(id);
            if chunk.dirty != 0 {
                return true;
            }
            id = chunk.sibling;
        }
        false
    }
}

/// Sleeps until any request for pages is done; the caller checks for its own pages.
pub async fn wait_for_pages(m: &Machine, task: &mut Task, site: Site) {
    m.wb.borrow_mut().waiting.join(m.clock.current());
    task.park(m, None, site, Culprit::Device).await;
}

/// Takes the next window with dirty pages and marks them as under writeback.
fn next_dirty(m: &Machine, inode: InodeId) -> Option<(u64, u32)> {
    let mut mm = m.mm.borrow_mut();
    // One round at most: a window whose dirty pages are all under writeback goes to the back of the queue.
    let turns = mm.inodes.get(inode).dirty.as_deref().map_or(0, |dirty| dirty.windows.len());
    for _ in 0..turns {
        let window = mm.inodes.get_mut(inode).dirty.as_deref_mut()?.windows.pop_front()?;
        let bits = mm.begin_writeback(inode, window, u32::MAX, false);
        if mm.is_window_dirty(inode, window) {
            // Dirtied again under writeback: it needs another round.
            mm.inodes.get_mut(inode).dirty.get_or_insert_default().windows.push_back(window);
        }
        if bits != 0 {
            return Some((u64::from(window) * WINDOW_PAGES, bits));
        }
    }
    None
}

/// Runs of consecutive pages of a window: the first page and the length of each.
fn runs(window_start: u64, bits: u32) -> impl Iterator<Item = (u64, u64)> {
    let (mut page, mut bits) = (window_start, u64::from(bits));
    std::iter::from_fn(move || {
        let skip = (bits != 0).then(|| bits.trailing_zeros())?;
        let count = (bits >> skip).trailing_ones();
        let run = (page + u64::from(skip), u64::from(count));
        (page, bits) = (run.0 + run.1, bits >> (skip + count));
        Some(run)
    })
}

/// Writes dirty pages of a window for pageout() (block_write_full_page).
pub async fn write_for_reclaim(m: &Machine, task: &mut Task, page: Pageout) {
    let bits = m.mm.borrow_mut().begin_writeback(page.inode, page.window, page.bits, true);
    for run in runs(u64::from(page.window) * WINDOW_PAGES, bits) {
        m.mm.borrow_mut().events.vmscan_write += run.1;
        flush_run(m, task, page.inode, Some(run), Site::GetRequestWait).await;
    }
}

async fn flush_run(m: &Machine, task: &mut Task, inode: InodeId, run: Option<(u64, u64)>, site: Site) {
    let Some((first_page, pages)) = run else { return };
    let position = m.position(inode, first_page, true);
    let done = Done::Pages { inode, first_page, pages: pages as u32 };
    task.work(Site::Work, pages * m.costs.writepage_ns);
    let request = Request::new(true, position, pages as u32, done).on(m.place_of(inode));
    m.mm.borrow_mut().events.pgpgout_kib += pages * 4;
    block::submit(m, task, request, site).await;
}

/// writeback_inodes: up to `max_pages` from a device's dirty files in turn.
pub async fn write_some(m: &Machine, device: DeviceId, task: &mut Task, max_pages: u64, site: Site) -> u64 {
    let mut written = 0;
    while written < max_pages {
        let Some(inode) = m.next_dirty_inode(device) else { break };
        // mpage_writepages continues in one file as long as wbc->nr_to_write lasts.
        let got = write_locked(m, task, inode, max_pages - written, site).await;
        written += got;
        if got == 0 {
            break;
        }
    }
    task.run(m).await;
    written
}

impl Machine {
    /// The next file in turn with pages to write.
    fn next_dirty_inode(&self, device: DeviceId) -> Option<InodeId> {
        let own = self.device(device);
        let from = own.bdi.borrow().next_inode;
        let turn = own.dirty_inodes.borrow();
        let fits = |id: &InodeId| self.may_write(*id, u64::MAX);
        let after = turn.range(from..).copied().find(&fits);
        after.or_else(|| turn.range(..from).copied().find(&fits))
    }

    /// Files of a device that were dirtied before `older_ns`, in turn (queue_io); removes clean files from the turn.
    pub fn expired_inodes(&self, device: DeviceId, older_ns: u64) -> VecDeque<InodeId> {
        let own = self.device(device);
        let from = own.bdi.borrow().next_inode;
        let mut turn = own.dirty_inodes.borrow_mut();
        turn.retain(|&id| self.mm.borrow().inodes.get(id).dirty.as_deref().is_some_and(|dirty| dirty.pages > 0));
        turn.range(from..).chain(turn.range(..from)).copied().filter(|&id| self.may_write(id, older_ns)).collect()
    }

    pub fn may_write(&self, id: InodeId, older_ns: u64) -> bool {
        // fs/fs-writeback.c: __writeback_single_inode: WB_SYNC_NONE does not wait for I_LOCK.
        if self.wb.borrow().locked.contains(&id) {
            return false;
        }
        let mm = self.mm.borrow();
        let dirty = mm.inodes.get(id).dirty.as_deref();
        dirty.is_some_and(|dirty| dirty.pages > 0 && dirty.since_ns <= older_ns && !dirty.windows.is_empty())
    }

    /// At the end of balance_dirty_pages: wakes the flusher above the machine's background limit; the flusher itself
    /// checks the device's part.
    pub fn wake_flusher_over_background(&self, device: DeviceId) {
        if all_over_background(self, limits(self)) {
            self.wake_flusher(device);
        }
    }

    /// Wakes the device's flusher, or all sleeping threads of pdflush, which write to all devices.
    pub fn wake_flusher(&self, device: DeviceId) {
        if self.profile.throttle.has_pdflush() {
            self.device_ids().for_each(|device| self.wake_flusher_of(device));
        } else {
            self.wake_flusher_of(device);
        }
    }

    fn wake_flusher_of(&self, device: DeviceId) {
        let mut bdi = self.device(device).bdi.borrow_mut();
        if std::mem::take(&mut bdi.flusher_parked)
            && let Some(flusher) = bdi.flusher
        {
            self.clock.wake(flusher);
        }
    }

    /// fs/fs-writeback.c: __mark_inode_dirty, wb_wakeup_delayed: the first dirty file sets the time of the flusher's
    /// wake-up.
    pub fn note_first_dirty(&self, device: DeviceId) {
        let mut bdi = self.device(device).bdi.borrow_mut();
        if std::mem::take(&mut bdi.wakes_at_first_dirty) {
            bdi.dirtied_first = true;
            drop(bdi);
            self.wake_flusher(device);
        }
    }

    /// mm/vmscan.c: shrink_inactive_list, wakeup_flusher_threads(WB_REASON_VMSCAN), 4.12 and later.
    pub fn write_all_back(&self) {
        for device in self.device_ids() {
            self.device(device).bdi.borrow_mut().full_flush.ask();
            self.wake_flusher(device);
        }
    }

    /// Sleeps until the queue of a device drains or the time is up (`congestion_wait`).
    pub async fn congestion_wait(&self, task: &mut Task, ns: u64) {
        task.run(self).await;
        let me = self.clock.current();
        self.wb.borrow_mut().congestion.join(me);
        let deadline = self.clock.now() + ns;
        task.park(self, Some(deadline), Site::CongestionWait, Culprit::Device).await;
        self.wb.borrow_mut().congestion.leave(me);
    }
}

/// `write_pages` with the file locked (I_LOCK, later I_SYNC).
pub async fn write_locked(m: &Machine, task: &mut Task, inode: InodeId, max_pages: u64, site: Site) -> u64 {
    m.device_of(inode).bdi.borrow_mut().next_inode = inode + 1;
    m.wb.borrow_mut().locked.insert(inode);
    let wrote = write_pages(m, task, inode, max_pages, site).await;
    m.wb.borrow_mut().locked.remove(&inode);
    wrote
}

#[cfg(test)]
mod tests {
    use super::{Limits, ratelimit_pages, runs};

    #[test]
    fn dirty_pages_that_follow_each_other_are_one_run() {
        let of = |bits| runs(64, bits).collect::<Vec<_>>();
        assert_eq!(of(0b1_0111), [(64, 3), (68, 1)]);
        assert_eq!((of(u32::MAX), of(1 << 31), of(0)), (vec![(64, 32)], vec![(95, 1)], vec![]));
    }

    #[test]
    fn a_background_limit_at_or_above_the_throttle_limit_becomes_half_that_limit() {
        for (background, throttle, wanted) in [(100, 200, 100), (199, 200, 199), (200, 200, 100), (300, 200, 100)] {
            assert_eq!(Limits::new(background, throttle).background, wanted, "{background} of {throttle}");
        }
    }

    #[test]
    fn the_rate_limit_is_a_32nd_of_memory_by_cpu_between_16_pages_and_4_mib() {
        assert_eq!(ratelimit_pages(100, 4), 16);
        assert_eq!(ratelimit_pages(64_000, 2), 1000);
        assert_eq!(ratelimit_pages(131_072, 2), 1024);
    }
}

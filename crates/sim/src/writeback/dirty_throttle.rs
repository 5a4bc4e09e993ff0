//! Throttling of writers at the dirty limits.
//!
//! Models: `balance_dirty_pages` of 2.6.17 and 2.6.20 (a per-CPU rate limit, a chunk written by the caller) and of
//! 2.6.32 (limits by device and task, doubling pauses); `io_less` has that of 3.2 and later. Leaves out: cpusets, and
//! the higher limit of tasks that dirty few pages.

use crate::Machine;
use crate::block::device::DeviceId;
use crate::constant::constants;
use crate::kernel::Throttle;
use crate::sched::site::Site;
use crate::sched::task::{Culprit, Mechanism, Task};
use crate::writeback::io_less;
use crate::writeback::wb_thresh::{dirty_of, share};
use crate::writeback::{limits, write_some};

constants! {
    /// Pages dirtied on a CPU between two checks while the limit is exceeded.
    const EXCEEDED_RATELIMIT: u64 = kernel(8, "mm/page-writeback.c", "balance_dirty_pages_ratelimited_nr", "2.6.18");
    /// A task that dirties all the pages is throttled this fraction (a power of two) below the limit.
    const TASK_LIMIT_SHIFT: u64 = kernel(3, "mm/page-writeback.c", "task_dirty_limit (*pdirty >> 3)", "2.6.32");
}

/// Whether the limits must be checked after this dirtied page.
#[inline]
pub fn due(m: &Machine, device: DeviceId, task: &mut Task) -> bool {
    let exceeded = {
        let mut bdi = m.device(device).bdi.borrow_mut();
        bdi.dirtied += 1;
        bdi.dirty_exceeded
    };
    task.nr_dirtied += 1;
    if m.profile.throttle == Throttle::IoLess {
        return io_less::is_due(m, exceeded, task);
    }
    let mut wb = m.wb.borrow_mut();
    // mm/page-writeback.c: balance_dirty_pages_ratelimited_nr: one counter per CPU; 8 pages after the limit was
    // exceeded.
    let limit = if exceeded { EXCEEDED_RATELIMIT.get() } else { m.knobs.borrow().ratelimit_pages };
    let counter = &mut wb.per_cpu[usize::from(task.cpu)];
    *counter += 1;
    let due = u64::from(*counter) >= limit;
    if due {
        *counter = 0;
    }
    due
}

pub async fn balance(m: &Machine, device: DeviceId, task: &mut Task) {
    note_excess(m);
    task.enter(m, Mechanism::DirtyThrottle);
    match m.profile.throttle {
        Throttle::PerCpuRateLimit => balance_by_chunk(m, device, task).await,
        Throttle::DoublingPauses => balance_by_task(m, device, task).await,
        Throttle::IoLess => io_less::balance(m, device, task).await,
        Throttle::None => {}
    }
    task.leave(m);
}

/// For the swarm: how far the pages are above the machine's limit.
fn note_excess(m: &Machine) {
    let limit = limits(m).throttle;
    let (all, _) = dirty_of(m, DeviceId::FIRST);
    let over = all.saturating_sub(limit);
    let mut wb = m.wb.borrow_mut();
    if over > wb.over_limit.0 {
        wb.over_limit = (over, limit);
    }
}

/// mm/page-writeback.c: sync_writeback_pages, 2.6: pages that a caller has written before it may continue.
fn write_chunk(m: &Machine) -> u64 {
    let ratelimit = m.knobs.borrow().ratelimit_pages;
    ratelimit + ratelimit / 2
}

/// mm/page-writeback.c: balance_dirty_pages, 2.6.18: the caller writes until a chunk is on its way or the limit is
/// kept. The limit counts all devices, but the caller writes only to its own device, so it may wait for another device
/// without a page to write.
async fn balance_by_chunk(m: &Machine, device: DeviceId, task: &mut Task) {
    let chunk = write_chunk(m);
    let mut written = 0;
    let within = || dirty_of(m, device).0 <= limits(m).throttle;
    // One flag for all devices (dirty_exceeded).
    let note = |exceeded| m.devices.iter().for_each(|device| device.bdi.borrow_mut().dirty_exceeded = exceeded);
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        if within() {
            break;
        }
        note(true);
        let any_dirty = m.mm.borrow().dirty() > 0;
        if any_dirty {
            written += write_some(m, device, task, chunk, Site::GetRequestWait).await;
            if within() || written >= chunk {
                break;
            }
        }
        wait_for_requests(m, task).await;
    }
    if within() {
        note(false);
    }
    m.wake_flusher_over_background(device);
}

/// mm/backing-dev.c: congestion_wait(WRITE, HZ/10): until the queue drains, or a tenth of a second.
async fn wait_for_requests(m: &Machine, task: &mut Task) {
    task.run(m).await;
    let me = m.clock.current();
    m.wb.borrow_mut().congestion.join(me);
    let deadline = m.clock.now() + m.profile.jiffy_ns() * m.profile.hz.get() / 10;
    task.park(m, Some(deadline), Site::BalanceDirty, Culprit::Device).await;
    m.wb.borrow_mut().congestion.leave(me);
}

/// mm/page-writeback.c: balance_dirty_pages, 2.6.32: no task is throttled below the middle of both limits. A caller
/// writes while its device exceeds its limit, and then pauses from a jiffy to HZ/10, twice as long each time, whatever
/// the queue does.
async fn balance_by_task(m: &Machine, device: DeviceId, task: &mut Task) {
    let chunk = write_chunk(m);
    let mut written = 0;
    let mut pause = 1;
    let own_limit = || task_limit(share(m, device, limits(m).throttle));
    loop {
        task.work(Site::Work, m.costs.balance_ns);
        let (sum, of_device) = dirty_of(m, device);
        if of_device.sum() <= own_limit() || sum < limits(m).middle() {
            break;
        }
        m.device(device).bdi.borrow_mut().dirty_exceeded = true;
        if of_device.dirty > own_limit() {
            written += write_some(m, device, task, chunk, Site::GetRequestWait).await;
        }
        if dirty_of(m, device).1.sum() <= own_limit() || written >= chunk {
            break;
        }
        task.run(m).await;
        task.sleep(m, pause * m.profile.jiffy_ns(), Site::BalanceDirty).await;
        pause = (pause * 2).min(m.profile.hz.get() / 10);
    }
    if dirty_of(m, device).1.sum() < own_limit() {
        m.device(device).bdi.borrow_mut().dirty_exceeded = false;
    }
    m.wake_flusher_over_background(device);
}

/// task_dirty_limit, 2.6.32: an eighth lower than the device's share, as for a task that dirties all of the pages.
fn task_limit(share: u64) -> u64 {
    share - (share >> TASK_LIMIT_SHIFT.get())
}

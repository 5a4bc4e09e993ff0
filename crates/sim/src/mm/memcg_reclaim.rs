//! Reclaim of a memory cgroup at its limit.
//!
//! Models: do_try_to_free_pages for one cgroup (6.1 to 6.18): dirty pages and pages under writeback marked
//! (PG_reclaim), activated, and moved to the tail of the inactive list once they are written; the flusher woken if a
//! batch has only dirty pages. With cgroup v1 (`writeback_throttling_sane` is false) the caller then sleeps, and waits
//! for marked pages that it finds under writeback again; with v2 `balance_dirty_pages` throttles the writers instead.
//! The unit is a large folio (`folio`) or a chunk of up to 32 pages. Leaves out: swap, list sizes that are up to 2 s
//! old (mem_cgroup_flush_stats_ratelimited, 6.8).

use crate::Machine;
use crate::block::device::DeviceId;
use crate::fs::vfs;
use crate::mm::chunk::{Chunk, INACTIVE, WINDOW_PAGES};
use crate::mm::reclaim::{self, CLUSTER, DEF_PRIORITY, Pass, Scanned};
use crate::mm::{shrink_node, super_cache};
use crate::sched::site::Site;
use crate::sched::task::{Culprit, Task};

/// Result of one look at the tail.
enum Look {
    /// The list is empty.
    End,
    Chunk {
        dirty: bool,
    },
    /// v1: marked before and still under writeback.
    Marked {
        inode: u32,
        page: u64,
    },
}

/// mm/vmscan.c: try_to_free_mem_cgroup_pages. Returns the pages freed.
pub async fn reclaim(m: &Machine, task: &mut Task, pages: u64) -> u64 {
    let target = pages.max(CLUSTER.get());
    let mut freed = 0;
    let lruvecs = m.mm.borrow().cgroup.lruvecs.clone();
    for priority in (0..=DEF_PRIORITY.get()).rev() {
        for &lruvec in &lruvecs {
            freed += shrink_lruvec(m, task, lruvec, priority, target).await;
        }
        let share =
            shrink_node::Share { target, fs: !task.no_fs, ..shrink_node::Share::at(priority, Site::MemcgReclaim) };
        super_cache::shrink(m, task, share).await;
        if freed >= target {
            break;
        }
    }
    m.mm.borrow_mut().snapshot_refaults(&lruvecs);
    task.run(m).await;
    freed
}

/// mm/vmscan.c: shrink_lruvec, get_scan_count, prepare_scan_control: a cluster of each list in turn, or more if its
/// last folio is larger.
async fn shrink_lruvec(m: &Machine, task: &mut Task, lruvec: u8, priority: u32, target: u64) -> u64 {
    let [mut inactive, mut active] = m.mm.borrow().scan_shares(lruvec, priority, [(1, 1); 2]);
    let may_age = m.mm.borrow().inactive_below_ratio(lruvec);
    let mut freed = 0;
    while inactive > 0 || active > 0 {
        let mut sum = Scanned::default();
        if inactive > 0 {
            let count = inactive.min(CLUSTER.get());
            sum = shrink_inactive(m, task, lruvec, count).await;
            inactive = if sum.scanned == 0 { 0 } else { inactive - count };
        }
        if active > 0 {
            let count = active.min(CLUSTER.get());
            if may_age {
                sum.aged = m.mm.borrow_mut().age_active(lruvec, count);
            }
            active -= count;
        }
        reclaim::charge_scan(m, task, Scanned { scanned: 0, freed: 0, mapped: 0, ..sum }, Site::MemcgReclaim);
        freed += sum.freed;
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
        }
        if freed >= target {
            break;
        }
    }
    freed
}

/// mm/vmscan.c: shrink_inactive_list: one batch.
async fn shrink_inactive(m: &Machine, task: &mut Task, lruvec: u8, count: u64) -> Scanned {
    let mut sum = Scanned::default();
    let mut all_dirty = true;
    while sum.scanned < count {
        let left = count - sum.scanned;
        let (before, seen) = (sum, look(m, task, (lruvec, left), &mut sum));
        charge_look(m, task, sum.scanned - before.scanned, sum.freed - before.freed);
        match seen {
            Look::End => break,
            Look::Chunk { dirty } => all_dirty &= dirty,
            Look::Marked { inode, page } => {
                all_dirty = false;
                // It moves to the inactive tail when it has been written.
                vfs::wait_page(m, task, inode, page, Site::MemcgWriteback).await;
            }
        }
    }
    m.mm.borrow_mut().cgroup.note_scan(sum);
    if sum.scanned > 0 && all_dirty {
        m.write_all_back();
    }
    let sleeps = sum.scanned > 0 && all_dirty && m.cgroup_v1();
    if sleeps {
        throttle(m, task).await;
    }
    sum
}

/// A large folio is scanned once, with all its chunks.
fn charge_look(m: &Machine, task: &mut Task, scanned: u64, freed: u64) {
    let costs = &m.costs;
    let is_large = m.device(DeviceId::FIRST).file_system.large_folios && scanned >= WINDOW_PAGES;
    let (looks, frees) = if is_large { (1, freed.min(1)) } else { (scanned, freed) };
    let pages_ns = if is_large { freed * costs.free_folio_page_ns } else { 0 };
    task.work(Site::MemcgReclaim, looks * costs.scan_page_ns + frees * costs.free_page_ns + pages_ns);
}

/// mm/vmscan.c: shrink_folio_list for the folio at the tail, or for up to `left` single pages.
fn look(m: &Machine, task: &Task, (lruvec, left): (u8, u64), sum: &mut Scanned) -> Look {
    let mut mm = m.mm.borrow_mut();
    let Some(id) = mm.chunks.tail(lruvec, INACTIVE) else { return Look::End };
    let folio = mm.folio_of(id);
    for &part in folio.parts().iter().filter(|_| m.cgroup_v1() && !task.no_fs) {
        let chunk = mm.chunks.get(part);
        if chunk.writeback != 0 && chunk.reclaim {
            // "Legacy memcg encounters a folio already marked for immediate reclaim": it is waited for, then freed.
            let page = u64::from(chunk.window) * WINDOW_PAGES + u64::from(chunk.writeback.trailing_zeros());
            return Look::Marked { inode: chunk.inode, page };
        }
    }
    let pass = Pass { may_unmap: true, may_write: false, cpu: task.cpu, site: Site::MemcgReclaim, kswapd: false };
    if folio.is_large() {
        let any = |of: fn(&Chunk) -> u32| folio.parts().iter().any(|&part| of(mm.chunks.get(part)) != 0);
        let dirty = any(|chunk| chunk.dirty) && !any(|chunk| chunk.writeback);
        sum.freed += mm.scan_folio(&folio, pass, sum);
        return Look::Chunk { dirty };
    }
    if mm.evict_part(id, left, pass.cpu, sum) {
        return Look::Chunk { dirty: false };
    }
    let chunk = *mm.chunks.get(id);
    sum.scanned += chunk.pages().max(1);
    sum.freed += mm.scan_chunk(id, pass, sum);
    Look::Chunk { dirty: chunk.dirty & chunk.present != 0 && chunk.writeback == 0 }
}

/// mm/vmscan.c: reclaim_throttle, VMSCAN_THROTTLE_WRITEBACK: a tenth of a second, or until more than a cluster for each
/// sleeper was written (__acct_reclaim_writeback).
pub async fn throttle(m: &Machine, task: &mut Task) {
    task.run(m).await;
    let me = m.clock.current();
    m.wb.borrow_mut().throttled.join(me);
    let deadline = m.clock.now() + m.profile.jiffy_ns() * m.profile.hz.get() / 10;
    task.park(m, Some(deadline), Site::MemcgThrottle, Culprit::Device).await;
    m.wb.borrow_mut().throttled.leave(me);
}

//! The shrinker of a file system's dentries and inodes, 4.16 and later.
//!
//! Models: do_shrink_slab's share by priority in batches of 1024, with the remainder carried over, super_cache_count
//! and super_cache_scan, dentry_lru_isolate's second chance, and that an inode with page cache is not on the list.
//! Leaves out: lists by node and cgroup, other shrinkers (ext4's extents, jbd2's checkpoints).

use crate::Machine;
use crate::constant::constants;
use crate::mm::shrink_node::Share;
use crate::mm::shrinker::slab_pages;
use crate::sched::site::Site;
use crate::sched::task::Task;

constants! {
    const BATCH: u64 = kernel(1024, "fs/super.c", "alloc_super (s_shrink.batch)", "6.1");
    const SEEKS: u64 = kernel(2, "include/linux/shrinker.h", "DEFAULT_SEEKS", "6.1");
}

/// Returns the slab pages freed (`reclaim_state->reclaimed_slab`).
pub async fn shrink(m: &Machine, task: &mut Task, share: Share) -> u64 {
    let counts = || (m.mm.borrow().inodes.with_dentry(), m.mm.borrow().inodes.unused());
    let (dentries, inodes) = counts();
    // fs/super.c: super_cache_count; vfs_pressure_ratio.
    let freeable = (dentries + inodes) * m.knobs.borrow().vfs_cache_pressure / 100;
    if freeable == 0 {
        return 0;
    }
    let mut owed = m.owed.get();
    let delta = (freeable >> share.priority) * 4 / SEEKS.get();
    let mut left = ((owed.together >> share.priority) + delta).min(2 * freeable);
    let (mut scanned, before) = (0, slab_pages(m));
    // super_cache_scan: without __GFP_FS SHRINK_STOP, and the whole share is carried over.
    let may = share.fs && !task.no_fs;
    while may && (left >= BATCH.get() || left >= freeable) {
        let batch = left.min(BATCH.get());
        let (dentries, inodes) = counts();
        let all = dentries + inodes + 1;
        let pruned = {
            let mut mm = m.mm.borrow_mut();
            mm.events.slabs_scanned += batch;
            let of_dentries = mm.prune_dentries(batch * dentries / all + 1, task.cpu).visited;
            of_dentries + mm.prune_inodes(batch * inodes / all + 1, task.cpu).visited
        };
        let site = if share.site == Site::NodeReclaim { Site::NodeReclaim } else { Site::ShrinkSlab };
        task.work(site, pruned * m.costs.prune_object_ns);
        task.run(m).await;
        (scanned, left) = (scanned + batch, left - batch);
    }
    owed = m.owed.get();
    owed.together = (owed.together + delta).saturating_sub(scanned).min(2 * freeable);
    m.owed.set(owed);
    before.saturating_sub(slab_pages(m))
}

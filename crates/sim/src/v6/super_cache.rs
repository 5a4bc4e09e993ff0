//! The shrinker of a file system's dentries and inodes, 4.16 and later.
//!
//! Models: do_shrink_slab's share by priority in batches of 1024 with what was not done left owed, super_cache_count and
//! super_cache_scan, dentry_lru_isolate's second chance, and that an inode with page cache is not on the list at all.
//! Leaves out: lists by node and cgroup, other shrinkers (ext4's extents, jbd2's checkpoints, shadow entries).

use super::node::Share;
use crate::Machine;
use crate::constant::constants;
use crate::inode::{List, Place};
use crate::shrinker::slab_pages;
use crate::site::Site;
use crate::slab::CacheKind;
use crate::task::Task;

constants! {
    const BATCH: u64 = kernel(1024, "fs/super.c", "alloc_super (s_shrink.batch)", "6.1");
    const SEEKS: u64 = kernel(2, "include/linux/shrinker.h", "DEFAULT_SEEKS", "6.1");
}

/// Pages of slabs that went (`reclaim_state->reclaimed_slab`).
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
    // super_cache_scan: without __GFP_FS SHRINK_STOP, and all of it stays owed.
    let may = share.fs && !task.no_fs;
    while may && (left >= BATCH.get() || left >= freeable) {
        let batch = left.min(BATCH.get());
        let (dentries, inodes) = counts();
        let all = dentries + inodes + 1;
        let mut pruned = prune_dentries(m, task.cpu, batch * dentries / all + 1);
        pruned += prune_inodes(m, task.cpu, batch * inodes / all + 1);
        m.mm.borrow_mut().events.slabs_scanned += batch;
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

/// fs/dcache.c: dentry_lru_isolate: in use: off the list; referenced: once more round. Returns the objects scanned.
fn prune_dentries(m: &Machine, cpu: u16, count: u64) -> u64 {
    let mut mm = m.mm.borrow_mut();
    for seen in 0..count {
        let Some(id) = mm.inodes.tail(List::Dentries) else { return seen };
        if !mm.keeps_dentry(id) {
            let inode = mm.inodes.get(id);
            let (dentry, pages) = (inode.dentry, inode.pages);
            // fs/inode.c: __inode_add_lru, 5.15 and later: page cache keeps an inode off the list (mapping_shrinkable).
            let held = pages > 0 && mm.profile.shrink.cache_holds_inodes;
            mm.inodes.put(id, if held { Place::Cached } else { Place::Unused });
            mm.free_object(CacheKind::Dentry, dentry, cpu);
        }
    }
    count
}

/// fs/inode.c: inode_lru_isolate.
fn prune_inodes(m: &Machine, cpu: u16, count: u64) -> u64 {
    let mut mm = m.mm.borrow_mut();
    let cache_holds = mm.profile.shrink.cache_holds_inodes;
    for seen in 0..count {
        let Some(id) = mm.inodes.tail(List::Inodes) else { return seen };
        if mm.inodes.keeps_unused(id, cache_holds) {
            continue;
        }
        // What its last page left behind goes first, and the walk begins again with it (LRU_RETRY).
        if cache_holds && mm.shadows.forget(id) {
            mm.events.pginodesteal += 1;
            continue;
        }
        // Up to 5.14 its pages go first (invalidate_mapping_pages).
        if mm.inodes.get(id).pages > 0 {
            let dropped = mm.invalidate(id, 0, false, cpu);
            mm.events.pginodesteal += dropped;
        }
        if mm.inodes.get(id).pages > 0 {
            mm.inodes.put(id, Place::Unused);
        } else {
            mm.free_inode(id, cpu);
        }
    }
    count
}

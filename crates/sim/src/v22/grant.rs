//! Allocates and frees blocks and inodes of ext2 in 2.2 under the superblock's lock (fs/ext2/balloc.c, ialloc.c). The
//! lock allows one allocation at a time in the whole file system, and its holder may have to read a bitmap or to free
//! memory first: all other tasks that allocate wait for that read.
//!
//! Leaves out: the eight bitmaps of each kind that stay in memory (EXT2_MAX_GROUP_LOADED), group descriptors, quotas.

use super::ext2::Inode;
use super::io::{change, make};
use super::ops::with;
use crate::Machine;
use crate::sched::site::Site;
use crate::sched::task::{Culprit, Task};

/// lock_super(); unlock_super() wakes every waiter, and the first to run takes the lock.
async fn lock(m: &Machine, task: &mut Task) {
    while with(m, |old| std::mem::replace(&mut old.super_locked, true)) {
        task.run(m).await;
        if !with(m, |old| old.super_locked) {
            continue;
        }
        with(m, |old| old.super_waiters.join(m.clock.current()));
        task.park(m, None, Site::SuperLock, Culprit::Peers).await;
        task.work(Site::Work, m.costs.wakeup_ns);
    }
}

fn unlock(m: &Machine) {
    with(m, |old| {
        old.super_locked = false;
        old.super_waiters.wake_all(&m.clock);
    });
}

/// ext2_new_block(): the first free block near the inode, stored in the inode by `place`; the block's buffer is created
/// under the lock.
pub async fn new_block(m: &Machine, task: &mut Task, inode: u32, place: impl FnOnce(&mut Inode, u32)) {
    lock(m, task).await;
    let bitmap = with(m, |old| old.fs.block_bitmap(inode));
    change(m, task, bitmap).await;
    let block = with(m, |old| {
        let block = old.fs.new_block(inode)?;
        place(&mut old.fs.inodes[inode as usize], block);
        Some(block)
    });
    if let Some(block) = block {
        make(m, task, block).await;
    }
    unlock(m);
}

/// ext2_free_blocks(), once for all blocks that a truncation frees.
pub async fn free_blocks(m: &Machine, task: &mut Task, inode: u32) {
    lock(m, task).await;
    let bitmap = with(m, |old| old.fs.block_bitmap(inode));
    change(m, task, bitmap).await;
    unlock(m);
}

/// ext2_new_inode()
pub async fn new_inode(m: &Machine, task: &mut Task, parent: Option<u32>) -> u32 {
    lock(m, task).await;
    let id = with(m, |old| old.fs.new_inode(parent, parent.is_none()));
    let bitmap = with(m, |old| old.fs.inode_bitmap(id));
    change(m, task, bitmap).await;
    unlock(m);
    // mark_inode_dirty(): the next sync_inodes() copies the inode to its block.
    with(m, |old| old.fs.dirty.insert(id));
    id
}

/// ext2_free_inode()
pub async fn free_inode(m: &Machine, task: &mut Task, id: u32) {
    lock(m, task).await;
    let bitmap = with(m, |old| old.fs.inode_bitmap(id));
    change(m, task, bitmap).await;
    with(m, |old| old.fs.free_inode(id));
    unlock(m);
}

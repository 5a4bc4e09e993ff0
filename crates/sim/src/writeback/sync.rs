//! sync() and syncfs(): write a whole file system to the disk.
//!
//! Models: fs/sync.c: sync_filesystem: writes dirty pages without waiting (WB_SYNC_NONE), then those dirtied since with
//! waiting (WB_SYNC_ALL), in 2.6 file by file with a commit for each; then waits for all pages under writeback, and
//! commits. Devices are synced one after the other. In the kernel the flusher does this work and pauses its other work;
//! here the caller does the work, and the flusher continues its own.

use crate::Machine;
use crate::block::device::DeviceId;
use crate::fs::file_system::Kind;
use crate::fs::inode::InodeId;
use crate::fs::journal;
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::writeback;

/// sync() of every file system.
pub async fn sync_all(m: &Machine, task: &mut Task) {
    for device in m.device_ids() {
        write_without_waiting(m, device, task).await;
    }
    for device in m.device_ids() {
        write_and_wait(m, device, task).await;
    }
}

/// Dirty files of a device, the oldest first.
fn dirty_files(m: &Machine, device: DeviceId) -> Vec<(InodeId, u64)> {
    let mm = m.mm.borrow();
    let dirty = |&id: &InodeId| {
        let own = mm.inodes.get(id).dirty.as_deref().filter(|dirty| dirty.pages > 0)?;
        Some((own.since_ns, id, own.pages))
    };
    let mut all: Vec<_> = m.device(device).dirty_inodes.borrow().iter().filter_map(dirty).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, id, pages)| (id, pages)).collect()
}

/// writeback_inodes_sb.
async fn write_without_waiting(m: &Machine, device: DeviceId, task: &mut Task) {
    for (id, pages) in dirty_files(m, device) {
        write_one(m, device, task, id, pages).await;
    }
    task.run(m).await;
}

async fn write_one(m: &Machine, device: DeviceId, task: &mut Task, id: InodeId, pages: u64) {
    let is_there = m.device(device).dirty_inodes.borrow().contains(&id) && m.mm.borrow().inodes.is_there(id);
    if is_there && !m.wb.borrow().locked.contains(&id) {
        // Only pages tagged at the begin (tag_pages_for_writeback), not those dirtied later.
        writeback::write_locked(m, task, id, pages, Site::GetRequestWait).await;
    }
}

/// sync_inodes_sb, then sync_fs.
async fn write_and_wait(m: &Machine, device: DeviceId, task: &mut Task) {
    task.syncs = true;
    for (id, pages) in dirty_files(m, device) {
        write_one(m, device, task, id, pages).await;
        if !m.profile.is_6() {
            wait_file(m, task, id).await;
            commit_for(m, device, task, id).await;
        }
    }
    task.syncs = false;
    task.run(m).await;
    // wait_sb_inodes.
    let queue = &m.device(device).block;
    let mark = queue.borrow().mark();
    while !queue.borrow().has_written(mark) {
        writeback::wait_for_pages(m, task, Site::SyncfsWait).await;
    }
    journal::force_commit(m, device, task).await;
}

/// filemap_fdatawait.
async fn wait_file(m: &Machine, task: &mut Task, id: InodeId) {
    loop {
        task.run(m).await;
        let busy = m.mm.borrow().inodes.is_there(id) && m.file_under_writeback(id);
        if !busy {
            return;
        }
        writeback::wait_for_pages(m, task, Site::SyncfsWait).await;
    }
}

/// fs/ext4/inode.c: ext4_write_inode: ext4_force_commit of the running transaction, unless it is for sync()
/// (`for_sync`, 3.15).
async fn commit_for(m: &Machine, device: DeviceId, task: &mut Task, id: InodeId) {
    let commits = matches!(m.device(device).file_system.kind, Kind::Ext3 | Kind::Ext4);
    let is_there = m.mm.borrow().inodes.is_there(id);
    if commits && is_there {
        journal::force_commit(m, device, task).await;
    }
}

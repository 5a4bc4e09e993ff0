//! sync() and syncfs(): a whole file system onto the disk.
//!
//! Models: fs/sync.c: sync_filesystem: what is dirty is written first without waiting (WB_SYNC_NONE), then what is dirty by then with
//! (WB_SYNC_ALL): up to 3.10 file by file, each waited for; up to 3.14 ext3 and ext4 commit for each file; then all that is under
//! writeback, and a commit. In 3.13 alone the second pass leaves out what was dirtied since the call. Of several devices one after
//! the other. The flusher, whose work it is, does nothing else meanwhile (3.1 and later; here the caller does it in its place).

use super::Machine;
use super::device::DeviceId;
use super::file_system::{self, Kind};
use super::inode::InodeId;
use super::journal;
use super::kernel::SyncRule;
use super::site::Site;
use super::task::Task;
use super::writeback;

/// Every file system of the machine.
pub async fn sync_all(m: &Machine, task: &mut Task) {
    let began_ns = task.instant(m);
    for device in m.device_ids() {
        write_without_waiting(m, device, task).await;
    }
    for device in m.device_ids() {
        write_and_wait(m, device, task, began_ns).await;
    }
}

/// What is dirty now of a device, from the file that has been dirty for longest.
fn dirty_files(m: &Machine, device: DeviceId, until_ns: u64) -> Vec<(InodeId, u64)> {
    let mm = m.mm.borrow();
    let dirty = |&id: &InodeId| {
        let own = mm.inodes.get(id).dirty.as_deref().filter(|dirty| dirty.pages > 0 && dirty.since_ns <= until_ns)?;
        Some((own.since_ns, id, own.pages))
    };
    let mut all: Vec<_> = m.device(device).dirty_inodes.borrow().iter().filter_map(dirty).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, id, pages)| (id, pages)).collect()
}

/// The flusher is asked to do it (writeback_inodes_sb, sync_inodes_sb: bdi_queue_work), or has done it.
fn note_work(m: &Machine, device: DeviceId, begins: bool) {
    let mut bdi = m.device(device).bdi.borrow_mut();
    bdi.sync_works = if begins { bdi.sync_works + 1 } else { bdi.sync_works - 1 };
    if bdi.sync_works == 0 {
        bdi.sync_ended.wake_all(&m.clock);
    }
}

/// writeback_inodes_sb.
async fn write_without_waiting(m: &Machine, device: DeviceId, task: &mut Task) {
    note_work(m, device, true);
    for (id, pages) in dirty_files(m, device, u64::MAX) {
        write_one(m, device, task, id, pages).await;
    }
    task.run(m).await;
    note_work(m, device, false);
}

async fn write_one(m: &Machine, device: DeviceId, task: &mut Task, id: InodeId, pages: u64) {
    let is_there = m.device(device).dirty_inodes.borrow().contains(&id) && m.mm.borrow().inodes.is_there(id);
    if is_there && !m.wb.borrow().locked.contains(&id) {
        // Pages tagged for this writing (tag_pages_for_writeback): none that are dirtied meanwhile.
        writeback::write_locked(m, task, id, pages, Site::GetRequestWait).await;
    }
}

/// sync_inodes_sb, then sync_fs.
async fn write_and_wait(m: &Machine, device: DeviceId, task: &mut Task, began_ns: u64) {
    let rule = m.profile.sync;
    let until_ns = if rule == SyncRule::SinceCall { began_ns } else { m.clock.now() };
    task.syncs = true;
    note_work(m, device, true);
    for (id, pages) in dirty_files(m, device, until_ns) {
        write_one(m, device, task, id, pages).await;
        if rule == SyncRule::ByFile {
            wait_file(m, task, id).await;
        }
        if rule != SyncRule::Together {
            commit_for(m, device, task, id).await;
        }
    }
    task.syncs = false;
    task.run(m).await;
    note_work(m, device, false);
    // wait_sb_inodes.
    let queue = &m.device(device).block;
    let mark = queue.borrow().mark();
    while !queue.borrow().has_written(mark) {
        writeback::wait_for_pages(m, task, Site::SyncfsWait).await;
    }
    if !journal::force_commit(m, device, task).await {
        file_system::flush_disk(m, device, task, Site::SyncfsWait).await;
    }
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

/// fs/ext4/inode.c: ext4_write_inode: ext4_force_commit, of whatever is in the running transaction, unless it is for sync() (`for_sync`,
/// 3.15).
async fn commit_for(m: &Machine, device: DeviceId, task: &mut Task, id: InodeId) {
    let commits = matches!(m.device(device).file_system.kind, Kind::Ext3 | Kind::Ext4);
    let is_there = m.mm.borrow().inodes.is_there(id);
    if commits && is_there {
        journal::force_commit(m, device, task).await;
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, run_with};
    use flatwater_recording::OpKind;
    use flatwater_workload::scenario::Scenario;

    /// Milliseconds of the first syncfs(), beside four threads that go on creating files: on flash that takes 2 ms for a flush.
    fn sync_ms(kernel: &str, file_system: &str) -> u64 {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nkernel = '{kernel}'\nduration = '20s'\n[machine]\ncpus = 4\nnodes = ['2GiB']\n\
             disk = {{ write_bps = '200MB', latency = '100us', flush = '2ms', file_system = '{file_system}' }}\n\
             [[workload]]\nuse = 'syncs'\npause = '3s'\n[[workload]]\nuse = 'maildir'\nrole = 'neighbour'\nthreads = 4\n\
             mailboxes = 4\nmessages = 1\ndeliver = 1\nexpunge = 0\nlist = 0\npause = '1ms'\n"
        );
        let scenario = Scenario::parse("x", &text).expect("parses");
        let (recording, _) = run_with(&scenario, &Options::default(), |_| true).expect("runs");
        let own = recording.latency.iter().filter(|bucket| bucket.op == OpKind::Syncfs);
        own.map(|bucket| bucket.from_start.unpack().max()).max().expect("a sync") / 1_000_000
    }

    /// Files that are dirtied while the first pass writes have a commit each in the second, up to 3.14 but for 3.13, which leaves them out.
    #[test]
    fn ext4_commits_for_each_file_that_was_dirtied_meanwhile_up_to_3_14() {
        let [before, since_call, reverted, after] =
            ["linux-3.12", "linux-3.13", "linux-3.14", "linux-3.15"].map(|kernel| sync_ms(kernel, "ext4"));
        assert!(before > 3 * since_call && reverted > 3 * after, "{before} {since_call} {reverted} {after}");
    }

    #[test]
    fn each_file_was_waited_for_by_itself_up_to_3_10() {
        let [before, after] = ["linux-3.10", "linux-3.11"].map(|kernel| sync_ms(kernel, "xfs"));
        assert!(before > after, "{before} ms in 3.10, {after} in 3.11");
    }
}

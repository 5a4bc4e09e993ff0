//! The journal of a file system.
//!
//! Models: jbd2's running transaction and its commit, an interval after its first update or at an fsync. Log blocks
//! wait in the request queue like other writes; updates of metadata wait until they are written (BJ_Shadow). Leaves
//! out: which block is updated (all count as one), log space and checkpointing, handles, credits, fast commits, and
//! that syncs wait for others to join their transaction. On 2.6.32 `journal_commit_interval` gives a file system a
//! journal.

use std::collections::BTreeSet;

use crate::Machine;
use crate::block::device::{self, Device, DeviceId};
use crate::constant::constants;
use crate::fs::file_system::{self, Data};
use crate::fs::inode::InodeId;
use crate::sched::clock::{TaskId, WaitQueue};
use crate::sched::site::Site;
use crate::sched::task::{Culprit, Task};

#[derive(Debug, Default)]
pub struct Journal {
    /// Metadata blocks of the running transaction.
    blocks: u64,
    /// When the running transaction began, if it has an update.
    begun_ns: Option<u64>,
    running: u64,
    committed: u64,
    committing: bool,
    asked: bool,
    shadowed: bool,
    waiting: WaitQueue,
    shadow_waiting: WaitQueue,
    task: Option<TaskId>,
    /// Files whose data belongs to the running transaction (ordered), and the pages to log (journal).
    files: BTreeSet<InodeId>,
    pages: u64,
}

impl Journal {
    /// Whether updates wait for the block that is being logged.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.shadowed
    }
}

/// Adds an update of an inode to the running transaction, after waiting for the block that is being logged.
pub async fn touch(m: &Machine, device: DeviceId, task: &mut Task) {
    let Device { file_system, journal, .. } = m.device(device);
    if !file_system.has_log {
        return;
    }
    while file_system.shadows && journal.borrow().shadowed {
        // Perform pending work before checking whether to sleep: otherwise the wake-up could come while the work is
        // performed.
        if task.pending_ns() > 0 {
            task.run(m).await;
            continue;
        }
        journal.borrow_mut().shadow_waiting.join(m.clock.current());
        task.park(m, None, Site::JournalBuffer, Culprit::Device).await;
    }
    let now = m.clock.now();
    let mut journal = journal.borrow_mut();
    journal.blocks += 1;
    journal.begun_ns.get_or_insert(now);
}

/// Notes a change of this file in the running transaction: of size or blocks (`i_datasync_tid`), or only of
/// times (`i_sync_tid`). Without a log the change is noted for fsync.
pub fn note_change(m: &Machine, id: InodeId, of_size: bool) {
    let now = m.device_of(id).journal.borrow().running as u32 + 1;
    let mut mm = m.mm.borrow_mut();
    let changed = &mut mm.inodes.get_mut(id).changed;
    *changed = [now, if of_size { now } else { changed[1] }];
}

/// Notes written data that the next commit writes (ordered) or logs (journal).
pub fn note_data(m: &Machine, id: InodeId, pages: u64) {
    let Device { file_system, journal, .. } = m.device_of(id);
    if file_system.commit_writes_data() {
        journal.borrow_mut().files.insert(id);
    } else if file_system.data == Data::Journal {
        journal.borrow_mut().pages += pages;
    }
}

/// ext4_fsync_journal, jbd2_log_wait_commit: waits until the transaction of the file's last change is on disk.
pub async fn sync(m: &Machine, device: DeviceId, task: &mut Task, changed: u32) {
    let Device { file_system, journal, .. } = m.device(device);
    if !file_system.has_log || changed == 0 {
        return;
    }
    task.run(m).await;
    let mine = u64::from(changed) - 1;
    while journal.borrow().committed <= mine {
        {
            let mut journal = journal.borrow_mut();
            journal.asked = true;
            journal.waiting.join(m.clock.current());
            if !journal.committing
                && let Some(kjournald) = journal.task
            {
                m.clock.wake(kjournald);
            }
        }
        task.park(m, None, Site::CommitWait, Culprit::Device).await;
    }
}

/// jbd2_journal_force_commit: waits for the commit of the running or committing transaction.
pub async fn force_commit(m: &Machine, device: DeviceId, task: &mut Task) {
    task.run(m).await;
    let last = {
        let journal = m.device(device).journal.borrow();
        let has_updates = journal.begun_ns.is_some();
        journal.running + u64::from(has_updates)
    };
    sync(m, device, task, last as u32).await;
}

constants! {
    const LOGGED_AT_ONCE: u64 = assumed(64, "pages of one request of logged data: a descriptor block's worth and less");
    const INTERVAL_MIN_NS: u64 = assumed(1_000_000, "commit intervals under a millisecond are not modelled");
}

/// kjournald2.
pub async fn kjournald(m: std::rc::Rc<Machine>, device: DeviceId) {
    let own = m.device(device);
    let mut task = Task::new(0, 0);
    task.memalloc = true;
    task.writes = crate::block::wbt::Purpose::Sync;
    own.journal.borrow_mut().task = Some(m.clock.current());
    loop {
        task.begin();
        let interval = own.knobs.borrow().commit_interval_ns.max(INTERVAL_MIN_NS.get());
        // fs/jbd2/journal.c: kjournald2: a transaction's time is up an interval after it began (t_expires).
        let (asked, begun) = {
            let journal = own.journal.borrow();
            (journal.asked, journal.begun_ns)
        };
        let now = m.clock.now();
        let due = begun.unwrap_or(now).saturating_add(interval);
        if !asked && due > now {
            m.clock.park(Some(due)).await;
            continue;
        }
        // JBD: t_synchronous_commit: a task waits for this commit.
        task.syncs = asked;
        let (blocks, files, pages) = {
            let mut journal = own.journal.borrow_mut();
            journal.asked = false;
            journal.committing = true;
            journal.running += 1;
            journal.begun_ns = None;
            // A block updated many times in one transaction is logged once; 12 metadata blocks fill a descriptor's
            // worth.
            let blocks = std::mem::take(&mut journal.blocks).min(64);
            (blocks, std::mem::take(&mut journal.files), std::mem::take(&mut journal.pages))
        };
        let held: Vec<InodeId> = files.into_iter().filter(|&id| m.mm.borrow().inodes.is_there(id)).collect();
        if !held.is_empty() {
            file_system::write_ordered(&m, device, &mut task, held).await;
        }
        for at in (0..pages).step_by(LOGGED_AT_ONCE.get() as usize) {
            log_write(&m, device, &mut task, LOGGED_AT_ONCE.get().min(pages - at)).await;
        }
        if blocks > 0 {
            own.journal.borrow_mut().shadowed = true;
            log_write(&m, device, &mut task, blocks + 1).await;
            own.journal.borrow_mut().shadowed = false;
            own.journal.borrow_mut().shadow_waiting.wake_all(&m.clock);
            // The log is on the disk before the commit record.
            log_write(&m, device, &mut task, 1).await;
        }
        let mut journal = own.journal.borrow_mut();
        journal.committing = false;
        journal.committed = journal.running;
        journal.waiting.wake_all(&m.clock);
    }
}

async fn log_write(m: &Machine, device: DeviceId, task: &mut Task, blocks: u64) {
    let position = m.device(device).block.borrow().pages() / 2;
    device::perform(m, device, task, (true, position, blocks), Site::CommitWait).await;
}

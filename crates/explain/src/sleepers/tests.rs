//! Which cause leads if a log shows several sleeping tasks.

use crate::testing::RecordingBuilder;
use crate::{CauseId, Explanation};
use flatwater_recording::{ReportedBy, SampledTask, Source, Stack, StackId};

/// A log with these tasks in uninterruptible sleep: (name, frames, innermost first).
fn asleep(tasks: &[(&str, &[&str])]) -> RecordingBuilder {
    let builder = RecordingBuilder::new().edit(|recording| recording.header.source = Source::Import);
    tasks.iter().zip(1_u32..).fold(builder, |builder, ((name, frames), pid)| {
        builder.edit(|recording| {
            let id = StackId(recording.stacks.len() as u32);
            recording.stacks.push(Stack { id, frames: frames.iter().map(|&frame| frame.to_owned()).collect() });
            let mut task = SampledTask::new(ReportedBy::TaskList);
            (task.task, task.pid, task.state, task.stack) = ((*name).to_owned(), Some(pid), Some('D'), Some(id));
            recording.header.sampled_tasks.push(task);
        })
    })
}

fn causes(explanation: &Explanation) -> Vec<CauseId> {
    explanation.findings.iter().map(|finding| finding.cause).collect()
}

const INODE_LOCK: &[&str] =
    &["schedule", "rwsem_down_write_slowpath", "down_write", "ext4_buffered_write_iter", "new_sync_write"];
const THROTTLED: &[&str] =
    &["schedule", "io_schedule_timeout", "balance_dirty_pages", "generic_perform_write", "ext4_buffered_write_iter"];

#[test]
fn the_cause_of_most_tasks_leads() {
    let commit: &[&str] = &["schedule", "jbd2_log_wait_commit", "ext4_sync_file", "do_fsync"];
    let builder = asleep(&[("a", commit), ("tar", THROTTLED), ("b", commit)]);
    assert_eq!(causes(&builder.explained()), [CauseId::JournalCommit, CauseId::DirtyThrottle]);
}

#[test]
fn the_holder_of_the_lock_gives_the_reason() {
    let mut tasks: Vec<(&str, &[&str])> = vec![("writer", INODE_LOCK); 20];
    tasks.push(("dd", THROTTLED));
    let explanation = asleep(&tasks).explained();
    assert_eq!(causes(&explanation), [CauseId::DirtyThrottle, CauseId::Lock]);
    let evidence_text = crate::testing::evidence_text(&explanation.findings[0]);
    assert!(evidence_text.contains("tasks in lock may wait for dd"), "{evidence_text}");
}

#[test]
fn a_task_in_an_outer_function_is_not_the_holder() {
    let inode: &[&str] =
        &["schedule", "rwsem_down_write_slowpath", "down_write", "xfs_ilock", "xfs_trans_alloc_inode", "xfs_write"];
    let splits: &[&str] = &["schedule", "wait_for_completion", "xfs_btree_split", "xfs_bmapi_write", "xfs_write"];
    let builder = asleep(&[("a", inode), ("b", inode), ("c", inode), ("fio", splits)]);
    assert_eq!(causes(&builder.explained())[0], CauseId::Lock);
}

#[test]
fn a_hung_read_from_a_failing_device_is_device_slow() {
    let read: &[&str] = &["io_schedule", "bit_wait_io", "__wait_on_buffer", "__ext4_find_entry", "ext4_lookup"];
    let hung = || {
        asleep(&[("smbd", read)]).edit(|recording| recording.header.sampled_tasks[0].blocked_ns = Some(120_000_000_000))
    };
    assert_eq!(causes(&hung().explained())[0], CauseId::SynchronousRead);
    assert_eq!(causes(&hung().report("ata3: hard resetting link").explained())[0], CauseId::DeviceSlow);
}

#[test]
fn a_task_that_prints_its_own_stack_was_not_asleep() {
    let splat: &[&str] = &["dump_stack_lvl", "print_circular_bug", "xfs_ilock", "xfs_reclaim_inodes_nr", "shrink_slab"];
    assert!(!causes(&asleep(&[("kswapd0", splat)]).explained()).contains(&CauseId::Shrinker));
}

#[test]
fn a_stuck_commit_is_the_reason_for_lock_waits() {
    let commit: &[&str] =
        &["io_schedule", "lock_extent_buffer_for_io", "btrfs_commit_transaction", "transaction_kthread"];
    let mutex: &[&str] = &["schedule", "__mutex_lock", "btrfs_log_inode_parent", "btrfs_sync_file"];
    let builder = asleep(&[("a", mutex), ("b", mutex), ("c", mutex), ("btrfs-transacti", commit)]);
    let hung = builder.edit(|recording| recording.header.sampled_tasks[3].blocked_ns = Some(120_000_000_000));
    assert_eq!(causes(&hung.explained())[..2], [CauseId::PageWriteback, CauseId::Lock]);
    // A lock outside file systems, which a commit does not need.
    let network: &[&str] = &["schedule", "__mutex_lock", "rtnl_lock", "dev_ioctl", "sock_do_ioctl", "vfs_ioctl"];
    let made = asleep(&[("a", network), ("b", network), ("c", network), ("btrfs-transacti", commit)]);
    let hung = made.edit(|recording| recording.header.sampled_tasks[3].blocked_ns = Some(120_000_000_000));
    let explanation = hung.explained();
    let texts = explanation.findings.iter().map(crate::testing::evidence_text).collect::<String>();
    assert!(!texts.contains("committing thread hangs"), "{texts}");
    // A commit that has only just begun to sleep.
    let made = asleep(&[("a", mutex), ("b", mutex), ("c", mutex), ("btrfs-transacti", commit)]);
    let texts = made.explained().findings.iter().map(crate::testing::evidence_text).collect::<String>();
    assert!(!texts.contains("committing thread hangs"), "{texts}");
}

#[test]
fn throttled_writers_wait_for_the_flushers_reason() {
    let flusher: &[&str] = &["schedule", "xlog_cil_push_now", "xfs_map_blocks", "wb_workfn"];
    let builder = asleep(&[("w", THROTTLED), ("w", THROTTLED), ("kworker/u8:1+flush-9:0", flusher)]);
    assert_eq!(causes(&builder.explained())[..2], [CauseId::JournalCommit, CauseId::DirtyThrottle]);
    let device: &[&str] = &["io_schedule", "get_request_wait", "blk_queue_bio", "wb_workfn"];
    let builder = asleep(&[("w", THROTTLED), ("w", THROTTLED), ("flush-8:0", device)]);
    assert_eq!(causes(&builder.explained())[0], CauseId::DirtyThrottle, "that is what throttling is for");
}

#[test]
fn a_task_elsewhere_is_not_the_holder() {
    let mut tasks: Vec<(&str, &[&str])> = vec![("writer", INODE_LOCK); 20];
    tasks.push(("find", &["io_schedule", "filemap_read", "vfs_read"]));
    assert_eq!(causes(&asleep(&tasks).explained()), [CauseId::Lock, CauseId::SynchronousRead]);
}

#[test]
fn an_owner_that_the_kernel_names_is_the_holder() {
    let read: &[&str] = &["io_schedule", "filemap_read", "vfs_read"];
    let builder = asleep(&[("writer", INODE_LOCK), ("writer", INODE_LOCK), ("writer", INODE_LOCK), ("find", read)]);
    let builder = builder.edit(|recording| recording.header.sampled_tasks[0].owner = Some("find:4".to_owned()));
    assert_eq!(causes(&builder.explained()), [CauseId::SynchronousRead, CauseId::Lock]);
}

const COMMITTING: &[&str] =
    &["io_schedule", "bit_wait_io", "__wait_on_buffer", "jbd2_journal_commit_transaction", "kjournald2", "kthread"];

#[test]
fn a_commit_whose_request_never_ends_is_device_slow() {
    let waits: &[&str] = &["schedule", "jbd2_log_wait_commit", "ext4_sync_fs", "ksys_sync"];
    let builder = asleep(&[("jbd2/sda-8", COMMITTING), ("sync", waits)]);
    assert_eq!(
        causes(&builder.clone().explained())[0],
        CauseId::JournalCommit,
        "a moment of a commit does not accuse the device"
    );
    let hung = builder.edit(|recording| recording.header.sampled_tasks[0].blocked_ns = Some(120_000_000_000));
    assert_eq!(causes(&hung.explained())[..2], [CauseId::DeviceSlow, CauseId::JournalCommit]);
}

#[test]
fn waits_for_the_flusher_lead_to_its_own_wait() {
    let sync: &[&str] = &["schedule", "wb_wait_for_completion", "sync_inodes_sb", "sync_filesystem"];
    let flusher: &[&str] = &["io_schedule", "rq_qos_wait", "wbt_wait", "submit_bio", "wb_writeback", "wb_workfn"];
    let builder = asleep(&[("umount", sync), ("sync", sync), ("kworker/u8:1", flusher)]);
    assert_eq!(causes(&builder.explained()), [CauseId::RequestQueue, CauseId::PageWriteback]);
}

#[test]
fn tasks_in_interruptible_sleep_are_ignored() {
    let builder = asleep(&[("bash", INODE_LOCK)]).edit(|recording| recording.header.sampled_tasks[0].state = Some('S'));
    assert_eq!(causes(&builder.explained()), [CauseId::NotEnough]);
}

#[test]
fn device_errors_turn_a_bare_wait_into_device_slow() {
    let bare: &[&str] = &["schedule", "submit_bio_wait", "blkdev_issue_flush", "ext4_sync_file"];
    assert_eq!(causes(&asleep(&[("db", bare)]).explained())[0], CauseId::DeviceWait);
    let builder = asleep(&[("db", bare)]).report("ata3: hard resetting link");
    assert_eq!(causes(&builder.explained())[0], CauseId::DeviceSlow);
}

#[test]
fn only_a_holder_that_the_log_names_is_stated() {
    let chain = |builder: RecordingBuilder| {
        let findings = builder.explained().findings;
        let texts = findings[0].evidence.iter().map(|evidence| evidence.text.clone());
        texts.filter(|text| text.contains(" for find: ") || text.contains(" for kworker")).collect::<Vec<_>>().join("|")
    };
    let read: &[&str] = &["io_schedule", "filemap_read", "vfs_read"];
    let named = asleep(&[("writer", INODE_LOCK), ("writer", INODE_LOCK), ("find", read)])
        .edit(|recording| recording.header.sampled_tasks[0].owner = Some("find:3".to_owned()));
    let named = chain(named);
    assert!(named.contains("tasks in lock wait for find"), "{named}");
    let flusher: &[&str] = &["schedule", "xlog_cil_push_now", "xfs_map_blocks", "wb_workfn"];
    let flushed = chain(asleep(&[("w", THROTTLED), ("w", THROTTLED), ("kworker/u8:1+flush-9:0", flusher)]));
    assert!(flushed.contains("may wait for") && flushed.contains("perhaps that of another device"), "{flushed}");
}

#[test]
fn reported_trouble_alone_does_not_state_that_requests_hang() {
    let bare: &[&str] = &["schedule", "submit_bio_wait", "blkdev_issue_flush", "ext4_sync_file"];
    let finding = asleep(&[("db", bare)]).report("ata3: hard resetting link").explained().findings.remove(0);
    assert_eq!(finding.headline, "tasks wait for a device, and the kernel reports trouble with one");
    let hung =
        asleep(&[("db", bare)]).edit(|recording| recording.header.sampled_tasks[0].blocked_ns = Some(120_000_000_000));
    assert!(hung.explained().findings[0].headline.contains("does not complete requests"));
}

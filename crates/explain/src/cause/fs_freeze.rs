//! fs-freeze: the file system was frozen (for a snapshot), and every writer waits.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "fs-freeze",
    span: Some(Cause::FsFreeze),
    headline: "the file system was frozen (a snapshot or backup), and the writer waited until it was thawed",
    mechanism: "FIFREEZE (fsfreeze, LVM and virtual-machine snapshots through the guest agent) calls freeze_super \
        (fs/super.c): it blocks new writers in sb_start_write, page faults and internal transactions, syncs the \
        file system, and holds it until FITHAW. A writer sleeps in percpu_rwsem_wait below sb_start_write \
        (file_start_write) however long the snapshot takes; the sync before it adds a dirty burst.",
    kernels: "The per-level writer counts since 3.6.",
    in_spans: "Measured: a sleep with sb_start_write (percpu_rwsem_wait, __percpu_down_read below vfs_write) in its \
        stack.",
    in_counters: "Blocked threads rise at once and fall at once, with no I/O in between; a hung-task report shows \
        percpu_down_read below vfs_write.",
    against: "Writes to other files of the same file system continued.",
    fix: "Snapshot at a quiet hour, sync before freezing so that the frozen time is short, or take \
        crash-consistent snapshots without a freeze; put the latency-critical journal on a separate file system.",
    prove: "fsfreeze -f MOUNT; sleep 0.1; fsfreeze -u MOUNT on a test file system gives the same stack and 100 ms.",
    sources: &["fs/super.c: freeze_super, thaw_super", "include/linux/fs.h: sb_start_write", "man 8 fsfreeze"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::advice("sync the file system just before the snapshot, and keep the time between freeze and thaw short"),
        Fix::advice("keep the journal on a file system that is not snapshotted with a freeze"),
    ];
    finding::from_spans(facts, Cause::FsFreeze, ENTRY.headline, fixes)
}

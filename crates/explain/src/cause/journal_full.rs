//! journal-full: the log has no room, so the caller writes checkpoints.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "journal-full",
    span: Some(Cause::JournalFull),
    headline: "the journal has no room: the caller must checkpoint old transactions before it starts its own",
    mechanism: "add_transaction_credits (fs/jbd2/transaction.c) finds less free log than the handle may need and \
        calls __jbd2_log_wait_for_space (fs/jbd2/checkpoint.c), which writes checkpointed buffers to their final \
        location and waits for them, under j_checkpoint_mutex: one caller does the work, all others queue. On xfs a \
        handle without log space sleeps in xlog_grant_head_wait until the AIL has been pushed.",
    kernels: "jbd2, xfs.",
    in_spans: "Measured: a sleep with __jbd2_log_wait_for_space, jbd2_log_do_checkpoint or xlog_grant_head_wait in \
        its stack.",
    in_counters: "Bursts of small scattered writes and many blocked threads at once; /proc/fs/jbd2/DEV/info shows how \
        full transactions are.",
    against: "Transactions far smaller than a quarter of the journal (that is where jbd2 starts a new one).",
    fix: "A larger journal (tune2fs -J size=1024 on the unmounted file system; mkfs.xfs -l size=), fewer metadata \
        operations per second, metadata-heavy neighbours on another file system.",
    prove: "`mkfs_options` with a larger journal in a scenario, and compare.",
    sources: &["fs/jbd2/checkpoint.c: __jbd2_log_wait_for_space", "fs/xfs/xfs_log.c: xlog_grant_head_check"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [Fix::advice(
        "give the file system a larger journal: `tune2fs -J size=1024` (unmounted), `mkfs.xfs -l size=2g`",
    )];
    finding::from_spans(facts, Cause::JournalFull, ENTRY.headline, fixes)
}

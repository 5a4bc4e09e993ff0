//! journal-commit: the call waits for a journal transaction to be written.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "journal-commit",
    span: Some(Cause::JournalCommit),
    headline: "the call waits for the file system's journal to commit",
    mechanism: "ext4 and other jbd2 users join each change of metadata to a running transaction. While a transaction \
        is locked for commit (T_LOCKED) no handle can join: start_this_handle waits in wait_transaction_locked \
        (fs/jbd2/transaction.c) until every open handle has ended. fsync waits in jbd2_log_wait_commit for the whole \
        commit, in ordered mode including the data of every file that the transaction touched, so a small append \
        waits for a neighbour's data. On xfs the equivalents are xfs_log_force (xlog_wait_on_iclog) for fsync and \
        xlog_grant_head_wait for log space.",
    kernels: "jbd 2.4, jbd2 2.6.19 and later; xfs.",
    in_spans: "Measured: a sleep with jbd2_log_wait_commit, wait_transaction_locked, add_transaction_credits or \
        xfs_log_force in its stack.",
    in_counters: "No specific counter: blocked threads rise for milliseconds at each commit interval (5 s) or \
        fsync, and flushes (diskstats flush_ios, 5.5) rise. A hung-task report shows the functions above.",
    against: "The file was preallocated and only its data changes without mtime updates (lazytime), or the file \
        system has no journal.",
    fix: "Preallocate, so that appends change no metadata but size and time; keep fsync neighbours on another \
        device; lazytime; a larger or separate journal device. Use fdatasync on preallocated files.",
    prove: "Stop the fsync neighbour, or mount a test directory with another journal: the share falls to zero.",
    sources: &[
        "fs/jbd2/transaction.c: start_this_handle, wait_transaction_locked",
        "fs/jbd2/journal.c: jbd2_log_wait_commit",
        "fs/xfs/xfs_log.c: xfs_log_force_seq, xlog_grant_head_wait",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::advice(
            "preallocate the file (fallocate and write zeros once), so that an append joins no transaction for blocks",
        ),
        Fix::advice(
            "move programs that call fsync to another device: all files of a file system share one journal, and the \
             file systems of a device share its queue",
        ),
    ];
    finding::from_spans(facts, Cause::JournalCommit, ENTRY.headline, fixes)
}

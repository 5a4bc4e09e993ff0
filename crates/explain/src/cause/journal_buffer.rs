//! journal-buffer: the call waits for a metadata buffer that the committing transaction is writing.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "journal-buffer",
    span: Some(Cause::JournalBuffer),
    headline: "the call waits for a metadata block that the journal is writing",
    mechanism: "A handle that wants to change a metadata block asks jbd2_journal_get_write_access. If the committing \
        transaction is writing that buffer to the log (BH_Shadow, since 3.11; the BJ_Shadow list before), \
        do_get_write_access (fs/jbd2/transaction.c) waits until the write is done. Neighbouring files share \
        inode-table, bitmap and extent blocks, so an append can wait there without another writer of the same file.",
    kernels: "jbd2 (ext4, ocfs2).",
    in_spans: "Measured: a sleep with do_get_write_access in its stack, the sleeper in bit_wait_io or \
        sleep_on_shadow_bh.",
    in_counters: "None.",
    against: "The stack is in wait_transaction_locked instead: then the call waits for the whole commit, see \
        journal-commit.",
    fix: "Fewer metadata changes per append (preallocation, lazytime, noatime); hot files in different directories \
        and block groups; a faster journal device.",
    prove: "Preallocate the file and compare: appends then no longer change its extent blocks.",
    sources: &["fs/jbd2/transaction.c: do_get_write_access", "fs/jbd2/commit.c: jbd2_journal_commit_transaction"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [
        Fix::advice("preallocate, so that appends change fewer metadata blocks"),
        Fix::knob("keep timestamp updates out of the journal", knob!("mount.options"), "lazytime,noatime"),
    ];
    finding::from_spans(facts, Cause::JournalBuffer, ENTRY.headline, fixes)
}

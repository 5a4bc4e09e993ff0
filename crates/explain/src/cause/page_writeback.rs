//! page-writeback: the call waits for a page that is on its way to the device.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "page-writeback",
    span: Some(Cause::PageWriteback),
    headline: "the call waits until a page has been written to the device",
    mechanism: "folio_wait_writeback (wait_on_page_writeback before 5.16; mm/page-writeback.c) sleeps until the \
        page's write is complete. fsync, msync and sync_file_range wait so on purpose (filemap_fdatawait_range); \
        truncate and invalidation wait because the block may be given away; a write waits only where pages must be \
        stable (see stable-page) or where the file system waits before it changes a page (ext4 data=journal, \
        write_begin of a partial page).",
    kernels: "All.",
    in_spans: "Exact: a sleep with folio_wait_writeback or wait_on_page_writeback in its stack.",
    in_counters: "nr_writeback is high, the device busy; blocked threads.",
    against: "The waiting call is fsync: then this is its purpose, and only the device's speed or the amount of \
        dirty data is to blame.",
    fix: "For fsync: write less between two of them, start writeback early (sync_file_range with \
        SYNC_FILE_RANGE_WRITE), a faster device. For write: do not rewrite the page that was just written: append \
        whole pages, or keep the tail page in a buffer of your own.",
    prove: "The stack says who waits; the same workload with whole-page writes has no such part.",
    sources: &["mm/page-writeback.c: folio_wait_writeback", "mm/filemap.c: __filemap_fdatawait_range"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [Fix::advice(
        "start writeback soon after each write (sync_file_range with SYNC_FILE_RANGE_WRITE), so that little is \
            left to wait for",
    )];
    finding::from_spans(facts, Cause::PageWriteback, ENTRY.headline, fixes)
}

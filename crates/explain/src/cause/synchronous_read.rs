//! synchronous-read: the call waits for data or metadata from the device.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, OpKind};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "synchronous-read",
    span: Some(Cause::SynchronousRead),
    headline: "the call waits for a read from the device: what it needs is not in the page cache",
    mechanism: "A read() or fault that misses the page cache waits in folio_wait_locked (wait_on_page_bit before \
        5.16; mm/filemap.c). A write() may read too: of a partial page that exists on disk and is not cached \
        (block_write_begin, ext4_block_write_begin, iomap_write_begin), and of metadata, extent and bitmap blocks \
        (__wait_on_buffer). Pages that were prefetched but evicted before use look the same: whoever read ahead paid, \
        and the writer pays again.",
    kernels: "All.",
    in_spans: "Exact: a sleep in folio_wait_bit, wait_on_page_bit, __wait_on_buffer or io_schedule below a read path.",
    in_counters: "pgpgin and pgmajfault rise during a workload that only writes; workingset_refault_file (4.20 \
        workingset_refault before) rises: what was evicted is read again.",
    against: "pgpgin does not rise.",
    fix: "For writes: write whole pages, or keep the file's tail locked in memory (mlock the window; `--set \
        precursor=window`). For reads: readahead, more cache, or less of others' cache. Against eviction only a \
        lock or private memory helps.",
    prove: "pgpgin and the share fall together when whole pages are written.",
    sources: &["mm/filemap.c: folio_wait_bit_common", "fs/buffer.c: __block_write_begin_int, __wait_on_buffer"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let sum = facts.significant(Cause::SynchronousRead)?;
    let write_ns = sum.by_op_ns.get(&OpKind::Write).copied().unwrap_or(0);
    let mut finding = Finding::from_spans(facts, sum, ENTRY.headline);
    if facts.page_reads_ns > 0 {
        let text = format!(
            "{} of it waited for the lock of a page (__filemap_get_folio): a page stays locked until its read ends, and \
                the same writes also had to read pages themselves, so the lock is taken for a read that another thread \
                or readahead began",
            Nanos(facts.page_reads_ns)
        );
        finding.evidence.push(Evidence::new(text, facts.page_reads_ns as f64, "ns"));
    }
    if write_ns * 2 > sum.lost_ns {
        finding.headline =
            "write() must read first: a page that it changes partly, or its metadata, is not in the page cache"
                .to_owned();
        finding = finding.fix(Fix::knob("keep the pages ahead of the writer locked in memory", "precursor", "window"));
        finding = finding.fix(Fix::advice("write whole pages (4 KiB, aligned): nothing must then be read first"));
    } else {
        finding = finding
            .fix(Fix::advice("read ahead (readahead, posix_fadvise WILLNEED), or keep the hot part locked (mlock)"));
    }
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::Made;
    use flatwater_recording::{Cause, OpKind};

    #[test]
    fn a_write_that_reads_is_told_apart_from_a_read() {
        let write = Made::new().slow(OpKind::Write, &[(Cause::SynchronousRead, 20.0)]).found(&ENTRY).expect("20 ms");
        let read = Made::new().slow(OpKind::Read, &[(Cause::SynchronousRead, 20.0)]).found(&ENTRY).expect("20 ms");
        assert!(write.headline.starts_with("write() must read first"));
        assert_eq!(read.headline, ENTRY.headline);
    }

    #[test]
    fn a_few_short_reads_are_nothing() {
        assert!(Made::new().slow(OpKind::Read, &[(Cause::SynchronousRead, 1.2)]).found(&ENTRY).is_none());
    }
}

//! block-allocation: the file system looks for free blocks inside the call.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "block-allocation",
    span: Some(Cause::BlockAllocation),
    headline: "the file system searches for free blocks (and reads its bitmaps) inside the call",
    mechanism: "Allocation walks block groups for a large enough extent (fs/ext4/mballoc.c: \
        ext4_mb_regular_allocator), reading bitmaps that are not cached (ext4_wait_block_bitmap, \
        ext4_read_block_bitmap) and building buddy maps; xfs takes the AGF buffer's lock (xfs_alloc_fix_freelist). \
        With delayed allocation (ext4, xfs) the flusher or fsync pays, otherwise write() itself; fallocate and direct \
        writes always pay.",
    kernels: "All; ext4 skips groups that are known bad since 5.13 (mb_optimize_scan).",
    in_spans: "Measured where it sleeps in the functions above, sampled where it burns CPU.",
    in_counters: "Reads during a workload that only writes; a file system more than 90 % full or fragmented.",
    against: "Preallocated file: there is nothing to allocate.",
    fix: "Preallocate with fallocate ahead of time; keep 10 to 20 % of the file system free; ext4: mount with \
        mb_optimize_scan=1 (5.13).",
    prove: "fallocate the file before the run: the segment disappears.",
    sources: &[
        "fs/ext4/mballoc.c: ext4_mb_new_blocks, ext4_mb_regular_allocator",
        "fs/ext4/balloc.c: ext4_wait_block_bitmap",
    ],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes =
        [Fix::advice("preallocate ahead of the writer (fallocate in another thread, or `--set precursor=window`)")];
    finding::from_spans(facts, Cause::BlockAllocation, ENTRY.headline, fixes)
}

//! What differs between kernels whose balance_dirty_pages writes nothing itself.

/// When a device's write bandwidth is estimated anew, beside balance_dirty_pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandwidthRule {
    /// After each round of its flusher (fs/fs-writeback.c: wb_writeback, up to 5.14).
    ByRound,
    /// After each file, and once nothing is under writeback any more (mm/page-writeback.c: do_writepages,
    /// wb_inode_writeback_end, 5.15 and later).
    ByFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLessRule {
    /// Pauses of a planned length that take into account what a task did between them (3.3 and later).
    pub plans_pauses: bool,
    pub bandwidth: BandwidthRule,
}

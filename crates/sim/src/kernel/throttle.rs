//! How balance_dirty_pages of a kernel holds writers back, and what differs between those that write nothing themselves.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    None,
    PerCpuRateLimit,
    /// 2.6.24 to 2.6.30: limits by task, and a caller writes whatever is dirty.
    TaskLimits,
    /// 2.6.31: it writes only what is dirty above its limit.
    OverLimitOnly,
    DoublingPauses,
    /// 3.1: such pauses end once the limit is kept.
    GoodAreas,
    IoLess,
}

impl Throttle {
    /// Threads of no device write for all of them (mm/pdflush.c, up to 2.6.31).
    #[must_use]
    pub fn has_pdflush(self) -> bool {
        matches!(self, Throttle::PerCpuRateLimit | Throttle::TaskLimits | Throttle::OverLimitOnly)
    }

    /// mm/page-writeback.c: task_dirty_limit, 2.6.24 to 3.1.
    #[must_use]
    pub fn has_task_limits(self) -> bool {
        use Throttle::{DoublingPauses, GoodAreas, OverLimitOnly, TaskLimits};
        matches!(self, TaskLimits | OverLimitOnly | DoublingPauses | GoodAreas)
    }

    /// Of 3.1 and later: what each device writes a second is known, and its flusher goes by that and by the device's own limit
    /// (mm/page-writeback.c: bdi_update_bandwidth, fs/fs-writeback.c: over_bground_thresh).
    #[must_use]
    pub fn knows_bandwidth(self) -> bool {
        matches!(self, Throttle::GoodAreas | Throttle::IoLess)
    }
}

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

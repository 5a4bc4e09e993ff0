//! Variants of balance_dirty_pages.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    None,
    /// 2.6.17 and 2.6.20: a counter of each CPU decides which writer writes out a chunk.
    PerCpuRateLimit,
    /// 2.6.32: limits by device and task; the writer writes its device's pages and sleeps, twice as long each time.
    DoublingPauses,
    /// 3.2 and later: pauses computed from the device's bandwidth.
    IoLess,
}

impl Throttle {
    /// Whether threads for all devices write in the background (mm/pdflush.c, up to 2.6.31).
    #[must_use]
    pub fn has_pdflush(self) -> bool {
        self == Throttle::PerCpuRateLimit
    }
}

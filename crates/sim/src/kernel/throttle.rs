//! How balance_dirty_pages of a kernel holds writers back.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    None,
    /// 2.6.17 and 2.6.20: a counter by CPU decides which writer writes out a chunk.
    PerCpuRateLimit,
    /// 2.6.32: limits by device and task; the writer writes its device's pages and sleeps, twice as long each time.
    DoublingPauses,
    /// 3.2 and later: pauses computed from the device's bandwidth.
    IoLess,
}

impl Throttle {
    /// Threads of no device write for all of them (mm/pdflush.c, up to 2.6.31).
    #[must_use]
    pub fn has_pdflush(self) -> bool {
        self == Throttle::PerCpuRateLimit
    }
}

//! How much memory the precursor may hold ahead of the writer, and which limit decides.

use std::sync::Mutex;

use crate::fork::Born;

/// Limits on the run-ahead, as read from the machine; `None` without a limit, or if it could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// RLIMIT_MEMLOCK (soft), bytes; `None` if unlimited, or with CAP_IPC_LOCK.
    pub memlock_bytes: Option<u64>,
    /// The smallest memory limit from this process's cgroup up to the root, bytes.
    pub cgroup_bytes: Option<u64>,
    /// Dirty bytes above which the kernel throttles writers (`nr_dirty_threshold`).
    pub dirty_bytes: Option<u64>,
    /// Bytes that the other appenders of this process hold.
    pub taken_bytes: u64,
    /// Page size, bytes. Memory is locked in whole pages.
    pub page_bytes: u64,
}

/// No limit, with the page size of this machine.
impl Default for Limits {
    fn default() -> Limits {
        let page_bytes = crate::sys::page_bytes();
        Limits { memlock_bytes: None, cgroup_bytes: None, dirty_bytes: None, taken_bytes: 0, page_bytes }
    }
}

/// Largest share of each limit that the precursor takes, per cent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Of RLIMIT_MEMLOCK. Half by default, since the program may lock other memory.
    pub memlock_percent: u8,
    /// Of the cgroup's limit. Locked pages cannot be reclaimed, so they are missing for the rest of the cgroup.
    pub cgroup_percent: u8,
    /// Of the dirty threshold. Pages populated for writing count as dirty before the writer stores into them.
    pub dirty_percent: u8,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares { memlock_percent: 50, cgroup_percent: 25, dirty_percent: 25 }
    }
}

/// The limit that determined a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// `memory_bytes_max` of the options.
    Asked,
    /// RLIMIT_MEMLOCK.
    Memlock,
    /// The cgroup's memory limit.
    Cgroup,
    /// The dirty threshold.
    Dirty,
}

impl Bound {
    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Asked => "the options",
            Bound::Memlock => "RLIMIT_MEMLOCK",
            Bound::Cgroup => "the cgroup's memory limit",
            Bound::Dirty => "the dirty threshold",
        }
    }
}

/// How much memory may be held, and which limit determined it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes, a whole number of pages.
    pub bytes: u64,
    /// The limit that determined `bytes`.
    pub bound: Bound,
}

/// The most bytes of locked run-ahead. `makes_dirty`: whether warming dirties the page cache (`window`) or not (`ring`,
/// whose memory belongs to no file on disk). The shares apply to the whole process; one appender gets at most half of
/// what the others leave, so that later ones are not refused.
pub fn budget(limits: &Limits, shares: &Shares, asked_bytes: u64, makes_dirty: bool) -> Budget {
    let of = |limit: Option<u64>, percent: u8| {
        limit.map(|l| (l / 100 * u64::from(percent.min(100))).saturating_sub(limits.taken_bytes) / 2)
    };
    let mut best = Budget { bytes: asked_bytes, bound: Bound::Asked };
    let dirty = if makes_dirty { of(limits.dirty_bytes, shares.dirty_percent) } else { None };
    let candidates = [
        (of(limits.memlock_bytes, shares.memlock_percent), Bound::Memlock),
        (of(limits.cgroup_bytes, shares.cgroup_percent), Bound::Cgroup),
        (dirty, Bound::Dirty),
    ];
    for (bytes, bound) in candidates {
        if let Some(bytes) = bytes.filter(|b| *b < best.bytes) {
            best = Budget { bytes, bound };
        }
    }
    best.bytes -= best.bytes % limits.page_bytes;
    best
}

/// Bytes that all appenders of this process hold. Per process, like the limits.
static TAKEN: Mutex<u64> = Mutex::new(0);

/// The part of `TAKEN` that belongs to one appender; given back on drop.
#[derive(Debug)]
pub(crate) struct Part(u64, Born);

impl Part {
    /// Calls `settle` with the bytes that the others hold, and takes the number of bytes that it returns.
    pub(crate) fn take<T, E>(settle: impl FnOnce(u64) -> Result<(T, u64), E>) -> Result<(T, Part), E> {
        let mut taken = crate::core::lock(&TAKEN);
        let (settled, bytes) = settle(*taken)?;
        *taken += bytes;
        Ok((settled, Part(bytes, Born::here())))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Must not block in a forked child, where a thread of the parent may have held the lock.
        match TAKEN.try_lock() {
            Ok(mut taken) => *taken -= self.0,
            Err(_) if self.1.elsewhere() => {}
            Err(_) => *crate::core::lock(&TAKEN) -= self.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Budget, Limits, Shares, budget};

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_tightest_limit_decides_and_is_named() {
        let limits = Limits {
            memlock_bytes: Some(8 * MIB),
            cgroup_bytes: Some(128 * MIB),
            dirty_bytes: Some(400 * MIB),
            taken_bytes: 0,
            page_bytes: 4096,
        };
        let shares = Shares { memlock_percent: 50, cgroup_percent: 25, dirty_percent: 25 };
        let got = budget(&limits, &shares, 64 * MIB, true);
        // A share is computed from whole hundredths of the limit: up to 100 bytes are lost before rounding to pages.
        assert_eq!(got.bound, Bound::Memlock);
        assert!(got.bytes <= 2 * MIB && got.bytes > 2 * MIB - 8192, "{}", got.bytes);
    }

    #[test]
    fn all_appenders_together_stay_within_the_share() {
        let mut limits = Limits { cgroup_bytes: Some(128 * MIB), ..Limits::default() };
        for _ in 0..40 {
            limits.taken_bytes += budget(&limits, &Shares::default(), 64 * MIB, true).bytes;
        }
        assert!(limits.taken_bytes <= 32 * MIB && limits.taken_bytes > 31 * MIB, "{}", limits.taken_bytes);
    }

    #[test]
    fn a_ring_is_not_bound_by_the_dirty_threshold() {
        let limits = Limits { dirty_bytes: Some(4 * MIB), ..Limits::default() };
        assert_eq!(budget(&limits, &Shares::default(), 8 * MIB, false), Budget { bytes: 8 * MIB, bound: Bound::Asked });
        assert_eq!(budget(&limits, &Shares::default(), 8 * MIB, true).bound, Bound::Dirty);
    }

    #[test]
    fn a_budget_is_whole_pages_of_the_machine() {
        for page_bytes in [4096, 16 << 10, 64 << 10] {
            let limits = Limits { memlock_bytes: Some(8 * MIB + 4096), page_bytes, ..Limits::default() };
            let got = budget(&limits, &Shares::default(), 64 * MIB, false).bytes;
            assert!(got > 0 && got.is_multiple_of(page_bytes), "{got} of pages of {page_bytes}");
            let asked = budget(&limits, &Shares::default(), MIB + 4096, false).bytes;
            assert_eq!(asked, (MIB + 4096) / page_bytes * page_bytes);
        }
    }

    #[test]
    fn without_limits_the_caller_decides() {
        let got = budget(&Limits::default(), &Shares::default(), 8 * MIB, true);
        assert_eq!(got, Budget { bytes: 8 * MIB, bound: Bound::Asked });
    }
}

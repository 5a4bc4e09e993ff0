//! What our hooks cost, as the kernel counts it: the time of each BPF program, while somebody asks for that.
//!
//! Counting costs two reads of the clock for each run of any BPF program of the machine (kernel/bpf/trampoline.c and
//! include/linux/filter.h: `bpf_stats_enabled_key`), so it is asked for in short intervals only.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};

use super::clock::monotonic_ns;

/// The programs that one of us has loaded.
#[derive(Debug, Default)]
pub struct OwnPrograms {
    ids: BTreeSet<u32>,
    counting: Option<Counting>,
}

#[derive(Debug)]
struct Counting {
    since_ns: u64,
    run_ns: u64,
    /// The kernel counts for as long as this is open.
    _asked: OwnedFd,
}

/// The ids of all programs that are loaded now; empty where that may not be asked.
#[must_use]
pub fn loaded_ids() -> BTreeSet<u32> {
    loaded_programs().filter_map(Result::ok).map(|info| info.id()).collect()
}

impl OwnPrograms {
    /// Those that were loaded since `before` was listed.
    #[must_use]
    pub fn since(before: &BTreeSet<u32>) -> OwnPrograms {
        OwnPrograms { ids: loaded_ids().difference(before).copied().collect(), counting: None }
    }

    /// Those that were loaded since `before` was listed are ours, too.
    pub fn add_since(&mut self, before: &BTreeSet<u32>) {
        self.ids.extend(loaded_ids().difference(before));
    }

    /// Begins to count. Needs Linux 5.8 and CAP_SYS_ADMIN; without them `end` has nothing to say.
    pub fn begin(&mut self) {
        let Ok(asked) = enable_stats(Stats::RunTime) else { return };
        self.counting = Some(Counting { since_ns: monotonic_ns(), run_ns: self.run_ns(), _asked: asked });
    }

    /// Their CPU time since `begin` as a share of one core.
    pub fn end(&mut self) -> Option<f64> {
        let counting = self.counting.take()?;
        let wall_ns = monotonic_ns().saturating_sub(counting.since_ns).max(1);
        Some(self.run_ns().saturating_sub(counting.run_ns) as f64 / wall_ns as f64)
    }

    fn run_ns(&self) -> u64 {
        let ours = loaded_programs().filter_map(Result::ok).filter(|info| self.ids.contains(&info.id()));
        ours.map(|info| u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
    }
}

//! What a neighbour did: without it, calls that did not become slower prove nothing.

use serde::{Deserialize, Serialize};

use super::plan::{Limits, Load};

/// A neighbour's work in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Length of the load, ns.
    pub ns: u64,
    /// Bytes written or read.
    pub bytes: u64,
    /// Writes, appends with fsync(), files, or reads.
    pub operations: u64,
    /// Time asleep because it had moved the most that a probe moves, ns.
    pub held_ns: u64,
    /// The most that one pass over its file wrote or read, bytes.
    pub pass_bytes: u64,
    /// Whether dirty pages reached the limit from which the kernel pauses writers.
    pub dirty_limit: bool,
}

/// The work in all phases beside which calls were timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Total {
    pub phases: usize,
    pub bytes_per_s: u64,
    pub operations_per_s: f64,
    /// Share of the time in which the probe's own rate held it back, 0 to 1.
    pub held_share: f64,
    /// The least of all phases, bytes.
    pub pass_bytes: u64,
    /// Whether each phase reached the limit of dirty pages.
    pub dirty_limit: bool,
    /// Averages of one phase.
    #[serde(skip)]
    bytes: u64,
    #[serde(skip)]
    operations: u64,
}

/// Fewer operations in a phase are no load.
const FSYNCS_MIN: u64 = 4;
const FILES_MIN: u64 = 100;
const BYTES_MIN: u64 = 4 << 20;
/// From this share of the time on, the neighbour's rate was the probe's choice and not the machine's.
const HELD_MIN: f64 = 0.5;

impl Total {
    #[must_use]
    pub fn of(phases: &[Work]) -> Total {
        let sum = |of: fn(&Work) -> u64| phases.iter().map(of).fold(0, u64::saturating_add);
        let seconds = (sum(|work| work.ns) as f64 / 1e9).max(1e-9);
        let count = phases.len().max(1) as u64;
        let (bytes, operations) = (sum(|work| work.bytes), sum(|work| work.operations));
        Total {
            phases: phases.len(),
            bytes_per_s: (bytes as f64 / seconds) as u64,
            operations_per_s: (operations as f64 / seconds * 10.0).round() / 10.0,
            held_share: (sum(|work| work.held_ns) as f64 / seconds / 1e7).round() / 100.0,
            pass_bytes: phases.iter().map(|work| work.pass_bytes).min().unwrap_or(0),
            dirty_limit: !phases.is_empty() && phases.iter().all(|work| work.dirty_limit),
            bytes: bytes / count,
            operations: operations / count,
        }
    }

    /// Whether the phases contained a load at all.
    #[must_use]
    pub fn is_load(&self, load: Load, limits: &Limits) -> bool {
        match load {
            // Its queue was full at least once in each phase.
            Load::Dirty => self.bytes >= limits.in_flight_bytes.unwrap_or(BYTES_MIN),
            Load::Fsync => self.operations >= FSYNCS_MIN,
            Load::SmallFiles => self.operations >= FILES_MIN,
            Load::Cache => self.bytes >= limits.cache_bytes.min(BYTES_MIN),
        }
    }

    /// Whether the machine could have taken more than a probe moves.
    #[must_use]
    pub fn is_held(&self, load: Load) -> bool {
        matches!(load, Load::Dirty | Load::Cache) && self.held_share >= HELD_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::{Total, Work};
    use crate::plan::{Limits, Load};

    const LIMITS: Limits = Limits { dirty_bytes: 64 << 20, cache_bytes: 64 << 20, in_flight_bytes: Some(8 << 20) };

    fn work(bytes: u64, operations: u64) -> Work {
        Work { ns: 600_000_000, bytes, operations, ..Work::default() }
    }

    #[test]
    fn a_neighbour_that_did_little_is_not_a_load() {
        let is = |load, work| Total::of(&[work, work]).is_load(load, &LIMITS);
        assert!(is(Load::Dirty, work(9 << 20, 36)) && !is(Load::Dirty, work(1 << 20, 4)));
        assert!(is(Load::Fsync, work(40_960, 10)) && !is(Load::Fsync, work(8_192, 2)));
        assert!(is(Load::SmallFiles, work(1 << 20, 256)) && !is(Load::SmallFiles, work(40_960, 10)));
        assert!(is(Load::Cache, work(4 << 20, 16)) && !is(Load::Cache, work(256 << 10, 1)));
        for load in Load::ALL {
            assert!(!Total::of(&[]).is_load(*load, &LIMITS), "{load:?}");
        }
    }

    #[test]
    fn every_phase_must_reach_the_limits() {
        let phase = |pass_bytes, dirty_limit| Work { pass_bytes, dirty_limit, ..work(1 << 20, 1) };
        let total = Total::of(&[phase(100, true), phase(40, true)]);
        assert_eq!((total.pass_bytes, total.dirty_limit), (40, true));
        assert!(!Total::of(&[phase(100, true), phase(100, false)]).dirty_limit);
        assert!(!Total::of(&[]).dirty_limit);
    }

    #[test]
    fn a_neighbour_asleep_for_its_rate_is_held() {
        let held = |held_ns| Total::of(&[Work { held_ns, ..work(1 << 28, 1) }]);
        assert!(held(400_000_000).is_held(Load::Dirty) && !held(400_000_000).is_held(Load::Fsync));
        assert!(!held(100_000_000).is_held(Load::Dirty));
        let total = held(0);
        assert_eq!(total.bytes_per_s >> 20, 426);
    }
}

//! Options of a run beside its scenario, and the true causes for tests.

use crate::kernel::Throttle;
use crate::run::recorder::TrueStall;

/// The true causes and counts of a run, for tests only: explain must find the causes from the recording.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// The true cause of each kept slow call, in the order in which the calls ended.
    pub stalls: Vec<TrueStall>,
    pub operations: u64,
    pub events: u64,
    pub frames: u64,
    /// Chunks of the page cache at the end (each at most 32 pages).
    pub chunks: usize,
    /// Largest excess of dirty pages and pages under writeback over the limit at any check: (pages over it, the limit).
    pub over_limit: (u64, u64),
}

/// Mechanisms that a test may switch off or replace, to show that the effect that they explain disappears. The default
/// is the profile's.
#[derive(Clone, Copy, Debug)]
pub struct Ablations {
    pub thisnode_refusal: bool,
    pub zone_reclaim: bool,
    pub lowmem_limit: bool,
    /// Another kernel's balance_dirty_pages instead of the profile's own.
    pub throttle: Option<Throttle>,
    /// 2.2.3: forgotten buffers stay on the clean list.
    pub orphaning: bool,
}

impl Default for Ablations {
    fn default() -> Ablations {
        Ablations { thisnode_refusal: true, zone_reclaim: true, lowmem_limit: true, throttle: None, orphaning: true }
    }
}

/// Options beside the scenario.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub ablations: Ablations,
    /// Instead of the scenario's.
    pub seed: Option<u64>,
}

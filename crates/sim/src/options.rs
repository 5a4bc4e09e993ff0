//! How a run may differ from its scenario, and what a test may know of it beside the recording.

use super::kernel::Throttle;
use super::recorder::TrueStall;

/// What really happened, for tests only: explain must find it out from the recording.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// One for each kept slow call, in the order in which the calls ended.
    pub stalls: Vec<TrueStall>,
    pub operations: u64,
    /// Operations that were performed together with others of their kind.
    pub alike: u64,
    pub events: u64,
    pub frames: u64,
    /// Windows of the page cache that were held at the end (each at most 32 pages).
    pub chunks: usize,
    /// By how much of the limit dirty pages and pages under writeback exceeded it at most, seen at any check of the limits:
    /// (pages over it, the limit).
    pub over_limit: (u64, u64),
}

/// Mechanisms that a test may take out or swap for another kernel's, to show that what they explain goes with them. The
/// default is the profile's own.
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

/// How to run beside what the scenario says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub ablations: Ablations,
    /// Instead of the scenario's.
    pub seed: Option<u64>,
    /// Appends that nothing can tell apart are performed one by one (`batching`): what a test compares with.
    pub one_by_one: bool,
}

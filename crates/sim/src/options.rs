//! How a run may differ from its scenario, and what a test may know of it beside the recording.

use super::recorder::TrueStall;

/// What really happened, for tests only: explain must find it out from the recording.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// One for each kept slow call, in the order in which the calls ended.
    pub stalls: Vec<TrueStall>,
    pub operations: u64,
    pub events: u64,
    pub frames: u64,
    /// Windows of the page cache that were held at the end (each at most 32 pages).
    pub chunks: usize,
}

/// Mechanisms that a test may take out, to show that what they explain goes with them. All are in by default.
#[derive(Clone, Copy, Debug)]
pub struct Ablations {
    pub thisnode_refusal: bool,
    pub zone_reclaim: bool,
    pub lowmem_limit: bool,
    /// Writing in batches, of both kinds that follow. Without it: the arithmetic of the case study, each writer by itself.
    pub batching: bool,
    /// Whoever fills the request queue may go past its limit for a batch.
    pub request_batching: bool,
    /// 2.6.17: pages dirtied are counted by CPU, 8 of them are enough while the limit is exceeded, and whoever comes to it
    /// writes 1.5 times the rate limit, whosever pages they are.
    pub shared_ratelimit: bool,
    /// 2.2.3: forgotten buffers stay on the clean list.
    pub orphaning: bool,
}

impl Ablations {
    /// Whether writers write a shared batch for whoever dirtied it.
    #[inline]
    pub fn writes_for_others(&self) -> bool {
        self.batching && self.shared_ratelimit
    }
}

impl Default for Ablations {
    fn default() -> Ablations {
        Ablations {
            thisnode_refusal: true,
            zone_reclaim: true,
            lowmem_limit: true,
            batching: true,
            request_batching: true,
            shared_ratelimit: true,
            orphaning: true,
        }
    }
}

/// How to run beside what the scenario says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub ablations: Ablations,
    /// Instead of the scenario's.
    pub seed: Option<u64>,
}

//! The catalogue of causes: one file for each cause, with its mechanism, its signature and its fix.

use serde::Serialize;

use super::Finding;
use super::facts::Facts;
use flatwater_recording::Cause;

/// The catalogue's entry for one cause; `flatwater causes NAME` prints it.
#[derive(Clone, Copy, Serialize)]
pub struct CauseEntry {
    pub name: &'static str,
    /// The time cause of this name, if segments of calls can have it; `None` for causes known from counters only.
    pub span: Option<Cause>,
    /// One line.
    pub headline: &'static str,
    /// What the kernel does and why the caller pays, with functions, files and versions.
    pub mechanism: &'static str,
    /// The kernels that are affected.
    pub kernels: &'static str,
    /// The signature in segments of slow calls; empty if it has none there.
    pub in_spans: &'static str,
    /// The signature in counters alone.
    pub in_counters: &'static str,
    /// What contradicts the cause.
    pub against: &'static str,
    /// What to change.
    pub fix: &'static str,
    /// How to prove the cause and the fix.
    pub prove: &'static str,
    pub sources: &'static [&'static str],
    /// Looks for the cause in a recording. Must not panic on any recording.
    #[serde(skip)]
    pub find: fn(&Facts<'_>) -> Option<Finding>,
}

impl std::fmt::Debug for CauseEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CauseEntry").field("name", &self.name).finish_non_exhaustive()
    }
}

pub mod block_allocation;
pub mod cache_dropped;
pub mod cgroup_limit_cache;
pub mod checkpoint_critical_section;
pub mod compaction;
pub mod compute;
pub mod cpu_contention;
pub mod cpu_quota;
mod device_compare;
pub mod device_queue_starved;
pub mod device_slow;
pub mod device_wait;
pub mod direct_reclaim;
pub mod dirty_burst;
pub mod dirty_throttle;
pub mod fragmentation;
pub mod fs_freeze;
pub mod hypervisor_noise;
pub mod inode_cache_pressure;
pub mod interrupt;
pub mod io_throttle;
pub mod journal_buffer;
pub mod journal_commit;
pub mod journal_full;
pub mod kswapd_late;
pub mod lock;
pub(crate) mod lock_names;
pub mod lowmem_exhausted;
pub mod memcg_over_high;
pub mod memcg_reclaim;
pub mod monitor_interference;
pub mod node_reclaim;
pub mod not_enough;
pub mod not_observed;
pub mod orphaned_buffers;
pub mod out_of_memory;
pub mod page;
pub mod page_allocation;
pub mod page_fault;
pub mod page_leak;
pub mod page_writeback;
pub mod quiet;
pub mod reclaim_throttle;
pub mod remote_spill;
pub mod request_queue;
pub mod run_queue;
pub mod shrinker;
pub mod slab_leak;
pub mod slab_refill;
pub mod stable_page;
pub mod steal;
pub mod swap_in;
pub mod swap_storm;
pub mod synchronous_read;
pub mod thp_stall;
pub mod unexplained;
pub mod unfair_throttling;
pub mod watermark_too_low;
pub mod zone_reclaim_default;
pub mod zone_reclaim_thrash;

/// All causes. A new cause needs its file and its lines here. Findings that lost the same time keep this order:
/// direct causes precede the possible reasons for them.
pub const CAUSES: &[CauseEntry] = &[
    direct_reclaim::ENTRY,
    memcg_reclaim::ENTRY,
    node_reclaim::ENTRY,
    reclaim_throttle::ENTRY,
    compaction::ENTRY,
    shrinker::ENTRY,
    dirty_throttle::ENTRY,
    journal_commit::ENTRY,
    journal_buffer::ENTRY,
    journal_full::ENTRY,
    page_writeback::ENTRY,
    stable_page::ENTRY,
    block_allocation::ENTRY,
    // Before `synchronous-read`: the reads that it causes lose the same time.
    cache_dropped::ENTRY,
    synchronous_read::ENTRY,
    request_queue::ENTRY,
    device_slow::ENTRY,
    device_wait::ENTRY,
    lock::ENTRY,
    slab_refill::ENTRY,
    page_allocation::ENTRY,
    page_fault::ENTRY,
    swap_in::ENTRY,
    memcg_over_high::ENTRY,
    fs_freeze::ENTRY,
    cpu_quota::ENTRY,
    run_queue::ENTRY,
    steal::ENTRY,
    interrupt::ENTRY,
    compute::ENTRY,
    zone_reclaim_thrash::ENTRY,
    zone_reclaim_default::ENTRY,
    orphaned_buffers::ENTRY,
    page_leak::ENTRY,
    remote_spill::ENTRY,
    watermark_too_low::ENTRY,
    kswapd_late::ENTRY,
    swap_storm::ENTRY,
    hypervisor_noise::ENTRY,
    cpu_contention::ENTRY,
    slab_leak::ENTRY,
    lowmem_exhausted::ENTRY,
    inode_cache_pressure::ENTRY,
    unfair_throttling::ENTRY,
    io_throttle::ENTRY,
    device_queue_starved::ENTRY,
    dirty_burst::ENTRY,
    fragmentation::ENTRY,
    thp_stall::ENTRY,
    cgroup_limit_cache::ENTRY,
    checkpoint_critical_section::ENTRY,
    monitor_interference::ENTRY,
    out_of_memory::ENTRY,
    not_observed::ENTRY,
    not_enough::ENTRY,
    quiet::ENTRY,
    unexplained::ENTRY,
];

#[cfg(test)]
mod tests;

#[must_use]
pub fn find(name: &str) -> Option<&'static CauseEntry> {
    CAUSES.iter().find(|entry| entry.name == name)
}

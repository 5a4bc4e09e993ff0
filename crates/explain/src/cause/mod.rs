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
    /// The kernel's mechanism and why it delays the caller, with functions, files and versions.
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

mod device_compare;
pub(crate) mod lock_names;
pub mod page;

/// Declares the causes: `file => Variant`. Makes the module of each file, [`CauseId`], and [`CAUSES`].
macro_rules! catalogue {
    ($($module:ident => $id:ident,)+) => {
        $(pub mod $module;)+

        /// A cause of the catalogue. In JSON and on the command line it is its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum CauseId {
            $($id,)+
        }

        impl CauseId {
            /// All causes, in the order of [`CAUSES`].
            pub const ALL: &[CauseId] = &[$(CauseId::$id),+];
        }

        /// The entries of all causes, in the order of [`CauseId`].
        pub const CAUSES: &[CauseEntry] = &[$($module::ENTRY),+];
    };
}

// A new cause needs its file and its row here. `cargo fmt` does not follow modules that a macro declares: format the file
// with `rustfmt`; `make lint` checks it. Between findings of equal rank (`precedence.rs`) the order of the rows decides:
// direct causes precede the possible reasons for them.
catalogue! {
    direct_reclaim => DirectReclaim,
    memcg_reclaim => MemcgReclaim,
    node_reclaim => NodeReclaim,
    reclaim_throttle => ReclaimThrottle,
    compaction => Compaction,
    shrinker => Shrinker,
    dirty_throttle => DirtyThrottle,
    journal_commit => JournalCommit,
    journal_buffer => JournalBuffer,
    journal_full => JournalFull,
    page_writeback => PageWriteback,
    stable_page => StablePage,
    block_allocation => BlockAllocation,
    cache_dropped => CacheDropped,
    synchronous_read => SynchronousRead,
    request_queue => RequestQueue,
    device_slow => DeviceSlow,
    device_wait => DeviceWait,
    lock => Lock,
    slab_refill => SlabRefill,
    page_allocation => PageAllocation,
    page_fault => PageFault,
    swap_in => SwapIn,
    memcg_over_high => MemcgOverHigh,
    fs_freeze => FsFreeze,
    cpu_quota => CpuQuota,
    run_queue => RunQueue,
    steal => Steal,
    interrupt => Interrupt,
    compute => Compute,
    worker_queue => WorkerQueue,
    completion_wait => CompletionWait,
    completion_work => CompletionWork,
    zone_reclaim_thrash => ZoneReclaimThrash,
    zone_reclaim_default => ZoneReclaimDefault,
    orphaned_buffers => OrphanedBuffers,
    page_leak => PageLeak,
    remote_spill => RemoteSpill,
    watermark_too_low => WatermarkTooLow,
    kswapd_late => KswapdLate,
    swap_storm => SwapStorm,
    hypervisor_noise => HypervisorNoise,
    cpu_contention => CpuContention,
    slab_leak => SlabLeak,
    lowmem_exhausted => LowmemExhausted,
    inode_cache_pressure => InodeCachePressure,
    unfair_throttling => UnfairThrottling,
    io_throttle => IoThrottle,
    device_queue_starved => DeviceQueueStarved,
    dirty_burst => DirtyBurst,
    fragmentation => Fragmentation,
    thp_stall => ThpStall,
    cgroup_limit_cache => CgroupLimitCache,
    checkpoint_critical_section => CheckpointCriticalSection,
    monitor_interference => MonitorInterference,
    out_of_memory => OutOfMemory,
    not_observed => NotObserved,
    not_enough => NotEnough,
    quiet => Quiet,
    unexplained => Unexplained,
}

impl CauseId {
    #[must_use]
    pub fn entry(self) -> &'static CauseEntry {
        &CAUSES[self as usize]
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The time cause of the segments that this cause represents; `None` for causes known from counters only.
    #[must_use]
    pub fn span(self) -> Option<Cause> {
        self.entry().span
    }
}

impl From<Cause> for CauseId {
    fn from(cause: Cause) -> CauseId {
        // `every_time_cause_has_its_entry` checks that each time cause has an entry.
        CauseId::ALL.iter().copied().find(|id| id.span() == Some(cause)).unwrap_or(CauseId::Unexplained)
    }
}

impl std::fmt::Display for CauseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for CauseId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests;

#[must_use]
pub fn find(name: &str) -> Option<&'static CauseEntry> {
    CAUSES.iter().find(|entry| entry.name == name)
}

//! The row of a summary: its columns are declared here, and nowhere else.

use super::HourStart;
use crate::call::named_enum;
use crate::store::flat::{named_cells, table};

/// Latencies that the columns `calls_over_*` count calls over, ns.
pub const CALLS_OVER_NS: [i64; 8] =
    [1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000, 300_000_000, 1_000_000_000, 10_000_000_000];

named_enum! {
    /// What a row was made of.
    #[derive(Default)]
    SummaryOrigin {
        /// An hour of `flatwater watch`.
        Watch => "watch",
        /// A recording that somebody made.
        #[default]
        Recording => "recording",
        /// A recording that the daemon made within its hours: what it holds is counted there already.
        Capture => "capture",
    }
}
named_cells!(SummaryOrigin);

table! {
    /// Two kinds of rows. With `cause` null: the host's hour itself, one for each host, hour and `sequence`, whether anything
    /// stalled or not. With a `cause`: what that cause took from one service, by one operation, made by one aggressor. Calls
    /// and times are in the second kind; an observed hour has 0 in the first, an hour that was not observed has null, so that
    /// sums over any rows are right and what was not observed stays null. Sums of `stall_ns` fit into 64 bits up to 292 years.
    SummaryRow = "summary" {
        /// Hostname of the machine; `unknown` where it was not recorded.
        host: String,
        /// The kernel's random name for the time since it booted; null for models and logs.
        boot: Option<String>,
        /// CLOCK_MONOTONIC in ns where the summarised time begins. With `host` and `boot` it names this summary: the same
        /// three come twice only if the same summary does.
        sequence: i64,
        /// What the row was made of: `watch`, `recording`, or `capture`, whose calls are in a row of `watch` already.
        origin: SummaryOrigin,
        /// Start of the hour, UTC; null where no wall time exists, as in models.
        hour_start: Option<HourStart>,
        /// Error of the host's clock when the summary was pushed, against the clock of the store, s; null where it was not
        /// measured. Times in the row are as the host's clock had them.
        clock_error_s: Option<i64>,
        /// `uname -r`.
        kernel: Option<String>,
        /// CPUs that were online.
        cpus: Option<u32>,
        /// Memory of the machine.
        memory_bytes: Option<i64>,
        /// NUMA nodes.
        nodes: Option<u32>,
        /// `kvm` and the like; null on bare metal or where it cannot be told.
        hypervisor: Option<String>,
        /// CPUs, memory in GiB, nodes and hypervisor in one word, `16c-64g-2n-kvm`: machines of one shape are alike.
        shape: String,
        /// vm.dirty_ratio when the time began; so for each setting. Null where it could not be read.
        vm_dirty_ratio: Option<i64>,
        /// vm.dirty_background_ratio.
        vm_dirty_background_ratio: Option<i64>,
        /// vm.dirty_bytes.
        vm_dirty_bytes: Option<i64>,
        /// vm.dirty_background_bytes.
        vm_dirty_background_bytes: Option<i64>,
        /// vm.dirty_expire_centisecs.
        vm_dirty_expire_centisecs: Option<i64>,
        /// vm.zone_reclaim_mode.
        vm_zone_reclaim_mode: Option<i64>,
        /// vm.swappiness.
        vm_swappiness: Option<i64>,
        /// vm.min_free_kbytes.
        vm_min_free_kbytes: Option<i64>,
        /// vm.watermark_scale_factor.
        vm_watermark_scale_factor: Option<i64>,
        /// vm.vfs_cache_pressure.
        vm_vfs_cache_pressure: Option<i64>,
        /// thp.enabled.
        thp_enabled: Option<String>,
        /// thp.defrag.
        thp_defrag: Option<String>,
        /// queue.scheduler of the target's device.
        queue_scheduler: Option<String>,
        /// Block device that the calls waited for, or that their directory is on; null where it is not known.
        device: Option<String>,
        /// Path of the cgroup of who waited; null where it is not known.
        cgroup: Option<String>,
        /// Unit or container of that cgroup, `postgresql.service`; null where its path names none.
        service: Option<String>,
        /// Program that waited.
        program: Option<String>,
        /// `write`, `fsync` ...
        operation: Option<String>,
        /// Where the time went, as `flatwater causes` lists them; null in the row of the hour itself.
        cause: Option<String>,
        /// Who answers for it: `others` (processes that were not watched), `own`, `device`, `flush`, `limit`, `kernel` or
        /// `unknown`; null where it was not recorded who made whom wait.
        aggressor_kind: Option<String>,
        /// Program of the aggressor; null where it is none, or one of many small ones.
        aggressor: Option<String>,
        /// Its cgroup.
        aggressor_cgroup: Option<String>,
        /// By what it made them wait: `queue`, `data`, `lock`, `running`, `dirty-pages`, `memory`, `dropped-cache`, `journal`, `cpu`, `beside`, `cache`.
        aggressor_means: Option<String>,
        /// Slow calls of which this took the most time, so that each call is counted in one row.
        calls: Option<i64>,
        /// Time that this took from slow calls.
        stall_ns: Option<i64>,
        /// The longest of those calls; null where there is none.
        worst_ns: Option<i64>,
        /// Calls from this long on are seen one by one.
        threshold_ns: i64,
        /// Of `calls`, those that took at least 1 ms; null where the threshold is higher. So for each of these columns.
        calls_over_1ms: Option<i64>,
        /// 3 ms.
        calls_over_3ms: Option<i64>,
        /// 10 ms.
        calls_over_10ms: Option<i64>,
        /// 30 ms.
        calls_over_30ms: Option<i64>,
        /// 100 ms.
        calls_over_100ms: Option<i64>,
        /// 300 ms.
        calls_over_300ms: Option<i64>,
        /// 1 s.
        calls_over_1s: Option<i64>,
        /// 10 s.
        calls_over_10s: Option<i64>,
        /// How much of the hour was observed, ms: only in the row of the hour itself.
        observed_ms: Option<i64>,
        /// Which operations were not timed, `page-faults,io-uring`; null where all were.
        not_observed: Option<String>,
        /// Where the recording lies in the fleet's store, if it was pushed.
        recording: Option<String>,
        /// The flatwater that wrote it.
        written_by: String,
    }
}

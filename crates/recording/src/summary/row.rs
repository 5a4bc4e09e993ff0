//! The row of a summary. Its columns are declared only here.

use super::HourStart;
use crate::call::named_enum;
use crate::store::flat::{named_cells, table};

/// Latencies in ns above which the columns `calls_over_*` count calls.
pub const CALLS_OVER_NS: [i64; 8] =
    [1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000, 300_000_000, 1_000_000_000, 10_000_000_000];

named_enum! {
    /// Source of a row.
    #[derive(Default)]
    SummaryOrigin {
        /// An hour of `flatwater watch`.
        Watch => "watch",
        /// A recording that a user made.
        #[default]
        Recording => "recording",
        /// A recording that the daemon made. Its calls are counted in the daemon's hours already.
        Capture => "capture",
    }
}
named_cells!(SummaryOrigin);

table! {
    /// Two kinds of rows. With `cause` null: the host's hour itself, one row for each host, hour and `sequence`, even
    /// if nothing stalled. With a `cause`: the time that this cause took from one operation of one service, because of
    /// one aggressor. Calls and times are in the second kind. In the first kind they are 0 for an observed hour and
    /// null for an unobserved one, so that sums over any rows are right and unobserved hours stay null. Sums of
    /// `stall_ns` fit into 64 bits up to 292 years.
    SummaryRow = "summary" {
        /// Hostname of the machine; `unknown` if not recorded.
        host: String,
        /// The kernel's random id of this boot; null for models and logs.
        boot: Option<String>,
        /// CLOCK_MONOTONIC in ns at the start of the summarised time. Together with `host` and `boot` it identifies
        /// this summary.
        sequence: i64,
        /// Source of the row: `watch`, `recording`, or `capture`, whose calls are in rows of `watch` already.
        origin: SummaryOrigin,
        /// Start of the hour, UTC; null without wall time, as in models.
        hour_start: Option<HourStart>,
        /// Error of the host's clock against the clock of the store when the summary was pushed, s; null if not
        /// measured. Times in the row are not corrected.
        clock_error_s: Option<i64>,
        /// `uname -r`.
        kernel: Option<String>,
        /// Number of online CPUs.
        cpus: Option<u32>,
        /// Memory of the machine.
        memory_bytes: Option<i64>,
        /// Number of NUMA nodes.
        nodes: Option<u32>,
        /// `kvm` and the like; null on bare metal or if unknown.
        hypervisor: Option<String>,
        /// CPUs, memory in GiB, nodes and hypervisor in one word: `16c-64g-2n-kvm`. Machines with the same shape are
        /// comparable.
        shape: String,
        /// vm.dirty_ratio at the start of the time, as for each setting. Null if it could not be read.
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
        /// Block device that the calls waited for, or of their directory; null if unknown.
        device: Option<String>,
        /// Path of the victim's cgroup; null if unknown.
        cgroup: Option<String>,
        /// Unit or container of that cgroup, `postgresql.service`; null if its path names neither.
        service: Option<String>,
        /// The victim's program.
        program: Option<String>,
        /// `write`, `fsync` ...
        operation: Option<String>,
        /// The cause, as in `flatwater causes`; null in the row of the hour itself.
        cause: Option<String>,
        /// Kind of the aggressor: `others` (processes that were not watched), `own`, `device`, `flush`, `limit`,
        /// `kernel` or `unknown`; null if aggressors were not recorded.
        aggressor_kind: Option<String>,
        /// Program of the aggressor; null if the aggressor is not a program, or in a merged row of small ones.
        aggressor: Option<String>,
        /// Cgroup of the aggressor.
        aggressor_cgroup: Option<String>,
        /// How the aggressor caused the wait: `queue`, `data`, `lock`, `running`, `dirty-pages`, `memory`,
        /// `dropped-cache`, `journal`, `cpu`, `beside`, `cache`.
        aggressor_means: Option<String>,
        /// Slow calls that lost the most time to this cause and aggressor; each call is counted in one row only.
        calls: Option<i64>,
        /// Time that slow calls lost to this cause and aggressor.
        stall_ns: Option<i64>,
        /// Duration of the longest of `calls`; null without calls.
        worst_ns: Option<i64>,
        /// Calls that took at least this long were recorded one by one.
        threshold_ns: i64,
        /// Number of `calls` that took at least 1 ms; null if the threshold is higher. The next columns are alike.
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
        /// Observed part of the hour, ms; only in the row of the hour itself.
        observed_ms: Option<i64>,
        /// Operations that were not timed, `page-faults,io-uring`; null if all were.
        not_observed: Option<String>,
        /// Path of the recording in the fleet's store, if it was pushed.
        recording: Option<String>,
        /// Version of the flatwater that wrote the row.
        written_by: String,
    }
}

//! Which knobs a kernel's model obeys.

/// Knobs that the models of 2.6 and later obey (`knobs`, `build`, `memory`); those of 2.2 obey none of them.
const MODELLED: &[&str] = &[
    "vm.zone_reclaim_mode",
    "vm.min_free_kbytes",
    "vm.watermark_scale_factor",
    "vm.vfs_cache_pressure",
    "vm.dirty_ratio",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_background_bytes",
    "vm.dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs",
    "ratelimit_pages",
    "journal_commit_interval",
    "monitor.slabinfo_interval",
    "queue.nr_requests",
    "queue.scheduler",
    "precursor",
    "cgroup.memory_limit",
    "queue.max_sectors_kb",
    "queue.read_ahead_kb",
    "model.active_percent",
    "model.cache_percent",
    "model.cgroup_version",
    "model.mapped_percent",
    "model.pinned_percent",
];

/// The knobs that the model of this kernel obeys; sweeping another would give the same each time.
#[must_use]
pub fn modelled_knobs(kernel: &str) -> &'static [&'static str] {
    if kernel.starts_with("linux-2.2") { &[] } else { MODELLED }
}

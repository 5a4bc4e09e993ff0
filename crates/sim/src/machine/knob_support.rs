//! The knobs that a kernel's model obeys, those without effect, and the mechanism that is missing for the others.

use crate::kernel::{self, ZoneReclaim};
use flatwater_recording::knob::{self, KnobPlace, lru_gen_runs};

/// Knobs that the models of 2.6 and later obey; the models of 2.2 obey none.
const MODELLED: &[&str] = &[
    "vm.zone_reclaim_mode",
    "vm.min_free_kbytes",
    "vm.watermark_scale_factor",
    "vm.min_unmapped_ratio",
    "vm.min_slab_ratio",
    "vm.lowmem_reserve_ratio",
    "vm.vfs_cache_pressure",
    "vm.dirty_ratio",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_background_bytes",
    "vm.dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs",
    "thp.enabled",
    "ratelimit_pages",
    "journal_commit_interval",
    "monitor.slabinfo_interval",
    "queue.nr_requests",
    "queue.wbt_lat_usec",
    "queue.scheduler",
    "precursor",
    "bdi.strict_limit",
    "bdi.max_bytes",
    "bdi.max_ratio",
    "bdi.min_ratio",
    "cgroup.memory_limit",
    "cgroup.write_bps",
    "cgroup.read_bps",
    "cgroup.write_iops",
    "cgroup.read_iops",
    "mount.file_system",
    "mount.options",
    "queue.max_sectors_kb",
    "queue.read_ahead_kb",
    "vm.swappiness",
];

/// Knobs without effect in the model: counters, sizes of the loop device.
const WITHOUT_EFFECT: &[&str] = &[
    SWAPPINESS,
    "vm.numa_stat",
    "vm.overcommit_memory",
    "vm.dirtytime_expire_seconds",
    "vm.compact_unevictable_allowed",
    "vm.extfrag_threshold",
    "mount.size",
    "mount.mkfs_options",
];

/// The mechanism of a knob that the model lacks; `None` if the value turns the mechanism off.
fn missing_for(key: &str, value: &str) -> Option<&'static str> {
    let off = matches!(value, "0" | "never");
    match key {
        ZONE_RECLAIM => (!off).then_some("reclaim of the local zone"),
        "kernel.numa_balancing" => (!off).then_some("NUMA balancing by faults"),
        "vm.compaction_proactiveness" => (!off).then_some("proactive compaction"),
        // mm/huge_memory.c: vma_thp_gfp_mask, 4.6 and later: both that defer wake kswapd for a fault, and it wakes
        // kcompactd.
        "thp.defrag" => match value {
            "always" => Some("compaction inside page faults"),
            "defer" | "defer+madvise" => Some("compaction in the background (kcompactd)"),
            _ => None,
        },
        "vm.watermark_boost_factor" => (!off).then_some("watermark boosts"),
        "thp.shmem_enabled" => (!off).then_some("huge pages in shared memory"),
        "lru_gen.enabled" => (lru_gen_runs(value) != Some(false)).then_some("generations of pages (multi-gen LRU)"),
        "lru_gen.min_ttl_ms" => (!off).then_some("the minimum age of generations"),
        "cgroup.memory_high" => Some("memory.high of a cgroup"),
        "cgroup.memory_low" | "cgroup.memory_min" => (!off).then_some("memory that a cgroup is protected in"),
        "cgroup.soft_limit" => Some("soft limits of cgroup v1"),
        "cgroup.cpu_quota_us" => Some("CPU quotas of a cgroup"),
        "placement.fifo_priority" => (!off).then_some("scheduling classes"),
        _ => Some("this setting"),
    }
}

/// The knobs that the model of this kernel obeys.
#[must_use]
pub fn modelled_knobs(name: &str) -> &'static [&'static str] {
    let profile = kernel::find(name);
    if profile.as_ref().is_some_and(|profile| profile.buffer_cache.is_some()) {
        return &[];
    }
    let reclaims_zones = profile.is_none_or(|profile| profile.zone_reclaim != ZoneReclaim::None);
    match MODELLED {
        // swap_tendency: one list for files and processes.
        [ZONE_RECLAIM, others @ ..] if !reclaims_zones => others,
        // Without swap it has no effect on the others.
        [others @ .., SWAPPINESS] => others,
        all => all,
    }
}

/// The first of `MODELLED`: Linux has the knob from 2.6.16 on, and the models reclaim the local zone from 2.6.32 on.
const ZONE_RECLAIM: &str = "vm.zone_reclaim_mode";
/// The last.
const SWAPPINESS: &str = "vm.swappiness";

/// The mechanism that the model would need to obey this setting; `None` if it obeys it.
#[must_use]
pub fn missing_mechanism(name: &str, key: &str, value: &str) -> Option<&'static str> {
    if WITHOUT_EFFECT.contains(&key) || modelled_knobs(name).contains(&key) {
        return None;
    }
    let place = knob::find(key).ok().map(|knob| knob.place);
    let is_2_2 = kernel::find(name).is_some_and(|profile| profile.buffer_cache.is_some());
    let of_threads = place == Some(KnobPlace::Placement) && key != "placement.fifo_priority";
    let of_model = matches!(place, Some(KnobPlace::NoFile | KnobPlace::Precursor | KnobPlace::Mount));
    if of_threads || (of_model && is_2_2) {
        return None;
    }
    missing_for(key, value)
}

#[cfg(test)]
mod tests {
    use super::{MODELLED, WITHOUT_EFFECT, missing_mechanism};
    use flatwater_recording::knob::{self, KNOBS};

    #[test]
    fn every_knob_is_obeyed_without_effect_or_refused_by_the_mechanism_that_is_missing() {
        for key in MODELLED.iter().chain(WITHOUT_EFFECT) {
            assert!(knob::find(key).is_ok(), "{key} is not a knob");
        }
        for knob in KNOBS {
            let known = MODELLED.contains(&knob.key) || WITHOUT_EFFECT.contains(&knob.key);
            let why = missing_mechanism("linux-6.12", knob.key, "always");
            assert!(known || knob.key.starts_with("placement.") || why.is_some_and(|why| why != "this setting"));
        }
        assert_eq!(missing_mechanism("linux-6.12", "kernel.numa_balancing", "0"), None);
        assert_eq!(missing_mechanism("linux-2.2.5", "vm.dirty_ratio", "5"), Some("this setting"));
        assert_eq!(missing_mechanism("linux-6.12", "cgroup.memory_high", "1048576"), Some("memory.high of a cgroup"));
    }

    #[test]
    fn reclaim_of_the_local_zone_is_refused_where_the_model_has_none() {
        let why = |kernel, value| missing_mechanism(kernel, "vm.zone_reclaim_mode", value);
        for kernel in ["linux-2.6.17", "linux-2.6.20-pae"] {
            assert_eq!(why(kernel, "1"), Some("reclaim of the local zone"), "{kernel}");
            assert_eq!(why(kernel, "0"), None, "{kernel}");
            assert!(!super::modelled_knobs(kernel).contains(&"vm.zone_reclaim_mode"));
        }
        assert_eq!([why("linux-2.6.32", "1"), why("linux-6.12", "1")], [None, None]);
    }

    #[test]
    fn what_compacts_memory_for_a_huge_page_is_refused_and_what_does_not_is_taken() {
        let why = |value| missing_mechanism("linux-6.12", "thp.defrag", value);
        assert_eq!(why("always"), Some("compaction inside page faults"));
        for value in ["defer", "defer+madvise"] {
            assert_eq!(why(value), Some("compaction in the background (kcompactd)"), "{value}");
        }
        // No program of a workload calls madvise().
        assert_eq!(["madvise", "never"].map(why), [None, None]);
    }
}

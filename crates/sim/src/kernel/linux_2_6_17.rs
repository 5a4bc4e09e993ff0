//! Linux 2.6.17: the kernel of the ten bulk writers.

use super::{Costs, Profile, SlabFallback, Throttle, ZoneReclaim, linux_2_6_32};

pub fn profile() -> Profile {
    Profile {
        name: "linux-2.6.17",
        sentence: "2.6.17: a per-CPU dirty rate limit, writers that write out a chunk themselves, batching requests.",
        hz: 250,
        ages_evenly: true,
        slab_fallback: SlabFallback::TriesHarder,
        zone_reclaim: ZoneReclaim::None,
        throttle: Throttle::PerCpuRateLimit,
        min_free_kbytes_max: 65_536,
        // mm/page-writeback.c, 2.6.17: vm_dirty_ratio 40, dirty_background_ratio 10.
        dirty_ratio: 40,
        background_ratio: 10,
        costs: Costs { jiffy_ns: 4_000_000, ..linux_2_6_32::COSTS },
        ..linux_2_6_32::profile()
    }
}

//! The registry of knobs, one entry each.

use super::{Knob, KnobKind, KnobPlace};

const GIB64: u64 = 64 << 30;

const fn int(key: &'static str, max: i64, unit: &'static str, sentence: &'static str) -> Knob {
    Knob { key, place: KnobPlace::Sysctl, kind: KnobKind::Integer { min: 0, max }, unit, sentence }
}

const fn at(place: KnobPlace, knob: Knob) -> Knob {
    Knob { place, ..knob }
}

const fn kind(key: &'static str, place: KnobPlace, kind: KnobKind, unit: &'static str, sentence: &'static str) -> Knob {
    Knob { key, place, kind, unit, sentence }
}

const fn size(key: &'static str, place: KnobPlace, sentence: &'static str) -> Knob {
    kind(key, place, KnobKind::Size { min: 0, max: GIB64 }, "bytes", sentence)
}

const fn text(key: &'static str, place: KnobPlace, sentence: &'static str) -> Knob {
    kind(key, place, KnobKind::Text, "", sentence)
}

const ON_OFF: KnobKind = KnobKind::Choice(&["0", "1"]);

/// All knobs. To add a knob, add an entry here (and code to `host/src/setup` if its place is new).
pub const KNOBS: &[Knob] = &[
    int(
        "vm.zone_reclaim_mode",
        7,
        "",
        "Reclaim on the local node before allocating on another: 1 on, 2 write dirty pages, 4 unmap and swap.",
    ),
    kind(
        "vm.min_free_kbytes",
        KnobPlace::Sysctl,
        KnobKind::SizeKib { min: 128, max: 64 << 20 },
        "KiB",
        "Memory to keep free, divided into the min watermarks of the zones.",
    ),
    int(
        "vm.watermark_scale_factor",
        3000,
        "1/10000 of memory",
        "Distance between the min, low and high watermarks: kswapd starts earlier if it is larger.",
    ),
    int(
        "vm.watermark_boost_factor",
        150_000,
        "1/10000",
        "Rise of the high watermark after an allocation that causes fragmentation.",
    ),
    int(
        "vm.vfs_cache_pressure",
        100_000,
        "%",
        "Preference for reclaiming dentries and inodes over page cache; 100 is neutral.",
    ),
    int("vm.swappiness", 200, "", "Preference for swapping anonymous pages over dropping page cache."),
    int("vm.dirty_ratio", 100, "% of available memory", "Amount of dirty page cache at which writers are throttled."),
    int(
        "vm.dirty_background_ratio",
        100,
        "% of available memory",
        "Amount of dirty page cache at which the flusher starts.",
    ),
    size("vm.dirty_bytes", KnobPlace::Sysctl, "Like dirty_ratio, in bytes; setting one clears the other."),
    size("vm.dirty_background_bytes", KnobPlace::Sysctl, "Like dirty_background_ratio, in bytes."),
    int("vm.dirty_expire_centisecs", 8_640_000, "1/100 s", "Age at which the periodic flusher writes dirty data."),
    int("vm.dirty_writeback_centisecs", 8_640_000, "1/100 s", "Interval of the periodic flusher."),
    int(
        "vm.dirtytime_expire_seconds",
        31_536_000,
        "s",
        "Age at which an inode is written if only its timestamps changed.",
    ),
    kind(
        "vm.lowmem_reserve_ratio",
        KnobPlace::Sysctl,
        KnobKind::Integers { count_max: 6 },
        "",
        "Share of a lower zone that is reserved from allocations that can use a higher zone.",
    ),
    int(
        "vm.min_unmapped_ratio",
        100,
        "% of the zone or node",
        "Unmapped page cache below which zone reclaim does not scan.",
    ),
    int(
        "vm.min_slab_ratio",
        100,
        "% of the zone or node",
        "Reclaimable slab below which zone reclaim does not shrink slab.",
    ),
    int("vm.compaction_proactiveness", 100, "", "How aggressively the kernel compacts memory in the background."),
    int(
        "vm.compact_unevictable_allowed",
        1,
        "",
        "Whether compaction may move mlocked pages, which stalls their users.",
    ),
    int(
        "vm.extfrag_threshold",
        1000,
        "1/1000",
        "Fragmentation index below which a failing large allocation reclaims instead of compacting.",
    ),
    int("vm.overcommit_memory", 2, "", "Accounting of address space: 0 heuristic, 1 always overcommit, 2 never."),
    int("vm.numa_stat", 1, "", "Whether the kernel counts numa_hit, numa_miss and similar events."),
    int(
        "kernel.numa_balancing",
        3,
        "",
        "Whether pages migrate to the node of the CPU that uses them, found by hint faults.",
    ),
    kind(
        "thp.enabled",
        KnobPlace::HugePages,
        KnobKind::Choice(&["always", "madvise", "never"]),
        "",
        "Which memory uses transparent huge pages.",
    ),
    kind(
        "thp.defrag",
        KnobPlace::HugePages,
        KnobKind::Choice(&["always", "defer", "defer+madvise", "madvise", "never"]),
        "",
        "Whether a fault may compact memory to get a huge page.",
    ),
    kind(
        "thp.shmem_enabled",
        KnobPlace::HugePages,
        KnobKind::Choice(&["always", "within_size", "advise", "never", "deny", "force"]),
        "",
        "Which shared memory and tmpfs files use transparent huge pages.",
    ),
    text(
        "lru_gen.enabled",
        KnobPlace::LruGen,
        "The LRU in use: 0x0000 active and inactive lists; bit 0 set, the multi-generational LRU (6.1).",
    ),
    at(
        KnobPlace::LruGen,
        int(
            "lru_gen.min_ttl_ms",
            i64::MAX,
            "ms",
            "Age below which the multi-generational LRU does not evict pages and invokes the OOM killer instead.",
        ),
    ),
    kind(
        "queue.scheduler",
        KnobPlace::Queue,
        KnobKind::Choice(&["none", "mq-deadline", "kyber", "bfq", "deadline", "cfq", "noop", "anticipatory"]),
        "",
        "I/O scheduler of the device, if the kernel supports it (deadline, cfq, noop: before 5.0; anticipatory: before 2.6.33).",
    ),
    at(
        KnobPlace::Queue,
        int("queue.nr_requests", 65_536, "requests", "Requests in the device's queue before submitters wait."),
    ),
    at(
        KnobPlace::Queue,
        int("queue.wbt_lat_usec", 10_000_000, "us", "Target read latency of writeback throttling; 0 is off."),
    ),
    at(KnobPlace::Queue, int("queue.read_ahead_kb", 1 << 20, "KiB", "Maximum size of one readahead.")),
    at(KnobPlace::Queue, int("queue.max_sectors_kb", 1 << 20, "KiB", "Maximum size of a request.")),
    kind(
        "bdi.strict_limit",
        KnobPlace::Bdi,
        ON_OFF,
        "",
        "Whether the device's own dirty limit applies even if there is enough clean memory.",
    ),
    size("bdi.max_bytes", KnobPlace::Bdi, "Maximum dirty memory of this device."),
    at(KnobPlace::Bdi, int("bdi.max_ratio", 100, "%", "Like max_bytes, as a share of the global limit.")),
    at(KnobPlace::Bdi, int("bdi.min_ratio", 100, "%", "Share of the global dirty limit reserved for this device.")),
    size(
        "cgroup.memory_limit",
        KnobPlace::Cgroup,
        "Hard limit of the scenario's memory cgroup (memory.max, v1 memory.limit_in_bytes).",
    ),
    size("cgroup.memory_high", KnobPlace::Cgroup, "memory.high of the scenario's cgroup (v2 only)."),
    size(
        "cgroup.memory_low",
        KnobPlace::Cgroup,
        "memory.low of the scenario's cgroup: protected while other cgroups have reclaimable memory (v2 only).",
    ),
    size(
        "cgroup.memory_min",
        KnobPlace::Cgroup,
        "memory.min of the scenario's cgroup: never reclaimed by reclaim outside the cgroup (v2 only).",
    ),
    size("cgroup.soft_limit", KnobPlace::Cgroup, "memory.soft_limit_in_bytes of the scenario's cgroup (v1 only)."),
    at(
        KnobPlace::Cgroup,
        int(
            "cgroup.cpu_quota_us",
            10_000_000,
            "us per 100 ms",
            "CPU time of the scenario's cgroup in each period of 100 ms.",
        ),
    ),
    size(
        "cgroup.write_bps",
        KnobPlace::Cgroup,
        "Maximum bytes per second written to the scenario's device (blkio throttle, or io.max).",
    ),
    size("cgroup.read_bps", KnobPlace::Cgroup, "Maximum bytes per second read from the scenario's device."),
    at(
        KnobPlace::Cgroup,
        int("cgroup.write_iops", 10_000_000, "1/s", "Maximum writes per second to the scenario's device."),
    ),
    at(
        KnobPlace::Cgroup,
        int("cgroup.read_iops", 10_000_000, "1/s", "Maximum reads per second from the scenario's device."),
    ),
    kind(
        "mount.file_system",
        KnobPlace::Mount,
        KnobKind::Choice(&["ext4", "xfs", "ext2", "btrfs", "tmpfs"]),
        "",
        "File system created on a loop device for the scenario.",
    ),
    kind(
        "mount.size",
        KnobPlace::Mount,
        KnobKind::Size { min: 16 << 20, max: GIB64 },
        "bytes",
        "Size of the scenario's loop device.",
    ),
    text("mount.options", KnobPlace::Mount, "Mount options, as in `mount -o`."),
    text("mount.mkfs_options", KnobPlace::Mount, "Options for mkfs, separated by spaces."),
    at(KnobPlace::Placement, int("placement.cpu", 8191, "", "CPU that the workload's threads are pinned to.")),
    at(
        KnobPlace::Placement,
        int("placement.node", 1023, "", "NUMA node that the workload's threads and memory are bound to."),
    ),
    at(
        KnobPlace::Placement,
        int(
            "placement.fifo_priority",
            99,
            "",
            "SCHED_FIFO priority of latency-critical threads; 0 is the normal scheduling class.",
        ),
    ),
    kind(
        "precursor",
        KnobPlace::Precursor,
        KnobKind::Choice(&["off", "plain", "prefetch", "window", "ring", "auto"]),
        "",
        "How workloads append: with write(), or with the precursor in the named mode.",
    ),
    kind(
        "monitor.slabinfo_interval",
        KnobPlace::NoFile,
        KnobKind::Duration { unit_ns: 1_000_000, max: 3_600_000 },
        "ms",
        "Interval at which a monitor reads /proc/slabinfo; 0 is never (sim).",
    ),
    kind(
        "journal_commit_interval",
        KnobPlace::NoFile,
        KnobKind::Duration { unit_ns: 1_000_000, max: 3_600_000 },
        "ms",
        "Time between journal commits, the mount option commit= (sim).",
    ),
    at(
        KnobPlace::NoFile,
        int(
            "ratelimit_pages",
            1 << 20,
            "pages",
            "Pages that a CPU may dirty between two checks of the dirty limits, a constant of 2.6 kernels (sim).",
        ),
    ),
];

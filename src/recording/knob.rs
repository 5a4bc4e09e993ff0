//! Every knob that flatwater reads or sets: typed, with range, unit, place and a sentence.
//!
//! One table serves scenario files, `--set`, `check`, fixes, the simulator and the documentation.

use crate::units::{Bytes, Nanos};

/// Where a knob lives. Only `host/setup.rs` turns this into a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobPlace {
    /// /proc/sys, dots for slashes.
    Sysctl,
    /// /sys/kernel/mm/transparent_hugepage/...
    HugePages,
    /// /sys/block/DEV/queue/... of the scenario's device.
    Queue,
    /// /sys/class/bdi/MAJ:MIN/... of the scenario's device.
    Bdi,
    /// The memory, cpu or blkio controller of the cgroup made for the scenario.
    Cgroup,
    /// The loop device, file system and mount options made for the scenario.
    Mount,
    /// Where the workload's threads run.
    Placement,
    /// How a workload appends: a choice of the precursor's mode.
    Precursor,
    /// Simulator only: what the modelled machine runs beside the workload.
    Model,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobKind {
    Integer {
        min: i64,
        max: i64,
    },
    /// A size, set in bytes.
    Size {
        min: u64,
        max: u64,
    },
    /// Set in KiB, given as any size (`min_free_kbytes`).
    SizeKib {
        min: u64,
        max: u64,
    },
    /// A duration, set in the given unit (ns per unit).
    Duration {
        unit_ns: u64,
        max: u64,
    },
    Choice(&'static [&'static str]),
    /// Space-separated integers.
    Integers {
        count_max: usize,
    },
    Text,
}

#[derive(Clone, Copy, Debug)]
pub struct Knob {
    pub key: &'static str,
    pub place: KnobPlace,
    pub kind: KnobKind,
    /// Unit of the value as set: `bytes`, `KiB`, `%`, `centisecs`, or empty.
    pub unit: &'static str,
    pub sentence: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    #[error("there is no knob '{key}'{}; `flatwater scenarios --knobs` lists them", hint(.nearest))]
    Unknown { key: String, nearest: Option<&'static str> },
    #[error("'{given}' cannot be the value of {key}: it takes {wanted}")]
    BadValue { key: &'static str, given: String, wanted: String },
}

fn hint(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!(" (did you mean '{name}'?)")).unwrap_or_default()
}

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

/// The registry. Adding a knob is one line here (and its place in `host/setup.rs` if the place is new).
pub const KNOBS: &[Knob] = &[
    int(
        "vm.zone_reclaim_mode",
        7,
        "",
        "Reclaim on the local node before taking pages from another: 1 on, 2 write dirty pages, 4 unmap and swap.",
    ),
    kind(
        "vm.min_free_kbytes",
        KnobPlace::Sysctl,
        KnobKind::SizeKib { min: 128, max: 64 << 20 },
        "KiB",
        "Memory kept free; the zones' min watermarks are its shares.",
    ),
    int(
        "vm.watermark_scale_factor",
        3000,
        "1/10000 of memory",
        "Distance between the min, low and high watermarks: how early kswapd starts.",
    ),
    int(
        "vm.watermark_boost_factor",
        150_000,
        "1/10000",
        "How far the high watermark rises after a fragmenting allocation.",
    ),
    int(
        "vm.vfs_cache_pressure",
        100_000,
        "%",
        "How eagerly dentries and inodes are reclaimed beside page cache; 100 is even.",
    ),
    int("vm.swappiness", 200, "", "How readily anonymous pages are swapped beside dropping page cache."),
    int("vm.dirty_ratio", 100, "% of available memory", "Dirty page cache at which writers are throttled."),
    int("vm.dirty_background_ratio", 100, "% of available memory", "Dirty page cache at which the flusher starts."),
    size("vm.dirty_bytes", KnobPlace::Sysctl, "As dirty_ratio, in bytes; setting one clears the other."),
    size("vm.dirty_background_bytes", KnobPlace::Sysctl, "As dirty_background_ratio, in bytes."),
    int(
        "vm.dirty_expire_centisecs",
        8_640_000,
        "1/100 s",
        "Age at which dirty data is written by the periodic flusher.",
    ),
    int("vm.dirty_writeback_centisecs", 8_640_000, "1/100 s", "Interval of the periodic flusher."),
    kind(
        "vm.lowmem_reserve_ratio",
        KnobPlace::Sysctl,
        KnobKind::Integers { count_max: 6 },
        "",
        "Share of lower zones kept from allocations that could use a higher one.",
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
    int("vm.compaction_proactiveness", 100, "", "How hard the kernel compacts memory in the background."),
    int("vm.compact_unevictable_allowed", 1, "", "Whether compaction may move mlocked pages, stalling their user."),
    int("vm.overcommit_memory", 2, "", "How address space is accounted."),
    int("vm.numa_stat", 1, "", "Whether numa_hit, numa_miss ... are counted."),
    int("kernel.numa_balancing", 3, "", "Whether pages follow the CPU that uses them, by faults."),
    kind(
        "thp.enabled",
        KnobPlace::HugePages,
        KnobKind::Choice(&["always", "madvise", "never"]),
        "",
        "Where transparent huge pages are used.",
    ),
    kind(
        "thp.defrag",
        KnobPlace::HugePages,
        KnobKind::Choice(&["always", "defer", "defer+madvise", "madvise", "never"]),
        "",
        "Whether a fault may compact memory to get a huge page.",
    ),
    text("queue.scheduler", KnobPlace::Queue, "I/O scheduler of the device (none, mq-deadline, bfq, kyber)."),
    at(
        KnobPlace::Queue,
        int("queue.nr_requests", 65_536, "requests", "Requests the device's queue holds before submitters wait."),
    ),
    at(
        KnobPlace::Queue,
        int("queue.wbt_lat_usec", 10_000_000, "us", "Read latency that writeback throttling aims at; 0 is off."),
    ),
    at(KnobPlace::Queue, int("queue.read_ahead_kb", 1 << 20, "KiB", "Most that readahead fetches at once.")),
    at(KnobPlace::Queue, int("queue.max_sectors_kb", 1 << 20, "KiB", "Largest request.")),
    kind(
        "bdi.strict_limit",
        KnobPlace::Bdi,
        ON_OFF,
        "",
        "Whether the device's own dirty limit binds even when memory is plenty.",
    ),
    size("bdi.max_bytes", KnobPlace::Bdi, "Most dirty memory that may belong to this device."),
    at(KnobPlace::Bdi, int("bdi.max_ratio", 100, "%", "As max_bytes, as a share of the global limit.")),
    at(KnobPlace::Bdi, int("bdi.min_ratio", 100, "%", "Share of the global dirty limit reserved for this device.")),
    size(
        "cgroup.memory_limit",
        KnobPlace::Cgroup,
        "Hard limit of the scenario's memory cgroup (memory.max, v1 memory.limit_in_bytes).",
    ),
    size("cgroup.memory_high", KnobPlace::Cgroup, "memory.high of the scenario's cgroup (v2 only)."),
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
        "Most bytes a second written to the scenario's device (blkio throttle, or io.max).",
    ),
    size("cgroup.read_bps", KnobPlace::Cgroup, "Most bytes a second read from the scenario's device."),
    at(
        KnobPlace::Cgroup,
        int("cgroup.write_iops", 10_000_000, "1/s", "Most writes a second to the scenario's device."),
    ),
    kind(
        "mount.file_system",
        KnobPlace::Mount,
        KnobKind::Choice(&["ext4", "xfs", "ext2", "btrfs", "tmpfs"]),
        "",
        "File system made on a loop device for the scenario.",
    ),
    kind(
        "mount.size",
        KnobPlace::Mount,
        KnobKind::Size { min: 16 << 20, max: GIB64 },
        "bytes",
        "Size of that loop device.",
    ),
    text("mount.options", KnobPlace::Mount, "Mount options, as in `mount -o`."),
    text("mount.mkfs_options", KnobPlace::Mount, "Options to mkfs, separated by spaces."),
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
            "SCHED_FIFO priority of latency-critical threads; 0 is the normal scheduler.",
        ),
    ),
    kind(
        "precursor",
        KnobPlace::Precursor,
        KnobKind::Choice(&["off", "plain", "prefetch", "window", "ring", "auto"]),
        "",
        "How workloads that append do it: write(), or through the precursor in one of its modes.",
    ),
    kind(
        "monitor.slabinfo_interval",
        KnobPlace::Model,
        KnobKind::Duration { unit_ns: 1_000_000, max: 3_600_000 },
        "ms",
        "Simulator: how often a monitor reads /proc/slabinfo; 0 is never.",
    ),
    kind(
        "journal_commit_interval",
        KnobPlace::Model,
        KnobKind::Duration { unit_ns: 1_000_000, max: 3_600_000 },
        "ms",
        "Simulator: time between journal commits.",
    ),
    at(
        KnobPlace::Model,
        int(
            "ratelimit_pages",
            1 << 20,
            "pages",
            "Simulator, 2.6: pages a CPU may dirty between two checks of the dirty limits.",
        ),
    ),
];

/// The knob of this key, or which one was probably meant.
pub fn find(key: &str) -> Result<&'static Knob, KnobError> {
    KNOBS.iter().find(|knob| knob.key == key).ok_or_else(|| KnobError::Unknown {
        key: key.to_owned(),
        nearest: nearest(key, KNOBS.iter().map(|knob| knob.key)),
    })
}

/// The most similar of the names, if any is similar at all (edit distance up to a third of the length).
#[must_use]
pub fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.map(|name| {
        // `swappiness` for `vm.swappiness`: the part after the dot alone counts as a match of distance 1.
        let tail = name.rsplit('.').next().unwrap_or(name);
        (edit_distance(given, name).min(1 + edit_distance(given, tail)), name)
    });
    scored.min().filter(|&(distance, _)| distance <= 1 + given.len() / 3).map(|(_, name)| name)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl Knob {
    /// What a user gave -> what the kernel takes.
    pub fn parse(&self, given: &str) -> Result<String, KnobError> {
        let given = given.trim();
        let value = match self.kind {
            KnobKind::Integer { min, max } => {
                given.parse::<i64>().ok().filter(|value| (min..=max).contains(value)).map(|value| value.to_string())
            }
            KnobKind::Size { min, max } => in_range(given.parse::<Bytes>().ok().map(|size| size.0), min, max),
            KnobKind::SizeKib { min, max } => {
                // A bare number is in the knob's own unit, as `sysctl` would take it.
                let kib = given.parse::<u64>().ok().or_else(|| given.parse::<Bytes>().ok().map(|size| size.0 / 1024));
                in_range(kib, min, max)
            }
            KnobKind::Duration { unit_ns, max } => {
                let units = given.parse::<u64>().ok().or_else(|| given.parse::<Nanos>().ok().map(|ns| ns.0 / unit_ns));
                in_range(units, 0, max)
            }
            KnobKind::Choice(choices) => {
                let spelled = match given {
                    "on" | "true" if choices == ["0", "1"] => "1",
                    "off" | "false" if choices == ["0", "1"] => "0",
                    other => other,
                };
                choices.contains(&spelled).then(|| spelled.to_owned())
            }
            KnobKind::Integers { count_max } => {
                let numbers: Option<Vec<u64>> = given.split_whitespace().map(|word| word.parse().ok()).collect();
                numbers.filter(|n| (1..=count_max).contains(&n.len())).map(|_| given.to_owned())
            }
            KnobKind::Text => (!given.contains('\n') && given.len() <= 4096).then(|| given.to_owned()),
        };
        value.ok_or_else(|| KnobError::BadValue { key: self.key, given: given.to_owned(), wanted: self.wanted() })
    }

    /// The range in words.
    #[must_use]
    pub fn wanted(&self) -> String {
        match self.kind {
            KnobKind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            KnobKind::Size { min, max } => format!("a size from {} to {}, such as 64MiB", Bytes(min), Bytes(max)),
            KnobKind::SizeKib { min, max } => {
                format!(
                    "a size from {} to {}, such as 256MiB (a bare number is KiB)",
                    Bytes(min << 10),
                    Bytes(max << 10)
                )
            }
            KnobKind::Duration { unit_ns, max } => {
                format!("a duration up to {}, such as 1s", Nanos(unit_ns.saturating_mul(max)))
            }
            KnobKind::Choice(choices) => format!("one of {}", choices.join(", ")),
            KnobKind::Integers { count_max } => format!("1 to {count_max} whole numbers separated by spaces"),
            KnobKind::Text => "one line of text".to_owned(),
        }
    }
}

fn in_range(value: Option<u64>, min: u64, max: u64) -> Option<String> {
    value.filter(|value| (min..=max).contains(value)).map(|value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::{KNOBS, KnobError, find};

    #[test]
    fn values_are_checked_and_brought_into_the_kernels_spelling() {
        for (key, given, set) in [
            ("vm.min_free_kbytes", "1GiB", "1048576"),
            ("vm.min_free_kbytes", "67584", "67584"),
            ("vm.dirty_bytes", "64M", "67108864"),
            ("bdi.strict_limit", "on", "1"),
            ("monitor.slabinfo_interval", "1s", "1000"),
            ("vm.lowmem_reserve_ratio", "256 256 32", "256 256 32"),
        ] {
            assert_eq!(find(key).and_then(|knob| knob.parse(given)).as_deref(), Ok(set), "{key}={given}");
        }
        for (key, given) in [("vm.swappiness", "201"), ("vm.zone_reclaim_mode", "-1"), ("thp.enabled", "maybe")] {
            assert!(find(key).expect(key).parse(given).is_err(), "{key}={given}");
        }
    }

    #[test]
    fn a_misspelt_knob_gets_the_nearest_one() {
        for (given, meant) in [("vm.swapiness", "vm.swappiness"), ("zone_reclaim_mode", "vm.zone_reclaim_mode")] {
            assert_eq!(find(given).err(), Some(KnobError::Unknown { key: given.into(), nearest: Some(meant) }));
        }
        assert!(matches!(find("colour"), Err(KnobError::Unknown { nearest: None, .. })));
    }

    #[test]
    fn every_knob_says_what_it_does_in_one_sentence() {
        for knob in KNOBS {
            assert!(knob.sentence.ends_with('.') && knob.sentence.len() > 20, "{}", knob.key);
            assert_eq!(KNOBS.iter().filter(|other| other.key == knob.key).count(), 1, "{} stands twice", knob.key);
        }
    }
}

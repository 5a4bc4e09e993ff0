//! The curves that are compared: which columns of which tables, over which moments.

use flatwater_recording::{Entity, Recording, Series, Source, Table};

/// How a metric is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As it is.
    Level,
    /// By its change since the start of the measured part.
    Rise,
}

/// How one metric is read: a sum over columns of a table, and over entities unless one is named.
pub(super) struct Reading {
    pub(super) name: String,
    pub(super) unit: &'static str,
    table: Table,
    entity: Option<Entity>,
    columns: &'static [&'static str],
    /// What is taken off their sum.
    less: &'static [&'static str],
    pub(super) kind: Kind,
    scale: f64,
    /// Memory that one of it stands for, bytes; absent for events.
    pub(super) weight_bytes: Option<f64>,
    /// What it has to change by at least, whatever that is of memory.
    pub(super) least: f64,
}

/// 6.x counts allocstall by zone, 2.6 in one line.
const ALLOCSTALL: &[&str] =
    &["allocstall", "allocstall_dma", "allocstall_dma32", "allocstall_normal", "allocstall_movable"];
const COUNTERS: [(&str, &[&str]); 9] = [
    ("pgscan_kswapd", &["pgscan_kswapd"]),
    ("pgscan_direct", &["pgscan_direct"]),
    ("pgsteal_kswapd", &["pgsteal_kswapd"]),
    ("pgsteal_direct", &["pgsteal_direct"]),
    ("pgscan", &["pgscan_kswapd", "pgscan_direct"]),
    ("pgsteal", &["pgsteal_kswapd", "pgsteal_direct"]),
    ("kswapd_wakes", &["pageoutrun"]),
    ("allocstall", ALLOCSTALL),
    ("zone_reclaim_failed", &["zone_reclaim_failed"]),
];
const LEVELS: [&str; 4] = ["nr_dirty", "nr_writeback", "nr_file_pages", "nr_slab_reclaimable"];
/// What a kernel has of these when a scenario begins is its boot's doing, which no model has: only the change counts.
const GROWING: [&str; 2] = ["nr_file_pages", "nr_slab_reclaimable"];
const CACHES: [&str; 5] = ["ext4_inode_cache", "xfs_inode", "dentry", "buffer_head", "radix_tree_node"];
/// Of the memory cgroup, as v1 and v2 call it.
const CGROUP: [(&str, &[&str], Kind); 4] = [
    ("cgroup.usage", &["usage_bytes"], Kind::Level),
    ("cgroup.file", &["cache", "file"], Kind::Level),
    ("cgroup.dirty", &["dirty", "file_dirty"], Kind::Level),
    ("cgroup.writeback", &["writeback", "file_writeback"], Kind::Level),
];
const DISK: [(&str, &[&str]); 2] = [("disk.read", &["read_bytes"]), ("disk.written", &["write_bytes"])];
/// What a device moved one way counts from this share of all that it moved.
const DISK_SHARE_MIN: f64 = 0.01;
/// The page of every machine we run on.
const PAGE_BYTES: f64 = 4096.0;

/// What is compared. Of a host's run in a memory cgroup only what that and its device did: the rest of /proc/vmstat is the
/// whole machine's, of which the scenario knows nothing and everybody else there a share.
pub(super) fn readings(reference: &Recording) -> Vec<Reading> {
    let in_cgroup = reference.table(Table::Cgroup).is_some_and(|table| !table.entities().is_empty());
    if in_cgroup && reference.header.source == Source::Host { cgroup(reference) } else { machine(reference) }
}

fn cgroup(reference: &Recording) -> Vec<Reading> {
    let pages = |name: &str, table, columns, kind| Reading {
        name: name.to_owned(),
        unit: "pages",
        table,
        entity: None,
        columns,
        less: &[],
        kind,
        scale: 1.0 / PAGE_BYTES,
        weight_bytes: Some(PAGE_BYTES),
        least: 0.0,
    };
    let mut all: Vec<Reading> =
        CGROUP.iter().map(|(name, columns, kind)| pages(name, Table::Cgroup, columns, *kind)).collect();
    // Kernel objects: v1 has no line for them. What is stocked on CPUs counts as theirs.
    let kernel = pages("cgroup.kernel", Table::Cgroup, &["usage_bytes"], Kind::Level);
    all.push(Reading { less: &["cache", "file", "rss", "anon"], ..kernel });
    let hits = pages("cgroup.limit_hits", Table::Cgroup, &["events_max"], Kind::Rise);
    all.push(Reading { unit: "times", scale: 1.0, weight_bytes: None, ..hits });
    let disk = DISK.map(|(name, columns)| pages(name, Table::Disks, columns, Kind::Rise));
    let moved = disk.iter().filter_map(|reading| {
        let track = track(reference, reading);
        Some(track.last()?.1 - track.first()?.1)
    });
    // A few blocks for itself is what any file system reads beside what it is asked for.
    let least = DISK_SHARE_MIN * moved.sum::<f64>();
    all.extend(disk.map(|reading| Reading { least, ..reading }));
    all
}

fn machine(reference: &Recording) -> Vec<Reading> {
    let vmstat = |name: &str, columns, kind| Reading {
        name: name.to_owned(),
        unit: "pages",
        table: Table::Vmstat,
        entity: None,
        columns,
        less: &[],
        kind,
        scale: 1.0,
        weight_bytes: Some(PAGE_BYTES),
        least: 0.0,
    };
    let mut all = Vec::new();
    for entity in reference.table(Table::Nodes).map(|table| table.entities().to_vec()).unwrap_or_default() {
        let name = format!("free.node{}", entity.node.unwrap_or(0));
        let free = vmstat(&name, &["MemFree_bytes"], Kind::Level);
        all.push(Reading { table: Table::Nodes, entity: Some(entity), scale: 1.0 / PAGE_BYTES, ..free });
    }
    for name in ["numa_miss", "numa_foreign"] {
        let columns: &'static [&'static str] = if name == "numa_miss" { &["numa_miss"] } else { &["numa_foreign"] };
        all.push(Reading { table: Table::Nodes, ..vmstat(name, columns, Kind::Rise) });
    }
    for (name, columns) in COUNTERS {
        let events = !name.starts_with("pg");
        let (unit, weight_bytes) = if events { ("times", None) } else { ("pages", Some(PAGE_BYTES)) };
        all.push(Reading { unit, weight_bytes, ..vmstat(name, columns, Kind::Rise) });
    }
    for (place, name) in LEVELS.iter().enumerate() {
        let kind = if GROWING.contains(name) { Kind::Rise } else { Kind::Level };
        all.push(vmstat(name, &LEVELS[place..=place], kind));
        if *name == "nr_writeback" {
            all.push(vmstat("dirty_and_writeback", &LEVELS[..2], Kind::Level));
        }
    }
    for cache in CACHES {
        let name = format!("slab.{cache}");
        // All objects that the slabs have room for: which of a CPU's slab are in use SLUB does not count (mm/slub.c:
        // get_slabinfo takes those of a CPU's slab for used), SLAB does.
        let objects = vmstat(&name, &["num_objs"], Kind::Rise);
        let entity = Entity::named(cache);
        let bytes = object_bytes(reference, &entity);
        let (table, entity) = (Table::Slabs, Some(entity));
        all.push(Reading { unit: "objects", table, entity, weight_bytes: bytes, ..objects });
    }
    all
}

fn object_bytes(recording: &Recording, cache: &Entity) -> Option<f64> {
    recording.table(Table::Slabs)?.rows_of(cache)?.last("objsize_bytes").map(|bytes| bytes as f64)
}

/// Memory that the run had: its cgroup's limit, else the machine's; bytes.
pub(super) fn memory_bytes(recording: &Recording) -> f64 {
    let machine = recording.header.machine.memory_bytes.unwrap_or(0) as f64;
    let limits = recording.table(Table::Cgroup).into_iter().flat_map(|table| table.by_entity());
    let limits = limits.filter_map(|(_, rows)| rows.last("limit_bytes")).map(|bytes| bytes as f64);
    limits.filter(|bytes| *bytes > 0.0).fold(machine, f64::min)
}

/// The target's cgroup (not its parents) and device, whatever they are called there.
fn own_entity(recording: &Recording, series: &Series) -> Option<Entity> {
    match series.table {
        // The innermost has the longest path.
        Table::Cgroup => series.entities().iter().max_by_key(|entity| entity.name.len()).cloned(),
        Table::Disks => recording.header.target.device.as_deref().map(Entity::named),
        _ => None,
    }
}

/// (ns since the start of the measured part, value), in order; a moment with a reading missing is left out. What was
/// read last before the start counts as read at it: slabs are read only before and after.
pub(super) fn track(recording: &Recording, reading: &Reading) -> Vec<(u64, f64)> {
    let Some(series) = recording.table(reading.table) else { return Vec::new() };
    let start_ns = recording.header.clock.start_ns.max(series.at_ns().first().copied().unwrap_or(0));
    let entity = reading.entity.clone().or_else(|| own_entity(recording, series));
    let columns: Vec<_> = reading.columns.iter().filter_map(|name| Some(series.column(name)?.values())).collect();
    let less: Vec<_> = reading.less.iter().filter_map(|name| Some(series.column(name)?.values())).collect();
    let before_start = series.at_ns().iter().rev().find(|at_ns| **at_ns <= start_ns).copied().unwrap_or(start_ns);
    let mut found: Vec<(u64, Option<f64>)> = Vec::new();
    for (row, (at_ns, owner)) in series.at_ns().iter().zip(series.owners()).enumerate() {
        let ours = entity.as_ref().is_none_or(|entity| series.entities().get(usize::from(*owner)) == Some(entity));
        if !ours || columns.is_empty() || *at_ns < before_start {
            continue;
        }
        let values = columns.iter().map(|column| column.get(row).map(|v| v as f64));
        let less: f64 = less.iter().filter_map(|column| column.get(row)).map(|value| value as f64).sum();
        let sum = values.sum::<Option<f64>>().map(|sum| (sum - less) * reading.scale);
        let since_ns = at_ns.saturating_sub(start_ns);
        match found.last_mut() {
            Some((before_ns, total)) if *before_ns == since_ns => {
                *total = total.zip(sum).map(|(total, sum)| total + sum);
            }
            _ => found.push((since_ns, sum)),
        }
    }
    found.into_iter().filter_map(|(at_ns, value)| value.map(|value| (at_ns, value))).collect()
}

/// The value at each of these moments, by straight lines between the samples; before the first one it is the first.
pub(super) fn at_moments(track: &[(u64, f64)], moments_ns: &[u64], kind: Kind) -> Option<Vec<f64>> {
    let first = track.first()?.1;
    let base = if kind == Kind::Rise { first } else { 0.0 };
    Some(moments_ns.iter().map(|at_ns| between(track, *at_ns).unwrap_or(first) - base).collect())
}

fn between(track: &[(u64, f64)], at_ns: u64) -> Option<f64> {
    let place = track.partition_point(|(sample_ns, _)| *sample_ns <= at_ns);
    let (from_ns, from) = *track.get(place.checked_sub(1)?)?;
    let Some((to_ns, to)) = track.get(place) else { return Some(from) };
    Some(from + (to - from) * (at_ns - from_ns) as f64 / (to_ns - from_ns).max(1) as f64)
}

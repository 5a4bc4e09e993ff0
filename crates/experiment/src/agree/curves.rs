//! The metrics that are compared: which columns of which tables they sum, and their values over time.

use flatwater_recording::schema::{Column, cgroup, disks, nodes, slabs, vmstat};
use flatwater_recording::{Entity, Recording, Series, Source, Table, Values};

/// How a metric is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By its value.
    Level,
    /// By its change since the start of the measured part.
    Rise,
}

/// Unit in which the columns of a metric are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Pages,
    Bytes,
    /// Events or objects.
    Count,
}

/// How one metric is read: the sum over columns of a table (each with its columns by zone) and over the table's
/// entities, or over one entity.
pub(super) struct Reading {
    pub(super) name: String,
    pub(super) unit: &'static str,
    table: Table,
    entity: Option<Entity>,
    columns: &'static [Column],
    /// Columns that are subtracted from the sum.
    less: &'static [Column],
    pub(super) kind: Kind,
    stored: Stored,
    /// Page size of the reference, bytes: both sides are counted in its pages.
    page_bytes: f64,
    /// Memory that one unit of the metric represents, bytes; absent for events.
    pub(super) weight_bytes: Option<f64>,
    /// Least change that counts, in the metric's unit, in addition to `MEMORY_SHARE_MIN` and `EVENTS_MIN`.
    pub(super) least: f64,
}

impl Reading {
    /// A metric in pages.
    fn pages(name: &str, columns: &'static [Column], kind: Kind, stored: Stored, page_bytes: f64) -> Reading {
        Reading {
            name: name.to_owned(),
            unit: "pages",
            table: columns.first().map_or(Table::Vmstat, |column| column.table),
            entity: None,
            columns,
            less: &[],
            kind,
            stored,
            page_bytes,
            weight_bytes: Some(page_bytes),
            least: 0.0,
        }
    }

    /// The same metric as a number of events.
    fn events(self) -> Reading {
        Reading { unit: "times", stored: Stored::Count, weight_bytes: None, ..self }
    }

    /// Factor from this recording's stored values to the metric's unit.
    fn scale(&self, recording: &Recording) -> f64 {
        match self.stored {
            Stored::Pages => page_bytes(recording) / self.page_bytes,
            Stored::Bytes => 1.0 / self.page_bytes,
            Stored::Count => 1.0,
        }
    }
}

/// Counters of pages (`PAGES_COUNTED`) and of events (`EVENTS`).
const PAGES_COUNTED: [(&str, &[Column]); 6] = [
    (vmstat::PGSCAN_KSWAPD.name, &[vmstat::PGSCAN_KSWAPD]),
    (vmstat::PGSCAN_DIRECT.name, &[vmstat::PGSCAN_DIRECT]),
    (vmstat::PGSTEAL_KSWAPD.name, &[vmstat::PGSTEAL_KSWAPD]),
    (vmstat::PGSTEAL_DIRECT.name, &[vmstat::PGSTEAL_DIRECT]),
    ("pgscan", &[vmstat::PGSCAN_KSWAPD, vmstat::PGSCAN_DIRECT]),
    ("pgsteal", &[vmstat::PGSTEAL_KSWAPD, vmstat::PGSTEAL_DIRECT]),
];
const EVENTS: [(&str, &[Column]); 3] = [
    ("kswapd_wakes", &[vmstat::PAGEOUTRUN]),
    ("allocstall", &[vmstat::ALLOCSTALL]),
    (vmstat::ZONE_RECLAIM_FAILED.name, &[vmstat::ZONE_RECLAIM_FAILED]),
];
/// Levels. The last two count by their change only: their value at the start depends on the boot, which no model
/// performs.
const LEVELS: [(&str, &[Column], Kind); 5] = [
    (vmstat::NR_DIRTY.name, &[vmstat::NR_DIRTY], Kind::Level),
    (vmstat::NR_WRITEBACK.name, &[vmstat::NR_WRITEBACK], Kind::Level),
    ("dirty_and_writeback", &[vmstat::NR_DIRTY, vmstat::NR_WRITEBACK], Kind::Level),
    (vmstat::NR_FILE_PAGES.name, &[vmstat::NR_FILE_PAGES], Kind::Rise),
    (vmstat::NR_SLAB_RECLAIMABLE.name, &[vmstat::NR_SLAB_RECLAIMABLE], Kind::Rise),
];
const CACHES: [&str; 5] = ["ext4_inode_cache", "xfs_inode", "dentry", "buffer_head", "radix_tree_node"];
/// Levels of a memory cgroup: the columns of v1, then of v2.
const CGROUP: [(&str, &[Column], Kind); 4] = [
    ("cgroup.usage", &[cgroup::USAGE_BYTES], Kind::Level),
    ("cgroup.file", &[cgroup::CACHE, cgroup::FILE], Kind::Level),
    ("cgroup.dirty", &[cgroup::DIRTY, cgroup::FILE_DIRTY], Kind::Level),
    ("cgroup.writeback", &[cgroup::WRITEBACK, cgroup::FILE_WRITEBACK], Kind::Level),
];
const DISK: [(&str, &[Column]); 2] = [("disk.read", &[disks::READ_BYTES]), ("disk.written", &[disks::WRITE_BYTES])];
/// A device's reads (or writes) count as moving from this share of all bytes that it moved.
const DISK_SHARE_MIN: f64 = 0.01;

fn page_bytes(recording: &Recording) -> f64 {
    recording.header.machine.page_size_bytes() as f64
}

/// The metrics to compare. For a run in a memory cgroup of a host only the metrics of the cgroup and the device:
/// /proc/vmstat covers the whole machine, with work that the scenario does not know.
pub(super) fn readings(reference: &Recording) -> Vec<Reading> {
    let in_cgroup = reference.table(Table::Cgroup).is_some_and(|table| !table.entities().is_empty());
    if in_cgroup && reference.header.source == Source::Host { of_cgroup(reference) } else { of_machine(reference) }
}

fn of_cgroup(reference: &Recording) -> Vec<Reading> {
    let page = page_bytes(reference);
    let pages = |name: &str, columns, kind| Reading::pages(name, columns, kind, Stored::Bytes, page);
    let mut all: Vec<Reading> = CGROUP.iter().map(|(name, columns, kind)| pages(name, columns, *kind)).collect();
    // The kernel objects of the cgroup, computed because v1 has no line for them. The charge that CPUs hold in stock is
    // part of them.
    let kernel = pages("cgroup.kernel", &[cgroup::USAGE_BYTES], Kind::Level);
    all.push(Reading { less: &[cgroup::CACHE, cgroup::FILE, cgroup::RSS, cgroup::ANON], ..kernel });
    all.push(pages("cgroup.limit_hits", &[cgroup::EVENTS_MAX], Kind::Rise).events());
    let disk = DISK.map(|(name, columns)| pages(name, columns, Kind::Rise));
    let moved = disk.iter().filter_map(|reading| {
        let track = track(reference, reading);
        Some(track.last()?.1 - track.first()?.1)
    });
    // A file system reads a few blocks of metadata beside the requested blocks.
    let least = DISK_SHARE_MIN * moved.sum::<f64>();
    all.extend(disk.map(|reading| Reading { least, ..reading }));
    all
}

fn of_machine(reference: &Recording) -> Vec<Reading> {
    let page = page_bytes(reference);
    let pages = |name: &str, columns, kind| Reading::pages(name, columns, kind, Stored::Pages, page);
    let mut all = Vec::new();
    for entity in reference.table(Table::Nodes).map(|table| table.entities().to_vec()).unwrap_or_default() {
        let name = format!("free.node{}", entity.node.unwrap_or(0));
        let free = pages(&name, &[nodes::MEM_FREE_BYTES], Kind::Level);
        all.push(Reading { entity: Some(entity), stored: Stored::Bytes, ..free });
    }
    all.push(pages(nodes::NUMA_MISS.name, &[nodes::NUMA_MISS], Kind::Rise));
    all.push(pages(nodes::NUMA_FOREIGN.name, &[nodes::NUMA_FOREIGN], Kind::Rise));
    all.extend(PAGES_COUNTED.map(|(name, columns)| pages(name, columns, Kind::Rise)));
    all.extend(EVENTS.map(|(name, columns)| pages(name, columns, Kind::Rise).events()));
    all.extend(LEVELS.map(|(name, columns, kind)| pages(name, columns, kind)));
    for cache in CACHES {
        // All objects that the slabs have room for. SLUB does not count which objects of a CPU's slab are in use
        // (get_slabinfo in mm/slub.c counts all of a CPU's slab as used), SLAB does.
        let objects = pages(&format!("slab.{cache}"), &[slabs::NUM_OBJS], Kind::Rise).events();
        let entity = Entity::named(cache);
        let bytes = object_bytes(reference, &entity);
        all.push(Reading { unit: "objects", entity: Some(entity), weight_bytes: bytes, ..objects });
    }
    all
}

fn object_bytes(recording: &Recording, cache: &Entity) -> Option<f64> {
    recording.table(Table::Slabs)?.rows_of(cache)?.last(slabs::OBJSIZE_BYTES).map(|bytes| bytes as f64)
}

/// Memory that the run had, bytes: the cgroup's limit, or else the machine's memory.
pub(super) fn memory_bytes(recording: &Recording) -> f64 {
    let machine = recording.header.machine.memory_bytes.unwrap_or(0) as f64;
    let limits = recording.table(Table::Cgroup).into_iter().flat_map(|table| table.by_entity());
    let limits = limits.filter_map(|(_, rows)| rows.last(cgroup::LIMIT_BYTES)).map(|bytes| bytes as f64);
    limits.filter(|bytes| *bytes > 0.0).fold(machine, f64::min)
}

/// The target's own cgroup (not its parents) or device, whatever its name in this recording.
fn own_entity(recording: &Recording, series: &Series) -> Option<Entity> {
    match series.table {
        // The innermost cgroup has the longest path.
        Table::Cgroup => series.entities().iter().max_by_key(|entity| entity.name.len()).cloned(),
        Table::Disks => recording.header.target.device.as_deref().map(Entity::named),
        _ => None,
    }
}

/// The metric over time: (ns since the start of the measured part, value), in order. Samples with a missing value are
/// left out. The last sample before the start counts as taken at the start, because slabs are read only before and
/// after a run.
pub(super) fn track(recording: &Recording, reading: &Reading) -> Vec<(u64, f64)> {
    let Some(series) = recording.table(reading.table) else { return Vec::new() };
    let start_ns = recording.header.clock.start_ns.max(series.at_ns().first().copied().unwrap_or(0));
    let entity = reading.entity.clone().or_else(|| own_entity(recording, series));
    let (columns, less) = (values_of(series, reading.columns), values_of(series, reading.less));
    let scale = reading.scale(recording);
    let before_start = series.at_ns().iter().rev().find(|at_ns| **at_ns <= start_ns).copied().unwrap_or(start_ns);
    let mut found: Vec<(u64, Option<f64>)> = Vec::new();
    for (row, (at_ns, owner)) in series.at_ns().iter().zip(series.owners()).enumerate() {
        let ours = entity.as_ref().is_none_or(|entity| series.entities().get(usize::from(*owner)) == Some(entity));
        if !ours || columns.is_empty() || *at_ns < before_start {
            continue;
        }
        let values = columns.iter().map(|column| column.get(row).map(|v| v as f64));
        let less: f64 = less.iter().filter_map(|column| column.get(row)).map(|value| value as f64).sum();
        let sum = values.sum::<Option<f64>>().map(|sum| (sum - less) * scale);
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

/// The columns of a table that hold any of the wanted ones.
fn values_of<'a>(series: &'a Series, wanted: &[Column]) -> Vec<Values<'a>> {
    let covered = series.columns.iter().filter(|column| wanted.iter().any(|wanted| wanted.covers(&column.name)));
    covered.map(|column| column.values()).collect()
}

/// The value at each of these moments, interpolated linearly between samples. Before the first sample it is the first
/// value, after the last one the last value.
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

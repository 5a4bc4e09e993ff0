//! The curves that are compared: which columns of which tables, over which moments.

use crate::recording::{Entity, Recording, Table};

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
    pub(super) kind: Kind,
    scale: f64,
}

/// 6.x counts allocstall by zone, 2.6 in one line.
const ALLOCSTALL: &[&str] =
    &["allocstall", "allocstall_dma", "allocstall_dma32", "allocstall_normal", "allocstall_movable"];
const COUNTERS: [(&str, &[&str]); 7] = [
    ("pgscan_kswapd", &["pgscan_kswapd"]),
    ("pgscan_direct", &["pgscan_direct"]),
    ("pgsteal_kswapd", &["pgsteal_kswapd"]),
    ("pgsteal_direct", &["pgsteal_direct"]),
    ("kswapd_wakes", &["pageoutrun"]),
    ("allocstall", ALLOCSTALL),
    ("zone_reclaim_failed", &["zone_reclaim_failed"]),
];
const LEVELS: [&str; 4] = ["nr_dirty", "nr_writeback", "nr_file_pages", "nr_slab_reclaimable"];
/// What a kernel has of these when a scenario begins is its boot's doing, which no model has: only the change counts.
const GROWING: [&str; 2] = ["nr_file_pages", "nr_slab_reclaimable"];
const CACHES: [&str; 4] = ["ext4_inode_cache", "xfs_inode", "dentry", "buffer_head"];

pub(super) fn readings(reference: &Recording) -> Vec<Reading> {
    let vmstat = |name: &str, columns, kind| Reading {
        name: name.to_owned(),
        unit: "pages",
        table: Table::Vmstat,
        entity: None,
        columns,
        kind,
        scale: 1.0,
    };
    let mut all = Vec::new();
    for entity in reference.table(Table::Nodes).map(|table| table.entities.clone()).unwrap_or_default() {
        let name = format!("free.node{}", entity.node.unwrap_or(0));
        // The page of every machine we run on; only the printed unit hangs on it, not the error.
        let free = vmstat(&name, &["MemFree_bytes"], Kind::Level);
        all.push(Reading { table: Table::Nodes, entity: Some(entity), scale: 1.0 / 4096.0, ..free });
    }
    for name in ["numa_miss", "numa_foreign"] {
        let columns: &'static [&'static str] = if name == "numa_miss" { &["numa_miss"] } else { &["numa_foreign"] };
        all.push(Reading { table: Table::Nodes, ..vmstat(name, columns, Kind::Rise) });
    }
    for (name, columns) in COUNTERS {
        let unit = if name.starts_with("pg") { "pages" } else { "times" };
        all.push(Reading { unit, ..vmstat(name, columns, Kind::Rise) });
    }
    for (place, name) in LEVELS.iter().enumerate() {
        let kind = if GROWING.contains(name) { Kind::Rise } else { Kind::Level };
        all.push(vmstat(name, &LEVELS[place..=place], kind));
    }
    for cache in CACHES {
        let name = format!("slab.{cache}");
        let objects = vmstat(&name, &["active_objs"], Kind::Rise);
        all.push(Reading { unit: "objects", table: Table::Slabs, entity: Some(Entity::named(cache)), ..objects });
    }
    all
}

/// (ns since the start of the measured part, value), in order; a moment with a reading missing is left out.
pub(super) fn track(recording: &Recording, reading: &Reading) -> Vec<(u64, f64)> {
    let Some(series) = recording.table(reading.table) else { return Vec::new() };
    let start_ns = recording.header.clock.start_ns.max(series.at_ns.first().copied().unwrap_or(0));
    let columns: Vec<_> = reading.columns.iter().filter_map(|name| series.column(name)).collect();
    let mut found: Vec<(u64, Option<f64>)> = Vec::new();
    for (row, (at_ns, owner)) in series.at_ns.iter().zip(&series.entity).enumerate() {
        let ours =
            reading.entity.as_ref().is_none_or(|entity| series.entities.get(usize::from(*owner)) == Some(entity));
        if !ours || columns.is_empty() || *at_ns < start_ns {
            continue;
        }
        let values = columns.iter().map(|column| column.values.get(row).copied().flatten().map(|v| v as f64));
        let sum = values.sum::<Option<f64>>().map(|sum| sum * reading.scale);
        match found.last_mut() {
            Some((before_ns, total)) if *before_ns == *at_ns - start_ns => {
                *total = total.zip(sum).map(|(total, sum)| total + sum);
            }
            _ => found.push((*at_ns - start_ns, sum)),
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

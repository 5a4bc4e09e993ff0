//! The schema of the sampled tables: each counter that two stages share is a constant.
//!
//! Each table is a module, and each column a line: constant, stored name, counter or gauge, unit, first kernel with
//! the counter. Optional are `by zone` (some kernels print the counter once per zone, with the zone's name as suffix),
//! `formerly` (names in older recordings and other tools) and `is` (the meaning, if the name does not say it). Writers
//! and readers use the constants; `tests/schema_use.rs` lists the writers and readers of each column. The kernel
//! decides which lines /proc/vmstat and similar files have: a line that the schema does not know is stored under the
//! kernel's name, and `Series::unknown` lists it.

use super::series::{ColumnKind, Series, Table};
use super::{Gap, Recording};

pub mod buddy;
pub mod cgroup;
pub mod cpu;
pub mod disks;
pub mod meminfo;
pub mod nodes;
pub mod page;
pub mod pressure;
pub mod slabs;
pub mod vmstat;
pub mod workload;
pub mod writeback;
pub mod zones;

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are units")]
pub enum Unit {
    Count,
    /// Pages of `Machine::page_bytes` each.
    Pages,
    Bytes,
    Kib,
    BytesPerS,
    Ns,
    Us,
    /// 1/100 %.
    CentiPercent,
    /// 1/100.
    Centi,
}

impl Unit {
    /// The name in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Pages => "pages",
            Unit::Bytes => "bytes",
            Unit::Kib => "KiB",
            Unit::BytesPerS => "bytes/s",
            Unit::Ns => "ns",
            Unit::Us => "us",
            Unit::CentiPercent => "1/100 %",
            Unit::Centi => "1/100",
        }
    }
}

/// One column of a sampled table.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Column {
    /// Name of the constant, for listings.
    pub constant: &'static str,
    /// Table of the column.
    pub table: Table,
    /// Name in the recording.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: ColumnKind,
    /// Unit of the values.
    pub unit: Unit,
    /// First Linux release with this counter.
    pub since: &'static str,
    /// Names of this column in older recordings and other tools.
    pub former: &'static [&'static str],
    /// Whether some kernels print it once per zone instead, as `NAME_normal` and so on.
    pub by_zone: bool,
    /// Its meaning; empty if the name says it.
    pub meaning: &'static str,
}

impl Column {
    /// Whether `name` is this column, or this column of one zone.
    #[must_use]
    pub fn covers(self, name: &str) -> bool {
        name.strip_prefix(self.name).is_some_and(|rest| rest.is_empty() || (self.by_zone && ZONES.contains(&rest)))
    }
}

impl PartialEq for Column {
    fn eq(&self, other: &Column) -> bool {
        (self.table, self.name) == (other.table, other.name)
    }
}

impl Eq for Column {}

impl AsRef<str> for Column {
    fn as_ref(&self) -> &str {
        self.name
    }
}

impl std::fmt::Display for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A key to look up a column: a constant of the schema, or the kernel's name of a line that the schema does not know.
pub trait ColumnKey {
    /// The name in the recording.
    fn name(&self) -> &str;

    /// The table of the column, if the key contains it.
    fn table(&self) -> Option<Table> {
        None
    }
}

impl ColumnKey for Column {
    fn name(&self) -> &str {
        self.name
    }

    fn table(&self) -> Option<Table> {
        Some(self.table)
    }
}

impl ColumnKey for str {
    fn name(&self) -> &str {
        self
    }
}

impl ColumnKey for String {
    fn name(&self) -> &str {
        self
    }
}

impl<K: ColumnKey + ?Sized> ColumnKey for &K {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn table(&self) -> Option<Table> {
        (**self).table()
    }
}

/// Suffixes of names that are counted by zone (mm/vmstat.c: TEXTS_FOR_ZONES).
const ZONES: [&str; 6] = ["_dma", "_dma32", "_normal", "_high", "_movable", "_device"];

/// Columns of one table that come from one source.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Group {
    /// Table of the columns.
    pub table: Table,
    /// Name of the group's constant in the table's module.
    pub constant: &'static str,
    /// The kernel's file with these counters; empty if flatwater or another tool computes them.
    pub file: &'static str,
    /// Whether the columns have the names of the file's lines, so that a writer that stores the whole file writes all
    /// of them.
    pub are_lines: bool,
    /// The columns in the order of the source.
    pub columns: &'static [Column],
}

macro_rules! columns {
    (@unit count) => { $crate::schema::Unit::Count };
    (@unit pages) => { $crate::schema::Unit::Pages };
    (@unit bytes) => { $crate::schema::Unit::Bytes };
    (@unit kib) => { $crate::schema::Unit::Kib };
    (@unit bps) => { $crate::schema::Unit::BytesPerS };
    (@unit ns) => { $crate::schema::Unit::Ns };
    (@unit us) => { $crate::schema::Unit::Us };
    (@unit cpct) => { $crate::schema::Unit::CentiPercent };
    (@unit centi) => { $crate::schema::Unit::Centi };
    (@kind counter) => { $crate::series::ColumnKind::Counter };
    (@kind gauge) => { $crate::series::ColumnKind::Gauge };
    (@or $default:expr,) => { $default };
    (@or $default:expr, $given:expr) => { $given };
    ($group:ident: $table:ident $(, lines of $lines:literal)? $(, from $file:literal)?;
     $($constant:ident $name:literal $kind:ident $unit:ident $since:literal
       $(by $each:ident)? $(formerly [$($former:literal),+])? $(is $meaning:literal)?;)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: $crate::schema::Column = $crate::schema::Column {
                constant: stringify!($constant),
                table: $crate::series::Table::$table,
                name: $name,
                kind: $crate::schema::columns!(@kind $kind),
                unit: $crate::schema::columns!(@unit $unit),
                since: $since,
                former: &[$($($former),+)?],
                by_zone: $crate::schema::columns!(@or false, $(!stringify!($each).is_empty())?),
                meaning: $crate::schema::columns!(@or "", $($meaning)?),
            };
        )*
        /// All columns of this source.
        pub const $group: $crate::schema::Group = $crate::schema::Group {
            table: $crate::series::Table::$table,
            constant: stringify!($group),
            file: $crate::schema::columns!(@or "", $($lines)? $($file)?),
            are_lines: $crate::schema::columns!(@or false, $(!$lines.is_empty())?),
            columns: &[$($constant),*],
        };
    };
}
pub(crate) use columns;

macro_rules! groups {
    ($($module:ident: $($group:ident)+;)+) => {
        /// All columns, grouped by source.
        pub const GROUPS: &[Group] = &[$($($module::$group),+),+];
    };
}

groups! {
    zones: ALL OWN;
    vmstat: ALL OF_TOOLS;
    meminfo: ALL OF_TOOLS;
    nodes: NUMASTAT MEMINFO ZONEINFO OF_TOOLS;
    slabs: ALL OF_TOOLS;
    pressure: FILE OF_TOOLS;
    cgroup: OWN EVENTS PRESSURE CPU_STAT IO_STAT IO_MAX STAT STAT_V1;
    disks: STAT OF_TOOLS;
    writeback: ALL;
    cpu: STAT OF_TOOLS;
    buddy: ALL;
    workload: OF_THREADS OF_TOOLS;
}

/// Every column of the schema.
pub fn all() -> impl Iterator<Item = Column> {
    GROUPS.iter().flat_map(|group| group.columns).copied()
}

/// Every column of one table.
pub fn of_table(table: Table) -> impl Iterator<Item = Column> {
    all().filter(move |column| column.table == table)
}

/// The column of this table with this name: current name, former name, or with a zone as suffix.
#[must_use]
pub fn find(table: Table, name: &str) -> Option<Column> {
    let exact = of_table(table).find(|column| column.name == name);
    exact.or_else(|| of_table(table).find(|column| column.former.contains(&name) || column.covers(name)))
}

/// The name and kind under which a value with this name is stored: from the schema if it knows the name, otherwise the
/// name itself and the kind that the kernel's naming suggests.
#[must_use]
pub fn stored(table: Table, name: &str) -> (String, ColumnKind) {
    match find(table, name) {
        Some(column) if column.former.contains(&name) => (column.name.to_owned(), column.kind),
        Some(column) => (name.to_owned(), column.kind),
        None => (name.to_owned(), likely_kind(table, name)),
    }
}

/// Guesses the kind of a line that the schema does not know. The kernel marks neither kind, but in vmstat gauges begin
/// with `nr_` (enum zone_stat_item, node_stat_item), and in memory.stat only events are named as in vmstat.
fn likely_kind(table: Table, name: &str) -> ColumnKind {
    let own = name.strip_prefix("total_").unwrap_or(name);
    let events = ["pg", "thp_", "numa_", "zsw", "swpin", "swpout", "workingset_", "events_", "psw"];
    let rises = match table {
        Table::Vmstat | Table::Nodes => !name.starts_with("nr_") && !name.ends_with("_bytes"),
        Table::Cgroup | Table::Zones => events.iter().any(|prefix| own.starts_with(prefix)),
        _ => name.ends_with("_ns") || name.ends_with("_us"),
    };
    if rises { ColumnKind::Counter } else { ColumnKind::Gauge }
}

/// Gaps for columns that this flatwater does not know, one per table. The columns are kept unchanged.
#[must_use]
pub fn unknown(recording: &Recording) -> Vec<Gap> {
    const NAMED_MAX: usize = 12;
    let gap = |series: &Series| {
        let names: Vec<&str> = series.unknown().collect();
        let more = names.len().saturating_sub(NAMED_MAX);
        let listed = names.get(..NAMED_MAX.min(names.len())).unwrap_or_default().join(", ");
        let and_more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| {
            Gap::new(
                format!("columns of table {} that this flatwater does not know", series.table.name()),
                format!("{listed}{and_more}: kept in the recording, but no finding reads them"),
                "explain it with the flatwater that wrote it, or with a newer one",
            )
        })
    };
    recording.series.iter().filter_map(gap).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{GROUPS, all, cgroup, disks, find, stored, vmstat};
    use crate::series::{ColumnKind, Table};

    #[test]
    fn column_names_are_unique_within_a_table() {
        let mut seen = HashSet::new();
        for column in all() {
            for name in column.former.iter().chain([&column.name]) {
                assert!(seen.insert((column.table, *name)), "{} has two columns {name}", column.table.name());
            }
            assert_eq!(find(column.table, column.name), Some(column));
        }
    }

    #[test]
    fn names_end_in_their_unit() {
        use super::Unit;
        for (group, column) in GROUPS.iter().flat_map(|group| group.columns.iter().map(move |column| (group, column))) {
            let suffix = match column.unit {
                Unit::Ns => "_ns",
                Unit::Us => "_us",
                Unit::BytesPerS => "_bytes_per_s",
                Unit::CentiPercent => "_centipercent",
                Unit::Centi => "_centi",
                Unit::Bytes if !group.are_lines || column.table == Table::Meminfo => "_bytes",
                _ => "",
            };
            assert!(column.name.ends_with(suffix), "{} is in {}", column.name, column.unit.name());
        }
    }

    /// The kernel prints many counters for the machine, for a node and for a zone; kind and unit must not depend on
    /// the file.
    #[test]
    fn counters_of_several_files_agree_and_are_not_older_per_node_than_in_vmstat() {
        let release =
            |text: &str| text.split('.').map(|part| part.parse::<u32>().expect("a number")).collect::<Vec<_>>();
        let mut shared = 0;
        for column in all().filter(|column| matches!(column.table, Table::Nodes | Table::Zones)) {
            let Some(whole) = vmstat::ALL.columns.iter().find(|whole| whole.name == column.name) else { continue };
            let (table, name) = (column.table.name(), column.name);
            assert_eq!((whole.kind, whole.unit), (column.kind, column.unit), "{name} of vmstat and of {table}");
            let events = ["numa_hit", "numa_miss", "numa_foreign"].contains(&name);
            let by_zone_first = column.table == Table::Zones || events;
            assert!(by_zone_first || release(whole.since) <= release(column.since), "{name} of {table}");
            shared += 1;
        }
        assert!(shared > 90, "{shared}");
    }

    #[test]
    fn former_names_and_zone_suffixes_find_the_column() {
        assert_eq!(find(Table::Disks, "weighted_io_ns"), Some(disks::QUEUE_NS));
        assert_eq!(stored(Table::Cgroup, "failcnt"), (cgroup::EVENTS_MAX.name.to_owned(), ColumnKind::Counter));
        assert_eq!(find(Table::Vmstat, "pgscan_direct_dma32"), Some(vmstat::PGSCAN_DIRECT));
        assert_eq!(find(Table::Vmstat, "pgscan_direct_throttle"), Some(vmstat::PGSCAN_DIRECT_THROTTLE));
        assert_eq!(stored(Table::Vmstat, "allocstall_normal").0, "allocstall_normal", "a part keeps its name");
        assert!(!vmstat::PGSCAN_DIRECT.covers("pgscan_direct_throttle") && !vmstat::PGFREE.covers("pgfree_normal"));
    }

    #[test]
    fn an_unknown_line_is_stored_with_a_likely_kind() {
        assert_eq!(stored(Table::Vmstat, "nr_new_pages"), ("nr_new_pages".to_owned(), ColumnKind::Gauge));
        assert_eq!(stored(Table::Vmstat, "frobnicated").1, ColumnKind::Counter);
        assert_eq!(stored(Table::Cgroup, "total_pgnew").1, ColumnKind::Counter);
        assert_eq!(stored(Table::Cgroup, "new_thing").1, ColumnKind::Gauge);
        assert_eq!(stored(Table::Vmstat, "nr_tlb_remote_flush").1, ColumnKind::Counter, "an event despite its name");
    }
}

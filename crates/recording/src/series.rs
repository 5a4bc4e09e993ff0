//! Sampled tables: rows of integers by time and entity (a zone, a device, a cgroup), with nulls.
//!
//! All tables have the same structure, because the kernel decides which counters exist: a column exists if the kernel
//! had the counter, and a null means that this reading failed. `schema` declares the columns that flatwater knows,
//! with their units; writers and readers use its constants.

mod column;
mod refused;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::Gap;
use crate::schema::{self, ColumnKey};
use crate::store::SealedTable;

pub use column::{SeriesColumn, Values};
pub(crate) use refused::Refused;
pub use refused::{COLUMNS_MAX, ENTITIES_MAX};

macro_rules! tables {
    ($($(#[$doc:meta])* $variant:ident => $name:literal),* $(,)?) => {
        /// A sampled table. The name is also the stem of the table's file name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Table { $($(#[$doc])* $variant),* }

        impl Table {
            /// All tables in the order of their declaration.
            pub const ALL: &[Table] = &[$(Table::$variant),*];

            /// The name in files and on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Table::$variant => $name),* }
            }

            /// The table with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Table> {
                match name { $($name => Some(Table::$variant),)* _ => None }
            }
        }
    };
}

tables! {
    /// Entity: node + zone. Pages, as in /proc/zoneinfo: `free`, `min`, `low`, `high`, `managed`, `nr_*`.
    Zones => "zones",
    /// No entity. Every line of /proc/vmstat under its own name; events are counters since boot.
    Vmstat => "vmstat",
    /// No entity. /proc/meminfo in bytes, with the file's names plus `_bytes` (`MemFree_bytes`).
    Meminfo => "meminfo",
    /// Entity: node. numastat counters (`numa_hit` ...) and per-node meminfo (`MemFree_bytes` ...).
    Nodes => "nodes",
    /// Entity: cache name. `active_objs`, `num_objs`, `objsize_bytes`, `active_slabs`, `num_slabs`.
    Slabs => "slabs",
    /// Entity: `cpu`, `memory`, `io`. `some_total_us`, `full_total_us` (counters), `some_avg10_centipercent`.
    Pressure => "pressure",
    /// Entity: cgroup path. `limit_bytes`, `usage_bytes`, memory.stat under the kernel's names, events, pressure.
    Cgroup => "cgroup",
    /// Entity: device. /proc/diskstats: `reads`, `read_bytes`, `read_ns`, `writes`, ..., `in_flight`, `io_ns`.
    Disks => "disks",
    /// Entity: device (`major:minor`), or none for the global limits. Dirty limits and bandwidth, bytes.
    Writeback => "writeback",
    /// Entity: `all` or `cpuN`. /proc/stat in ns: `user_ns` ... `steal_ns`; `ctxt`, `procs_running`, `procs_blocked`.
    Cpu => "cpu",
    /// Entity: node + zone. Free blocks by order: `order_0` ... `order_15`.
    Buddy => "buddy",
    /// Entity: workload. Counters of the workload itself over time (inodes held, bytes written, hits).
    Workload => "workload",
}

/// The object that a row describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entity {
    /// NUMA node, if the table is by node.
    pub node: Option<u32>,
    /// Zone, device, cgroup path, cache or CPU; empty if the table has no entity.
    pub name: String,
}

impl Entity {
    /// An entity with a name, such as a disk or a cgroup.
    #[must_use]
    pub fn named(name: &str) -> Entity {
        Entity { node: None, name: name.to_owned() }
    }

    /// An entity of one NUMA node.
    #[must_use]
    pub fn on_node(node: u32, name: &str) -> Entity {
        Entity { node: Some(node), name: name.to_owned() }
    }
}

/// How the values of a column relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// Only rises (since boot, or since the first row of an import): read differences.
    Counter,
    /// A level at the instant of sampling.
    Gauge,
}

/// Instant and entity of each row.
#[derive(Default)]
pub(crate) struct Keys {
    pub(crate) entities: Vec<Entity>,
    pub(crate) at_ns: Vec<u64>,
    /// Index into `entities`, one per row.
    pub(crate) owners: Vec<u16>,
    by_owner: OnceLock<RowsByOwner>,
    /// Index of each entity in `entities`.
    index_of: OnceLock<HashMap<Entity, u16>>,
}

/// Row numbers grouped by entity.
#[derive(Debug)]
struct RowsByOwner {
    starts: Vec<u32>,
    rows: Vec<u32>,
}

/// Omits the indexes: they follow from the other fields, and a hash map prints in a different order each time, while
/// tests compare the debug output of two runs with the same seed.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Keys");
        shown.field("entities", &self.entities).field("at_ns", &self.at_ns).field("owners", &self.owners);
        shown.finish_non_exhaustive()
    }
}

impl Clone for Keys {
    fn clone(&self) -> Keys {
        Keys::new(self.entities.clone(), self.at_ns.clone(), self.owners.clone())
    }
}

impl Keys {
    pub(crate) fn new(entities: Vec<Entity>, at_ns: Vec<u64>, owners: Vec<u16>) -> Keys {
        Keys { entities, at_ns, owners, by_owner: OnceLock::new(), index_of: OnceLock::new() }
    }

    fn index_of(&self) -> &HashMap<Entity, u16> {
        self.index_of.get_or_init(|| self.entities.iter().cloned().zip(0..).collect())
    }

    fn rows_of(&self, owner: u16) -> &[u32] {
        let index = self.by_owner.get_or_init(|| {
            let mut starts = vec![0_u32; self.entities.len() + 1];
            let known = |owner: u16| usize::from(owner) < self.entities.len();
            let rows = || (0_u32..).zip(&self.owners).filter(|(_, owner)| known(**owner));
            rows().for_each(|(_, owner)| starts[usize::from(*owner) + 1] += 1);
            for owner in 1..starts.len() {
                starts[owner] += starts[owner - 1];
            }
            let mut next = starts.clone();
            let mut placed = vec![0; rows().count()];
            for (row, owner) in rows() {
                let place = &mut next[usize::from(*owner)];
                placed[*place as usize] = row;
                *place += 1;
            }
            RowsByOwner { starts, rows: placed }
        });
        let owner = usize::from(owner);
        let bounds = index.starts.get(owner).zip(index.starts.get(owner + 1));
        bounds.and_then(|(from, to)| index.rows.get(*from as usize..*to as usize)).unwrap_or_default()
    }
}

/// One sampled table. Rows are ordered by time; rows of one sample have exactly the same instant.
#[derive(Clone)]
pub struct Series {
    /// Which table it is.
    pub table: Table,
    /// Its columns in the order of their first row.
    pub columns: Vec<SeriesColumn>,
    keys: KeysOf,
    /// Index of columns by name, with the number of columns for which it was built.
    places: OnceLock<(usize, HashMap<String, usize>)>,
    refused: Refused,
}

#[derive(Clone)]
enum KeysOf {
    Memory(Keys),
    File(Arc<SealedTable>),
}

/// The rows of one entity, which most readers want.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    series: &'a Series,
    rows: &'a [u32],
}

impl PartialEq for Series {
    fn eq(&self, other: &Series) -> bool {
        self.table == other.table
            && self.entities() == other.entities()
            && self.at_ns() == other.at_ns()
            && self.owners() == other.owners()
            && self.columns == other.columns
    }
}

impl Eq for Series {}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Series");
        shown.field("table", &self.table).field("columns", &self.columns);
        match &self.keys {
            KeysOf::Memory(keys) => shown.field("keys", keys).finish(),
            KeysOf::File(_) => shown.finish_non_exhaustive(),
        }
    }
}

impl Series {
    fn of(table: Table, columns: Vec<SeriesColumn>, keys: KeysOf) -> Series {
        Series { table, columns, keys, places: OnceLock::new(), refused: Refused::default() }
    }

    /// A table without rows.
    #[must_use]
    pub fn new(table: Table) -> Series {
        Series::of(table, Vec::new(), KeysOf::Memory(Keys::default()))
    }

    /// Builds a table from its rows: each row's instant, and the index of the row's entity in `entities`.
    #[must_use]
    pub fn from_parts(
        table: Table,
        entities: Vec<Entity>,
        at_ns: Vec<u64>,
        owners: Vec<u16>,
        columns: Vec<SeriesColumn>,
    ) -> Series {
        Series::of(table, columns, KeysOf::Memory(Keys::new(entities, at_ns, owners)))
    }

    /// A table whose rows stay in their file until they are used.
    pub(crate) fn sealed(table: Table, file: &Arc<SealedTable>) -> Series {
        Series::of(table, SealedTable::columns(file), KeysOf::File(Arc::clone(file)))
    }

    fn keys(&self) -> &Keys {
        match &self.keys {
            KeysOf::Memory(keys) => keys,
            KeysOf::File(file) => file.keys(),
        }
    }

    /// Keys for a change of rows; loads a file's table into memory.
    fn keys_mut(&mut self) -> &mut Keys {
        if let KeysOf::File(file) = &self.keys {
            let keys = file.keys().clone();
            self.columns = self.columns.iter().map(SeriesColumn::in_memory).collect();
            self.keys = KeysOf::Memory(keys);
        }
        match &mut self.keys {
            KeysOf::Memory(keys) => {
                keys.by_owner = OnceLock::new();
                keys
            }
            KeysOf::File(_) => unreachable!("was brought into memory above"),
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.keys {
            KeysOf::Memory(keys) => keys.at_ns.len(),
            KeysOf::File(file) => file.rows(),
        }
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Instant of each row, in ascending order.
    #[must_use]
    pub fn at_ns(&self) -> &[u64] {
        &self.keys().at_ns
    }

    /// The entities of the rows.
    #[must_use]
    pub fn entities(&self) -> &[Entity] {
        &self.keys().entities
    }

    /// Index into `entities()`, one per row.
    #[must_use]
    pub fn owners(&self) -> &[u16] {
        &self.keys().owners
    }

    /// The column with this name.
    #[must_use]
    pub fn column(&self, key: impl ColumnKey) -> Option<&SeriesColumn> {
        debug_assert!(key.table().is_none_or(|table| table == self.table), "{} is not of {:?}", key.name(), self.table);
        self.columns.get(self.find(key.name())?)
    }

    /// Index of the column with this name. `columns` is public, so the lookup table may be stale; stale entries are
    /// not used.
    fn find(&self, name: &str) -> Option<usize> {
        let index =
            || self.columns.iter().enumerate().rev().map(|(place, column)| (column.name.clone(), place)).collect();
        let (of_columns, places) = self.places.get_or_init(|| (self.columns.len(), index()));
        match places.get(name) {
            Some(&place) if self.columns.get(place).is_some_and(|column| column.name == name) => Some(place),
            None if *of_columns == self.columns.len() => None,
            _ => self.columns.iter().position(|column| column.name == name),
        }
    }

    /// Gaps for refused data: rows of entities beyond `ENTITIES_MAX`, columns beyond `COLUMNS_MAX`.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> {
        self.refused.gaps(self.table)
    }

    /// Columns that the schema does not know: from a newer kernel or a newer flatwater.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        let names = self.columns.iter().map(|column| column.name.as_str());
        names.filter(|name| schema::find(self.table, name).is_none())
    }

    /// Appends a row with values for columns of the schema; other columns become null.
    pub fn record(&mut self, at_ns: u64, entity: &Entity, values: &[(schema::Column, Option<i64>)]) {
        let known = |&(column, value): &(schema::Column, Option<i64>)| {
            debug_assert!(column.table == self.table, "{column} is not of {:?}", self.table);
            (column.name, column.kind, value)
        };
        let values: Vec<(&str, ColumnKind, Option<i64>)> = values.iter().map(known).collect();
        self.push(at_ns, entity, &values);
    }

    /// Index of the entity, which is added if new; `None` beyond `ENTITIES_MAX`.
    pub(crate) fn entity_index(&mut self, entity: &Entity) -> Option<u16> {
        let keys = self.keys_mut();
        if let Some(index) = keys.index_of().get(entity) {
            return Some(*index);
        }
        let index = u16::try_from(keys.entities.len()).ok().filter(|index| usize::from(*index) < ENTITIES_MAX)?;
        keys.entities.push(entity.clone());
        keys.index_of.get_mut()?.insert(entity.clone(), index);
        Some(index)
    }

    /// Counts rows for whose entity `entity_index` returned `None`.
    pub(crate) fn refuse_rows(&mut self, rows: u64) {
        self.refused.rows = self.refused.rows.saturating_add(rows);
    }

    /// Appends rows without values; `SeriesColumn::extend_from` and `pad_columns` must follow.
    pub(crate) fn extend_keys(&mut self, rows: impl Iterator<Item = (u64, u16)>) {
        let keys = self.keys_mut();
        for (at_ns, owner) in rows {
            keys.at_ns.push(at_ns);
            keys.owners.push(owner);
        }
    }

    pub(crate) fn pad_columns(&mut self) {
        let rows = self.len();
        self.columns.iter_mut().for_each(|column| column.pad(rows));
    }

    /// Removes all rows and keeps entities and columns.
    pub(crate) fn clear_rows(&mut self) {
        let keys = self.keys_mut();
        keys.at_ns.clear();
        keys.owners.clear();
        self.columns.iter_mut().for_each(SeriesColumn::clear);
    }

    /// Removes all entities from a table without rows.
    pub(crate) fn clear_entities(&mut self) {
        let keys = self.keys_mut();
        keys.entities.clear();
        keys.index_of = OnceLock::new();
    }

    /// Appends a row with values by column name, including names that the schema does not know. Other columns become
    /// null; new columns are added, with nulls in earlier rows.
    pub fn push(&mut self, at_ns: u64, entity: &Entity, values: &[(&str, ColumnKind, Option<i64>)]) {
        let Some(index) = self.entity_index(entity) else { return self.refuse_rows(1) };
        self.extend_keys([(at_ns, index)].into_iter());
        let rows = self.len();
        for &(name, kind, value) in values {
            let place = self.place_of(name, kind);
            if let Some(column) = place.and_then(|place| self.columns.get_mut(place)) {
                column.pad(rows - 1);
                column.extend([value]);
            }
        }
        self.pad_columns();
    }

    /// Index of the column, which is added empty if new; `None` beyond `COLUMNS_MAX`.
    pub(crate) fn place_of(&mut self, name: &str, kind: ColumnKind) -> Option<usize> {
        if let Some(place) = self.find(name) {
            return Some(place);
        }
        if self.columns.len() >= COLUMNS_MAX {
            self.refused.columns = true;
            return None;
        }
        let place = self.columns.len();
        self.columns.push(SeriesColumn::new(name, kind, []));
        if let Some((of_columns, places)) = self.places.get_mut() {
            if *of_columns == place {
                places.insert(name.to_owned(), place);
                *of_columns += 1;
            } else {
                self.places = OnceLock::new();
            }
        }
        Some(place)
    }

    /// Appends the rows of `other`. Entities and columns may differ; columns that one table lacks become null.
    pub fn append(&mut self, other: &Series) {
        let before = self.len();
        let places: Vec<Option<u16>> = other.entities().iter().map(|entity| self.entity_index(entity)).collect();
        let owners = || other.owners().iter().map(|index| places.get(usize::from(*index)).copied().flatten());
        let refused = owners().filter(Option::is_none).count();
        self.refuse_rows(refused as u64);
        let rows = other.at_ns().iter().copied().zip(owners());
        self.extend_keys(rows.filter_map(|(at_ns, owner)| Some((at_ns, owner?))));
        for column in &other.columns {
            let place = self.place_of(&column.name, column.kind);
            if let Some(ours) = place.and_then(|place| self.columns.get_mut(place)) {
                ours.pad(before);
                let values = column.values();
                ours.extend(owners().enumerate().filter(|(_, owner)| owner.is_some()).map(|(row, _)| values.get(row)));
            }
        }
        self.refused.rows = self.refused.rows.saturating_add(other.refused.rows);
        self.refused.columns |= other.refused.columns;
        self.pad_columns();
    }

    /// The same rows with only these columns.
    #[must_use]
    pub fn only(&self, columns: &[impl ColumnKey]) -> Series {
        let kept = self.columns.iter().filter(|column| columns.iter().any(|key| key.name() == column.name));
        Series::of(self.table, kept.cloned().collect(), self.keys.clone())
    }

    /// Every other sample, each with all its rows: half the rows over the same interval.
    #[must_use]
    pub fn thinned(&self) -> Series {
        let mut moment = 0_usize;
        let at_ns = self.at_ns();
        let keep: Vec<bool> = (0..at_ns.len())
            .map(|row| {
                moment += usize::from(row > 0 && at_ns.get(row) != at_ns.get(row - 1));
                moment.is_multiple_of(2)
            })
            .collect();
        let chosen: Vec<usize> = keep.iter().enumerate().filter(|(_, keep)| **keep).map(|(row, _)| row).collect();
        self.chosen(&chosen)
    }

    /// These rows, in this order.
    fn chosen(&self, rows: &[usize]) -> Series {
        fn picked<T: Copy>(values: &[T], rows: &[usize]) -> Vec<T> {
            rows.iter().filter_map(|&row| values.get(row).copied()).collect()
        }
        let columns = self.columns.iter().map(|column| {
            let values = column.values();
            SeriesColumn::new(column.name.clone(), column.kind, rows.iter().map(|&row| values.get(row)))
        });
        let keys = Keys::new(self.entities().to_vec(), picked(self.at_ns(), rows), picked(self.owners(), rows));
        Series::of(self.table, columns.collect(), KeysOf::Memory(keys))
    }

    /// Sorts rows by time, or by entity and then time (neighbouring values are similar, so files are smaller).
    pub(crate) fn sort(&mut self, by_entity: bool) {
        // Rows of a file are ordered by time already.
        if matches!(self.keys, KeysOf::File(_)) && !by_entity {
            return;
        }
        if let Some(order) = order_of(self.at_ns(), self.owners(), by_entity) {
            let order: Vec<usize> = order.into_iter().map(|row| row as usize).collect();
            *self = self.chosen(&order);
        }
    }

    /// The rows of one entity in the order of their instants.
    #[must_use]
    pub fn rows_of(&self, entity: &Entity) -> Option<Rows<'_>> {
        let index = self.keys().index_of().get(entity)?;
        Some(Rows { series: self, rows: self.keys().rows_of(*index) })
    }

    /// Each entity with its rows.
    pub fn by_entity(&self) -> impl Iterator<Item = (&Entity, Rows<'_>)> {
        let rows = |index| Rows { series: self, rows: self.keys().rows_of(index) };
        self.entities().iter().zip(0_u16..).map(move |(entity, index)| (entity, rows(index)))
    }
}

/// Row numbers sorted by time (or by entity, then time); `None` if they are sorted already.
pub(crate) fn order_of(at_ns: &[u64], owners: &[u16], by_entity: bool) -> Option<Vec<u32>> {
    let key = |row: usize| {
        let owner = owners.get(row).copied().unwrap_or(0);
        let at_ns = at_ns.get(row).copied().unwrap_or(0);
        if by_entity { (u64::from(owner), at_ns) } else { (at_ns, u64::from(owner)) }
    };
    if (1..at_ns.len()).all(|row| key(row - 1) <= key(row)) {
        return None;
    }
    let mut order: Vec<u32> = (0..u32::try_from(at_ns.len()).unwrap_or(u32::MAX)).collect();
    order.sort_by_key(|&row| key(row as usize));
    Some(order)
}

impl<'a> Rows<'a> {
    /// (instant, value) of one column of this table; `None` for failed readings.
    pub fn readings(&self, column: &'a SeriesColumn) -> impl Iterator<Item = (u64, Option<i64>)> + use<'a> {
        let Rows { series, rows } = *self;
        let (at_ns, values) = (series.at_ns(), column.values());
        rows.iter().filter_map(move |&row| Some((*at_ns.get(row as usize)?, values.get(row as usize))))
    }

    /// (instant, value) of one column, without nulls.
    pub fn values<K: ColumnKey>(&self, column: K) -> impl DoubleEndedIterator<Item = (u64, i64)> + use<'a, K> {
        let Rows { series, rows } = *self;
        let at_ns = series.at_ns();
        let values = series.column(column).map(SeriesColumn::values).unwrap_or_default();
        let rows = if values.is_empty() { &[][..] } else { rows };
        rows.iter().filter_map(move |&row| {
            let row = row as usize;
            Some((*at_ns.get(row)?, values.get(row)?))
        })
    }

    /// The first value that was read.
    #[must_use]
    pub fn first(&self, column: impl ColumnKey) -> Option<i64> {
        self.values(column).next().map(|(_, value)| value)
    }

    /// The last value that was read.
    #[must_use]
    pub fn last(&self, column: impl ColumnKey) -> Option<i64> {
        self.values(column).next_back().map(|(_, value)| value)
    }

    /// The lowest value and its instant, ns.
    #[must_use]
    pub fn min(&self, column: impl ColumnKey) -> Option<(u64, i64)> {
        self.values(column).min_by_key(|&(_, value)| value)
    }

    /// The highest value and its instant, ns.
    #[must_use]
    pub fn max(&self, column: impl ColumnKey) -> Option<(u64, i64)> {
        self.values(column).max_by_key(|&(_, value)| value)
    }

    /// Increase of a counter over the recording; `None` with fewer than two readings.
    #[must_use]
    pub fn rise(&self, column: impl ColumnKey) -> Option<i64> {
        let mut values = self.values(column);
        let (first_ns, first) = values.next()?;
        let (last_ns, last) = values.next_back()?;
        (last_ns > first_ns).then_some(last.saturating_sub(first))
    }

    /// (start, end, rise per second) between consecutive readings of a counter.
    pub fn rates_per_s<K: ColumnKey>(&self, column: K) -> impl Iterator<Item = (u64, u64, f64)> + use<'a, K> {
        let mut before: Option<(u64, i64)> = None;
        self.values(column).filter_map(move |(at_ns, value)| {
            let (from_ns, from) = before.replace((at_ns, value))?;
            let seconds = at_ns.checked_sub(from_ns)? as f64 / 1e9;
            // A counter that fell was reset (reboot, cgroup recreated): no rate.
            (seconds > 0.0 && value >= from).then(|| (from_ns, at_ns, (value as f64 - from as f64) / seconds))
        })
    }
}

//! Sampled tables: rows of integers by time and entity (a zone, a device, a cgroup), with nulls.
//!
//! One shape serves all of them, because the kernel decides which counters exist: a column is there when
//! the kernel had it, and a null means that this one reading failed. `schema` declares the columns that flatwater
//! knows, with their units; producers write and readers read by its constants.

use serde::{Deserialize, Serialize};

use super::schema::{self, ColumnKey};

macro_rules! tables {
    ($($(#[$doc:meta])* $variant:ident => $name:literal),* $(,)?) => {
        /// Which sampled table; the name is also its file's stem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Table { $($(#[$doc])* $variant),* }

        impl Table {
            pub const ALL: &[Table] = &[$(Table::$variant),*];

            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Table::$variant => $name),* }
            }

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
    /// No entity. /proc/meminfo, bytes, names as there with `_bytes` (`MemFree_bytes`).
    Meminfo => "meminfo",
    /// Entity: node. numastat counters (`numa_hit` ...) and per-node meminfo (`MemFree_bytes` ...).
    Nodes => "nodes",
    /// Entity: cache name. `active_objs`, `num_objs`, `objsize_bytes`, `active_slabs`, `num_slabs`.
    Slabs => "slabs",
    /// Entity: `cpu`, `memory`, `io`. `some_total_us`, `full_total_us` (counters), `some_avg10_centipercent`.
    Pressure => "pressure",
    /// Entity: cgroup path. `limit_bytes`, `usage_bytes`, memory.stat under its own names, events, pressure.
    Cgroup => "cgroup",
    /// Entity: device. /proc/diskstats: `reads`, `read_bytes`, `read_ns`, `writes`, ..., `in_flight`, `io_ns`.
    Disks => "disks",
    /// Entity: device (`major:minor`), or none for the global limits. Dirty limits and bandwidth, bytes.
    Writeback => "writeback",
    /// Entity: `all` or `cpuN`. /proc/stat in ns: `user_ns` ... `steal_ns`; `ctxt`, `procs_running`, `procs_blocked`.
    Cpu => "cpu",
    /// Entity: node + zone. Free blocks by order: `order_0` ... `order_10`.
    Buddy => "buddy",
    /// Entity: workload. What the workload counts of itself over time (inodes held, bytes written, hits).
    Workload => "workload",
}

/// Which thing a row is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entity {
    /// NUMA node, where the table is by node.
    pub node: Option<u32>,
    /// Zone, device, cgroup path, cache or CPU; empty where the table has no entity.
    pub name: String,
}

impl Entity {
    #[must_use]
    pub fn named(name: &str) -> Entity {
        Entity { node: None, name: name.to_owned() }
    }

    #[must_use]
    pub fn on_node(node: u32, name: &str) -> Entity {
        Entity { node: Some(node), name: name.to_owned() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// Only ever rises (since boot, or since the first row of an import): read differences.
    Counter,
    /// A level at the moment of sampling.
    Gauge,
}

/// The values of one column, in the order of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesColumn {
    /// As in the schema, or as the kernel has it where the schema does not know it.
    pub name: String,
    pub kind: ColumnKind,
    /// As long as `Series::at_ns`; `None` where this reading failed.
    pub values: Vec<Option<i64>>,
}

/// One sampled table. Rows are in order of time; rows of one moment share `at_ns` exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub table: Table,
    pub entities: Vec<Entity>,
    pub at_ns: Vec<u64>,
    /// Index into `entities`, one per row.
    pub entity: Vec<u16>,
    pub columns: Vec<SeriesColumn>,
}

/// The rows of one entity: what most readers want.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    series: &'a Series,
    entity: u16,
}

impl Series {
    #[must_use]
    pub fn new(table: Table) -> Series {
        Series { table, entities: Vec::new(), at_ns: Vec::new(), entity: Vec::new(), columns: Vec::new() }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.at_ns.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at_ns.is_empty()
    }

    #[must_use]
    pub fn column(&self, key: impl ColumnKey) -> Option<&SeriesColumn> {
        debug_assert!(key.table().is_none_or(|table| table == self.table), "{} is not of {:?}", key.name(), self.table);
        self.columns.iter().find(|column| column.name == key.name())
    }

    /// The columns that the schema does not know: what a newer kernel prints, or a newer flatwater writes.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        let names = self.columns.iter().map(|column| column.name.as_str());
        names.filter(|name| schema::find(self.table, name).is_none())
    }

    /// Appends a row of columns of the schema; those not named become null.
    pub fn record(&mut self, at_ns: u64, entity: &Entity, values: &[(schema::Column, Option<i64>)]) {
        let known = |&(column, value): &(schema::Column, Option<i64>)| {
            debug_assert!(column.table == self.table, "{column} is not of {:?}", self.table);
            (column.name, column.kind, value)
        };
        let values: Vec<(&str, ColumnKind, Option<i64>)> = values.iter().map(known).collect();
        self.push(at_ns, entity, &values);
    }

    /// Index of the entity, adding it if it is new. More than 65 535 entities fold into the last.
    pub fn entity_index(&mut self, entity: &Entity) -> u16 {
        let found = self.entities.iter().position(|known| known == entity);
        let index = found.unwrap_or_else(|| {
            self.entities.push(entity.clone());
            self.entities.len() - 1
        });
        u16::try_from(index).unwrap_or(u16::MAX)
    }

    /// Appends a row of columns by name, also of such that the schema does not know; columns not named become null,
    /// those that are new here are added (null above).
    pub fn push(&mut self, at_ns: u64, entity: &Entity, values: &[(&str, ColumnKind, Option<i64>)]) {
        let index = self.entity_index(entity);
        self.at_ns.push(at_ns);
        self.entity.push(index);
        let rows = self.at_ns.len();
        for &(name, kind, value) in values {
            let place = self.columns.iter().position(|column| column.name == name).unwrap_or_else(|| {
                self.columns.push(SeriesColumn { name: name.to_owned(), kind, values: Vec::with_capacity(rows) });
                self.columns.len() - 1
            });
            let column = &mut self.columns[place].values;
            column.resize(rows - 1, None);
            column.push(value);
        }
        for column in &mut self.columns {
            column.values.resize(rows, None);
        }
    }

    /// The other's rows after ours; tables and columns may differ, what one does not have is null.
    pub fn append(&mut self, other: &Series) {
        let before = self.len();
        let places: Vec<u16> = other.entities.iter().map(|entity| self.entity_index(entity)).collect();
        self.at_ns.extend(&other.at_ns);
        self.entity.extend(other.entity.iter().map(|index| places.get(usize::from(*index)).copied().unwrap_or(0)));
        for column in &other.columns {
            let place = self.columns.iter().position(|known| known.name == column.name).unwrap_or_else(|| {
                let (name, kind) = (column.name.clone(), column.kind);
                self.columns.push(SeriesColumn { name, kind, values: Vec::new() });
                self.columns.len() - 1
            });
            let values = &mut self.columns[place].values;
            values.resize(before, None);
            values.extend(&column.values);
        }
        let rows = self.at_ns.len();
        for column in &mut self.columns {
            column.values.resize(rows, None);
        }
    }

    /// The same rows with these columns only.
    #[must_use]
    pub fn only(&self, columns: &[impl ColumnKey]) -> Series {
        let kept = self.columns.iter().filter(|column| columns.iter().any(|key| key.name() == column.name));
        Series {
            table: self.table,
            entities: self.entities.clone(),
            at_ns: self.at_ns.clone(),
            entity: self.entity.clone(),
            columns: kept.cloned().collect(),
        }
    }

    /// Every other moment, whole: half the rows over the same stretch of time.
    #[must_use]
    pub fn thinned(&self) -> Series {
        let mut kept = Series { entities: self.entities.clone(), ..Series::new(self.table) };
        let mut moment = 0_usize;
        let keep: Vec<bool> = (0..self.len())
            .map(|row| {
                moment += usize::from(row > 0 && self.at_ns.get(row) != self.at_ns.get(row - 1));
                moment.is_multiple_of(2)
            })
            .collect();
        let chosen = || keep.iter().enumerate().filter(|(_, keep)| **keep).map(|(row, _)| row);
        kept.at_ns = chosen().filter_map(|row| self.at_ns.get(row).copied()).collect();
        kept.entity = chosen().filter_map(|row| self.entity.get(row).copied()).collect();
        for column in &self.columns {
            let values = chosen().map(|row| column.values.get(row).copied().flatten()).collect();
            kept.columns.push(SeriesColumn { name: column.name.clone(), kind: column.kind, values });
        }
        kept
    }

    #[must_use]
    pub fn rows_of(&self, entity: &Entity) -> Option<Rows<'_>> {
        let index = self.entities.iter().position(|known| known == entity)?;
        Some(Rows { series: self, entity: u16::try_from(index).ok()? })
    }

    /// Each entity with its rows.
    pub fn by_entity(&self) -> impl Iterator<Item = (&Entity, Rows<'_>)> {
        self.entities.iter().zip(0_u16..).map(|(entity, index)| (entity, Rows { series: self, entity: index }))
    }
}

impl<'a> Rows<'a> {
    /// (when, value) of one column, nulls left out.
    pub fn values<K: ColumnKey>(&self, column: K) -> impl Iterator<Item = (u64, i64)> + use<'a, K> {
        let Rows { series, entity } = *self;
        let column = series.column(column);
        column.into_iter().flat_map(move |column| {
            let rows = series.at_ns.iter().zip(&series.entity).zip(&column.values);
            rows.filter(move |((_, owner), _)| **owner == entity)
                .filter_map(|((at_ns, _), value)| value.map(|value| (*at_ns, value)))
        })
    }

    #[must_use]
    pub fn first(&self, column: impl ColumnKey) -> Option<i64> {
        self.values(column).next().map(|(_, value)| value)
    }

    #[must_use]
    pub fn last(&self, column: impl ColumnKey) -> Option<i64> {
        self.values(column).last().map(|(_, value)| value)
    }

    #[must_use]
    pub fn min(&self, column: impl ColumnKey) -> Option<(u64, i64)> {
        self.values(column).min_by_key(|&(_, value)| value)
    }

    #[must_use]
    pub fn max(&self, column: impl ColumnKey) -> Option<(u64, i64)> {
        self.values(column).max_by_key(|&(_, value)| value)
    }

    /// How far a counter rose over the recording; `None` if it was read fewer than two times.
    #[must_use]
    pub fn rise(&self, column: impl ColumnKey) -> Option<i64> {
        let (first_ns, first) = self.values(&column).next()?;
        let (last_ns, last) = self.values(&column).last()?;
        (last_ns > first_ns).then_some(last.saturating_sub(first))
    }

    /// (start, end, rise per second) between consecutive readings of a counter.
    pub fn rates_per_s<K: ColumnKey>(&self, column: K) -> impl Iterator<Item = (u64, u64, f64)> + use<'a, K> {
        let mut before: Option<(u64, i64)> = None;
        self.values(column).filter_map(move |(at_ns, value)| {
            let (from_ns, from) = before.replace((at_ns, value))?;
            let seconds = at_ns.checked_sub(from_ns)? as f64 / 1e9;
            // A counter that fell was reset (reboot, cgroup made anew): no rate can be told.
            (seconds > 0.0 && value >= from).then(|| (from_ns, at_ns, (value as f64 - from as f64) / seconds))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ColumnKind, Entity, Series, Table};

    fn two_zones(moments: u64) -> Series {
        let mut series = Series::new(Table::Zones);
        for at_ns in 0..moments {
            for node in 0..2 {
                let free = (at_ns != 1).then_some(at_ns as i64);
                series.push(at_ns, &Entity::on_node(node, "Normal"), &[("free", ColumnKind::Gauge, free)]);
            }
        }
        series
    }

    #[test]
    fn thinning_keeps_whole_moments_and_appending_keeps_nulls() {
        let thin = two_zones(5).thinned();
        assert_eq!(thin.at_ns, [0, 0, 2, 2, 4, 4]);
        let zones = two_zones(2);
        assert_eq!((zones.only(&["free"]), zones.only(&["low"]).columns.len()), (zones.clone(), 0));
        let mut both = zones;
        let mut other = Series::new(Table::Zones);
        other.push(9, &Entity::on_node(1, "DMA"), &[("low", ColumnKind::Gauge, Some(3))]);
        both.append(&other);
        let rows = both.rows_of(&Entity::on_node(1, "DMA")).expect("added");
        assert_eq!((rows.last("low"), rows.last("free"), both.len()), (Some(3), None, 5));
        let normal = both.rows_of(&Entity::on_node(0, "Normal")).expect("kept");
        assert_eq!(normal.values("free").collect::<Vec<_>>(), [(0, 0)], "a failed reading is no zero");
    }
}

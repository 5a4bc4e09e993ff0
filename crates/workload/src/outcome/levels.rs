//! Levels of the machine for a workload's results, from the tables sampled during the run.

use flatwater_recording::outcome::MemoryMoment;
use flatwater_recording::schema::{Column, meminfo, slabs};
use flatwater_recording::{Entity, Series, Table};

/// All columns that this module reads. A caller that keeps samples for outcomes needs no others: an hour of all
/// columns is some hundred MB.
pub const READ: &[(Table, &[Column])] = &[
    (
        Table::Meminfo,
        &[
            meminfo::MEM_FREE_BYTES,
            meminfo::BUFFERS_BYTES,
            meminfo::CACHED_BYTES,
            meminfo::DIRTY_BYTES,
            meminfo::WRITEBACK_BYTES,
        ],
    ),
    (Table::Slabs, &[slabs::ACTIVE_OBJS]),
];

fn table(sampled: &[Series], table: Table) -> Option<&Series> {
    sampled.iter().find(|series| series.table == table)
}

/// /proc/meminfo before, during (with the most dirty and writeback pages) and after the run; empty if not sampled.
#[must_use]
pub fn memory_moments(sampled: &[Series]) -> Vec<MemoryMoment> {
    let Some(meminfo) = table(sampled, Table::Meminfo) else { return Vec::new() };
    let level = |row: usize, column: Column| {
        let value = meminfo.column(column)?.values().get(row)?;
        u64::try_from(value).ok()
    };
    let moment = |row: usize, moment: &str| MemoryMoment {
        moment: moment.to_owned(),
        at_ns: meminfo.at_ns().get(row).copied().unwrap_or_default(),
        free_bytes: level(row, meminfo::MEM_FREE_BYTES),
        buffers_bytes: level(row, meminfo::BUFFERS_BYTES),
        cached_bytes: level(row, meminfo::CACHED_BYTES),
        dirty_bytes: level(row, meminfo::DIRTY_BYTES),
        writeback_bytes: level(row, meminfo::WRITEBACK_BYTES),
    };
    let Some(last) = meminfo.len().checked_sub(1) else { return Vec::new() };
    let pending = |row: usize| {
        let (dirty, writeback) = (level(row, meminfo::DIRTY_BYTES), level(row, meminfo::WRITEBACK_BYTES));
        dirty.unwrap_or_default() + writeback.unwrap_or_default()
    };
    let worst = (0..=last).max_by_key(|&row| pending(row)).unwrap_or(last);
    vec![moment(0, "before"), moment(worst, "most dirty"), moment(last, "after")]
}

/// Number of inodes in the slab caches of all file systems at the end; `None` if slabs were not sampled.
#[must_use]
pub fn inodes(sampled: &[Series]) -> Option<u64> {
    let slabs = table(sampled, Table::Slabs)?;
    // Most file systems name their cache `*inode_cache`; xfs, btrfs and fuse name it `xfs_inode`, `btrfs_inode`, `fuse_inode`.
    let of_inodes = |name: &str| name.ends_with("inode_cache") || name.ends_with("_inode");
    let caches = slabs.by_entity().filter(|(cache, _)| of_inodes(&cache.name));
    caches
        .filter_map(|(_, rows)| rows.last(slabs::ACTIVE_OBJS))
        .map(|count| u64::try_from(count).ok())
        .sum::<Option<u64>>()
}

#[must_use]
pub fn dentries(sampled: &[Series]) -> Option<u64> {
    let slabs = table(sampled, Table::Slabs)?;
    let count = slabs.rows_of(&Entity::named("dentry"))?.last(slabs::ACTIVE_OBJS)?;
    u64::try_from(count).ok()
}

#[must_use]
pub fn cached_bytes(sampled: &[Series]) -> Option<u64> {
    let meminfo = table(sampled, Table::Meminfo)?;
    let (_, rows) = meminfo.by_entity().next()?;
    u64::try_from(rows.last(meminfo::CACHED_BYTES)?).ok()
}

#[cfg(test)]
mod tests {
    use super::{READ, cached_bytes, dentries, inodes, memory_moments};
    use flatwater_recording::ColumnKind::Gauge;
    use flatwater_recording::{Entity, Series, Table};

    #[test]
    fn levels_that_were_not_sampled_are_absent() {
        assert!(memory_moments(&[]).is_empty());
        assert_eq!((inodes(&[]), dentries(&[]), cached_bytes(&[])), (None, None, None));
        assert!(memory_moments(&[Series::new(Table::Meminfo)]).is_empty());
    }

    #[test]
    fn inodes_of_every_file_system_are_counted() {
        let mut slabs = Series::new(Table::Slabs);
        for (cache, active) in [
            ("ext4_inode_cache", 1),
            ("xfs_inode", 20),
            ("btrfs_inode", 300),
            ("inode_cache", 4_000),
            ("dentry", 50_000),
        ] {
            slabs.push(1, &Entity::named(cache), &[("active_objs", Gauge, Some(active))]);
        }
        assert_eq!(inodes(&[slabs]), Some(4_321));
    }

    #[test]
    fn the_middle_row_has_the_most_dirty_pages() {
        let mut meminfo = Series::new(Table::Meminfo);
        for (at_ns, dirty) in [(1, Some(5)), (2, Some(90)), (3, None), (4, Some(2))] {
            meminfo.push(at_ns, &Entity::default(), &[("Dirty_bytes", Gauge, dirty)]);
        }
        let moments = memory_moments(&[meminfo]);
        let reported: Vec<_> = moments.iter().map(|moment| (moment.at_ns, moment.dirty_bytes)).collect();
        assert_eq!(reported, [(1, Some(5)), (2, Some(90)), (4, Some(2))]);
        assert_eq!(moments[0].free_bytes, None);
    }

    #[test]
    fn outcomes_read_only_the_listed_columns() {
        let mut all = Vec::new();
        for &(table, columns) in READ {
            let mut series = Series::new(table);
            let entity = if table == Table::Slabs { Entity::named("dentry") } else { Entity::default() };
            let values: Vec<_> = columns.iter().map(|&column| (column, Some(7))).collect();
            series.record(1, &entity, &values);
            all.push(series);
        }
        let moment = memory_moments(&all).into_iter().next().expect("a moment");
        let levels = [moment.free_bytes, moment.buffers_bytes, moment.cached_bytes, moment.dirty_bytes];
        assert_eq!((levels, moment.writeback_bytes), ([Some(7); 4], Some(7)));
        assert_eq!((inodes(&all), dentries(&all), cached_bytes(&all)), (Some(0), Some(7), Some(7)));
    }

    #[test]
    fn inodes_are_summed_over_file_systems() {
        let mut slabs = Series::new(Table::Slabs);
        for (cache, count) in [("ext4_inode_cache", 70), ("proc_inode_cache", 3), ("dentry", 100)] {
            slabs.push(1, &Entity::named(cache), &[("active_objs", Gauge, Some(count))]);
        }
        assert_eq!((inodes(std::slice::from_ref(&slabs)), dentries(&[slabs])), (Some(73), Some(100)));
    }
}

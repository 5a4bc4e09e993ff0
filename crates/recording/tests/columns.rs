//! Columns that were renamed, and columns that this flatwater does not know.

use flatwater_recording::schema::{cgroup, disks, vmstat};
use flatwater_recording::{ColumnKind, Entity, Recording, Series, Table, read, write_whole};

/// Writes a recording with these columns of one table and reads it back.
fn reread(table: Table, entity: &str, columns: &[(&str, ColumnKind, i64)]) -> (tempfile::TempDir, Recording) {
    let mut series = Series::new(table);
    for second in [0, 1] {
        let values: Vec<_> = columns.iter().map(|&(name, kind, value)| (name, kind, Some(value + second))).collect();
        series.push(second.unsigned_abs() * 1_000_000_000, &Entity::named(entity), &values);
    }
    let folder = tempfile::tempdir().expect("a folder");
    write_whole(folder.path(), &Recording { series: vec![series], ..Recording::default() }).expect("written");
    let again = read(folder.path()).expect("read");
    (folder, again)
}

#[test]
fn former_names_and_kinds_resolve_to_todays_columns() {
    let (_folder, disk) = reread(Table::Disks, "sda", &[("weighted_io_ns", ColumnKind::Counter, 7)]);
    let rows = disk.table(Table::Disks).and_then(|table| table.rows_of(&Entity::named("sda"))).expect("rows");
    assert_eq!(rows.last(disks::QUEUE_NS), Some(8));
    let (_folder, group) = reread(Table::Cgroup, "/db", &[("failcnt", ColumnKind::Counter, 41)]);
    let rows = group.table(Table::Cgroup).and_then(|table| table.rows_of(&Entity::named("/db"))).expect("rows");
    assert_eq!((rows.first(cgroup::EVENTS_MAX), rows.rise(cgroup::EVENTS_MAX)), (Some(41), Some(1)));
    assert_eq!(group.gaps, []);
    // An import by 3c238a6 took every `nr_` column for a gauge, but these count events (mm/vmstat.c: vmstat_text).
    let (_folder, flushes) = reread(Table::Vmstat, "", &[("nr_tlb_remote_flush", ColumnKind::Gauge, 5)]);
    let column = flushes.table(Table::Vmstat).and_then(|table| table.column(vmstat::NR_TLB_REMOTE_FLUSH));
    assert_eq!(column.map(|column| column.kind), Some(ColumnKind::Counter));
}

#[test]
fn a_file_with_both_names_keeps_both() {
    let both = [("events_max", ColumnKind::Counter, 3), ("failcnt", ColumnKind::Counter, 9)];
    let (_folder, group) = reread(Table::Cgroup, "/db", &both);
    let rows = group.table(Table::Cgroup).and_then(|table| table.rows_of(&Entity::named("/db"))).expect("rows");
    assert_eq!((rows.first(cgroup::EVENTS_MAX), rows.first("failcnt")), (Some(3), Some(9)));
}

#[test]
fn an_unknown_column_is_kept_and_is_a_gap() {
    let known_and_new = [("pgfault", ColumnKind::Counter, 1), ("pgfrobnicated", ColumnKind::Counter, 2)];
    let (_folder, recording) = reread(Table::Vmstat, "", &known_and_new);
    let table = recording.table(Table::Vmstat).expect("vmstat");
    assert_eq!(table.unknown().collect::<Vec<_>>(), ["pgfrobnicated"]);
    let rows = table.rows_of(&Entity::default()).expect("rows");
    assert_eq!((rows.rise(vmstat::PGFAULT), rows.last("pgfrobnicated")), (Some(1), Some(3)));
    let gap = recording.gaps.iter().find(|gap| gap.what.contains("table vmstat")).expect("a gap");
    assert!(gap.why.contains("pgfrobnicated") && !gap.why.contains("pgfault"), "{gap:?}");
}

#[test]
fn an_unknown_table_is_a_gap_that_names_it() {
    let (folder, _) = reread(Table::Vmstat, "", &[("pgfault", ColumnKind::Counter, 1)]);
    let table = folder.path().join("vmstat.parquet");
    std::fs::copy(table, folder.path().join("quarks.parquet")).expect("copied");
    let recording = read(folder.path()).expect("opens all the same");
    assert!(recording.gaps.iter().any(|gap| gap.what == "table quarks"), "{:?}", recording.gaps);
    assert!(recording.table(Table::Vmstat).is_some());
}

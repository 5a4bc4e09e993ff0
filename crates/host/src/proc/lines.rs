//! Tests that the readers of whole files store each line of the schema in its column, with its kind.

use super::cgroup::{self, CgroupFile};
use super::sheet::{Filled, Sheet};
use super::{flat, meminfo, vmstat, zoneinfo};
use flatwater_recording::schema::{self, Group};
use flatwater_recording::{Series, Table};

fn series(mut sheet: Sheet) -> Series {
    let mut filled = Filled::default();
    sheet.swap(&mut filled);
    sheet.series(&filled)
}

/// A line `NAME 7` for each column, or in the format of meminfo.
fn lines(group: &Group, line: impl Fn(&str) -> String) -> String {
    group.columns.iter().map(|column| line(column.name)).collect()
}

fn opened(table: Table, read: impl FnOnce(&mut Sheet)) -> Series {
    let mut sheet = Sheet::new(table);
    sheet.open(1, None, b"");
    read(&mut sheet);
    series(sheet)
}

/// Reads a file that contains every line of the group.
fn read(group: &Group) -> Series {
    let plain = |name: &str| format!("{name} 7\n");
    let sizes = |name: &str| match name.strip_suffix("_bytes") {
        Some(size) => format!("{size}: 7 kB\n"),
        None => format!("{name}: 7\n"),
    };
    let mut other = Sheet::new(Table::Nodes);
    match (group.table, group.constant) {
        (Table::Vmstat, _) => {
            let mut sheet = Sheet::new(Table::Vmstat);
            let text = lines(group, plain);
            vmstat::read(text.as_bytes(), 1, 4096, &mut sheet, &mut Sheet::new(Table::Writeback));
            series(sheet)
        }
        (Table::Zones, _) => {
            let mut sheet = Sheet::new(Table::Zones);
            let text = format!("Node 0, zone Normal\n  pages {}", lines(group, plain));
            zoneinfo::read(text.as_bytes(), 1, &mut sheet, &mut other);
            series(sheet)
        }
        (Table::Nodes, "ZONEINFO") => {
            let text = format!("Node 0, zone Normal\n  per-node stats\n{}  pages free 1\n", lines(group, plain));
            zoneinfo::read(text.as_bytes(), 1, &mut Sheet::new(Table::Zones), &mut other);
            series(other)
        }
        (Table::Nodes, "NUMASTAT") => {
            opened(Table::Nodes, |sheet| flat::read(lines(group, plain).as_bytes(), "numastat", sheet))
        }
        (Table::Meminfo | Table::Nodes, _) => {
            opened(group.table, |sheet| meminfo::read(lines(group, sizes).as_bytes(), "meminfo", sheet))
        }
        (Table::Cgroup, "EVENTS") => opened(Table::Cgroup, |sheet| {
            let text = lines(group, |name| plain(name.trim_start_matches("events_")));
            cgroup::read(text.as_bytes(), CgroupFile::MemoryEvents, sheet);
        }),
        (Table::Cgroup, _) => opened(Table::Cgroup, |sheet| {
            cgroup::read(lines(group, plain).as_bytes(), CgroupFile::MemoryStat, sheet);
        }),
        _ => panic!("no reader of whole files fills {group:?}"),
    }
}

#[test]
fn every_line_of_the_schema_is_stored_as_its_column() {
    for group in schema::GROUPS.iter().filter(|group| group.are_lines) {
        let series = read(group);
        for &column in group.columns {
            let kind = series.column(column).map(|stored| stored.kind);
            assert_eq!(kind, Some(column.kind), "{column} of {}", group.file);
        }
        assert_eq!(series.unknown().collect::<Vec<_>>(), [] as [&str; 0], "{}", group.file);
    }
}

//! The files of a memory cgroup, v1 and v2, under common column names.

use super::flat;
use super::sheet::Sheet;
use super::text::{Scan, single_number};
use flatwater_recording::schema::{self, Column, stored};

/// The kind of a cgroup file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupFile {
    /// One number. The limit `max` (v1: the largest number) means no limit and is stored as null.
    Single(Column),
    /// memory.stat, under the kernel's names.
    MemoryStat,
    /// memory.events, with `events_` before its names (`low`, `high`, `max`, `oom`, `oom_kill`).
    MemoryEvents,
    /// memory.pressure.
    Pressure,
    /// cpu.stat.
    CpuStat,
}

/// Files of a v2 cgroup.
pub const V2: &[(&str, CgroupFile)] = &[
    ("memory.current", CgroupFile::Single(schema::cgroup::USAGE_BYTES)),
    ("memory.max", CgroupFile::Single(schema::cgroup::LIMIT_BYTES)),
    ("memory.high", CgroupFile::Single(schema::cgroup::HIGH_BYTES)),
    ("memory.swap.current", CgroupFile::Single(schema::cgroup::SWAP_BYTES)),
    ("memory.stat", CgroupFile::MemoryStat),
    ("memory.events", CgroupFile::MemoryEvents),
    ("memory.pressure", CgroupFile::Pressure),
    ("cpu.stat", CgroupFile::CpuStat),
];

/// Files of a v1 memory cgroup; its cpu controller is another hierarchy.
pub const V1: &[(&str, CgroupFile)] = &[
    ("memory.usage_in_bytes", CgroupFile::Single(schema::cgroup::USAGE_BYTES)),
    ("memory.limit_in_bytes", CgroupFile::Single(schema::cgroup::LIMIT_BYTES)),
    ("memory.soft_limit_in_bytes", CgroupFile::Single(schema::cgroup::SOFT_LIMIT_BYTES)),
    ("memory.failcnt", CgroupFile::Single(schema::cgroup::EVENTS_MAX)),
    ("memory.stat", CgroupFile::MemoryStat),
];

/// Whether an older kernel, or one without the controller, normally lacks this file.
#[must_use]
pub fn is_optional(file: &str) -> bool {
    matches!(file, "memory.swap.current" | "memory.pressure" | "cpu.stat")
}

/// Higher than any memory limit: for "no limit", v1 shows the largest page-aligned number.
const NO_LIMIT: i64 = 1 << 60;

/// Puts the file into the open row.
pub fn read(text: &[u8], file: CgroupFile, sheet: &mut Sheet) {
    match file {
        CgroupFile::Single(column) => {
            let value = single_number(text).filter(|&value| value < NO_LIMIT);
            sheet.put_column("single", column, value);
        }
        CgroupFile::MemoryStat => flat::read(text, "stat", sheet),
        CgroupFile::MemoryEvents => {
            flat::read_as(text, "events", sheet, |table, name| stored(table, &format!("events_{name}")));
        }
        CgroupFile::Pressure => super::pressure::read(text, sheet, &super::pressure::OF_CGROUP),
        CgroupFile::CpuStat => cpu_stat(text, sheet),
    }
}

/// Converts v1's `throttled_time` (ns) and v2's `throttled_usec` to `throttled_ns`.
fn cpu_stat(text: &[u8], sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        let column = match scan.word() {
            b"nr_periods" => Some((schema::cgroup::CPU_PERIODS, 1)),
            b"nr_throttled" => Some((schema::cgroup::CPU_THROTTLED, 1)),
            b"throttled_time" => Some((schema::cgroup::CPU_THROTTLED_NS, 1)),
            b"throttled_usec" => Some((schema::cgroup::CPU_THROTTLED_NS, 1000)),
            b"usage_usec" => Some((schema::cgroup::CPU_USAGE_NS, 1000)),
            _ => None,
        };
        if let Some((column, factor)) = column {
            let value = scan.number().map(|value| value.saturating_mul(factor));
            sheet.put_column("cpu", column, value);
        }
        scan.next_line();
    }
}

#[cfg(test)]
mod tests {
    use super::{CgroupFile, V1, V2, read};
    use crate::proc::sheet::{Filled, Sheet};
    use flatwater_recording::{ColumnKind, Series, Table};

    fn parsed(files: &[(&str, CgroupFile)], texts: &[(&str, &str)]) -> Series {
        let mut sheet = Sheet::new(Table::Cgroup);
        for at_ns in [1, 2] {
            sheet.open(at_ns, None, b"/jobs/feed");
            for (name, text) in texts {
                let (_, file) = files.iter().find(|(known, _)| known == name).expect("a file we read");
                read(text.as_bytes(), *file, &mut sheet);
            }
        }
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        sheet.series(&filled)
    }

    fn both(series: &Series, column: &str) -> Option<Vec<Option<i64>>> {
        series.column(column).map(|column| column.values().iter().collect::<Vec<_>>())
    }

    #[test]
    fn v2() {
        let series = parsed(
            V2,
            &[
                ("memory.current", "536870912\n"),
                ("memory.max", "536870912\n"),
                ("memory.high", "max\n"),
                ("memory.stat", "anon 4096\nfile 520093696\npgscan 77\nworkingset_refault_file 8\n"),
                ("memory.events", "low 0\nhigh 3\nmax 41\noom 0\noom_kill 0\n"),
                ("memory.pressure", "some avg10=1.50 avg60=0.00 avg300=0.00 total=17\n"),
                ("cpu.stat", "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 12\n"),
            ],
        );
        for (column, value) in [
            ("usage_bytes", 512 << 20),
            ("limit_bytes", 512 << 20),
            ("file", 520_093_696),
            ("events_max", 41),
            ("some_total_us", 17),
            ("cpu_throttled", 4),
            ("cpu_throttled_ns", 12_000),
        ] {
            assert_eq!(both(&series, column), Some(vec![Some(value); 2]), "{column}");
        }
        assert_eq!(both(&series, "high_bytes"), None, "a missing limit has no value");
        assert_eq!(both(&series, "events_max"), Some(vec![Some(41); 2]));
        assert_eq!(series.column("pgscan").map(|column| column.kind), Some(ColumnKind::Counter));
        assert_eq!(series.column("anon").map(|column| column.kind), Some(ColumnKind::Gauge));
    }

    /// All lines that 6.1 prints for a cgroup with memory.high, swap and a CPU quota.
    #[test]
    fn v2_of_6_1_in_full() {
        let stat = "anon 85524480\nfile 178257920\nkernel 8650752\nkernel_stack 147456\npagetables 589824\n\
                    sec_pagetables 0\npercpu 1440\nsock 0\nvmalloc 0\nshmem 0\nzswap 0\nzswapped 0\n\
                    file_mapped 1048576\nfile_dirty 41943040\nfile_writeback 8388608\nswapcached 12288\n\
                    anon_thp 2097152\nfile_thp 0\nshmem_thp 0\ninactive_anon 80000000\nactive_anon 5524480\n\
                    inactive_file 150000000\nactive_file 28257920\nunevictable 0\nslab_reclaimable 6291456\n\
                    slab_unreclaimable 1048576\nslab 7340032\nworkingset_refault_anon 12\n\
                    workingset_refault_file 340\nworkingset_activate_file 33\nworkingset_nodereclaim 4\n\
                    pgscan 91234\npgsteal 90123\npgscan_kswapd 0\npgscan_direct 91234\npgsteal_kswapd 0\n\
                    pgsteal_direct 90123\npgfault 41000\npgmajfault 21\npgrefill 1200\npgactivate 900\n\
                    pgdeactivate 800\npglazyfree 0\npglazyfreed 0\nthp_fault_alloc 1\nthp_collapse_alloc 0\n";
        let series = parsed(
            V2,
            &[
                ("memory.current", "272629760\n"),
                ("memory.max", "536870912\n"),
                ("memory.high", "268435456\n"),
                ("memory.swap.current", "12288\n"),
                ("memory.stat", stat),
                ("memory.events", "low 0\nhigh 5133\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"),
                (
                    "memory.pressure",
                    "some avg10=21.30 avg60=9.81 avg300=2.40 total=7712345\n\
                     full avg10=20.11 avg60=9.00 avg300=2.10 total=7400000\n",
                ),
                (
                    "cpu.stat",
                    "usage_usec 912345\nuser_usec 100000\nsystem_usec 812345\nnr_periods 300\nnr_throttled 12\n\
                     throttled_usec 345678\nnr_bursts 0\nburst_usec 0\n",
                ),
            ],
        );
        for (column, value) in [
            ("usage_bytes", 272_629_760),
            ("limit_bytes", 512 << 20),
            ("high_bytes", 256 << 20),
            ("swap_bytes", 12_288),
            ("events_high", 5133),
            ("events_max", 0),
            ("file_dirty", 40 << 20),
            ("file_writeback", 8 << 20),
            ("pgscan_direct", 91_234),
            ("some_total_us", 7_712_345),
            ("full_total_us", 7_400_000),
            ("full_avg10_centipercent", 2011),
            ("cpu_usage_ns", 912_345_000),
            ("cpu_throttled_ns", 345_678_000),
        ] {
            assert_eq!(both(&series, column), Some(vec![Some(value); 2]), "{column}");
        }
        let rises = |name: &str| series.column(name).map(|column| column.kind == ColumnKind::Counter);
        for (name, counter) in [("file_dirty", false), ("workingset_refault_file", true), ("pgsteal_direct", true)] {
            assert_eq!(rises(name), Some(counter), "{name}");
        }
    }

    #[test]
    fn v1() {
        let series = parsed(
            V1,
            &[
                ("memory.usage_in_bytes", "1048576\n"),
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory.failcnt", "9\n"),
                (
                    "memory.stat",
                    "cache 10022912\ntotal_cache 3160989696\ntotal_pgpgin 5\nhierarchical_memory_limit 536870912\n",
                ),
            ],
        );
        for (column, value) in [("usage_bytes", 1 << 20), ("events_max", 9), ("total_cache", 3_160_989_696)] {
            assert_eq!(both(&series, column), Some(vec![Some(value); 2]), "{column}");
        }
        assert_eq!(both(&series, "limit_bytes"), None);
        assert_eq!(series.column("total_pgpgin").map(|column| column.kind), Some(ColumnKind::Counter));
    }
}

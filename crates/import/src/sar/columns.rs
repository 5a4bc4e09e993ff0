//! What sysstat's columns mean, for `sar` text and `sadf -j` alike.

use flatwater_recording::Table;

/// What a value is, and what makes it the recording's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A level, times this factor.
    Level(f64),
    /// Per second; the counter rises by rate x seconds x factor.
    Rate(f64),
    /// Percent of the time between two rows; the counter rises by that share of it in units of so many ns.
    Share(f64),
    /// Milliseconds per request; the counter rises by that times the requests.
    PerRequest(&'static str),
}

/// Which of sar's reports a header belongs to, told by a column that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    Paging,
    Swapping,
    Memory,
    Swap,
    Disk,
    Queue,
    Cpu,
    Tasks,
    Kernel,
    Pressure(&'static str),
}

impl Report {
    /// Of a header's column names, in the normal form of `normal`.
    #[must_use]
    pub fn of(columns: &[String]) -> Option<Report> {
        let has = |name: &str| columns.iter().any(|column| column == name);
        Some(match () {
            () if has("pgpgin") => Report::Paging,
            () if has("pswpin") => Report::Swapping,
            () if has("memfree") => Report::Memory,
            () if has("swpfree") => Report::Swap,
            () if has("DEV") && has("tps") => Report::Disk,
            () if has("runq-sz") => Report::Queue,
            () if has("CPU") && has("idle") => Report::Cpu,
            () if has("cswch") => Report::Tasks,
            () if has("dentunusd") => Report::Kernel,
            () if has("scpu-10") => Report::Pressure("cpu"),
            () if has("sio-10") => Report::Pressure("io"),
            () if has("smem-10") => Report::Pressure("memory"),
            () => return None,
        })
    }
}

/// A column's name without what differs between versions and between text and JSON: `pgpgin/s`, `%usr`, `kbmemfree`.
#[must_use]
pub fn normal(name: &str) -> String {
    let name = name.strip_suffix("/s").or(name.strip_suffix("-percent")).unwrap_or(name);
    let name = name.strip_prefix('%').unwrap_or(name);
    let kib = name.strip_prefix("kb").filter(|rest| rest.len() > 3);
    kib.unwrap_or(name).to_owned()
}

/// Table, column and kind of a normal column of a report.
#[must_use]
pub fn meaning(report: Report, column: &str) -> Option<(Table, &'static str, Kind)> {
    match report {
        Report::Paging | Report::Swapping => paging(column).map(|(name, kind)| (Table::Vmstat, name, kind)),
        Report::Memory | Report::Swap => memory(column).map(|name| (Table::Meminfo, name, Kind::Level(1024.0))),
        Report::Disk => disk(column).map(|(name, kind)| (Table::Disks, name, kind)),
        Report::Cpu => cpu(column).map(|name| (Table::Cpu, name, Kind::Share(1.0))),
        Report::Queue => queue(column).map(|(name, kind)| (Table::Cpu, name, kind)),
        Report::Tasks => match column {
            "cswch" => Some((Table::Cpu, "ctxt", Kind::Rate(1.0))),
            "proc" => Some((Table::Cpu, "processes", Kind::Rate(1.0))),
            _ => None,
        },
        Report::Kernel => kernel(column).map(|name| (Table::Workload, name, Kind::Level(1.0))),
        Report::Pressure(_) => pressure(column).map(|(name, kind)| (Table::Pressure, name, kind)),
    }
}

fn paging(column: &str) -> Option<(&'static str, Kind)> {
    let name = match column {
        "pgpgin" => "pgpgin",
        "pgpgout" => "pgpgout",
        "fault" => "pgfault",
        "majflt" => "pgmajfault",
        "pgfree" => "pgfree",
        // sar adds up the zones of 2.6 and 3.x; node reclaim scans count as direct (mm/vmscan.c: shrink_inactive_list).
        "pgscank" => "pgscan_kswapd",
        "pgscand" => "pgscan_direct",
        "pgsteal" => "pgsteal",
        "pgprom" => "pgpromote_success",
        "pgdem" => "pgdemote",
        "pswpin" => "pswpin",
        "pswpout" => "pswpout",
        _ => return None,
    };
    Some((name, Kind::Rate(1.0)))
}

fn memory(column: &str) -> Option<&'static str> {
    Some(match column {
        "memfree" => "MemFree_bytes",
        "avail" => "MemAvailable_bytes",
        "memused" => "MemUsed_bytes",
        "buffers" => "Buffers_bytes",
        "cached" => "Cached_bytes",
        "commit" => "Committed_AS_bytes",
        "active" => "Active_bytes",
        "inact" | "inactive" => "Inactive_bytes",
        "dirty" => "Dirty_bytes",
        "anonpg" => "AnonPages_bytes",
        "slab" => "Slab_bytes",
        "kstack" => "KernelStack_bytes",
        "pgtbl" => "PageTables_bytes",
        "swpfree" => "SwapFree_bytes",
        "swpused" => "SwapUsed_bytes",
        "swpcad" => "SwapCached_bytes",
        _ => return None,
    })
}

fn disk(column: &str) -> Option<(&'static str, Kind)> {
    Some(match column {
        "tps" => ("requests", Kind::Rate(1.0)),
        "rkB" => ("read_bytes", Kind::Rate(1024.0)),
        "wkB" => ("write_bytes", Kind::Rate(1024.0)),
        "dkB" => ("discard_bytes", Kind::Rate(1024.0)),
        // Sectors, until 11.7.
        "rd_sec" => ("read_bytes", Kind::Rate(512.0)),
        "wr_sec" => ("write_bytes", Kind::Rate(512.0)),
        "await" => ("request_ns", Kind::PerRequest("tps")),
        // A mean queue of n for a second is n seconds in the queue: diskstats' weighted time.
        "aqu-sz" | "avgqu-sz" => ("weighted_io_ns", Kind::Rate(1e9)),
        "util" => ("io_ns", Kind::Share(1.0)),
        _ => return None,
    })
}

fn cpu(column: &str) -> Option<&'static str> {
    Some(match column {
        "user" | "usr" => "user_ns",
        "nice" => "nice_ns",
        "system" | "sys" => "system_ns",
        "iowait" => "iowait_ns",
        "steal" => "steal_ns",
        "irq" => "irq_ns",
        "soft" => "softirq_ns",
        "guest" => "guest_ns",
        "gnice" => "guest_nice_ns",
        "idle" => "idle_ns",
        _ => return None,
    })
}

fn queue(column: &str) -> Option<(&'static str, Kind)> {
    Some(match column {
        "runq-sz" => ("procs_running", Kind::Level(1.0)),
        "plist-sz" => ("tasks", Kind::Level(1.0)),
        "blocked" => ("procs_blocked", Kind::Level(1.0)),
        "ldavg-1" => ("load1_centi", Kind::Level(100.0)),
        "ldavg-5" => ("load5_centi", Kind::Level(100.0)),
        "ldavg-15" => ("load15_centi", Kind::Level(100.0)),
        _ => return None,
    })
}

fn kernel(column: &str) -> Option<&'static str> {
    Some(match column {
        "dentunusd" => "dentries_unused",
        "file-nr" => "file_handles",
        "inode-nr" => "inodes",
        _ => return None,
    })
}

fn pressure(column: &str) -> Option<(&'static str, Kind)> {
    // `scpu-10`, `fmem-300`, `sio`; in JSON `some_avg10`, `full_avg`.
    let full = column.starts_with('f');
    let window = column.rsplit_once("avg").map_or_else(|| column.split_once('-').map_or("", |(_, w)| w), |(_, w)| w);
    Some(match (full, window) {
        (false, "10") => ("some_avg10_centipercent", Kind::Level(100.0)),
        (true, "10") => ("full_avg10_centipercent", Kind::Level(100.0)),
        (false, "") => ("some_total_us", Kind::Share(1e3)),
        (true, "") => ("full_total_us", Kind::Share(1e3)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Kind, Report, meaning, normal};
    use flatwater_recording::Table;

    #[test]
    fn one_meaning_for_text_and_json() {
        for name in ["pgpgin/s", "pgpgin"] {
            let found = meaning(Report::Paging, &normal(name));
            assert_eq!(found, Some((Table::Vmstat, "pgpgin", Kind::Rate(1.0))), "{name}");
        }
        for name in ["%usr", "usr", "%user"] {
            assert_eq!(meaning(Report::Cpu, &normal(name)).map(|found| found.1), Some("user_ns"), "{name}");
        }
        for name in ["kbmemfree", "memfree"] {
            assert_eq!(meaning(Report::Memory, &normal(name)).map(|found| found.1), Some("MemFree_bytes"), "{name}");
        }
        for (name, column) in
            [("%scpu", "some_total_us"), ("%fio-10", "full_avg10_centipercent"), ("some_avg", "some_total_us")]
        {
            assert_eq!(meaning(Report::Pressure("io"), &normal(name)).map(|found| found.1), Some(column), "{name}");
        }
    }
}

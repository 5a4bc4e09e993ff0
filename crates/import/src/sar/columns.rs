//! The meaning of sysstat's columns, for text of `sar` and `sadf -j`.

use flatwater_recording::schema::{Column, cpu, disks, meminfo, pressure, vmstat, workload};

/// How a value is converted to the recording's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A level, multiplied by this factor.
    Level(f64),
    /// Per second: the counter rises by rate x seconds x factor.
    Rate(f64),
    /// Percentage of the time between two rows: the counter rises by that time, in units of this many ns.
    Share(f64),
    /// Milliseconds per request: the counter rises by that, multiplied by this column's number of requests.
    PerRequest(&'static str),
}

/// A report of sar. A column that no other report has identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The report with these columns, in the normal form of `normal`.
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

/// The name of a column without what differs between versions, or between text and JSON: `pgpgin/s`, `%usr`,
/// `kbmemfree`.
#[must_use]
pub fn normal(name: &str) -> String {
    let name = name.strip_suffix("/s").or(name.strip_suffix("-percent")).unwrap_or(name);
    let name = name.strip_prefix('%').unwrap_or(name);
    let kib = name.strip_prefix("kb").filter(|rest| rest.len() > 3);
    kib.unwrap_or(name).to_owned()
}

/// The recording's column for a normal column name of a report, and the conversion.
#[must_use]
pub fn meaning(report: Report, column: &str) -> Option<(Column, Kind)> {
    match report {
        Report::Paging | Report::Swapping => paging(column),
        Report::Memory | Report::Swap => memory(column).map(|name| (name, Kind::Level(1024.0))),
        Report::Disk => disk(column),
        Report::Cpu => cpu(column).map(|name| (name, Kind::Share(1.0))),
        Report::Queue => queue(column),
        Report::Tasks => match column {
            "cswch" => Some((cpu::CTXT, Kind::Rate(1.0))),
            "proc" => Some((cpu::PROCESSES, Kind::Rate(1.0))),
            _ => None,
        },
        Report::Kernel => kernel(column).map(|name| (name, Kind::Level(1.0))),
        Report::Pressure(_) => pressure(column),
    }
}

fn paging(column: &str) -> Option<(Column, Kind)> {
    let name = match column {
        "pgpgin" => vmstat::PGPGIN,
        "pgpgout" => vmstat::PGPGOUT,
        "fault" => vmstat::PGFAULT,
        "majflt" => vmstat::PGMAJFAULT,
        "pgfree" => vmstat::PGFREE,
        // sar sums the zones of 2.6 and 3.x; scans of node reclaim count as direct (mm/vmscan.c: shrink_inactive_list).
        "pgscank" => vmstat::PGSCAN_KSWAPD,
        "pgscand" => vmstat::PGSCAN_DIRECT,
        "pgsteal" => vmstat::PGSTEAL,
        "pgprom" => vmstat::PGPROMOTE_SUCCESS,
        "pgdem" => vmstat::PGDEMOTE,
        "pswpin" => vmstat::PSWPIN,
        "pswpout" => vmstat::PSWPOUT,
        _ => return None,
    };
    Some((name, Kind::Rate(1.0)))
}

fn memory(column: &str) -> Option<Column> {
    Some(match column {
        "memfree" => meminfo::MEM_FREE_BYTES,
        "avail" => meminfo::MEM_AVAILABLE_BYTES,
        "memused" => meminfo::MEM_USED_BYTES,
        "buffers" => meminfo::BUFFERS_BYTES,
        "cached" => meminfo::CACHED_BYTES,
        "commit" => meminfo::COMMITTED_AS_BYTES,
        "active" => meminfo::ACTIVE_BYTES,
        "inact" | "inactive" => meminfo::INACTIVE_BYTES,
        "dirty" => meminfo::DIRTY_BYTES,
        "anonpg" => meminfo::ANON_PAGES_BYTES,
        "slab" => meminfo::SLAB_BYTES,
        "kstack" => meminfo::KERNEL_STACK_BYTES,
        "pgtbl" => meminfo::PAGE_TABLES_BYTES,
        "swpfree" => meminfo::SWAP_FREE_BYTES,
        "swpused" => meminfo::SWAP_USED_BYTES,
        "swpcad" => meminfo::SWAP_CACHED_BYTES,
        _ => return None,
    })
}

fn disk(column: &str) -> Option<(Column, Kind)> {
    Some(match column {
        "tps" => (disks::REQUESTS, Kind::Rate(1.0)),
        // From other monitors, which separate reads and writes.
        "r" => (disks::READS, Kind::Rate(1.0)),
        "w" => (disks::WRITES, Kind::Rate(1.0)),
        "rkB" => (disks::READ_BYTES, Kind::Rate(1024.0)),
        "wkB" => (disks::WRITE_BYTES, Kind::Rate(1024.0)),
        "dkB" => (disks::DISCARD_BYTES, Kind::Rate(1024.0)),
        // Sectors until 11.7.
        "rd_sec" => (disks::READ_BYTES, Kind::Rate(512.0)),
        "wr_sec" => (disks::WRITE_BYTES, Kind::Rate(512.0)),
        "await" => (disks::REQUEST_NS, Kind::PerRequest("tps")),
        "r_await" => (disks::READ_NS, Kind::PerRequest("r")),
        "w_await" => (disks::WRITE_NS, Kind::PerRequest("w")),
        // A mean queue length of n for one second is n seconds of queueing, the weighted time of diskstats.
        "aqu-sz" | "avgqu-sz" => (disks::QUEUE_NS, Kind::Rate(1e9)),
        "util" => (disks::IO_NS, Kind::Share(1.0)),
        _ => return None,
    })
}

fn cpu(column: &str) -> Option<Column> {
    Some(match column {
        "user" | "usr" => cpu::USER_NS,
        "nice" => cpu::NICE_NS,
        "system" | "sys" => cpu::SYSTEM_NS,
        "iowait" => cpu::IOWAIT_NS,
        "steal" => cpu::STEAL_NS,
        "irq" => cpu::IRQ_NS,
        "soft" => cpu::SOFTIRQ_NS,
        "guest" => cpu::GUEST_NS,
        "gnice" => cpu::GUEST_NICE_NS,
        "idle" => cpu::IDLE_NS,
        _ => return None,
    })
}

fn queue(column: &str) -> Option<(Column, Kind)> {
    Some(match column {
        "runq-sz" => (cpu::PROCS_RUNNING, Kind::Level(1.0)),
        "plist-sz" => (cpu::TASKS, Kind::Level(1.0)),
        "blocked" => (cpu::PROCS_BLOCKED, Kind::Level(1.0)),
        "ldavg-1" => (cpu::LOAD1_CENTI, Kind::Level(100.0)),
        "ldavg-5" => (cpu::LOAD5_CENTI, Kind::Level(100.0)),
        "ldavg-15" => (cpu::LOAD15_CENTI, Kind::Level(100.0)),
        _ => return None,
    })
}

fn kernel(column: &str) -> Option<Column> {
    Some(match column {
        "dentunusd" => workload::DENTRIES_UNUSED,
        "file-nr" => workload::FILE_HANDLES,
        "inode-nr" => workload::INODES,
        _ => return None,
    })
}

fn pressure(column: &str) -> Option<(Column, Kind)> {
    // Text has `scpu-10`, `fmem-300`, `sio`; JSON has `some_avg10`, `full_avg`.
    let full = column.starts_with('f');
    let window = column.rsplit_once("avg").map_or_else(|| column.split_once('-').map_or("", |(_, w)| w), |(_, w)| w);
    Some(match (full, window) {
        (false, "10") => (pressure::SOME_AVG10_CENTIPERCENT, Kind::Level(100.0)),
        (true, "10") => (pressure::FULL_AVG10_CENTIPERCENT, Kind::Level(100.0)),
        (false, "") => (pressure::SOME_TOTAL_US, Kind::Share(1e3)),
        (true, "") => (pressure::FULL_TOTAL_US, Kind::Share(1e3)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Kind, Report, meaning, normal};
    use flatwater_recording::schema::{cpu, meminfo, pressure, vmstat};

    #[test]
    fn columns_of_text_and_json_have_the_same_meaning() {
        for name in ["pgpgin/s", "pgpgin"] {
            let found = meaning(Report::Paging, &normal(name));
            assert_eq!(found, Some((vmstat::PGPGIN, Kind::Rate(1.0))), "{name}");
        }
        for name in ["%usr", "usr", "%user"] {
            assert_eq!(meaning(Report::Cpu, &normal(name)).map(|found| found.0), Some(cpu::USER_NS), "{name}");
        }
        for name in ["kbmemfree", "memfree"] {
            assert_eq!(
                meaning(Report::Memory, &normal(name)).map(|found| found.0),
                Some(meminfo::MEM_FREE_BYTES),
                "{name}"
            );
        }
        for (name, column) in [
            ("%scpu", pressure::SOME_TOTAL_US),
            ("%fio-10", pressure::FULL_AVG10_CENTIPERCENT),
            ("some_avg", pressure::SOME_TOTAL_US),
        ] {
            assert_eq!(meaning(Report::Pressure("io"), &normal(name)).map(|found| found.0), Some(column), "{name}");
        }
    }
}

//! The work of an import grows with the size of a log, not with its square: in lines, columns, names, devices, tables
//! and files.

use std::fmt::Write as _;

use flatwater_import::import_texts;

/// Eight times the log may cost this many times the work: n log n stays below, n squared is 64.
const GROWTH_MAX: f64 = 26.0;
const FACTOR: usize = 8;

/// CPU time of this thread. The kernel counts it at each tick of the scheduler, every few milliseconds.
fn cpu_ns() -> u64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").expect("CONFIG_SCHED_INFO");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("the time on a CPU in ns")
}

/// Many ticks.
const MEASURED_NS_MIN: u64 = 100_000_000;

/// CPU time of one import, the mean of as many as take `MEASURED_NS_MIN`.
fn work(texts: &[(String, Vec<u8>)]) -> f64 {
    let before = cpu_ns();
    let mut imports = 0_u32;
    loop {
        let imported = import_texts(texts).expect("read");
        assert!(imported.recording.header.import.is_some_and(|summary| summary.used_lines() > 0));
        imports += 1;
        let spent = cpu_ns() - before;
        if spent >= MEASURED_NS_MIN {
            return spent as f64 / f64::from(imports);
        }
    }
}

fn lines(n: usize, head: &str, line: impl Fn(usize) -> String) -> String {
    let mut text = head.to_owned();
    for each in 0..n {
        let _ = writeln!(text, "{}", line(each));
    }
    text
}

const VMSTAT: &str = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n \
    r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n";
const VMSTAT_ROW: &str = " 1  0      0 5000000 100000 900000    0    0     0     8  100  200  1  1 98  0  0";
const IOSTAT: &str =
    "Device r/s w/s rkB/s wkB/s rrqm/s wrqm/s %rrqm %wrqm r_await w_await aqu-sz rareq-sz wareq-sz svctm %util\n";
const IOSTAT_ROW: &str = "1.0 2.0 3.0 4.0 0.0 0.0 0.0 0.0 1.0 2.0 0.1 4.0 5.0 0.1 1.0";

type Case = (&'static str, usize, fn(usize) -> String);

/// What grows, the small size, and the log of a size.
const CASES: &[Case] = &[
    ("rows of vmstat", 400, |n| lines(n, VMSTAT, |_| VMSTAT_ROW.to_owned())),
    ("tables of vmstat", 60, |n| lines(n, "", |_| format!("{VMSTAT}{VMSTAT_ROW}\n{VMSTAT_ROW}\n"))),
    ("devices of iostat", 250, |n| lines(n, IOSTAT, |each| format!("dev{each} {IOSTAT_ROW}"))),
    ("reports of iostat", 150, |n| lines(n, "", |_| format!("{IOSTAT}sda {IOSTAT_ROW}\nsdb {IOSTAT_ROW}\n"))),
    ("rows of iostat without headers", 250, |n| lines(n, IOSTAT, |_| format!("sda {IOSTAT_ROW}"))),
    ("names of slabinfo", 250, |n| {
        lines(n, "slabinfo - version: 2.1\n", |each| {
            format!("slab_{each} 10 20 64 30 1 : tunables 0 0 0 : slabdata 1 1 0")
        })
    }),
    ("names of /proc/vmstat", 400, |n| lines(n, "nr_free_pages 5\n", |each| format!("nr_name_{each} {each}"))),
    ("zones of zoneinfo", 150, |n| {
        lines(n, "", |each| {
            format!("Node 0, zone   Zone{each}\n  pages free     3\n        min      4\n        low      5")
        })
    }),
    ("names in one zone of zoneinfo", 400, |n| {
        lines(n, "Node 0, zone   Normal\n  pages free     3\n", |each| format!("    nr_name_{each} {each}"))
    }),
    ("zones of buddyinfo", 250, |n| lines(n, "", |each| format!("Node 0, zone Zone{each} 1 2 3 4 5 6 7 8 9 10 11"))),
    ("CPUs of numactl", 900, |n| {
        let cpus: Vec<String> = (0..n).map(|cpu| cpu.to_string()).collect();
        format!("available: 1 nodes (0)\nnode 0 cpus: {}\nnode 0 size: 64000 MB\nnode 0 free: 100 MB\n", cpus.join(" "))
    }),
    ("devices of atop", 250, |n| {
        let head = "ATOP - db1  2026/11/21  10:00:00  ------  10s elapsed\n";
        lines(n, head, |each| format!("DSK | dev{each} | busy 10% | read 5 | write 50 | avio 2.0 ms |"))
    }),
    ("disks of sadf", 150, |n| {
        let disks: Vec<String> =
            (0..n).map(|each| format!("{{\"disk-device\": \"dev{each}\", \"tps\": 1.0}}")).collect();
        format!(
            "{{\"sysstat\": {{\"hosts\": [{{\"nodename\": \"db1\", \"statistics\": [\n{{\"timestamp\": {{\"date\": \
             \"2026-11-21\", \"time\": \"08:30:52\", \"interval\": 60}}, \"disk\": [\n{}]}}]}}]}}}}\n",
            disks.join(",\n")
        )
    }),
    ("mounts of NFS", 120, |n| {
        lines(n, "", |each| {
            format!(
                "device filer{each}:/vol mounted on /mnt{each} with fstype nfs4 statvers=1.1\n\tper-op statistics\n\
                 \t       WRITE: 1000 1400 3 83886080 172800 120 40000 40250 0"
            )
        })
    }),
    ("hung tasks", 120, |n| {
        lines(n, "", |each| {
            format!(
                "[{each}.5] INFO: task db{each}:{each} blocked for more than 120 seconds.\n[{each}.5] Call Trace:\n\
                 [{each}.5]  function_{each}+0x46/0x70\n[{each}.5]  io_schedule+0x46/0x70"
            )
        })
    }),
    ("frames of one task", 400, |n| {
        let head = "[   12.3] INFO: task db:4711 blocked for more than 120 seconds.\n[   12.3] Call Trace:\n";
        lines(n, head, |each| format!("[   12.3]  function_{each}+0x46/0x70"))
    }),
    ("threads of trace events", 200, |n| {
        lines(n, "", |each| {
            format!(
                "db-{each} [001] 10.0: sys_enter_write: fd=3\n\
                 db-{each} [001] 10.5: mm_vmscan_direct_reclaim_begin: order=0\n\
                 db-{each} [001] 10.6: mm_vmscan_direct_reclaim_end: nr_reclaimed=0\n\
                 db-{each} [001] 10.7: sys_exit_write: 0x10"
            )
        })
    }),
    ("hosts that a collector names", 200, |n| {
        lines(n, "MemTotal: 5 kB\nMemFree: 2 kB\n", |each| format!("host{each}: a b c"))
    }),
    ("lines that do not fit", 250, |n| {
        lines(n, &format!("{VMSTAT}{VMSTAT_ROW}\n"), |each| format!(" 1  0 {each} x{each}"))
    }),
    ("cgroups", 150, |n| {
        lines(n, "", |each| {
            format!("/sys/fs/cgroup/g{each}/memory.stat:anon {each}\n/sys/fs/cgroup/g{each}/memory.stat:file 5")
        })
    }),
    ("words of a line", 3000, |n| {
        let words: Vec<String> = (0..n).map(|each| format!("word{each}")).collect();
        format!("{VMSTAT}{VMSTAT_ROW}\n\n{}\n", words.join(" "))
    }),
    ("columns of a header", 400, |n| {
        let names: Vec<String> = (0..n).map(|each| format!("name{each}")).collect();
        let values = vec!["1"; n];
        format!("{VMSTAT}{VMSTAT_ROW}\n\n{}\n{}\n{}\n", names.join(" "), values.join(" "), values.join(" "))
    }),
];

#[test]
fn eight_times_the_log_is_not_sixty_times_the_work() {
    let mut wrong = Vec::new();
    for (what, size, log) in CASES {
        let texts = |n: usize| [("f".to_owned(), log(n).into_bytes())];
        let growth = |size: usize| work(&texts(size * FACTOR)) / work(&texts(size));
        // A second try, because the machine may run other programs.
        let growth = growth(*size).min(growth(*size));
        if growth > GROWTH_MAX {
            wrong.push(format!("{what}: {growth:.0} times the work"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_number_of_files_does_not_multiply_the_work() {
    let texts = |n: usize| -> Vec<(String, Vec<u8>)> {
        (0..n).map(|each| (format!("f{each}"), format!("{VMSTAT}{VMSTAT_ROW}\n{VMSTAT_ROW}\n").into_bytes())).collect()
    };
    let growth = work(&texts(100 * FACTOR)) / work(&texts(100));
    assert!(growth <= GROWTH_MAX, "{growth:.0} times the work");
}

//! An importer takes only lines in its own format: a foreign line below a table is left to its own importer, or counted
//! as not understood.

use flatwater_import::{Imported, import_texts};

/// A table, and a foreign line that follows it.
const CASES: &[(&str, &str, &str)] = &[
    ("cgroup-files", "$ cat /sys/fs/cgroup/memory.max\n", "12 replicas are behind, says the operator\n"),
    (
        "pmrep",
        "  d.a.total  m.u.dirty\n    count/s      Kbyte\n    230.020     180200\n",
        "someone restarted the database\n",
    ),
    (
        "vmstat-modes",
        "     16264236 K total memory\n      2263652 K used memory\n       163744 interrupts\n",
        "    12 replicas are behind\n",
    ),
    (
        "vmstat-modes",
        "Cache                       Num  Total   Size  Pages\nkmalloc-64 1 2 64 64\n",
        "MemFree: 123456 kB\n",
    ),
    (
        "vmstat-modes",
        "Cache                       Num  Total   Size  Pages\nkmalloc-64 1 2 64 64\n",
        "nr_dirty 123456\n",
    ),
    (
        "sar",
        "10:00:00     CPU     %user     %nice   %system   %iowait    %steal     %idle\n\
         10:00:01     all      1.00      0.00      1.00      0.00      0.00     98.00\n",
        "Hint: look at the third replica\n",
    ),
    (
        "sar",
        "10:00:00     CPU     %user     %nice   %system   %iowait    %steal     %idle\n\
         10:00:01     all      1.00      0.00      1.00      0.00      0.00     98.00\n",
        "10:00:01 the third replica was restarted\n",
    ),
    (
        "sar",
        "10:00:00     CPU     %user     %nice   %system   %iowait    %steal     %idle\n\
         10:00:01     all      1.00      0.00      1.00      0.00      0.00     98.00\n",
        "Swap:       2097148       1024    2096124\n",
    ),
    (
        "smart",
        "ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE\n  \
         5 Reallocated_Sector_Ct   0x0033   098   098   036    Pre-fail  Always       -       0\n",
        "MemFree: 123456 kB\n",
    ),
    (
        "smart",
        "ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE\n  \
         5 Reallocated_Sector_Ct   0x0033   098   098   036    Pre-fail  Always       -       0\n",
        "Hint: look at the third replica\n",
    ),
    ("mdstat", "md0 : active raid1 sda1[0] sdb1[1]\n", "the log has 12 blocks of text\n"),
    ("zpool-status", "  pool: tank\n state: ONLINE\nerrors: No known data errors\n", " nr_dirty 123456\n"),
    (
        "zfs-arc",
        "    time  read  miss  miss%  dmis  dm%  pmis  pm%  mmis  mm%  arcsz     c\n\
         16:00:01    12     0      0     0    0     0    0     0    0   3.9G  4.0G\n",
        "16:00:02 12 13 14 15\n",
    ),
    (
        "zfs-arc",
        "    time  read  miss  miss%  dmis  dm%  pmis  pm%  mmis  mm%  arcsz     c\n\
         16:00:01    12     0      0     0    0     0    0     0    0   3.9G  4.0G\n",
        "replica_3 was restarted\n",
    ),
    (
        "mountstats",
        "Client rpc stats:\ncalls      retrans    authrefrsh\n29103      0         29110\n",
        "please open a ticket\n",
    ),
    (
        "mountstats",
        "Client rpc stats:\ncalls      retrans    authrefrsh\n29103      0         29110\n",
        "bytes are cheap\n",
    ),
    (
        "mountstats",
        "Client rpc stats:\ncalls      retrans    authrefrsh\n29103      0         29110\n",
        "REPLICAS: 1 2 3\n",
    ),
    (
        "nfsiostat",
        "filer:/vol mounted on /mnt:\n\n   op/s\t\trpc bklog\n  59.00 \t   0.00\n\
         read:  ops/s kB/s kB/op retrans avg RTT (ms) avg exe (ms)\n 0.0 0.0 0.0 0 (0.0%) 0.0 0.0\n\
         write: ops/s kB/s kB/op retrans avg RTT (ms) avg exe (ms)\n 40.0 800.0 20.0 0 (0.0%) 80.0 400.0\n",
        "17 42\n",
    ),
    (
        "informix",
        "Interval   Time      Trigger   LSN         Time   Time   Time   Waits  Time   Time  Time  Buffers   /Sec\n\
         11         23:58:36  Plog      1:1f8       0.0    0.0    0.0    0      0.0    0.0   0.0   4         4\n",
        "12 13 14 15\n",
    ),
    (
        "innodb-status",
        "2018-02-12 09:01:22 0x7f1 INNODB MONITOR OUTPUT\n=====\nSEMAPHORES\n\
         Pending flushes (fsync) log: 1; buffer pool: 0\n",
        "the third replica was restarted at noon\n",
    ),
    (
        "settings",
        "Filesystem      Size  Used Avail Use% Mounted on\n/dev/sda1        20G   10G  9.5G  52% /\n",
        "the third replica was restarted at noon\n",
    ),
    ("settings", "vm.dirty_ratio = 20\n$ cat /proc/sys/vm/swappiness\n", "12 replicas [of 13] are behind\n"),
    (
        "postgresql",
        "2026-11-21 10:00:00.000 UTC [1] LOG:  checkpoint starting: time\n",
        "2026-11-21 10:00:01.000 UTC [2] LOG:  duration: 5000.000 ms  statement: COMMIT\n\
         2026-11-21 10:00:02.000 UTC [1] LOG:  checkpoint complete: wrote 1 buffers (0.0%); 0 WAL file(s) added, 0 \
         removed, 0 recycled; write=1.0 s, sync=0.1 s, total=1.1 s; sync files=1, longest=0.1 s, average=0.1 s\n",
    ),
    (
        "application-log",
        "2026-11-21 10:00:00.000 [1] LOG:  duration: 5000.000 ms  statement: COMMIT\n",
        "2026-11-21 10:00:02.000 UTC [1] LOG:  checkpoint complete: wrote 1 buffers (0.0%); 0 WAL file(s) added, 0 \
         removed, 0 recycled; write=1.0 s, sync=0.1 s, total=1.1 s; sync files=1, longest=0.1 s, average=0.1 s\n",
    ),
];

fn read(text: &str) -> Option<Imported> {
    import_texts(&[("f".to_owned(), text.into())]).ok()
}

#[test]
fn a_foreign_line_is_left_to_its_importer_or_counted_as_not_understood() {
    let mut wrong = Vec::new();
    for (format, table, foreign) in CASES {
        let imported = read(&format!("{table}{foreign}"));
        let Some(imported) = imported else {
            // Without a value, the command of a cgroup's file is not a log.
            if !table.starts_with("$ cat") {
                wrong.push(format!("{format}: nothing was read"));
            }
            continue;
        };
        let first = foreign.lines().next().unwrap_or_default();
        let line = table.lines().count() as u32 + 1;
        let summary = imported.recording.header.import.expect("a summary");
        let missed = summary.not_understood.iter().any(|range| (range.first..=range.last).contains(&line));
        let taken = summary
            .sections
            .iter()
            .any(|section| section.format != *format && (section.first..=section.last).contains(&line));
        let prose = summary.ignored.iter().any(|ignored| ignored.reason.contains("sentences"));
        if !(missed || taken || prose) {
            wrong.push(format!("{format} took '{first}': {summary:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Figures that logs state in an unusual way: clocks, units, totals, repeated snapshots.

use flatwater_import::import_texts;
use flatwater_recording::schema::{cgroup, cpu, disks, workload, zones};
use flatwater_recording::{Cause, Recording, Table};

fn read(log: &str) -> Recording {
    import_texts(&[("f".to_owned(), log.into())]).expect("read").recording
}

fn duration_s(log: &str) -> u64 {
    read(log).header.duration_ns / 1_000_000_000
}

#[test]
fn only_a_mem_info_report_says_that_the_kernel_reported_its_memory() {
    let reported = |log: &str| read(log).header.import.expect("a summary").memory_reported;
    for log in [
        "[   12.345678] usb 1-1: new high-speed USB device number 7 using xhci_hcd\n",
        "[   12.345678] INFO: task db:4711 blocked for more than 120 seconds.\n[   12.345679] Call Trace:\n\
         [   12.345680]  io_schedule+0x46/0x70\n",
        "[   12.345678] blk_update_request: I/O error, dev sda, sector 12345\n",
        "[   12.345678] Mem-Info:\n",
    ] {
        assert!(!reported(log), "{log}");
    }
    let report = "[   12.345678] Mem-Info:\n[   12.345678] active_anon:12 inactive_anon:3 isolated_anon:0\n\
        [   12.345678] Node 0 DMA free:15000kB min:28kB low:32kB high:40kB\n";
    assert!(reported(report));
}

fn screen_of_top(clock: &str) -> String {
    format!(
        "top - {clock} up 6 days,  8:05,  1 user,  load average: 0.66, 0.72, 0.59\n\
         %Cpu(s):  0.0 us,  2.0 sy,  0.0 ni, 36.0 id, 62.0 wa,  0.0 hi,  0.0 si,  0.0 st\n\n"
    )
}

#[test]
fn the_duration_of_a_monitors_output_is_the_span_between_rows() {
    let screen = screen_of_top;
    assert_eq!(duration_s(&screen("10:00:00")), 1);
    assert_eq!(duration_s(&(screen("10:00:00") + &screen("10:00:05"))), 6);
    let stamped = |clock: &str, after: &str| format!("1795249195\n{}{}", screen(clock), screen(after));
    assert_eq!(duration_s(&stamped("10:00:00", "10:00:05")), 6, "the stamp's zone is not that of top");
    assert_eq!(duration_s(&stamped("23:59:59", "00:00:04")), 6, "after midnight");

    let dstat = "----system---- ----total-usage---- -dsk/total-\n     time     |usr sys idl wai stl| read  writ\n\
        21-11 10:00:00|  1   1  98   0   0| 10k  20k\n21-11 10:00:01|  1   1  98   0   0| 10k  20k\n\
        21-11 10:00:02|  1   1  98   0   0| 10k  20k\n";
    assert_eq!(duration_s(dstat), 2);
    let collectl = "#         <--------CPU--------><----------Disks----------->\n\
        #Time     cpu sys inter  ctxsw KBRead  Reads KBWrit Writes\n\
        10:00:00    1   0   100    200      0      0    100     10\n\
        10:00:01    1   0   100    200      0      0    100     10\n";
    assert_eq!(duration_s(collectl), 2);
    let iotop = "10:00:00 Total DISK READ :       0.00 B/s | Total DISK WRITE :     455.14 K/s\n\
        \x20 TID  PRIO  USER     DISK READ  DISK WRITE  SWAPIN      IO    COMMAND\n\
        10:00:00 9842 be/4 root        0.00 B/s  227.57 K/s  0.00 % 99.99 % agent\n";
    assert_eq!(duration_s(iotop), 1);
    let pmrep = "  Time  d.a.total  m.u.dirty\n           count/s      Kbyte\n\
        10:00:00    230.020     180200\n10:00:01    228.980     190220\n";
    assert_eq!(duration_s(pmrep), 2);
}

#[test]
fn shares_cover_the_whole_interval_between_two_screens() {
    let recording = read(&(screen_of_top("10:00:00") + &screen_of_top("10:00:05")));
    let (_, rows) = recording.table(Table::Cpu).expect("a table").by_entity().next().expect("all CPUs");
    let waited = rows.rise(cpu::IOWAIT_NS).expect("two readings") as f64 / 1e9;
    assert!((waited - 0.62 * 6.0).abs() < 0.001, "{waited}");
}

#[test]
fn retransmissions_are_charged_to_their_own_mount() {
    let mount = |name: &str, resent: u32| {
        format!(
            "device {name}:/vol mounted on /{name} with fstype nfs4 statvers=1.1\n\tage:\t99\n\tper-op statistics\n\
                 \t       WRITE: 1000 {} 3 83886080 172800 120 40000 40250 0\n",
            1000 + resent
        )
    };
    let recording = read(&(mount("slow", 400) + &mount("fine", 0)));
    let lines: Vec<String> = recording.events.iter().map(|event| event.kind.to_string()).collect();
    assert!(lines.len() == 1 && lines[0].contains("slow:/vol") && lines[0].contains("400 of 1000"), "{lines:?}");
}

#[test]
fn retransmissions_of_nfsiostat_are_compared_with_the_operations_of_the_interval() {
    let report = |percent: &str| {
        format!(
            "filer:/vol mounted on /mnt:\n\n   op/s\t\trpc bklog\n  59.00 \t   0.00\n\
                 write: ops/s kB/s kB/op retrans avg RTT (ms) avg exe (ms)\n \
                 40.0 800.0 20.0 100 ({percent}%) 80.0 400.0\n"
        )
    };
    assert_eq!(read(&report("0.1")).events.len(), 0, "100 of 100,000");
    let lines: Vec<String> = read(&report("10.0")).events.iter().map(|event| event.kind.to_string()).collect();
    assert!(lines.len() == 1 && lines[0].contains("100 of 1000"), "{lines:?}");
}

#[test]
fn two_listings_of_mountstats_are_differenced() {
    let listing = |time: u32, writes: u32| {
        format!(
            "{time}\ndevice filer:/vol mounted on /mnt with fstype nfs4 statvers=1.1\n\tper-op statistics\n\
                 \t       WRITE: {writes} {writes} 0 {} 172800 120 {} {} 0\n\n",
            writes * 4096,
            writes * 40,
            writes * 40
        )
    };
    let recording = read(&(listing(1_795_249_195, 100_000) + &listing(1_795_249_205, 100_050)));
    let (_, rows) = recording.table(Table::Disks).expect("disks").by_entity().next().expect("a mount");
    assert_eq!(rows.rise(disks::WRITES), Some(50));
    assert_eq!(rows.rise(disks::WRITE_NS), Some(50 * 40_000_000));
}

#[test]
fn two_readings_of_io_stat_are_differenced() {
    let reading =
        |bytes: u32| format!("8:0 rbytes=0 wbytes={bytes} rios=0 wios=1\n8:16 rbytes=0 wbytes=5 rios=0 wios=1\n");
    let recording = read(&format!("$ cat /sys/fs/cgroup/db/io.stat\n{}{}", reading(1000), reading(3000)));
    let (_, rows) = recording.table(Table::Cgroup).expect("a table").by_entity().next().expect("a group");
    assert_eq!((rows.last(cgroup::IO_WRITE_BYTES), rows.rise(cgroup::IO_WRITE_BYTES)), (Some(3005), Some(2000)));
}

#[test]
fn pages_of_64_kib_are_known_from_the_list_of_free_blocks() {
    let report = "[   12.3] Mem-Info:\n[   12.3] active_anon:12 inactive_anon:3 isolated_anon:0\n\
        [   12.3] Node 0 DMA free:640000kB min:64000kB low:80000kB high:96000kB\n\
        [   12.3] Node 0 DMA: 3*64kB (U) 5*128kB (UM) 0*256kB 0*512kB = 832kB\n";
    let min = |log: &str| {
        let recording = read(log);
        let (_, rows) = recording.table(Table::Zones).expect("zones").by_entity().next().expect("a zone");
        (rows.last(zones::MIN), rows.last(zones::FREE))
    };
    assert_eq!(min(report), (Some(1000), Some(10_000)));
    assert_eq!(min(&report.replace("*64kB", "*4kB").replace("*128kB", "*8kB")), (Some(16_000), Some(160_000)));
}

#[test]
fn system_calls_without_times_follow_the_stamp_above_them() {
    let log = "1795249195\nfsync(5</data/wal>) = 0 <0.250000>\nfsync(5</data/wal>) = 0 <0.250000>\n";
    let recording = read(log);
    let starts: Vec<u64> = recording.calls.iter().map(|call| call.start_ns).collect();
    assert_eq!(starts, [0, 250_000_000]);
    assert_eq!(recording.header.clock.wall_offset_ns, Some(1_795_249_195_000_000_000));
}

#[test]
fn a_second_snapshot_at_the_same_instant_is_a_gap() {
    let snapshot =
        |free: u32| format!("MemTotal: 16384000 kB\nMemFree: {free} kB\nBuffers: 20000 kB\nCached: 500000 kB\n");
    let gap = |log: &str| read(log).gaps.iter().any(|gap| gap.why.contains("same time"));
    assert!(gap(&format!("1795249195\n{}\n{}", snapshot(1_000_000), snapshot(900_000))));
    assert!(!gap(&format!("1795249195\n{}\n1795249196\n{}", snapshot(1_000_000), snapshot(900_000))));
}

#[test]
fn rows_beyond_the_limit_of_tracks_are_dropped_and_not_moved_to_another_table() {
    let table = "Tracing block device I/O... Hit Ctrl-C to end.\n\
        TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n\
        0.000004    supervise      1950   sda     W 13092560   4096      0.74\n\nprose\n";
    let recording = read(&(table.repeat(10_050) + "\n$ vmstat 1\n" + VMSTAT));
    assert!(recording.gaps.iter().any(|gap| gap.why.contains("more than an import can hold")), "{:?}", recording.gaps);
    let rows = recording.table(Table::Meminfo).map_or(0, flatwater_recording::Series::len);
    assert_eq!(rows, 0, "vmstat has no track");
    let requests: u64 = recording.latency.iter().map(|bucket| bucket.from_start.count()).sum();
    assert_eq!(requests, 10_000);
}

const VMSTAT: &str = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n \
    r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n \
    1  0      0 5000000 100000 900000    0    0     0     8  100  200  1  1 98  0  0\n";

#[test]
fn open_calls_of_a_cut_systemtap_trace_are_in_order() {
    let mut log = String::new();
    for tid in 0..40 {
        log += &format!("0 java({tid}): -> vfs_write\n10 java({tid}):  -> inner\n20 java({tid}):  <- inner\n");
    }
    let order: Vec<u32> = read(&log).calls.iter().map(|call| call.tid).collect();
    assert_eq!(order, (0..40).collect::<Vec<u32>>());
}

#[test]
fn a_collection_is_counted_once() {
    let pauses = |log: &str| {
        let recording = read(log);
        let (_, rows) = recording.table(Table::Workload).expect("a table").by_entity().next().expect("a JVM");
        (rows.last(workload::GC_PAUSES), rows.last(workload::GC_PAUSE_NS))
    };
    let stopped =
        "2026-11-21T10:00:01.000+0000: 1.5: Total time for which application threads were stopped: 0.3000 seconds\n";
    let old = "2026-11-21T10:00:00.500+0000: 1.2: [GC pause (G1 Evacuation Pause) (young), 0.3000 secs]\n   \
        [Times: user=0.14 sys=0.01, real=0.30 secs]\n";
    assert_eq!(pauses(&format!("{old}{stopped}")), (Some(1), Some(300_000_000)));
    assert_eq!(pauses(&format!("{old}{stopped}{stopped}")), (Some(2), Some(600_000_000)), "a pause of another kind");
}

#[test]
fn a_mutex_that_spins_and_then_sleeps_is_one_wait() {
    let log = "  db-7 [001] 10.000000: sys_enter_write: fd=3\n\
        \x20 db-7 [001] 10.001000: contention_begin: 0xffff888101 (flags=SPIN|MUTEX)\n\
        \x20 db-7 [001] 10.002000: contention_begin: 0xffff888101 (flags=MUTEX)\n\
        \x20 db-7 [001] 10.012000: contention_end: 0xffff888101 (ret=0)\n\
        \x20 db-7 [001] 10.013000: sys_exit_write: 0x10\n";
    let recording = read(log);
    let call = &recording.calls[0];
    let locked: u64 = call.segments.iter().filter(|part| part.cause == Cause::Lock).map(|part| part.ns).sum();
    assert_eq!((recording.calls.len(), call.damaged, call.duration_ns, locked), (1, false, 13_000_000, 11_000_000));
    // A rwsem is not a mutex.
    let frames = |flags: &str| {
        let recording = read(&log.replace("SPIN|MUTEX", flags).replace("MUTEX", flags));
        recording.stacks.iter().flat_map(|stack| stack.frames.clone()).collect::<Vec<String>>()
    };
    assert!(!frames("WRITE").iter().any(|frame| frame.contains("mutex")), "{:?}", frames("WRITE"));
    assert!(!frames("SPIN").iter().any(|frame| frame.contains("mutex")), "{:?}", frames("SPIN"));
}

#[test]
fn a_row_of_sar_with_a_mark_at_its_end_is_read_and_one_with_further_values_is_not() {
    let rows = |end: &str| {
        let head = "10:00:00     CPU     %user     %nice   %system   %iowait    %steal     %idle\n";
        let row = |at: u32| format!("10:00:0{at}     all      1.00      0.00      1.00      0.00      0.00     98.00");
        read(&format!("{head}{}\n{}{end}\n", row(1), row(2)))
            .table(Table::Cpu)
            .map_or(0, flatwater_recording::Series::len)
    };
    assert_eq!((rows(""), rows(" <-- here"), rows(" Swap: 12 13")), (3, 3, 2));
}

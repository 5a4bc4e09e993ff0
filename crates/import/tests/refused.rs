//! Inputs that are not logs, and logs without a readable row, are refused: explained, they would be `quiet`.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use flatwater_import::{ImportFailure, import_files, import_texts};
use flatwater_recording::Table;

#[test]
fn a_fifo_and_a_device_are_refused_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let fifo = directory.path().join("log");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let began = Instant::now();
    for path in [fifo, PathBuf::from("/dev/zero")] {
        let why = import_files(&[path]).expect_err("refused").to_string();
        assert!(why.contains("not a regular file"), "{why}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "the refusal did not block");
}

#[test]
fn a_table_without_readable_rows_is_refused() {
    let header = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n \
                  r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n";
    let text = format!("{header} one two three\n four five six\n");
    let failure = import_texts(&[("paste".to_owned(), text.into_bytes())]).expect_err("refused");
    assert!(matches!(&failure, ImportFailure::NothingRead { format: "vmstat", .. }), "{failure:?}");
    assert!(failure.to_string().contains("no row could be read"), "{failure}");
    let row = format!("{header} 1  0      0 5000000 100000 900000    0    0     0     8  100  200  1  1 98  0  0\n");
    assert!(import_texts(&[("paste".to_owned(), row.into_bytes())]).is_ok());
}

/// S17: a clamped value would be explained as "8589934592 GiB dirty".
#[test]
fn values_near_2_to_the_64_are_reported_as_gaps() {
    let text = "MemTotal: 16384000 kB\nMemFree: 1000000 kB\nMemAvailable: 1200000 kB\nBuffers: 20000 kB\nCached: 500000 kB\n\
                Active: 400000 kB\nInactive: 300000 kB\nDirty: 18446744073709551615 kB\nWriteback: 18014398509481984 kB\n\
                Slab: 100000 kB\n";
    let recording = import_texts(&[("meminfo".to_owned(), text.as_bytes().to_vec())]).expect("read").recording;
    let meminfo = recording.table(Table::Meminfo).expect("the table");
    let column = |name: &str| meminfo.column(name).map(|column| column.values().iter().collect::<Vec<_>>());
    assert_eq!(column("MemFree_bytes"), Some(vec![Some(1_024_000_000)]));
    for name in ["Dirty_bytes", "Writeback_bytes"] {
        assert_eq!(column(name).into_iter().flatten().flatten().next(), None, "{name}");
        let reported = recording.gaps.iter().any(|gap| gap.what.contains(name) && gap.why.contains("2^64"));
        assert!(reported, "{name}: {:?}", recording.gaps);
    }
    assert!(
        recording
            .series
            .iter()
            .flat_map(|series| &series.columns)
            .all(|column| { column.values().iter().flatten().all(|value| value < i64::MAX) })
    );
}

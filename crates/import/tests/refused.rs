//! What is no log at all, or a log of which nothing can be read, is refused at once: explained, it would be `quiet`.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use flatwater_import::{ImportFailure, import_files, import_texts};

#[test]
fn a_fifo_and_a_device_are_refused_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let fifo = directory.path().join("log");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let began = Instant::now();
    for path in [fifo, PathBuf::from("/dev/zero")] {
        let why = import_files(&[path]).expect_err("refused").to_string();
        assert!(why.contains("no regular file"), "{why}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "nothing was waited for");
}

#[test]
fn a_table_of_which_no_row_can_be_read_is_refused() {
    let header = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n \
                  r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n";
    let text = format!("{header} one two three\n four five six\n");
    let failure = import_texts(&[("paste".to_owned(), text.into_bytes())]).expect_err("refused");
    assert!(matches!(&failure, ImportFailure::NothingRead { format: "vmstat", .. }), "{failure:?}");
    assert!(failure.to_string().contains("not one of its rows could be read"), "{failure}");
    let row = format!("{header} 1  0      0 5000000 100000 900000    0    0     0     8  100  200  1  1 98  0  0\n");
    assert!(import_texts(&[("paste".to_owned(), row.into_bytes())]).is_ok());
}

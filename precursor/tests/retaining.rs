//! Files roll by time, and old files are removed, without losing what is kept.

use std::path::Path;
use std::time::{Duration, Instant};

use precursor::{Framing, Mode, OpenError, Options, ReadError, Reader, Seek, recover};

use crate::writer::{contents, data_files};

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];
/// Longer than any stall of a busy machine: a test that waits this long has failed.
const LONG: Duration = Duration::from_secs(60);

fn options(dir: &Path, mode: Mode) -> Options {
    Options::new(dir.join("log-{}")).mode(mode).framing(Framing::Records).roll_bytes(64 << 10).ring_bytes(64 << 10)
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn payload(i: u64) -> Vec<u8> {
    let mut bytes = i.to_le_bytes().to_vec();
    bytes.resize(500, i as u8);
    bytes
}

/// The files hold records up to the last one, without a gap.
fn check(dir: &Path, records: u64) -> u64 {
    let mut reader = Reader::open(dir.join("log-{}")).unwrap();
    let mut first = None;
    let mut next = 0;
    while let Some(found) = reader.next().unwrap() {
        let i = *first.get_or_insert(found.number);
        assert!(found.bytes == payload(found.number));
        assert!(found.number == i || found.number == next);
        next = found.number + 1;
    }
    assert_eq!(next, records);
    first.unwrap()
}

#[test]
fn old_files_are_removed_by_count_and_by_bytes() {
    for mode in MODES {
        for (files, bytes) in [(3, 0), (0, 200 << 10)] {
            let dir = tempfile::tempdir().unwrap();
            let open = || options(dir.path(), mode).retain_files(files).retain_bytes(bytes).open().unwrap();
            let mut log = open();
            let mut records = 0;
            for _ in 0..2 {
                for _ in 0..2_000 {
                    log.append(&payload(records)).unwrap();
                    records += 1;
                }
                let position = log.position();
                log.sync_to(position).unwrap();
                // A file that is listed may be removed before it is looked at.
                let lengths =
                    || data_files(dir.path()).into_iter().filter_map(|file| Some(file.metadata().ok()?.len()));
                wait_for("old files are removed", || match files {
                    0 => lengths().sum::<u64>() <= bytes + (64 << 10) * 5,
                    // The current file, or the next one, may be prepared.
                    files => data_files(dir.path()).len() as u64 <= files + 1,
                });
                let end = log.close().unwrap();
                let first = check(dir.path(), records);
                assert!(first > 0 && first < records, "{mode:?}: {first}");
                log = open();
                assert!(log.position().bytes() - end.bytes() <= 72, "{mode:?}: positions continue");
            }
            // A reader that asks for a removed record learns that it is missing.
            let mut reader = Reader::open(dir.path().join("log-{}")).unwrap();
            assert!(matches!(reader.seek(Seek::Number(0)), Err(ReadError::Missing { .. })));
            log.close().unwrap();
        }
    }
}

#[test]
fn a_new_file_begins_when_the_current_one_is_old() {
    for mode in MODES {
        for framing in [Framing::Records, Framing::None] {
            let dir = tempfile::tempdir().unwrap();
            let options = options(dir.path(), mode).framing(framing).roll_every(Duration::from_millis(50));
            let mut log = options.open().unwrap();
            let mut records = 0;
            wait_for("files are rolled", || {
                log.append(&payload(records)).unwrap();
                records += 1;
                // One file may be prepared and empty.
                data_files(dir.path()).len() > 4
            });
            assert!(log.stats().rolls >= 3, "{mode:?} {framing:?}");
            log.close().unwrap();
            match framing {
                Framing::Records => assert_eq!(check(dir.path(), records), 0, "{mode:?}"),
                Framing::None => {
                    let all: Vec<u8> = (0..records).flat_map(payload).collect();
                    assert!(contents(dir.path()) == all, "{mode:?}");
                }
            }
            assert!(data_files(dir.path()).iter().all(|file| file.metadata().unwrap().len() < 64 << 10));
            assert_eq!(recover(dir.path().join("log-{}")).unwrap().cut_bytes, 0);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let log = options(dir.path(), Mode::Ring).roll_every(Duration::from_millis(50)).open_many().unwrap();
    let mut records = 0;
    wait_for("files of many producers are rolled", || {
        log.append(&payload(records)).unwrap();
        records += 1;
        data_files(dir.path()).len() > 4
    });
    log.close().unwrap();
    assert_eq!(check(dir.path(), records), 0);
}

#[test]
fn limits_without_a_pattern_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let single = || Options::new(dir.path().join("log")).mode(Mode::Plain);
    for refused in
        [single().retain_files(3), single().retain_bytes(1 << 20), single().roll_every(Duration::from_secs(1))]
    {
        assert!(matches!(refused.open(), Err(OpenError::Options { problem, .. }) if problem.contains("{}")));
    }
}

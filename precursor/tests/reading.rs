//! A reader follows a writer, survives it, and sees exactly what recovery keeps.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use precursor::{Framing, Mode, Options, ReadError, Reader, Seek, Waiting, Writer, records, recover};

use crate::writer::{Case, Chance, Ledger, Life, Living, data_files, record};

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];
/// Longer than any stall of a busy machine: a test that waits this long has failed.
const LONG: Duration = Duration::from_secs(60);

fn path(dir: &Path, roll_bytes: u64) -> PathBuf {
    dir.join(if roll_bytes == 0 { "log" } else { "log-{}" })
}

fn options(dir: &Path, roll_bytes: u64) -> Options {
    Options::new(path(dir, roll_bytes)).framing(Framing::Records).roll_bytes(roll_bytes).ring_bytes(64 << 10)
}

fn payload(i: u64) -> Vec<u8> {
    let mut bytes = i.to_le_bytes().to_vec();
    bytes.resize(8 + (i * 37 % 700) as usize, i as u8);
    bytes
}

/// Reads all published records; their numbers and contents must continue from `next`.
fn drain(reader: &mut Reader, next: &mut u64) -> u64 {
    let mut end = 0;
    while let Some(found) = reader.next().unwrap() {
        assert_eq!(found.number, *next);
        assert!(found.bytes == payload(*next), "record {next}");
        (*next, end) = (*next + 1, found.position.bytes());
    }
    end
}

#[test]
fn a_reader_follows_every_mode_across_files_and_sees_each_record_once() {
    const RECORDS: u64 = 3_000;
    for mode in MODES {
        for (roll_bytes, waiting) in [(0, Waiting::Asleep), (64 << 10, Waiting::Asleep), (64 << 10, Waiting::Spinning)]
        {
            let dir = tempfile::tempdir().unwrap();
            let mut log = options(dir.path(), roll_bytes).mode(mode).open().unwrap();
            let mut reader = Reader::open(path(dir.path(), roll_bytes)).unwrap();
            reader.waiting(waiting);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for i in 0..RECORDS {
                        log.append(&payload(i)).unwrap();
                        if i % 500 == 0 {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                    }
                });
                for i in 0..RECORDS {
                    let found = reader.next_within(LONG).unwrap().expect("the writer appends it");
                    assert_eq!(found.number, i, "{mode:?} {roll_bytes}");
                    assert!(found.bytes == payload(i), "{mode:?} {roll_bytes}: record {i}");
                }
            });
            assert_eq!(reader.next().unwrap(), None);
            assert_eq!(reader.writer(), Writer::Alive);
            let end = log.append(b"the last").unwrap();
            let last = reader.next_within(LONG).unwrap().unwrap();
            assert_eq!((last.position, last.bytes), (end, &b"the last"[..]), "{mode:?} {roll_bytes}");
            log.close().unwrap();
            assert_eq!(reader.next_within(Duration::from_millis(100)).unwrap(), None);
            assert_eq!(reader.writer(), Writer::Unknown);
            let mut again = Reader::open(path(dir.path(), roll_bytes)).unwrap();
            let mut count = 0;
            while again.next().unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count, RECORDS + 1, "{mode:?} {roll_bytes}: after the close");
        }
    }
}

/// A directory of another user: behind the file with the largest number the reader began the same file for ever, and an
/// appender would have overwritten it.
#[test]
fn a_file_with_the_largest_number_is_the_last_one() {
    // With an end mark, without one, and without records.
    for (appended, file) in [(200, "log-00000000"), (200, "log-00000001"), (0, "log-00000000")] {
        let dir = tempfile::tempdir().unwrap();
        let open = || options(dir.path(), 64 << 10).mode(Mode::Plain).open();
        let mut log = open().unwrap();
        (0..appended).for_each(|i| assert!(log.append(&payload(i)).is_ok()));
        log.close().unwrap();
        let bytes = std::fs::read(dir.path().join(file)).unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let largest = dir.path().join(format!("log-{}", u64::MAX));
        std::fs::write(&largest, &bytes).unwrap();
        let mut reader = Reader::open(path(dir.path(), 1)).unwrap();
        let mut numbers = Vec::new();
        while let Some(found) = reader.next().unwrap() {
            assert!(numbers.last().is_none_or(|last| *last < found.number), "it begins again");
            numbers.push(found.number);
        }
        assert_eq!(numbers.len(), records(&bytes).count(), "{file}");
        let refused = open().unwrap_err().to_string();
        assert!(refused.contains("has a number that no appender reaches"), "{refused}");
        assert!(std::fs::read(&largest).unwrap().starts_with(&bytes));
    }
}

#[test]
fn a_reader_follows_many_producers_across_files() {
    const EACH: u64 = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let log = options(dir.path(), 64 << 10).open_many().unwrap();
    let mut reader = Reader::open(path(dir.path(), 1)).unwrap();
    std::thread::scope(|scope| {
        for producer in 0..3u64 {
            let log = log.clone();
            scope.spawn(move || {
                for i in 0..EACH {
                    log.append(&[producer.to_le_bytes(), i.to_le_bytes()].concat()).unwrap();
                }
            });
        }
        let mut next = [0u64; 3];
        for number in 0..3 * EACH {
            let found = reader.next_within(LONG).unwrap().expect("a producer appends it");
            assert_eq!(found.number, number);
            let (producer, i) = found.bytes.split_at(8);
            let producer = u64::from_le_bytes(producer.try_into().unwrap()) as usize;
            assert_eq!(u64::from_le_bytes(i.try_into().unwrap()), next[producer]);
            next[producer] += 1;
        }
    });
    assert!(data_files(dir.path()).len() > 2);
    log.close().unwrap();
    assert_eq!(reader.next_within(Duration::from_millis(50)).unwrap(), None);
}

#[test]
fn a_reservation_is_not_read_before_it_is_committed() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let mut log = options(dir.path(), 0).mode(mode).open().unwrap();
        let mut reader = Reader::open(path(dir.path(), 0)).unwrap();
        log.append(&payload(0)).unwrap();
        log.reserve(100).unwrap().fill(7);
        let mut next = 0;
        drain(&mut reader, &mut next);
        assert_eq!(next, 1, "{mode:?}");
        let end = log.commit(60).unwrap();
        let found = reader.next_within(LONG).unwrap().unwrap();
        assert_eq!((found.bytes, found.position), (&[7; 60][..], end), "{mode:?}");
    }
}

/// Kills a writer beside a reader. What the reader saw before and after the death is what recovery keeps.
fn killed(case: Case, rounds: u64) {
    let mut chance = Chance(0x1234_5678_9abc ^ case.describe().len() as u64);
    for round in 0..rounds {
        let dir = tempfile::tempdir().unwrap();
        let shm = tempfile::tempdir_in("/dev/shm").unwrap();
        std::os::unix::fs::symlink(shm.path(), dir.path().join("shm")).unwrap();
        let ledger = Ledger::of(dir.path());
        let mut living = Living::start(case, dir.path());
        living.opened();
        let mut reader = Reader::open(case.path(dir.path())).unwrap();
        assert_eq!(reader.writer(), Writer::Alive);
        let (dead, until) = (AtomicBool::new(false), chance.below(20_000));
        let mut seen: Vec<Vec<u8>> = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(until));
                living.kill();
                dead.store(true, Ordering::Release);
            });
            loop {
                let ended = dead.load(Ordering::Acquire);
                match reader.next_within(Duration::from_micros(200)).unwrap() {
                    Some(found) => {
                        assert_eq!(found.number, seen.len() as u64);
                        seen.push(found.bytes.to_vec());
                    }
                    None if ended => break,
                    None => {}
                }
            }
        });
        assert_eq!(reader.writer(), Writer::Dead, "{case:?} {round}");
        recover(case.path(dir.path())).unwrap();
        let mut fresh = Reader::open(case.path(dir.path())).unwrap();
        let mut kept: Vec<Vec<u8>> = Vec::new();
        while let Some(found) = fresh.next().unwrap() {
            kept.push(found.bytes.to_vec());
        }
        let acknowledged = ledger.get(crate::writer::COUNT);
        assert!(kept.starts_with(&seen), "{case:?} {round}: {} read, {} kept", seen.len(), kept.len());
        assert!(case.many || seen.len() as u64 >= acknowledged, "{case:?} {round}: {} of {acknowledged}", seen.len());
        assert!(case.many || kept.iter().enumerate().all(|(i, bytes)| *bytes == record(0, i as u64)));
        // The same reader reads the others, which were stored and not yet published, or not yet in a file.
        while let Some(found) = reader.next_within(Duration::from_millis(50)).unwrap() {
            seen.push(found.bytes.to_vec());
        }
        assert!(seen == kept, "{case:?} {round}: {} read, {} kept", seen.len(), kept.len());
    }
}

#[test]
fn a_reader_survives_a_writer_that_is_killed_and_reads_what_recovery_keeps() {
    let case = |mode, roll| Case { mode, framed: true, roll, ..Case::default() };
    for case in [
        case(Mode::Ring, false),
        case(Mode::Ring, true),
        case(Mode::Window, false),
        case(Mode::Window, true),
        case(Mode::Plain, true),
        Case { life: Life::Growing, ..case(Mode::Ring, false) },
        Case { life: Life::Switching, ..case(Mode::Window, false) },
        Case { many: true, ..case(Mode::Ring, true) },
    ] {
        killed(case, 4);
    }
}

#[test]
#[ignore = "a thousand kills take minutes"]
fn a_reader_survives_a_thousand_killed_writers() {
    for roll in [false, true] {
        for mode in MODES {
            killed(Case { mode, framed: true, roll, ..Case::default() }, 125);
        }
    }
}

/// Prints the time from before the append until a reader in another thread has the record. Run it alone.
#[test]
#[ignore = "a measurement"]
fn latency_of_a_reader() {
    for mode in [Mode::Ring, Mode::Window, Mode::Plain] {
        for (name, waiting) in [("asleep", Waiting::Asleep), ("spinning", Waiting::Spinning)] {
            let dir = tempfile::tempdir().unwrap();
            let mut log = options(dir.path(), 0).mode(mode).open().unwrap();
            let mut reader = Reader::open(path(dir.path(), 0)).unwrap();
            reader.waiting(waiting);
            let begun = Instant::now();
            let mut took: Vec<u64> = std::thread::scope(|scope| {
                let reading = scope.spawn(|| {
                    (0..5_000)
                        .map(|_| {
                            let found = reader.next_within(LONG).unwrap().unwrap();
                            let sent = u64::from_le_bytes(found.bytes[..8].try_into().unwrap());
                            u64::try_from(begun.elapsed().as_nanos()).unwrap() - sent
                        })
                        .collect()
                });
                let mut record = [7; 220];
                for _ in 0..5_000 {
                    std::thread::sleep(Duration::from_micros(200));
                    record[..8].copy_from_slice(&u64::try_from(begun.elapsed().as_nanos()).unwrap().to_le_bytes());
                    log.append(&record).unwrap();
                }
                reading.join().unwrap()
            });
            took.sort_unstable();
            let at = |share: f64| took[(took.len() as f64 * share) as usize] / 1000;
            println!("{mode:?} {name}: p50 {} us, p99 {} us, largest {} us", at(0.5), at(0.99), took[4_999] / 1000);
        }
    }
}

fn written(dir: &Path, roll_bytes: u64, records: u64) -> Vec<u64> {
    let mut log = options(dir, roll_bytes).mode(Mode::Plain).times(true).open().unwrap();
    let ends = (0..records).map(|i| log.append(&payload(i)).unwrap().bytes()).collect();
    log.close().unwrap();
    ends
}

#[test]
fn seeks_by_position_number_and_time_find_the_record() {
    for roll_bytes in [0, 32 << 10] {
        let dir = tempfile::tempdir().unwrap();
        let ends = written(dir.path(), roll_bytes, 500);
        let mut reader = Reader::open(path(dir.path(), roll_bytes)).unwrap();
        let mut times = Vec::new();
        while let Some(found) = reader.next().unwrap() {
            times.push(found.time_ns.unwrap());
        }
        assert!(times.len() == 500 && times.is_sorted());
        for i in [0, 1, 137, 250, 498, 499] {
            let mut number_after = |to| {
                reader.seek(to).unwrap();
                reader.next().unwrap().map(|found| found.number)
            };
            assert_eq!(number_after(Seek::Number(i)), Some(i));
            let at = ends[i as usize];
            assert_eq!(number_after(Seek::After(at - 1)), Some(i));
            assert_eq!(number_after(Seek::After(at)), Some(i + 1).filter(|next| *next < 500));
            let first = times.iter().position(|time| *time >= times[i as usize]).unwrap() as u64;
            assert_eq!(number_after(Seek::TimeNs(times[i as usize])), Some(first));
        }
        reader.seek(Seek::TimeNs(u64::MAX)).unwrap();
        assert_eq!(reader.next().unwrap(), None);
        reader.seek(Seek::End).unwrap();
        assert_eq!(reader.next().unwrap(), None);
        reader.seek(Seek::First).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().number, 0);
    }
}

/// From the end, only records that are appended later are read, also while the ring is ahead of the files.
#[test]
fn a_reader_that_begins_at_the_end_reads_the_next_record() {
    for mode in MODES {
        for roll_bytes in [0, 64 << 10] {
            let dir = tempfile::tempdir().unwrap();
            let mut log = options(dir.path(), roll_bytes).mode(mode).open().unwrap();
            let mut reader = Reader::open(path(dir.path(), roll_bytes)).unwrap();
            for i in 0..600 {
                log.append(&payload(i)).unwrap();
                if i % 50 == 0 {
                    reader.seek(Seek::End).unwrap();
                    assert_eq!(reader.next().unwrap(), None, "{mode:?} {roll_bytes} {i}");
                    log.append(b"just this").unwrap();
                    let found = reader.next_within(LONG).unwrap().unwrap();
                    assert_eq!(found.bytes, b"just this", "{mode:?} {roll_bytes} {i}");
                }
            }
        }
    }
}

#[test]
fn files_that_were_removed_are_an_error_and_not_a_silent_gap() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), 16 << 10, 200);
    let files = data_files(dir.path());
    std::fs::remove_file(&files[0]).unwrap();
    let mut reader = Reader::open(path(dir.path(), 1)).unwrap();
    assert!(matches!(reader.seek(Seek::Number(0)), Err(ReadError::Missing { from: 0, .. })));
    let first = reader.next().unwrap().unwrap().number;
    assert!(first > 0);
    std::fs::remove_file(&files[2]).unwrap();
    let mut last = first;
    let missing = loop {
        match reader.next() {
            Ok(found) => last = found.expect("there are more files").number,
            Err(e) => break e,
        }
    };
    assert!(
        matches!(&missing, ReadError::Missing { from, path } if *from == last + 1 && *path == files[3]),
        "{missing}"
    );
    assert!(reader.next().unwrap().unwrap().number > last + 1, "the next call continues behind the gap");
}

#[test]
fn foreign_damaged_cut_and_removed_files_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("log");
    let fail = |reader: &mut Reader| loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(e) => return Some(e),
        }
    };
    std::fs::write(&name, b"a text file, longer than a header, that no precursor has ever written to a disk").unwrap();
    assert!(matches!(fail(&mut Reader::open(&name).unwrap()), Some(ReadError::NotFramed { .. })));
    std::fs::remove_file(&name).unwrap();
    written(dir.path(), 0, 100);
    let whole = std::fs::read(&name).unwrap();

    let mut later = whole.clone();
    later[8] = 3;
    let crc = crc32fast::hash(&later[..60]);
    later[60..64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&name, &later).unwrap();
    assert!(matches!(fail(&mut Reader::open(&name).unwrap()), Some(ReadError::Version { version: 3, .. })));

    let mut damaged = whole.clone();
    damaged[30] ^= 1;
    std::fs::write(&name, &damaged).unwrap();
    assert!(matches!(fail(&mut Reader::open(&name).unwrap()), Some(ReadError::Damaged { offset: 0, .. })));

    // A torn tail ends the data, and is reported.
    std::fs::write(&name, &whole[..whole.len() - 9]).unwrap();
    let mut reader = Reader::open(&name).unwrap();
    assert!(fail(&mut reader).is_none());
    assert!(reader.unread_bytes().unwrap() > 0);
    std::fs::write(&name, [&whole[..], &[0; 4096]].concat()).unwrap();
    let mut reader = Reader::open(&name).unwrap();
    assert!(fail(&mut reader).is_none());
    assert_eq!(reader.unread_bytes().unwrap(), 0, "preallocated zeros are not damage");

    std::fs::write(&name, &whole).unwrap();
    let mut reader = Reader::open(&name).unwrap();
    assert!(fail(&mut reader).is_none());
    std::fs::OpenOptions::new().write(true).open(&name).unwrap().set_len(64).unwrap();
    assert!(matches!(fail(&mut reader), Some(ReadError::Truncated { len: 64, .. })));

    std::fs::write(&name, &whole).unwrap();
    let mut reader = Reader::open(&name).unwrap();
    reader.next().unwrap().unwrap();
    std::fs::remove_file(&name).unwrap();
    let mut count = 1;
    let error = loop {
        match reader.next_within(LONG) {
            Ok(found) => count += u64::from(found.is_some()),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, ReadError::Removed { .. }) && count == 100, "{count}: {error}");
    assert!(matches!(Reader::open(dir.path().join("no folder/log")), Err(ReadError::Path { .. })));
}

/// A frame that claims a gigabyte does not make the reader take a gigabyte.
#[test]
fn a_record_longer_than_allowed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), 0, 3);
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join("log")).unwrap();
    let end = file.metadata().unwrap().len();
    let huge = (1u64 << 30 | ((1 << 30) - 1)) + (1 << 30);
    file.write_all_at(&huge.to_le_bytes(), end).unwrap();
    file.set_len(end + (1 << 30) + 4096).unwrap();
    let mut reader = Reader::open(dir.path().join("log")).unwrap();
    reader.record_bytes_max(1 << 20);
    for _ in 0..3 {
        reader.next().unwrap().unwrap();
    }
    assert!(matches!(reader.next(), Err(ReadError::TooLong { offset, .. }) if offset == end));
}

#[test]
fn a_reader_waits_for_a_file_that_does_not_exist_yet_and_for_the_next_writer() {
    let dir = tempfile::tempdir().unwrap();
    let mut reader = Reader::open(path(dir.path(), 0)).unwrap();
    assert_eq!(reader.next_within(Duration::from_millis(1)).unwrap(), None);
    for round in 0..3u64 {
        let mut log = options(dir.path(), 0).mode(Mode::Ring).open().unwrap();
        log.append(&payload(round)).unwrap();
        let found = reader.next_within(LONG).unwrap().unwrap();
        assert_eq!((found.number, found.bytes), (round, &payload(round)[..]));
        log.close().unwrap();
    }
}

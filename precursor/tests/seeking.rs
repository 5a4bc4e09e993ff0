//! Seeks beside a running writer, across files, after its death, and in Java.

use std::path::{Path, PathBuf};
use std::time::Duration;

use precursor::{Framing, Mode, Options, Reader, Seek, recover};

use crate::writer::{COUNT, Case, Chance, Ledger, Life, Living, record};

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];

fn indexes(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = names.filter(|name| name.ends_with(".index")).collect();
    found.sort();
    found
}

fn options(dir: &Path, mode: Mode) -> Options {
    let options = Options::new(dir.join("log-{}")).mode(mode).framing(Framing::Records).times(true);
    options.roll_bytes(256 << 10).ring_bytes(128 << 10).window_bytes(64 << 10)
}

/// Positions of the records that exist.
fn known(path: &Path) -> Vec<(u64, u64)> {
    let mut reader = Reader::open(path).unwrap();
    let mut known = Vec::new();
    while let Some(found) = reader.next().unwrap() {
        known.push((found.number, found.position.bytes()));
    }
    known
}

/// Seeks to each of these records by number and by position; returns the number of points that were read.
fn check<'a>(path: &Path, records: impl Iterator<Item = &'a (u64, u64)>) -> u64 {
    let mut reader = Reader::open(path).unwrap();
    let mut points = 0;
    for (number, position) in records {
        reader.seek(Seek::Number(*number)).unwrap();
        let found = reader.next().unwrap().unwrap();
        assert_eq!((found.number, found.position.bytes()), (*number, *position));
        reader.seek(Seek::After(position - 1)).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().number, *number);
        points += reader.seek_cost().points;
    }
    points
}

#[test]
fn seeks_beside_a_writer_and_across_files_find_each_record_in_every_mode() {
    for (mode, many) in MODES.map(|mode| (mode, false)).into_iter().chain([(Mode::Ring, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log-{}");
        let options = options(dir.path(), mode);
        let (mut one, mut shared) = (None, None);
        match many {
            true => shared = Some(options.open_many().unwrap()),
            false => one = Some(options.open().unwrap()),
        }
        for round in 0..4u64 {
            for i in 0..2_000u64 {
                let bytes = vec![i as u8; (i * 37 % 400) as usize];
                let done = one.as_mut().map(|log| log.append(&bytes));
                done.or_else(|| shared.as_ref().map(|log| log.append(&bytes))).unwrap().unwrap();
            }
            check(&path, known(&path).iter().step_by(97 + round as usize));
        }
        one.map(|log| log.close().unwrap());
        shared.map(|log| log.close().unwrap());
        let found = known(&path);
        assert_eq!(found.last().unwrap().0, 7_999);
        assert!(check(&path, found.iter().step_by(211)) > 0, "{mode:?} {many}: no index");
    }
}

#[test]
fn the_indexes_of_archived_and_of_removed_files_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = options(dir.path(), Mode::Plain).retain_files(6).open().unwrap();
    let mut fill = |files: u64| {
        while log.stats().rolls < files {
            log.append(&[7; 500]).unwrap();
        }
    };
    fill(2);
    let waited = |gone: &dyn Fn(&[String]) -> bool| {
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !gone(&indexes(dir.path())) {
            assert!(std::time::Instant::now() < until, "{:?}", indexes(dir.path()));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    waited(&|found| found.len() >= 2);
    let archive = tempfile::tempdir().unwrap();
    std::fs::rename(dir.path().join("log-00000000"), archive.path().join("log-00000000")).unwrap();
    fill(4);
    waited(&|found| found.len() >= 3 && !found.contains(&".log-00000000.index".to_owned()));
    fill(12);
    let with_file = |index: &String| dir.path().join(index.trim_matches('.').trim_end_matches(".index")).exists();
    waited(&|found| (4..=6).contains(&found.len()) && found.iter().all(with_file));
    log.close().unwrap();
}

#[test]
fn seeks_after_the_death_of_a_writer_find_each_record_before_and_after_recovery() {
    let case = |mode, roll| Case { mode, framed: true, roll, ..Case::default() };
    let cases = [
        case(Mode::Ring, true),
        case(Mode::Window, false),
        case(Mode::Plain, false),
        Case { life: Life::Closing, ..case(Mode::Ring, false) },
    ];
    let mut chance = Chance(0x5eed_0f5e_ec5a);
    for case in cases {
        let dir = tempfile::tempdir().unwrap();
        let shm = tempfile::tempdir_in("/dev/shm").unwrap();
        std::os::unix::fs::symlink(shm.path(), dir.path().join("shm")).unwrap();
        let ledger = Ledger::of(dir.path());
        let path: PathBuf = case.path(dir.path());
        let mut points = 0;
        for _ in 0..3 {
            let mut living = Living::start(case, dir.path());
            living.opened();
            let enough = ledger.get(COUNT) + 1_500 + chance.below(1_000);
            let until = std::time::Instant::now() + Duration::from_secs(60);
            while ledger.get(COUNT) < enough {
                assert!(std::time::Instant::now() < until, "{case:?}");
                std::thread::sleep(Duration::from_millis(1));
            }
            living.kill();
            let found = known(&path);
            points += check(&path, found.iter().step_by(173));
            recover(&path).unwrap();
            let found = known(&path);
            points += check(&path, found.iter().step_by(173));
            assert!(found.len() as u64 >= ledger.get(COUNT));
            let mut reader = Reader::open(&path).unwrap();
            reader.seek(Seek::Number(found.len() as u64 - 1)).unwrap();
            assert_eq!(reader.next().unwrap().unwrap().bytes, record(0, found.len() as u64 - 1));
            // A record that was accepted and not counted would make the writer append it twice.
            ledger.set(COUNT, found.len() as u64);
        }
        assert!(points > 0, "{case:?}: no index");
    }
}

//! Every mode, framed or not and rolled or not, gives back the appended records in order.

use std::path::{Path, PathBuf};

use precursor::{
    After, AppendError, BackPressure, Evidence, Existing, Framing, Mode, OpenError, Options, records, recover,
};

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];

fn record(number: u64, len: usize) -> Vec<u8> {
    let mut out: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(len).collect();
    out.iter_mut().enumerate().for_each(|(i, b)| *b = b.wrapping_add(i as u8));
    out
}

fn lengths() -> impl Iterator<Item = usize> {
    [220, 1, 8, 4096, 0, 4095, 17, 65_000].into_iter().cycle()
}

fn all_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

/// The data files, without a sidecar.
fn data_files(dir: &Path) -> Vec<PathBuf> {
    all_files(dir).into_iter().filter(|p| !p.file_name().unwrap().to_str().unwrap().starts_with('.')).collect()
}

fn contents(dir: &Path) -> Vec<u8> {
    data_files(dir).iter().flat_map(|p| std::fs::read(p).unwrap()).collect()
}

#[test]
fn every_mode_gives_back_what_was_appended() {
    for mode in MODES {
        for framing in [Framing::None, Framing::Records] {
            for roll_bytes in [0, 1 << 20] {
                let dir = tempfile::tempdir().unwrap();
                let name = if roll_bytes == 0 { "log" } else { "log-{}" };
                let options = Options::new(dir.path().join(name)).mode(mode).framing(framing).roll_bytes(roll_bytes);
                let mut log = options.open().unwrap();
                let expected: Vec<Vec<u8>> =
                    lengths().take(800).enumerate().map(|(i, len)| record(i as u64, len)).collect();
                for (i, bytes) in expected.iter().enumerate() {
                    if i % 3 == 0 {
                        log.reserve(bytes.len() + 5).unwrap()[..bytes.len()].copy_from_slice(bytes);
                        log.commit(bytes.len()).unwrap();
                    } else {
                        log.append(bytes).unwrap();
                    }
                    if i % 200 == 0 {
                        log.sync_to(log.position()).unwrap();
                    }
                }
                let (end, stats) = (log.position().bytes(), log.stats());
                assert_eq!(stats.appends, 800);
                assert_eq!(log.close().unwrap().bytes(), end);
                let got = contents(dir.path());
                assert_eq!(got.len() as u64, end, "{mode:?} {framing:?} {roll_bytes}");
                match framing {
                    Framing::None => assert!(got == expected.concat(), "{mode:?} {roll_bytes}"),
                    Framing::Records => {
                        assert!(records(&got).eq(expected.iter().map(Vec::as_slice)), "{mode:?} {roll_bytes}")
                    }
                }
                let files = data_files(dir.path());
                assert_eq!(files.len() > 4, roll_bytes != 0, "{files:?}");
                assert!(roll_bytes == 0 || files.iter().all(|f| f.metadata().unwrap().len() <= roll_bytes));
            }
        }
    }
}

#[test]
fn reopening_continues_where_the_data_ended() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for round in 0..3u64 {
            let mut log = Options::new(&path).mode(mode).open().unwrap();
            assert_eq!(log.position().bytes(), round * 220 * 10);
            for i in 0..10 {
                log.append(&record(round * 10 + i, 220)).unwrap();
            }
            log.close().unwrap();
        }
        let expected: Vec<u8> = (0..30).flat_map(|i| record(i, 220)).collect();
        assert!(std::fs::read(&path).unwrap() == expected, "{mode:?}");
        assert_eq!(recover(&path).unwrap().evidence, Evidence::Length);
        assert!(matches!(Options::new(&path).existing(Existing::Refuse).open(), Err(OpenError::Exists { .. })));
        Options::new(&path).mode(mode).existing(Existing::Replace).open().unwrap().close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        assert_eq!(all_files(dir.path()), [path], "{mode:?}: something was left beside the file");
    }
}

#[test]
fn a_second_appender_is_kept_out_and_recovery_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = Options::new(&path).mode(Mode::Plain).open().unwrap();
    assert!(matches!(Options::new(&path).open(), Err(OpenError::Busy { .. })));
    assert!(matches!(recover(&path), Err(precursor::RecoverError::Busy { .. })));
    log.close().unwrap();
    Options::new(&path).open().unwrap().close().unwrap();
}

#[test]
fn a_full_ring_answers_as_the_policy_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut log =
        Options::new(&path).mode(Mode::Ring).ring_bytes(64 << 10).back_pressure(BackPressure::Fail).open().unwrap();
    let bytes = [7; 4000];
    let (mut full, mut accepted) = (0, 0u64);
    for _ in 0..200_000 {
        match log.append(&bytes) {
            Ok(_) => accepted += 1,
            Err(AppendError::Full { waiting_bytes }) => {
                assert!(waiting_bytes > 0);
                full += 1;
                if full > 3 {
                    break;
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(full > 0, "the ring was never full in 200 000 attempts");
    assert_eq!(log.position().bytes(), accepted * 4000);
    log.close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), accepted * 4000);

    let grow = BackPressure::Grow { bytes_max: 8 << 20 };
    let path = dir.path().join("grown");
    let mut log = Options::new(&path).mode(Mode::Ring).ring_bytes(64 << 10).back_pressure(grow).open().unwrap();
    for i in 0..50_000u64 {
        log.append(&record(i, 1000)).unwrap();
    }
    let stats = log.stats();
    log.close().unwrap();
    let expected: Vec<u8> = (0..50_000).flat_map(|i| record(i, 1000)).collect();
    assert!(std::fs::read(&path).unwrap() == expected, "after growing {} times", stats.grown);
}

#[test]
fn a_late_window_switches_to_its_ring_and_back() {
    let dir = tempfile::tempdir().unwrap();
    for (name, roll_bytes) in [("log", 0), ("rolled-{}", 2 << 20)] {
        let options = Options::new(dir.path().join(name)).mode(Mode::Window).roll_bytes(roll_bytes);
        let mut log = options.window_bytes(64 << 10).ring_bytes(256 << 10).memory_bytes_max(1 << 20).open().unwrap();
        let (mut i, mut back) = (0u64, false);
        let begun = std::time::Instant::now();
        // As fast as possible first; after the window was late, slowly, until the ring is empty.
        while !back && begun.elapsed().as_secs() < 60 {
            log.append(&record(i, 1000)).unwrap();
            i += 1;
            if log.stats().fallbacks > 0 && i > 20_000 {
                std::thread::sleep(std::time::Duration::from_micros(300));
                back = log.stats().flusher_lag_bytes == 0 && i > 22_000;
            }
            if i.is_multiple_of(5000) {
                assert!(log.sync_to(log.position()).unwrap().bytes() >= i * 1000);
            }
        }
        let stats = log.stats();
        assert!(stats.fallbacks > 0, "the window was never late in {i} attempts");
        log.close().unwrap();
        let expected: Vec<u8> = (0..i).flat_map(|i| record(i, 1000)).collect();
        assert!(contents(dir.path()) == expected, "after {} fallbacks", stats.fallbacks);
        for file in all_files(dir.path()) {
            std::fs::remove_file(file).unwrap();
        }
    }
}

#[test]
fn readers_that_must_see_each_byte_at_once_get_no_ring() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut log = Options::new(&path).mode(Mode::Window).readable_at_once(true).open().unwrap();
    assert!(log.reasons().iter().any(|r| r.contains("no ring to fall back on")), "{:?}", log.reasons());
    for i in 0..20_000u64 {
        let end = log.append(&record(i, 1000)).unwrap().bytes() as usize;
        if i.is_multiple_of(997) {
            assert!(std::fs::read(&path).unwrap()[end - 1000..end] == record(i, 1000));
        }
    }
    assert_eq!(log.stats().fallbacks, 0);
    log.close().unwrap();
}

#[test]
fn many_producers_keep_their_own_order_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = Options::new(dir.path().join("log-{}")).roll_bytes(1 << 20).ring_bytes(256 << 10).open_many().unwrap();
    std::thread::scope(|scope| {
        for producer in 0..4u64 {
            let log = log.clone();
            scope.spawn(move || {
                for i in 0..5_000u64 {
                    let mut bytes = producer.to_le_bytes().to_vec();
                    bytes.extend(i.to_le_bytes());
                    bytes.resize(16 + (i % 400) as usize, producer as u8);
                    let position = log.append(&bytes).unwrap();
                    if i % 1000 == 999 {
                        assert!(log.sync_to(position).unwrap().bytes() >= position.bytes());
                    }
                }
            });
        }
    });
    log.close().unwrap();
    let mut next = [0u64; 4];
    let mut files = 0;
    for path in data_files(dir.path()) {
        files += 1;
        let bytes = std::fs::read(path).unwrap();
        assert!(bytes.len() <= 1 << 20);
        for got in records(&bytes) {
            let producer = u64::from_le_bytes(got[..8].try_into().unwrap()) as usize;
            assert_eq!(u64::from_le_bytes(got[8..16].try_into().unwrap()), next[producer]);
            assert!(got[16..].iter().all(|b| usize::from(*b) == producer));
            next[producer] += 1;
        }
    }
    assert_eq!(next, [5_000; 4]);
    assert!(files > 3);
}

#[test]
fn a_record_that_is_too_long_is_refused_and_later_ones_are_appended() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log-{}");
        let mut log = Options::new(&path).mode(mode).roll_bytes(1 << 20).ring_bytes(64 << 10).open().unwrap();
        let refused = log.append(&vec![1; (1 << 20) + 1]);
        assert!(matches!(refused, Err(AppendError::TooLong { .. })), "{mode:?}: {refused:?}");
        assert!(matches!(log.commit(1), Err(AppendError::NotReserved { .. })));
        log.append(b"after").unwrap();
        log.close().unwrap();
        assert_eq!(contents(dir.path()), b"after");
    }
}

#[test]
fn contradictory_options_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    for (options, word) in [
        (Options::new(dir.path().join("log")).roll_bytes(1 << 20), "{}"),
        (Options::new(dir.path().join("log-{}")), "roll size"),
        (Options::new(dir.path().join("log-{}")).roll_bytes(1000), "multiple"),
        (Options::new(dir.path().join("no/such/folder/log")), "folder"),
    ] {
        let refusal = options.open().unwrap_err().to_string();
        assert!(refusal.contains(word), "{refusal}");
    }
    assert_eq!(all_files(dir.path()), [] as [PathBuf; 0]);
}

/// On any machine; in a container with its own /dev/shm, a ring would keep less than `write()`.
#[test]
fn auto_is_as_strong_as_write_unless_less_is_allowed() {
    for framing in [Framing::None, Framing::Records] {
        for at_once in [false, true] {
            let open = |name: &str, allowed| {
                let dir = tempfile::tempdir().unwrap();
                let options = Options::new(dir.path().join(name)).framing(framing).readable_at_once(at_once);
                (options.existing(Existing::Refuse).process_death_may_lose(allowed).open().unwrap(), dir)
            };
            let (mut log, dir) = open("strict", false);
            assert_eq!(log.survival().process_death, After::Append, "{:?}: {:?}", log.mode(), log.reasons());
            log.append(b"a record").unwrap();
            log.close().unwrap();
            assert!(std::fs::metadata(dir.path().join("strict")).unwrap().len() >= 8);
            let (log, _dir) = open("allowed", true);
            let by_name = if at_once { Mode::Window } else { Mode::Ring };
            assert_eq!(log.mode(), by_name, "{:?}", log.reasons());
            log.close().unwrap();
        }
    }
}

//! Files of format 1, which versions before 0.3 wrote, stay readable, and a header says what a file is.

use std::path::{Path, PathBuf};

use precursor::{Evidence, Existing, Framing, Mode, OpenError, Options, records, recover};

/// A file that version 0.2 wrote: records of these lengths, filled with their length.
const LENGTHS: [usize; 6] = [0, 1, 7, 8, 9, 220];

fn old_file() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/precursor_frames/format-1-whole");
    std::fs::read(path).unwrap()
}

fn old_records() -> Vec<Vec<u8>> {
    LENGTHS.iter().map(|len| vec![*len as u8; *len]).collect()
}

fn options(path: PathBuf) -> Options {
    Options::new(path).mode(Mode::Plain).framing(Framing::Records)
}

#[test]
fn a_file_of_format_1_is_read_and_recovered() {
    let file = old_file();
    assert!(records(&file).eq(old_records().iter().map(Vec::as_slice)));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("log"), &file).unwrap();
    let found = recover(dir.path().join("log")).unwrap();
    assert_eq!((found.len, found.evidence), (file.len() as u64, Evidence::Length));
    assert_eq!(std::fs::read(dir.path().join("log")).unwrap(), file);
}

#[test]
fn a_single_file_of_format_1_is_not_continued_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    std::fs::write(&path, old_file()).unwrap();
    let refused = options(path.clone()).open();
    assert!(matches!(&refused, Err(OpenError::Options { problem, .. }) if problem.contains("format 1")), "{refused:?}");
    assert_eq!(std::fs::read(&path).unwrap(), old_file());
    let mut log = options(path.clone()).existing(Existing::Replace).open().unwrap();
    log.append(b"new").unwrap();
    log.close().unwrap();
    assert!(records(&std::fs::read(&path).unwrap()).eq([b"new"]));
}

#[test]
fn a_pattern_continues_files_of_format_1_in_a_new_file() {
    for mode in [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain] {
        let dir = tempfile::tempdir().unwrap();
        let name = |seq: u64| dir.path().join(format!("log-{seq:08}"));
        std::fs::write(name(3), old_file()).unwrap();
        let open = || options(dir.path().join("log-{}")).mode(mode).roll_bytes(64 << 10).open().unwrap();
        let mut log = open();
        // The old file, its end mark and the new file's header.
        assert_eq!(log.position().bytes(), old_file().len() as u64 + 8 + 64, "{mode:?}");
        log.append(b"new").unwrap();
        let end = log.close().unwrap();
        let mut expected = old_records();
        expected.push(b"new".to_vec());
        let all = [std::fs::read(name(3)).unwrap(), std::fs::read(name(4)).unwrap()].concat();
        assert!(records(&all).eq(expected.iter().map(Vec::as_slice)), "{mode:?}");
        let log = open();
        assert_eq!(log.position().bytes(), end.bytes(), "{mode:?}");
        log.close().unwrap();
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Numbers of the records of a file of format 2, read without the library.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (mut at, mut found) = (64, Vec::new());
    while at + 8 <= bytes.len() {
        let low = word(bytes, at) as u32;
        let len = (low & 0x3fff_ffff) as usize;
        match low >> 30 {
            2 => {
                found.push(word(bytes, at + 8));
                at += (24 + len).next_multiple_of(8);
            }
            3 => at += (8 + len).next_multiple_of(8),
            _ => panic!("no frame at {at}"),
        }
    }
    found
}

/// Numbers continue over files, opens, kills of the helper and archived files.
#[test]
fn numbers_continue_from_file_to_file_and_from_open_to_open() {
    for mode in [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain] {
        let dir = tempfile::tempdir().unwrap();
        let open = || options(dir.path().join("log-{}")).mode(mode).roll_bytes(64 << 10).open().unwrap();
        let mut expected = 0;
        for round in 0..3u64 {
            let mut log = open();
            for _ in 0..300 {
                log.append(&[7; 500]).unwrap();
            }
            log.close().unwrap();
            let mut files: Vec<PathBuf> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
            files.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log-"));
            files.sort();
            let bytes: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
            for file in &bytes {
                assert_eq!(&file[..8], b"prcrsrF2");
                assert_eq!(word(file, 32), numbers(file)[0], "first number in the header");
            }
            let all: Vec<u64> = bytes.iter().flat_map(|file| numbers(file)).collect();
            let begin = all[0];
            assert_eq!(all, (begin..(round + 1) * 300).collect::<Vec<_>>(), "{mode:?} {round}");
            assert!(begin <= expected, "{mode:?} {round}");
            expected = (round + 1) * 300;
            // Archives all files, then, after the next round, all but the last.
            let kept = usize::from(round == 1);
            for file in &files[..files.len() - kept] {
                std::fs::remove_file(file).unwrap();
            }
        }
    }
}

/// The base in a header is the file's first position, and the time is when it was begun.
#[test]
fn a_header_has_the_position_and_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let log = options(dir.path().join("log-{}")).roll_bytes(16 << 10).times(true);
    let mut log = log.open().unwrap();
    for _ in 0..100 {
        log.append(&[7; 500]).unwrap();
    }
    log.close().unwrap();
    let after = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let (mut base, mut begun, mut appended) = (0, before, before);
    for seq in 0..3u64 {
        let file = std::fs::read(dir.path().join(format!("log-{seq:08}"))).unwrap();
        assert_eq!((word(&file, 16), word(&file, 24)), (seq, base));
        // The first record's time is taken before the roll that it causes.
        assert!((begun..=after).contains(&word(&file, 40)) && (appended..=after).contains(&word(&file, 64 + 16)));
        (begun, appended) = (word(&file, 40), word(&file, 64 + 16));
        base += file.len() as u64;
    }
}

//! `reserve`, `append` and `commit` in a wrong order or with wrong lengths: each returns an error and changes no byte
//! of the file.

use std::ffi::CString;

use precursor::c::{PRECURSOR_INVALID, PRECURSOR_OK, PRECURSOR_RING, PRECURSOR_TOO_LONG, precursor_options};
use precursor::c::{
    precursor_append, precursor_close, precursor_commit, precursor_open, precursor_options_default, precursor_reserve,
};
use precursor::{AppendError, Appender, Framing, Mode, Options, records};

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];
const FRAMINGS: [Framing; 2] = [Framing::None, Framing::Records];

/// Runs `work` with an appender of every mode and framing, then checks the closed files against the records that it
/// returns.
fn with_each(roll_bytes: u64, work: impl Fn(&mut Appender) -> Vec<Vec<u8>>) {
    for mode in MODES {
        for framing in FRAMINGS {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(if roll_bytes == 0 { "log" } else { "log-{}" });
            let options = Options::new(&path).mode(mode).framing(framing).roll_bytes(roll_bytes);
            let mut log = options.ring_bytes(64 << 10).memory_bytes_max(1 << 20).open().unwrap();
            let accepted = work(&mut log);
            let end = log.close().unwrap().bytes();
            let mut files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
            files.retain(|p| p.file_name().unwrap().to_str().unwrap().starts_with("log"));
            files.sort();
            let bytes: Vec<u8> = files.iter().flat_map(|p| std::fs::read(p).unwrap()).collect();
            assert_eq!(bytes.len() as u64, end, "{mode:?} {framing:?}");
            match framing {
                Framing::Records => {
                    assert!(records(&bytes).eq(accepted.iter().map(Vec::as_slice)), "{mode:?} {framing:?}");
                }
                Framing::None => assert!(bytes == accepted.concat(), "{mode:?} {framing:?}"),
            }
        }
    }
}

fn refused(log: &mut Appender, len: usize, reserved: usize) {
    let (before, stats) = (log.position(), log.stats().appends);
    match log.commit(len) {
        Err(AppendError::NotReserved { len: asked, reserved: left }) => assert_eq!((asked, left), (len, reserved)),
        other => panic!("{:?}: commit({len}) after a reservation of {reserved}: {other:?}", log.mode()),
    }
    assert_eq!((log.position(), log.stats().appends), (before, stats), "a refused commit changed something");
}

/// Repeated, this once moved the position beyond the ring's contents, and then beyond its mapping.
#[test]
fn an_append_drops_the_reservation_before_it() {
    with_each(0, |log| {
        for _ in 0..200 {
            log.reserve(1000).unwrap().fill(9);
            log.append(b"AAAA").unwrap();
            refused(log, 1000, 0);
        }
        vec![b"AAAA".to_vec(); 200]
    });
}

/// In a framed file even an empty commit stores a word.
#[test]
fn each_commit_needs_a_reservation() {
    with_each(0, |log| {
        refused(log, 0, 0);
        refused(log, 1, 0);
        log.reserve(10).unwrap().fill(1);
        refused(log, 11, 10);
        // The refusal has dropped the reservation.
        refused(log, 10, 0);
        log.reserve(10).unwrap().fill(2);
        log.commit(7).unwrap();
        refused(log, 0, 0);
        log.reserve(0).unwrap();
        log.commit(0).unwrap();
        log.reserve(100).unwrap().fill(3);
        log.reserve(5).unwrap().fill(4);
        refused(log, 100, 5);
        log.reserve(usize::MAX).unwrap_err();
        refused(log, 0, 0);
        vec![vec![2; 7], vec![]]
    });
}

/// A refused call leaves no reservation, even if there was one before.
#[test]
fn a_refused_call_drops_the_reservation_before_it() {
    with_each(0, |log| {
        let max = longest(log);
        if max <= 16 << 20 {
            log.reserve(10).unwrap().fill(1);
            assert!(matches!(log.append(&vec![0; max + 1]), Err(AppendError::TooLong { .. })));
            refused(log, 10, 0);
        }
        log.reserve(10).unwrap().fill(1);
        assert!(matches!(log.reserve(usize::MAX), Err(AppendError::TooLong { .. })));
        refused(log, 10, 0);
        vec![]
    });
}

/// The longest record, as reported by the appender.
fn longest(log: &mut Appender) -> usize {
    match log.reserve(usize::MAX) {
        Err(AppendError::TooLong { len: usize::MAX, max }) => max,
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_that_are_too_long_are_refused_whatever_is_free() {
    // 256 KiB is the smallest roll size that all modes take.
    for roll_bytes in [0, 256 << 10] {
        with_each(roll_bytes, |log| {
            let max = longest(log);
            if max > 16 << 20 {
                // `plain` and `prefetch` in a single file: only the frame's length field limits a record.
                assert_eq!((max, roll_bytes), ((1 << 30) - 1, 0));
                return vec![];
            }
            let (fits, over) = (vec![7; max], vec![8; max + 1]);
            let mut accepted = Vec::new();
            for _ in 0..5 {
                let before = log.position();
                assert!(matches!(log.append(&over), Err(AppendError::TooLong { max: m, .. }) if m == max));
                assert!(matches!(log.reserve(max + 1), Err(AppendError::TooLong { max: m, .. }) if m == max));
                assert_eq!(log.position(), before);
                log.append(&fits).unwrap();
                log.reserve(max).unwrap().fill(9);
                log.commit(max).unwrap();
                log.append(b"between").unwrap();
                accepted.extend([fits.clone(), vec![9; max], b"between".to_vec()]);
            }
            assert_eq!(longest(log), max);
            accepted
        });
    }
}

#[test]
fn records_that_are_too_long_are_refused_for_many_producers() {
    for roll_bytes in [0, 16 << 10] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(if roll_bytes == 0 { "log" } else { "log-{}" });
        let options = Options::new(path).mode(Mode::Ring).ring_bytes(64 << 10).roll_bytes(roll_bytes);
        let log = options.open_many().unwrap();
        let Err(AppendError::TooLong { max, .. }) = log.append(&[0; 64 << 10]) else {
            panic!("it is longer than the ring")
        };
        for _ in 0..5 {
            assert!(matches!(log.append(&vec![1; max + 1]), Err(AppendError::TooLong { max: m, .. }) if m == max));
            log.append(&vec![1; max]).unwrap();
        }
        log.close().unwrap();
    }
}

#[test]
fn misuse_of_reservations_in_c_returns_a_code() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let name = CString::new(path.to_str().unwrap()).unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: every pointer is to a local that outlives the call, or null where the interface allows it; `handle` is
    // open until `precursor_close` and used by this thread only. `usize::MAX` bytes are refused before they are read.
    unsafe {
        let mut options: precursor_options = std::mem::zeroed();
        assert_eq!(precursor_options_default(&raw mut options, size_of::<precursor_options>()), PRECURSOR_OK);
        (options.mode, options.ring_bytes) = (PRECURSOR_RING, 64 << 10);
        let mut handle = std::ptr::null_mut();
        assert_eq!(
            precursor_open(name.as_ptr(), &raw const options, &raw mut handle, std::ptr::null_mut(), 0),
            PRECURSOR_OK
        );
        let (bytes, mut at) = ([b'A'; 4], std::ptr::null_mut());
        for _ in 0..100 {
            assert_eq!(precursor_reserve(handle, 1000, &raw mut at), PRECURSOR_OK);
            assert_eq!(precursor_append(handle, bytes.as_ptr(), 4, null), PRECURSOR_OK);
            assert_eq!(precursor_commit(handle, 1000, null), PRECURSOR_INVALID);
        }
        assert_eq!(precursor_commit(handle, 0, null), PRECURSOR_INVALID);
        assert_eq!(precursor_reserve(handle, usize::MAX, &raw mut at), PRECURSOR_TOO_LONG);
        assert_eq!(precursor_reserve(handle, 70_000, &raw mut at), PRECURSOR_TOO_LONG);
        assert_eq!(precursor_commit(handle, usize::MAX, null), PRECURSOR_INVALID);
        assert_eq!(precursor_append(handle, bytes.as_ptr(), usize::MAX, null), PRECURSOR_INVALID);
        let long = vec![0u8; 70_000];
        assert_eq!(precursor_append(handle, long.as_ptr(), long.len(), null), PRECURSOR_TOO_LONG);
        assert_eq!(precursor_close(handle, std::ptr::null_mut(), 0), PRECURSOR_OK);
    }
    assert_eq!(std::fs::read(path).unwrap(), b"AAAA".repeat(100));
}

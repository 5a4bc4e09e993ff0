//! Closing while producers append, one of them between taking its place and publishing its record.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::ManyAppender;
use crate::claim::{self, Taken};
use crate::{AppendError, Options, frame, records, recover};

const HELD: &[u8] = b"the record of a producer that is descheduled";

fn open(dir: &Path, roll_bytes: u64) -> ManyAppender {
    let path = dir.join(if roll_bytes == 0 { "log" } else { "log-{}" });
    Options::new(path).mode(crate::Mode::Ring).ring_bytes(64 << 10).roll_bytes(roll_bytes).open_many().unwrap()
}

fn contents(dir: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log"));
    files.sort();
    files
        .iter()
        .flat_map(|path| records(&std::fs::read(path).unwrap()).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect()
}

/// Takes a place like a producer.
fn place(log: &ManyAppender, len: usize) -> u64 {
    let live = &log.core.live;
    match claim::take(&live.reserved.0, &live.freed.0, log.ring.capacity, frame::framed_len(len) as u64) {
        Taken::At(at) => at,
        other => panic!("{other:?}"),
    }
}

/// Appends numbered records until the appender is closed. Returns the number of accepted records.
fn append_until_closed(log: &ManyAppender, producer: u64) -> u64 {
    for i in 0u64.. {
        match log.append(&[producer.to_le_bytes(), i.to_le_bytes()].concat()) {
            Ok(_) => {}
            Err(AppendError::Failed { message, .. }) if message.contains("closed") => return i,
            Err(e) => panic!("{e}"),
        }
    }
    unreachable!("the loop has no end")
}

#[test]
fn close_waits_for_a_producer_that_has_taken_its_place() {
    for roll_bytes in [0, 16 << 10] {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path(), roll_bytes);
        log.append(b"first").unwrap();
        let at = place(&log, HELD.len());
        log.append(b"acknowledged").unwrap();
        let (ring, other) = (Arc::clone(&log.ring), log.clone());
        let closing = std::thread::spawn(move || log.close());
        let late = append_until_closed(&other, 7);
        // Longer than a nap of the flusher.
        std::thread::sleep(Duration::from_millis(20));
        assert!(!closing.is_finished(), "closed over a record that is being appended");
        // SAFETY: `at` was taken above for a record of this length, and is filled once.
        unsafe { claim::fill(&*ring, at, 0, HELD) };
        let end = closing.join().unwrap().unwrap();
        assert_eq!(other.syncer().position().bytes(), end.bytes());
        let found = contents(dir.path());
        assert_eq!(found[..3], [b"first".to_vec(), HELD.to_vec(), b"acknowledged".to_vec()]);
        assert_eq!(found.len() as u64, 3 + late);
    }
}

#[test]
fn close_keeps_every_record_that_was_acknowledged_and_no_other() {
    for round in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path(), [0, 64 << 10][round % 2]);
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let log = log.clone();
                std::thread::spawn(move || append_until_closed(&log, producer))
            })
            .collect();
        std::thread::sleep(Duration::from_micros(300 * round as u64));
        log.close().unwrap();
        let accepted: Vec<u64> = producers.into_iter().map(|producer| producer.join().unwrap()).collect();
        let mut next = [0u64; 4];
        for record in contents(dir.path()) {
            let (producer, i) = record.split_at(8);
            let producer = u64::from_le_bytes(producer.try_into().unwrap()) as usize;
            assert_eq!(u64::from_le_bytes(i.try_into().unwrap()), next[producer], "round {round}");
            next[producer] += 1;
        }
        assert_eq!(next.as_slice(), accepted, "round {round}");
    }
}

/// A thread that ended inside `append`: `close` returns an error, and the ring keeps the other records for recovery.
#[test]
fn close_gives_up_on_a_producer_that_never_runs_again() {
    let (dir, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let path = dir.path().join("log");
    let options = Options::new(&path).mode(crate::Mode::Ring).ring_bytes(64 << 10).shm_dir(shm.path().to_owned());
    let log = options.open_many().unwrap();
    log.append(b"first").unwrap();
    place(&log, HELD.len());
    log.append(b"behind").unwrap();
    let other = log.clone();
    let refusal = log.close().unwrap_err().to_string();
    assert!(refusal.contains("inside append"), "{refusal}");
    assert!(matches!(other.append(b"late"), Err(AppendError::Failed { what: "close", .. })));
    assert!(other.failure().is_some());
    recover(&path).unwrap();
    assert_eq!(contents(dir.path()), [b"first".to_vec(), b"behind".to_vec()]);
}

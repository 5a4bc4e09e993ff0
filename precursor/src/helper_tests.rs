//! Helper threads that panic: waiting callers get an error within a second, and the file can be recovered.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::{AppendError, Appender, BackPressure, Durability, Framing, Mode, Options, SyncError, recover};

const SECOND: Duration = Duration::from_secs(1);

/// Makes the next helper thread that takes a turn panic, and waits until it has.
fn doom(log: &Appender) {
    log.core.doomed.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    while log.core.doomed.load(Ordering::Relaxed) {
        log.core.wake_helper();
        log.threads.iter().for_each(|thread| thread.thread().unpark());
        assert!(begun.elapsed() < 10 * SECOND, "no helper took a turn");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Appends until an append fails. Returns the number of accepted bytes and the error.
fn until_refused(log: &mut Appender) -> (u64, AppendError) {
    let bytes = [5; 4000];
    let begun = Instant::now();
    loop {
        match log.append(&bytes) {
            Ok(_) => assert!(begun.elapsed() < 20 * SECOND, "appends still succeed after the panic"),
            Err(e) => return (log.position().bytes(), e),
        }
    }
}

fn fails(options: Options) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut log = Options { path: path.clone(), ..options }.open().unwrap();
    log.append(&[5; 4000]).unwrap();
    let syncer = log.syncer();
    doom(&log);
    let begun = Instant::now();
    let (accepted, refusal) = until_refused(&mut log);
    assert!(matches!(&refusal, AppendError::Failed { message, .. } if message.contains("panicked")), "{refusal}");
    assert!(begun.elapsed() < SECOND, "the writer waited {:?}", begun.elapsed());
    for _ in 0..2 {
        let begun = Instant::now();
        let refusal = syncer.sync_to(log.position()).unwrap_err();
        assert!(matches!(refusal, SyncError::Failed { .. }), "{refusal}");
        assert!(begun.elapsed() < SECOND, "a sync waited {:?}", begun.elapsed());
    }
    assert!(log.close().unwrap_err().to_string().contains("panicked"));
    recover(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, accepted);
    assert!(bytes.iter().all(|b| *b == 5));
}

#[test]
fn a_flusher_that_panics_fails_a_waiting_append_and_sync() {
    fails(Options::new("").mode(Mode::Ring).ring_bytes(64 << 10));
}

#[test]
fn a_preparing_thread_that_panics_fails_a_waiting_append_and_sync() {
    for mode in [Mode::Window, Mode::Prefetch] {
        fails(Options::new("").mode(mode).memory_bytes_max(1 << 20));
        fails(Options::new("").mode(mode).memory_bytes_max(1 << 20).readable_at_once(true));
    }
}

#[test]
fn a_syncing_or_growing_thread_that_panics_fails_the_appender() {
    fails(Options::new("").mode(Mode::Ring).ring_bytes(64 << 10).durability(Durability::Every(SECOND / 100)));
    fails(
        Options::new("").mode(Mode::Ring).ring_bytes(64 << 10).back_pressure(BackPressure::Grow { bytes_max: 1 << 20 }),
    );
}

/// Long before a ring is full: after a failure, no helper would bring an accepted record to the file.
#[test]
fn a_failure_reaches_the_next_append_while_there_is_room() {
    let refused = |answer: Result<crate::Position, AppendError>| {
        assert!(
            matches!(&answer, Err(AppendError::Failed { what: "write", message }) if message.contains("the device")),
            "{answer:?}"
        );
    };
    let fail = |core: &crate::core::Core| core.fail("write", &std::io::Error::other("the device is gone"));
    for mode in [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain] {
        let dir = tempfile::tempdir().unwrap();
        let shm = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut log = Options::new(dir.path().join("log")).mode(mode).shm_dir(shm.path().to_owned()).open().unwrap();
        log.append(b"accepted").unwrap();
        log.reserve(10).unwrap().fill(1);
        assert!(log.failure().is_none() && log.syncer().failure().is_none());
        fail(&log.core);
        refused(log.commit(10));
        refused(log.append(b"refused"));
        refused(log.reserve(10).map(|_| crate::Position(0)));
        assert_eq!(log.position().bytes(), 8, "{mode:?}");
        assert!(log.failure().is_some() && log.syncer().failure().is_some());
        log.close().unwrap_err();
    }
    let dir = tempfile::tempdir().unwrap();
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options::new(dir.path().join("log")).mode(Mode::Ring).shm_dir(shm.path().to_owned());
    let log = options.open_many().unwrap();
    log.append(b"accepted").unwrap();
    assert!(log.failure().is_none());
    fail(&log.syncer().core);
    refused(log.append(b"refused"));
    assert!(log.failure().is_some());
    log.close().unwrap_err();
}

/// A sync that is already waiting when the flusher panics.
#[test]
fn a_sync_that_waits_for_a_panicking_flusher_fails() {
    let dir = tempfile::tempdir().unwrap();
    // A failed appender leaves its shared memory, which this test does not recover; it is removed with its directory.
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options::new(dir.path().join("log")).ring_bytes(64 << 10).shm_dir(shm.path().to_owned());
    let log = options.open_many().unwrap();
    let syncer = log.syncer();
    log.append(&[1; 1000]).unwrap();
    // A place that is never filled: the flusher cannot pass it.
    let held = syncer.core.live.reserved.0.fetch_add(64, Ordering::AcqRel) + 64;
    let waiting = std::thread::spawn(move || {
        let refusal = syncer.sync_to(crate::Position(held)).unwrap_err();
        (refusal, Instant::now())
    });
    std::thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    log.syncer().core.doomed.store(true, Ordering::Relaxed);
    let (refusal, at) = waiting.join().unwrap();
    assert!(refusal.to_string().contains("panicked"), "{refusal}");
    assert!(at.duration_since(begun) < SECOND);
    let refusal = loop {
        match log.append(&[1; 4000]) {
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    assert!(matches!(refusal, AppendError::Failed { .. }), "{refusal}");
    log.close().unwrap_err();
}

#[test]
fn framing_is_checked_in_every_file() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("log-{}");
    let open = |framing| Options::new(&pattern).mode(Mode::Plain).framing(framing).roll_bytes(1 << 20).open();
    // The first file has an odd length, then a length of whole frames without any; the last file is empty both times.
    std::fs::write(dir.path().join("log-00000000"), b"odd").unwrap();
    std::fs::write(dir.path().join("log-00000001"), b"").unwrap();
    assert!(open(Framing::Records).unwrap_err().to_string().contains("log-00000000"));
    std::fs::write(dir.path().join("log-00000000"), [7; 64]).unwrap();
    assert!(open(Framing::Records).unwrap_err().to_string().contains("not whole frames"));
    let mut log = open(Framing::None).unwrap();
    log.append(b"odd again").unwrap();
    log.close().unwrap();
    std::fs::remove_file(dir.path().join("log-00000000")).unwrap();
    std::fs::remove_file(dir.path().join("log-00000001")).unwrap();
    let mut log = open(Framing::Records).unwrap();
    log.append(b"framed").unwrap();
    log.close().unwrap();
    open(Framing::Records).unwrap().close().unwrap();
}

/// No thread of the library runs after `close`, so that the program may unload it.
#[test]
fn no_thread_outlives_close() {
    let alive = || -> Vec<String> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("precursor-") && name.contains("behin")).collect()
    };
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Options::new(dir.path().join("log")).mode(Mode::Window).open().unwrap();
        // Appenders of other tests have such threads too; only this appender's must be gone.
        let name = log.core.stem.clone();
        for _ in 0..4000 {
            log.append(&[1; 1000]).unwrap();
        }
        let core = std::sync::Arc::downgrade(&log.core);
        log.close().unwrap();
        assert!(core.upgrade().is_none(), "a thread still holds the appender {name}; {:?}", alive());
    }
}

//! Syncs, directories and blocks that a file system refuses. The errors are injected where no local file system returns
//! them on demand.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::{Left, lock};
use crate::helper::{map_file, populate};
use crate::own::OwnFile;
use crate::{AppendError, Appender, BackPressure, Framing, Mode, Options, Position, SyncError, recover};

const ROLL_BYTES: u64 = 4096;

/// A directory for data and one for shared memory.
struct Home(tempfile::TempDir, tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap())
    }

    fn options(&self, name: &str) -> Options {
        Options::new(self.0.path().join(name)).ring_bytes(64 << 10).shm_dir(self.1.path().to_owned())
    }
}

/// Appends whole files until an append fails.
fn until_refused(log: &mut Appender) -> AppendError {
    for _ in 0..10_000 {
        if let Err(refusal) = log.append(&[5; ROLL_BYTES as usize]) {
            return refusal;
        }
        log.core.wake_helper();
    }
    panic!("10,000 appends succeeded");
}

/// The kernel reports a failed write-back once; nothing may report a later position as durable.
fn is_failed_for_good(mut log: Appender, refusal: &AppendError) {
    let durable = log.stats().durable;
    for _ in 0..3 {
        assert!(matches!(log.append(b"x"), Err(AppendError::Failed { .. })), "{refusal}");
        let synced = log.sync_to(log.position());
        assert!(matches!(synced, Err(SyncError::Failed { durable: last, .. }) if last == durable), "{synced:?}");
    }
    assert!(log.failure().is_some());
    log.close().unwrap_err();
}

/// ENOSPC of a sync means that pages could not be written; it does not end when there is space again.
#[test]
fn a_roll_whose_sync_of_an_old_file_fails_is_a_failure_whatever_the_error() {
    for mode in [Mode::Plain, Mode::Ring] {
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::EIO] {
            let home = Home::new();
            let mut log = home.options("log-{}").mode(mode).roll_bytes(ROLL_BYTES).open().unwrap();
            let oldest = loop {
                log.append(&[5; ROLL_BYTES as usize]).unwrap();
                if let Some(left) = lock(&log.core.files).older.first() {
                    break Arc::clone(&left.file);
                }
            };
            oldest.sync_error.store(errno, Ordering::Relaxed);
            let refusal = until_refused(&mut log);
            assert!(matches!(refusal, AppendError::Failed { .. }), "{mode:?}: {refusal}");
            assert_eq!(oldest.sync_error.load(Ordering::Relaxed), 0, "{mode:?}: the roll has not synced the file");
            is_failed_for_good(log, &refusal);
            recover(home.0.path().join("log-{}")).unwrap();
        }
    }
}

#[test]
fn a_file_whose_name_could_not_be_made_durable_is_never_reported_as_durable() {
    for mode in [Mode::Plain, Mode::Prefetch, Mode::Window, Mode::Ring] {
        let home = Home::new();
        let mut log = home.options("log-{}").mode(mode).roll_bytes(ROLL_BYTES).open().unwrap();
        log.core.names.dir().fail_sync(libc::ENOSPC);
        let refusal = until_refused(&mut log);
        assert!(matches!(refusal, AppendError::Failed { .. }), "{mode:?}: {refusal}");
        is_failed_for_good(log, &refusal);
    }
}

fn run(program: &str, args: &[&str]) -> std::io::Result<()> {
    let done = Command::new(program).args(args).output()?;
    if done.status.success() { Ok(()) } else { Err(std::io::Error::other(String::from_utf8_lossy(&done.stderr))) }
}

/// Unmounts on drop.
struct Mount(String);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = run("umount", &[&self.0]);
    }
}

fn mounted(dir: &Path, args: &[&str]) -> Option<Mount> {
    let at = dir.display().to_string();
    match run("mount", &[args, &[&at]].concat()) {
        Ok(()) => Some(Mount(at)),
        Err(e) => {
            needs::skip(needs::Need::Root, "refused_tests", e);
            None
        }
    }
}

/// On a read-only ext4, fsync succeeds without writing. Here the file is reached through a read-only mount, whose flag
/// statfs reports in the same way.
#[test]
fn a_sync_on_a_read_only_file_system_is_a_failure() {
    let (home, view) = (Home::new(), tempfile::tempdir().unwrap());
    let mut log = home.options("log").mode(Mode::Plain).open().unwrap();
    std::fs::write(home.0.path().join("left"), b"left").unwrap();
    let source = home.0.path().display().to_string();
    let Some(_mount) = mounted(view.path(), &["--bind", &source]) else { return };
    run("mount", &["-o", "remount,bind,ro", &view.path().display().to_string()]).unwrap();
    let position = log.append(b"a record").unwrap();
    assert_eq!(log.sync_to(position).unwrap().bytes(), 8);
    let read_only = std::fs::File::open(view.path().join("left")).unwrap();
    read_only.sync_all().expect("the kernel reports no error");
    let left = Left { seq: 0, file: Arc::new(OwnFile::new(read_only).unwrap()) };
    lock(&log.core.files).older.push(left);
    let position = log.append(b"another").unwrap();
    let refusal = log.sync_to(position).unwrap_err();
    assert!(refusal.to_string().contains("Read-only"), "{refusal}");
    is_failed_for_good(log, &AppendError::Forked);
}

/// The kernel answers EFAULT when the file system has no block for a page.
#[test]
fn a_page_without_a_block_is_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = mounted(dir.path(), &["-t", "tmpfs", "-o", "size=64k", "none"]) else { return };
    let open = |name| std::fs::File::options().read(true).write(true).create_new(true).open(dir.path().join(name));
    let (sparse, fill) = (open("sparse").unwrap(), open("fill").unwrap());
    sparse.set_len(64 << 10).unwrap();
    let map = map_file(&sparse, 64 << 10).unwrap();
    let sparse = OwnFile::new(sparse).unwrap();
    populate(&map, &sparse, 0, 16 << 10).unwrap();
    fill.write_all_at(&[1; 48 << 10], 0).unwrap();
    let refusal = populate(&map, &sparse, 16 << 10, 16 << 10).unwrap_err();
    assert!(crate::space::is_full(&refusal), "{refusal}");
    // A page beyond the end of the file is not a matter of space.
    std::fs::remove_file(dir.path().join("fill")).unwrap();
    drop(fill);
    sparse.set_len(16 << 10).unwrap();
    let refusal = populate(&map, &sparse, 32 << 10, 16 << 10).unwrap_err();
    assert!(!crate::space::is_full(&refusal) && refusal.to_string().contains("SIGBUS"), "{refusal}");
}

/// In `plain`, a file that is left must be no longer than its data.
#[test]
fn a_roll_cuts_off_the_bytes_of_a_short_write() {
    for framing in [Framing::None, Framing::Records] {
        let (dir, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let Some(_mount) = mounted(dir.path(), &["-t", "tmpfs", "-o", "size=256k", "none"]) else { return };
        let options = Options::new(dir.path().join("log-{}")).mode(Mode::Plain).framing(framing);
        let mut log = options.roll_bytes(64 << 10).shm_dir(shm.path().to_owned()).open().unwrap();
        log.append(&[1; 20_000]).unwrap();
        let fill = std::fs::File::create(dir.path().join("fill")).unwrap();
        let left = rustix::fs::statvfs(dir.path()).unwrap();
        fill.write_all_at(&vec![7; ((left.f_bavail - 3) * left.f_bsize) as usize], 0).unwrap();
        // Three pages of this record are written.
        let refusal = log.append(&[2; 30_000]).unwrap_err();
        assert!(matches!(refusal, AppendError::OutOfSpace { .. }), "{refusal}");
        assert!(std::fs::metadata(dir.path().join("log-00000000")).unwrap().len() > 30_000, "no short write");
        std::fs::remove_file(dir.path().join("fill")).unwrap();
        drop(fill);
        let end = log.position().bytes();
        log.append(&[3; 50_000]).unwrap();
        let mark = if framing == Framing::Records { crate::frame::END_MARK_LEN as u64 } else { 0 };
        assert_eq!(std::fs::metadata(dir.path().join("log-00000000")).unwrap().len(), end + mark, "{framing:?}");
        log.close().unwrap();
    }
}

/// Unframed files of an odd length were archived; frames begin at multiples of 8 all the same, and recovery reads them.
#[test]
fn frames_are_aligned_behind_archived_unframed_files() {
    for mode in [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain] {
        let home = Home::new();
        let path = home.0.path().join("log-{}");
        let options = || home.options("log-{}").roll_bytes(64 << 10);
        let mut log = options().mode(Mode::Plain).open().unwrap();
        log.append(b"thirteen odd.").unwrap();
        log.close().unwrap();
        std::fs::remove_file(home.0.path().join("log-00000000")).unwrap();
        let mut log = options().mode(mode).framing(Framing::Records).open().unwrap();
        assert_eq!(log.position(), Position(16 + crate::frame::FILE_HEADER_LEN as u64), "{mode:?}");
        log.append(b"framed").unwrap();
        log.core.fail("write", &std::io::Error::other("the test makes it fail"));
        log.close().unwrap_err();
        recover(&path).unwrap();
        let bytes = std::fs::read(home.0.path().join("log-00000001")).unwrap();
        assert!(crate::records(&bytes).eq([b"framed"]), "{mode:?}");
    }
    let home = Home::new();
    let options = || home.options("log-{}").roll_bytes(64 << 10);
    let mut log = options().mode(Mode::Plain).open().unwrap();
    log.append(b"thirteen odd.").unwrap();
    log.close().unwrap();
    std::fs::remove_file(home.0.path().join("log-00000000")).unwrap();
    let log = options().open_many().unwrap();
    for _ in 0..10 {
        log.append(b"one of many").unwrap();
    }
    log.syncer().core.fail("write", &std::io::Error::other("the test makes it fail"));
    log.close().unwrap_err();
    recover(home.0.path().join("log-{}")).unwrap();
    let bytes = std::fs::read(home.0.path().join("log-00000001")).unwrap();
    assert_eq!(crate::records(&bytes).count(), 10);
}

/// A sync that waits for a stuck producer holds the sidecar's lock until the appender closes.
#[test]
fn dropping_an_appender_does_not_wait_for_a_sync() {
    let home = Home::new();
    let log = home.options("log").open_many().unwrap();
    let syncer = log.syncer();
    let stuck = syncer.core.live.reserved.0.fetch_add(64, Ordering::AcqRel) + 64;
    let waiting = std::thread::spawn(move || syncer.sync_to(Position(stuck)));
    while log.syncer().core.sidecar.try_lock().is_ok() {
        std::thread::yield_now();
    }
    let (done, dropped) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(log);
        done.send(()).unwrap();
    });
    // `close` gives the producer 2 s; with the fault, this never ends.
    dropped.recv_timeout(std::time::Duration::from_secs(60)).expect("the drop ends");
    assert!(waiting.join().unwrap().is_err());
}

/// The counters of two CPUs may differ by less than a call takes, or by more.
#[test]
fn an_append_that_ends_before_it_began_is_not_the_longest() {
    let home = Home::new();
    let mut log = home.options("log").mode(Mode::Ring).back_pressure(BackPressure::Wait).open().unwrap();
    log.append(b"x").unwrap();
    let begun = log.timer.ticks() + (1 << 40);
    log.publish(0, begun);
    let worst = log.stats().worst_append_ns.unwrap();
    assert!(worst < 1 << 40, "{worst} ns");
    log.close().unwrap();
}

#[test]
fn a_cpu_or_node_that_the_machine_lacks_is_refused() {
    let home = Home::new();
    for options in [home.options("log").helper_cpu(1 << 20), home.options("log").node(1 << 20)] {
        let refusal = options.mode(Mode::Ring).open().unwrap_err();
        assert!(matches!(refusal, crate::OpenError::Options { .. }), "{refusal}");
    }
    let log = home.options("log").mode(Mode::Ring).helper_cpu(0).node(0).open().unwrap();
    assert!(log.reasons().iter().any(|reason| reason.contains("on CPU 0")), "{:?}", log.reasons());
    log.close().unwrap();
}

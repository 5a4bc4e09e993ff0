//! One file has one appender under all its names: the sidecar's lock goes by name, the lock on the data by inode.

use std::os::fd::AsRawFd;
use std::path::Path;

use crate::volume::output_of;
use crate::writer::{Case, Living};
use precursor::{Appender, Framing, Mode, OpenError, Options, RecoverError, recover};

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];

fn open(path: &Path, mode: Mode) -> Result<Appender, OpenError> {
    let roll_bytes = if path.to_str().unwrap().contains("{}") { 1 << 20 } else { 0 };
    Options::new(path).mode(mode).roll_bytes(roll_bytes).memory_bytes_max(2 << 20).open()
}

/// While `first` is open, `second` is refused; afterwards it can be opened.
fn one_at_a_time(first: &Path, second: &Path) {
    for mode in MODES {
        let mut log = open(first, mode).unwrap();
        log.append(b"ours").unwrap();
        let end = log.sync_to(log.position()).unwrap().bytes();
        for other in MODES {
            assert!(matches!(open(second, other), Err(OpenError::Busy { .. })), "{mode:?} {other:?}");
        }
        log.append(b"ours").unwrap();
        let syncer = log.syncer();
        assert_eq!(log.close().unwrap().bytes(), end + 4);
        // A syncer that outlives the appender keeps no lock.
        let mut log = open(second, mode).unwrap();
        log.append(b"ours").unwrap();
        log.close().unwrap();
        drop(syncer);
    }
}

/// Another process is refused, with the reason and the ways that work; after the first process's death it may write.
#[test]
fn a_second_process_is_refused_and_learns_what_to_do() {
    let case = Case { framed: true, ..Case::default() };
    let dir = tempfile::tempdir().unwrap();
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    std::os::unix::fs::symlink(shm.path(), dir.path().join("shm")).unwrap();
    let mut living = Living::start(case, dir.path());
    living.opened();
    let options = || Options::new(case.path(dir.path())).framing(Framing::Records).shm_dir(dir.path().join("shm"));
    for refused in [options().open().err(), options().open_many().err()] {
        let refused = refused.expect("the other process holds the file");
        assert!(matches!(refused, OpenError::Busy { .. }), "{refused}");
        let message = refused.to_string();
        assert!(message.contains("one writing process") && message.contains("open_many"), "{message}");
    }
    living.kill();
    let mut log = options().open().unwrap();
    log.append(b"ours now").unwrap();
    log.close().unwrap();
}

#[test]
fn a_pattern_and_a_name_of_one_file_have_one_appender() {
    let dir = tempfile::tempdir().unwrap();
    let (pattern, name) = (dir.path().join("log-{}"), dir.path().join("log-00000000"));
    one_at_a_time(&pattern, &name);
    one_at_a_time(&name, &pattern);
    let bytes = std::fs::read(&name).unwrap();
    assert!(bytes.len() == 2 * 4 * 12 && bytes.chunks(4).all(|record| record == b"ours"), "{} bytes", bytes.len());
}

/// Needs root for a bind mount.
#[test]
fn a_file_that_is_mounted_elsewhere_has_one_appender() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("log"), dir.path().join("elsewhere/log"));
    std::fs::create_dir(second.parent().unwrap()).unwrap();
    for path in [&first, &second] {
        std::fs::write(path, b"").unwrap();
    }
    let (from, to) = (first.display().to_string(), second.display().to_string());
    if let Err(e) = output_of("mount", &["--bind", &from, &to]) {
        return needs::skip(needs::Need::Root, "same_file", e);
    }
    let tried = std::panic::catch_unwind(|| one_at_a_time(&first, &second));
    output_of("umount", &[&to]).unwrap();
    tried.unwrap();
}

/// The writer of one name is dead while another appender has the file open: recovery would cut that appender's data.
#[test]
fn recovery_keeps_off_a_file_that_is_open_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let (pattern, name) = (dir.path().join("log-{}"), dir.path().join("log-00000000"));
    let mut dead = open(&name, Mode::Window).unwrap();
    dead.append(b"dead").unwrap();
    dead.sync_to(dead.position()).unwrap();
    // As after a death: the sidecar exists, and its lock is free.
    let side = dir.path().join(".log-00000000.precursor");
    let kept = std::fs::read(&side).unwrap();
    dead.close().unwrap();
    let mut log = open(&pattern, Mode::Window).unwrap();
    log.append(b"ours").unwrap();
    std::fs::write(&side, kept).unwrap();
    std::fs::set_permissions(&side, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(matches!(recover(&name), Err(RecoverError::Busy { .. })));
    assert!(matches!(open(&name, Mode::Plain), Err(OpenError::Busy { .. })));
    log.append(b"ours").unwrap();
    log.close().unwrap();
    assert_eq!(std::fs::read(&name).unwrap(), b"deadoursours");
}

/// A reader can lock the file with a read lock, or as a whole with `flock`. Neither excludes an appender.
/// Opens the file and locks the byte that an appender locks, as a user may who can write to the file.
fn lock_as_an_appender(path: &Path) -> std::fs::File {
    let file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    // SAFETY: the descriptor is open, an all-zero flock is valid, and `lock` outlives the call.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        (lock.l_type, lock.l_whence) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
        (lock.l_start, lock.l_len) = (libc::off_t::MAX - 1, 1);
        assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock), 0);
    }
    file
}

#[test]
fn a_user_who_locks_a_data_file_makes_it_busy_and_loses_no_record() {
    let dir = tempfile::tempdir().unwrap();
    for mode in MODES {
        let path = dir.path().join(format!("{mode:?}"));
        let locked = lock_as_an_appender(&path);
        let refused = Options::new(&path).mode(mode).open().unwrap_err();
        assert!(matches!(refused, OpenError::Busy { .. }), "{mode:?}: {refused}");
        drop(locked);
        open(&path, mode).unwrap().close().unwrap();
    }
    let mut log = Options::new(dir.path().join("roll-{}")).mode(Mode::Plain).roll_bytes(4096).open().unwrap();
    let _locked = lock_as_an_appender(&dir.path().join("roll-00000001"));
    let appended = (0..100).take_while(|_| log.append(&[7; 100]).is_ok()).count();
    assert!(appended < 100, "it rolled into a file that another one has locked");
    drop(log);
    assert_eq!(std::fs::read(dir.path().join("roll-00000001")).unwrap(), b"");
    let kept = std::fs::read(dir.path().join("roll-00000000")).unwrap();
    assert!(kept.len() >= appended * 100 && kept[..appended * 100].iter().all(|byte| *byte == 7));
}

#[test]
fn a_reader_that_locks_the_file_keeps_no_appender_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    std::fs::write(&path, b"").unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    // SAFETY: the descriptor is open, an all-zero flock is valid, and `lock` outlives the call.
    unsafe {
        assert_eq!(libc::flock(reader.as_raw_fd(), libc::LOCK_EX), 0);
        let mut lock: libc::flock = std::mem::zeroed();
        (lock.l_type, lock.l_whence) = (libc::F_RDLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
        assert_eq!(libc::fcntl(reader.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock), 0);
    }
    for mode in MODES {
        let mut log = open(&path, mode).unwrap();
        log.append(b"ours").unwrap();
        log.close().unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"ours".repeat(4));
}

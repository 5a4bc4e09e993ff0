//! Forked children can neither use nor damage an inherited appender, and do not keep its locks.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use crate::alone::alone;
use precursor::{AppendError, Appender, Evidence, Mode, Options, RecoverError, SyncError, recover};

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];

/// Forks; the child runs `work` and exits with its result. Returns the child's exit status.
fn in_child(work: impl FnOnce() -> i32) -> std::process::ExitStatus {
    // SAFETY: the child takes no lock that another thread may hold, except the allocator's, which glibc releases at
    // fork, and ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
            // SAFETY: `_exit` ends the child without running destructors or handlers of the parent.
            unsafe { libc::_exit(code) }
        }
        pid => {
            assert!(pid > 0);
            let mut status = 0;
            // SAFETY: `status` is a local that outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            std::process::ExitStatus::from_raw(status)
        }
    }
}

/// Tries every call that a child can make. Returns the number of the first wrong result, or 0.
fn try_everything(mut log: Appender) -> i32 {
    let position = log.position();
    let syncer = log.syncer();
    if !matches!(log.append(b"from the child"), Err(AppendError::Forked)) {
        return 1;
    }
    if !matches!(log.reserve(10), Err(AppendError::Forked)) || !matches!(log.commit(0), Err(AppendError::Forked)) {
        return 2;
    }
    if !matches!(log.sync_to(position), Err(SyncError::Forked))
        || !matches!(syncer.sync_to(position), Err(SyncError::Forked))
    {
        return 3;
    }
    let (seen, stats) = (syncer.position(), log.stats());
    if stats.durable != seen.bytes() {
        return 4;
    }
    // Memory that is mapped at the address of the parent's must not be unmapped.
    if !matches!(log.close(), Err(SyncError::Forked)) {
        return 5;
    }
    drop(syncer);
    0
}

#[test]
fn a_child_is_refused_and_the_parent_continues() {
    // Alone, because a child would keep the files of other tests open.
    if !alone("forked::a_child_is_refused_and_the_parent_continues") {
        return;
    }
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Options::new(&path).mode(mode).open().unwrap();
        for _ in 0..100 {
            log.append(&[1; 1000]).unwrap();
        }
        // The child takes its copy of the handle by value; the parent's stays in place.
        let copy = std::mem::ManuallyDrop::new(log);
        let status = in_child(|| {
            // SAFETY: in the child, this is the only use of the copy, which `ManuallyDrop` does not drop.
            try_everything(unsafe { std::ptr::read(&*copy) })
        });
        assert_eq!(status.code(), Some(0), "{mode:?}: {status:?}");
        let mut log = std::mem::ManuallyDrop::into_inner(copy);
        for _ in 0..100 {
            log.append(&[2; 1000]).unwrap();
        }
        assert!(log.sync_to(log.position()).unwrap().bytes() == 200_000);
        log.close().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[..100_000].iter().all(|b| *b == 1) && bytes[100_000..].iter().all(|b| *b == 2), "{mode:?}");
        assert_eq!(bytes.len(), 200_000);
    }
}

/// Runs in another process: opens, forks a child that only sleeps, and is killed.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("PRECURSOR_FORKED_DIR").map(std::path::PathBuf::from) else { return };
    let mode = Mode::from_name(&std::env::var("PRECURSOR_FORKED_MODE").unwrap()).unwrap();
    let mut log = Options::new(dir.join("log")).mode(mode).open().unwrap();
    for _ in 0..100 {
        log.append(&[3; 1000]).unwrap();
    }
    // SAFETY: the child only sleeps and calls `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            std::thread::sleep(Duration::from_secs(60));
            // SAFETY: `_exit` ends the child without running destructors or handlers of the parent.
            unsafe { libc::_exit(0) }
        }
        pid => println!("forked {pid}."),
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn a_sleeping_child_keeps_no_lock() {
    use std::io::BufRead;
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "forked::child", "--nocapture", "--test-threads=1"])
            .env("PRECURSOR_FORKED_DIR", dir.path())
            .env("PRECURSOR_FORKED_MODE", mode.name())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(parent.stdout.take().unwrap()).lines();
        let pid: i32 = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("forked ")?.1.strip_suffix('.')?.parse().ok())
            .expect("it forks");
        parent.kill().unwrap();
        parent.wait().unwrap();
        let begun = Instant::now();
        // SAFETY: signal 0 only checks for existence; `pid` is the child made above.
        assert_eq!(unsafe { libc::kill(pid, 0) }, 0, "the child lives");
        // The child may have just been created: it releases the lock before `fork` returns there.
        let found = loop {
            match recover(dir.path().join("log")) {
                Err(RecoverError::Busy { .. }) if begun.elapsed() < Duration::from_secs(5) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                found => break found.map(|found| (found.evidence, found.len)),
            }
        };
        let opened = Options::new(dir.path().join("log")).mode(mode).open().map(|log| log.position().bytes());
        // SAFETY: `pid` is the child made above, which sleeps.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        assert_eq!(found.unwrap(), (Evidence::Live, 100_000), "{mode:?}");
        assert_eq!(opened.unwrap(), 100_000);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

/// As `closefrom(3)`, called by a program that does not know the library's descriptors.
fn close_all_files() {
    for fd in 3..256 {
        // SAFETY: a plain number. This test gives up every descriptor from 3 on; the appenders that own some are not
        // used again.
        unsafe { libc::close(fd) };
    }
}

/// Device and inode of each open descriptor below 64.
fn open_files() -> Vec<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;
    let look = |fd| std::fs::metadata(format!("/proc/self/fd/{fd}")).ok().map(|m| (m.dev(), m.ino()));
    (0..64).map(look).collect()
}

/// A daemon closes descriptors that it did not open, and then opens its own files under the same numbers.
#[test]
fn a_child_keeps_the_files_that_took_the_place_of_closed_ones() {
    if !alone("forked::a_child_keeps_the_files_that_took_the_place_of_closed_ones") {
        return;
    }
    let (dir, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let open = |name: &str| {
        Options::new(dir.path().join(name)).mode(Mode::Ring).shm_dir(shm.path().to_owned()).open().unwrap()
    };
    // Once after a closed appender, and once with an open one.
    open("first").close().unwrap();
    for still_open in [false, true] {
        let log = still_open.then(|| std::mem::ManuallyDrop::new(open("second")));
        close_all_files();
        let own: Vec<std::fs::File> =
            (0..40).map(|i| std::fs::File::create(dir.path().join(format!("own-{still_open}-{i}"))).unwrap()).collect();
        let before = open_files();
        assert!(before[3..43].iter().all(Option::is_some));
        let later = open("third");
        let own_numbers = before.len();
        let status = in_child(|| {
            let after = open_files();
            let changed = (3..own_numbers).find(|fd| match before[*fd] {
                Some(own) => after[*fd] != Some(own),
                None => after[*fd].is_some() && before.contains(&after[*fd]),
            });
            changed.map_or(0, |fd| fd as i32)
        });
        assert_eq!(
            status.code(),
            Some(0),
            "with an appender open: {still_open}; the number of a file that the child lost or got"
        );
        later.close().unwrap();
        drop((own, log));
    }
}

/// At the limit of open files the child must still release its copy of the lock.
#[test]
fn a_child_that_may_open_no_file_keeps_no_lock() {
    if !alone("forked::a_child_that_may_open_no_file_keeps_no_lock") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = Options::new(&path).mode(Mode::Plain).open().unwrap();
    // SAFETY: the pointers are to locals that outlive the calls, an all-zero rlimit is valid, and the child only sleeps
    // and exits.
    let pid = unsafe {
        let mut was: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut was), 0);
        let full = libc::rlimit { rlim_cur: 3, ..was };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const full), 0);
        let pid = libc::fork();
        if pid == 0 {
            std::thread::sleep(Duration::from_secs(60));
            libc::_exit(0);
        }
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const was), 0);
        pid
    };
    log.close().unwrap();
    let opened = Options::new(&path).mode(Mode::Plain).open().map(|log| log.close().is_ok());
    // SAFETY: `pid` is the child made above, which sleeps.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    assert!(opened.unwrap());
}

//! fork: a child can neither use nor harm what it inherited, and keeps no lock of it.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use crate::alone::alone;
use precursor::{AppendError, Appender, Evidence, Mode, Options, RecoverError, SyncError, recover};

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];

/// Forks; the child does the work and ends with its answer. Returns what `waitpid` says.
fn in_child(work: impl FnOnce() -> i32) -> std::process::ExitStatus {
    // SAFETY: the child calls nothing that another thread of this process could hold a lock of, but the allocator's, which glibc
    // settles at fork; it ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(code) }
        }
        pid => {
            assert!(pid > 0);
            let mut status = 0;
            // SAFETY: an out-pointer to a local.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            std::process::ExitStatus::from_raw(status)
        }
    }
}

/// Everything a child may try; the number of the first answer that is wrong, or 0.
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
    // What is mapped where the parent's memory was is the child's own, and stays.
    if !matches!(log.close(), Err(SyncError::Forked)) {
        return 5;
    }
    drop(syncer);
    0
}

#[test]
fn a_child_is_refused_and_the_parent_goes_on() {
    // A child of a process that runs other tests would keep their files open.
    if !alone("forked::a_child_is_refused_and_the_parent_goes_on") {
        return;
    }
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Options::new(&path).mode(mode).open().unwrap();
        for _ in 0..100 {
            log.append(&[1; 1000]).unwrap();
        }
        // The child gets a copy of the handle, whose parts are shared with nobody; the parent's is forgotten there.
        let copy = std::mem::ManuallyDrop::new(log);
        let status = in_child(|| {
            // SAFETY: this process's only use of its copy; the parent's lives on in the parent.
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

/// The test binary again: opens, forks a child that only exists, and is killed.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("PRECURSOR_FORKED_DIR").map(std::path::PathBuf::from) else { return };
    let mode = Mode::from_name(&std::env::var("PRECURSOR_FORKED_MODE").unwrap()).unwrap();
    let mut log = Options::new(dir.join("log")).mode(mode).open().unwrap();
    for _ in 0..100 {
        log.append(&[3; 1000]).unwrap();
    }
    // SAFETY: the child only sleeps.
    match unsafe { libc::fork() } {
        0 => {
            std::thread::sleep(Duration::from_secs(60));
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        pid => println!("forked {pid}."),
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn a_child_that_only_exists_keeps_no_lock() {
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
        // SAFETY: asks whether the process is there; it is the one made above, and sleeps.
        assert_eq!(unsafe { libc::kill(pid, 0) }, 0, "the child lives");
        // The child may be new: it releases the lock before `fork` returns there.
        let found = loop {
            match recover(dir.path().join("log")) {
                Err(RecoverError::Busy { .. }) if begun.elapsed() < Duration::from_secs(5) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                found => break found.map(|found| (found.evidence, found.len)),
            }
        };
        let opened = Options::new(dir.path().join("log")).mode(mode).open().map(|log| log.position().bytes());
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        assert_eq!(found.unwrap(), (Evidence::Live, 100_000), "{mode:?}");
        assert_eq!(opened.unwrap(), 100_000);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

/// As `closefrom(3)` does it, by a program that knows nothing of the library's descriptors.
fn close_all_files() {
    for fd in 3..256 {
        // SAFETY: a plain number; what was open there is not used again, by this test's own choice.
        unsafe { libc::close(fd) };
    }
}

/// What each of the numbers is open on: device and inode.
fn open_files() -> Vec<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;
    let look = |fd| std::fs::metadata(format!("/proc/self/fd/{fd}")).ok().map(|m| (m.dev(), m.ino()));
    (0..64).map(look).collect()
}

/// A daemon closes what it did not open; a number that the library once used is then the program's.
#[test]
fn a_child_keeps_the_files_that_took_the_place_of_closed_ones() {
    if !alone("forked::a_child_keeps_the_files_that_took_the_place_of_closed_ones") {
        return;
    }
    let (dir, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let open = |name: &str| {
        Options::new(dir.path().join(name)).mode(Mode::Ring).shm_dir(shm.path().to_owned()).open().unwrap()
    };
    // Between two uses of the library, and while it has locked files open.
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

/// Where no more files may be opened the child gives its copy of the lock up all the same.
#[test]
fn a_child_that_may_open_no_file_keeps_no_lock() {
    if !alone("forked::a_child_that_may_open_no_file_keeps_no_lock") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = Options::new(&path).mode(Mode::Plain).open().unwrap();
    // SAFETY: plain numbers; the child only sleeps.
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
    // SAFETY: the child made above, which sleeps.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    assert!(opened.unwrap());
}

//! A program closes descriptors that it did not open, and opens its own files under the same numbers: these files must
//! stay as they are, and the appender must fail and keep what it has accepted.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

use precursor::{AppendError, Framing, Mode, Options, Position, SyncError, records, recover};

use crate::alone::alone;

const RECORD: [u8; 1000] = [3; 1000];
const OWN_FILES: usize = 60;

/// As `closefrom(3)`. Returns the numbers that were closed.
fn close_all_files() -> Vec<i32> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap());
    let numbers: Vec<i32> = numbers.filter(|fd| *fd > 2).collect();
    for fd in &numbers {
        // SAFETY: a plain number. The test gives up every descriptor from 3 on; the appender checks its own.
        unsafe { libc::close(*fd) };
    }
    numbers
}

/// The program's own files, which it has locked, also under the numbers that were closed.
struct Own(Vec<File>);

impl Own {
    fn create(dir: &Path, closed: &[i32]) -> Own {
        let create = |i: usize| {
            let path = dir.join(format!("own-{i}"));
            let mut file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
            file.write_all(&Own::contents(i)).unwrap();
            rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
            file
        };
        let mut files: Vec<File> = (0..OWN_FILES).map(create).collect();
        for (i, number) in closed.iter().enumerate() {
            // SAFETY: the numbers are free, or belong to a file that was just created.
            let free = unsafe { libc::fcntl(*number, libc::F_GETFD) } < 0;
            if free {
                // SAFETY: the number is free, so nothing loses it, and the new descriptor has one owner.
                unsafe {
                    assert_eq!(libc::dup2(files[i % OWN_FILES].as_raw_fd(), *number), *number);
                    files.push(File::from_raw_fd(*number));
                }
            }
        }
        Own(files)
    }

    fn contents(i: usize) -> Vec<u8> {
        vec![i as u8 + 100; 30_000 + i]
    }

    fn are_unchanged(&self, dir: &Path, when: &str) {
        for file in self.0.iter().skip(OWN_FILES) {
            // SAFETY: a plain number.
            let open = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) } >= 0;
            assert!(open, "{when}: descriptor {} is closed", file.as_raw_fd());
        }
        for (i, file) in self.0.iter().take(OWN_FILES).enumerate() {
            let name = dir.join(format!("own-{i}"));
            assert!(std::fs::read(&name).unwrap() == Own::contents(i), "{when}: {} has changed", name.display());
            // SAFETY: a plain number.
            assert!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) } >= 0, "{when}: descriptor {i} is closed");
            let other = File::open(&name).unwrap();
            let locked = rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive);
            assert_eq!(locked, Err(rustix::io::Errno::WOULDBLOCK), "{when}: the lock of file {i} is gone");
        }
    }
}

/// Whether a forked child has all of these files under their numbers.
fn a_child_has(own: &Own) -> bool {
    let inode = |file: &File| {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: `fstat` writes at most one `stat`; an all-zero one is valid.
        unsafe {
            libc::fstat(file.as_raw_fd(), stat.as_mut_ptr());
            stat.assume_init().st_ino
        }
    };
    let before: Vec<_> = own.0.iter().map(inode).collect();
    // SAFETY: the child only calls `fstat` and `_exit`.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(own.0.iter().zip(&before).any(|(file, before)| inode(file) != *before)));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status == 0
    }
}

/// Appends until the appender fails. Returns the number of accepted records.
fn until_it_fails(
    mut append: impl FnMut() -> Result<Position, AppendError>,
    sync: impl Fn(Position) -> Result<(), SyncError>,
) -> u64 {
    for accepted in 1.. {
        let position = match append() {
            Ok(position) => position,
            Err(AppendError::Failed { message, .. }) => {
                assert!(message.contains("closed a descriptor"), "{message}");
                return accepted - 1;
            }
            Err(other) => panic!("{other}"),
        };
        let synced = if accepted % 500 == 0 { sync(position) } else { Ok(()) };
        if let Err(refusal) = synced {
            assert!(refusal.to_string().contains("closed a descriptor"), "{refusal}");
            return accepted;
        }
        assert!(accepted < 100_000, "the appender has not noticed");
    }
    unreachable!()
}

fn check(dir: &Path, path: &Path, framing: Framing, accepted: u64) {
    recover(path).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log"));
    files.sort();
    let bytes: Vec<u8> = files.iter().flat_map(|path| std::fs::read(path).unwrap()).collect();
    let found = match framing {
        Framing::Records => records(&bytes).filter(|record| *record == RECORD).count(),
        Framing::None => bytes.chunks(RECORD.len()).filter(|record| *record == RECORD).count(),
    };
    assert_eq!(found as u64, accepted);
}

fn one_producer(mode: Mode, roll_bytes: u64, framing: Framing) {
    let (dir, own_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join(if roll_bytes == 0 { "log" } else { "log-{}" });
    let options = Options::new(&path).mode(mode).roll_bytes(roll_bytes).framing(framing).ring_bytes(256 << 10);
    let mut log = options.memory_bytes_max(4 << 20).shm_dir(shm.path().to_owned()).open().unwrap();
    for _ in 0..2000 {
        log.append(&RECORD).unwrap();
    }
    let durable = log.sync_to(log.position()).unwrap();
    // Let the helper finish what it opens: a descriptor of the moment is not protected.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let closed = close_all_files();
    let own = Own::create(own_dir.path(), &closed);
    // `plain` and `prefetch` check once in a millisecond.
    std::thread::sleep(std::time::Duration::from_millis(10));
    let syncer = log.syncer();
    let accepted = until_it_fails(|| log.append(&RECORD), |position| syncer.sync_to(position).map(|_| ()));
    let what = format!("{mode:?}, rolls at {roll_bytes}, {framing:?}");
    own.are_unchanged(own_dir.path(), &what);
    assert!(a_child_has(&own), "{what}");
    assert!(log.position().bytes() == durable.bytes() || log.sync_to(log.position()).is_err(), "{what}");
    assert_eq!(log.stats().durable, durable.bytes(), "{what}");
    assert!(log.failure().is_some() && log.append(&RECORD).is_err(), "{what}");
    assert!(log.close().is_err(), "{what}");
    drop(syncer);
    own.are_unchanged(own_dir.path(), &format!("{what}, closed"));
    check(dir.path(), &path, framing, 2000 + accepted);
}

#[test]
fn no_file_of_the_program_is_written_cut_unlocked_or_closed() {
    if !alone("closed_descriptors::no_file_of_the_program_is_written_cut_unlocked_or_closed") {
        return;
    }
    for mode in [Mode::Plain, Mode::Prefetch, Mode::Window, Mode::Ring] {
        for roll_bytes in [0, 1 << 20] {
            for framing in [Framing::None, Framing::Records] {
                one_producer(mode, roll_bytes, framing);
            }
        }
    }
}

#[test]
fn no_file_of_the_program_is_written_by_many_producers() {
    if !alone("closed_descriptors::no_file_of_the_program_is_written_by_many_producers") {
        return;
    }
    for roll_bytes in [0, 1 << 20] {
        let (dir, own_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let shm = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join(if roll_bytes == 0 { "log" } else { "log-{}" });
        let options = Options::new(&path).roll_bytes(roll_bytes).ring_bytes(256 << 10);
        let log = options.shm_dir(shm.path().to_owned()).open_many().unwrap();
        let closed = close_all_files();
        let own = Own::create(own_dir.path(), &closed);
        let accepted = until_it_fails(|| log.append(&RECORD), |position| log.sync_to(position).map(|_| ()));
        assert!(log.close().is_err());
        own.are_unchanged(own_dir.path(), "closed");
        check(dir.path(), &path, Framing::Records, accepted);
    }
}

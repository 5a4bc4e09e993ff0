//! A page of a window that the kernel refuses is an error of `append` and does not end the process.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use precursor::{AppendError, Mode, Options, SyncError};

use crate::alone::alone;
use crate::volume::Mounted;

/// A directory for shared memory: a failed appender leaves its ring, which is removed with the test.
fn shared_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Appends and syncs until one fails. Returns the durable position and the error.
fn until_it_fails(log: &mut precursor::Appender, limit: Duration, syncing: bool) -> (u64, String) {
    let begun = Instant::now();
    let mut durable = log.stats().durable;
    for i in 0u64.. {
        assert!(begun.elapsed() < limit, "{i} appends succeeded without an error");
        match log.append(&[6; 500]) {
            Ok(position) if syncing && i % 64 == 0 => match log.sync_to(position) {
                Ok(safe) => durable = safe.bytes(),
                Err(SyncError::Failed { what, message, durable: last }) => {
                    assert_eq!(last, durable);
                    return (durable, format!("{what}: {message}"));
                }
                Err(other) => panic!("{other}"),
            },
            Ok(_) => {}
            Err(AppendError::Failed { what, message }) => return (durable, format!("{what}: {message}")),
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!()
}

/// Truncates the file below the window, whose pages then do not exist.
#[test]
fn truncating_the_file_fails_the_appender() {
    // Alone, because loom, in other tests of this program, installs a SIGBUS handler that passes nothing on.
    if !alone("sigbus::truncating_the_file_fails_the_appender") {
        return;
    }
    for at_once in [false, true] {
        let (dir, shm) = (tempfile::tempdir().unwrap(), shared_memory());
        let path = dir.path().join("log");
        let options = Options::new(&path).mode(Mode::Window).readable_at_once(at_once);
        let mut log = options.shm_dir(shm.path().to_owned()).open().unwrap();
        for _ in 0..1000 {
            log.append(&[6; 500]).unwrap();
        }
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let (_, refusal) = until_it_fails(&mut log, Duration::from_secs(20), true);
        println!("{refusal}");
        assert!(log.append(&[6; 5000]).is_err() || log.sync_to(log.position()).is_err());
        log.close().unwrap_err();
    }
}

/// An I/O error shuts the file system down: a page that write-back has protected cannot be made writable again.
#[test]
fn a_file_system_that_is_shut_down_fails_the_appender() {
    // Alone, because loom, in other tests of this program, installs a SIGBUS handler that passes nothing on.
    if !alone("sigbus::a_file_system_that_is_shut_down_fails_the_appender") {
        return;
    }
    const SHUTDOWN: libc::c_ulong = 0x8004_587d;
    for make in [&["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard"][..], &["mkfs.xfs", "-q", "-f"]] {
        for (at_once, syncing) in [(false, false), (true, false), (false, true), (true, true)] {
            let (home, shm) = (tempfile::tempdir().unwrap(), shared_memory());
            let volume = match Mounted::create(&home.path().join("image"), 320 << 20, make, &home.path().join("mount"))
            {
                Ok(volume) => volume,
                Err(e) => return needs::skip(needs::Need::Loop, "sigbus", e),
            };
            let path = volume.dir.join("log");
            let options = Options::new(&path).mode(Mode::Window).readable_at_once(at_once);
            let mut log = options.memory_bytes_max(2 << 20).shm_dir(shm.path().to_owned()).open().unwrap();
            for _ in 0..1000 {
                log.append(&[6; 500]).unwrap();
            }
            let durable = log.sync_to(log.position()).unwrap().bytes();
            // Write-back protects the pages before the writer, just before the file system refuses.
            let beside = std::fs::File::open(&path).unwrap();
            beside.sync_all().unwrap();
            shut_down(&volume.dir, SHUTDOWN);
            let (later, refusal) = until_it_fails(&mut log, Duration::from_secs(20), syncing);
            println!("{} {at_once}: {refusal}; durable {durable}, then {later}", make[0]);
            log.close().unwrap_err();
            drop(beside);
            let dir = volume.dir.display().to_string();
            drop(volume);
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
            assert!(!mounts.contains(&dir), "{}: the appender keeps a file open", make[0]);
        }
    }
}

fn shut_down(dir: &Path, request: libc::c_ulong) {
    let folder = std::fs::File::open(dir).unwrap();
    // NOLOGFLUSH: does not flush the log, as after an I/O error.
    let how: u32 = 2;
    // SAFETY: the descriptor is open, and the request FS_IOC_SHUTDOWN (`include/uapi/linux/fs.h`) reads `how`, which
    // outlives the call.
    let done = unsafe { libc::ioctl(folder.as_raw_fd(), request, &raw const how) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// A fault outside the window ends the process as usual.
#[test]
fn child() {
    // The parent's directory, since this process does not live to remove it.
    let Some(dir) = std::env::var_os("PRECURSOR_SIGBUS").map(std::path::PathBuf::from) else { return };
    let log = Options::new(dir.join("log")).mode(Mode::Window).shm_dir(dir.clone()).open().unwrap();
    let file = std::fs::File::create_new(dir.join("short")).unwrap();
    std::io::Write::write_all(&mut &file, &[1; 100]).unwrap();
    // SAFETY: the kernel chooses the address of the mapping; the load beyond the file's end, which ends the process, is
    // the purpose.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        println!("{}", at.cast::<u8>().add(4096).read_volatile());
    }
    drop(log);
}

#[test]
fn a_fault_elsewhere_is_passed_on() {
    use std::os::unix::process::ExitStatusExt;
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let dir = shared_memory();
    command.args(["--exact", "sigbus::child", "--test-threads=1"]).env("PRECURSOR_SIGBUS", dir.path());
    let done = command.output().unwrap();
    assert_eq!(done.status.signal(), Some(libc::SIGBUS), "{done:?}");
}

/// Code of the last SIGBUS that the program's own handler has got.
static CODE: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(i32::MIN);

extern "C" fn own_handler(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    CODE.store(unsafe { (*info).si_code }, std::sync::atomic::Ordering::Relaxed);
}

/// Sets the action that the program had before it opened the window.
fn act(what: &str) {
    // SAFETY: an all-zero sigaction is valid and means the default action; the handler only stores into an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        match what {
            "ignore" => action.sa_sigaction = libc::SIG_IGN,
            "handler" => {
                action.sa_sigaction = own_handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
            }
            _ => {}
        }
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Sends SIGBUS to itself, and then truncates the file of the window.
#[test]
fn child_with_a_signal() {
    let Some(dir) = std::env::var_os("PRECURSOR_SIGBUS_SENT").map(std::path::PathBuf::from) else { return };
    let before = std::env::var("PRECURSOR_SIGBUS_BEFORE").unwrap();
    act(&before);
    let path = dir.join("log");
    let mut log = Options::new(&path).mode(Mode::Window).shm_dir(dir.clone()).open().unwrap();
    for _ in 0..2 {
        // SAFETY: sends a signal to this process.
        assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGBUS) }, 0);
    }
    let code = || CODE.load(std::sync::atomic::Ordering::Relaxed);
    // Any thread of the process may get the signal.
    let begun = Instant::now();
    while before == "handler" && code() == i32::MIN && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(code(), if before == "handler" { libc::SI_USER } else { i32::MIN });
    for _ in 0..1000 {
        log.append(&[6; 500]).unwrap();
    }
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    until_it_fails(&mut log, Duration::from_secs(20), true);
    println!("survived");
}

/// A signal that a process sends has the effect that it had without the library, and windows stay guarded.
#[test]
fn a_sigbus_that_a_process_sends_is_not_taken_for_a_fault() {
    use std::os::unix::process::ExitStatusExt;
    for before in ["default", "ignore", "handler"] {
        let dir = shared_memory();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "sigbus::child_with_a_signal", "--nocapture", "--test-threads=1"]);
        command.env("PRECURSOR_SIGBUS_SENT", dir.path()).env("PRECURSOR_SIGBUS_BEFORE", before);
        let done = command.output().unwrap();
        if before == "default" {
            assert_eq!(done.status.signal(), Some(libc::SIGBUS), "{done:?}");
        } else {
            assert!(done.status.success(), "{before}: {done:?}");
            assert!(String::from_utf8_lossy(&done.stdout).contains("survived"), "{before}: {done:?}");
        }
    }
}

//! A file system that becomes full, reaches a quota or becomes read-only under an appender: the error, and the file's
//! contents. Needs root and loop devices.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use precursor::{AppendError, Appender, Evidence, Existing, Mode, Options, Position, SyncError, recover};

use crate::volume::{Mounted, output_of};

const MODES: [Mode; 4] = [Mode::Plain, Mode::Prefetch, Mode::Window, Mode::Ring];
const RECORD: usize = 1000;
/// More than fits on the file systems of these tests.
const RECORDS_MAX: u64 = 200_000;

fn record(i: u64) -> [u8; RECORD] {
    std::array::from_fn(|k| (i.wrapping_mul(131).wrapping_add(k as u64 * 7) >> 2) as u8)
}

struct Written {
    accepted: u64,
    durable: u64,
}

/// Appends until an append or a sync fails; a sync after each 1,000 records.
fn until_an_error(log: &mut Appender, written: &mut Written) -> Result<AppendError, SyncError> {
    loop {
        let position = match log.append(&record(written.accepted)) {
            Ok(position) => position,
            Err(error) => return Ok(error),
        };
        written.accepted += 1;
        assert!(written.accepted < RECORDS_MAX, "{:?}: more went in than there is room", log.mode());
        if written.accepted.is_multiple_of(1000) {
            written.durable = log.sync_to(position)?.bytes();
        }
    }
}

/// The durable records are in the file, in order, and at most the accepted ones follow. After a failure, bytes behind
/// the durable ones prove nothing; `sound` says that there was none.
fn check(path: &Path, mode: Mode, written: &Written, sound: bool) {
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes.len() as u64 >= written.durable, "{mode:?}: {} of {} durable bytes", bytes.len(), written.durable);
    assert!(bytes.len() as u64 <= written.accepted * RECORD as u64, "{mode:?}: more than was accepted");
    let proven = if sound { bytes.len() / RECORD } else { written.durable as usize / RECORD };
    for (i, found) in bytes.chunks_exact(RECORD).take(proven).enumerate() {
        assert!(found == record(i as u64), "{mode:?}: record {i}");
    }
}

fn small(make: &[&str], mib: u64) -> Option<(tempfile::TempDir, Mounted)> {
    let home = tempfile::tempdir().unwrap();
    match Mounted::create(&home.path().join("image"), mib << 20, make, &home.path().join("mount")) {
        Ok(mounted) => Some((home, mounted)),
        Err(e) => {
            needs::skip(needs::Need::Loop, "no_room", e);
            None
        }
    }
}

fn open(path: &Path, mode: Mode) -> Appender {
    Options::new(path).mode(mode).ring_bytes(1 << 20).window_bytes(1 << 20).existing(Existing::Replace).open().unwrap()
}

/// Fills the room until there is an error, frees some, and appends on with the same appender.
fn out_of_space_ends_with_space(path: &Path, mode: Mode, make_room: impl FnOnce()) {
    let mut log = open(path, mode);
    let mut written = Written { accepted: 0, durable: 0 };
    match until_an_error(&mut log, &mut written) {
        Ok(AppendError::OutOfSpace { .. }) => {}
        Err(SyncError::Failed { message, .. }) => {
            assert!(message.contains("space") || message.contains("quota"), "{message}")
        }
        other => panic!("{mode:?} after {} records: {other:?}", written.accepted),
    }
    assert!(written.durable > 0, "{mode:?}: nothing was durable before it was full");
    make_room();
    // The error ends within a few seconds of the room.
    let patience = Instant::now() + Duration::from_secs(10);
    let position: Position = loop {
        match log.append(&record(written.accepted)) {
            Ok(position) => break position,
            Err(AppendError::OutOfSpace { .. }) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(20))
            }
            Err(error) => panic!("{mode:?}: there is room again: {error}"),
        }
    };
    written.accepted += 1;
    written.durable = log.sync_to(position).unwrap_or_else(|e| panic!("{mode:?}: {e}")).bytes();
    assert_eq!(written.durable, written.accepted * RECORD as u64, "{mode:?}");
    log.close().unwrap();
    check(path, mode, &written, true);
}

#[test]
fn a_full_disk_is_an_error_until_there_is_room() {
    for make in [&["mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1"][..], &["mkfs.xfs", "-q", "-f"]] {
        let mib = if make[0] == "mkfs.xfs" { 320 } else { 64 };
        let Some((_home, mounted)) = small(make, mib) else { return };
        for mode in MODES {
            let (fill, log) = (mounted.dir.join("fill"), mounted.dir.join(format!("log-{}", mode.name())));
            fill_up_to(&mounted.dir, &fill, 12 << 20);
            out_of_space_ends_with_space(&log, mode, || std::fs::remove_file(&fill).unwrap());
            std::fs::remove_file(&log).unwrap();
        }
    }
}

/// Leaves this many bytes free.
fn fill_up_to(dir: &Path, fill: &Path, bytes: u64) {
    let stat = rustix::fs::statvfs(dir).unwrap();
    let free = stat.f_bavail * stat.f_frsize;
    let length = (free - bytes).to_string();
    output_of("fallocate", &["-l", &length, &fill.display().to_string()]).unwrap();
}

/// A quota of btrfs, because it also binds root. `window` is refused there.
#[test]
fn a_quota_is_an_error_until_there_is_room() {
    let Some((_home, mounted)) = small(&["mkfs.btrfs", "-q", "-f"], 320) else { return };
    let btrfs = |args: &[&str]| output_of("btrfs", args).unwrap();
    btrfs(&["quota", "enable", &mounted.dir.display().to_string()]);
    for mode in MODES.into_iter().filter(|mode| *mode != Mode::Window) {
        let under = mounted.dir.join(mode.name());
        let at = under.display().to_string();
        btrfs(&["subvolume", "create", &at]);
        btrfs(&["qgroup", "limit", "12M", &at]);
        out_of_space_ends_with_space(&under.join("log"), mode, || {
            btrfs(&["qgroup", "limit", "100M", &at]);
        });
    }
}

/// ext4 aborts its journal and is read-only from then on, as after an error of the device.
#[test]
fn a_file_system_that_becomes_read_only_is_a_failure_and_keeps_what_was_durable() {
    for mode in MODES {
        let Some((home, mounted)) = small(&["mkfs.ext4", "-q"], 64) else { return };
        let path: PathBuf = mounted.dir.join("log");
        let mut log = open(&path, mode);
        let mut written = Written { accepted: 0, durable: 0 };
        while written.accepted < 5_000 {
            let position = log.append(&record(written.accepted)).unwrap();
            written.accepted += 1;
            if written.accepted == 4_000 {
                written.durable = log.sync_to(position).unwrap().bytes();
            }
        }
        let at = mounted.dir.display().to_string();
        output_of("mount", &["-o", "remount,abort", &at]).unwrap();
        // Within a second the error reaches the next append or sync, and it stays.
        let patience = Instant::now() + Duration::from_secs(10);
        let mut failed = log.sync_to(log.position()).is_err();
        while !failed && Instant::now() < patience {
            failed = log.append(&record(written.accepted)).is_err();
            written.accepted += u64::from(!failed);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(failed, "{mode:?}: a read-only file system took {} records", written.accepted);
        let failure = log.sync_to(log.position()).unwrap_err();
        assert!(
            matches!(failure, SyncError::Failed { durable, .. } if durable == written.durable),
            "{mode:?}: {failure}"
        );
        assert!(log.append(&record(0)).is_err() && log.failure().is_some(), "{mode:?}");
        log.close().unwrap_err();
        // Without the aborted mount, the journal is replayed and recovery finds what was durable.
        drop(mounted);
        let again = Mounted::attach(&home.path().join("image"), &home.path().join("mount"), "defaults").unwrap();
        let found = recover(&path).unwrap_or_else(|e| panic!("{mode:?}: {e}"));
        assert_eq!(found.evidence, Evidence::Unproven, "{mode:?}");
        check(&path, mode, &written, false);
        drop(again);
    }
}

//! A file system that becomes full, reaches a quota or becomes read-only under an appender: the error, and the file's
//! contents. Needs root and loop devices.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use precursor::{
    AppendError, Appender, Evidence, Existing, Framing, Mode, Options, Position, SyncError, records, recover,
};

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

/// The durable records are in the file, in order, and at most the accepted ones follow.
fn check(path: &Path, mode: Mode, written: &Written) {
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes.len() as u64 >= written.durable, "{mode:?}: {} of {} durable bytes", bytes.len(), written.durable);
    assert!(bytes.len() as u64 <= written.accepted * RECORD as u64, "{mode:?}: more than was accepted");
    for (i, found) in bytes.chunks_exact(RECORD).enumerate() {
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
    check(path, mode, &written);
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
    for framing in [Framing::None, Framing::Records] {
        for mode in MODES {
            let Some((home, mounted)) = small(&["mkfs.ext4", "-q"], 64) else { return };
            becomes_read_only(home.path(), mounted, mode, framing);
        }
    }
}

fn becomes_read_only(home: &Path, mounted: Mounted, mode: Mode, framing: Framing) {
    let path: PathBuf = mounted.dir.join("log");
    let options = || Options::new(&path).mode(mode).framing(framing).ring_bytes(1 << 20).window_bytes(1 << 20);
    let mut log = options().open().unwrap();
    let mut accepted = 0;
    let mut append = |log: &mut Appender| {
        let done = log.append(&record(accepted));
        accepted += u64::from(done.is_ok());
        done
    };
    let mut durable = 0;
    for i in 0..5_000 {
        let position = append(&mut log).unwrap();
        if i == 3_999 {
            durable = log.sync_to(position).unwrap().bytes();
        }
    }
    output_of("mount", &["-o", "remount,abort", &mounted.dir.display().to_string()]).unwrap();
    // The error reaches an append or a sync, and it stays.
    let patience = Instant::now() + Duration::from_secs(10);
    let mut failed = log.sync_to(log.position()).is_err();
    while !failed && Instant::now() < patience {
        failed = append(&mut log).is_err();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(failed, "{mode:?}: a read-only file system takes records");
    let failure = log.sync_to(log.position()).unwrap_err();
    assert!(matches!(failure, SyncError::Failed { durable: last, .. } if last == durable), "{mode:?}: {failure}");
    assert!(append(&mut log).is_err() && log.failure().is_some(), "{mode:?}");
    log.close().unwrap_err();
    // After the aborted mount, the journal is replayed and recovery finds what was durable.
    drop(mounted);
    let _again = Mounted::attach(&home.join("image"), &home.join("mount"), "defaults").unwrap();
    let found = recover(&path).unwrap_or_else(|e| panic!("{mode:?} {framing:?}: {e}"));
    assert_eq!(found.evidence, Evidence::Unproven, "{mode:?} {framing:?}");
    let mut log = options().open().unwrap();
    log.append(b"after recovery").unwrap();
    log.close().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let found: Vec<&[u8]> = match framing {
        Framing::Records => records(&bytes).collect(),
        Framing::None => {
            let (before, after) = bytes.split_at(bytes.len() - b"after recovery".len());
            before.chunks(RECORD).chain([after]).collect()
        }
    };
    assert!(found.len() > 4_000 && found.len() as u64 <= accepted + 1, "{mode:?} {framing:?}: {}", found.len());
    assert!((0..4_000).all(|i| found[i as usize] == record(i)), "{mode:?} {framing:?}");
    assert_eq!(found.last().unwrap(), b"after recovery", "{mode:?} {framing:?}");
}

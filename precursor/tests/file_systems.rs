//! Which modes each file system allows, and the reason for a refusal. Needs root and loop devices, and is skipped
//! without them.

use std::path::Path;

use precursor::{Mode, Options};

use crate::volume::Mounted;

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];

/// Appends 2 MiB in this mode, with rolls, and reads them back. Returns the reason if the mode is refused.
fn tried(dir: &Path, mode: Mode) -> Result<(), String> {
    let name = format!("{}-{{}}", mode.name());
    let options = Options::new(dir.join(name)).mode(mode).roll_bytes(512 << 10);
    let mut log = options.open().map_err(|e| e.to_string())?;
    assert_eq!(log.mode(), mode, "the requested mode is used or refused, never replaced");
    let record = |i: u64| -> Vec<u8> { (0..256).map(|k| (i.wrapping_mul(31) + k) as u8).collect() };
    for i in 0..8192 {
        log.append(&record(i)).unwrap();
    }
    let end = log.close().unwrap().bytes();
    let prefix = format!("{}-", mode.name());
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.file_name().unwrap().to_str().is_some_and(|n| n.starts_with(&prefix)));
    files.sort();
    let bytes: Vec<u8> = files.iter().flat_map(|p| std::fs::read(p).unwrap()).collect();
    assert_eq!((bytes.len() as u64, files.len() > 3), (end, true), "{files:?}");
    assert!(bytes.chunks(256).enumerate().all(|(i, got)| got == record(i as u64)), "{mode:?}");
    Ok(())
}

fn on(bytes: u64, make: &[&str], check: impl FnOnce(&Path)) {
    let home = tempfile::tempdir().unwrap();
    match Mounted::create(&home.path().join("image"), bytes, make, &home.path().join("mount")) {
        Ok(mounted) => check(&mounted.dir),
        Err(e) => needs::skip(needs::Need::Loop, "file_systems", e),
    }
}

#[test]
fn xfs_allows_every_mode() {
    on(320 << 20, &["mkfs.xfs", "-q", "-f"], |dir| {
        for mode in MODES {
            tried(dir, mode).unwrap();
        }
    });
}

#[test]
fn btrfs_refuses_a_window_with_a_reason() {
    on(320 << 20, &["mkfs.btrfs", "-q", "-f"], |dir| {
        for mode in [Mode::Ring, Mode::Prefetch, Mode::Plain] {
            tried(dir, mode).unwrap();
        }
        let refusal = tried(dir, Mode::Window).unwrap_err();
        assert!(refusal.contains("copies on write"), "{refusal}");
        let log = Options::new(dir.join("auto")).process_death_may_lose(true).open().unwrap();
        assert_eq!(log.mode(), Mode::Ring);
        log.close().unwrap();
        // With `readable_at_once` neither ring nor window is possible: `plain`, with the reasons.
        let log = Options::new(dir.join("seen")).readable_at_once(true).process_death_may_lose(true).open().unwrap();
        let reasons = log.reasons().join("; ");
        assert_eq!(log.mode(), Mode::Plain, "{reasons}");
        assert!(reasons.contains("not ring") && reasons.contains("not window: the file system copies"), "{reasons}");
        log.close().unwrap();
    });
}

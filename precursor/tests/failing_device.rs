//! A device that starts to fail: a failed sync stays failed, and recovery trusts no byte that the device may have lost.
//!
//! The device is a loop device over an image in a tmpfs that is too small for it, so write-back fails with an I/O error
//! while every `write()` and store succeeds. Needs root, and is skipped without it.

use std::path::{Path, PathBuf};

use precursor::{AppendError, Evidence, Mode, Options, SyncError, recover};

use crate::volume::output_of;

/// A file system on a device with less space than it reports.
pub struct Overcommitted {
    home: tempfile::TempDir,
    device: String,
}

impl Overcommitted {
    pub fn create() -> Result<Overcommitted, String> {
        let home = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut volume = Overcommitted { home, device: String::new() };
        for name in ["small", "mount"] {
            std::fs::create_dir(volume.home.path().join(name)).map_err(|e| e.to_string())?;
        }
        let (small, mount) = (volume.path("small"), volume.path("mount"));
        output_of("mount", &["-t", "tmpfs", "-o", "size=16m", "none", &small])?;
        let image = format!("{small}/image");
        std::fs::File::create(&image).and_then(|f| f.set_len(128 << 20)).map_err(|e| e.to_string())?;
        volume.device = output_of("losetup", &["-f", "--show", &image])?;
        // Without a journal: if its writes failed, the file system would become read-only, which is another test.
        output_of("mkfs.ext4", &["-q", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", &volume.device])?;
        output_of("mount", &[&volume.device, &mount])?;
        Ok(volume)
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    pub fn dir(&self) -> PathBuf {
        self.home.path().join("mount")
    }

    /// Lets the device take writes again.
    pub fn repair(&self) {
        output_of("mount", &["-o", "remount,size=200m", &self.path("small")]).unwrap();
    }

    fn forget_cache(&self) {
        output_of("umount", &[&self.path("mount")]).unwrap();
        output_of("mount", &[&self.device, &self.path("mount")]).unwrap();
    }
}

impl Drop for Overcommitted {
    fn drop(&mut self) {
        let _ = output_of("umount", &[&self.path("mount")]);
        if !self.device.is_empty() {
            let _ = output_of("losetup", &["-d", &self.device]);
        }
        let _ = output_of("umount", &[&self.path("small")]);
    }
}

fn record(i: u64) -> [u8; 1000] {
    let mut out = [0; 1000];
    out.iter_mut().enumerate().for_each(|(k, b)| *b = (i.wrapping_mul(31).wrapping_add(k as u64)) as u8);
    out
}

/// Appends and syncs until one fails. Returns the number of accepted records and of durable bytes.
fn until_it_fails(path: &Path, mode: Mode) -> (u64, u64) {
    let mut log = Options::new(path).mode(mode).open().unwrap();
    let (mut accepted, mut durable) = (0, 0);
    let failure = loop {
        let position = match log.append(&record(accepted)) {
            Ok(position) => position,
            Err(AppendError::Failed { .. }) => break log.sync_to(log.position()).unwrap_err(),
            Err(other) => panic!("{mode:?}: {other}"),
        };
        accepted += 1;
        assert!(accepted < 60_000, "{mode:?}: a device of 16 MB took 60 MB");
        if accepted % 2000 == 0 {
            match log.sync_to(position) {
                Ok(safe) => durable = safe.bytes(),
                Err(e) => break e,
            }
        }
    };
    assert!(matches!(&failure, SyncError::Failed { durable: last, .. } if *last == durable), "{mode:?}: {failure}");
    assert!(durable > 0, "{mode:?}: {failure}");
    // The kernel reports an error once. The appender must report it always, on every handle, even after the device
    // works again.
    for _ in 0..3 {
        assert!(log.sync_to(log.position()).is_err(), "{mode:?}");
        assert!(log.syncer().sync_to(log.position()).is_err(), "{mode:?}");
    }
    assert_eq!(log.stats().durable, durable);
    let message = log.close().unwrap_err().to_string();
    assert!(message.contains(&format!("nothing after position {durable} is durable")), "{message}");
    (accepted, durable)
}

#[test]
fn a_failed_sync_stays_failed_and_recovery_reports_it() {
    for mode in [Mode::Plain, Mode::Window, Mode::Ring] {
        let volume = match Overcommitted::create() {
            Ok(volume) => volume,
            Err(e) => return needs::skip(needs::Need::Loop, "failing_device", e),
        };
        let path = volume.dir().join("log");
        let (accepted, durable) = until_it_fails(&path, mode);
        // While the device fails, every attempt at recovery fails.
        for _ in 0..2 {
            let refusal = recover(&path).unwrap_err().to_string();
            let named = refusal.contains("sync") || refusal.contains("write again");
            assert!(named && refusal.contains("error"), "{mode:?}: {refusal}");
        }
        volume.repair();
        let found = recover(&path).unwrap();
        assert_eq!(found.evidence, Evidence::Unproven, "{mode:?}: {durable} durable, {found:?}");
        volume.forget_cache();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() as u64 >= accepted * 1000, "{mode:?}: {} of {accepted} records", bytes.len() / 1000);
        // The durable bytes are there. The later ones were rewritten from what the kernel still had, which proves
        // nothing.
        let proven = usize::try_from(durable / 1000).unwrap();
        for (i, got) in bytes.chunks_exact(1000).take(proven).enumerate() {
            assert!(got == record(i as u64), "{mode:?}: record {i} of {accepted}, {durable} bytes durable");
        }
    }
}

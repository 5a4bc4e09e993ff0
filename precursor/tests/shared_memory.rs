//! Full shared memory: `auto` does without, a mode requested by name fails with the reason, and no process dies of
//! SIGBUS.

use std::path::Path;

use precursor::{After, BackPressure, Mode, OpenError, Options};

use crate::volume::output_of;

/// A tmpfs of this size; a container's /dev/shm has 64 MiB.
struct Small(tempfile::TempDir);

impl Small {
    fn create(kib: u64) -> Small {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={kib}k");
        output_of("mount", &["-t", "tmpfs", "-o", &options, "none", &dir.path().display().to_string()]).unwrap();
        Small(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the tmpfs, except for this many pages.
    fn fill(&self, pages_left: usize) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.path().join("others")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        let len = file.metadata().unwrap().len();
        file.set_len(len.next_multiple_of(4096).saturating_sub(4096 * pages_left as u64)).unwrap();
    }

    fn left(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "others").collect()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = output_of("umount", &[&self.path().display().to_string()]);
    }
}

#[test]
fn full_shared_memory_gives_auto_its_fallback() {
    for pages_left in [0, 1, 2, 8, 100] {
        let shm = Small::create(1024);
        shm.fill(pages_left);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Options::new(&path).shm_dir(shm.path().to_owned()).open().unwrap();
        let reasons = log.reasons().join("; ");
        assert_ne!(log.mode(), Mode::Ring, "{pages_left}: {reasons}");
        assert!(reasons.contains("not ring"), "{pages_left}: {reasons}");
        assert_eq!(log.survival().process_death, After::Append, "{pages_left}: {reasons}");
        for _ in 0..1000 {
            log.append(&[1; 1000]).unwrap();
        }
        log.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1_000_000);
        assert_eq!(shm.left(), [] as [&str; 0]);
    }
}

#[test]
fn a_mode_asked_for_by_name_says_that_shared_memory_is_full() {
    let shm = Small::create(1024);
    shm.fill(8);
    let dir = tempfile::tempdir().unwrap();
    let open = |mode| Options::new(dir.path().join("log")).mode(mode).shm_dir(shm.path().to_owned()).open();
    let refusal = open(Mode::Ring).unwrap_err();
    assert!(
        matches!(&refusal, OpenError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{refusal}"
    );
    assert_eq!(shm.left(), [] as [&str; 0], "a partial ring would hold memory that others need");
    // There is room for the live block, and none for the window's ring.
    let mut log = open(Mode::Window).unwrap();
    assert!(log.reasons().iter().any(|r| r.contains("no ring to fall back on")), "{:?}", log.reasons());
    assert_eq!(log.survival().process_death, After::Append);
    log.append(b"a record").unwrap();
    log.close().unwrap();
    std::fs::remove_file(shm.path().join("others")).unwrap();
    shm.fill(0);
    let log = open(Mode::Window).unwrap();
    assert_eq!(log.survival().process_death, After::SyncTo, "no live block: {:?}", log.reasons());
    log.close().unwrap();
    assert_eq!(shm.left(), [] as [&str; 0]);
}

/// A ring that cannot grow further keeps its size, and the writer waits.
#[test]
fn growing_stops_where_shared_memory_ends() {
    let shm = Small::create(512);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let grow = BackPressure::Grow { bytes_max: 8 << 20 };
    let options = Options::new(&path).mode(Mode::Ring).ring_bytes(64 << 10).back_pressure(grow);
    let mut log = options.shm_dir(shm.path().to_owned()).open().unwrap();
    for _ in 0..20_000 {
        log.append(&[1; 1000]).unwrap();
    }
    log.close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 20_000_000);
    assert_eq!(shm.left(), [] as [&str; 0]);
}

//! Power cuts during and after `close()`.

use std::path::Path;

use precursor::{Framing, Mode, Options, recover};

fn shm_emptied(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

/// P1: `close` unlinks the sidecar, and the power is cut before that is on the device, so the sidecar is there again. A
/// second link keeps it exactly as it was last written.
#[test]
fn a_power_cut_after_a_clean_close_cuts_nothing() {
    for mode in [Mode::Window, Mode::Prefetch, Mode::Ring, Mode::Plain] {
        for framing in [Framing::None, Framing::Records] {
            let dir = tempfile::tempdir().unwrap();
            let shm = tempfile::tempdir_in("/dev/shm").unwrap();
            let path = dir.path().join("log");
            let options = Options::new(&path).mode(mode).framing(framing).shm_dir(shm.path().to_owned());
            let mut log = options.open().unwrap();
            for i in 0..1000u64 {
                log.append(&[i as u8; 200]).unwrap();
                if i == 500 {
                    log.sync_to(log.position()).unwrap();
                }
            }
            let side = dir.path().join(".log.precursor");
            std::fs::hard_link(&side, dir.path().join("held")).unwrap();
            let end = log.close().unwrap().bytes();
            let whole = std::fs::read(&path).unwrap();
            assert_eq!(whole.len() as u64, end);
            std::fs::rename(dir.path().join("held"), &side).unwrap();
            shm_emptied(shm.path());
            let found = recover(&path).unwrap();
            let left = std::fs::read(&path).unwrap();
            assert!(left == whole, "{mode:?} {framing:?}: {} of {end} bytes left; {found:?}", left.len());
        }
    }
}

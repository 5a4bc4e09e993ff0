//! Runs the functions of the fuzz targets on their corpus (`fuzz/corpus/precursor_*`) and on inputs near it.

use std::path::{Path, PathBuf};

use precursor::fuzzing;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<_> = files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    assert!(!found.is_empty(), "{} holds no input", folder.display());
    found
}

/// Runs each input, its prefixes, and the input with single bits flipped. Of a long input, about 64 prefixes and bytes.
fn near(target: &str, run: impl Fn(&[u8])) {
    for (path, bytes) in corpus(target) {
        println!("{}", path.display());
        run(&bytes);
        let step = (bytes.len() / 64).max(1);
        for at in (0..bytes.len()).step_by(step) {
            run(&bytes[..at]);
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                run(&changed);
            }
        }
    }
}

#[test]
fn sidecars() {
    near("precursor_sidecar", |bytes| {
        fuzzing::sidecar(bytes);
        fuzzing::sealed_sidecar(bytes);
    });
}

#[test]
fn frames() {
    near("precursor_frames", fuzzing::frames);
}

#[test]
fn live_blocks() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    near("precursor_live", |bytes| fuzzing::live(dir.path(), bytes));
}

/// Writes the seeds again after a format has changed.
#[test]
#[ignore = "writes into the repository"]
fn writes_the_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let put = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(folder.join(target)).unwrap();
        std::fs::write(folder.join(target).join(name), bytes).unwrap();
    };
    // The sidecar of an open appender, and the one that a closed appender leaves beside a pattern.
    let dir = tempfile::tempdir().unwrap();
    let open =
        || precursor::Options::new(dir.path().join("log-{}")).mode(precursor::Mode::Plain).roll_bytes(1 << 20).open();
    let side = dir.path().join(".log-_roll_.precursor");
    let log = open().unwrap();
    let slot = |bytes: Vec<u8>, at: usize| bytes[at..at + 1024].to_vec();
    put("precursor_sidecar", "open", &slot(std::fs::read(&side).unwrap(), 4096));
    log.close().unwrap();
    put("precursor_sidecar", "closed", &slot(std::fs::read(&side).unwrap(), 0));
    put("precursor_sidecar", "first-version", b"prcrsrS1");
    let framed = precursor::Options::new(dir.path().join("framed")).framing(precursor::Framing::Records);
    let mut log = framed.mode(precursor::Mode::Plain).open().unwrap();
    for len in [0, 1, 7, 8, 9, 220] {
        log.append(&vec![len as u8; len]).unwrap();
    }
    log.close().unwrap();
    let frames = std::fs::read(dir.path().join("framed")).unwrap();
    put("precursor_frames", "whole", &frames);
    put("precursor_frames", "torn", &frames[..frames.len() - 9]);
    put("precursor_frames", "zeros-behind", &[&frames[..], &[0; 64]].concat());
    // The first byte selects the kind of writer (bit 0: pattern, 1: preallocated, 2: framed, 3: with a ring, 4:
    // closed); numbers follow.
    for (name, bytes) in [
        ("window", &[2, 1, 0, 16, 1, 0, 8, 0][..]),
        ("ring", &[8, 1, 0, 16, 1, 0, 8, 1, 48, 1, 16, 0]),
        ("many", &[12, 2, 0, 1, 2, 0, 0, 2, 2, 0, 2, 32, 2, 64, 1]),
        ("rolled", &[3, 1, 0, 16, 1, 0, 8, 4, 80, 0, 2, 0, 81, 0, 1, 0, 85, 0, 3, 0, 82, 1, 0, 4]),
        ("closed", &[18, 1, 0, 16, 1, 0, 8, 0]),
        ("position-beyond", &[2, 1, 0, 16, 1, 0, 8, 1, 16, 3, 255, 255, 255, 255, 255, 255, 255, 255]),
    ] {
        put("precursor_live", name, bytes);
    }
}

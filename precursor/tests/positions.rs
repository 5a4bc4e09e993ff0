//! Positions continue across archived files.

use std::path::{Path, PathBuf};

use precursor::{Framing, Mode, Options, recover};

use crate::writer::{Case, Living, contents, data_files};

fn open(dir: &Path, mode: Mode, framing: Framing) -> precursor::Appender {
    Options::new(dir.join("log-{}")).mode(mode).framing(framing).roll_bytes(64 << 10).open().unwrap()
}

fn archive(dir: &Path, files: &[PathBuf]) {
    std::fs::create_dir_all(dir.join("archive")).unwrap();
    for file in files {
        std::fs::rename(file, dir.join("archive").join(file.file_name().unwrap())).unwrap();
    }
}

#[test]
fn archiving_old_files_shifts_no_position() {
    for mode in [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain] {
        for framing in [Framing::None, Framing::Records] {
            let dir = tempfile::tempdir().unwrap();
            let mut end = 0;
            for round in 0..4 {
                let mut log = open(dir.path(), mode, framing);
                // A framed appender that begins a file writes its header.
                let header = if framing == Framing::Records && matches!(round, 0 | 3) { 64 } else { 0 };
                assert_eq!(log.position().bytes(), end + header, "{mode:?} {framing:?} round {round}");
                for _ in 0..300 {
                    log.append(&[round; 1000]).unwrap();
                }
                end = log.close().unwrap().bytes();
                let files = data_files(dir.path());
                assert!(files.len() > 3, "{files:?}");
                // Archives all but the last file; in round 2, every file.
                let kept = usize::from(round != 2);
                archive(dir.path(), &files[..files.len() - kept]);
                recover(dir.path().join("log-{}")).unwrap();
            }
            let numbers = std::fs::read_dir(dir.path().join("archive")).unwrap().count();
            assert!(numbers > 15, "a file number was used twice: {numbers} files");
        }
    }
}

/// The writer is killed, or the machine dies, after the oldest files were archived during its life.
#[test]
fn archiving_beside_a_writer_that_dies_shifts_no_position() {
    for mode in [Mode::Ring, Mode::Window, Mode::Plain] {
        for machine_died in [false, true] {
            let case = Case { mode, framed: true, roll: true, ..Case::default() };
            let dir = tempfile::tempdir().unwrap();
            let shm = tempfile::tempdir_in("/dev/shm").unwrap();
            std::os::unix::fs::symlink(shm.path(), dir.path().join("shm")).unwrap();
            let mut living = Living::start(case, dir.path());
            living.opened();
            // The writer syncs periodically, so files that were rolled long ago are durable and journalled.
            while data_files(dir.path()).len() < 8 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let files = data_files(dir.path());
            let gone: u64 = files[..3].iter().map(|f| std::fs::metadata(f).unwrap().len()).sum();
            archive(dir.path(), &files[..3]);
            living.kill();
            if machine_died {
                for file in std::fs::read_dir(shm.path()).unwrap() {
                    std::fs::remove_file(file.unwrap().path()).unwrap();
                }
            }
            recover(case.path(dir.path())).unwrap();
            let len = contents(dir.path()).len() as u64;
            let empty = data_files(dir.path()).last().unwrap().metadata().unwrap().len() == 0;
            let options = Options::new(case.path(dir.path())).framing(Framing::Records).roll_bytes(256 << 10);
            let log = options.shm_dir(dir.path().join("shm")).open().unwrap();
            // A header is written if nothing of the last file was left.
            let moved = log.position().bytes() - gone - len;
            assert_eq!(moved, if empty { 64 } else { 0 }, "{mode:?}, machine died: {machine_died}");
            log.close().unwrap();
        }
    }
}

//! A full disk: the recording keeps what was written before, reports what is missing, and continues when there is space
//! again.

use std::fs;
use std::path::{Path, PathBuf};

use flatwater_recording::{ColumnKind, Entity, Header, Recording, RecordingWriter, Series, Table, read};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

/// Runs the test on a 1 MiB tmpfs in a private mount namespace; skips it without the right to mount.
fn on_small_disk(test: fn(PathBuf)) {
    let place = tempfile::tempdir().expect("temporary directory");
    let root = place.path().to_owned();
    let run = std::thread::spawn(move || {
        // SAFETY: gives this thread a private mount namespace and affects no other thread.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return needs::skip(needs::Need::Root, "a full disk", "no right to mount");
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).expect("private mounts");
        mount("tmpfs", &root, "tmpfs", MountFlags::empty(), c"size=1m").expect("mount");
        test(root);
    });
    run.join().expect("the test passes");
}

/// About 3 KiB of noise that does not compress.
fn samples(round: u64) -> Series {
    let mut series = Series::new(Table::Workload);
    let mut noise = round + 1;
    for row in 0..400 {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = Some((noise >> 1) as i64);
        series.push(round * 1000 + row, &Entity::default(), &[("noise", ColumnKind::Gauge, value)]);
    }
    series
}

fn round(writer: &mut RecordingWriter, number: u64) {
    writer.append_series(&samples(number)).expect("encodes");
    writer.flush_now();
}

/// Writes until the disk is full. Returns the number of complete rounds.
fn fill(writer: &mut RecordingWriter) -> u64 {
    for number in 0..1000 {
        round(writer, number);
        if writer.trouble().is_some() {
            return number;
        }
    }
    panic!("1 MiB took 1000 rounds");
}

fn rounds(recording: &Recording) -> Vec<u64> {
    let mut rounds: Vec<u64> =
        recording.table(Table::Workload).expect("rows").at_ns().iter().map(|at_ns| at_ns / 1000).collect();
    assert!(rounds.len().is_multiple_of(400), "whole rounds only");
    rounds.dedup();
    rounds
}

fn create(dir: &Path) -> RecordingWriter {
    RecordingWriter::create(dir, &Header::default()).expect("create")
}

#[test]
fn a_full_disk_keeps_what_was_written_and_records_a_gap() {
    on_small_disk(|root| {
        let dir = root.join("rec");
        let mut writer = create(&dir);
        let fitted = fill(&mut writer);
        for number in fitted..fitted + 200 {
            round(&mut writer, number);
        }
        // The gap is recorded at once, so that it survives a kill.
        assert!(read(&dir).expect("readable").gaps.iter().any(|gap| gap.why.contains("No space left")));
        let header = Header { complete: true, seed: 7, ..Header::default() };
        let finished = writer.finish(&header).expect("finish");
        assert!(!finished.sealed && finished.gaps.len() == 2, "{finished:?}");
        let recording = read(&dir).expect("a recording");
        let kept = rounds(&recording);
        assert!(kept.iter().copied().take(fitted as usize).eq(0..fitted), "{kept:?} after {fitted}");
        assert!(kept.len() < fitted as usize + 10);
        let reported: Vec<_> = recording.gaps.iter().filter(|gap| gap.what == "part of this recording").collect();
        let [gap] = reported.as_slice() else { panic!("{reported:?}") };
        assert!(gap.why.contains("No space left") && gap.why.contains("KiB"), "{gap:?}");
        assert!(gap.remedy.contains("-o"));
        assert_eq!((recording.header.complete, recording.header.seed), (true, 7));
    });
}

#[test]
fn recording_continues_when_there_is_space_again() {
    on_small_disk(|root| {
        let filler = root.join("filler");
        fs::write(&filler, vec![1; 600 << 10]).expect("write");
        let mut writer = create(&root.join("rec"));
        let fitted = fill(&mut writer);
        for number in fitted + 1..fitted + 50 {
            round(&mut writer, number);
        }
        fs::remove_file(&filler).expect("remove");
        for number in 500..520 {
            round(&mut writer, number);
        }
        let finished = writer.finish(&Header { complete: true, ..Header::default() }).expect("finish");
        let recording = read(&root.join("rec")).expect("a recording");
        let kept = rounds(&recording);
        assert!(kept.iter().copied().take(fitted as usize).eq(0..fitted), "{kept:?}");
        assert!((500..520).all(|number| kept.contains(&number)), "{kept:?}");
        assert!(recording.gaps.iter().any(|gap| gap.what == "part of this recording"), "{:?}", recording.gaps);
        assert!(finished.gaps.iter().any(|gap| gap.what == "part of this recording"));
    });
}

#[test]
fn unusable_directories_are_refused_with_a_reason() {
    let place = tempfile::tempdir().expect("temporary directory");
    let refusal = |dir: &Path| RecordingWriter::create(dir, &Header::default()).expect_err("refused").to_string();
    let missing = refusal(&place.path().join("no/such/parent"));
    assert!(missing.contains("no/such/parent") && missing.contains("create the parent"), "{missing}");
    let file = place.path().join("file");
    fs::write(&file, "").expect("write");
    assert!(refusal(&file).contains("file"));
    let taken = place.path().join("taken");
    drop(create(&taken));
    assert!(refusal(&taken).contains("already holds a recording"));
    let nothing = read(&place.path().join("absent")).expect_err("nothing there").to_string();
    assert!(nothing.contains("no recording at"), "{nothing}");
    let empty = read(place.path()).expect_err("no recording").to_string();
    assert!(empty.contains("is not a recording"), "{empty}");
}

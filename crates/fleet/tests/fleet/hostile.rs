//! Another user of the host plants files where root pushes: root writes, sends and waits for nothing through them.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatwater_fleet::compact::{self, Done};
use flatwater_fleet::left_out::Why;
use flatwater_fleet::push::{Options, Pushed, push};
use flatwater_fleet::{Fleet, FleetError};
use flatwater_recording::summary::{self, HourStart, SummaryRow};
use needs::{UNPRIVILEGED_ID, as_unprivileged};
use rustix::fs::{CWD, FileType, mknodat};

use crate::crash::copy_tree;

/// Cron would run this line if it were written into a file of root's.
const EVIL: &str = "x\n* * * * * root sh evil\n.summary.parquet";

fn pushed(store: &Path, from: &Path, recordings: bool) -> Result<Pushed, FleetError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    runtime.block_on(async {
        let fleet = Fleet::directory(store.to_owned())?;
        let options = Options { recordings, bandwidth: None };
        let from = [from.to_owned()];
        let done = tokio::time::timeout(Duration::from_secs(120), push(&fleet, &from, &options));
        done.await.expect("it does not wait")
    })
}

fn compacted(store: &Path) -> Result<Done, FleetError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let options = compact::Options { keep: Some(chrono::TimeDelta::days(1)), ..compact::Options::default() };
    runtime.block_on(async { compact::compact(&Fleet::directory(store.to_owned())?, &options).await })
}

/// A summary of one hour.
fn summary_of(host: &str) -> Vec<u8> {
    let row = SummaryRow {
        host: host.to_owned(),
        boot: Some("b".to_owned()),
        hour_start: Some(HourStart::of_hours(498_648)),
        ..SummaryRow::default()
    };
    summary::to_parquet(&[row]).expect("encoded")
}

/// A directory of the other user, from which root pushes; a file of root's beside it; and a store.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Scene {
        let place = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/var/tmp");
        let scene = Scene(place.expect("a directory"));
        std::fs::create_dir(scene.theirs()).expect("made");
        chown(scene.theirs(), Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).expect("given away");
        std::fs::write(scene.victim(), "root's own\n").expect("written");
        std::fs::set_permissions(scene.victim(), Permissions::from_mode(0o600)).expect("chmod");
        scene
    }

    fn theirs(&self) -> PathBuf {
        self.0.path().join("theirs")
    }

    fn victim(&self) -> PathBuf {
        self.0.path().join("victim")
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn assert_untouched(&self) {
        assert_eq!(std::fs::read_to_string(self.victim()).expect("there"), "root's own\n");
    }

    /// The content of all objects in the store.
    fn stored(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut todo = vec![self.store()];
        while let Some(folder) = todo.pop() {
            for entry in std::fs::read_dir(folder).expect("listed").flatten() {
                if entry.path().is_dir() {
                    todo.push(entry.path());
                } else {
                    all.extend(std::fs::read(entry.path()).expect("read"));
                }
            }
        }
        all
    }
}

fn fixture(at: &Path) {
    copy_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recordings-3c238a6/host"), at);
}

#[test]
fn a_link_in_place_of_the_list_is_not_written_through() {
    let scene = Scene::new();
    // One summary of root's own; without it nothing is pushed, and no list is written.
    std::fs::write(scene.theirs().join("roots.summary.parquet"), summary_of("a")).expect("written");
    as_unprivileged(|| {
        symlink(scene.victim(), scene.theirs().join(".flatwater-pushed")).expect("planted");
        std::fs::write(scene.theirs().join(EVIL), summary_of("b")).expect("planted");
    });
    let done = pushed(&scene.store(), &scene.theirs(), false).expect("pushed");
    scene.assert_untouched();
    assert_eq!((done.summaries, done.left_out.count(Why::Foreign)), (1, 1), "{done:?}");
    let shown = done.left_out.to_string();
    assert!(shown.contains("belongs to uid 65534") && shown.lines().count() == 1, "{shown}");
    // The same with a file of the other user, who can read and change it: it is neither used nor written.
    as_unprivileged(|| {
        std::fs::remove_file(scene.theirs().join(".flatwater-pushed")).expect("his");
        std::fs::write(scene.theirs().join(".flatwater-pushed"), "").expect("planted");
    });
    pushed(&scene.store(), &scene.theirs(), false).expect("pushed");
    assert_eq!(std::fs::read(scene.theirs().join(".flatwater-pushed")).expect("there"), b"");
}

#[test]
fn pipes_in_place_of_files_are_refused_at_once() {
    let scene = Scene::new();
    fixture(&scene.theirs().join("recording"));
    for name in [".flatwater-pushed", "recording.summary.parquet", "pipe.summary.parquet", "recording/zzz"] {
        mknodat(CWD, scene.theirs().join(name), FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    }
    let done = pushed(&scene.store(), &scene.theirs(), true).expect("pushed");
    assert_eq!(done.left_out.count(Why::Foreign), 2, "{done:?}");
    // The recording is incomplete, so it does not count as pushed, and its last file is not sent.
    assert_eq!(done.recordings, 0);
    let refused = pushed(&scene.store(), &scene.theirs().join("pipe.summary.parquet"), false).expect_err("a pipe");
    assert!(refused.to_string().contains("is a named pipe"), "{refused}");
}

#[test]
fn links_do_not_bring_files_of_root_into_the_store() {
    let scene = Scene::new();
    let secret = scene.0.path().join("secret.summary.parquet");
    std::fs::write(&secret, summary_of("a-secret-host")).expect("written");
    as_unprivileged(|| {
        symlink(&secret, scene.theirs().join("a.summary.parquet")).expect("planted");
        symlink(scene.0.path().join("kept"), scene.theirs().join("b")).expect("planted");
    });
    fixture(&scene.theirs().join("recording"));
    symlink(scene.victim(), scene.theirs().join("recording/zzz")).expect("planted");
    std::fs::hard_link(scene.victim(), scene.theirs().join("recording/zzzz")).expect("planted");
    let done = pushed(&scene.store(), &scene.theirs(), true).expect("pushed");
    let stored = scene.stored();
    for word in [&b"a-secret-host"[..], b"root's own"] {
        assert!(!stored.windows(word.len()).any(|window| window == word), "{}", String::from_utf8_lossy(word));
    }
    assert_eq!(done.left_out.count(Why::Foreign), 3, "{done:?}");
}

#[test]
fn root_reports_and_does_not_push_a_recording_of_another_user() {
    let scene = Scene::new();
    let recording = scene.theirs().join("recording");
    fixture(&recording);
    chown(&recording, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).expect("given away");
    for from in [scene.theirs(), recording] {
        let done = pushed(&scene.store(), &from, true).expect("pushed");
        assert_eq!(
            (done.recordings, done.summaries, done.left_out.count(Why::Foreign)),
            (0, 0, 1),
            "{from:?}: {done:?}"
        );
    }
}

#[test]
fn a_user_who_can_read_roots_recording_can_push_it() {
    let scene = Scene::new();
    let recording = scene.0.path().join("recording");
    fixture(&recording);
    std::fs::create_dir(scene.store()).expect("made");
    chown(scene.store(), Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).expect("given away");
    let done = as_unprivileged(|| pushed(&scene.store(), &recording, true)).expect("pushed");
    assert_eq!(done.recordings, 1, "{done:?}");
}

/// Compaction removes old objects, but not files behind a link.
#[test]
fn compaction_does_not_remove_files_behind_a_link() {
    let scene = Scene::new();
    let dear = scene.0.path().join("dear");
    std::fs::create_dir(&dear).expect("made");
    std::fs::write(dear.join("file"), "kept").expect("written");
    let input = summary_of("linked");
    std::fs::write(dear.join("a+b+0.parquet"), &input).expect("written");
    let days = scene.store().join("v=1/recordings");
    std::fs::create_dir_all(days.join("dt=2020-01-02")).expect("made");
    std::fs::write(days.join("dt=2020-01-02/old"), "old").expect("written");
    symlink(&dear, days.join("dt=2020-01-01")).expect("planted");
    let hour = scene.store().join("v=1/in/table=summary/dt=2026-11-20/hour=00");
    std::fs::create_dir_all(&hour).expect("made");
    symlink(&dear, hour.join("shard=01")).expect("planted");
    let done = compacted(&scene.store()).expect("compacted");
    assert_eq!((done.removed, done.summaries), (1, 0), "{done:?}");
    assert_eq!(std::fs::read_to_string(dear.join("file")).expect("there"), "kept");
    assert_eq!(std::fs::read(dear.join("a+b+0.parquet")).expect("there"), input);
}

#[test]
fn root_writes_and_removes_only_in_its_own_store() {
    let scene = Scene::new();
    std::fs::write(scene.0.path().join("a.summary.parquet"), summary_of("a")).expect("written");
    let refused = pushed(&scene.theirs(), &scene.0.path().join("a.summary.parquet"), false).expect_err("not root's");
    assert!(refused.to_string().contains("belongs to uid 65534"), "{refused}");
    assert!(compacted(&scene.theirs()).is_err());
    assert_eq!(std::fs::read_dir(scene.theirs()).expect("listed").count(), 0);
    // The lock must not lead to another file either.
    std::fs::create_dir(scene.store()).expect("made");
    symlink(scene.victim(), scene.store().join("compact.lock")).expect("planted");
    assert!(compacted(&scene.store()).is_err());
    scene.assert_untouched();
}

/// A few KiB that would take a compactor 2 GB, and with the most rows 50 GB: 4000 rows that all refer to one word of
/// half a MiB.
#[test]
fn a_summary_that_decompresses_too_far_is_refused_early() {
    let word = "x".repeat(512 << 10);
    let row = SummaryRow {
        host: "a".to_owned(),
        boot: Some("b".to_owned()),
        hour_start: Some(HourStart::of_hours(498_648)),
        kernel: Some(word),
        ..SummaryRow::default()
    };
    // Written row by row; encoding them together would take that memory here.
    let one = summary::to_parquet(&[row]).expect("encoded");
    let first = flatwater_fleet::input::batches(one.into()).expect("one row").remove(0);
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_compression(parquet::basic::Compression::ZSTD(parquet::basic::ZstdLevel::default()))
        .set_dictionary_page_size_limit(8 << 20)
        .set_key_value_metadata(Some(vec![parquet::file::metadata::KeyValue::new(
            summary::VERSION_KEY.to_owned(),
            summary::VERSION.to_string(),
        )]))
        .build();
    let mut bytes = Vec::new();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(&mut bytes, first.schema(), Some(properties)).expect("a writer");
    for _ in 0..4_000 {
        writer.write(&first).expect("written");
    }
    writer.close().expect("closed");
    assert!(bytes.len() < 64 << 20, "{} bytes", bytes.len());
    let before = most_resident_mib();
    let refused = flatwater_fleet::input::decode(bytes.into()).expect_err("too large");
    assert!(refused.exactly.contains("256 MiB"), "{refused:?}");
    let took = most_resident_mib() - before;
    assert!(took < 1_500, "{took} MiB");
}

/// Peak resident memory so far.
fn most_resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a kernel that counts it");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib >> 10
}

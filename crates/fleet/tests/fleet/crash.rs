//! Compactors and pushes that end in the middle lose no row and count none twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use flatwater_fleet::compact::{self, compact};
use flatwater_fleet::left_out::Why;
use flatwater_fleet::{Fleet, FleetError, input, push, store};
use flatwater_recording::summary::{self, SummaryRow};
use object_store::ObjectStoreExt;

use crate::faulty::Faulty;
use crate::{day, made, options};

/// The number of times that each row occurs in the parts.
async fn rows_of(fleet: &Fleet) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for meta in fleet.list("v=1/table=summary").await.expect("listed") {
        let bytes = fleet.store.get(&meta.location).await.expect("got").bytes().await.expect("bytes");
        for row in input::decode(bytes).expect("a part") {
            *counts.entry(format!("{row:?}")).or_default() += 1;
        }
    }
    counts
}

async fn pushed(fleet: &Fleet, rows: &[SummaryRow]) {
    let key = fleet.key(&store::input_key(&rows[0]));
    fleet.store.put(&key, summary::to_parquet(rows).expect("encoded").into()).await.expect("put");
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_become_a_few_sorted_files_once_and_late_ones_join_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, truth) = made(folder.path(), &options(60, 3, false)).await;
    let inputs = fleet.list("v=1/in").await.expect("listed");
    let mut late = Vec::new();
    for meta in inputs.iter().step_by(17) {
        let bytes = fleet.store.get(&meta.location).await.expect("got").bytes().await.expect("bytes");
        late.push((meta.location.clone(), bytes));
        fleet.store.delete(&meta.location).await.expect("removed");
    }
    let first = compact(&fleet, &compact::Options::default()).await.expect("compacted");
    assert_eq!((first.hours, first.summaries as usize), (3, inputs.len() - late.len()));
    let again = compact(&fleet, &compact::Options::default()).await.expect("nothing to do");
    assert_eq!((again.parts, again.summaries, again.known), (0, 0, 0));
    // Late inputs, and then once more one that is already merged.
    for (key, bytes) in &late {
        fleet.store.put(key, bytes.clone().into()).await.expect("put");
    }
    let joined = compact(&fleet, &compact::Options::default()).await.expect("compacted");
    assert_eq!((joined.summaries as usize, joined.known), (late.len(), 0));
    fleet.store.put(&late[0].0, late[0].1.clone().into()).await.expect("put");
    let known = compact(&fleet, &compact::Options::default()).await.expect("compacted");
    assert_eq!((known.summaries, known.known, known.parts), (0, 1, 0));
    assert_eq!(fleet.list("v=1/in").await.expect("listed").len(), 0);
    let parts = fleet.list("v=1/table=summary").await.expect("listed");
    assert_eq!(parts.len(), 3, "one small file for each hour");
    let rows = rows_of(&fleet).await;
    assert_eq!(rows.values().sum::<usize>() as u64, truth.rows);
    assert!(rows.values().all(|count| *count == 1));
    for part in parts {
        let bytes = fleet.store.get(&part.location).await.expect("got").bytes().await.expect("bytes");
        let rows = input::decode(bytes).expect("a part");
        let order = |row: &SummaryRow| (row.cause.clone(), row.kernel.clone(), row.host.clone());
        assert!(rows.is_sorted_by_key(order), "sorted by cause, kernel and host");
    }
}

/// More inputs than are read at a time. Two inputs also exist in a second shard, which is refused, and one is not a
/// summary.
#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_inputs_counts_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, truth) = made(folder.path(), &options(300, 1, false)).await;
    let inputs = fleet.list("v=1/in").await.expect("listed");
    assert!(inputs.len() > 256, "{}", inputs.len());
    let shard = |meta: &object_store::ObjectMeta, shard: u32| {
        let (before, _) = meta.location.as_ref().split_once("/shard=").expect("a shard");
        Path::new(&format!("{before}/shard={shard:02}")).join(meta.location.filename().expect("a name"))
    };
    for (meta, shard) in [(&inputs[0], shard(&inputs[0], 63)), (&inputs[200], shard(&inputs[200], 0))] {
        std::fs::create_dir_all(folder.path().join(shard.parent().expect("a folder"))).expect("made");
        std::fs::copy(folder.path().join(meta.location.as_ref()), folder.path().join(shard)).expect("copied");
    }
    std::fs::write(folder.path().join(shard(&inputs[100], 1)), b"PAR1 and nothing else").expect("written");
    let done = compact(&fleet, &compact::Options::default()).await.expect("compacted");
    assert_eq!((done.summaries as usize, done.known, done.rows), (inputs.len(), 0, truth.rows));
    assert_eq!(done.left_out.count(Why::Damaged), 3, "{}", done.left_out);
    let torn = inputs[100].location.filename().expect("a name");
    assert!(done.left_out.named(Why::Damaged).any(|(key, _)| key.contains(torn)), "{:?}", done.left_out);
    let rows = rows_of(&fleet).await;
    assert_eq!((rows.values().sum::<usize>() as u64, rows.len() as u64), (truth.rows, truth.rows));
    assert_eq!(fleet.list("v=1/in").await.expect("listed").len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compactor_that_fails_anywhere_neither_loses_nor_doubles_a_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, truth) = made(folder.path(), &options(6, 2, false)).await;
    for (operations, lands) in (0..40).flat_map(|operations| [(operations, false), (operations, true)]) {
        let copy = tempfile::tempdir().expect("a folder");
        copy_tree(folder.path(), copy.path());
        let whole = Fleet::directory(copy.path().to_owned()).expect("a directory");
        let failing = whole.over(Arc::new(Faulty::new(Arc::clone(&whole.store), operations, lands)));
        let failed = compact(&failing, &compact::Options::default()).await.is_err();
        next_one(&whole).await;
        let rows = rows_of(&whole).await;
        assert_eq!(rows.values().sum::<usize>() as u64, truth.rows, "failed after {operations}: {failed}");
        assert!(rows.values().all(|count| *count == 1), "doubled after {operations}");
        assert_eq!(whole.list("v=1/in").await.expect("listed").len(), 0);
    }
}

/// A parallel test may be starting a process: between fork and exec it also holds the lock's file.
async fn next_one(whole: &Fleet) {
    while let Err(error) = compact(whole, &compact::Options::default()).await {
        assert!(matches!(error, FleetError::Busy { .. }), "the next compactor: {error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("listed").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_compactor_neither_loses_nor_doubles_a_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, truth) = made(folder.path(), &options(120, 2, false)).await;
    for millis in [5, 20, 40, 80, 160, 320] {
        let binary = env!("CARGO_BIN_EXE_flatwater-fleet");
        let mut compactor = Command::new(binary);
        compactor.arg("compact").arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut compactor = compactor.spawn().expect("started");
        std::thread::sleep(Duration::from_millis(millis));
        let _ = compactor.kill();
        compactor.wait().expect("ended");
    }
    compact(&fleet, &compact::Options::default()).await.expect("the last compactor");
    let rows = rows_of(&fleet).await;
    assert_eq!(rows.values().sum::<usize>() as u64, truth.rows);
    assert!(rows.values().all(|count| *count == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_compactor_is_kept_out_of_a_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(2, 1, false)).await;
    let lock =
        std::fs::File::options().create(true).truncate(false).write(true).open(folder.path().join("compact.lock"));
    let lock = lock.expect("a file");
    lock.try_lock().expect("free");
    let refused = compact(&fleet, &compact::Options::default()).await.expect_err("locked");
    assert!(refused.to_string().contains("another compactor"), "{refused}");
    drop(lock);
    compact(&fleet, &compact::Options::default()).await.expect("free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_fails_anywhere_can_continue_and_leaves_the_host_unchanged() {
    let host = tempfile::tempdir().expect("a folder");
    let recording = host.path().join("flatwater-20261120-000000-stall");
    copy_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recordings-3c238a6/host"), &recording);
    let before = tree(host.path());
    assert!(before.len() > 5, "the fixture is there");
    let options = push::Options { recordings: true, bandwidth: None };
    let wanted = {
        let whole = tempfile::tempdir().expect("a folder");
        let fleet = Fleet::directory(whole.path().to_owned()).expect("a directory");
        push::push(&fleet, std::slice::from_ref(&recording), &options).await.expect("pushed");
        let keys = fleet.list("v=1").await.expect("listed");
        keys.into_iter().map(|meta| fleet.relative(&meta.location)).collect::<Vec<_>>()
    };
    assert!(wanted.iter().any(|key| key.starts_with("v=1/in/table=summary/")), "{wanted:?}");
    assert!(wanted.iter().any(|key| key.ends_with("/sealed.json")), "{wanted:?}");
    for operations in 0..30 {
        let place = tempfile::tempdir().expect("a folder");
        let whole = Fleet::directory(place.path().to_owned()).expect("a directory");
        let failing = whole.over(Arc::new(Faulty::new(Arc::clone(&whole.store), operations, operations % 2 == 0)));
        let _ = push::push(&failing, std::slice::from_ref(&recording), &options).await;
        push::push(&whole, std::slice::from_ref(&recording), &options).await.expect("the next push");
        let keys = whole.list("v=1").await.expect("listed");
        assert_eq!(keys.into_iter().map(|meta| whole.relative(&meta.location)).collect::<Vec<_>>(), wanted);
    }
    assert_eq!(tree(host.path()), before);
}

fn tree(at: &Path) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(at).expect("listed").flatten() {
        if entry.path().is_dir() {
            all.extend(tree(&entry.path()));
        } else {
            all.push((entry.path().display().to_string(), entry.metadata().expect("a file").len()));
        }
    }
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn old_parts_are_removed_and_inputs_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(3, 1, true)).await;
    let row = SummaryRow {
        host: "late".to_owned(),
        hour_start: Some(flatwater_recording::summary::HourStart::of_hours(498_000)),
        ..SummaryRow::default()
    };
    pushed(&fleet, &[row]).await;
    let aeon = compact::Options {
        keep: Some(chrono::TimeDelta::days(1)),
        range: Some(day(0, 1)),
        ..compact::Options::default()
    };
    let done = compact(&fleet, &aeon).await.expect("compacted");
    let is_past = chrono::Utc::now().timestamp() / 3_600 >= 498_648 + 48;
    assert_eq!(done.removed, u64::from(is_past));
    assert_eq!(fleet.list("v=1/in").await.expect("listed").len(), 1);
}

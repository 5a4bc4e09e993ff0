//! Tests of the mail store: every operation uses an existing file or directory.

use std::collections::BTreeSet;

use super::{ENTRY, Params, Workload};
use crate::Op;

fn store(given: &[(&str, &str)]) -> Box<dyn Workload> {
    let small = [("mailboxes", "300"), ("messages", "3"), ("threads", "2")];
    let params = Params::check("maildir", ENTRY.params, small.iter().chain(given).copied()).expect("parameters");
    (ENTRY.build)(&params, 1).expect("workload")
}

#[test]
fn operations_use_only_existing_files_and_directories() {
    let store = store(&[("fsync", "on")]);
    let mut actors = store.actors();
    assert!(matches!(actors[1].stream.next(0), Some(Op::Sleep { .. })), "servers wait until the store is filled");
    let mut dirs: BTreeSet<String> = [String::new()].into();
    let mut files: BTreeSet<String> = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    let mut check = |op: Op| {
        let path = |file| store.path(file);
        match op {
            Op::Mkdir { dir } => {
                let path = store.directory_path(dir);
                let above = path.rsplit_once('/').map_or("", |(above, _)| above);
                assert!(dirs.contains(above) && dirs.insert(path.clone()), "mkdir {path}");
            }
            Op::Create { file } => {
                let within = path(file).rsplit_once('/').map(|(dir, _)| dir.to_owned());
                assert!(within.is_some_and(|dir| dirs.contains(&dir)) && files.insert(path(file)), "{}", path(file));
            }
            Op::Rename { from, to } => assert!(files.remove(&path(from)) && files.insert(path(to))),
            Op::Unlink { file } => assert!(files.remove(&path(file))),
            Op::Stat { file } | Op::Read { file, .. } | Op::Append { file, .. } | Op::Fsync { file } => {
                assert!(files.contains(&path(file)), "{}", path(file));
            }
            Op::List { dir } => assert!(dirs.contains(&store.directory_path(dir))),
            _ => {}
        }
        kinds.insert(op.kind());
    };
    std::iter::from_fn(|| actors[0].stream.next(0)).for_each(&mut check);
    for turn in 0..20_000 {
        check(actors[1 + turn % 2].stream.next(0).expect("servers never end"));
    }
    assert!(kinds.len() >= 10, "{kinds:?}");
}

#[test]
fn the_case_study_has_fifty_million_files_and_scales() {
    let params = Params::check("maildir", ENTRY.params, []).expect("defaults");
    let full = (ENTRY.build)(&params, 1).expect("workload").footprint();
    assert!(full.files > 50_000_000 && full.disk_bytes > 200 << 30, "{full:?}");
    let params = Params::check("maildir", ENTRY.params, [("scale", "0.001")]).expect("scaled");
    let scaled = (ENTRY.build)(&params, 1).expect("workload").footprint();
    assert!((49_000..52_000).contains(&scaled.files), "{scaled:?}");
}

#[test]
fn shares_that_sum_to_more_than_one_are_refused() {
    let params = Params::check("maildir", ENTRY.params, [("list", "0.7")]).expect("each is a share");
    let error = (ENTRY.build)(&params, 1).err().expect("0.2 + 0.2 + 0.7").to_string();
    assert!(error.contains("more than 1"), "{error}");
}

//! Tests of SDET: all scripts do the same work in different orders, on files that exist.

use std::collections::{BTreeMap, BTreeSet};

use super::script::{COMMANDS, SCRATCH_MAX, plan};
use super::{ENTRY, Op, Params, Workload};
use crate::{Actor, Stream};

fn sdet(process: &str) -> Box<dyn Workload> {
    let given = [("scripts", "3"), ("runs", "2"), ("process", process)];
    let params = Params::check("sdet", ENTRY.params, given).expect("parameters");
    (ENTRY.build)(&params, 1).expect("workload")
}

/// Performs an actor and all actors that it starts, one after the other.
fn perform(actors: &mut [Actor], actor: usize, done: &mut Vec<Op>) {
    while let Some(op) = actors[actor].stream.next(0) {
        done.push(op);
        if let Op::Spawn { actor } = op {
            perform(actors, actor, done);
        }
    }
}

#[test]
fn scripts_are_different_permutations_of_the_same_commands() {
    let kinds = |run, script| plan(1, run, script).iter().map(|planned| planned.kind).collect::<Vec<_>>();
    let sorted = |mut kinds: Vec<_>| {
        kinds.sort_unstable();
        kinds
    };
    assert_eq!(kinds(0, 0).len(), COMMANDS);
    assert_ne!(kinds(0, 0), kinds(0, 1));
    assert_ne!(kinds(0, 0), kinds(1, 0));
    assert_eq!(sorted(kinds(0, 0)), sorted(kinds(1, 2)));
}

#[test]
fn both_process_modes_do_the_same_work_and_restore_the_trees() {
    let work = ["command", "script"].map(|process| {
        let sdet = sdet(process);
        let mut actors = sdet.actors();
        let mut done = Vec::new();
        perform(&mut actors, 0, &mut done);
        let (mut files, mut dirs) = (BTreeSet::new(), BTreeSet::new());
        let mut scratch_most = 0;
        let mut after_each_run = Vec::new();
        for op in &done {
            match *op {
                Op::Create { file } => assert!(files.insert(sdet.path(file)), "{}", sdet.path(file)),
                Op::Unlink { file } => assert!(files.remove(&sdet.path(file)), "{}", sdet.path(file)),
                Op::Rename { from, to } => {
                    assert!(files.remove(&sdet.path(from)) && !files.insert(sdet.path(to)), "rename over the source");
                }
                Op::Read { file, .. } | Op::Stat { file } => assert!(files.contains(&sdet.path(file))),
                Op::Mkdir { dir } => assert!(dirs.insert(dir), "{dir:?}"),
                Op::Rmdir { dir } => assert!(dirs.remove(&dir), "{dir:?}"),
                Op::Mark { mark: super::Mark::RunEnd, .. } => {
                    assert_eq!(dirs.len(), 3 * 3, "only the initial directories");
                    after_each_run.push(files.clone());
                }
                _ => {}
            }
            scratch_most = scratch_most.max(files.iter().filter(|path| path.ends_with(".o")).count());
        }
        assert_eq!(after_each_run.len(), 2);
        assert!(after_each_run.iter().all(|files| files.len() == 3 * 16 && files.iter().all(|f| f.ends_with(".c"))));
        assert!(scratch_most as u64 <= SCRATCH_MAX && scratch_most > 1, "{scratch_most}");
        let mut calls = BTreeMap::new();
        for op in done.iter().filter(|op| !matches!(op, Op::Spawn { .. } | Op::WaitSpawned)) {
            *calls.entry(format!("{op:?}")).or_insert(0) += 1;
        }
        calls
    });
    assert_eq!(work[0], work[1]);
}

#[test]
fn every_command_is_a_process_with_a_valid_thread_name() {
    let actors = sdet("command").actors();
    assert_eq!(actors.len(), 1 + 2 * 3 + 2 * 3 * COMMANDS);
    assert!(actors.iter().all(|actor| actor.name.len() <= 15));
    let mut script: Box<dyn Stream> = Box::new(super::Script::spawning(7));
    assert_eq!(script.next(0), Some(Op::Spawn { actor: 7 }));
    assert_eq!(script.next(0), Some(Op::WaitSpawned));
}

#[test]
fn too_many_scripts_are_refused() {
    let built = |scripts: &str, process: &str| {
        let given = [("scripts", scripts), ("runs", "1000"), ("process", process)];
        (ENTRY.build)(&Params::check("sdet", ENTRY.params, given).expect("parameters"), 1).map(|_| ())
    };
    assert!(built("65", "command").is_ok() && built("66", "script").is_ok());
    let why = built("66", "command").expect_err("66 000 scripts").to_string();
    assert!(why.contains("scripts and runs come to 66000 scripts"), "{why}");
}

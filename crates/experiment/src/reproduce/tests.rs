//! Tests of plans and of the scenarios in them.

use flatwater_explain::testing::RecordingBuilder;
use flatwater_explain::{Fix, explain};
use flatwater_recording::{
    Cause, GroupRole, Header, Limit, OpKind, OperationFiles, OperationKind, Operations, Recording, Source,
};
use flatwater_workload::scenario::Scenario;

use super::{Bounds, NotReproducible, Plan, plan};
use crate::proof::proof;
use crate::verify::{Pace, Sides, Tried};

fn bounds() -> Bounds {
    Bounds { disk_bytes: 1 << 30, memory_bytes: 4 << 30, file_system: None }
}

fn row(op: OperationKind, count: u64) -> Operations {
    Operations {
        role: GroupRole::Target,
        pid: Some(7),
        thread: "db".to_owned(),
        file_system: "7:3".to_owned(),
        op,
        count,
        threads: 1,
        call_ns: count * 10_000,
        ..Operations::default()
    }
}

/// A database that writes 8 KiB every 2 ms and syncs every 16 writes.
fn recording() -> Recording {
    let write = Operations {
        bytes: 8_192 * 1_600,
        pauses: 1_600,
        pause_ns: 1_600 * 2_000_000,
        pause_classes: "1048576:1600".to_owned(),
        size_classes: "8192:1600".to_owned(),
        sync_classes: "16:100".to_owned(),
        ..row(OperationKind::Write, 1_600)
    };
    let file = OperationFiles {
        pid: Some(7),
        file_system: "7:3".to_owned(),
        files: 1,
        written: Some(true),
        bytes: 32 << 20,
        first_bytes: 32 << 20,
        ..OperationFiles::default()
    };
    let limit = |name: &str, value: &str, file_system: &str| Limit {
        name: name.to_owned(),
        file_system: file_system.to_owned(),
        at_end: Some(value.to_owned()),
        ..Limit::default()
    };
    Recording {
        header: Header { duration_ns: 4_000_000_000, threshold_ns: 1_000_000, ..Header::default() },
        operations: vec![write, row(OperationKind::Fdatasync, 100)],
        operation_files: vec![file],
        limits: vec![limit("file_system", "ext4", "7:3"), limit("cgroup.write_bps", "1048576", "")],
        ..Recording::default()
    }
}

fn planned(recording: &Recording) -> Result<Plan, NotReproducible> {
    plan(recording, &explain(recording), &bounds())
}

fn scenario(plan: &Plan) -> Scenario {
    assert!(plan.scenario.lines().count() <= 60, "{}", plan.scenario);
    Scenario::parse("reproduction", &plan.scenario).unwrap_or_else(|error| panic!("{error}\n{}", plan.scenario))
}

#[test]
fn a_recording_becomes_a_scenario_and_fio_jobs() {
    let plan = planned(&recording()).expect("a plan");
    let read = scenario(&plan);
    let workload = &read.workloads[0];
    let value = |key: &str| workload.params.iter().find(|(name, _)| *name == key).map(|(_, value)| value.to_owned());
    assert_eq!(value("sync_every").as_deref(), Some("16:1"));
    assert_eq!(value("write_size").as_deref(), Some("8KiB:1600"));
    assert_eq!((value("sync").as_deref(), value("threads").as_deref()), (Some("fdatasync"), Some("1")));
    assert_eq!(read.setup.get("mount.file_system"), Some("ext4"));
    assert_eq!(read.setup.number("cgroup.write_bps"), Some(1 << 20));
    assert!(!read.fixes.is_empty());
    let (name, job) = &plan.fio[0];
    assert_eq!(name, "target.fio");
    for line in ["rw=randwrite", "fdatasync=16", "thinktime=2000", "bssplit=4096/100,8192/100", "numjobs=1"] {
        assert!(job.lines().any(|own| own == line), "{line} in\n{job}");
    }
}

#[test]
fn recordings_that_cannot_be_reproduced_say_why() {
    let mut imported = recording();
    imported.header.source = Source::Import;
    assert_eq!(planned(&imported).expect_err("no"), NotReproducible::Import);
    let mut run = recording();
    run.header.scenario = Some("journal".to_owned());
    assert!(matches!(planned(&run), Err(NotReproducible::Scenario { .. })));
    let mut old = recording();
    old.operations.clear();
    let why = planned(&old).expect_err("no").to_string();
    assert!(why.contains("earlier version") && why.contains("record again"), "{why}");
    let mut only_opens = recording();
    only_opens.operations.retain(|row| row.op == OperationKind::Open);
    only_opens.operations.push(row(OperationKind::Open, 3));
    assert!(matches!(planned(&only_opens), Err(NotReproducible::Nothing { .. })));
    let little = Bounds { disk_bytes: 1 << 20, ..bounds() };
    let why = plan(&recording(), &explain(&recording()), &little).expect_err("no room").to_string();
    assert!(why.contains("128 MiB") && why.contains("-d"), "{why}");
}

/// Every number that becomes a load is bounded, and no text of the recording becomes a path or another TOML key.
#[test]
fn a_hostile_recording_makes_a_bounded_scenario() {
    let mut hostile = recording();
    hostile.header.duration_ns = u64::MAX;
    hostile.header.threshold_ns = u64::MAX;
    hostile.header.target.what = "x\"\n[setup]\nvm.swappiness = 1".to_owned();
    for row in &mut hostile.operations {
        row.thread = "../../etc/\"x\n".to_owned();
        for number in [&mut row.count, &mut row.bytes, &mut row.call_ns, &mut row.pause_ns, &mut row.pauses] {
            *number = u64::MAX;
        }
        (row.threads, row.sequential, row.direct) = (u64::MAX, u64::MAX, u64::MAX);
        row.size_classes = format!("{}:{} 0:1", 1_u64 << 63, u64::MAX);
        row.pause_classes = format!("{}:{}", u64::MAX, u64::MAX);
        row.sync_classes = format!("{}:{}", u64::MAX, u64::MAX);
    }
    for files in &mut hostile.operation_files {
        (files.files, files.bytes, files.first_bytes) = (1_000_000, 1 << 63, 0);
    }
    for limit in &mut hostile.limits {
        if limit.name == "file_system" {
            limit.at_end = Some("ext4\"\n\"mount.options\" = \"x".to_owned());
        } else {
            limit.at_end = Some(u64::MAX.to_string());
        }
    }
    let read = scenario(&planned(&hostile).expect("a plan"));
    let keys: Vec<&str> = read.setup.iter().map(|(key, _)| key).collect();
    assert!(!keys.contains(&"vm.swappiness") && !keys.contains(&"mount.options"), "{keys:?}");
    for spec in &read.workloads {
        assert!(spec.label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{}", spec.label);
        let workload = (spec.entry.build)(&spec.params, 1).expect("possible");
        let footprint = workload.footprint();
        assert!(footprint.disk_bytes <= 1 << 30 && footprint.threads <= 64, "{footprint:?}");
        let mut actors = workload.actors();
        for _ in 0..1_000 {
            let _ = actors[0].stream.next(1);
        }
    }
}

/// The recorded operations, and calls that were paused because too many pages are dirty.
fn throttled() -> Recording {
    let made = RecordingBuilder::new().slow(OpKind::Write, &[(Cause::DirtyThrottle, 400.0)]);
    let Recording { operations, operation_files, limits, .. } = recording();
    made.edit(|made| {
        made.header.machine.kernel = Some("6.18.0".to_owned());
        (made.operations, made.operation_files, made.limits) = (operations, operation_files, limits);
    })
    .done()
}

#[test]
fn a_fix_by_its_number_in_the_report_is_what_the_trial_sets() {
    let recording = throttled();
    let explanation = explain(&recording);
    let reported: Vec<&Fix> = explanation.findings.iter().flat_map(|finding| finding.all_fixes()).collect();
    let numbers: Vec<usize> = reported.iter().map(|fix| fix.number).collect();
    assert_eq!(numbers, (1..=reported.len()).collect::<Vec<_>>());
    let fix = reported.iter().find(|fix| fix.setting().is_some()).expect("a setting");
    let (key, value) = fix.setting().expect("a setting");
    let proof = proof(&recording, &explanation, fix.number, &bounds()).expect("a scenario");
    let pace = Pace::of(None, None, &proof.scenario);
    let sides = Sides::new(proof.scenario, pace, Tried::Fix(&proof.fix), &[]).expect("two sides");
    assert_eq!(sides.b.setup.get(key.name()), Some(value));
    assert_ne!(sides.a.setup.get(key.name()), Some(value));
    // The scenario file names the fix by the same number.
    let written = scenario(&planned(&recording).expect("a plan"));
    let named = written.fixes.iter().find(|one| one.name == fix.number.to_string()).expect("by its number");
    assert_eq!(named.set.get(key.name()), Some(value));
}

#[test]
fn a_fix_that_no_scenario_can_set_is_refused_with_what_to_run() {
    let recording = throttled();
    let explanation = explain(&recording);
    let refused = |recording: &Recording, number: usize| {
        proof(recording, &explanation, number, &bounds()).expect_err("no").to_string()
    };
    let mut fixes = explanation.findings.iter().flat_map(|finding| finding.all_fixes());
    let advice = fixes.find(|fix| fix.setting().is_none()).expect("advice").number;
    assert!(refused(&recording, advice).contains("flatwater compare BEFORE AFTER"));
    assert!(refused(&recording, 0).contains("has no fix 0") && refused(&recording, 99).contains("flatwater explain"));
    let setting = explanation.findings[0].fixes.iter().find(|fix| fix.setting().is_some()).expect("one").number;
    let mut imported = recording.clone();
    imported.header.source = Source::Import;
    assert!(refused(&imported, setting).contains("flatwater record"));
    let mut run = recording.clone();
    run.header.scenario = Some("mine".to_owned());
    assert!(refused(&run, setting).contains("flatwater verify FILE.toml --set vm."));
    run.header.scenario = Some("journal".to_owned());
    let own = proof(&run, &explanation, setting, &bounds()).expect("a built-in scenario");
    assert_eq!(own.scenario.name, "journal");
}

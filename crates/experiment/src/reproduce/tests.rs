//! Tests of plans and of the scenarios in them.

use flatwater_explain::explain;
use flatwater_recording::{GroupRole, Header, Limit, OperationFiles, OperationKind, Operations, Recording, Source};
use flatwater_workload::scenario::Scenario;

use super::{Bounds, NotReproducible, Plan, plan};

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

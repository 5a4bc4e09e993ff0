//! cgroup v2 for real: the guest of `--on vm` has nothing else. A minute under emulation: `make test-long`.

use std::process::{Command, Stdio};

use flatwater::recording::{Cause, Entity, Table, read};

const LIMIT_BYTES: i64 = 300 << 20;
const HIGH_BYTES: i64 = 12 << 20;

fn can_boot() -> bool {
    let qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    let kernel = Command::new(env!("CARGO_BIN_EXE_flatwater")).args(["vm", "kernel"]).output();
    qemu.is_ok_and(|status| status.success()) && kernel.is_ok_and(|output| output.status.success())
}

#[test]
#[ignore = "boots a guest"]
fn a_group_over_memory_high_is_sampled_and_its_reclaim_named() {
    if !can_boot() {
        eprintln!("SKIPPED: no QEMU, or no kernel to boot (flatwater vm fetch-kernel)");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let out = place.path().join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_flatwater"))
        .args(["run", "full-cgroup", "--on", "vm", "-t", "15s", "--set", "cgroup.memory_limit=300MiB"])
        .args(["--set", "cgroup.memory_high=12MiB", "-o"])
        .arg(&out)
        .output()
        .expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let recording = read(&out).expect("a recording");
    let cgroup = recording.table(Table::Cgroup).expect("sampled");
    let (entity, rows) = cgroup.by_entity().find(|(entity, _)| entity.name.contains("flatwater")).expect("our group");
    assert_eq!(entity, &Entity::named(&entity.name), "{entity:?}");
    assert_eq!((rows.last("limit_bytes"), rows.last("high_bytes")), (Some(LIMIT_BYTES), Some(HIGH_BYTES)));
    let (_, most) = rows.max("usage_bytes").expect("usage");
    assert!((HIGH_BYTES / 2..=LIMIT_BYTES).contains(&most), "{most} bytes used");
    for counter in ["events_high", "pgscan", "some_total_us", "cpu_usage_ns"] {
        assert!(rows.rise(counter).is_some_and(|rise| rise > 0), "{counter}: {:?}", rows.rise(counter));
    }
    assert_eq!(rows.rise("events_oom"), Some(0));
    // What is over memory.high is reclaimed by the writers themselves on their way out of the kernel.
    let reclaims = recording
        .calls
        .iter()
        .filter(|call| call.parts.iter().any(|part| matches!(part.cause, Cause::MemcgReclaim | Cause::MemcgOverHigh)));
    assert!(reclaims.count() > 0, "{} slow calls, none held reclaim of the group", recording.calls.len());
}

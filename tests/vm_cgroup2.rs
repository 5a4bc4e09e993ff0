//! cgroup v2 on a real kernel: guests of `--on vm` have no v1. Takes a minute under emulation; part of `make
//! test-long`.

use std::path::Path;
use std::process::{Command, Stdio};

use flatwater_explain::{CauseId, explain};
use flatwater_recording::{Cause, Entity, Recording, Stack, Table, read};
use needs::{Need, skip};

const LIMIT_BYTES: i64 = 300 << 20;
const HIGH_BYTES: i64 = 12 << 20;

fn can_boot() -> bool {
    let qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    let kernel = Command::new(env!("CARGO_BIN_EXE_flatwater")).args(["vm", "kernel"]).output();
    qemu.is_ok_and(|status| status.success()) && kernel.is_ok_and(|output| output.status.success())
}

/// Boots full-cgroup in a guest with this memory.high.
fn run_in_guest(place: &Path, high: &str) -> Recording {
    let out = place.join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_flatwater"))
        .args(["run", "full-cgroup", "--on", "vm", "-t", "15s", "--set", "cgroup.memory_limit=300MiB"])
        .args(["--set", &format!("cgroup.memory_high={high}"), "-o"])
        .arg(&out)
        .output()
        .expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    read(&out).expect("a recording")
}

#[test]
#[ignore = "boots a guest"]
fn a_group_over_memory_high_is_sampled_and_its_reclaim_named() {
    if !can_boot() {
        return skip(Need::Qemu, "a cgroup v2 guest", "no QEMU, or no kernel to boot (flatwater vm fetch-kernel)");
    }
    let place = tempfile::tempdir().expect("a directory");
    let recording = run_in_guest(place.path(), "12MiB");
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
    // The writers themselves reclaim the memory over memory.high on return to user space.
    let reclaims = recording.calls.iter().filter(|call| {
        call.segments.iter().any(|segment| matches!(segment.cause, Cause::MemcgReclaim | Cause::MemcgOverHigh))
    });
    assert!(reclaims.count() > 0, "{} slow calls, none with reclaim of the group", recording.calls.len());
}

/// Kernel memory of a process cannot be reclaimed. With a lower memory.high every charge leaves the group over the
/// limit, and the task that charged sleeps up to 2 s on return to user space (mm/memcontrol.c:
/// mem_cgroup_handle_over_high(), 6.1).
#[test]
#[ignore = "boots a guest"]
fn the_sleep_over_memory_high_is_part_of_the_call_that_it_delays() {
    if !can_boot() {
        return skip(Need::Qemu, "a cgroup v2 guest", "no QEMU, or no kernel to boot (flatwater vm fetch-kernel)");
    }
    let place = tempfile::tempdir().expect("a directory");
    let recording = run_in_guest(place.path(), "1MiB");
    let explanation = explain(&recording);
    let first = explanation.findings.first().expect("a finding");
    assert_eq!(first.cause, CauseId::MemcgOverHigh, "{:?}", explanation.slow);
    let slept = recording
        .foreground_calls()
        .flat_map(|call| &call.segments)
        .filter(|segment| segment.cause == Cause::MemcgOverHigh);
    let stacks: Vec<_> = slept.filter_map(|segment| segment.stack.and_then(|id| recording.stack(id))).collect();
    assert!(!stacks.is_empty());
    let in_it = |stack: &&Stack| stack.frames.iter().any(|frame| frame.contains("mem_cgroup_handle_over_high"));
    assert!(stacks.iter().all(in_it), "{stacks:?}");
}

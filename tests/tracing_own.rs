//! Real stalls of our own threads: the right cause comes first, and nearly all time has a cause.

#[allow(dead_code)]
use std::time::Duration;

use crate::common::groups::{CpuGroup, MemoryGroup};
use crate::common::loopdisk::LoopDisk;
use crate::common::neighbour::{Neighbour, Task};
use crate::common::victim::{self, Blame, Turn};
use crate::common::{Scratch, alone, wait_for_few_dirty_pages};
use flatwater_host::tracer::{TraceOptions, Tracer};
use flatwater_recording::{Cause, HookState};
use needs::{Need, skip};

const THRESHOLD_NS: u64 = 1_000_000;
/// The threshold for a sync. On a fast disk a sync takes 0.5 ms, so only a handful in four seconds exceed
/// `THRESHOLD_NS`, and their causes are random. Every sync exceeds this threshold.
const SYNC_THRESHOLD_NS: u64 = 100_000;
const TIME: Duration = Duration::from_secs(4);

/// A tracer of our own threads, or why there is none.
fn tracer() -> Result<Tracer, String> {
    tracer_over(THRESHOLD_NS)
}

fn tracer_over(threshold_ns: u64) -> Result<Tracer, String> {
    let (tracer, hooks) = Tracer::start(TraceOptions::own(threshold_ns));
    for hook in hooks.iter().filter(|hook| hook.state == HookState::Unavailable) {
        eprintln!("unavailable: {} ({})", hook.hook, hook.reason);
    }
    if tracer.sees() { Ok(tracer) } else { Err(tracer.gaps().first().map_or(String::new(), |gap| gap.why.clone())) }
}

/// The checks of every stall. Other programs may keep the CPUs busy, so run-queue time counts only if the stall is
/// about it.
fn check(tracer: Tracer, blame: &mut Blame, title: &str, cause: Cause) {
    blame.print(title);
    let (_, stacks, losses) = tracer.finish();
    eprintln!("  {} stacks, {losses:?}", stacks.len());
    assert!(blame.calls > 0, "the stall did not happen");
    assert_eq!(blame.not_tiling, 0, "parts must tile their call");
    assert!(blame.named_share() >= 0.95, "named: {:.3}", blame.named_share());
    if cause != Cause::RunQueue {
        blame.by_cause.remove(&Cause::RunQueue);
    }
    assert_eq!(blame.top(), Some(cause));
    assert_eq!(losses.lost, 0);
}

#[test]
fn a_full_memory_group_is_memcg_reclaim() {
    let _alone = alone();
    if let Err(why) = wait_for_few_dirty_pages() {
        return skip(Need::Idle, "own memcg", why);
    }
    let scratch = Scratch::new("own-memcg");
    let (tracer, group) = match (tracer(), MemoryGroup::new(128 << 20)) {
        (Ok(tracer), Ok(group)) => (tracer, group),
        (Err(why), _) => return skip(Need::Bpf, "own memcg", why),
        (_, Err(why)) => return skip(Need::Memcg, "own memcg", why),
    };
    // Memory is charged by process, so the whole test process joins the group and leaves it again.
    let me = std::process::id();
    group.add(me).expect("joins its own group");
    let mut stream = Neighbour::start(&Task::Stream(scratch.path().join("stream")), TIME);
    group.add(stream.pid()).expect("the neighbour joins");
    stream.release();
    let file = scratch.path().join("journal");
    let mut blame = victim::run(&tracer, &file, Turn::AppendMuch, Duration::from_millis(2), TIME, THRESHOLD_NS);
    group.remove(me);
    drop(stream);
    check(tracer, &mut blame, "own, memory group full", Cause::MemcgReclaim);
}

#[test]
fn a_slow_disk_with_few_dirty_pages_is_dirty_throttle() {
    let _alone = alone();
    let (tracer, disk) = match (tracer(), LoopDisk::ext4("own-dirty", 1024)) {
        (Ok(tracer), Ok(disk)) => (tracer, disk),
        (Err(why), _) => return skip(Need::Bpf, "own dirty throttle", why),
        (_, Err(why)) => return skip(Need::Loop, "own dirty throttle", why),
    };
    if let Err(why) = disk.bound_dirty(4 << 20) {
        return skip(Need::Loop, "own dirty throttle", why);
    }
    let file = disk.path().join("journal");
    let stalls = || {
        let stream = Neighbour::started(&Task::Stream(disk.path().join("stream")), TIME);
        let blame = victim::run(&tracer, &file, Turn::AppendMuch, Duration::from_millis(2), TIME, THRESHOLD_NS);
        drop(stream);
        blame
    };
    // The kernel chooses which writer to pause; sometimes it is only the neighbour.
    let mut blame = stalls();
    for _ in 0..2 {
        if blame.calls == 0 {
            blame = stalls();
        }
    }
    check(tracer, &mut blame, "own, few dirty pages allowed", Cause::DirtyThrottle);
}

#[test]
fn neighbours_that_sync_make_journal_commits() {
    let _alone = alone();
    // A separate disk, because the machine's file system may have no journal.
    let (tracer, disk) = match (tracer_over(SYNC_THRESHOLD_NS), LoopDisk::ext4("own-sync", 1024)) {
        (Ok(tracer), Ok(disk)) => (tracer, disk),
        (Err(why), _) => return skip(Need::Bpf, "own fsync", why),
        (_, Err(why)) => return skip(Need::Loop, "own fsync", why),
    };
    let sync = |name: &str| Neighbour::started(&Task::Sync(disk.path().join(name)), TIME);
    let neighbours = [sync("a"), sync("b"), sync("c")];
    let file = disk.path().join("journal");
    let mut blame = victim::run(&tracer, &file, Turn::Sync, Duration::from_millis(5), TIME, SYNC_THRESHOLD_NS);
    drop(neighbours);
    assert!(blame.calls > 100, "{} of some 800 syncs were slow: too few to judge", blame.calls);
    check(tracer, &mut blame, "own, neighbours sync", Cause::JournalCommit);
}

#[test]
fn busy_neighbours_are_the_run_queue() {
    let _alone = alone();
    let scratch = Scratch::new("own-cpu");
    let tracer = match tracer() {
        Ok(tracer) => tracer,
        Err(why) => return skip(Need::Bpf, "own CPU contention", why),
    };
    let neighbours: Vec<Neighbour> = (0..8).map(|_| Neighbour::started(&Task::Spin, TIME)).collect();
    let file = scratch.path().join("journal");
    // No pause between the writes, because the scheduler favours a thread that sleeps.
    let mut blame = victim::run(&tracer, &file, Turn::AppendMuch, Duration::ZERO, TIME / 2, THRESHOLD_NS);
    drop(neighbours);
    check(tracer, &mut blame, "own, CPUs busy", Cause::RunQueue);
}

#[test]
fn a_cpu_quota_is_named() {
    let _alone = alone();
    let scratch = Scratch::new("own-quota");
    let (tracer, group) = match (tracer(), CpuGroup::new(5)) {
        (Ok(tracer), Ok(group)) => (tracer, group),
        (Err(why), _) => return skip(Need::Bpf, "own CPU quota", why),
        (_, Err(why)) => return skip(Need::Cpucg, "own CPU quota", why),
    };
    let me = std::process::id();
    group.add(me).expect("joins its own group");
    let file = scratch.path().join("journal");
    let mut blame = victim::run(&tracer, &file, Turn::AppendMuch, Duration::ZERO, TIME / 2, THRESHOLD_NS);
    group.remove(me);
    if group.throttled_ns() < 200_000_000 {
        return skip(Need::Idle, "own CPU quota", "the machine is so busy that the group did not use up its quota");
    }
    check(tracer, &mut blame, "own, CPU quota", Cause::CpuQuota);
}

//! Real stalls of our own threads, made on purpose: the right cause comes out on top and little is unexplained.

#[allow(dead_code)]
mod common;

use std::time::Duration;

use common::groups::MemoryGroup;
use common::neighbour::{Neighbour, Task};
use common::victim::{self, Blame, Turn};
use common::{Scratch, alone, skip};
use flatwater::host::tracer::{TraceOptions, Tracer};
use flatwater::recording::{Cause, HookState};

const THRESHOLD_NS: u64 = 1_000_000;

#[test]
fn neighbour_process() {
    common::neighbour::run_if_asked();
}

/// A tracer of our own threads, or the reason why there is none here.
fn tracer() -> Result<Tracer, String> {
    let (tracer, hooks) = Tracer::start(TraceOptions::own(THRESHOLD_NS));
    for hook in hooks.iter().filter(|hook| hook.state == HookState::Unavailable) {
        eprintln!("unavailable: {} ({})", hook.hook, hook.reason);
    }
    if tracer.sees() { Ok(tracer) } else { Err(tracer.gaps().first().map_or(String::new(), |gap| gap.why.clone())) }
}

/// What holds for every stall, whatever its cause.
fn check(blame: &Blame, cause: Cause) {
    assert!(blame.calls > 0, "the stall did not come about");
    assert_eq!(blame.not_tiling, 0, "parts must tile their call");
    assert_eq!(blame.top(), Some(cause));
    assert!(blame.named_share() >= 0.95, "named: {:.3}", blame.named_share());
}

#[test]
fn a_full_memory_group_is_memcg_reclaim() {
    let _alone = alone();
    let scratch = Scratch::new("own-memcg");
    let (tracer, group) = match (tracer(), MemoryGroup::new(128 << 20)) {
        (Ok(tracer), Ok(group)) => (tracer, group),
        (tracer, group) => return skip("own memcg", &format!("{:?} {:?}", tracer.err(), group.err())),
    };
    // Charges go by the process: the whole of us joins, and leaves again.
    let me = std::process::id();
    group.add(me).expect("joins its own group");
    let mut stream = Neighbour::start(&Task::Stream(scratch.path().join("stream")), Duration::from_secs(5));
    group.add(stream.pid()).expect("the neighbour joins");
    stream.release();
    let file = scratch.path().join("journal");
    let blame =
        victim::run(&tracer, &file, Turn::AppendMuch, Duration::from_millis(2), Duration::from_secs(5), THRESHOLD_NS);
    group.remove(me);
    drop(stream);
    blame.print("own, memory group full");
    let (_, stacks, losses) = tracer.finish();
    eprintln!("{} stacks, {losses:?}", stacks.len());
    check(&blame, Cause::MemcgReclaim);
}

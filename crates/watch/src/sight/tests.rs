//! Timed and found calls are each reported once, and calls under way until they return.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{BlockDevice, Sight, at_most, still_hanging};
use crate::config::Config;
use flatwater_recording::{Call, OpKind, Segment, StackId};
use needs::{Need, skip};

#[test]
fn devices_beyond_the_limit_are_a_gap() {
    let device = |name: &str| BlockDevice {
        name: name.to_owned(),
        number: "8:0".to_owned(),
        disk: name.to_owned(),
        disk_number: "8:0".to_owned(),
    };
    let (kept, gap) = at_most(2, vec![device("sda"), device("sdb"), device("sdc")]);
    assert_eq!(kept.len(), 2);
    assert_eq!(gap.expect("one device is left out").what, "counters of 1 of 3 devices: sdc");
    assert!(at_most(2, vec![device("sda"), device("sdb")]).1.is_none());
}

/// A call was reported by its sleeps at once, and again by the hooks on system calls 300 ms later, if a second
/// ended in between.
#[test]
fn a_call_is_reported_once_while_system_calls_are_hooked() {
    if !rustix::process::geteuid().is_root() || flatwater_host::tracer::measure_hook_cost().is_err() {
        return skip(Need::Bpf, "calls that are timed and found", "no hook on system calls can be attached");
    }
    let mut sight = Sight::open(&Config { threshold_ns: 500_000, ..Config::default() });
    sight.arm(u64::MAX);
    let file = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file on a disk");
    let (stop, pid) = (AtomicBool::new(false), std::process::id());
    let (mut calls, mut timed) = (Vec::new(), false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (file, data) = (file.as_file(), vec![1; 1 << 20]);
            while !stop.load(Ordering::Relaxed) {
                file.write_all_at(&data, 0).and_then(|()| file.sync_data()).expect("written");
            }
        });
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(50));
            let look = sight.take(false);
            timed |= look.every_call_at_start && !look.calls.is_empty();
            calls.extend(
                look.calls
                    .into_iter()
                    .map(|owned| owned.call)
                    .filter(|call| call.pid == pid && matches!(call.op, OpKind::Write | OpKind::Fdatasync)),
            );
            if timed && calls.len() >= 300 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(timed, "hooks on system calls were attached: {} calls", calls.len());
    calls.sort_by_key(|call| (call.tid, call.start_ns));
    let twice = |pair: &&[Call]| pair[0].tid == pair[1].tid && pair[1].start_ns < pair[0].end_ns();
    let twice: Vec<&[Call]> = calls.windows(2).filter(twice).collect();
    assert!(twice.is_empty(), "{} of {}: {:?}", twice.len(), calls.len(), twice[0]);
}

/// Calls that the hooks on system calls had timed since the last second were dropped when the hooks were detached. No
/// recording had the calls that had not slept.
#[test]
fn calls_that_were_timed_just_before_the_hooks_are_detached_are_reported() {
    if !rustix::process::geteuid().is_root() || flatwater_host::tracer::measure_hook_cost().is_err() {
        return skip(Need::Bpf, "calls that are timed", "no hook on system calls can be attached");
    }
    let mut sight = Sight::open(&Config { threshold_ns: 500_000, ..Config::default() });
    sight.arm(u64::MAX);
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !sight.is_exact() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        sight.take(false);
    }
    assert!(sight.is_exact(), "the hooks are attached: {:?}", sight.hooks());
    // A write to memory does not sleep, so that only the hooks on system calls see it.
    let bytes = 48 << 20;
    let memory = rustix::fs::memfd_create("flatwater-test", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    let written = rustix::io::write(&memory, &vec![1; bytes]).expect("written");
    sight.disarm();
    let second = sight.take(false);
    let ours = |owned: &&crate::second::OwnedCall| {
        owned.call.pid == std::process::id() && owned.call.bytes == Some(written as u64)
    };
    let found = second.calls.iter().find(ours).unwrap_or_else(|| panic!("{} calls", second.calls.len()));
    assert_eq!(found.call.op, OpKind::Write);
    let stacks = found.call.segments.iter().filter_map(|segment| segment.stack);
    let known = |id: StackId| second.stacks.iter().any(|stack| stack.id == id);
    assert!(stacks.into_iter().all(known), "{:?}", found.call.segments);
    assert!(second.latency.iter().any(|bucket| bucket.op == OpKind::Write), "{:?}", second.latency);
    assert!(sight.take(false).calls.iter().all(|owned| !ours(&owned)), "it is reported once");
}

#[test]
fn a_call_under_way_stays_so_until_it_is_reported_as_returned() {
    let hung = vec![call(5, 100)];
    let still = |asked, ended: &[Call], from| {
        still_hanging(hung.clone(), asked, || ended.iter(), StackId(from)).iter().map(Call::end_ns).collect::<Vec<_>>()
    };
    assert_eq!(still(None, &[], 0), [105]);
    assert_eq!(still(None, &[call(1, 50)], 0), [105], "an earlier call of the thread");
    assert!(still(None, &[call(5, 300)], 0).is_empty());
    assert!(still(Some(Vec::new()), &[], 0).is_empty());
    assert_eq!(still(Some(vec![call(5, 900)]), &[], 0), [905]);
}

/// A write of thread `journal` that is wholly unexplained.
pub(crate) fn call(start_ns: u64, duration_ns: u64) -> Call {
    let mut call = Call::new(OpKind::Write, start_ns, duration_ns, vec![Segment::unexplained(duration_ns)]);
    call.bytes = Some(220);
    call.by(7, 7, "journal")
}

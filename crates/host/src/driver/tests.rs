//! Tests of the driver with short runs on real files.

use std::sync::Arc;
use std::time::Duration;

use super::append::AppendMethod;
use super::perform::NoMark;
use super::{Driver, Plan};
use crate::clock::monotonic_ns;
use flatwater_recording::OpKind;
use flatwater_safefs::Dir;
use flatwater_workload::scenario::Scenario;

fn run(text: &str, length_ns: u64) -> (tempfile::TempDir, super::Collector, u64) {
    let scenario = Scenario::parse("test", text).expect("scenario");
    let root = tempfile::tempdir().expect("directory");
    let start_ns = monotonic_ns() + 5_000_000;
    let plan = Plan {
        workloads: scenario.workloads,
        seed: 1,
        root: Dir::open_own(root.path()).expect("ours"),
        threshold_ns: 1,
        start_ns,
        end_ns: start_ns + length_ns,
        cpu: None,
        node: None,
        fifo_priority: None,
        method: AppendMethod::Write,
    };
    let mut driver = Driver::start(&plan, Arc::new(|_, _| NoMark)).expect("driver");
    while !driver.all_ended() && monotonic_ns() < plan.end_ns + 5_000_000_000 {
        driver.gather(Duration::from_millis(20));
    }
    (root, driver.finish(), start_ns)
}

#[test]
fn a_journal_appends_at_its_rate_and_every_call_is_timed() {
    let text = "name='t'\nsentence='T.'\n[[workload]]\nuse='journal'\ninterval='2ms'\nbytes='100'\n";
    let (root, mut collector, start_ns) = run(text, 200_000_000);
    let writes: Vec<_> = collector.slow_before(u64::MAX).into_iter().filter(|c| c.seen.due_ns.is_some()).collect();
    // One append each 2 ms for 200 ms. A busy machine may not let the last ones begin in time; the due times below show
    // the rate.
    assert!((1..=100).contains(&writes.len()), "{} appends", writes.len());
    let length = std::fs::metadata(root.path().join("journal-0.0")).expect("the journal's file").len();
    assert_eq!(length, 100 * writes.len() as u64);
    for (index, call) in writes.iter().enumerate() {
        assert_eq!(call.seen.due_ns, Some(start_ns + index as u64 * 2_000_000));
        assert!(call.seen.start_ns >= start_ns + index as u64 * 2_000_000, "no append before it is due");
    }
    let counted: u64 =
        collector.ready(None).iter().filter(|bucket| bucket.op == OpKind::Write).map(|b| b.from_start.count()).sum();
    assert_eq!(counted, writes.len() as u64);
}

#[test]
fn a_full_disk_ends_the_actor_and_names_the_file() {
    // /dev/full is the kernel's own full disk: every write to it fails with ENOSPC.
    let root = tempfile::tempdir().expect("directory");
    std::os::unix::fs::symlink("/dev/full", root.path().join("stream-0")).expect("link");
    let scenario = Scenario::parse("t", "name='t'\nsentence='T.'\n[[workload]]\nuse='stream'\n").expect("scenario");
    let start_ns = monotonic_ns();
    let plan = Plan {
        workloads: scenario.workloads,
        seed: 1,
        root: Dir::open_own(root.path()).expect("ours"),
        threshold_ns: u64::MAX,
        start_ns,
        end_ns: start_ns + 3_000_000_000,
        cpu: None,
        node: None,
        fifo_priority: None,
        method: AppendMethod::Write,
    };
    let driver = Driver::start(&plan, Arc::new(|_, _| NoMark)).expect("driver");
    while !driver.all_ended() && monotonic_ns() < plan.end_ns {
        std::thread::sleep(Duration::from_millis(5));
    }
    let collector = driver.finish();
    let failure = collector.failures.first().expect("the failure is report");
    assert!(failure.storage_full && failure.what.contains("stream-0"), "{failure:?}");
}

/// A store is loaded first; nothing else happens during that time, and later starts count from its end.
#[test]
fn actors_wait_for_those_that_prepare() {
    let text = "name='t'\nsentence='T.'\n\
        [[workload]]\nuse='maildir'\nmailboxes=10\nmessages=100\n\
        [[workload]]\nuse='journal'\ninterval='2ms'\nbytes='100'\n\
        [[workload]]\nuse='stream'\nlabel='late'\nrole='foreground'\nstart='20ms'\nbytes='4KiB'\ndirection='write'\npause='5ms'\n";
    let (root, mut collector, start_ns) = run(text, 100_000_000);
    let calls = collector.slow_before(u64::MAX);
    let appends: Vec<_> = calls.iter().filter_map(|call| Some((call.seen.due_ns?, call.seen.start_ns))).collect();
    let (begun_ns, _) = *appends.first().expect("appends");
    assert!(begun_ns > start_ns, "a thousand files are created first");
    assert!(appends.iter().all(|(due_ns, at_ns)| at_ns >= due_ns && *due_ns < begun_ns + 100_000_000), "{appends:?}");
    let length = std::fs::metadata(root.path().join("journal/journal-0.0")).expect("the journal's file").len();
    assert_eq!(length, 100 * appends.len() as u64, "no append before the store was there");
    let late = calls.iter().filter(|call| call.thread.starts_with("late")).map(|call| call.seen.start_ns);
    let first_ns = late.min().expect("the late one's calls");
    assert!((begun_ns + 20_000_000..begun_ns + 100_000_000).contains(&first_ns), "{first_ns} after {begun_ns}");
}

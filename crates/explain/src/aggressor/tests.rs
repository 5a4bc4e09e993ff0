//! Chains and queues of which the answer is known.

use crate::testing::{Made, START_NS, said};
use crate::{Explanation, Finding};
use flatwater_recording::{
    Cause, Dirtier, MemoryUser, OpKind, OwnerBasis, QueueAhead, Recording, Request, RequestOp, Task, Wait, WakerBasis,
    WakerKind, WatchedProcess,
};

const MS: u64 = 1_000_000;

fn dd() -> Task {
    Task::new(812, 812, "dd").in_cgroup(Some("/jobs/backup".to_owned()))
}

/// A call of `Made`'s thread 7 that slept for all of its `ms`, with what `edit` knows of it.
fn slept(cause: Cause, ms: u64, edit: impl FnOnce(&mut Recording, Wait)) -> Made {
    let made = Made::new().slow_by("redis-server", OpKind::Write, &[(cause, ms as f64)]);
    made.edit(|recording| {
        recording.header.target.processes.push(WatchedProcess::new(7, 1, "redis-server"));
        let wait = Wait {
            call_tid: 7,
            call_start_ns: START_NS,
            sleeper: Task::new(7, 7, "redis-server"),
            start_ns: START_NS,
            duration_ns: ms * MS,
            ..Wait::default()
        };
        edit(recording, wait);
    })
}

/// A write of 64 KiB, 92 ms behind others and 6 ms at the device.
fn request(id: u64, owner: Option<Task>) -> Request {
    Request {
        id,
        device: "vda".to_owned(),
        op: RequestOp::Write,
        bytes: 64 << 10,
        insert_ns: START_NS + 2 * MS,
        issue_ns: Some(START_NS + 94 * MS),
        complete_ns: START_NS + 100 * MS,
        owner,
        owner_basis: OwnerBasis::Submitter,
        ..Request::default()
    }
}

fn ahead(owner: Task, ms: u64) -> QueueAhead {
    QueueAhead {
        request: 1,
        owner: Some(owner),
        op: RequestOp::Write,
        bytes: 412 << 20,
        device_ns: ms * MS,
        ..QueueAhead::default()
    }
}

/// The main thread waits for the file's lock, its helper holds it in fdatasync and waits for the device, where dd is ahead.
fn behind_dd() -> Made {
    slept(Cause::Lock, 100, |recording, wait| {
        let helper = Task::new(7, 9, "bio_aof");
        recording.requests.push(request(1, Some(helper.clone())));
        recording.queue_ahead.push(ahead(dd(), 90));
        recording.waits.push(Wait {
            waker_kind: WakerKind::Task,
            waker: Some(helper.clone()),
            waker_doing: Some("fdatasync".to_owned()),
            lock: Some("rwsem write".to_owned()),
            lock_holder: Some(helper.clone()),
            basis: WakerBasis::Wakeup,
            ..wait.clone()
        });
        recording.waits.push(Wait {
            depth: 1,
            sleeper: helper,
            waker_kind: WakerKind::Device,
            request: Some(1),
            basis: WakerBasis::Completion,
            ..wait
        });
    })
}

fn top(explanation: &Explanation) -> &Finding {
    explanation.findings.first().expect("a finding")
}

#[test]
fn a_chain_over_a_helper_ends_with_whoever_was_ahead_in_the_queue() {
    let explanation = behind_dd().explained();
    let finding = explanation.findings.iter().find(|finding| finding.cause == "lock").expect("it waited for a lock");
    let [aggressor] = finding.aggressors.as_slice() else { panic!("{:?}", finding.aggressors) };
    assert_eq!((aggressor.program.as_str(), aggressor.pids.as_slice()), ("dd", &[812][..]));
    assert_eq!(aggressor.cgroup.as_deref(), Some("/jobs/backup"));
    assert_eq!((aggressor.means, aggressor.stall_ns, aggressor.share), (super::Means::Queue, 90 * MS, 0.9));
    let to = finding.answerable.expect("it is known");
    // 8 ms of the device's for the request itself, 2 ms before it was inserted.
    assert_eq!((to.device, to.unknown), (0.08, 0.02));
    let lead = explanation.lead.as_deref().expect("a sentence");
    for part in [
        "redis-server: 1 write() call, up to 100 ms,",
        "its own thread bio_aof held in fdatasync",
        "queued behind 412 MiB of dd (pid 812, cgroup /jobs/backup)",
    ] {
        assert!(lead.contains(part), "{lead}");
    }
    assert!(finding.fixes[0].text.contains("io.max of cgroup /jobs/backup"), "{:?}", finding.fixes);
    // What the requests did says more than the lock.
    assert_eq!(top(&explanation).cause, "device-queue-starved");
    assert_eq!(top(&explanation).aggressors, finding.aggressors);
}

#[test]
fn alone_nobody_is_named_and_the_device_answers() {
    let made = slept(Cause::PageWriteback, 100, |recording, wait| {
        recording.requests.push(request(1, Some(Task::new(7, 7, "redis-server"))));
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let explanation = made.explained();
    assert_eq!(top(&explanation).cause, "device-slow", "issue to completion of what was waited for, and nobody ahead");
    assert!(explanation.findings.iter().all(|finding| finding.aggressors.is_empty()));
    assert!(
        explanation.lead.as_deref().is_some_and(|lead| lead.ends_with("no other process made it wait")),
        "{:?}",
        explanation.lead
    );
}

#[test]
fn own_requests_ahead_and_small_ones_of_others_accuse_nobody() {
    let made = slept(Cause::PageWriteback, 100, |recording, wait| {
        recording.requests.push(request(1, Some(Task::new(7, 7, "redis-server"))));
        recording.queue_ahead.push(ahead(Task::new(7, 9, "bio_aof"), 70));
        recording.queue_ahead.push(ahead(dd(), 15));
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let explanation = made.explained();
    let finding = top(&explanation);
    assert_eq!((finding.cause, finding.aggressors.len()), ("device-queue-starved", 0));
    assert!(said(finding).contains("the target's own 70 ms"), "{}", said(finding));
}

#[test]
fn a_limit_is_told_from_a_queue_and_from_the_device() {
    let made = slept(Cause::PageWriteback, 100, |recording, wait| {
        let held = Request { throttled: Some(true), insert_ns: START_NS + 90 * MS, ..request(1, None) };
        recording.requests.push(held);
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let explanation = made.explained();
    assert_eq!((top(&explanation).cause, top(&explanation).lost_ns), ("io-throttle", Some(90 * MS)));
    assert!(top(&explanation).aggressors.is_empty());
    assert!(
        explanation.lead.as_deref().is_some_and(|lead| lead.contains("a limit on its cgroup's I/O")),
        "{:?}",
        explanation.lead
    );
}

#[test]
fn a_flush_is_not_the_devices_slowness_with_data() {
    let made = slept(Cause::DeviceWait, 100, |recording, wait| {
        recording.requests.push(Request { op: RequestOp::Flush, bytes: 0, ..request(1, None) });
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let finding = top(&made.explained()).clone();
    assert_eq!((finding.cause, finding.answerable.map(|to| to.flush)), ("device-slow", Some(0.98)));
    assert!(said(&finding).contains("98 ms of it in flushes"), "{}", said(&finding));
}

#[test]
fn a_commit_that_writes_a_neighbours_data_accuses_the_neighbour() {
    let made = slept(Cause::JournalCommit, 100, |recording, wait| {
        let journal = Task::new(301, 301, "jbd2/vda-8");
        recording.requests.push(request(1, Some(dd())));
        recording.waits.push(Wait { waker_kind: WakerKind::Task, waker: Some(journal.clone()), ..wait.clone() });
        recording.waits.push(Wait {
            depth: 1,
            sleeper: journal,
            waker_kind: WakerKind::Device,
            request: Some(1),
            ..wait
        });
    });
    let finding = top(&made.explained()).clone();
    let named: Vec<_> = finding.aggressors.iter().map(|one| (one.program.as_str(), one.means)).collect();
    assert_eq!(named, [("dd", super::Means::Data)]);
}

#[test]
fn a_pause_and_reclaim_are_charged_to_those_who_dirtied_and_took() {
    let made = slept(Cause::DirtyThrottle, 100, |recording, _| {
        let row = |owner: Task, mib: u64| Dirtier {
            start_ns: START_NS,
            width_ns: 1_000 * MS,
            owner,
            bytes: Some(mib << 20),
            ..Dirtier::default()
        };
        recording.dirtiers = vec![row(dd(), 300), row(Task::new(7, 7, "redis-server"), 100)];
    });
    let explanation = made.explained();
    let finding = top(&explanation);
    assert_eq!((finding.aggressors[0].program.as_str(), finding.aggressors[0].share), ("dd", 0.75));
    assert_eq!(finding.answerable.map(|to| to.own), Some(0.25));
    let made = slept(Cause::MemcgReclaim, 100, |recording, _| {
        let user = |name: &str, pid, pages| MemoryUser {
            start_ns: START_NS,
            width_ns: 1_000 * MS,
            owner: Task::new(pid, 0, name).in_cgroup(Some(if name == "far" { "/far" } else { "/app" }.to_owned())),
            allocated_pages: Some(pages),
            ..MemoryUser::default()
        };
        recording.memory_users = vec![user("redis-server", 7, 100), user("hog", 9, 300), user("far", 10, 9_999)];
    });
    let explanation = made.explained();
    let named: Vec<_> = top(&explanation).aggressors.iter().map(|one| (one.program.as_str(), one.share)).collect();
    assert_eq!(named, [("hog", 0.75)], "a cgroup's own limit is reached by its members");
}

#[test]
fn what_nobody_recorded_accuses_nobody_and_absolves_nobody() {
    let explanation = slept(Cause::PageWriteback, 100, |_, _| {}).explained();
    assert_eq!((top(&explanation).cause, top(&explanation).answerable), ("page-writeback", None));
    let made = slept(Cause::Lock, 100, |recording, wait| recording.waits.push(wait));
    let explanation = made.explained();
    assert_eq!(top(&explanation).answerable, None, "a sleep of which nobody is known");
    assert!(explanation.lead.is_some_and(|lead| !lead.contains("no other process")));
}

#[test]
fn the_summary_names_who_was_ahead() {
    let rows = crate::summary::of(&behind_dd().done());
    let stall_ns: i64 = rows.iter().filter_map(|row| row.stall_ns).sum();
    assert_eq!(stall_ns, 100_000_000);
    let most = rows.iter().max_by_key(|row| row.stall_ns).expect("rows");
    assert_eq!((most.aggressor.as_deref(), most.aggressor_cgroup.as_deref()), (Some("dd"), Some("/jobs/backup")));
    assert_eq!((most.aggressor_kind.as_deref(), most.aggressor_means.as_deref()), (Some("others"), Some("queue")));
    assert_eq!((most.cause.as_deref(), most.calls), (Some("lock"), Some(1)));
}

#[test]
fn damaged_chains_end() {
    let made = slept(Cause::Lock, 100, |recording, wait| {
        for depth in [0, 1, 2, 3, u32::MAX] {
            let own = Task::new(7, 7, "redis-server");
            recording.waits.push(Wait {
                depth,
                waker_kind: WakerKind::Task,
                waker: Some(own),
                duration_ns: u64::MAX,
                ..wait.clone()
            });
        }
        recording.requests.push(Request { complete_ns: 0, insert_ns: u64::MAX, ..request(1, None) });
        recording.queue_ahead.push(ahead(dd(), u64::MAX / MS));
    });
    assert!(top(&made.explained()).answerable.is_some_and(|to| to.own > 0.99));
}

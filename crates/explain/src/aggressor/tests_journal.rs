//! Charges where only a cgroup, a journal's content or a full queue shows the party.

use super::tests::{MS, ahead, dd, request, slept, top};
use crate::CauseId;
use crate::testing::{RecordingBuilder, START_NS};
use flatwater_recording::{
    Cause, Dirtier, LatencyBucket, OpKind, PackedHistogram, QueueOwner, Request, RequestOp, Task, Wait, WakerBasis,
    WakerKind,
};

/// A request of a kernel thread that is charged to a cgroup: the caller's own, or another.
fn charged_to(cgroup: &str) -> RecordingBuilder {
    slept(Cause::JournalCommit, 100, |recording, mut wait| {
        wait.sleeper.cgroup = Some("/db".to_owned());
        recording.requests.push(request(1, None));
        recording.queue_ahead.push(ahead(Task::default().in_cgroup(Some(cgroup.to_owned())), 90));
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    })
}

#[test]
fn a_request_with_only_a_cgroup_is_charged_to_that_cgroup() {
    let explanation = charged_to("/jobs/backup").explained();
    let [aggressor] = top(&explanation).aggressors.as_slice() else { panic!("{:?}", explanation.findings) };
    assert_eq!((aggressor.program.as_str(), aggressor.cgroup.as_deref()), ("some program", Some("/jobs/backup")));
    assert!(aggressor.pids.is_empty() && aggressor.share == 0.9, "{aggressor:?}");
    let lead = &explanation.lead.as_ref().expect("a sentence").to_string();
    assert!(lead.contains("412 MiB of some program (cgroup /jobs/backup)"), "{lead}");
}

#[test]
fn a_request_of_the_callers_cgroup_names_no_aggressor() {
    let explanation = charged_to("/db").explained();
    assert!(explanation.findings.iter().all(|finding| finding.aggressors.is_empty()), "{:?}", explanation.findings);
    let to = top(&explanation).answerable.as_ref().expect("it is known");
    assert_eq!((to.own, to.kernel), (0.9, 0.0));
    assert!(to.members.is_empty());
}

#[test]
fn a_cgroups_charges_join_its_only_program() {
    let builder = charged_to("/jobs/backup").edit(|recording| recording.queue_ahead.push(ahead(dd(), 5)));
    let explanation = builder.explained();
    let [aggressor] = top(&explanation).aggressors.as_slice() else { panic!("{:?}", explanation.findings) };
    assert_eq!((aggressor.program.as_str(), aggressor.pids.as_slice()), ("dd", &[812][..]));
}

/// An fsync that waits 100 ms for the journal's thread (60 ms of writing, 30 ms of work), while the device writes
/// `mib` MiB/s of metadata and a neighbour changes `inodes` inodes. The target itself syncs 100 times a second.
fn committed(mib: u64, inodes: u64) -> RecordingBuilder {
    slept(Cause::JournalCommit, 100, |recording, wait| {
        let journal = Task::new(90, 90, "jbd2/vda-8");
        recording.requests.push(Request { insert_ns: START_NS + 40 * MS, awaited_ns: None, ..request(1, None) });
        let (start_ns, width_ns) = (START_NS - 500 * MS, 1_000 * MS);
        recording.queue_owners.push(QueueOwner {
            start_ns,
            width_ns,
            device: "vda".to_owned(),
            op: RequestOp::Write,
            requests: 100,
            bytes: mib << 20,
            ..QueueOwner::default()
        });
        for inode in 0..inodes {
            let owner = Task::new(812, 0, "untar").in_cgroup(Some("/jobs".to_owned()));
            recording.dirtiers.push(Dirtier { start_ns, width_ns, owner, inode: Some(inode), ..Dirtier::default() });
        }
        let mut fsyncs = flatwater_recording::histogram();
        fsyncs.record_n(5 * MS, 100).expect("in range");
        recording.latency.push(LatencyBucket {
            start_ns,
            width_ns,
            op: OpKind::Fsync,
            thread: String::new(),
            bytes: 0,
            from_start: PackedHistogram::pack(&fsyncs),
            from_due: None,
            worst_from_start_ns: 5 * MS,
            worst_from_due_ns: None,
        });
        recording.waits.push(Wait {
            waker_kind: WakerKind::Task,
            waker: Some(journal.clone()),
            basis: WakerBasis::Wakeup,
            ..wait.clone()
        });
        recording.waits.push(Wait {
            depth: 1,
            sleeper: journal,
            start_ns: START_NS + 40 * MS,
            duration_ns: 60 * MS,
            waker_kind: WakerKind::Device,
            request: Some(1),
            ..wait
        });
    })
}

#[test]
fn a_commit_of_much_metadata_is_charged_to_the_processes_that_changed_inodes() {
    let explanation = committed(11, 900).explained();
    let finding =
        explanation.findings.iter().find(|finding| finding.cause == CauseId::JournalCommit).expect("it waited");
    let [aggressor] = finding.aggressors.as_slice() else { panic!("{finding:?}") };
    assert_eq!((aggressor.program.as_str(), aggressor.means), ("untar", super::Means::Journal));
    // 10 of 11 MiB exceed the usual rate, and 900 of 1000 changes are the neighbour's: 9/11 of the 100 ms.
    assert_eq!(aggressor.stall_ns / MS, 81, "{aggressor:?}");
    let lead = &explanation.lead.as_ref().expect("a sentence").to_string();
    assert!(lead.contains("full of the changes of untar (pid 812, cgroup /jobs)"), "{lead}");
    assert!(
        finding.fixes[0].text.starts_with("move the files of untar (pid 812, cgroup /jobs) to another device"),
        "{finding:?}"
    );
}

#[test]
fn a_commit_of_little_metadata_or_own_changes_names_no_aggressor() {
    for (mib, inodes) in [(1, 900), (11, 10), (11, 0)] {
        let explanation = committed(mib, inodes).explained();
        assert!(explanation.findings.iter().all(|finding| finding.aggressors.is_empty()), "{mib} MiB, {inodes} inodes");
    }
}

/// Any completing request wakes a task that waits for a free one, so the holders of the requests are charged.
#[test]
fn a_full_queue_is_charged_to_the_holders_of_the_requests() {
    let builder = slept(Cause::RequestQueue, 100, |recording, wait| {
        recording.requests.push(request(1, Some(Task::new(7, 7, "redis-server"))));
        recording.waits.push(Wait { waker_kind: WakerKind::SoftIrq, duration_ns: 90 * MS, ..wait.clone() });
        let last = START_NS + 90 * MS;
        recording.waits.push(Wait { start_ns: last, duration_ns: 0, request: Some(1), ..wait });
        for (owner, held_ms) in [(dd(), 300), (Task::new(7, 0, "redis-server"), 100)] {
            recording.queue_owners.push(QueueOwner {
                start_ns: START_NS,
                width_ns: 1_000 * MS,
                device: "vda".to_owned(),
                owner: Some(owner),
                op: RequestOp::Write,
                queue_ns: held_ms * MS / 2,
                device_ns: held_ms * MS / 2,
                ..QueueOwner::default()
            });
        }
    });
    let explanation = builder.explained();
    let first = top(&explanation);
    let stage = first.stages.iter().find(|stage| stage.cause == CauseId::RequestQueue).expect("it waited");
    let [aggressor] = first.aggressors.as_slice() else { panic!("{first:?}") };
    assert_eq!((aggressor.program.as_str(), aggressor.stall_ns / MS), ("dd", 75));
    assert_eq!(stage.answerable.as_ref().map(|to| to.own), Some(0.25));
}

/// A btrfs worker writes back dirty pages to free the space reserved for them. The wait is charged to the processes
/// that dirtied the pages, not to the worker.
#[test]
fn a_wait_for_reserved_space_is_charged_to_dirtiers() {
    let builder = slept(Cause::BlockAllocation, 100, |recording, wait| {
        recording.dirtiers.push(Dirtier {
            start_ns: START_NS,
            width_ns: 1_000 * MS,
            owner: dd(),
            bytes: Some(412 << 20),
            ..Dirtier::default()
        });
        recording.waits.push(Wait {
            waker_kind: WakerKind::Task,
            waker: Some(Task::new(91, 91, "kworker/u8:3")),
            waker_doing: Some("btrfs_async_reclaim_data_space".to_owned()),
            ..wait
        });
    });
    let explanation = builder.explained();
    let finding = top(&explanation);
    let [aggressor] = finding.aggressors.as_slice() else { panic!("{finding:?}") };
    assert_eq!((aggressor.program.as_str(), aggressor.means), ("dd", super::Means::DirtyPages));
}

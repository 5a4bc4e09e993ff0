//! Wait chains and queues whose aggressors are known.

use crate::testing::{RecordingBuilder, START_NS, evidence_text};
use crate::{CauseId, Explanation, Finding};
use flatwater_recording::{
    Cause, CpuOwner, Dirtier, Entity, MemoryUser, OpKind, OwnerBasis, QueueAhead, QueueOwner, Recording, Request,
    RequestOp, Stack, StackId, Table, Task, Wait, WakerBasis, WakerKind, WatchedProcess,
};

pub(super) const MS: u64 = 1_000_000;

pub(super) fn dd() -> Task {
    Task::new(812, 812, "dd").in_cgroup(Some("/jobs/backup".to_owned()))
}

/// A call of `RecordingBuilder`'s thread 7 that slept for all `ms`; `edit` adds the rows about its sleep.
pub(super) fn slept(cause: Cause, ms: u64, edit: impl FnOnce(&mut Recording, Wait)) -> RecordingBuilder {
    let builder = RecordingBuilder::new().slow_by("redis-server", OpKind::Write, &[(cause, ms as f64)]);
    builder.edit(|recording| {
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
pub(super) fn request(id: u64, owner: Option<Task>) -> Request {
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

pub(super) fn ahead(owner: Task, ms: u64) -> QueueAhead {
    QueueAhead {
        request: 1,
        owner: Some(owner),
        op: RequestOp::Write,
        bytes: 412 << 20,
        device_ns: ms * MS,
        ..QueueAhead::default()
    }
}

/// The main thread waits for the file's lock; its helper holds the lock in fdatasync and waits for the device,
/// behind dd.
fn behind_dd() -> RecordingBuilder {
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

pub(super) fn top(explanation: &Explanation) -> &Finding {
    explanation.findings.first().expect("a finding")
}

#[test]
fn a_chain_through_a_helper_ends_with_the_process_ahead_in_the_queue() {
    let explanation = behind_dd().explained();
    let finding = top(&explanation);
    assert!(finding.stages.iter().any(|stage| stage.cause == CauseId::Lock), "one answer, one finding: {finding:?}");
    let [aggressor] = finding.aggressors.as_slice() else { panic!("{:?}", finding.aggressors) };
    assert_eq!((aggressor.program.as_str(), aggressor.pids.as_slice()), ("dd", &[812][..]));
    assert_eq!(aggressor.cgroup.as_deref(), Some("/jobs/backup"));
    assert_eq!((aggressor.means, aggressor.stall_ns, aggressor.share), (super::Means::Queue, 90 * MS, 0.9));
    let to = finding.answerable.as_ref().expect("it is known");
    // 8 ms: 6 ms at the device for the request itself, and 2 ms before it was inserted.
    assert_eq!((to.device, to.unknown), (0.08, 0.02));
    let lead = &explanation.lead.as_ref().expect("a sentence").to_string();
    for part in [
        "redis-server: 1 write() call, up to 100 ms,",
        "its own thread bio_aof held in fdatasync",
        "queued behind 412 MiB of dd (pid 812, cgroup /jobs/backup)",
    ] {
        assert!(lead.contains(part), "{lead}");
    }
    assert!(
        finding.fixes[0].text.starts_with("limit what dd (pid 812, cgroup /jobs/backup) writes to vda (4 MiB/s)"),
        "{:?}",
        finding.fixes
    );
    // The queue says more than the lock, so its finding comes first.
    assert_eq!(top(&explanation).cause, CauseId::DeviceQueueStarved);
    assert_eq!(top(&explanation).aggressors, finding.aggressors);
}

#[test]
fn without_requests_ahead_the_device_is_charged() {
    let builder = slept(Cause::PageWriteback, 100, |recording, wait| {
        recording.requests.push(request(1, Some(Task::new(7, 7, "redis-server"))));
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let explanation = builder.explained();
    assert_eq!(
        top(&explanation).cause,
        CauseId::DeviceSlow,
        "from issue to completion of the awaited request, without requests ahead"
    );
    assert!(explanation.findings.iter().all(|finding| finding.aggressors.is_empty()));
    assert!(
        explanation.lead.as_ref().is_some_and(|lead| lead.to_string().ends_with("no other process made it wait")),
        "{:?}",
        explanation.lead
    );
}

#[test]
fn own_requests_and_small_ones_of_others_name_no_aggressor() {
    let builder = slept(Cause::PageWriteback, 100, |recording, wait| {
        recording.requests.push(request(1, Some(Task::new(7, 7, "redis-server"))));
        recording.queue_ahead.push(ahead(Task::new(7, 9, "bio_aof"), 70));
        recording.queue_ahead.push(ahead(dd(), 15));
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let explanation = builder.explained();
    let finding = top(&explanation);
    assert_eq!((finding.cause, finding.aggressors.len()), (CauseId::DeviceQueueStarved, 0));
    assert!(evidence_text(finding).contains("the target's own 70 ms"), "{}", evidence_text(finding));
}

#[test]
fn an_io_limit_is_distinguished_from_queue_and_device() {
    let builder = slept(Cause::PageWriteback, 100, |recording, wait| {
        let held = Request { throttled: Some(true), insert_ns: START_NS + 90 * MS, ..request(1, None) };
        recording.requests.push(held);
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let explanation = builder.explained();
    assert_eq!((top(&explanation).cause, top(&explanation).lost_ns), (CauseId::IoThrottle, Some(90 * MS)));
    assert!(top(&explanation).aggressors.is_empty());
    assert!(
        explanation.lead.as_ref().is_some_and(|lead| lead.to_string().contains("a limit on its cgroup's I/O")),
        "{:?}",
        explanation.lead
    );
}

#[test]
fn a_flush_is_not_the_devices_slowness_with_data() {
    let builder = slept(Cause::DeviceWait, 100, |recording, wait| {
        recording.requests.push(Request { op: RequestOp::Flush, bytes: 0, ..request(1, None) });
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let finding = top(&builder.explained()).clone();
    assert_eq!((finding.cause, finding.answerable.as_ref().map(|to| to.flush)), (CauseId::DeviceSlow, Some(0.98)));
    assert!(evidence_text(&finding).contains("98 ms in write-cache flushes"), "{}", evidence_text(&finding));
}

#[test]
fn a_commit_that_writes_a_neighbours_data_accuses_the_neighbour() {
    let builder = slept(Cause::JournalCommit, 100, |recording, wait| {
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
    let finding = top(&builder.explained()).clone();
    let named: Vec<_> =
        finding.aggressors.iter().map(|aggressor| (aggressor.program.as_str(), aggressor.means)).collect();
    assert_eq!(named, [("dd", super::Means::Data)]);
}

#[test]
fn throttling_is_charged_to_dirtiers_and_reclaim_to_memory_users() {
    let builder = slept(Cause::DirtyThrottle, 100, |recording, _| {
        let row = |owner: Task, mib: u64| Dirtier {
            start_ns: START_NS,
            width_ns: 1_000 * MS,
            owner,
            bytes: Some(mib << 20),
            ..Dirtier::default()
        };
        recording.dirtiers = vec![row(dd(), 300), row(Task::new(7, 7, "redis-server"), 100)];
    });
    let explanation = builder.explained();
    let finding = top(&explanation);
    assert_eq!((finding.aggressors[0].program.as_str(), finding.aggressors[0].share), ("dd", 0.75));
    assert_eq!(finding.answerable.as_ref().map(|to| to.own), Some(0.25));
    let builder = slept(Cause::MemcgReclaim, 100, |recording, _| {
        let user = |name: &str, pid, pages| MemoryUser {
            start_ns: START_NS,
            width_ns: 1_000 * MS,
            owner: Task::new(pid, 0, name).in_cgroup(Some(if name == "far" { "/far" } else { "/app" }.to_owned())),
            allocated_pages: Some(pages),
            ..MemoryUser::default()
        };
        recording.memory_users = vec![user("redis-server", 7, 100), user("hog", 9, 300), user("far", 10, 9_999)];
    });
    let explanation = builder.explained();
    let named: Vec<_> =
        top(&explanation).aggressors.iter().map(|aggressor| (aggressor.program.as_str(), aggressor.share)).collect();
    assert_eq!(named, [("hog", 0.75)], "a cgroup's own limit is reached by its members");
}

#[test]
fn a_wait_for_a_cpu_is_charged_to_the_running_process() {
    let builder = slept(Cause::RunQueue, 100, |recording, _| {
        let ran = |owner: Task, ms: u64| CpuOwner {
            call_tid: 7,
            call_start_ns: START_NS,
            start_ns: START_NS,
            duration_ns: 100 * MS,
            owner: Some(owner),
            ran_ns: ms * MS,
            runs: 1,
            ..CpuOwner::default()
        };
        recording.cpu_owners = vec![ran(Task::new(55, 0, "hog"), 80), ran(Task::new(7, 0, "redis-server"), 15)];
    });
    let explanation = builder.explained();
    let finding =
        explanation.findings.iter().find(|finding| finding.cause == CauseId::RunQueue).expect("it waited for a CPU");
    let named: Vec<_> = finding
        .aggressors
        .iter()
        .map(|aggressor| (aggressor.program.as_str(), aggressor.means, aggressor.share))
        .collect();
    assert_eq!(named, [("hog", super::Means::Cpu, 0.8)]);
    // The CPU idled for 5 ms.
    assert_eq!(finding.answerable.as_ref().map(|to| (to.own, to.unknown)), Some((0.15, 0.05)));
    assert!(
        explanation.lead.as_ref().is_some_and(|lead| lead.to_string().ends_with("on which hog (pid 55) ran")),
        "{:?}",
        explanation.lead
    );
}

#[test]
fn a_flush_of_a_neighbours_data_accuses_the_neighbour_and_a_flush_of_own_data_the_device() {
    let flushed = |owner: Task| {
        slept(Cause::DeviceWait, 100, |recording, wait| {
            recording.requests.push(Request { op: RequestOp::Flush, bytes: 0, ..request(1, None) });
            let row = QueueAhead { op: RequestOp::Flush, in_cache: Some(true), ..ahead(owner, 98) };
            recording.queue_ahead.push(row);
            recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
        })
        .explained()
    };
    let explanation = flushed(dd());
    let finding = top(&explanation);
    let named: Vec<_> =
        finding.aggressors.iter().map(|aggressor| (aggressor.program.as_str(), aggressor.means)).collect();
    assert_eq!((finding.cause, named.as_slice()), (CauseId::DeviceQueueStarved, &[("dd", super::Means::Cache)][..]));
    let lead = &explanation.lead.as_ref().expect("a sentence").to_string();
    assert!(lead.contains(" a flush on "), "a flush moves no data:  {lead}");
    let explanation = flushed(Task::new(7, 9, "bio_aof"));
    assert_eq!((top(&explanation).cause, top(&explanation).aggressors.len()), (CauseId::DeviceSlow, 0));
    assert_eq!(top(&explanation).answerable.as_ref().map(|to| to.flush), Some(0.98));
}

#[test]
fn a_wait_before_the_insertion_is_charged_to_the_requests_ahead() {
    let waited = |awaited_ns| {
        slept(Cause::PageWriteback, 100, |recording, wait| {
            let late = Request { insert_ns: START_NS + 90 * MS, awaited_ns, ..request(1, None) };
            recording.requests.push(late);
            recording.queue_ahead.push(ahead(dd(), 90));
            recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
        })
        .explained()
    };
    let explanation = waited(Some(START_NS));
    assert_eq!(top(&explanation).aggressors.iter().map(|aggressor| aggressor.stall_ns).collect::<Vec<_>>(), [90 * MS]);
    // An older recording lacks `awaited_ns`: the time before the insertion is charged to unknown.
    assert_eq!(top(&waited(None)).answerable.as_ref().map(|to| to.unknown), Some(0.9));
}

#[test]
fn a_full_cgroup_is_charged_by_reclaimed_pages() {
    let builder = slept(Cause::MemcgReclaim, 100, |recording, _| {
        let user = |name: &str, pid, reclaimed: u64, faults: u64| MemoryUser {
            start_ns: START_NS,
            width_ns: 1_000 * MS,
            owner: Task::new(pid, 0, name).in_cgroup(Some("/app".to_owned())),
            allocated_pages: (faults > 0).then_some(faults),
            reclaimed_pages: (reclaimed > 0).then_some(reclaimed),
            reclaims: (reclaimed > 0).then_some(reclaimed / 32),
            whole_machine: (reclaimed > 0).then_some(false),
            ..MemoryUser::default()
        };
        // The server faulted in many pages for which it had to reclaim nothing.
        recording.memory_users =
            vec![user("redis-server", 7, 0, 9_000), user("redis-server", 7, 96, 0), user("dd", 9, 864, 0)];
    });
    let explanation = builder.explained();
    let named: Vec<_> =
        top(&explanation).aggressors.iter().map(|aggressor| (aggressor.program.as_str(), aggressor.share)).collect();
    assert_eq!(named, [("dd", 0.9)]);
}

#[test]
fn a_device_whose_own_thread_has_no_cpu_is_not_slow() {
    let builder = slept(Cause::PageWriteback, 100, |recording, wait| {
        let late = Request {
            issue_ns: Some(START_NS + 2 * MS),
            server_waited_ns: Some(80 * MS),
            ..request(1, Some(Task::new(7, 7, "redis-server")))
        };
        recording.requests.push(late);
        recording.cpu_owners.push(CpuOwner {
            request: Some(1),
            waiter: Some(Task::new(91, 91, "kworker/u8:1-loop0")),
            start_ns: START_NS + 4 * MS,
            duration_ns: 80 * MS,
            owner: Some(Task::new(55, 0, "hog")),
            ran_ns: 75 * MS,
            ..CpuOwner::default()
        });
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let explanation = builder.explained();
    let finding = top(&explanation);
    assert_eq!((finding.cause, finding.lost_ns), (CauseId::RunQueue, Some(80 * MS)));
    assert!(finding.headline.starts_with("the kernel's threads that serve the device"), "{}", finding.headline);
    let named: Vec<_> = finding
        .aggressors
        .iter()
        .map(|aggressor| (aggressor.program.as_str(), aggressor.means, aggressor.stall_ns))
        .collect();
    assert_eq!(named, [("hog", super::Means::Cpu, 75 * MS)]);
    let lead = &explanation.lead.as_ref().expect("a sentence").to_string();
    assert!(
        lead.ends_with("on vda; hog (pid 55) had the CPU that the kernel's threads behind it waited for"),
        "a device has no CPU to run on: {lead}"
    );
}

#[test]
fn a_journal_thread_without_a_cpu_is_charged_to_the_running_process() {
    let builder = slept(Cause::JournalCommit, 100, |recording, wait| {
        let journal = Task::new(301, 301, "jbd2/vda-8");
        recording.cpu_owners.push(CpuOwner {
            call_tid: 7,
            call_start_ns: START_NS,
            waiter: Some(journal.clone()),
            start_ns: START_NS + 10 * MS,
            duration_ns: 70 * MS,
            owner: Some(Task::new(55, 0, "hog")),
            ran_ns: 70 * MS,
            ..CpuOwner::default()
        });
        recording.waits.push(Wait { waker_kind: WakerKind::Task, waker: Some(journal), ..wait });
    });
    let explanation = builder.explained();
    let first = top(&explanation);
    let commit = first.stages.iter().find(|stage| stage.cause == CauseId::JournalCommit).expect("it waited");
    assert_eq!(commit.answerable.as_ref().map(|to| (to.others, to.kernel)), Some((0.7, 0.3)));
    assert_eq!((top(&explanation).cause, top(&explanation).lost_ns), (CauseId::RunQueue, Some(70 * MS)));
}

/// dd took nearly all of the memory allocated in cgroup `/app`, in which the target reads.
fn cache_taken(recording: &mut Recording) {
    let app = |pid, name: &str| Task::new(pid, 0, name).in_cgroup(Some("/app".to_owned()));
    let taker = |pid, name: &str, pages| MemoryUser {
        width_ns: 1_000 * MS,
        owner: app(pid, name),
        reclaimed_pages: Some(pages),
        reclaims: Some(pages / 32),
        whole_machine: Some(false),
        ..MemoryUser::default()
    };
    recording.memory_users = vec![taker(9, "dd", 960), taker(7, "redis-server", 40)];
    recording.queue_owners.push(QueueOwner {
        op: RequestOp::Read,
        owner: Some(app(7, "redis-server")),
        bytes: 100 * 4096,
        ..QueueOwner::default()
    });
}

/// `/app` read `refaults` evicted pages again; the cgroup `/full` is at its limit of 1 GiB, with `file_mib` MiB
/// page cache.
fn cgroup_full(builder: RecordingBuilder, refaults: i64, file_mib: i64) -> RecordingBuilder {
    let at_limit = [("limit_bytes", &[1 << 30][..]), ("usage_bytes", &[1 << 30]), ("file", &[file_mib << 20])];
    builder.counters(Table::Cgroup, &Entity::named("/app"), &[("workingset_refault_file", &[0, refaults])]).gauges(
        Table::Cgroup,
        &Entity::named("/full"),
        &at_limit,
    )
}

#[test]
fn reading_an_evicted_page_is_charged_to_memory_users() {
    let again = |refaults: i64| {
        let builder = slept(Cause::SynchronousRead, 100, |recording, wait| {
            let read = Request { op: RequestOp::Read, issue_ns: Some(START_NS + 2 * MS), ..request(1, None) };
            recording.requests.push(Request { owner: Some(Task::new(7, 7, "redis-server")), ..read });
            // The requests ahead are not the reason: without the eviction there would have been no read.
            recording.queue_ahead.push(ahead(Task::new(900, 900, "backup"), 30));
            recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
            cache_taken(recording);
        });
        cgroup_full(builder, refaults, 900).explained()
    };
    let explanation = again(100);
    let finding = top(&explanation);
    assert_eq!(
        (finding.cause, finding.lost_ns),
        (CauseId::CgroupLimitCache, Some(98 * MS)),
        "{}",
        evidence_text(finding)
    );
    let named: Vec<_> = finding
        .aggressors
        .iter()
        .map(|aggressor| (aggressor.program.as_str(), aggressor.means, aggressor.share))
        .collect();
    assert_eq!(named, [("dd", super::Means::Memory, 0.96)]);
    // Hardly any of the data had been in the cache before: the file is new to it.
    let first = again(5);
    assert_eq!((top(&first).cause, top(&first).aggressors[0].program.as_str()), (CauseId::DeviceSlow, "backup"));
}

#[test]
fn a_read_waiting_for_a_free_request_is_charged_to_memory_users() {
    // A page fault reads an evicted page while the neighbour's writeback holds all requests. A write that waits for
    // a free request has nothing to do with memory. Little of the cgroup is page cache, as with a JVM.
    let starved = |function: &str| {
        let builder = slept(Cause::RequestQueue, 100, |recording, wait| {
            let frames = ["io_schedule", "blk_mq_get_tag", "submit_bio_noacct_nocheck", function];
            let id = StackId(u32::try_from(recording.stacks.len()).expect("few stacks"));
            recording.stacks.push(Stack { id, frames: frames.map(str::to_owned).to_vec() });
            for segment in recording.calls.iter_mut().flat_map(|call| &mut call.segments) {
                segment.stack = Some(id);
            }
            recording.waits.push(Wait { waker: Some(Task::new(0, 0, "swapper/0")), ..wait });
            cache_taken(recording);
        });
        cgroup_full(builder, 100, 100).explained()
    };
    let explanation = starved("ext4_mpage_readpages");
    let finding = top(&explanation);
    assert_eq!(finding.cause, CauseId::CgroupLimitCache, "{}", evidence_text(finding));
    let named: Vec<_> = finding
        .aggressors
        .iter()
        .map(|aggressor| (aggressor.program.as_str(), aggressor.means, aggressor.share))
        .collect();
    assert_eq!(named, [("dd", super::Means::Memory, 0.96)]);
    assert_eq!(top(&starved("ext4_bio_write_folio")).cause, CauseId::RequestQueue);
}

#[test]
fn short_lived_programs_are_named_by_their_cgroup() {
    let builder = slept(Cause::RunQueue, 100, |recording, _| {
        let ran = |name: &str, pid, cgroup: &str| CpuOwner {
            call_tid: 7,
            call_start_ns: START_NS,
            start_ns: START_NS,
            duration_ns: 100 * MS,
            owner: Some(Task::new(pid, 0, name).in_cgroup(Some(cgroup.to_owned()))),
            ran_ns: 15 * MS,
            ..CpuOwner::default()
        };
        recording.cpu_owners =
            vec![ran("cc1", 50, "/build"), ran("as", 51, "/build"), ran("ld", 52, "/build"), ran("sshd", 53, "/")];
    });
    let explanation = builder.explained();
    let named: Vec<_> = top(&explanation)
        .aggressors
        .iter()
        .map(|aggressor| (aggressor.program.as_str(), aggressor.cgroup.as_deref(), aggressor.share))
        .collect();
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(
        named[0].0.ends_with("and 2 more programs") && (named[0].1, named[0].2) == (Some("/build"), 0.45),
        "{named:?}"
    );
}

#[test]
fn an_unknown_party_gives_no_answer() {
    let explanation = slept(Cause::PageWriteback, 100, |_, _| {}).explained();
    assert_eq!((top(&explanation).cause, top(&explanation).answerable.clone()), (CauseId::PageWriteback, None));
    let builder = slept(Cause::Lock, 100, |recording, wait| recording.waits.push(wait));
    let explanation = builder.explained();
    assert_eq!(top(&explanation).answerable, None, "a sleep without a known party");
    assert!(explanation.lead.is_some_and(|lead| !lead.to_string().contains("no other process")));
}

#[test]
fn the_summary_names_the_process_ahead() {
    let rows = crate::summary::of(&behind_dd().done());
    let stall_ns: i64 = rows.iter().filter_map(|row| row.stall_ns).sum();
    assert_eq!(stall_ns, 100_000_000);
    let most = rows.iter().max_by_key(|row| row.stall_ns).expect("rows");
    assert_eq!((most.aggressor.as_deref(), most.aggressor_cgroup.as_deref()), (Some("dd"), Some("/jobs/backup")));
    assert_eq!((most.aggressor_kind.as_deref(), most.aggressor_means.as_deref()), (Some("others"), Some("queue")));
    assert_eq!((most.cause.as_deref(), most.calls), (Some("lock"), Some(1)));
}

#[test]
fn damaged_chains_terminate() {
    let builder = slept(Cause::Lock, 100, |recording, wait| {
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
    assert!(top(&builder.explained()).answerable.as_ref().is_some_and(|to| to.own > 0.99));
}

/// A database's checkpointer, or another thread of the waiting process, belongs to the target and is named
/// nevertheless.
#[test]
fn the_blocking_part_of_the_target_is_named() {
    let behind = |owner: Task| {
        let builder = slept(Cause::DeviceWait, 100, |recording, wait| {
            let mut checkpointer = WatchedProcess::new(77, 1, "postgres");
            checkpointer.title = Some("postgres: checkpointer".to_owned());
            recording.header.target.processes.push(checkpointer);
            recording.requests.push(request(1, Some(Task::new(7, 7, "redis-server"))));
            recording.queue_ahead.push(ahead(owner, 90));
            recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
        });
        let explanation = builder.explained();
        let to = top(&explanation).answerable.clone().expect("it is known");
        let named = to
            .members
            .into_iter()
            .map(|member| (member.name, member.is_thread, member.pids, member.share))
            .collect::<Vec<_>>();
        (named, explanation.lead.expect("a sentence").to_string())
    };
    let (named, lead) = behind(Task::new(77, 0, "postgres"));
    assert_eq!(named, [("postgres: checkpointer".to_owned(), false, vec![77], 0.9)]);
    assert!(lead.ends_with("; postgres: checkpointer (pid 77), which is part of the target, made it wait"), "{lead}");
    let (named, lead) = behind(Task::new(7, 9, "bio_aof"));
    assert_eq!(named, [("bio_aof".to_owned(), true, vec![7], 0.9)]);
    assert!(lead.ends_with("; its own thread bio_aof made it wait"), "{lead}");
    // Its own earlier requests do not count as another part of the target.
    let (named, lead) = behind(Task::new(7, 0, "redis-server"));
    assert!(named.is_empty() && lead.ends_with("; no other process made it wait"), "{named:?} {lead}");
}

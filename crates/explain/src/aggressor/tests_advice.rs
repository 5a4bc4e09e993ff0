//! The order of findings, the first sentence, and the advice against aggressors.

use super::tests::{MS, ahead, dd, request, slept, top};
use crate::CauseId;
use crate::testing::{RecordingBuilder, START_NS, evidence_text};
use flatwater_recording::{Cause, MemoryUser, OpKind, Request, RequestOp, Stack, StackId, Task, Wait, WakerKind};

#[test]
fn a_neighbour_in_the_targets_cgroup_is_moved_out_first() {
    let fixes_beside = |cgroup: &str| {
        let builder = slept(Cause::MemcgReclaim, 100, |recording, mut wait| {
            wait.sleeper = wait.sleeper.clone().in_cgroup(Some("/app".to_owned()));
            recording.waits.push(wait);
            recording.memory_users.push(MemoryUser {
                start_ns: START_NS,
                width_ns: 1_000 * MS,
                owner: Task::new(9, 0, "dd").in_cgroup(Some(cgroup.to_owned())),
                reclaimed_pages: Some(864),
                reclaims: Some(27),
                whole_machine: Some(false),
                ..MemoryUser::default()
            });
        });
        let explanation = builder.explained();
        top(&explanation).fixes.first().map(|fix| fix.text.clone()).unwrap_or_default()
    };
    let shared = fixes_beside("/app");
    assert!(
        shared.ends_with(
            "its own memory cgroup: it shares /app with the target, which a limit there would delay as well"
        ),
        "{shared}"
    );
}

#[test]
fn a_process_that_ends_the_wait_keeps_its_cpu() {
    let builder = slept(Cause::DeviceWait, 100, |recording, wait| {
        let server = Some(Task::new(800, 800, "nfsd"));
        recording.waits.push(Wait { waker_kind: WakerKind::Task, waker: server, waker_ran_ns: Some(80 * MS), ..wait });
    });
    let explanation = builder.explained();
    let fixes: Vec<&str> = top(&explanation).fixes.iter().map(|fix| fix.text.as_str()).collect();
    assert!(fixes[0].contains("have nfsd (pid 800) do less before it ends the wait, or give it more CPU"), "{fixes:?}");
    assert!(!fixes.iter().any(|fix| fix.contains("less CPU")), "{fixes:?}");
}

#[test]
fn the_lead_names_the_server_that_a_call_waits_for() {
    let waits = |frames: &[&str]| {
        let builder = slept(Cause::DeviceWait, 100, |recording, wait| {
            let id = StackId(recording.stacks.len() as u32);
            recording.stacks.push(Stack { id, frames: frames.iter().map(|&frame| frame.to_owned()).collect() });
            recording.waits.push(Wait { stack: Some(id), ..wait });
        });
        builder.explained().lead.map(|lead| lead.to_string()).unwrap_or_default()
    };
    let server = waits(&["schedule", "wait_on_commit", "__nfs_commit_inode", "nfs_file_fsync"]);
    assert!(server.contains("waited for the NFS server"), "{server}");
    let device = waits(&["io_schedule", "submit_bio_wait", "blkdev_issue_flush"]);
    assert!(device.contains("waited for the device"), "{device}");
}

#[test]
fn a_loop_device_names_the_disk_below_it() {
    let builder = slept(Cause::PageWriteback, 100, |recording, wait| {
        let own = Some(Task::new(7, 7, "redis-server"));
        let slow = Request {
            device: "loop0".to_owned(),
            issue_ns: Some(START_NS + 2 * MS),
            below_device: Some("vda".to_owned()),
            below_ns: Some(90 * MS),
            ..request(1, own)
        };
        recording.requests.push(slow);
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let explanation = builder.explained();
    assert_eq!(top(&explanation).cause, CauseId::DeviceSlow);
    assert!(evidence_text(top(&explanation)).contains("loop0 passes its requests on to vda: there they spent 90 ms"));
    assert!(explanation.lead.is_some_and(|lead| lead.to_string().contains("on loop0 (above vda)")));
}

#[test]
fn runs_of_one_command_are_one_aggressor_even_without_a_cgroup() {
    let build = |groups: [Option<&str>; 3]| {
        slept(Cause::PageWriteback, 100, |recording, wait| {
            recording.requests.push(request(1, Some(Task::new(7, 7, "redis-server"))));
            for (place, group) in groups.iter().enumerate() {
                let run = Task::new(800 + place as u32, 0, "dd").in_cgroup(group.map(str::to_owned));
                recording.queue_ahead.push(ahead(run, 30));
            }
            recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
        })
    };
    let named = |groups| -> Vec<(u64, usize)> {
        let explanation = build(groups).explained();
        top(&explanation).aggressors.iter().map(|aggressor| (aggressor.stall_ns / MS, aggressor.pids.len())).collect()
    };
    assert_eq!(named([Some("/jobs"), None, Some("/jobs")]), [(90, 3)]);
    assert_eq!(named([Some("/jobs"), None, Some("/other")]), [(30, 1), (30, 1), (30, 1)], "whose run it was is open");
}

/// Two calls of 100 ms. One waited at the device, in two parts of about half each; the other was throttled for
/// longer than either part.
#[test]
fn parts_of_device_time_do_not_outrank_a_larger_cause() {
    let builder = slept(Cause::PageWriteback, 100, |recording, wait| {
        let half = Request { issue_ns: Some(START_NS + 2 * MS), ..request(1, Some(Task::new(7, 7, "redis-server"))) };
        recording.requests.push(half);
        recording.queue_ahead.push(ahead(dd(), 40));
        recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
    });
    let first = |builder: RecordingBuilder| builder.explained().findings[0].cause;
    let throttled = |ms: f64| builder.clone().slow_by("redis-server", OpKind::Write, &[(Cause::DirtyThrottle, ms)]);
    assert_eq!(first(throttled(80.0)), CauseId::DirtyThrottle, "58 ms at the device itself");
    assert_eq!(first(throttled(30.0)), CauseId::DeviceSlow);
    let unknown = builder.clone().slow_by("redis-server", OpKind::Write, &[(Cause::Unexplained, 80.0)]);
    assert_eq!(first(unknown), CauseId::DeviceSlow, "what is not known explains nothing");
}

#[test]
fn advice_against_a_full_queue_fits_the_requests() {
    let fixes = |op: RequestOp| -> Vec<String> {
        let builder = slept(Cause::RequestQueue, 100, |recording, wait| {
            recording.requests.push(Request { op, ..request(1, Some(Task::new(7, 7, "redis-server"))) });
            recording.queue_ahead.push(ahead(dd(), 90));
            recording.waits.push(Wait { waker_kind: WakerKind::Device, request: Some(1), ..wait });
        });
        builder.explained().findings.into_iter().flat_map(|finding| finding.fixes).map(|fix| fix.text).collect()
    };
    let (reads, writes) = (fixes(RequestOp::Read), fixes(RequestOp::Write));
    assert!(reads.iter().any(|text| text == "let reads pass") && !writes.iter().any(|text| text == "let reads pass"));
    assert!(writes.iter().any(|text| text.contains("synchronous writes their turn")), "{writes:?}");
    assert!(!writes.iter().any(|text| text.contains("a deeper queue")), "dd would fill it as well: {writes:?}");
}

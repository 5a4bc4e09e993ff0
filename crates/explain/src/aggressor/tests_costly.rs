//! Recordings whose rows all belong to one call, or all overlap. The time limits are far above n log n and far
//! below n squared.

use std::time::Duration;

use flatwater_recording::{Cause, OpKind, QueueOwner, Recording, Task, Wait, WakerKind};

use crate::testing::RecordingBuilder;

fn within_seconds(recording: &Recording) -> crate::Explanation {
    let begin = needs::cpu_time();
    let explanation = crate::explain(recording);
    let spent = needs::cpu_time() - begin;
    assert!(spent < Duration::from_secs(60), "explaining took {spent:?} of CPU time");
    explanation
}

#[test]
fn two_hundred_thousand_waits_of_one_call_are_followed_quickly() {
    let builder = RecordingBuilder::new().slow(OpKind::Fsync, &[(Cause::Lock, 400.0)]).edit(|recording| {
        let call = recording.calls[0].clone();
        let wait = |at: u64, depth: u32, sleeper: u32, ender: u32| Wait {
            call_tid: call.tid,
            call_start_ns: call.start_ns,
            depth,
            start_ns: call.start_ns + at * 4_000,
            duration_ns: 2_000,
            sleeper: Task::new(sleeper, sleeper, "writer"),
            waker: Some(Task::new(ender, ender, "holder")),
            waker_kind: WakerKind::Task,
            ..Wait::default()
        };
        let tid = call.tid;
        recording.waits = (0..100_000).flat_map(|at| [wait(at, 0, tid, 9), wait(at, 1, 9, 10)]).collect();
    });
    let explanation = within_seconds(&builder.done());
    assert!(
        !explanation.gaps.iter().any(|gap| gap.what.contains("made some of the calls wait")),
        "{:?}",
        explanation.gaps
    );
}

#[test]
fn overlapping_rows_are_examined_up_to_a_bound_and_leave_a_gap() {
    let mut builder = RecordingBuilder::new();
    for _ in 0..1_500 {
        builder = builder.slow(OpKind::Write, &[(Cause::DirtyThrottle, 2.0)]);
    }
    let builder = builder.edit(|recording| {
        let task = Task::new(77, 77, "dd");
        recording.queue_owners = (0..100_000)
            .map(|row| QueueOwner {
                start_ns: row,
                width_ns: u64::MAX,
                bytes: u64::MAX,
                owner: Some(task.clone()),
                op: flatwater_recording::RequestOp::Write,
                ..QueueOwner::default()
            })
            .collect();
        recording.dirtiers = vec![flatwater_recording::Dirtier { owner: task, ..Default::default() }];
    });
    let explanation = within_seconds(&builder.done());
    assert!(
        explanation.gaps.iter().any(|gap| gap.what.contains("made some of the calls wait")),
        "{:?}",
        explanation.gaps
    );
}

//! A recording is read as it was written: as frames, sealed, and as a whole.

use std::path::Path;

use flatwater_recording::{
    AsyncCall, AsyncInterface, Call, Cause, CauseBasis, ColumnKind, CpuOwner, Dirtier, DurationBasis, Entity, Event,
    EventKind, Gap, GroupRole, Header, Imitation, LatencyBucket, Limit, MemoryScope, MemoryUser, OpKind,
    OperationFiles, OperationKind, Operations, OwnerBasis, PackedHistogram, QueueAhead, QueueOwner, Recording,
    RecordingWriter, Request, RequestOp, Segment, Series, ServiceTime, Stack, StackId, Table, Task, Users, Wait,
    Waited, WakerBasis, WakerKind, histogram,
    outcome::{JournalOutcome, WorkloadOutcome},
    read, write_whole,
};
use proptest::prelude::{Strategy, any, prop, proptest};

type LooseSegment = (u64, Cause, (DurationBasis, CauseBasis), Option<u32>, u32);

fn segment() -> impl Strategy<Value = LooseSegment> {
    let cause = prop::sample::select(Cause::ALL.to_vec());
    let basis = (prop::sample::select(DurationBasis::ALL), prop::sample::select(CauseBasis::ALL));
    (0..1_u64 << 40, cause, basis, any::<Option<u32>>(), any::<u32>())
}

fn tiled(segments: Vec<LooseSegment>) -> (u64, Vec<Segment>) {
    let mut at = 0;
    let tile = |(ns, cause, (duration, basis), stack, count): LooseSegment| {
        let offset_ns = at;
        at += ns;
        Segment::new(offset_ns, ns, cause, duration, basis).with_stack(stack.map(StackId)).with_count(count)
    };
    let segments = segments.into_iter().map(tile).collect();
    (at, segments)
}

fn call() -> impl Strategy<Value = Call> {
    let who = (any::<u32>(), any::<u32>(), ".{0,8}", prop::sample::select(OpKind::ALL.to_vec()));
    let what = (any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<String>>(), any::<Option<u64>>());
    let when = (0..1_u64 << 50, any::<u64>(), any::<bool>(), any::<bool>());
    (who, what, when, prop::collection::vec(segment(), 0..5)).prop_map(|(who, what, when, segments)| {
        let (duration_ns, segments) = tiled(segments);
        let call = Call::new(who.3, when.0, duration_ns, segments);
        let mut call = call.by(who.0, who.1, who.2).on(what.2, what.0, what.1);
        (call.due_ns, call.after_exit_ns, call.damaged) = (what.3, when.1, when.2);
        call.still_under_way = when.3;
        call
    })
}

fn packed() -> impl Strategy<Value = PackedHistogram> {
    prop::collection::vec((1..1_u64 << 40, 1..1000_u64), 0..20).prop_map(|values| {
        let mut counting = histogram();
        for (value, count) in values {
            counting.record_n(value, count).expect("in range");
        }
        PackedHistogram::pack(&counting)
    })
}

fn bucket() -> impl Strategy<Value = LatencyBucket> {
    let histograms = (packed(), prop::option::of(packed()));
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<Option<u64>>());
    (numbers, prop::sample::select(OpKind::ALL.to_vec()), ".{0,8}", histograms).prop_map(
        |(numbers, op, thread, both)| LatencyBucket {
            start_ns: numbers.0,
            width_ns: numbers.1,
            op,
            thread,
            bytes: numbers.2,
            from_start: both.0,
            from_due: both.1,
            worst_from_start_ns: numbers.3,
            worst_from_due_ns: numbers.4,
        },
    )
}

/// Samples of three zones. One column exists only in some samples, like a file that appears during a run.
fn zones() -> impl Strategy<Value = Series> {
    prop::collection::vec((any::<Option<i64>>(), any::<Option<i64>>()), 1..40).prop_map(|rows| {
        let mut series = Series::new(Table::Zones);
        for (moment, (free, scanned)) in (0_u64..).zip(rows) {
            for (node, zone) in [(0, "DMA32"), (0, "Normal"), (1, "Normal")] {
                let mut values = vec![("free", ColumnKind::Gauge, free)];
                values.extend((moment % 3 > 0).then_some(("workingset_refault", ColumnKind::Counter, scanned)));
                series.push(moment * 100_000_000, &Entity::on_node(node, zone), &values);
            }
        }
        series
    })
}

/// Fills one row of each plain table, with and without the values that may be missing.
fn who(recording: &mut Recording, (number, text, missing): (u64, String, bool)) {
    let task = Task::new(number as u32, 7, text.clone()).in_cgroup((!missing).then(|| format!("/{text}")));
    let known = |value: u64| (!missing).then_some(value);
    recording.waits = vec![Wait {
        call_tid: 5,
        call_start_ns: number,
        sleeper: task.clone(),
        waker: (!missing).then(|| task.clone()),
        waker_kind: if missing { WakerKind::Timer } else { WakerKind::Task },
        stack: known(3).map(|id| StackId(id as u32)),
        request: known(number),
        lock: (!missing).then(|| "mutex".to_owned()),
        basis: WakerBasis::LockOwner,
        ..Wait::default()
    }];
    recording.requests = vec![Request {
        id: number,
        device: text.clone(),
        op: RequestOp::Flush,
        issue_ns: known(4),
        throttled: (!missing).then_some(true),
        owner: (!missing).then(|| task.clone()),
        owner_basis: OwnerBasis::Dirtier,
        ..Request::default()
    }];
    recording.queue_ahead =
        vec![QueueAhead { request: number, owner: Some(task.clone()), bytes: number, ..QueueAhead::default() }];
    recording.queue_owners = vec![QueueOwner { device: text.clone(), inode: known(9), ..QueueOwner::default() }];
    recording.dirtiers = vec![Dirtier { owner: task.clone(), bytes: known(number), ..Dirtier::default() }];
    let scope = if missing { MemoryScope::Cgroup } else { MemoryScope::Process };
    recording.memory_users = vec![MemoryUser { scope, owner: task.clone(), ..MemoryUser::default() }];
    recording.cpu_owners =
        vec![CpuOwner { owner: (!missing).then(|| task.clone()), ran_ns: number, ..CpuOwner::default() }];
    recording.operations = vec![Operations {
        role: GroupRole::Neighbour,
        pid: (!missing).then_some(7),
        thread: text.clone(),
        op: OperationKind::Fdatasync,
        pause_classes: "8:3".to_owned(),
        count: number,
        ..Operations::default()
    }];
    recording.operation_files =
        vec![OperationFiles { written: (!missing).then_some(true), files: number, ..OperationFiles::default() }];
    recording.limits = vec![Limit { name: text.clone(), at_end: (!missing).then(|| text.clone()), ..Limit::default() }];
    recording.service_times = vec![ServiceTime { device: text.clone(), device_ns: number, ..ServiceTime::default() }];
    recording.async_calls = vec![AsyncCall {
        opcode: text,
        interface: AsyncInterface::LinuxAio,
        punted: (!missing).then_some(false),
        worker: Some(task),
        ..AsyncCall::default()
    }];
}

fn recording() -> impl Strategy<Value = Recording> {
    let stacks = prop::collection::vec(prop::collection::vec("[a-z_]{1,20}", 0..6), 0..5);
    let calls = prop::collection::vec(call(), 0..20);
    let latency = prop::collection::vec(bucket(), 0..10);
    let waits = (any::<u64>(), ".{0,8}", any::<bool>());
    (stacks, calls, latency, zones(), waits).prop_map(|(stacks, mut calls, mut latency, zones, waits)| {
        calls.sort_by_key(|call| call.start_ns);
        latency.sort_by_key(|bucket| bucket.start_ns);
        let stack = |(id, frames)| Stack { id: StackId(id), frames };
        let mut recording = Recording {
            header: Header { format_version: 1, complete: true, duration_ns: 7, seed: 9, ..Header::default() },
            latency,
            calls,
            stacks: (0..).zip(stacks).map(stack).collect(),
            series: vec![zones],
            events: vec![Event::new(5, EventKind::read("setup-change", "vm.swappiness: 60 -> 1"))],
            gaps: vec![Gap::new("/proc/zoneinfo", "permission denied", "run as root").since(3)],
            outcomes: vec![WorkloadOutcome::Journal(JournalOutcome { appends: 4, ..JournalOutcome::default() })],
            ..Recording::default()
        };
        who(&mut recording, waits);
        recording
    })
}

fn append(writer: &mut RecordingWriter, recording: &Recording) {
    writer.append_calls(&recording.calls).expect("encodes");
    writer.append_latency(&recording.latency).expect("encodes");
    writer.append_stacks(&recording.stacks).expect("encodes");
    writer.append_events(&recording.events).expect("encodes");
    writer.append_gaps(&recording.gaps).expect("encodes");
    let waited = Waited {
        waits: recording.waits.clone(),
        requests: recording.requests.clone(),
        ahead: recording.queue_ahead.clone(),
        cpus: recording.cpu_owners.clone(),
    };
    writer.append_waited(&waited).expect("encodes");
    let users = Users {
        owners: recording.queue_owners.clone(),
        dirtiers: recording.dirtiers.clone(),
        memory: recording.memory_users.clone(),
    };
    writer.append_users(&users).expect("encodes");
    writer.append_async_calls(&recording.async_calls).expect("encodes");
    let imitation = Imitation {
        operations: recording.operations.clone(),
        files: recording.operation_files.clone(),
        limits: recording.limits.clone(),
        service_times: recording.service_times.clone(),
    };
    writer.append_imitation(&imitation).expect("encodes");
    for series in &recording.series {
        writer.append_series(series).expect("encodes");
    }
    for outcome in &recording.outcomes {
        writer.outcome(outcome.clone()).expect("writes");
    }
}

fn assert_same(read: &Recording, wrote: &Recording) {
    assert_eq!(read.header, wrote.header);
    assert_eq!(read.calls, wrote.calls);
    assert_eq!(read.latency, wrote.latency);
    assert_eq!(read.waits, wrote.waits);
    assert_eq!(read.requests, wrote.requests);
    assert_eq!(read.queue_ahead, wrote.queue_ahead);
    assert_eq!(read.queue_owners, wrote.queue_owners);
    assert_eq!(read.dirtiers, wrote.dirtiers);
    assert_eq!(read.memory_users, wrote.memory_users);
    assert_eq!(read.cpu_owners, wrote.cpu_owners);
    assert_eq!(read.async_calls, wrote.async_calls);
    assert_eq!(read.operations, wrote.operations);
    assert_eq!(read.operation_files, wrote.operation_files);
    assert_eq!(read.limits, wrote.limits);
    assert_eq!(read.service_times, wrote.service_times);
    assert_eq!(read.stacks, wrote.stacks);
    assert_eq!(read.series, wrote.series);
    assert_eq!(read.events, wrote.events);
    assert_eq!(read.gaps, wrote.gaps);
    assert_eq!(read.outcomes, wrote.outcomes);
}

fn open(dir: &Path) -> Recording {
    read(dir).expect("a recording")
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_sealed_recording_equals_what_was_appended(wrote in recording()) {
        let place = tempfile::tempdir().expect("temporary directory");
        let dir = place.path().join("rec");
        let mut writer = RecordingWriter::create(&dir, &wrote.header).expect("created");
        append(&mut writer, &wrote);
        writer.flush_now();
        assert_same(&open(&dir), &wrote);
        let finished = writer.finish(&wrote.header).expect("finished");
        assert!(finished.sealed, "{finished:?}");
        assert_same(&open(&dir), &wrote);
        let left: Vec<_> = std::fs::read_dir(&dir).expect("listed").map(|entry| entry.expect("entry").file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().contains("frames")), "{left:?}");
    }

    #[test]
    fn a_whole_recording_equals_what_was_given(wrote in recording()) {
        let place = tempfile::tempdir().expect("temporary directory");
        let dir = place.path().join("rec");
        write_whole(&dir, &wrote).expect("written");
        assert_same(&open(&dir), &wrote);
    }
}

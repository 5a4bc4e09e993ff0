//! Recordings whose numbers are the smallest, the largest, or random, as a damaged or hostile file may hold.

use flatwater_recording::outcome::{
    BulkDelay, BulkOutcome, BulkWriter, CheckpointOutcome, CheckpointRow, JournalOutcome, JournalWriter,
    MaildirOutcome, MemoryMoment, WorkloadOutcome,
};
use flatwater_recording::{
    Call, Cause, CauseBasis, CpuOwner, Dirtier, DurationBasis, Entity, Event, EventKind, FormatKind, ImportSummary,
    LatencyBucket, MemoryUser, NodeShape, Noise, OpKind, PackedHistogram, QueueAhead, QueueOwner, Recording,
    ReportedBy, Request, RequestOp, SampledTask, Segment, Series, Source, Stack, StackId, Table, Task, Wait, WakerKind,
    WatchedProcess, histogram, schema,
};

/// Rows of each sampled table, and of each list.
const ROWS: usize = 6;

/// Pseudo-random numbers, of which half are at a limit of their type.
struct Numbers(u64);

impl Numbers {
    /// Xorshift64 (Marsaglia 2003); the state is never 0.
    fn random(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.random() % end.max(1) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn u64(&mut self) -> u64 {
        let random = self.random();
        let near = random % 10_000_000_000;
        self.one_of(&[0, 1, i64::MAX as u64, u64::MAX, random, near, near, near])
    }

    fn i64(&mut self) -> i64 {
        let random = self.random();
        let near = (random % 10_000_000) as i64;
        self.one_of(&[0, 1, -1, i64::MAX, i64::MIN, random as i64, near, near])
    }

    fn u32(&mut self) -> u32 {
        let random = self.random() as u32;
        self.one_of(&[0, 1, 7, 7, 7, u32::MAX, random])
    }

    fn flag(&mut self) -> bool {
        self.random().is_multiple_of(2)
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Numbers) -> T) -> Option<T> {
        if self.random().is_multiple_of(4) { None } else { Some(value(self)) }
    }

    fn task(&mut self) -> Task {
        let name = self.one_of(&["main", "dd", "kworker/0:1", "jbd2/sda1-8", ""]);
        let cgroup = self.one_of(&[None, Some("/"), Some("/jobs")]).map(str::to_owned);
        Task::new(self.u32(), self.u32(), name).in_cgroup(cgroup)
    }
}

/// A recording of extreme numbers; equal seeds give equal recordings.
#[must_use]
pub fn extreme(seed: u64) -> Recording {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let numbers = &mut numbers;
    let mut recording = Recording::default();
    header(&mut recording, numbers);
    calls(&mut recording, numbers);
    chains(&mut recording, numbers);
    intervals(&mut recording, numbers);
    tables(&mut recording, numbers);
    events(&mut recording, numbers);
    outcomes(&mut recording, numbers);
    recording
}

fn header(recording: &mut Recording, numbers: &mut Numbers) {
    let header = &mut recording.header;
    header.source = numbers.one_of(&[Source::Host, Source::Import, Source::Vm, Source::Sim]);
    header.duration_ns = numbers.u64();
    header.threshold_ns = numbers.u64();
    header.clock.start_ns = numbers.u64();
    header.clock.wall_offset_ns = numbers.maybe(Numbers::i64);
    header.time_distorted = numbers.flag();
    header.machine.kernel = Some(numbers.one_of(&["6.18.0", "2.6.32", "2.2.3", "4294967295.1", ""]).to_owned());
    header.machine.page_bytes = numbers.maybe(Numbers::u64);
    header.machine.memory_bytes = numbers.maybe(Numbers::u64);
    header.machine.cpus = numbers.maybe(Numbers::u32);
    for node in 0..numbers.below(3) as u32 {
        let memory_bytes = numbers.maybe(Numbers::u64);
        let shape = NodeShape { node, cpus: vec![node], memory_bytes, distances: vec![numbers.u32(), numbers.u32()] };
        header.machine.nodes.push(shape);
    }
    header.noise_before = numbers.maybe(|numbers| Noise {
        spin_ns: numbers.u64(),
        gap_ns_max: numbers.u64(),
        gaps: numbers.u64(),
        gaps_total_ns: numbers.u64(),
        steal_ns: Some(numbers.u64()),
    });
    header.losses.lost = numbers.u64();
    header.own_cost.rss_bytes = numbers.u64();
    for key in ["vm.zone_reclaim_mode", "monitor.slabinfo_interval", "vm.dirty_bytes", "vm.watermark_scale_factor"] {
        header.setup.observe(key, &numbers.i64().to_string());
    }
    let mut process = WatchedProcess::default();
    (process.pid, process.name) = (7, "main".to_owned());
    header.target.processes.push(process);
    header.import = numbers.maybe(|numbers| {
        let mut import = ImportSummary::default();
        let [judged, unjudged, of_kernel] = [numbers.u64(), numbers.u64(), numbers.u64()];
        import.understand("a.log", Some(("vmstat", FormatKind::Judged)), judged / 4);
        import.understand("a.log", Some(("slabtop", FormatKind::Unjudged)), unjudged / 4);
        import.understand("a.log", Some(("kernel-log", FormatKind::KernelLog)), of_kernel / 4);
        import.formats.iter_mut().for_each(|read| read.lines = numbers.u64());
        import.memory_reported = numbers.flag();
        import
    });
    for _ in 0..numbers.below(ROWS) {
        let by = [ReportedBy::HungTask, ReportedBy::TaskList, ReportedBy::Traced, ReportedBy::Lockup];
        let mut task = SampledTask::new(numbers.one_of(&by));
        task.task = numbers.one_of(&["main", "kswapd0", "jbd2/sda1-8"]).to_owned();
        task.pid = numbers.maybe(Numbers::u32);
        task.state = numbers.one_of(&[None, Some('D'), Some('R')]);
        task.blocked_ns = numbers.maybe(Numbers::u64);
        task.stack = Some(StackId(numbers.below(STACKS.len()) as u32));
        task.count = numbers.u32();
        task.line = numbers.u32();
        header.sampled_tasks.push(task);
    }
}

const STACKS: &[&[&str]] = &[
    &["io_schedule", "folio_wait_bit_common", "__filemap_get_folio", "vfs_write"],
    &["io_schedule", "__wait_on_buffer", "__bread_gfp", "ext4_write_begin", "vfs_write"],
    &["schedule", "rwsem_down_write_slowpath", "ext4_buffered_write_iter", "vfs_write"],
    &["schedule", "jbd2_log_wait_commit", "ext4_sync_file", "do_fsync"],
    &["shrink_lruvec", "try_to_free_pages", "__alloc_pages"],
    &["s_show", "seq_read_iter"],
];

fn calls(recording: &mut Recording, numbers: &mut Numbers) {
    for (id, frames) in (0..).zip(STACKS) {
        recording
            .stacks
            .push(Stack { id: StackId(id), frames: frames.iter().map(|&frame| frame.to_owned()).collect() });
    }
    for _ in 0..numbers.below(2 * ROWS) {
        let segments = (0..numbers.below(4)).map(|_| {
            let basis = (numbers.one_of(DurationBasis::ALL), numbers.one_of(CauseBasis::ALL));
            let cause = numbers.one_of(Cause::ALL);
            let mut segment = Segment::bracketed(numbers.u64(), numbers.u64(), cause);
            (segment.duration_basis, segment.cause_basis) = basis;
            segment.count = numbers.u32();
            segment.with_stack(numbers.maybe(|numbers| StackId(numbers.below(STACKS.len() + 1) as u32)))
        });
        let segments = segments.collect();
        let op = numbers.one_of(OpKind::ALL);
        let mut call = Call::new(op, numbers.u64(), numbers.u64(), segments).by(numbers.u32(), numbers.u32(), "main");
        call = call.on(Some("a.log".to_owned()), Some(numbers.u64()), Some(numbers.u64()));
        call.after_exit_ns = numbers.u64();
        call.due_ns = numbers.maybe(Numbers::u64);
        call.still_under_way = numbers.flag();
        call.damaged = numbers.flag();
        call.errno = numbers.maybe(Numbers::u32);
        recording.calls.push(call);
    }
    for _ in 0..numbers.below(ROWS) {
        let mut from_start = histogram();
        from_start.saturating_record_n(numbers.u64(), numbers.u64());
        from_start.saturating_record_n(numbers.u64(), numbers.u64());
        recording.latency.push(LatencyBucket {
            start_ns: numbers.u64(),
            width_ns: numbers.u64(),
            op: numbers.one_of(OpKind::ALL),
            thread: numbers.one_of(&["", "sda", "block I/O"]).to_owned(),
            bytes: numbers.u64(),
            from_start: PackedHistogram::pack(&from_start),
            from_due: numbers.maybe(|_| PackedHistogram::pack(&from_start)),
            worst_from_start_ns: numbers.u64(),
            worst_from_due_ns: numbers.maybe(Numbers::u64),
        });
    }
}

/// Wait chains of the calls, and who had the CPUs that they waited for.
fn chains(recording: &mut Recording, numbers: &mut Numbers) {
    let keys: Vec<(u32, u64)> = recording.calls.iter().map(|call| (call.tid, call.start_ns)).collect();
    for _ in 0..keys.len() * 2 {
        let (call_tid, call_start_ns) = numbers.one_of(&keys);
        recording.waits.push(Wait {
            call_tid,
            call_start_ns,
            depth: numbers.below(3) as u32,
            sleeper: numbers.task(),
            start_ns: numbers.u64(),
            duration_ns: numbers.u64(),
            waker_kind: numbers.one_of(WakerKind::ALL),
            waker: numbers.maybe(Numbers::task),
            waker_ran_ns: numbers.maybe(Numbers::u64),
            lock_holder: numbers.maybe(Numbers::task),
            request: numbers.maybe(|numbers| numbers.below(ROWS) as u64),
            ..Wait::default()
        });
        recording.cpu_owners.push(CpuOwner {
            call_tid,
            call_start_ns,
            start_ns: numbers.u64(),
            duration_ns: numbers.u64(),
            owner: numbers.maybe(Numbers::task),
            ran_ns: numbers.u64(),
            waiter: numbers.maybe(Numbers::task),
            request: numbers.maybe(|numbers| numbers.below(ROWS) as u64),
            ..CpuOwner::default()
        });
    }
}

/// Requests that calls wait for, and the rows about devices and memory by interval.
fn intervals(recording: &mut Recording, numbers: &mut Numbers) {
    let kinds = [RequestOp::Read, RequestOp::Write, RequestOp::Flush, RequestOp::Discard];
    for id in 0..ROWS as u64 {
        recording.requests.push(Request {
            id,
            device: "sda".to_owned(),
            op: numbers.one_of(&kinds),
            bytes: numbers.u64(),
            insert_ns: numbers.u64(),
            issue_ns: numbers.maybe(Numbers::u64),
            complete_ns: numbers.u64(),
            throttled: Some(numbers.flag()),
            submitter: numbers.task(),
            owner: numbers.maybe(Numbers::task),
            awaited_ns: numbers.maybe(Numbers::u64),
            server_waited_ns: numbers.maybe(Numbers::u64),
            below_device: Some("sdb".to_owned()),
            below_ns: numbers.maybe(Numbers::u64),
            still_under_way: Some(numbers.flag()),
            ..Request::default()
        });
        recording.queue_ahead.push(QueueAhead {
            request: numbers.below(ROWS) as u64,
            owner: numbers.maybe(Numbers::task),
            op: numbers.one_of(&kinds),
            requests: numbers.u64(),
            bytes: numbers.u64(),
            device_ns: numbers.u64(),
            in_cache: Some(numbers.flag()),
            beside: Some(numbers.flag()),
            ..QueueAhead::default()
        });
        let start_ns = numbers.one_of(&[0, 1_000_000_000, u64::MAX]);
        recording.queue_owners.push(QueueOwner {
            start_ns,
            width_ns: numbers.u64(),
            device: "sda".to_owned(),
            owner: numbers.maybe(Numbers::task),
            op: numbers.one_of(&kinds),
            requests: numbers.u64(),
            bytes: numbers.u64(),
            queue_ns: numbers.u64(),
            device_ns: numbers.u64(),
            ..QueueOwner::default()
        });
        recording.dirtiers.push(Dirtier {
            start_ns,
            width_ns: numbers.u64(),
            owner: numbers.task(),
            inode: numbers.maybe(Numbers::u64),
            bytes: numbers.maybe(Numbers::u64),
            ..Dirtier::default()
        });
        recording.memory_users.push(MemoryUser {
            start_ns,
            width_ns: numbers.u64(),
            owner: numbers.task(),
            allocated_pages: numbers.maybe(Numbers::u64),
            resident_pages: numbers.maybe(Numbers::u64),
            read_bytes: numbers.maybe(Numbers::u64),
            reclaimed_pages: numbers.maybe(Numbers::u64),
            reclaims: numbers.maybe(Numbers::u64),
            whole_machine: Some(numbers.flag()),
            ..MemoryUser::default()
        });
    }
}

/// Every table with all columns of the schema, most with readings of one second.
fn tables(recording: &mut Recording, numbers: &mut Numbers) {
    for table in Table::ALL {
        if numbers.below(3) == 0 {
            continue;
        }
        let columns: Vec<schema::Column> = schema::of_table(*table).collect();
        let entities = match table {
            Table::Cpu => [Entity::named("all"), Entity::named("0")],
            Table::Meminfo | Table::Vmstat => [Entity::default(), Entity::default()],
            Table::Zones | Table::Buddy => [Entity::on_node(0, "Normal"), Entity::on_node(1, "Normal")],
            Table::Nodes => [Entity::on_node(0, ""), Entity::on_node(1, "")],
            Table::Slabs => [Entity::named("buffer_head"), Entity::named("ext4_inode_cache")],
            Table::Pressure => [Entity::named("io"), Entity::named("memory")],
            _ => [Entity::named("sda"), Entity::named("/jobs")],
        };
        let mut series = Series::new(*table);
        let sane = numbers.flag();
        for row in 0..ROWS as u64 {
            let at_ns = if sane { (row + 1) * 1_000_000_000 } else { numbers.u64() };
            for entity in &entities {
                let values: Vec<_> = columns.iter().map(|&column| (column, numbers.maybe(Numbers::i64))).collect();
                series.record(at_ns, entity, &values);
            }
        }
        recording.series.push(series);
    }
}

fn events(recording: &mut Recording, numbers: &mut Numbers) {
    let lines = [
        "Out of memory: Killed process 7 (main) total-vm:18446744073709551615kB",
        "nvme nvme0: I/O 12 QID 3 timeout, aborting",
        "ksoftirqd/0: page allocation failure: order:4294967295, mode:0x20(GFP_ATOMIC)",
        "kworker/0:1: page allocation failure: order:0, mode:0x20(GFP_ATOMIC)",
        "sh (812): drop_caches: 3",
    ];
    for line in lines {
        if numbers.flag() {
            recording.events.push(Event::new(numbers.u64(), EventKind::report(line)));
        }
        let every_call = numbers.flag();
        recording.events.push(Event::new(numbers.u64(), EventKind::Timing { every_call }));
    }
}

fn outcomes(recording: &mut Recording, numbers: &mut Numbers) {
    let delays = (0..ROWS).map(|_| BulkDelay { pid: numbers.u32(), at_ns: numbers.u64(), delay_ns: numbers.u64() });
    let delays = delays.collect();
    let writers = (0..ROWS).map(|_| BulkWriter {
        pid: numbers.u32(),
        bytes: numbers.u64(),
        elapsed_ns: numbers.u64(),
        delay_ns_max: numbers.u64(),
        delay_ns_total: numbers.u64(),
        delays: numbers.u64(),
    });
    let writers = writers.collect();
    let moment = MemoryMoment { at_ns: numbers.u64(), free_bytes: Some(numbers.u64()), ..MemoryMoment::default() };
    let (threshold_ns, delay_ns_max) = (numbers.u64(), numbers.u64());
    recording.outcomes.push(WorkloadOutcome::Bulk(BulkOutcome {
        threshold_ns,
        delays,
        delay_ns_max,
        writers,
        memory: vec![moment],
        ..BulkOutcome::default()
    }));
    let checkpoints = (0..ROWS).map(|_| CheckpointRow {
        at_ns: numbers.u64(),
        critical_ns: numbers.u64(),
        flush_ns: numbers.u64(),
        bytes: numbers.u64(),
        ..CheckpointRow::default()
    });
    let checkpoints = checkpoints.collect();
    recording.outcomes.push(WorkloadOutcome::Checkpoint(CheckpointOutcome { checkpoints }));
    let writers = (0..ROWS).map(|_| JournalWriter {
        thread: "writer".to_owned(),
        tid: numbers.u32(),
        appends: numbers.u64(),
        bytes: numbers.u64(),
        files: numbers.u64(),
        append_ns_max: numbers.u64(),
        behind: numbers.u64(),
        behind_ns_max: numbers.u64(),
        syncs: numbers.u64(),
        sync_ns_total: numbers.u64(),
        sync_ns_max: numbers.u64(),
    });
    let writers = writers.collect();
    let appends = numbers.u64();
    recording.outcomes.push(WorkloadOutcome::Journal(JournalOutcome { appends, writers, ..JournalOutcome::default() }));
    recording.outcomes.push(WorkloadOutcome::Maildir(MaildirOutcome {
        inodes: Some(numbers.u64()),
        dentries: Some(numbers.u64()),
        cached_bytes: Some(numbers.u64()),
        deliveries: numbers.u64(),
        ..MaildirOutcome::default()
    }));
}

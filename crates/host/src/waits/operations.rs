//! Turns operations of io_uring and libaio into records: slow ones into calls, with the segments of the worker, thread
//! or device that performed them; all of them into latency counts.

use std::collections::{HashMap, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use aya::maps::Map;

use super::Span;
use super::identity::Identities;
use super::layout::{AsyncKey, AsyncOperation, AsyncRecord, PF_IO_WORKER, RequestRecord, SleepRecord, row, size};
use super::ledger::Ledger;
use super::object::URING_OPCODES;
use super::queue;
use super::runners::Runners;
use super::tiles::{self, Served};
use crate::clock::monotonic_ns;
use crate::proc;
use crate::tracer::TraceError;
use crate::tracer::layout::text;
use crate::tracer::stacks::StackTable;
use crate::tracer::totals::ClassCounts;
use flatwater_recording::units::Nanos;
use flatwater_recording::{
    AsyncCall, AsyncInterface, Call, Gap, LatencyBucket, OpKind, Task, Wait, WakerBasis, WakerKind,
};

/// The cache of paths is cleared when it reaches this size.
const PATHS_MAX: usize = 4_096;
/// Remember at most this many operations of workers.
const ENDED_MAX: usize = 4_096;
/// Examine at most this many descriptors of a process to find a file.
const DESCRIPTORS_MAX: usize = 1_024;

/// The kind of operation that each row of the BPF programs counts.
pub const ROWS: [(u32, OpKind); 7] = [
    (row::URING_READ, OpKind::UringRead),
    (row::URING_WRITE, OpKind::UringWrite),
    (row::URING_FSYNC, OpKind::UringFsync),
    (row::URING_OTHER, OpKind::UringOther),
    (row::AIO_READ, OpKind::AioRead),
    (row::AIO_WRITE, OpKind::AioWrite),
    (row::AIO_FSYNC, OpKind::AioFsync),
];

fn op_of(number: u32) -> OpKind {
    ROWS.iter().find(|(row, _)| *row == number).map_or(OpKind::Other, |(_, op)| *op)
}

/// include/uapi/linux/aio_abi.h.
fn aio_opcode(opcode: u32) -> &'static str {
    match opcode {
        0 => "IOCB_CMD_PREAD",
        1 => "IOCB_CMD_PWRITE",
        2 => "IOCB_CMD_FSYNC",
        3 => "IOCB_CMD_FDSYNC",
        7 => "IOCB_CMD_PREADV",
        8 => "IOCB_CMD_PWRITEV",
        _ => "",
    }
}

fn opcode_name(record: &AsyncRecord) -> String {
    if record.libaio != 0 {
        return aio_opcode(record.opcode).to_owned();
    }
    let known = URING_OPCODES.iter().find(|(opcode, ..)| u32::from(*opcode) == record.opcode);
    known.map_or_else(|| format!("IORING_OP {}", record.opcode), |(_, name, _)| (*name).to_owned())
}

/// Cached paths of the operations' files.
#[derive(Debug, Default)]
pub struct OperationNames {
    paths: HashMap<(u32, u64), Option<String>>,
    /// The operations that workers performed, in the order of their ends.
    ended: VecDeque<Ended>,
}

#[derive(Debug)]
struct Ended {
    key: u64,
    tgid: u32,
    inode: (u32, u64),
    submit_ns: u64,
    end_ns: u64,
}

/// A slow operation, as recorded.
#[derive(Debug)]
pub struct Operation {
    pub call: Call,
    pub more: AsyncCall,
    /// Sleeps of the thread that performed it, where its wait chains begin.
    pub sleeps: Vec<Rc<SleepRecord>>,
    /// The waits for the operation's direct I/O requests, one after the other.
    pub waits: Vec<Wait>,
}

impl OperationNames {
    /// Assembles the facts of a slow operation.
    pub fn operation(
        &mut self,
        record: &AsyncRecord,
        known: (&Ledger, &Runners),
        names: &mut Identities,
        stacks: &mut StackTable,
    ) -> Operation {
        let (ledger, runners) = known;
        let sleeps = sleeps_of(record, ledger);
        let requests = direct_io(record, ledger, stacks);
        let duration_ns = record.end_ns.saturating_sub(record.submit_ns);
        let served = Served { sleeps: &sleeps, requests: &requests, ahead: &self.ahead(record, ledger) };
        let segments = tiles::of_operation(record, &served, (ledger, runners), stacks);
        let op = op_of(record.row);
        let carries = matches!(op, OpKind::UringRead | OpKind::UringWrite | OpKind::AioRead | OpKind::AioWrite);
        let transferred = u64::try_from(record.result).ok().filter(|_| carries);
        let worker = sleeps.first().filter(|_| record.punted != 0).map(|sleep| sleep.sleeper);
        let first_sleep = worker.and(sleeps.first().map(|sleep| sleep.start_ns));
        let thread = thread_name(record, names);
        let mut call = Call::new(op, record.submit_ns, duration_ns, segments).by(record.tgid, record.tid, thread);
        call.bytes = if record.libaio != 0 && carries { Some(record.bytes) } else { transferred };
        call.offset_bytes = Some(record.offset).filter(|_| record.libaio != 0 && carries);
        call.file = self.path(record);
        let more = AsyncCall {
            tid: record.tid,
            start_ns: record.submit_ns,
            request: record.key,
            interface: if record.libaio != 0 { AsyncInterface::LinuxAio } else { AsyncInterface::IoUring },
            opcode: opcode_name(record),
            punted: (record.libaio == 0).then_some(record.punted != 0),
            hashed: (record.punted != 0).then_some(record.hashed != 0),
            punted_ns: (record.punted != 0).then_some(record.punt_ns),
            worker_seen_ns: Some(record.worker_from_ns).filter(|ns| *ns != 0).or(first_sleep),
            worker: worker.map(|worker| Task::new(worker.tgid, worker.tid, text(&worker.comm))),
            errno: (record.result < 0).then(|| u32::try_from(-record.result).unwrap_or(0)),
        };
        let waits = waits(record, &call, &requests, names);
        Operation { call, more, sleeps, waits }
    }

    /// Notes an operation that ended, so that operations queued behind it can refer to it.
    pub fn note(&mut self, record: &AsyncRecord) {
        if record.punted == 0 {
            return;
        }
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        let AsyncRecord { key, tgid, inode_device, inode, submit_ns, end_ns, .. } = *record;
        self.ended.push_back(Ended { key, tgid, inode: (inode_device, inode), submit_ns, end_ns });
    }

    /// Sleeps of io_uring workers in other operations, behind which this operation was queued: the sleeps of the same
    /// worker and, if the work is hashed, those for the same file.
    fn ahead(&self, record: &AsyncRecord, ledger: &Ledger) -> Vec<Rc<SleepRecord>> {
        if record.punted == 0 {
            return Vec::new();
        }
        let until_ns = if record.worker_from_ns == 0 { record.end_ns } else { record.worker_from_ns };
        let inode = (record.inode_device, record.inode);
        let same_file = |key: u64, at_ns: u64| {
            let of_key = |ended: &&Ended| ended.key == key && ended.submit_ns <= at_ns && at_ns <= ended.end_ns;
            self.ended.iter().rev().find(of_key).is_some_and(|ended| ended.tgid == record.tgid && ended.inode == inode)
        };
        let mut sleeps = ledger.sleeps_of_workers(record.tgid, record.punt_ns, until_ns);
        sleeps.retain(|sleep| {
            let of_worker = record.worker != 0 && sleep.sleeper.tid == record.worker;
            let of_file = record.hashed != 0 && inode.1 != 0 && same_file(sleep.asynchronous, sleep.start_ns);
            sleep.asynchronous != record.key && (of_worker || of_file)
        });
        sleeps
    }

    /// The path of the operation's file, through a descriptor of the process that refers to the same inode; else the
    /// last component of the name, which the BPF program read.
    fn path(&mut self, record: &AsyncRecord) -> Option<String> {
        let name = || Some(text(&record.file)).filter(|name| !name.is_empty());
        if record.inode == 0 {
            return name();
        }
        if self.paths.len() >= PATHS_MAX {
            self.paths.clear();
        }
        let look = || {
            let descriptors = std::fs::read_dir(format!("/proc/{}/fd", record.tgid)).ok()?;
            let mut open = descriptors.flatten().take(DESCRIPTORS_MAX).map(|entry| entry.path());
            let same = open.find(|link| {
                // Compare names first: this excludes most descriptors without a stat call.
                let target = std::fs::read_link(link).unwrap_or_default();
                target.file_name().is_some_and(|last| last.to_string_lossy().starts_with(&text(&record.file)))
                    && std::fs::metadata(link).is_ok_and(|data| data.ino() == record.inode)
            })?;
            Some(std::fs::read_link(same).ok()?.to_string_lossy().into_owned())
        };
        self.paths.entry((record.inode_device, record.inode)).or_insert_with(look).clone().or_else(name)
    }
}

/// A request of direct I/O, and the time from which it was waited for.
pub(super) type Awaited = (u64, RequestRecord);

/// Name of the gap for unfinished operations that cannot be read or judged.
pub const OPERATIONS: &str = "operations of io_uring and libaio that had not ended when the recording ended";

impl AsyncOperation {
    /// The record of the operation as if it ended with the recording.
    pub fn until(&self, key: AsyncKey, recording: &Span) -> AsyncRecord {
        AsyncRecord {
            row: u32::from(self.row),
            key: key.address,
            submit_ns: self.submit_ns.max(recording.start_ns),
            punt_ns: self.punt_ns,
            end_ns: recording.end_ns.min(monotonic_ns()),
            bytes: self.bytes,
            offset: self.offset,
            tid: self.tid,
            tgid: self.tgid,
            opcode: self.opcode,
            hashed: self.hashed,
            punted: self.punted,
            libaio: self.libaio,
            ..AsyncRecord::default()
        }
    }
}

/// Whether an io_uring worker still sleeps for the operation at its end.
pub fn is_worked_on(record: &AsyncRecord, ledger: &Ledger) -> bool {
    record.punted != 0 && sleeps_of(record, ledger).iter().any(|sleep| sleep.end_ns >= record.end_ns)
}

/// Unfinished operations for which no worker sleeps. The device may have them, they may wait for a pipe without a
/// writer, or they are complete and the program has not collected them.
#[derive(Debug, Default)]
pub struct Left {
    count: u64,
    oldest: Option<AsyncRecord>,
}

impl Left {
    pub fn add(&mut self, record: &AsyncRecord) {
        self.count += 1;
        if self.oldest.as_ref().is_none_or(|oldest| record.submit_ns < oldest.submit_ns) {
            self.oldest = Some(*record);
        }
    }

    pub fn gap(&self) -> Option<Gap> {
        let oldest = self.oldest.as_ref()?;
        let so_far = Nanos(oldest.end_ns.saturating_sub(oldest.submit_ns));
        let (opcode, tgid) = (opcode_name(oldest), oldest.tgid);
        let why = format!(
            "{} were submitted and not completed, the longest {so_far} ago ({opcode} of process {tgid}); it is unknown whether \
             they wait for a file, for another program, or only to be collected",
            self.count
        );
        Some(Gap::new(OPERATIONS, why, "record again for longer; operations that complete are recorded"))
    }
}

/// The requests of the operation's direct I/O. Each is waited for from its insertion on (from the submission of the
/// operation if a limit held it back), but not before the previous one completed.
fn direct_io(record: &AsyncRecord, ledger: &Ledger, stacks: &StackTable) -> Vec<Awaited> {
    let symbol = |address: u64| stacks.symbol(address).map(str::to_owned);
    let mut at_ns = record.submit_ns;
    let mut found = Vec::new();
    for request in ledger.requests_for(record.key, record.submit_ns, record.end_ns) {
        let from_ns = if queue::is_throttled(&request, &symbol) { record.submit_ns } else { request.insert_ns };
        let from_ns = from_ns.max(at_ns);
        if request.done_ns > from_ns {
            at_ns = request.done_ns;
            found.push((from_ns, request));
        }
    }
    found
}

/// The waits for these requests, in the form of sleeps. No thread slept: the program did something else at that time.
fn waits(record: &AsyncRecord, call: &Call, requests: &[Awaited], names: &mut Identities) -> Vec<Wait> {
    let wait = |(from_ns, request): &Awaited| Wait {
        call_tid: call.tid,
        call_start_ns: call.start_ns,
        sleeper: names.named(record.tid, record.tgid, &call.thread),
        start_ns: *from_ns,
        duration_ns: request.done_ns.saturating_sub(*from_ns),
        waker_kind: WakerKind::Device,
        request: Some(request.sequence),
        basis: WakerBasis::Completion,
        ..Wait::default()
    };
    requests.iter().map(wait).collect()
}

/// The name of the thread that submitted the operation. The record names the thread that completed it, which may be
/// any.
fn thread_name(record: &AsyncRecord, names: &mut Identities) -> String {
    match proc::text::read(format!("/proc/{}/task/{}/comm", record.tgid, record.tid)) {
        Ok(name) => name.trim_end().to_owned(),
        Err(_) => names.owner(0, record.tgid, &text(&record.comm)).name,
    }
}

/// The sleeps for an operation: those of the worker; without a worker, those of the submitting thread within the call
/// that submits. A ring's own thread (IORING_SETUP_SQPOLL) submits without a call.
fn sleeps_of(record: &AsyncRecord, ledger: &Ledger) -> Vec<Rc<SleepRecord>> {
    if record.punted != 0 {
        return ledger.sleeps_for(record.key, record.submit_ns, record.end_ns);
    }
    let inside = if record.libaio != 0 { libc::SYS_io_submit } else { libc::SYS_io_uring_enter };
    let mut sleeps = ledger.sleeps(record.tid, record.submit_ns, record.end_ns);
    sleeps.retain(|sleep| {
        sleep.uninterruptible()
            && (i64::from(sleep.sleeper.call) == inside || sleep.sleeper.flags & PF_IO_WORKER != 0)
            // A wait for other operations to end is not part of this one.
            && sleep.start_ns >= record.submit_ns
            && sleep.end_ns <= record.end_ns
    });
    sleeps
}

/// The BPF programs' latency counts.
#[derive(Debug)]
pub struct AsyncTotals(ClassCounts);

impl AsyncTotals {
    pub fn of(map: Map) -> Result<AsyncTotals, TraceError> {
        Ok(AsyncTotals(ClassCounts::of(map, size::ASYNC_ROWS, true)?))
    }

    /// The counts since the last call: one bucket per kind of operation.
    pub fn since_last(&mut self, start_ns: u64, end_ns: u64) -> Vec<LatencyBucket> {
        let rows = ROWS.iter().map(|(row, op)| (*row as usize, *op));
        self.0.since_last(rows, start_ns, end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::{Left, OperationNames, ROWS, direct_io, is_worked_on, op_of, opcode_name, sleeps_of};
    use crate::kallsyms::Kallsyms;
    use crate::tracer::stacks::StackTable;
    use crate::waits::Span;
    use crate::waits::layout::{
        AsyncKey, AsyncOperation, AsyncRecord, PF_IO_WORKER, RequestRecord, SleepRecord, WaitTask,
    };
    use crate::waits::ledger::Ledger;
    use flatwater_recording::{AccessKind, OpKind};

    fn table() -> StackTable {
        let symbols = "1000 T schedule\n";
        StackTable::new(None, Kallsyms::parse(symbols.as_bytes()).expect("symbols"))
    }

    /// From a run of fio: four fifths of the time of direct writes with an SQPOLL ring were unexplained.
    #[test]
    fn sleeps_of_the_sqpoll_thread_belong_to_the_operation() {
        let record = AsyncRecord { key: 7, tid: 40, submit_ns: 1_000, end_ns: 9_000, ..AsyncRecord::default() };
        let asleep = |start_ns, end_ns, flags, call| {
            let sleeper = WaitTask { tid: 40, flags, call, ..WaitTask::default() };
            SleepRecord { start_ns, end_ns, sleeper, state: 2, ..SleepRecord::default() }
        };
        let mut ledger = Ledger::default();
        ledger.add_sleep(asleep(1_100, 4_000, PF_IO_WORKER, -1));
        ledger.add_sleep(asleep(8_500, 9_500, PF_IO_WORKER, -1));
        let times = |ledger: &Ledger| -> Vec<(u64, u64)> {
            sleeps_of(&record, ledger).iter().map(|sleep| (sleep.start_ns, sleep.end_ns)).collect()
        };
        assert_eq!(
            times(&ledger),
            [(1_100, 4_000)],
            "the second one ended after the operation: it belongs to another one"
        );
        let mut of_program = Ledger::default();
        of_program.add_sleep(asleep(1_100, 4_000, 0, libc::SYS_openat as i32));
        assert_eq!(times(&of_program), [], "the program slept in another call");
    }

    #[test]
    fn a_hashed_write_is_queued_behind_the_workers_sleeps_for_the_same_file() {
        let of = |key, inode| AsyncRecord {
            key,
            inode,
            tgid: 40,
            punted: 1,
            hashed: 1,
            submit_ns: 100,
            punt_ns: 110,
            end_ns: 9_000,
            ..AsyncRecord::default()
        };
        let (first, second, elsewhere) = (of(1, 77), of(2, 77), of(3, 78));
        let mut names = OperationNames::default();
        [first, second, elsewhere].iter().for_each(|record| names.note(record));
        let mut ledger = Ledger::default();
        for (asynchronous, start_ns, tid) in [(1, 200, 50), (3, 400, 51), (2, 600, 50)] {
            let sleeper = WaitTask { tid, tgid: 40, flags: PF_IO_WORKER, ..WaitTask::default() };
            ledger.add_sleep(SleepRecord {
                start_ns,
                end_ns: start_ns + 100,
                sleeper,
                asynchronous,
                ..SleepRecord::default()
            });
        }
        let behind = |record: &AsyncRecord| -> Vec<u64> {
            names.ahead(record, &ledger).iter().map(|sleep| sleep.asynchronous).collect()
        };
        assert_eq!(behind(&second), [1]);
        assert_eq!(
            behind(&AsyncRecord { hashed: 0, ..second }),
            Vec::<u64>::new(),
            "only hashed work is serialized by file"
        );
        assert_eq!(behind(&AsyncRecord { hashed: 0, worker: 51, ..second }), [3], "its worker was busy");
        assert_eq!(behind(&AsyncRecord { punted: 0, ..second }), Vec::<u64>::new());
    }

    #[test]
    fn unfinished_operations_without_a_sleeping_worker_are_a_gap() {
        let span = Span { start_ns: 500, end_ns: 2_000_000_000, threshold_ns: 1_000 };
        let write =
            AsyncOperation { submit_ns: 100, punted: 1, opcode: 23, row: 1, tgid: 9, ..AsyncOperation::default() };
        let record = |operation: &AsyncOperation, address| operation.until(AsyncKey { address, tgid: 0 }, &span);
        let mut ledger = Ledger::default();
        let asleep = SleepRecord { asynchronous: 7, start_ns: 600, end_ns: 2_000_000_000, ..SleepRecord::default() };
        ledger.add_sleep(asleep);
        let frozen = record(&write, 7);
        assert_eq!((frozen.submit_ns, frozen.end_ns), (500, 2_000_000_000));
        assert!(is_worked_on(&frozen, &ledger));
        assert!(!is_worked_on(&record(&write, 8), &ledger), "no worker sleeps for that one");
        assert!(!is_worked_on(&record(&AsyncOperation { punted: 0, ..write }, 7), &ledger));

        let mut left = Left::default();
        assert_eq!(left.gap(), None);
        left.add(&record(&AsyncOperation { submit_ns: 1_000_000_000, opcode: 22, ..write }, 8));
        left.add(&record(&AsyncOperation { submit_ns: 1_500_000_000, ..write }, 9));
        let gap = left.gap().expect("a gap");
        assert!(gap.why.contains("2 were submitted") && gap.why.contains("IORING_OP_READ of process 9"), "{}", gap.why);
        assert!(gap.why.contains("the longest 1 s ago"), "{}", gap.why);
    }

    #[test]
    fn requests_of_one_operation_are_waited_for_one_after_the_other() {
        let record = AsyncRecord { key: 77, submit_ns: 100, end_ns: 1_000, ..AsyncRecord::default() };
        let mut ledger = Ledger::default();
        for (sequence, insert_ns, done_ns) in [(1, 150, 400), (2, 160, 900), (3, 170, 300)] {
            ledger.add_request(RequestRecord { sequence, iocb: 77, insert_ns, done_ns, ..RequestRecord::default() });
        }
        let found: Vec<(u64, u64)> =
            direct_io(&record, &ledger, &table()).iter().map(|(from, request)| (*from, request.done_ns)).collect();
        assert_eq!(found, [(150, 400), (400, 900)]);
    }

    #[test]
    fn every_row_is_an_operation_of_io_uring_or_libaio() {
        for (row, op) in ROWS {
            assert_eq!(op_of(row), op);
            assert!(matches!(op.access(), AccessKind::IoUring | AccessKind::LinuxAio));
        }
        assert_eq!(op_of(99), OpKind::Other);
        let write = AsyncRecord { opcode: 23, ..AsyncRecord::default() };
        assert_eq!(opcode_name(&write), "IORING_OP_WRITE");
        assert_eq!(opcode_name(&AsyncRecord { opcode: 1, libaio: 1, ..write }), "IOCB_CMD_PWRITE");
    }
}

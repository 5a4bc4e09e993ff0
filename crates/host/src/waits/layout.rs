//! Rust mirror of the structures and constants of bpf/waits.h. The tests compare each member and constant with the BTF
//! of the compiled objects.

#[cfg(test)]
use crate::tracer::layout::Member;
use crate::tracer::layout::{mirror_enum, mirror_struct};
#[cfg(test)]
use std::mem::offset_of;

mirror_enum! {
    size: usize = "wait_size" {
        WAIT_FRAMES = 24, WAIT_NAME_BYTES = 32, AIO_BATCH_MAX = 64, ASYNC_ROWS = 8, ASYNC_CLASSES = 512,
        RUNS_KEPT = 64, RECLAIMERS_MAX = 1024, WAIT_FOR_CPU = 255,
    }
    record: u32 = "wait_record_kind" { SLEEP = 1, REQUEST = 2, DIRTIER = 3, ASYNC = 4, RUNNABLE = 5, UNDER_WAY = 6 }
    counter: u32 = "wait_counter" {
        LOST = 0, NO_STATE = 1, REQUESTS_FULL = 2, ASYNC_FULL = 3, ASYNC_UNKNOWN = 4, AIO_BATCH = 5,
        REGISTERS = 6, OTHER_REGISTERS = 7,
    }
    row: u32 = "async_row" {
        URING_READ = 0, URING_WRITE = 1, URING_FSYNC = 2, URING_OTHER = 3, AIO_READ = 4, AIO_WRITE = 5, AIO_FSYNC = 6,
    }
}

/// include/linux/sched.h.
pub const PF_KTHREAD: u32 = 0x20_0000;
pub const PF_IO_WORKER: u32 = 0x10;

mirror_struct! {
    /// A thread at the time of an event.
    #[derive(Default, PartialEq, Eq)]
    WaitTask = "wait_task" {
        tid: u32,
        tgid: u32,
        call: i32,
        flags: u32,
        cgroup: u64,
        function: u64,
        inode: u64,
        comm: [u8; 16],
        file: [u8; size::WAIT_NAME_BYTES],
    }
    /// A long sleep, with the thread that ended it.
    #[derive(Default, PartialEq, Eq)]
    SleepRecord = "sleep_record" {
        kind: u32,
        state: u32,
        start_ns: u64,
        end_ns: u64,
        sleeper: WaitTask,
        waker: WaitTask,
        arg: [u64; 3],
        ip: u64,
        sp: u64,
        reads_writes: u64,
        voluntary_switches: u64,
        call_start_ns: u64,
        lock: u64,
        lock_since_ns: u64,
        lock_flags: u32,
        holder_tid: u32,
        holder_tgid: u32,
        /// If not 0, the record is not a sleep but an interval within this bracket, or a wait for a CPU
        /// (`size::WAIT_FOR_CPU`).
        bracket: u32,
        holder_comm: [u8; 16],
        awaited_inode: u64,
        request: u64,
        waker_request: u64,
        waker_since_ns: u64,
        waker_by_tid: u32,
        waker_depth: u32,
        waker_by_comm: [u8; 16],
        asynchronous: u64,
        depth: u32,
        target: u32,
        frames: [u64; size::WAIT_FRAMES],
        waker_frames: [u64; size::WAIT_FRAMES],
    }
    /// A completed request to a block device.
    #[derive(Default, PartialEq, Eq)]
    RequestRecord = "request_record" {
        kind: u32,
        device: u32,
        sequence: u64,
        insert_ns: u64,
        issue_ns: u64,
        done_ns: u64,
        sector: u64,
        inode: u64,
        cgroup: u64,
        function: u64,
        iocb: u64,
        inode_device: u32,
        bytes: u32,
        flags: u32,
        tid: u32,
        tgid: u32,
        task_flags: u32,
        ahead: u32,
        ahead_kib: u32,
        in_flight: u32,
        done_tid: u32,
        data: u64,
        handed_ns: u64,
        handed_by: u32,
        unused: u32,
        comm: [u8; 16],
    }
    /// A request that has not completed, as the BPF programs keep it.
    #[derive(Default, PartialEq, Eq)]
    RequestState = "request_state" {
        insert_ns: u64,
        issue_ns: u64,
        function: u64,
        sector: u64,
        tid: u32,
        tgid: u32,
        task_flags: u32,
        bytes: u32,
        ahead: u32,
        ahead_kib: u32,
        in_flight: u32,
        device: u32,
        flags: u32,
        unused: u32,
        comm: [u8; 16],
    }
    /// A process made an inode dirty.
    #[derive(Default, PartialEq, Eq)]
    DirtierRecord = "dirtier_record" {
        kind: u32,
        inode_device: u32,
        at_ns: u64,
        inode: u64,
        cgroup: u64,
        tid: u32,
        tgid: u32,
        comm: [u8; 16],
        file: [u8; size::WAIT_NAME_BYTES],
    }
    /// A slow operation of io_uring or libaio.
    #[derive(Default, PartialEq, Eq)]
    AsyncRecord = "async_record" {
        kind: u32,
        row: u32,
        key: u64,
        submit_ns: u64,
        punt_ns: u64,
        end_ns: u64,
        bytes: u64,
        offset: u64,
        inode: u64,
        result: i64,
        worker_from_ns: u64,
        worker_last_ns: u64,
        returned_ns: u64,
        reap_from_ns: u64,
        reap_to_ns: u64,
        reap_count: u32,
        unused: u32,
        tid: u32,
        tgid: u32,
        worker: u32,
        opcode: u32,
        inode_device: u32,
        hashed: u8,
        punted: u8,
        has_result: u8,
        libaio: u8,
        comm: [u8; 16],
        file: [u8; size::WAIT_NAME_BYTES],
    }
    /// The key of an operation under way: the address of the kernel's io_uring request, or libaio's iocb and process.
    #[derive(Default, PartialEq, Eq)]
    AsyncKey = "async_key" {
        address: u64,
        tgid: u64,
    }
    /// An operation of io_uring or libaio that has not ended.
    #[derive(Default, PartialEq, Eq)]
    AsyncOperation = "async_operation" {
        submit_ns: u64,
        punt_ns: u64,
        bytes: u64,
        offset: u64,
        worker_from_ns: u64,
        worker_last_ns: u64,
        returned_ns: u64,
        tid: u32,
        tgid: u32,
        opcode: u32,
        fd: u32,
        row: u8,
        hashed: u8,
        punted: u8,
        libaio: u8,
        worker: u32,
    }
    /// What a process has reclaimed so far.
    #[derive(Default, PartialEq, Eq)]
    Reclaimer = "reclaimer" {
        pages: u64,
        calls: u64,
        cgroup: u64,
        tid: u32,
        unused: u32,
        comm: [u8; 16],
    }
    /// A thread had a CPU from `from_ns` to `to_ns`.
    #[derive(Default, PartialEq, Eq)]
    Run = "run" {
        from_ns: u64,
        to_ns: u64,
        tid: u32,
        tgid: u32,
        comm: [u8; 16],
    }
    /// A thread got a CPU after waiting for it; `run` lists the threads that ran there during the wait, newest first.
    RunnableRecord = "runnable_record" {
        kind: u32,
        cpu: u32,
        tid: u32,
        tgid: u32,
        start_ns: u64,
        end_ns: u64,
        runs: u32,
        unused: u32,
        run: [Run; size::RUNS_KEPT],
    }
}

// SAFETY: integers and an array of integers without padding: every bit pattern is valid.
unsafe impl aya::Pod for Reclaimer {}
// SAFETY: as above.
unsafe impl aya::Pod for AsyncKey {}
// SAFETY: as above.
unsafe impl aya::Pod for AsyncOperation {}
// SAFETY: as above.
unsafe impl aya::Pod for RequestState {}

/// A record from the ring buffer.
#[derive(Clone, Debug)]
pub enum Record {
    Sleep(Box<SleepRecord>),
    Request(RequestRecord),
    Dirtier(DirtierRecord),
    Async(AsyncRecord),
    Runnable(Box<RunnableRecord>),
    /// A sleep that has not ended.
    UnderWay(Box<SleepRecord>),
}

impl Record {
    /// `None` if the bytes are too few or of an unknown kind.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Record> {
        let kind = u32::from_ne_bytes(*bytes.first_chunk::<4>()?);
        match kind {
            record::SLEEP => copied(bytes).map(|sleep| Record::Sleep(Box::new(sleep))),
            record::REQUEST => copied(bytes).map(Record::Request),
            record::DIRTIER => copied(bytes).map(Record::Dirtier),
            record::ASYNC => copied(bytes).map(Record::Async),
            record::UNDER_WAY => copied(bytes).map(|sleep| Record::UnderWay(Box::new(sleep))),
            record::RUNNABLE => copied(bytes).map(|record| Record::Runnable(Box::new(record))),
            _ => None,
        }
    }
}

/// Structures for which every bit pattern is valid: integers and arrays of integers.
trait Plain: Copy {}
impl Plain for SleepRecord {}
impl Plain for RequestRecord {}
impl Plain for DirtierRecord {}
impl Plain for AsyncRecord {}
impl Plain for RunnableRecord {}

fn copied<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, and every bit pattern is valid for a `Plain` structure.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<T>()) })
}

impl SleepRecord {
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// The sleeper's stack, innermost function first.
    #[must_use]
    pub fn frames(&self) -> &[u64] {
        &self.frames[..(self.depth as usize).min(size::WAIT_FRAMES)]
    }

    #[must_use]
    pub fn waker_frames(&self) -> &[u64] {
        &self.waker_frames[..(self.waker_depth as usize).min(size::WAIT_FRAMES)]
    }

    /// TASK_UNINTERRUPTIBLE without TASK_NOLOAD.
    #[must_use]
    pub fn uninterruptible(&self) -> bool {
        self.state & 0x402 == 2
    }
}

impl RunnableRecord {
    /// The threads that ran during the wait, newest first.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.run[..(self.runs as usize).min(size::RUNS_KEPT)]
    }
}

#[cfg(test)]
mod tests {
    use super::{
        AsyncKey, AsyncOperation, AsyncRecord, DirtierRecord, Member, Reclaimer, Record, RequestRecord, RequestState,
        Run, RunnableRecord, SleepRecord, WaitTask, counter, record, row, size,
    };
    use crate::tracer::btf::Types;
    use crate::waits::object::VARIANTS;

    const STRUCTS: [(&str, usize, &[Member]); 11] = [
        (AsyncKey::ORIGINAL, size_of::<AsyncKey>(), AsyncKey::MEMBERS),
        (AsyncOperation::ORIGINAL, size_of::<AsyncOperation>(), AsyncOperation::MEMBERS),
        (WaitTask::ORIGINAL, size_of::<WaitTask>(), WaitTask::MEMBERS),
        (SleepRecord::ORIGINAL, size_of::<SleepRecord>(), SleepRecord::MEMBERS),
        (RequestRecord::ORIGINAL, size_of::<RequestRecord>(), RequestRecord::MEMBERS),
        (RequestState::ORIGINAL, size_of::<RequestState>(), RequestState::MEMBERS),
        (DirtierRecord::ORIGINAL, size_of::<DirtierRecord>(), DirtierRecord::MEMBERS),
        (AsyncRecord::ORIGINAL, size_of::<AsyncRecord>(), AsyncRecord::MEMBERS),
        (Run::ORIGINAL, size_of::<Run>(), Run::MEMBERS),
        (Reclaimer::ORIGINAL, size_of::<Reclaimer>(), Reclaimer::MEMBERS),
        (RunnableRecord::ORIGINAL, size_of::<RunnableRecord>(), RunnableRecord::MEMBERS),
    ];

    fn types() -> impl Iterator<Item = Types> {
        VARIANTS.iter().map(|variant| {
            assert!(!variant.object.is_empty(), "built without clang: the mirror cannot be compared with the object");
            Types::of_object(&variant.object.elf()).expect("an object with BTF")
        })
    }

    #[test]
    fn structures_match_the_objects() {
        for types in types() {
            for (name, size, members) in STRUCTS {
                types.assert_struct(name, size, members);
            }
        }
    }

    #[test]
    fn constants_match_the_objects() {
        let mirrored = [
            (size::ORIGINAL, "", size::ALL),
            (record::ORIGINAL, "W_", record::ALL),
            (counter::ORIGINAL, "WC_", counter::ALL),
            (row::ORIGINAL, "ROW_", row::ALL),
        ];
        for types in types() {
            for (name, prefix, ours) in mirrored {
                types.assert_enum(name, prefix, ours, "WAIT_COUNTERS");
            }
        }
    }

    #[test]
    fn bytes_of_no_known_record_are_refused() {
        assert!(Record::read(&[]).is_none());
        assert!(Record::read(&[9; 600]).is_none());
        assert!(Record::read(&record::REQUEST.to_ne_bytes()).is_none());
        let mut request = vec![0_u8; size_of::<RequestRecord>()];
        request[..4].copy_from_slice(&record::REQUEST.to_ne_bytes());
        assert!(matches!(Record::read(&request), Some(Record::Request(_))));
    }
}

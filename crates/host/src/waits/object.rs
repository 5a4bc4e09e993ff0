//! Loads the second BPF object, which build.rs embeds, and attaches its hooks one by one.

use aya::{Btf, Ebpf, EbpfLoader};

use super::layout::row;
use crate::bpf_object::{BpfObject, bpf_object};
use crate::tracer::calls::CallTables;
use crate::tracer::hooks::{self, refused};
use crate::tracer::variant::Means;
use crate::tracer::{Refusal, TraceError};
use flatwater_recording::{Bracket, Cause, Ends, HookStatus, brackets};

/// A variant of the object, for one range of kernels.
#[derive(Debug)]
pub(crate) struct Variant {
    pub name: &'static str,
    pub object: BpfObject,
    needs: &'static [Means],
}

/// Newest first. Both need the ring buffer (5.8) and typed tracepoints.
pub(crate) static VARIANTS: [Variant; 2] = [
    Variant {
        name: "task_storage",
        object: bpf_object!("waits.task_storage"),
        needs: &[Means::TaskStorage, Means::RingBuffer, Means::TypedTracepoints],
    },
    Variant { name: "hash", object: bpf_object!("waits.hash"), needs: &[Means::RingBuffer, Means::TypedTracepoints] },
];

/// Size of the ring buffer. Records wake no reader, so it holds what arrives between two readings, some 40,000
/// requests.
const RING_BYTES: u32 = 4 << 20;
/// An opcode that does not concern a file (bpf/wait_async.h: NO_ROW).
const NO_ROW: u8 = 255;

/// Missing in the libc crate.
const IO_PGETEVENTS: u64 = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// Constants for the BPF programs.
#[derive(Clone, Copy, Debug)]
pub struct WaitConstants {
    /// Shorter sleeps are not reported.
    pub sleep_ns_min: u64,
    /// Faster operations of io_uring and libaio are only counted.
    pub async_ns_min: u64,
    /// Follow every process.
    pub whole_machine: bool,
    /// If not 0, calls are found by their sleeps and are slow from this length on.
    pub call_ns_min: u64,
}

/// Interruptible sleeps within these calls are reported, because another thread ends them.
const LOCK_CALLS: &[i64] = &[libc::SYS_flock, libc::SYS_fcntl, libc::SYS_futex];

/// Opcodes of io_uring that concern a file (include/uapi/linux/io_uring.h: enum io_uring_op), with their row.
pub const URING_OPCODES: &[(u8, &str, u32)] = &[
    (1, "IORING_OP_READV", row::URING_READ),
    (2, "IORING_OP_WRITEV", row::URING_WRITE),
    (3, "IORING_OP_FSYNC", row::URING_FSYNC),
    (4, "IORING_OP_READ_FIXED", row::URING_READ),
    (5, "IORING_OP_WRITE_FIXED", row::URING_WRITE),
    (8, "IORING_OP_SYNC_FILE_RANGE", row::URING_FSYNC),
    (17, "IORING_OP_FALLOCATE", row::URING_OTHER),
    (18, "IORING_OP_OPENAT", row::URING_OTHER),
    (19, "IORING_OP_CLOSE", row::URING_OTHER),
    (21, "IORING_OP_STATX", row::URING_OTHER),
    (22, "IORING_OP_READ", row::URING_READ),
    (23, "IORING_OP_WRITE", row::URING_WRITE),
    (24, "IORING_OP_FADVISE", row::URING_OTHER),
    (25, "IORING_OP_MADVISE", row::URING_OTHER),
    (28, "IORING_OP_OPENAT2", row::URING_OTHER),
    (30, "IORING_OP_SPLICE", row::URING_OTHER),
    (35, "IORING_OP_RENAMEAT", row::URING_OTHER),
    (36, "IORING_OP_UNLINKAT", row::URING_OTHER),
    (37, "IORING_OP_MKDIRAT", row::URING_OTHER),
    (38, "IORING_OP_SYMLINKAT", row::URING_OTHER),
    (39, "IORING_OP_LINKAT", row::URING_OTHER),
    (41, "IORING_OP_FSETXATTR", row::URING_OTHER),
    (42, "IORING_OP_SETXATTR", row::URING_OTHER),
    (55, "IORING_OP_FTRUNCATE", row::URING_OTHER),
    (60, "IORING_OP_READV_FIXED", row::URING_READ),
    (61, "IORING_OP_WRITEV_FIXED", row::URING_WRITE),
];

fn uring_rows() -> [u8; 64] {
    let mut rows = [NO_ROW; 64];
    for &(opcode, _, row) in URING_OPCODES {
        if let (Some(place), Ok(row)) = (rows.get_mut(usize::from(opcode)), u8::try_from(row)) {
            *place = row;
        }
    }
    rows
}

fn bits(numbers: &[i64]) -> [u64; 8] {
    let mut set = [0; 8];
    for number in numbers.iter().filter_map(|&number| usize::try_from(number).ok()) {
        if let Some(word) = set.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }
    set
}

/// The kernel's entry of system calls with FRED, which exists if CONFIG_X86_FRED (6.9) is set.
const FRED_ENTRY: &str = "asm_fred_entrypoint_user";

/// Offset of the end of the saved registers in a thread's kernel stack: the size of the stack (THREAD_SIZE: four pages
/// on x86; on arm64 16 KiB, or a page if that is larger), less TOP_OF_KERNEL_STACK_PADDING (16 with CONFIG_X86_FRED,
/// also on a processor without FRED).
fn registers_end(has_fred: bool) -> u64 {
    (rustix::param::page_size() as u64).max(16 << 10) - if has_fred { 16 } else { 0 }
}

/// Loads the first variant that the kernel accepts: creates its maps, makes its programs known, and attaches nothing.
/// Returns the variant's name as well.
pub fn load(
    btf: &Btf,
    constants: WaitConstants,
    without: &[Means],
    address_of: &dyn Fn(&str) -> Option<u64>,
) -> Result<(Ebpf, &'static str), TraceError> {
    let mut refusals = Vec::new();
    for variant in &VARIANTS {
        let switched_off = variant.needs.iter().find(|means| without.contains(means));
        let loaded = match switched_off {
            Some(means) => Err(TraceError::SwitchedOff(means.name())),
            None => load_variant(variant, btf, constants, address_of),
        };
        match loaded {
            Ok(ebpf) => return Ok((ebpf, variant.name)),
            Err(why) => refusals.push(Refusal { variant: variant.name, why }),
        }
    }
    Err(TraceError::EveryVariant(refusals))
}

fn load_variant(
    variant: &Variant,
    btf: &Btf,
    constants: WaitConstants,
    address_of: &dyn Fn(&str) -> Option<u64>,
) -> Result<Ebpf, TraceError> {
    if variant.object.is_empty() {
        return Err(TraceError::NotBuilt);
    }
    let address = |name: &str| address_of(name).unwrap_or(0);
    let mut loader = EbpfLoader::new();
    loader.allow_unsupported_maps().btf(Some(btf));
    loader.override_global("sleep_ns_min", &constants.sleep_ns_min, true);
    loader.override_global("async_ns_min", &constants.async_ns_min, true);
    let whole_machine = u32::from(constants.whole_machine);
    loader.override_global("whole_machine", &whole_machine, true);
    loader.override_global("call_ns_min", &constants.call_ns_min, true);
    let (tables, locks, rows) = (CallTables::of_all(), bits(LOCK_CALLS), uring_rows());
    loader.override_global("call_file_arg", &tables.file_arg, true);
    loader.override_global("call_path_arg", &tables.path_arg, true);
    loader.override_global("file_calls", &tables.wanted, true);
    loader.override_global("lock_calls", &locks, true);
    loader.override_global("uring_row", &rows, true);
    let (direct_end, aio_end) = (address("iomap_dio_bio_end_io"), address("aio_complete_rw"));
    loader.override_global("direct_end", &direct_end, true);
    loader.override_global("aio_end", &aio_end, true);
    loader.override_global("uring_enter_number", &(libc::SYS_io_uring_enter as u64), true);
    loader.override_global("io_submit_number", &(libc::SYS_io_submit as u64), true);
    loader.override_global("io_getevents_number", &(libc::SYS_io_getevents as u64), true);
    loader.override_global("io_pgetevents_number", &IO_PGETEVENTS, true);
    let registers_end = registers_end(address_of(FRED_ENTRY).is_some());
    loader.override_global("registers_end", &registers_end, true);
    loader.override_global("read_number", &(libc::SYS_read as u64), true);
    loader.map_max_entries("wait_records", RING_BYTES);
    loader.map_max_entries("cpu_runs", possible_cpus());
    loader.load(&variant.object.elf()).map_err(|error| refused(&error))
}

/// The number of CPUs that may ever be online.
fn possible_cpus() -> u32 {
    aya::util::nr_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1)
}

/// Which parts of the object to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitHooks {
    /// libaio, which needs hooks on every system call.
    pub libaio: bool,
    /// Follow every process: without io_uring operations, whose hooks would slow each one, and without a table of
    /// targets.
    pub whole_machine: bool,
    /// The hooks of the block layer, which cost each request some 2 us.
    pub requests: bool,
}

/// Tracepoint, program, and what needs it.
const HOOKS: &[(&str, &str, &str)] = &[
    ("sched_waking", "wait_waking", "waits (who ended a sleep)"),
    ("sched_switch", "wait_switch", "waits (who ended a sleep, who ran during a sleep)"),
    ("contention_end", "wait_contention_end", "waits (who held a lock)"),
    ("contention_begin", "wait_contention_begin", "waits (who held a lock)"),
    ("folio_wait_writeback", "wait_writeback", "waits (which file's writeback)"),
];
/// The brackets that are followed in every process; each end comes before its begin (bpf/wait_brackets.h).
fn of_brackets() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    let both = |(_, cause, bracket): (u8, Cause, &Bracket)| match bracket.ends {
        Ends::Tracepoints { begin, end } if bracket.seldom => {
            [end, begin].map(|at| (at, format!("wait_{at}"), cause.name())).to_vec()
        }
        _ => Vec::new(),
    };
    brackets().flat_map(both)
}

/// The hooks that follow requests and their owners.
const OF_REQUESTS: &[(&str, &str, &str)] = &[
    ("block_rq_complete", "wait_request_complete", "requests"),
    ("block_rq_merge", "wait_request_merge", "requests"),
    ("block_rq_issue", "wait_request_issue", "requests (time in the device)"),
    ("block_rq_insert", "wait_request_insert", "requests (time in the queue)"),
    ("writeback_dirty_inode_enqueue", "wait_dirty_inode", "requests (owners of the flusher's writes)"),
    ("mm_vmscan_memcg_reclaim_end", "wait_memcg_reclaim", "memory users (of a cgroup's limit)"),
    ("mm_vmscan_direct_reclaim_end", "wait_direct_reclaim", "memory users (of the machine)"),
];
/// The hooks that follow only targets.
const OF_TARGETS: &[(&str, &str, &str)] = &[
    ("sched_process_fork", "wait_fork", "waits (children)"),
    ("sched_process_exit", "wait_exit", "waits"),
    ("io_uring_complete", "wait_uring_complete", "io_uring"),
    ("io_uring_queue_async_work", "wait_uring_punt", "io_uring (workers)"),
];
/// Two names of one tracepoint; each kernel has one of them.
const URING_SUBMIT: [(&str, &str, &str); 2] = [
    ("io_uring_submit_req", "wait_uring_submit", "io_uring"),
    ("io_uring_submit_sqe", "wait_uring_submit_old", "io_uring (before 6.4)"),
];
const LIBAIO: [(&str, &str, &str); 2] =
    [("sys_exit", "wait_aio_exit", "libaio"), ("sys_enter", "wait_aio_enter", "libaio")];

/// Attaches each hook by itself and returns the statuses. An end is attached before its begin.
pub fn attach(ebpf: &mut Ebpf, btf: &Btf, wanted: WaitHooks) -> Vec<HookStatus> {
    let mut statuses: Vec<HookStatus> = HOOKS.iter().map(|hook| hooks::attach_tracepoint(ebpf, btf, *hook)).collect();
    for (at, program, cause) in of_brackets() {
        statuses.push(hooks::attach_tracepoint(ebpf, btf, (at, &program, cause)));
    }
    if wanted.requests {
        statuses.extend(OF_REQUESTS.iter().map(|hook| hooks::attach_tracepoint(ebpf, btf, *hook)));
    }
    if wanted.whole_machine {
        return statuses;
    }
    statuses.extend(OF_TARGETS.iter().map(|hook| hooks::attach_tracepoint(ebpf, btf, *hook)));
    let submit = URING_SUBMIT.map(|hook| hooks::attach_tracepoint(ebpf, btf, hook));
    let works = |status: &&HookStatus| status.state == flatwater_recording::HookState::Exact;
    let shown = submit.iter().find(works).or(submit.first());
    statuses.extend(shown.cloned());
    if wanted.libaio {
        statuses.extend(LIBAIO.map(|hook| hooks::attach_tracepoint(ebpf, btf, hook)));
    }
    statuses
}

#[cfg(test)]
mod tests {
    use super::{NO_ROW, URING_OPCODES, bits, uring_rows};

    #[test]
    fn opcodes_for_sockets_and_timers_have_no_row() {
        let rows = uring_rows();
        assert_eq!(rows.iter().filter(|row| **row != NO_ROW).count(), URING_OPCODES.len());
        // IORING_OP_NOP, TIMEOUT, ACCEPT, SEND.
        assert!([0, 11, 13, 26].iter().all(|&opcode| rows[opcode] == NO_ROW));
    }

    #[test]
    fn numbers_out_of_range_set_no_bit() {
        assert_eq!(bits(&[-1, 512, 65])[1], 2);
        assert_eq!(bits(&[-1, 512]).iter().sum::<u64>(), 0);
    }
}

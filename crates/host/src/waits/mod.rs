//! Finds who made a slow call wait: its sleeps and the threads that ended them, the device requests that it waited for
//! and their owners, operations of io_uring and libaio, and the processes that make pages dirty.
//!
//! The BPF object bpf/waits.bpf.c sends long sleeps of all threads and all requests of block devices. This module keeps
//! the recent ones and joins them with a slow call once that is known. Only libaio, which has no tracepoints, needs
//! hooks on system calls.
//!
//! Invariants
//! - Memory is bounded whatever the machine does: see `ledger`, `queue`, `identity`. Records that find no room are
//!   counted.
//! - `WaitTracer::start` fails only if no object can be loaded or no usable hook attached; each missing hook has a
//!   status.

mod below;
mod chain;
mod detector;
mod found;
mod identity;
mod layout;
mod ledger;
pub mod machine;
mod memory;
pub(crate) mod object;
mod operations;
mod queue;
mod reader;
mod reclaimers;
mod runners;
mod sharing;
mod standing;
mod tiles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::rc::Rc;

use aya::Ebpf;
use aya::maps::{HashMap, Map, MapData, PerCpuArray, RingBuf};

use crate::clock::monotonic_ns;
use crate::settle;
use crate::tracer::TraceError;
use crate::tracer::hooks::{first_reason, of_sleeps, refused, sees_sleeps};
use crate::tracer::stacks::StackTable;
use crate::tracer::under_way;
use chain::Chains;
use detector::Detector;
use flatwater_recording::{
    AsyncCall, Call, Gap, HookState, HookStatus, LatencyBucket, Losses, QueueOwner, Request, ServiceTime, Task, Users,
    Wait, Waited, WakerKind,
};
use found::FoundCalls;
use identity::Identities;
use layout::{AsyncKey, AsyncOperation, AsyncRecord, Record, RequestRecord, RequestState, SleepRecord, counter};
use ledger::Ledger;
use memory::MemoryLedger;
use object::{WaitConstants, WaitHooks};
use operations::{AsyncTotals, Left, OPERATIONS, OperationNames};
use queue::{Known, QueueOwners};
use reader::Reader;
use reclaimers::Reclaimers;
use runners::Runners;

/// Keep at most this many slow operations until they are reported; beyond that new ones are dropped and counted.
const PENDING_MAX: usize = 65_536;
/// Remember at most this many reported requests, so that no second call reports them again. When full, the list is
/// cleared, and some requests may be reported twice.
const REPORTED_MAX: usize = 65_536;
/// Memory for records that have left the kernel's buffer and have not been taken; a daemon gets less.
const HELD_BYTES: usize = 64 << 20;
const HELD_BYTES_OF_DAEMON: usize = 8 << 20;
/// The iterator program that reports unfinished sleeps.
const UNENDED: &str = "wait_under_way";
/// The iterator program that checks where the kernel saves a thread's registers.
const REGISTERS: &str = "wait_registers";
/// How often cached names of ended processes are dropped.
const FORGET_EVERY_NS: u64 = 5_000_000_000;

/// Options of the tracer of waits.
#[derive(Clone, Copy, Debug)]
pub struct WaitOptions {
    /// Calls of at least this length are slow.
    pub threshold_ns: u64,
    /// Find calls by their sleeps, because no hook on system calls reports them.
    pub detect_calls: bool,
    /// Follow every process, with hooks of the scheduler, reclaim and the block layer only.
    pub whole_machine: bool,
    /// Follow the requests of block devices, and name their owners.
    pub requests: bool,
    /// Report each slow operation of io_uring. Off for flatwater's own workloads, which time theirs.
    pub operations: bool,
    /// Also follow libaio, which needs hooks on every system call.
    pub libaio: bool,
}

impl WaitOptions {
    fn constants(&self) -> WaitConstants {
        // A call found by its sleeps may consist of several: lower the minimum length of a reported sleep. The BPF
        // program adds up the shorter ones.
        let part = match (self.detect_calls, self.whole_machine) {
            (true, false) => 8,
            (true, true) => 4,
            (false, _) => 2,
        };
        WaitConstants {
            sleep_ns_min: self.threshold_ns / part,
            async_ns_min: if self.operations { self.threshold_ns } else { u64::MAX },
            whole_machine: self.whole_machine,
            call_ns_min: if self.detect_calls { self.threshold_ns } else { 0 },
        }
    }
}

/// The time that a recording covers, and its threshold for slow calls.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
    pub threshold_ns: u64,
}

/// Which of the calls found here are reported.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    now_ns: u64,
    /// Calls found by their sleeps that had returned by this time are reported.
    returned_by_ns: u64,
}

impl Settled {
    /// No more records will come: report all calls.
    pub const ALL: Settled = Settled { now_ns: u64::MAX, returned_by_ns: u64::MAX };

    /// No hook times the calls that are found by their sleeps: report them as soon as they are found.
    #[must_use]
    pub fn now() -> Settled {
        Settled { now_ns: monotonic_ns(), returned_by_ns: u64::MAX }
    }

    /// Hooks on system calls are being attached since this time, and may time calls that cannot be read yet. Report
    /// only calls that returned before.
    #[must_use]
    pub fn before_hooks(since_ns: u64) -> Settled {
        Settled { now_ns: monotonic_ns(), returned_by_ns: since_ns }
    }

    /// Hooks on system calls time the same calls, and their records were read at `look_ns` or later. Report a call
    /// found by its sleeps only after the hooks have reported it, so that the reader recognizes it.
    #[must_use]
    pub fn beside_hooks(look_ns: u64) -> Settled {
        Settled { now_ns: monotonic_ns(), returned_by_ns: look_ns.saturating_sub(settle::CALL_NS) }
    }
}

/// Records about slow calls, for the recording.
#[derive(Debug, Default)]
pub struct SlowRecords {
    /// Calls found here: operations of io_uring and libaio, and calls detected by their sleeps.
    pub calls: Vec<Call>,
    pub async_calls: Vec<AsyncCall>,
    /// The waits of these calls and of the calls that were passed in.
    pub waited: Waited,
}

/// The rows of one interval.
#[derive(Debug, Default)]
pub struct IntervalRows {
    pub latencies: Vec<LatencyBucket>,
    pub users: Users,
}

/// The loaded second object, with the records received so far.
pub struct WaitTracer {
    ebpf: Ebpf,
    reader: Reader,
    targets: HashMap<MapData, u32, u32>,
    counters: PerCpuArray<MapData, u64>,
    totals: AsyncTotals,
    ledger: Ledger,
    names: Identities,
    owners: QueueOwners,
    runners: Runners,
    memory: MemoryLedger,
    reclaimers: Reclaimers,
    operations: OperationNames,
    pending: Vec<AsyncRecord>,
    /// Requests that have not completed; read once, at the end.
    requests_under_way: HashMap<MapData, u64, RequestState>,
    standing: Vec<RequestRecord>,
    /// Operations that have not ended; read once, at the end.
    operations_under_way: HashMap<MapData, AsyncKey, AsyncOperation>,
    detector: Option<Detector>,
    found: FoundCalls,
    /// The iterator over unfinished sleeps; used once, at the end.
    unended: Option<File>,
    sleeping: Vec<SleepRecord>,
    reported: BTreeSet<u64>,
    dropped: u64,
    forgot_ns: u64,
}

impl std::fmt::Debug for WaitTracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitTracer").finish_non_exhaustive()
    }
}

/// The thread that ended a sleep, with the time of the sleep, if that thread ran or waited for a CPU during some of
/// that time.
fn ran_for_it(link: &Wait) -> Option<(&Task, u64, u64)> {
    let waker = link.waker.as_ref().filter(|_| link.waker_kind == WakerKind::Task && link.waker_ran_ns > Some(0))?;
    Some((waker, link.start_ns, link.start_ns.saturating_add(link.duration_ns)))
}

fn map(ebpf: &mut Ebpf, name: &str) -> Result<Map, TraceError> {
    ebpf.take_map(name).ok_or_else(|| TraceError::NoMap { name: name.to_owned() })
}

fn trace_error<E: std::error::Error>(error: E) -> TraceError {
    refused(&error)
}

fn sum(counters: &PerCpuArray<MapData, u64>, which: u32) -> u64 {
    counters.get(&which, 0).map_or(0, |values| values.iter().sum())
}

/// Whether the call of a sleeping thread can be read from its saved registers. `None` if it is unknown, because this
/// kernel has no iterator over threads.
fn registers_status(iterator: Result<File, TraceError>, counters: &PerCpuArray<MapData, u64>) -> Option<HookStatus> {
    under_way::run(&mut iterator.ok()?).ok()?;
    let (state, reason) = match (sum(counters, counter::REGISTERS), sum(counters, counter::OTHER_REGISTERS)) {
        (0, 0) => return None,
        (_, 0) => (HookState::Exact, ""),
        _ => (
            HookState::Unavailable,
            "this kernel saves the registers of a thread at another place than flatwater reads; report this kernel",
        ),
    };
    let serves = vec!["waits (which call a thread sleeps in)".to_owned()];
    Some(HookStatus::new("iter/task (registers)", serves, state, reason))
}

impl WaitTracer {
    /// Loads the object and attaches the hooks that this kernel allows; the returned statuses list them.
    pub fn start(options: &WaitOptions, stacks: &StackTable) -> Result<(WaitTracer, Vec<HookStatus>), TraceError> {
        let btf = crate::tracer::object::kernel_types()?;
        let constants = options.constants();
        let without = crate::tracer::object::without();
        let (mut ebpf, variant) = object::load(&btf, constants, &without, &|name| stacks.address_of(name))?;
        let totals = AsyncTotals::of(map(&mut ebpf, "async_latencies")?)?;
        let ring = RingBuf::try_from(map(&mut ebpf, "wait_records")?).map_err(trace_error)?;
        let reader = Reader::start(ring, if options.whole_machine { HELD_BYTES_OF_DAEMON } else { HELD_BYTES });
        let targets = HashMap::try_from(map(&mut ebpf, "wait_targets")?).map_err(trace_error)?;
        let reclaimers = Reclaimers::of(map(&mut ebpf, "reclaimers")?)?;
        let counters = PerCpuArray::try_from(map(&mut ebpf, "wait_counters")?).map_err(trace_error)?;
        let requests_under_way = HashMap::try_from(map(&mut ebpf, "requests")?).map_err(trace_error)?;
        let operations_under_way = HashMap::try_from(map(&mut ebpf, "async_operations")?).map_err(trace_error)?;
        let mut statuses = object::attach(
            &mut ebpf,
            &btf,
            WaitHooks { libaio: options.libaio, whole_machine: options.whole_machine, requests: options.requests },
        );
        if statuses.iter().all(|status| status.state == HookState::Unavailable) {
            return Err(TraceError::NoHook { why: first_reason(&statuses) });
        }
        // Without this hook calls cannot be found by their sleeps: 6.1 once refused it, and the report was "quiet".
        if options.detect_calls && !sees_sleeps(&statuses) {
            let why = of_sleeps(&statuses).map_or_else(String::new, |hook| format!("{}: {}", hook.hook, hook.reason));
            return Err(TraceError::NoHook { why });
        }
        let registers = registers_status(under_way::iterator(&mut ebpf, &btf, REGISTERS), &counters);
        let unknown = registers.as_ref().filter(|status| status.state == HookState::Unavailable);
        if let Some(status) = unknown.filter(|_| options.detect_calls) {
            return Err(TraceError::NoHook { why: status.reason.clone() });
        }
        statuses.extend(registers);
        let unended = under_way::iterator(&mut ebpf, &btf, UNENDED);
        statuses.push(under_way::status("iter/task (waits)", "waits (not ended when the recording is)", &unended));
        let loaded = HookStatus::new(format!("bpf/waits.{variant}"), Vec::new(), HookState::Exact, String::new());
        statuses.insert(0, loaded);
        let tracer = WaitTracer {
            ebpf,
            reader,
            targets,
            counters,
            totals,
            ledger: if options.whole_machine { Ledger::small() } else { Ledger::default() },
            names: Identities::default(),
            owners: QueueOwners::default(),
            runners: Runners::default(),
            memory: MemoryLedger::default(),
            reclaimers,
            operations: OperationNames::default(),
            pending: Vec::new(),
            requests_under_way,
            standing: Vec::new(),
            operations_under_way,
            detector: options.detect_calls.then(|| Detector::new(options.threshold_ns)),
            found: FoundCalls::default(),
            unended: unended.ok(),
            sleeping: Vec::new(),
            reported: BTreeSet::new(),
            dropped: 0,
            forgot_ns: monotonic_ns(),
        };
        Ok((tracer, statuses))
    }

    /// Follows the operations and locks of one more process.
    pub fn add_target(&mut self, pid: u32) -> Result<(), TraceError> {
        self.targets.insert(pid, 1, 0).map_err(trace_error)
    }

    /// Processes all records that the BPF programs have sent so far.
    pub fn pump(&mut self, stacks: &mut StackTable) {
        for record in self.reader.take() {
            match record {
                Record::Sleep(sleep) => {
                    let sleep = if sleep.bracket == 0 { self.ledger.add_sleep(*sleep) } else { Rc::new(*sleep) };
                    if self.detector.is_some() && sleep.target != 0 {
                        self.detect(&sleep, stacks);
                    }
                }
                Record::Request(request) => {
                    self.owners.add(&request, &mut self.names);
                    self.ledger.add_request(request);
                }
                Record::Dirtier(dirtier) => self.names.note_dirtier(&dirtier),
                Record::Async(operation) if self.pending.len() < PENDING_MAX => {
                    self.operations.note(&operation);
                    self.pending.push(operation);
                }
                Record::Async(_) => self.dropped += 1,
                Record::Runnable(record) => self.runners.add(&record),
                Record::UnderWay(sleep) => self.sleeping.push(*sleep),
            }
        }
    }

    /// Takes in unfinished sleeps and operations, cut to the recording. `calls` are the calls already known to be under
    /// way; a target that slept before the hooks were attached is in a call that no hook saw. Returns gaps for what
    /// could not be read or judged.
    pub fn take_unended(&mut self, calls: &[Call], recording: &Span, stacks: &mut StackTable) -> Vec<Gap> {
        let mut gaps = Vec::new();
        if let Some(mut iterator) = self.unended.take()
            && let Err(error) = under_way::run(&mut iterator)
        {
            gaps.push(under_way::unread(under_way::SLEEPS, &error));
        }
        self.pump(stacks);
        gaps.extend(self.take_standing(recording));
        self.add_unended_sleeps(calls, recording, stacks);
        gaps.extend(self.add_unended_operations(recording));
        gaps
    }

    /// Whether `under_way` can return calls: it needs an iterator over threads, which old kernels refuse.
    #[must_use]
    pub fn sees_hangs(&self) -> bool {
        self.unended.is_some() && self.detector.is_some()
    }

    /// The calls in which threads sleep now, with their time so far; empty if `sees_hangs` is false.
    pub fn under_way(&mut self, stacks: &mut StackTable) -> Result<Vec<Call>, TraceError> {
        if self.unended.is_none() {
            return Ok(Vec::new());
        }
        let mut iterator = under_way::open(&mut self.ebpf, UNENDED)?;
        under_way::run(&mut iterator).map_err(trace_error)?;
        self.pump(stacks);
        let Some(detector) = &mut self.detector else { return Ok(Vec::new()) };
        let sleeping = std::mem::take(&mut self.sleeping).into_iter().filter(|sleep| sleep.target != 0);
        Ok(sleeping.filter_map(|sleep| detector.so_far(&Rc::new(sleep), stacks)).collect())
    }

    /// Requests that devices have not completed for a second or longer, oldest first, as if they ended now.
    pub fn standing(&mut self) -> (Vec<Request>, Option<Gap>) {
        let (found, gap) = standing::read(&self.requests_under_way, standing::FIRST_ID, &standing::now());
        let oldest = standing::to_tell(found, &BTreeSet::new());
        (oldest.iter().map(|request| queue::standing(request, &mut self.names)).collect(), gap)
    }

    fn take_standing(&mut self, recording: &Span) -> Option<Gap> {
        let (standing, gap) = standing::read(&self.requests_under_way, self.ledger.next_sequence(), recording);
        for request in &standing {
            self.ledger.add_request(*request);
        }
        self.standing = standing;
        gap
    }

    fn add_unended_sleeps(&mut self, calls: &[Call], recording: &Span, stacks: &mut StackTable) {
        for mut sleep in std::mem::take(&mut self.sleeping) {
            let before = sleep.start_ns == 0;
            if before {
                sleep.call_start_ns = recording.start_ns;
            }
            sleep.start_ns = sleep.start_ns.max(recording.start_ns);
            sleep.end_ns = sleep.end_ns.min(recording.end_ns);
            if sleep.start_ns >= sleep.end_ns {
                continue;
            }
            sleep.request = standing::own_request(&sleep, &self.standing);
            let sleep = self.ledger.add_sleep(sleep);
            let unseen = before && calls.iter().all(|call| call.tid != sleep.sleeper.tid);
            if sleep.target == 0 {
                continue;
            }
            if self.detector.is_some() {
                self.detect(&sleep, stacks);
            } else if unseen {
                self.found.extend(Detector::new(recording.threshold_ns).asleep_throughout(&sleep, stacks));
            }
        }
    }

    /// Reports io_uring operations for which a worker sleeps as slow calls up to the end of the recording. For the
    /// others it is unknown whether they wait for anything but their program, so they become a gap.
    fn add_unended_operations(&mut self, recording: &Span) -> Option<Gap> {
        let mut left = Left::default();
        for operation in self.operations_under_way.iter() {
            let (key, operation) = match operation {
                Ok(known) => known,
                Err(error) => return Some(under_way::unread(OPERATIONS, &error)),
            };
            let record = operation.until(key, recording);
            if record.end_ns.saturating_sub(record.submit_ns) < recording.threshold_ns.max(1) {
                continue;
            }
            if operations::is_worked_on(&record, &self.ledger) && self.pending.len() < PENDING_MAX {
                self.pending.push(record);
            } else {
                left.add(&record);
            }
        }
        left.gap()
    }

    fn detect(&mut self, sleep: &Rc<SleepRecord>, stacks: &mut StackTable) {
        self.found.extend(self.detector.as_mut().and_then(|detector| detector.add(sleep, stacks)));
    }

    /// Returns why these calls waited, and the calls found here that have settled.
    pub fn slow_records(&mut self, calls: &[Call], stacks: &mut StackTable, settled: Settled) -> SlowRecords {
        self.pump(stacks);
        let now_ns = settled.now_ns;
        let mut records = SlowRecords::default();
        for call in calls {
            let sleeps = self.ledger.sleeps(call.tid, call.start_ns, call.end_ns());
            self.chain(call, &sleeps, BTreeMap::new(), stacks, &mut records);
        }
        if let Some(detector) = &mut self.detector {
            self.found.extend(detector.over(now_ns, stacks));
        }
        for found in self.found.take(settled.returned_by_ns) {
            self.chain(&found.call, &found.sleeps, BTreeMap::new(), stacks, &mut records);
            records.calls.push(found.call);
        }
        let settled = |record: &AsyncRecord| record.end_ns.saturating_add(settle::OPERATION_NS) <= now_ns;
        let (settled, pending): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending).into_iter().partition(settled);
        self.pending = pending;
        for record in &settled {
            let mut operation =
                self.operations.operation(record, (&self.ledger, &self.runners), &mut self.names, stacks);
            // Only records that the BPF program itself sends belong to finished operations.
            operation.call.still_under_way = record.kind != layout::record::ASYNC;
            let requests = operation.waits.iter().filter_map(|wait| Some((wait.request?, wait.start_ns))).collect();
            records.waited.waits.extend(operation.waits);
            self.chain(&operation.call, &operation.sleeps, requests, stacks, &mut records);
            records.calls.push(operation.call);
            records.async_calls.push(operation.more);
        }
        for request in standing::to_tell(std::mem::take(&mut self.standing), &self.reported) {
            let described = self.described((request.sequence, request.insert_ns), stacks);
            records.waited.requests.extend(described.map(|described| described.request));
        }
        records
    }

    fn described(&mut self, awaited: (u64, u64), stacks: &StackTable) -> Option<queue::Awaited> {
        let symbol = |address: u64| stacks.symbol(address).map(str::to_owned);
        let mut known = Known { ledger: &self.ledger, runners: &self.runners, names: &mut self.names, symbol: &symbol };
        queue::awaited(&mut known, awaited)
    }

    fn chain(
        &mut self,
        call: &Call,
        sleeps: &[Rc<SleepRecord>],
        own_requests: BTreeMap<u64, u64>,
        stacks: &mut StackTable,
        records: &mut SlowRecords,
    ) {
        let mut chains = Chains { ledger: &self.ledger, names: &mut self.names, stacks };
        let chain = chains.of_call(call, sleeps);
        for (sequence, since_ns) in chain.requests.into_iter().chain(own_requests) {
            if self.reported.len() >= REPORTED_MAX {
                self.reported.clear();
            }
            if !self.reported.insert(sequence) {
                continue;
            }
            if let Some(awaited) = self.described((sequence, since_ns), stacks) {
                records.waited.requests.push(awaited.request);
                records.waited.ahead.extend(awaited.ahead);
                records.waited.cpus.extend(awaited.cpus);
            }
        }
        for (waiter, from_ns, to_ns) in chain.links.iter().filter_map(ran_for_it) {
            records.waited.cpus.extend(self.runners.of_kernel(call, waiter, (from_ns, to_ns), &mut self.names));
        }
        records.waited.waits.extend(chain.links);
        records.waited.cpus.extend(self.runners.of_call(call, &mut self.names));
    }

    /// The rows of an interval that ends now.
    pub fn interval(&mut self, start_ns: u64, end_ns: u64) -> IntervalRows {
        if end_ns.saturating_sub(self.forgot_ns) >= FORGET_EVERY_NS {
            self.forgot_ns = end_ns;
            self.names.forget_ended();
        }
        let (dirtiers, mut memory) = self.memory.take(&mut self.names, start_ns, end_ns);
        memory.extend(self.reclaimers.since_last(&mut self.names, start_ns, end_ns));
        let latencies = self.totals.since_last(start_ns, end_ns);
        IntervalRows { latencies, users: Users { owners: self.owners.take(start_ns, end_ns), dirtiers, memory } }
    }

    /// The owners of device requests in the interval, without reading each process's memory counters, which costs some
    /// 20 us per process.
    pub fn owners(&mut self, start_ns: u64, end_ns: u64) -> Vec<QueueOwner> {
        self.owners.take(start_ns, end_ns)
    }

    /// Service times of devices since the last call.
    pub fn service_times(&mut self) -> Vec<ServiceTime> {
        self.owners.take_service_times()
    }

    #[must_use]
    pub fn losses(&self) -> Losses {
        let sum = |which: u32| sum(&self.counters, which);
        let full = [counter::LOST, counter::REQUESTS_FULL, counter::ASYNC_FULL, counter::AIO_BATCH];
        Losses {
            lost: full.into_iter().map(sum).sum::<u64>() + self.dropped + self.found.dropped + self.reader.unread(),
            no_state: sum(counter::NO_STATE) + self.detector.as_ref().map_or(0, |detector| detector.dropped),
            ..Losses::default()
        }
    }
}

//! Finds slow calls and attributes their time.
//!
//! BPF programs (bpf/slow_calls.bpf.c) record, for threads that are within a call, every bracket that the kernel opens
//! (reclaim, compaction, locks), every sleep with its kernel stack, and every wait for a CPU. This module turns them
//! into segments that tile the call. flatwater's own threads mark the begin and end of their calls in shared memory
//! ([`OpSlot`]); other programs are followed through hooks on system calls, whose cost `cost` measures.
//!
//! Invariants
//! - `Tracer::start` never fails. If the kernel refuses all hooks, the tracer reports a gap with the reason, and the
//!   time of all calls is unexplained.
//! - The segments of every call tile it (`Call::tiles`).
//! - No hook stays attached after the tracer is dropped.

mod attribution;
#[cfg(test)]
pub(crate) mod btf;
pub mod calls;
pub mod cost;
mod dirty;
mod error;
mod files;
pub mod functions;
pub(crate) mod hooks;
pub(crate) mod layout;
mod live;
pub(crate) mod object;
pub mod options;
mod profile;
mod records;
mod ring;
mod slots;
pub(crate) mod stacks;
mod steal;
pub(crate) mod totals;
pub(crate) mod under_way;
pub(crate) mod variant;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::monotonic_ns;
use crate::waits::{WaitOptions, WaitTracer};
use flatwater_recording::{Call, Event, Gap, HookState, HookStatus, LatencyBucket, Losses, Segment, Stack};

pub use cost::{HookCost, measure_hook_cost};
pub use error::{Refusal, TraceError};
pub use object::{TypesError, use_types_of};
pub use options::{DEFAULT_HZ, Level, Targets, TraceOptions, Traced};
pub use profile::Profiles;
pub use slots::OpSlot;

use live::Live;
use ring::Assembler;
use slots::{Inbox, SlotMemory};
use stacks::StackTable;

/// A call that one of flatwater's own threads has timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTiming {
    pub tid: u32,
    /// The value passed to `OpSlot::enter`.
    pub start_ns: u64,
    /// The time of the return, read just before `OpSlot::leave`.
    pub end_ns: u64,
    /// The size of the transfer, if the call has one; copying the bytes takes time that is not a stall.
    pub bytes: Option<u64>,
}

/// The segments of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// These tile the call.
    pub segments: Vec<Segment>,
    pub damaged: bool,
}

/// State shared by the thread that reads the ring buffer and the users of the tracer.
#[derive(Debug)]
pub(crate) struct Shared {
    pub assembler: Assembler,
    pub stacks: StackTable,
}

/// A running tracer; dropping it detaches the hooks.
#[derive(Debug)]
pub struct Tracer {
    options: TraceOptions,
    memory: Option<Arc<SlotMemory>>,
    inbox: Arc<Mutex<Inbox>>,
    shared: Arc<Mutex<Shared>>,
    live: Option<Live>,
    gaps: Vec<Gap>,
    /// Threads that have a slot.
    watched: Mutex<HashSet<u32>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked while holding a lock leaves the table consistent: each change is a single step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tracer {
    /// Attaches the hooks that this kernel allows; the returned statuses list them all.
    #[must_use]
    pub fn start(options: TraceOptions) -> (Tracer, Vec<HookStatus>) {
        let mut gaps = Vec::new();
        let (live, stacks, statuses) = match Live::start(&options, &mut gaps) {
            Ok((live, stacks, statuses)) => {
                gaps.extend(crate::sight::refused(&statuses));
                (Some(live), stacks, statuses)
            }
            Err(why) => {
                let why = why.to_string();
                gaps.push(Gap::new("where slow calls spend their time", why.clone(), REMEDY));
                (None, StackTable::new(None, crate::kallsyms::Kallsyms::default()), vec![nothing(&why)])
            }
        };
        let assembler = Assembler::new(options.plain_cpu_ns, options.hz);
        let shared = Arc::new(Mutex::new(Shared { assembler, stacks }));
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let mut tracer = Tracer { options, memory: None, inbox, shared, live, gaps, watched: Mutex::default() };
        tracer.memory = tracer.slot_memory().map(Arc::new);
        if let Some(live) = &mut tracer.live {
            live.read_ring(tracer.shared.clone());
        }
        (tracer, statuses)
    }

    /// A tracer that sees nothing, as where the kernel refuses every hook.
    #[cfg(test)]
    pub fn without_hooks() -> Tracer {
        let stacks = StackTable::new(None, crate::kallsyms::Kallsyms::default());
        Tracer {
            options: TraceOptions::own(0),
            memory: None,
            inbox: Arc::new(Mutex::new(Inbox::default())),
            shared: Arc::new(Mutex::new(Shared { assembler: Assembler::new(0, 0), stacks })),
            live: None,
            gaps: Vec::new(),
            watched: Mutex::default(),
        }
    }

    fn slot_memory(&mut self) -> Option<SlotMemory> {
        let shared = self.live.as_ref().map(Live::slot_memory);
        match shared {
            Some(Ok(memory)) => return Some(memory),
            Some(Err(why)) => self.gaps.push(Gap::new("operations of flatwater's own threads", why.to_string(), "")),
            None => {}
        }
        SlotMemory::private().ok()
    }

    /// The gaps of this tracer, for the recording.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Whether any hook is attached.
    #[must_use]
    pub fn sees(&self) -> bool {
        self.live.is_some()
    }

    /// A slot in which a thread of this process (given by its kernel tid) marks its operations. At most 256 threads at
    /// a time are traced; the operations of further threads are only timed.
    #[must_use]
    pub fn op_slot(&self, tid: u32) -> Option<OpSlot> {
        let memory = self.memory.clone()?;
        let slot = memory.take();
        if slot.is_some() && matches!(self.options.traced, Traced::Own) {
            lock(&self.watched).insert(tid);
        }
        if let (Some(live), Some(slot), Traced::Own) = (&self.live, slot, &self.options.traced) {
            live.adopt(tid, slot);
        }
        Some(OpSlot::new(memory, self.inbox.clone(), slot, tid, self.options.threshold_ns))
    }

    /// The threads that have a slot.
    #[must_use]
    pub fn own_threads(&self) -> Vec<u32> {
        lock(&self.watched).iter().copied().collect()
    }

    /// Gives other readers of kernel stacks access to the table of stacks.
    pub(crate) fn with_stacks<T>(&self, read: impl FnOnce(&mut StackTable) -> T) -> T {
        read(&mut lock(&self.shared).stacks)
    }

    /// The processes that the BPF programs follow now: the given ones and their children.
    #[must_use]
    pub fn targets(&self) -> Vec<u32> {
        self.live.as_ref().map(Live::target_pids).unwrap_or_default()
    }

    /// Counts the calls of this process, which is not a target, and of later children.
    pub fn add_neighbour(&self, pid: u32) -> Result<(), TraceError> {
        self.live.as_ref().map_or(Err(TraceError::NotTracing), |live| live.add_neighbour(pid))
    }

    /// The parent of a process that was forked while the hooks were attached, even if the process has ended.
    #[must_use]
    pub fn parent_of(&self, pid: u32) -> Option<u32> {
        self.live.as_ref()?.parent_of(pid)
    }

    /// The counts for imitation (`TraceOptions::profile`), and the number of calls that found no room.
    #[must_use]
    pub fn profiles(&self) -> Option<(&Profiles, u64)> {
        self.live.as_ref().filter(|_| self.options.profile).map(Live::profiles)
    }

    /// Followed processes that SIGKILL ended, with their names.
    #[must_use]
    pub fn killed(&self) -> Vec<(u32, String)> {
        self.live.as_ref().map(Live::killed).unwrap_or_default()
    }

    /// Follows one more process, from its next system call on.
    pub fn add_target(&self, pid: u32) -> Result<(), TraceError> {
        match &self.live {
            Some(live) => live.add_target(pid),
            None => Err(TraceError::NotTracing),
        }
    }

    /// Attributes the time of a slow operation of this process. Call it once per operation, after its thread has called
    /// `leave`: the slot's record is consumed.
    #[must_use]
    pub fn attribute(&self, call: &CallTiming) -> Attribution {
        let seen = lock(&self.inbox).take(call.tid, call.start_ns);
        // Without a record and without a slot, or if no hook ever ran for the thread, nothing is known about the call.
        let watched = self.live.is_some() && (seen.is_some() || lock(&self.watched).contains(&call.tid));
        if let (Some(live), true) = (&self.live, seen.as_ref().is_some_and(|seen| seen.pieces > 0)) {
            live.pump(&self.shared);
        }
        let mut shared = lock(&self.shared);
        let Shared { assembler, stacks } = &mut *shared;
        let mut facts = assembler.facts(call.end_ns.saturating_sub(call.start_ns), call.bytes);
        if !watched {
            // It is not even known whether the thread was running.
            facts.plain_cpu_ns = 0;
            facts.bytes = None;
        }
        let held = seen.as_ref().map_or(&[][..], |seen| &seen.stretches);
        if let Some(dirty) = seen.as_ref().and_then(|seen| seen.dirty) {
            assembler.dirty.note(call.tid, &dirty);
        }
        let segments = assembler.own_segments(call.tid, call.start_ns, held, &facts, stacks);
        Attribution { segments, damaged: !watched || seen.is_some_and(|seen| seen.damaged) }
    }

    /// Latencies of all calls of other programs, slow or not, that ended since the last call.
    #[must_use]
    pub fn latencies(&self, start_ns: u64, end_ns: u64) -> Vec<LatencyBucket> {
        self.live.as_ref().map(|live| live.latencies(start_ns, end_ns)).unwrap_or_default()
    }

    /// File system calls of other programs that are not timed, with their number, most frequent first.
    #[must_use]
    pub fn untimed(&self) -> Vec<(&'static str, u64)> {
        self.live.as_ref().map(Live::untimed).unwrap_or_default()
    }

    /// Slow calls of other programs that have settled since the last call, in the order of their records.
    #[must_use]
    pub fn drain(&self) -> Vec<Call> {
        if let Some(live) = &self.live {
            live.pump(&self.shared);
        }
        lock(&self.shared).assembler.drain(monotonic_ns())
    }

    /// Calls of other programs that have not returned, with their time up to now, and a gap if they could not be read.
    /// Call it once, after `stop`: until then these calls change.
    #[must_use]
    pub fn under_way(&self) -> (Vec<Call>, Option<Gap>) {
        let Some(live) = &self.live else { return (Vec::new(), None) };
        let gap = live.take_under_way(&self.shared);
        let mut shared = lock(&self.shared);
        let Shared { assembler, stacks } = &mut *shared;
        (assembler.cut_off(monotonic_ns(), stacks), gap)
    }

    /// Detaches all hooks. Their records can still be drained.
    pub fn stop(&mut self) {
        if let Some(live) = &mut self.live {
            live.stop();
        }
    }

    /// Like `drain`, but includes calls that have not settled.
    pub fn drain_all(&self) -> Vec<Call> {
        if let Some(live) = &self.live {
            live.pump(&self.shared);
        }
        lock(&self.shared).assembler.drain(u64::MAX)
    }

    /// Events that came with slow calls since the last call: the dirty page numbers that the kernel used when it paused
    /// a writer.
    #[must_use]
    pub fn drain_events(&self) -> Vec<Event> {
        lock(&self.shared).assembler.dirty.take()
    }

    /// The stacks found so far, from index `first`; the id of a stack is its index.
    #[must_use]
    pub fn stacks_from(&self, first: usize) -> Vec<Stack> {
        lock(&self.shared).stacks.stacks().get(first..).unwrap_or_default().to_vec()
    }

    #[must_use]
    pub fn losses(&self) -> Losses {
        let mut losses = self.live.as_ref().map(Live::losses).unwrap_or_default();
        losses.lost += lock(&self.inbox).dropped;
        let shared = lock(&self.shared);
        losses.lost += shared.assembler.dropped;
        losses.segments_merged += shared.assembler.merged;
        losses.stack_errors += shared.stacks.unresolved;
        losses
    }

    /// Detaches all hooks. Returns the remaining calls of other programs, all stacks, and the losses.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Call>, Vec<Stack>, Losses) {
        if let Some(live) = &mut self.live {
            live.stop();
            live.pump(&self.shared);
        }
        let losses = self.losses();
        let calls = lock(&self.shared).assembler.drain(u64::MAX);
        (calls, self.stacks_from(0), losses)
    }
}

const REMEDY: &str = "run as root (or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE) on a kernel from 5.4 on with BTF, or with --btf FILE; \
                      `flatwater check` lists each hook";

fn nothing(why: &str) -> HookStatus {
    HookStatus::new("bpf", vec!["calls".to_owned()], HookState::Unavailable, why)
}

/// The status of every hook on this machine: attaches all of them for an instant.
#[must_use]
pub fn hooks() -> Vec<HookStatus> {
    let targets = Targets { pids: Vec::new(), cgroup: None, faults: true };
    let (tracer, mut statuses) = Tracer::start(TraceOptions::others(u64::MAX, targets));
    if tracer.sees() {
        let wanted = WaitOptions {
            threshold_ns: u64::MAX,
            // Attach everything that levels 0 and 2 use: a kernel may accept the hooks of one level and refuse those of
            // the other.
            detect_calls: true,
            whole_machine: false,
            requests: true,
            operations: true,
            libaio: true,
        };
        match tracer.with_stacks(|stacks| WaitTracer::start(&wanted, stacks)) {
            Ok((_, more)) => statuses.extend(more),
            Err(why) => {
                let serves = vec!["waits (who ended a sleep)".to_owned()];
                statuses.push(HookStatus::new("bpf/waits", serves, HookState::Unavailable, why.to_string()));
            }
        }
    }
    statuses
}

//! The tracer: finds slow calls and says where their time went.
//!
//! Kernel hooks (bpf/slow_calls.bpf.c) note, for threads that are within a call, every bracket that the kernel
//! opens (reclaim, compaction, locks), every sleep with its kernel stack, and every wait for a CPU; here that
//! becomes segments that tile the call. Our own threads say themselves when a call begins and ends (`OpSlot`);
//! other programs are followed through system call hooks, which the whole machine pays for (`cost`).
//!
//! Invariants
//! - `Tracer::start` never fails: where the kernel refuses, the tracer is blind, says why, and hands out calls
//!   whose time is unexplained.
//! - The segments of every call tile it (`Call::tiles`).
//! - Nothing is attached after the tracer is dropped.

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
pub use slots::OpSlot;

use live::Live;
use ring::Assembler;
use slots::{Inbox, SlotMemory};
use stacks::StackTable;

/// A call that one of our own threads has timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTiming {
    pub tid: u32,
    /// What was given to `OpSlot::enter`.
    pub start_ns: u64,
    /// When it returned, read just before `OpSlot::leave`.
    pub end_ns: u64,
    /// Bytes asked for, if the call carries any: copying them is not a stall.
    pub bytes: Option<u64>,
}

/// Where the time of a call went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// They tile the call.
    pub segments: Vec<Segment>,
    pub damaged: bool,
}

/// Everything that the ring's reader and the askers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub assembler: Assembler,
    pub stacks: StackTable,
}

/// A running tracer; stops and detaches when it is dropped.
#[derive(Debug)]
pub struct Tracer {
    options: TraceOptions,
    memory: Option<Arc<SlotMemory>>,
    inbox: Arc<Mutex<Inbox>>,
    shared: Arc<Mutex<Shared>>,
    live: Option<Live>,
    gaps: Vec<Gap>,
    /// Threads that got a slot.
    watched: Mutex<HashSet<u32>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked while it held one of our tables leaves it usable: each is changed in one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tracer {
    /// Attaches what this kernel allows; the statuses say what that is.
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

    fn slot_memory(&mut self) -> Option<SlotMemory> {
        let shared = self.live.as_ref().map(Live::slot_memory);
        match shared {
            Some(Ok(memory)) => return Some(memory),
            Some(Err(why)) => self.gaps.push(Gap::new("operations of our own threads", why.to_string(), "")),
            None => {}
        }
        SlotMemory::private().ok()
    }

    /// What could not be seen, for the recording.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Whether hooks are attached at all.
    #[must_use]
    pub fn sees(&self) -> bool {
        self.live.is_some()
    }

    /// A place for one of our own threads (its kernel tid) to say when it is within an operation. At most 256 at a
    /// time are seen; further ones are timed only.
    #[must_use]
    pub fn op_slot(&self, tid: u32) -> Option<OpSlot> {
        let memory = self.memory.clone()?;
        let slot = memory.take();
        if slot.is_some() && matches!(self.options.whom, Traced::Own) {
            lock(&self.watched).insert(tid);
        }
        if let (Some(live), Some(slot), Traced::Own) = (&self.live, slot, &self.options.whom) {
            live.adopt(tid, slot);
        }
        Some(OpSlot::new(memory, self.inbox.clone(), slot, tid, self.options.threshold_ns))
    }

    /// Those that got a slot.
    #[must_use]
    pub fn own_threads(&self) -> Vec<u32> {
        lock(&self.watched).iter().copied().collect()
    }

    /// For whoever reads stacks of their own.
    pub(crate) fn with_stacks<T>(&self, read: impl FnOnce(&mut StackTable) -> T) -> T {
        read(&mut lock(&self.shared).stacks)
    }

    /// Processes that the kernel side follows now: those that were given, and their children.
    #[must_use]
    pub fn targets(&self) -> Vec<u32> {
        self.live.as_ref().map(Live::target_pids).unwrap_or_default()
    }

    /// Processes that were followed until SIGKILL ended them, with their names.
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

    /// Where the time of a slow operation of ours went. Ask once, and after its thread has called `leave`: what
    /// was seen is handed over.
    #[must_use]
    pub fn attribute(&self, call: &CallTiming) -> Attribution {
        let seen = lock(&self.inbox).take(call.tid, call.start_ns);
        // A thread that had no slot left nothing, and neither did one that no hook ever met.
        let watched = self.live.is_some() && (seen.is_some() || lock(&self.watched).contains(&call.tid));
        if let (Some(live), true) = (&self.live, seen.as_ref().is_some_and(|seen| seen.pieces > 0)) {
            live.pump(&self.shared);
        }
        let mut shared = lock(&self.shared);
        let Shared { assembler, stacks } = &mut *shared;
        let mut facts = assembler.facts(call.end_ns.saturating_sub(call.start_ns), call.bytes);
        if !watched {
            // Not even that it was running is known.
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

    /// Latencies of all calls of other programs that ended since the last time, slow or not.
    #[must_use]
    pub fn latencies(&self, start_ns: u64, end_ns: u64) -> Vec<LatencyBucket> {
        self.live.as_ref().map(|live| live.latencies(start_ns, end_ns)).unwrap_or_default()
    }

    /// Calls of other programs that reach files and are not timed, with their number, most often first.
    #[must_use]
    pub fn untimed(&self) -> Vec<(&'static str, u64)> {
        self.live.as_ref().map(Live::untimed).unwrap_or_default()
    }

    /// Slow calls of other programs that have finished since the last time, in order of their end.
    #[must_use]
    pub fn drain(&self) -> Vec<Call> {
        if let Some(live) = &self.live {
            live.pump(&self.shared);
        }
        lock(&self.shared).assembler.drain(monotonic_ns())
    }

    /// Calls of other programs that have not returned, with their time up to now. Ask once, after `stop`: until then they
    /// change. With what could not be read of them.
    #[must_use]
    pub fn under_way(&self) -> (Vec<Call>, Option<Gap>) {
        let Some(live) = &self.live else { return (Vec::new(), None) };
        let gap = live.take_under_way(&self.shared);
        let mut shared = lock(&self.shared);
        let Shared { assembler, stacks } = &mut *shared;
        (assembler.cut_off(monotonic_ns(), stacks), gap)
    }

    /// Detaches everything; what the hooks have seen so far can still be drained.
    pub fn stop(&mut self) {
        if let Some(live) = &mut self.live {
            live.stop();
        }
    }

    /// The same as `drain`, of calls too whose last pieces may still come.
    pub fn drain_all(&self) -> Vec<Call> {
        if let Some(live) = &self.live {
            live.pump(&self.shared);
        }
        lock(&self.shared).assembler.drain(u64::MAX)
    }

    /// Lines of evidence that came with slow calls since the last time: what the kernel saw as dirty when it made a
    /// writer pause.
    #[must_use]
    pub fn drain_events(&self) -> Vec<Event> {
        lock(&self.shared).assembler.dirty.take()
    }

    /// Stacks found so far; their ids are their places, so that a writer may ask for those from a place on.
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

    /// Detaches everything. What is left of other programs' calls, all stacks, and what was lost.
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

/// What each hook would do here: attaches everything for an instant.
#[must_use]
pub fn hooks() -> Vec<HookStatus> {
    let targets = Targets { pids: Vec::new(), cgroup: None, faults: true };
    let (tracer, mut statuses) = Tracer::start(TraceOptions::others(u64::MAX, targets));
    if tracer.sees() {
        let wanted = WaitOptions {
            threshold_ns: u64::MAX,
            // All of the kernel side, as levels 0 and 2 ask for it: a kernel may accept the one and refuse the other.
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

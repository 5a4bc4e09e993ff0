//! Assembles calls from the records of the BPF programs.

use std::collections::{HashMap, VecDeque};

use super::attribution::{CallFacts, segments};
use super::calls;
use super::dirty::DirtyNotes;
use super::files::FileNames;
use super::layout::{CallState, Stretch, active, kind, record, text};
use super::stacks::StackTable;
use super::steal::StealLedger;
use super::under_way::{Patience, describe, since_last_event};
use crate::settle;
use flatwater_recording::{Call, Cause, CauseBasis, DurationBasis, OpKind, Segment};

/// Keep the pieces of at most this many unfinished calls. A call that turns out fast leaves its pieces behind.
const OPEN_MAX: usize = 4_096;
/// Keep at most this many finished calls; beyond that the oldest are dropped and counted.
const PENDING_MAX: usize = 1 << 20;

/// Functions that are on the stack only while the kernel handles a page fault.
const FAULT_FRAMES: &[&str] = &[
    "exc_page_fault",
    "do_user_addr_fault",
    "handle_mm_fault",
    "do_page_fault",
    "__do_page_fault",
    "do_mem_abort",
    "el0_da",
];
const OVER_HIGH_FRAMES: &[&str] = &["mem_cgroup_handle_over_high", "__mem_cgroup_handle_over_high"];

/// Thread id and start of a call.
type Key = (u32, u64);

#[derive(Debug)]
pub struct Assembler {
    open: HashMap<Key, Vec<Stretch>>,
    order: VecDeque<Key>,
    pending: VecDeque<Call>,
    files: FileNames,
    steal: StealLedger,
    pub dirty: DirtyNotes,
    /// States of threads whose calls have not ended; read once, at the end.
    pub under_way: Vec<CallState>,
    plain_cpu_ns: u64,
    sample_period_ns: u64,
    pub merged: u64,
    pub dropped: u64,
}

impl Assembler {
    #[must_use]
    pub fn new(plain_cpu_ns: u64, hz: u32) -> Assembler {
        Assembler {
            open: HashMap::new(),
            order: VecDeque::new(),
            pending: VecDeque::new(),
            files: FileNames::default(),
            steal: StealLedger::open(),
            dirty: DirtyNotes::default(),
            under_way: Vec::new(),
            plain_cpu_ns,
            sample_period_ns: 1_000_000_000_u64.checked_div(u64::from(hz)).unwrap_or(0),
            merged: 0,
            dropped: 0,
        }
    }

    pub fn take_in(&mut self, bytes: &[u8], stacks: &mut StackTable) {
        let Some(state) = CallState::from_record(bytes) else { return };
        match state.record {
            record::PIECE => self.keep_piece(&state),
            record::CALL => self.finish_call(&state, stacks),
            record::FAULT_WHOLE => self.finish_whole_fault(&state, stacks),
            record::FAULT => self.finish_fault(&state, stacks),
            record::AFTER_EXIT => self.after_exit(&state, stacks),
            record::UNDER_WAY => self.under_way.push(state),
            _ => {}
        }
    }

    fn keep_piece(&mut self, state: &CallState) {
        let key = (state.tid, state.start_ns);
        if !self.open.contains_key(&key) {
            if self.order.len() >= OPEN_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.open.remove(&oldest);
            }
            self.order.push_back(key);
        }
        self.open.entry(key).or_default().extend_from_slice(state.stretches());
    }

    /// Removes and returns the pieces of a call that came before its final record.
    fn pieces(&mut self, key: Key) -> Vec<Stretch> {
        self.open.remove(&key).unwrap_or_default()
    }

    /// The segments of an operation of this process: pieces from the ring buffer, then the stretches of the slot.
    pub fn own_segments(
        &mut self,
        tid: u32,
        start_ns: u64,
        rest: &[Stretch],
        facts: &CallFacts,
        stacks: &mut StackTable,
    ) -> Vec<Segment> {
        let mut stretches = self.pieces((tid, start_ns));
        stretches.extend_from_slice(rest);
        self.tile(&stretches, start_ns, facts, stacks)
    }

    fn tile(
        &mut self,
        stretches: &[Stretch],
        start_ns: u64,
        facts: &CallFacts,
        stacks: &mut StackTable,
    ) -> Vec<Segment> {
        let (mut segments, merged) = segments(stretches, facts, stacks);
        self.merged += merged;
        self.steal.name_stolen(start_ns, &mut segments);
        segments
    }

    /// Periodic work: reads the steal counter.
    pub fn tick(&mut self) {
        self.steal.tick();
    }

    #[must_use]
    pub fn facts(&self, duration_ns: u64, bytes: Option<u64>) -> CallFacts {
        CallFacts { duration_ns, bytes, plain_cpu_ns: self.plain_cpu_ns, sample_period_ns: self.sample_period_ns }
    }

    fn finish_call(&mut self, state: &CallState, stacks: &mut StackTable) {
        let mut stretches = self.pieces((state.tid, state.start_ns));
        stretches.extend_from_slice(state.stretches());
        let known = calls::find(state.number);
        let duration_ns = state.end_ns.saturating_sub(state.start_ns);
        let bytes = known.and_then(|call| call.bytes_of(state));
        let facts = self.facts(duration_ns, bytes);
        let segments = self.tile(&stretches, state.start_ns, &facts, stacks);
        self.dirty.note(state.tid, &state.dirty);
        let file = known.and_then(|call| self.files.of_call(call, state));
        let op = known.map_or(OpKind::Other, |call| call.op);
        let offset_bytes = known.and_then(|call| call.offset_of(state));
        let mut call = call_of(state, op, state.start_ns, duration_ns, segments).on(file, bytes, offset_bytes);
        call.errno = known.and_then(|call| call.errno_of(state));
        self.hold(call);
    }

    /// The end of the fault was seen, so all stretches since its begin belong to it.
    fn finish_whole_fault(&mut self, state: &CallState, stacks: &mut StackTable) {
        let mut stretches = self.pieces((state.tid, state.start_ns));
        stretches.extend_from_slice(state.stretches());
        let duration_ns = state.end_ns.saturating_sub(state.start_ns);
        let facts = self.facts(duration_ns, None);
        let segments = self.tile(&stretches, state.start_ns, &facts, stacks);
        let mut call = call_of(state, OpKind::PageFault, state.start_ns, duration_ns, segments);
        call.file = self.files.address(state.tgid, state.arg[0]);
        self.hold(call);
    }

    /// The end of the fault is unknown: the fault lasts until the last stretch that shows the kernel handling it.
    fn finish_fault(&mut self, state: &CallState, stacks: &mut StackTable) {
        let mut stretches = self.pieces((state.tid, state.start_ns));
        stretches.extend_from_slice(state.stretches());
        let in_fault = |stretch: &Stretch, stacks: &mut StackTable| {
            stretch.bracket != 0 || stacks.holds(stretch.stack, FAULT_FRAMES)
        };
        let last = stretches.iter().rposition(|stretch| in_fault(stretch, stacks));
        // After a sleep of the fault, the wait for a CPU belongs to the fault as well.
        let end = last.map_or(0, |last| (last + 2).min(stretches.len()));
        stretches.truncate(end);
        let duration_ns = stretches.iter().map(|stretch| stretch.ns).sum();
        let facts = self.facts(duration_ns, None);
        let segments = self.tile(&stretches, state.start_ns, &facts, stacks);
        if duration_ns == 0 {
            return;
        }
        let file = self.files.address(state.tgid, state.arg[0]);
        self.hold(call_of(state, OpKind::PageFault, state.start_ns, duration_ns, segments).on(file, None, None));
    }

    /// Adds a sleep after the return of a call: a thread over memory.high is made to wait there.
    fn after_exit(&mut self, state: &CallState, stacks: &mut StackTable) {
        if !stacks.holds(state.sleep_stack, OVER_HIGH_FRAMES) {
            return;
        }
        let of_call = |call: &&mut Call| call.tid == state.tid && call.start_ns == state.start_ns;
        if let Some(call) = self.pending.iter_mut().rev().find(of_call) {
            call.after_exit_ns += state.after_exit_ns;
            return;
        }
        // The call was fast or has been handed out: record the wait as a separate call.
        let known = calls::find(state.number);
        let ns = state.after_exit_ns;
        let segment = over_high(ns, state, stacks);
        let file = known.and_then(|call| self.files.of_call(call, state));
        let op = known.map_or(OpKind::Other, |call| call.op);
        let bytes = known.and_then(|call| call.bytes_of(state));
        self.hold(call_of(state, op, state.end_ns, ns, vec![segment]).on(file, bytes, None));
    }

    /// The calls that have not returned, with their time up to `now_ns`.
    pub fn cut_off(&mut self, now_ns: u64, stacks: &mut StackTable) -> Vec<Call> {
        let states = std::mem::take(&mut self.under_way);
        let mut patience = Patience::default();
        let calls = states.into_iter().filter_map(|mut state| {
            let mut call = self.not_ended(&mut state, now_ns, stacks, &mut patience)?;
            call.still_under_way = true;
            Some(call)
        });
        calls.collect()
    }

    fn not_ended(
        &mut self,
        state: &mut CallState,
        now_ns: u64,
        stacks: &mut StackTable,
        patience: &mut Patience,
    ) -> Option<Call> {
        let within = Within::of(state, stacks)?;
        let known = calls::find(state.number).filter(|_| within != Within::Fault);
        if within != Within::WayBack {
            // These fields still belong to the thread's previous call.
            (state.result, state.has_position) = (-1, 0);
        }
        describe(state, known.and_then(|call| call.path_of(state)), patience);
        let start_ns = if within == Within::WayBack { state.last_ns } else { state.start_ns };
        let duration_ns = now_ns.saturating_sub(start_ns);
        let bytes = known.and_then(|call| call.bytes_of(state));
        let segments = match within {
            Within::WayBack => vec![over_high(duration_ns, state, stacks)],
            Within::Call | Within::Fault => {
                let mut stretches = self.pieces((state.tid, state.start_ns));
                stretches.extend_from_slice(state.stretches());
                stretches.extend(since_last_event(state, now_ns));
                self.dirty.note(state.tid, &state.dirty);
                let facts = self.facts(duration_ns, bytes);
                self.tile(&stretches, start_ns, &facts, stacks)
            }
        };
        let file = match known {
            Some(call) => self.files.open_now(call, state),
            None if within == Within::Fault => {
                let (tgid, address) = (state.tgid, state.arg[0]);
                patience.ask(tgid, move || FileNames::default().address(tgid, address))
            }
            None => None,
        };
        let op = match within {
            Within::Fault => OpKind::PageFault,
            Within::Call | Within::WayBack => known.map_or(OpKind::Other, |call| call.op),
        };
        let offset_bytes = known.filter(|_| within == Within::Call).and_then(|call| call.offset_of(state));
        Some(call_of(state, op, start_ns, duration_ns, segments).on(file, bytes, offset_bytes))
    }

    fn hold(&mut self, call: Call) {
        if self.pending.len() >= PENDING_MAX {
            self.pending.pop_front();
            self.dropped += 1;
        }
        self.pending.push_back(call);
    }

    /// Removes and returns the calls that have settled by `now_ns`.
    pub fn drain(&mut self, now_ns: u64) -> Vec<Call> {
        let settled = |call: &Call| call.end_ns().saturating_add(settle::CALL_NS) <= now_ns;
        let (settled, pending): (Vec<Call>, Vec<Call>) =
            std::mem::take(&mut self.pending).into_iter().partition(settled);
        self.pending = pending.into();
        settled
    }
}

/// The activity of a thread with an unfinished call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Call,
    Fault,
    /// The call has returned; on its way back to user space the thread waits because its cgroup is over memory.high.
    WayBack,
}

impl Within {
    fn of(state: &CallState, stacks: &mut StackTable) -> Option<Within> {
        let mut asleep_in = |frames| state.off != kind::ON_CPU && stacks.holds(state.sleep_stack, frames);
        match state.active {
            active::IN_USER => {
                let waits = state.after_exit != 0 && state.off == kind::ASLEEP && asleep_in(OVER_HIGH_FRAMES);
                waits.then_some(Within::WayBack)
            }
            // The end of a fault is not always seen: require a bracket or a stack that shows the kernel handling the
            // fault.
            active::IN_FAULT => (state.depth != 0 || asleep_in(FAULT_FRAMES)).then_some(Within::Fault),
            _ => Some(Within::Call),
        }
    }
}

/// The segment of the thread's wait over memory.high.
fn over_high(ns: u64, state: &CallState, stacks: &mut StackTable) -> Segment {
    let stack = stacks.id(state.sleep_stack);
    Segment::new(0, ns, Cause::MemcgOverHigh, DurationBasis::Measured, CauseBasis::Stack).with_stack(stack)
}

/// A call of the state's thread.
fn call_of(state: &CallState, op: OpKind, start_ns: u64, duration_ns: u64, segments: Vec<Segment>) -> Call {
    let mut call = Call::new(op, start_ns, duration_ns, segments).by(state.tgid, state.tid, text(&state.comm));
    call.damaged = state.damaged != 0;
    call
}

#[cfg(test)]
mod tests {
    use super::super::layout::{CallState, HEAD_BYTES, active, kind, record};
    use super::super::stacks::{Frames, StackTable};
    use super::Assembler;
    use crate::kallsyms::Kallsyms;
    use crate::settle;
    use flatwater_recording::{Call, Cause, OpKind};

    /// Stack 0 is the wait over memory.high, stack 1 an ordinary sleep.
    struct Fixed;
    impl Frames for Fixed {
        fn frames(&self, id: i32) -> Option<Vec<u64>> {
            Some(if id == 0 { vec![0x1000, 0x2000, 0x3000] } else { vec![0x1000, 0x3000] })
        }
    }

    fn stacks() -> StackTable {
        let symbols = "1000 T schedule_timeout_killable\n2000 t __mem_cgroup_handle_over_high.constprop.0\n\
                       3000 T exit_to_user_mode_loop\n4000 T end\n";
        StackTable::new(Some(Box::new(Fixed)), Kallsyms::parse(symbols.as_bytes()).expect("symbols"))
    }

    fn blank() -> CallState {
        CallState::from_record(&[0; HEAD_BYTES]).expect("a record")
    }

    fn bytes(state: &CallState) -> Vec<u8> {
        // SAFETY: HEAD_BYTES is at most the size of the state, which holds integers without padding before there.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(state).cast::<u8>(), HEAD_BYTES) }.to_vec()
    }

    fn write(record: u8, duration_ns: u64, after_exit_ns: u64, sleep_stack: i32) -> Vec<u8> {
        let (start_ns, end_ns) = (1_000_000, 1_000_000 + duration_ns);
        let number = i32::try_from(libc::SYS_write).expect("small");
        bytes(&CallState { record, tid: 7, tgid: 7, start_ns, end_ns, after_exit_ns, sleep_stack, number, ..blank() })
    }

    #[test]
    fn a_wait_over_memory_high_belongs_to_the_slow_call_before_it() {
        let (mut assembler, mut stacks) = (Assembler::new(200_000, 0), stacks());
        assembler.take_in(&write(record::CALL, 5_000_000, 0, -1), &mut stacks);
        assembler.take_in(&write(record::AFTER_EXIT, 5_000_000, 80_000_000, 0), &mut stacks);
        let calls = assembler.drain(u64::MAX);
        assert_eq!(calls.len(), 1);
        assert_eq!((calls[0].duration_ns, calls[0].after_exit_ns), (5_000_000, 80_000_000));
        assert!(calls[0].tiles());
    }

    /// Without a ring buffer each CPU has its own buffer, so records do not arrive in the order of the calls' ends.
    #[test]
    fn a_call_that_ended_later_does_not_hold_back_an_earlier_one() {
        let (mut assembler, mut stacks) = (Assembler::new(200_000, 0), stacks());
        for duration_ns in [90_000_000, 5_000_000] {
            assembler.take_in(&write(record::CALL, duration_ns, 0, -1), &mut stacks);
        }
        let durations = |calls: Vec<Call>| calls.iter().map(|call| call.duration_ns).collect::<Vec<_>>();
        assert_eq!(durations(assembler.drain(6_000_000 + settle::CALL_NS)), [5_000_000]);
        assert_eq!(durations(assembler.drain(91_000_000 + settle::CALL_NS)), [90_000_000]);
    }

    #[test]
    fn an_unfinished_call_lasts_until_now() {
        let (mut assembler, mut stacks) = (Assembler::new(200_000, 0), stacks());
        let number = i32::try_from(libc::SYS_fsync).expect("small");
        let asleep = |active, start_ns, last_ns, sleep_stack| {
            let state = CallState { record: record::UNDER_WAY, active, off: kind::ASLEEP, number, ..blank() };
            bytes(&CallState { tid: 7, tgid: 7, start_ns, last_ns, sleep_stack, ..state })
        };
        assembler.take_in(&asleep(active::IN_CALL, 1_000_000, 3_000_000, 1), &mut stacks);
        // A fault whose end was not seen: its thread now sleeps elsewhere.
        assembler.take_in(&asleep(active::IN_FAULT, 1_000_000, 3_000_000, 1), &mut stacks);
        assert!(assembler.drain(u64::MAX).is_empty(), "none has ended");
        let calls = assembler.cut_off(900_000_000, &mut stacks);
        assert_eq!(
            calls.iter().map(|call| (call.op, call.duration_ns)).collect::<Vec<_>>(),
            [(OpKind::Fsync, 899_000_000)]
        );
        assert!(calls[0].still_under_way && calls[0].tiles(), "{calls:?}");
        assert!(calls[0].segments.iter().any(|segment| segment.ns == 897_000_000), "{calls:?}");
        assert!(assembler.cut_off(u64::MAX, &mut stacks).is_empty(), "returned once");
    }

    #[test]
    fn an_unfinished_wait_over_memory_high_is_a_separate_call() {
        let (mut assembler, mut stacks) = (Assembler::new(200_000, 0), stacks());
        for sleep_stack in [0, 1] {
            let number = i32::try_from(libc::SYS_write).expect("small");
            let state = CallState { record: record::UNDER_WAY, after_exit: 1, off: kind::ASLEEP, number, ..blank() };
            assembler.take_in(&bytes(&CallState { last_ns: 1_000, sleep_stack, ..state }), &mut stacks);
        }
        let calls = assembler.cut_off(2_000_001_000, &mut stacks);
        let cut: Vec<_> = calls.iter().map(|call| (call.start_ns, call.duration_ns, call.segments[0].cause)).collect();
        assert_eq!(cut, [(1_000, 2_000_000_000, Cause::MemcgOverHigh)], "the other sleep is not one over memory.high");
    }

    #[test]
    fn a_wait_over_memory_high_after_a_fast_call_is_a_separate_call() {
        let (mut assembler, mut stacks) = (Assembler::new(200_000, 0), stacks());
        assembler.take_in(&write(record::AFTER_EXIT, 2_000, 80_000_000, 1), &mut stacks);
        assert!(assembler.drain(u64::MAX).is_empty(), "user code's own sleep");
        assembler.take_in(&write(record::AFTER_EXIT, 2_000, 80_000_000, 0), &mut stacks);
        let calls = assembler.drain(u64::MAX);
        assert_eq!((calls[0].start_ns, calls[0].duration_ns), (1_002_000, 80_000_000));
        assert_eq!(calls[0].segments.iter().map(|segment| segment.cause).collect::<Vec<_>>(), [Cause::MemcgOverHigh]);
        assert!(calls[0].tiles());
    }
}

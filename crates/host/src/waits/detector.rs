//! Finds slow calls without a hook on system calls. The saved registers of a thread that falls asleep or loses its CPU
//! show its call, and the BPF program reports which waits belong to the same call (bpf/wait_sleeps.h: note_call).
//!
//! The time on the CPU before the first wait of a call and after its last is not seen, so a call's length is a lower
//! bound. Calls that neither wait nor reclaim memory are not seen.

use std::collections::HashMap;
use std::rc::Rc;

use super::layout::{PF_IO_WORKER, PF_KTHREAD, SleepRecord, record, size};
use crate::settle;
use crate::tracer::calls;
use crate::tracer::layout::text;
use crate::tracer::stacks::StackTable;
use flatwater_recording::{Call, Cause, CauseBasis, DurationBasis, OpKind, Segment};

/// Follow the calls of at most this many threads; beyond that the oldest is dropped and counted.
const THREADS_MAX: usize = 8_192;
/// Keep at most this many sleeps of a call. Of further sleeps the last is kept, so that the length is right.
const SLEEPS_MAX: usize = 512;

#[derive(Debug)]
struct UnderWay {
    /// Start of the call's first sleep, which identifies the call.
    start_ns: u64,
    /// In the order of their ends; a bracket comes after the sleeps within it.
    sleeps: Vec<Rc<SleepRecord>>,
    /// When the thread was last seen asleep in the call.
    seen_ns: u64,
}

impl UnderWay {
    fn began(start_ns: u64, sleep: &Rc<SleepRecord>) -> UnderWay {
        UnderWay { start_ns, sleeps: vec![Rc::clone(sleep)], seen_ns: 0 }
    }
}

/// Calls under way, by thread.
#[derive(Debug)]
pub struct Detector {
    threshold_ns: u64,
    under_way: HashMap<u32, UnderWay>,
    /// Calls dropped because too many threads were in calls.
    pub dropped: u64,
}

/// A found call, with its sleeps.
#[derive(Debug)]
pub struct Found {
    pub call: Call,
    /// The call had returned by this time. It may have returned later than its last sleep ended.
    pub returned_by_ns: u64,
    pub sleeps: Vec<Rc<SleepRecord>>,
}

impl Detector {
    #[must_use]
    pub fn new(threshold_ns: u64) -> Detector {
        Detector { threshold_ns, under_way: HashMap::new(), dropped: 0 }
    }

    /// Takes in a sleep or bracket of a target. Returns the thread's previous call, if this sleep shows that it is over
    /// and it was slow.
    pub fn add(&mut self, sleep: &Rc<SleepRecord>, stacks: &mut StackTable) -> Option<Found> {
        if !concerns(sleep) {
            return None;
        }
        let (tid, start_ns) = (sleep.sleeper.tid, sleep.call_start_ns.min(sleep.start_ns));
        if let Some(known) = self.under_way.get_mut(&tid)
            && known.start_ns == start_ns
        {
            if known.sleeps.len() >= SLEEPS_MAX {
                known.sleeps.pop();
            }
            known.sleeps.push(Rc::clone(sleep));
            return None;
        }
        let before = self.under_way.insert(tid, UnderWay::began(start_ns, sleep));
        let found = before.and_then(|before| self.found(before, start_ns, stacks));
        if self.under_way.len() > THREADS_MAX {
            let oldest = self.under_way.iter().min_by_key(|(_, call)| call.sleeps.last().map(|sleep| sleep.end_ns));
            if let Some(tid) = oldest.map(|(tid, _)| *tid) {
                self.under_way.remove(&tid);
                self.dropped += 1;
            }
        }
        found
    }

    /// The call in which a thread sleeps now, with its time so far. Does not keep the sleep, which is reported again
    /// when it ends; notes only that the call is not over.
    pub fn so_far(&mut self, sleep: &Rc<SleepRecord>, stacks: &mut StackTable) -> Option<Call> {
        if !concerns(sleep) {
            return None;
        }
        let start_ns = sleep.call_start_ns.min(sleep.start_ns);
        let mut call = UnderWay::began(start_ns, sleep);
        if let Some(known) = self.under_way.get_mut(&sleep.sleeper.tid).filter(|known| known.start_ns == start_ns) {
            known.seen_ns = sleep.end_ns;
            call.sleeps.splice(0..0, known.sleeps.iter().map(Rc::clone));
        }
        self.found(call, sleep.end_ns, stacks).map(|found| found.call)
    }

    /// Removes and returns the calls whose last sleep is so long ago that they must have returned.
    pub fn over(&mut self, now_ns: u64, stacks: &mut StackTable) -> Vec<Found> {
        let last_ns = |call: &UnderWay| call.sleeps.last().map_or(0, |last| last.end_ns).max(call.seen_ns);
        let ended = |call: &UnderWay| last_ns(call).saturating_add(settle::SLEEPLESS_NS) <= now_ns;
        let tids: Vec<u32> = self.under_way.iter().filter(|(_, call)| ended(call)).map(|(tid, _)| *tid).collect();
        let calls: Vec<UnderWay> = tids.iter().filter_map(|tid| self.under_way.remove(tid)).collect();
        calls.into_iter().filter_map(|call| self.found(call, now_ns, stacks)).collect()
    }

    /// The call of a thread that slept before the hooks were attached and still sleeps.
    pub fn asleep_throughout(&self, sleep: &Rc<SleepRecord>, stacks: &mut StackTable) -> Option<Found> {
        self.found(UnderWay::began(sleep.start_ns, sleep), sleep.end_ns, stacks)
    }

    fn found(&self, mut call: UnderWay, returned_by_ns: u64, stacks: &mut StackTable) -> Option<Found> {
        while call.sleeps.last().is_some_and(|last| is_after_exit(last, stacks)) {
            call.sleeps.pop();
        }
        let last = call.sleeps.last()?;
        let duration_ns = last.end_ns.saturating_sub(call.start_ns);
        let fault = last.sleeper.call < 0;
        let timed = calls::find(last.sleeper.call);
        if duration_ns < self.threshold_ns || (timed.is_none() && !fault) {
            return None;
        }
        let op = if fault { OpKind::PageFault } else { timed.map_or(OpKind::Other, |timed| timed.op) };
        let (brackets, waits): (Vec<_>, Vec<_>) =
            call.sleeps.iter().cloned().partition(|sleep| sleep.bracket != 0 && !is_for_cpu(sleep));
        let segments = Tiles { start_ns: call.start_ns, brackets: &brackets, stacks }.segments(&waits, duration_ns);
        let who = &last.sleeper;
        let mut found = Call::new(op, call.start_ns, duration_ns, segments).by(who.tgid, who.tid, text(&who.comm));
        found.still_under_way = last.kind == record::UNDER_WAY;
        found.file = Some(text(&who.file)).filter(|name| !name.is_empty());
        if let Some(calls::BytesArg::At(index)) = timed.map(|timed| timed.bytes) {
            found.bytes = last.arg.get(index).copied();
        }
        call.sleeps = waits.into_iter().filter(|wait| !is_for_cpu(wait)).collect();
        Some(Found { call: found, returned_by_ns, sleeps: call.sleeps })
    }
}

/// Whether this is a wait of a program's own thread that can make a call slow.
fn concerns(sleep: &SleepRecord) -> bool {
    sleep.sleeper.flags & (PF_KTHREAD | PF_IO_WORKER) == 0 && (sleep.bracket != 0 || sleep.uninterruptible())
}

/// Whether the thread was runnable while another one had the CPU.
fn is_for_cpu(wait: &SleepRecord) -> bool {
    wait.bracket as usize == size::WAIT_FOR_CPU
}

/// Functions in which a thread on its way back to user space gives up the CPU: exit_to_user_mode_loop() in
/// kernel/entry/common.c since 5.12, exit_to_user_mode_prepare() in 5.10, exit_to_usermode_loop() before;
/// do_notify_resume() on arm64.
const EXITS: &[&str] = &["exit_to_user", "do_notify_resume", "syscall_exit_to_user_mode"];

/// Whether the call had returned when the thread lost the CPU; such a wait is not part of the call.
fn is_after_exit(wait: &SleepRecord, stacks: &StackTable) -> bool {
    let on_exit =
        |address: &u64| stacks.symbol(*address).is_some_and(|symbol| EXITS.iter().any(|exit| symbol.starts_with(exit)));
    is_for_cpu(wait) && wait.frames().iter().any(on_exit)
}

/// Tiles the time of a call: sleeps by their stacks, waits for a CPU, and brackets in between.
struct Tiles<'a> {
    start_ns: u64,
    brackets: &'a [Rc<SleepRecord>],
    stacks: &'a mut StackTable,
}

impl Tiles<'_> {
    fn segments(mut self, sleeps: &[Rc<SleepRecord>], duration_ns: u64) -> Vec<Segment> {
        let mut tiles = Vec::new();
        let mut at_ns = self.start_ns;
        for sleep in sleeps {
            let from_ns = sleep.start_ns.max(at_ns);
            let to_ns = sleep.end_ns.max(from_ns);
            self.between(at_ns, from_ns, &mut tiles);
            if to_ns > from_ns {
                tiles.push(self.asleep(from_ns, to_ns, sleep));
            }
            at_ns = to_ns;
        }
        self.between(at_ns, self.start_ns + duration_ns, &mut tiles);
        tiles
    }

    /// Tiles the time between two reported sleeps: brackets, and time that no hook saw, in which the thread ran, waited
    /// for a CPU, or slept too briefly to be reported.
    fn between(&mut self, mut at_ns: u64, to_ns: u64, tiles: &mut Vec<Segment>) {
        for bracket in self.brackets {
            let (from_ns, until_ns) = (bracket.start_ns.max(at_ns), bracket.end_ns.min(to_ns));
            if until_ns <= from_ns {
                continue;
            }
            self.unseen(at_ns, from_ns, tiles);
            let cause = cause_of(bracket).unwrap_or(Cause::Unexplained);
            let stack = self.stacks.of_addresses(bracket.frames());
            let (duration, basis) = (DurationBasis::Measured, CauseBasis::Bracketed);
            let offset_ns = from_ns - self.start_ns;
            tiles.push(Segment::new(offset_ns, until_ns - from_ns, cause, duration, basis).with_stack(stack));
            at_ns = until_ns;
        }
        self.unseen(at_ns, to_ns, tiles);
    }

    fn unseen(&self, from_ns: u64, to_ns: u64, tiles: &mut Vec<Segment>) {
        if to_ns > from_ns {
            let (duration, basis) = (DurationBasis::Inferred, CauseBasis::Elimination);
            let offset_ns = from_ns - self.start_ns;
            tiles.push(Segment::new(offset_ns, to_ns - from_ns, Cause::Unexplained, duration, basis));
        }
    }

    fn asleep(&mut self, from_ns: u64, to_ns: u64, sleep: &SleepRecord) -> Segment {
        let stack = self.stacks.of_addresses(sleep.frames());
        let by_stack = stack.and_then(|stack| self.stacks.cause_of(stack));
        let within = |bracket: &&Rc<SleepRecord>| bracket.start_ns <= from_ns && to_ns <= bracket.end_ns;
        let bracket = self.brackets.iter().find(within).and_then(|bracket| cause_of(bracket));
        let (cause, basis) = match (by_stack, bracket) {
            _ if is_for_cpu(sleep) => (Cause::RunQueue, CauseBasis::Bracketed),
            (Some(cause), _) => (cause, CauseBasis::Stack),
            (None, Some(cause)) => (cause, CauseBasis::Bracketed),
            (None, None) => (Cause::Unexplained, CauseBasis::Elimination),
        };
        let offset_ns = from_ns - self.start_ns;
        Segment::new(offset_ns, to_ns - from_ns, cause, DurationBasis::Measured, basis).with_stack(stack)
    }
}

fn cause_of(bracket: &SleepRecord) -> Option<Cause> {
    Cause::of_bracket(u8::try_from(bracket.bracket).ok()?)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{Detector, THREADS_MAX};
    use crate::kallsyms::Kallsyms;
    use crate::settle;
    use crate::tracer::stacks::StackTable;
    use crate::waits::Settled;
    use crate::waits::found::FoundCalls;
    use crate::waits::layout::{SleepRecord, WaitTask, record, size};
    use flatwater_recording::{Cause, OpKind, brackets};

    fn stacks() -> StackTable {
        let symbols =
            "1000 T schedule\n2000 T jbd2_log_wait_commit\n3000 T ext4_sync_file\n4000 t exit_to_user_mode_loop\n";
        StackTable::new(None, Kallsyms::parse(symbols.as_bytes()).expect("symbols"))
    }

    fn sleep(call: i64, call_start_ns: u64, start_ns: u64, end_ns: u64) -> Rc<SleepRecord> {
        let mut frames = [0; size::WAIT_FRAMES];
        frames[..3].copy_from_slice(&[0x1004, 0x2004, 0x3004]);
        Rc::new(SleepRecord {
            state: 2,
            sleeper: WaitTask { tid: 7, tgid: 7, call: call as i32, ..WaitTask::default() },
            arg: [3, 0, 220],
            call_start_ns,
            start_ns,
            end_ns,
            frames,
            depth: 3,
            ..SleepRecord::default()
        })
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn sleeps_with_the_same_registers_are_one_call() {
        let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
        for (start, end) in [(0, 2), (3, 5), (6, 9)] {
            assert!(detector.add(&sleep(libc::SYS_fsync, 0, start * MS, end * MS), &mut stacks).is_none());
        }
        let found = detector.add(&sleep(libc::SYS_fsync, 20 * MS, 20 * MS, 21 * MS), &mut stacks).expect("a slow call");
        assert_eq!((found.call.op, found.call.duration_ns, found.sleeps.len()), (OpKind::Fsync, 9 * MS, 3));
        assert!(found.call.tiles());
        assert_eq!(found.call.by_cause()[&Cause::JournalCommit], 7 * MS);
        // The second call was 1 ms long: not slow.
        assert!(detector.over(u64::MAX, &mut stacks).is_empty());
    }

    /// A call that hooks on system calls also timed was reported by its sleeps first, and again by the hooks, if an
    /// interval ended before the hooks' record had settled.
    #[test]
    fn a_call_found_by_its_sleeps_is_reported_no_earlier_than_its_timed_twin() {
        // The call ran for 2 ms after its last sleep; 1 ms later its thread slept in its next call.
        let (slept_ns, returned_ns, next_ns) = (9 * MS, 11 * MS, 12 * MS);
        let settled_ns = returned_ns + settle::CALL_NS;
        for look_ns in [next_ns, settled_ns - 1, settled_ns, next_ns + settle::CALL_NS] {
            let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
            let mut found = FoundCalls::default();
            found.extend(detector.add(&sleep(libc::SYS_fsync, 0, 0, slept_ns), &mut stacks));
            found.extend(detector.add(&sleep(libc::SYS_fsync, next_ns, next_ns, next_ns + MS), &mut stacks));
            let beside_hooks = found.take(Settled::beside_hooks(look_ns).returned_by_ns);
            assert!(
                beside_hooks.is_empty() || settled_ns <= look_ns,
                "reported at {look_ns}, the twin at {settled_ns}"
            );
            let later = found.take(Settled::beside_hooks(look_ns + settle::CALL_NS).returned_by_ns);
            assert_eq!(beside_hooks.len() + later.len(), 1, "it is reported once, at the second look at the latest");
        }
    }

    #[test]
    fn a_call_without_a_next_sleep_is_reported_after_its_timed_twin() {
        let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
        detector.add(&sleep(libc::SYS_fsync, 0, 0, 9 * MS), &mut stacks);
        let over_ns = 9 * MS + settle::SLEEPLESS_NS;
        let found = detector.over(over_ns, &mut stacks);
        assert_eq!(found.iter().map(|found| found.returned_by_ns).collect::<Vec<_>>(), [over_ns]);
    }

    #[test]
    fn above_the_limit_of_threads_the_oldest_call_is_dropped_and_counted() {
        let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
        let more = 3;
        for tid in 0..THREADS_MAX as u32 + more {
            let mut one = SleepRecord::clone(&sleep(libc::SYS_fsync, 0, 0, 9 * MS + u64::from(tid)));
            (one.sleeper.tid, one.depth) = (tid, 0);
            detector.add(&Rc::new(one), &mut stacks);
        }
        assert_eq!(detector.dropped, u64::from(more));
        let mut kept: Vec<u32> = detector.over(u64::MAX, &mut stacks).iter().map(|found| found.call.tid).collect();
        kept.sort_unstable();
        assert_eq!((kept.len(), kept.first()), (THREADS_MAX, Some(&more)));
    }

    #[test]
    fn a_sleep_within_reclaim_has_its_own_cause() {
        let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
        let number = brackets().find(|(_, cause, _)| *cause == Cause::MemcgReclaim).expect("a bracket").0;
        detector.add(&sleep(libc::SYS_write, MS, 3 * MS, 5 * MS), &mut stacks);
        let mut bracket = SleepRecord::clone(&sleep(libc::SYS_write, MS, MS, 9 * MS));
        (bracket.bracket, bracket.state, bracket.depth) = (u32::from(number), 0, 0);
        detector.add(&Rc::new(bracket), &mut stacks);
        let found = detector.over(u64::MAX, &mut stacks).remove(0);
        assert!(found.call.tiles() && found.sleeps.len() == 1, "{found:?}");
        assert_eq!((found.call.start_ns, found.call.duration_ns), (MS, 8 * MS));
        assert_eq!(found.call.by_cause()[&Cause::MemcgReclaim], 6 * MS);
        assert_eq!(found.call.by_cause()[&Cause::JournalCommit], 2 * MS);
    }

    #[test]
    fn a_wait_for_a_cpu_within_reclaim_is_run_queue() {
        let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
        let number = brackets().find(|(_, cause, _)| *cause == Cause::MemcgReclaim).expect("a bracket").0;
        assert!(brackets().all(|(number, ..)| usize::from(number) != size::WAIT_FOR_CPU));
        let interval = |bracket: usize, start: u64, end: u64| {
            let sleep = SleepRecord::clone(&sleep(libc::SYS_write, MS, start * MS, end * MS));
            Rc::new(SleepRecord { bracket: bracket as u32, state: 0, ..sleep })
        };
        detector.add(&sleep(libc::SYS_write, MS, MS, 2 * MS), &mut stacks);
        detector.add(&interval(size::WAIT_FOR_CPU, 2, 5), &mut stacks);
        detector.add(&interval(size::WAIT_FOR_CPU, 7, 8), &mut stacks);
        detector.add(&interval(usize::from(number), 6, 9), &mut stacks);
        let found = detector.over(u64::MAX, &mut stacks).remove(0);
        assert!(found.call.tiles() && found.sleeps.len() == 1, "a wait for a CPU is not a sleep of a chain: {found:?}");
        assert_eq!((found.call.start_ns, found.call.duration_ns), (MS, 8 * MS));
        assert_eq!(found.call.by_cause()[&Cause::RunQueue], 4 * MS);
        assert_eq!(found.call.by_cause()[&Cause::MemcgReclaim], 2 * MS);
    }

    #[test]
    fn a_wait_for_a_cpu_after_the_end_is_not_part_of_the_call() {
        let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
        let mut after = SleepRecord::clone(&sleep(libc::SYS_fsync, 0, 8 * MS, 60 * MS));
        (after.bracket, after.state) = (size::WAIT_FOR_CPU as u32, 0);
        (after.frames[1], after.depth) = (0x4004, 2);
        let after = Rc::new(after);
        detector.add(&sleep(libc::SYS_fsync, 0, 0, 7 * MS), &mut stacks);
        detector.add(&after, &mut stacks);
        let found = detector.over(u64::MAX, &mut stacks).remove(0);
        assert_eq!((found.call.duration_ns, found.sleeps.len()), (7 * MS, 1));
        detector.add(&after, &mut stacks);
        assert!(detector.over(u64::MAX, &mut stacks).is_empty(), "it was not part of a call");
    }

    #[test]
    fn unreported_short_sleeps_count_from_the_start_of_the_call() {
        let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
        detector.add(&sleep(libc::SYS_fsync, 2 * MS, 9 * MS, 10 * MS), &mut stacks);
        let found = detector.over(u64::MAX, &mut stacks).remove(0);
        assert!(found.call.tiles(), "{found:?}");
        assert_eq!((found.call.start_ns, found.call.duration_ns), (2 * MS, 8 * MS));
        assert_eq!(found.call.by_cause()[&Cause::Unexplained], 7 * MS);
    }

    #[test]
    fn a_call_with_many_sleeps_keeps_its_length() {
        let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
        for at in 0..2_000 {
            assert!(detector.add(&sleep(libc::SYS_fsync, 0, at * MS, (at + 1) * MS), &mut stacks).is_none());
        }
        let found = detector.over(u64::MAX, &mut stacks);
        assert_eq!(found.iter().map(|found| found.call.duration_ns).collect::<Vec<_>>(), [2_000 * MS]);
        assert!(found[0].call.tiles() && found[0].sleeps.len() == super::SLEEPS_MAX);
    }

    #[test]
    fn an_unfinished_call_is_reported_so_far_and_once_at_its_end() {
        let (mut detector, mut stacks) = (Detector::new(5 * MS), stacks());
        let asleep = |until_ms| {
            let sleep = SleepRecord::clone(&sleep(libc::SYS_fsync, 0, 3 * MS, until_ms * MS));
            Rc::new(SleepRecord { kind: record::UNDER_WAY, ..sleep })
        };
        detector.add(&sleep(libc::SYS_fsync, 0, 0, 2 * MS), &mut stacks);
        assert!(detector.so_far(&asleep(4), &mut stacks).is_none(), "4 ms are not slow");
        for until_ms in [1_500, 2_500] {
            let call = detector.so_far(&asleep(until_ms), &mut stacks).expect("slow by now");
            assert!(call.still_under_way && call.tiles());
            assert_eq!((call.op, call.duration_ns), (OpKind::Fsync, until_ms * MS));
            assert!(detector.over(until_ms * MS, &mut stacks).is_empty(), "it has not ended");
        }
        assert!(detector.add(&sleep(libc::SYS_fsync, 0, 3 * MS, 60_000 * MS), &mut stacks).is_none());
        let found = detector.over(u64::MAX, &mut stacks);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].call.duration_ns, found[0].call.still_under_way), (60_000 * MS, false));
    }

    #[test]
    fn calls_that_are_not_timed_are_ignored() {
        let (mut detector, mut stacks) = (Detector::new(MS), stacks());
        assert!(detector.add(&sleep(libc::SYS_getppid, 0, 0, 50 * MS), &mut stacks).is_none());
        assert!(detector.over(u64::MAX, &mut stacks).is_empty());
        detector.add(&sleep(libc::SYS_write, 1, 1, 50 * MS), &mut stacks);
        assert!(detector.over(100 * MS, &mut stacks).is_empty(), "it may sleep again");
        let over = detector.over(2_000 * MS, &mut stacks);
        assert_eq!(
            over.iter().map(|found| (found.call.op, found.call.bytes)).collect::<Vec<_>>(),
            [(OpKind::Write, Some(220))]
        );
    }
}

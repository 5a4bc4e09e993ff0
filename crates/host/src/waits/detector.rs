//! Slow calls without a hook on system calls: a thread that wakes from a sleep shows by its saved registers in which call
//! it is, and sleeps with the same registers are of the same call.
//!
//! What such a call did on the CPU before its first sleep and after its last is not seen, so its length is the least that
//! it can have been; and calls that do not sleep are not seen at all.

use std::collections::HashMap;
use std::rc::Rc;

use super::layout::{PF_IO_WORKER, PF_KTHREAD, SleepRecord};
use crate::tracer::calls;
use crate::tracer::layout::text;
use crate::tracer::stacks::StackTable;
use flatwater_recording::{Call, Cause, CauseBasis, DurationBasis, OpKind, Segment, StackId};

/// A call is over when its thread has slept nowhere in it for so long.
const OVER_NS: u64 = 1_000_000_000;
/// Threads whose call is under way; beyond them the oldest are told as they stand.
const THREADS_MAX: usize = 8_192;
/// Sleeps of one call that are kept apart; a call of more is told in parts.
const SLEEPS_MAX: usize = 512;

/// What tells one call of a thread from the next: number, arguments, instruction and stack pointer, and how many reads and
/// writes the thread has finished, in which two writes with the same arguments differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    call: i32,
    arg: [u64; 3],
    ip: u64,
    sp: u64,
    reads_writes: u64,
}

#[derive(Debug)]
struct UnderWay {
    identity: Identity,
    sleeps: Vec<Rc<SleepRecord>>,
}

/// Calls under way, by thread.
#[derive(Debug)]
pub struct Detector {
    threshold_ns: u64,
    under_way: HashMap<u32, UnderWay>,
}

/// A call that was found, with its sleeps.
#[derive(Debug)]
pub struct Found {
    pub call: Call,
    pub sleeps: Vec<Rc<SleepRecord>>,
}

impl Detector {
    #[must_use]
    pub fn new(threshold_ns: u64) -> Detector {
        Detector { threshold_ns, under_way: HashMap::new() }
    }

    /// Takes in a sleep of a target; the call before it, if that is over by it and was slow.
    pub fn add(&mut self, sleep: &Rc<SleepRecord>, stacks: &mut StackTable) -> Option<Found> {
        if sleep.sleeper.flags & (PF_KTHREAD | PF_IO_WORKER) != 0 || !sleep.uninterruptible() {
            return None;
        }
        let identity = Identity {
            call: sleep.sleeper.call,
            arg: sleep.arg,
            ip: sleep.ip,
            sp: sleep.sp,
            reads_writes: sleep.reads_writes,
        };
        let tid = sleep.sleeper.tid;
        if let Some(known) = self.under_way.get_mut(&tid) {
            let last = known.sleeps.last().map_or(0, |last| last.voluntary_switches);
            // Each sleep that is told is one voluntary switch. Short ones are not told, so a few may lie between; many mean
            // that the thread waited for something else in the meantime.
            let napped = sleep.voluntary_switches.saturating_sub(last) > 64;
            if known.identity == identity && !napped && known.sleeps.len() < SLEEPS_MAX {
                known.sleeps.push(Rc::clone(sleep));
                return None;
            }
        }
        let before = self.under_way.insert(tid, UnderWay { identity, sleeps: vec![Rc::clone(sleep)] });
        let found = before.and_then(|before| self.found(before, stacks));
        if self.under_way.len() > THREADS_MAX {
            let oldest = self.under_way.iter().min_by_key(|(_, call)| call.sleeps.last().map(|sleep| sleep.end_ns));
            if let Some(tid) = oldest.map(|(tid, _)| *tid) {
                self.under_way.remove(&tid);
            }
        }
        found
    }

    /// Calls whose last sleep is so long ago that they must have returned.
    pub fn over(&mut self, now_ns: u64, stacks: &mut StackTable) -> Vec<Found> {
        let ended =
            |call: &UnderWay| call.sleeps.last().is_none_or(|last| last.end_ns.saturating_add(OVER_NS) <= now_ns);
        let tids: Vec<u32> = self.under_way.iter().filter(|(_, call)| ended(call)).map(|(tid, _)| *tid).collect();
        let calls: Vec<UnderWay> = tids.iter().filter_map(|tid| self.under_way.remove(tid)).collect();
        calls.into_iter().filter_map(|call| self.found(call, stacks)).collect()
    }

    fn found(&self, call: UnderWay, stacks: &mut StackTable) -> Option<Found> {
        let (first, last) = (call.sleeps.first()?, call.sleeps.last()?);
        let duration_ns = last.end_ns.saturating_sub(first.start_ns);
        let fault = call.identity.call < 0;
        let timed = calls::find(call.identity.call);
        if duration_ns < self.threshold_ns || (timed.is_none() && !fault) {
            return None;
        }
        let op = if fault { OpKind::PageFault } else { timed.map_or(OpKind::Other, |timed| timed.op) };
        let mut found = Call::new(op, first.start_ns, duration_ns, segments(&call.sleeps, stacks)).by(
            first.sleeper.tgid,
            first.sleeper.tid,
            text(&first.sleeper.comm),
        );
        found.file = Some(text(&first.sleeper.file)).filter(|name| !name.is_empty());
        if let Some(calls::BytesArg::At(index)) = timed.map(|timed| timed.bytes) {
            found.bytes = first.arg.get(index).copied();
        }
        Some(Found { call: found, sleeps: call.sleeps })
    }
}

/// The sleeps, by what their stacks say, and the time between them.
fn segments(sleeps: &[Rc<SleepRecord>], stacks: &mut StackTable) -> Vec<Segment> {
    let start_ns = sleeps.first().map_or(0, |first| first.start_ns);
    let mut tiles = Vec::new();
    let mut at = 0;
    for sleep in sleeps {
        let from = sleep.start_ns.saturating_sub(start_ns).max(at);
        let to = sleep.end_ns.saturating_sub(start_ns).max(from);
        if from > at {
            // It ran, waited for a CPU, or slept too briefly to be told.
            let between = (Cause::Unexplained, DurationBasis::Inferred, CauseBasis::Elimination);
            tiles.push(Segment::new(at, from - at, between.0, between.1, between.2));
        }
        if to > from {
            let stack = stacks.of_addresses(sleep.frames());
            tiles.push(asleep(from, to - from, stack, stacks));
        }
        at = to;
    }
    tiles
}

fn asleep(offset_ns: u64, ns: u64, stack: Option<StackId>, stacks: &mut StackTable) -> Segment {
    let cause = stack.and_then(|stack| stacks.cause_of(stack));
    let (cause, basis) = match cause {
        Some(cause) => (cause, CauseBasis::Stack),
        None => (Cause::Unexplained, CauseBasis::Elimination),
    };
    Segment::new(offset_ns, ns, cause, DurationBasis::Measured, basis).with_stack(stack)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::Detector;
    use crate::kallsyms::Kallsyms;
    use crate::tracer::stacks::StackTable;
    use crate::waits::layout::{SleepRecord, WaitTask, size};
    use flatwater_recording::{Cause, OpKind};

    fn stacks() -> StackTable {
        let symbols = "1000 T schedule\n2000 T jbd2_log_wait_commit\n3000 T ext4_sync_file\n";
        StackTable::new(None, Kallsyms::parse(symbols.as_bytes()).expect("symbols"))
    }

    fn sleep(call: i64, finished: u64, start_ns: u64, end_ns: u64) -> Rc<SleepRecord> {
        let mut frames = [0; size::WAIT_FRAMES];
        frames[..3].copy_from_slice(&[0x1004, 0x2004, 0x3004]);
        Rc::new(SleepRecord {
            state: 2,
            sleeper: WaitTask { tid: 7, tgid: 7, call: call as i32, ..WaitTask::default() },
            arg: [3, 0, 220],
            reads_writes: finished,
            voluntary_switches: start_ns / 1_000_000,
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
            assert!(detector.add(&sleep(libc::SYS_fsync, 1, start * MS, end * MS), &mut stacks).is_none());
        }
        let found = detector.add(&sleep(libc::SYS_fsync, 2, 20 * MS, 21 * MS), &mut stacks).expect("a slow call");
        assert_eq!((found.call.op, found.call.duration_ns, found.sleeps.len()), (OpKind::Fsync, 9 * MS, 3));
        assert!(found.call.tiles());
        assert_eq!(found.call.by_cause()[&Cause::JournalCommit], 7 * MS);
        // The second was 1 ms long: not slow.
        assert!(detector.over(u64::MAX, &mut stacks).is_empty());
    }

    #[test]
    fn a_call_that_nobody_times_is_no_slow_call() {
        let (mut detector, mut stacks) = (Detector::new(MS), stacks());
        assert!(detector.add(&sleep(libc::SYS_getppid, 1, 0, 50 * MS), &mut stacks).is_none());
        assert!(detector.over(u64::MAX, &mut stacks).is_empty());
        detector.add(&sleep(libc::SYS_write, 1, 0, 50 * MS), &mut stacks);
        assert!(detector.over(100 * MS, &mut stacks).is_empty(), "it may sleep again");
        let over = detector.over(2_000 * MS, &mut stacks);
        assert_eq!(
            over.iter().map(|found| (found.call.op, found.call.bytes)).collect::<Vec<_>>(),
            [(OpKind::Write, Some(220))]
        );
    }
}

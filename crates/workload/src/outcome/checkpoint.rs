//! Checkpoints: critical time and flush time separately, with the thread and the call that each one waited for.

use crate::{Mark, Observation, Observe, Op};
use flatwater_recording::Series;
use flatwater_recording::outcome::{CheckpointOutcome, CheckpointRow, WorkloadOutcome};

/// Number of calls after which calls that no checkpoint waited for are discarded.
const CALLS_KEPT: usize = 20_000;

/// Shorter calls are not relevant as the reason of a wait.
const CALL_NS_MIN: u64 = 10_000;

#[derive(Debug, Default)]
pub struct CheckpointObserver {
    rows: Vec<Row>,
    asked_ns: Option<u64>,
    empty: Option<(u64, u64)>,
    calls: Vec<Held>,
    /// When the last finished checkpoint ended.
    last_done_ns: u64,
}

#[derive(Debug)]
struct Row {
    asked_ns: u64,
    empty_ns: u64,
    done_ns: u64,
    bytes: u64,
}

/// A call made in a critical section.
#[derive(Debug)]
struct Held {
    thread: String,
    call: &'static str,
    start_ns: u64,
    end_ns: u64,
}

impl CheckpointObserver {
    fn mark(&mut self, mark: Mark, value: u64, at_ns: u64) {
        match mark {
            Mark::CheckpointAsked => self.asked_ns = Some(at_ns),
            Mark::CriticalSectionEmpty => self.empty = Some((at_ns, value)),
            Mark::CheckpointDone => {
                if let (Some(asked_ns), Some((empty_ns, bytes))) = (self.asked_ns.take(), self.empty.take()) {
                    self.rows.push(Row { asked_ns, empty_ns, done_ns: at_ns, bytes });
                    self.last_done_ns = at_ns;
                }
            }
            _ => {}
        }
    }

    /// Keeps the calls that were in progress when a checkpoint asked, or began while it waited: it waited for one of
    /// them.
    fn forget_the_others(&mut self) {
        let (rows, last_done_ns, asked_ns) = (&self.rows, self.last_done_ns, self.asked_ns);
        self.calls.retain(|call| {
            // Keep later calls: they may overlap a checkpoint whose marks have not arrived yet.
            call.end_ns >= last_done_ns.min(asked_ns.unwrap_or(u64::MAX))
                || rows.iter().any(|row| call.start_ns < row.empty_ns && call.end_ns > row.asked_ns)
        });
    }
}

impl Observe for CheckpointObserver {
    fn observe(&mut self, seen: &Observation<'_>) {
        match seen.op {
            Op::Mark { mark, value } => self.mark(mark, value, seen.start_ns),
            Op::Write { .. } | Op::Append { .. } if seen.measured && seen.duration_ns >= CALL_NS_MIN => {
                let call = seen.op.kind().map_or("", |kind| kind.name());
                let thread = seen.thread.to_owned();
                self.calls.push(Held { thread, call, start_ns: seen.start_ns, end_ns: seen.end_ns() });
                if self.calls.len() >= CALLS_KEPT && self.calls.len().is_multiple_of(CALLS_KEPT) {
                    self.forget_the_others();
                }
            }
            _ => {}
        }
    }

    fn outcome(self: Box<Self>, _sampled: &[Series]) -> Option<WorkloadOutcome> {
        let rows = self.rows.iter().map(|row| {
            // The checkpoint waited for the last call that ended before the section was empty.
            let while_waiting = |call: &&Held| call.start_ns < row.empty_ns && call.end_ns > row.asked_ns;
            let last = self.calls.iter().filter(while_waiting).max_by_key(|call| call.end_ns.min(row.empty_ns));
            CheckpointRow {
                at_ns: row.asked_ns,
                critical_ns: row.empty_ns.saturating_sub(row.asked_ns),
                flush_ns: row.done_ns.saturating_sub(row.empty_ns),
                bytes: row.bytes,
                waited_for_thread: last.map(|call| call.thread.clone()),
                waited_for_call: last.map(|call| call.call.to_owned()),
            }
        });
        let checkpoints: Vec<CheckpointRow> = rows.collect();
        (!checkpoints.is_empty()).then_some(WorkloadOutcome::Checkpoint(CheckpointOutcome { checkpoints }))
    }
}

#[cfg(test)]
mod tests {
    use super::CheckpointObserver;
    use crate::{FileId, Mark, Observation, Observe, Op};
    use flatwater_recording::outcome::WorkloadOutcome;

    fn seen(thread: &'static str, op: Op, start_ns: u64, duration_ns: u64) -> Observation<'static> {
        Observation { actor: 0, thread, tid: 1, op, start_ns, due_ns: None, duration_ns, bytes: 0, measured: true }
    }

    fn mark(mark: Mark, value: u64, at_ns: u64) -> Observation<'static> {
        seen("checkpoint", Op::Mark { mark, value }, at_ns, 0)
    }

    #[test]
    fn critical_and_flush_time_are_separate_and_the_last_thread_is_named() {
        let write = Op::Write { file: FileId(0), offset_bytes: 0, bytes: 8192 };
        let append = Op::Append { file: FileId(1), bytes: 512 };
        let ms = 1_000_000;
        let mut observer = CheckpointObserver::default();
        observer.observe(&mark(Mark::CheckpointAsked, 0, 100 * ms));
        observer.observe(&mark(Mark::CriticalSectionEmpty, 77, 140 * ms));
        observer.observe(&mark(Mark::CheckpointDone, 0, 200 * ms));
        // In another batch: one thread left early, one left last, one came later.
        observer.observe(&seen("engine-1", write, 95 * ms, 10 * ms));
        observer.observe(&seen("engine-2", append, 99 * ms, 40 * ms));
        observer.observe(&seen("engine-3", write, 201 * ms, 40 * ms));
        let Some(WorkloadOutcome::Checkpoint(table)) = Box::new(observer).outcome(&[]) else { panic!("a table") };
        let row = &table.checkpoints[0];
        assert_eq!((row.critical_ns, row.flush_ns, row.bytes), (40 * ms, 60 * ms, 77));
        assert_eq!(row.waited_for_thread.as_deref(), Some("engine-2"));
        assert_eq!(row.waited_for_call.as_deref(), Some("write"));
    }

    #[test]
    fn a_checkpoint_without_a_wait_names_no_thread() {
        let mut observer = CheckpointObserver::default();
        for (what, at_ns) in [(Mark::CheckpointAsked, 5), (Mark::CriticalSectionEmpty, 6), (Mark::CheckpointDone, 9)] {
            observer.observe(&mark(what, 0, at_ns));
        }
        let Some(WorkloadOutcome::Checkpoint(table)) = Box::new(observer).outcome(&[]) else { panic!("a table") };
        assert_eq!(table.checkpoints[0].waited_for_thread, None);
    }

    #[test]
    fn a_long_run_keeps_only_calls_that_a_checkpoint_may_have_waited_for() {
        let mut observer = CheckpointObserver::default();
        observer.observe(&mark(Mark::CheckpointAsked, 0, 1_000_000_000));
        observer.observe(&mark(Mark::CriticalSectionEmpty, 0, 1_000_100_000));
        observer.observe(&mark(Mark::CheckpointDone, 0, 9_000_000_000));
        let write = Op::Write { file: FileId(0), offset_bytes: 0, bytes: 8192 };
        for call in 0..20_000 {
            observer.observe(&seen("engine-0", write, 500_000 * call, 20_000));
        }
        assert!(observer.calls.len() < 3_000, "{}", observer.calls.len());
    }
}

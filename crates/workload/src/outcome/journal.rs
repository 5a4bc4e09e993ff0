//! Journal: what each writer wrote, how far it fell behind its schedule, and its sync times.

use crate::{Observation, Observe, Op};
use flatwater_recording::Series;
use flatwater_recording::outcome::{JournalOutcome, JournalWriter, WorkloadOutcome};

#[derive(Debug)]
pub struct JournalObserver {
    interval_ns: u64,
    /// Indexed by actor.
    writers: Vec<JournalWriter>,
}

impl JournalObserver {
    /// `interval_ns` is the time between two records of one writer.
    #[must_use]
    pub fn new(interval_ns: u64) -> JournalObserver {
        JournalObserver { interval_ns, writers: Vec::new() }
    }

    fn writer(&mut self, seen: &Observation<'_>) -> &mut JournalWriter {
        if self.writers.len() <= seen.actor {
            self.writers.resize_with(seen.actor + 1, JournalWriter::default);
        }
        let writer = &mut self.writers[seen.actor];
        if writer.thread.is_empty() {
            writer.thread.push_str(seen.thread);
            writer.tid = seen.tid;
        }
        writer
    }
}

impl Observe for JournalObserver {
    fn observe(&mut self, seen: &Observation<'_>) {
        if !seen.measured {
            return;
        }
        let interval_ns = self.interval_ns;
        let writer = self.writer(seen);
        match seen.op {
            Op::Append { .. } => {
                writer.appends += 1;
                writer.bytes += seen.bytes;
                writer.append_ns_max = writer.append_ns_max.max(seen.duration_ns);
                let late_ns = seen.end_ns().saturating_sub(seen.due_ns.unwrap_or(seen.start_ns));
                writer.behind += u64::from(late_ns > interval_ns);
                writer.behind_ns_max = writer.behind_ns_max.max(late_ns);
            }
            Op::Create { .. } => writer.files += 1,
            Op::Fdatasync { .. } => {
                writer.syncs += 1;
                writer.sync_ns_total += seen.duration_ns;
                writer.sync_ns_max = writer.sync_ns_max.max(seen.duration_ns);
            }
            _ => {}
        }
    }

    fn outcome(self: Box<Self>, _sampled: &[Series]) -> Option<WorkloadOutcome> {
        let writers: Vec<JournalWriter> = self.writers.into_iter().filter(|writer| writer.appends > 0).collect();
        (!writers.is_empty()).then(|| {
            WorkloadOutcome::Journal(JournalOutcome {
                appends: writers.iter().map(|writer| writer.appends).sum(),
                bytes: writers.iter().map(|writer| writer.bytes).sum(),
                interval_ns: self.interval_ns,
                writers,
                ..JournalOutcome::default()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::JournalObserver;
    use crate::{FileId, Observation, Observe, Op};
    use flatwater_recording::outcome::WorkloadOutcome;

    fn seen(actor: usize, op: Op, due_ns: Option<u64>, start_ns: u64, duration_ns: u64) -> Observation<'static> {
        let bytes = if let Op::Append { bytes, .. } = op { bytes } else { 0 };
        let (thread, tid) = ("journal", 7);
        Observation { actor, thread, tid, op, start_ns, due_ns, duration_ns, bytes, measured: true }
    }

    #[test]
    fn a_record_is_behind_if_it_ends_after_the_next_one_was_due() {
        let mut observer = JournalObserver::new(200);
        let append = Op::Append { file: FileId(0), bytes: 220 };
        observer.observe(&seen(0, Op::Create { file: FileId(0) }, None, 0, 5));
        // Due at 0, 200 and 400: the first takes 450, so the second and third begin late although they are fast.
        for (due_ns, start_ns, duration_ns) in [(0, 0, 450), (200, 450, 1), (400, 451, 1), (600, 600, 1)] {
            observer.observe(&seen(0, append, Some(due_ns), start_ns, duration_ns));
        }
        observer.observe(&seen(1, Op::Fdatasync { file: FileId(1) }, None, 0, 9));
        let Some(WorkloadOutcome::Journal(table)) = Box::new(observer).outcome(&[]) else { panic!("a table") };
        assert_eq!(
            (table.appends, table.bytes, table.writers.len()),
            (4, 880, 1),
            "writers without records are omitted"
        );
        let writer = &table.writers[0];
        assert_eq!((writer.behind, writer.behind_ns_max, writer.append_ns_max, writer.files), (2, 450, 450, 1));
    }
}

//! Graphdb: the readers' waits for lock and page faults together, and the number of replaced files.

use std::collections::BTreeMap;

use crate::{Mark, Observation, Observe, Op};
use flatwater_recording::Series;
use flatwater_recording::outcome::{GraphdbOutcome, WorkloadOutcome};

#[derive(Debug, Default)]
pub struct GraphdbObserver {
    /// When each actor requested the lock that it took last.
    asked_ns: BTreeMap<usize, u64>,
    table: GraphdbOutcome,
}

impl Observe for GraphdbObserver {
    fn observe(&mut self, seen: &Observation<'_>) {
        match seen.op {
            Op::Lock { .. } => {
                self.asked_ns.insert(seen.actor, seen.start_ns);
            }
            Op::Touch { .. } => {
                // A reader's wait is from the request of the lock to the last page: the latency that the case study's
                // simulator printed.
                let asked_ns = self.asked_ns.get(&seen.actor).copied().unwrap_or(seen.start_ns);
                self.table.reads += 1;
                self.table.read_bytes += seen.bytes;
                self.table.read_ns_max = self.table.read_ns_max.max(seen.end_ns().saturating_sub(asked_ns));
            }
            Op::Mark { mark: Mark::Remapped, .. } => self.table.remaps += 1,
            _ => {}
        }
    }

    fn outcome(self: Box<Self>, _sampled: &[Series]) -> Option<WorkloadOutcome> {
        let nothing = self.table == GraphdbOutcome::default();
        (!nothing).then_some(WorkloadOutcome::Graphdb(self.table))
    }
}

#[cfg(test)]
mod tests {
    use super::GraphdbObserver;
    use crate::{FileId, LockId, Mark, Observation, Observe, Op};
    use flatwater_recording::outcome::WorkloadOutcome;

    #[test]
    fn a_read_lasts_from_the_lock_request_to_the_last_page() {
        let seen = |op, start_ns, duration_ns, bytes| Observation {
            actor: 1,
            thread: "graphdb-read-0",
            tid: 9,
            op,
            start_ns,
            due_ns: None,
            duration_ns,
            bytes,
            measured: true,
        };
        let mut observer = GraphdbObserver::default();
        observer.observe(&seen(Op::Lock { lock: LockId(0), exclusive: false }, 100, 50, 0));
        let touch = Op::Touch { file: FileId(3), offset_bytes: 0, bytes: 4096, write: false };
        observer.observe(&seen(touch, 160, 40, 4096));
        observer.observe(&seen(Op::Mark { mark: Mark::Remapped, value: 3 }, 300, 0, 0));
        let Some(WorkloadOutcome::Graphdb(table)) = Box::new(observer).outcome(&[]) else { panic!("a table") };
        assert_eq!((table.reads, table.read_bytes, table.read_ns_max, table.remaps), (1, 4096, 100, 1));
    }
}

//! Maildir: how much the kernel kept in memory, and the cost of misses.

use super::levels;
use crate::{Observation, Observe, Op};
use flatwater_recording::Series;
use flatwater_recording::outcome::{MaildirOutcome, WorkloadOutcome};

#[derive(Debug)]
pub struct MaildirObserver {
    hit_under_ns: u64,
    hits: Mean,
    misses: Mean,
    deliveries: u64,
    reads: u64,
}

#[derive(Debug, Default)]
struct Mean {
    sum_ns: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, ns: u64) {
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.count += 1;
    }

    fn value(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count)
    }
}

impl MaildirObserver {
    #[must_use]
    pub fn new(hit_under_ns: u64) -> MaildirObserver {
        MaildirObserver { hit_under_ns, hits: Mean::default(), misses: Mean::default(), deliveries: 0, reads: 0 }
    }
}

impl Observe for MaildirObserver {
    fn observe(&mut self, seen: &Observation<'_>) {
        if !seen.measured {
            return;
        }
        match seen.op {
            Op::Stat { .. } if seen.duration_ns < self.hit_under_ns => self.hits.add(seen.duration_ns),
            Op::Stat { .. } => self.misses.add(seen.duration_ns),
            Op::Rename { .. } => self.deliveries += 1,
            Op::Read { .. } => self.reads += 1,
            _ => {}
        }
    }

    fn outcome(self: Box<Self>, sampled: &[Series]) -> Option<WorkloadOutcome> {
        Some(WorkloadOutcome::Maildir(MaildirOutcome {
            inodes: levels::inodes(sampled),
            dentries: levels::dentries(sampled),
            cached_bytes: levels::cached_bytes(sampled),
            deliveries: self.deliveries,
            reads: self.reads,
            stat_hit_ns: self.hits.value(),
            stat_miss_ns: self.misses.value(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::MaildirObserver;
    use crate::{FileId, Observation, Observe, Op};
    use flatwater_recording::outcome::WorkloadOutcome;

    #[test]
    fn hits_and_misses_are_distinguished_by_duration() {
        let mut observer = MaildirObserver::new(20_000);
        for (duration_ns, measured) in [(1_000, true), (3_000, true), (900_000, true), (5, false)] {
            let op = Op::Stat { file: FileId(1) };
            let thread = "maildir-0";
            observer.observe(&Observation {
                actor: 1,
                thread,
                tid: 2,
                op,
                start_ns: 0,
                due_ns: None,
                duration_ns,
                bytes: 0,
                measured,
            });
        }
        let Some(WorkloadOutcome::Maildir(table)) = Box::new(observer).outcome(&[]) else { panic!("a table") };
        assert_eq!((table.stat_hit_ns, table.stat_miss_ns), (Some(2_000), Some(900_000)));
        assert_eq!(table.inodes, None, "absent if not sampled");
    }
}

//! The elevators that go by process, under one name.

use std::collections::BTreeSet;

use super::anticipatory::Anticipatory;
use super::cfq::{Cfq, Turn, UNQUEUED};
use super::clock::TaskId;
use super::idle_window::Queued;
use super::kernel::{QueueRule, SyncWrites};
use super::may_dispatch::MayDispatch;

/// Who may use the device next, where that goes by process.
#[derive(Debug)]
pub enum Turns {
    Cfq(Cfq),
    Anticipatory(Anticipatory),
}

impl Turns {
    /// On a device that takes so many requests at once, in so many queues, and a clock with such ticks.
    pub fn named(name: &str, rule: QueueRule, (depth, queues): (usize, u32), jiffy_ns: u64) -> Option<Turns> {
        let may = |depth| Some(MayDispatch::new(depth, u64::from(queues)));
        match name {
            "cfq" => {
                let mut cfq = match rule {
                    QueueRule { cfq_lets_go: true, .. } if depth > UNQUEUED.get() => Cfq::of_queueing_device(),
                    QueueRule { cfq_scales: true, .. } => Cfq::with_target_latency(),
                    _ => Cfq::default(),
                };
                (cfq.preempts, cfq.sync_writes) = (rule.cfq_preempts, rule.sync_writes);
                cfq.windows.clears_for_sync_writes = rule.sync_writes == SyncWrites::AmongSeekers;
                cfq.may = may(Some(rule.cfq_depth));
                cfq.windows.tick_ns = if rule.cfq_ticks { jiffy_ns } else { 1 };
                Some(Turns::Cfq(cfq))
            }
            "bfq" => {
                let mut bfq = Cfq::bfq();
                bfq.may = may(None);
                Some(Turns::Cfq(bfq))
            }
            "anticipatory" => Some(Turns::Anticipatory(Anticipatory::default())),
            _ => None,
        }
    }

    /// Whether the one that came first is to be looked for now, of a reader's or of the writes, and how old it has to be.
    pub fn looks_for_overdue(&mut self, of_reader: bool, now_ns: u64) -> Option<u64> {
        match self {
            Turns::Cfq(cfq) => cfq.looks_for_overdue(of_reader),
            Turns::Anticipatory(_) if of_reader => None,
            Turns::Anticipatory(all) => all.looks_for_overdue(false, now_ns),
        }
    }

    /// Whether nothing more is given to the device, which has so many requests, for now.
    pub fn waits(&self, served: (usize, u64), readers: &BTreeSet<TaskId>, writes: bool, has_arm: bool) -> bool {
        match self {
            Turns::Cfq(cfq) => cfq.waits(served, readers, writes, has_arm),
            // as_dispatch_request: a batch has as many at the device as it takes.
            Turns::Anticipatory(all) => served.0 > 0 && !all.goes_on(readers, writes),
        }
    }

    /// A request that a process waits for is queued.
    pub fn note(&mut self, request: Queued, has_arm: bool, now_ns: u64) {
        if let Turns::Cfq(cfq) = self {
            cfq.note(request, has_arm, now_ns);
        }
    }

    /// A request is done; of those that a process waits for, which and since when.
    pub fn ended(&mut self, waited: Option<(TaskId, u64)>, now_ns: u64) {
        if let Turns::Cfq(cfq) = self {
            cfq.ended(waited, now_ns);
        }
    }

    /// One that nobody waits for is at the device.
    pub fn took_write(&mut self) {
        if let Turns::Cfq(cfq) = self {
            cfq.took_write();
        }
    }

    /// All that was queued is at the device, whoever's it is.
    pub fn drained(&mut self) {
        if let Turns::Cfq(cfq) = self {
            cfq.drained();
        }
    }

    /// Whether a read that has waited for too long goes before all else, and how long that is.
    pub fn looks_for_overdue_first(&mut self, now_ns: u64) -> Option<u64> {
        match self {
            Turns::Anticipatory(all) if all.reads() => all.looks_for_overdue(true, now_ns),
            _ => None,
        }
    }

    /// Whose request the device was given that somebody waits for.
    pub fn took(&mut self, reader: TaskId, write: bool) {
        match self {
            Turns::Cfq(cfq) => cfq.took(write),
            Turns::Anticipatory(all) => all.took(reader, write),
        }
    }

    pub fn turn(&mut self, readers: &BTreeSet<TaskId>, writes: bool, has_arm: bool, now_ns: u64) -> Turn {
        match self {
            Turns::Cfq(cfq) => cfq.turn(readers, writes, has_arm, now_ns),
            Turns::Anticipatory(all) => all.turn(readers, writes, has_arm, now_ns),
        }
    }
}

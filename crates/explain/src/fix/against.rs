//! Fixes against a process that made the calls wait.

use flatwater_recording::RequestOp;

use super::Fix;
use super::action::{Action, Change, Party, Resource};
use super::measured;
use super::place::disk;
use crate::aggressor::{Aggressor, Means};
use crate::facts::Facts;

/// The lowest limit proposed: at 1 MiB/s the waiting calls' p99 rose again (docs/recipes/fio.md).
const WRITE_RATE_MIN: u64 = 4 << 20;

/// Fixes against one aggressor, the best one first.
pub(crate) fn against(aggressor: &Aggressor, facts: &Facts<'_>) -> Vec<Fix> {
    let party = || Party::of(aggressor);
    let change = |change: Change| Fix::against(Action::Change { party: party(), change });
    match aggressor.means {
        Means::Data => vec![change(Change::DeviceForData)],
        Means::Journal => vec![change(Change::DeviceForInodes)],
        Means::Queue | Means::Beside | Means::Cache => {
            let disk = disk(facts).map(str::to_owned);
            let resource = Resource::WriteRate { disk: disk.clone(), bytes_per_s: write_rate(aggressor, facts) };
            let limit = Fix::against(Action::Limit { party: party(), resource });
            vec![limit.measured(measured::write_limit(aggressor, facts)), change(Change::DeviceForQueue { disk })]
        }
        Means::DirtyPages => {
            let mut bound = memory(party());
            if matches!(bound.action, Action::Limit { .. }) {
                bound.text.push_str(", which also bounds what it may dirty");
            }
            vec![bound, change(Change::DirectWrites)]
        }
        Means::Memory => {
            let bound = memory(party());
            let is_moved = matches!(bound.action, Action::OwnMemory { .. });
            vec![bound.measured(is_moved.then_some(&measured::OWN_MEMORY_CGROUP))]
        }
        Means::DroppedCache => vec![change(Change::KeepPageCache)],
        Means::Lock => vec![change(Change::ShortLocks)],
        Means::Running => vec![change(Change::ShortRuns)],
        Means::Cpu => vec![Fix::against(Action::Limit { party: party(), resource: Resource::Cpu })],
    }
}

/// A limit on the party's cgroup, or a new cgroup: pages stay charged to the old one.
fn memory(party: Party) -> Fix {
    Fix::against(match party.own_cgroup() {
        Some(_) => Action::Limit { party, resource: Resource::Memory },
        None => Action::OwnMemory { party },
    })
}

/// A quarter of what the aggressor wrote per second, in MiB.
fn write_rate(aggressor: &Aggressor, facts: &Facts<'_>) -> u64 {
    let theirs = facts.recording.queue_owners.iter().filter(|row| {
        row.op == RequestOp::Write
            && row.owner.as_ref().is_some_and(|owner| {
                owner.cgroup == aggressor.cgroup && (aggressor.several || owner.name == aggressor.program)
            })
    });
    let bytes = theirs.fold(0_u64, |sum, row| sum.saturating_add(row.bytes));
    let seconds = (facts.duration_ns / 1_000_000_000).max(1);
    let quarter = bytes.checked_div(seconds).unwrap_or(bytes) / 4;
    quarter.max(WRITE_RATE_MIN) >> 20 << 20
}

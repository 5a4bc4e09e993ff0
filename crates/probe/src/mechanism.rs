//! How a neighbour made the calls wait: the recording's attribution, summed over the phases beside it.
//!
//! The causes of segments and the parties that share their time are those of `explain`. What is shared follows from
//! where the neighbour runs: on another file system it cannot share the journal.

use std::collections::BTreeMap;

use flatwater_explain::aggressor::{Links, Means, Party, segment};
use flatwater_recording::{Call, Cause, Recording};
use serde::Serialize;

use flatwater_recording::named_enum;

use super::plan::{Load, Operation, Relation};

named_enum! {
    /// What the victim shares with the neighbour, and waits for.
    Mechanism, text {
        SharedJournal => "shared-journal", "shared journal";
        DeviceQueue => "device-queue", "device queue";
        DirtyLimit => "dirty-limit", "dirty limit";
        OwnLimit => "own-limit", "limit of the own cgroup";
        Cache => "cache", "page cache";
        Lock => "lock", "lock of the file system";
        Processor => "processor", "processor";
        CannotTell => "cannot-tell", "cannot tell";
    }
}

/// The mechanism must explain at least this share of the time by which the calls became longer.
const SHARE_MIN: f64 = 0.4;

/// A mechanism and how much it explains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Found {
    pub name: Mechanism,
    /// Share of the slow calls' additional time, 0 to 1; absent if nothing is known.
    pub share: Option<f64>,
    /// Share of that time for which requests, locks or data of the probe's own neighbour are known to be the reason.
    pub neighbour_share: Option<f64>,
}

impl Found {
    pub const UNKNOWN: Found = Found { name: Mechanism::CannotTell, share: None, neighbour_share: None };
}

/// A pair of a call and a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub operation: Operation,
    pub load: Load,
    pub relation: Relation,
    /// The victim's cgroup limits memory, and the neighbour is in it.
    pub memory_limited: bool,
    pub neighbour_pid: u32,
    /// The victim's file system has a journal.
    pub has_journal: bool,
}

/// An interval on the recording's clock, ns.
pub type Span = (u64, u64);

/// The recording's slow calls, with their charges.
#[derive(Debug)]
pub struct Attribution<'a> {
    recording: &'a Recording,
    links: Links<'a>,
}

/// Time by mechanism, ns, and the part that is the neighbour's.
#[derive(Debug, Default)]
struct Tally {
    by: BTreeMap<Mechanism, f64>,
    neighbour: BTreeMap<Mechanism, f64>,
}

impl<'a> Attribution<'a> {
    #[must_use]
    pub fn of(recording: &'a Recording) -> Attribution<'a> {
        Attribution { recording, links: Links::of(recording) }
    }

    /// Whether a bound of the analysis was reached, so that some rows were not examined.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.links.is_spent()
    }

    /// The mechanism of this pair, from the calls that began in these phases.
    #[must_use]
    pub fn mechanism(&self, pair: &Pair, alone: &[Span], beside: &[Span]) -> Found {
        let (before, mut after) = (self.tally(pair, alone), self.tally(pair, beside));
        let length =
            |spans: &[Span]| spans.iter().map(|(from, to)| to.saturating_sub(*from)).sum::<u64>().max(1) as f64;
        let scale = length(beside) / length(alone);
        for (mechanism, ns) in before.by {
            if let Some(more) = after.by.get_mut(&mechanism) {
                *more = (*more - ns * scale).max(0.0);
            }
        }
        let total: f64 = after.by.values().sum();
        let most = after.by.iter().max_by(|one, other| one.1.total_cmp(other.1));
        let Some((name, ns)) = most.filter(|(name, ns)| **ns >= SHARE_MIN * total && **name != Mechanism::CannotTell)
        else {
            return Found::UNKNOWN;
        };
        let neighbour = after.neighbour.get(name).copied().unwrap_or(0.0);
        Found {
            name: *name,
            share: Some(rounded(ns / total.max(1.0))),
            neighbour_share: Some(rounded((neighbour / total.max(1.0)).min(1.0))),
        }
    }

    fn tally(&self, pair: &Pair, spans: &[Span]) -> Tally {
        let mut tally = Tally::default();
        let thread = pair.operation.thread();
        let within = |call: &&Call| spans.iter().any(|(from, to)| (*from..*to).contains(&call.start_ns));
        for call in self.recording.calls.iter().filter(|call| call.thread == thread).filter(within) {
            for (place, part) in call.segments.iter().enumerate() {
                for share in segment(&self.links, call, place) {
                    let mechanism = pair.classify(part.cause, &share.party, share.means);
                    *tally.by.entry(mechanism).or_default() += share.ns as f64;
                    if matches!(share.party, Party::Other(task) if task.pid == pair.neighbour_pid) {
                        *tally.neighbour.entry(mechanism).or_default() += share.ns as f64;
                    }
                }
            }
        }
        tally
    }
}

fn rounded(share: f64) -> f64 {
    (share * 100.0).round() / 100.0
}

impl Pair {
    /// What a charged interval says about the mechanism.
    fn classify(&self, cause: Cause, party: &Party<'_>, means: Means) -> Mechanism {
        let again = if self.memory_limited { Mechanism::OwnLimit } else { Mechanism::Cache };
        if matches!(party, Party::Limit(_)) {
            return Mechanism::OwnLimit;
        }
        match cause {
            Cause::DirtyThrottle => Mechanism::DirtyLimit,
            Cause::MemcgReclaim | Cause::MemcgOverHigh | Cause::CpuQuota => Mechanism::OwnLimit,
            Cause::ReclaimThrottle | Cause::DirectReclaim | Cause::NodeReclaim | Cause::Compaction => again,
            Cause::RunQueue | Cause::Steal | Cause::Interrupt => Mechanism::Processor,
            Cause::JournalCommit | Cause::JournalFull | Cause::JournalBuffer => self.journal(),
            _ if matches!(means, Means::Journal | Means::Data) => self.journal(),
            _ if matches!(means, Means::Memory | Means::DroppedCache) => again,
            _ if means == Means::DirtyPages => Mechanism::DirtyLimit,
            _ if means == Means::Cpu => Mechanism::Processor,
            // The page was in the cache before the neighbour came.
            Cause::SynchronousRead | Cause::DeviceWait if self.operation == Operation::CachedRead => again,
            Cause::SynchronousRead
            | Cause::DeviceWait
            | Cause::DeviceSlow
            | Cause::RequestQueue
            | Cause::PageWriteback
            | Cause::StablePage => Mechanism::DeviceQueue,
            Cause::Lock => Mechanism::Lock,
            _ if means == Means::Lock => Mechanism::Lock,
            _ => Mechanism::CannotTell,
        }
    }

    /// A wait for a commit: of the changes of a neighbour in the same file system, or behind its requests.
    fn journal(&self) -> Mechanism {
        let shared = self.has_journal && self.relation.shares_file_system() && self.load.writes();
        if shared { Mechanism::SharedJournal } else { Mechanism::DeviceQueue }
    }
}

#[cfg(test)]
mod tests {
    use flatwater_explain::aggressor::{Means, Party};
    use flatwater_recording::Cause;

    use super::{Mechanism, Pair};
    use crate::plan::{Load, Operation, Relation};

    #[test]
    fn what_is_shared_follows_from_where_the_neighbour_runs() {
        let pair = |operation, load, relation| Pair {
            operation,
            load,
            relation,
            memory_limited: false,
            neighbour_pid: 1,
            has_journal: true,
        };
        let of = |pair: Pair, cause, means| pair.classify(cause, &Party::Unknown, means);
        let same = pair(Operation::Fsync, Load::Dirty, Relation::SameFileSystem);
        assert_eq!(of(same, Cause::JournalCommit, Means::Queue), Mechanism::SharedJournal);
        let device = Pair { relation: Relation::SameDevice, ..same };
        assert_eq!(of(device, Cause::JournalCommit, Means::Queue), Mechanism::DeviceQueue);
        // An ext4 without a journal was reported as sharing one: a flush writes the neighbour's data, too.
        let without = Pair { has_journal: false, ..same };
        assert_eq!(of(without, Cause::DeviceWait, Means::Data), Mechanism::DeviceQueue);
        let reader = Pair { load: Load::Cache, ..same };
        assert_eq!(of(reader, Cause::JournalCommit, Means::Queue), Mechanism::DeviceQueue, "it changes nothing");
        let cached = Pair { operation: Operation::CachedRead, ..same };
        assert_eq!(of(cached, Cause::SynchronousRead, Means::Running), Mechanism::Cache);
        let limited = Pair { memory_limited: true, ..cached };
        assert_eq!(of(limited, Cause::SynchronousRead, Means::Running), Mechanism::OwnLimit);
        assert_eq!(of(same, Cause::DirtyThrottle, Means::Running), Mechanism::DirtyLimit);
        assert_eq!(of(same, Cause::Unexplained, Means::Running), Mechanism::CannotTell);
    }
}

//! The order of findings: one sort, and one table of rules that override the sort.
//!
//! The sort puts the kind of evidence first ([`Origin`]), then most stall time, then confidence; candidates that are
//! equal in these keep the order of the catalogue. [`RULES`] lists the pairs of which one precedes the other whatever
//! the sort says, each with its reason.

use std::cmp::{Ordering, Reverse};

use super::Finding;
use super::cause::{CauseId, out_of_memory};
use super::facts::Facts;
use flatwater_recording::short_sort::ShortSort;

/// A finding that has no place yet.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub finding: Finding,
    pub origin: Origin,
}

/// The evidence of a candidate, in the order of reports. `place` is the candidate's place among those with the same
/// evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Samples of running code say where CPU time went; counters say only that something was busy.
    Profile { place: usize },
    /// Stacks of sleeping tasks say where tasks wait; a group that others wait for has the first place.
    Stacks { place: usize },
    /// Timed calls and counters.
    Figures,
}

impl Candidate {
    #[must_use]
    pub fn figures(finding: Finding) -> Candidate {
        Candidate { finding, origin: Origin::Figures }
    }
}

/// The findings that a side of a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Any,
    Cause(CauseId),
    /// Causes whose time went mostly to a device.
    DeviceBound,
}

/// The condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// The kernel killed a recorded process for lack of memory.
    RecordedProcessKilled,
    /// The later finding has no stall time.
    LaterHasNoTime,
    /// Both lost the same time.
    SameTime,
    /// The earlier finding is the reason of the worst finding's time at the device.
    ReasonAtDevice,
}

/// `before` precedes `after`.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub before: Subject,
    pub after: Subject,
    pub when: When,
    pub reason: &'static str,
}

const fn rule(before: Subject, after: Subject, when: When, reason: &'static str) -> Rule {
    Rule { before, after, when, reason }
}

const fn reason_of(before: CauseId, after: CauseId, reason: &'static str) -> Rule {
    rule(Subject::Cause(before), Subject::Cause(after), When::LaterHasNoTime, reason)
}

const fn at_device(before: CauseId, reason: &'static str) -> Rule {
    rule(Subject::Cause(before), Subject::DeviceBound, When::ReasonAtDevice, reason)
}

/// The rules, strongest first: a rule that contradicts stronger ones has no effect.
pub const RULES: &[Rule] = &[
    rule(
        Subject::Cause(CauseId::NotObserved),
        Subject::Any,
        When::Always,
        "counters of the machine say nothing about the targets",
    ),
    rule(
        Subject::Cause(CauseId::OutOfMemory),
        Subject::Any,
        When::RecordedProcessKilled,
        "a killed program did not stall, whatever its last calls waited for",
    ),
    rule(Subject::Any, Subject::Cause(CauseId::Unexplained), When::Always, "what is known helps more"),
    reason_of(CauseId::LowmemExhausted, CauseId::OutOfMemory, "the kernel kills when the zone is full"),
    reason_of(CauseId::CgroupLimitCache, CauseId::OutOfMemory, "the kernel kills when the cgroup is full"),
    reason_of(CauseId::SlabLeak, CauseId::OutOfMemory, "the slabs filled memory"),
    reason_of(CauseId::PageLeak, CauseId::OutOfMemory, "the lost pages filled memory"),
    reason_of(CauseId::DirtyThrottle, CauseId::OutOfMemory, "dirty pages filled the cgroup"),
    reason_of(CauseId::Fragmentation, CauseId::OutOfMemory, "memory was free, in blocks that are too small"),
    reason_of(CauseId::SwapStorm, CauseId::DeviceSlow, "swapping keeps the device busy"),
    reason_of(CauseId::ThpStall, CauseId::Fragmentation, "huge pages need the large blocks"),
    at_device(CauseId::IoThrottle, "a limit delayed the requests before the device got them"),
    at_device(CauseId::DeviceQueueStarved, "the requests were queued behind others"),
    at_device(CauseId::DeviceSlow, "the device itself took the time"),
    at_device(CauseId::RunQueue, "threads that serve the requests waited for a CPU"),
    at_device(CauseId::CgroupLimitCache, "the reads were of pages that a full cgroup had evicted"),
    at_device(CauseId::CacheDropped, "the reads were of pages that were dropped from the cache"),
    rule(
        Subject::Cause(CauseId::CacheDropped),
        Subject::Cause(CauseId::SynchronousRead),
        When::SameTime,
        "the reads were of pages that were dropped from the cache",
    ),
];

/// The facts that the rules' conditions refer to.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    pub recorded_process_killed: bool,
    pub device_bound: Vec<CauseId>,
    pub reason_at_device: Option<CauseId>,
}

impl Situation {
    #[must_use]
    pub fn of(facts: &Facts<'_>, candidates: &[Candidate]) -> Situation {
        let device_bound: Vec<CauseId> = facts.charges.device_causes().map(CauseId::from).collect();
        Situation {
            recorded_process_killed: out_of_memory::killed_recorded(facts),
            reason_at_device: reason_at_device(&device_bound, candidates),
            device_bound,
        }
    }
}

/// If the worst finding waited mostly for a device, the reason found at the device that explains more than half of that
/// finding's time.
fn reason_at_device(device_bound: &[CauseId], candidates: &[Candidate]) -> Option<CauseId> {
    let findings = || candidates.iter().map(|candidate| &candidate.finding);
    let worst = candidates
        .iter()
        .filter(|candidate| candidate.finding.cause != CauseId::Unexplained)
        .min_by(|a, b| sorted(a, b))?;
    if !device_bound.contains(&worst.finding.cause) {
        return None;
    }
    let half_ns = worst.finding.lost_ns.unwrap_or(0) / 2;
    let is_reason = |cause| RULES.iter().any(|rule| rule.is_of(cause, When::ReasonAtDevice));
    let reasons = findings().filter(|finding| is_reason(finding.cause) && finding.lost_ns > Some(half_ns));
    reasons.max_by_key(|finding| (finding.lost_ns, Reverse(finding.cause))).map(|finding| finding.cause)
}

impl Rule {
    fn is_of(&self, cause: CauseId, when: When) -> bool {
        self.before == Subject::Cause(cause) && self.when == when
    }

    /// Whether `a` must precede `b`.
    fn applies(&self, a: &Finding, b: &Finding, situation: &Situation) -> bool {
        let matches = |subject, finding: &Finding| match subject {
            Subject::Any => true,
            Subject::Cause(cause) => finding.cause == cause,
            Subject::DeviceBound => situation.device_bound.contains(&finding.cause),
        };
        let holds = match self.when {
            When::Always => true,
            When::RecordedProcessKilled => situation.recorded_process_killed,
            When::LaterHasNoTime => b.lost_ns.is_none(),
            When::SameTime => a.lost_ns == b.lost_ns,
            When::ReasonAtDevice => situation.reason_at_device == Some(a.cause),
        };
        let both_ways = matches(self.before, b) && matches(self.after, a);
        holds && !both_ways && matches(self.before, a) && matches(self.after, b)
    }
}

/// The sort without the rules.
fn sorted(a: &Candidate, b: &Candidate) -> Ordering {
    let key = |candidate: &Candidate| (candidate.origin, Reverse(candidate.finding.lost_ns.unwrap_or(0)));
    let confidence = b.finding.weight.total_cmp(&a.finding.weight);
    key(a).cmp(&key(b)).then(confidence).then(a.finding.cause.cmp(&b.finding.cause))
}

/// The candidates in the order of the report: each is the first of the sort that no remaining one must precede.
#[must_use]
pub fn order(mut candidates: Vec<Candidate>, situation: &Situation) -> Vec<Finding> {
    candidates.sort_short_by(sorted);
    let precedes = precedes(&candidates, situation);
    let mut left: Vec<(usize, Finding)> =
        candidates.into_iter().map(|candidate| candidate.finding).enumerate().collect();
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let free = |(place, _): &(usize, Finding)| !left.iter().any(|(other, _)| precedes[*other][*place]);
        // The rules have no cycle, so one is always free.
        let next = left.iter().position(free).unwrap_or(0);
        ordered.push(left.remove(next).1);
    }
    ordered
}

/// For each pair whether the first must precede the second, by one rule or through others.
fn precedes(candidates: &[Candidate], situation: &Situation) -> Vec<Vec<bool>> {
    let count = candidates.len();
    let mut precedes = vec![vec![false; count]; count];
    for rule in RULES {
        for (a, before) in candidates.iter().enumerate() {
            for (b, after) in candidates.iter().enumerate() {
                let contradicts = a == b || precedes[b][a];
                if contradicts || !rule.applies(&before.finding, &after.finding, situation) {
                    continue;
                }
                let earlier: Vec<usize> = (0..count).filter(|&first| first == a || precedes[first][a]).collect();
                let later: Vec<usize> = (0..count).filter(|&last| last == b || precedes[b][last]).collect();
                for first in earlier {
                    for &other in &later {
                        precedes[first][other] = true;
                    }
                }
            }
        }
    }
    precedes
}

#[cfg(test)]
mod tests;

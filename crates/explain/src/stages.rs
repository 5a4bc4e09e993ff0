//! Joins findings that have the same answer: the same processes made the calls wait, and the same fix helps. One of them
//! is the finding, the others are its stages.

use serde::Serialize;

use super::cause::CauseId;
use super::fix::Action;
use super::{Aggressor, Answerable, Evidence, Finding, Fix};
use flatwater_recording::{CauseBasis, DurationBasis};

/// A part of a stall that has the same answer as its finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stage {
    pub cause: CauseId,
    pub headline: String,
    /// Stall time of this cause, ns; it may overlap the finding's.
    pub lost_ns: Option<u64>,
    /// Share of the total that the finding's share refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    pub duration_basis: DurationBasis,
    pub cause_basis: CauseBasis,
    /// Shares of this stage's time by party; absent if the recording cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answerable: Option<Answerable>,
    pub evidence: Vec<Evidence>,
    /// Fixes that the finding does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<Fix>,
}

/// The findings in the same order, without the findings that became stages of earlier ones.
#[must_use]
pub fn join(findings: Vec<Finding>) -> Vec<Finding> {
    let mut joined: Vec<Finding> = Vec::with_capacity(findings.len());
    for finding in findings {
        match joined.iter_mut().find(|earlier| same_answer(earlier, &finding)) {
            Some(earlier) => {
                let stage = stage(finding, earlier);
                earlier.stages.push(stage);
            }
            None => joined.push(finding),
        }
    }
    joined
}

fn same_answer(one: &Finding, other: &Finding) -> bool {
    fn who(aggressor: &Aggressor) -> (&str, Option<&str>) {
        (&aggressor.program, aggressor.cgroup.as_deref())
    }
    fn first(finding: &Finding) -> Option<&Action> {
        finding.fixes.first().map(|fix| &fix.action).filter(|action| **action != Action::Advice)
    }
    let same_first = first(one).is_some() && first(one) == first(other);
    let some = !one.aggressors.is_empty();
    some && same_first && one.aggressors.iter().map(who).eq(other.aggressors.iter().map(who))
}

/// Numbers the fixes from 1, in the order in which a report prints them: a finding's own, then its stages'.
pub fn number_fixes(findings: &mut [Finding]) {
    let all = findings.iter_mut().flat_map(|finding| {
        let of_stages = finding.stages.iter_mut().flat_map(|stage| &mut stage.fixes);
        finding.fixes.iter_mut().chain(of_stages)
    });
    all.zip(1..).for_each(|(fix, number)| fix.number = number);
}

impl Finding {
    /// The fixes of the finding and its stages, in the order of their numbers.
    pub fn all_fixes(&self) -> impl Iterator<Item = &Fix> {
        self.fixes.iter().chain(self.stages.iter().flat_map(|stage| &stage.fixes))
    }
}

fn stage(finding: Finding, of: &Finding) -> Stage {
    Stage {
        cause: finding.cause,
        headline: finding.headline,
        lost_ns: finding.lost_ns,
        share: finding.share,
        duration_basis: finding.duration_basis,
        cause_basis: finding.cause_basis,
        answerable: finding.answerable,
        evidence: finding.evidence,
        fixes: finding.fixes.into_iter().filter(|fix| !of.fixes.iter().any(|known| known.is_same(fix))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{join, number_fixes};
    use crate::aggressor::Means;
    use crate::cause::CauseId;
    use crate::fix::{Action, Change, Party, Resource};
    use crate::{Aggressor, Evidence, Finding, Fix};

    fn finding(cause: CauseId, programs: &[&str], fixes: &[Fix]) -> Finding {
        let mut finding = Finding::inferred(cause, 0.9, cause.name());
        finding.aggressors = programs.iter().copied().map(by).collect();
        finding.fixes = fixes.to_vec();
        finding
    }

    fn by(program: &str) -> Aggressor {
        Aggressor::by(program, vec![7], (0.5, 1_000), Means::Queue, Evidence::new("requests", 1.0, ""))
    }

    fn limit(bytes_per_s: u64) -> Fix {
        let resource = Resource::WriteRate { disk: Some("vda".to_owned()), bytes_per_s };
        Fix::against(Action::Limit { party: Party::of(&by("dd")), resource })
    }

    fn elsewhere() -> Fix {
        Fix::against(Action::Change { party: Party::of(&by("dd")), change: Change::DeviceForData })
    }

    fn scheduler() -> Fix {
        Fix::knob("a scheduler", knob!("queue.scheduler"), "bfq")
    }

    fn causes(findings: &[Finding]) -> Vec<(CauseId, Vec<CauseId>)> {
        findings.iter().map(|one| (one.cause, one.stages.iter().map(|stage| stage.cause).collect())).collect()
    }

    #[test]
    fn findings_with_one_aggressor_and_one_fix_are_one_finding_with_stages() {
        let mut joined = join(vec![
            finding(CauseId::DeviceQueueStarved, &["dd"], &[limit(4 << 20), scheduler()]),
            finding(CauseId::Lock, &["dd"], &[elsewhere()]),
            finding(CauseId::DeviceWait, &["dd"], &[limit(4 << 20), scheduler(), elsewhere()]),
            finding(CauseId::PageWriteback, &["dd"], &[limit(4 << 20)]),
        ]);
        let expected =
            [(CauseId::DeviceQueueStarved, vec![CauseId::DeviceWait, CauseId::PageWriteback]), (CauseId::Lock, vec![])];
        assert_eq!(causes(&joined), expected);
        number_fixes(&mut joined);
        let numbers = |finding: &Finding| -> Vec<(usize, Action)> {
            finding.all_fixes().map(|fix| (fix.number, fix.action.clone())).collect()
        };
        let first = [limit(4 << 20), scheduler(), elsewhere()].map(|fix| fix.action);
        assert_eq!(
            numbers(&joined[0]),
            (1..).zip(first).collect::<Vec<_>>(),
            "no fix is lost, and none is there twice"
        );
        assert_eq!(numbers(&joined[1]), [(4, elsewhere().action)]);
    }

    #[test]
    fn fixes_are_the_same_by_value_and_not_by_their_text() {
        let worded = |bytes: u64, text: &str| Fix { text: text.to_owned(), ..limit(bytes) };
        let both = |one: Fix, other: Fix| {
            let second = finding(CauseId::PageWriteback, &["dd"], &[other]);
            join(vec![finding(CauseId::DeviceWait, &["dd"], &[one]), second]).len()
        };
        assert_eq!(both(worded(4 << 20, "limit dd"), worded(4 << 20, "limit what dd writes")), 1);
        assert_eq!(both(worded(4 << 20, "limit dd"), worded(8 << 20, "limit dd")), 2);
        assert_eq!(both(Fix::advice("look elsewhere"), Fix::advice("look elsewhere")), 2, "advice is not a value");
    }

    #[test]
    fn other_answers_stay_findings_of_their_own() {
        let two = |a: Finding, b: Finding| assert_eq!(join(vec![a, b]).len(), 2);
        let wait = |by: &[&str], fixes: &[Fix]| finding(CauseId::DeviceWait, by, fixes);
        let written = |by: &[&str], fixes: &[Fix]| finding(CauseId::PageWriteback, by, fixes);
        let limit = [limit(4 << 20)];
        two(wait(&["dd"], &limit), written(&["tar"], &limit));
        two(wait(&["dd"], &limit), written(&["dd", "tar"], &limit));
        // Without an aggressor, an equal fix does not make one story.
        two(wait(&[], &limit), written(&[], &limit));
        two(wait(&["dd"], &[]), written(&["dd"], &[]));
    }
}

//! Joins findings that have the same answer: the same processes made the calls wait, and the same fix helps. One of them
//! is the finding, the others are its stages.

use serde::Serialize;

use super::cause::CauseId;
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

/// The findings in the same order, without those that became stages of earlier ones.
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
    let same_first = one.fixes.first().is_some_and(|fix| Some(fix) == other.fixes.first());
    let some = !one.aggressors.is_empty();
    some && same_first && one.aggressors.iter().map(who).eq(other.aggressors.iter().map(who))
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
        fixes: finding.fixes.into_iter().filter(|fix| !of.fixes.contains(fix)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::join;
    use crate::aggressor::Means;
    use crate::cause::CauseId;
    use crate::{Aggressor, Evidence, Finding, Fix};

    fn finding(cause: CauseId, programs: &[&str], fixes: &[&str]) -> Finding {
        let mut finding = Finding::inferred(cause, 0.9, cause.name());
        let by = |program: &&str| {
            Aggressor::by(program, vec![7], (0.5, 1_000), Means::Queue, Evidence::new("requests", 1.0, ""))
        };
        finding.aggressors = programs.iter().map(by).collect();
        finding.fixes = fixes.iter().map(|text| Fix::advice(*text)).collect();
        finding
    }

    fn causes(findings: &[Finding]) -> Vec<(CauseId, Vec<CauseId>)> {
        findings.iter().map(|one| (one.cause, one.stages.iter().map(|stage| stage.cause).collect())).collect()
    }

    #[test]
    fn findings_with_one_aggressor_and_one_fix_are_one_finding_with_stages() {
        let joined = join(vec![
            finding(CauseId::DeviceQueueStarved, &["dd"], &["limit dd", "a scheduler"]),
            finding(CauseId::Lock, &["dd"], &["keep dd off the file"]),
            finding(CauseId::DeviceWait, &["dd"], &["limit dd", "a scheduler", "another device"]),
            finding(CauseId::PageWriteback, &["dd"], &["limit dd"]),
        ]);
        let expected =
            [(CauseId::DeviceQueueStarved, vec![CauseId::DeviceWait, CauseId::PageWriteback]), (CauseId::Lock, vec![])];
        assert_eq!(causes(&joined), expected);
        let fixes: Vec<&str> = joined[0].stages[0].fixes.iter().map(|fix| fix.text.as_str()).collect();
        assert_eq!(fixes, ["another device"], "no fix is lost, and none is printed twice");
    }

    #[test]
    fn other_answers_stay_findings_of_their_own() {
        let two = |a: Finding, b: Finding| assert_eq!(join(vec![a, b]).len(), 2);
        two(finding(CauseId::DeviceWait, &["dd"], &["limit"]), finding(CauseId::PageWriteback, &["tar"], &["limit"]));
        two(
            finding(CauseId::DeviceWait, &["dd"], &["limit"]),
            finding(CauseId::PageWriteback, &["dd", "tar"], &["limit"]),
        );
        // Without an aggressor, equal advice does not make one story.
        two(finding(CauseId::DeviceWait, &[], &["limit"]), finding(CauseId::PageWriteback, &[], &["limit"]));
        two(finding(CauseId::DeviceWait, &["dd"], &[]), finding(CauseId::PageWriteback, &["dd"], &[]));
    }
}

//! Moves findings that are consequences behind the finding that explains them: an OOM kill behind what filled
//! memory, a slow device behind the swapping that keeps it busy.

use super::Finding;
use super::cause::CauseId;

/// (consequence, possible reasons). A consequence is moved behind the last reason that was found.
const ENDS: &[(CauseId, &[CauseId])] = &[
    (
        CauseId::OutOfMemory,
        &[
            CauseId::LowmemExhausted,
            CauseId::CgroupLimitCache,
            CauseId::SlabLeak,
            CauseId::PageLeak,
            CauseId::DirtyThrottle,
            CauseId::Fragmentation,
        ],
    ),
    (CauseId::DeviceSlow, &[CauseId::SwapStorm]),
    (CauseId::Fragmentation, &[CauseId::ThpStall]),
];

/// Moves each consequence without a measured time behind its reasons.
pub fn before_their_ends(findings: &mut Vec<Finding>) {
    for (end, reasons) in ENDS {
        let Some(at) = findings.iter().position(|finding| finding.cause == *end && finding.lost_ns.is_none()) else {
            continue;
        };
        let reason = findings.iter().rposition(|finding| reasons.contains(&finding.cause));
        if let Some(behind) = reason.filter(|behind| *behind > at) {
            let end = findings.remove(at);
            findings.insert(behind, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::before_their_ends;
    use crate::Finding;
    use crate::cause::CauseId;

    #[test]
    fn an_oom_kill_comes_after_its_reason() {
        let order = |causes: &[CauseId]| {
            let mut findings: Vec<Finding> = causes.iter().map(|cause| Finding::inferred(*cause, 0.9, "")).collect();
            before_their_ends(&mut findings);
            findings.iter().map(|finding| finding.cause).collect::<Vec<_>>()
        };
        assert_eq!(
            order(&[CauseId::OutOfMemory, CauseId::CgroupLimitCache]),
            [CauseId::CgroupLimitCache, CauseId::OutOfMemory]
        );
        assert_eq!(
            order(&[CauseId::OutOfMemory, CauseId::Fragmentation]),
            [CauseId::Fragmentation, CauseId::OutOfMemory]
        );
        assert_eq!(order(&[CauseId::OutOfMemory, CauseId::KswapdLate]), [CauseId::OutOfMemory, CauseId::KswapdLate]);
        assert_eq!(order(&[CauseId::SlabLeak, CauseId::OutOfMemory]), [CauseId::SlabLeak, CauseId::OutOfMemory]);
    }
}

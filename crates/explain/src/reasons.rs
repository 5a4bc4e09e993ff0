//! Moves findings that are consequences behind the finding that explains them: an OOM kill behind what filled
//! memory, a slow device behind the swapping that keeps it busy.

use super::Finding;
use super::cause::{
    cgroup_limit_cache, device_slow, dirty_throttle, fragmentation, lowmem_exhausted, out_of_memory, page_leak,
    slab_leak, swap_storm, thp_stall,
};

/// (consequence, possible reasons). A consequence is moved behind the last reason that was found.
const ENDS: &[(&str, &[&str])] = &[
    (
        out_of_memory::ENTRY.name,
        &[
            lowmem_exhausted::ENTRY.name,
            cgroup_limit_cache::ENTRY.name,
            slab_leak::ENTRY.name,
            page_leak::ENTRY.name,
            dirty_throttle::ENTRY.name,
            fragmentation::ENTRY.name,
        ],
    ),
    (device_slow::ENTRY.name, &[swap_storm::ENTRY.name]),
    (fragmentation::ENTRY.name, &[thp_stall::ENTRY.name]),
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

    #[test]
    fn an_oom_kill_comes_after_its_reason() {
        let order = |causes: &[&'static str]| {
            let mut findings: Vec<Finding> = causes.iter().map(|cause| Finding::inferred(cause, 0.9, "")).collect();
            before_their_ends(&mut findings);
            findings.iter().map(|finding| finding.cause).collect::<Vec<_>>()
        };
        assert_eq!(order(&["out-of-memory", "cgroup-limit-cache"]), ["cgroup-limit-cache", "out-of-memory"]);
        assert_eq!(order(&["out-of-memory", "fragmentation"]), ["fragmentation", "out-of-memory"]);
        assert_eq!(order(&["out-of-memory", "kswapd-late"]), ["out-of-memory", "kswapd-late"]);
        assert_eq!(order(&["slab-leak", "out-of-memory"]), ["slab-leak", "out-of-memory"]);
    }
}

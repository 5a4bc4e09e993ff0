//! node-reclaim: the caller reclaims its own NUMA node although another has free pages.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::settings;
use crate::{Evidence, Finding, Fix, finding};
use flatwater_recording::Cause;
use flatwater_recording::schema::vmstat;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "node-reclaim",
    span: Some(Cause::NodeReclaim),
    headline: "the caller reclaims its own NUMA node instead of taking a free page of another (zone_reclaim_mode)",
    mechanism: "With vm.zone_reclaim_mode set, get_page_from_freelist (mm/page_alloc.c) calls node_reclaim \
        (zone_reclaim before 4.8) as soon as the local node is below its low watermark: the caller scans the node's \
        page cache from priority 4 and shrinks slab, and only if that yields nothing continues with the next node. \
        With the bits 2 and 4 it also writes dirty pages and unmaps or swaps. The scans are counted as pgscan_direct, \
        although no allocation has stalled.",
    kernels: "All NUMA kernels with CONFIG_NUMA; on by default until 3.15 where a distance exceeds the reclaim \
        distance, off by default since 3.16.",
    in_spans: "Measured: between mm_vmscan_node_reclaim_begin and _end (since 5.3).",
    in_counters: "pgscan_direct (pgscand/s) rises while allocstall and pgscan_kswapd do not; zone_reclaim_failed \
        rises (it counts unsuccessful attempts); other nodes keep free memory; numa_miss stays low.",
    against: "vm.zone_reclaim_mode is 0, or there is one node. kswapd scans as much as callers do.",
    fix: "vm.zone_reclaim_mode = 0. Where locality matters more than the tail, bind the program to the node and \
        keep its cache small.",
    prove: "Set vm.zone_reclaim_mode to 0 while it runs: pgscan_direct falls at once, numa_miss rises, the slow \
        calls end.",
    sources: &[
        "mm/page_alloc.c: get_page_from_freelist",
        "mm/vmscan.c: node_reclaim, __node_reclaim (zone_reclaim, __zone_reclaim before 4.8)",
        "Documentation/admin-guide/sysctl/vm.rst: zone_reclaim_mode",
    ],
    find,
};

/// Minimum pages scanned by callers over the whole recording.
const SCANNED_MIN: f64 = 2_000.0;
/// Above this ratio of kswapd's scans to the callers', it is ordinary direct reclaim.
const KSWAPD_SHARE_MAX: f64 = 0.5;
/// From this %vmeff the scans free pages as the mode intends; below, see zone-reclaim-thrash.
const EFFICIENCY_PERCENT_MIN: f64 = 20.0;

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fix = || {
        Fix::knob("take pages from other nodes instead of reclaiming the local one", knob!("vm.zone_reclaim_mode"), "0")
    };
    finding::from_spans(facts, Cause::NodeReclaim, ENTRY.headline, [fix()])
        .or_else(|| from_counters(facts).map(|found| found.fix(fix())))
}

/// The mode at work: callers scan and free pages of their node, and the allocator hardly stalls.
fn from_counters(facts: &Facts<'_>) -> Option<Finding> {
    let header = &facts.recording.header;
    let mode = settings::largest(facts.recording, "vm.zone_reclaim_mode").filter(|mode| *mode != 0)?;
    let scans = facts.scans().filter(|_| facts.may_infer() && header.machine.nodes.len() != 1)?;
    let (direct, kswapd) = (scans.direct()?, scans.kswapd()?);
    let efficiency = scans.efficiency_percent().filter(|percent| *percent >= EFFICIENCY_PERCENT_MIN)?;
    let stalls = facts.vmstat_rate(vmstat::ALLOCSTALL).mean();
    // As in zone-reclaim-thrash: stalls that could account for a tenth of the scans speak against it.
    let stalling = stalls.is_some_and(|stalls| stalls * scans.seconds() * 1000.0 >= 0.1 * direct);
    if direct < SCANNED_MIN || kswapd > KSWAPD_SHARE_MAX * direct || stalling {
        return None;
    }
    let stalled = match stalls {
        Some(stalls) if stalls > 0.0 => format!(", with {stalls:.1} stalls a second in the allocator (allocstall)"),
        Some(_) => ", without a stall in the allocator (allocstall)".to_owned(),
        None => String::new(),
    };
    let text = format!(
        "callers scanned {direct:.0} pages and kswapd {kswapd:.0}; {efficiency:.0} % of these were freed{stalled}"
    );
    let evidence = [
        Evidence::new(text, direct, "pages"),
        Evidence::new(format!("vm.zone_reclaim_mode is {mode}"), mode as f64, ""),
    ];
    Some(Finding::inferred(CauseId::NodeReclaim, 0.75, ENTRY.headline).with(evidence))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, Table};

    fn scans(kswapd_per_s: i64, direct_per_s: i64, steal_per_s: i64) -> RecordingBuilder {
        RecordingBuilder::new().scans(kswapd_per_s, direct_per_s, steal_per_s).knob("vm.zone_reclaim_mode", "1")
    }

    #[test]
    fn callers_that_scan_and_steal_at_home_are_named() {
        let finding = scans(10, 3_000, 2_900).found(&ENTRY).expect("node reclaim");
        assert!(!evidence_text(&finding).contains("stall"), "the log has no allocstall: {}", evidence_text(&finding));
        let columns: [(&str, &[i64]); 4] = [
            ("pgscan_kswapd", &rising(10, 20)),
            ("pgscan_direct", &rising(3_000, 20)),
            ("pgsteal", &rising(2_900, 20)),
            ("allocstall", &[4; 20]),
        ];
        let builder = RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &columns);
        let finding = builder.knob("vm.zone_reclaim_mode", "1").found(&ENTRY).expect("node reclaim");
        assert!(evidence_text(&finding).contains("without a stall in the allocator"), "{}", evidence_text(&finding));
    }

    #[test]
    fn scans_in_vain_kswapds_own_and_mode_0_are_not() {
        assert!(scans(0, 3_000, 20).found(&ENTRY).is_none(), "that is a thrash");
        assert!(scans(3_000, 3_000, 5_900).found(&ENTRY).is_none(), "kswapd scans too");
        assert!(scans(0, 3_000, 2_900).knob("vm.zone_reclaim_mode", "0").found(&ENTRY).is_none());
    }
}

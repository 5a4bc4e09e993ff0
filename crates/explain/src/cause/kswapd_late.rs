//! kswapd-late: pages are easy to reclaim, but callers reclaim before kswapd does.

use super::{CauseEntry, CauseId, direct_reclaim, zone_reclaim_thrash};
use crate::counters::{Scan, Scans};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};

/// Minimum pages per second scanned by callers in a window.
const DIRECT_PER_S_MIN: f64 = 200.0;
/// From this %vmeff, pages were easy to reclaim.
const EFFICIENCY_PERCENT_MIN: f64 = 50.0;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "kswapd-late",
    span: None,
    headline: "pages are easy to reclaim, but callers must reclaim before kswapd is ahead of them",
    mechanism: "kswapd (mm/vmscan.c: balance_pgdat) runs as an ordinary thread, one a node: it must be woken, be \
        scheduled and scan. Allocations continue in that time. A fast streamer, a fork or a network burst uses up what \
        lies between low and min within milliseconds; callers then reclaim beside it. High yields (%vmeff) on both \
        sides show that there was memory to free: kswapd was too late or too slow, for instance on a CPU that others \
        keep busy.",
    kernels: "All.",
    in_spans: "direct-reclaim, short (below some milliseconds) and in groups.",
    in_counters: "pgscan_kswapd and pgscan_direct rise in the same seconds, both with a %vmeff above 50 %; \
        allocstall rises; kswapd's CPU time is high or its CPU is busy.",
    against: "%vmeff is low: then there is little to reclaim, and waking earlier does not help.",
    fix: "Wake it earlier: vm.watermark_scale_factor 100 to 200. Limit the streamer (memory cgroup, O_DIRECT, fadvise \
        DONTNEED), and leave CPU time for kswapd.",
    prove: "Raise the watermark: pgscan_direct goes to 0 while pgscan_kswapd stays.",
    sources: &["mm/vmscan.c: kswapd, balance_pgdat, wakeup_kswapd"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer() || !direct_reclaim::at_work(facts) || zone_reclaim_thrash::signature(facts).is_some() {
        return None;
    }
    let both = |scan: &Scan| scan.is_direct(DIRECT_PER_S_MIN) && scan.kswapd.is_some_and(|pages| pages > 0.0);
    let busy = Scans { windows: facts.scans()?.windows.into_iter().filter(both).collect() };
    let percent = busy.efficiency_percent().filter(|percent| *percent >= EFFICIENCY_PERCENT_MIN)?;
    let (peak, _) = busy.peak_direct()?;
    let (kswapd, direct) = (busy.kswapd()?, busy.direct()?);
    let evidence = [
        Evidence::new(
            format!(
                "in {:.0} s both kswapd ({kswapd:.0} pages) and callers ({direct:.0} pages) scanned",
                busy.seconds()
            ),
            direct,
            "pages",
        )
        .at(peak.at_ns),
        Evidence::new(
            format!("{percent:.0} % of what was scanned was freed: there was plenty to reclaim"),
            percent,
            "%",
        ),
    ];
    let finding = Finding::inferred(CauseId::KswapdLate, 0.6, ENTRY.headline).with(evidence);
    let finding = finding.fix(Fix::knob("wake kswapd earlier", knob!("vm.watermark_scale_factor"), "200"));
    Some(
        finding.settle(
            "raise vm.watermark_scale_factor for a minute: pgscan_direct must go to 0 while pgscan_kswapd stays",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, rising};
    use flatwater_recording::{Cause, Entity, OpKind, Table};

    fn scans(steal_per_s: i64) -> RecordingBuilder {
        let columns = [
            ("pgscan_kswapd", rising(20_000, 8)),
            ("pgscan_direct", rising(3_000, 8)),
            ("pgsteal", rising(steal_per_s, 8)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        let builder = RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &columns);
        builder.slow(OpKind::Write, &[(Cause::DirectReclaim, 25.0)])
    }

    #[test]
    fn a_good_yield_on_both_sides_means_late() {
        assert!(scans(21_000).found(&ENTRY).is_some());
    }

    #[test]
    fn a_poor_yield_means_something_else() {
        assert!(scans(900).found(&ENTRY).is_none());
    }
}

//! zone-reclaim-thrash: callers scan their own node at full speed and free next to nothing.

use super::{CauseEntry, CauseId};
use crate::counters::Scans;
use crate::facts::Facts;
use crate::settings;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::Cause;
use flatwater_recording::schema::vmstat;
use flatwater_recording::units::Nanos;

/// Minimum pages scanned by callers per second in a busy window. Scanning 5000 pages takes a caller some
/// milliseconds; less would not be noticed.
const DIRECT_PER_S_MIN: f64 = 5_000.0;
/// Minimum busy windows, or seconds; less may be a single burst.
const BUSY_WINDOWS_MIN: usize = 3;
const BUSY_SECONDS_MIN: f64 = 10.0;
/// Up to this ratio of kswapd's scans to the callers', kswapd counts as idle.
const KSWAPD_SHARE_MAX: f64 = 0.1;
/// Below this %vmeff, scanning is mostly wasted.
const EFFICIENCY_PERCENT_MAX: f64 = 20.0;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "zone-reclaim-thrash",
    span: None,
    headline: "zone reclaim thrashes: callers scan their own node at full speed and free next to nothing",
    mechanism: "With vm.zone_reclaim_mode set, each allocation below the node's low watermark runs node_reclaim \
        (zone_reclaim before 4.8; mm/vmscan.c) before it tries another node. It may free only unmapped, clean page \
        cache unless bits 2 and 4 are set. Where the node is full of mapped or active pages the scan finds little, \
        and every further allocation scans again, from priority 4 (a sixteenth of each list). kswapd is not woken, \
        because the allocation has not failed yet. The more pages are mapped or in use, the worse the yield: time per \
        allocation grows without limit.",
    kernels: "All NUMA kernels with the mode set; it is the default until 3.15 where a distance exceeds the \
        reclaim distance.",
    in_spans: "node-reclaim holds the time of the slow calls.",
    in_counters: "pgscan_direct (pgscand/s) of thousands to millions a second for many intervals while pgscan_kswapd \
        (pgscank/s) is 0, and %vmeff falls below 20 %; allocstall does not rise; zone_reclaim_failed rises; other \
        nodes keep free pages.",
    against: "kswapd scans as much as the callers do, or allocstall rises with the scans: then it is ordinary \
        direct reclaim. One node only.",
    fix: "vm.zone_reclaim_mode = 0. If memory should stay local, bind the program (numactl --membind or \
        --interleave for a cache that spans nodes).",
    prove: "Set vm.zone_reclaim_mode to 0 while it runs and watch sar -B: pgscand/s falls to 0 within seconds and \
        latency with it.",
    sources: &[
        "mm/vmscan.c: zone_reclaim, __zone_reclaim (2.6.32); node_reclaim (4.8 and later)",
        "mm/page_alloc.c: get_page_from_freelist",
        "Documentation/admin-guide/sysctl/vm.rst: zone_reclaim_mode",
    ],
    find,
};

/// The windows in which callers scanned much, if the recording as a whole looks like node reclaim.
#[must_use]
pub fn signature(facts: &Facts<'_>) -> Option<Scans> {
    let off = settings::throughout(facts.recording, |setup| setup.number("vm.zone_reclaim_mode") == Some(0));
    if off || facts.recording.header.machine.nodes.len() == 1 {
        return None;
    }
    let busy =
        Scans { windows: facts.scans()?.windows.into_iter().filter(|scan| scan.is_direct(DIRECT_PER_S_MIN)).collect() };
    let direct = busy.direct()?;
    let long = busy.windows.len() >= BUSY_WINDOWS_MIN || busy.seconds() >= BUSY_SECONDS_MIN;
    // Without kswapd's counter, only the mode distinguishes this from ordinary reclaim.
    let is_on = || settings::largest(facts.recording, "vm.zone_reclaim_mode").is_some_and(|mode| mode != 0);
    let idle_kswapd = busy.kswapd().map_or_else(is_on, |pages| pages <= KSWAPD_SHARE_MAX * direct);
    let wasted = busy.efficiency_percent().is_none_or(|percent| percent < EFFICIENCY_PERCENT_MAX);
    // try_to_free_pages counts one allocstall and scans at least SWAP_CLUSTER_MAX = 32 pages; node_reclaim counts
    // none. Stalls that could account for a tenth of the scans, at a thousand pages each, speak against it.
    let stalls = facts.vmstat_rate(vmstat::ALLOCSTALL).mean();
    let not_stalling = stalls.is_none_or(|stalls| stalls * busy.seconds() * 1000.0 < 0.1 * direct);
    (long && idle_kswapd && wasted && not_stalling).then_some(busy)
}

/// Pages scanned by callers and by kswapd in these windows.
fn scanned(busy: &Scans) -> Option<Vec<Evidence>> {
    let (peak, per_s) = busy.peak_direct()?;
    let direct = busy.direct()?;
    let rate = direct / busy.seconds().max(1e-9);
    let callers = format!("callers scanned {rate:.0} pages/s over {:.0} s, at most {per_s:.0} pages/s", busy.seconds());
    let kswapd = busy.kswapd().map(|pages| {
        let text = match pages {
            0.0 => "kswapd scanned no page in that time".to_owned(),
            pages => {
                format!("kswapd scanned {pages:.0} pages in that time, the callers {:.0} times as many", direct / pages)
            }
        };
        Evidence::new(text, pages, "pages")
    });
    Some(std::iter::once(Evidence::new(callers, per_s, "pages/s").at(peak.at_ns)).chain(kswapd).collect())
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.may_infer() || (facts.spans_tell_all() && facts.significant(Cause::NodeReclaim).is_none()) {
        return None;
    }
    let busy = signature(facts)?;
    let mode = settings::largest(facts.recording, "vm.zone_reclaim_mode");
    let mut confidence: f64 = if mode.is_some() { 0.9 } else { 0.8 };
    let mut evidence = scanned(&busy)?;
    if let Some(sum) = facts.significant(Cause::NodeReclaim) {
        // Both sides show the scan: the counters, and the brackets around the callers.
        confidence += 0.05;
        let (calls, lost, worst) = (sum.calls, Nanos(sum.lost_ns), Nanos(sum.worst_ns));
        let text = format!("inside node_reclaim {calls} slow calls lost {lost}, the worst {worst} (bracketed)");
        evidence.push(Evidence::new(text, sum.lost_ns as f64, "ns"));
    }
    match busy.efficiency_percent() {
        Some(percent) => {
            let of = |scans: &[crate::counters::Scan]| Scans { windows: scans.to_vec() }.efficiency_percent();
            let half = busy.windows.len() / 2;
            let (early, late) = (of(&busy.windows[..half]), of(&busy.windows[half..]));
            let course = match (early, late) {
                (Some(early), Some(late)) if late < early => {
                    confidence += 0.05;
                    format!(", falling from {early:.2} % to {late:.2} %")
                }
                _ => String::new(),
            };
            let text = format!("of 100 pages scanned {percent:.2} were freed (%vmeff){course}");
            evidence.push(Evidence::new(text, percent, "%"));
        }
        None => confidence -= 0.15,
    }
    if let Some(mode) = mode {
        evidence.push(Evidence::new(format!("vm.zone_reclaim_mode is {mode}"), mode as f64, ""));
    }
    let finding = Finding::inferred(CauseId::ZoneReclaimThrash, confidence.min(0.95), ENTRY.headline)
        .with(evidence)
        .fix(Fix::knob(
            "take pages from other nodes instead of scanning the full one",
            knob!("vm.zone_reclaim_mode"),
            "0",
        ))
        .settle(
            "read /proc/sys/vm/zone_reclaim_mode; if it is not 0, set it to 0 and watch `sar -B 1`: pgscand/s must \
             fall at once",
        );
    Some(match mode {
        Some(_) => finding,
        None => finding.but([Evidence::statement(
            "the log does not show vm.zone_reclaim_mode; a machine with one node does not have this cause",
        )]),
    })
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, Table};

    fn scans(kswapd_per_s: i64, direct_per_s: i64, steal_per_s: i64) -> RecordingBuilder {
        RecordingBuilder::new().scans(kswapd_per_s, direct_per_s, steal_per_s)
    }

    #[test]
    fn callers_alone_scanning_in_vain_are_named() {
        let finding = scans(0, 1_700_000, 2_000).found(&ENTRY).expect("thrash");
        assert!(evidence_text(&finding).contains("0.12 were freed"), "{}", evidence_text(&finding));
        assert_eq!(finding.fixes[0].set().get("vm.zone_reclaim_mode"), Some("0"));
    }

    #[test]
    fn other_reclaim_is_not() {
        assert!(scans(30_000, 16_000, 500).found(&ENTRY).is_none(), "kswapd scans too");
        assert!(scans(0, 40_000, 39_000).found(&ENTRY).is_none(), "the yield is good");
        assert!(scans(0, 200, 2).found(&ENTRY).is_none(), "a few scans");
        assert!(scans(0, 1_700_000, 2_000).knob("vm.zone_reclaim_mode", "0").found(&ENTRY).is_none(), "mode 0");
        assert!(scans(0, 1_700_000, 2_000).node(0, 1 << 34, &[10]).found(&ENTRY).is_none(), "one node");
    }

    #[test]
    fn an_unknown_kswapd_is_not_idle() {
        let columns: [(&str, &[i64]); 2] =
            [("pgscan_direct", &rising(1_700_000, 20)), ("pgsteal_direct", &rising(2_000, 20))];
        let build = || RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &columns);
        assert!(build().found(&ENTRY).is_none(), "ordinary reclaim looks the same");
        let on = build().knob("vm.zone_reclaim_mode", "1").found(&ENTRY).expect("the mode is set");
        assert!(!evidence_text(&on).contains("kswapd"), "{}", evidence_text(&on));
        let idle = scans(0, 1_700_000, 2_000).found(&ENTRY).expect("thrash");
        assert!(evidence_text(&idle).contains("kswapd scanned no page in that time"), "{}", evidence_text(&idle));
    }

    #[test]
    fn stalls_in_the_allocator_make_it_direct_reclaim() {
        let stalls = rising(9_000, 20);
        let builder = scans(0, 1_700_000, 2_000).counters(Table::Vmstat, &Entity::default(), &[]);
        let mut recording = builder.done();
        recording.series[0].columns.push(flatwater_recording::SeriesColumn::new(
            "allocstall_normal",
            flatwater_recording::ColumnKind::Counter,
            stalls.into_iter().map(Some),
        ));
        assert!((ENTRY.find)(&crate::facts::Facts::of(&recording)).is_none());
    }
}

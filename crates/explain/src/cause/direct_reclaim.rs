//! direct-reclaim: the caller frees pages itself, because the zone is at its min watermark.

use super::{CauseEntry, CauseId, swap_storm, zone_reclaim_thrash};
use crate::counters::{Scan, Scans};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix, finding};
use flatwater_recording::Cause;
use flatwater_recording::schema::{Column, vmstat};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "direct-reclaim",
    span: Some(Cause::DirectReclaim),
    headline: "the caller reclaims memory itself: its zones were down at the min watermark",
    mechanism: "A page allocation that finds every allowed zone below the low watermark wakes kswapd and retries \
        against min (mm/page_alloc.c: __alloc_pages_slowpath). If that fails too, __alloc_pages_direct_reclaim runs \
        try_to_free_pages (mm/vmscan.c) in the caller: it scans LRU lists from priority 12 downwards in clusters of \
        32 pages until enough are free. A buffered write() allocates page-cache pages and, on file systems that use \
        them, buffer heads, so its caller pays for everything: scanning, unmapping, waiting for locks and writeback, \
        and every shrinker.",
    kernels: "All since 2.6; the names of the counters have changed (pgscan_direct_normal and its like until 4.7, \
        pgscan_direct since 4.8).",
    in_spans: "Measured: between mm_vmscan_direct_reclaim_begin and _end (since 2.6.36).",
    in_counters: "/proc/vmstat: pgscan_direct and allocstall rise together, pgsteal_direct behind them, while free \
        pages lie between the min and low watermarks. Memory pressure (PSI some) rises.",
    against: "allocstall does not rise although pgscan_direct does: then node (zone) reclaim scans. pgscan_direct \
        does not rise: only memory cgroups or kswapd reclaimed.",
    fix: "Start kswapd earlier: raise vm.watermark_scale_factor (since 4.6) or vm.min_free_kbytes, so that it keeps \
        up with the burst. Limit the neighbour that fills the page cache (a separate memory cgroup). Take \
        allocation out of the call: `--set precursor=window`.",
    prove: "Run again with the raised watermark: allocstall and the share of direct-reclaim must fall together: \
        `flatwater verify`.",
    sources: &[
        "mm/page_alloc.c: __alloc_pages_slowpath, __alloc_pages_direct_reclaim",
        "mm/vmscan.c: try_to_free_pages, do_try_to_free_pages",
        "Documentation/admin-guide/sysctl/vm.rst: min_free_kbytes, watermark_scale_factor",
    ],
    find,
};

/// Minimum pages per second scanned by callers, and the yield below which a window is wasteful.
const DIRECT_PER_S_MIN: f64 = 1_000.0;
const EFFICIENCY_PERCENT_MAX: f64 = 50.0;
/// Allocations per second sent into reclaim that matter whatever the yield.
const STALLS_PER_S_MIN: f64 = 10.0;

fn find(facts: &Facts<'_>) -> Option<Finding> {
    finding::from_spans(facts, Cause::DirectReclaim, ENTRY.headline, fixes())
        .or_else(|| inferred(facts))
        .or_else(|| from_isolated(facts))
        .or_else(|| from_pressure(facts))
}

/// mm/vmscan.c: a reclaiming task isolates up to this many pages at once (SWAP_CLUSTER_MAX).
const CLUSTER_PAGES: f64 = 32.0;
/// Minimum number of tasks in reclaim at once, and minimum share of isolated pages: more than kswapd isolates in a
/// moment.
const RECLAIMERS_MIN: f64 = 64.0;
const ISOLATED_SHARE_MIN: f64 = 0.05;

/// Isolated pages in memory reports and /proc/vmstat: 32 pages for each task in reclaim (or compaction). kswapd has
/// one thread per node.
fn from_isolated(facts: &Facts<'_>) -> Option<Finding> {
    // `None` if no column was read: unknown lists are not empty lists.
    let sum = |columns: &[Column]| {
        columns.iter().filter_map(|column| facts.level(*column, "").last()).reduce(|sum, pages| sum + pages)
    };
    let isolated = sum(&[vmstat::NR_ISOLATED_ANON, vmstat::NR_ISOLATED_FILE])?;
    let lists =
        sum(&[vmstat::NR_ACTIVE_ANON, vmstat::NR_INACTIVE_ANON, vmstat::NR_ACTIVE_FILE, vmstat::NR_INACTIVE_FILE])?;
    let tasks = isolated / CLUSTER_PAGES;
    if !facts.may_infer_place() || tasks < RECLAIMERS_MIN || isolated < ISOLATED_SHARE_MIN * lists {
        return None;
    }
    let text = format!(
        "{isolated:.0} pages are isolated from the LRU lists, {:.0} % of all: at 32 pages for each task in reclaim \
         that is about {tasks:.0} tasks",
        100.0 * isolated / (lists + isolated).max(1.0)
    );
    let mut finding = Finding::inferred(CauseId::DirectReclaim, 0.6, "many tasks seem to reclaim memory at once")
        .with([Evidence::new(text, isolated, "pages")])
        .but([Evidence::statement("compaction and page migration take pages off the lists too")]);
    finding.fixes.extend(fixes());
    Some(finding.settle("the stacks of all tasks (`echo t > /proc/sysrq-trigger`): how many are in try_to_free_pages"))
}

fn fixes() -> [Fix; 2] {
    [
        Fix::knob("start kswapd earlier: watermarks further apart", knob!("vm.watermark_scale_factor"), "200"),
        Fix::advice(
            "append through the precursor, so that no memory is allocated inside the call (`--set precursor=window`)",
        ),
    ]
}

/// Windows in which callers scanned much with a poor yield.
fn wasteful(scans: &Scans) -> Scans {
    let bad = |scan: &Scan| {
        let poor = scan.steal.is_none_or(|steal| 100.0 * steal < EFFICIENCY_PERCENT_MAX * scan.scanned());
        scan.is_direct(DIRECT_PER_S_MIN) && poor
    };
    Scans { windows: scans.windows.iter().copied().filter(bad).collect() }
}

/// `None` if the log does not have allocstall.
fn stalls_per_s(facts: &Facts<'_>) -> Option<f64> {
    facts.vmstat_rate(vmstat::ALLOCSTALL).mean()
}

/// Whether calls or counters show that callers reclaim on this machine.
#[must_use]
pub fn at_work(facts: &Facts<'_>) -> bool {
    facts.significant(Cause::DirectReclaim).is_some() || (facts.may_infer_place() && suspicion(facts).is_some())
}

fn suspicion(facts: &Facts<'_>) -> Option<(Scans, Option<f64>)> {
    if zone_reclaim_thrash::signature(facts).is_some() {
        return None;
    }
    let scans = facts.scans()?;
    let (bad, stalls) = (wasteful(&scans), stalls_per_s(facts));
    // One of sar's windows may be ten minutes long.
    let lasts = bad.windows.len() >= 2 || bad.seconds() >= 60.0;
    let often = lasts && bad.windows.len() >= scans.windows.len().div_ceil(20);
    let stalling = stalls.is_some_and(|stalls| stalls >= STALLS_PER_S_MIN);
    (often || (stalling && scans.direct().is_some_and(|pages| pages > 0.0))).then_some((bad, stalls))
}

/// From counters alone, which cannot say who was delayed and for how long.
fn inferred(facts: &Facts<'_>) -> Option<Finding> {
    let (bad, stalls) = suspicion(facts).filter(|_| facts.may_infer_place())?;
    let all = facts.scans()?;
    let (peak, per_s) = all.peak_direct()?;
    let mut finding = Finding::inferred(CauseId::DirectReclaim, 0.5, "callers had to reclaim memory themselves");
    let text = format!("callers scanned {:.0} pages in all, at most {per_s:.0} pages/s", all.direct()?);
    finding.evidence.push(Evidence::new(text, per_s, "pages/s").at(peak.at_ns));
    if let Some(percent) = bad.efficiency_percent() {
        let text = format!(
            "in {} of {} windows with a yield of {percent:.1} % (%vmeff)",
            bad.windows.len(),
            all.windows.len()
        );
        finding.evidence.push(Evidence::new(text, percent, "%"));
    }
    match stalls {
        Some(stalls) if stalls > 0.0 => {
            finding.weight = 0.7;
            let text = format!("{stalls:.1} allocations a second were sent into reclaim (allocstall)");
            finding.evidence.push(Evidence::new(text, stalls, "1/s"));
        }
        known => {
            let allocstall = if known.is_some() { "did not rise" } else { "is not in the log" };
            let text = format!("allocstall {allocstall}: node reclaim (zone_reclaim_mode) counts its scans here too");
            finding.against.push(Evidence::statement(text));
        }
    }
    finding.fixes.extend(fixes());
    Some(finding)
}

/// Minimum share of time in which some thread waited for memory.
const PRESSURE_MIN: f64 = 0.05;

/// From /proc/pressure/memory alone: threads wait for memory in one of several ways.
fn from_pressure(facts: &Facts<'_>) -> Option<Finding> {
    let others = swap_storm::signature(facts) || zone_reclaim_thrash::signature(facts).is_some();
    // If no caller scanned, the reason is a cgroup's limit, refaults or swap.
    let idle = facts.scans().and_then(|scans| scans.direct()).is_some_and(|pages| pages <= 0.0);
    let pressed = facts.pressed("memory").filter(|pressed| pressed.some >= PRESSURE_MIN)?;
    if others || idle || !facts.may_infer_place() {
        return None;
    }
    let finding = Finding::inferred(
        CauseId::DirectReclaim,
        0.45,
        "threads wait for memory: most likely they reclaim it themselves",
    );
    let finding = finding.with([pressed.evidence("memory")]);
    let mut finding = finding.but([Evidence::statement(
        "PSI also counts reclaim at a cgroup's limit, pages read back soon after they were dropped, and swap",
    )]);
    finding.fixes.extend(fixes());
    Some(finding.settle(
        "two readings of /proc/vmstat a minute apart: pgscan_direct and allocstall (reclaim), pswpin (swap), \
            workingset_refault_file (dropped too early); memory.events of the cgroup for its limit",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, rising};
    use flatwater_recording::{Cause, Entity, OpKind, Table};

    fn scans(kswapd: i64, direct: i64, steal: i64) -> RecordingBuilder {
        let columns = [
            ("pgscan_kswapd", rising(kswapd, 10)),
            ("pgscan_direct", rising(direct, 10)),
            ("pgsteal", rising(steal, 10)),
        ];
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &columns)
    }

    #[test]
    fn callers_that_scan_in_vain_are_suspected() {
        let finding = scans(30_000, 16_000, 500).found(&ENTRY).expect("16 000 pages/s at 1 %");
        assert_eq!(finding.basis, flatwater_recording::Basis::Inferred);
        assert!(finding.settle.contains("as root"));
    }

    #[test]
    fn memory_pressure_alone_is_reclaim_or_something_near_it() {
        let shown = |percent: i64| {
            let column: [(&str, &[i64]); 1] = [("some_avg60_centipercent", &[percent * 100])];
            RecordingBuilder::new().gauges(Table::Pressure, &Entity::named("memory"), &column)
        };
        let finding = shown(38).found(&ENTRY).expect("38 % of a minute");
        assert!(finding.weight < 0.5 && finding.settle.contains("allocstall") && !finding.against.is_empty());
        assert!(shown(1).found(&ENTRY).is_none());
    }

    #[test]
    fn isolated_pages_count_reclaiming_tasks() {
        let shown = |isolated: i64| {
            let columns: [(&str, &[i64]); 3] =
                [("nr_isolated_anon", &[isolated]), ("nr_active_anon", &[2_000_000]), ("nr_inactive_anon", &[450_000])];
            RecordingBuilder::new().gauges(Table::Vmstat, &Entity::default(), &columns)
        };
        let finding = shown(196_491).found(&ENTRY).expect("six thousand tasks");
        assert!(
            crate::testing::evidence_text(&finding).contains("about 6140 tasks"),
            "{}",
            crate::testing::evidence_text(&finding)
        );
        assert!(shown(3_200).found(&ENTRY).is_none(), "a hundred tasks, and the lists are full");
        assert!(shown(0).found(&ENTRY).is_none());
        let alone =
            RecordingBuilder::new().gauges(Table::Vmstat, &Entity::default(), &[("nr_isolated_anon", &[196_491])]);
        assert!(alone.found(&ENTRY).is_none(), "how long the lists are is not known");
    }

    #[test]
    fn allocstall_that_did_not_rise_is_in_the_log() {
        let without = scans(30_000, 16_000, 500).found(&ENTRY).expect("a poor yield");
        assert!(crate::testing::evidence_text(&without).contains("allocstall is not in the log"));
        let columns: [(&str, &[i64]); 3] =
            [("pgscan_direct", &rising(16_000, 10)), ("pgscan_kswapd", &rising(30_000, 10)), ("allocstall", &[7; 10])];
        let known =
            RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &columns).found(&ENTRY).expect("scans");
        assert!(crate::testing::evidence_text(&known).contains("allocstall did not rise"));
    }

    #[test]
    fn healthy_reclaim_and_fast_calls_are_not() {
        assert!(scans(30_000, 0, 29_000).found(&ENTRY).is_none(), "kswapd at work");
        assert!(scans(30_000, 900, 29_000).found(&ENTRY).is_none(), "a few direct scans with a good yield");
        assert!(
            scans(30_000, 16_000, 500).bucket("", OpKind::Write, &[2_000; 1000]).found(&ENTRY).is_none(),
            "every call was fast"
        );
        let named = scans(30_000, 16_000, 500).slow(OpKind::Write, &[(Cause::JournalCommit, 50.0)]);
        assert!(named.found(&ENTRY).is_none(), "the slow calls were somewhere else");
    }
}

//! thp-stall: page faults compact memory to get a huge page.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::settings;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::schema::{Column, vmstat};
use flatwater_recording::{Cause, Entity, Table};

const STALLS_PER_S_MIN: f64 = 2.0;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "thp-stall",
    span: None,
    headline: "page faults compact memory to get huge pages (transparent huge pages with direct defragmentation)",
    mechanism: "With transparent_hugepage/defrag = always (or madvise for regions that asked), a fault on anonymous \
        memory may reclaim and compact to get 512 contiguous pages (mm/huge_memory.c: do_huge_pmd_anonymous_page, \
        vma_thp_gfp_mask), and zeroes 2 MiB. Until 4.5 that was the default; since 4.6 the default is madvise, so \
        only programs that asked for huge pages stall. khugepaged works in the background in any case, and sometimes \
        holds the process's mmap_lock.",
    kernels: "2.6.38 and later; by default until 4.5.",
    in_spans: "compaction and direct-reclaim below page faults.",
    in_counters: "compact_stall rises with thp_fault_alloc and thp_fault_fallback.",
    against: "thp_fault_alloc and thp_fault_fallback do not rise: then something else needs large blocks \
        (fragmentation).",
    fix: "thp.defrag = defer+madvise or defer; thp.enabled = madvise.",
    prove: "Set thp.defrag to defer: compact_stall stops rising within a second.",
    sources: &["mm/huge_memory.c: vma_thp_gfp_mask", "Documentation/admin-guide/mm/transhuge.rst"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    from_rates(facts).or_else(|| since_boot(facts))
}

/// Minimum number of compacting callers since boot, and minimum share of failures.
const STALLS_MIN: i64 = 10_000;
const FAILED_SHARE_MIN: f64 = 0.7;

/// From one reading of /proc/vmstat, without rates: callers compacted mostly without success while faults asked for
/// huge pages.
fn since_boot(facts: &Facts<'_>) -> Option<Finding> {
    let rows = facts.recording.table(Table::Vmstat)?.rows_of(&Entity::default())?;
    let one = |column: Column| rows.last(column).filter(|_| facts.vmstat_rate(column).is_empty());
    let (stalls, failed) = (one(vmstat::COMPACT_STALL)?, one(vmstat::COMPACT_FAIL)?);
    let (given, refused) = (one(vmstat::THP_FAULT_ALLOC)?, one(vmstat::THP_FAULT_FALLBACK).unwrap_or(0));
    let vain = failed as f64 >= FAILED_SHARE_MIN * stalls as f64;
    if !facts.may_infer_place() || stalls < STALLS_MIN || !vain || given.saturating_add(refused) < stalls {
        return None;
    }
    let text = format!("callers compacted {stalls} times since boot, {failed} times without success");
    let huge = format!("{given} faults got a huge page and {refused} did not");
    let finding = Finding::inferred(CauseId::ThpStall, 0.4, ENTRY.headline)
        .with([Evidence::new(text, stalls as f64, "times"), Evidence::new(huge, given as f64, "faults")])
        .but([Evidence::statement("one reading counts since boot: it may have been long ago")]);
    let finding = finding.fix(Fix::knob("huge pages only where a program asks", knob!("thp.enabled"), "madvise"));
    Some(finding.settle("compact_stall and thp_fault_fallback of /proc/vmstat twice, a minute apart, while it is slow"))
}

fn from_rates(facts: &Facts<'_>) -> Option<Finding> {
    let blamed = facts.significant(Cause::Compaction).is_some();
    let off = settings::throughout(facts.recording, |setup| {
        let off = |mode: &str| mode.contains("[never]") || mode == "never";
        let deferred = |mode: &str| matches!(mode, "never" | "defer");
        setup.get("thp.enabled").is_some_and(off) || setup.get("thp.defrag").is_some_and(deferred)
    });
    if !facts.may_infer() || (facts.spans_tell_all() && !blamed) || off {
        return None;
    }
    let stalls = facts.vmstat_rate(vmstat::COMPACT_STALL).mean()?;
    let faults = facts.vmstat_rate(vmstat::THP_FAULT_ALLOC).mean().unwrap_or(0.0)
        + facts.vmstat_rate(vmstat::THP_FAULT_FALLBACK).mean().unwrap_or(0.0);
    // Each stall serves at most one fault: with fewer huge faults, something else compacts.
    if stalls < STALLS_PER_S_MIN || faults < 0.5 * stalls {
        return None;
    }
    let evidence = [
        Evidence::new(
            format!("{stalls:.1} callers a second compacted memory themselves (compact_stall)"),
            stalls,
            "1/s",
        ),
        Evidence::new(format!("{faults:.1} faults a second asked for a huge page"), faults, "1/s"),
    ];
    let mut finding =
        Finding::inferred(CauseId::ThpStall, if blamed { 0.85 } else { 0.7 }, ENTRY.headline).with(evidence);
    if let Some(defrag) = facts.recording.header.setup.get("thp.defrag") {
        finding.evidence.push(Evidence::statement(format!("thp.defrag is {defrag}")));
    }
    let finding = finding.fix(Fix::knob("let the background do the compaction", knob!("thp.defrag"), "defer"));
    let finding = finding.fix(Fix::knob("huge pages only where a program asks", knob!("thp.enabled"), "madvise"));
    Some(finding.settle("set thp.defrag to defer for a minute: compact_stall must stop rising"))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, rising};
    use flatwater_recording::{Entity, Table};

    fn stalls(stalls_per_s: i64, faults_per_s: i64) -> RecordingBuilder {
        let (stall, fault) = (rising(stalls_per_s, 8), rising(faults_per_s, 8));
        RecordingBuilder::new().counters(
            Table::Vmstat,
            &Entity::default(),
            &[("compact_stall", &stall), ("thp_fault_alloc", &fault)],
        )
    }

    #[test]
    fn huge_faults_that_compact_are_named() {
        assert!(stalls(40, 90).found(&ENTRY).is_some());
    }

    #[test]
    fn others_compacting_or_a_deferred_setting_are_not() {
        assert!(stalls(40, 0).found(&ENTRY).is_none());
        assert!(stalls(0, 90).found(&ENTRY).is_none());
        assert!(stalls(40, 90).knob("thp.defrag", "defer").found(&ENTRY).is_none());
    }
}

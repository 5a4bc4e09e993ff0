//! Says which LRU ran, in findings about reclaim: the two LRUs count different things in the same counters.

use super::cause::CauseId;
use super::{Evidence, Finding};
use flatwater_recording::Recording;
use flatwater_recording::knob::lru_gen_runs;

/// mm/vmscan.c, 6.1: shrink_inactive_list and shrink_active_list.
const LISTS: &str = "the active and inactive lists ran: pgscan counts each page that was examined on an inactive list, \
    pgrefill each on an active one";
/// mm/vmscan.c, 6.1: scan_folios counts what it isolated as pgscan and what it moved to another generation as pgrefill;
/// try_to_inc_max_seq, which walks page tables, counts nothing.
const GENERATIONS: &str = "the multi-generational LRU ran: pgscan counts only pages that were isolated from the oldest \
    generation, pgrefill pages that were moved to a younger one instead, and page table walks are not counted. A high \
    yield (%vmeff) does not mean that reclaim was cheap; the two youngest generations are what `active` counts";

/// Adds the kind of LRU to a finding about reclaim, if the recording has the setting (since 6.1).
pub fn describe(finding: &mut Finding, recording: &Recording) {
    let Some(bits) = recording.header.setup.get("lru_gen.enabled") else { return };
    let Some(runs) = lru_gen_runs(bits) else { return };
    let text = if runs { GENERATIONS } else { LISTS };
    let of_reclaim = [
        CauseId::DirectReclaim,
        CauseId::KswapdLate,
        CauseId::MemcgReclaim,
        CauseId::NodeReclaim,
        CauseId::ReclaimThrottle,
    ];
    if of_reclaim.contains(&finding.cause) {
        finding.evidence.push(Evidence::statement(format!("{text} (lru_gen.enabled = {bits})")));
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Cause, OpKind};

    fn first(cause: Cause, lru: Option<&str>) -> String {
        let builder = RecordingBuilder::new().slow(OpKind::Write, &[(cause, 500.0)]);
        let builder = lru.into_iter().fold(builder, |builder, bits| {
            builder.edit(|recording| recording.header.setup.observe("lru_gen.enabled", bits))
        });
        evidence_text(builder.explained().findings.first().expect("a finding"))
    }

    #[test]
    fn a_finding_about_reclaim_says_which_lru_its_counters_are_of() {
        let generations = first(Cause::DirectReclaim, Some("0x0007"));
        assert!(generations.contains("multi-generational LRU ran") && generations.contains("0x0007"), "{generations}");
        let lists = first(Cause::MemcgReclaim, Some("0x0000"));
        assert!(lists.contains("active and inactive lists ran"), "{lists}");
        // Bit 1 alone (batched clearing of accessed bits), without the main switch.
        assert!(first(Cause::DirectReclaim, Some("0x0002")).contains("inactive lists ran"));
        for (cause, bits) in [(Cause::DirectReclaim, None), (Cause::JournalCommit, Some("0x0007"))] {
            assert!(!first(cause, bits).contains("ran: pgscan"), "{cause:?} {bits:?}");
        }
    }
}

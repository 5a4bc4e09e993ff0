//! quiet: nothing is wrong, and that is said with figures.

use super::CauseEntry;
use crate::explain::facts::{Facts, LOST_SHARE_MIN};
use crate::explain::operations::operations;
use crate::explain::{Evidence, Finding};
use crate::recording::Basis;
use crate::units::Nanos;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "quiet",
    span: None,
    headline: "nothing is wrong here",
    mechanism: "No cause reached the size of a finding: less than 0.1 % of the recorded time was lost in slow \
        calls, no single call lost ten thresholds, and no counter shows the signature of a known stall.",
    kernels: "All.",
    in_spans: "Few or no slow calls.",
    in_counters: "No direct scans to speak of, no swapping, no queue; or counters that are busy and healthy: \
        kswapd scanning with a good yield, CPUs in use, a device that keeps up.",
    against: "A recording that is too short to hold the stall, or that lacks the table that would show it: look at \
        the gaps.",
    fix: "None needed. If the stall is rare, record longer.",
    prove: "Record over the time at which the stall is reported.",
    sources: &[],
    find,
};

/// Always answers: whoever asks has found nothing else.
fn find(facts: &Facts<'_>) -> Option<Finding> {
    let seen = facts.timed();
    let sampled = facts.recording.series.iter().any(|series| series.len() > 1);
    let mut finding = Finding::inferred(ENTRY.name, if seen { 0.95 } else { 0.7 }, ENTRY.headline);
    finding.basis = if seen { Basis::Exact } else { Basis::Inferred };
    finding.settle = String::new();
    if facts.calls > 0 {
        let text = format!(
            "{} calls were over {}: {} in {}, under the {:.1} % that count as a problem",
            facts.calls,
            Nanos(facts.threshold_ns),
            Nanos(facts.lost_ns),
            Nanos(facts.duration_ns),
            LOST_SHARE_MIN * 100.0
        );
        finding.evidence.push(Evidence::new(text, facts.lost_ns as f64, "ns"));
    }
    for line in operations(facts.recording).iter().filter(|line| line.thread.is_empty()).take(3) {
        let text = format!(
            "{}(): {} calls, p99.9 {}, worst {}",
            line.name,
            line.count,
            Nanos(line.from_start.p999_ns),
            Nanos(line.from_start.max_ns)
        );
        finding.evidence.push(Evidence::new(text, line.from_start.max_ns as f64, "ns"));
    }
    if !seen && !sampled {
        finding.confidence = 0.3;
        finding.headline = "nothing points to a known cause, but little was seen: no calls were timed and nothing was sampled over time".to_owned();
        finding.settle = super::super::finding::SETTLE_RECORD.to_owned();
    }
    Some(finding)
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{Made, said};
    use crate::recording::{Cause, OpKind};

    #[test]
    fn a_quiet_run_says_what_it_saw() {
        let made = Made::new().bucket("", OpKind::Write, &[1_900; 50_000]);
        let explanation = made.slow(OpKind::Write, &[(Cause::RunQueue, 1.4)]).explained();
        assert_eq!(explanation.findings.len(), 1);
        let text = said(&explanation.findings[0]);
        assert!(text.contains("1 calls were over 1 ms: 1.40 ms in 10 s") && text.contains("50000 calls"), "{text}");
    }

    #[test]
    fn an_empty_recording_claims_little() {
        let finding = &Made::new().explained().findings[0];
        assert!(finding.confidence < 0.5 && finding.headline.contains("little was seen"));
    }
}

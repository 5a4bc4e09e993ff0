//! The whole of it: every finder asked, its findings put in order, and what must be said at the top.

use super::cause::{CAUSES, not_observed, quiet, unexplained};
use super::facts::Facts;
use super::focus::Judged;
use super::since::fit;
use super::victim::Groups;
use super::{Conclusion, Explanation, Finding, Focus, Focused, operations, settings, slow};
use flatwater_recording::{Note, Recording};

/// Version of the shape of `Explanation`.
const EXPLANATION_VERSION: u32 = 1;

/// Explains a recording. Total: whatever is missing from it becomes a note or an unexplained share.
#[must_use]
pub fn explain(recording: &Recording) -> Explanation {
    explain_focused(recording, &Focus::default())
}

/// Explains what the calls in focus waited for.
#[must_use]
pub fn explain_focused(recording: &Recording, focus: &Focus) -> Explanation {
    let all = Facts::of(recording);
    let groups = Groups::of_recording(recording);
    let judged = Judged::choose(focus, recording, &groups, |lost_ns, worst_ns| all.enough(lost_ns, worst_ns));
    let judged_facts = judged.focused.as_ref().map(|_| Facts::of_calls(recording, |call| judged.keeps(call)));
    let facts = judged_facts.as_ref().unwrap_or(&all);
    // What the user picked is all that is summed; what flatwater picked decides the findings alone.
    let summed = if judged.focused.as_ref().is_some_and(|focused| focused.given) { facts } else { &all };
    let findings = findings(facts);
    Explanation {
        flatwater: EXPLANATION_VERSION,
        kind: "explanation",
        source: recording.header.source.name(),
        seed: recording.header.seed,
        duration_ns: facts.duration_ns,
        operations: operations::operations(recording),
        slow: slow::summary(summed),
        conclusion: conclusion(&findings),
        findings,
        observed: recording.header.observed.clone(),
        gaps: recording.gaps_found(),
        own_cost: recording.header.own_cost,
        workload: recording.outcomes.clone(),
        notes: notes(facts, judged.focused.as_ref()),
        victims: groups.victims,
        focus: judged.focused,
    }
}

fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let recording = facts.recording;
    let apart = [not_observed::ENTRY.name, quiet::ENTRY.name];
    let asked = CAUSES.iter().filter(|entry| !apart.contains(&entry.name));
    let mut findings: Vec<Finding> = asked.filter_map(|entry| (entry.find)(facts)).collect();
    // Stable: among equals the catalogue's order holds, in which the direct cause stands before its reasons.
    findings.sort_by(|a, b| rank(a).cmp(&rank(b)).then(b.confidence.total_cmp(&a.confidence)));
    // It leads: whatever counters suggest about the machine, nothing is known of the targets.
    findings.splice(0..0, (not_observed::ENTRY.find)(facts));
    if findings.is_empty() {
        findings.extend((quiet::ENTRY.find)(facts));
    }
    for finding in &mut findings {
        let fixes = std::mem::take(&mut finding.fixes);
        let worth = fixes.into_iter().filter_map(|fix| settings::fit(fix, finding, recording));
        finding.fixes = worth.map(|fix| fit(fix, facts)).collect();
    }
    findings
}

fn conclusion(findings: &[Finding]) -> Conclusion {
    match findings.first() {
        Some(finding) if finding.cause == quiet::ENTRY.name => Conclusion::Quiet,
        Some(finding) if finding.cause == not_observed::ENTRY.name => Conclusion::NotObserved,
        _ => Conclusion::Findings,
    }
}

/// Most time lost first; then what counters suggest; then that something stayed unexplained.
fn rank(finding: &Finding) -> (bool, std::cmp::Reverse<u64>) {
    (finding.cause == unexplained::ENTRY.name, std::cmp::Reverse(finding.lost_ns.unwrap_or(0)))
}

fn notes(facts: &Facts<'_>, focused: Option<&Focused>) -> Vec<Note> {
    let header = &facts.recording.header;
    let mut notes = header.notes.clone();
    notes.extend(focused.filter(|focused| focused.given && focused.calls == 0).map(|focused| {
        let text = format!(
            "no slow call matches --focus {}: {} of others are left out; without --focus the report lists them",
            focused.on, focused.other_calls
        );
        Note::from(text)
    }));
    notes
        .extend(not_observed::untimed(&header.observed).into_iter().map(|line| format!("not observed: {line}").into()));
    if header.time_distorted {
        notes.push(Note::TimeDistorted);
    }
    if header.losses.any() {
        notes.push(Note::Losses(header.losses));
    }
    notes.extend(facts.sums().filter(|sum| facts.is_noise(sum)).map(|sum| Note::BelowNoise {
        cause: sum.cause,
        worst_ns: sum.worst_ns,
        noise_ns: facts.noise_ns,
    }));
    notes
}

#[cfg(test)]
mod tests {
    use crate::testing::Made;
    use flatwater_recording::{Cause, Noise, Note, OpKind};

    #[test]
    fn findings_stand_in_order_of_time_lost_and_unexplained_last() {
        let made = Made::new().slow(OpKind::Write, &[(Cause::JournalCommit, 20.0), (Cause::Unexplained, 60.0)]);
        let explanation = made.slow(OpKind::Write, &[(Cause::MemcgReclaim, 40.0)]).explained();
        let names: Vec<&str> = explanation.findings.iter().map(|finding| finding.cause).collect();
        assert_eq!(names, ["memcg-reclaim", "journal-commit", "unexplained"]);
    }

    #[test]
    fn nothing_in_it_is_quiet_and_only_quiet() {
        let findings = Made::new().explained().findings;
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].cause, "quiet");
    }

    #[test]
    fn what_the_machine_loses_anyway_is_not_blamed_on_memory() {
        let noise = Noise { gap_ns_max: 30_000_000, ..Noise::default() };
        let made = Made::new().slow(OpKind::Write, &[(Cause::DirectReclaim, 25.0)]);
        let made = made.slow(OpKind::Write, &[(Cause::DirectReclaim, 12.0)]);
        let explanation = made.edit(|recording| recording.header.noise_before = Some(noise)).explained();
        assert_eq!(explanation.findings[0].cause, "quiet");
        assert!(
            explanation.notes.iter().any(|note| note.to_string().contains("direct-reclaim of 25 ms at most")),
            "{:?}",
            explanation.notes
        );
    }

    #[test]
    fn what_is_blamed_is_not_said_to_be_spared() {
        let noise = Noise {
            gap_ns_max: 30_000_000,
            gaps: 1,
            gaps_total_ns: 30_000_000,
            spin_ns: 10_000_000_000,
            ..Noise::default()
        };
        let made = (0..20).fold(Made::new(), |made, _| made.slow(OpKind::Write, &[(Cause::DirectReclaim, 20.0)]));
        let explanation = made.edit(|recording| recording.header.noise_before = Some(noise)).explained();
        assert_eq!(explanation.findings[0].cause, "direct-reclaim", "20 calls cannot all be one gap");
        assert_eq!(explanation.notes, []);
    }

    #[test]
    fn distorted_time_blames_no_processor_time_and_is_said() {
        let made = Made::new().slow(OpKind::Write, &[(Cause::RunQueue, 80.0), (Cause::NodeReclaim, 80.0)]);
        let explanation = made.edit(|recording| recording.header.time_distorted = true).explained();
        let names: Vec<&str> = explanation.findings.iter().map(|finding| finding.cause).collect();
        assert_eq!(names, ["node-reclaim"]);
        assert!(explanation.notes.contains(&Note::TimeDistorted));
    }

    #[test]
    fn lost_events_are_said_at_the_top() {
        let explanation = Made::new().edit(|recording| recording.header.losses.lost = 3).explained();
        let notes: Vec<String> = explanation.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["events of the tracer: 3 lost in the ring buffer"]);
    }
}

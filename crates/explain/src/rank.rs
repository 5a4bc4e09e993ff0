//! Builds the explanation: collects candidates, completes the ordered findings, and collects gaps and notes.

use super::aggressor::{Aggressor, Answerable, run_neighbours};
use super::cause::{CauseId, not_observed, out_of_memory};
use super::facts::Facts;
use super::failed;
use super::fix::{self, Place};
use super::focus::Judged;
use super::precedence::{self, Candidate, Situation};
use super::victim::Groups;
use super::{
    Conclusion, Explanation, Finding, Fix, Focus, Focused, channel, confidence, lead, log_lines, lru, operations,
    profile, settings, sleepers, slow, stages,
};
use flatwater_recording::{Gap, Note, Recording};

/// Version of the shape of `Explanation`.
const EXPLANATION_VERSION: u32 = 1;

/// Explains a recording. Never fails: missing data becomes a gap, a note or an unexplained share.
#[must_use]
pub fn explain(recording: &Recording) -> Explanation {
    explain_focused(recording, &Focus::default())
}

/// Explains the waits of the calls in focus.
#[must_use]
pub fn explain_focused(recording: &Recording, focus: &Focus) -> Explanation {
    let (all, groups) = sums(recording);
    let judged = Judged::choose(focus, recording, &groups, |lost_ns, worst_ns| all.enough(lost_ns, worst_ns));
    let judged_facts = judged.focused.as_ref().map(|focused| {
        let mut facts = Facts::of_calls(recording, |call| judged.keeps(call));
        facts.judged = Some(focused.who());
        facts
    });
    let facts = judged_facts.as_ref().unwrap_or(&all);
    // A focus that the user gave restricts the sums as well; one that flatwater chose restricts the findings only.
    let summed = if judged.focused.as_ref().is_some_and(|focused| focused.given) { facts } else { &all };
    let findings = findings(facts);
    // A scenario has no table of victims, but its lead names the workload that waited.
    let of_scenario = recording.header.scenario.is_some().then(|| Groups::of_calls(recording));
    let lead = lead::lead(facts, of_scenario.as_ref().unwrap_or(&groups), &findings);
    Explanation {
        flatwater: EXPLANATION_VERSION,
        kind: "explanation",
        source: recording.header.source.name(),
        seed: recording.header.seed,
        duration_ns: facts.duration_ns,
        operations: operations::operations(recording),
        partly_timed: operations::partly_timed(recording),
        slow: slow::summary(summed),
        total: slow::total(facts),
        lead,
        conclusion: conclusion(&findings),
        findings,
        observed: recording.header.observed.clone(),
        gaps: gaps(facts),
        own_cost: recording.header.own_cost,
        workload: recording.outcomes.clone(),
        notes: notes(facts, judged.focused.as_ref()),
        victims: groups.victims,
        focus: judged.focused,
    }
}

/// Gaps of the recording, and the gap left by a bounded search for aggressors.
fn gaps(facts: &Facts<'_>) -> Vec<Gap> {
    let mut gaps = facts.recording.gaps_found();
    if facts.charges.cut {
        let why = "more rows of waits, requests and their owners overlap than one explanation looks at";
        gaps.push(Gap::new("who made some of the calls wait", why, "record for a shorter time"));
    }
    gaps
}

/// Above this many calls, use a second thread.
const CALLS_FOR_TWO: usize = 20_000;

/// The two independent passes over all calls.
fn sums(recording: &Recording) -> (Facts<'_>, Groups) {
    if recording.calls.len() < CALLS_FOR_TWO {
        return (Facts::of(recording), Groups::of_recording(recording));
    }
    std::thread::scope(|scope| {
        let groups = scope.spawn(|| Groups::of_recording(recording));
        let all = Facts::of(recording);
        (all, groups.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The findings: finders and logs give candidates, [`precedence`] orders them, and each is completed by itself.
fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let candidates = candidates(facts);
    let situation = Situation::of(facts, &candidates);
    let mut findings = precedence::order(candidates, &situation);
    let place = Place::of(facts);
    for finding in &mut findings {
        complete(finding, facts, &place);
    }
    let mut findings = stages::join(findings);
    stages::number_fixes(&mut findings);
    findings
}

/// Causes that have no candidate beside others.
const ALONE: &[CauseId] = &[CauseId::NotEnough, CauseId::Quiet];

/// All candidates: of the catalogue, of stacks in a log, and of profiles in a log. `not-enough-to-judge` and `quiet`
/// are candidates only without others.
fn candidates(facts: &Facts<'_>) -> Vec<Candidate> {
    let find = |id: CauseId| (id.entry().find)(facts);
    let asked = CauseId::ALL.iter().filter(|id| !ALONE.contains(id) && **id != CauseId::NotObserved);
    let mut candidates: Vec<Candidate> =
        asked.filter_map(|id| find(*id)).map(|finding| Candidate::figures(blamed(finding, facts))).collect();
    channel::judge(facts, &mut candidates);
    sleepers::add(facts, &mut candidates);
    profile::add(facts, &mut candidates);
    candidates.extend(find(CauseId::NotObserved).map(Candidate::figures));
    if candidates.is_empty() {
        candidates.extend(ALONE.iter().find_map(|id| find(*id)).map(Candidate::figures));
    }
    candidates
}

/// Adds what depends on this finding alone: the kind of LRU, fixes that suit the recorded machine, lines of the log,
/// its share of the stall time, and the confidence.
fn complete(finding: &mut Finding, facts: &Facts<'_>, place: &Place<'_>) {
    lru::describe(finding, facts.recording);
    let fixes = std::mem::take(&mut finding.fixes);
    let worth = fixes.into_iter().filter_map(|fix| settings::fit(fix, finding, facts.recording));
    finding.fixes = worth.filter_map(|fix| fix.at(place)).collect();
    log_lines::attach(facts, finding);
    finding.share = finding.lost_ns.filter(|_| facts.total_ns() > 0).map(|ns| part(ns, facts.total_ns()));
    confidence::assign(finding, facts.recording.header.source);
}

fn part(ns: u64, of_ns: u64) -> f64 {
    (ns as f64 / of_ns as f64).min(1.0)
}

/// The finding with its aggressors, their shares, and fixes against them.
fn blamed(mut finding: Finding, facts: &Facts<'_>) -> Finding {
    let span = finding.cause.span();
    let charged = match finding.cause {
        CauseId::RunQueue => facts.charges.at_cpus(),
        CauseId::CgroupLimitCache => facts.charges.of_evictions(),
        _ => span.and_then(|cause| facts.charges.of_cause(cause)),
    };
    let of_run = |charged: &(Vec<Aggressor>, Answerable)| {
        run_neighbours::of_memory(facts.recording, span?, finding.lost_ns?, &charged.1)
    };
    if let Some((aggressors, answerable)) = charged.map(|charged| of_run(&charged).unwrap_or(charged)) {
        finding.aggressors = aggressors;
        finding.answerable = Some(answerable);
    }
    let own: Vec<Fix> = finding.aggressors.iter().flat_map(|aggressor| fix::against(aggressor, facts)).collect();
    if !own.is_empty() {
        // An aggressor that fills the queue also fills a deeper one.
        finding.fixes.retain(|fix| fix.setting().is_none_or(|(key, _)| key != knob!("queue.nr_requests")));
    }
    finding.fixes.splice(0..0, own);
    finding
}

fn conclusion(findings: &[Finding]) -> Conclusion {
    match findings.first().map(|finding| finding.cause) {
        Some(CauseId::Quiet) => Conclusion::Quiet,
        Some(CauseId::NotObserved) => Conclusion::NotObserved,
        Some(CauseId::NotEnough) => Conclusion::NotEnough,
        _ => Conclusion::Findings,
    }
}

fn notes(facts: &Facts<'_>, focused: Option<&Focused>) -> Vec<Note> {
    let header = &facts.recording.header;
    let mut notes = header.notes.clone();
    notes.extend(focused.filter(|focused| focused.given && focused.calls == 0).map(|focused| {
        let text = format!(
            "no slow call matches --focus {}; the {} other slow calls are left out. Without --focus the report lists \
             them",
            focused.on, focused.other_calls
        );
        Note::from(text)
    }));
    notes
        .extend(not_observed::untimed(&header.observed).into_iter().map(|line| format!("not observed: {line}").into()));
    notes.extend(out_of_memory::notes(facts));
    notes.extend(failed::notes(facts));
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
    use crate::cause::CauseId;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, Noise, Note, OpKind};

    #[test]
    fn findings_are_ordered_by_time_lost_with_unexplained_last() {
        let builder =
            RecordingBuilder::new().slow(OpKind::Write, &[(Cause::JournalCommit, 20.0), (Cause::Unexplained, 60.0)]);
        let explanation = builder.slow(OpKind::Write, &[(Cause::MemcgReclaim, 40.0)]).explained();
        let names: Vec<CauseId> = explanation.findings.iter().map(|finding| finding.cause).collect();
        assert_eq!(names, [CauseId::MemcgReclaim, CauseId::JournalCommit, CauseId::Unexplained]);
    }

    #[test]
    fn an_empty_recording_is_quiet() {
        let findings = RecordingBuilder::new().explained().findings;
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].cause, CauseId::Quiet);
    }

    #[test]
    fn machine_noise_is_not_blamed_on_memory() {
        let noise = Noise { gap_ns_max: 30_000_000, ..Noise::default() };
        let builder = RecordingBuilder::new().slow(OpKind::Write, &[(Cause::DirectReclaim, 25.0)]);
        let builder = builder.slow(OpKind::Write, &[(Cause::DirectReclaim, 12.0)]);
        let explanation = builder.edit(|recording| recording.header.noise_before = Some(noise)).explained();
        assert_eq!(explanation.findings[0].cause, CauseId::Quiet);
        assert!(
            explanation.notes.iter().any(|note| note.to_string().contains("direct-reclaim of at most 25 ms")),
            "{:?}",
            explanation.notes
        );
    }

    #[test]
    fn a_cause_above_the_noise_has_no_note() {
        let noise = Noise {
            gap_ns_max: 30_000_000,
            gaps: 1,
            gaps_total_ns: 30_000_000,
            spin_ns: 10_000_000_000,
            ..Noise::default()
        };
        let builder = (0..20)
            .fold(RecordingBuilder::new(), |builder, _| builder.slow(OpKind::Write, &[(Cause::DirectReclaim, 20.0)]));
        let explanation = builder.edit(|recording| recording.header.noise_before = Some(noise)).explained();
        assert_eq!(explanation.findings[0].cause, CauseId::DirectReclaim, "20 calls cannot all be one gap");
        assert_eq!(explanation.notes, []);
    }

    #[test]
    fn distorted_time_is_noted_and_blames_no_cpu_time() {
        let builder =
            RecordingBuilder::new().slow(OpKind::Write, &[(Cause::RunQueue, 80.0), (Cause::NodeReclaim, 80.0)]);
        let explanation = builder.edit(|recording| recording.header.time_distorted = true).explained();
        let names: Vec<CauseId> = explanation.findings.iter().map(|finding| finding.cause).collect();
        assert_eq!(names, [CauseId::NodeReclaim]);
        assert!(explanation.notes.contains(&Note::TimeDistorted));
    }

    #[test]
    fn lost_events_are_noted() {
        let explanation = RecordingBuilder::new().edit(|recording| recording.header.losses.lost = 3).explained();
        let notes: Vec<String> = explanation.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["events of the tracer: 3 lost in the ring buffer"]);
    }
}

//! Findings of recordings without privileges. An ordinary user can read the one function in which a thread sleeps, and
//! neither what that sleep ended with nor the rest of the stack. Several causes end in the same sleep: where a counter
//! that everybody may read points to another cause, or none can decide, the finding makes no claim.

use flatwater_recording::schema::cgroup;
use flatwater_recording::{CauseBasis, Table};

use super::cause::{CauseId, memcg_reclaim};
use super::facts::Facts;
use super::finding::NO_CONFIDENCE;
use super::precedence::Candidate;
use super::{Evidence, Finding};

pub const ROOT_ADDS: &str = "record as root: the whole stack, the thread or the request that each wait ended with, and who made \
    it wait";
/// From this share of time in which some thread waited for a CPU, the threads that a call waits for may have waited as
/// well.
const CPU_PRESSURE_MIN: f64 = 0.5;

/// What readable counters say about a cause that one function names.
enum Verdict {
    Agrees,
    /// The calls reclaimed at the limit of their cgroup.
    AtLimit(Evidence),
    Open(Evidence),
}

/// Replaces each claim that the one function does not carry.
pub fn judge(facts: &Facts<'_>, candidates: &mut Vec<Candidate>) {
    if !facts.is_polled() {
        return;
    }
    // The slow calls were seen asleep, which a thread that waits for a CPU is not.
    let is_of_cpus = |finding: &Finding| matches!(finding.cause, CauseId::RunQueue | CauseId::CpuContention);
    candidates.retain(|Candidate { finding, .. }| !is_of_cpus(finding) || finding.lost_ns.is_some());
    let is_seen = |finding: &Finding| finding.cause_basis == CauseBasis::Channel;
    for Candidate { finding, .. } in candidates.iter_mut().filter(|candidate| is_seen(&candidate.finding)) {
        ROOT_ADDS.clone_into(&mut finding.settle);
        match verdict(facts, finding.cause) {
            Verdict::Agrees => {}
            Verdict::AtLimit(evidence) => at_limit(finding, evidence),
            Verdict::Open(reason) => abstain(finding, reason),
        }
    }
    for cause in [CauseId::MemcgReclaim, CauseId::Unexplained] {
        join(candidates, cause);
    }
}

fn verdict(facts: &Facts<'_>, cause: CauseId) -> Verdict {
    match cause {
        CauseId::RequestQueue => {
            Verdict::Open(Evidence::statement("the queue of the device was full; whose requests filled it is not seen"))
        }
        CauseId::ReclaimThrottle => of_reclaim(facts),
        CauseId::JournalCommit | CauseId::JournalBuffer | CauseId::JournalFull | CauseId::PageWriteback => {
            let pressed = facts.pressed("cpu").filter(|pressed| pressed.some >= CPU_PRESSURE_MIN);
            pressed.map_or(Verdict::Agrees, |pressed| Verdict::Open(pressed.evidence("a CPU")))
        }
        _ => Verdict::Agrees,
    }
}

/// Reclaim of the whole machine and of a cgroup sleep in the same function.
fn of_reclaim(facts: &Facts<'_>) -> Verdict {
    let counts = facts
        .recording
        .table(Table::Cgroup)
        .is_some_and(|table| table.by_entity().any(|(_, rows)| rows.rise(cgroup::EVENTS_MAX).is_some()));
    match facts.limit_hits_most(cgroup::EVENTS_MAX).filter(|hits| hits.while_recorded) {
        Some(hits) => {
            let text = format!("{} reached its limit {} times while it was recorded", hits.path, hits.times);
            Verdict::AtLimit(Evidence::new(text, hits.times as f64, ""))
        }
        None if counts => Verdict::Agrees,
        None => Verdict::Open(Evidence::statement("no counter shows whether the calls' own cgroup was at its limit")),
    }
}

fn at_limit(finding: &mut Finding, evidence: Evidence) {
    finding.cause = CauseId::MemcgReclaim;
    CauseId::MemcgReclaim.entry().headline.clone_into(&mut finding.headline);
    finding.evidence.push(evidence);
    finding.fixes = vec![memcg_reclaim::raise_limit()];
}

fn abstain(finding: &mut Finding, reason: Evidence) {
    finding.headline = format!(
        "cannot tell without privileges: the calls slept in a function of {}, where several causes end",
        finding.cause.name()
    );
    finding.cause = CauseId::Unexplained;
    finding.cause_basis = CauseBasis::Elimination;
    finding.weight = NO_CONFIDENCE;
    finding.against.push(reason);
    finding.fixes.clear();
}

/// Joins the candidates of this cause into the one with the most time.
fn join(candidates: &mut Vec<Candidate>, cause: CauseId) {
    let mut places: Vec<usize> = (0..candidates.len()).filter(|&at| candidates[at].finding.cause == cause).collect();
    places.sort_by_key(|&at| std::cmp::Reverse(candidates[at].finding.lost_ns));
    let Some((&first, others)) = places.split_first().filter(|(_, others)| !others.is_empty()) else { return };
    for &other in others {
        let evidence = std::mem::take(&mut candidates[other].finding.evidence);
        let lost_ns = candidates[other].finding.lost_ns;
        let whole = &mut candidates[first].finding;
        whole.lost_ns = whole.lost_ns.map(|ns| ns.saturating_add(lost_ns.unwrap_or(0)));
        whole.evidence.extend(evidence);
    }
    let mut place = 0..;
    candidates.retain(|_| place.next().is_none_or(|at| !others.contains(&at)));
}

#[cfg(test)]
mod tests {
    use crate::Finding;
    use crate::cause::CauseId;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Cause, CauseBasis, DurationBasis, Entity, OpKind, Source, Table};

    /// The findings of a recording by an ordinary user.
    fn polled(builder: RecordingBuilder) -> Vec<Finding> {
        let builder = builder.edit(|recording| {
            recording.header.source = Source::Host;
            recording.header.target.pids = vec![7];
            for segment in recording.calls.iter_mut().flat_map(|call| &mut call.segments) {
                let named = segment.cause != Cause::Unexplained;
                segment.duration_basis = DurationBasis::Sampled;
                segment.cause_basis = if named { CauseBasis::Channel } else { CauseBasis::Elimination };
            }
        });
        builder.explained().findings
    }

    fn waits(cause: Cause) -> RecordingBuilder {
        (0..9).fold(RecordingBuilder::new(), |builder, _| builder.slow(OpKind::Write, &[(cause, 60.0)]))
    }

    fn limit(builder: RecordingBuilder, hits: &[i64]) -> RecordingBuilder {
        builder.counters(Table::Cgroup, &Entity::named("/db"), &[("events_max", hits)])
    }

    fn cpus_full(builder: RecordingBuilder) -> RecordingBuilder {
        builder.counters(Table::Pressure, &Entity::named("cpu"), &[("some_total_us", &[0, 900_000, 1_800_000])])
    }

    #[test]
    fn a_full_queue_seen_by_one_function_makes_no_claim() {
        let finding = &polled(waits(Cause::RequestQueue))[0];
        assert_eq!((finding.cause, finding.lost_ns), (CauseId::Unexplained, Some(540_000_000)));
        assert!(finding.headline.starts_with("cannot tell without privileges") && finding.fixes.is_empty());
        assert!(finding.confidence.is_nan() && finding.settle.contains("as root"), "{finding:?}");
    }

    #[test]
    fn the_limit_of_the_own_cgroup_tells_memcg_reclaim_from_reclaim_of_the_machine() {
        let first = |builder| polled(builder).remove(0);
        let finding = first(limit(waits(Cause::ReclaimThrottle), &[4, 400]));
        assert_eq!(finding.cause, CauseId::MemcgReclaim);
        assert!(evidence_text(&finding).contains("/db reached its limit 396 times"), "{finding:?}");
        assert_eq!(first(limit(waits(Cause::ReclaimThrottle), &[4, 4])).cause, CauseId::ReclaimThrottle);
        assert_eq!(first(waits(Cause::ReclaimThrottle)).cause, CauseId::Unexplained, "nothing counts it");
        let both = waits(Cause::ReclaimThrottle).slow(OpKind::Write, &[(Cause::MemcgReclaim, 60.0)]);
        let all = polled(limit(both, &[4, 400]));
        assert_eq!(all.iter().filter(|finding| finding.cause == CauseId::MemcgReclaim).count(), 1);
        assert_eq!(all[0].lost_ns, Some(600_000_000));
    }

    #[test]
    fn a_commit_beside_full_cpus_may_be_a_wait_for_a_cpu() {
        let idle = &polled(waits(Cause::JournalCommit))[0];
        assert_eq!((idle.cause, idle.cause_basis), (CauseId::JournalCommit, CauseBasis::Channel));
        assert!(idle.confidence < 0.7 && idle.settle.contains("as root"), "{idle:?}");
        let full = &polled(cpus_full(waits(Cause::JournalCommit)))[0];
        assert_eq!(full.cause, CauseId::Unexplained);
        assert!(full.against.iter().any(|one| one.text.contains("waited for a CPU 90 %")), "{full:?}");
    }

    #[test]
    fn a_delay_for_a_cpu_does_not_explain_calls_that_were_asleep() {
        let delay = rising(40_000_000, 10);
        let delayed = |builder: RecordingBuilder| {
            builder.counters(Table::Workload, &Entity::named("fio(7)"), &[("run_delay_ns", &delay)])
        };
        let findings = polled(cpus_full(delayed(waits(Cause::Unexplained))));
        assert_eq!(findings[0].cause, CauseId::Unexplained, "{findings:?}");
        assert!(findings.iter().all(|finding| finding.cause != CauseId::RunQueue));
    }

    #[test]
    fn a_short_call_seen_asleep_does_not_show_that_nothing_is_wrong() {
        let findings = polled(RecordingBuilder::new().slow(OpKind::Write, &[(Cause::JournalBuffer, 1.2)]));
        assert_eq!(findings[0].cause, CauseId::NotEnough, "{findings:?}");
        assert!(findings[0].settle.contains("as root"));
    }

    #[test]
    fn abstentions_and_time_without_a_function_are_one_finding() {
        let builder = waits(Cause::RequestQueue).slow(OpKind::Write, &[(Cause::Unexplained, 90.0)]);
        let findings = polled(cpus_full(builder.slow(OpKind::Fsync, &[(Cause::JournalCommit, 30.0)])));
        let open = findings.iter().filter(|finding| finding.cause == CauseId::Unexplained);
        assert_eq!(open.map(|finding| finding.lost_ns).collect::<Vec<_>>(), [Some(660_000_000)]);
    }

    #[test]
    fn whole_stacks_are_not_doubted() {
        let findings = waits(Cause::RequestQueue).explained().findings;
        assert_eq!(findings[0].cause, CauseId::RequestQueue);
    }
}

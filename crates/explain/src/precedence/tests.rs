//! Each rule alone, and how rules meet.

use super::{Candidate, Origin, RULES, Rule, Situation, Subject, When, order};
use crate::Finding;
use crate::cause::CauseId;

fn candidate(cause: CauseId, lost_ns: Option<u64>, confidence: f64) -> Candidate {
    let mut finding = Finding::inferred(cause, confidence, "");
    finding.lost_ns = lost_ns;
    Candidate::figures(finding)
}

fn causes(candidates: Vec<Candidate>, situation: &Situation) -> Vec<CauseId> {
    order(candidates, situation).iter().map(|finding| finding.cause).collect()
}

/// A cause for each side of the rule.
fn pair(rule: &Rule) -> (CauseId, CauseId) {
    let of = |subject, other: CauseId| match subject {
        Subject::Cause(cause) => cause,
        Subject::Any | Subject::DeviceBound => other,
    };
    (of(rule.before, CauseId::Lock), of(rule.after, CauseId::JournalCommit))
}

/// The pair with the times that the rule's condition needs, such that the sort alone puts `after` first.
fn against_the_sort(rule: &Rule) -> (Candidate, Candidate) {
    let (before, after) = pair(rule);
    let (before_ns, after_ns) = match rule.when {
        When::LaterHasNoTime => (None, None),
        When::SameTime => (Some(60), Some(60)),
        _ => (Some(60), Some(100)),
    };
    (candidate(before, before_ns, 0.2), candidate(after, after_ns, 0.9))
}

fn situation(rule: &Rule) -> Situation {
    let (before, after) = pair(rule);
    Situation {
        recorded_process_killed: rule.when == When::RecordedProcessKilled,
        device_bound: Vec::from_iter((rule.after == Subject::DeviceBound).then_some(after)),
        reason_at_device: (rule.when == When::ReasonAtDevice).then_some(before),
    }
}

/// Whether the rule's condition can fail for this pair, and a situation and pair in which it does.
fn without_condition(rule: &Rule) -> Option<(Candidate, Candidate)> {
    let (mut before, mut after) = against_the_sort(rule);
    match rule.when {
        When::Always => return None,
        When::LaterHasNoTime => after.finding.lost_ns = Some(5),
        When::SameTime => before.finding.lost_ns = Some(59),
        When::RecordedProcessKilled | When::ReasonAtDevice => {}
    }
    Some((before, after))
}

/// Makes one test of each row of the table: `number name`.
macro_rules! rows {
    ($($number:literal $name:ident)+) => {
        $(#[test]
        fn $name() {
            let rule = &RULES[$number];
            let (before, after) = against_the_sort(rule);
            let expected = [before.finding.cause, after.finding.cause];
            assert_eq!(causes(vec![before.clone(), after.clone()], &situation(rule)), expected, "{}", rule.reason);
            assert_eq!(causes(vec![after, before], &situation(rule)), expected, "the input's order does not matter");
            if let Some((before, after)) = without_condition(rule) {
                let expected = [after.finding.cause, before.finding.cause];
                assert_eq!(causes(vec![before, after], &Situation::default()), expected, "without its condition");
            }
        })+

        #[test]
        fn every_row_has_its_test() {
            assert_eq!([$($number),+], *(0..RULES.len()).collect::<Vec<_>>());
        }
    };
}

rows! {
    0 not_observed_is_first
    1 a_kill_of_a_recorded_process_is_first
    2 unexplained_is_last
    3 a_full_zone_precedes_the_kill
    4 a_full_cgroup_precedes_the_kill
    5 a_slab_leak_precedes_the_kill
    6 a_page_leak_precedes_the_kill
    7 dirty_pages_precede_the_kill
    8 fragmentation_precedes_the_kill
    9 swapping_precedes_the_slow_device
    10 huge_pages_precede_fragmentation
    11 a_limit_precedes_the_wait_for_the_device
    12 the_queue_precedes_the_wait_for_the_device
    13 the_slow_device_precedes_the_wait_for_it
    14 the_late_thread_precedes_the_wait_for_the_device
    15 evictions_precede_the_reads
    16 a_dropped_cache_precedes_the_wait_for_the_device
    17 a_dropped_cache_precedes_its_reads
}

#[test]
fn the_sort_is_by_evidence_then_time_then_confidence_then_catalogue() {
    let of = |cause, lost_ns, confidence, origin| Candidate { origin, ..candidate(cause, lost_ns, confidence) };
    let given = vec![
        of(CauseId::PageFault, None, 0.5, Origin::Figures),
        of(CauseId::Lock, None, 0.5, Origin::Figures),
        of(CauseId::SwapIn, None, 0.9, Origin::Figures),
        of(CauseId::Compute, Some(10), 0.1, Origin::Figures),
        of(CauseId::Interrupt, None, 0.1, Origin::Stacks { place: 1 }),
        of(CauseId::Steal, None, 0.1, Origin::Stacks { place: 0 }),
        of(CauseId::Shrinker, None, 0.1, Origin::Profile { place: 0 }),
    ];
    let expected = [
        CauseId::Shrinker,
        CauseId::Steal,
        CauseId::Interrupt,
        CauseId::Compute,
        CauseId::SwapIn,
        CauseId::Lock,
        CauseId::PageFault,
    ];
    assert_eq!(causes(given.clone(), &Situation::default()), expected);
    assert_eq!(causes(given.into_iter().rev().collect(), &Situation::default()), expected);
}

/// Three passes in place put the kill before fragmentation here, because each saw the order that the last one left.
#[test]
fn rules_hold_through_others() {
    let given = [CauseId::OutOfMemory, CauseId::Fragmentation, CauseId::ThpStall];
    let given = given.into_iter().zip([0.9, 0.8, 0.7]).map(|(cause, confidence)| candidate(cause, None, confidence));
    let expected = [CauseId::ThpStall, CauseId::Fragmentation, CauseId::OutOfMemory];
    assert_eq!(causes(given.collect(), &Situation::default()), expected);
}

#[test]
fn of_rules_that_contradict_each_other_the_stronger_holds() {
    let killed = Situation { recorded_process_killed: true, ..Situation::default() };
    let all = vec![
        candidate(CauseId::CgroupLimitCache, Some(90), 0.9),
        candidate(CauseId::OutOfMemory, None, 0.5),
        candidate(CauseId::NotObserved, None, 1.0),
    ];
    let expected = [CauseId::NotObserved, CauseId::OutOfMemory, CauseId::CgroupLimitCache];
    assert_eq!(causes(all, &killed), expected);
}

#[test]
fn a_consequence_follows_its_reason_and_nothing_else_moves() {
    let given = [CauseId::OutOfMemory, CauseId::KswapdLate, CauseId::SlabLeak, CauseId::SwapIn];
    let confidences = [0.9, 0.8, 0.7, 0.6];
    let given = given.into_iter().zip(confidences).map(|(cause, confidence)| candidate(cause, None, confidence));
    let expected = [CauseId::KswapdLate, CauseId::SlabLeak, CauseId::OutOfMemory, CauseId::SwapIn];
    assert_eq!(causes(given.collect(), &Situation::default()), expected);
}

#[test]
fn each_other_cause_that_lost_more_than_the_reason_at_the_device_stays_before_it() {
    let situation = Situation {
        device_bound: vec![CauseId::DeviceWait],
        reason_at_device: Some(CauseId::DeviceQueueStarved),
        ..Situation::default()
    };
    let given = vec![
        candidate(CauseId::DeviceWait, Some(100), 0.9),
        candidate(CauseId::Lock, Some(80), 0.9),
        candidate(CauseId::DirtyThrottle, Some(75), 0.9),
        candidate(CauseId::DeviceQueueStarved, Some(70), 0.9),
        candidate(CauseId::Compute, Some(20), 0.9),
    ];
    let expected =
        [CauseId::Lock, CauseId::DirtyThrottle, CauseId::DeviceQueueStarved, CauseId::DeviceWait, CauseId::Compute];
    assert_eq!(causes(given, &situation), expected);
}

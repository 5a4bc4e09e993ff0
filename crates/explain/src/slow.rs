//! Summarizes the slow calls: where their time went, most first.

use super::cause::CauseId;
use super::facts::Facts;
use super::{CauseShare, Slow, Total};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Cause, CauseBasis, DurationBasis};

impl CauseShare {
    /// A share without calls yet.
    #[must_use]
    pub fn new(cause: Cause, duration_basis: DurationBasis, cause_basis: CauseBasis) -> CauseShare {
        CauseShare {
            cause: cause.into(),
            lost_ns: 0,
            share: 0.0,
            calls: 0,
            worst_ns: 0,
            basis: duration_basis.into(),
            duration_basis,
            cause_basis,
        }
    }
}

/// The stall time that the findings of these facts refer to.
#[must_use]
pub fn total(facts: &Facts<'_>) -> Total {
    let Slow { calls, lost_ns, named_share, .. } = summary(facts);
    let of = facts.judged.clone().unwrap_or_else(|| "all slow calls".to_owned());
    Total { of, calls, stall_ns: lost_ns, named_share }
}

#[must_use]
pub fn summary(facts: &Facts<'_>) -> Slow {
    let mut causes: Vec<CauseShare> = facts
        .sums()
        .map(|sum| CauseShare {
            lost_ns: sum.lost_ns,
            share: facts.share(sum),
            calls: sum.calls,
            worst_ns: sum.worst_ns,
            ..CauseShare::new(sum.cause, sum.duration_basis(), sum.cause_basis())
        })
        .collect();
    let unexplained = CauseId::Unexplained;
    causes
        .sort_short_by(|a, b| (a.cause == unexplained).cmp(&(b.cause == unexplained)).then(b.lost_ns.cmp(&a.lost_ns)));
    if facts.counted.calls > 0 {
        // Calls that are only counted have no known cause, except waits for locks.
        let counted = facts.counted;
        let (cause, cause_basis) = match counted.locks {
            true => (Cause::Lock, CauseBasis::Bracketed),
            false => (Cause::Unexplained, CauseBasis::Elimination),
        };
        causes.push(CauseShare {
            lost_ns: counted.ns,
            share: 1.0,
            calls: counted.calls,
            worst_ns: counted.worst_ns,
            ..CauseShare::new(cause, DurationBasis::Measured, cause_basis)
        });
        let (calls, lost_ns) = (counted.calls, counted.ns);
        return Slow {
            threshold_ns: facts.threshold_ns,
            calls,
            lost_ns,
            named_share: Some(if counted.locks { 1.0 } else { 0.0 }),
            causes,
            ..Slow::default()
        };
    }
    Slow {
        threshold_ns: facts.threshold_ns,
        calls: facts.calls,
        lost_ns: facts.lost_ns,
        named_share: (facts.lost_ns > 0).then(|| 1.0 - facts.share(facts.sum(Cause::Unexplained))),
        still_under_way: facts.still_under_way,
        under_way_ns_max: facts.under_way_ns_max,
        causes,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::RecordingBuilder;
    use crate::{CauseId, explain};
    use flatwater_recording::{Cause, OpKind, Source};

    #[test]
    fn shares_sum_to_one_and_unexplained_comes_last() {
        let builder =
            RecordingBuilder::new().slow(OpKind::Write, &[(Cause::MemcgReclaim, 5.0), (Cause::Unexplained, 20.0)]);
        let recording = builder.slow(OpKind::Write, &[(Cause::JournalCommit, 15.0)]).done();
        let slow = explain(&recording).slow;
        let names: Vec<CauseId> = slow.causes.iter().map(|share| share.cause).collect();
        assert_eq!(names, [CauseId::JournalCommit, CauseId::MemcgReclaim, CauseId::Unexplained]);
        assert!((slow.causes.iter().map(|share| share.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!((slow.calls, slow.lost_ns, slow.named_share), (2, 40_000_000, Some(0.5)));
    }

    #[test]
    fn a_neighbours_slow_calls_are_not_the_foregrounds() {
        let builder = RecordingBuilder::new()
            .slow_by("stream", OpKind::Write, &[(Cause::DirtyThrottle, 900.0)])
            .neighbour("stream");
        let slow = explain(&builder.slow(OpKind::Write, &[(Cause::RunQueue, 2.0)]).done()).slow;
        assert_eq!((slow.calls, slow.lost_ns), (1, 2_000_000));
    }

    #[test]
    fn uncovered_time_is_unexplained() {
        let mut recording = RecordingBuilder::new().slow(OpKind::Write, &[(Cause::RunQueue, 4.0)]).done();
        recording.calls[0].duration_ns = 10_000_000;
        let slow = explain(&recording).slow;
        assert_eq!(slow.named_share, Some(0.4));
        recording.calls[0].segments[0].ns = u64::MAX;
        assert_eq!(explain(&recording).slow.lost_ns, 10_000_000);
    }

    #[test]
    fn a_call_that_had_not_returned_counts_with_its_time_so_far() {
        let builder = RecordingBuilder::new()
            .slow(OpKind::Write, &[(Cause::FsFreeze, 3_000.0)])
            .slow(OpKind::Write, &[(Cause::Lock, 2.0)]);
        let explanation = builder.edit(|recording| recording.calls[0].still_under_way = true).explained();
        let slow = &explanation.slow;
        assert_eq!((slow.calls, slow.still_under_way, slow.under_way_ns_max), (2, 1, 3_000_000_000));
        assert_eq!((explanation.findings[0].cause, slow.causes[0].cause), (CauseId::FsFreeze, CauseId::FsFreeze));
    }

    #[test]
    fn slow_calls_that_a_log_only_counts_are_not_quiet() {
        let builder = RecordingBuilder::new().bucket("", OpKind::Other, &[100_000, 900_000_000, 2_000_000_000]);
        let explanation = builder.edit(|recording| recording.header.source = Source::Import).explained();
        assert_eq!((explanation.slow.calls, explanation.slow.named_share), (2, Some(0.0)));
        assert_eq!(explanation.findings[0].cause, CauseId::Unexplained);
        assert!(explanation.findings[0].evidence[0].text.contains("2 of 3"), "{:?}", explanation.findings[0].evidence);
        let fast = RecordingBuilder::new().bucket("", OpKind::Write, &[100_000; 50]);
        let fast = fast.edit(|recording| recording.header.source = Source::Import).explained();
        assert_eq!(fast.findings[0].cause, CauseId::Quiet);
    }

    #[test]
    fn no_slow_call_leaves_the_share_open() {
        assert_eq!(explain(&RecordingBuilder::new().done()).slow.named_share, None);
    }
}

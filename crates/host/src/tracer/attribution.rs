//! Turns the records of the hooks into segments that tile a call.
//!
//! Each nanosecond gets one cause, with the kind of evidence for it:
//! - in a bracket (reclaim, a lock, ...): the bracket's cause, unless the stack of a sleep is more specific; exact.
//! - asleep: the cause that the stack names; exact. Runnable but not running: `run-queue` or `cpu-quota`; exact.
//! - on the CPU up to a sample: the cause that the sample's stack names, else `compute`; sampled.
//! - on the CPU otherwise: the scheduler saw no interruption. This is `compute`, inferred, if it is not longer than
//!   such a call may need, or if it lies between two samples that came on time. Longer time is `unexplained`: a
//!   hypervisor may have held the CPU, which must not be blamed on memory management.

use super::layout::{Stretch, kind};
use super::stacks::StackTable;
use flatwater_recording::{Cause, CauseBasis, DurationBasis, Segment, StackId};

/// If there are more segments, the shortest are joined to their predecessors.
pub const SEGMENTS_MAX: usize = 256;
/// Upper bound for copying a byte to or from the page cache.
const COPY_NS_PER_BYTE: u64 = 1;

/// An interval between two samples counts as `compute` only up to this length, even if samples are rare.
const BETWEEN_SAMPLES_NS_MAX: u64 = 1_500_000;

/// The known facts of a call beside its stretches.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts {
    pub duration_ns: u64,
    pub bytes: Option<u64>,
    /// See `TraceOptions::plain_cpu_ns`.
    pub plain_cpu_ns: u64,
    /// Time between two samples, ns; 0 if none are taken.
    pub sample_period_ns: u64,
}

struct Named {
    cause: Cause,
    duration: DurationBasis,
    basis: CauseBasis,
    stack: Option<StackId>,
}

impl Named {
    fn measured(cause: Cause, basis: CauseBasis, stack: Option<StackId>) -> Option<Named> {
        Some(Named { cause, duration: DurationBasis::Measured, basis, stack })
    }

    fn sampled(cause: Cause, basis: CauseBasis, stack: Option<StackId>) -> Option<Named> {
        Some(Named { cause, duration: DurationBasis::Sampled, basis, stack })
    }

    fn inferred(cause: Cause, basis: CauseBasis) -> Named {
        Named { cause, duration: DurationBasis::Inferred, basis, stack: None }
    }
}

fn name(stretch: &Stretch, stacks: &mut StackTable) -> Option<Named> {
    let bracket = Cause::of_bracket(stretch.bracket);
    match stretch.kind {
        kind::ON_CPU => bracket.and_then(|cause| Named::measured(cause, CauseBasis::Bracketed, None)),
        kind::SAMPLED => {
            let stack = stacks.id(stretch.stack);
            match bracket {
                Some(cause) => Named::measured(cause, CauseBasis::Bracketed, stack),
                None => {
                    let cause = stacks.cause(stretch.stack, None).filter(|cause| cause.spec().can_run);
                    // A sample without a stack shows only that the thread ran.
                    match cause {
                        Some(cause) => Named::sampled(cause, CauseBasis::Stack, stack),
                        None => stack.and_then(|_| Named::sampled(Cause::Compute, CauseBasis::Elimination, stack)),
                    }
                }
            }
        }
        kind::ASLEEP => {
            let stack = stacks.id(stretch.stack);
            let attributed = stacks.cause(stretch.stack, bracket);
            let own =
                attributed.filter(|&cause| !bracket.is_some_and(|bracket| cause.spec().belongs_to.contains(&bracket)));
            match (own, bracket) {
                (Some(cause), _) => Named::measured(cause, CauseBasis::Stack, stack),
                (None, Some(cause)) => Named::measured(cause, CauseBasis::Bracketed, stack),
                (None, None) => Named::measured(Cause::Unexplained, CauseBasis::Elimination, stack),
            }
        }
        kind::WOKEN | kind::PREEMPTED => {
            Named::measured(Cause::RunQueue, CauseBasis::Bracketed, stacks.id(stretch.stack))
        }
        kind::THROTTLED => Named::measured(Cause::CpuQuota, CauseBasis::Bracketed, None),
        kind::THROTTLED_LATER => Some(Named::inferred(Cause::CpuQuota, CauseBasis::Counters)),
        _ => None,
    }
}

/// Returns the segments of a call, and the number of segments that were joined because there were too many.
pub fn segments(stretches: &[Stretch], facts: &CallFacts, stacks: &mut StackTable) -> (Vec<Segment>, u64) {
    let mut segments: Vec<Segment> = Vec::new();
    let mut at = 0;
    let left = plain_cpu_left(stretches, facts);
    let running = |ns: u64| {
        // Short intervals between sleeps are the call's own work, whatever the rest of the call waited for.
        let between_samples = (facts.sample_period_ns + facts.sample_period_ns / 2).min(BETWEEN_SAMPLES_NS_MAX);
        if left || ns <= between_samples.max(facts.plain_cpu_ns / 4) {
            Named::inferred(Cause::Compute, CauseBasis::Elimination)
        } else {
            Named::inferred(Cause::Unexplained, CauseBasis::Elimination)
        }
    };
    let push = |segments: &mut Vec<Segment>, at: &mut u64, ns: u64, named: Named, count: u32| {
        let ns = ns.min(facts.duration_ns - *at);
        if ns > 0 {
            join(
                segments,
                Segment::new(*at, ns, named.cause, named.duration, named.basis)
                    .with_stack(named.stack)
                    .with_count(count),
            );
            *at += ns;
        }
    };
    for stretch in stretches {
        let count = u32::from(stretch.count.max(1));
        match name(stretch, stacks) {
            Some(named) if named.duration == DurationBasis::Sampled => {
                // A sample covers one period. A longer interval before it means that the timer could not fire:
                // interrupts were off, or the whole CPU was away.
                let spoken = sampled_ns(stretch.ns, facts.sample_period_ns);
                push(&mut segments, &mut at, stretch.ns - spoken, running(stretch.ns - spoken), 1);
                push(&mut segments, &mut at, spoken, named, count);
            }
            Some(named) => push(&mut segments, &mut at, stretch.ns, named, count),
            None => push(&mut segments, &mut at, stretch.ns, running(stretch.ns), count),
        }
    }
    let rest = facts.duration_ns - at;
    push(&mut segments, &mut at, rest, running(rest), 1);
    let joined = shorten(&mut segments);
    (segments, joined)
}

fn sampled_ns(ns: u64, period_ns: u64) -> u64 {
    if period_ns > 0 && ns > 2 * period_ns { period_ns } else { ns }
}

/// Whether all CPU time without a named cause is short enough to be the call's own work.
fn plain_cpu_left(stretches: &[Stretch], facts: &CallFacts) -> bool {
    let seen: u64 = stretches.iter().map(|stretch| stretch.ns).sum();
    let plain_ns = |stretch: &Stretch| match stretch.kind {
        _ if Cause::of_bracket(stretch.bracket).is_some() => 0,
        kind::ON_CPU => stretch.ns,
        kind::SAMPLED => stretch.ns - sampled_ns(stretch.ns, facts.sample_period_ns),
        _ => 0,
    };
    let plain: u64 = stretches.iter().map(plain_ns).sum();
    let tail = facts.duration_ns.saturating_sub(seen);
    let copy = facts.bytes.unwrap_or(0).min(1 << 30) * COPY_NS_PER_BYTE;
    plain.saturating_add(tail) <= facts.plain_cpu_ns.saturating_add(copy)
}

/// Whether two segments have the same cause and the same kinds of evidence.
fn same_cause_and_basis(last: &Segment, segment: &Segment) -> bool {
    (last.cause, last.duration_basis, last.cause_basis) == (segment.cause, segment.duration_basis, segment.cause_basis)
}

/// Appends the segment, or adds it to the last one if that has the same cause, evidence and stack.
fn join(segments: &mut Vec<Segment>, segment: Segment) {
    if let Some(last) = segments.last_mut()
        && same_cause_and_basis(last, &segment)
        && last.stack == segment.stack
    {
        last.ns += segment.ns;
        last.count = last.count.saturating_add(segment.count);
        return;
    }
    segments.push(segment);
}

/// Reduces the segments to `SEGMENTS_MAX`. First joins neighbours that differ only in their stacks, which loses no
/// cause; then joins ever longer segments to their predecessors. Returns the number of segments lost in the second
/// step.
fn shorten(segments: &mut Vec<Segment>) -> u64 {
    if segments.len() <= SEGMENTS_MAX {
        return 0;
    }
    merge(segments, same_cause_and_basis);
    let before = segments.len();
    let mut limit_ns = 1_000;
    while segments.len() > SEGMENTS_MAX {
        merge(segments, |last, segment| segment.ns < limit_ns || same_cause_and_basis(last, segment));
        limit_ns *= 2;
    }
    (before - segments.len()) as u64
}

/// Adds each segment for which `joins` holds to its predecessor. Of two segments with one cause, the longer keeps its
/// stack.
fn merge(segments: &mut Vec<Segment>, joins: impl Fn(&Segment, &Segment) -> bool) {
    let mut kept: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments.drain(..) {
        match kept.last_mut() {
            Some(last) if joins(last, &segment) => {
                if segment.ns > last.ns && segment.cause == last.cause {
                    last.stack = segment.stack;
                }
                last.ns += segment.ns;
                last.count = last.count.saturating_add(segment.count);
            }
            _ => kept.push(segment),
        }
    }
    *segments = kept;
}

#[cfg(test)]
mod tests {
    use super::{CallFacts, SEGMENTS_MAX, segments};
    use crate::kallsyms::Kallsyms;
    use crate::tracer::layout::{Stretch, kind};
    use crate::tracer::stacks::{Frames, StackTable};
    use flatwater_recording::{Cause, CauseBasis, DurationBasis, Segment};

    /// Stack 0 waits for a page, stack 1 for a commit; stack 2 runs code that no rule knows.
    struct Fixed;
    impl Frames for Fixed {
        fn frames(&self, id: i32) -> Option<Vec<u64>> {
            (0..3).contains(&id).then(|| vec![0x1000 * (id as u64 + 1)])
        }
    }

    fn table() -> StackTable {
        let symbols = "1000 T folio_wait_writeback\n2000 T jbd2_log_wait_commit\n3000 T ext4_da_write_end\n";
        StackTable::new(Some(Box::new(Fixed)), Kallsyms::parse(symbols.as_bytes()).expect("symbols"))
    }

    fn facts(duration_ns: u64) -> CallFacts {
        CallFacts { duration_ns, bytes: None, plain_cpu_ns: 200_000, sample_period_ns: 0 }
    }

    fn stretch(ns: u64, kind: u8, bracket: u8, stack: i32) -> Stretch {
        Stretch { ns, stack, kind, bracket, count: 1 }
    }

    fn attributed(stretches: &[Stretch], facts: &CallFacts) -> Vec<(u64, Cause, DurationBasis)> {
        let (segments, _) = segments(stretches, facts, &mut table());
        assert_eq!(segments.iter().map(|segment| segment.ns).sum::<u64>(), facts.duration_ns);
        segments.iter().map(|segment: &Segment| (segment.ns, segment.cause, segment.duration_basis)).collect()
    }

    #[test]
    fn a_page_wait_within_reclaim_is_reclaim() {
        let within = [stretch(5_000, kind::ASLEEP, 2, 0), stretch(1_000, kind::WOKEN, 2, -1)];
        let expected = vec![
            (5_000, Cause::MemcgReclaim, DurationBasis::Measured),
            (1_000, Cause::RunQueue, DurationBasis::Measured),
        ];
        assert_eq!(attributed(&within, &facts(6_000)), expected);
        let outside = [stretch(5_000, kind::ASLEEP, 0, 0)];
        assert_eq!(attributed(&outside, &facts(5_000)), vec![(5_000, Cause::PageWriteback, DurationBasis::Measured)]);
        let journal = [stretch(5_000, kind::ASLEEP, 2, 1)];
        assert_eq!(attributed(&journal, &facts(5_000)), vec![(5_000, Cause::JournalCommit, DurationBasis::Measured)]);
        let bases = |stretches: &[Stretch], ns| segments(stretches, &facts(ns), &mut table()).0[0].cause_basis;
        assert_eq!(bases(&within, 6_000), CauseBasis::Bracketed, "the bracket is more specific than the page");
        assert_eq!(bases(&journal, 5_000), CauseBasis::Stack);
        assert_eq!(
            bases(&[stretch(5_000, kind::ASLEEP, 0, 2)], 5_000),
            CauseBasis::Elimination,
            "no rule knows the stack"
        );
    }

    #[test]
    fn cpu_time_is_compute_only_up_to_the_plausible_length() {
        assert_eq!(attributed(&[], &facts(150_000)), vec![(150_000, Cause::Compute, DurationBasis::Inferred)]);
        assert_eq!(attributed(&[], &facts(9_000_000)), vec![(9_000_000, Cause::Unexplained, DurationBasis::Inferred)]);
        let copying = CallFacts { bytes: Some(8 << 20), ..facts(8_000_000) };
        assert_eq!(attributed(&[], &copying), vec![(8_000_000, Cause::Compute, DurationBasis::Inferred)]);
    }

    #[test]
    fn a_sample_covers_one_period() {
        let sampled = CallFacts { sample_period_ns: 1_000_000, ..facts(9_000_000) };
        let late = [stretch(9_000_000, kind::SAMPLED, 0, 2)];
        let expected = vec![
            (8_000_000, Cause::Unexplained, DurationBasis::Inferred),
            (1_000_000, Cause::Compute, DurationBasis::Sampled),
        ];
        assert_eq!(attributed(&late, &sampled), expected);
    }

    #[test]
    fn a_sample_names_no_wait() {
        let sampled = CallFacts { sample_period_ns: 1_000_000, ..facts(1_000_000) };
        let in_wait_code = [stretch(1_000_000, kind::SAMPLED, 0, 1)];
        assert_eq!(attributed(&in_wait_code, &sampled), vec![(1_000_000, Cause::Compute, DurationBasis::Sampled)]);
    }

    #[test]
    fn events_past_the_end_are_cut_and_missing_ones_filled() {
        let long = [stretch(5_000, kind::ASLEEP, 0, 1), stretch(5_000, kind::PREEMPTED, 0, -1)];
        let expected = vec![
            (5_000, Cause::JournalCommit, DurationBasis::Measured),
            (2_000, Cause::RunQueue, DurationBasis::Measured),
        ];
        assert_eq!(attributed(&long, &facts(7_000)), expected);
        let lost = [stretch(1_000, kind::ASLEEP, 0, 99)];
        assert_eq!(attributed(&lost, &facts(1_000)), vec![(1_000, Cause::Unexplained, DurationBasis::Measured)]);
    }

    #[test]
    fn too_many_parts_are_joined_and_counted() {
        let mut stretches = Vec::new();
        for turn in 0..2_000_u64 {
            stretches.push(stretch(100 + turn, kind::ASLEEP, 0, 1));
            stretches.push(stretch(50, kind::PREEMPTED, 0, -1));
        }
        let duration = stretches.iter().map(|stretch| stretch.ns).sum();
        let (segments, lost) = segments(&stretches, &facts(duration), &mut table());
        assert!(segments.len() <= SEGMENTS_MAX && lost > 0);
        assert_eq!(segments.iter().map(|segment| segment.ns).sum::<u64>(), duration);
    }
}

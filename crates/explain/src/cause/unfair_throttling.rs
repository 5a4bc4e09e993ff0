//! unfair-throttling: all writers get the same throughput overall, but some wait much longer at a time.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::outcome::WorkloadOutcome;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Call, Cause, FormatKind, OpKind, Source};

/// A write that takes this long is a stall on any device.
const DELAY_NS_MIN: u64 = 500_000_000;
/// Minimum ratio of the worst wait to the median.
const WORST_PER_MEDIAN_MIN: f64 = 3.0;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "unfair-throttling",
    span: None,
    headline: "writers get equal throughput but unequal delays: some wait seconds at a time",
    mechanism: "Before 3.2 the writer that found the dirty limit exceeded wrote back a chunk itself \
        (mm/page-writeback.c: balance_dirty_pages, write_chunk = 1.5 x ratelimit_pages, up to 6 MiB) and waited for a \
        request in turn. Which writer it hit depended on a counter per CPU, checked only every ratelimit_pages pages \
        (up to 4 MiB), and on the request queue, where the task that filled it continued as batcher while others \
        slept (block/blk-core.c: get_request_wait). On a slow device 6 MiB and a queue of 128 requests are seconds. \
        3.2 and later pause every writer in proportion to its own rate, at most 200 ms at a time.",
    kernels: "2.6 to 3.1 by design; later only through the request queue, cgroups or the journal.",
    in_spans: "dirty-throttle or request-queue with a worst call many times the median.",
    in_counters: "A writer's own log: few delays, but each of seconds, and the longest several times the median, \
        while all writers finish at the same time.",
    against: "All delays alike: then the device is simply slower than the writers. One writer only.",
    fix: "3.2 or later. Before: smaller chunks (the ratelimit_pages patch), vm.dirty_bytes (2.6.29) or \
        vm.dirty_ratio low, a smaller queue/nr_requests; or writers that fsync as they go.",
    prove: "The same writers with vm.dirty_bytes = 8 MiB: the median rises a little, the worst falls to it.",
    sources: &[
        "mm/page-writeback.c: balance_dirty_pages, ratelimit_pages (2.6.17)",
        "block/ll_rw_blk.c: get_request_wait, ioc_set_batching (2.6.17)",
    ],
    find,
};

/// Long waits of writers, from their slow calls and from their own logs.
#[derive(Clone, Debug)]
pub struct Delays {
    /// Sorted, ns.
    pub ns: Vec<u64>,
    /// Whether any segment has a known cause.
    pub traced: bool,
}

/// Writes of half a second and more, if at most half of them waited mostly for something other than throttling or
/// the queue.
#[must_use]
pub fn delays(facts: &Facts<'_>) -> Option<Delays> {
    // A server's log does not time write() calls on one file: its loop has other work and other reasons to be late.
    let import = facts.recording.header.import.as_ref();
    if import.is_some_and(|import| import.formats.iter().any(|read| read.kind == FormatKind::ServerLog)) {
        return None;
    }
    // In a log, an unexplained segment with a stack shows that the task slept in neither throttling nor the queue.
    let stack = |call: &Call| {
        let unnamed =
            call.segments.iter().any(|segment| segment.cause == Cause::Unexplained && segment.stack.is_some());
        unnamed && facts.recording.header.source == Source::Import
    };
    let long = |call: &&Call| call.op == OpKind::Write && call.duration_ns >= DELAY_NS_MIN && !stack(call);
    let calls: Vec<&Call> = facts.recording.calls.iter().filter(long).collect();
    let mut ns: Vec<u64> = calls.iter().map(|call| call.duration_ns).collect();
    for outcome in &facts.recording.outcomes {
        if let WorkloadOutcome::Bulk(bulk) = outcome
            && ns.last().is_none_or(|_| !ns.contains(&bulk.delay_ns_max))
            && bulk.delay_ns_max >= DELAY_NS_MIN
        {
            // A log may state only its maximum, without the call.
            ns.push(bulk.delay_ns_max);
        }
    }
    ns.sort_unstable();
    let traced = calls.iter().any(|call| call.segments.iter().any(|segment| segment.cause != Cause::Unexplained));
    let elsewhere = |call: &&&Call| {
        let waiting: u64 = call
            .segments
            .iter()
            .filter(|segment| matches!(segment.cause, Cause::DirtyThrottle | Cause::RequestQueue | Cause::Unexplained))
            .map(|segment| segment.ns)
            .fold(0, u64::saturating_add);
        waiting < call.duration_ns / 2
    };
    let other = calls.iter().filter(elsewhere).count();
    (!ns.is_empty() && other <= calls.len() / 2).then_some(Delays { ns, traced })
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let delays = delays(facts).filter(|delays| delays.ns.len() >= 2)?;
    let (median, worst) = (*delays.ns.get(delays.ns.len().saturating_sub(1) / 2)?, *delays.ns.last()?);
    let ratio = worst as f64 / median.max(1) as f64;
    if ratio < WORST_PER_MEDIAN_MIN {
        return None;
    }
    let mut finding =
        Finding::inferred(CauseId::UnfairThrottling, if delays.traced { 0.7 } else { 0.55 }, ENTRY.headline);
    let text = format!(
        "{} writes waited over {}: median {}, worst {}, {ratio:.1} times as long",
        delays.ns.len(),
        Nanos(DELAY_NS_MIN),
        Nanos(median),
        Nanos(worst)
    );
    finding.evidence.push(Evidence::new(text, worst as f64, "ns"));
    for outcome in &facts.recording.outcomes {
        if let WorkloadOutcome::Bulk(bulk) = outcome
            && let (Some(throughput), Some(delay)) = (bulk.fairness_throughput, bulk.fairness_delay)
        {
            let text = format!("fairness (Jain's index, 1 is even): throughput {throughput:.3}, delay {delay:.3}");
            finding.evidence.push(Evidence::new(text, delay, ""));
        }
    }
    if !delays.traced {
        let text = "the writers' times do not show what they waited for: a device that stops for seconds looks the \
            same";
        finding.against.push(Evidence::statement(text));
    }
    if facts.kernel_from([3, 2, 0]) == Some(true) {
        finding.weight -= 0.15;
        finding.against.push(Evidence::statement(
            "this kernel pauses writers one by one (3.2 and later): the unfairness is in the queue or the device",
        ));
    }
    let finding = finding.fix(Fix::knob("throttle early and often", knob!("vm.dirty_bytes"), "8MiB"));
    let finding =
        finding.fix(Fix::advice("a kernel of 3.2 or later, which pauses each writer in proportion to its rate"));
    Some(finding.settle(
        "run `flatwater record` as root with -p of each writer for -t 60s: dirty-throttle and \
        request-queue distinguish it from a slow device",
    ))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Cause, OpKind};

    fn writes(cause: Cause, milliseconds: &[f64]) -> RecordingBuilder {
        milliseconds
            .iter()
            .fold(RecordingBuilder::new().kernel("2.6.17"), |builder, ms| builder.slow(OpKind::Write, &[(cause, *ms)]))
    }

    #[test]
    fn one_wait_of_many_seconds_among_short_ones_is_unfair() {
        let finding = writes(Cause::Unexplained, &[4_806.0, 14_968.0]).found(&ENTRY).expect("3.1 times");
        assert!(
            evidence_text(&finding).contains("3.1 times as long")
                && finding.basis == flatwater_recording::Basis::Inferred
        );
        assert!(
            writes(Cause::DirtyThrottle, &[700.0, 800.0, 26_000.0])
                .found(&ENTRY)
                .is_some_and(|finding| finding.weight > 0.6)
        );
    }

    #[test]
    fn even_short_or_other_waits_are_not() {
        assert!(writes(Cause::DirtyThrottle, &[2_600.0, 2_700.0, 2_650.0]).found(&ENTRY).is_none());
        assert!(writes(Cause::DirtyThrottle, &[2.0, 20.0, 200.0]).found(&ENTRY).is_none());
        assert!(writes(Cause::JournalCommit, &[600.0, 9_000.0]).found(&ENTRY).is_none());
    }
}

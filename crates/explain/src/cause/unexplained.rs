//! unexplained: time in slow calls without a known cause.

use super::{CauseEntry, CauseId};
use crate::facts::{Facts, counted_buckets};
use crate::sums::total;
use crate::{Evidence, Finding, exclude, finding};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, HookState};

/// Below this share of the stall time, it is a remainder and not a finding.
const SHARE_MIN: f64 = 0.05;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "unexplained",
    span: Some(Cause::Unexplained),
    headline: "part of the stall time has no known cause",
    mechanism: "Not a cause: what remains of the slow calls after every bracket, sleep and sample. It is printed so \
        that the shares are true.",
    kernels: "All.",
    in_spans: "The remainder of each call.",
    in_counters: "Everything, where calls were timed but not traced.",
    against: "",
    fix: "Give flatwater more access: run as root, allow BPF (kernel.unprivileged_bpf_disabled does not matter for \
        root; lockdown does), a kernel with BTF.",
    prove: "`flatwater check` lists each hook and why it does not measure.",
    sources: &[],
    find,
};

/// Slow calls in a log that only counts latencies.
fn only_counted(facts: &Facts<'_>) -> Option<Finding> {
    let counted = facts.counted;
    if counted.calls == 0 || !facts.hurt() || exclude::device_keeps_up(facts.recording) {
        return None;
    }
    let own = || counted_buckets(facts.recording);
    let all = total(own().map(|bucket| bucket.from_start.count()));
    let locks = counted.locks;
    let (cause, headline) = if locks {
        (CauseId::Lock, "threads wait for locks that others hold")
    } else {
        (CauseId::Unexplained, "operations were slow, and the log counts them without saying where they waited")
    };
    let mut finding = Finding::inferred(cause, if locks { 0.8 } else { 0.9 }, headline);
    let (sum, worst) = (Nanos(counted.ns), Nanos(counted.worst_ns));
    let text = if locks {
        // A log of lock waits gives number, mean and extremes; how many were long is unknown.
        format!("{all} waits, at least {sum} together, the longest {worst}")
    } else {
        format!(
            "{} of {all} took {} and more, {sum} together at least, the worst {worst}",
            counted.calls,
            Nanos(facts.threshold_ns)
        )
    };
    finding.evidence.push(Evidence::new(text, counted.ns as f64, "ns"));
    finding.lost_ns = Some(counted.ns);
    let worst = own().filter(|bucket| !bucket.thread.is_empty()).max_by_key(|bucket| bucket.worst_from_start_ns);
    finding.evidence.extend(worst.map(|bucket| {
        let text = format!("the worst, {}, under the name `{}`", Nanos(bucket.worst_from_start_ns), bucket.thread);
        Evidence::new(text, bucket.worst_from_start_ns as f64, "ns")
    }));
    Some(finding)
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    if facts.counted.calls > 0 {
        return only_counted(facts);
    }
    let sum = facts.significant(Cause::Unexplained).filter(|sum| facts.share(sum) >= SHARE_MIN)?;
    let mut finding = Finding::from_spans(facts, sum, ENTRY.headline);
    let hooks = &facts.recording.header.hooks;
    let blind: Vec<&str> = hooks
        .iter()
        .filter(|hook| hook.state == HookState::Unavailable)
        .map(|hook| hook.hook.as_str())
        .take(4)
        .collect();
    if !blind.is_empty() {
        finding.evidence.push(Evidence::statement(format!("hooks that could not be used: {}", blind.join(", "))));
    }
    let traced = hooks.iter().any(|hook| hook.state != HookState::Unavailable);
    let settle = if traced {
        "run `flatwater check` for the hooks that are missing, and report the stacks of these calls"
    } else {
        finding::SETTLE_RECORD
    };
    Some(finding.settle(settle))
}

#[cfg(test)]
mod tests {
    use super::ENTRY;
    use crate::testing::{RecordingBuilder, evidence_text};
    use flatwater_recording::{Cause, OpKind};

    #[test]
    fn untraced_calls_ask_for_a_trace() {
        let finding = RecordingBuilder::new()
            .slow(OpKind::Write, &[(Cause::Unexplained, 40.0)])
            .found(&ENTRY)
            .expect("40 ms of 40");
        assert!(finding.settle.contains("as root"), "{}", finding.settle);
    }

    #[test]
    fn a_histogram_under_a_name_counts_as_any_other() {
        let named =
            RecordingBuilder::new().bucket("usecs", OpKind::Other, &[3_000, 4_000, 131_000_000]).edit(|recording| {
                recording.header.source = flatwater_recording::Source::Import;
            });
        let finding = named.found(&ENTRY).expect("131 ms");
        assert!(evidence_text(&finding).contains("under the name `usecs`"), "{}", evidence_text(&finding));
    }

    #[test]
    fn a_small_remainder_is_not_a_finding() {
        let builder =
            RecordingBuilder::new().slow(OpKind::Write, &[(Cause::RunQueue, 990.0), (Cause::Unexplained, 10.0)]);
        assert!(builder.found(&ENTRY).is_none());
    }
}

//! not-observed: no operation of the targets was timed, so their stalls are unknown.

use super::{CauseEntry, CauseId};
use crate::facts::Facts;
use crate::finding::NO_CONFIDENCE;
use crate::{Evidence, Finding};
use flatwater_recording::units::Nanos;
use flatwater_recording::{AccessKind, Observed};

pub const ENTRY: CauseEntry = CauseEntry {
    name: "not-observed",
    span: None,
    headline: "no operation of the watched programs was observed: whether they stall is not known",
    mechanism: "Programs reach their files by system calls, page faults of mappings, io_uring and libaio. Where none \
        of the operations of a target was timed, an empty list of slow calls means nothing.",
    kernels: "All.",
    in_spans: "No call was timed, fast or slow.",
    in_counters: "The kernel's counters were sampled and show no signature of a known stall.",
    against: "A target that was really idle all the time.",
    fix: "Watch the processes that do the work: `-p` takes a whole tree, `--program`, `--unit` and `--cgroup` take \
        what belongs together. Programs that use io_uring or libaio are listed under `observed`.",
    prove: "Record again while the program works: `record` says at its start which processes it watches.",
    sources: &[],
    find,
};

/// A finding if other programs were watched and none of their operations was timed.
fn find(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.watched_others() || facts.timed() {
        return None;
    }
    let header = &facts.recording.header;
    let what = if header.target.what.is_empty() { "the target" } else { &header.target.what };
    let (length, threshold) = (Nanos(facts.duration_ns), Nanos(facts.threshold_ns));
    let (headline, text) = if header.observed.iter().any(finds_slow_calls_only) {
        let unseen = "shorter calls are neither timed nor counted";
        (NONE_SLOW, format!("0 calls of {what} took {threshold} or longer in {length}; {unseen}"))
    } else {
        (ENTRY.headline, format!("0 operations of {what} were timed in {length}"))
    };
    let mut finding = Finding::inferred(CauseId::NotObserved, NO_CONFIDENCE, headline);
    finding.evidence.push(Evidence::new(text, 0.0, "operations"));
    finding.evidence.extend(header.observed.iter().map(evidence));
    finding.settle = match missed(facts) {
        Some(missed) if !missed.remedy.is_empty() => missed.remedy.clone(),
        _ => "record again while the program works, with all its processes (`-p` of the first one, `--program`, \
              `--unit` or `--cgroup`)"
            .to_owned(),
    };
    Some(finding)
}

const NONE_SLOW: &str = "no slow call was seen; how many calls the watched programs made is not known";

/// Whether slow calls were watched without counting all calls, as at level 0 and without privileges.
fn finds_slow_calls_only(observed: &Observed) -> bool {
    observed.access == AccessKind::FileCalls && observed.timed && observed.count.is_none()
}

/// The first kind of access that was not timed.
fn missed<'a>(facts: &Facts<'a>) -> Option<&'a Observed> {
    facts.recording.header.observed.iter().find(|observed| !observed.timed)
}

fn evidence(observed: &Observed) -> Evidence {
    let noun = observed.access.noun();
    let of = match observed.pids.as_slice() {
        [] => String::new(),
        [pid] => format!(" of process {pid}"),
        pids => format!(" of {} processes", pids.len()),
    };
    match (observed.timed, observed.count) {
        (true, Some(count)) => Evidence::new(format!("{noun}{of}: watched, {count} seen"), count as f64, "operations"),
        (true, None) => Evidence::statement(format!("{noun}{of}: watched")),
        (false, Some(count)) => Evidence::new(
            format!("{noun}{of}: {count} made and not timed, {}", observed.why),
            count as f64,
            "operations",
        ),
        (false, None) => Evidence::statement(format!("{noun}{of}: not timed, {}", observed.why)),
    }
}

/// Notes about a target's operations that were not timed, one for each kind; empty if all were.
#[must_use]
pub fn untimed(observed: &[Observed]) -> Vec<String> {
    let missed = observed.iter().filter(|observed| !observed.timed);
    // If no call could be timed at all, the header has its own note. Page faults and rare calls do not need one.
    let headlines = [AccessKind::IoUring, AccessKind::LinuxAio];
    let important = missed.filter(|observed| headlines.contains(&observed.access));
    important
        .map(|observed| {
            let remedy = if observed.remedy.is_empty() { String::new() } else { format!("; {}", observed.remedy) };
            format!("{}{remedy}", evidence(observed).text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::RecordingBuilder;
    use crate::{CauseId, Conclusion};
    use flatwater_recording::{AccessKind, Cause, HookState, HookStatus, Observed, OpKind};

    /// A recording of another program's process, with an attached tracer.
    fn watched() -> RecordingBuilder {
        RecordingBuilder::new().edit(|recording| {
            recording.header.target.pids = vec![812];
            recording.header.target.what = "pid 812 (postgres)".to_owned();
            let serves = vec!["calls".to_owned()];
            let hook = "tp_btf/sys_enter".to_owned();
            recording.header.hooks = vec![HookStatus::new(hook, serves, HookState::Exact, "")];
            recording.header.observed = vec![Observed::timed(AccessKind::FileCalls, Some(0))];
        })
    }

    #[test]
    fn a_target_of_which_nothing_was_seen_is_never_quiet() {
        let explanation = watched().explained();
        assert_eq!(explanation.findings[0].cause, CauseId::NotObserved);
        assert_eq!(explanation.conclusion, Conclusion::NotObserved);
        assert!(explanation.findings[0].evidence[0].text.contains("0 operations of pid 812 (postgres)"));
        assert!(explanation.findings[0].confidence.is_nan(), "nothing is claimed");
    }

    /// Without privileges and at level 0 only slow calls are found.
    #[test]
    fn calls_that_are_not_counted_are_not_called_unobserved() {
        let watched = watched().edit(|recording| {
            recording.header.observed = vec![Observed::timed(AccessKind::FileCalls, None)];
            recording.header.threshold_ns = 4_000_000;
        });
        let finding = &watched.explained().findings[0];
        assert_eq!((finding.cause, &*finding.headline), (CauseId::NotObserved, super::NONE_SLOW));
        assert!(finding.evidence[0].text.contains("took 4 ms or longer in 10 s"), "{}", finding.evidence[0].text);
    }

    #[test]
    fn findings_from_counters_come_after_not_observed() {
        let explanation = watched().scans(0, 400_000, 100).explained();
        let causes: Vec<CauseId> = explanation.findings.iter().map(|finding| finding.cause).collect();
        assert!(causes.len() > 1 && causes[0] == CauseId::NotObserved, "{causes:?}");
        assert_eq!(explanation.conclusion, Conclusion::NotObserved);
    }

    #[test]
    fn requests_past_the_system_calls_are_named_with_the_process() {
        let ring = Observed::missed(AccessKind::IoUring, "past the system calls", "ask fio").of(vec![812]);
        let explanation = watched().edit(|recording| recording.header.observed.push(ring)).explained();
        let texts: Vec<&str> = explanation.findings[0].evidence.iter().map(|evidence| evidence.text.as_str()).collect();
        assert!(texts.contains(&"io_uring requests of process 812: not timed, past the system calls"), "{texts:?}");
        assert_eq!(explanation.findings[0].settle, "ask fio");
    }

    #[test]
    fn timed_calls_are_enough_to_be_quiet() {
        let explanation = watched().bucket("", OpKind::Write, &[1000; 40]).explained();
        assert_eq!(explanation.conclusion, Conclusion::Quiet);
        let explanation = watched().slow(OpKind::Write, &[(Cause::JournalCommit, 40.0)]).explained();
        assert_eq!(explanation.conclusion, Conclusion::Findings);
    }
}

//! not-enough-to-judge: the log shows neither a cause nor figures that exclude one.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, exclude};
use flatwater_recording::Source;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "not-enough-to-judge",
    span: None,
    headline: "not enough to judge: the log shows no known cause, and no figure in it excludes one",
    mechanism: "A log shows only what its tool counts. Memory at one moment shows nothing about devices, a list of \
        caches nothing about waits, an application's complaint nothing about what it waited for. Where no rule finds \
        a cause and no figure excludes the usual ones, `quiet` would be a guess.",
    kernels: "All.",
    in_spans: "No call was timed.",
    in_counters: "None that decides: a snapshot without its time, an unrelated table, or lines that could not be read.",
    against: "Figures over some time that show short queues, no scans, no swapping and little pressure: then the \
        conclusion is quiet.",
    fix: "None before it is measured.",
    prove: "Take the measurement that the finding names while the stall lasts.",
    sources: &[],
    find,
};

/// Answers for logs only, where nothing else was found. Programs that flatwater watched itself are not-observed.
fn find(facts: &Facts<'_>) -> Option<Finding> {
    if facts.recording.header.source != Source::Import {
        return None;
    }
    let view = exclude::view(facts);
    if view.is_quiet() {
        return None;
    }
    let mut finding = Finding::inferred(ENTRY.name, 1.0, ENTRY.headline);
    finding.evidence.extend(exclude::basis(facts));
    finding.evidence.extend(view.excluded.iter().map(|one| one.evidence.clone()));
    finding.against.extend(view.suspicious.iter().map(|one| one.evidence.clone()));
    finding.settle = view.settle().to_owned();
    Some(finding)
}

#[cfg(test)]
mod tests {
    use crate::testing::Made;
    use crate::{Conclusion, Explanation};
    use flatwater_recording::{Entity, Source, Table};

    fn pasted(made: Made) -> Explanation {
        made.edit(|recording| recording.header.source = Source::Import).explained()
    }

    #[test]
    fn a_log_that_shows_nothing_is_not_quiet() {
        let explanation = pasted(Made::new());
        assert_eq!(explanation.conclusion, Conclusion::NotEnough);
        assert_eq!(explanation.findings[0].cause, "not-enough-to-judge");
        assert!(!explanation.findings[0].settle.is_empty(), "it names the measurement");
    }

    #[test]
    fn a_list_of_caches_alone_excludes_nothing() {
        let columns: [(&str, &[i64]); 2] = [("num_objs", &[1000]), ("objsize_bytes", &[192])];
        let explanation = pasted(Made::new().gauges(Table::Slabs, &Entity::named("dentry"), &columns));
        assert_eq!(explanation.conclusion, Conclusion::NotEnough);
    }

    #[test]
    fn idle_figures_over_time_are_quiet_and_say_which() {
        let idle: Vec<i64> = (0..20).map(|second| second * 980_000_000).collect();
        let wait: Vec<i64> = (0..20).map(|second| second * 1_000_000).collect();
        let all = Entity::named("all");
        let made = Made::new().counters(Table::Cpu, &all, &[("idle_ns", &idle), ("iowait_ns", &wait)]);
        let explanation = pasted(made.gauges(Table::Cpu, &all, &[("procs_blocked", &[0; 20])]));
        assert_eq!(explanation.conclusion, Conclusion::Quiet);
        let text = crate::testing::said(&explanation.findings[0]);
        assert!(text.contains("waited for I/O"), "{text}");
    }

    #[test]
    fn figures_that_are_suspicious_are_not_quiet() {
        let idle: Vec<i64> = (0..20).map(|second| second * 745_000_000).collect();
        let wait: Vec<i64> = (0..20).map(|second| second * 250_000_000).collect();
        let all = Entity::named("all");
        let made = Made::new().counters(Table::Cpu, &all, &[("idle_ns", &idle), ("iowait_ns", &wait)]);
        let explanation = pasted(made);
        assert_eq!(explanation.conclusion, Conclusion::NotEnough);
        assert!(explanation.findings[0].settle.contains("iostat"), "{}", explanation.findings[0].settle);
    }
}

//! not-enough-to-judge: the log shows neither a cause nor figures that exclude one.

use super::{CauseEntry, CauseId, quiet};
use crate::exclude::{self, Resolution};
use crate::facts::Facts;
use crate::finding::{NO_CONFIDENCE, SETTLE_RECORD};
use crate::operations::operations;
use crate::{Finding, channel};
use flatwater_recording::Source;
use flatwater_recording::units::Nanos;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "not-enough-to-judge",
    span: None,
    headline: "not enough to judge: the log shows no known cause, and no figure in it excludes one",
    mechanism: "A log shows only what its tool counts. Memory at one moment shows nothing about devices, a list of \
        caches nothing about waits, an application's complaint nothing about what it waited for. Averages over a \
        second do not show a write of 40 ms. Where no rule finds a cause and no figure excludes the usual ones, \
        `quiet` would be a guess.",
    kernels: "All.",
    in_spans: "No call was timed.",
    in_counters: "None that decides: averages without a problem, a snapshot without its time, an unrelated table, or \
        lines that could not be read.",
    against: "Operations that the log times one by one, all of them short: then the conclusion is quiet.",
    fix: "None before it is measured.",
    prove: "Take the measurement that the finding names while the stall lasts.",
    sources: &[],
    find,
};

/// For logs without any other finding that do not time operations, or whose figures suggest a stall, and for host
/// recordings with few operations. Watched programs without timed operations are `not-observed`.
fn find(facts: &Facts<'_>) -> Option<Finding> {
    if facts.recording.header.source != Source::Import {
        return of_few_operations(facts);
    }
    let view = exclude::view(facts);
    let calm = view.is_quiet();
    let moment = calm && is_moment_of_memory(facts, &view);
    let averages = calm && exclude::resolution(facts) == Resolution::Averages;
    if calm && !moment && !averages {
        return None;
    }
    let headline = match (moment, averages) {
        (true, _) => MOMENT,
        (false, true) => AVERAGES,
        (false, false) => ENTRY.headline,
    };
    let mut finding = Finding::inferred(CauseId::NotEnough, NO_CONFIDENCE, headline);
    finding.evidence.extend(exclude::basis(facts));
    finding.evidence.extend(view.excluded.iter().map(|one| one.evidence.clone()));
    finding.against.extend(view.suspicious.iter().map(|one| one.evidence.clone()));
    finding.settle = view.settle().to_owned();
    if averages {
        finding.evidence.extend(quiet::shortest(facts, false));
        finding.evidence.extend(quiet::levels(facts));
        finding.against.extend(exclude::unjudged(facts, &view).map(|part| part.evidence()));
        if !moment {
            finding.settle = SETTLE_RECORD.to_owned();
        }
    }
    Some(finding)
}

const MOMENT: &str = "not enough to judge: at one moment memory was not short; the figures show nothing of devices, \
                      journals, CPU limits or locks";
const AVERAGES: &str = "not enough to judge: nothing in these figures points to a known cause, but they are averages \
                        and counters, which do not show a stall of some ms";

/// Whether the log excludes only a memory shortage, and by a single reading of memory levels.
fn is_moment_of_memory(facts: &Facts<'_>, view: &exclude::View) -> bool {
    let once = facts.recording.series.iter().all(|series| series.at_ns().first() == series.at_ns().last());
    let levels = |shown: &exclude::Shown| shown.matter == exclude::Matter::Memory && shown.evidence.unit == "%";
    once && !facts.timed() && view.excluded.iter().all(levels)
}

/// A recording of this host needs at least this many operations and this duration for `quiet`.
const OPERATIONS_MIN: u64 = 20;
const RECORDED_NS_MIN: u64 = 1_000_000_000;

/// A host recording that timed few operations, lasted too short a time, or saw only calls that slept for long.
fn of_few_operations(facts: &Facts<'_>) -> Option<Finding> {
    if facts.is_polled() {
        let headline = format!(
            "not enough to judge: {} calls slept for {} or longer; without privileges no other call is seen",
            facts.calls,
            Nanos(facts.threshold_ns)
        );
        return Some(Finding::inferred(CauseId::NotEnough, NO_CONFIDENCE, headline).settle(channel::ROOT_ADDS));
    }
    let of_host = facts.recording.header.source == Source::Host;
    let all = operations(facts.recording);
    let operations = all.iter().fold(0_u64, |sum, line| sum.saturating_add(line.count));
    if !of_host || operations == 0 || (operations >= OPERATIONS_MIN && facts.duration_ns >= RECORDED_NS_MIN) {
        return None;
    }
    let names: Vec<String> = all.iter().map(|line| format!("{} {}()", line.count, line.name)).collect();
    let headline = format!("not enough to judge: {} in {}", names.join(", "), Nanos(facts.duration_ns));
    let finding = Finding::inferred(CauseId::NotEnough, NO_CONFIDENCE, headline);
    Some(finding.settle("record for 10 s or longer, over the time at which the stall is reported"))
}

#[cfg(test)]
mod tests {
    use crate::testing::RecordingBuilder;
    use crate::{CauseId, Conclusion, Explanation};
    use flatwater_recording::{Entity, OpKind, Source, Table};

    fn pasted(builder: RecordingBuilder) -> Explanation {
        builder.edit(|recording| recording.header.source = Source::Import).explained()
    }

    #[test]
    fn a_log_that_shows_nothing_is_not_quiet() {
        let explanation = pasted(RecordingBuilder::new());
        assert_eq!(explanation.conclusion, Conclusion::NotEnough);
        assert_eq!(explanation.findings[0].cause, CauseId::NotEnough);
        assert!(!explanation.findings[0].settle.is_empty(), "it names the measurement");
    }

    #[test]
    fn one_reading_of_free_memory_is_not_quiet_and_has_no_confidence() {
        let levels: [(&str, &[i64]); 2] = [("MemTotal_bytes", &[16 << 30]), ("MemAvailable_bytes", &[15 << 30])];
        let explanation = pasted(RecordingBuilder::new().gauges(Table::Meminfo, &Entity::default(), &levels));
        assert_eq!(explanation.conclusion, Conclusion::NotEnough);
        let finding = &explanation.findings[0];
        assert!(finding.headline.contains("memory was not short"), "{}", finding.headline);
        assert!(finding.settle.contains("iostat"), "{}", finding.settle);
        assert!(crate::is_absent(&finding.confidence), "it is not printed");
    }

    #[test]
    fn one_open_in_110_ms_is_not_quiet() {
        let build = |times: usize, ms: u64| {
            let builder = RecordingBuilder::new().bucket("", OpKind::Open, &vec![20_000; times]);
            builder.edit(|recording| recording.header.duration_ns = ms * 1_000_000).explained()
        };
        let few = build(1, 110);
        assert_eq!(few.conclusion, Conclusion::NotEnough);
        assert!(few.findings[0].headline.contains("1 open() in 110 ms"), "{}", few.findings[0].headline);
        assert_eq!(build(500, 60_000).conclusion, Conclusion::Quiet);
    }

    #[test]
    fn a_list_of_caches_alone_excludes_nothing() {
        let columns: [(&str, &[i64]); 2] = [("num_objs", &[1000]), ("objsize_bytes", &[192])];
        let explanation = pasted(RecordingBuilder::new().gauges(Table::Slabs, &Entity::named("dentry"), &columns));
        assert_eq!(explanation.conclusion, Conclusion::NotEnough);
    }

    #[test]
    fn idle_figures_over_time_say_what_they_exclude_and_are_not_quiet() {
        let idle: Vec<i64> = (0..20).map(|second| second * 980_000_000).collect();
        let wait: Vec<i64> = (0..20).map(|second| second * 1_000_000).collect();
        let all = Entity::named("all");
        let builder = RecordingBuilder::new().counters(Table::Cpu, &all, &[("idle_ns", &idle), ("iowait_ns", &wait)]);
        let explanation = pasted(builder.gauges(Table::Cpu, &all, &[("procs_blocked", &[0; 20])]));
        assert_eq!(explanation.conclusion, Conclusion::NotEnough);
        let text = crate::testing::evidence_text(&explanation.findings[0]);
        assert!(text.contains("waited for I/O"), "{text}");
    }

    #[test]
    fn figures_that_are_suspicious_are_not_quiet() {
        let idle: Vec<i64> = (0..20).map(|second| second * 745_000_000).collect();
        let wait: Vec<i64> = (0..20).map(|second| second * 250_000_000).collect();
        let all = Entity::named("all");
        let builder = RecordingBuilder::new().counters(Table::Cpu, &all, &[("idle_ns", &idle), ("iowait_ns", &wait)]);
        let explanation = pasted(builder);
        assert_eq!(explanation.conclusion, Conclusion::NotEnough);
        assert!(explanation.findings[0].settle.contains("iostat"), "{}", explanation.findings[0].settle);
    }
}

//! Constructors of findings, from parts of calls or from counters.

use super::cause::CauseId;
use super::facts::{CauseSum, Facts};
use super::{Evidence, Finding, Fix};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Basis, Cause, CauseBasis, DurationBasis, OpKind, Source};

/// `settle` of most findings from counters alone.
pub const SETTLE_RECORD: &str = "run `flatwater record -p PID -t 60s` as root while it is slow: it times each slow \
    call and names where the time went";

/// Requests at devices are a finding of their own from this share of the lost time.
const REQUESTS_SHARE_MIN: f64 = 0.1;

/// The weight and confidence of a finding that claims nothing: absent in JSON and in reports.
pub const NO_CONFIDENCE: f64 = f64::NAN;

impl Finding {
    /// A finding from the parts of slow calls, with the evidence that every such finding has.
    #[must_use]
    pub fn from_spans(facts: &Facts<'_>, sum: &CauseSum, headline: impl Into<String>) -> Finding {
        let share = facts.share(sum);
        let mut finding = Finding {
            cause: sum.cause.into(),
            basis: sum.duration_basis().into(),
            duration_basis: sum.duration_basis(),
            cause_basis: sum.cause_basis(),
            confidence: NO_CONFIDENCE,
            weight: weight(facts, sum),
            lost_ns: Some(sum.lost_ns),
            share: None,
            headline: headline.into(),
            evidence: Vec::new(),
            against: Vec::new(),
            fixes: Vec::new(),
            settle: String::new(),
            aggressors: Vec::new(),
            answerable: None,
            log_lines: Vec::new(),
            stages: Vec::new(),
        };
        let text = format!(
            "{} of {} slow calls have this cause: {} of the {} ({:.1} %)",
            sum.calls,
            facts.calls,
            Nanos(sum.lost_ns),
            facts.total(),
            share * 100.0
        );
        finding.evidence.push(Evidence::new(text, sum.lost_ns as f64, "ns"));
        finding.evidence.extend(worst(facts, sum));
        finding.evidence.extend(stack(facts, sum));
        if finding.basis == Basis::Sampled && facts.recording.header.source == Source::Import {
            // One stack, sampled by the tool that wrote the log.
            finding.settle = SETTLE_RECORD.to_owned();
        } else if finding.basis == Basis::Sampled {
            finding.settle =
                "the time is apportioned by stack samples; a higher `--hz`, or a kernel that allows fentry, makes \
                    it exact"
                    .to_owned();
        }
        if facts.recording.header.time_distorted {
            let text = "this machine's virtual time is distorted (software emulation): the share holds, the \
                milliseconds do not";
            finding.against.push(Evidence::statement(text));
        }
        finding
    }

    /// A finding from counters alone.
    #[must_use]
    pub fn inferred(cause: impl Into<CauseId>, weight: f64, headline: impl Into<String>) -> Finding {
        Finding {
            cause: cause.into(),
            basis: Basis::Inferred,
            duration_basis: DurationBasis::Inferred,
            cause_basis: CauseBasis::Counters,
            confidence: NO_CONFIDENCE,
            weight: (weight * 100.0).round() / 100.0,
            lost_ns: None,
            share: None,
            headline: headline.into(),
            evidence: Vec::new(),
            against: Vec::new(),
            fixes: Vec::new(),
            settle: SETTLE_RECORD.to_owned(),
            aggressors: Vec::new(),
            answerable: None,
            log_lines: Vec::new(),
            stages: Vec::new(),
        }
    }

    /// A finding from the time of requests to devices: queued, held back, or at the device. `None` below the
    /// threshold.
    #[must_use]
    pub fn from_requests(facts: &Facts<'_>, cause: CauseId, ns: u64, headline: &str) -> Option<Finding> {
        let enough = facts.enough(ns, ns) && ns as f64 >= REQUESTS_SHARE_MIN * facts.lost_ns as f64;
        if !enough {
            return None;
        }
        let text = format!(
            "{} of the {} ({:.1} %), from insertion, issue and completion of the awaited requests",
            Nanos(ns),
            facts.total(),
            100.0 * ns as f64 / facts.lost_ns.max(1) as f64
        );
        let mut finding = Finding::inferred(cause, 0.9, headline).with([Evidence::new(text, ns as f64, "ns")]);
        finding.basis = Basis::Exact;
        finding.duration_basis = DurationBasis::Measured;
        finding.cause_basis = CauseBasis::Bracketed;
        finding.lost_ns = Some(ns);
        finding.settle = String::new();
        (finding.aggressors, finding.answerable) =
            facts.charges.at_devices().map_or_else(Default::default, |(named, to)| (named, Some(to)));
        Some(finding)
    }

    #[must_use]
    pub fn with(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Finding {
        self.evidence.extend(evidence);
        self
    }

    #[must_use]
    pub fn but(mut self, against: impl IntoIterator<Item = Evidence>) -> Finding {
        self.against.extend(against);
        self
    }

    #[must_use]
    pub fn fix(mut self, fix: Fix) -> Finding {
        self.fixes.push(fix);
        self
    }

    #[must_use]
    pub fn settle(mut self, settle: impl Into<String>) -> Finding {
        self.settle = settle.into();
        self
    }
}

/// The common case: a finding with this headline and these fixes if the cause's time is significant.
#[must_use]
pub fn from_spans(
    facts: &Facts<'_>,
    cause: Cause,
    headline: &str,
    fixes: impl IntoIterator<Item = Fix>,
) -> Option<Finding> {
    let sum = facts.significant(cause)?;
    let mut finding = Finding::from_spans(facts, sum, headline);
    finding.fixes.extend(fixes);
    Some(finding)
}

/// The weight of a cause's time: 0.98 if measured, less if sampled or inferred, and reduced by the share of calls that lost an
/// event and by distorted time.
fn weight(facts: &Facts<'_>, sum: &CauseSum) -> f64 {
    let base = match Basis::from(sum.duration_basis()) {
        Basis::Exact => 0.98,
        Basis::Sampled => 0.85,
        Basis::Inferred => 0.6,
    };
    let damaged = if sum.calls == 0 { 0.0 } else { sum.damaged as f64 / sum.calls as f64 };
    let distorted = if facts.recording.header.time_distorted { 0.9 } else { 1.0 };
    (base * (1.0 - damaged / 2.0) * distorted * 100.0).round() / 100.0
}

fn worst(facts: &Facts<'_>, sum: &CauseSum) -> Option<Evidence> {
    let call = facts.recording.calls.get(sum.worst_call?)?;
    let bytes = call.bytes.map(|bytes| format!(" of {}", Bytes(bytes))).unwrap_or_default();
    let file = call.file.as_deref().map(|file| format!(" to {file}")).unwrap_or_default();
    // `Other` is a kernel thread, or a stack that ends before the system call.
    let op = if call.op == OpKind::Other { "stay in the kernel".to_owned() } else { format!("{}()", call.op.name()) };
    let text = format!(
        "the worst lost {} of {} in one {op}{bytes}{file} by {}",
        Nanos(sum.worst_ns),
        Nanos(call.duration_ns.saturating_add(call.after_exit_ns)),
        who(call),
    );
    Some(Evidence::new(text, sum.worst_ns as f64, "ns").at(call.start_ns))
}

/// `java(3238)`; `thread 3238` if it has no name.
fn who(call: &flatwater_recording::Call) -> String {
    if call.thread.is_empty() { format!("thread {}", call.tid) } else { format!("{}({})", call.thread, call.tid) }
}

/// The stack with most of the cause's time, innermost frame first.
fn stack(facts: &Facts<'_>, sum: &CauseSum) -> Option<Evidence> {
    let id = sum.top_stack()?;
    let ns = *sum.by_stack_ns.get(&id)?;
    let stack = facts.recording.stack(id)?;
    let skip =
        |frame: &&String| !matches!(frame.as_str(), "__schedule" | "schedule" | "io_schedule" | "schedule_timeout");
    let frames: Vec<&str> = stack.frames.iter().filter(skip).take(6).map(String::as_str).collect();
    let share = 100.0 * ns as f64 / sum.lost_ns.max(1) as f64;
    (!frames.is_empty()).then(|| Evidence::new(format!("{share:.0} % at {}", frames.join(" < ")), ns as f64, "ns"))
}

//! Explains a recording: which causes cost how much stall time, and what to do about each.
//!
//! [`explain`] takes a [`Recording`](flatwater_recording::Recording) and returns an [`Explanation`]. It is a pure
//! function: it performs no I/O, does not fail, and treats all sources (host, vm, sim, import) alike.
//!
//! An [`Explanation`] contains the [`Finding`]s, worst first, and the [`Conclusion`] drawn from them. A finding has
//! one cause, its [`Evidence`], what speaks against it, [`Fix`]es, and the processes that made the calls wait
//! ([`Aggressor`], [`Answerable`]).
//!
//! Evidence is of two kinds, which are never mixed. *Spans* are parts of slow calls and say exactly where time
//! went; [`facts::Facts`] sums them by cause. *Counters* are series that were sampled at the same time. A finding
//! from counters alone is marked inferred, has a confidence, and names the one measurement that would settle it.
//!
//! [`cause::CAUSES`] is the catalogue: one entry for each cause, each with a function that looks for it in the
//! facts.
//!
//! [`Focus`] restricts the findings to some of the calls; [`Victim`] is a group of calls that waited.

// Sums of recorded numbers saturate: a damaged recording may contain any numbers, and `explain` must not panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

/// The key of a knob. A name that the registry does not contain is a compile error.
macro_rules! knob {
    ($key:literal) => {
        const { flatwater_recording::knob::Key::of($key) }
    };
}

pub mod aggressor;
pub mod audit;
pub mod cause;
mod cgroups;
mod channel;
pub mod confidence;
pub mod counters;
pub mod disks;
pub mod exclude;
pub mod facts;
mod failed;
mod finding;
pub mod fix;
pub mod focus;
mod hung;
mod lead;
mod log_lines;
mod lru;
mod operations;
pub mod page_lock;
pub mod precedence;
mod pressure;
mod profile;
mod rank;
pub mod role;
mod server;
pub mod settings;
mod sleepers;
mod slow;
mod stages;
pub mod summary;
mod sums;
// Tests choose their own numbers.
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::arithmetic_side_effects)]
pub mod testing;
pub mod trouble;
pub mod victim;
pub mod waits;

pub use aggressor::{Aggressor, Answerable, Member};
pub use cause::CauseId;
pub use fix::{Fix, Measured};
pub use focus::{Focus, FocusError, Focused};
pub use lead::{Awaited, AwaitedRequest, Holder, Lead, MadeBy, part_of_target as member_name, who as aggressor_name};
pub use rank::{explain, explain_focused};
pub use role::Role;
pub use stages::{Stage, number_fixes};
pub use victim::Victim;

use serde::Serialize;

use flatwater_recording::outcome::WorkloadOutcome;
use flatwater_recording::{Basis, CauseBasis, DurationBasis, Gap, Note, Observed, OwnCost};

/// The result of [`explain`]. `docs/json.md` publishes its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Version of the JSON shape.
    pub flatwater: u32,
    pub kind: &'static str,
    pub source: &'static str,
    pub seed: u64,
    pub duration_ns: u64,
    pub operations: Vec<Operation>,
    /// Absent if every call was timed, so that `operations` counts all calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partly_timed: Option<PartlyTimed>,
    /// The groups of calls that waited, request threads first; empty for flatwater's own workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<Victim>,
    /// The calls that the findings were judged by; absent if these are all slow calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<Focused>,
    pub slow: Slow,
    /// The stall time that the shares of findings refer to.
    pub total: Total,
    /// One sentence: who waited, and for what or which process. Absent if no call was slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead: Option<Lead>,
    pub conclusion: Conclusion,
    /// Worst first. If nothing is wrong, exactly one: `quiet`.
    pub findings: Vec<Finding>,
    /// Which of the targets' operations could be observed; absent if flatwater's own threads were measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<Observed>,
    pub gaps: Vec<Gap>,
    pub own_cost: OwnCost,
    /// The workloads' own result tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workload: Vec<WorkloadOutcome>,
    /// Printed at the top: no root, distorted time, events lost.
    pub notes: Vec<Note>,
}

/// The overall result of the findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Conclusion {
    /// At least one cause was found.
    #[default]
    Findings,
    /// Enough was observed, and nothing is wrong.
    Quiet,
    /// No operation of the targets was timed, so stalls are neither shown nor excluded.
    NotObserved,
    /// A log shows no cause, and no figure that excludes one.
    NotEnough,
}

/// Every call was timed for a part of the recording; in the other part only slow calls were found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartlyTimed {
    /// The part to which `operations` refers.
    pub every_call_ns: u64,
    pub duration_ns: u64,
    /// The slow calls of the other part, by operation.
    pub slow_only: Vec<SlowOnly>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SlowOnly {
    pub name: String,
    pub calls: u64,
    pub max_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    pub name: String,
    /// The thread's name for threads that are reported separately (neighbours, the writers of `bulk`); empty for
    /// the foreground as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub thread: String,
    pub count: u64,
    #[serde(flatten)]
    pub from_start: Percentiles,
    /// Absent for closed loops, which have no schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_due: Option<Percentiles>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub p9999_ns: u64,
    pub max_ns: u64,
}

/// The stall time of the calls that findings are judged by.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Total {
    /// The calls: `all slow calls`, `request threads`, or a focus.
    pub of: String,
    pub calls: u64,
    pub stall_ns: u64,
    /// Share of `stall_ns` that has a cause; `None` if slow calls were not recorded one by one.
    pub named_share: Option<f64>,
}

/// The slow calls and where their time went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Slow {
    pub threshold_ns: u64,
    pub calls: u64,
    pub lost_ns: u64,
    /// Share of `lost_ns` that has a cause; `None` if slow calls were not recorded one by one.
    pub named_share: Option<f64>,
    /// How many of `calls` had not returned when the recording ended, and the longest time until then.
    pub still_under_way: u64,
    pub under_way_ns_max: u64,
    /// Most time first; `unexplained` last.
    pub causes: Vec<CauseShare>,
}

#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CauseShare {
    pub cause: CauseId,
    pub lost_ns: u64,
    pub share: f64,
    pub calls: u64,
    pub worst_ns: u64,
    /// `duration_basis` in the words of version 1, kept for its readers.
    pub basis: Basis,
    pub duration_basis: DurationBasis,
    pub cause_basis: CauseBasis,
}

#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    pub cause: CauseId,
    /// `duration_basis` in the words of version 1, kept for its readers.
    pub basis: Basis,
    /// How the lost time is known.
    pub duration_basis: DurationBasis,
    /// How the cause is known.
    pub cause_basis: CauseBasis,
    /// Confidence that this cause is at work, 0 to 1; not how much it matters. Only `confidence::assign` sets it.
    /// Absent (`NaN` here) if nothing is claimed (`not-enough-to-judge`).
    #[serde(skip_serializing_if = "is_absent")]
    pub confidence: f64,
    /// The finder's estimate, 0 to 1. It orders findings without a measured time and is the basis of `confidence`.
    #[serde(skip)]
    pub weight: f64,
    /// Stall time of this cause, ns; `None` if counters cannot tell.
    pub lost_ns: Option<u64>,
    /// `lost_ns` as a share of [`Explanation::total`], 0 to 1; absent if either is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    pub headline: String,
    pub evidence: Vec<Evidence>,
    /// Facts in this recording that speak against the finding.
    pub against: Vec<Evidence>,
    pub fixes: Vec<Fix>,
    /// The one measurement that would settle the finding; empty if nothing is open.
    pub settle: String,
    /// Processes outside the target that made these calls wait, worst first. Empty if no other process is to blame,
    /// or if that is not known (`answerable` is absent).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aggressors: Vec<Aggressor>,
    /// Shares of the stall time by party; absent if the recording cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answerable: Option<Answerable>,
    /// Lines of the imported log that support the finding, in the order of the log; empty if flatwater recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_lines: Vec<LogLines>,
    /// Other causes of the stall with the same answer: the same aggressors and the same fix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_absent(confidence: &f64) -> bool {
    confidence.is_nan()
}

/// A range of lines in one file of an imported log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct LogLines {
    pub file: String,
    /// Counted from 1.
    pub first: u32,
    pub last: u32,
}

/// One fact, with its figure, unit and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    pub unit: &'static str,
    /// Time on the recording's clock; absent if the fact is about the whole recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
}

impl Evidence {
    #[must_use]
    pub fn new(text: impl Into<String>, value: f64, unit: &'static str) -> Evidence {
        Evidence { text: text.into(), value: Some(value), unit, at_ns: None }
    }

    #[must_use]
    pub fn statement(text: impl Into<String>) -> Evidence {
        Evidence { text: text.into(), value: None, unit: "", at_ns: None }
    }

    #[must_use]
    pub fn at(mut self, at_ns: u64) -> Evidence {
        self.at_ns = Some(at_ns);
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::extreme;
    use crate::{Focus, audit, explain, explain_focused, summary};

    #[test]
    fn no_recorded_number_makes_explain_panic() {
        for seed in 0..400 {
            let recording = extreme(seed);
            let explained = std::panic::catch_unwind(|| {
                let focus: Focus = "main".parse().expect("a focus");
                let _ = explain_focused(&recording, &focus);
                let _ = (audit::audit(&recording), summary::of(&recording));
                explain(&recording).findings.len()
            });
            assert!(explained.is_ok_and(|findings| findings > 0), "seed {seed}");
        }
    }
}

//! Explain: turns a recording into an explanation. A pure function that cannot fail and does not depend on who
//! recorded.
//!
//! Two kinds of evidence, never mixed: *spans* (parts of slow calls, which say where time went exactly) and
//! *counters* (what the sampled tables did meanwhile). A finding from counters alone is marked inferred, has
//! a confidence, and says which one measurement would settle it.

/// The key of a knob; one that the registry does not hold does not compile.
macro_rules! knob {
    ($key:literal) => {
        const { flatwater_recording::knob::Key::of($key) }
    };
}

pub mod aggressor;
pub mod audit;
pub mod cause;
mod cgroups;
pub mod confidence;
pub mod counters;
pub mod disks;
pub mod exclude;
pub mod facts;
mod failed;
mod finding;
pub mod focus;
mod hung;
mod lead;
mod log_lines;
mod lru;
mod operations;
pub mod page_lock;
mod pressure;
mod profile;
mod rank;
mod reasons;
pub mod role;
mod server;
pub mod settings;
mod since;
mod sleepers;
mod slow;
pub mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trouble;
pub mod victim;
pub mod waits;

pub use aggressor::{Aggressor, Answerable, Member};
pub use focus::{Focus, FocusError, Focused};
pub use lead::{part_of_target as member_name, who as aggressor_name};
pub use rank::{explain, explain_focused, explain_raw};
pub use role::Role;
pub use victim::Victim;

use flatwater_recording::knob::Key;
use serde::Serialize;

use flatwater_recording::{Basis, CauseBasis, DurationBasis, Gap, Note, Observed, OwnCost, Setup, WorkloadOutcome};

/// What `explain` concludes. `docs/json.md` publishes its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Version of this shape.
    pub flatwater: u32,
    pub kind: &'static str,
    pub source: &'static str,
    pub seed: u64,
    pub duration_ns: u64,
    pub operations: Vec<Operation>,
    /// Absent where every call was timed: then `operations` counts all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partly_timed: Option<PartlyTimed>,
    /// Who waited: threads that clients wait for first; empty for flatwater's own workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<Victim>,
    /// What the findings were judged by, where that is not every slow call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<Focused>,
    pub slow: Slow,
    /// Who waited for whom, in one sentence; absent where no call was slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead: Option<String>,
    pub conclusion: Conclusion,
    /// Worst first; exactly one, `quiet`, when nothing is wrong.
    pub findings: Vec<Finding>,
    /// What could be seen of the targets; absent where flatwater's own threads were measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<Observed>,
    pub gaps: Vec<Gap>,
    pub own_cost: OwnCost,
    /// The workloads' own tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workload: Vec<WorkloadOutcome>,
    /// Said at the top: no root, distorted time, events lost.
    pub notes: Vec<Note>,
}

/// What the findings come to, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Conclusion {
    /// At least one cause was found.
    #[default]
    Findings,
    /// Enough was observed, and nothing is wrong.
    Quiet,
    /// Nothing was seen of what the targets do: neither a stall nor its absence.
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
    /// Empty for the foreground as a whole; a thread's name where it is kept apart (neighbours, bulk's writers).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub thread: String,
    pub count: u64,
    #[serde(flatten)]
    pub from_start: Percentiles,
    /// Absent for closed loops.
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

/// The slow calls and where their time went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Slow {
    pub threshold_ns: u64,
    pub calls: u64,
    pub lost_ns: u64,
    /// Share of `lost_ns` that carries a cause; `None` where no slow call was seen one by one.
    pub named_share: Option<f64>,
    /// Of `calls` those that had not returned when the recording ended, and how long the longest had lasted until then.
    pub still_under_way: u64,
    pub under_way_ns_max: u64,
    /// Most time first; `unexplained` last.
    pub causes: Vec<CauseShare>,
}

#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CauseShare {
    pub cause: &'static str,
    pub lost_ns: u64,
    pub share: f64,
    pub calls: u64,
    pub worst_ns: u64,
    /// As version 1 began: `duration_basis` in its first words.
    pub basis: Basis,
    pub duration_basis: DurationBasis,
    pub cause_basis: CauseBasis,
}

#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    pub cause: &'static str,
    /// As version 1 began: `duration_basis` in its first words.
    pub basis: Basis,
    /// How well it is known how much time it took.
    pub duration_basis: DurationBasis,
    /// How well it is known that it was this.
    pub cause_basis: CauseBasis,
    /// 0 to 1: how sure we are that this cause is at work, not how much it matters.
    /// Absent (`NaN` here) where nothing is claimed: not-enough-to-judge.
    #[serde(skip_serializing_if = "is_absent")]
    pub confidence: f64,
    /// Time lost to it, ns; `None` where counters cannot tell.
    pub lost_ns: Option<u64>,
    pub headline: String,
    pub evidence: Vec<Evidence>,
    /// What speaks against it, as found in this recording.
    pub against: Vec<Evidence>,
    pub fixes: Vec<Fix>,
    /// The one measurement that would settle it; empty where nothing is open.
    pub settle: String,
    /// Who made these calls wait, worst first: processes that were not watched. Empty where nobody else was to blame, or
    /// where `answerable` is absent, where it is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aggressors: Vec<Aggressor>,
    /// To whom the stall time goes; absent where the recording does not hold it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answerable: Option<Answerable>,
    /// Lines of the imported log that it rests on, in the order of the log; empty for what flatwater recorded itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_lines: Vec<LogLines>,
}

// By reference, as serde asks for it.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_absent(confidence: &f64) -> bool {
    confidence.is_nan()
}

/// Lines of one file of an imported log, from the first to the last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct LogLines {
    pub file: String,
    /// From 1.
    pub first: u32,
    pub last: u32,
}

/// One fact with its figure, unit and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    pub unit: &'static str,
    /// When, on the recording's clock; absent if it is about the whole of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
}

impl Evidence {
    #[must_use]
    pub fn new(text: impl Into<String>, value: f64, unit: &'static str) -> Evidence {
        Evidence { text: text.into(), value: Some(value), unit, at_ns: None }
    }

    #[must_use]
    pub fn said(text: impl Into<String>) -> Evidence {
        Evidence { text: text.into(), value: None, unit: "", at_ns: None }
    }

    #[must_use]
    pub fn at(mut self, at_ns: u64) -> Evidence {
        self.at_ns = Some(at_ns);
        self
    }
}

/// Something to do about a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub text: String,
    /// The change of settings, where the fix is one; `flatwater verify --set` takes the same pairs.
    #[serde(skip_serializing_if = "Setup::is_empty")]
    pub set: Setup,
}

impl Fix {
    /// A fix that no knob makes: a code change, an upgrade.
    #[must_use]
    pub fn advice(text: impl Into<String>) -> Fix {
        Fix { text: text.into(), set: Setup::default() }
    }

    /// A fix made by one knob. A value the knob does not take is left out of `set` and stays in the text.
    #[must_use]
    pub fn knob(text: impl Into<String>, key: Key, value: &str) -> Fix {
        let mut set = Setup::default();
        let taken = set.set(key.name(), value);
        // A recording may make a value absurd; a value that we chose may not be.
        #[cfg(test)]
        assert!(taken.is_ok(), "{}={value}: {taken:?}", key.name());
        drop(taken);
        Fix { text: text.into(), set }
    }
}

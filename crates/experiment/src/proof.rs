//! The scenario in which a fix of a recording's report is proven.

use flatwater_explain::{Explanation, Fix};
use flatwater_recording::Recording;
use flatwater_recording::knob::{self, KnobPlace};
use flatwater_workload::scenario::{self, Scenario, ScenarioError};

use crate::reproduce::{self, Bounds, NotReproducible};

/// A fix and its scenario.
#[derive(Debug)]
pub struct Proof {
    pub scenario: Scenario,
    pub fix: Fix,
    /// How the scenario differs from the recording.
    pub notes: Vec<String>,
}

/// Why a fix of a recording cannot be proven by runs of a scenario. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum NotProvable {
    #[error("the report of this recording numbers no fix; `flatwater explain` prints it")]
    NoFixes,
    #[error("the report of this recording has no fix {number}: it numbers 1 to {last} (`flatwater explain`)")]
    UnknownFix { number: usize, last: usize },
    #[error(
        "fix {number} ({text}) is not a setting of a scenario: run its commands on the recorded machine, record again, and `flatwater compare BEFORE AFTER`"
    )]
    NotASetting { number: usize, text: String },
    #[error(
        "it is a run of '{name}', which is not a built-in scenario: run `flatwater verify FILE.toml --set {key}={value}` with its file"
    )]
    OtherScenario { name: String, key: &'static str, value: String },
    #[error("{0}")]
    NotReproducible(#[from] NotReproducible),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// The scenario that the recording is a run of, or one that imitates it, and the report's fix with this number.
pub fn proof(
    recording: &Recording,
    explanation: &Explanation,
    number: usize,
    bounds: &Bounds,
) -> Result<Proof, NotProvable> {
    let all = || explanation.findings.iter().flat_map(|finding| finding.all_fixes());
    let Some(fix) = all().find(|fix| fix.number == number && number > 0) else {
        let last = all().count();
        return Err(if last == 0 { NotProvable::NoFixes } else { NotProvable::UnknownFix { number, last } });
    };
    let not_a_setting = || NotProvable::NotASetting { number, text: fix.text.clone() };
    let (key, value) = fix.setting().ok_or_else(not_a_setting)?;
    let fix = fix.clone();
    if let Some(name) = &recording.header.scenario {
        if scenario::builtin::find(name).is_none() {
            let (name, value) = (name.clone(), value.to_owned());
            return Err(NotProvable::OtherScenario { name, key: key.name(), value });
        }
        return Ok(Proof { scenario: Scenario::load(name)?, fix, notes: Vec::new() });
    }
    if !has_effect(key.name()) {
        return Err(not_a_setting());
    }
    let plan = reproduce::plan(recording, explanation, bounds)?;
    Ok(Proof { scenario: Scenario::parse("reproduction", &plan.scenario)?, fix, notes: plan.notes })
}

/// Whether a knob has an effect on a reproduction on this machine, whose workload makes plain calls.
pub(crate) fn has_effect(key: &str) -> bool {
    let place = knob::find(key).map(|knob| knob.place);
    place.is_ok_and(|place| !matches!(place, KnobPlace::Precursor | KnobPlace::NoFile))
}

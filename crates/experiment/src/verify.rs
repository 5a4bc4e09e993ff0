//! Performs an interleaved trial: the two sides, the length of the runs, when the trial ends, and its result. The
//! caller passes a [`Performer`] that performs each run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::bootstrap::Difference;
use crate::compare::SettingRow;
use crate::figure::Figure;
use crate::judge::{self, logarithm, main_operation, stall_by_cause};
use crate::trial::{Arm, LostBoth, Run, Trial, Verification, arm_of};
use crate::verdict::{Ratio, Verdict};
use flatwater_explain::Fix;
use flatwater_recording::knob::{self, KnobError, KnobPlace, nearest};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, OpKind, Recording, Setup};
use flatwater_workload::scenario::{Scenario, SetError};

/// Time of a run in addition to its length: loop device, file system, noise floor, sealing (2.5 to 6 s).
const OVERHEAD_NS: u64 = 4_000_000_000;
/// Defaults if neither the scenario nor the user gives a length.
const BLOCK: Nanos = Nanos(8_000_000_000);
const SETTLE: Nanos = Nanos(2_000_000_000);
/// A shorter block has too few calls for any figure.
const BLOCK_NS_MIN: u64 = 100_000_000;
/// More looks than this only make each look stricter.
const LOOKS_MAX: u64 = 5;
/// Causes in the table.
const CAUSES_SHOWN: usize = 8;

/// Performs the runs of a trial, on this machine, in a guest or in the model.
pub trait Performer {
    type Error;

    /// Performs the scenario and returns its recording; `None` if the run was interrupted. `number` counts from 0; at
    /// most `of` runs are planned.
    fn perform(
        &mut self,
        scenario: &Scenario,
        arm: Arm,
        number: usize,
        of: usize,
    ) -> Result<Option<Recording>, Self::Error>;
}

/// Why the trial cannot start.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("a block of less than 100ms is too short to judge: give --block 1s or more")]
    BlockTooShort,
    #[error("nothing to verify: give --fix NAME or --set KEY=VALUE that changes something")]
    NothingChanges,
    #[error("scenario '{scenario}' has no fix '{given}'{hint}; it has {known}")]
    UnknownFix { scenario: String, given: String, hint: String, known: String },
    #[error(
        "{key} is shared by the whole machine: add --apply to set it for the runs with the fix (flatwater restores it after each run)"
    )]
    NotPermitted { key: String },
    #[error(transparent)]
    Set(#[from] SetError),
    #[error(transparent)]
    Knob(#[from] KnobError),
}

/// How long each run settles and how long it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub settle: Nanos,
    pub block: Nanos,
}

impl Pace {
    /// The given lengths, else the scenario's, else 2 s and 8 s.
    #[must_use]
    pub fn of(settle: Option<Nanos>, block: Option<Nanos>, scenario: &Scenario) -> Pace {
        let settle = settle.or(scenario.settle).unwrap_or(SETTLE);
        Pace { settle, block: block.or(scenario.block).unwrap_or(BLOCK) }
    }

    fn whole_ns(self) -> u64 {
        self.settle.0.saturating_add(self.block.0)
    }
}

/// The fix that a trial tries.
#[derive(Clone, Copy, Debug)]
pub enum Tried<'a> {
    /// Only assignments.
    Assignments,
    /// A fix of the scenario by its name.
    Named(&'a str),
    /// A fix of a report.
    Fix(&'a Fix),
}

/// The scenario without (`a`) and with the fix (`b`).
#[derive(Clone, Debug)]
pub struct Sides {
    pub a: Scenario,
    pub b: Scenario,
    pace: Pace,
}

impl Sides {
    /// `b` is `a` with the fix and the assignments `set`.
    pub fn new(mut a: Scenario, pace: Pace, fix: Tried<'_>, set: &[String]) -> Result<Sides, VerifyError> {
        if pace.block.0 < BLOCK_NS_MIN {
            return Err(VerifyError::BlockTooShort);
        }
        a.duration = Nanos(pace.whole_ns());
        let mut b = a.clone();
        match fix {
            Tried::Assignments => {}
            Tried::Named(name) => b.setup = b.setup.with(&named_fix(&a, name)?),
            Tried::Fix(fix) => b.setup = b.setup.with(&fix.set()),
        }
        for assignment in set {
            b.set(assignment)?;
        }
        let same_params = a.workloads.iter().zip(&b.workloads).all(|(a, b)| a.params == b.params);
        if a.setup == b.setup && same_params {
            return Err(VerifyError::NothingChanges);
        }
        Ok(Sides { a, b, pace })
    }

    /// Refuses a fix that changes the whole machine if `apply` is false. Without this check the fix would not be
    /// applied, and A compared with A.
    pub fn check_permission(&self, apply: bool) -> Result<(), VerifyError> {
        let own_device = self.b.setup.iter().any(|(key, _)| key.starts_with("mount."));
        let shared = |key: &str| match knob::find(key).map(|knob| knob.place) {
            Ok(KnobPlace::Sysctl | KnobPlace::HugePages | KnobPlace::LruGen) => true,
            Ok(KnobPlace::Queue | KnobPlace::Bdi) => !own_device,
            _ => false,
        };
        let differing = self.a.setup.difference(&self.b.setup);
        match differing.into_iter().find(|(key, ..)| !apply && shared(key)) {
            Some((key, ..)) => Err(VerifyError::NotPermitted { key: key.to_owned() }),
            None => Ok(()),
        }
    }
}

fn named_fix(scenario: &Scenario, name: &str) -> Result<Setup, VerifyError> {
    if let Some(fix) = scenario.fixes.iter().find(|fix| fix.name == name) {
        return Ok(fix.set.clone());
    }
    if name == "precursor" {
        let mut set = Setup::default();
        set.set("precursor", "auto")?;
        return Ok(set);
    }
    let known: Vec<&str> = scenario.fixes.iter().map(|fix| fix.name.as_str()).chain(["precursor"]).collect();
    let hint = nearest(name, known.iter().copied()).map(|near| format!(" (did you mean '{near}'?)"));
    Err(VerifyError::UnknownFix {
        scenario: scenario.name.clone(),
        given: name.to_owned(),
        hint: hint.unwrap_or_default(),
        known: known.join(", "),
    })
}

/// Performs A B B A until a difference is proven, all planned looks are done, or `limit` is reached.
pub fn verify<P: Performer>(
    sides: &Sides,
    figure: impl Into<Figure>,
    limit: Nanos,
    performer: &mut P,
) -> Result<Verification, P::Error> {
    let mut runs = Runs::new(sides, figure.into(), limit);
    let ended = runs.perform(performer)?;
    Ok(runs.verification(ended))
}

/// The runs of a trial so far.
struct Runs<'a> {
    sides: &'a Sides,
    figure: Figure,
    limit: Duration,
    trial: Trial,
    /// Result of the last planned look: runs after it do not count for the verdict.
    looked: Option<(Difference, Verdict)>,
    looks: usize,
    runs: Vec<Run>,
    lost: [BTreeMap<Cause, u64>; 2],
    /// The operation of the figure: the given one, else that of the first run, so that all runs have one figure.
    operation: Option<OpKind>,
    began: Instant,
    notes: Vec<String>,
}

impl<'a> Runs<'a> {
    fn new(sides: &'a Sides, figure: Figure, limit: Nanos) -> Runs<'a> {
        // Fixed before the first run, because the number of looks decides how strict each look is.
        let four_ns = sides.pace.whole_ns().saturating_add(OVERHEAD_NS).saturating_mul(4);
        let looks = (limit.0 / four_ns).clamp(1, LOOKS_MAX) as usize;
        Runs {
            sides,
            figure,
            limit: Duration::from_nanos(limit.0),
            trial: Trial::new(looks, figure.judge.lower_is_better()),
            looked: None,
            looks,
            runs: Vec::new(),
            lost: [BTreeMap::new(), BTreeMap::new()],
            operation: figure.operation,
            began: Instant::now(),
            notes: Vec::new(),
        }
    }

    /// Performs the runs and returns why they ended.
    fn perform<P: Performer>(&mut self, performer: &mut P) -> Result<&'static str, P::Error> {
        let of = 4 * self.looks;
        for number in 0..of {
            let arm = arm_of(number);
            let scenario = if arm == Arm::A { &self.sides.a } else { &self.sides.b };
            // Another run must fit into the limit at the mean length of the runs so far: on a busy machine they take
            // longer than planned.
            let one_more = self.began.elapsed().mul_f64((number + 1) as f64 / number.max(1) as f64);
            if number > 0 && one_more > self.limit {
                return Ok("time");
            }
            match performer.perform(scenario, arm, number, of)? {
                Some(recording) => self.count(arm, &recording),
                None => return Ok("interrupted"),
            }
            if number % 4 == 3 {
                self.looked = self.trial.look();
                if self.looked.is_some_and(|(_, verdict)| verdict != Verdict::NotProven) {
                    return Ok("proven");
                }
                let four_more = self.began.elapsed().mul_f64((number + 5) as f64 / (number + 1) as f64);
                if four_more > self.limit {
                    return Ok("time");
                }
            }
        }
        Ok("runs")
    }

    fn count(&mut self, arm: Arm, recording: &Recording) {
        let settled_ns = recording.header.clock.start_ns.saturating_add(self.sides.pace.settle.0);
        let lost = &mut self.lost[usize::from(arm == Arm::B)];
        for call in recording.foreground_calls().filter(|call| call.start_ns >= settled_ns) {
            for (cause, ns) in stall_by_cause(call) {
                let sum = lost.entry(cause).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
        if self.operation.is_none() {
            self.operation = main_operation(&[recording]);
        }
        let figure = Figure { operation: self.operation, ..self.figure };
        let whole = judge::whole(recording, figure, self.sides.pace.settle.0);
        let (Some(_), Some(value)) = (self.operation, whole) else {
            self.notes.push(format!("run {} of {arm:?} made no calls after settling", self.runs.len() + 1));
            return;
        };
        self.trial.add(arm, logarithm(self.figure.judge, value));
        self.runs.push(Run { arm, value });
    }

    fn verification(self, ended: &'static str) -> Verification {
        let (a, b) = (&self.sides.a, &self.sides.b);
        let look = self.looked;
        let differing = a.setup.difference(&b.setup).into_iter();
        let text = |value: Option<&str>| value.map(str::to_owned);
        let seconds = |arm: Arm| {
            let runs = self.runs.iter().filter(|run| run.arm == arm).count();
            (runs as f64 * self.sides.pace.block.as_secs_f64()).max(1e-9)
        };
        let (in_a, in_b) = (seconds(Arm::A), seconds(Arm::B));
        let causes: BTreeSet<Cause> = self.lost.iter().flat_map(|lost| lost.keys().copied()).collect();
        let per_s = |arm: usize, cause: &Cause, seconds: f64| {
            self.lost.get(arm).and_then(|lost| lost.get(cause)).map_or(0.0, |ns| *ns as f64 / seconds)
        };
        let mut causes: Vec<LostBoth> = causes
            .iter()
            .map(|cause| LostBoth {
                cause: cause.name(),
                a_ns_per_s: per_s(0, cause, in_a),
                b_ns_per_s: per_s(1, cause, in_b),
            })
            .collect();
        causes.sort_short_by(|x, y| y.a_ns_per_s.max(y.b_ns_per_s).total_cmp(&x.a_ns_per_s.max(x.b_ns_per_s)));
        causes.truncate(CAUSES_SHOWN);
        Verification {
            flatwater: 1,
            kind: "verification",
            scenario: a.name.clone(),
            fix: differing.map(|(key, a, b)| SettingRow { key: key.to_owned(), a: text(a), b: text(b) }).collect(),
            judge: self.figure,
            operation: self.operation.map(|operation| operation.name().to_owned()),
            verdict: look.map_or(Verdict::NotProven, |(_, verdict)| verdict),
            level: self.trial.level(),
            ratio: look.map(|(difference, _)| Ratio::of(&difference)),
            runs: self.runs,
            causes,
            ended,
            elapsed_ns: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            notes: self.notes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pace, Performer, Sides, Tried, VerifyError, verify};
    use crate::judge::Judge;
    use crate::trial::Arm;
    use crate::verdict::Verdict;
    use flatwater_explain::testing::RecordingBuilder;
    use flatwater_recording::units::Nanos;
    use flatwater_recording::{OpKind, Recording};
    use flatwater_workload::scenario::Scenario;

    /// A machine on which B halves every latency, and which interrupts the trial after `stop_after` runs.
    struct Machine {
        stop_after: usize,
        seen: Vec<(Arm, Option<String>)>,
    }

    impl Performer for Machine {
        type Error = std::convert::Infallible;

        fn perform(
            &mut self,
            scenario: &Scenario,
            arm: Arm,
            number: usize,
            _of: usize,
        ) -> Result<Option<Recording>, Self::Error> {
            self.seen.push((arm, scenario.setup.get("vm.dirty_bytes").map(str::to_owned)));
            let ns = 40_000_000 + 1_000_000 * (number as u64 % 3);
            let ns = if arm == Arm::A { ns } else { ns / 2 };
            let builder = RecordingBuilder::new().bucket("", OpKind::Write, &[ns; 20]);
            Ok((number < self.stop_after).then(|| builder.done()))
        }
    }

    fn sides(set: &[&str]) -> Result<Sides, VerifyError> {
        let scenario = Scenario::load("journal").expect("built in");
        let pace = Pace::of(Some(Nanos(0)), Some(Nanos(1_000_000_000)), &scenario);
        let set: Vec<String> = set.iter().map(|&assignment| assignment.to_owned()).collect();
        Sides::new(scenario, pace, Tried::Assignments, &set)
    }

    #[test]
    fn runs_alternate_until_the_difference_is_proven() {
        let sides = sides(&["vm.dirty_bytes=64MiB"]).expect("two sides");
        let mut machine = Machine { stop_after: usize::MAX, seen: Vec::new() };
        let found = verify(&sides, Judge::P99, Nanos(280_000_000_000), &mut machine).expect("cannot fail");
        assert_eq!((found.verdict, found.ended), (Verdict::Better, "proven"));
        // B halves the latency in every run: four runs cannot prove it at the level of a look, eight runs can.
        assert_eq!((found.runs.len(), machine.seen.len()), (8, 8));
        let arms: Vec<Arm> = machine.seen.iter().map(|(arm, _)| *arm).collect();
        let four = [Arm::A, Arm::B, Arm::B, Arm::A];
        assert_eq!(arms, [four, four].concat());
        assert_eq!(machine.seen[1].1.as_deref(), Some("67108864"));
        assert_eq!((machine.seen[0].1.as_deref(), found.fix.len()), (None, 1));
    }

    #[test]
    fn an_interrupted_trial_gives_no_verdict() {
        let sides = sides(&["vm.dirty_bytes=64MiB"]).expect("two sides");
        let mut machine = Machine { stop_after: 2, seen: Vec::new() };
        let found = verify(&sides, Judge::P99, Nanos(280_000_000_000), &mut machine).expect("cannot fail");
        assert_eq!((found.verdict, found.ended, found.runs.len()), (Verdict::NotProven, "interrupted", 2));
    }

    #[test]
    fn a_fix_without_effect_or_permission_is_refused() {
        assert!(matches!(sides(&[]), Err(VerifyError::NothingChanges)));
        let shared = sides(&["vm.dirty_bytes=64MiB"]).expect("two sides");
        assert!(matches!(shared.check_permission(false), Err(VerifyError::NotPermitted { .. })));
        assert!(shared.check_permission(true).is_ok());
    }
}

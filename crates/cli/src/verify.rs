//! `flatwater verify SCENARIO --fix NAME`: whether a change of settings helps, by interleaved runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::common::{self, Usage};
use super::compare::{judge_named, status};
use super::run::Bar;
use flatwater_experiment::bootstrap::Difference;
use flatwater_experiment::compare::SettingRow;
use flatwater_experiment::judge::{self, Judge, logarithm, main_operation};
use flatwater_experiment::trial::{Arm, LostBoth, Run, Trial, Verification, arm_of};
use flatwater_experiment::verdict::{Ratio, Verdict};
use flatwater_host::run::{Progress, RunOptions};
use flatwater_host::setup::{self, Applied, SetupContext};
use flatwater_recording::knob::{self, nearest};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Cause, KnobPlace, Recording, Setup, Source};
use flatwater_report::versus;
use flatwater_workload::scenario::Scenario;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A built-in scenario or a .toml file.
    scenario: String,
    /// A fix by name: the scenario's own, or `precursor`.
    #[arg(long, value_name = "NAME")]
    fix: Option<String>,
    /// A fix as a change of settings; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Changes both sides: the scenario that the fix is tried on; repeatable.
    #[arg(long = "with", value_name = "KEY=VALUE")]
    with: Vec<String>,
    /// Fit the workloads to this machine: multiplies the amounts of all of them,
    /// on both sides.
    #[arg(long, value_name = "SHARE")]
    scale: Option<String>,
    /// What the verdict rests on: p50, p99, p99.9, worst, lost, rate, or a
    /// cause (time lost to it); by default the scenario's own, else p99.9.
    #[arg(long, value_name = "FIGURE")]
    judge: Option<String>,
    /// Length of the measured part of each run; the scenario's own, else 8s.
    #[arg(long, value_name = "TIME")]
    block: Option<Nanos>,
    /// Time to settle before it, which does not count; the scenario's own, else 2s.
    #[arg(long, value_name = "TIME")]
    settle: Option<Nanos>,
    /// Most that all runs together may take.
    #[arg(long, value_name = "TIME", default_value = "280s")]
    limit: Nanos,
    /// The scenario's files go into a fresh directory under this one.
    #[arg(short = 'd', long = "dir", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Keep the recording of each run in this directory.
    #[arg(short = 'o', long = "out", value_name = "OUT")]
    out: Option<PathBuf>,
    /// Set knobs that the whole machine shares (put back after each run).
    #[arg(long)]
    apply: bool,
    /// text or json.
    #[arg(short = 'O', long = "output", value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

/// What a run takes beside its own length: loop device, file system, noise floor, sealing (2.5 to 6 s were seen).
const OVERHEAD_NS: u64 = 4_000_000_000;
/// Without a word of the scenario or the user.
const BLOCK: Nanos = Nanos(8_000_000_000);
const SETTLE: Nanos = Nanos(2_000_000_000);
/// More looks than this only make each of them stricter.
const LOOKS_MAX: u64 = 5;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (a, b) = sides(args)?;
    let judge = judge_named(args.judge.as_deref().or(a.judge.as_deref()).unwrap_or("p99.9"))?;
    check_leave(args, &a, &b)?;
    let stop = common::stop_on_signal(|| {})?;
    let progress = Bar::new();
    let log: setup::Log = Arc::new(|line: &str| common::say(format_args!("flatwater: {line}")));
    setup::recover(&log);
    // Journalled like everything else that a run makes, so that it goes even after kill -9.
    let context = SetupContext { dir: args.directory.clone(), name: "verify".to_owned(), apply: false, keep: false };
    let scratch = match &args.out {
        Some(_) => None,
        None => Some(Applied::apply(&Setup::default(), &context, log)?),
    };
    let recordings = match (&args.out, &scratch) {
        (Some(out), _) => common::claim_output(Some(out.clone()))?,
        (None, Some(scratch)) => scratch.work_dir().to_owned(),
        (None, None) => unreachable!("one of the two is made above"),
    };
    let mut trial = Runs::new(args, Pace::of(args, &a), judge, &recordings);
    let ended = trial.perform(&a, &b, &stop, &progress);
    progress.clear();
    let found = trial.verification(&a, &b, ended?);
    let text = match args.format.as_str() {
        "json" => serde_json::to_string_pretty(&found)?,
        _ => versus::verification(&found),
    };
    drop(scratch);
    common::print(&text)?;
    Ok(status(found.verdict))
}

/// How long each run settles and measures.
#[derive(Clone, Copy)]
struct Pace {
    settle: Nanos,
    block: Nanos,
}

impl Pace {
    fn of(args: &Args, scenario: &Scenario) -> Pace {
        let settle = args.settle.or(scenario.settle).unwrap_or(SETTLE);
        Pace { settle, block: args.block.or(scenario.block).unwrap_or(BLOCK) }
    }
}

/// The scenario as it is, and with the fix.
fn sides(args: &Args) -> anyhow::Result<(Scenario, Scenario)> {
    let mut a = Scenario::load(&args.scenario).map_err(Usage::new)?;
    for assignment in &args.with {
        a.set(assignment).map_err(Usage::new)?;
    }
    if let Some(scale) = &args.scale {
        a.set_scale(scale).map_err(Usage::new)?;
    }
    let pace = Pace::of(args, &a);
    a.duration = Nanos(pace.settle.0.saturating_add(pace.block.0));
    if pace.block.0 < 100_000_000 {
        bail!(Usage::new("a block of less than 100ms says nothing: give --block 1s or more"));
    }
    let mut b = a.clone();
    if let Some(name) = &args.fix {
        b.setup = b.setup.with(&named_fix(&a, name)?);
    }
    for assignment in &args.set {
        b.set(assignment).map_err(Usage::new)?;
    }
    let same_params = a.workloads.iter().zip(&b.workloads).all(|(a, b)| a.params == b.params);
    if a.setup == b.setup && same_params {
        bail!(Usage::new("nothing to verify: give --fix NAME or --set KEY=VALUE that changes something"));
    }
    Ok((a, b))
}

fn named_fix(scenario: &Scenario, name: &str) -> Result<Setup, Usage> {
    if let Some(fix) = scenario.fixes.iter().find(|fix| fix.name == name) {
        return Ok(fix.set.clone());
    }
    if name == "precursor" {
        let mut set = Setup::default();
        set.set("precursor", "auto").map_err(Usage::new)?;
        return Ok(set);
    }
    let names = || scenario.fixes.iter().map(|fix| fix.name.as_str()).chain(["precursor"]);
    let hint = nearest(name, names()).map(|near| format!(" (did you mean '{near}'?)")).unwrap_or_default();
    let known: Vec<&str> = names().collect();
    Err(Usage::new(format!("scenario '{}' has no fix '{name}'{hint}; it has {}", scenario.name, known.join(", "))))
}

/// A fix that may not be applied would compare A with A.
fn check_leave(args: &Args, a: &Scenario, b: &Scenario) -> anyhow::Result<()> {
    let own_device = b.setup.iter().any(|(key, _)| key.starts_with("mount."));
    for (key, _, _) in a.setup.difference(&b.setup) {
        let shared = match knob::find(key).map(|knob| knob.place) {
            Ok(KnobPlace::Sysctl | KnobPlace::HugePages) => true,
            Ok(KnobPlace::Queue | KnobPlace::Bdi) => !own_device,
            _ => false,
        };
        if shared && !args.apply {
            bail!(Usage::new(format!(
                "{key} is shared by the whole machine: add --apply to set it for the runs with the fix (it is put back after each)"
            )));
        }
    }
    Ok(())
}

/// The trial's runs, as they are made.
struct Runs<'a> {
    args: &'a Args,
    pace: Pace,
    judge: Judge,
    recordings: &'a Path,
    trial: Trial,
    /// At the last look that was planned: runs after it do not count for the verdict.
    looked: Option<(Difference, Verdict)>,
    looks: usize,
    runs: Vec<Run>,
    lost: [BTreeMap<Cause, u64>; 2],
    operation: Option<&'static str>,
    began: Instant,
    notes: Vec<String>,
}

impl<'a> Runs<'a> {
    fn new(args: &'a Args, pace: Pace, judge: Judge, recordings: &'a Path) -> Runs<'a> {
        // Fixed before the first run: how often one looks decides what a look must show.
        let four_ns = 4 * (pace.settle.0 + pace.block.0 + OVERHEAD_NS);
        let looks = (args.limit.0 / four_ns).clamp(1, LOOKS_MAX) as usize;
        Runs {
            args,
            pace,
            judge,
            recordings,
            trial: Trial::new(looks, judge.lower_is_better()),
            looked: None,
            looks,
            runs: Vec::new(),
            lost: [BTreeMap::new(), BTreeMap::new()],
            operation: None,
            began: Instant::now(),
            notes: Vec::new(),
        }
    }

    /// Runs A B B A until it is proven, all looks are taken, or the time is up. Returns why it ended.
    fn perform(&mut self, a: &Scenario, b: &Scenario, stop: &AtomicBool, bar: &Bar) -> anyhow::Result<&'static str> {
        for run in 0..4 * self.looks {
            let arm = arm_of(run);
            let scenario = if arm == Arm::A { a } else { b };
            // On a busy machine runs take longer than planned: one more must fit as these did.
            let one_more = self.began.elapsed().mul_f64((run + 1) as f64 / run.max(1) as f64);
            if run > 0 && one_more > Duration::from_nanos(self.args.limit.0) {
                return Ok("time");
            }
            bar.tell(Progress::Said(&format!("run {} of at most {}: {arm:?}", run + 1, 4 * self.looks)));
            self.one(run, arm, scenario, stop, bar)?;
            if stop.load(Ordering::Relaxed) {
                return Ok("interrupted");
            }
            if run % 4 == 3 {
                self.looked = self.trial.look();
                if self.looked.is_some_and(|(_, verdict)| verdict != Verdict::NotProven) {
                    return Ok("proven");
                }
                let four_more = self.began.elapsed().mul_f64((run + 5) as f64 / (run + 1) as f64);
                if four_more > Duration::from_nanos(self.args.limit.0) {
                    return Ok("time");
                }
            }
        }
        Ok("runs")
    }

    fn one(&mut self, run: usize, arm: Arm, scenario: &Scenario, stop: &AtomicBool, bar: &Bar) -> anyhow::Result<()> {
        let out = self.recordings.join(format!("{:02}-{}", run + 1, if arm == Arm::A { "a" } else { "b" }));
        std::fs::create_dir(&out).with_context(|| format!("cannot make {}", out.display()))?;
        let options = RunOptions {
            directory: self.args.directory.clone(),
            out: out.clone(),
            sample_hz: 10,
            stack_hz: 997,
            cpu: None,
            source: Source::Host,
            time_distorted: false,
            keep: false,
            apply: self.args.apply,
        };
        let mut tell = |progress: Progress<'_>| {
            // What each of twenty runs sets and restores would bury the result.
            if let Progress::Measuring { .. } = progress {
                bar.tell(progress);
            }
        };
        flatwater_host::run::run(scenario, &options, stop, &mut tell)
            .with_context(|| format!("run {} of {}", run + 1, scenario.name))?;
        if !stop.load(Ordering::Relaxed) {
            self.count(arm, &common::read(&out)?);
        }
        if self.args.out.is_none() {
            let _ = std::fs::remove_dir_all(&out);
        }
        Ok(())
    }

    fn count(&mut self, arm: Arm, recording: &Recording) {
        let settled_ns = recording.header.clock.start_ns + self.pace.settle.0;
        let lost = &mut self.lost[usize::from(arm == Arm::B)];
        for call in recording.foreground_calls().filter(|call| call.start_ns >= settled_ns) {
            for (cause, ns) in call.by_cause() {
                *lost.entry(cause).or_default() += ns;
            }
        }
        let op = main_operation(recording);
        let whole = judge::whole(recording, self.judge, self.pace.settle.0);
        let (Some(op), Some(value)) = (op, whole) else {
            self.notes.push(format!("run {} of {arm:?} made no calls after settling", self.runs.len() + 1));
            return;
        };
        self.operation = Some(op.name());
        self.trial.add(arm, logarithm(self.judge, value));
        self.runs.push(Run { arm, value });
    }

    fn verification(self, a: &Scenario, b: &Scenario, ended: &'static str) -> Verification {
        let look = self.looked;
        let differing = a.setup.difference(&b.setup).into_iter();
        let text = |value: Option<&str>| value.map(str::to_owned);
        let seconds = |arm: Arm| {
            let runs = self.runs.iter().filter(|run| run.arm == arm).count();
            (runs as f64 * self.pace.block.as_secs_f64()).max(1e-9)
        };
        let (in_a, in_b) = (seconds(Arm::A), seconds(Arm::B));
        let causes: std::collections::BTreeSet<Cause> =
            self.lost.iter().flat_map(|lost| lost.keys().copied()).collect();
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
        causes.sort_by(|x, y| y.a_ns_per_s.max(y.b_ns_per_s).total_cmp(&x.a_ns_per_s.max(x.b_ns_per_s)));
        causes.truncate(8);
        Verification {
            flatwater: 1,
            kind: "verification",
            scenario: a.name.clone(),
            fix: differing.map(|(key, a, b)| SettingRow { key: key.to_owned(), a: text(a), b: text(b) }).collect(),
            judge: self.judge,
            operation: self.operation.map(str::to_owned),
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

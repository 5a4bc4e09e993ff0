//! `flatwater verify SCENARIO --fix NAME`: proves whether a change of settings helps, by interleaved runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use super::common::{self, Usage};
use super::message::number;
use super::progress::Bar;
use super::reproduce;
use super::stop::{self, AtOnce};
use crate::status::Status;
use flatwater_experiment::figure::Figure;
use flatwater_experiment::proof::{Proof, proof};
use flatwater_experiment::trial::Arm;
use flatwater_experiment::verify::{Pace, Performer, Sides, Tried, verify};
use flatwater_explain::Fix;
use flatwater_host::run::{Progress, RunOptions};
use flatwater_host::setup::{self, Applied, SetupContext};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Recording, Setup, Source};
use flatwater_report::{html, versus};
use flatwater_safefs::Dir;
use flatwater_workload::scenario::{Scenario, builtin};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A built-in scenario, a .toml file, or a recording: the scenario that it is a run of, or one that imitates it.
    scenario: String,
    /// A fix by name: one of the scenario's, or `precursor`; of a recording by its number in the report.
    #[arg(long, value_name = "NAME")]
    fix: Option<String>,
    /// A fix as a change of settings; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A change to both sides, with and without the fix; repeatable.
    #[arg(long = "with", value_name = "KEY=VALUE")]
    with: Vec<String>,
    /// Scale all workloads to this machine: multiplies their amounts, on both sides.
    #[arg(long, value_name = "SHARE")]
    scale: Option<String>,
    /// Figure for the verdict, as for `compare`: [OPERATION.]FIGURE or a cause; by default the scenario's own, else
    /// p99.9.
    #[arg(long, value_name = "FIGURE")]
    judge: Option<String>,
    /// Length of the measured part of each run; the scenario's own, else 8s.
    #[arg(long, value_name = "TIME")]
    block: Option<Nanos>,
    /// Time to settle before the measured part, which does not count; the scenario's own, else 2s.
    #[arg(long, value_name = "TIME")]
    settle: Option<Nanos>,
    /// Time limit for all runs together.
    #[arg(long, value_name = "TIME", default_value = "280s")]
    limit: Nanos,
    /// Create the directory for the scenario's files below this one.
    #[arg(short = 'd', long = "dir", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Keep the recording of each run in this directory.
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Let this group read the recordings, which otherwise only you can read.
    #[arg(long, value_name = "GROUP", requires = "out")]
    group: Option<String>,
    /// Stack samples of on-CPU threads per second, as for `run`; 0 takes none.
    #[arg(long, value_name = "N", default_value_t = flatwater_host::tracer::DEFAULT_HZ, value_parser = number(0_u32, 10_000))]
    stack_hz: u32,
    /// Set knobs that affect the whole machine (restored after each run).
    #[arg(long)]
    apply: bool,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json", "html"], alias = "output", short_alias = 'O')]
    format: String,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let (a, fix) = scenario(args)?;
    let judge = Figure::parse(args.judge.as_deref().or(a.judge.as_deref()).unwrap_or("p99.9")).map_err(Usage::new)?;
    let pace = Pace::of(args.settle, args.block, &a);
    if args.set.iter().chain(&args.with).any(|assignment| common::names_model(assignment)) {
        anyhow::bail!(Usage::new(
            "--set kernel= selects the model's kernel, but verify measures this machine (use it with `run --on sim`)"
        ));
    }
    let sides =
        Sides::new(a, pace, fix.as_ref().map_or_else(|| named(args), Tried::Fix), &args.set).map_err(Usage::new)?;
    sides.check_permission(args.apply).map_err(Usage::new)?;
    let stop = stop::on_signal(AtOnce::Restore)?;
    let progress = Bar::new();
    let log: setup::Log = Arc::new(|line: &str| common::say(format_args!("flatwater: {line}")));
    setup::recover(&log);
    // Journalled like everything that a run creates, so that it is removed even after kill -9.
    let context = SetupContext { dir: args.directory.clone(), name: "verify".to_owned(), apply: false, keep: false };
    let scratch = match &args.out {
        Some(_) => None,
        None => Some(Applied::apply(&Setup::default(), &context, log)?),
    };
    let recordings = match (&args.out, &scratch) {
        (Some(out), _) => common::claim_output(Some(out.clone()), args.group.as_deref())?,
        (None, Some(scratch)) => scratch.work()?.clone(),
        (None, None) => unreachable!("one of the two is created above"),
    };
    let mut host = OnHost { args, recordings: &recordings, stop: &stop.flag, bar: &progress };
    let found = verify(&sides, judge, args.limit, &mut host);
    progress.clear();
    let found = found?;
    let text = match args.format.as_str() {
        "json" => serde_json::to_string_pretty(&found)?,
        "html" => html::verification_page(&found),
        _ => versus::verification(&found),
    };
    drop(scratch);
    common::print(&text)?;
    Ok(stop
        .status()
        .filter(|_| found.ended == "interrupted")
        .unwrap_or_else(|| Status::of_verdict(found.verdict, !found.runs.is_empty())))
}

fn named(args: &Args) -> Tried<'_> {
    args.fix.as_deref().map_or(Tried::Assignments, Tried::Named)
}

/// Loads the scenario that both sides share, and the fix of a recording's report.
fn scenario(args: &Args) -> anyhow::Result<(Scenario, Option<Fix>)> {
    let is_recording = builtin::find(&args.scenario).is_none() && Path::new(&args.scenario).is_dir();
    let (mut scenario, fix) = if is_recording {
        let proof = of_recording(args)?;
        proof.notes.iter().for_each(|note| common::say(format_args!("flatwater: {note}")));
        (proof.scenario, Some(proof.fix))
    } else {
        (Scenario::load(&args.scenario).map_err(Usage::new)?, None)
    };
    for assignment in &args.with {
        scenario.set(assignment).map_err(Usage::new)?;
    }
    if let Some(scale) = &args.scale {
        scenario.set_scale(scale).map_err(Usage::new)?;
    }
    Ok((scenario, fix))
}

fn of_recording(args: &Args) -> anyhow::Result<Proof> {
    let path = Path::new(&args.scenario);
    let number = args.fix.as_deref().and_then(|fix| fix.parse::<usize>().ok()).ok_or_else(|| {
        Usage::new(format!(
            "{} is a recording: give --fix N, the number of a fix that `flatwater explain {}` prints",
            path.display(),
            path.display()
        ))
    })?;
    let recording = common::read(path)?;
    let explanation = flatwater_explain::explain(&recording);
    let bounds = reproduce::host_bounds(&args.directory)?;
    let found = proof(&recording, &explanation, number, &bounds);
    Ok(found.map_err(|why| Usage::new(format!("{}: {why}", path.display())))?)
}

/// Performs each run on this host, each with a separate directory for its recording.
struct OnHost<'a> {
    args: &'a Args,
    recordings: &'a Dir,
    stop: &'a AtomicBool,
    bar: &'a Bar,
}

impl Performer for OnHost<'_> {
    type Error = anyhow::Error;

    fn perform(
        &mut self,
        scenario: &Scenario,
        arm: Arm,
        number: usize,
        of: usize,
    ) -> anyhow::Result<Option<Recording>> {
        self.bar.tell(Progress::Message(&format!("run {} of at most {of}: {arm:?}", number + 1)));
        let name = format!("{:02}-{}", number + 1, if arm == Arm::A { "a" } else { "b" });
        let out = self.recordings.make_dir(&name)?;
        let options = RunOptions {
            directory: self.args.directory.clone(),
            out: out.clone(),
            sample_hz: 10,
            stack_hz: self.args.stack_hz,
            cpu: None,
            source: Source::Host,
            time_distorted: false,
            keep: false,
            apply: self.args.apply,
            drop_rights: false,
        };
        let mut tell = |progress: Progress<'_>| {
            // Twenty runs would hide the result behind their messages about settings.
            if let Progress::Measuring { .. } = progress {
                self.bar.tell(progress);
            }
        };
        flatwater_host::run::run(scenario, &options, self.stop, &mut tell)
            .with_context(|| format!("run {} of {}", number + 1, scenario.name))?;
        let is_whole = !self.stop.load(Ordering::Relaxed);
        let recording = if is_whole { Some(common::read(&out.proc_path())?) } else { None };
        if self.args.out.is_none() {
            let _ = self.recordings.remove_tree(&name);
        }
        Ok(recording)
    }
}

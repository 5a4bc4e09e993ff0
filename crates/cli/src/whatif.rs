//! `flatwater whatif`: sweeps settings on the simulator.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use super::common::{self, Usage};
use super::message::number;
use crate::status::Status;
use flatwater_experiment::judge::main_operation;
use flatwater_experiment::whatif::recorded::{self, RecordedModel};
use flatwater_experiment::whatif::{self, Goal, Sweep, machine};
use flatwater_recording::OpKind;
use flatwater_recording::units::Nanos;
use flatwater_report::html::whatif_page;
use flatwater_report::whatif::{Whatif, text};
use flatwater_safefs::write_output;
use flatwater_workload::scenario::Scenario;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A scenario (name or .toml) or a recording's directory.
    #[arg(value_name = "SCENARIO|RECORDING")]
    what: String,
    /// Knob and values: KEY=FROM..TO or KEY=A,B,C; repeatable.
    #[arg(long, value_name = "KEY=VALUES", required = true)]
    sweep: Vec<String>,
    /// Figure to minimize: [OPERATION.]QUANTILE, such as fdatasync.p99, write.p99.99 or read.max; by default p99.99 of
    /// the operation that stalled longest in the recording, of writes for a scenario.
    #[arg(long, value_name = "GOAL")]
    goal: Option<String>,
    /// A change to all runs: a knob, a workload's parameter, the threshold; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A property of the machine, overriding the recording or scenario (nodes=64GiB,64GiB; disk.iops=5000); repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    machine: Vec<String>,
    /// Kernel to model (linux-2.6.32, linux-6.18 ...), overriding the scenario's.
    #[arg(long, value_name = "PROFILE")]
    kernel: Option<String>,
    /// Virtual time of each run.
    #[arg(short = 't', long = "time", value_name = "TIME")]
    duration: Option<Nanos>,
    /// Warm up the machine once for this long; each run starts from there.
    #[arg(long, value_name = "TIME")]
    warm: Option<Nanos>,
    /// Maximum number of runs; beyond it, a random choice of combinations by the seed.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number(1_usize, whatif::COMBINATIONS_MAX))]
    most: usize,
    /// Runs at the same time; all cores by default.
    #[arg(short = 'j', long, value_name = "N", value_parser = number(1_usize, 1024))]
    jobs: Option<usize>,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", value_parser = number(0_u64, u64::MAX))]
    seed: Option<u64>,
    /// File for the page with table and heat map; by default flatwater-DATE-TIME.html.
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let sweeps: Vec<Sweep> =
        args.sweep.iter().map(|text| Sweep::parse(text)).collect::<Result<_, _>>().map_err(Usage::new)?;
    args.goal.as_deref().map(Goal::parse).transpose().map_err(Usage::new)?;
    let (RecordedModel { scenario, assumed }, stalled) = prepared(args)?;
    let name = args.goal.clone().unwrap_or_else(|| format!("{}.p99.99", stalled.unwrap_or(OpKind::Write).name()));
    let goal = Goal::parse(&name).map_err(Usage::new)?;
    let kernel = scenario.kernel.as_deref().unwrap_or(NEWEST);
    whatif::check_modelled(&sweeps, kernel, flatwater_sim::modelled_knobs(kernel)).map_err(Usage::new)?;
    let out = args.out.clone().unwrap_or_else(|| common::fresh_output().with_extension("html"));
    // The first run is the unchanged scenario, with which the choice is compared.
    let mut settings = vec![Vec::new()];
    settings.extend(whatif::combinations(&sweeps, args.most, scenario.seed).map_err(Usage::new)?);
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let bar = bar(settings.len());
    let show_progress = |done| show_progress(&bar, done, settings.len());
    let tried = match args.warm {
        None => {
            let perform = |scenario: &Scenario| flatwater_sim::run(scenario).map(|(recording, _truth)| recording);
            whatif::search(&scenario, &settings, goal, jobs, &perform, &show_progress)
        }
        Some(warm) => {
            let machine = flatwater_sim::Warm::up(&scenario, &flatwater_sim::Options::default(), warm.0)?;
            let perform = |changed: &Scenario| machine.go_on(changed).map(|(recording, _truth)| recording);
            whatif::search_copies(&scenario, &settings, goal, jobs, &perform, &show_progress)
        }
    };
    bar.finish_and_clear();
    let found = Whatif {
        what: scenario.name.clone(),
        kernel: kernel.to_owned(),
        goal: name,
        assumed,
        seed: scenario.seed,
        ..Whatif::of(&sweeps, &tried?)
    };
    common::print(&text(&found))?;
    write_output(&out, whatif_page(&found).as_bytes())?;
    common::print(&format!("report: {}", out.display()))?;
    Ok(Status::Done)
}

const NEWEST: &str = "linux-6.18";

/// The scenario with all changes of the command line and the assumptions made for it, and the operation that stalled
/// longest in the recording.
fn prepared(args: &Args) -> anyhow::Result<(RecordedModel, Option<OpKind>)> {
    let path = Path::new(&args.what);
    let mut stalled = None;
    let mut made = if path.is_dir() {
        let recording = common::read(path)?;
        stalled = main_operation(&[&recording]);
        let mut made = recorded::scenario(&recording, &common::model_profiles()).map_err(Usage::new)?;
        made.scenario.kernel = args.kernel.clone().or(made.scenario.kernel);
        made.assumed.extend(common::left_out(&mut made.scenario));
        made
    } else {
        RecordedModel { scenario: Scenario::load(&args.what).map_err(Usage::new)?, assumed: Vec::new() }
    };
    let scenario = &mut made.scenario;
    for given in &args.machine {
        machine::set(&mut scenario.machine, given).map_err(Usage::new)?;
    }
    for given in &args.set {
        scenario.set(given).map_err(Usage::new)?;
    }
    if args.kernel.is_some() {
        scenario.kernel.clone_from(&args.kernel);
    }
    scenario.duration = args.duration.unwrap_or(scenario.duration);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    Ok((made, stalled))
}

fn bar(runs: usize) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(runs as u64) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} runs, {eta} left");
    style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
}

fn show_progress(bar: &ProgressBar, done: usize, of: usize) {
    if bar.is_hidden() {
        common::say(format_args!("flatwater: {done} of {of} runs"));
    } else {
        bar.set_position(done as u64);
    }
}

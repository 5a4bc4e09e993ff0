//! `flatwater run [SCENARIO]`.

mod on_vm;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;

use super::common::{self, Output, Usage};
use super::kernels;
use super::message::{self, number};
use super::model;
use super::other_kernel;
use super::progress::Bar;
use super::stop::{self, AtOnce};
use crate::status::Status;
use flatwater_host::error::HostError;
use flatwater_host::own_cost::keep_memory_small;
use flatwater_host::run::{Progress, RunOptions};
use flatwater_recording::Source;
use flatwater_recording::units::Nanos;
use flatwater_safefs::Dir;
use flatwater_workload::scenario::Scenario;
use on_vm::on_vm;

const VM: &str = "Options of --on vm";
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A built-in scenario (`flatwater scenarios` lists them) or a .toml file.
    #[arg(default_value = "journal")]
    scenario: String,
    /// Where to perform it: this machine, a guest in QEMU, or the model of a kernel; by default this machine, unless
    /// the scenario is for another kernel.
    #[arg(long, value_name = "SOURCE", value_parser = ["host", "vm", "sim"])]
    on: Option<String>,
    /// Change a knob (vm.dirty_bytes=64MiB), a workload's parameter (journal.bytes=300), duration, threshold or seed;
    /// repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Scale all workloads to this machine: multiply their amounts by this (0.01), instead of by their own scale.
    #[arg(long, value_name = "SHARE")]
    scale: Option<String>,
    /// Create the directory for the scenario's files below this one.
    #[arg(short = 'd', long = "dir", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// How long to measure (30s, 2min); the scenario's own by default.
    #[arg(short = 't', long = "time", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Nanos>,
    /// Keep each call that takes at least this long (1ms).
    #[arg(short = 'm', long = "min", value_name = "TIME")]
    threshold: Option<Nanos>,
    /// The recording's directory; by default flatwater-DATE-TIME.
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Let this group read the recording, which otherwise only you can read.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", value_parser = number(0_u64, u64::MAX))]
    seed: Option<u64>,
    /// Samples of the kernel's counters per second, 1 to 100.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(1_u32, 100))]
    hz: u32,
    /// Stack samples of on-CPU threads per second; 0 takes none and is the default in an emulated machine.
    #[arg(long, value_name = "N", value_parser = number(0_u32, 10_000))]
    stack_hz: Option<u32>,
    /// Pin the foreground's threads to this CPU.
    #[arg(long, value_name = "N", value_parser = number(0_u32, 65_535))]
    cpu: Option<u32>,
    /// sim: list every constant of the model with its origin, without a run.
    #[arg(long)]
    constants: bool,
    /// Keep the scenario's files.
    #[arg(long)]
    keep: bool,
    /// Set knobs that affect the whole machine (restored at the end).
    #[arg(long)]
    apply: bool,
    /// Read the kernel's types (BTF) from this file if the kernel has none.
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// boot this kernel image; repeatable: each in turn, with a comparison.
    #[arg(help_heading = VM, long, value_name = "PATH")]
    kernel: Vec<PathBuf>,
    /// a static flatwater for a guest of another architecture.
    #[arg(help_heading = VM, long, value_name = "PATH")]
    init: Option<PathBuf>,
    /// fetch Debian's current kernel through apt if none is found.
    #[arg(help_heading = VM, long)]
    fetch_kernel: bool,
    /// show the guest's console and keep it in the recording.
    #[arg(help_heading = VM, long)]
    console: bool,
    /// end a guest that prints nothing for this long (before its first line: for half as long). It prints once a
    /// second; time in which it waits for a CPU of a busy host counts little.
    #[arg(help_heading = VM, long, value_name = "TIME", default_value = "90s")]
    patience: Nanos,
    #[command(flatten)]
    output: Output,
}

impl Args {
    fn on(&self) -> &str {
        self.on.as_deref().unwrap_or("host")
    }
}

pub fn run(args: Args) -> anyhow::Result<Status> {
    keep_memory_small();
    args.output.check()?;
    if args.on() != "vm" && !args.kernel.is_empty() {
        anyhow::bail!(Usage::new(
            "--kernel needs --on vm: the host runs its own kernel, the model takes it from the scenario"
        ));
    }
    if args.on() != "sim" && args.set.iter().any(|assignment| common::names_model(assignment)) {
        anyhow::bail!(Usage::new(
            "--set kernel= selects the model's kernel and needs --on sim; for --on vm give --kernel PATH"
        ));
    }
    let scenario = scenario_of(&args, &args.scenario)?;
    if args.on.is_none() {
        other_kernel::refuse(&scenario, &args.scenario, other_kernel::release().as_deref())?;
    }
    if args.constants {
        if args.on() != "sim" {
            anyhow::bail!(Usage::new("--constants needs --on sim: only the model has constants"));
        }
        common::print(&model::constants(&scenario)?)?;
        return Ok(Status::Done);
    }
    args.btf.as_deref().map_or(Ok(()), flatwater_host::tracer::use_types_of)?;
    let out = common::claim_output(args.out.clone(), args.group.as_deref())?;
    let stop = stop::on_signal(AtOnce::Restore)?;
    let progress = Bar::new();
    if args.kernel.len() > 1 {
        let boot = |kernel: &Path, to: &Dir| on_vm(&args, Some(kernel), &scenario, to, &stop.flag, &progress);
        return kernels::run(&args.kernel, &args.output, &out, boot).with_context(|| format!("run {}", scenario.name));
    }
    let ran = perform(&args, &scenario, &out, &stop.flag, &progress);
    progress.clear();
    if ran.is_err() {
        // Fails, as it should, if the directory is not empty.
        let _ = std::fs::remove_dir(out.path());
    }
    if let (Err(error), Some(status)) = (&ran, stop.status()) {
        common::say(format_args!("flatwater: interrupted: {}", message::of_error(error)));
        return Ok(status);
    }
    ran.with_context(|| format!("run {}", scenario.name))?;
    common::conclude(&out, &args.output, Some(&stop))
}

/// Performs the scenario where `--on` says, and leaves its recording in `out`.
pub fn perform(
    args: &Args,
    scenario: &Scenario,
    out: &Dir,
    stop: &Arc<AtomicBool>,
    progress: &Bar,
) -> anyhow::Result<()> {
    match args.on() {
        "sim" => on_sim(scenario, out),
        "vm" => on_vm(args, args.kernel.first().map(PathBuf::as_path), scenario, out, stop, progress),
        _ => on_host(args, scenario, out, stop, progress),
    }
}

fn on_host(args: &Args, scenario: &Scenario, out: &Dir, stop: &AtomicBool, progress: &Bar) -> anyhow::Result<()> {
    let options = RunOptions {
        directory: args.directory.clone(),
        out: out.clone(),
        sample_hz: args.hz,
        stack_hz: args.stack_hz.unwrap_or(flatwater_host::tracer::DEFAULT_HZ),
        cpu: args.cpu,
        source: Source::Host,
        time_distorted: false,
        keep: args.keep,
        apply: args.apply,
        drop_rights: true,
    };
    let ran = flatwater_host::run::run(scenario, &options, stop, &mut |text| progress.tell(text));
    let (Err(HostError::Setup(why)), Some(fallback)) = (&ran, &scenario.fallback) else { return Ok(ran?) };
    progress.tell(Progress::Message(&format!("{}: {why}; running {fallback} instead", scenario.name)));
    let instead = scenario_of(args, fallback)?;
    Ok(flatwater_host::run::run(&instead, &options, stop, &mut |text| progress.tell(text))?)
}

fn on_sim(scenario: &Scenario, out: &Dir) -> anyhow::Result<()> {
    let recording = model::run(scenario)?;
    flatwater_recording::write_whole(&out.proc_path(), &recording)?;
    Ok(out.share_files()?)
}

/// Loads the scenario and applies the options of the command line to it.
fn scenario_of(args: &Args, name: &str) -> anyhow::Result<Scenario> {
    let mut scenario = Scenario::load(name).map_err(Usage::new)?;
    for assignment in &args.set {
        scenario.set(assignment).map_err(Usage::new)?;
    }
    if let Some(scale) = &args.scale {
        scenario.set_scale(scale).map_err(Usage::new)?;
    }
    scenario.duration = args.duration.unwrap_or(scenario.duration);
    scenario.threshold = args.threshold.unwrap_or(scenario.threshold);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    if scenario.duration.0 == 0 {
        anyhow::bail!(Usage::new("a run of 0s measures nothing: give -t 1s or more"));
    }
    Ok(scenario)
}

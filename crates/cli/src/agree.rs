//! `flatwater agree SCENARIO` or `flatwater agree REC REC`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::common::{self, Usage};
use crate::status::Status;
use flatwater_experiment::agree::{Agreement, agree_beside, fit};
use flatwater_experiment::whatif::recorded::{self, Made};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Note, Recording, Source};
use flatwater_report as report;
use flatwater_safefs::{Dir, write_output};
use flatwater_workload::scenario::Scenario;

/// File below the output directory with the scenario of the reference, for the runs that repeat it.
const SCENARIO: &str = "scenario.toml";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A scenario to run on each source; or the reference recording.
    what: String,
    /// The recording to compare with the reference; without it, the reference's scenario runs on the other sources.
    other: Option<PathBuf>,
    /// A repetition of the reference; repeatable. Metrics that differ between repetitions are not counted.
    #[arg(long, value_name = "RECORDING")]
    again: Vec<PathBuf>,
    /// Sources to run a scenario on; the first is the reference.
    #[arg(long, value_name = "SOURCES", value_delimiter = ',', default_value = "vm,sim", value_parser = ["host", "vm", "sim"])]
    on: Vec<String>,
    /// As for `run`; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// How long to measure (30s, 2min); the scenario's own by default.
    #[arg(short = 't', long = "time", value_name = "TIME")]
    duration: Option<Nanos>,
    /// Write the recordings below this directory, one per source.
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Let this group read the recordings, which otherwise only you can read.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// vm: boot this kernel image.
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// vm: fetch Debian's current kernel through apt if none is found.
    #[arg(long)]
    fetch_kernel: bool,
    /// Draw both curves of every metric into this file (SVG).
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"], alias = "output", short_alias = 'O')]
    format: String,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let recordings = match &args.other {
        Some(other) => vec![common::read(Path::new(&args.what))?, common::read(other)?],
        None => perform(args)?,
    };
    let Some((reference, others)) = recordings.split_first() else { bail!(Usage::new("nothing to compare")) };
    let again = args.again.iter().map(|path| common::read(path)).collect::<anyhow::Result<Vec<Recording>>>()?;
    let found: Vec<Agreement> = others.iter().map(|other| agree_beside(reference, &again, other)).collect();
    if let Some(path) = &args.picture {
        let [one] = found.as_slice() else {
            bail!(Usage::new("--picture draws two sources: give two, or compare their recordings afterwards"))
        };
        write_output(path, report::agree::picture::svg(one).as_bytes())?;
    }
    let text = match args.format.as_str() {
        "json" => serde_json::to_string_pretty(&found)?,
        _ => found.iter().map(report::agree::text).collect::<Vec<String>>().join("\n"),
    };
    common::print(&text)?;
    Ok(Status::Done)
}

/// Performs the scenario on each source, each in a separate `run` process, so that nothing one run changes or leaves
/// affects the next. If the scenario is given as a recording, that recording takes the place of the run on its source.
fn perform(args: &Args) -> anyhow::Result<Vec<Recording>> {
    let out = common::claim_output(args.out.clone(), args.group.as_deref())?;
    let (mut recordings, scenario, sources) = if Path::new(&args.what).is_dir() {
        let recording = common::read(Path::new(&args.what))?;
        let Some(text) = &recording.header.scenario_text else {
            bail!(Usage::new(format!(
                "{} contains no scenario: give a second recording to compare it with",
                args.what
            )));
        };
        let scenario = out.path().join(SCENARIO);
        out.replace(SCENARIO, text.as_bytes(), false)?;
        let is_other = |source: &&String| source.as_str() != recording.header.source.name();
        let others: Vec<String> = args.on.iter().filter(is_other).cloned().collect();
        (vec![recording], scenario.display().to_string(), others)
    } else {
        (Vec::new(), args.what.clone(), args.on.clone())
    };
    if recordings.len() + sources.len() < 2 {
        bail!(Usage::new("agree compares two or more sources: give --on vm,sim"));
    }
    for source in &sources {
        let to = out.path().join(source);
        let recording = match recordings.first().filter(|_| source == "sim") {
            Some(real) if real.header.source == Source::Host => on_its_machine(real, args, &out.make_dir(source)?)?,
            Some(real) => {
                let loaded = Scenario::load(&scenario).map_err(Usage::new)?;
                let kernel = model_of(real, &loaded, args);
                fit::as_fast_as(real, &loaded, |machine| {
                    run_anew(args, &scenario, &to, &[kernel.as_slice(), machine].concat())
                })?
            }
            None => run_on(args, &scenario, source, &to, &[])?,
        };
        recordings.push(recording);
    }
    Ok(recordings)
}

/// Selects the model of the kernel that the guest booted, if the scenario names another and `--set` names none.
fn model_of(real: &Recording, scenario: &Scenario, args: &Args) -> Vec<String> {
    let release = real.header.machine.kernel.as_deref().filter(|_| real.header.source == Source::Vm);
    let is_chosen = args.set.iter().any(|assignment| common::names_model(assignment));
    let Some(release) = release.filter(|_| !is_chosen) else { return Vec::new() };
    let profile = recorded::profile_of(release);
    if scenario.kernel.as_deref() == Some(profile) {
        return Vec::new();
    }
    common::say(format_args!(
        "note: {release} is compared with the model of {profile} (--set kernel=... chooses another)"
    ));
    vec![format!("kernel={profile}")]
}

fn run_on(args: &Args, scenario: &str, source: &str, to: &Path, more: &[String]) -> anyhow::Result<Recording> {
    let own = std::env::current_exe().context("cannot find our own binary")?;
    let mut command = Command::new(&own);
    command.args(["run", scenario, "--on", source, "-o"]).arg(to).stdout(Stdio::null());
    // Only the simulator accepts `kernel=`.
    let given = args.set.iter().filter(|assignment| source == "sim" || !common::names_model(assignment));
    // Assignments of the command line come last, so that they take effect.
    more.iter().chain(given).for_each(|assignment| {
        command.args(["--set", assignment]);
    });
    if let Some(kernel) = args.kernel.as_ref().filter(|_| source == "vm") {
        command.arg("--kernel").arg(kernel);
    }
    if args.fetch_kernel && source == "vm" {
        command.arg("--fetch-kernel");
    }
    if let Some(group) = &args.group {
        command.args(["--group", group]);
    }
    if let Some(duration) = args.duration {
        command.arg("-t").arg(format!("{}ns", duration.0));
    }
    let status = command.status().with_context(|| format!("cannot start {}", own.display()))?;
    if !status.success() {
        bail!("the run on {source} failed ({status}); its message is above");
    }
    common::read(to)
}

/// Runs the model of the recorded host, with its memory, device, settings and cgroup, as `whatif` does.
fn on_its_machine(real: &Recording, args: &Args, to: &Dir) -> anyhow::Result<Recording> {
    let Made { mut scenario, mut assumed } = recorded::scenario(real, &common::model_profiles()).map_err(Usage::new)?;
    assumed.extend(common::left_out(&mut scenario));
    for assignment in &args.set {
        scenario.set(assignment).map_err(Usage::new)?;
    }
    scenario.duration = args.duration.unwrap_or(scenario.duration);
    let (mut recording, _truth) = flatwater_sim::run(&scenario)?;
    recording.header.notes.extend(assumed.into_iter().map(Note::Text));
    flatwater_recording::write_whole(&to.proc_path(), &recording)?;
    to.share_files()?;
    Ok(recording)
}

/// Runs the model again, in place of an earlier run.
fn run_anew(args: &Args, scenario: &str, to: &Path, machine: &[String]) -> anyhow::Result<Recording> {
    if to.exists() {
        std::fs::remove_dir_all(to).with_context(|| format!("cannot clear {}", to.display()))?;
    }
    run_on(args, scenario, "sim", to, machine)
}

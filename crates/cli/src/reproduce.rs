//! `flatwater reproduce REC -o DIR [--check]`: a scenario that imitates a recording, and how close it comes.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;

use super::common::{self, Usage};
use super::progress::Bar;
use super::run;
use super::status::Status;
use super::stop::{self, AtOnce};
use flatwater_experiment::reproduce::{self, Bounds, Reproduction};
use flatwater_host::setup::preflight;
use flatwater_recording::Recording;
use flatwater_safefs::Dir;
use flatwater_workload::scenario::Scenario;

/// Share of the free disk space that a reproduction may use.
const DISK_PART: u64 = 10;
const SCENARIO: &str = "scenario.toml";
const CHECK: &str = "check";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording that `flatwater record` wrote.
    recording: PathBuf,
    /// Write scenario.toml and the jobs for fio into this new or empty directory.
    #[arg(short = 'o', long = "out", value_name = "DIR", required = true)]
    out: PathBuf,
    /// Run the scenario, record it, and compare: exit status 0 if it is reproduced, 3 if not.
    #[arg(long)]
    check: bool,
    /// Where --check runs it.
    #[arg(long, value_name = "SOURCE", default_value = "host", value_parser = ["host", "vm", "sim"])]
    on: String,
    /// Make the volume for the files below this directory; it uses at most a tenth of what is free there.
    #[arg(short = 'd', long = "dir", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// File system of the volume instead of the recorded one.
    #[arg(long, value_name = "NAME", value_parser = ["ext4", "xfs", "btrfs", "ext2"])]
    file_system: Option<String>,
    /// Format of the comparison.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let recording = common::read(&args.recording)?;
    let explanation = flatwater_explain::explain(&recording);
    let plan = reproduce::plan(&recording, &explanation, &bounds(args)?)
        .map_err(|why| Usage::new(format!("{} cannot be reproduced: {why}", args.recording.display())))?;
    let out = common::claim_output(Some(args.out.clone()), None)?;
    let files = plan.fio.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    for (name, text) in [(SCENARIO, plan.scenario.as_str())].into_iter().chain(files) {
        out.create(name)?.write_all(text.as_bytes()).with_context(|| format!("cannot write {name}"))?;
    }
    for note in &plan.notes {
        common::say(format_args!("flatwater: {note}"));
    }
    if !args.check {
        let jobs: Vec<&str> = plan.fio.iter().map(|(name, _)| name.as_str()).collect();
        let more = if jobs.is_empty() { String::new() } else { format!(" and {}", jobs.join(", ")) };
        common::print(&format!("wrote {SCENARIO}{more} in {}", args.out.display()))?;
        return Ok(Status::Done);
    }
    check(args, &plan.scenario, &out, &recording)
}

/// The resources that the reproduction may use here. A vm and the model have their own disk.
fn bounds(args: &Args) -> Result<Bounds, Usage> {
    if args.on == "host" {
        return Ok(Bounds { file_system: args.file_system.clone(), ..host_bounds(&args.directory)? });
    }
    let memory_bytes = memory(&preflight::Free::at(&args.directory));
    Ok(Bounds { disk_bytes: 1 << 30, memory_bytes, file_system: args.file_system.clone() })
}

/// What a reproduction on this machine may use, with its volume below this directory.
pub fn host_bounds(directory: &Path) -> Result<Bounds, Usage> {
    preflight::place_of_volume(directory).map_err(Usage::new)?;
    let free = preflight::Free::at(directory);
    Ok(Bounds { disk_bytes: free.disk_bytes / DISK_PART, memory_bytes: memory(&free), file_system: None })
}

fn memory(free: &preflight::Free) -> u64 {
    free.memory_bytes.unwrap_or(1 << 30) / 2
}

fn check(args: &Args, text: &str, out: &Dir, recording: &Recording) -> anyhow::Result<Status> {
    let scenario = Scenario::parse(SCENARIO, text).context("the scenario that was written is not valid")?;
    let at = out.make_dir(CHECK)?;
    let path = args.out.join(SCENARIO).display().to_string();
    let directory = args.directory.display().to_string();
    let options = run::Args::for_scenario(&["--on", &args.on, "-d", &directory, "--", &path]);
    let stop = stop::on_signal(AtOnce::Restore)?;
    let progress = Bar::new();
    let ran = run::perform(&options, &scenario, &at, &stop.flag, &progress);
    progress.clear();
    if let (Err(error), Some(status)) = (&ran, stop.status()) {
        common::say(format_args!("flatwater: interrupted: {error:#}"));
        return Ok(status);
    }
    ran.context("run the reproduction")?;
    let reproduced = common::read(&at.proc_path())?;
    let sides = [recording, &reproduced].map(flatwater_explain::explain);
    let found = reproduce::compare((recording, &sides[0]), (&reproduced, &sides[1]));
    print(args, &found, scenario.fixes.first().map(|fix| fix.name.as_str()))?;
    Ok(if found.is_reproduced() { Status::Done } else { Status::NotProven })
}

fn print(args: &Args, found: &Reproduction, fix: Option<&str>) -> anyhow::Result<()> {
    if args.format == "json" {
        return common::print(&serde_json::to_string_pretty(found)?);
    }
    common::print(&flatwater_report::reproduction::text(found, Path::new(&args.out), fix))
}

impl run::Args {
    /// The options of `flatwater run` with these words.
    fn for_scenario(words: &[&str]) -> run::Args {
        #[derive(Parser)]
        struct Command {
            #[command(flatten)]
            args: run::Args,
        }
        Command::parse_from(std::iter::once(&"run").chain(words)).args
    }
}

//! `flatwater probe [PATH...]`: measures what a neighbour can do to the files of a directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::common::{self, Usage};
use super::message::{number, say};
use super::stop::{self, AtOnce};
use crate::status::Status;
use flatwater_host::error::HostError;
use flatwater_host::setup;
use flatwater_probe::place::PlaceError;
use flatwater_probe::plan::Load;
use flatwater_probe::verdict::Verdict;
use flatwater_probe::{Options, ProbeError};
use flatwater_recording::units::Nanos;

/// The shortest and longest time of a probe.
const LENGTHS: std::ops::RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory whose files are at stake (default: the current one), then directories for neighbours on other file
    /// systems.
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Run inside this cgroup, so that its limits apply: a path, or the first digits of a container's id.
    #[arg(long, value_name = "PATH|ID")]
    cgroup: Option<PathBuf>,
    /// Only this kind of neighbour, which gives it more of the time: dirty-stream, fsync-stream, small-files,
    /// cache-eviction; repeatable.
    #[arg(long = "neighbour", value_name = "KIND", value_parser = kinds())]
    loads: Vec<String>,
    /// Lower the machine's limits of dirty pages during the probe, so that its neighbours reach them (restored at the
    /// end).
    #[arg(long)]
    apply: bool,
    /// How long the whole probe takes, 10s to 60s.
    #[arg(short = 't', long = "time", value_name = "TIME", default_value = "55s")]
    length: Nanos,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(0_u64, u64::MAX))]
    seed: u64,
    /// Keep the result as probe.json and probe.html, and the recording, in this directory.
    #[arg(short = 'o', long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// text, json or html.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json", "html"], alias = "output", short_alias = 'O')]
    format: String,
}

fn kinds() -> Vec<&'static str> {
    Load::ALL.iter().map(|load| load.name()).collect()
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let length = Duration::from_nanos(args.length.0);
    if !LENGTHS.contains(&length) {
        let range = format!("{} to {} s", LENGTHS.start().as_secs(), LENGTHS.end().as_secs());
        anyhow::bail!(Usage::new(format!("a probe takes {range}, not {}: give -t 55s", args.length)));
    }
    let out = args.out.clone().map(|path| common::claim_output(Some(path), None)).transpose()?;
    let options = Options {
        paths: args.paths.clone(),
        cgroup: args.cgroup.clone(),
        loads: Load::ALL
            .iter()
            .copied()
            .filter(|load| args.loads.is_empty() || args.loads.iter().any(|name| name == load.name()))
            .collect(),
        apply: args.apply,
        length,
        seed: args.seed,
        out: out.clone(),
    };
    let stop = stop::on_signal(AtOnce::Restore)?;
    let log: setup::Log = Arc::new(|line: &str| say(format_args!("flatwater: {line}")));
    let mut planned = |plan: &flatwater_probe::output::PlanText| {
        plan.lines().iter().for_each(|line| say(format_args!("flatwater: {line}")));
    };
    let report = match flatwater_probe::run(&options, &stop.flag, &log, &mut planned) {
        Err(ProbeError::Interrupted) if stop.status().is_some() => {
            say(format_args!("flatwater: interrupted: everything was removed, nothing is known"));
            return Ok(stop.status().unwrap_or(Status::Failed));
        }
        Err(error) if is_usage(&error) => anyhow::bail!(Usage::new(error)),
        report => report?,
    };
    if let Some(out) = &out {
        out.replace("probe.json", report.json()?.as_bytes(), false)?;
        out.replace("probe.html", report.page().as_bytes(), false)?;
    }
    common::print(&match args.format.as_str() {
        "json" => report.json()?,
        "html" => report.page(),
        _ => report.text(),
    })?;
    Ok(match report.verdict {
        Verdict::Isolated => Status::Done,
        Verdict::NotProven => Status::Unproven,
        Verdict::Degraded | Verdict::Severe => Status::Harmed,
    })
}

/// Mistakes on the command line, as opposed to a machine on which the probe fails.
fn is_usage(error: &ProbeError) -> bool {
    matches!(
        error,
        ProbeError::Place(PlaceError::Missing { .. } | PlaceError::NotADirectory { .. })
            | ProbeError::Host(HostError::NoCgroup { .. } | HostError::Cgroup(_))
    )
}

//! `flatwater agree SCENARIO` or `flatwater agree REC REC`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};

use super::common::{self, Usage};
use crate::explain::agree::{Agreement, agree};
use crate::recording::Recording;
use crate::report;
use crate::units::Nanos;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A scenario to run on each source, or the recording to hold the other to.
    what: String,
    /// The other recording.
    other: Option<PathBuf>,
    /// Sources to run a scenario on; the first is the reference.
    #[arg(long, value_name = "SOURCES", value_delimiter = ',', default_value = "vm,sim", value_parser = ["host", "vm", "sim"])]
    on: Vec<String>,
    /// As for `run`; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// How long to measure (30s, 2min); the scenario's own by default.
    #[arg(short = 't', long = "time", value_name = "TIME")]
    duration: Option<Nanos>,
    /// Where the recordings of a scenario go, one directory for each source.
    #[arg(short = 'o', long = "out", value_name = "OUT")]
    out: Option<PathBuf>,
    /// vm: boot this kernel image.
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// Draw both curves of every metric into this file (SVG).
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// text or json.
    #[arg(short = 'O', long = "output", value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let recordings = match &args.other {
        Some(other) => vec![common::read(Path::new(&args.what))?, common::read(other)?],
        None => perform(args)?,
    };
    let Some((reference, others)) = recordings.split_first() else { bail!(Usage::new("nothing to compare")) };
    let found: Vec<Agreement> = others.iter().map(|other| agree(reference, other)).collect();
    if let Some(path) = &args.picture {
        let [one] = found.as_slice() else {
            bail!(Usage::new("--picture draws two sources: give two, or compare their recordings afterwards"))
        };
        std::fs::write(path, report::agree::picture::svg(one))
            .with_context(|| format!("cannot write the picture {}", path.display()))?;
    }
    let text = match args.format.as_str() {
        "json" => serde_json::to_string_pretty(&found)?,
        _ => found.iter().map(report::agree::text).collect::<Vec<String>>().join("\n"),
    };
    common::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the scenario on each source, each as a `run` of its own: what one of them changes or leaves is gone before
/// the next begins.
fn perform(args: &Args) -> anyhow::Result<Vec<Recording>> {
    if args.on.len() < 2 {
        bail!(Usage::new("one source alone agrees with nothing: give two or more, as --on vm,sim"));
    }
    if Path::new(&args.what).is_dir() {
        bail!(Usage::new(format!("{} is a recording: give a second one to compare with it", args.what)));
    }
    let out = common::claim_output(args.out.clone())?;
    let own = std::env::current_exe().context("cannot find our own binary")?;
    let mut recordings = Vec::new();
    for source in &args.on {
        let to = out.join(source);
        let mut command = Command::new(&own);
        command.args(["run", &args.what, "--on", source, "-o"]).arg(&to).stdout(Stdio::null());
        args.set.iter().for_each(|assignment| {
            command.args(["--set", assignment]);
        });
        if let Some(kernel) = args.kernel.as_ref().filter(|_| source == "vm") {
            command.arg("--kernel").arg(kernel);
        }
        if let Some(duration) = args.duration {
            command.arg("-t").arg(format!("{}ns", duration.0));
        }
        let status = command.status().with_context(|| format!("cannot start {}", own.display()))?;
        if !status.success() {
            bail!("the run on {source} failed ({status}); what it said stands above");
        }
        recordings.push(common::read(&to)?);
    }
    Ok(recordings)
}

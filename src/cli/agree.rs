//! `flatwater agree SCENARIO` or `flatwater agree REC REC`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};

use super::common::{self, Usage};
use crate::explain::agree::{Agreement, agree};
use crate::recording::{Recording, Source, Table};
use crate::report;
use crate::scenario::Scenario;
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
        if let Some(real) = recordings.first().filter(|_| source == "sim") {
            memory_held(real, &args.what).iter().for_each(|assignment| {
                command.args(["--set", assignment]);
            });
        }
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

/// What the guest's kernel and initramfs hold of each node, told to the simulator as a part of its machine: where an
/// initramfs lies differs from boot to boot. Empty for a host, whose memory the scenario does not describe.
fn memory_held(reference: &Recording, scenario: &str) -> Vec<String> {
    let nodes = Scenario::load(scenario).map(|scenario| scenario.machine.node_bytes).unwrap_or_default();
    let Some(table) = reference.table(Table::Nodes).filter(|_| reference.header.source == Source::Vm) else {
        return Vec::new();
    };
    let start_ns = reference.header.clock.start_ns;
    let (mut reserved, mut resident) = (Vec::new(), Vec::new());
    for (bytes, (_, rows)) in nodes.iter().zip(table.by_entity()) {
        let at_start = |column| rows.values(column).find(|(at_ns, _)| *at_ns >= start_ns).map(|(_, value)| value);
        let (Some(total), Some(free)) = (at_start("MemTotal_bytes"), at_start("MemFree_bytes")) else {
            return Vec::new();
        };
        let (total, free) = (u64::try_from(total).unwrap_or(0), u64::try_from(free).unwrap_or(0));
        // The model takes the struct pages off by itself: 64 bytes for each 4 KiB.
        reserved.push(bytes.saturating_sub(total + bytes / 64).to_string());
        resident.push(total.saturating_sub(free).to_string());
    }
    vec![format!("machine.reserved={}", reserved.join(",")), format!("machine.resident={}", resident.join(","))]
}

//! `flatwater scenarios`: lists the built-in scenarios, and the knobs, workloads and kernels that scenarios can use.

use super::common::{self, Usage};
use crate::status::Status;
use flatwater_recording::knob::KNOBS;
use flatwater_workload::WORKLOADS;
use flatwater_workload::scenario::Scenario;
use flatwater_workload::scenario::builtin::{self, BUILTIN};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the file of this scenario, to copy and change.
    name: Option<String>,
    /// List every knob: key, unit, range, and what it does.
    #[arg(long)]
    knobs: bool,
    /// List every workload with its parameters.
    #[arg(long)]
    workloads: bool,
    /// List the kernels of the model, and which changes of each version it has.
    #[arg(long)]
    kernels: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let text = match &args.name {
        Some(name) => match builtin::find(name) {
            Some(text) => text.to_owned(),
            // The error suggests the nearest name.
            None => Scenario::load(name).map_err(Usage::new)?.text,
        },
        None if args.knobs => knobs(),
        None if args.workloads => workloads(),
        None if args.kernels => super::model::kernels()?,
        None => list()?,
    };
    common::print(&text)?;
    Ok(Status::Done)
}

fn list() -> anyhow::Result<String> {
    let width = BUILTIN.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, file) in BUILTIN {
        let scenario = Scenario::parse(name, file)?;
        text.push_str(&format!("{name:width$}  {}\n", scenario.sentence));
        for fix in &scenario.fixes {
            text.push_str(&format!("{:width$}    --fix {}: {}\n", "", fix.name, fix.sentence));
        }
    }
    text.push_str("\n`flatwater scenarios NAME` prints the file; `--knobs`, `--workloads` and `--kernels` list what\nto change.\n");
    Ok(text)
}

fn knobs() -> String {
    let line = |knob: &flatwater_recording::knob::Knob| {
        let unit = if knob.unit.is_empty() { String::new() } else { format!(" ({})", knob.unit) };
        format!("{}{unit}: {}\n    {}\n", knob.key, knob.wanted(), knob.sentence)
    };
    KNOBS.iter().map(line).collect()
}

fn workloads() -> String {
    let mut text = String::new();
    for entry in WORKLOADS {
        text.push_str(&format!("{}: {}\n", entry.name, entry.sentence));
        for param in entry.params {
            text.push_str(&format!(
                "    {} = {:?}: {}\n        {}\n",
                param.name,
                param.default,
                param.kind.wanted(),
                param.sentence
            ));
        }
    }
    text
}

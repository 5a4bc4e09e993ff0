//! `flatwater check`: what this host lets us see, and which of its settings invite a stall. Changes nothing.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::common::print;
use flatwater_explain::audit::{Advice, Weight, audit};
use flatwater_host::{machine, snapshot, tracer};
use flatwater_recording::{Gap, HookState, HookStatus};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory whose device is meant.
    #[arg(short = 'd', long = "directory", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Format of the output.
    #[arg(short = 'O', long = "output", value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

/// What `check` found; `-O json` prints it as it is.
#[derive(Debug, Serialize)]
struct Checked {
    flatwater: u32,
    kind: &'static str,
    kernel: Option<String>,
    hooks: Vec<HookStatus>,
    advice: Vec<Advice>,
    gaps: Vec<Gap>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let recording = snapshot::take(&args.directory, machine::describe());
    let checked = Checked {
        flatwater: 1,
        kind: "check",
        kernel: recording.header.machine.kernel.clone(),
        hooks: tracer::hooks(),
        advice: audit(&recording),
        gaps: recording.gaps.clone(),
    };
    print(&if args.format == "json" { serde_json::to_string_pretty(&checked)? } else { text(&checked)? })?;
    Ok(ExitCode::SUCCESS)
}

fn text(checked: &Checked) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "kernel {}", checked.kernel.as_deref().unwrap_or("unknown"))?;
    hooks(&mut out, &checked.hooks)?;
    writeln!(out, "\nsettings (nothing was changed)")?;
    if checked.advice.is_empty() {
        writeln!(out, "  nothing here invites a stall that we know of")?;
    }
    for advice in &checked.advice {
        let weight = match advice.weight {
            Weight::Hurts => "has hurt",
            Weight::Invites => "invites",
            Weight::Hint => "hint",
        };
        let arrow = if advice.proposed.is_empty() { String::new() } else { format!(" -> {}", advice.proposed) };
        writeln!(out, "  {weight:9} {}: {}{arrow}   ({})", advice.setting, advice.old, advice.cause)?;
        writeln!(out, "            {}", advice.why)?;
        for evidence in &advice.evidence {
            writeln!(out, "            {}", evidence.text)?;
        }
    }
    if !checked.gaps.is_empty() {
        writeln!(out, "\nnot seen")?;
    }
    for gap in &checked.gaps {
        let remedy = if gap.remedy.is_empty() { String::new() } else { format!(" -> {}", gap.remedy) };
        writeln!(out, "  {}: {}{remedy}", gap.what, gap.why)?;
    }
    Ok(out)
}

fn hooks(out: &mut String, hooks: &[HookStatus]) -> std::fmt::Result {
    let count = |state: HookState| hooks.iter().filter(|hook| hook.state == state).count();
    writeln!(
        out,
        "hooks: {} exact, {} sampled, {} unavailable",
        count(HookState::Exact),
        count(HookState::Sampled),
        count(HookState::Unavailable)
    )?;
    let mut sorted: Vec<&HookStatus> = hooks.iter().collect();
    sorted.sort_by(|a, b| a.hook.cmp(&b.hook));
    for hook in sorted {
        let state = match hook.state {
            HookState::Exact => "exact",
            HookState::Sampled => "sampled",
            HookState::Unavailable => "unavailable",
        };
        let reason = if hook.reason.is_empty() { String::new() } else { format!("   {}", hook.reason) };
        writeln!(out, "  {state:11} {}   {}{reason}", hook.hook, hook.serves.join(", "))?;
    }
    Ok(())
}

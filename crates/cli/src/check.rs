//! `flatwater check`: which causes can be observed on this host, and which settings risk stalls. Changes
//! nothing.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::common::print;
use crate::status::Status;
use flatwater_explain::audit::{Advice, Weight, audit};
use flatwater_host::policy::obstacles;
use flatwater_host::sight::{Sight, Visibility, sights};
use flatwater_host::{machine, snapshot, tracer};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Gap, HookState, HookStatus};
use flatwater_report::text::hanging;

const WIDTH: usize = 80;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory whose device is checked.
    #[arg(short = 'd', long = "directory", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Also list the hooks, each with its state.
    #[arg(long)]
    hooks: bool,
    /// Read the kernel's types (BTF) from this file if the kernel has none.
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"], alias = "output", short_alias = 'O')]
    format: String,
}

/// The result of `check`, which `--format json` prints.
#[derive(Debug, Serialize)]
struct Checked {
    flatwater: u32,
    kind: &'static str,
    kernel: Option<String>,
    /// How well each cause can be observed: exact, sampled, by counters only, or not at all.
    sights: Vec<Sight>,
    /// What prevents the tracer from working.
    obstacles: Vec<Gap>,
    hooks: Vec<HookStatus>,
    advice: Vec<Advice>,
    gaps: Vec<Gap>,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    args.btf.as_deref().map_or(Ok(()), tracer::use_types_of)?;
    let hooks = tracer::hooks();
    let recording = snapshot::take(&args.directory, machine::describe());
    let checked = Checked {
        flatwater: 1,
        kind: "check",
        kernel: recording.header.machine.kernel.clone(),
        sights: sights(&hooks, Path::new("/")),
        obstacles: obstacles(Path::new("/"), &hooks),
        hooks,
        advice: audit(&recording),
        gaps: recording.gaps.clone(),
    };
    print(&if args.format == "json" { serde_json::to_string_pretty(&checked)? } else { text(&checked, args.hooks)? })?;
    Ok(Status::Done)
}

fn text(checked: &Checked, list_hooks: bool) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "kernel {}", checked.kernel.as_deref().unwrap_or("unknown"))?;
    causes(&mut out, &checked.sights)?;
    if !checked.obstacles.is_empty() {
        writeln!(out, "\nin the way")?;
    }
    for Gap { what, why, remedy, .. } in &checked.obstacles {
        out.push_str(&hanging("  ", &format!("{what}: {why}"), WIDTH));
        out.push_str(&hanging("    -> ", remedy, WIDTH));
    }
    hooks(&mut out, &checked.hooks, list_hooks)?;
    writeln!(out, "\nsettings (nothing was changed)")?;
    if checked.advice.is_empty() {
        writeln!(out, "  no setting is known to cause stalls")?;
    }
    for advice in &checked.advice {
        let weight = match advice.weight {
            Weight::Hurts => "has hurt",
            Weight::Invites => "risk",
            Weight::Hint => "hint",
        };
        let arrow = if advice.proposed.is_empty() { String::new() } else { format!(" -> {}", advice.proposed) };
        let text = format!("{}: {}{arrow} ({})", advice.setting, advice.old, advice.cause);
        out.push_str(&hanging(&format!("  {weight:9} "), &text, WIDTH));
        out.push_str(&hanging("            ", &advice.why, WIDTH));
        for evidence in &advice.evidence {
            out.push_str(&hanging("            ", &evidence.text, WIDTH));
        }
    }
    if !checked.gaps.is_empty() {
        writeln!(out, "\nnot seen")?;
    }
    for gap in &checked.gaps {
        let remedy = if gap.remedy.is_empty() { String::new() } else { format!(" -> {}", gap.remedy) };
        out.push_str(&hanging("  ", &format!("{}: {}{remedy}", gap.what, gap.why), WIDTH));
    }
    Ok(out)
}

/// How well a recording made here shows each cause, best first. Causes with the same reason share a line.
fn causes(out: &mut String, sights: &[Sight]) -> std::fmt::Result {
    writeln!(out, "\nwhat a recording shows here")?;
    for seen in Visibility::ALL {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for sight in sights.iter().filter(|sight| sight.seen == seen) {
            match reasons.iter_mut().find(|(why, _)| *why == sight.why) {
                Some((_, causes)) => causes.push(sight.cause),
                None => reasons.push((&sight.why, vec![sight.cause])),
            }
        }
        for (why, causes) in reasons {
            out.push_str(&hanging(&format!("  {:13}  ", seen.noun()), &causes.join(", "), WIDTH));
            if !why.is_empty() {
                out.push_str(&hanging("                 ", &format!("({why})"), WIDTH));
            }
        }
    }
    Ok(())
}

fn hooks(out: &mut String, hooks: &[HookStatus], list: bool) -> std::fmt::Result {
    let count = |state: HookState| hooks.iter().filter(|hook| hook.state == state).count();
    writeln!(
        out,
        "\nhooks: {} measured, {} sampled, {} unavailable{}",
        count(HookState::Exact),
        count(HookState::Sampled),
        count(HookState::Unavailable),
        if list { "" } else { " (--hooks lists them)" }
    )?;
    if !list {
        return Ok(());
    }
    let mut sorted: Vec<&HookStatus> = hooks.iter().collect();
    sorted.sort_short_by(|a, b| a.hook.cmp(&b.hook));
    for hook in sorted {
        let state = match hook.state {
            HookState::Exact => "measured",
            HookState::Sampled => "sampled",
            HookState::Unavailable => "unavailable",
        };
        let reason = if hook.reason.is_empty() { String::new() } else { format!(" ({})", hook.reason) };
        let text = format!("{}: {}{reason}", hook.hook, hook.serves.join(", "));
        out.push_str(&hanging(&format!("  {state:11} "), &text, WIDTH));
    }
    Ok(())
}

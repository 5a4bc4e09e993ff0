//! `flatwater agree SCENARIO` or `flatwater agree REC REC`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};

use super::common::{self, Usage};
use super::whatif::recorded::{self, Made};
use flatwater_experiment::agree::{Agreement, agree_beside};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Note, Recording, Source, Table};
use flatwater_report as report;
use flatwater_workload::scenario::Scenario;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A scenario to run on each source; or a recording, to hold the other one to, or
    /// to hold runs of its scenario on the other sources to.
    what: String,
    /// The other recording.
    other: Option<PathBuf>,
    /// A repetition of the reference; repeatable. What differs from one of them by
    /// more than the aim is not counted.
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
    let again = args.again.iter().map(|path| common::read(path)).collect::<anyhow::Result<Vec<Recording>>>()?;
    let found: Vec<Agreement> = others.iter().map(|other| agree_beside(reference, &again, other)).collect();
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
/// the next begins. A recording stands for the run of its source.
fn perform(args: &Args) -> anyhow::Result<Vec<Recording>> {
    let out = common::claim_output(args.out.clone())?;
    let (mut recordings, scenario, sources) = if Path::new(&args.what).is_dir() {
        let recording = common::read(Path::new(&args.what))?;
        let Some(text) = &recording.header.scenario_text else {
            bail!(Usage::new(format!("{} holds no scenario: give a second recording to compare it with", args.what)));
        };
        let scenario = out.join("scenario.toml");
        std::fs::write(&scenario, text).with_context(|| format!("cannot write {}", scenario.display()))?;
        let is_other = |source: &&String| source.as_str() != recording.header.source.name();
        let others: Vec<String> = args.on.iter().filter(is_other).cloned().collect();
        (vec![recording], scenario.display().to_string(), others)
    } else {
        (Vec::new(), args.what.clone(), args.on.clone())
    };
    if recordings.len() + sources.len() < 2 {
        bail!(Usage::new("one source alone agrees with nothing: give two or more, as --on vm,sim"));
    }
    for source in &sources {
        let to = out.join(source);
        let recording = match recordings.first().filter(|_| source == "sim") {
            Some(real) if real.header.source == Source::Host => on_its_machine(real, args, &to)?,
            Some(real) => as_fast_as(real, args, &scenario, &to)?,
            None => run_on(args, &scenario, source, &to, &[])?,
        };
        recordings.push(recording);
    }
    Ok(recordings)
}

fn run_on(args: &Args, scenario: &str, source: &str, to: &Path, more: &[String]) -> anyhow::Result<Recording> {
    let own = std::env::current_exe().context("cannot find our own binary")?;
    let mut command = Command::new(&own);
    command.args(["run", scenario, "--on", source, "-o"]).arg(to).stdout(Stdio::null());
    args.set.iter().chain(more).for_each(|assignment| {
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
    common::read(to)
}

/// The model of the host that was recorded: its memory, device, settings and cgroup, as `whatif` takes them.
fn on_its_machine(real: &Recording, args: &Args, to: &Path) -> anyhow::Result<Recording> {
    let Made { mut scenario, assumed } = recorded::scenario(real)?;
    for assignment in &args.set {
        scenario.set(assignment).map_err(Usage::new)?;
    }
    scenario.duration = args.duration.unwrap_or(scenario.duration);
    let (mut recording, _truth) = flatwater_sim::run(&scenario)?;
    recording.header.notes.extend(assumed.into_iter().map(Note::Text));
    flatwater_recording::write_whole(to, &recording)?;
    Ok(recording)
}

/// How often the model's CPU is made slower, and how much more than the reference it may do.
const TRIES: usize = 5;
const MORE_WORK_MAX: f64 = 1.05;

/// The model on the machine that the reference had: its memory, and its CPUs as they were measured before the scenario.
/// Recordings of before that was measured: CPUs so slow that the model moves no more bytes in the same time. Nothing that
/// is compared is fitted.
fn as_fast_as(real: &Recording, args: &Args, scenario: &str, to: &Path) -> anyhow::Result<Recording> {
    let mut machine = machine_of(real, scenario);
    if let Some(speed) = real.header.speed {
        machine.push(format!("machine.speed={speed}"));
        return run_on(args, scenario, "sim", to, &machine);
    }
    let own_speed = Scenario::load(scenario).ok().and_then(|scenario| scenario.machine.cpu_speed_percent);
    let mut percent = f64::from(own_speed.unwrap_or(100));
    let mut tries = 0;
    loop {
        let recording = run_on(args, scenario, "sim", to, &machine)?;
        let excess = bytes_moved(&recording) / bytes_moved(real).max(1.0);
        tries += 1;
        if real.header.source != Source::Vm || excess <= MORE_WORK_MAX || percent <= 1.0 || tries == TRIES {
            return Ok(recording);
        }
        percent = (percent / excess).max(1.0).round();
        machine.retain(|assignment| !assignment.starts_with(CPU_SPEED));
        machine.push(format!("{CPU_SPEED}={percent}"));
        std::fs::remove_dir_all(to).with_context(|| format!("cannot clear {}", to.display()))?;
    }
}

const CPU_SPEED: &str = "machine.cpu_speed_percent";

fn bytes_moved(recording: &Recording) -> f64 {
    recording.latency.iter().map(|bucket| bucket.bytes as f64).sum()
}

/// What the guest's kernel and initramfs hold of each node and the reserve that the kernel chose for itself, told to the
/// simulator as a part of its machine: where an initramfs lies differs from boot to boot. Empty for another
/// simulation.
fn machine_of(reference: &Recording, scenario: &str) -> Vec<String> {
    let loaded = Scenario::load(scenario).ok();
    let nodes = loaded.as_ref().map(|scenario| scenario.machine.node_bytes.clone()).unwrap_or_default();
    let Some(table) = reference.table(Table::Nodes).filter(|_| reference.header.source == Source::Vm) else {
        return Vec::new();
    };
    let (mut reserved, mut resident) = (Vec::new(), Vec::new());
    for (bytes, (_, rows)) in nodes.iter().zip(table.by_entity()) {
        // Before its set-up: what that leaves in memory is for the model to find out.
        let at_first = |column| rows.values(column).next().map(|(_, value)| value);
        let (Some(total), Some(free)) = (at_first("MemTotal_bytes"), at_first("MemFree_bytes")) else {
            return Vec::new();
        };
        let (total, free) = (u64::try_from(total).unwrap_or(0), u64::try_from(free).unwrap_or(0));
        // The model takes the struct pages off by itself: 64 bytes for each 4 KiB.
        reserved.push(bytes.saturating_sub(total + bytes / 64).to_string());
        resident.push(total.saturating_sub(free).to_string());
    }
    let mut machine =
        vec![format!("machine.reserved={}", reserved.join(",")), format!("machine.resident={}", resident.join(","))];
    // It is computed before the initramfs is given back (mm/page_alloc.c: init_per_zone_wmark_min), so lower than from
    // all of memory.
    let own = loaded.is_some_and(|scenario| scenario.setup.get(MIN_FREE).is_some());
    machine.extend(reference.header.setup.get(MIN_FREE).filter(|_| !own).map(|value| format!("{MIN_FREE}={value}")));
    machine
}

const MIN_FREE: &str = "vm.min_free_kbytes";

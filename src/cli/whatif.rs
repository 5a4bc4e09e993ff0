//! `flatwater whatif`: sweeps settings on the simulator.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use super::common::{self, Usage};
use crate::recording::Recording;
use crate::scenario::Scenario;
use crate::sim::kernel::PROFILES;
use crate::sim::whatif::{self, Goal, Sweep, Tried};
use crate::units::{Bytes, Nanos};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A scenario (name or .toml) or a recording's directory.
    #[arg(value_name = "SCENARIO|RECORDING")]
    what: String,
    /// Knob and values: KEY=FROM..TO or KEY=A,B,C; repeatable.
    #[arg(long, value_name = "KEY=VALUES", required = true)]
    sweep: Vec<String>,
    /// What is to be small: OPERATION.QUANTILE (write.p9999, read.max).
    #[arg(long, value_name = "GOAL", default_value = "write.p9999")]
    goal: String,
    /// Kernel to model (linux-2.6.32, linux-6.18 ...), over the scenario's.
    #[arg(long, value_name = "PROFILE")]
    kernel: Option<String>,
    /// Virtual time of each run.
    #[arg(short = 't', long = "time", value_name = "TIME")]
    duration: Option<Nanos>,
    /// Most runs; beyond it combinations are drawn by the seed.
    #[arg(long, value_name = "N", default_value_t = 64)]
    most: usize,
    /// Runs at the same time; all cores by default.
    #[arg(short = 'j', long, value_name = "N")]
    jobs: Option<usize>,
    /// Seed of every random choice.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let sweeps: Vec<Sweep> =
        args.sweep.iter().map(|text| Sweep::parse(text)).collect::<Result<_, _>>().map_err(Usage::new)?;
    let goal = Goal::parse(&args.goal).map_err(Usage::new)?;
    let (mut scenario, assumed) = scenario_of(&args.what)?;
    if args.kernel.is_some() {
        scenario.kernel.clone_from(&args.kernel);
    }
    scenario.duration = args.duration.unwrap_or(scenario.duration);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    for said in assumed {
        eprintln!("flatwater: {said}");
    }
    // The first run is the scenario as it stands: what the choice is compared with.
    let mut settings = vec![Vec::new()];
    settings.extend(whatif::combinations(&sweeps, args.most, scenario.seed));
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let total = settings.len();
    let tried =
        whatif::search(&scenario, &settings, goal, jobs, &|done| eprintln!("flatwater: {done} of {total} runs"))?;
    common::print(&table(&scenario, &args.goal, &tried))?;
    Ok(ExitCode::SUCCESS)
}

/// The scenario to run, and what had to be assumed.
fn scenario_of(what: &str) -> anyhow::Result<(Scenario, Vec<String>)> {
    let path = Path::new(what);
    if !path.is_dir() {
        return Ok((Scenario::load(what).map_err(Usage::new)?, Vec::new()));
    }
    from_recording(&common::read(path)?)
}

/// Machine, settings and operations of a recording, as far as it knows them.
fn from_recording(recording: &Recording) -> anyhow::Result<(Scenario, Vec<String>)> {
    let header = &recording.header;
    let (Some(name), Some(text)) = (&header.scenario, &header.scenario_text) else {
        anyhow::bail!(Usage::new(
            "this recording watched programs whose operations it does not hold: write a scenario like them \
             (`flatwater scenarios journal` prints one) and give that to whatif"
        ));
    };
    let mut scenario = Scenario::parse(name, text).map_err(Usage::new)?;
    let mut assumed = Vec::new();
    scenario.setup = header.setup.with(&scenario.setup);
    scenario.seed = header.seed;
    let machine = &header.machine;
    scenario.machine.cpus = machine.cpus.or(scenario.machine.cpus);
    let nodes: Vec<u64> = machine.nodes.iter().filter_map(|node| node.memory_bytes).collect();
    if !nodes.is_empty() && scenario.machine.node_bytes.is_empty() {
        scenario.machine.node_bytes = nodes;
    }
    if scenario.machine.node_bytes.is_empty() {
        match machine.memory_bytes {
            Some(bytes) => scenario.machine.node_bytes = vec![bytes],
            None => assumed.push("assumed: 4 GiB of memory; the recording does not say".to_owned()),
        }
    }
    let known = |kernel: &str| PROFILES.iter().any(|make| make().name == kernel);
    if scenario.kernel.as_deref().is_none_or(|kernel| !known(kernel)) {
        let ran = machine.kernel.clone().unwrap_or_else(|| "unknown".to_owned());
        let profile = if ran.starts_with("2.6.") { "linux-2.6.32" } else { "linux-6.18" };
        assumed.push(format!("assumed: kernel {ran} behaves as the model of {profile}; --kernel chooses another"));
        scenario.kernel = Some(profile.to_owned());
    }
    if scenario.machine.disk.write_bytes_per_s.is_none() {
        assumed.push("assumed: a disk of 80 MB/s, 8 ms seek; the recording does not measure it".to_owned());
    }
    Ok((scenario, assumed))
}

fn table(scenario: &Scenario, goal: &str, tried: &[Tried]) -> String {
    let mut text = format!("{} on a model of {}\n", scenario.name, scenario.kernel.as_deref().unwrap_or("linux-6.18"));
    let _ = writeln!(
        text,
        "{:>10} {:>10} {:>8} {:>7} {:>10} {:>10}  settings",
        goal, "p50", "slow", "CPU %", "scanned/s", "free min"
    );
    for one in tried {
        let settings: Vec<String> = one.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let settings = if settings.is_empty() { "as it stands".to_owned() } else { settings.join(" ") };
        let _ = writeln!(
            text,
            "{:>10} {:>10} {:>8} {:>7.2} {:>10.0} {:>10}  {settings}",
            Nanos(one.goal_ns).to_string(),
            Nanos(one.median_ns).to_string(),
            one.slow_calls,
            one.cpu_share * 100.0,
            one.scanned_per_s,
            Bytes(one.free_bytes_min).to_string(),
        );
    }
    let Some((before, rest)) = tried.split_first() else { return text };
    let Some(chosen) = whatif::choose(rest) else { return text };
    let settings: Vec<String> = chosen.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let (now, was) = (Nanos(chosen.goal_ns), Nanos(before.goal_ns));
    let _ = writeln!(text, "choose {}: {goal} {now} instead of {was}", settings.join(" "));
    let costs = whatif::costs(chosen, before);
    let said = if costs.is_empty() { "nothing that the model counts".to_owned() } else { costs.join("; ") };
    let _ = writeln!(text, "it costs {said}");
    text
}

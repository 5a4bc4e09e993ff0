//! Compares the model with a recording of a real kernel: runs the recording's scenario on a model of that machine and
//! prints the error of each metric (docs/agreement.md).
//!
//! ```sh
//! flatwater run numa-spill --on vm -o guest
//! cargo run -p flatwater-sim --example agree -- guest [--again REPETITION]... [--set KEY=VALUE]...
//! ```

mod guest;

use std::path::Path;
use std::process::ExitCode;

use flatwater_experiment::agree::agree_beside;
use flatwater_experiment::whatif::recorded::{self, profile_of};
use flatwater_recording::{Recording, Source};
use flatwater_sim::kernel::PROFILES;
use flatwater_workload::scenario::Scenario;

type Failure = Box<dyn std::error::Error>;

/// How often the model's CPU is slowed down at most, and how many times the reference's bytes the model may move.
const TRIES: usize = 5;
const MORE_WORK_MAX: f64 = 1.05;

struct Asked {
    reference: Recording,
    again: Vec<Recording>,
    set: Vec<String>,
}

fn asked() -> Result<Asked, Failure> {
    let (mut reference, mut again, mut set) = (None, Vec::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} takes a value"));
        match argument.as_str() {
            "--again" => again.push(read(&value()?)?),
            "--set" => set.push(value()?),
            path => reference = Some(read(path)?),
        }
    }
    let reference = reference.ok_or("name the recording to compare with: agree REC [--again REC]... [--set K=V]...")?;
    Ok(Asked { reference, again, set })
}

fn read(path: &str) -> Result<Recording, Failure> {
    flatwater_recording::read(Path::new(path)).map_err(|why| format!("{path}: {why}").into())
}

/// The recording's scenario on the recorded machine, and what had to be assumed.
fn scenario_of(real: &Recording) -> Result<(Scenario, Vec<String>), Failure> {
    if real.header.source != Source::Vm {
        let names: Vec<&str> = PROFILES.iter().map(|make| make().name).collect();
        let made = recorded::scenario(real, &names)?;
        return Ok((made.scenario, made.assumed));
    }
    let header = &real.header;
    let text = header.scenario_text.as_deref().ok_or("this recording contains no scenario")?;
    let mut scenario = Scenario::parse(header.scenario.as_deref().unwrap_or("recorded"), text)?;
    for (key, value) in &header.target.parameters {
        scenario.set(&format!("{key}={value}"))?;
    }
    scenario.seed = header.seed;
    scenario.kernel = Some(profile_of(header.machine.kernel.as_deref().unwrap_or_default()).to_owned());
    let (assignments, unknown) = guest::machine(real, &scenario);
    for assignment in assignments {
        scenario.set(&assignment)?;
    }
    Ok((scenario, unknown))
}

fn bytes_moved(recording: &Recording) -> f64 {
    recording.latency.iter().map(|bucket| bucket.bytes as f64).sum()
}

/// Runs the model. A guest may be slower than the model's CPUs: they are slowed down until the model moves no more
/// bytes than the guest in the same time.
fn run(real: &Recording, scenario: &mut Scenario) -> Result<Recording, Failure> {
    let mut percent = f64::from(scenario.machine.cpu_speed_percent.unwrap_or(100));
    for tries in 1.. {
        let (recording, _) = flatwater_sim::run(scenario)?;
        let excess = bytes_moved(&recording) / bytes_moved(real).max(1.0);
        let fits = real.header.source != Source::Vm || excess <= MORE_WORK_MAX;
        if fits || percent <= 1.0 || tries == TRIES {
            return Ok(recording);
        }
        percent = (percent / excess).max(1.0).round();
        scenario.machine.cpu_speed_percent = Some(percent as u32);
    }
    Err("the model was not run".into())
}

fn compared() -> Result<String, Failure> {
    let Asked { reference, again, set } = asked()?;
    let (mut scenario, assumed) = scenario_of(&reference)?;
    for assignment in &set {
        scenario.set(assignment)?;
    }
    let model = run(&reference, &mut scenario)?;
    let mut text = flatwater_report::agree::text(&agree_beside(&reference, &again, &model));
    assumed.iter().for_each(|sentence| text.push_str(&format!("note: {sentence}\n")));
    Ok(text)
}

fn main() -> ExitCode {
    match compared() {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("agree: {why}");
            ExitCode::FAILURE
        }
    }
}

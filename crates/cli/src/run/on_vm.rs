//! `run --on vm`: performs the scenario in a guest.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::Args;
use crate::progress::Bar;
use flatwater_host::run::Progress;
use flatwater_recording::units::Nanos;
use flatwater_safefs::Dir;
use flatwater_vm::{Carried, Job, VmOptions};
use flatwater_workload::scenario::Scenario;

pub fn on_vm(
    args: &Args,
    kernel: Option<&Path>,
    scenario: &Scenario,
    out: &Dir,
    stop: &Arc<AtomicBool>,
    progress: &Bar,
) -> anyhow::Result<()> {
    let mut set = args.set.clone();
    let times = [("duration", scenario.duration.0), ("threshold", scenario.threshold.0)];
    set.extend(times.map(|(key, ns)| format!("{key}={ns}ns")));
    set.push(format!("seed={}", scenario.seed));
    if let Some(scale) = &args.scale {
        set.extend(scenario.scalable().map(|label| format!("{label}.scale={scale}")));
    }
    let job = Job {
        scenario_text: scenario.text.clone(),
        scenario_origin: scenario.name.clone(),
        set,
        sample_hz: args.hz,
        stack_hz: args.stack_hz,
        ..Job::default()
    };
    let options = VmOptions {
        kernel: kernel.map(Path::to_owned),
        out: out.clone(),
        machine: scenario.machine.clone(),
        carried: Carried { init: args.init.clone(), ..Carried::default() },
        duration_ns: scenario.duration.0,
        silence_ns_max: args.patience.0.max(1),
        fetch_kernel: args.fetch_kernel,
        keep_console: args.console,
        stop: stop.clone(),
    };
    let report = flatwater_vm::run(&job, &options, &mut |text| progress.tell(Progress::Message(text)))?;
    let (boot, first) = (Nanos(report.boot_ns), Nanos(report.first_write_ns));
    progress.tell(Progress::Message(&format!(
        "{} under {}: booted in {boot}, first write after {first}",
        report.release, report.accelerator
    )));
    Ok(())
}

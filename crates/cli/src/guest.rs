//! Process 1 of a vm: prepares the machine, performs the scenario or command, and returns the recording to the host.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Context;

use super::common;
use flatwater_host::run::{Progress, RunOptions};
use flatwater_recording::Source;
use flatwater_safefs::Dir;
use flatwater_vm::guest::{self, Host, Line};
use flatwater_workload::scenario::Scenario;

/// Does not return: it powers the machine off.
pub fn main() -> ! {
    match guest::prepare() {
        Ok((job, mut host)) => {
            let done = perform(&job, &mut host);
            host.tell(&match done {
                Ok(()) => Line::Done,
                Err(error) => Line::Failed(format!("{error:#}")),
            });
        }
        // The serial port to the host may not be open yet; the host shows the guest's console.
        Err(error) => common::say(format_args!("flatwater guest: {error}")),
    }
    guest::power_off()
}

fn perform(job: &flatwater_vm::Job, host: &mut Host) -> anyhow::Result<()> {
    if !job.command.is_empty() {
        let performed = guest::perform_command(&job.command, host);
        // The output before the failure is still useful.
        guest::hand_back().context("hand back what the command wrote")?;
        return Ok(performed?);
    }
    let mut scenario = Scenario::parse(&job.scenario_origin, &job.scenario_text)?;
    for assignment in &job.set {
        scenario.set(assignment)?;
    }
    let options = RunOptions {
        directory: PathBuf::from(guest::WORK),
        out: Dir::claim(Path::new(guest::OUT), None)?,
        sample_hz: job.sample_hz,
        stack_hz: job.stack_hz.unwrap_or(flatwater_host::tracer::DEFAULT_HZ),
        cpu: None,
        source: Source::Vm,
        time_distorted: job.time_distorted,
        keep: true,
        apply: true,
        drop_rights: false,
    };
    let mut working = false;
    let mut second = u64::MAX;
    flatwater_host::run::run(&scenario, &options, &AtomicBool::new(false), &mut |progress| match progress {
        Progress::Message(text) => host.tell(&Line::Message(text.to_owned())),
        Progress::Measuring { elapsed_ns, total_ns, slow_calls, .. } => {
            if !std::mem::replace(&mut working, true) {
                host.tell(&Line::Working);
            }
            // Once a second, because the host's watchdog waits for these lines.
            if second != elapsed_ns / 1_000_000_000 {
                second = elapsed_ns / 1_000_000_000;
                let total_s = total_ns / 1_000_000_000;
                host.tell(&Line::Message(format!("{second} of {total_s} s, {slow_calls} slow calls")));
            }
        }
    })
    .context("run")?;
    guest::hand_back().context("hand back the recording")
}

//! `flatwater record -p PID | --cgroup PATH | -- CMD ARGS...`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::common::{self, Output, Usage};
use super::message::number;
use super::progress::Bar;
use super::stop::{self, AtOnce};
use crate::status::Status;
use flatwater_host::error::HostError;
use flatwater_host::own_cost::keep_memory_small;
use flatwater_host::privileges::User;
use flatwater_host::record::RecordOptions;
use flatwater_host::tracer::Level;
use flatwater_recording::units::Nanos;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Record this process and all its descendants, existing or forked later; repeatable.
    #[arg(short = 'p', long = "pid", value_name = "PID", value_parser = number(1_u32, i32::MAX.cast_unsigned()))]
    pids: Vec<u32>,
    /// Record every process that runs this program, including processes that start later; repeatable.
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<String>,
    /// Record the processes of this cgroup and of the cgroups below it: a path, or the first digits of a container's
    /// id.
    #[arg(long, value_name = "PATH|ID")]
    cgroup: Option<PathBuf>,
    /// Record a systemd unit, such as postgresql.service.
    #[arg(long, value_name = "NAME", conflicts_with = "cgroup")]
    unit: Option<String>,
    /// Start this command and record it until it ends.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// Run the command as this user, with its groups and a login's environment; root only.
    #[arg(long, value_name = "NAME", requires = "command")]
    user: Option<String>,
    /// Record the command's arguments unchanged; by default passwords, tokens and keys are hidden.
    #[arg(long, requires = "command")]
    keep_arguments: bool,
    /// Stop after this long (30s); by default when the targets end or on ^C.
    #[arg(short = 't', long = "time", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Nanos>,
    /// Keep each call that takes at least this long.
    #[arg(short = 'm', long = "min", value_name = "TIME", default_value = "1ms")]
    threshold: Nanos,
    /// The recording's directory; by default flatwater-DATE-TIME.
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Let this group read the recording, which otherwise only you can read.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Samples of the kernel's counters per second, 1 to 100.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(1_u32, 100))]
    hz: u32,
    /// Stack samples of on-CPU threads per second; 0 takes none.
    #[arg(long, value_name = "N", default_value_t = flatwater_host::tracer::DEFAULT_HZ, value_parser = number(0_u32, 10_000))]
    stack_hz: u32,
    /// Do not record page faults, each of which costs a hook.
    #[arg(long)]
    no_faults: bool,
    /// Read the kernel's types (BTF) from this file if the kernel has none.
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// 0: no hooks on system calls; slow calls are found by their sleeps. 1: exact times, at a cost for system calls on
    /// files only; not every kernel allows it. 2: exact times, at a cost for every system call of the machine, which is
    /// measured and printed first. By default 1 if the kernel allows it, else 2.
    #[arg(long, value_name = "N", value_parser = ["0", "1", "2"])]
    level: Option<String>,
    /// Do not count operations, files and limits, which `reproduce` needs.
    #[arg(long)]
    no_operations: bool,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: Args) -> anyhow::Result<Status> {
    keep_memory_small();
    args.output.check()?;
    args.btf.as_deref().map_or(Ok(()), flatwater_host::tracer::use_types_of)?;
    let groups = args.cgroup.is_some() || args.unit.is_some();
    if args.pids.is_empty() && args.programs.is_empty() && !groups && args.command.is_empty() {
        let ways = "-p PID, --program NAME, --cgroup PATH, --unit NAME.service, or -- CMD ARGS";
        anyhow::bail!(Usage::new(format!("nothing to record: give {ways}")));
    }
    if args.duration == Some(Nanos(0)) {
        anyhow::bail!(Usage::new("a recording of 0s shows nothing: give -t 1s or more"));
    }
    // Before anything is created: a missing user is a mistake on the command line.
    let user = args.user.as_deref().map(User::find).transpose().map_err(Usage::new)?;
    let out = common::claim_output(args.out.clone(), args.group.as_deref())?;
    let stop = stop::on_signal(AtOnce::Leave)?;
    let options = RecordOptions {
        out: out.clone(),
        pids: args.pids.clone(),
        programs: args.programs.clone(),
        cgroup: args.cgroup.clone(),
        unit: args.unit.clone(),
        command: args.command.clone(),
        user,
        keep_arguments: args.keep_arguments,
        duration: args.duration.map(|length| Duration::from_nanos(length.0)),
        threshold_ns: args.threshold.0,
        sample_hz: args.hz,
        stack_hz: args.stack_hz,
        faults: !args.no_faults,
        level: args.level.as_deref().map(|level| match level {
            "0" => Level::Sleeps,
            "1" => Level::Files,
            _ => Level::Calls,
        }),
        imitation: !args.no_operations,
    };
    let progress = Bar::new();
    let recorded = flatwater_host::record::record(&options, &stop.flag, &mut |text| progress.tell(text));
    progress.clear();
    match &recorded {
        // The set-up was ready, so the directory is not empty, but it contains no calls. It was empty before.
        Err(HostError::Command { .. }) => drop(std::fs::remove_dir_all(out.path())),
        Err(_) => drop(std::fs::remove_dir(out.path())),
        Ok(_) => {}
    }
    let ended = recorded?;
    let failed = ended.and_then(Status::of_command);
    if let Some(ended) = ended.filter(|ended| !ended.success()) {
        common::say(format_args!("flatwater: the command ended with {ended}"));
    }
    let concluded = common::conclude(&out, &args.output, Some(&stop))?;
    Ok(failed.filter(|_| stop.status().is_none()).unwrap_or(concluded))
}

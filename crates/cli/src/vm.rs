//! `flatwater vm`: kernels for `run --on vm`, and commands in a guest.

use std::path::PathBuf;

use anyhow::Context;

use super::common::{self, Usage};
use super::progress::Bar;
use super::stop::{self, AtOnce};
use crate::status::Status;
use flatwater_host::run::Progress;
use flatwater_recording::units::Nanos;
use flatwater_vm::{Carried, Job, VmOptions, kernel};
use flatwater_workload::scenario::{MachineSpec, Scenario};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Fetch a kernel through apt, without installing it.
    FetchKernel {
        /// Package of the kernel; by default the one that Debian's linux-image-cloud-amd64 depends on.
        package: Option<String>,
    },
    /// Print which kernel `run --on vm` boots.
    Kernel {
        /// The image to boot instead.
        #[arg(long, value_name = "PATH")]
        kernel: Option<PathBuf>,
    },
    /// Boot a guest and run a command in it; files that it writes to $OUT come back.
    Exec(ExecArgs),
}

#[derive(Debug, clap::Args)]
struct ExecArgs {
    /// Boot this kernel image.
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// Give the guest the machine of this scenario (name or .toml file).
    #[arg(long, value_name = "SCENARIO")]
    machine: Option<String>,
    /// Put a file of the host into the guest; repeatable.
    #[arg(long = "with", value_name = "FILE=PATH")]
    with: Vec<String>,
    /// Load this module too; repeatable.
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// A static flatwater for a guest of another architecture.
    #[arg(long, value_name = "PATH")]
    init: Option<PathBuf>,
    /// Directory for the files that the command writes to $OUT.
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also keep the guest's console in that directory.
    #[arg(long)]
    console: bool,
    /// End a guest that prints nothing for this long (before its first line: for half as long); time in which it waits
    /// for a CPU of the host counts little.
    #[arg(long, value_name = "TIME", default_value = "90s")]
    patience: Nanos,
    /// A program of the guest (/bin/flatwater is one) and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let found = match &args.verb {
        Verb::FetchKernel { package } => {
            kernel::fetch(package.as_deref(), &mut |message| common::say(format_args!("flatwater: {message}")))?
        }
        Verb::Kernel { kernel } => kernel::find(kernel.as_deref())?,
        Verb::Exec(exec) => return self::exec(exec),
    };
    let modules = found.modules.map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    common::print(&format!("kernel   {}\nimage    {}\nmodules  {modules}", found.release, found.image.display()))?;
    Ok(Status::Done)
}

/// Time limit for a command in a guest: one hour.
const EXEC_NS_MAX: u64 = 3_600_000_000_000;

fn exec(args: &ExecArgs) -> anyhow::Result<Status> {
    let machine = match &args.machine {
        Some(name) => Scenario::load(name).map_err(Usage::new)?.machine,
        None => MachineSpec::default(),
    };
    let files = args.with.iter().map(|pair| {
        let parts = pair.split_once('=').filter(|(from, to)| !from.is_empty() && to.starts_with('/'));
        let (from, to) = parts.ok_or_else(|| Usage::new(format!("'{pair}' is not FILE=/PATH")))?;
        Ok((PathBuf::from(from), to.to_owned()))
    });
    let files = files.collect::<Result<Vec<_>, Usage>>()?;
    let out = common::claim_output(args.out.clone(), None)?;
    let stop = stop::on_signal(AtOnce::Restore)?;
    let progress = Bar::new();
    let job = Job { command: args.command.clone(), ..Job::default() };
    let options = VmOptions {
        kernel: args.kernel.clone(),
        out: out.clone(),
        machine,
        carried: Carried { init: args.init.clone(), files, modules: args.modules.clone() },
        duration_ns: EXEC_NS_MAX,
        silence_ns_max: args.patience.0.max(1),
        fetch_kernel: false,
        keep_console: args.console,
        stop: stop.flag.clone(),
    };
    let report = flatwater_vm::run(&job, &options, &mut |text| progress.tell(Progress::Message(text)));
    progress.clear();
    let report = report.context("vm exec")?;
    let kernel = format!("{} under {}", report.release, report.accelerator);
    common::say(format_args!("flatwater: {kernel}: booted in {}", Nanos(report.boot_ns)));
    Ok(Status::Done)
}

//! `flatwater vm`: the kernels that `run --on vm` boots.

use std::process::ExitCode;

use super::common;
use flatwater_vm::kernel;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Fetch a kernel through apt, without installing it.
    FetchKernel {
        /// Package of the kernel; by default what Debian's linux-image-cloud-amd64
        /// depends on now.
        package: Option<String>,
    },
    /// Say which kernel would be booted.
    Kernel {
        /// This image instead.
        #[arg(long, value_name = "PATH")]
        kernel: Option<std::path::PathBuf>,
    },
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let found = match &args.verb {
        Verb::FetchKernel { package } => {
            kernel::fetch(package.as_deref(), &mut |said| common::say(format_args!("flatwater: {said}")))?
        }
        Verb::Kernel { kernel } => kernel::find(kernel.as_deref())?,
    };
    let modules = found.modules.map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    common::print(&format!("kernel   {}\nimage    {}\nmodules  {modules}", found.release, found.image.display()))?;
    Ok(ExitCode::SUCCESS)
}

//! `flatwater explain REC`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::common::{self, Output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording: the directory that `run`, `record` or `import` wrote.
    recording: PathBuf,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.output.check()?;
    let recording = common::read(&args.recording)?;
    let explanation = crate::explain::explain(&recording);
    args.output.print(&recording, &explanation)?;
    Ok(ExitCode::SUCCESS)
}

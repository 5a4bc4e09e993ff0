//! `flatwater explain REC` and `flatwater explain FILE...`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::common::{self, Output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording (a directory written by `run`, `record`, `watch` or `import`), or logs that `import` reads.
    #[arg(required = true, value_name = "RECORDING|FILE")]
    recording: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.output.check()?;
    let recording = super::import::read_any(&args.recording, &args.output)?;
    let explanation = args.output.explain(&recording);
    args.output.print(&recording, &explanation)?;
    let status = common::status(&explanation);
    // The process ends here: freeing a million calls one by one would take longer than explaining them.
    std::mem::forget(recording);
    Ok(status)
}

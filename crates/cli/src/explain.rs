//! `flatwater explain REC` and `flatwater explain FILE...`.

use std::path::PathBuf;

use super::common::Output;
use crate::status::Status;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording (a directory written by `run`, `record`, `watch` or `import`), or logs that `import` reads.
    #[arg(required = true, value_name = "RECORDING|FILE")]
    recording: Vec<PathBuf>,
    /// Exit with 10 if a stall was found, 0 if there was none.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    args.output.check()?;
    let recording = super::import::read_any(&args.recording, &args.output)?;
    let explanation = args.output.explain(&recording);
    args.output.print(&recording, &explanation)?;
    let status = if args.exit_code { Status::of_findings(&explanation) } else { Status::of(&explanation) };
    // The process ends here: freeing a million calls one by one would take longer than explaining them.
    std::mem::forget(recording);
    Ok(status)
}

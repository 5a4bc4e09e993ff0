//! `flatwater report REC -O FORMAT [-o FILE]`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::common::{self, Output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording: the directory that `run`, `record` or `import` wrote.
    recording: PathBuf,
    #[command(flatten)]
    output: Output,
    /// Write to this file instead of standard output.
    #[arg(short = 'o', long = "to", value_name = "FILE")]
    to: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.output.check()?;
    let recording = common::read(&args.recording)?;
    let explanation = crate::explain::explain(&recording);
    let Some(to) = &args.to else {
        args.output.print(&recording, &explanation)?;
        return Ok(ExitCode::SUCCESS);
    };
    let rendered = crate::report::render(&args.output.format, &recording, &explanation, &args.output.options());
    let text = rendered.map_err(common::Usage::new)?;
    std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(ExitCode::SUCCESS)
}

//! `flatwater import FILE...`: converts logs to a recording and explains it.

use std::path::{Path, PathBuf};

use super::common::{self, Output};
use crate::status::Status;
use flatwater_import::{IMPORTERS, Imported, import_files};
use flatwater_recording::{Recording, write_whole};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Logs of any known format, joined by time; `-` is standard input.
    #[arg(required_unless_present = "list", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// List the formats and exit.
    #[arg(long)]
    list: bool,
    /// Write the recording to this directory; without it, only explain.
    #[arg(short = 'o', long = "out", value_name = "DIR", alias = "to")]
    out: Option<PathBuf>,
    /// Let this group read the recording, which otherwise only you can read.
    #[arg(long, value_name = "GROUP", requires = "out")]
    group: Option<String>,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: Args) -> anyhow::Result<Status> {
    if args.list {
        let lines: Vec<String> =
            IMPORTERS.iter().map(|known| format!("{:<16} {}", known.name, known.sentence)).collect();
        common::print(&lines.join("\n"))?;
        return Ok(Status::Done);
    }
    args.output.check()?;
    let recording = import(&args.files)?;
    if let Some(out) = args.out {
        let to = common::claim_output(Some(out), args.group.as_deref())?;
        write_whole(&to.proc_path(), &recording)?;
        to.share_files()?;
        return common::conclude(&to, &args.output, None);
    }
    let explanation = args.output.explain(&recording);
    args.output.print(&recording, &explanation)?;
    Ok(Status::of(&explanation))
}

/// Reads a recording's directory or imports logs, for `explain` and `report`.
pub fn read_any(paths: &[PathBuf], output: &Output) -> anyhow::Result<Recording> {
    match paths {
        [one] if is_recording(one) => common::read_within(one, output.max_decoded),
        _ => import(paths),
    }
}

fn is_recording(path: &Path) -> bool {
    // A missing path counts as a recording, so that the error names a missing recording: most such paths were meant as
    // one.
    path.as_os_str() != "-" && (path.is_dir() || !path.exists())
}

/// Imports logs, and prints to standard error which formats were recognized and which lines were not.
fn import(files: &[PathBuf]) -> anyhow::Result<Recording> {
    let Imported { recording, formats, problems } = import_files(files)?;
    for (file, format) in &formats {
        common::say(format_args!("{file}: {format}"));
    }
    for (file, problem) in problems.iter().take(5) {
        common::say(format_args!("{file}: {problem}"));
    }
    if problems.len() > 5 {
        common::say(format_args!(
            "... and {} more lines that could not be read; the gaps name them",
            problems.len() - 5
        ));
    }
    Ok(recording)
}

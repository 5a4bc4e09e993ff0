//! `flatwater summary REC [-o FILE]`.

use std::path::PathBuf;

use super::common::{self, say};
use crate::status::Status;
use flatwater_recording::summary;
use flatwater_recording::units::Bytes;
use flatwater_safefs::write_output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording: the directory that `run`, `record`, `watch` or `import` wrote.
    recording: PathBuf,
    /// Write to this file; by default beside the recording, as RECORDING.summary.parquet.
    #[arg(short = 'o', long = "out", value_name = "FILE", alias = "to")]
    out: Option<PathBuf>,
    /// Maximum memory for the decoded tables of the recording (512MiB).
    #[arg(long, value_name = "SIZE")]
    max_decoded: Option<Bytes>,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let recording = common::read_within(&args.recording, args.max_decoded)?;
    let rows = flatwater_explain::summary::of(&recording);
    let to = args.out.clone().unwrap_or_else(|| {
        let mut name = args.recording.components().as_path().as_os_str().to_owned();
        name.push(".summary.parquet");
        PathBuf::from(name)
    });
    let bytes = summary::to_parquet(&rows)?;
    write_output(&to, &bytes)?;
    say(format_args!("flatwater: {} rows: {}", rows.len(), to.display()));
    Ok(Status::Done)
}

//! `flatwater compare A B`.

use std::path::{Path, PathBuf};

use super::common::{self, Usage};
use crate::status::Status;
use flatwater_experiment::compare::compare;
use flatwater_experiment::figure::Figure;
use flatwater_experiment::on_both;
use flatwater_report::{html, versus};
use flatwater_safefs::write_output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The baseline recording.
    a: PathBuf,
    /// The recording that is judged.
    b: PathBuf,
    /// Figure for the verdict: [OPERATION.]FIGURE, such as fdatasync.p99, with p50, p99, p99.9, p99.99, worst, lost (stall
    /// time) or rate; or a cause (its stall time). Without OPERATION: the one that stalled longest.
    #[arg(long, value_name = "FIGURE", default_value = "p99.9")]
    judge: String,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json", "html"], alias = "output", short_alias = 'O')]
    format: String,
    /// Write to this file instead of standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let figure = Figure::parse(&args.judge).map_err(Usage::new)?;
    // Reading a day's recording takes seconds, so both are read at once.
    let [a, b] = on_both(|| common::read(&args.a), || common::read(&args.b));
    let found = compare(&a?, &b?, figure);
    let text = match args.format.as_str() {
        "json" => serde_json::to_string_pretty(&found)?,
        "html" => html::comparison_page(&found, [&name(&args.a), &name(&args.b)]),
        _ => versus::comparison(&found),
    };
    match &args.out {
        Some(out) => write_output(out, text.as_bytes())?,
        None => common::print(&text)?,
    }
    Ok(Status::of_verdict(found.verdict, found.judged.is_some_and(|row| row.ratio.is_some())))
}

/// The recording's own name, for the page: its directory without the path.
fn name(recording: &Path) -> String {
    recording.file_name().unwrap_or(recording.as_os_str()).to_string_lossy().into_owned()
}

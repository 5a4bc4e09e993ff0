//! `flatwater compare A B`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::common::{self, Usage};
use flatwater_experiment::compare::compare;
use flatwater_experiment::judge::Judge;
use flatwater_experiment::on_both;
use flatwater_experiment::verdict::Verdict;
use flatwater_report::versus;

/// Exit status if no difference is proven, and if B is proven worse.
pub const EXIT_NOT_PROVEN: u8 = 3;
pub const EXIT_WORSE: u8 = 4;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The baseline recording.
    a: PathBuf,
    /// The recording that is judged.
    b: PathBuf,
    /// Figure for the verdict: p50, p99, p99.9, worst, lost, rate, or a cause (its stall time).
    #[arg(long, value_name = "FIGURE", default_value = "p99.9")]
    judge: String,
    /// text or json.
    #[arg(short = 'O', long = "output", value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

/// The judge of this name. The error lists the names.
pub fn judge_named(name: &str) -> Result<Judge, Usage> {
    let known: Vec<&str> = Judge::ALL.iter().map(|judge| judge.name()).collect();
    Judge::find(name).ok_or_else(|| {
        Usage::new(format!(
            "'{name}' is not a figure; choose one of {}, or a cause's name (`flatwater causes`)",
            known.join(", ")
        ))
    })
}

pub fn status(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Better => ExitCode::SUCCESS,
        Verdict::NotProven => ExitCode::from(EXIT_NOT_PROVEN),
        Verdict::Worse => ExitCode::from(EXIT_WORSE),
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let judge = judge_named(&args.judge)?;
    // Reading a day's recording takes seconds, so both are read at once.
    let [a, b] = on_both(|| common::read(&args.a), || common::read(&args.b));
    let found = compare(&a?, &b?, judge);
    let text = match args.format.as_str() {
        "json" => serde_json::to_string_pretty(&found)?,
        _ => versus::comparison(&found),
    };
    common::print(&text)?;
    Ok(status(found.verdict))
}

//! `flatwater report REC --format FORMAT [-o FILE]`.

use std::path::{Path, PathBuf};

use super::common::{self, Output};
use super::message::number;
use crate::status::Status;
use flatwater_report::BinaryFormat;
use flatwater_report::chart::{self, Wanted};
use flatwater_safefs::write_output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording: the directory that `run`, `record` or `import` wrote.
    recording: PathBuf,
    #[command(flatten)]
    output: Output,
    /// Write to this file instead of standard output.
    #[arg(short = 'o', long = "out", value_name = "FILE", alias = "to")]
    out: Option<PathBuf>,
    /// perfetto: only the second before and after the N-th slowest call.
    #[arg(long, value_name = "N", value_parser = number(1_usize, usize::MAX))]
    around: Option<usize>,
    /// Draw a picture (SVG) instead: calls, or TABLE:COLUMN (a counter's rate: COLUMN/s; scaled: COLUMN*1e-6; of one
    /// entity: TABLE@NAME:COLUMN); repeatable.
    #[arg(long, value_name = "CURVE")]
    chart: Vec<String>,
    /// A horizontal line in the picture, in the curves' unit; repeatable.
    #[arg(long, value_name = "NAME=VALUE", requires = "chart")]
    level: Vec<String>,
    /// The picture's title.
    #[arg(long, value_name = "TEXT", requires = "chart", default_value = "")]
    title: String,
    /// Logarithmic scale.
    #[arg(long, requires = "chart")]
    log: bool,
}

impl Args {
    fn wanted(&self) -> Wanted {
        Wanted { curves: self.chart.clone(), levels: self.level.clone(), title: self.title.clone(), log: self.log }
    }
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    if let Some(format) = flatwater_report::find_binary(&args.output.format) {
        return binary(args, format);
    }
    args.output.check()?;
    let recording = common::read_within(&args.recording, args.output.max_decoded)?;
    if !args.chart.is_empty() {
        let picture = chart::svg(&recording, &args.wanted()).map_err(common::Usage::new)?;
        return put(args.out.as_deref(), &picture);
    }
    let explanation = args.output.explain(&recording);
    let Some(to) = &args.out else {
        args.output.print(&recording, &explanation)?;
        return Ok(Status::Done);
    };
    let rendered = flatwater_report::render(&args.output.format, &recording, &explanation, &args.output.options());
    let text = rendered.map_err(common::Usage::new)?;
    put(Some(to), &text)
}

fn binary(args: &Args, format: &BinaryFormat) -> anyhow::Result<Status> {
    let Some(to) = &args.out else {
        anyhow::bail!(common::Usage::new(format!("{} is not text: give a file with -o", format.name)));
    };
    let recording = common::read_within(&args.recording, args.output.max_decoded)?;
    let explanation = args.output.explain(&recording);
    let options = flatwater_report::Options { around: args.around, ..args.output.options() };
    let bytes = (format.render)(&recording, &explanation, &options).map_err(common::Usage::new)?;
    write_output(to, &bytes)?;
    Ok(Status::Done)
}

fn put(to: Option<&Path>, text: &str) -> anyhow::Result<Status> {
    match to {
        Some(to) => write_output(to, text.as_bytes())?,
        None => common::print(text)?,
    }
    Ok(Status::Done)
}

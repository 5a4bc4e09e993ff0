//! `flatwater causes [NAME]`: prints the catalogue of causes.

use super::common::{Usage, print};
use crate::status::Status;
use flatwater_explain::cause::{self, CAUSES, page};
use flatwater_recording::knob::nearest;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print this cause in full; without it, list all.
    name: Option<String>,
    /// Print the whole catalogue as Markdown (docs/causes.md).
    #[arg(long, conflicts_with = "name")]
    markdown: bool,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"], alias = "output", short_alias = 'O')]
    format: String,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let text = match &args.name {
        _ if args.markdown => page::markdown(),
        None if args.format == "json" => serde_json::to_string_pretty(CAUSES)?,
        None => page::list(),
        Some(name) => {
            let entry = cause::find(name).ok_or_else(|| unknown(name))?;
            if args.format == "json" { serde_json::to_string_pretty(entry)? } else { page::text(entry) }
        }
    };
    print(&text)?;
    Ok(Status::Done)
}

fn unknown(name: &str) -> anyhow::Error {
    let meant = nearest(name, CAUSES.iter().map(|entry| entry.name));
    let meant = meant.map(|meant| format!(" (did you mean '{meant}'?)")).unwrap_or_default();
    Usage::new(format!("'{name}' is not a cause{meant}; `flatwater causes` lists them")).into()
}
